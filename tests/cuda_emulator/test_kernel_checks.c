/* The kernels of kernels/sums.cu and scalars.cu against the same computation in C, bit for bit. */
#include "test_support.h"

#include <math.h>

#define ROWS 37

__extension__ typedef unsigned __int128 wide_uint;

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return f != f ? 0x7fffffffu : bits;
}

static void check_row_sums(CUmodule m, int n)
{
    uint64_t seed = 7;
    float *x = malloc(sizeof *x * ROWS * (size_t)n), got[ROWS], warp[ROWS];
    for (int i = 0; i < ROWS * n; i++) {
        x[i] = (float)(int32_t)random_bits(&seed) * 0x1p-24f;
    }
    CUdeviceptr dx = device_copy(x, sizeof *x * ROWS * (size_t)n), out = device_array(sizeof got),
                out2 = device_array(sizeof warp);
    int n4 = n / 4;
    GOOD(launch(function_of(m, "row_sum"), ROWS, 128, 0, (void *[]){&dx, &out, &n}));
    GOOD(launch(function_of(m, "row_sum_warp"), ROWS, 32, 0, (void *[]){&dx, &out2, &n4}));
    GOOD(cuMemcpyDtoH_v2(got, out, sizeof got));
    GOOD(cuMemcpyDtoH_v2(warp, out2, sizeof warp));
    for (int r = 0; r < ROWS; r++) {
        float lane[128] = {0}, four[32];
        for (int i = 0; i < n; i++) {
            lane[i % 128] += x[r * n + i];
        }
        for (int l = 0; l < 32; l++) {
            four[l] = (lane[4 * l] + lane[4 * l + 2]) + (lane[4 * l + 1] + lane[4 * l + 3]);
        }
        for (int h = 64; h > 0; h /= 2) {
            for (int l = 0; l < h; l++) {
                lane[l] += lane[l + h];
                four[l % 32] += h <= 16 ? four[l % 32 + h] : 0;
            }
        }
        ck_assert_uint_eq(bits_of(got[r]), bits_of(lane[0]));
        ck_assert_uint_eq(bits_of(warp[r]), bits_of(four[0]));
    }
    GOOD(cuMemFree_v2(dx));
    GOOD(cuMemFree_v2(out));
    GOOD(cuMemFree_v2(out2));
    free(x);
}

static void check_transpose(CUmodule m)
{
    enum { R = 45, C = 70 };
    float in[R * C], out[R * C];
    int rows = R, columns = C;
    for (int i = 0; i < R * C; i++) {
        in[i] = (float)i;
    }
    CUdeviceptr from = device_copy(in, sizeof in), to = device_array(sizeof out);
    GOOD(cuLaunchKernel(function_of(m, "transpose"), (C + 15) / 16, (R + 15) / 16, 1, 16, 16, 1,
                        16 * 17 * 4, NULL, (void *[]){&from, &to, &rows, &columns}, NULL));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < R * C; i++) {
        ck_assert(out[i % C * R + i / C] == in[i]);
    }
    GOOD(cuMemFree_v2(from));
    GOOD(cuMemFree_v2(to));
}

static void check_histogram(CUmodule m)
{
    enum { N = 5000 };
    uint32_t x[N], bins[16], odd[2], expected[16] = {0}, n_odd = 0, most = 0;
    uint64_t seed = 3;
    int n = N;
    for (int i = 0; i < N; i++) {
        x[i] = random_bits(&seed);
        expected[x[i] % 16]++;
        n_odd += x[i] & 1;
    }
    for (int block = 0; block * 96 < N; block++) {
        uint32_t count = 0;
        for (int i = block * 96; i < N && i < block * 96 + 96; i++) {
            count += x[i] & 1;
        }
        most = count > most ? count : most;
    }
    CUdeviceptr dx = device_copy(x, sizeof x), db = device_array(sizeof bins),
                dodd = device_array(sizeof odd);
    GOOD(cuMemsetD32_v2(db, 0, 16));
    GOOD(cuMemsetD8_v2(dodd, 0, sizeof odd));
    GOOD(
        launch(function_of(m, "histogram"), (N + 95) / 96, 96, 0, (void *[]){&dx, &db, &dodd, &n}));
    GOOD(cuMemcpyDtoH_v2(bins, db, sizeof bins));
    GOOD(cuMemcpyDtoH_v2(odd, dodd, sizeof odd));
    ck_assert(memcmp(bins, expected, sizeof bins) == 0);
    ck_assert_uint_eq(odd[0], n_odd);
    ck_assert_uint_eq(odd[1], most);
    GOOD(cuMemFree_v2(dx));
    GOOD(cuMemFree_v2(db));
    GOOD(cuMemFree_v2(dodd));
}

