/* Definitions of the composites that are no losses: reductions with a formula, indexing, dropout,
 * activations, softmax and normalisation. Used by decompose.c through its table. Invariant: row ops
 * (softmax, norms) keep the operand's full shape and reduce with keepdims, with no reshape in
 * between, so that one row kernel can hold them. */
#include <math.h>
#include <string.h>

#include "decompose_rules.h"

static uint32_t node_mask(const struct scope *s)
{
    return node_axes(&s->n, shape_of(s, s->x[0]).rank);
}

/* ---- reductions ---- */

/* sum / count */
value decompose_mean(struct scope *s)
{
    struct shape shape = shape_of(s, s->x[0]);
    value sum = sum_over(s, s->x[0], node_mask(s));
    return result(s, over(s, sum, count_of(s, &shape, node_mask(s))));
}

/* p=2: sqrt(sum a a); p=1: sum |a|; p=inf: largest |a|, 0 over nothing; p=-inf: smallest; p=0: how
 * many are not 0; else (sum |a|^p)^(1/p) */
value norm_over(struct scope *s, value a, uint32_t mask, double p)
{
    if (p == 2.0) {
        return op1(s, OP_sqrt, sum_over(s, mul(s, a, a), mask));
    }
    if (p == 0.0) {
        value is_set = op2(s, OP_ne, a, number(s, 0.0));
        return sum_over(s, graph_cast(s->g, is_set, s->compute), mask);
    }
    value size = op1(s, OP_abs, a);
    if (p == 1.0) {
        return sum_over(s, size, mask);
    }
    if (isinf(p)) {
        return p > 0.0 ? op2(s, OP_maximum, max_over(s, size, mask), number(s, 0.0))
                       : reduce_mask(s, OP_min, size, mask, s->compute);
    }
    value sum = sum_over(s, op2(s, OP_pow, size, number(s, p)), mask);
    return op2(s, OP_pow, sum, number(s, 1.0 / p));
}

value decompose_norm(struct scope *s)
{
    return result(s, norm_over(s, up(s, 0), node_mask(s), node_float(&s->n, "p")));
}

/* log(sum e^(a-m)) + m with m = max a where that is finite, else 0: a row of -inf gives -inf, a row
 * with +inf gives +inf. */
value decompose_logsumexp(struct scope *s)
{
    uint32_t mask = node_mask(s);
    value a = up(s, 0), m = max_over(s, a, mask);
    m = where(s, op1(s, OP_is_finite, m), m, number(s, 0.0));
    value sum = sum_over(s, op1(s, OP_exp, sub(s, a, m)), mask);
    return result(s, add(s, op1(s, OP_log, sum), m));
}

/* sum (a - mean)^2 / (count - correction): the centred values first, no cancellation */
value decompose_variance(struct scope *s)
{
    uint32_t mask = node_mask(s);
    struct shape shape = shape_of(s, s->x[0]);
    value a = up(s, 0), count = count_of(s, &shape, mask);
    value d = sub(s, a, over(s, sum_over(s, a, mask), count));
    value free = sub(s, count, number(s, (double)node_int(&s->n, "correction")));
    return result(s, over(s, sum_over(s, mul(s, d, d), mask), free));
}

/* ---- index, random ---- */

value decompose_embedding(struct scope *s)
{
    return graph_add(s->g, OP_take, s->x, 2, NULL, 0);
}

/* iota == index */
value decompose_one_hot(struct scope *s)
{
    struct shape line = s->n.shape, column = s->n.shape;
    uint32_t last = line.rank - 1;
    for (uint32_t i = 0; i < last; i++) {
        line.dims[i] = dim_of(1);
    }
    column.dims[last] = dim_of(1);
    value classes =
        graph_add(s->g, OP_iota, NULL, 0,
                  (struct attr[]){attr_dims("shape", &line), attr_int("axis", last)}, 2);
    value hit = op2(s, OP_eq, classes, drop_to(s, s->x[0], &column));
    return result(s, hit);
}

