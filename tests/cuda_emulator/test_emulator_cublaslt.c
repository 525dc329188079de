/* The emulated cuBLASLt against the naive sum: types, transposes, leading dimensions, batches,
 * bias, scales of FP8; and that it refuses what the real one refuses. */
#include "test_support.h"

#include <math.h>

#include "cublaslt_types.h"
#include "scalar.h"

#define API(type, name, parameters) type name parameters;
#include "cublaslt_api.def"
#undef API

struct shape {
    uint32_t ab, cd, compute;
    int transpose_a, transpose_b, m, n, k, batches, has_bias;
};
static const struct shape shapes[] = {
    {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, 13, 7, 33, 1, 0},
    {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 0, 16, 5, 64, 3, 1},
    {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0, 1, 9, 8, 17, 1, 0},
    {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 1, 1, 12, 10, 40, 2, 1},
    {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, 8, 8, 8, 1, 0},
    {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 0, 24, 6, 31, 1, 1},
    {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 0, 1, 6, 5, 9, 2, 1},
    {CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 0, 16, 32, 48, 1, 1},
};

static uint32_t encode(uint32_t type, double v, uint8_t *out) /* and the bytes used */
{
    float f = (float)v;
    uint32_t bits = type == CUDA_R_16F       ? narrow(&format_f16, v, ROUND_NEAREST, 0)
                    : type == CUDA_R_16BF    ? narrow(&format_bf16, v, ROUND_NEAREST, 0)
                    : type == CUDA_R_8F_E4M3 ? narrow(&format_e4m3, v, ROUND_NEAREST, 1)
                                             : 0;
    uint32_t size = type == CUDA_R_64F       ? 8
                    : type == CUDA_R_32F     ? 4
                    : type == CUDA_R_8F_E4M3 ? 1
                                             : 2;
    memcpy(out, size == 8 ? (void *)&v : size == 4 ? (void *)&f : (void *)&bits, size);
    return size;
}

static double decode(uint32_t type, const uint8_t *p)
{
    float f;
    double d;
    uint16_t h;
    memcpy(&h, p, type == CUDA_R_8F_E4M3 ? 1 : 2);
    if (type == CUDA_R_64F) {
        memcpy(&d, p, sizeof d);
        return d;
    }
    if (type == CUDA_R_32F) {
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    return widen(type == CUDA_R_16F    ? &format_f16
                 : type == CUDA_R_16BF ? &format_bf16
                                       : &format_e4m3,
                 type == CUDA_R_8F_E4M3 ? *p : h);
}

struct data {
    uint8_t *bytes; /* host */
    double *values; /* what the bytes say */
    CUdeviceptr device;
    size_t n;
    uint32_t size;
};

static struct data random_data(uint32_t type, size_t n, uint64_t *seed)
{
    struct data d = {.bytes = malloc(n * 8), .values = malloc(n * sizeof(double)), .n = n};
    for (size_t i = 0; i < n; i++) {
        double v = (double)(int32_t)random_bits(seed) * 0x1p-30;
        d.size = encode(type, v, d.bytes + i * (d.size ? d.size : encode(type, v, d.bytes)));
        d.values[i] = decode(type, d.bytes + i * d.size);
    }
    d.device = device_copy(d.bytes, n * d.size);
    return d;
}

static void drop(struct data *d)
{
    free(d->bytes);
    free(d->values);
    GOOD(cuMemFree_v2(d->device));
}

static cublasLtMatmulDesc_t make_desc(const struct shape *s)
{
    cublasLtMatmulDesc_t desc;
    uint32_t ta = (uint32_t)s->transpose_a, tb = (uint32_t)s->transpose_b;
    ck_assert(!cublasLtMatmulDescCreate(&desc, s->compute,
                                        s->cd == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F));
    ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    return desc;
}

static cublasLtMatrixLayout_t make_layout(uint32_t type, int rows, int columns, int batches)
{
    cublasLtMatrixLayout_t layout;
    int32_t count = batches;
    int64_t stride = (int64_t)rows * columns;
    ck_assert(!cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns, rows));
    ck_assert(!cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count));
    ck_assert(!cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof stride));
    return layout;
}

