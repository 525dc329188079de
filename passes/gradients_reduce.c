/* Gradient rules of reductions, softmax and normalisations. Used by autodiff.c through the table in
 * gradients.c. Invariant: everything happens over the operand's full shape and keepdims reductions
 * of its rows, in f32 (f64), with no reshape in between, so that fusion can hold each rule in one
 * row kernel; one rounding at the end. Formulas: softmax, layer norm and the rest as derived from
 * their definitions in decompose.c. */
#include <math.h>

#include "gradients.h"

static uint32_t axes_mask(const struct backward *b)
{
    return node_axes(&b->n, graph_node(b->g, b->n.operands[0])->shape.rank);
}

static value spread(struct backward *b, value v)
{
    struct shape shape = graph_node(b->g, b->n.operands[0])->shape;
    return graph_expand(b->g, v, &shape);
}

void grad_sum(struct backward *b)
{
    give(b, 0, spread(b, keep_axes(b, b->dy, axes_mask(b))));
}

/* dy times the product of the other elements: p/a with no zero in the row, that of the nonzero ones
 * at the only zero, else 0. */
void grad_prod(struct backward *b)
{
    uint32_t mask = axes_mask(b);
    value a = widen_operand(b, 0), dy = widen(b, keep_axes(b, b->dy, mask));
    value one = number(b, 1.0), zero = number(b, 0.0);
    value is_zero = compare(b, OP_eq, a, 0.0);
    value filled = where(b, is_zero, one, a);
    value flags = graph_cast(b->g, is_zero, compute_dtype(b));
    value zeros = reduce_axes(b, OP_sum, flags, mask);
    value product = reduce_axes(b, OP_prod, filled, mask);
    value alone = op2(b, OP_and, is_zero, compare(b, OP_eq, zeros, 1.0));
    value others = where(b, compare(b, OP_eq, zeros, 0.0), over(b, product, filled),
                         where(b, alone, product, zero));
    give(b, 0, mul(b, dy, others));
}

/* Ties share: mask dy / (number of ties). */
static value split_ties(struct backward *b, value hit, value dy, uint32_t mask)
{
    value flags = graph_cast(b->g, hit, compute_dtype(b));
    value ties = reduce_axes(b, OP_sum, flags, mask);
    return where(b, hit, over(b, dy, ties), number(b, 0.0));
}

void grad_max(struct backward *b)
{
    uint32_t mask = axes_mask(b);
    value hit = op2(b, OP_eq, b->n.operands[0], keep_axes(b, b->y, mask));
    give(b, 0, split_ties(b, hit, widen(b, keep_axes(b, b->dy, mask)), mask));
}

/* p=0 counts: nothing; p=1: sign(a) dy; p=2: a dy/y; p=inf (-inf): sign(a) dy at the largest
 * (smallest), shared; else sign(a) |a|^(p-1) dy / y^(p-1). 0 where the norm is 0. */
void grad_norm(struct backward *b)
{
    uint32_t mask = axes_mask(b);
    double p = node_float(&b->n, "p");
    value a = widen_operand(b, 0), y = widen(b, keep_axes(b, b->y, mask));
    value dy = widen(b, keep_axes(b, b->dy, mask)), zero = number(b, 0.0);
    value is_zero = compare(b, OP_eq, y, 0.0), slope;
    if (p == 0.0) {
        return;
    }
    if (p == 1.0) {
        give(b, 0, mul(b, op1(b, OP_sign, a), dy));
        return;
    }
    if (p == 2.0) {
        slope = mul(b, a, over(b, dy, y));
    } else if (isinf(p)) {
        value top = reduce_axes(b, p > 0.0 ? OP_max : OP_min, op1(b, OP_abs, a), mask);
        value hit = op2(b, OP_eq, op1(b, OP_abs, a), top);
        slope = mul(b, op1(b, OP_sign, a), split_ties(b, hit, dy, mask));
    } else {
        value ratio = over(b, op1(b, OP_abs, a), y);
        value power = op2(b, OP_pow, ratio, number(b, p - 1.0));
        slope = mul(b, mul(b, op1(b, OP_sign, a), power), dy);
        is_zero = op2(b, OP_or, is_zero, compare(b, OP_eq, a, 0.0));
    }
    give(b, 0, where(b, is_zero, zero, slope));
}

/* e^(x-max) / sum, over the axes of mask */
static value softmax(struct backward *b, value x, uint32_t mask)
{
    value e = op1(b, OP_exp, sub(b, x, reduce_axes(b, OP_max, x, mask)));
    return over(b, e, reduce_axes(b, OP_sum, e, mask));
}

/* dy softmax(a) */
void grad_logsumexp(struct backward *b)
{
    uint32_t mask = axes_mask(b);
    value p = softmax(b, widen_operand(b, 0), mask);
    give(b, 0, mul(b, widen(b, keep_axes(b, b->dy, mask)), p));
}