/* u >= p ? x / (1-p) : 0 with u uniform in [0,1). p=1 drops everything: no 0 * inf. */
value decompose_dropout(struct scope *s)
{
    double p = node_float(&s->n, "p");
    if (p == 0.0 || !node_bool(&s->n, "training")) {
        return result(s, s->x[0]);
    }
    if (p == 1.0) {
        return graph_expand(s->g, graph_constant(s->g, 0.0, s->n.dtype), &s->n.shape);
    }
    value u = graph_add(s->g, OP_uniform, &s->x[1], 1,
                        (struct attr[]){attr_dims("shape", &s->n.shape),
                                        attr_int("stream", node_int(&s->n, "stream"))},
                        2);
    value is_kept = op2(s, OP_ge, u, number(s, p));
    value scaled = mul(s, up(s, 0), number(s, 1.0 / (1.0 - p)));
    return result(s, where(s, is_kept, scaled, number(s, 0.0)));
}

/* ---- activations ---- */

/* min(high, max(low, a)). Between integers a bound is the nearest whole number inside. */
value decompose_clamp(struct scope *s)
{
    double low = node_float(&s->n, "low"), high = node_float(&s->n, "high");
    bool is_float = dtype_is_float(s->n.dtype);
    value a = is_float ? up(s, 0) : s->x[0];
    if (!isinf(low) || low > 0.0) {
        a = op2(s, OP_maximum, a, number(s, is_float ? low : ceil(low)));
    }
    if (!isinf(high) || high < 0.0) {
        a = op2(s, OP_minimum, a, number(s, is_float ? high : floor(high)));
    }
    return result(s, a);
}

value decompose_leaky_relu(struct scope *s)
{
    value a = up(s, 0), leak = mul(s, a, number(s, node_float(&s->n, "slope")));
    return result(s, where(s, op2(s, OP_gt, a, number(s, 0.0)), a, leak));
}

/* exact: (a/2) (1 + erf(a/sqrt 2)); tanh: (a/2) (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) */
value decompose_gelu(struct scope *s)
{
    value a = up(s, 0), half = mul(s, a, number(s, 0.5)), bend;
    if (strcmp(node_text(&s->n, "form"), "tanh") == 0) {
        value cube = mul(s, mul(s, mul(s, a, a), a), number(s, 0.044715));
        bend = op1(s, OP_tanh, mul(s, add(s, a, cube), number(s, 0.79788456080286536)));
    } else {
        bend = op1(s, OP_erf, mul(s, a, number(s, 0.70710678118654752)));
    }
    return result(s, mul(s, half, add(s, bend, number(s, 1.0))));
}

value decompose_silu(struct scope *s)
{
    value a = up(s, 0);
    return result(s, mul(s, a, op1(s, OP_sigmoid, a)));
}

/* max(a, 0) + log1p(e^-|a|) */
value decompose_softplus(struct scope *s)
{
    value a = up(s, 0);
    value small = op1(s, OP_exp, op1(s, OP_neg, op1(s, OP_abs, a)));
    return result(s, add(s, op1(s, OP_relu, a), op1(s, OP_log1p, small)));
}

/* min(a, 0) - log1p(e^-|a|) */
value decompose_log_sigmoid(struct scope *s)
{
    value a = up(s, 0);
    value small = op1(s, OP_exp, op1(s, OP_neg, op1(s, OP_abs, a)));
    return result(s, sub(s, op2(s, OP_minimum, a, number(s, 0.0)), op1(s, OP_log1p, small)));
}

/* ---- softmax ---- */

/* Masked: where the largest is -inf, 0 stands in for it: e^-inf = 0 throughout, over 1 and not over
 * their sum. */
static value masked_softmax(struct scope *s, value a, uint32_t mask)
{
    value m = max_over(s, a, mask), one = number(s, 1.0), zero = number(s, 0.0);
    value is_empty = op2(s, OP_eq, m, number(s, -(double)INFINITY));
    value e = op1(s, OP_exp, sub(s, a, where(s, is_empty, zero, m)));
    return over(s, e, where(s, is_empty, one, sum_over(s, e, mask)));
}

