/* Gradient rules of activations and losses, where the plain decomposition's gradient is unstable or
 * wrong at a point. Used by autodiff.c through the table in gradients.c. Inner values are f32 (f64)
 * with one rounding at the end. Invariant: a row the loss ignores gets exactly 0, whatever its
 * logits hold. */
#include <math.h>
#include <string.h>

#include "gradients.h"

/* ---- activations ---- */

/* 1 inside, bounds included; 0 outside and for NaN */
void grad_clamp(struct backward *b)
{
    value a = b->n.operands[0];
    value is_inside = op2(b, OP_and, compare(b, OP_ge, a, node_float(&b->n, "low")),
                          compare(b, OP_le, a, node_float(&b->n, "high")));
    give(b, 0, where(b, is_inside, b->dy, number(b, 0.0)));
}

void grad_leaky_relu(struct backward *b)
{
    value is_up = compare(b, OP_gt, b->n.operands[0], 0.0), dy = widen(b, b->dy);
    value leak = mul(b, dy, number(b, node_float(&b->n, "slope")));
    give(b, 0, where(b, is_up, dy, leak));
}

/* exact: Phi(a) + a phi(a). tanh form: (1+t)/2 + a (1-t^2) u'/2 with t = tanh(u),
 * u = sqrt(2/pi) (a + 0.044715 a^3). Beyond 40 either is 0 or 1 in every dtype; the bound keeps
 * inf * 0 away. erf and tanh reach +-1 before it, so they take what the forward takes, in its
 * order of operands: simplify then keeps one of the two. */
void grad_gelu(struct backward *b)
{
    value x = widen_operand(b, 0), a = op2(b, OP_minimum, x, number(b, 40.0));
    a = op2(b, OP_maximum, a, number(b, -40.0));
    value one = number(b, 1.0), half = number(b, 0.5), slope;
    if (strcmp(node_text(&b->n, "form"), "tanh") == 0) {
        value square = mul(b, a, a), c = number(b, 0.7978845608028654);
        value cube = mul(b, mul(b, mul(b, x, x), x), number(b, 0.044715));
        value t = op1(b, OP_tanh, mul(b, add(b, x, cube), c));
        value inner = add(b, one, mul(b, number(b, 3.0 * 0.044715), square));
        value du = mul(b, c, inner);
        value bend = mul(b, mul(b, half, a), mul(b, sub(b, one, mul(b, t, t)), du));
        slope = add(b, mul(b, half, add(b, t, one)), bend);
    } else {
        value erf = op1(b, OP_erf, mul(b, x, number(b, 0.7071067811865476)));
        value phi = mul(b, half, add(b, erf, one));
        value bell = op1(b, OP_exp, mul(b, number(b, -0.5), mul(b, a, a)));
        slope = add(b, phi, mul(b, a, mul(b, number(b, 0.3989422804014327), bell)));
    }
    give(b, 0, mul(b, widen(b, b->dy), slope));
}

/* s (1 + a (1 - s)), s = sigmoid(a) */
void grad_silu(struct backward *b)
{
    value a = widen_operand(b, 0), one = number(b, 1.0);
    value s = op1(b, OP_sigmoid, a);
    value slope = mul(b, s, add(b, one, mul(b, a, sub(b, one, s))));
    give(b, 0, mul(b, widen(b, b->dy), slope));
}

void grad_softplus(struct backward *b)
{
    give(b, 0, mul(b, widen(b, b->dy), op1(b, OP_sigmoid, widen_operand(b, 0))));
}

/* 1 - sigmoid(a), without the cancellation */
void grad_log_sigmoid(struct backward *b)
{
    value flipped = op1(b, OP_neg, widen_operand(b, 0));
    give(b, 0, mul(b, widen(b, b->dy), op1(b, OP_sigmoid, flipped)));
}

/* ---- losses of two broadcast operands ---- */

/* The gradient of one element of the loss: dy, divided by the count for a mean. */
static value element_dy(struct backward *b)
{
    value dy = widen(b, b->dy);
    if (strcmp(node_text(&b->n, "reduction"), "mean") != 0) {
        return dy;
    }
    struct shape all = graph_node(b->g, b->n.operands[0])->shape;
    for (uint32_t i = 1; i < b->n.n_operands; i++) {
        (void)shape_broadcast(&all, &graph_node(b->g, b->n.operands[i])->shape, &all);
    }
    return over(b, dy, axes_count(b, &all, (1U << all.rank) - 1U));
}

/* Gives the slope of one element times its dy: over the broadcast of all operands, of which an
 * operand that another widens is only a part. */
