/* Type inference, one function per shape rule that ops.def names. Every refusal says which op, what
 * it found and what it expected. Rules see operands that are already well typed. */
#include "infer_internal.h"
#include "compute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *type_text(const struct graph *g, const struct node *n, struct arena *a)
{
    const char *names[MAX_SYMBOLS] = {""};
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        names[i] = g->symbols[i].name;
    }
    struct text t = {.arena = a};
    text_add(&t, "%s[", dtype_info[n->dtype].name);
    shape_print(&t, &n->shape, names);
    text_add(&t, "]");
    return t.data;
}

status infer_refuse(struct graph *g, const struct node *n, status code, const char *what)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    if (n->location.file != NULL) {
        text_add(&t, "%s:%" PRIu32 ": ", n->location.file, n->location.line);
    }
    if (n->name != NULL) {
        text_add(&t, "%%%s: ", n->name);
    }
    text_add(&t, "%s(", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        text_add(&t, "%s%s", i > 0 ? ", " : "", type_text(g, operand(g, n, i), &scratch));
    }
    text_add(&t, "): %s", what);
    fail(&g->error, code, "%s", t.data);
    arena_free(&scratch);
    return code;
}

/* ---- dtypes ---- */

static status infer_dtype(struct graph *g, struct node *n)
{
    enum op_types types = op_info[n->op].types;
    if (types == TYPES_X) {
        return ATOLL_OK;
    }
    if (types == TYPES_ANY) {
        n->dtype = operand(g, n, 0)->dtype;
        return ATOLL_OK;
    }
    if (types == TYPES_B || types == TYPES_W) {
        uint32_t until = types == TYPES_W ? 1 : n->n_operands;
        for (uint32_t i = 0; i < until; i++) {
            if (operand(g, n, i)->dtype != BOOL) {
                return infer_refuse(g, n, ATOLL_DTYPE,
                                    "expected bool operands; hint: compare with 0 first");
            }
        }
        n->dtype = types == TYPES_B ? BOOL : operands_promoted(g, n, 1);
        return ATOLL_OK;
    }
    enum dtype t = operands_promoted(g, n, 0);
    if (types == TYPES_C) {
        n->dtype = BOOL;
        return ATOLL_OK;
    }
    if (types == TYPES_F && t != DTYPE_NONE && !dtype_is_float(t)) {
        t = F32;
    }
    bool sums = n->op == OP_sum || n->op == OP_prod;
    if (sums && t != DTYPE_NONE && !dtype_is_float(t)) {
        t = I64; /* a sum of many does not fit where one does; of bool it is a count */
    }
    if (t == BOOL) {
        return infer_refuse(g, n, ATOLL_DTYPE,
                            "arithmetic on bool; hint: cast to i32 or a float first");
    }
    n->dtype = t;
    return ATOLL_OK;
}

status infer_node(struct graph *g, struct node *n)
{
    TRY(infer_dtype(g, n));
    TRY(op_info[n->op].infer(g, n));
    if (n->dtype == DTYPE_NONE) {
        return infer_refuse(g, n, ATOLL_DTYPE, "no dtype follows from these operands");
    }
    struct dim count;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        if (n->shape.dims[i].factor < 0) {
            return infer_refuse(g, n, ATOLL_SHAPE, "negative size");
        }
    }
    if (!shape_count(&n->shape, &count)) {
        return infer_refuse(g, n, ATOLL_SHAPE,
                            "more elements than 64 bits can count, or over 4 symbols in a product");
    }
    return ATOLL_OK;
}

/* ---- leaves ---- */

status infer_leaf(struct graph *g, struct node *n)
{
    (void)g;
    n->shape = node_attr_named(n, "shape")->dims;
    n->dtype = node_dtype(n, "dtype");
    return ATOLL_OK;
}

status infer_constant(struct graph *g, struct node *n)
{
    (void)g;
    n->dtype = node_dtype(n, "dtype");
    n->shape = shape_scalar();
    return ATOLL_OK;
}

status infer_size(struct graph *g, struct node *n)
{
    return infer_constant(g, n);
}

status infer_axis(struct graph *g, const struct node *n, int64_t axis, uint32_t rank, uint32_t *out)
{
    int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
        char what[96];
        snprintf(what, sizeof what, "axis %" PRId64 " of rank %" PRIu32 ", expected %d to %d", axis,
                 rank, -(int)rank, (int)rank - 1);
        return infer_refuse(g, n, ATOLL_SHAPE, what);
    }
    *out = (uint32_t)at;
    return ATOLL_OK;
}

status infer_iota(struct graph *g, struct node *n)
{
    uint32_t axis = 0;
    n->dtype = node_dtype(n, "dtype");
    n->shape = node_attr_named(n, "shape")->dims;
    return infer_axis(g, n, node_int(n, "axis"), n->shape.rank, &axis);
}