/* A row that is -inf throughout gives NaN, as the quotient does: -inf - -inf. */
value decompose_softmax(struct scope *s)
{
    uint32_t mask = node_mask(s);
    value a = up(s, 0);
    if (node_bool(&s->n, "masked")) {
        return result(s, masked_softmax(s, a, mask));
    }
    value e = op1(s, OP_exp, sub(s, a, max_over(s, a, mask)));
    return result(s, over(s, e, sum_over(s, e, mask)));
}

/* (a - max) - log(sum e^(a-max)) */
value decompose_log_softmax(struct scope *s)
{
    uint32_t mask = node_mask(s);
    value a = up(s, 0), d = sub(s, a, max_over(s, a, mask));
    return result(s, sub(s, d, op1(s, OP_log, sum_over(s, op1(s, OP_exp, d), mask))));
}

/* ---- normalisation over the last `axes` axes ---- */

/* d / sqrt(mean(d d) + eps), times weight, plus bias. */
static value normalised(struct scope *s, value d, uint32_t mask)
{
    struct shape shape = shape_of(s, s->x[0]);
    value square = over(s, sum_over(s, mul(s, d, d), mask), count_of(s, &shape, mask));
    value y = mul(s, d, op1(s, OP_rsqrt, add(s, square, number(s, node_float(&s->n, "eps")))));
    if (s->n.n_operands > 1) {
        y = mul(s, y, up(s, 1));
    }
    return s->n.n_operands > 2 ? add(s, y, up(s, 2)) : y;
}

static uint32_t trailing_mask(const struct scope *s)
{
    uint32_t rank = shape_of(s, s->x[0]).rank, all = (1U << rank) - 1U;
    return all & ~((1U << (rank - (uint32_t)node_int(&s->n, "axes"))) - 1U);
}

/* The variance is the mean of the squared centred values: a second pass, no cancellation. */
value decompose_layer_norm(struct scope *s)
{
    uint32_t mask = trailing_mask(s);
    struct shape shape = shape_of(s, s->x[0]);
    value x = up(s, 0);
    value mean = over(s, sum_over(s, x, mask), count_of(s, &shape, mask));
    return result(s, normalised(s, sub(s, x, mean), mask));
}

value decompose_rms_norm(struct scope *s)
{
    return result(s, normalised(s, up(s, 0), trailing_mask(s)));
}

/* Over every axis but one, by the batch's own mean and biased variance; weight and bias lie along
 * that axis. */
value decompose_batch_norm(struct scope *s)
{
    struct shape shape = shape_of(s, s->x[0]), channel = shape;
    int64_t axis = node_int(&s->n, "axis");
    uint32_t at = (uint32_t)(axis < 0 ? axis + shape.rank : axis);
    uint32_t mask = all_axes(s, s->x[0]) & ~(1U << at);
    for (uint32_t i = 0; i < shape.rank; i++) {
        channel.dims[i] = i == at ? shape.dims[i] : dim_of(1);
    }
    value x = up(s, 0), count = count_of(s, &shape, mask);
    value d = sub(s, x, over(s, sum_over(s, x, mask), count));
    value variance = over(s, sum_over(s, mul(s, d, d), mask), count);
    value scale = op1(s, OP_rsqrt, add(s, variance, number(s, node_float(&s->n, "eps"))));
    value y = mul(s, d, scale);
    y = s->n.n_operands > 1 ? mul(s, y, drop_to(s, up(s, 1), &channel)) : y;
    y = s->n.n_operands > 2 ? add(s, y, drop_to(s, up(s, 2), &channel)) : y;
    return result(s, y);
}

/* a / max(norm, eps) */
value decompose_normalize(struct scope *s)
{
    value a = up(s, 0), norm = norm_over(s, a, node_mask(s), node_float(&s->n, "p"));
    return result(s, over(s, a, op2(s, OP_maximum, norm, number(s, node_float(&s->n, "eps")))));
}
