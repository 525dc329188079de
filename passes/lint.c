/* Precision diagnostics. Needs: a typed graph, after autocast and islands. Leaves: the same graph;
 * what it finds goes to the notes. So far: numbers that do not survive the dtype of the op that
 * takes them in. A number takes part at compute precision, so only ops whose result can be the
 * number itself are asked. */
#include "pass.h"

#include <math.h>

struct lint {
    const struct graph *g;
    struct notes *notes;
    struct arena scratch;
};

static const char *label(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const char *name = graph_name(l->g, (value){id}, &l->scratch);
    return n->location.file == NULL
               ? arena_text(&l->scratch, "%s = %s", name, op_info[n->op].name)
               : arena_text(&l->scratch, "%s = %s at %s:%u", name, op_info[n->op].name,
                            n->location.file, (unsigned)n->location.line);
}

/* number as the result of node id, of dtype t. */
static void check_number(struct lint *l, uint32_t id, double number)
{
    const struct node *n = &l->g->nodes[id];
    const struct dtype_row *row = &dtype_info[n->dtype];
    uint64_t element = 0;
    dtype_store(n->dtype, &element, number);
    double stored = dtype_load(n->dtype, &element);
    if (isfinite(number) && !isfinite(stored)) {
        note_add(l->notes, "lint", n->name != NULL ? n->name : "",
                 "%s: the number %g is beyond the largest %s, %g: it becomes %g; hint: write the "
                 "infinity, or keep this op in f32 with a node line of the policy",
                 label(l, id), number, row->name, row->max, stored);
    } else if (number != 0.0 && stored == 0.0) {
        note_add(l->notes, "lint", n->name != NULL ? n->name : "",
                 "%s: the number %g becomes 0 in %s, whose smallest is %g, and guards nothing; "
                 "hint: take a larger one, or keep this op in f32 with a node line of the policy",
                 label(l, id), number, row->name, row->smallest_normal * row->epsilon);
    }
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

static void check_node(struct lint *l, uint32_t id)
{
    static const char *const bounds[] = {"low", "high"};
    const struct node *n = &l->g->nodes[id];
    if (!dtype_is_low(n->dtype)) {
        return;
    }
    if (n->op == OP_constant) {
        check_number(l, id, node_float(n, "value"));
    }
    for (uint32_t k = 0; n->op == OP_clamp && k < ARRAY_LEN(bounds); k++) {
        check_number(l, id, node_float(n, bounds[k]));
    }
    for (uint32_t k = 0; k < n->n_operands && k < 3; k++) {
        const struct node *operand = graph_node(l->g, n->operands[k]);
        if ((passed_on(n->op) >> k & 1U) != 0 && operand->op == OP_constant) {
            check_number(l, id, node_float(operand, "value"));
        }
    }
}

status lint_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                 struct notes *notes)
{
    (void)o;
    TRY(rewrite(in, out, NULL, NULL, NULL));
    struct lint l = {.g = out, .notes = notes};
    for (uint32_t i = 1; i < out->n_nodes; i++) {
        check_node(&l, i);
    }
    arena_free(&l.scratch);
    return out->error.code;
}
