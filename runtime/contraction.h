/* One contraction call, shared by the eager and the fused executor, so that both get the same bits:
 * oneDNN for f32, Atoll's own products for bf16 and f16, else a built-in blocked GEMM. Accumulates
 * in f32 (f64 for f64), adds the bias, rounds once. */
#ifndef ATOLL_RUNTIME_CONTRACTION_H
#define ATOLL_RUNTIME_CONTRACTION_H

#include "ir/graph.h"

/* C[batch][m][n] = A[batch][m][k] * B[batch][k][n] (+ bias[n]); row-major; a transposed operand is
 * stored [k][m] / [n][k]. */
struct contraction {
    enum dtype ab; /* dtype of A and B (equal) */
    enum dtype c;  /* dtype of C and of the bias */
    bool transpose_a, transpose_b, has_bias;
    uint32_t n_batch; /* batch axes, 0..6 */
    int64_t batch[MAX_RANK - 2];
    int64_t batch_stride_a[MAX_RANK - 2],
        batch_stride_b[MAX_RANK - 2]; /* in elements; 0: broadcast */
    int64_t m, n, k;
};

/* Fills in a contraction from a matmul or linear node with operands of these static shapes (leading
 * axes of a linear's x are flattened into m). */
status contraction_of(const struct node *n, const struct shape *a, const struct shape *b,
                      struct contraction *out, struct error *e);

/* Prepared calls, cached by descriptor; bounded; one cache an executor context, not thread-safe. */
struct contraction_cache;
struct contraction_cache *contraction_cache_create(void); /* NULL: out of memory */
void contraction_cache_destroy(struct contraction_cache *cache);
/* Runs it on the calling thread's OpenMP team. Zero-size m, n or batch: nothing; k == 0: C = bias
 * or 0. */
status contraction_run(struct contraction_cache *cache, const struct contraction *c, const void *a,
                       const void *b, const void *bias, void *out, struct error *e);
/* Scratch of the cache, 64-byte aligned, until its next call with low-precision operands. */
status contraction_scratch(struct contraction_cache *cache, size_t size, float **out,
                           struct error *e);
/* Whether products of t are the processor's own (bf16 by AMX): those flush subnormals to zero. */
bool contraction_flushes(const struct contraction_cache *cache, enum dtype t);
/* "oneDNN 2.6.3" or "built-in", for reports and cache keys. */
const char *contraction_library(void);

#endif
