/* The table of gradient rules, what rules share, and the rules of elementwise primitives.
 * Used by autodiff.c. Invariant: what gives an operand its gradient goes through give(), which sums
 * over broadcast axes and casts, so no rule needs to know how its operands were broadcast.
 * Gradients are masked with where, never multiplied by 0: 0 * inf would be NaN. */
#include "gradients.h"

#include <assert.h>

void grad_none(struct backward *b)
{
    (void)b;
}

static grad_rule *const rules[N_OPS] = {
#define OP(name, min, max, kind, types, shape, cuda, cpu, grad, ...) [OP_##name] = grad_##grad,
#include "ir/ops.def"
#undef OP
};

grad_rule *gradient_rule(enum op op)
{
    return rules[op] == grad_none ? NULL : rules[op];
}

/* ---- shared ---- */

bool wants(const struct backward *b, uint32_t i)
{
    return i < b->n.n_operands && b->needs[b->n.operands[i].id];
}

value sum_to(struct graph *g, value v, const struct shape *shape)
{
    if (v.id == 0) {
        return v;
    }
    struct shape from = graph_node(g, v)->shape;
    uint32_t lead = from.rank - shape->rank, n = 0;
    int64_t axes[MAX_RANK];
    for (uint32_t i = 0; i < from.rank; i++) {
        bool is_one = i >= lead && dim_is(shape->dims[i - lead], 1);
        if (i < lead || (is_one && !dim_is(from.dims[i], 1))) {
            axes[n++] = i;
        }
    }
    if (n > 0) {
        v = graph_reduce(g, OP_sum, v, axes, n, true);
    }
    return graph_reshape(g, v, shape);
}

void give(struct backward *b, uint32_t i, value v)
{
    if (!wants(b, i) || v.id == 0) {
        return;
    }
    value to = b->n.operands[i];
    struct shape shape = graph_node(b->g, to)->shape;
    v = graph_cast(b->g, sum_to(b->g, v, &shape), graph_node(b->g, to)->dtype);
    if (v.id == 0) {
        return;
    }
    assert(shape_equal(&graph_node(b->g, v)->shape, &shape));
    value *at = &b->grad[to.id];
    uint32_t island = b->g->origin_island; /* a low sum lies behind the island's border */
    b->g->origin_island = dtype_is_low(graph_node(b->g, to)->dtype) ? 0 : island;
    *at = at->id == 0 ? v : add(b, *at, v);
    b->g->origin_island = island;
}

enum dtype compute_dtype(const struct backward *b)
{
    return dtype_compute(b->n.dtype);
}

value widen(struct backward *b, value v)
{
    enum dtype t = compute_dtype(b);
    return v.id == 0 || graph_node(b->g, v)->dtype == F64 ? v : graph_cast(b->g, v, t);
}

value widen_operand(struct backward *b, uint32_t i)
{
    return widen(b, b->n.operands[i]);
}

value reduce_axes(struct backward *b, enum op op, value v, uint32_t mask)
{
    int64_t axes[MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_RANK; i++) {
        if (mask >> i & 1U) {
            axes[n++] = i;
        }
    }
    /* sums state their dtype, as decompose.c's do: equal nodes are shared */
    bool is_sum = op == OP_sum || op == OP_prod;
    struct attr attrs[] = {attr_ints("axes", axes, n), attr_bool("keepdims", true),
                           attr_dtype("dtype", compute_dtype(b))};
    return n == 0 ? v : graph_add(b->g, op, &v, 1, attrs, is_sum ? 3 : 2);
}

value keep_axes(struct backward *b, value v, uint32_t mask)
{
    struct shape kept = graph_node(b->g, b->n.operands[0])->shape;
    for (uint32_t i = 0; i < kept.rank; i++) {
        if (mask >> i & 1U) {
            kept.dims[i] = dim_of(1);
        }
    }
    return graph_reshape(b->g, v, &kept);
}

