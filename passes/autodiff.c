/* Reverse mode. Needs: a typed graph with a float scalar loss. Leaves: the same graph, with the
 * gradient of every parameter behind it. Composites without a rule of their own are opened into
 * primitives first, so that the backward sweep is one loop from the loss to the leaves.
 * Invariant: the gradient of a value has the value's dtype and shape. */
#include "autodiff.h"

#include <inttypes.h>
#include <string.h>

#include "gradients.h"

status autodiff_loss(const struct graph *in, struct error *e, value *out_loss)
{
    if (in->n_outputs == 0) {
        return fail(e, ATOLL_USAGE, "graph @%s: no output to differentiate; expected a scalar loss",
                    in->name);
    }
    const struct output *loss = &in->outputs[0];
    for (uint32_t i = 0; i < in->n_outputs; i++) {
        if (strcmp(in->outputs[i].name, "loss") == 0) {
            loss = &in->outputs[i];
        }
    }
    const struct node *n = graph_node(in, loss->value);
    if (!dtype_is_float(n->dtype) || n->shape.rank != 0) {
        struct arena scratch = SCRATCH_ARENA;
        fail(e, ATOLL_SHAPE,
             "graph @%s: output '%s' is %s, expected a float scalar to differentiate; hint: take "
             "its sum or mean and name it loss",
             in->name, loss->name, graph_type(in, loss->value, &scratch));
        arena_free(&scratch);
        return ATOLL_SHAPE;
    }
    *out_loss = loss->value;
    return ATOLL_OK;
}

/* needs[i]: a float value that depends on a float value already marked. */
static void spread_needs(const struct graph *g, uint32_t until, bool *needs)
{
    for (uint32_t i = 1; i < until; i++) {
        const struct node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_operands && !needs[i]; k++) {
            needs[i] = needs[n->operands[k].id] && dtype_is_float(n->dtype);
        }
    }
}

static value open_composite(struct graph *out, const struct graph *in, value v,
                            const value *operands, void *context)
{
    const bool *needs = context;
    const struct node *n = graph_node(in, v);
    bool is_opened =
        op_info[n->op].kind == COMPOSITE && gradient_rule(n->op) == NULL && needs[v.id];
    return is_opened ? decompose_node(out, in, v, operands) : (value){0};
}

status autodiff_forward(const struct graph *in, struct graph *out, const bool *wanted, value *map)
{
    struct arena scratch = SCRATCH_ARENA;
    bool *needs = ARENA_ARRAY(&scratch, bool, in->n_nodes);
    for (uint32_t i = 1; i < in->n_nodes; i++) {
        needs[i] = wanted != NULL ? wanted[i] : in->nodes[i].op == OP_param;
    }
    spread_needs(in, in->n_nodes, needs);
    status code = rewrite(in, out, open_composite, needs, map);
    arena_free(&scratch);
    return code;
}

static status no_rule(struct backward *b)
{
    struct arena scratch = SCRATCH_ARENA;
    fail(&b->g->error, ATOLL_UNSUPPORTED,
         "%s: %s has no gradient, but a parameter lies behind it; hint: make what it reads an "
         "input or buffer",
         graph_name(b->g, b->y, &scratch), op_info[b->n.op].name);
    arena_free(&scratch);
    return b->g->error.code;
}

/* The backward nodes of a forward node are named after it and keep its location and island. */
static void set_origin(struct backward *b)
{
    b->g->origin = b->n.location;
    b->g->origin_island = b->n.island;
    b->g->origin_name = b->n.name == NULL ? NULL : arena_text(&b->g->arena, "%s.grad", b->n.name);
}

/* What is differentiated by, a leaf or a value made of leaves, ends the sweep. */
static bool leads_further(const struct backward *b, const struct node *n)
{
    for (uint32_t k = 0; k < n->n_operands; k++) {
        if (b->needs[n->operands[k].id]) {
            return true;
        }
    }
    return false;
}

