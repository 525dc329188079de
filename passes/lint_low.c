/* Lint: ops that run in low precision outside an island though their mathematics asks for f32, and
 * values that are carried along in it. */
#include "passes/lint_internal.h"
#include "passes/policy.h"

enum { LONG_SUM = 256 };

static const char *dtype_name(const struct node *n)
{
    return dtype_info[n->dtype].name;
}

void lint_low_function(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    switch ((int)n->op) {
    case OP_exp:
    case OP_expm1:
    case OP_log:
    case OP_log1p:
    case OP_reciprocal:
    case OP_rsqrt:
    case OP_pow:
    case OP_logsumexp:
    case OP_softplus:
        break;
    default:
        return;
    }
    if (dtype_is_low(n->dtype)) {
        lint_found(l, id, "%s runs in %s outside an island: %s", op_info[n->op].name, dtype_name(n),
                   precision_reason(n->op));
    }
}

void lint_low_squares(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    value of;
    if (n->op != OP_sum && n->op != OP_mean) {
        return;
    }
    const struct node *square = lint_operand(l, n, 0);
    if (lint_is_square(l, square, &of) && dtype_is_low(square->dtype)) {
        const struct dtype_row *row = &dtype_info[square->dtype];
        lint_found(l, id,
                   "the squares it adds up are %s: rounded one by one, and beyond its range where "
                   "the operand is above %.3g or below %.3g",
                   row->name, __builtin_sqrt(row->max),
                   __builtin_sqrt(row->smallest_normal * row->epsilon));
    }
}

void lint_low_sum(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if ((n->op != OP_sum && n->op != OP_prod) || !dtype_is_low(n->dtype)) {
        return;
    }
    int64_t count = lint_folded(l, n);
    if (count >= 0 && count < LONG_SUM) {
        return;
    }
    if (n->dtype == F16) {
        lint_found(l, id, "its total is rounded to f16: a total above 65504 is infinite");
    } else {
        lint_found(l, id, "its total is rounded to %s, to a relative %g", dtype_name(n),
                   dtype_info[n->dtype].epsilon / 2.0);
    }
}

/* ---- values carried from step to step ---- */

/* The update whose next value is node id; NULL: none. */
static const struct update *update_by(const struct lint *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->g->n_updates; i++) {
        if (lint_peel(l, l->g->updates[i].next).id == id) {
            return &l->g->updates[i];
        }
    }
    return NULL;
}

/* Operand k of n is the leaf, perhaps times a factor. */
static bool carries(const struct lint *l, const struct node *n, uint32_t k, value leaf)
{
    const struct node *o = lint_operand(l, n, k);
    bool is = lint_is_same(l, n->operands[k], leaf);
    for (uint32_t i = 0; !is && o->op == OP_mul && i < 2; i++) {
        is = lint_is_same(l, o->operands[i], leaf);
    }
    return is;
}

void lint_low_state(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const struct update *u = n->op == OP_add || n->op == OP_sub ? update_by(l, id) : NULL;
    if (u == NULL) {
        return;
    }
    const struct node *leaf = lint_node(l, u->leaf);
    if (leaf->op != OP_param && dtype_is_low(leaf->dtype) &&
        (carries(l, n, 0, u->leaf) || carries(l, n, 1, u->leaf))) {
        lint_found(l, id,
                   "%%%s is carried from step to step in %s: what is added vanishes once it is "
                   "below %g of the total",
                   leaf->name, dtype_info[leaf->dtype].name, dtype_info[leaf->dtype].epsilon / 2.0);
    }
}

void lint_float_counter(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const struct update *u = n->op == OP_add ? update_by(l, id) : NULL;
    double number;
    if (u == NULL || !dtype_is_float(lint_node(l, u->leaf)->dtype)) {
        return;
    }
    value counted = lint_beside_number(l, n, &number);
    const struct node *leaf = lint_node(l, u->leaf);
    if (counted.id != 0 && lint_is_same(l, counted, u->leaf) && number == __builtin_floor(number) &&
        leaf->dtype != F64) {
        lint_found(l, id, "%%%s counts in %s, which stands still at %.0f", leaf->name,
                   dtype_info[leaf->dtype].name, number * 2.0 / dtype_info[leaf->dtype].epsilon);
    }
}
