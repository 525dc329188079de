/* A step and all its values. Leaves are copied before it, since the step changes them; computed
 * values behind it, from the eager probe or from the session's memory; views, numbers and what
 * stayed inside a kernel are filled in op by op. */
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/eager.h"

static status copy_tensor(struct tensor *to, const struct tensor *from, struct error *e)
{
    *to = *from;
    to->data = malloc(tensor_bytes(from) + 1);
    if (to->data == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory to record a value");
    }
    if (from->data != NULL) {
        memcpy(to->data, from->data, tensor_bytes(from));
    }
    return ATOLL_OK;
}

static status copy_leaves(struct recording *rec, struct runner *r, struct error *e)
{
    const struct graph *g = runner_graph(r);
    TRY(runner_fit_leaves(r, e));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (node_is_leaf(&g->nodes[i])) {
            const struct tensor *t =
                r->is_eager ? &r->leaves[i] : session_leaf(r->session, (value){i});
            TRY(copy_tensor(&rec->values[i], t, e));
        }
    }
    return ATOLL_OK;
}

/* A node that nothing recorded, from its recorded operands. */
static status fill_in(struct recording *rec, const struct runner *r,
                      struct contraction_cache *cache, uint32_t i, struct error *e)
{
    const struct graph *g = runner_graph(r);
    const struct node *n = &g->nodes[i];
    struct tensor operands[VARIADIC], *t = &rec->values[i];
    for (uint32_t k = 0; k < n->n_operands; k++) {
        operands[k] = rec->values[n->operands[k].id];
    }
    *t = (struct tensor){.dtype = n->dtype, .rank = n->shape.rank};
    for (uint32_t d = 0; d < t->rank; d++) {
        t->shape[d] = dim_value(n->shape.dims[d], r->symbols);
    }
    t->data = aligned_alloc(64, (tensor_bytes(t) + 64) / 64 * 64);
    if (t->data == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory to record a value");
    }
    return eager_node(g, (value){i}, operands, t, r->symbols, cache, e);
}

static status fill_holes(struct recording *rec, const struct runner *r, struct error *e)
{
    struct contraction_cache *cache = contraction_cache_create();
    status code = cache != NULL ? ATOLL_OK : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 1; i < rec->n && code == ATOLL_OK; i++) {
        if (rec->values[i].data == NULL) {
            code = fill_in(rec, r, cache, i, e);
        }
    }
    contraction_cache_destroy(cache);
    return code;
}

static status read_values(struct recording *rec, struct runner *r, struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!node_is_leaf(&g->nodes[i])) {
            TRY(session_read(r->session, (value){i}, &rec->values[i], e));
        }
    }
    return ATOLL_OK;
}

status trace_step(struct recording *rec, struct runner *r, struct error *e)
{
    struct recording leaves = {.n = runner_graph(r)->n_nodes};
    leaves.values = calloc(leaves.n, sizeof *leaves.values);
    if (leaves.values == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory to record %" PRIu32 " values", leaves.n);
    }
    status code = copy_leaves(&leaves, r, e);
    if (code == ATOLL_OK && r->is_eager) {
        code = recording_step(rec, r, e);
        for (uint32_t i = 1; i < rec->n && code == ATOLL_OK; i++) {
            if (leaves.values[i].data != NULL) {
                rec->values[i] = leaves.values[i];
                leaves.values[i].data = NULL;
            }
        }
    } else if (code == ATOLL_OK) {
        recording_free(rec);
        *rec = leaves;
        leaves = (struct recording){0};
        code = session_step(r->session, e);
        code = code == ATOLL_OK ? read_values(rec, r, e) : code;
    }
    recording_free(&leaves);
    return code == ATOLL_OK ? fill_holes(rec, r, e) : code;
}
