/* The eager executor: one node at a time, each by the file of its kind, and a whole decomposed
 * graph with values freed after their last use. It shares the prelude and the contraction calls
 * with the generated code; nothing is fused here, which makes it the measure of the fused run. */
#include "eager.h"
#include "eager_internal.h"
#include "index_check.h"
#include "scaled.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- leaves that compute ---- */

static status constant_leaf(const struct eager_call *c)
{
    const struct node *n = c->node;
    struct tensor *y = c->result;
    if (n->op == OP_constant) {
        dtype_store(y->dtype, y->data, node_float(n, "value"));
        return ATOLL_OK;
    }
    store_fn *store = store_of(I64, y->dtype, false);
    size_t size = dtype_info[y->dtype].bytes;
    if (n->op == OP_size) {
        int64_t count = shape_count_value(&node_attr_named(n, "of")->dims, c->symbols);
        store(1, &count, y->data);
        return ATOLL_OK;
    }
    uint32_t axis = axis_of(n, y->rank);
    int64_t outer, length, inner;
    split_at(y, axis, axis, &outer, &length, &inner);
    uint64_t element = 0;
    for (int64_t i = 0; i < outer * length; i++) {
        int64_t index = i % length;
        store(1, &index, &element);
        for (int64_t k = 0; k < inner; k++) {
            memcpy((char *)y->data + (size_t)(i * inner + k) * size, &element, size);
        }
    }
    return ATOLL_OK;
}

/* ---- contractions ---- */

/* t in another dtype: itself, or a copy that *owned keeps alive. */
static status converted(const struct eager_call *c, const struct tensor *t, enum dtype to,
                        const void **out, void **owned)
{
    *out = t->data;
    *owned = NULL;
    if (t->dtype == to || tensor_count(t) == 0) {
        return ATOLL_OK;
    }
    int64_t n = tensor_count(t);
    enum dtype compute = dtype_compute(dtype_promote(t->dtype, to));
    load_fn *load = load_of(t->dtype, compute);
    char *copy = *owned = malloc((size_t)n * dtype_info[to].bytes);
    if (copy == NULL) {
        return fail(c->error, ATOLL_OUT_OF_MEMORY, "%s: no memory to convert an operand",
                    op_info[c->node->op].name);
    }
    double block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t run = n - at < BLOCK ? n - at : BLOCK;
        load(run, (const char *)t->data + (size_t)at * dtype_info[t->dtype].bytes, 1, block);
        store_of(compute, to, false)(run, block, copy + (size_t)at * dtype_info[to].bytes);
    }
    *out = copy;
    return ATOLL_OK;
}

static struct shape static_shape(const struct tensor *t)
{
    struct shape s = {.rank = t->rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        s.dims[i] = dim_of(t->shape[i]);
    }
    return s;
}

static status contract(const struct eager_call *c)
{
    const void *data[3] = {NULL, NULL, NULL};
    void *owned[3] = {NULL, NULL, NULL};
    struct contraction k;
    struct shape a = static_shape(&c->operands[0]), b = static_shape(&c->operands[1]);
    status s = contraction_of(c->node, &a, &b, &k, c->error);
    for (uint32_t i = 0; i < c->node->n_operands && s == ATOLL_OK; i++) {
        s = converted(c, &c->operands[i], i < 2 ? k.ab : k.c, &data[i], &owned[i]);
    }
    if (s == ATOLL_OK) {
        s = contraction_run(c->cache, &k, data[0], data[1], data[2], c->result->data, c->error);
    }
    for (uint32_t i = 0; i < 3; i++) {
        free(owned[i]);
    }
    return s;
}

static status contract_scaled(const struct eager_call *c)
{
    const struct tensor *x = c->operands;
    const void *data[4] = {x[0].data, x[1].data, x[2].data, x[3].data};
    struct scaled_product p;
    scaled_product_of(c->node, x[0].dtype, x[1].dtype, x[0].shape, x[1].shape, &p);
    return scaled_run(c->cache, &p, data, c->result->data, c->error);
}

