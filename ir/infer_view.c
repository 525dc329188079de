/* Shape rules of views and of ops that index: what is cut, joined, padded, taken or scattered.
 * Sizes that are cut or joined are numbers; other axes may be symbols. */
#include "infer_internal.h"

#include <stdio.h>

status infer_reshape(struct graph *g, struct node *n)
{
    const struct shape *from = &operand(g, n, 0)->shape;
    n->shape = node_attr_named(n, "shape")->dims;
    struct dim have, known = dim_of(1);
    uint32_t infer = MAX_RANK;
    (void)shape_count(from, &have);
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        if (dim_is(n->shape.dims[i], -1) && infer == MAX_RANK) {
            infer = i;
        } else if (n->shape.dims[i].factor < 0 || !dim_multiply(known, n->shape.dims[i], &known)) {
            return infer_refuse(g, n, ATOLL_SHAPE, "sizes must be >= 0, with at most one -1");
        }
    }
    if (infer != MAX_RANK && !dim_divide(have, known, &n->shape.dims[infer])) {
        return infer_refuse(g, n, ATOLL_SHAPE, "the size for -1 is not a whole number");
    }
    struct dim now;
    if (!shape_count(&n->shape, &now) || !dim_equal(have, now)) {
        struct arena scratch = SCRATCH_ARENA;
        const char *what = arena_text(&scratch, "element counts differ: cannot become %s",
                                      type_text(g, n, &scratch));
        status code = infer_refuse(g, n, ATOLL_SHAPE, what);
        arena_free(&scratch);
        return code;
    }
    return ATOLL_OK;
}

status infer_transpose(struct graph *g, struct node *n)
{
    const struct shape *from = &operand(g, n, 0)->shape;
    const struct attr *perm = node_attr_named(n, "perm");
    uint32_t seen = 0;
    n->shape.rank = from->rank;
    if (perm->n_ints != 0 && perm->n_ints != from->rank) {
        return infer_refuse(g, n, ATOLL_SHAPE, "perm names another number of axes");
    }
    for (uint32_t i = 0; i < from->rank; i++) {
        uint32_t axis = 0;
        TRY(infer_axis(g, n, perm->n_ints == 0 ? from->rank - 1 - (int64_t)i : perm->ints[i],
                       from->rank, &axis));
        if (seen >> axis & 1U) {
            return infer_refuse(g, n, ATOLL_SHAPE, "perm names an axis twice");
        }
        seen |= 1U << axis;
        n->shape.dims[i] = from->dims[axis];
    }
    return ATOLL_OK;
}

status infer_expand(struct graph *g, struct node *n)
{
    const struct shape *from = &operand(g, n, 0)->shape;
    struct shape to = node_attr_named(n, "shape")->dims;
    if (to.rank < from->rank || !shape_broadcast(from, &to, &n->shape) ||
        !shape_equal(&n->shape, &to)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "does not broadcast to the shape asked for");
    }
    return ATOLL_OK;
}

/* A static size along an axis, or the advice to bind the symbol. */
static status static_size(struct graph *g, struct node *n, struct dim d, int64_t *out)
{
    if (!dim_is_static(d)) {
        char what[128];
        snprintf(what, sizeof what,
                 "the axis has the symbolic size %s; hint: this op needs a number there: bind it "
                 "with --shape %s=N",
                 g->symbols[d.symbols[0]].name, g->symbols[d.symbols[0]].name);
        return infer_refuse(g, n, ATOLL_SHAPE, what);
    }
    *out = d.factor;
    return ATOLL_OK;
}

status infer_slice(struct graph *g, struct node *n)
{
    const struct shape *from = &operand(g, n, 0)->shape;
    int64_t start = node_int(n, "start"), stop = node_int(n, "stop"), step = node_int(n, "step");
    uint32_t axis = 0;
    int64_t size = 0;
    n->shape = *from;
    TRY(infer_axis(g, n, node_int(n, "axis"), from->rank, &axis));
    if (step < 1) {
        return infer_refuse(g, n, ATOLL_SHAPE, "step must be 1 or more");
    }
    if (start == 0 && stop == INT64_MAX && step == 1) {
        return ATOLL_OK;
    }
    TRY(static_size(g, n, from->dims[axis], &size));
    start = start < 0 ? start + size : start;
    stop = stop < 0 ? stop + size : stop;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    n->shape.dims[axis] = dim_of(stop == start ? 0 : (stop - start - 1) / step + 1);
    return ATOLL_OK;
}

/* ---- index ---- */

status infer_concat(struct graph *g, struct node *n)
{
    const struct shape *first = &operand(g, n, 0)->shape;
    uint32_t axis = 0;
    int64_t total = 0;
    n->shape = *first;
    TRY(infer_axis(g, n, node_int(n, "axis"), first->rank, &axis));
    for (uint32_t i = 0; i < n->n_operands; i++) {
        const struct node *o = operand(g, n, i);
        int64_t size = 0;
        struct shape same = o->shape;
        if (same.rank != first->rank || o->dtype != n->dtype) {
            return infer_refuse(g, n, ATOLL_SHAPE, "operands must have one rank and one dtype");
        }
        TRY(static_size(g, n, same.dims[axis], &size));
        if (__builtin_add_overflow(total, size, &total)) {
            return infer_refuse(g, n, ATOLL_SHAPE,
                                "the axis gets more elements than 64 bits can count");
        }
        same.dims[axis] = first->dims[axis];
        if (!shape_equal(&same, first)) {
            return infer_refuse(g, n, ATOLL_SHAPE, "sizes differ on another axis");
        }
    }
    n->shape.dims[axis] = dim_of(total);
    return ATOLL_OK;
}

