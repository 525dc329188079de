/* The compute type of a node, from its operands' dtypes and its row's `types` column. Whoever
 * widens operands or places a rounding asks here: the fused and the eager run must agree. */
#include "compute.h"

bool node_is_weak(const struct node *n)
{
    return n->op == OP_constant && node_bool(n, "weak");
}

bool node_saturates(const struct node *n)
{
    return n->op == OP_quantize || (n->op == OP_cast && node_bool(n, "saturate"));
}

/* Weak numbers take part only when nothing else decides. */
enum dtype operands_promoted(const struct graph *g, const struct node *n, uint32_t first)
{
    enum dtype strong = DTYPE_NONE, weak = DTYPE_NONE;
    for (uint32_t i = first; i < n->n_operands; i++) {
        const struct node *o = graph_node(g, n->operands[i]);
        enum dtype *to = node_is_weak(o) ? &weak : &strong;
        *to = dtype_promote(*to, o->dtype);
    }
    if (strong == DTYPE_NONE) {
        return weak;
    }
    /* A whole number leaves integers integers; any other weak number makes them f32. */
    if (weak != DTYPE_NONE && dtype_is_float(weak) && !dtype_is_float(strong)) {
        for (uint32_t i = first; i < n->n_operands; i++) {
            const struct node *o = graph_node(g, n->operands[i]);
            double v = node_is_weak(o) ? node_float(o, "value") : 0.0;
            if (!(v >= -9e15 && v <= 9e15 && v == (double)(int64_t)v)) {
                return F32;
            }
        }
    }
    return strong;
}

enum dtype node_compute(const struct graph *g, const struct node *n)
{
    const struct op_row *row = &op_info[n->op];
    enum dtype t = n->dtype;
    if (n->op == OP_cast || n->op == OP_argmax || n->op == OP_argmin) {
        t = graph_node(g, n->operands[0])->dtype;
    } else if (n->op == OP_index_add || n->op == OP_scatter_add) {
        t = dtype_promote(t, graph_node(g, n->operands[2])->dtype);
    } else if (row->kind == REDUCTION) {
        t = dtype_promote(t, graph_node(g, n->operands[0])->dtype);
    } else if (row->kind == ELEMENTWISE) {
        t = operands_promoted(g, n, row->types == TYPES_W ? 1 : 0);
        if (row->types == TYPES_F && !dtype_is_float(t)) {
            t = F32;
        }
    }
    return dtype_compute(t);
}