static void check_result(const struct shape *s, const struct data *a, const struct data *b,
                         const struct data *bias, const uint8_t *d, uint32_t size, double scale)
{
    for (int at = 0; at < s->m * s->n * s->batches; at++) {
        int batch = at / (s->m * s->n), i = at % s->m, j = at / s->m % s->n;
        const double *x = a->values + batch * s->m * s->k, *y = b->values + batch * s->n * s->k;
        double wide = 0, value;
        float sum = 0;
        for (int k = 0; k < s->k; k++) {
            double p = x[s->transpose_a ? i * s->k + k : k * s->m + i],
                   q = y[s->transpose_b ? k * s->n + j : j * s->k + k];
            if (s->compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
                p = widen(&format_tf32, narrow(&format_tf32, p, ROUND_AWAY, 0));
                q = widen(&format_tf32, narrow(&format_tf32, q, ROUND_AWAY, 0));
            }
            sum = fmaf((float)p, (float)q, sum);
            wide = fma(p, q, wide);
        }
        if (s->cd == CUDA_R_64F) {
            value = wide + (bias ? bias->values[i] : 0);
        } else {
            float v = (float)scale * sum;
            value = (double)(bias ? v + (float)bias->values[i] : v);
        }
        uint8_t expected[8];
        ck_assert_uint_eq(encode(s->cd, value, expected), size);
        ck_assert_msg(memcmp(expected, d + (size_t)at * size, size) == 0,
                      "element %d: %a, expected %a", at, decode(s->cd, d + (size_t)at * size),
                      value);
    }
}

START_TEST(product)
{
    const struct shape *s = &shapes[_i];
    uint64_t seed = 21;
    open_context();
    size_t n_d = (size_t)(s->m * s->n * s->batches);
    struct data a = random_data(s->ab, (size_t)(s->m * s->k * s->batches), &seed);
    struct data b = random_data(s->ab, (size_t)(s->n * s->k * s->batches), &seed);
    struct data bias = random_data(s->cd, (size_t)s->m, &seed);
    uint32_t size = bias.size, epilogue = CUBLASLT_EPILOGUE_BIAS;
    CUdeviceptr d = device_array(n_d * size), scales = 0;
    cublasLtMatmulDesc_t desc = make_desc(s);
    if (s->has_bias) {
        ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                  sizeof epilogue));
        ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &bias.device, sizeof bias.device));
    }
    if (s->ab == CUDA_R_8F_E4M3) {
        float factors[2] = {2.0f, 0.25f};
        scales = device_copy(factors, sizeof factors);
        CUdeviceptr second = scales + sizeof(float);
        ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                  &scales, sizeof scales));
        ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                                  &second, sizeof second));
    }
    cublasLtMatrixLayout_t la = s->transpose_a ? make_layout(s->ab, s->k, s->m, s->batches)
                                               : make_layout(s->ab, s->m, s->k, s->batches);
    cublasLtMatrixLayout_t lb = s->transpose_b ? make_layout(s->ab, s->n, s->k, s->batches)
                                               : make_layout(s->ab, s->k, s->n, s->batches);
    cublasLtMatrixLayout_t ld = make_layout(s->cd, s->m, s->n, s->batches);
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    float one = 1, zero = 0;
    double wide_one = 1, wide_zero = 0;
    bool is_wide = s->cd == CUDA_R_64F;
    ck_assert(!cublasLtCreate(&handle));
    ck_assert(!cublasLtMatmulPreferenceCreate(&preference));
    ck_assert(!cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 1, &result,
                                              &found));
    ck_assert_int_eq(found, 1);
    void *to = (void *)(uintptr_t)d;
    ck_assert(!cublasLtMatmul(handle, desc, is_wide ? (void *)&wide_one : &one,
                              (void *)(uintptr_t)a.device, la, (void *)(uintptr_t)b.device, lb,
                              is_wide ? (void *)&wide_zero : &zero, to, ld, to, ld, &result.algo,
                              NULL, 0, NULL));
    uint8_t *out = malloc(n_d * size);
    GOOD(cuMemcpyDtoH_v2(out, d, n_d * size));
    want_no_findings();
    check_result(s, &a, &b, s->has_bias ? &bias : NULL, out, size, scales ? 0.5 : 1);
    drop(&a);
    drop(&b);
    drop(&bias);
    free(out);
    GOOD(cuMemFree_v2(d));
    if (scales) {
        GOOD(cuMemFree_v2(scales));
    }
    ck_assert(!cublasLtMatmulPreferenceDestroy(preference));
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    cublasLtMatrixLayout_t layouts[] = {la, lb, ld};
    for (int i = 0; i < 3; i++) {
        ck_assert(!cublasLtMatrixLayoutDestroy(layouts[i]));
    }
    ck_assert(!cublasLtDestroy(handle));
    close_context();
}
END_TEST

/* Leading dimensions beyond the rows, alpha, beta with a C of its own, relu; and nothing is written
 * between the columns of D. */
