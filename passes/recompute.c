/* Values of leaves alone that are read early in a step and again at its end: computed twice rather
 * than kept in between. A parameter that is stored as bf16 and its other half is widened for the
 * forward pass and for the optimizer; one f32 value for both would be alive all step long, a copy
 * of what the bf16 halves are there to save. Needs the graph that fuse gets; the last contraction
 * parts early from late. Leaves the same values, bit for bit, some of them twice. Invariant: only
 * elementwise ops on leaves are repeated, never a reduction, a random number or what a leaf does
 * not give alone. */
#include "ir/partition.h"
#include "pass.h"

enum { MOST_NODES = 8 }; /* of a chain: more work than a read and a write of memory */

struct work {
    const bool *is_of_leaves; /* by node: elementwise on leaves alone */
    const bool *is_again;     /* by node: computed again for late readers */
    value *again;             /* by node: the second value; 0: not yet */
    uint32_t last_contraction;
};

static bool is_cheap(enum op op)
{
    switch ((int)op) {
    case OP_cast:
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_neg:
    case OP_bf16_join:
        return true;
    default:
        return false;
    }
}

static bool is_given(const struct node *n)
{
    return node_is_leaf(n) || node_is_inline(n);
}

/* Node ids of the chain behind v, leaves left out; n grows beyond MOST_NODES when there are more.
 */
static void count_chain(const struct graph *g, value v, uint32_t *n)
{
    const struct node *node = graph_node(g, v);
    if (is_given(node) || ++*n > MOST_NODES) {
        return;
    }
    for (uint32_t k = 0; k < node->n_operands; k++) {
        count_chain(g, node->operands[k], n);
    }
}

/* Wider than what it is made of: nothing is saved by computing an f32 from an f32 again. */
static bool is_widened(const struct graph *g, value v, uint32_t bytes)
{
    const struct node *n = graph_node(g, v);
    if (is_given(n)) {
        return n->shape.rank == 0 || node_is_inline(n) || dtype_info[n->dtype].bytes < bytes;
    }
    for (uint32_t k = 0; k < n->n_operands; k++) {
        if (!is_widened(g, n->operands[k], bytes)) {
            return false;
        }
    }
    return true;
}

static void find(const struct graph *g, struct work *w, bool *is_of_leaves, bool *is_again,
                 struct arena *scratch)
{
    bool *is_early = ARENA_ARRAY(scratch, bool, g->n_nodes);
    bool *is_late = ARENA_ARRAY(scratch, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        is_of_leaves[i] = is_cheap(n->op);
        w->last_contraction = op_info[n->op].kind == CONTRACTION ? i : w->last_contraction;
        for (uint32_t k = 0; k < n->n_operands; k++) {
            value o = n->operands[k];
            is_of_leaves[i] = is_of_leaves[i] && (is_given(graph_node(g, o)) || is_of_leaves[o.id]);
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_operands; k++) {
            bool *is_read = i > w->last_contraction ? is_late : is_early;
            is_read[g->nodes[i].operands[k].id] = true;
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        uint32_t length = 0;
        const struct node *n = &g->nodes[i];
        if (is_of_leaves[i] && is_early[i] && is_late[i] && n->shape.rank > 0) {
            count_chain(g, (value){i}, &length);
            is_again[i] =
                length <= MOST_NODES && is_widened(g, (value){i}, dtype_info[n->dtype].bytes);
        }
    }
}

/* The chain behind a value of the old graph, once more in the new one; map: leaves of both. */
static value compute_again(struct work *w, struct graph *out, const struct graph *in, value v,
                           const value *map)
{
    const struct node *n = graph_node(in, v);
    value operands[3];
    if (is_given(n)) {
        return map[v.id];
    }
    if (w->again[v.id].id == 0) {
        for (uint32_t k = 0; k < n->n_operands; k++) {
            operands[k] = compute_again(w, out, in, n->operands[k], map);
        }
        w->again[v.id] = graph_copy(out, n, operands);
    }
    return w->again[v.id];
}

struct sweep {
    struct work *w;
    value *map;
};

static value rule(struct graph *out, const struct graph *in, value v, const value *operands,
                  void *context)
{
    struct sweep *s = context;
    const struct node *n = graph_node(in, v);
    value own[VARIADIC];
    bool is_changed = false;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        bool is_again = v.id > s->w->last_contraction && s->w->is_again[n->operands[k].id];
        own[k] = operands[k];
        if (is_again) {
            own[k] = compute_again(s->w, out, in, n->operands[k], s->map);
            is_changed = true;
        }
    }
    return is_changed ? graph_copy(out, n, own) : (value){0};
}

status recompute_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                      struct notes *notes)
{
    (void)o;
    struct arena scratch = SCRATCH_ARENA;
    bool *is_of_leaves = ARENA_ARRAY(&scratch, bool, in->n_nodes);
    bool *is_again = ARENA_ARRAY(&scratch, bool, in->n_nodes);
    struct work w = {.is_of_leaves = is_of_leaves,
                     .is_again = is_again,
                     .again = ARENA_ARRAY(&scratch, value, in->n_nodes)};
    find(in, &w, is_of_leaves, is_again, &scratch);
    for (uint32_t i = 1; i < in->n_nodes; i++) {
        if (is_again[i] && in->nodes[i].name != NULL) {
            note_add(notes, "recompute", in->nodes[i].name,
                     "computed again behind the last contraction: kept, it would take memory all "
                     "step long");
        }
    }
    struct sweep s = {&w, ARENA_ARRAY(&scratch, value, in->n_nodes)};
    status code = rewrite(in, out, rule, &s, s.map);
    arena_free(&scratch);
    return code;
}