static void give_element(struct backward *b, uint32_t i, value slope, value dy)
{
    if (slope.id == 0 || dy.id == 0) {
        return;
    }
    struct shape all = graph_node(b->g, b->n.operands[0])->shape;
    for (uint32_t k = 1; k < b->n.n_operands; k++) {
        (void)shape_broadcast(&all, &graph_node(b->g, b->n.operands[k])->shape, &all);
    }
    give(b, i, graph_expand(b->g, mul(b, dy, slope), &all));
}

/* min(delta, max(-delta, a - b)) */
void grad_huber_loss(struct backward *b)
{
    double delta = node_float(&b->n, "delta");
    value d = sub(b, widen_operand(b, 0), widen_operand(b, 1)), dy = element_dy(b);
    value slope = op2(b, OP_maximum, op2(b, OP_minimum, d, number(b, delta)), number(b, -delta));
    give_element(b, 0, slope, dy);
    if (wants(b, 1)) {
        give_element(b, 1, op1(b, OP_neg, slope), dy);
    }
}

/* loss = (1-t) x + l softplus(-x), l = 1 + (c-1) t. dx = sigmoid(x) - t, or with a positive weight
 * (1-t) - l sigmoid(-x); dt = -x + (c-1) softplus(-x); dc = t softplus(-x) */
void grad_bce_with_logits(struct backward *b)
{
    bool is_weighted = b->n.n_operands == 3;
    value x = widen_operand(b, 0), t = widen_operand(b, 1), dy = element_dy(b),
          one = number(b, 1.0);
    value minus_x = op1(b, OP_neg, x);
    value extra = is_weighted ? sub(b, widen_operand(b, 2), one) : (value){0};
    if (wants(b, 0) && !is_weighted) {
        give_element(b, 0, sub(b, op1(b, OP_sigmoid, x), t), dy);
    } else if (wants(b, 0)) {
        value l = add(b, one, mul(b, extra, t));
        value pull = mul(b, l, op1(b, OP_sigmoid, minus_x));
        give_element(b, 0, sub(b, sub(b, one, t), pull), dy);
    }
    value softplus = (value){0};
    if (is_weighted && (wants(b, 1) || wants(b, 2))) {
        softplus = graph_op1(b->g, OP_softplus, minus_x);
    }
    if (wants(b, 1)) {
        value slope = is_weighted ? add(b, minus_x, mul(b, extra, softplus)) : minus_x;
        give_element(b, 1, slope, dy);
    }
    if (wants(b, 2)) {
        give_element(b, 2, mul(b, t, softplus), dy);
    }
}

/* dx = (x - t) / max(x (1-x), 1e-12), as the logs are bounded; dt = log(1-x) - log(x), bounded */
void grad_binary_cross_entropy(struct backward *b)
{
    value x = widen_operand(b, 0), t = widen_operand(b, 1), dy = element_dy(b),
          one = number(b, 1.0);
    if (wants(b, 0)) {
        value spread = op2(b, OP_maximum, mul(b, sub(b, one, x), x), number(b, 1e-12));
        give_element(b, 0, over(b, sub(b, x, t), spread), dy);
    }
    if (wants(b, 1)) {
        value low = number(b, -100.0);
        value no = op2(b, OP_maximum, op1(b, OP_log1p, op1(b, OP_neg, x)), low);
        give_element(b, 1, sub(b, no, op2(b, OP_maximum, op1(b, OP_log, x), low)), dy);
    }
}

/* ---- class losses ---- */

/* What cross_entropy and nll_loss share, over rows of C classes:
 * loss_i = -sum_c q_c logp_c, q_c = (1-s) w_y [c = y] + (s/C) w_c. */
struct classes {
    uint32_t mask;        /* the class axis */
    value is_kept;        /* (..,1): the row is not ignored */
    value is_class, miss; /* (..,C): the target's column; (..,1): 0, NaN where it names no class */
    value share;          /* s/C; 0: no smoothing */
    value q;              /* (..,C) */
    value q_sum;          /* (..,1), or a number */
    value dy;             /* (..,1) or a scalar: the gradient of one row's loss */
};

static value row_weight(struct backward *b, value is_class, uint32_t mask)
{
    value w = b->n.n_operands == 3 ? widen_operand(b, 2) : number(b, 1.0);
    if (b->n.n_operands < 3) {
        return w;
    }
    return reduce_axes(b, OP_sum, where(b, is_class, w, number(b, 0.0)), mask);
}

static value row_dy(struct backward *b, value is_kept, value weight, const struct shape *rows)
{
    value dy = widen(b, b->dy);
    const char *reduction = node_text(&b->n, "reduction");
    if (strcmp(reduction, "none") == 0) {
        return graph_reshape(b->g, dy, rows);
    }
    if (strcmp(reduction, "sum") == 0) {
        return dy;
    }
    value counted = b->n.n_operands < 3 ? graph_cast(b->g, is_kept, compute_dtype(b))
                                        : where(b, is_kept, weight, number(b, 0.0));
    return over(b, dy, graph_reduce(b->g, OP_sum, counted, NULL, 0, false));
}

