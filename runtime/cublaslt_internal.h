/* What the files of cuBLASLt share: its calls, and a product made ready. */
#ifndef ATOLL_RUNTIME_CUBLASLT_INTERNAL_H
#define ATOLL_RUNTIME_CUBLASLT_INTERNAL_H

#include "runtime/cublaslt.h"
#include "runtime/cuda_internal.h"

#define LT_CALLS(X)                                                                                \
    X(cublasLtCreate, (void **handle))                                                             \
    X(cublasLtDestroy, (void *handle))                                                             \
    X(cublasLtMatmulDescCreate, (void **out, int compute, int scale))                              \
    X(cublasLtMatmulDescDestroy, (void *desc))                                                     \
    X(cublasLtMatmulDescSetAttribute, (void *desc, int attribute, const void *value, size_t size)) \
    X(cublasLtMatrixLayoutCreate,                                                                  \
      (void **out, int type, uint64_t rows, uint64_t cols, int64_t ld))                            \
    X(cublasLtMatrixLayoutDestroy, (void *layout))                                                 \
    X(cublasLtMatrixLayoutSetAttribute,                                                            \
      (void *layout, int attribute, const void *value, size_t size))                               \
    X(cublasLtMatmulPreferenceCreate, (void **out))                                                \
    X(cublasLtMatmulPreferenceDestroy, (void *preference))                                         \
    X(cublasLtMatmulPreferenceSetAttribute,                                                        \
      (void *preference, int attribute, const void *value, size_t size))                           \
    X(cublasLtMatmulAlgoGetHeuristic,                                                              \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, \
       struct lt_heuristic *results, int *found))                                                  \
    X(cublasLtMatmulAlgoCheck, (void *handle, void *desc, void *a, void *b, void *c, void *d,      \
                                const void *algo, struct lt_heuristic *result))                    \
    X(cublasLtMatmul,                                                                              \
      (void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b,  \
       void *layout_b, const void *beta, const void *c, void *layout_c, void *d, void *layout_d,   \
       const void *algo, void *workspace, size_t workspace_bytes, CUstream stream))

struct lt_heuristic {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

enum {
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_TF32 = 77,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS_POINTER = 8,
    DESC_BIAS_TYPE = 26,
    EPILOGUE_BIAS = 4,
    LAYOUT_BATCH = 5,
    LAYOUT_STRIDE = 6,
    PREFERENCE_WORKSPACE = 1,
    PREFERENCE_REDUCTION = 3,
    PREFERENCE_ALIGNMENT_A = 5, /* B, C, D follow */
    REDUCTION_COMPUTE_TYPE = 2, /* split sums meet in the compute type, in a fixed order */
    WORKSPACE_BYTES = 32 << 20
};

struct lt_plan {
    struct contraction c;
    uint32_t alignment;
    int compute;
    void *desc, *a, *b, *d;
    struct lt_heuristic heuristic;
};

struct cublaslt {
    void *library, *handle, *workspace;
    struct device *device;
    bool allows_tf32;
    struct lt_plan *plans;
    uint32_t n_plans, capacity;
    struct contraction_choice *recalled; /* of a plan: taken where they still hold */
    uint32_t n_recalled;
    struct contraction_choice *told; /* what lt_choices lends */
#define X(name, args) int(*name) args;
    LT_CALLS(X)
#undef X
    size_t (*cublasLtGetVersion)(void);
};

/* The calls' return values as statuses; what: the call's subject. */
status lt_check(int code, const char *call, const char *what, struct error *e);
/* cublaslt_choice.c: the recorded algorithm of a product whose descriptors are set, when the
 * library still takes it; false after saying why not (nothing when there is none). */
bool lt_recall(struct cublaslt *b, struct lt_plan *p);

#endif
