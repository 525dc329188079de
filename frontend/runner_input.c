/* Inputs of a runner: for the step at hand, copied at once; for the next one, on their way while
 * one runs. Invariant: what was given last for an input is what the next step reads. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/loader.h"

static status wrong_input(const struct graph *g, value v, const struct tensor *t, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text found = {.arena = &scratch};
    text_add(&found, "%s[", dtype_info[t->dtype].name);
    for (uint32_t i = 0; i < t->rank; i++) {
        text_add(&found, "%s%lld", i > 0 ? "," : "", (long long)t->shape[i]);
    }
    fail(e, ATOLL_SHAPE,
         "%%%s: expected %s, found %s]; hint: check the data's dtype and columns, and the "
         "number of rows where the first size is fixed",
         graph_node(g, v)->name, graph_type(g, v, &scratch), found.data);
    arena_free(&scratch);
    return ATOLL_SHAPE;
}

/* The input of this name, and the sizes that t gives to its symbols. */
static status match_input(const struct runner *r, const char *name, const struct tensor *t,
                          int64_t symbols[MAX_SYMBOLS], value *out, struct error *e)
{
    const struct graph *g = runner_graph(r);
    value v = *out = graph_find(g, name);
    memcpy(symbols, r->has_next ? r->next : r->symbols, sizeof r->symbols);
    if (v.id == 0) {
        return fail(e, ATOLL_NOT_FOUND, "the graph has no input %%%s", name);
    }
    const struct node *n = graph_node(g, v);
    bool fits = n->dtype == t->dtype && n->shape.rank == t->rank;
    for (uint32_t i = 0; fits && i < t->rank; i++) {
        struct dim d = n->shape.dims[i];
        if (!dim_is_static(d) && d.symbols[1] == 0 && t->shape[i] % d.factor == 0) {
            symbols[d.symbols[0]] = t->shape[i] / d.factor;
        }
        fits = dim_value(d, symbols) == t->shape[i];
    }
    return fits ? ATOLL_OK : wrong_input(g, v, t, e);
}

status runner_input(struct runner *r, const char *name, const struct tensor *t, struct error *e)
{
    int64_t symbols[MAX_SYMBOLS];
    value v;
    TRY(match_input(r, name, t, symbols, &v, e));
    TRY(runner_bind(r, symbols, e));
    memcpy(r->next, symbols, sizeof r->next);
    if (!r->is_eager) {
        session_forget(r->session, v);
    } else if (r->loader != NULL) {
        loader_drop(r->loader, v.id);
    }
    struct tensor *to = r->is_eager ? &r->leaves[v.id] : session_leaf(r->session, v);
    if (r->is_eager) {
        TRY(runner_fit_leaf(r, v, e));
    }
    if (tensor_bytes(t) != 0) {
        memcpy(to->data, t->data, tensor_bytes(t));
    }
    return ATOLL_OK;
}

status runner_prefetch(struct runner *r, const char *name, const struct tensor *t, struct error *e)
{
    int64_t symbols[MAX_SYMBOLS];
    value v;
    TRY(match_input(r, name, t, symbols, &v, e));
    if (r->is_eager && r->loader == NULL) {
        r->loader = loader_create(NULL, runner_graph(r)->n_nodes);
        if (r->loader == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        }
    }
    TRY(r->is_eager ? loader_put(r->loader, v.id, t->data, tensor_bytes(t), e)
                    : session_prefetch(r->session, v, t, e));
    memcpy(r->next, symbols, sizeof r->next);
    r->has_next = true;
    return ATOLL_OK;
}

status runner_take_next(struct runner *r, struct error *e)
{
    const struct graph *g = runner_graph(r);
    if (!r->has_next) {
        return ATOLL_OK;
    }
    r->has_next = false;
    TRY(runner_bind(r, r->next, e));
    if (r->loader == NULL) {
        return ATOLL_OK;
    }
    void **to = calloc(g->n_nodes, sizeof *to);
    status code = to != NULL ? ATOLL_OK : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 1; code == ATOLL_OK && i < g->n_nodes; i++) {
        if (loader_holds(r->loader, i)) {
            code = runner_fit_leaf(r, (value){i}, e);
            to[i] = r->leaves[i].data;
        }
    }
    code = code == ATOLL_OK ? loader_take(r->loader, to, e) : code;
    free(to);
    return code;
}
