/* Indexing ops of the eager executor. An index counts from the end when negative; out of range
 * (only what the model computes can be: see index_check.c) it reads NaN (0 for integers) and adds
 * nothing. Adds go in increasing source position, in the compute type, and round once at the end,
 * so the bits do not depend on threads. */
#include "eager_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/compute.h"

/* The i-th index as 0..length-1, or -1 when it is out of range. */
static int64_t index_at(const struct tensor *t, int64_t i, int64_t length)
{
    int64_t at = t->dtype == I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
    at = at < 0 ? at + length : at;
    return at < 0 || at >= length ? -1 : at;
}

/* What an out-of-range read gives. */
static void missing_of(enum dtype t, void *element)
{
    memset(element, 0, 8);
    if (dtype_is_float(t)) {
        dtype_store(t, element, (double)NAN);
    }
}

static void fill(char *to, int64_t n, const void *element, size_t size)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * size, element, size);
    }
}

static void take(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0], *indices = &c->operands[1];
    size_t size = dtype_info[x->dtype].bytes;
    uint32_t axis = axis_of(c->node, x->rank);
    int64_t outer, length, inner, n = tensor_count(indices);
    uint64_t missing;
    missing_of(x->dtype, &missing);
    split_at(x, axis, axis, &outer, &length, &inner);
    int64_t runs = outer * n;
#pragma omp parallel for schedule(static) if (runs * inner >= PARALLEL_FROM)
    for (int64_t run = 0; run < runs; run++) {
        int64_t at = index_at(indices, run % n, length);
        char *to = (char *)c->result->data + (size_t)(run * inner) * size;
        if (at < 0) {
            fill(to, inner, &missing, size);
        } else if (inner > 0) {
            memcpy(to, (const char *)x->data + (size_t)((run / n * length + at) * inner) * size,
                   (size_t)inner * size);
        }
    }
}

static void gather(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0], *indices = &c->operands[1];
    size_t size = dtype_info[x->dtype].bytes;
    uint32_t axis = axis_of(c->node, x->rank);
    int64_t outer, length, inner, n = indices->shape[axis], count = tensor_count(indices);
    uint64_t missing;
    missing_of(x->dtype, &missing);
    split_at(x, axis, axis, &outer, &length, &inner);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) {
        int64_t at = index_at(indices, i, length);
        int64_t from = (i / (n * inner) * length + at) * inner + i % inner;
        memcpy((char *)c->result->data + (size_t)i * size,
               at < 0 ? (const char *)&missing : (const char *)x->data + (size_t)from * size, size);
    }
}

/* sums[at] += source[i] in the compute type. */
static void add_one(enum dtype compute, void *sums, int64_t at, const void *source, int64_t i)
{
    if (compute == F32) {
        ((float *)sums)[at] = ((float *)sums)[at] + ((const float *)source)[i];
    } else if (compute == F64) {
        ((double *)sums)[at] = ((double *)sums)[at] + ((const double *)source)[i];
    } else {
        ((int64_t *)sums)[at] =
            (int64_t)((uint64_t)((int64_t *)sums)[at] + (uint64_t)((const int64_t *)source)[i]);
    }
}

/* scatter_add has one index an element of the source, index_add one a slice. */
static void add_all(const struct eager_call *c, enum dtype compute, void *sums, const void *source)
{
    const struct tensor *x = &c->operands[0], *indices = &c->operands[1];
    bool is_scatter = c->node->op == OP_scatter_add;
    uint32_t axis = axis_of(c->node, x->rank);
    int64_t outer, length, inner;
    split_at(x, axis, axis, &outer, &length, &inner);
    int64_t n = is_scatter ? indices->shape[axis] : tensor_count(indices);
    bool is_parallel = outer > 1 && outer * n * inner >= PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (is_parallel)
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t k = 0; k < n; k++) {
            for (int64_t i = 0; i < inner; i++) {
                int64_t from = (o * n + k) * inner + i;
                int64_t at = index_at(indices, is_scatter ? from : k, length);
                if (at >= 0) {
                    add_one(compute, sums, (o * length + at) * inner + i, source, from);
                }
            }
        }
    }
}

