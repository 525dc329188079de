/* What the files of the eager executor share: one call, and conversions of blocks between storage
 * and compute types. */
#ifndef ATOLL_RUNTIME_EAGER_INTERNAL_H
#define ATOLL_RUNTIME_EAGER_INTERNAL_H

#include "runtime/eager.h"

enum {
    BLOCK = 1024,            /* elements an inner loop works on: three operands stay in L1 */
    PARALLEL_FROM = 1 << 15, /* elements below which threads cost more than they give */
    N_COMPUTE = 3
};

struct eager_call {
    const struct graph *graph;
    const struct node *node;
    const struct tensor *operands;
    struct tensor *result;
    const int64_t *symbols;
    struct contraction_cache *cache;
    struct error *error;
};

/* n elements of storage from src, `stride` elements apart, exactly widened into dst. */
typedef void load_fn(int64_t n, const void *src, int64_t stride, void *dst);
/* n compute elements, each rounded once, into dense storage. */
typedef void store_fn(int64_t n, const void *src, void *dst);

/* 0 F32, 1 F64, 2 I64 */
uint32_t compute_index(enum dtype compute);
/* NULL where no operation asks for it (a float into I64). */
load_fn *load_of(enum dtype storage, enum dtype compute);
/* saturate: f8 overflow gives the largest finite value. */
store_fn *store_of(enum dtype compute, enum dtype storage, bool saturate);
/* Storage and compute representation are the same bytes. */
static inline bool is_direct(enum dtype storage, enum dtype compute)
{
    return storage == compute;
}

/* Copies a box of `rank` dims between strided places (strides in elements of `size` bytes). */
void copy_box(uint32_t rank, const int64_t *dims, const void *src, const int64_t *src_strides,
              void *dst, const int64_t *dst_strides, size_t size);
/* Row-major strides of a dense tensor, in elements. */
void dense_strides(const struct tensor *t, int64_t strides[MAX_RANK]);
/* t as (outer, length, inner) around the axes of first..last. */
void split_at(const struct tensor *t, uint32_t first, uint32_t last, int64_t *outer,
              int64_t *length, int64_t *inner);
/* An axis attribute made non-negative. */
uint32_t axis_of(const struct node *n, uint32_t rank);

status eager_elementwise(const struct eager_call *c);
status eager_reduction(const struct eager_call *c);
status eager_arg_reduction(const struct eager_call *c);
status eager_view(const struct eager_call *c);
status eager_index(const struct eager_call *c);
status eager_random(const struct eager_call *c);

#endif