void check_sums(CUmodule m)
{
    check_row_sums(m, 128);
    check_row_sums(m, 1000);
    check_transpose(m);
    check_histogram(m);
    want_no_findings();
}

#define N 3000

static int64_t to_s64(float f) /* saturating, as cvt is */
{
    return f != f ? INT64_MIN : f >= 0x1p63f ? INT64_MAX : f < -0x1p63f ? INT64_MIN : (int64_t)f;
}

static int32_t to_s32(float f)
{
    return f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int32_t)f;
}

static void check_floats(CUmodule m)
{
    static float x[N], y[N];
    static uint32_t out[8 * N];
    uint64_t seed = 11;
    int n = N;
    for (int i = 0; i < N; i++) {
        x[i] = random_float(&seed);
        y[i] = random_float(&seed);
    }
    CUdeviceptr dx = device_copy(x, sizeof x), dy = device_copy(y, sizeof y),
                to = device_array(sizeof out);
    GOOD(launch(function_of(m, "floats"), (N + 127) / 128, 128, 0, (void *[]){&dx, &dy, &to, &n}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < N; i++) {
        float a = x[i], b = y[i], q = truncf(a / b);
        uint32_t expected[8] = {bits_of(a / b),
                                bits_of(sqrtf(a)),
                                bits_of(fmaf(a, b, a)),
                                bits_of(fmaxf(a, b) - fminf(a, b)),
                                bits_of(rintf(a) + floorf(b) + ceilf(a) + truncf(b)),
                                (uint32_t)to_s32(a) + (uint32_t)to_s64(b),
                                bits_of(q),
                                bits_of(a - q * b)};
        for (int k = 0; k < 8; k++) {
            ck_assert_msg(out[8 * i + k] == expected[k],
                          "result %d of %a and %a: %08x, expected %08x", k, (double)a, (double)b,
                          out[8 * i + k], expected[k]);
        }
    }
    GOOD(cuMemFree_v2(dx));
    GOOD(cuMemFree_v2(dy));
    GOOD(cuMemFree_v2(to));
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t hi = (uint32_t)((uint64_t)a * 0xD2511F53u >> 32), lo = a * 0xD2511F53u;
    return (hi ^ b) + ((lo << 7) | (lo >> 25));
}

static uint32_t reverse(uint32_t a)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) {
        r |= (a >> i & 1u) << (31 - i);
    }
    return r;
}

static uint64_t jump(uint32_t a, uint32_t b)
{
    uint64_t r = 0;
    switch (a % 7) {
    case 0:
        return b + 3u;
    case 1:
        return b * 5u;
    case 2:
        return b ^ a;
    case 3:
        return b / 3u;
    case 4: /* bytes 0 of a, 0 of b, 1 of a, 1 of b */
        return (a & 255) | (b & 255) << 8 | (a >> 8 & 255) << 16 | (b >> 8 & 255) << 24;
    case 5:
        for (uint32_t k = 0; k < b % 9; k++) {
            r = r * 3 + k;
        }
        return r;
    default:
        return a;
    }
}

