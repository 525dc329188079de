/* Which values of leaves alone wait for their readers instead of joining a kernel that reads the
 * same leaves: what only later elementwise ops read would have to be kept for them in memory (a
 * parameter widened for the optimizer, say, by the kernel that lowers it for the forward pass).
 * Used by fuse.c. */
#include "fuse.h"

/* Elementwise ops on leaves, of more than one element. */
static bool *made_of_leaves(const struct graph *g, struct arena *a)
{
    bool *is = ARENA_ARRAY(a, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        is[i] = op_info[n->op].kind == ELEMENTWISE && n->n_operands > 0;
        for (uint32_t k = 0; k < n->n_operands; k++) {
            const struct node *from = graph_node(g, n->operands[k]);
            is[i] = is[i] && (node_is_leaf(from) || node_is_inline(from) || is[n->operands[k].id]);
        }
    }
    return is;
}

bool *fuse_waiting(const struct graph *g, struct arena *a)
{
    const bool *is_of_leaves = made_of_leaves(g, a);
    bool *waits = ARENA_ARRAY(a, bool, g->n_nodes), *is_read = ARENA_ARRAY(a, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        waits[i] = is_of_leaves[i] && g->nodes[i].shape.rank > 0;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        waits[g->outputs[i].value.id] = false;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        waits[g->updates[i].next.id] = false;
    }
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) { /* readers first */
        const struct node *n = &g->nodes[i];
        bool is_late = op_info[n->op].kind == ELEMENTWISE && (waits[i] || !is_of_leaves[i]);
        waits[i] = waits[i] && is_read[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            value o = n->operands[k];
            bool is_same = shape_equal(&graph_node(g, o)->shape, &n->shape);
            is_read[o.id] = true;
            waits[o.id] = waits[o.id] && is_late && is_same;
        }
    }
    return waits;
}