START_TEST(general_form)
{
    enum { M = 5, K = 3, NN = 4, LA = 7, LB = 6, LC = 8, LD = 9 };
    const struct shape s = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, M, NN, K, 1, 0};
    float a[LA * K], b[LB * NN], c[LC * NN], d[LD * NN], alpha = 2, beta = -0.5f;
    uint64_t seed = 4;
    uint32_t epilogue = CUBLASLT_EPILOGUE_RELU;
    for (int i = 0; i < LA * K + LB * NN + LC * NN; i++) {
        float v = (float)(int32_t)random_bits(&seed) * 0x1p-30f;
        *(i < LA * K             ? &a[i]
          : i < LA * K + LB * NN ? &b[i - LA * K]
                                 : &c[i - LA * K - LB * NN]) = v;
    }
    open_context();
    CUdeviceptr da = device_copy(a, sizeof a), db = device_copy(b, sizeof b),
                dc = device_copy(c, sizeof c), dd = device_array(sizeof d);
    GOOD(cuMemsetD32_v2(dd, 0x42280000 /* 42 */, LD * NN));
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc = make_desc(&s);
    cublasLtMatrixLayout_t l[4] = {
        make_layout(CUDA_R_32F, M, K, 1), make_layout(CUDA_R_32F, K, NN, 1),
        make_layout(CUDA_R_32F, M, NN, 1), make_layout(CUDA_R_32F, M, NN, 1)};
    int64_t leading[4] = {LA, LB, LC, LD};
    for (int i = 0; i < 4; i++) {
        ck_assert(!cublasLtMatrixLayoutSetAttribute(l[i], CUBLASLT_MATRIX_LAYOUT_LD, &leading[i],
                                                    sizeof *leading));
    }
    ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue));
    ck_assert(!cublasLtCreate(&handle));
    ck_assert(!cublasLtMatmul(handle, desc, &alpha, (void *)(uintptr_t)da, l[0],
                              (void *)(uintptr_t)db, l[1], &beta, (void *)(uintptr_t)dc, l[2],
                              (void *)(uintptr_t)dd, l[3], NULL, NULL, 0, NULL));
    GOOD(cuMemcpyDtoH_v2(d, dd, sizeof d));
    for (int at = 0; at < LD * NN; at++) {
        int i = at % LD, j = at / LD;
        float sum = 0;
        for (int k = 0; k < K && i < M; k++) {
            sum = fmaf(a[k * LA + i], b[j * LB + k], sum);
        }
        float v = i < M ? alpha * sum + beta * c[j * LC + i] : 42;
        ck_assert(d[at] == (v < 0 ? 0 : v));
    }
    want_no_findings();
    CUdeviceptr memory[] = {da, db, dc, dd};
    for (int i = 0; i < 4; i++) {
        GOOD(cuMemFree_v2(memory[i]));
        ck_assert(!cublasLtMatrixLayoutDestroy(l[i]));
    }
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
}
END_TEST

/* FP8 in and out: D is scaled and saturates, amax is that of the values before the scale. */
START_TEST(f8_output)
{
    enum { SIDE = 16 };
    const struct shape s = {
        CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_COMPUTE_32F, 1, 0, SIDE, SIDE, SIDE, 1, 0};
    uint64_t seed = 77;
    float one = 1, zero = 0, scale = 64, amax = 0, most = 0;
    uint8_t out[SIDE * SIDE];
    open_context();
    struct data a = random_data(s.ab, SIDE * SIDE, &seed),
                b = random_data(s.ab, SIDE * SIDE, &seed);
    CUdeviceptr d = device_array(sizeof out), factor = device_copy(&scale, sizeof scale),
                peak = device_array(sizeof amax);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc = make_desc(&s);
    cublasLtMatrixLayout_t l = make_layout(CUDA_R_8F_E4M3, SIDE, SIDE, 1),
                           lc = make_layout(CUDA_R_16BF, SIDE, SIDE, 1);
    ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &factor,
                                              sizeof factor));
    ck_assert(!cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, &peak,
                                              sizeof peak));
    ck_assert(!cublasLtCreate(&handle));
    ck_assert(!cublasLtMatmul(handle, desc, &one, (void *)(uintptr_t)a.device, l,
                              (void *)(uintptr_t)b.device, l, &zero, NULL, lc, (void *)(uintptr_t)d,
                              l, NULL, NULL, 0, NULL));
    GOOD(cuMemcpyDtoH_v2(out, d, sizeof out));
    GOOD(cuMemcpyDtoH_v2(&amax, peak, sizeof amax));
    int n_saturated = 0;
    for (int at = 0; at < SIDE * SIDE; at++) {
        float sum = 0;
        for (int k = 0; k < SIDE; k++) {
            sum = fmaf((float)a.values[at % SIDE * SIDE + k], (float)b.values[at / SIDE * SIDE + k],
                       sum);
        }
        most = fabsf(sum) > most ? fabsf(sum) : most;
        n_saturated += fabsf(sum * scale) > 448;
        ck_assert_uint_eq(out[at], narrow(&format_e4m3, (double)(sum * scale), ROUND_NEAREST, 1));
    }
    ck_assert(n_saturated > 0 && amax == most);
    want_no_findings();
    drop(&a);
    drop(&b);
    CUdeviceptr memory[] = {d, factor, peak};
    for (int i = 0; i < 3; i++) {
        GOOD(cuMemFree_v2(memory[i]));
    }
    ck_assert(!cublasLtMatrixLayoutDestroy(l) && !cublasLtMatrixLayoutDestroy(lc));
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
}
END_TEST

