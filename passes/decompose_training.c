/* Definitions of the training ops: finite check, norm, clipping, optimizers, scaler. Used by
 * decompose.c through its table. Invariant: scalars (rates, betas, corrections) combine in f64 and
 * are rounded to the tensor's compute dtype once; what is done to each element is f32 (f64 only
 * for f64 tensors), so a f64 learning rate never widens the work on a tensor. */
#include <math.h>

#include "decompose_rules.h"

/* A scalar operand in f64. */
static value wide(struct scope *s, uint32_t operand)
{
    return as(s, s->x[operand], F64);
}

/* A scalar operand, or a f64 formula of some, as it meets the tensors. */
static value narrow(struct scope *s, value v)
{
    return as(s, v, s->compute);
}

/* The dtype of the work on elements: that of the first `n_tensors` operands. */
static void compute_as_tensors(struct scope *s, uint32_t n_tensors)
{
    s->compute = F32;
    for (uint32_t i = 0; i < n_tensors; i++) {
        if (graph_node(s->g, s->x[i])->dtype == F64) {
            s->compute = F64;
        }
    }
}

static value scalar_of(struct scope *s, value v)
{
    struct shape none = shape_scalar();
    return drop_to(s, v, &none);
}

/* ---- over all gradients ---- */

value decompose_all_finite(struct scope *s)
{
    value all = {0};
    for (uint32_t i = 0; i < s->n.n_operands; i++) {
        value good = op1(s, OP_is_finite, s->x[i]);
        good = scalar_of(s, reduce_mask(s, OP_all, good, all_axes(s, good), BOOL));
        all = i == 0 ? good : op2(s, OP_and, all, good);
    }
    return all;
}

/* What one operand adds before the root: its sum of squares, of |g|^p, or its largest |g|. */
static value norm_part(struct scope *s, value g, double p)
{
    uint32_t all = all_axes(s, g);
    if (p == 2.0) {
        return scalar_of(s, sum_over(s, mul(s, g, g), all));
    }
    if (p == 1.0 || isinf(p)) {
        return scalar_of(s, norm_over(s, g, all, p));
    }
    value power = op2(s, OP_pow, op1(s, OP_abs, g), number(s, p));
    return scalar_of(s, sum_over(s, power, all));
}

/* Parts are joined in operand order. Nothing to measure: 0. */
value decompose_global_norm(struct scope *s)
{
    double p = node_float(&s->n, "p");
    value total = {0};
    for (uint32_t i = 0; i < s->n.n_operands; i++) {
        value part = norm_part(s, up(s, i), p);
        total = i == 0 ? part : op2(s, isinf(p) ? OP_maximum : OP_add, total, part);
    }
    if (s->n.n_operands == 0) {
        return graph_constant(s->g, 0.0, F32);
    }
    if (p == 2.0) {
        total = op1(s, OP_sqrt, total);
    } else if (p != 1.0 && !isinf(p)) {
        total = op2(s, OP_pow, total, number(s, 1.0 / p));
    }
    return result(s, total);
}

/* g min(max_norm / (norm + eps), 1): always a product, no branch; a NaN norm gives NaN. */
value decompose_clip_grad_norm(struct scope *s)
{
    compute_as_tensors(s, 1);
    value norm = narrow(s, s->x[1]), max_norm = narrow(s, s->x[2]);
    value ratio = over(s, max_norm, add(s, norm, number(s, node_float(&s->n, "eps"))));
    return result(s, mul(s, up(s, 0), op2(s, OP_minimum, ratio, number(s, 1.0))));
}

/* ---- optimizers ---- */

/* 1 - x, in f64, then as the tensors meet it */
static value complement(struct scope *s, uint32_t operand)
{
    return narrow(s, sub(s, number(s, 1.0), wide(s, operand)));
}

/* m + (1-b1) (g - m) */
value decompose_adam_exp_avg(struct scope *s)
{
    compute_as_tensors(s, 2);
    value m = up(s, 0), d = sub(s, up(s, 1), m);
    return result(s, add(s, m, mul(s, complement(s, 2), d)));
}