static status add_at(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0], *source = &c->operands[2];
    enum dtype compute = node_compute(c->graph, c->node);
    size_t size = dtype_info[compute].bytes;
    int64_t n = tensor_count(x), n_source = tensor_count(source);
    load_fn *load_x = load_of(x->dtype, compute), *load_source = load_of(source->dtype, compute);
    if (load_x == NULL || load_source == NULL) {
        return fail(c->error, ATOLL_INTERNAL, "%s: no conversion to %s", op_info[c->node->op].name,
                    dtype_info[compute].name);
    }
    bool is_wide = is_direct(source->dtype, compute),
         is_inplace = is_direct(c->result->dtype, compute);
    void *sums = is_inplace ? c->result->data : malloc((size_t)n * size + 1);
    void *wide = is_wide ? source->data : malloc((size_t)n_source * size + 1);
    status result = ATOLL_OK;
    if ((sums == NULL && !is_inplace) || (wide == NULL && !is_wide)) {
        result = fail(c->error, ATOLL_OUT_OF_MEMORY, "%s: no memory for %lld sums",
                      op_info[c->node->op].name, (long long)n);
    } else if (n > 0) {
        load_x(n, x->data, 1, sums);
        if (n_source > 0) {
            if (!is_wide) {
                load_source(n_source, source->data, 1, wide);
            }
            add_all(c, compute, sums, wide);
        }
        if (!is_inplace) {
            store_of(compute, c->result->dtype, false)(n, sums, c->result->data);
        }
    }
    if (!is_inplace) {
        free(sums);
    }
    if (!is_wide) {
        free(wide);
    }
    return result;
}

static void concat(const struct eager_call *c)
{
    struct tensor *y = c->result;
    uint32_t axis = axis_of(c->node, y->rank);
    size_t size = dtype_info[y->dtype].bytes;
    int64_t from[MAX_RANK] = {0}, to[MAX_RANK] = {0}, at = 0;
    dense_strides(y, to);
    for (uint32_t i = 0; i < c->node->n_operands; i++) {
        const struct tensor *x = &c->operands[i];
        dense_strides(x, from);
        if (tensor_count(x) != 0) {
            copy_box(y->rank, x->shape, x->data, from,
                     (char *)y->data + (size_t)(at * to[axis]) * size, to, size);
        }
        at += x->shape[axis];
    }
}

static void pad(const struct eager_call *c)
{
    const struct tensor *x = &c->operands[0];
    struct tensor *y = c->result;
    uint32_t axis = axis_of(c->node, y->rank);
    size_t size = dtype_info[y->dtype].bytes;
    int64_t from[MAX_RANK] = {0}, to[MAX_RANK] = {0};
    uint64_t element = 0;
    dtype_store(y->dtype, &element, node_float(c->node, "value"));
    fill(y->data, tensor_count(y), &element, size);
    if (tensor_count(x) == 0) {
        return;
    }
    dense_strides(x, from);
    dense_strides(y, to);
    char *first = (char *)y->data + (size_t)(node_int(c->node, "low") * to[axis]) * size;
    to[axis] *= node_int(c->node, "step");
    copy_box(y->rank, x->shape, x->data, from, first, to, size);
}

status eager_index(const struct eager_call *c)
{
    switch ((int)c->node->op) {
    case OP_take:
        take(c);
        return ATOLL_OK;
    case OP_gather:
        gather(c);
        return ATOLL_OK;
    case OP_index_add:
    case OP_scatter_add:
        return add_at(c);
    case OP_concat:
        concat(c);
        return ATOLL_OK;
    case OP_pad:
        pad(c);
        return ATOLL_OK;
    default:
        return fail(c->error, ATOLL_INTERNAL, "%s: an index op the eager executor does not know",
                    op_info[c->node->op].name);
    }
}