/* A factor a row and one a column of D, each multiplied onto the sum; on sm_90 only. */
START_TEST(outer_scales)
{
    enum { SIDE = 16 };
    const struct shape s = {
        CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 0, SIDE, SIDE, SIDE, 1, 0};
    uint64_t seed = 78;
    float one = 1, zero = 0, rows[SIDE], columns[SIDE];
    uint16_t out[SIDE * SIDE];
    int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    for (int i = 0; i < SIDE; i++) {
        rows[i] = ldexpf(1.25F, i % 5 - 2);
        columns[i] = ldexpf(1.0F, i % 3);
    }
    setenv("ATOLL_EMULATOR_ARCH", _i == 0 ? "90" : "100", 1);
    open_context();
    struct data a = random_data(s.ab, SIDE * SIDE, &seed),
                b = random_data(s.ab, SIDE * SIDE, &seed);
    CUdeviceptr d = device_array(sizeof out), of_rows = device_copy(rows, sizeof rows),
                of_columns = device_copy(columns, sizeof columns);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc = make_desc(&s);
    cublasLtMatrixLayout_t l = make_layout(s.ab, SIDE, SIDE, 1),
                           ld = make_layout(s.cd, SIDE, SIDE, 1);
    const struct {
        int attribute;
        const void *value;
        size_t size;
    } settings[] = {{CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode},
                    {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode},
                    {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_rows, sizeof of_rows},
                    {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_columns, sizeof of_columns}};
    for (int i = 0; i < 4; i++) {
        ck_assert(!cublasLtMatmulDescSetAttribute(
            desc, (cublasLtMatmulDescAttributes_t)settings[i].attribute, settings[i].value,
            settings[i].size));
    }
    ck_assert(!cublasLtCreate(&handle));
    cublasStatus_t status = cublasLtMatmul(
        handle, desc, &one, (void *)(uintptr_t)a.device, l, (void *)(uintptr_t)b.device, l, &zero,
        (void *)(uintptr_t)d, ld, (void *)(uintptr_t)d, ld, NULL, NULL, 0, NULL);
    if (_i == 1) {
        ck_assert_uint_eq(status, CUBLAS_STATUS_NOT_SUPPORTED);
        ck_assert(has_finding("misuse of the Driver API", "sm_90 only"));
    } else {
        ck_assert(!status);
        GOOD(cuMemcpyDtoH_v2(out, d, sizeof out));
        want_no_findings();
    }
    for (int at = 0; at < SIDE * SIDE && _i == 0; at++) {
        float sum = 0;
        for (int k = 0; k < SIDE; k++) {
            sum = fmaf((float)a.values[at % SIDE * SIDE + k], (float)b.values[at / SIDE * SIDE + k],
                       sum);
        }
        float scaled = rows[at % SIDE] * columns[at / SIDE] * sum;
        ck_assert_uint_eq(out[at], store_bf16((double)scaled));
    }
    drop(&a);
    drop(&b);
    CUdeviceptr memory[] = {d, of_rows, of_columns};
    for (int i = 0; i < 3; i++) {
        GOOD(cuMemFree_v2(memory[i]));
    }
    ck_assert(!cublasLtMatrixLayoutDestroy(l) && !cublasLtMatrixLayoutDestroy(ld));
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
    unsetenv("ATOLL_EMULATOR_ARCH");
}
END_TEST