/* b2 v + ((1-b2) g) g */
value decompose_adam_exp_avg_sq(struct scope *s)
{
    compute_as_tensors(s, 2);
    value g = up(s, 1), old = mul(s, narrow(s, s->x[2]), up(s, 0));
    return result(s, add(s, old, mul(s, mul(s, complement(s, 2), g), g)));
}

/* p - (k m) / (r sqrt(v) + eps), k = lr/(1-b1^t), r = 1/sqrt(1-b2^t): a quotient by a number that
 * all elements share is a product by its reciprocal, rounded once from f64, for what divisions
 * cost. */
value decompose_adam_update(struct scope *s)
{
    compute_as_tensors(s, 3);
    value one = number(s, 1.0);
    value k = narrow(s, over(s, wide(s, 3), sub(s, one, wide(s, 4))));
    value r = narrow(s, over(s, one, op1(s, OP_sqrt, sub(s, one, wide(s, 5)))));
    value root = mul(s, r, op1(s, OP_sqrt, up(s, 2)));
    value step = over(s, mul(s, k, up(s, 1)), add(s, root, narrow(s, s->x[6])));
    return result(s, sub(s, up(s, 0), step));
}

/* first ? g : mu buf + (1-dampening) g */
value decompose_sgd_momentum(struct scope *s)
{
    compute_as_tensors(s, 2);
    double dampening = node_float(&s->n, "dampening");
    value g = up(s, 1), mu = narrow(s, s->x[2]);
    value fresh = dampening == 0.0 ? g : mul(s, g, number(s, 1.0 - dampening));
    value next = add(s, mul(s, mu, up(s, 0)), fresh);
    value is_first = s->x[3];
    if (is_first.id != 0 && graph_node(s->g, is_first)->dtype != BOOL) {
        is_first = op2(s, OP_ne, is_first, number(s, 0.0));
    }
    return result(s, where(s, is_first, g, next));
}

/* decoupled: p (1-c); else g + c p */
value decompose_weight_decay(struct scope *s)
{
    compute_as_tensors(s, 2);
    if (node_bool(&s->n, "decoupled")) {
        return result(s, mul(s, up(s, 0), complement(s, 2)));
    }
    return result(s, add(s, up(s, 0), mul(s, narrow(s, s->x[2]), up(s, 1))));
}

/* p - lr g */
value decompose_sgd_update(struct scope *s)
{
    compute_as_tensors(s, 2);
    return result(s, sub(s, up(s, 0), mul(s, narrow(s, s->x[2]), up(s, 1))));
}

/* ---- scaler: state scale, tracker; overflow of this step ---- */

static value grows(struct scope *s, value *next)
{
    *next = add(s, scalar_of(s, s->x[1]), number(s, 1.0));
    return op2(s, OP_ge, *next, number(s, (double)node_int(&s->n, "interval")));
}

/* overflow: max(S backoff, floor); after `interval` good steps min(S growth, ceiling) when that
 * product is finite; else S */
value decompose_scaler_scale(struct scope *s)
{
    value next, is_due = grows(s, &next), scale = scalar_of(s, s->x[0]);
    value less = mul(s, scale, number(s, node_float(&s->n, "backoff")));
    value more = mul(s, scale, number(s, node_float(&s->n, "growth")));
    less = op2(s, OP_maximum, less, number(s, node_float(&s->n, "floor")));
    value may_grow = op2(s, OP_and, is_due, op1(s, OP_is_finite, more));
    more = op2(s, OP_minimum, more, number(s, node_float(&s->n, "ceiling")));
    value good = where(s, may_grow, more, scale);
    return result(s, where(s, scalar_of(s, s->x[2]), less, good));
}

/* overflow or growth: 0, also when the growth itself is dropped; else one more */
value decompose_scaler_tracker(struct scope *s)
{
    value next, is_due = grows(s, &next), restarts = op2(s, OP_or, scalar_of(s, s->x[2]), is_due);
    return result(s, where(s, restarts, number(s, 0.0), next));
}
