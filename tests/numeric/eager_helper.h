/* What the eager tests share: one node run on plain arrays, elements set and read through double.
 */
#ifndef ATOLL_TESTS_EAGER_HELPER_H
#define ATOLL_TESTS_EAGER_HELPER_H

#include "runtime/eager.h"
#include "tests/suite.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static inline struct tensor tensor_new(enum dtype t, uint32_t rank, const int64_t *shape)
{
    struct tensor x = {.dtype = t, .rank = rank};
    memcpy(x.shape, shape, rank * sizeof *shape);
    x.data = calloc(1, tensor_bytes(&x) + 8);
    return x;
}

static inline void set_at(const struct tensor *x, int64_t i, double v)
{
    dtype_store(x->dtype, (char *)x->data + (size_t)i * dtype_info[x->dtype].bytes, v);
}

static inline double get_at(const struct tensor *x, int64_t i)
{
    return dtype_load(x->dtype, (const char *)x->data + (size_t)i * dtype_info[x->dtype].bytes);
}

/* A reproducible whole number in -range..range. */
static inline int64_t draw(uint64_t *seed, int64_t range)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (int64_t)(*seed >> 33) % (2 * range + 1) - range;
}

/* Runs `op` on the operands. The result is allocated; its data is NULL when the graph refuses the
 * operands (then *status says why). */
static inline struct tensor run_op(enum op op, const struct tensor *operands, uint32_t n,
                                   const struct attr *attrs, uint32_t n_attrs, status *out)
{
    struct graph *g = graph_create("test");
    struct error e = {0};
    value v[16];
    struct tensor y = {.dtype = DTYPE_NONE};
    for (uint32_t i = 0; i < n; i++) {
        v[i] =
            graph_leaf(g, OP_input, NULL, operands[i].dtype, operands[i].shape, operands[i].rank);
    }
    value r = graph_add(g, op, v, n, attrs, n_attrs);
    *out = g->error.code;
    if (r.id != 0) {
        const struct node *node = graph_node(g, r);
        int64_t shape[MAX_RANK];
        for (uint32_t i = 0; i < node->shape.rank; i++) {
            shape[i] = node->shape.dims[i].factor;
        }
        y = tensor_new(node->dtype, node->shape.rank, shape);
        memset(y.data, 0x5A, tensor_bytes(&y)); /* every byte must be written */
        struct contraction_cache *cache =
            op_info[op].kind == CONTRACTION ? contraction_cache_create() : NULL;
        *out = eager_node(g, r, operands, &y, NULL, cache, &e);
        ck_assert_msg(*out == ATOLL_OK, "%s: %s", op_info[op].name, e.text);
        contraction_cache_destroy(cache);
    }
    graph_destroy(g);
    return y;
}

static inline bool same_bits(const void *a, const void *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

/* Same bits, or both NaN. */
static inline bool same_element(enum dtype t, const void *a, const void *b)
{
    return same_bits(a, b, dtype_info[t].bytes) ||
           (dtype_is_float(t) && isnan(dtype_load(t, a)) && isnan(dtype_load(t, b)));
}

#endif