/* A problem that is refused, and the words of the finding. */
static const struct {
    struct shape s;
    cublasStatus_t status;
    const char *why;
} refused[] = {
    {{CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0, 0, 16, 16, 16, 1, 0},
     CUBLAS_STATUS_NOT_SUPPORTED,
     "(TN)"},
    {{CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 0, 16, 16, 24, 1, 0},
     CUBLAS_STATUS_NOT_SUPPORTED,
     "multiples of 16"},
    {{CUDA_R_8F_E5M2, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 0, 16, 16, 16, 1, 0},
     CUBLAS_STATUS_NOT_SUPPORTED,
     "E5M2 times E5M2"},
    {{CUDA_R_16F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0, 0, 8, 8, 8, 1, 0},
     CUBLAS_STATUS_NOT_SUPPORTED,
     "D has the type of A"},
    {{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_32F, 0, 0, 8, 8, 8, 1, 0},
     CUBLAS_STATUS_NOT_SUPPORTED,
     "descriptor"},
};

START_TEST(refusal)
{
    const struct shape *s = &refused[_i].s;
    open_context();
    cublasLtMatmulDesc_t desc = make_desc(s);
    cublasLtMatrixLayout_t la =
        s->transpose_a ? make_layout(s->ab, s->k, s->m, 1) : make_layout(s->ab, s->m, s->k, 1);
    cublasLtMatrixLayout_t lb = make_layout(s->ab, s->k, s->n, 1),
                           ld = make_layout(s->cd, s->m, s->n, 1);
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 1;
    ck_assert(!cublasLtCreate(&handle));
    ck_assert(!cublasLtMatmulPreferenceCreate(&preference));
    ck_assert_uint_eq(cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 1,
                                                     &result, &found),
                      refused[_i].status);
    ck_assert_int_eq(found, 0);
    ck_assert(strstr(cublasLtGetStatusString(refused[_i].status), refused[_i].why));
    want_no_findings(); /* to ask is no mistake, to insist is */
    CUdeviceptr memory = device_array(4096);
    void *p = (void *)(uintptr_t)memory;
    double zero = 0;
    ck_assert_uint_eq(
        cublasLtMatmul(handle, desc, &zero, p, la, p, lb, &zero, p, ld, p, ld, NULL, NULL, 0, NULL),
        refused[_i].status);
    ck_assert(has_finding("misuse of the Driver API", refused[_i].why));
    GOOD(cuMemFree_v2(memory));
    cublasLtMatrixLayout_t layouts[] = {la, lb, ld};
    for (int i = 0; i < 3; i++) {
        ck_assert(!cublasLtMatrixLayoutDestroy(layouts[i]));
    }
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtMatmulPreferenceDestroy(preference));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
}
END_TEST

/* The operands are memory like any other: unwritten, freed and short ones are found. */
START_TEST(operands_are_checked)
{
    const struct shape s = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, 8, 8, 8, 1, 0};
    open_context();
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc = make_desc(&s);
    cublasLtMatrixLayout_t l = make_layout(CUDA_R_32F, 8, 8, 1);
    float one = 1, zero = 0;
    CUdeviceptr a = device_array(256), b = device_array(252), d = device_array(256);
    GOOD(cuMemsetD32_v2(b, 0, 63));
    ck_assert(!cublasLtCreate(&handle));
    ck_assert(!cublasLtMatmul(handle, desc, &one, (void *)(uintptr_t)a, l, (void *)(uintptr_t)b, l,
                              &zero, (void *)(uintptr_t)d, l, (void *)(uintptr_t)d, l, NULL, NULL,
                              0, NULL));
    GOOD(cuCtxSynchronize());
    ck_assert(has_finding("uninitialized read", "cublasLtMatmul (operation"));
    ck_assert(has_finding("out of bounds", "0 bytes behind the 252 bytes"));
    ck_assert_uint_eq(cublasLtMatmul(handle, desc, &one, (void *)(uintptr_t)(a + 2), l,
                                     (void *)(uintptr_t)b, l, &zero, (void *)(uintptr_t)d, l,
                                     (void *)(uintptr_t)d, l, NULL, NULL, 0, NULL),
                      CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_uint_eq(cublasLtMatmulDescSetAttribute(desc, 999, &one, 4),
                      CUBLAS_STATUS_INVALID_VALUE);
    ck_assert(!cublasLtMatrixLayoutDestroy(l));
    ck_assert(!cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, product, 0, sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(tc, refusal, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tc, general_form);
    tcase_add_test(tc, f8_output);
    tcase_add_loop_test(tc, outer_scales, 0, 2);
    tcase_add_test(tc, operands_are_checked);
}

int main(void)
{
    return run_suite("emulator_cublaslt", fill);
}
