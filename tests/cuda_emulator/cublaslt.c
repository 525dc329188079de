/* The API of the emulated cuBLASLt: descriptors, layouts, preferences are numbered attributes; a
 * matmul is checked as the real library does (cublaslt_rules.c) and enqueued in its stream
 * (cublaslt_matmul.c computes it). A refused matmul is also a finding, in words: the real one gives
 * a number only; cublasLtGetStatusString has the words, too. Invariant: a handle is alive from its
 * create to its destroy, else INVALID_VALUE. */
#include <stdlib.h>
#include <string.h>

#include "cublaslt_types.h"
#include "driver.h"

#define API(type, name, parameters) EXPORT type name parameters;
#include "cublaslt_api.def"
#undef API

struct cublasLtContext {
    bool is_alive;
};

#define ALGO_MARK 0x61746f6c6c6d6d31u

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    struct cublasLtContext *c = calloc(1, sizeof *c);
    if (!handle || !c) {
        free(c);
        return handle ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_INVALID_VALUE;
    }
    c->is_alive = true;
    *handle = c;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!handle || !handle->is_alive) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->is_alive = false;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT size_t cublasLtGetVersion(void)
{
    return 130100;
}

EXPORT const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "an unknown status";
    }
}

/* Why the last heuristic query or matmul of this thread was refused. */
static _Thread_local const char *refusal;

EXPORT const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status && refusal ? refusal : cublasLtGetStatusName(status);
}

/* ---- attributes ---- */