static void check_integers(CUmodule m)
{
    static uint32_t x[N], y[N];
    static uint64_t out[8 * N];
    uint64_t seed = 5;
    int n = N;
    for (int i = 0; i < N; i++) {
        x[i] = random_bits(&seed) >> (i % 3 * 8);
        y[i] = random_bits(&seed) >> (i % 4 * 7);
    }
    CUdeviceptr dx = device_copy(x, sizeof x), dy = device_copy(y, sizeof y),
                to = device_array(sizeof out);
    GOOD(launch(function_of(m, "integers"), (N + 63) / 64, 64, 0, (void *[]){&dx, &dy, &to, &n}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < N; i++) {
        uint32_t a = x[i], b = y[i];
        uint64_t wide = (uint64_t)a << 32 | b;
        uint64_t high = (uint64_t)((wide_uint)wide * wide >> 64);
        uint32_t entry = (a >> b % 6) * (b % 6);
        uint64_t expected[8] = {
            wide / (b | 1u) + wide % (a | 1u),
            (uint64_t)((int64_t)wide / ((int32_t)b | 1)) ^ high,
            (uint64_t)__builtin_popcount(a) | (uint64_t)(b ? __builtin_clz(b) : 32) << 8 |
                (uint64_t)reverse(a) << 16,
            mix(a, b) + (uint64_t)mix(b, mix(a, a)),
            (uint64_t)(int64_t)(int32_t)entry,
            (uint64_t)((int32_t)a >> (b & 31)) + (uint64_t)((int64_t)wide >> (a & 63)),
            jump(a, b),
            (uint8_t)a + (uint64_t)(uint16_t)b + (uint64_t)(int64_t)(int8_t)a +
                (uint64_t)(int64_t)(int16_t)b};
        for (int k = 0; k < 8; k++) {
            ck_assert_msg(out[8 * i + k] == expected[k],
                          "result %d of %u and %u: %llx, expected %llx", k, a, b,
                          (unsigned long long)out[8 * i + k], (unsigned long long)expected[k]);
        }
    }
    GOOD(cuMemFree_v2(dx));
    GOOD(cuMemFree_v2(dy));
    GOOD(cuMemFree_v2(to));
}

static void check_narrow(CUmodule m)
{
    static uint8_t bytes[4 * N], out[4 * N];
    static uint16_t halves[2 * N], sums[2 * N];
    static double wide[N];
    uint64_t seed = 9;
    int n = N;
    for (int i = 0; i < 4 * N; i++) {
        bytes[i] = (uint8_t)random_bits(&seed);
        halves[i / 2] = (uint16_t)random_bits(&seed);
    }
    CUdeviceptr db = device_copy(bytes, sizeof bytes), dh = device_copy(halves, sizeof halves);
    CUdeviceptr dout = device_array(sizeof out), ds = device_array(sizeof sums),
                dw = device_array(sizeof wide);
    GOOD(launch(function_of(m, "narrow"), (N + 63) / 64, 64, 0,
                (void *[]){&db, &dh, &dout, &ds, &dw, &n}));
    GOOD(cuMemcpyDtoH_v2(out, dout, sizeof out));
    GOOD(cuMemcpyDtoH_v2(sums, ds, sizeof sums));
    GOOD(cuMemcpyDtoH_v2(wide, dw, sizeof wide));
    for (int i = 0; i < N; i++) {
        const uint8_t *b = &bytes[4 * i];
        uint8_t expected[4] = {(uint8_t)(b[3] + 1), b[2], (uint8_t)(b[1] * b[0]), b[0]};
        ck_assert(memcmp(&out[4 * i], expected, 4) == 0);
        ck_assert_uint_eq(sums[2 * i], (uint16_t)(halves[2 * i] + halves[2 * i + 1]));
        ck_assert_uint_eq(sums[2 * i + 1], (uint16_t)(halves[2 * i] * 3));
        ck_assert(wide[i] == sqrt((double)halves[2 * i]) / ((double)b[0] + 1.0));
    }
    CUdeviceptr all[] = {db, dh, dout, ds, dw};
    for (int i = 0; i < 5; i++) {
        GOOD(cuMemFree_v2(all[i]));
    }
}

void check_scalars(CUmodule m)
{
    check_floats(m);
    check_integers(m);
    check_narrow(m);
    want_no_findings();
}
