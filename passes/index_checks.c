/* Which indices a model reads from its data, and what they must lie in: one check a use of an index
 * by an op of the table below. Needs: the model, before autodiff, so that the messages name the
 * user's ops and the bounds are the ops' own. Leaves: the same graph with its checks. Invariant:
 * the rule is the op's, whatever executor runs it; a graph that has checks already is left as it
 * is. */
#include "pass.h"

static const struct rule {
    enum op op;
    uint32_t operand; /* the index */
    bool counts_from_end;
} rules[] = {
    {OP_embedding, 1, false},     {OP_one_hot, 0, false},    {OP_index_add, 1, false},
    {OP_cross_entropy, 1, false}, {OP_nll_loss, 1, false},   {OP_take, 1, true},
    {OP_gather, 1, true},         {OP_scatter_add, 1, true},
};

static struct dim size_of(const struct graph *g, const struct node *n)
{
    const struct shape *a = &graph_node(g, n->operands[0])->shape;
    switch ((int)n->op) {
    case OP_one_hot:
        return n->shape.dims[n->shape.rank - 1];
    case OP_embedding:
        return a->dims[0];
    case OP_cross_entropy:
    case OP_nll_loss:
        return a->dims[a->rank - 1];
    default: {
        int64_t axis = node_int(n, "axis");
        return a->dims[axis < 0 ? axis + a->rank : axis];
    }
    }
}

static void add_check(struct graph *out, value v, const struct rule *r, struct arena *scratch)
{
    const struct node *n = graph_node(out, v);
    const struct attr *ignored = node_attr_named(n, "ignore_index");
    struct index_check c = {.index = n->operands[r->operand],
                            .size = size_of(out, n),
                            .counts_from_end = r->counts_from_end,
                            .may_ignore = ignored != NULL,
                            .ignored = ignored != NULL ? ignored->i : 0};
    const char *name = graph_name(out, v, scratch);
    c.user = n->location.file == NULL
                 ? arena_text(scratch, "%s %s", op_info[n->op].name, name)
                 : arena_text(scratch, "%s %s at %s:%u", op_info[n->op].name, name,
                              n->location.file, (unsigned)n->location.line);
    graph_check(out, &c);
}

status index_checks_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                         struct notes *notes)
{
    (void)o;
    (void)notes;
    TRY(rewrite(in, out, NULL, NULL, NULL));
    struct arena scratch = SCRATCH_ARENA;
    for (uint32_t i = 1; in->n_checks == 0 && i < out->n_nodes; i++) {
        for (uint32_t k = 0; k < ARRAY_LEN(rules); k++) {
            if (out->nodes[i].op == rules[k].op) {
                add_check(out, (value){i}, &rules[k], &scratch);
            }
        }
    }
    arena_free(&scratch);
    return out->error.code;
}
