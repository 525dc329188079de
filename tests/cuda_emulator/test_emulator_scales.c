/* Scales of parts in the emulated cuBLASLt: every factor is read where the real library reads it,
 * and modes that it does not take together, or not there, are refused. Operands are all ones, so
 * that an element of D is the sum over parts of their length times both factors. */
#include "test_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cublaslt_types.h"

#define API(type, name, parameters) type name parameters;
#include "cublaslt_api.def"
#undef API

enum {
    VEC32 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
    VEC128 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
    BLK128 = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
    SCALAR = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
    ROOM = 8192
};

static const struct {
    int mode_a, mode_b;
    const char *arch;
    int m, n, k;
    const char *refusal;
} cases[] = {
    {VEC128, VEC128, "90", 16, 12, 384, NULL},
    {BLK128, VEC128, "90", 272, 4, 640, NULL},
    {VEC128, BLK128, "90", 16, 260, 256, NULL},
    {VEC32, VEC32, "100", 144, 40, 160, NULL},
    {BLK128, BLK128, "90", 128, 128, 128, "for both A and B"},
    {VEC128, SCALAR, "90", 16, 4, 128, "do not go together"},
    {VEC128, BLK128, "100", 16, 4, 128, "sm_90 only"},
    {VEC128, BLK128, "90", 16, 3, 128, "multiples of 4"},
    {VEC32, VEC32, "90", 16, 4, 128, "from sm_100 on"},
    {VEC32, VEC32, "100", 16, 4, 48, "multiple of 32"},
};

/* The factor of part (r,p): a power of two that no neighbour has. */
static int exponent(int r, int p, int salt)
{
    return (r * 5 + p * 3 + salt) % 7 - 3;
}

static int parts(int n, int part)
{
    return (n + part - 1) / part;
}

/* Factors of an operand with that many rows as the mode wants them; everything else is NaN. */
static CUdeviceptr factors(int mode, int rows, int k, int salt)
{
    static float whole[ROOM];
    static uint8_t bytes[4 * ROOM];
    memset(whole, 0xff, sizeof whole);
    memset(bytes, 0xff, sizeof bytes);
    int depth = mode == VEC32 ? 32 : 128, down = mode == BLK128 ? parts(rows, 128) : rows;
    for (int r = 0; r < down; r++) {
        for (int p = 0; p < parts(k, depth); p++) {
            int e = exponent(r, p, salt), tile = r / 128 * parts(k, 128) + p / 4, in = r % 128;
            if (mode == VEC32) {
                bytes[tile * 512 + (in % 32) * 16 + (in / 32) * 4 + p % 4] = (uint8_t)(127 + e);
            } else if (mode == VEC128) {
                whole[p * rows + r] = ldexpf(1.0F, e);
            } else {
                whole[r * 4 * parts(k, 512) + p] = ldexpf(1.0F, e);
            }
        }
    }
    return mode == VEC32 ? device_copy(bytes, sizeof bytes) : device_copy(whole, sizeof whole);
}

static double expected(int i, int row, int column)
{
    int depth = cases[i].mode_a == VEC32 ? 32 : 128;
    double sum = 0.0;
    for (int p = 0; p < parts(cases[i].k, depth); p++) {
        int of_a = exponent(cases[i].mode_a == BLK128 ? row / 128 : row, p, 1);
        int of_b = exponent(cases[i].mode_b == BLK128 ? column / 128 : column, p, 4);
        sum += ldexp(depth, of_a + of_b);
    }
    return sum;
}

static CUdeviceptr ones(size_t n)
{
    uint8_t *all = malloc(n);
    memset(all, 0x38, n);
    CUdeviceptr at = device_copy(all, n);
    free(all);
    return at;
}

static cublasLtMatrixLayout_t layout(uint32_t type, int rows, int columns)
{
    cublasLtMatrixLayout_t l;
    ck_assert(!cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)columns, rows));
    return l;
}

static cublasLtMatmulDesc_t descriptor(int i, const CUdeviceptr scales[2])
{
    cublasLtMatmulDesc_t desc;
    int32_t yes = 1, modes[2] = {cases[i].mode_a, cases[i].mode_b};
    ck_assert(!cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    int status = (int)cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &yes, 4);
    for (unsigned s = 0; s < 2; s++) {
        status |= (int)cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE + s,
                                                      &modes[s], sizeof modes[s]);
        status |= (int)cublasLtMatmulDescSetAttribute(
            desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER + s, &scales[s], sizeof scales[s]);
    }
    ck_assert_int_eq(status, 0);
    return desc;
}

START_TEST(factors_of_parts)
{
    int m = cases[_i].m, n = cases[_i].n, k = cases[_i].k;
    float one = 1, zero = 0;
    float *out = malloc((size_t)(m * n) * sizeof *out);
    setenv("ATOLL_EMULATOR_ARCH", cases[_i].arch, 1);
    open_context();
    CUdeviceptr scales[2] = {factors(cases[_i].mode_a, m, k, 1),
                             factors(cases[_i].mode_b, n, k, 4)};
    CUdeviceptr a = ones((size_t)(m * k)), b = ones((size_t)(n * k));
    CUdeviceptr d = device_array((size_t)(m * n) * sizeof *out);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc = descriptor(_i, scales);
    cublasLtMatrixLayout_t la = layout(CUDA_R_8F_E4M3, k, m), lb = layout(CUDA_R_8F_E4M3, k, n);
    cublasLtMatrixLayout_t ld = layout(CUDA_R_32F, m, n);
    ck_assert(!cublasLtCreate(&handle));
    cublasStatus_t status = cublasLtMatmul(handle, desc, &one, (void *)(uintptr_t)a, la,
                                           (void *)(uintptr_t)b, lb, &zero, (void *)(uintptr_t)d,
                                           ld, (void *)(uintptr_t)d, ld, NULL, NULL, 0, NULL);
    if (cases[_i].refusal != NULL) {
        ck_assert_uint_eq(status, CUBLAS_STATUS_NOT_SUPPORTED);
        ck_assert(has_finding("misuse of the Driver API", cases[_i].refusal));
    } else {
        ck_assert_uint_eq(status, 0);
        GOOD(cuMemcpyDtoH_v2(out, d, (size_t)(m * n) * sizeof *out));
        want_no_findings();
        for (int at = 0; at < m * n; at++) {
            ck_assert_double_eq((double)out[at], expected(_i, at % m, at / m));
        }
    }
    CUdeviceptr memory[] = {scales[0], scales[1], a, b, d};
    for (int i = 0; i < 5; i++) {
        GOOD(cuMemFree_v2(memory[i]));
    }
    ck_assert(!cublasLtMatrixLayoutDestroy(la) && !cublasLtMatrixLayoutDestroy(lb));
    ck_assert(!cublasLtMatrixLayoutDestroy(ld) && !cublasLtMatmulDescDestroy(desc));
    ck_assert(!cublasLtDestroy(handle));
    close_context();
    unsetenv("ATOLL_EMULATOR_ARCH");
    free(out);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, factors_of_parts, 0, (int)(sizeof cases / sizeof *cases));
}

int main(void)
{
    return run_suite("emulator_scales", fill);
}
