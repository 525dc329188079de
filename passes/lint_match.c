/* What lint's rules recognise: values under casts and views, numbers, squares, spreads. Invariant:
 * a match means what the composite of that name means, whatever the casts between. */
#include <math.h>

#include "passes/lint_internal.h"

value lint_peel(const struct lint *l, value v)
{
    const struct node *n = lint_node(l, v);
    while (n->op == OP_cast || n->op == OP_reshape || n->op == OP_expand) {
        v = n->operands[0];
        n = lint_node(l, v);
    }
    return v;
}

const struct node *lint_operand(const struct lint *l, const struct node *n, uint32_t k)
{
    return lint_node(l, lint_peel(l, n->operands[k]));
}

bool lint_is_same(const struct lint *l, value a, value b)
{
    return lint_peel(l, a).id == lint_peel(l, b).id;
}

bool lint_number(const struct lint *l, value v, double *out)
{
    const struct node *n = lint_node(l, lint_peel(l, v));
    if (n->op != OP_constant) {
        return false;
    }
    *out = node_float(n, "value");
    return true;
}

value lint_beside_number(const struct lint *l, const struct node *n, double *number)
{
    for (uint32_t k = 0; n->n_operands == 2 && k < 2; k++) {
        if (lint_number(l, n->operands[k], number)) {
            return n->operands[1 - k];
        }
    }
    return (value){0};
}

bool lint_is_square(const struct lint *l, const struct node *n, value *out)
{
    double power;
    bool is = (n->op == OP_mul && lint_is_same(l, n->operands[0], n->operands[1])) ||
              (n->op == OP_pow && lint_number(l, n->operands[1], &power) && power == 2.0);
    *out = is ? lint_peel(l, n->operands[0]) : (value){0};
    return is;
}

bool lint_is_spread(const struct lint *l, const struct node *n, bool is_root)
{
    value of;
    if (n->op == OP_variance || (n->op == OP_norm && is_root)) {
        return true;
    }
    if (n->op == OP_sum || n->op == OP_mean) {
        return lint_is_square(l, lint_operand(l, n, 0), &of);
    }
    return is_root && n->op == OP_sqrt && lint_is_spread(l, lint_operand(l, n, 0), false);
}

bool lint_all_uses(const struct lint *l, uint32_t id, lint_use *test)
{
    bool is_used = false;
    for (uint32_t i = 0; i < l->g->n_outputs; i++) {
        if (l->g->outputs[i].value.id == id) {
            return false;
        }
    }
    for (uint32_t i = 0; i < l->g->n_updates; i++) {
        if (l->g->updates[i].next.id == id) {
            return false;
        }
    }
    for (uint32_t i = id + 1; i < l->g->n_nodes; i++) {
        const struct node *n = &l->g->nodes[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            if (n->operands[k].id != id) {
                continue;
            }
            if (!test(l, n)) {
                return false;
            }
            is_used = true;
        }
    }
    return is_used;
}

int64_t lint_folded(const struct lint *l, const struct node *n)
{
    const struct node *a = lint_node(l, n->operands[0]);
    uint32_t mask = node_axes(n, a->shape.rank);
    int64_t count = 1;
    for (uint32_t i = 0; i < a->shape.rank; i++) {
        if ((mask >> i & 1U) == 0) {
            continue;
        }
        if (!dim_is_static(a->shape.dims[i]) ||
            __builtin_mul_overflow(count, a->shape.dims[i].factor, &count)) {
            return -1;
        }
    }
    return count;
}