/* ---- elementwise ---- */

status infer_same(struct graph *g, struct node *n)
{
    const struct node *a = operand(g, n, 0);
    uint32_t axis = 0;
    n->shape = a->shape;
    enum dtype asked = node_dtype(n, "dtype");
    if (asked != DTYPE_NONE) {
        n->dtype = asked;
    }
    const struct attr *along = node_attr_named(n, "axis");
    return along != NULL ? infer_axis(g, n, along->i, a->shape.rank, &axis) : ATOLL_OK;
}

status infer_cast(struct graph *g, struct node *n)
{
    n->shape = operand(g, n, 0)->shape;
    n->dtype = node_dtype(n, "dtype");
    return ATOLL_OK;
}

status infer_broadcast(struct graph *g, struct node *n)
{
    n->shape = operand(g, n, 0)->shape;
    for (uint32_t i = 1; i < n->n_operands; i++) {
        if (!shape_broadcast(&n->shape, &operand(g, n, i)->shape, &n->shape)) {
            return infer_refuse(
                g, n, ATOLL_SHAPE,
                "shapes do not broadcast; hint: sizes must be equal or 1, counted from "
                "the last axis");
        }
    }
    return ATOLL_OK;
}

/* ---- reductions ---- */

static void drop_axes(struct node *n, const struct shape *from, uint32_t mask, bool keepdims)
{
    n->shape = shape_scalar();
    for (uint32_t i = 0; i < from->rank; i++) {
        bool is_reduced = (mask >> i & 1U) != 0;
        if (!is_reduced || keepdims) {
            n->shape.dims[n->shape.rank++] = is_reduced ? dim_of(1) : from->dims[i];
        }
    }
}

status infer_reduce(struct graph *g, struct node *n)
{
    const struct node *a = operand(g, n, 0);
    const struct attr *axes = node_attr_named(n, "axes");
    uint32_t seen = 0;
    for (uint32_t i = 0; i < axes->n_ints; i++) {
        uint32_t axis = 0;
        TRY(infer_axis(g, n, axes->ints[i], a->shape.rank, &axis));
        if (seen >> axis & 1U) {
            return infer_refuse(g, n, ATOLL_SHAPE, "an axis is named twice");
        }
        seen |= 1U << axis;
    }
    drop_axes(n, &a->shape, node_axes(n, a->shape.rank), node_bool(n, "keepdims"));
    if (node_dtype(n, "dtype") != DTYPE_NONE) {
        n->dtype = node_dtype(n, "dtype");
    }
    return ATOLL_OK;
}

status infer_variance(struct graph *g, struct node *n)
{
    struct dim count = dim_of(1);
    const struct shape *a = &operand(g, n, 0)->shape;
    TRY(infer_reduce(g, n));
    uint32_t mask = node_axes(n, a->rank);
    bool is_static = true;
    for (uint32_t i = 0; i < a->rank && is_static; i++) {
        is_static = (mask >> i & 1U) == 0 ||
                    (dim_is_static(a->dims[i]) && dim_multiply(count, a->dims[i], &count));
    }
    int64_t correction = node_int(n, "correction");
    if (correction < 0 || (is_static && count.factor <= correction)) {
        char what[128];
        snprintf(what, sizeof what,
                 "found correction %" PRId64 " over %" PRId64 " values, expected 0 or more and "
                 "fewer than the values",
                 correction, count.factor);
        return infer_refuse(g, n, ATOLL_SHAPE, what);
    }
    return ATOLL_OK;
}

status infer_arg_reduce(struct graph *g, struct node *n)
{
    const struct node *a = operand(g, n, 0);
    uint32_t axis = 0;
    n->dtype = I64;
    TRY(infer_axis(g, n, node_int(n, "axis"), a->shape.rank, &axis));
    drop_axes(n, &a->shape, 1U << axis, node_bool(n, "keepdims"));
    return ATOLL_OK;
}

/* ---- contractions ---- */

status infer_matmul(struct graph *g, struct node *n)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    if (a->rank < 2 || b->rank < 2) {
        return infer_refuse(
            g, n, ATOLL_SHAPE,
            "expected rank 2 or more on both sides; hint: reshape a vector to (1,K) or (K,1)");
    }
    bool ta = node_bool(n, "transpose_a"), tb = node_bool(n, "transpose_b");
    struct dim m = a->dims[a->rank - (ta ? 1U : 2U)], ka = a->dims[a->rank - (ta ? 2U : 1U)];
    struct dim kb = b->dims[b->rank - (tb ? 1U : 2U)], cols = b->dims[b->rank - (tb ? 2U : 1U)];
    if (!dim_equal(ka, kb)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "inner sizes differ");
    }
    struct shape batch_a = *a, batch_b = *b;
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    if (!shape_broadcast(&batch_a, &batch_b, &n->shape)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "batch sizes do not broadcast");
    }
    if (n->shape.rank + 2 > MAX_RANK) {
        return infer_refuse(g, n, ATOLL_SHAPE, "rank over 8");
    }
    n->shape.dims[n->shape.rank++] = m;
    n->shape.dims[n->shape.rank++] = cols;
    return ATOLL_OK;
}