static status sweep(struct backward *b, value root)
{
    for (uint32_t i = root.id; i > 0; i--) {
        b->n = b->g->nodes[i];
        if (b->grad[i].id == 0 || !b->needs[i] || !leads_further(b, &b->n)) {
            continue;
        }
        b->y = (value){i};
        b->dy = b->grad[i];
        grad_rule *rule = gradient_rule(b->n.op);
        if (rule == NULL) {
            return no_rule(b);
        }
        set_origin(b);
        rule(b);
        if (b->g->error.code != ATOLL_OK) {
            return b->g->error.code;
        }
    }
    return ATOLL_OK;
}

status autodiff_backward(struct graph *g, value root, const value *wrt, uint32_t n, value *grads)
{
    struct arena scratch = SCRATCH_ARENA;
    uint32_t n_forward = g->n_nodes;
    bool *needs = ARENA_ARRAY(&scratch, bool, n_forward);
    for (uint32_t i = 0; i < n; i++) {
        needs[wrt[i].id] = dtype_is_float(graph_node(g, wrt[i])->dtype);
    }
    spread_needs(g, n_forward, needs);
    const char *name = g->origin_name;
    struct location origin = g->origin;
    uint32_t island = g->origin_island;
    struct backward b = {.g = g, .grad = ARENA_ARRAY(&scratch, value, n_forward), .needs = needs};
    b.grad[root.id] = graph_constant(g, 1.0, graph_node(g, root)->dtype);
    status code = sweep(&b, root);
    g->origin_name = name;
    g->origin = origin;
    g->origin_island = island;
    for (uint32_t i = 0; i < n; i++) {
        grads[i] = needs[wrt[i].id] ? b.grad[wrt[i].id] : (value){0};
    }
    arena_free(&scratch);
    return code;
}

static value zeros(struct graph *g, value like)
{
    struct shape shape = graph_node(g, like)->shape;
    return graph_expand(g, graph_constant(g, 0.0, graph_node(g, like)->dtype), &shape);
}

/* Outputs "grad:NAME" for every leaf wanted. */
static status add_outputs(const struct graph *in, struct graph *full, const value *map,
                          const bool *wanted, value loss, struct notes *notes)
{
    struct arena scratch = SCRATCH_ARENA;
    value *wrt = ARENA_ARRAY(&scratch, value, in->n_nodes);
    value *grads = ARENA_ARRAY(&scratch, value, in->n_nodes);
    uint32_t n = 0;
    for (uint32_t i = 1; i < in->n_nodes; i++) {
        if (wanted[i]) {
            wrt[n++] = map[i];
        }
    }
    status code = autodiff_backward(full, map[loss.id], wrt, n, grads);
    for (uint32_t i = 0; i < n && code == ATOLL_OK; i++) {
        const char *name = graph_node(full, wrt[i])->name;
        name = name != NULL ? name : arena_text(&scratch, "v%" PRIu32, wrt[i].id);
        if (grads[i].id == 0) {
            note_add(notes, "autodiff", name, "the loss does not depend on it: its gradient is 0");
            grads[i] = zeros(full, wrt[i]);
        }
        graph_output(full, arena_text(&scratch, "grad:%s", name), grads[i]);
        code = full->error.code;
    }
    arena_free(&scratch);
    return code;
}

status autodiff_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                     struct notes *notes)
{
    const char *names = o != NULL ? o->gradients : NULL;
    value loss;
    TRY(autodiff_loss(in, &out->error, &loss));
    struct graph *full = graph_temporary(in);
    value *map = ARENA_ARRAY(&full->arena, value, in->n_nodes);
    bool *wanted = ARENA_ARRAY(&full->arena, bool, in->n_nodes);
    for (uint32_t i = 1; i < in->n_nodes; i++) {
        const struct node *n = &in->nodes[i];
        wanted[i] = names == NULL ? n->op == OP_param
                                  : op_info[n->op].kind == LEAF && n->name != NULL &&
                                        list_has(names, n->name);
    }
    status code = autodiff_forward(in, full, wanted, map);
    if (code == ATOLL_OK) {
        code = add_outputs(in, full, map, wanted, loss, notes);
    }
    /* what a rule built and nobody needed goes here */
    code = code == ATOLL_OK ? rewrite(full, out, NULL, NULL, NULL)
                            : fail(&out->error, code, "%s", full->error.text);
    graph_destroy(full);
    return code;
}