value axes_count(struct backward *b, const struct shape *shape, uint32_t mask)
{
    struct shape of = {0}; /* spelled as in decompose.c: equal nodes are shared */
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (mask >> i & 1U) {
            of.dims[of.rank++] = shape->dims[i];
        }
    }
    return graph_add(b->g, OP_size, NULL, 0,
                     (struct attr[]){attr_dims("of", &of), attr_dtype("dtype", compute_dtype(b))},
                     2);
}

value zeros_like(struct backward *b, uint32_t operand)
{
    const struct node *o = graph_node(b->g, b->n.operands[operand]);
    struct shape shape = o->shape;
    return graph_expand(b->g, graph_constant(b->g, 0.0, o->dtype), &shape);
}

/* ---- arithmetic ---- */

void grad_zero(struct backward *b)
{
    (void)b; /* piecewise constant: nothing to give */
}

void grad_add(struct backward *b)
{
    give(b, 0, b->dy);
    give(b, 1, b->dy);
}

void grad_sub(struct backward *b)
{
    give(b, 0, b->dy);
    if (wants(b, 1)) {
        give(b, 1, op1(b, OP_neg, b->dy));
    }
}

void grad_mul(struct backward *b)
{
    if (wants(b, 0)) {
        give(b, 0, mul(b, b->dy, b->n.operands[1]));
    }
    if (wants(b, 1)) {
        give(b, 1, mul(b, b->dy, b->n.operands[0]));
    }
}

/* d(a/c): da = dy/c, dc = -dy (a/c)/c */
void grad_div(struct backward *b)
{
    value c = b->n.operands[1];
    if (wants(b, 0)) {
        give(b, 0, over(b, b->dy, c));
    }
    if (wants(b, 1)) {
        value ratio = over(b, over(b, widen_operand(b, 0), widen(b, c)), widen(b, c));
        give(b, 1, op1(b, OP_neg, mul(b, widen(b, b->dy), ratio)));
    }
}

void grad_neg(struct backward *b)
{
    give(b, 0, op1(b, OP_neg, b->dy));
}

/* 0 at 0 */
void grad_abs(struct backward *b)
{
    give(b, 0, mul(b, b->dy, op1(b, OP_sign, b->n.operands[0])));
}

/* The operand that lost gets 0, a tie half each, a NaN lets the gradient pass. `lost` says when
 * operand 0 lost. */
static void give_extreme(struct backward *b, enum op lost, enum op won)
{
    value a = b->n.operands[0], c = b->n.operands[1], zero = number(b, 0.0);
    value half = mul(b, b->dy, number(b, 0.5));
    value shared = where(b, op2(b, OP_eq, a, c), half, b->dy);
    if (wants(b, 0)) {
        give(b, 0, where(b, op2(b, lost, a, c), zero, shared));
    }
    if (wants(b, 1)) {
        give(b, 1, where(b, op2(b, won, a, c), zero, shared));
    }
}

void grad_minimum(struct backward *b)
{
    give_extreme(b, OP_gt, OP_lt);
}

void grad_maximum(struct backward *b)
{
    give_extreme(b, OP_lt, OP_gt);
}

/* ---- functions of one operand ---- */

void grad_exp(struct backward *b)
{
    give(b, 0, mul(b, b->dy, b->y));
}

void grad_expm1(struct backward *b)
{
    give(b, 0, mul(b, widen(b, b->dy), add(b, widen(b, b->y), number(b, 1.0))));
}

void grad_log(struct backward *b)
{
    give(b, 0, over(b, b->dy, b->n.operands[0]));
}

void grad_log1p(struct backward *b)
{
    give(b, 0, over(b, widen(b, b->dy), add(b, widen_operand(b, 0), number(b, 1.0))));
}

/* inf at 0 */
void grad_sqrt(struct backward *b)
{
    give(b, 0, over(b, widen(b, b->dy), mul(b, number(b, 2.0), widen(b, b->y))));
}

void grad_rsqrt(struct backward *b)
{
    value y = widen(b, b->y);
    value cube = mul(b, mul(b, y, y), y);
    give(b, 0, mul(b, mul(b, widen(b, b->dy), number(b, -0.5)), cube));
}