status infer_linear(struct graph *g, struct node *n)
{
    const struct shape *x = &operand(g, n, 0)->shape, *w = &operand(g, n, 1)->shape;
    if (x->rank < 1 || w->rank != 2 || !dim_equal(x->dims[x->rank - 1], w->dims[1])) {
        return infer_refuse(g, n, ATOLL_SHAPE, "expected x (..,K) and weight (N,K)");
    }
    if (n->n_operands == 3) {
        const struct shape *bias = &operand(g, n, 2)->shape;
        if (bias->rank != 1 || !dim_equal(bias->dims[0], w->dims[0])) {
            return infer_refuse(g, n, ATOLL_SHAPE, "expected bias (N) for weight (N,K)");
        }
    }
    n->shape = *x;
    n->shape.dims[x->rank - 1] = w->dims[0];
    return ATOLL_OK;
}

/* ---- random ---- */

static status need_seed(struct graph *g, struct node *n, uint32_t i)
{
    const struct node *seed = operand(g, n, i);
    return seed->dtype == I64 && seed->shape.rank == 0
               ? ATOLL_OK
               : infer_refuse(g, n, ATOLL_DTYPE, "the seed must be i64[]");
}

status infer_random(struct graph *g, struct node *n)
{
    n->dtype = F32;
    n->shape = node_attr_named(n, "shape")->dims;
    return need_seed(g, n, 0);
}

status infer_dropout(struct graph *g, struct node *n)
{
    double p = node_float(n, "p");
    n->dtype = operand(g, n, 0)->dtype;
    n->shape = operand(g, n, 0)->shape;
    if (!dtype_is_float(n->dtype) || !(p >= 0.0 && p <= 1.0)) {
        return infer_refuse(g, n, ATOLL_USAGE, "expected a float tensor and p from 0 to 1");
    }
    return need_seed(g, n, 1);
}

/* ---- composites ---- */

status infer_norm(struct graph *g, struct node *n)
{
    const struct shape *x = &operand(g, n, 0)->shape;
    int64_t axes = node_int(n, "axes");
    n->shape = *x;
    if (axes < 1 || axes > x->rank) {
        return infer_refuse(g, n, ATOLL_SHAPE, "`axes` counts trailing axes: 1 to the rank");
    }
    for (uint32_t i = 1; i < n->n_operands; i++) {
        const struct shape *w = &operand(g, n, i)->shape;
        bool fits = w->rank == axes;
        for (uint32_t k = 0; fits && k < w->rank; k++) {
            fits = dim_equal(w->dims[k], x->dims[x->rank - w->rank + k]);
        }
        if (!fits) {
            return infer_refuse(g, n, ATOLL_SHAPE,
                                "weight and bias must have the normalised axes' sizes");
        }
    }
    return ATOLL_OK;
}

status infer_batch_norm(struct graph *g, struct node *n)
{
    const struct shape *x = &operand(g, n, 0)->shape;
    uint32_t axis = 0;
    n->shape = *x;
    TRY(infer_axis(g, n, node_int(n, "axis"), x->rank, &axis));
    bool is_one = true; /* one value a channel: its variance is 0 */
    for (uint32_t i = 0; i < x->rank; i++) {
        is_one = is_one && (i == axis || dim_is(x->dims[i], 1));
    }
    if (is_one) {
        return infer_refuse(
            g, n, ATOLL_SHAPE,
            "one value per channel has no variance; expected more; hint: use the running "
            "statistics written out");
    }
    for (uint32_t i = 1; i < n->n_operands; i++) {
        const struct shape *w = &operand(g, n, i)->shape;
        if (w->rank != 1 || !dim_equal(w->dims[0], x->dims[axis])) {
            return infer_refuse(g, n, ATOLL_SHAPE,
                                "weight and bias must have the channel axis' size");
        }
    }
    return ATOLL_OK;
}

status infer_normalize(struct graph *g, struct node *n)
{
    double p = node_float(n, "p"), eps = node_float(n, "eps");
    if (!(p >= 1.0) || p > 1e6 || !(eps >= 0.0)) {
        return infer_refuse(g, n, ATOLL_USAGE, "expected a finite p >= 1 and eps >= 0");
    }
    return infer_same(g, n);
}

