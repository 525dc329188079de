/* Type inference, one function per shape rule that ops.def names. Every refusal says which op, what
 * it found and what it expected. Rules see operands that are already well typed. */
#include "infer.h"
#include "compute.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct node *operand(const struct graph *g, const struct node *n, uint32_t i)
{
    return graph_node(g, n->operands[i]);
}

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

/* Records "OP(types): what" with the location when it is known. */
static status refuse(struct graph *g, const struct node *n, status code, const char *what)
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
                return refuse(g, n, ATOLL_DTYPE,
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
        return refuse(g, n, ATOLL_DTYPE, "arithmetic on bool; hint: cast to i32 or a float first");
    }
    n->dtype = t;
    return ATOLL_OK;
}

status infer_node(struct graph *g, struct node *n)
{
    TRY(infer_dtype(g, n));
    TRY(op_info[n->op].infer(g, n));
    if (n->dtype == DTYPE_NONE) {
        return refuse(g, n, ATOLL_DTYPE, "no dtype follows from these operands");
    }
    struct dim count;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        if (n->shape.dims[i].factor < 0) {
            return refuse(g, n, ATOLL_SHAPE, "negative size");
        }
    }
    if (!shape_count(&n->shape, &count)) {
        return refuse(g, n, ATOLL_SHAPE,
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

/* A negative axis counts from the end; the attribute's own value stays as written. */
static status resolve_axis(struct graph *g, struct node *n, int64_t axis, uint32_t rank,
                           uint32_t *out)
{
    int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
        char what[96];
        snprintf(what, sizeof what, "axis %" PRId64 " of rank %" PRIu32 ", expected %d to %d", axis,
                 rank, -(int)rank, (int)rank - 1);
        return refuse(g, n, ATOLL_SHAPE, what);
    }
    *out = (uint32_t)at;
    return ATOLL_OK;
}

status infer_iota(struct graph *g, struct node *n)
{
    uint32_t axis = 0;
    n->dtype = node_dtype(n, "dtype");
    n->shape = node_attr_named(n, "shape")->dims;
    return resolve_axis(g, n, node_int(n, "axis"), n->shape.rank, &axis);
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
    return along != NULL ? resolve_axis(g, n, along->i, a->shape.rank, &axis) : ATOLL_OK;
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
            return refuse(g, n, ATOLL_SHAPE,
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
        TRY(resolve_axis(g, n, axes->ints[i], a->shape.rank, &axis));
        if (seen >> axis & 1U) {
            return refuse(g, n, ATOLL_SHAPE, "an axis is named twice");
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
        return refuse(g, n, ATOLL_SHAPE, what);
    }
    return ATOLL_OK;
}

status infer_arg_reduce(struct graph *g, struct node *n)
{
    const struct node *a = operand(g, n, 0);
    uint32_t axis = 0;
    n->dtype = I64;
    TRY(resolve_axis(g, n, node_int(n, "axis"), a->shape.rank, &axis));
    drop_axes(n, &a->shape, 1U << axis, node_bool(n, "keepdims"));
    return ATOLL_OK;
}

/* ---- contractions ---- */

status infer_matmul(struct graph *g, struct node *n)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    if (a->rank < 2 || b->rank < 2) {
        return refuse(
            g, n, ATOLL_SHAPE,
            "expected rank 2 or more on both sides; hint: reshape a vector to (1,K) or (K,1)");
    }
    bool ta = node_bool(n, "transpose_a"), tb = node_bool(n, "transpose_b");
    struct dim m = a->dims[a->rank - (ta ? 1U : 2U)], ka = a->dims[a->rank - (ta ? 2U : 1U)];
    struct dim kb = b->dims[b->rank - (tb ? 1U : 2U)], cols = b->dims[b->rank - (tb ? 2U : 1U)];
    if (!dim_equal(ka, kb)) {
        return refuse(g, n, ATOLL_SHAPE, "inner sizes differ");
    }
    struct shape batch_a = *a, batch_b = *b;
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    if (!shape_broadcast(&batch_a, &batch_b, &n->shape)) {
        return refuse(g, n, ATOLL_SHAPE, "batch sizes do not broadcast");
    }
    if (n->shape.rank + 2 > MAX_RANK) {
        return refuse(g, n, ATOLL_SHAPE, "rank over 8");
    }
    n->shape.dims[n->shape.rank++] = m;
    n->shape.dims[n->shape.rank++] = cols;
    return ATOLL_OK;
}

status infer_linear(struct graph *g, struct node *n)
{
    const struct shape *x = &operand(g, n, 0)->shape, *w = &operand(g, n, 1)->shape;
    if (x->rank < 1 || w->rank != 2 || !dim_equal(x->dims[x->rank - 1], w->dims[1])) {
        return refuse(g, n, ATOLL_SHAPE, "expected x (..,K) and weight (N,K)");
    }
    if (n->n_operands == 3) {
        const struct shape *bias = &operand(g, n, 2)->shape;
        if (bias->rank != 1 || !dim_equal(bias->dims[0], w->dims[0])) {
            return refuse(g, n, ATOLL_SHAPE, "expected bias (N) for weight (N,K)");
        }
    }
    n->shape = *x;
    n->shape.dims[x->rank - 1] = w->dims[0];
    return ATOLL_OK;
}

/* ---- views ---- */

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
            return refuse(g, n, ATOLL_SHAPE, "sizes must be >= 0, with at most one -1");
        }
    }
    if (infer != MAX_RANK && !dim_divide(have, known, &n->shape.dims[infer])) {
        return refuse(g, n, ATOLL_SHAPE, "the size for -1 is not a whole number");
    }
    struct dim now;
    if (!shape_count(&n->shape, &now) || !dim_equal(have, now)) {
        struct arena scratch = SCRATCH_ARENA;
        const char *what = arena_text(&scratch, "element counts differ: cannot become %s",
                                      type_text(g, n, &scratch));
        status code = refuse(g, n, ATOLL_SHAPE, what);
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
        return refuse(g, n, ATOLL_SHAPE, "perm names another number of axes");
    }
    for (uint32_t i = 0; i < from->rank; i++) {
        uint32_t axis = 0;
        TRY(resolve_axis(g, n, perm->n_ints == 0 ? from->rank - 1 - (int64_t)i : perm->ints[i],
                         from->rank, &axis));
        if (seen >> axis & 1U) {
            return refuse(g, n, ATOLL_SHAPE, "perm names an axis twice");
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
        return refuse(g, n, ATOLL_SHAPE, "does not broadcast to the shape asked for");
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
        return refuse(g, n, ATOLL_SHAPE, what);
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
    TRY(resolve_axis(g, n, node_int(n, "axis"), from->rank, &axis));
    if (step < 1) {
        return refuse(g, n, ATOLL_SHAPE, "step must be 1 or more");
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
    TRY(resolve_axis(g, n, node_int(n, "axis"), first->rank, &axis));
    for (uint32_t i = 0; i < n->n_operands; i++) {
        const struct node *o = operand(g, n, i);
        int64_t size = 0;
        struct shape same = o->shape;
        if (same.rank != first->rank || o->dtype != n->dtype) {
            return refuse(g, n, ATOLL_SHAPE, "operands must have one rank and one dtype");
        }
        TRY(static_size(g, n, same.dims[axis], &size));
        if (__builtin_add_overflow(total, size, &total)) {
            return refuse(g, n, ATOLL_SHAPE, "the axis gets more elements than 64 bits can count");
        }
        same.dims[axis] = first->dims[axis];
        if (!shape_equal(&same, first)) {
            return refuse(g, n, ATOLL_SHAPE, "sizes differ on another axis");
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
    TRY(resolve_axis(g, n, node_int(n, "axis"), n->shape.rank, &axis));
    TRY(static_size(g, n, n->shape.dims[axis], &size));
    int64_t low = node_int(n, "low"), high = node_int(n, "high"), step = node_int(n, "step");
    if (low < 0 || high < 0 || step < 1) {
        return refuse(g, n, ATOLL_SHAPE, "low and high must be >= 0, step >= 1");
    }
    int64_t total = size == 0 ? 0 : size - 1;
    if (__builtin_mul_overflow(total, step, &total) ||
        __builtin_add_overflow(total, size == 0 ? 0 : 1, &total) ||
        __builtin_add_overflow(total, low, &total) || __builtin_add_overflow(total, high, &total)) {
        return refuse(g, n, ATOLL_SHAPE, "the axis gets more elements than 64 bits can count");
    }
    n->shape.dims[axis] = dim_of(total);
    return ATOLL_OK;
}

static status need_indices(struct graph *g, struct node *n, uint32_t i)
{
    enum dtype t = operand(g, n, i)->dtype;
    return t == I64 || t == I32 ? ATOLL_OK
                                : refuse(g, n, ATOLL_DTYPE, "expected i64 or i32 indices");
}

/* a's shape with its axis replaced by all axes of b. */
static status taken_shape(struct graph *g, struct node *n, struct shape *out)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    uint32_t axis = 0;
    TRY(need_indices(g, n, 1));
    TRY(resolve_axis(g, n, node_int(n, "axis"), a->rank, &axis));
    if (a->rank - 1 + b->rank > MAX_RANK) {
        return refuse(g, n, ATOLL_SHAPE, "rank over 8");
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
        return refuse(g, n, ATOLL_SHAPE,
                      "c must have a's shape with the axis replaced by b's axes");
    }
    return ATOLL_OK;
}

static status check_gather(struct graph *g, struct node *n)
{
    const struct shape *a = &operand(g, n, 0)->shape, *b = &operand(g, n, 1)->shape;
    uint32_t axis = 0;
    TRY(need_indices(g, n, 1));
    TRY(resolve_axis(g, n, node_int(n, "axis"), a->rank, &axis));
    struct shape same = *b;
    if (b->rank == a->rank) {
        same.dims[axis] = a->dims[axis];
    }
    if (b->rank != a->rank || !shape_equal(&same, a)) {
        return refuse(g, n, ATOLL_SHAPE, "indices must have a's sizes on every other axis");
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
        return refuse(g, n, ATOLL_SHAPE, "indices and source differ in shape");
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
        return refuse(g, n, ATOLL_SHAPE, "expected a weight (V,C)");
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
        return refuse(g, n, ATOLL_SHAPE, "expected classes >= 0 and a rank below 8");
    }
    n->shape.dims[n->shape.rank++] = dim_of(node_int(n, "classes"));
    return ATOLL_OK;
}

/* ---- random ---- */

static status need_seed(struct graph *g, struct node *n, uint32_t i)
{
    const struct node *seed = operand(g, n, i);
    return seed->dtype == I64 && seed->shape.rank == 0
               ? ATOLL_OK
               : refuse(g, n, ATOLL_DTYPE, "the seed must be i64[]");
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
        return refuse(g, n, ATOLL_USAGE, "expected a float tensor and p from 0 to 1");
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
        return refuse(g, n, ATOLL_SHAPE, "`axes` counts trailing axes: 1 to the rank");
    }
    for (uint32_t i = 1; i < n->n_operands; i++) {
        const struct shape *w = &operand(g, n, i)->shape;
        bool fits = w->rank == axes;
        for (uint32_t k = 0; fits && k < w->rank; k++) {
            fits = dim_equal(w->dims[k], x->dims[x->rank - w->rank + k]);
        }
        if (!fits) {
            return refuse(g, n, ATOLL_SHAPE,
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
    TRY(resolve_axis(g, n, node_int(n, "axis"), x->rank, &axis));
    bool is_one = true; /* one value a channel: its variance is 0 */
    for (uint32_t i = 0; i < x->rank; i++) {
        is_one = is_one && (i == axis || dim_is(x->dims[i], 1));
    }
    if (is_one) {
        return refuse(g, n, ATOLL_SHAPE,
                      "one value per channel has no variance; expected more; hint: use the running "
                      "statistics written out");
    }
    for (uint32_t i = 1; i < n->n_operands; i++) {
        const struct shape *w = &operand(g, n, i)->shape;
        if (w->rank != 1 || !dim_equal(w->dims[0], x->dims[axis])) {
            return refuse(g, n, ATOLL_SHAPE, "weight and bias must have the channel axis' size");
        }
    }
    return ATOLL_OK;
}

status infer_normalize(struct graph *g, struct node *n)
{
    double p = node_float(n, "p"), eps = node_float(n, "eps");
    if (!(p >= 1.0) || p > 1e6 || !(eps >= 0.0)) {
        return refuse(g, n, ATOLL_USAGE, "expected a finite p >= 1 and eps >= 0");
    }
    return infer_same(g, n);
}

/* "none" keeps `kept`; "mean" and "sum" give a scalar. */
static status reduce_loss(struct graph *g, struct node *n, const struct shape *kept)
{
    const char *r = node_text(n, "reduction");
    if (strcmp(r, "none") != 0 && strcmp(r, "mean") != 0 && strcmp(r, "sum") != 0) {
        return refuse(g, n, ATOLL_USAGE, "reduction must be none, mean or sum");
    }
    n->shape = strcmp(r, "none") == 0 ? *kept : shape_scalar();
    return ATOLL_OK;
}

status infer_cross_entropy(struct graph *g, struct node *n)
{
    const struct node *z = operand(g, n, 0), *y = operand(g, n, 1);
    if (!dtype_is_float(z->dtype) || (y->dtype != I64 && y->dtype != I32)) {
        return refuse(g, n, ATOLL_DTYPE, "expected float logits and i64 targets");
    }
    if (z->shape.rank < 1 || y->shape.rank + 1 != z->shape.rank) {
        return refuse(g, n, ATOLL_SHAPE,
                      "expected logits (N,C) and targets (N); classes are the last axis");
    }
    struct shape rows = z->shape;
    rows.rank--;
    if (!shape_equal(&rows, &y->shape)) {
        return refuse(g, n, ATOLL_SHAPE, "logits and targets count different rows");
    }
    if (n->n_operands == 3) {
        const struct shape *w = &operand(g, n, 2)->shape;
        if (w->rank != 1 || !dim_equal(w->dims[0], z->shape.dims[rows.rank])) {
            return refuse(g, n, ATOLL_SHAPE, "expected class weights (C)");
        }
    }
    double smoothing = node_float(n, "label_smoothing");
    if (!(smoothing >= 0.0 && smoothing <= 1.0)) {
        return refuse(g, n, ATOLL_USAGE, "label_smoothing must be from 0 to 1");
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
    return node_float(n, "p") > 0.0 ? ATOLL_OK : refuse(g, n, ATOLL_USAGE, "p must be > 0");
}

status infer_clip(struct graph *g, struct node *n)
{
    const struct node *max = operand(g, n, 2);
    n->dtype = operand(g, n, 0)->dtype;
    n->shape = operand(g, n, 0)->shape;
    if (max->op == OP_constant && !(node_float(max, "value") >= 0.0)) {
        char what[80];
        snprintf(what, sizeof what, "max_norm must be >= 0, found %g", node_float(max, "value"));
        return refuse(g, n, ATOLL_USAGE, what);
    }
    if (operand(g, n, 1)->shape.rank != 0 || max->shape.rank != 0) {
        return refuse(g, n, ATOLL_SHAPE, "norm and max_norm are scalars");
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
            return refuse(g, n, ATOLL_SHAPE, "every operand has operand 0's shape or is a scalar");
        }
    }
    return ATOLL_OK;
}

status infer_scaler(struct graph *g, struct node *n)
{
    if (operand(g, n, 0)->dtype != F32 || operand(g, n, 1)->dtype != I32 ||
        operand(g, n, 2)->dtype != BOOL) {
        return refuse(g, n, ATOLL_DTYPE, "expected scale f32, tracker i32, overflow bool");
    }
    n->dtype = n->op == OP_scaler_scale ? F32 : I32;
    n->shape = shape_scalar();
    return ATOLL_OK;
}
