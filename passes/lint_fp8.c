/* Lint: products of f8 values against what tensor cores take, and casts to f8. */
#include "passes/lint_internal.h"

static bool is_f8(enum dtype t)
{
    return t == F8E4M3 || t == F8E5M2;
}

/* The dtype a product's operand had before it was widened for it. */
static enum dtype stored_as(const struct lint *l, const struct node *n, uint32_t k)
{
    const struct node *o = lint_node(l, n->operands[k]);
    while (o->op == OP_transpose || o->op == OP_reshape ||
           (o->op == OP_cast && is_f8(lint_node(l, o->operands[0])->dtype))) {
        o = lint_node(l, o->operands[0]);
    }
    return o->dtype;
}

static bool is_product(const struct node *n)
{
    return n->op == OP_linear || n->op == OP_matmul;
}

static bool fits(struct dim d)
{
    return !dim_is_static(d) || d.factor % 16 == 0;
}

void lint_fp8_sizes(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (!is_product(n) || !is_f8(stored_as(l, n, 0)) || !is_f8(stored_as(l, n, 1))) {
        return;
    }
    const struct shape *a = &lint_node(l, n->operands[0])->shape;
    bool is_turned = n->op == OP_matmul && node_bool(n, "transpose_a");
    if (a->rank < 2 || n->shape.rank < 1) {
        return;
    }
    struct dim k = a->dims[a->rank - (is_turned ? 2 : 1)], last = n->shape.dims[n->shape.rank - 1];
    if (!fits(k) || !fits(last)) {
        lint_found(l, id,
                   "an f8 product needs k and n in multiples of 16, found k = %lld, n = %lld",
                   (long long)k.factor, (long long)last.factor);
    }
}

void lint_fp8_pair(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (is_product(n) && stored_as(l, n, 0) == F8E5M2 && stored_as(l, n, 1) == F8E5M2) {
        lint_found(l, id, "both operands are f8e5m2, which no f8 kernel multiplies");
    }
}

void lint_fp8_overflow(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_cast || !is_f8(n->dtype) || node_bool(n, "saturate") ||
        is_f8(lint_node(l, n->operands[0])->dtype)) {
        return;
    }
    lint_found(l, id, "above %g it gives %s", n->dtype == F8E4M3 ? 464.0 : 61440.0,
               n->dtype == F8E4M3 ? "NaN" : "infinity");
}
