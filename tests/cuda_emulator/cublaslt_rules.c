/* What cuBLASLt accepts: types, shapes, leading dimensions, alignments, and the narrow rules of
 * FP8. Each refusal says the broken rule. Invariant: a problem that passes here can be computed. */
#include "cublaslt_types.h"
#include "driver.h"

uint32_t type_bytes(uint32_t type)
{
    switch (type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    default:
        return 0;
    }
}

bool type_is_f8(uint32_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static const char *check_f8_types(const struct matmul *m)
{
    uint32_t a = m->a.type, b = m->b.type, c = m->c.type, d = m->d.type;
    if (!type_is_f8(a) || !type_is_f8(b)) {
        return "an FP8 operand with one that is not FP8";
    }
    if (a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2) {
        return "E5M2 times E5M2: one operand must be E4M3";
    }
    if (d == CUDA_R_64F || (d == CUDA_R_8F_E5M2 && a == b)) {
        return "this FP8 product cannot give that type of D";
    }
    if (type_is_f8(d) ? c != CUDA_R_16BF && c != CUDA_R_16F : c != d) {
        return "FP8: C has the type of D, and bf16 or f16 when D is FP8";
    }
    if (matmul_has_parts(m) && type_is_f8(d)) {
        return "scales of rows or blocks give no FP8 D here";
    }
    if (m->compute != CUBLAS_COMPUTE_32F) {
        return "FP8 computes in CUBLAS_COMPUTE_32F";
    }
    return matmul_check_scales(m);
}

static const char *check_types(const struct matmul *m)
{
    uint32_t a = m->a.type, d = m->d.type;
    bool is_wide = m->compute == CUBLAS_COMPUTE_64F || m->compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    bool is_known = is_wide || m->compute == CUBLAS_COMPUTE_32F ||
                    m->compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                    m->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (!is_known || !type_bytes(a) || !type_bytes(m->b.type) || !type_bytes(m->c.type) ||
        !type_bytes(d)) {
        return "a compute type or a type of a matrix that the emulator does not have";
    }
    if (type_is_f8(a) || type_is_f8(m->b.type)) {
        return check_f8_types(m);
    }
    if (a != m->b.type || m->c.type != d) {
        return "A and B, and C and D, have the same type unless they are FP8";
    }
    if (is_wide != (a == CUDA_R_64F) || is_wide != (d == CUDA_R_64F)) {
        return "f64 matrices and CUBLAS_COMPUTE_64F go together";
    }
    if (d != a && d != CUDA_R_32F) {
        return "D has the type of A, or f32";
    }
    if (m->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a != CUDA_R_32F) {
        return "TF32 is a mode of f32 matrices";
    }
    if (m->scale_a || m->scale_b || m->scale_d || m->amax_d || matmul_has_parts(m)) {
        return "scale and amax pointers are for FP8 only";
    }
    return NULL;
}

static const char *check_shapes(const struct matmul *m)
{
    const struct matrix *all[] = {&m->a, &m->b, &m->c, &m->d};
    for (int i = 0; i < 4; i++) {
        uint64_t least = all[i]->is_row_major ? all[i]->columns : all[i]->rows;
        if (!all[i]->rows || !all[i]->columns) {
            return "a matrix without elements";
        }
        if (all[i]->ld < (int64_t)least) {
            return "a leading dimension is smaller than the matrix";
        }
        if (all[i]->batches != m->d.batches || all[i]->batches < 1) {
            return "the matrices differ in their batch count";
        }
    }
    if (m->c.rows != m->m || m->c.columns != m->n) {
        return "C and D differ in shape";
    }
    if ((m->transpose_a ? m->a.columns : m->a.rows) != m->m ||
        (m->transpose_b ? m->b.rows : m->b.columns) != m->n ||
        (m->transpose_b ? m->b.columns : m->b.rows) != m->k) {
        return "the shapes of op(A), op(B) and D do not fit together";
    }
    return NULL;
}

static const char *check_f8_layout(const struct matmul *m)
{
    int arch = emulator_compute_capability();
    if (!m->transpose_a || m->transpose_b) {
        if (arch / 10 != 10) {
            return "FP8 takes A transposed and B not (TN), except on sm_10x";
        }
    }
    uint64_t rows_a = m->transpose_a ? m->k : m->m, rows_b = m->transpose_b ? m->n : m->k;
    if (rows_a % 16 || rows_b % 16 || m->m * type_bytes(m->c.type) % 16 || m->a.ld % 16 ||
        m->b.ld % 16 || (uint64_t)m->c.ld * type_bytes(m->c.type) % 16 ||
        (uint64_t)m->d.ld * type_bytes(m->d.type) % 16) {
        return "FP8: dimensions and leading dimensions are multiples of 16 bytes";
    }
    if (m->a.is_row_major || m->b.is_row_major || m->d.is_row_major) {
        return "FP8 matrices are column-major";
    }
    return NULL;
}

static const char *check_epilogue(const struct matmul *m)
{
    bool is_known =
        m->epilogue == CUBLASLT_EPILOGUE_DEFAULT || m->epilogue == CUBLASLT_EPILOGUE_BIAS ||
        m->epilogue == CUBLASLT_EPILOGUE_RELU || m->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    if (!is_known) {
        return "an epilogue other than bias and relu, which the emulator does not have";
    }
    if (m->epilogue != CUBLASLT_EPILOGUE_DEFAULT && m->d.is_row_major) {
        return "an epilogue with a row-major D";
    }
    if (!(m->epilogue & CUBLASLT_EPILOGUE_BIAS)) {
        return NULL;
    }
    bool is_f8 = type_is_f8(m->a.type);
    uint32_t narrow = m->d.type == CUDA_R_16F || (type_is_f8(m->d.type) && m->c.type == CUDA_R_16F)
                          ? CUDA_R_16F
                          : CUDA_R_16BF;
    if (is_f8 ? m->bias_type != narrow : m->bias_type != m->d.type) {
        return is_f8 ? "the bias of an FP8 product is bf16, or f16 where C or D is f16"
                     : "the bias has the type of D";
    }
    return NULL;
}

cublasStatus_t matmul_check_problem(const struct matmul *m, const char **why)
{
    if ((*why = check_shapes(m)) != NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (type_is_f8(m->a.type) && emulator_compute_capability() < 89) {
        *why = "FP8 needs sm_89 or newer (ATOLL_EMULATOR_ARCH)";
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if ((*why = check_types(m)) != NULL || (*why = check_epilogue(m)) != NULL ||
        (type_is_f8(m->a.type) && (*why = check_f8_layout(m)) != NULL)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < 4; i++) {
        if (type_is_f8(m->a.type) && m->alignment[i] % 16 && m->alignment[i] != 1) {
            *why = "FP8: the promised alignment of a matrix is no multiple of 16";
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t matmul_check_pointers(const struct matmul *m, const char **why)
{
    const struct matrix *all[] = {&m->a, &m->b, &m->c, &m->d};
    for (int i = 0; i < 4; i++) {
        uint32_t least = type_is_f8(m->a.type) ? 16 : type_bytes(all[i]->type);
        bool is_needed = i != 2 || m->beta != 0 || m->scalars_on_device;
        if (!is_needed) {
            continue;
        }
        if (!all[i]->address) {
            *why = "a pointer to a matrix is NULL";
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        if (all[i]->address % least || all[i]->address % m->alignment[i]) {
            *why = "a matrix is not aligned as its type, FP8 (16 bytes) or the preference that "
                   "chose the algorithm wants";
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (matmul_has_parts(m) && (!m->scale_a || !m->scale_b)) {
        *why = "scales of rows or blocks without both scale pointers";
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (matmul_has_parts(m) && m->scale_mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F &&
        (m->scale_a % 16 || m->scale_b % 16)) {
        *why = "scales of blocks begin at multiples of 16 bytes";
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (m->epilogue & CUBLASLT_EPILOGUE_BIAS && !m->bias) {
        *why = "the epilogue adds a bias, but its pointer is not set";
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}
