/* Lint: formulas written out that lose what a composite keeps: overflow, cancellation, infinite
 * gradients. Each is looked for through casts and views, in any precision. */
#include "passes/lint_internal.h"

static bool is_reduction_of(const struct lint *l, const struct node *n, enum op reduction,
                            enum op inner)
{
    return n->op == reduction && lint_operand(l, n, 0)->op == inner;
}

void lint_log_of_softmax(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op == OP_log && lint_operand(l, n, 0)->op == OP_softmax) {
        lint_found(l, id, "a probability that underflows to 0 gives -inf, and its gradient NaN");
    }
}

void lint_bce_on_probabilities(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_binary_cross_entropy) {
        return;
    }
    enum dtype t = lint_node(l, n->operands[0])->dtype;
    if (lint_operand(l, n, 0)->op == OP_sigmoid) {
        lint_found(l, id, "a sigmoid that rounds to 0 or 1 has no gradient left");
    } else if (dtype_is_low(t)) {
        lint_found(l, id, "its probabilities are %s: near 1 they are %g apart", dtype_info[t].name,
                   dtype_info[t].epsilon / 2.0);
    }
}

void lint_softmax_into_loss(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if ((n->op == OP_cross_entropy || n->op == OP_nll_loss) &&
        lint_operand(l, n, 0)->op == OP_softmax) {
        lint_found(l, id,
                   n->op == OP_nll_loss
                       ? "nll_loss takes log-probabilities, found probabilities"
                       : "cross_entropy takes logits, found probabilities: their softmax is nearly "
                         "uniform, with small gradients");
    }
}

/* exp(a - max(a)) */
static bool is_shifted(const struct lint *l, const struct node *exponential)
{
    const struct node *a = lint_operand(l, exponential, 0);
    return a->op == OP_sub && lint_operand(l, a, 1)->op == OP_max;
}

void lint_hand_softmax(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_div) {
        return;
    }
    const struct node *top = lint_operand(l, n, 0), *total = lint_operand(l, n, 1);
    if (top->op == OP_exp && is_reduction_of(l, total, OP_sum, OP_exp) &&
        lint_is_same(l, n->operands[0], total->operands[0]) && !is_shifted(l, top)) {
        lint_found(l, id, "exp overflows above %s: inf / inf is NaN",
                   top->dtype == F16 ? "11" : "88");
    }
}

void lint_hand_logsumexp(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const struct node *total = n->op == OP_log ? lint_operand(l, n, 0) : n;
    if (n->op == OP_log && is_reduction_of(l, total, OP_sum, OP_exp)) {
        const struct node *exponential = lint_operand(l, total, 0);
        if (!is_shifted(l, exponential)) {
            lint_found(l, id,
                       "exp overflows above %s, and where all is far below 0 its log is -inf",
                       exponential->dtype == F16 ? "11" : "88");
        }
    }
}

/* ---- roots and divisors ---- */

void lint_root_of_zero(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    double power;
    bool is_root = n->op == OP_sqrt || (n->op == OP_pow && lint_number(l, n->operands[1], &power) &&
                                        power > 0.0 && power < 1.0);
    if (is_root && l->is_trained[id] && lint_is_spread(l, lint_operand(l, n, 0), false)) {
        lint_found(l, id,
                   "where its operand is 0 the gradient is infinite, and NaN behind the squares");
    }
}

void lint_division_by_zero(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    uint32_t k = n->op == OP_div ? 1 : 0;
    if (n->op != OP_div && n->op != OP_reciprocal && n->op != OP_rsqrt) {
        return;
    }
    const struct node *by = lint_operand(l, n, k);
    if (lint_is_spread(l, by, true)) {
        lint_found(l, id, "its divisor (%s) is 0 for a row of zeros or of equal values",
                   op_info[by->op].name);
    }
}

void lint_empty_mask(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_div) {
        return;
    }
    const struct node *count = lint_operand(l, n, 1);
    const struct node *mask = count->op == OP_sum ? lint_operand(l, count, 0) : count;
    double number;
    bool is_mask = mask->dtype == BOOL ||
                   (mask->op == OP_where && lint_number(l, mask->operands[1], &number) &&
                    lint_number(l, mask->operands[2], &number));
    if (count->op == OP_sum && is_mask) {
        lint_found(l, id, "a mask without a true element divides 0 by 0");
    }
}