void grad_reciprocal(struct backward *b)
{
    value y = widen(b, b->y);
    give(b, 0, mul(b, op1(b, OP_neg, widen(b, b->dy)), mul(b, y, y)));
}

/* da = c a^(c-1), 0 where c is 0; dc = a^c log a, 0 where a is 0 and c >= 0 */
void grad_pow(struct backward *b)
{
    value a = widen_operand(b, 0), c = widen_operand(b, 1), dy = widen(b, b->dy),
          zero = number(b, 0.0);
    if (wants(b, 0)) {
        value slope = mul(b, c, op2(b, OP_pow, a, sub(b, c, number(b, 1.0))));
        give(b, 0, where(b, compare(b, OP_eq, c, 0.0), zero, mul(b, dy, slope)));
    }
    if (wants(b, 1)) {
        value slope = mul(b, widen(b, b->y), op1(b, OP_log, a));
        value is_flat = op2(b, OP_and, compare(b, OP_eq, a, 0.0), compare(b, OP_ge, c, 0.0));
        give(b, 1, where(b, is_flat, zero, mul(b, dy, slope)));
    }
}

void grad_tanh(struct backward *b)
{
    value y = widen(b, b->y);
    give(b, 0, mul(b, widen(b, b->dy), sub(b, number(b, 1.0), mul(b, y, y))));
}

/* 2/sqrt(pi) e^(-a^2) */
void grad_erf(struct backward *b)
{
    value a = widen_operand(b, 0);
    value bell = op1(b, OP_exp, op1(b, OP_neg, mul(b, a, a)));
    give(b, 0, mul(b, widen(b, b->dy), mul(b, number(b, 1.1283791670955126), bell)));
}

void grad_sigmoid(struct backward *b)
{
    value y = widen(b, b->y);
    give(b, 0, mul(b, widen(b, b->dy), mul(b, sub(b, number(b, 1.0), y), y)));
}

void grad_sin(struct backward *b)
{
    give(b, 0, mul(b, widen(b, b->dy), op1(b, OP_cos, widen_operand(b, 0))));
}

void grad_cos(struct backward *b)
{
    value slope = op1(b, OP_neg, op1(b, OP_sin, widen_operand(b, 0)));
    give(b, 0, mul(b, widen(b, b->dy), slope));
}

/* 1 / (1 + a^2) */
void grad_atan(struct backward *b)
{
    value a = widen_operand(b, 0);
    give(b, 0, over(b, widen(b, b->dy), add(b, mul(b, a, a), number(b, 1.0))));
}

/* of (y, x): dy = x / (x^2 + y^2), dx = -y / (x^2 + y^2); 0 at the origin, where there is none */
void grad_atan2(struct backward *b)
{
    value y = widen_operand(b, 0), x = widen_operand(b, 1), dy = widen(b, b->dy);
    value square = add(b, mul(b, x, x), mul(b, y, y)), zero = number(b, 0.0);
    value is_origin = op2(b, OP_eq, square, zero);
    value share = where(b, is_origin, zero, over(b, dy, square));
    if (wants(b, 0)) {
        give(b, 0, mul(b, share, x));
    }
    if (wants(b, 1)) {
        give(b, 1, op1(b, OP_neg, mul(b, share, y)));
    }
}

/* 0 at 0; NaN lets the gradient pass */
void grad_relu(struct backward *b)
{
    give(b, 0, where(b, compare(b, OP_le, b->n.operands[0], 0.0), number(b, 0.0), b->dy));
}

void grad_where(struct backward *b)
{
    if (wants(b, 1)) {
        give(b, 1, where(b, b->n.operands[0], b->dy, number(b, 0.0)));
    }
    if (wants(b, 2)) {
        give(b, 2, where(b, b->n.operands[0], number(b, 0.0), b->dy));
    }
}

/* give() casts back to the operand's dtype. */
void grad_cast(struct backward *b)
{
    give(b, 0, b->dy);
}

/* The tag scaled(S) enters the backward graph here. */
void grad_scale_loss(struct backward *b)
{
    if (wants(b, 0)) {
        give(b, 0, op2(b, OP_scale_loss, b->dy, b->n.operands[1]));
    }
}
