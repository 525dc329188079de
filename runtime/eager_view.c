/* Views and the ops that only move elements, for the eager executor: each makes a dense copy. No
 * value is read, so one code serves every dtype. */
#include "eager_internal.h"

#include <string.h>

void dense_strides(const struct tensor *t, int64_t strides[MAX_RANK])
{
    int64_t step = 1;
    for (uint32_t d = t->rank; d-- > 0;) {
        strides[d] = step;
        step *= t->shape[d];
    }
}

void split_at(const struct tensor *t, uint32_t first, uint32_t last, int64_t *outer,
              int64_t *length, int64_t *inner)
{
    *outer = *length = *inner = 1;
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t *to = d < first ? outer : d <= last ? length : inner;
        *to *= t->shape[d];
    }
}

uint32_t axis_of(const struct node *n, uint32_t rank)
{
    int64_t axis = node_int(n, "axis");
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

#define COPY_RUN(type)                                                                             \
    do {                                                                                           \
        const type *restrict s = src;                                                              \
        type *restrict d = dst;                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                          \
            d[i * to] = s[i * from];                                                               \
        }                                                                                          \
    } while (0)

static void copy_run(int64_t n, const void *src, int64_t from, void *dst, int64_t to, size_t size)
{
    if (from == 1 && to == 1) {
        memcpy(dst, src, (size_t)n * size);
    } else if (size == 1) {
        COPY_RUN(uint8_t);
    } else if (size == 2) {
        COPY_RUN(uint16_t);
    } else if (size == 4) {
        COPY_RUN(uint32_t);
    } else {
        COPY_RUN(uint64_t);
    }
}

void copy_box(uint32_t rank, const int64_t *dims, const void *src, const int64_t *src_strides,
              void *dst, const int64_t *dst_strides, size_t size)
{
    int64_t d[MAX_RANK] = {1}, from[MAX_RANK] = {0}, to[MAX_RANK] = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0) {
            return;
        }
        if (dims[i] == 1) {
            continue;
        }
        bool merges = kept > 0 && from[kept - 1] == src_strides[i] * dims[i] &&
                      to[kept - 1] == dst_strides[i] * dims[i];
        uint32_t at = merges ? kept - 1 : kept++;
        d[at] = merges ? d[at] * dims[i] : dims[i];
        from[at] = src_strides[i];
        to[at] = dst_strides[i];
    }
    uint32_t last = kept == 0 ? 0 : kept - 1;
    int64_t runs = 1;
    for (uint32_t i = 0; i < last; i++) {
        runs *= d[i];
    }
#pragma omp parallel for schedule(static) if (runs * d[last] >= PARALLEL_FROM)
    for (int64_t run = 0; run < runs; run++) {
        int64_t rest = run, at = 0, put = 0;
        for (uint32_t i = last; i-- > 0;) {
            at += rest % d[i] * from[i];
            put += rest % d[i] * to[i];
            rest /= d[i];
        }
        copy_run(d[last], (const char *)src + at * (int64_t)size, from[last],
                 (char *)dst + put * (int64_t)size, to[last], size);
    }
}

static void transpose(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0];
    const struct attr *perm = node_attr_named(c->node, "perm");
    int64_t strides[MAX_RANK] = {0}, from[MAX_RANK] = {0}, to[MAX_RANK] = {0};
    dense_strides(x, strides);
    dense_strides(c->result, to);
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t axis = perm->n_ints == 0 ? x->rank - 1 - (int64_t)i : perm->ints[i];
        from[i] = strides[axis < 0 ? axis + x->rank : axis];
    }
    copy_box(x->rank, c->result->shape, x->data, from, c->result->data, to,
             dtype_info[x->dtype].bytes);
}

static void expand(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0], *y = c->result;
    int64_t strides[MAX_RANK] = {0}, from[MAX_RANK] = {0}, to[MAX_RANK] = {0};
    uint32_t skip = y->rank - x->rank;
    dense_strides(x, strides);
    dense_strides(y, to);
    for (uint32_t i = skip; i < y->rank; i++) {
        from[i] = x->shape[i - skip] == 1 ? 0 : strides[i - skip];
    }
    copy_box(y->rank, y->shape, x->data, from, y->data, to, dtype_info[x->dtype].bytes);
}

static void slice(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0];
    int64_t from[MAX_RANK] = {0}, to[MAX_RANK] = {0};
    uint32_t axis = axis_of(c->node, x->rank);
    int64_t size = x->shape[axis], start = node_int(c->node, "start");
    start = start < 0 ? start + size : start;
    start = start < 0 ? 0 : start > size ? size : start;
    dense_strides(x, from);
    dense_strides(c->result, to);
    if (tensor_count(c->result) == 0) {
        return; /* start may lie past the end of the data */
    }
    size_t bytes = dtype_info[x->dtype].bytes;
    const char *first = (const char *)x->data + (size_t)(start * from[axis]) * bytes;
    from[axis] *= node_int(c->node, "step");
    copy_box(x->rank, c->result->shape, first, from, c->result->data, to, bytes);
}

status eager_view(const struct eager_call *c)
{
    switch ((int)c->node->op) {
    case OP_transpose:
        transpose(c);
        return ATOLL_OK;
    case OP_expand:
        expand(c);
        return ATOLL_OK;
    case OP_slice:
        slice(c);
        return ATOLL_OK;
    case OP_reshape:
        if (tensor_bytes(c->result) != 0) {
            memcpy(c->result->data, c->operands[0].data, tensor_bytes(c->result));
        }
        return ATOLL_OK;
    default:
        return fail(c->error, ATOLL_INTERNAL, "%s: a view the eager executor does not know",
                    op_info[c->node->op].name);
    }
}
