/* Elementwise chains in the shape of the blocks that their result is quantised by: x (..,C) whose
 * largest magnitudes are taken over parts of C is computed as (..,C/128,128) at once, so that
 * fusion joins it, the amax and the quantisation; who reads x as it was reads the same memory
 * through a reshape. Needs a primitive graph behind fp8; leaves the same values, each computed
 * once. Invariant: a chain is cut as a whole or not at all, and never where a reduction of its rows
 * takes part, which would be parted from it. */
#include "ir/partition.h"
#include "pass.h"

struct work {
    uint32_t *chain;  /* by node: the first of its chain, itself at first; 0: in none */
    bool *is_whole;   /* by chain: has to stay as it is */
    uint32_t *cut_by; /* by chain: the reshape that cuts it; 0: none */
    value *made;      /* by node: its value in that shape */
};

static uint32_t chain_of(struct work *w, uint32_t v)
{
    while (w->chain[v] != v) {
        v = w->chain[v] = w->chain[w->chain[v]];
    }
    return v;
}

static bool is_link(const struct node *n)
{
    return op_info[n->op].kind == ELEMENTWISE && n->shape.rank > 0;
}

/* Whether a tensor of lower rank or with ones still broadcasts when the last axis is cut. */
static bool broadcasts(const struct node *o, const struct node *n)
{
    return o->shape.rank <= n->shape.rank && op_info[o->op].kind != VIEW;
}

static void join(const struct graph *g, struct work *w)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        w->chain[i] = is_link(&g->nodes[i]) ? i : 0;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        for (uint32_t k = 0; is_link(n) && k < n->n_operands; k++) {
            const struct node *o = graph_node(g, n->operands[k]);
            if (is_link(o) && shape_equal(&o->shape, &n->shape)) {
                w->chain[chain_of(w, i)] = chain_of(w, n->operands[k].id);
            }
        }
    }
}

static bool reduces_rows(const struct node *n, uint32_t rank)
{
    bool is_index = n->op == OP_argmax || n->op == OP_argmin;
    return op_info[n->op].kind == REDUCTION &&
           (is_index || (node_axes(n, rank) >> (rank - 1) & 1U) != 0);
}

static void find_whole(const struct graph *g, struct work *w)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            value o = n->operands[k];
            const struct node *from = graph_node(g, o);
            bool is_same = shape_equal(&from->shape, &n->shape);
            if (w->chain[o.id] != 0 && reduces_rows(n, from->shape.rank)) {
                w->is_whole[chain_of(w, o.id)] = true;
            }
            /* a dense tensor of one shape is one of any other: a view of it is not */
            bool is_dense = op_info[from->op].kind != VIEW || from->op == OP_reshape;
            if (w->chain[i] != 0 && (is_same ? !is_dense : !broadcasts(from, n))) {
                w->is_whole[chain_of(w, i)] = true;
            }
        }
    }
}

/* (..,C) to (..,C/d,d). */
static bool cuts_rows(const struct shape *from, const struct shape *to)
{
    struct dim last;
    bool fits = from->rank > 0 && to->rank == from->rank + 1 && to->rank < MAX_RANK;
    for (uint32_t i = 0; fits && i + 1 < from->rank; i++) {
        fits = dim_equal(from->dims[i], to->dims[i]);
    }
    return fits && dim_multiply(to->dims[to->rank - 2], to->dims[to->rank - 1], &last) &&
           dim_equal(last, from->dims[from->rank - 1]);
}

static void find_cuts(const struct graph *g, struct work *w)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *max = &g->nodes[i];
        if (max->op != OP_max || max->shape.rank < 2 ||
            node_axes(max, max->shape.rank) != 1U << (max->shape.rank - 1)) {
            continue;
        }
        const struct node *size = graph_node(g, max->operands[0]);
        value parts = size->op == OP_abs ? size->operands[0] : (value){0};
        const struct node *n = parts.id != 0 ? graph_node(g, parts) : NULL;
        if (n == NULL || n->op != OP_reshape || w->chain[n->operands[0].id] == 0 ||
            !cuts_rows(&graph_node(g, n->operands[0])->shape, &n->shape)) {
            continue;
        }
        uint32_t chain = chain_of(w, n->operands[0].id);
        w->cut_by[chain] = w->cut_by[chain] == 0 ? parts.id : w->cut_by[chain];
    }
}

/* The reshape that cuts v's chain; 0: none does. */
static uint32_t cut_of(struct work *w, value v)
{
    uint32_t chain = w->chain[v.id] != 0 ? chain_of(w, v.id) : 0;
    return chain != 0 && !w->is_whole[chain] ? w->cut_by[chain] : 0;
}

/* An operand in the shape of the cut: dims from the end, the last one as two. */
static value cut_operand(struct graph *out, value v, const struct shape *whole,
                         const struct shape *to)
{
    struct shape own = graph_node(out, v)->shape, s = {0};
    if (shape_equal(&own, whole)) {
        return graph_reshape(out, v, to);
    }
    if (own.rank == 0) {
        return v;
    }
    bool is_one = dim_is(own.dims[own.rank - 1], 1);
    s = own;
    s.rank = own.rank + 1;
    s.dims[own.rank - 1] = is_one ? dim_of(1) : to->dims[to->rank - 2];
    s.dims[own.rank] = is_one ? dim_of(1) : to->dims[to->rank - 1];
    return graph_reshape(out, v, &s);
}

static value rule(struct graph *out, const struct graph *in, value v, const value *operands,
                  void *context)
{
    struct work *w = context;
    const struct node *n = graph_node(in, v);
    uint32_t by = cut_of(w, v);
    if (n->op == OP_reshape && cut_of(w, n->operands[0]) != 0) {
        const struct node *as = &in->nodes[cut_of(w, n->operands[0])];
        return shape_equal(&as->shape, &n->shape) ? w->made[n->operands[0].id] : (value){0};
    }
    if (by == 0) {
        return (value){0};
    }
    value own[VARIADIC];
    const struct shape *to = &in->nodes[by].shape;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        value o = n->operands[k];
        bool is_made = cut_of(w, o) == by && w->made[o.id].id != 0 &&
                       shape_equal(&graph_node(in, o)->shape, &n->shape);
        own[k] = is_made ? w->made[o.id] : cut_operand(out, operands[k], &n->shape, to);
    }
    w->made[v.id] = graph_copy(out, n, own);
    return graph_reshape(out, w->made[v.id], &n->shape);
}

status cut_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                struct notes *notes)
{
    (void)o;
    (void)notes;
    struct arena scratch = SCRATCH_ARENA;
    struct work w = {.chain = ARENA_ARRAY(&scratch, uint32_t, in->n_nodes),
                     .is_whole = ARENA_ARRAY(&scratch, bool, in->n_nodes),
                     .cut_by = ARENA_ARRAY(&scratch, uint32_t, in->n_nodes),
                     .made = ARENA_ARRAY(&scratch, value, in->n_nodes)};
    join(in, &w);
    find_whole(in, &w);
    find_cuts(in, &w);
    status code = rewrite(in, out, rule, &w, NULL);
    arena_free(&scratch);
    return code;
}