/* ---- cancellation ---- */

void lint_log_of_sigmoid(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    double number;
    if (n->op != OP_log) {
        return;
    }
    const struct node *a = lint_operand(l, n, 0);
    bool is_rest = a->op == OP_sub && lint_number(l, a->operands[0], &number) && number == 1.0 &&
                   lint_operand(l, a, 1)->op == OP_sigmoid;
    if (a->op == OP_sigmoid || is_rest) {
        lint_found(l, id, "the sigmoid rounds to %s, and its log is -inf",
                   is_rest ? "1 for large operands, which leaves 0"
                           : "0 for very negative operands");
    }
}

void lint_cancellation(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    double number;
    if (n->op == OP_log && lint_operand(l, n, 0)->op == OP_add) {
        value rest = lint_beside_number(l, lint_operand(l, n, 0), &number);
        if (rest.id != 0 && number == 1.0) {
            bool is_softplus = lint_node(l, lint_peel(l, rest))->op == OP_exp;
            lint_found(l, id,
                       is_softplus ? "log(1 + e^x) overflows for large x: softplus does not"
                                   : "1 + x drops the digits of a small x: log1p keeps them");
        }
    }
    if (n->op == OP_sub && lint_number(l, n->operands[1], &number) && number == 1.0 &&
        lint_operand(l, n, 0)->op == OP_exp) {
        lint_found(l, id, "e^x - 1 drops the digits of a small x: expm1 keeps them");
    }
}

void lint_variance_by_difference(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    value of, mean;
    if (n->op != OP_sub) {
        return;
    }
    const struct node *a = lint_operand(l, n, 0), *b = lint_operand(l, n, 1);
    if (a->op == OP_mean && lint_is_square(l, lint_operand(l, a, 0), &of) &&
        lint_is_square(l, b, &mean) && lint_node(l, mean)->op == OP_mean &&
        lint_is_same(l, lint_node(l, mean)->operands[0], of)) {
        lint_found(l, id,
                   "two nearly equal numbers are subtracted: the result may be all rounding, or "
                   "below 0");
    }
}

/* ---- gradients behind a mask ---- */

/* The operand of f that must keep away from 0 (or below), or 0. */
static value guarded(const struct node *f)
{
    switch ((int)f->op) {
    case OP_log:
    case OP_sqrt:
    case OP_rsqrt:
    case OP_reciprocal:
    case OP_pow:
        return f->operands[0];
    case OP_div:
        return f->operands[1];
    default:
        return (value){0};
    }
}

static bool compares(const struct lint *l, const struct node *mask, value v)
{
    bool is = mask->op == OP_gt || mask->op == OP_ge || mask->op == OP_lt || mask->op == OP_le ||
              mask->op == OP_ne || mask->op == OP_eq;
    return is && (lint_is_same(l, mask->operands[0], v) || lint_is_same(l, mask->operands[1], v));
}

void lint_masked_gradient(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    for (uint32_t k = 1; n->op == OP_where && k < 3; k++) {
        const struct node *f = lint_operand(l, n, k);
        value v = guarded(f);
        if (v.id != 0 && l->is_trained[v.id] && compares(l, lint_operand(l, n, 0), v)) {
            lint_found(l, id,
                       "%s of a masked-out element has an infinite gradient; times 0 it is NaN",
                       op_info[f->op].name);
        }
    }
}

static bool shrinks(const struct lint *l, const struct node *user)
{
    double number;
    value other = lint_beside_number(l, user, &number);
    return other.id != 0 &&
           ((user->op == OP_mul && number > 0.0 && number < 1.0) ||
            (user->op == OP_div && number > 1.0 && !lint_number(l, user->operands[0], &number)));
}

/* A cast in between counts as the use it leads to. */
static bool shrinks_soon(const struct lint *l, const struct node *user)
{
    return user->op == OP_cast ? lint_all_uses(l, (uint32_t)(user - l->g->nodes), shrinks)
                               : shrinks(l, user);
}

void lint_late_scale(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op == OP_matmul && n->dtype == F16 && lint_all_uses(l, id, shrinks_soon)) {
        lint_found(l, id,
                   "the product is rounded to f16 before it is scaled down: above 65504 it is "
                   "infinite already");
    }
}
