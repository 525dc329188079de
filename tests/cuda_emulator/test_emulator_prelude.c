/* The scalar functions of codegen/prelude as the GPU would compute them: their text goes through
 * NVRTC and runs in the emulator, the same text is compiled into this program; both give the same
 * bits. Skipped where NVRTC is missing. */
#include "test_support.h"

#include <math.h>

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

#define N (1 << 16)

/* name, 32 bits of result over float x, float y and their bits u, v */
#define FUNCTIONS(X)                                                                               \
    X(exp, a_bits(m_exp(x)))                                                                       \
    X(expm1, a_bits(m_expm1(x)))                                                                   \
    X(log, a_bits(m_log(x)))                                                                       \
    X(log1p, a_bits(m_log1p(x)))                                                                   \
    X(tanh, a_bits(m_tanh(x)))                                                                     \
    X(erf, a_bits(m_erf(x)))                                                                       \
    X(sigmoid, a_bits(m_sigmoid(x)))                                                               \
    X(sin, a_bits(m_sin(x)))                                                                       \
    X(cos, a_bits(m_cos(x)))                                                                       \
    X(pow, a_bits(m_pow(x, y)))                                                                    \
    X(atan2, a_bits(m_atan2(x, y)))                                                                \
    X(rsqrt, a_bits(m_rsqrt(x)))                                                                   \
    X(round, a_bits(m_round(x)))                                                                   \
    X(quotient, a_bits(x / y))                                                                     \
    X(to_f16, to_f16(x))                                                                           \
    X(from_f16, a_bits(from_f16((uint16_t)u)))                                                     \
    X(to_bf16, to_bf16(x))                                                                         \
    X(to_f8e4m3, to_f8e4m3(x) | to_f8e4m3_sat(x) << 8)                                             \
    X(to_f8e5m2, to_f8e5m2(x) | to_f8e5m2_sat(x) << 8)                                             \
    X(from_f8, a_bits(from_f8e4m3((uint8_t)u)) ^ a_bits(from_f8e5m2((uint8_t)v)))                  \
    X(to_integers, (uint32_t)to_i32_f32(x) ^ (uint32_t)(to_i64_f32(y) >> 7) ^ to_u8_f32(x))        \
    X(random, random_u32(u, v, (uint64_t)u *v))                                                    \
    X(normal, a_bits(normal_f32(u, v)))

#define X(name, value) #name,
static const char *const names[] = {FUNCTIONS(X)};
#undef X
#define X(name, value)                                                                             \
    static uint32_t host_##name(float x, float y, uint32_t u, uint32_t v)                          \
    {                                                                                              \
        (void)x, (void)y, (void)u, (void)v;                                                        \
        return (uint32_t)(value);                                                                  \
    }
FUNCTIONS(X)
#undef X
#define X(name, value) host_##name,
static uint32_t (*const host[])(float, float, uint32_t, uint32_t) = {FUNCTIONS(X)};
#undef X

static const char *const head =
    "typedef signed char int8_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t;"
    "typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t;"
    "typedef unsigned long long uint64_t;\n";
#define X(name, value) #value,
static const char *const values[] = {FUNCTIONS(X)};
#undef X

static char *whole_source(void)
{
    static const char *const files[] = {"convert", "math", "philox"};
    char path[100];
    size_t room = 1 << 20;
    char *source = calloc(1, room);
    strcpy(source, head);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "../../codegen/prelude/%s.h", files[i]);
        char *text = read_text(path);
        strncat(source, text, room - strlen(source) - 1);
        free(text);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t used = strlen(source);
        snprintf(source + used, room - used,
                 "extern \"C\" __global__ void device_%s(const uint32_t *a, const uint32_t *b, "
                 "uint32_t *out) {\n"
                 "    int i = blockIdx.x * blockDim.x + threadIdx.x; uint32_t u = a[i], v = b[i];\n"
                 "    float x = a_float(u), y = a_float(v); (void)x; (void)y;\n"
                 "    out[i] = (uint32_t)(%s);\n}\n",
                 names[i], values[i]);
    }
    return source;
}

static char *ptx; /* of all functions; made once, before the tests fork */

/* Any bits: zeros, subnormals, infinities, NaNs; half of them near 1. */
static void fill_inputs(uint32_t *a, uint32_t *b)
{
    uint64_t seed = 2026;
    for (int i = 0; i < N; i++) {
        float x = random_float(&seed), y = random_float(&seed);
        memcpy(&a[i], &x, sizeof x);
        memcpy(&b[i], &y, sizeof y);
        a[i] = i % 64 == 0 ? random_bits(&seed) | 0x7f800000u : a[i];
    }
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

START_TEST(function)
{
    static uint32_t a[N], b[N], out[N];
    char name[60];
    open_context();
    CUmodule m = module_of_text(ptx);
    fill_inputs(a, b);
    CUdeviceptr da = device_copy(a, sizeof a), db = device_copy(b, sizeof b),
                to = device_array(sizeof out);
    snprintf(name, sizeof name, "device_%s", names[_i]);
    GOOD(launch(function_of(m, name), N / 256, 256, 0, (void *[]){&da, &db, &to}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < N; i++) {
        float x, y;
        memcpy(&x, &a[i], sizeof x);
        memcpy(&y, &b[i], sizeof y);
        uint32_t expected = host[_i](x, y, a[i], b[i]);
        bool is_same = out[i] == expected || (is_nan(out[i]) && is_nan(expected));
        ck_assert_msg(is_same, "%s of %08x and %08x: %08x on the device, %08x here", names[_i],
                      a[i], b[i], out[i], expected);
    }
    want_no_findings();
    GOOD(cuMemFree_v2(da));
    GOOD(cuMemFree_v2(db));
    GOOD(cuMemFree_v2(to));
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, function, 0, sizeof names / sizeof *names);
}

int main(void)
{
    char reason[2000];
    char *source = whole_source();
    ptx = compile_cuda(source, "90a", reason, sizeof reason);
    free(source);
    if (!ptx) {
        bool is_missing = strncmp(reason, "NVRTC", 5) == 0 || strncmp(reason, "libnvrtc", 8) == 0;
        printf("%s%s\n", is_missing ? "skipped: " : "", reason);
        return is_missing ? 77 : EXIT_FAILURE;
    }
    int result = run_suite("emulator_prelude", fill);
    free(ptx);
    return result;
}
