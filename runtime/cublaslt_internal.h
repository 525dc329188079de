/* What the files of cuBLASLt share: its calls, the numbers of its attributes, plans. */
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
    DESC_SCALE_POINTER_A = 17,
    DESC_SCALE_POINTER_B = 18,
    DESC_BIAS_TYPE = 26,
    DESC_SCALE_MODE_A = 31,
    DESC_SCALE_MODE_B = 32,
    SCALE_MODE_SCALAR = 0,
    SCALE_MODE_VEC32 = 2,  /* E8M0 for 32 along k, tiles of 128x4 */
    SCALE_MODE_OUTER = 3,  /* one for each row of D or column of it */
    SCALE_MODE_VEC128 = 4, /* one for 128 along k, those of all rows one after another */
    SCALE_MODE_BLK128 = 5, /* one for 128x128, along k first, its count filled up to 4 */
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
    struct scaled_product p; /* of f8 operands with scales; then c is zero */
    uint32_t alignment;
    char what[160]; /* the product in words: all that descriptor and layouts are made of */
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
    struct contraction_choice *told; /* what cublaslt_choices lends */
#define X(name, args) int(*name) args;
    LT_CALLS(X)
#undef X
    size_t (*cublasLtGetVersion)(void);
};

status lt_check(int code, const char *call, const char *what, struct error *e);
int lt_type_of(enum dtype t); /* -1: none */
status lt_set(struct cublaslt *b, void *desc, int attribute, const void *from, size_t size,
              const char *what, struct error *e);
status lt_layout(struct cublaslt *b, void **out, enum dtype t, int64_t rows, int64_t cols,
                 int64_t batch, int64_t stride, struct error *e);
/* The algorithm for a plan whose words, descriptor and layouts are set: a recorded one that still
 * holds, else the heuristic's first. */
status lt_ask(struct cublaslt *b, struct lt_plan *p, struct error *e);
/* cublaslt_choice.c: whether a recorded algorithm is taken; false after logging why not (nothing
 * when there is none). */
bool lt_recall(struct cublaslt *b, struct lt_plan *p);
/* Room for one more plan, zeroed, not counted yet. */
status lt_new_plan(struct cublaslt *b, struct lt_plan **out, struct error *e);
void lt_free_plan(struct cublaslt *b, struct lt_plan *p);
int lt_arch(const struct cublaslt *b); /* 90 for sm_90 */

#endif