/* Sizes of the values by attribute number; 0: not known to the emulator. */
static const uint8_t desc_bytes[40] = {
    [CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = 4,    [CUBLASLT_MATMUL_DESC_SCALE_TYPE] = 4,
    [CUBLASLT_MATMUL_DESC_POINTER_MODE] = 4,    [CUBLASLT_MATMUL_DESC_TRANSA] = 4,
    [CUBLASLT_MATMUL_DESC_TRANSB] = 4,          [CUBLASLT_MATMUL_DESC_TRANSC] = 4,
    [CUBLASLT_MATMUL_DESC_FILL_MODE] = 4,       [CUBLASLT_MATMUL_DESC_EPILOGUE] = 4,
    [CUBLASLT_MATMUL_DESC_BIAS_POINTER] = 8,    [CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE] = 8,
    [CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET] = 4, [CUBLASLT_MATMUL_DESC_A_SCALE_POINTER] = 8,
    [CUBLASLT_MATMUL_DESC_B_SCALE_POINTER] = 8, [CUBLASLT_MATMUL_DESC_C_SCALE_POINTER] = 8,
    [CUBLASLT_MATMUL_DESC_D_SCALE_POINTER] = 8, [CUBLASLT_MATMUL_DESC_AMAX_D_POINTER] = 8,
    [CUBLASLT_MATMUL_DESC_FAST_ACCUM] = 1,      [CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = 4,
    [CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = 4,    [CUBLASLT_MATMUL_DESC_B_SCALE_MODE] = 4,
    [CUBLASLT_MATMUL_DESC_C_SCALE_MODE] = 4,    [CUBLASLT_MATMUL_DESC_D_SCALE_MODE] = 4};
static const uint8_t layout_bytes[40] = {[CUBLASLT_MATRIX_LAYOUT_TYPE] = 4,
                                         [CUBLASLT_MATRIX_LAYOUT_ORDER] = 4,
                                         [CUBLASLT_MATRIX_LAYOUT_ROWS] = 8,
                                         [CUBLASLT_MATRIX_LAYOUT_COLS] = 8,
                                         [CUBLASLT_MATRIX_LAYOUT_LD] = 8,
                                         [CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = 4,
                                         [CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET] = 8};
static const uint8_t preference_bytes[40] = {[CUBLASLT_MATMUL_PREF_SEARCH_MODE] = 4,
                                             [CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES] = 8,
                                             [CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] = 4,
                                             [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = 4,
                                             [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] = 4,
                                             [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES] = 4,
                                             [CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES] = 4,
                                             [CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT] = 4,
                                             [CUBLASLT_MATMUL_PREF_IMPL_MASK] = 8};

static cublasStatus_t create(struct attributes **out)
{
    struct attributes *a = calloc(1, sizeof *a);
    if (!out || !a) {
        free(a);
        return out ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_INVALID_VALUE;
    }
    a->is_alive = true;
    *out = a;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(struct attributes *a)
{
    if (!a || !a->is_alive) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    a->is_alive = false;
    free(a);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(struct attributes *a, const uint8_t *sizes, unsigned int attribute,
                          const void *value, size_t bytes)
{
    if (!a || !a->is_alive || !value || attribute >= 40 || !sizes[attribute] ||
        bytes < sizes[attribute]) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    a->value[attribute] = 0;
    memcpy(&a->value[attribute], value, sizes[attribute]);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const struct attributes *a, const uint8_t *sizes, unsigned int attribute,
                          void *value, size_t bytes, size_t *written)
{
    if (!a || !a->is_alive || attribute >= 40 || !sizes[attribute] ||
        (value && bytes < sizes[attribute])) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (written) {
        *written = sizes[attribute];
    }
    if (value) {
        memcpy(value, &a->value[attribute], sizes[attribute]);
    }
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    cublasStatus_t s = create(desc);
    if (!s) {
        (*desc)->value[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = compute;
        (*desc)->value[CUBLASLT_MATMUL_DESC_SCALE_TYPE] = scale;
        (*desc)->value[CUBLASLT_MATMUL_DESC_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
        (*desc)->value[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = UINT32_MAX; /* as D */
    }
    return s;
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc);
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void *value, size_t bytes)
{
    return set(desc, desc_bytes, attribute, value, bytes);
}

EXPORT cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     void *value, size_t bytes, size_t *written)
{
    return get(desc, desc_bytes, attribute, value, bytes, written);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld)
{
    cublasStatus_t s = create(layout);
    if (!s) {
        uint64_t *v = (*layout)->value;
        v[CUBLASLT_MATRIX_LAYOUT_TYPE] = type;
        v[CUBLASLT_MATRIX_LAYOUT_ROWS] = rows;
        v[CUBLASLT_MATRIX_LAYOUT_COLS] = columns;
        v[CUBLASLT_MATRIX_LAYOUT_LD] = (uint64_t)ld;
        v[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = 1;
    }
    return s;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       const void *value, size_t bytes)
{
    return set(layout, layout_bytes, attribute, value, bytes);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       void *value, size_t bytes, size_t *written)
{
    return get(layout, layout_bytes, attribute, value, bytes, written);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    cublasStatus_t s = create(preference);
    for (unsigned i = 0; i < 4 && !s; i++) {
        (*preference)->value[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i] = 256;
    }
    return s;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes)
{
    return set(preference, preference_bytes, attribute, value, bytes);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceGetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    void *value, size_t bytes, size_t *written)
{
    return get(preference, preference_bytes, attribute, value, bytes, written);
}

/* ---- matmul ---- */

static struct matrix matrix_of(const struct attributes *layout, const void *address)
{
    const uint64_t *v = layout->value;
    return (struct matrix){.address = (CUdeviceptr)(uintptr_t)address,
                           .type = (uint32_t)v[CUBLASLT_MATRIX_LAYOUT_TYPE],
                           .rows = v[CUBLASLT_MATRIX_LAYOUT_ROWS],
                           .columns = v[CUBLASLT_MATRIX_LAYOUT_COLS],
                           .ld = (int64_t)v[CUBLASLT_MATRIX_LAYOUT_LD],
                           .is_row_major = v[CUBLASLT_MATRIX_LAYOUT_ORDER] == CUBLASLT_ORDER_ROW,
                           .batches = (int32_t)v[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT],
                           .batch_stride = (int64_t)v[CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET]};
}

static cublasStatus_t problem_of(struct matmul *m, const struct attributes *desc,
                                 const struct attributes *const *layouts)
{
    *m = (struct matmul){0};
    struct matrix *const matrices[] = {&m->a, &m->b, &m->c, &m->d};
    for (int i = 0; i < 4; i++) {
        if (!layouts[i] || !layouts[i]->is_alive) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        *matrices[i] = matrix_of(layouts[i], NULL);
        m->alignment[i] = 1;
    }
    if (!desc || !desc->is_alive) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const uint64_t *v = desc->value;
    m->transpose_a = v[CUBLASLT_MATMUL_DESC_TRANSA] != CUBLAS_OP_N;
    m->transpose_b = v[CUBLASLT_MATMUL_DESC_TRANSB] != CUBLAS_OP_N;
    m->compute = (uint32_t)v[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE];
    m->epilogue = (uint32_t)v[CUBLASLT_MATMUL_DESC_EPILOGUE];
    m->bias_type = (uint32_t)v[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE];
    m->bias = v[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    m->bias_stride = (int64_t)v[CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE];
    m->scale_a = v[CUBLASLT_MATMUL_DESC_A_SCALE_POINTER];
    m->scale_b = v[CUBLASLT_MATMUL_DESC_B_SCALE_POINTER];
    m->scale_c = v[CUBLASLT_MATMUL_DESC_C_SCALE_POINTER];
    m->scale_d = v[CUBLASLT_MATMUL_DESC_D_SCALE_POINTER];
    m->amax_d = v[CUBLASLT_MATMUL_DESC_AMAX_D_POINTER];
    m->scalars_on_device = v[CUBLASLT_MATMUL_DESC_POINTER_MODE] == CUBLASLT_POINTER_MODE_DEVICE;
    m->m = m->d.rows;
    m->n = m->d.columns;
    m->k = m->transpose_a ? m->a.rows : m->a.columns;
    if (m->bias_type == UINT32_MAX) {
        m->bias_type = type_is_f8(m->d.type) ? CUDA_R_16BF : m->d.type;
    }
    bool is_plain = v[CUBLASLT_MATMUL_DESC_TRANSC] == CUBLAS_OP_N &&
                    v[CUBLASLT_MATMUL_DESC_POINTER_MODE] <= 1 &&
                    v[CUBLASLT_MATMUL_DESC_FILL_MODE] == 0;
    uint64_t mode_a = v[CUBLASLT_MATMUL_DESC_A_SCALE_MODE],
             mode_b = v[CUBLASLT_MATMUL_DESC_B_SCALE_MODE];
    m->scale_mode_a = (uint32_t)mode_a;
    m->scale_mode_b = (uint32_t)mode_b;
    is_plain = is_plain && matmul_knows_scales(m) &&
               v[CUBLASLT_MATMUL_DESC_C_SCALE_MODE] == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
               v[CUBLASLT_MATMUL_DESC_D_SCALE_MODE] == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    bool is_wide = m->compute == CUBLAS_COMPUTE_64F || m->compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    is_plain =
        is_plain && v[CUBLASLT_MATMUL_DESC_SCALE_TYPE] == (is_wide ? CUDA_R_64F : CUDA_R_32F);
    return is_plain ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* A problem as one number: types, sizes, transposes, compute type, device. */
static uint64_t problem_mark(const struct matmul *m)
{
    const uint64_t words[] = {m->a.type,
                              m->b.type,
                              m->d.type,
                              m->compute,
                              m->m,
                              m->n,
                              m->k,
                              m->transpose_a * 2u + m->transpose_b,
                              m->epilogue,
                              m->scale_mode_a * 16u + m->scale_mode_b,
                              (uint64_t)emulator_compute_capability()};
    uint64_t mark = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        mark = (mark ^ words[i]) * 0x9e3779b97f4a7c15u;
        mark ^= mark >> 29;
    }
    return mark;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *found)
{
    struct matmul m;
    const char *why = "a setting of the descriptor that the emulator does not have";
    if (!handle || !handle->is_alive || !preference || !preference->is_alive || wanted < 1 ||
        !results || !found) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *found = 0;
    cublasStatus_t s = problem_of(&m, desc, (const struct attributes *const[]){a, b, c, d});
    for (int i = 0; i < 4; i++) {
        m.alignment[i] =
            (uint32_t)preference->value[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i];
    }
    s = s ? s : matmul_check_problem(&m, &why);
    if (s) {
        refusal = why; /* no finding: a program may ask what is possible */
        return s;
    }
    *results = (cublasLtMatmulHeuristicResult_t){0};
    results->algo.data[0] = ALGO_MARK;
    memcpy(&results->algo.data[1], m.alignment, sizeof m.alignment);
    results->algo.data[3] = problem_mark(&m);
    results->wavesCount = 1.0f;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* What an algorithm was chosen for comes with it, so that one of another problem is refused, which
 * the real library may or may not do. */
static cublasStatus_t check_algorithm(struct matmul *m, const cublasLtMatmulAlgo_t *algo,
                                      const char **why)
{
    if (algo->data[0] != ALGO_MARK) {
        *why = "the algorithm does not come from cublasLtMatmulAlgoGetHeuristic";
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algo->data[3] != problem_mark(m)) {
        *why = "the algorithm was chosen for another problem or device";
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    memcpy(m->alignment, &algo->data[1], sizeof m->alignment);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *result)
{
    struct matmul m;
    const char *why = "a setting of the descriptor that the emulator does not have";
    if (!handle || !handle->is_alive || !algo || !result) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    cublasStatus_t s = problem_of(&m, desc, (const struct attributes *const[]){a, b, c, d});
    s = s ? s : check_algorithm(&m, algo, &why);
    s = s ? s : matmul_check_problem(&m, &why);
    if (s) {
        refusal = why; /* no finding: a program may ask */
        return s;
    }
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .wavesCount = 1.0f};
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
    size_t bytes, size_t *written)
{
    if (!algo || algo->data[0] != ALGO_MARK || bytes < 4 || !value) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    uint32_t answer =
        attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1 : 0; /* one algorithm, never split */
    memcpy(value, &answer, sizeof answer);
    if (written) {
        *written = sizeof answer;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static void read_scalars(struct matmul *m, const void *alpha, const void *beta)
{
    float f;
    bool is_wide = m->compute == CUBLAS_COMPUTE_64F || m->compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    const void *const from[] = {alpha, beta};
    double *const to[] = {&m->alpha, &m->beta};
    for (int i = 0; i < 2; i++) {
        if (is_wide) {
            memcpy(to[i], from[i], sizeof **to);
        } else {
            memcpy(&f, from[i], sizeof f);
            *to[i] = (double)f;
        }
    }
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t layout_a, const void *b,
                                     cublasLtMatrixLayout_t layout_b, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                                     cublasLtMatrixLayout_t layout_d,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream)
{
    struct matmul m;
    const char *why = "a setting of the descriptor that the emulator does not have";
    if (!handle || !handle->is_alive || !alpha || !beta) {
        return handle ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_INITIALIZED;
    }
    cublasStatus_t s = problem_of(
        &m, desc, (const struct attributes *const[]){layout_a, layout_b, layout_c, layout_d});
    s = !s && algo ? check_algorithm(&m, algo, &why) : s;
    const void *const addresses[] = {a, b, c, d};
    struct matrix *const matrices[] = {&m.a, &m.b, &m.c, &m.d};
    for (int i = 0; i < 4; i++) {
        matrices[i]->address = (CUdeviceptr)(uintptr_t)addresses[i];
    }
    if (!s && workspace_bytes && (uintptr_t)workspace % 256) {
        s = CUBLAS_STATUS_INVALID_VALUE;
        why = "the workspace is not aligned to 256 bytes";
    }
    if (m.scalars_on_device) {
        m.alpha_at = (CUdeviceptr)(uintptr_t)alpha;
        m.beta_at = (CUdeviceptr)(uintptr_t)beta;
    } else {
        read_scalars(&m, alpha, beta);
    }
    s = s ? s : matmul_check_problem(&m, &why);
    s = s ? s : matmul_check_pointers(&m, &why);
    if (s) {
        refusal = why;
        emulator_misuse("cublasLtMatmul", why);
        return s;
    }
    CUresult r = emulator_enqueue(stream, "cublasLtMatmul", matmul_run, &m, sizeof m);
    return r ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
