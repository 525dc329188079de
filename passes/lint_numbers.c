/* Lint: numbers against the dtype that takes them in. A number takes part at compute precision, so
 * only ops whose result can be the number itself are asked. */
#include <math.h>

#include "passes/lint_internal.h"

static double rounded(enum dtype t, double number)
{
    uint64_t element = 0;
    dtype_store(t, &element, number);
    return dtype_load(t, &element);
}

/* Operands that may come out as the result: bit i for operand i. */
static uint32_t passed_on(enum op op)
{
    switch ((int)op) {
    case OP_where:
        return 6U;
    case OP_maximum:
    case OP_minimum:
    case OP_add:
    case OP_sub:
        return 3U;
    default:
        return 0U;
    }
}

/* Calls check with each number that node id may pass on. */
static void each_number(struct lint *l, uint32_t id,
                        void (*check)(struct lint *l, uint32_t id, double number))
{
    static const char *const bounds[] = {"low", "high"};
    const struct node *n = &l->g->nodes[id];
    if (n->op == OP_constant && dtype_is_low(n->dtype)) {
        check(l, id, node_float(n, "value"));
    }
    for (uint32_t k = 0; n->op == OP_clamp && k < ARRAY_LEN(bounds); k++) {
        check(l, id, node_float(n, bounds[k]));
    }
    for (uint32_t k = 0; k < n->n_operands && k < 3; k++) {
        const struct node *operand = lint_node(l, n->operands[k]);
        if ((passed_on(n->op) >> k & 1U) != 0 && operand->op == OP_constant) {
            check(l, id, node_float(operand, "value"));
        }
    }
}

static void check_overflow(struct lint *l, uint32_t id, double number)
{
    const struct dtype_row *row = &dtype_info[l->g->nodes[id].dtype];
    double stored = rounded(l->g->nodes[id].dtype, number);
    if (isfinite(number) && !isfinite(stored)) {
        lint_found(l, id, "the number %g is beyond the largest %s, %g: it becomes %g", number,
                   row->name, row->max, stored);
    }
}

static void check_vanishing(struct lint *l, uint32_t id, double number)
{
    const struct dtype_row *row = &dtype_info[l->g->nodes[id].dtype];
    if (number != 0.0 && rounded(l->g->nodes[id].dtype, number) == 0.0) {
        lint_found(l, id, "the number %g becomes 0 in %s, whose smallest is %g, and guards nothing",
                   number, row->name, row->smallest_normal * row->epsilon);
    }
}

static void check_subnormal(struct lint *l, uint32_t id, double number)
{
    const struct dtype_row *row = &dtype_info[l->g->nodes[id].dtype];
    double stored = rounded(l->g->nodes[id].dtype, number);
    if (stored != 0.0 && fabs(number) < row->smallest_normal) {
        lint_found(
            l, id,
            "the number %g is subnormal in %s (below %g): kept as %g, and 0 where subnormals "
            "are flushed",
            number, row->name, row->smallest_normal, stored);
    }
}

static void check_bound(struct lint *l, uint32_t id, double number)
{
    enum dtype t = l->g->nodes[id].dtype;
    if (number != 1.0 && rounded(t, number) == 1.0) {
        lint_found(l, id, "the bound %.9g rounds to 1 in %s, so that 1 - x may be 0 behind it",
                   number, dtype_info[t].name);
    }
}

void lint_overflow(struct lint *l, uint32_t id)
{
    if (dtype_is_low(l->g->nodes[id].dtype)) {
        each_number(l, id, check_overflow);
    }
}

void lint_vanishing(struct lint *l, uint32_t id)
{
    if (dtype_is_float(l->g->nodes[id].dtype)) {
        each_number(l, id, check_vanishing);
    }
}

void lint_subnormal(struct lint *l, uint32_t id)
{
    if (dtype_is_float(l->g->nodes[id].dtype)) {
        each_number(l, id, check_subnormal);
    }
}

void lint_bound_at_one(struct lint *l, uint32_t id)
{
    enum op op = l->g->nodes[id].op;
    if (dtype_is_float(l->g->nodes[id].dtype) &&
        (op == OP_clamp || op == OP_minimum || op == OP_maximum)) {
        each_number(l, id, check_bound);
    }
}

/* A composite takes its eps in at compute precision. */
void lint_no_epsilon(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_layer_norm && n->op != OP_rms_norm && n->op != OP_batch_norm &&
        n->op != OP_normalize) {
        return;
    }
    const struct dtype_row *row = &dtype_info[dtype_compute(n->dtype)];
    double eps = node_float(n, "eps");
    if (!(eps >= row->smallest_normal)) {
        lint_found(l, id,
                   "eps %g, below the smallest normal %s: equal values (or zeros) divide by 0", eps,
                   row->name);
    }
}