/* y (dy - sum(y dy)) */
void grad_softmax(struct backward *b)
{
    value y = widen(b, b->y), dy = widen(b, b->dy);
    value dot = reduce_axes(b, OP_sum, mul(b, y, dy), axes_mask(b));
    give(b, 0, mul(b, y, sub(b, dy, dot)));
}

/* dy - e^y sum(dy) */
void grad_log_softmax(struct backward *b)
{
    value dy = widen(b, b->dy);
    value total = reduce_axes(b, OP_sum, dy, axes_mask(b));
    give(b, 0, sub(b, dy, mul(b, op1(b, OP_exp, widen(b, b->y)), total)));
}

/* ---- normalisation over the last `axes` axes ---- */

struct normed {
    uint32_t mask;
    value count, scale; /* scale: 1/sqrt(variance + eps), keepdims */
    value xhat;         /* the normalised operand */
    value dxhat;        /* dy, times the weight when there is one */
};

static struct normed normalise(struct backward *b, bool is_centred)
{
    struct shape shape = graph_node(b->g, b->n.operands[0])->shape;
    uint32_t all = (1U << shape.rank) - 1U;
    struct normed s = {.mask = all & ~(all >> (uint32_t)node_int(&b->n, "axes"))};
    s.count = axes_count(b, &shape, s.mask);
    value x = widen_operand(b, 0);
    if (is_centred) {
        x = sub(b, x, over(b, reduce_axes(b, OP_sum, x, s.mask), s.count));
    }
    value square = over(b, reduce_axes(b, OP_sum, mul(b, x, x), s.mask), s.count);
    s.scale = op1(b, OP_rsqrt, add(b, square, number(b, node_float(&b->n, "eps"))));
    s.xhat = mul(b, x, s.scale);
    value dy = widen(b, b->dy);
    s.dxhat = b->n.n_operands > 1 ? mul(b, dy, widen_operand(b, 1)) : dy;
    return s;
}

/* dx = scale (dxhat - mean(dxhat) - xhat mean(dxhat xhat)); dw = sum dy xhat; db = sum dy */
void grad_layer_norm(struct backward *b)
{
    if (wants(b, 0) || wants(b, 1)) {
        struct normed s = normalise(b, true);
        if (wants(b, 0)) {
            value mean = over(b, reduce_axes(b, OP_sum, s.dxhat, s.mask), s.count);
            value dot = reduce_axes(b, OP_sum, mul(b, s.dxhat, s.xhat), s.mask);
            value along = mul(b, s.xhat, over(b, dot, s.count));
            give(b, 0, mul(b, s.scale, sub(b, sub(b, s.dxhat, mean), along)));
        }
        if (wants(b, 1)) {
            give(b, 1, mul(b, widen(b, b->dy), s.xhat));
        }
    }
    if (wants(b, 2)) {
        give(b, 2, widen(b, b->dy));
    }
}

/* dx = scale (dxhat - xhat mean(dxhat xhat)); dw = sum dy xhat */
void grad_rms_norm(struct backward *b)
{
    struct normed s = normalise(b, false);
    if (wants(b, 0)) {
        value dot = reduce_axes(b, OP_sum, mul(b, s.dxhat, s.xhat), s.mask);
        value along = mul(b, s.xhat, over(b, dot, s.count));
        give(b, 0, mul(b, s.scale, sub(b, s.dxhat, along)));
    }
    if (wants(b, 1)) {
        give(b, 1, mul(b, widen(b, b->dy), s.xhat));
    }
}

/* y = a/m, m = max(n, eps), n = (sum |a|^p)^(1/p): da = dy/m - sum(dy y)/m slope, with slope =
 * dn/da = sign(a) (|a|/n)^(p-1) where n >= eps, else 0 */
void grad_normalize(struct backward *b)
{
    uint32_t mask = axes_mask(b);
    double p = node_float(&b->n, "p");
    value a = widen_operand(b, 0), dy = widen(b, b->dy), size = op1(b, OP_abs, a);
    value floor = number(b, node_float(&b->n, "eps"));
    value power = p == 2.0 ? mul(b, a, a) : op2(b, OP_pow, size, number(b, p));
    value total = reduce_axes(b, OP_sum, power, mask);
    value n = p == 2.0 ? op1(b, OP_sqrt, total) : op2(b, OP_pow, total, number(b, 1.0 / p));
    value m = op2(b, OP_maximum, n, floor);
    value share = over(b, a, m); /* a/n wherever it is used */
    if (p != 2.0) {
        value steep = op2(b, OP_pow, op1(b, OP_abs, share), number(b, p - 1.0));
        share = mul(b, op1(b, OP_sign, a), steep);
    }
    value dot = reduce_axes(b, OP_sum, mul(b, dy, over(b, a, m)), mask);
    value is_free = op2(b, OP_ge, n, floor);
    value along = where(b, is_free, mul(b, share, dot), number(b, 0.0));
    give(b, 0, over(b, sub(b, dy, along), m));
}