/* "none" keeps `kept`; "mean" and "sum" give a scalar. */
static status reduce_loss(struct graph *g, struct node *n, const struct shape *kept)
{
    const char *r = node_text(n, "reduction");
    if (strcmp(r, "none") != 0 && strcmp(r, "mean") != 0 && strcmp(r, "sum") != 0) {
        return infer_refuse(g, n, ATOLL_USAGE, "reduction must be none, mean or sum");
    }
    n->shape = strcmp(r, "none") == 0 ? *kept : shape_scalar();
    return ATOLL_OK;
}

status infer_cross_entropy(struct graph *g, struct node *n)
{
    const struct node *z = operand(g, n, 0), *y = operand(g, n, 1);
    if (!dtype_is_float(z->dtype) || (y->dtype != I64 && y->dtype != I32)) {
        return infer_refuse(g, n, ATOLL_DTYPE, "expected float logits and i64 targets");
    }
    if (z->shape.rank < 1 || y->shape.rank + 1 != z->shape.rank) {
        return infer_refuse(g, n, ATOLL_SHAPE,
                            "expected logits (N,C) and targets (N); classes are the last axis");
    }
    struct shape rows = z->shape;
    rows.rank--;
    if (!shape_equal(&rows, &y->shape)) {
        return infer_refuse(g, n, ATOLL_SHAPE, "logits and targets count different rows");
    }
    if (n->n_operands == 3) {
        const struct shape *w = &operand(g, n, 2)->shape;
        if (w->rank != 1 || !dim_equal(w->dims[0], z->shape.dims[rows.rank])) {
            return infer_refuse(g, n, ATOLL_SHAPE, "expected class weights (C)");
        }
    }
    double smoothing = node_float(n, "label_smoothing");
    if (!(smoothing >= 0.0 && smoothing <= 1.0)) {
        return infer_refuse(g, n, ATOLL_USAGE, "label_smoothing must be from 0 to 1");
    }
    n->dtype = z->dtype;
    return reduce_loss(g, n, &rows);
}

status infer_loss(struct graph *g, struct node *n)
{
    TRY(infer_broadcast(g, n));
    struct shape kept = n->shape;
    return reduce_loss(g, n, &kept);
}

/* ---- training ---- */

status infer_all_finite(struct graph *g, struct node *n)
{
    (void)g;
    n->dtype = BOOL;
    n->shape = shape_scalar();
    return ATOLL_OK;
}

status infer_global_norm(struct graph *g, struct node *n)
{
    n->dtype = F32;
    n->shape = shape_scalar();
    return node_float(n, "p") > 0.0 ? ATOLL_OK : infer_refuse(g, n, ATOLL_USAGE, "p must be > 0");
}

status infer_clip(struct graph *g, struct node *n)
{
    const struct node *max = operand(g, n, 2);
    n->dtype = operand(g, n, 0)->dtype;
    n->shape = operand(g, n, 0)->shape;
    if (max->op == OP_constant && !(node_float(max, "value") >= 0.0)) {
        char what[80];
        snprintf(what, sizeof what, "max_norm must be >= 0, found %g", node_float(max, "value"));
        return infer_refuse(g, n, ATOLL_USAGE, what);
    }
    if (operand(g, n, 1)->shape.rank != 0 || max->shape.rank != 0) {
        return infer_refuse(g, n, ATOLL_SHAPE, "norm and max_norm are scalars");
    }
    return ATOLL_OK;
}

/* State first: result as operand 0; tensors share its shape, scalars are rank 0. */
status infer_optimizer(struct graph *g, struct node *n)
{
    const struct node *p = operand(g, n, 0);
    n->dtype = p->dtype;
    n->shape = p->shape;
    for (uint32_t i = 1; i < n->n_operands; i++) {
        const struct shape *s = &operand(g, n, i)->shape;
        if (s->rank != 0 && !shape_equal(s, &p->shape)) {
            return infer_refuse(g, n, ATOLL_SHAPE,
                                "every operand has operand 0's shape or is a scalar");
        }
    }
    return ATOLL_OK;
}

status infer_scaler(struct graph *g, struct node *n)
{
    if (operand(g, n, 0)->dtype != F32 || operand(g, n, 1)->dtype != I32 ||
        operand(g, n, 2)->dtype != BOOL) {
        return infer_refuse(g, n, ATOLL_DTYPE, "expected scale f32, tracker i32, overflow bool");
    }
    n->dtype = n->op == OP_scaler_scale ? F32 : I32;
    n->shape = shape_scalar();
    return ATOLL_OK;
}