status infer_pad(struct graph *g, struct node *n)
{
    uint32_t axis = 0;
    int64_t size = 0;
    n->shape = operand(g, n, 0)->shape;
    TRY(infer_axis(g, n, node_int(n, "axis"), n->shape.rank, &axis));
    TRY(static_size(g, n, n->shape.dims[axis], &size));
    int64_t low = node_int(n, "low"), high = node_int(n, "high"), step = node_int(n, "step");
    if (low < 0 || high < 0 || step < 1) {
        return infer_refuse(g, n, ATOLL_SHAPE, "low and high must be >= 0, step >= 1");
    }
    int64_t total = size == 0 ? 0 : size - 1;
    if (__builtin_mul_overflow(total, step, &total) ||
        __builtin_add_overflow(total, size == 0 ? 0 : 1, &total) ||
        __builtin_add_overflow(total, low, &total) || __builtin_add_overflow(total, high, &total)) {
        return infer_refuse(g, n, ATOLL_SHAPE,
                            "the axis gets more elements than 64 bits can count");
    }
    n->shape.dims[axis] = dim_of(total);
    return ATOLL_OK;
}

static status need_indices(struct graph *g, struct node *n, uint32_t i)
{
    enum dtype t = operand(g, n, i)->dtype;
    return t == I64 || t == I32 ? ATOLL_OK
                                : infer_refuse(g, n, ATOLL_DTYPE, "expected i64 or i32 indices");
}

/* a's shape with its axis replaced by all axes of b. */
static status taken_shape(struct graph *g, struct node *n, struct shape *out)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    uint32_t axis = 0;
    TRY(need_indices(g, n, 1));
    TRY(infer_axis(g, n, node_int(n, "axis"), a->rank, &axis));
    if (a->rank - 1 + b->rank > MAX_RANK) {
        return infer_refuse(g, n, ATOLL_SHAPE, "rank over 8");
    }
    *out = shape_scalar();
    for (uint32_t i = 0; i < a->rank; i++) {
        if (i != axis) {
            out->dims[out->rank++] = a->dims[i];
            continue;
        }
        for (uint32_t k = 0; k < b->rank; k++) {
            out->dims[out->rank++] = b->dims[k];
        }
    }
    return ATOLL_OK;
}

status infer_take(struct graph *g, struct node *n)
{
    return taken_shape(g, n, &n->shape);
}

status infer_index_add(struct graph *g, struct node *n)
{
    struct shape taken;
    n->dtype = operand(g, n, 0)->dtype;
    n->shape = operand(g, n, 0)->shape;
    TRY(taken_shape(g, n, &taken));
    if (!shape_equal(&taken, &operand(g, n, 2)->shape)) {
        return infer_refuse(g, n, ATOLL_SHAPE,
                            "c must have a's shape with the axis replaced by b's axes");
    }
    return ATOLL_OK;
}

static status check_gather(struct graph *g, struct node *n)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    uint32_t axis = 0;
    TRY(need_indices(g, n, 1));
    TRY(infer_axis(g, n, node_int(n, "axis"), a->rank, &axis));
    struct shape same = *b;
    if (b->rank == a->rank) {
        same.dims[axis] = a->dims[axis];
    }
    if (b->rank != a->rank || !shape_equal(&same, a)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "indices must have a's sizes on every other axis");
    }
    return ATOLL_OK;
}

status infer_gather(struct graph *g, struct node *n)
{
    TRY(check_gather(g, n));
    n->shape = operand(g, n, 1)->shape;
    return ATOLL_OK;
}

status infer_scatter_add(struct graph *g, struct node *n)
{
    TRY(check_gather(g, n));
    if (!shape_equal(&operand(g, n, 1)->shape, &operand(g, n, 2)->shape)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "indices and source differ in shape");
    }
    n->shape = operand(g, n, 0)->shape;
    return ATOLL_OK;
}

status infer_embedding(struct graph *g, struct node *n)
{
    const struct shape *w = &operand(g, n, 0)->shape;
    n->dtype = operand(g, n, 0)->dtype;
    n->shape = operand(g, n, 1)->shape;
    TRY(need_indices(g, n, 1));
    if (w->rank != 2 || n->shape.rank + 1 > MAX_RANK) {
        return infer_refuse(g, n, ATOLL_SHAPE, "expected a weight (V,C)");
    }
    n->shape.dims[n->shape.rank++] = w->dims[1];
    return ATOLL_OK;
}

status infer_one_hot(struct graph *g, struct node *n)
{
    TRY(need_indices(g, n, 0));
    n->dtype = node_dtype(n, "dtype");
    n->shape = operand(g, n, 0)->shape;
    if (n->shape.rank == MAX_RANK || node_int(n, "classes") < 0) {
        return infer_refuse(g, n, ATOLL_SHAPE, "expected classes >= 0 and a rank below 8");
    }
    n->shape.dims[n->shape.rank++] = dim_of(node_int(n, "classes"));
    return ATOLL_OK;
}