static struct classes class_terms(struct backward *b)
{
    struct shape z = graph_node(b->g, b->n.operands[0])->shape, rows = z, line = {.rank = z.rank};
    uint32_t last = z.rank - 1;
    struct classes s = {.mask = 1U << last};
    rows.dims[last] = dim_of(1);
    for (uint32_t i = 0; i < z.rank; i++) {
        line.dims[i] = i == last ? z.dims[i] : dim_of(1);
    }
    double smoothing = node_float(&b->n, "label_smoothing");
    value y = graph_reshape(b->g, b->n.operands[1], &rows);
    value index = graph_add(b->g, OP_iota, NULL, 0,
                            (struct attr[]){attr_dims("shape", &line), attr_int("axis", last)}, 2);
    value is_class = s.is_class = op2(b, OP_eq, index, y), zero = number(b, 0.0);
    s.is_kept = compare(b, OP_ne, y, (double)node_int(&b->n, "ignore_index"));
    value n = graph_size(b->g, z.dims[last], I64); /* a target that names no class: NaN */
    value is_named = op2(b, OP_and, compare(b, OP_ge, y, 0.0), op2(b, OP_lt, y, n));
    value miss = s.miss =
        where(b, is_named, zero, graph_constant(b->g, (double)NAN, compute_dtype(b)));
    value weight = row_weight(b, is_class, s.mask);
    s.dy = row_dy(b, s.is_kept, weight, &rows);
    if (smoothing == 0.0) {
        value hit = b->n.n_operands == 3 ? weight : graph_constant(b->g, 1.0, compute_dtype(b));
        s.q = where(b, is_class, hit, miss);
        s.q_sum = weight;
        return s;
    }
    value w =
        b->n.n_operands == 3 ? widen_operand(b, 2) : graph_constant(b->g, 1.0, compute_dtype(b));
    value share = s.share = over(b, number(b, smoothing), axes_count(b, &z, s.mask));
    value hit = where(b, is_class, mul(b, w, number(b, 1.0 - smoothing)), miss);
    s.q = add(b, hit, mul(b, w, share));
    s.q_sum = reduce_axes(b, OP_sum, s.q, s.mask);
    return s;
}

/* dw_c = -dy (((1-s) lp_c + L) [c = y] + (s/C) lp_c) over the kept rows. L, the loss itself, is
 * there for a mean alone: the weights it is divided by. */
static void give_class_weights(struct backward *b, const struct classes *s, value lp)
{
    double smoothing = node_float(&b->n, "label_smoothing");
    value hit = smoothing == 0.0 ? lp : mul(b, lp, number(b, 1.0 - smoothing));
    if (strcmp(node_text(&b->n, "reduction"), "mean") == 0) {
        hit = add(b, hit, widen(b, b->y));
    }
    value each = where(b, s->is_class, hit, s->miss);
    each = smoothing == 0.0 ? each : add(b, each, mul(b, lp, s->share));
    value slope = op1(b, OP_neg, mul(b, s->dy, each));
    give(b, 2, where(b, s->is_kept, slope, number(b, 0.0)));
}

/* dz_c = dy ((sum q) p_c - q_c), p = softmax(z) */
void grad_cross_entropy(struct backward *b)
{
    struct classes s = class_terms(b);
    value z = widen_operand(b, 0);
    value d = sub(b, z, reduce_axes(b, OP_max, z, s.mask)), e = op1(b, OP_exp, d);
    value sum = reduce_axes(b, OP_sum, e, s.mask);
    if (wants(b, 0)) {
        value p = over(b, e, sum);
        bool is_one = b->n.n_operands < 3 && node_float(&b->n, "label_smoothing") == 0.0;
        value slope = sub(b, is_one ? p : mul(b, s.q_sum, p), s.q);
        give(b, 0, where(b, s.is_kept, mul(b, s.dy, slope), number(b, 0.0)));
    }
    if (wants(b, 2)) {
        give_class_weights(b, &s, sub(b, d, op1(b, OP_log, sum)));
    }
}

/* dlogp_c = -dy q_c */
void grad_nll_loss(struct backward *b)
{
    struct classes s = class_terms(b);
    if (wants(b, 0)) {
        value slope = op1(b, OP_neg, mul(b, s.dy, s.q));
        give(b, 0, where(b, s.is_kept, slope, number(b, 0.0)));
    }
    if (wants(b, 2)) {
        give_class_weights(b, &s, widen_operand(b, 0));
    }
}