/* ---- one node ---- */

status eager_node(const struct graph *g, value v, const struct tensor *operands,
                  struct tensor *result, const int64_t *symbols, struct contraction_cache *cache,
                  struct error *e)
{
    const struct node *n = graph_node(g, v);
    struct eager_call c = {.graph = g,
                           .node = n,
                           .operands = operands,
                           .result = result,
                           .symbols = symbols,
                           .cache = cache,
                           .error = e};
    switch (op_info[n->op].kind) {
    case LEAF:
        if (n->op == OP_constant || n->op == OP_size || n->op == OP_iota) {
            return constant_leaf(&c);
        }
        return fail(e, ATOLL_USAGE, "%s: a leaf has its value from the caller",
                    op_info[n->op].name);
    case ELEMENTWISE:
        return eager_elementwise(&c);
    case REDUCTION:
        return n->op == OP_argmax || n->op == OP_argmin ? eager_arg_reduction(&c)
                                                        : eager_reduction(&c);
    case CONTRACTION:
        return n->op == OP_scaled_matmul ? contract_scaled(&c) : contract(&c);
    case VIEW:
        return eager_view(&c);
    case INDEX:
        return eager_index(&c);
    case RANDOM:
        return eager_random(&c);
    case COMPOSITE:
    case TRAINING:
        break;
    }
    return fail(e, ATOLL_USAGE, "%s: not a primitive; run the decompose pass first",
                op_info[n->op].name);
}

/* ---- a whole graph ---- */

struct state {
    struct eager_run *run;
    struct tensor *values; /* by node id */
    uint32_t *last_use;    /* by node id; UINT32_MAX: kept to the end */
    void **owned;          /* by node id: memory of a computed value */
    size_t alive;
    struct error *error;
};

static bool is_lent(const struct node *n)
{
    return op_info[n->op].kind == LEAF && n->op <= OP_scalar;
}

static void find_last_uses(struct state *s)
{
    const struct graph *g = s->run->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        s->last_use[i] = i;
        for (uint32_t k = 0; k < g->nodes[i].n_operands; k++) {
            s->last_use[g->nodes[i].operands[k].id] = i;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        s->last_use[g->outputs[i].value.id] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        s->last_use[g->updates[i].next.id] = UINT32_MAX;
    }
}

static status set_type(struct state *s, const struct node *n, struct tensor *t)
{
    t->dtype = n->dtype;
    t->rank = n->shape.rank;
    for (uint32_t d = 0; d < t->rank; d++) {
        t->shape[d] = dim_value(n->shape.dims[d], s->run->symbols);
        if (t->shape[d] < 0) {
            return fail(s->error, ATOLL_SHAPE,
                        "%s: axis %" PRIu32 " has no number; bind its symbol",
                        n->name != NULL ? n->name : op_info[n->op].name, d);
        }
    }
    return ATOLL_OK;
}

static status check_type(struct state *s, const char *what, const struct tensor *found,
                         const struct tensor *expected)
{
    bool fits = found != NULL && found->dtype == expected->dtype && found->rank == expected->rank;
    for (uint32_t d = 0; fits && d < expected->rank; d++) {
        fits = found->shape[d] == expected->shape[d];
    }
    if (fits && (found->data != NULL || tensor_count(found) == 0)) {
        return ATOLL_OK;
    }
    return fail(
        s->error, ATOLL_SHAPE,
        "'%s': the tensor given has another dtype or shape than the graph (%s, rank %" PRIu32
        "), or no data",
        what, dtype_info[expected->dtype].name, expected->rank);
}

/* 64-byte aligned, so that vector loads never split a line. */
static void *new_data(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static status run_node(struct state *s, uint32_t i)
{
    const struct graph *g = s->run->graph;
    const struct node *n = &g->nodes[i];
    struct tensor *t = &s->values[i];
    TRY(set_type(s, n, t));
    if (is_lent(n)) {
        struct tensor *lent = s->run->leaf(s->run->context, (value){i});
        TRY(check_type(s, n->name != NULL ? n->name : "leaf", lent, t));
        *t = *lent;
        return ATOLL_OK;
    }
    struct tensor operands[VARIADIC];
    for (uint32_t k = 0; k < n->n_operands; k++) {
        operands[k] = s->values[n->operands[k].id];
    }
    t->data = s->owned[i] = new_data(tensor_bytes(t));
    if (t->data == NULL) {
        return fail(s->error, ATOLL_OUT_OF_MEMORY, "%s: no memory for %zu bytes",
                    op_info[n->op].name, tensor_bytes(t));
    }
    s->alive += tensor_bytes(t);
    s->run->peak_bytes = s->alive > s->run->peak_bytes ? s->alive : s->run->peak_bytes;
    TRY(eager_node(g, (value){i}, operands, t, s->run->symbols, s->run->cache, s->error));
    if (s->run->probe != NULL) {
        s->run->probe(s->run->context, (value){i}, t);
    }
    return ATOLL_OK;
}

static void release(struct state *s, uint32_t id)
{
    if (s->owned[id] != NULL) {
        s->alive -= tensor_bytes(&s->values[id]);
        free(s->owned[id]);
        s->owned[id] = NULL;
    }
}

static status run_nodes(struct state *s)
{
    const struct graph *g = s->run->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        TRY(run_node(s, i));
        for (uint32_t k = 0; k < g->nodes[i].n_operands; k++) {
            if (s->last_use[g->nodes[i].operands[k].id] == i) {
                release(s, g->nodes[i].operands[k].id);
            }
        }
        if (s->last_use[i] == i) {
            release(s, i);
        }
    }
    return ATOLL_OK;
}

static void copy_data(void *to, const void *from, size_t bytes)
{
    if (bytes != 0 && to != from) {
        memcpy(to, from, bytes);
    }
}

/* Outputs first, then updates: an output that is a state leaf shows the value before the step. An
 * update whose next value is itself a leaf is saved before any leaf is written. */
static status finish(struct state *s)
{
    const struct graph *g = s->run->graph;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct tensor *t = &s->values[g->outputs[i].value.id];
        TRY(check_type(s, g->outputs[i].name, &s->run->outputs[i], t));
        copy_data(s->run->outputs[i].data, t->data, tensor_bytes(t));
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        uint32_t id = g->updates[i].next.id;
        if (is_lent(&g->nodes[id]) && s->owned[id] == NULL) {
            s->owned[id] = new_data(tensor_bytes(&s->values[id]));
            if (s->owned[id] == NULL) {
                return fail(s->error, ATOLL_OUT_OF_MEMORY, "no memory to carry an update");
            }
            copy_data(s->owned[id], s->values[id].data, tensor_bytes(&s->values[id]));
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        uint32_t id = g->updates[i].next.id;
        copy_data(s->values[g->updates[i].leaf.id].data, s->owned[id],
                  tensor_bytes(&s->values[id]));
    }
    return ATOLL_OK;
}

status eager_run(struct eager_run *run, struct error *e)
{
    uint32_t n = run->graph->n_nodes;
    struct state s = {.run = run, .error = e};
    s.values = calloc(n, sizeof *s.values);
    s.last_use = calloc(n, sizeof *s.last_use);
    s.owned = calloc(n, sizeof *s.owned);
    run->peak_bytes = 0;
    status result;
    if (s.values == NULL || s.last_use == NULL || s.owned == NULL) {
        result =
            fail(e, ATOLL_OUT_OF_MEMORY, "eager: no memory for a table of %" PRIu32 " values", n);
    } else {
        find_last_uses(&s);
        result = index_checks_run(run->graph, run->symbols, run->leaf, run->context, e);
        result = result == ATOLL_OK ? run_nodes(&s) : result;
        if (result == ATOLL_OK) {
            result = finish(&s);
        }
        for (uint32_t i = 0; i < n; i++) {
            free(s.owned[i]);
        }
    }
    free(s.values);
    free(s.last_use);
    free(s.owned);
    return result;
}
