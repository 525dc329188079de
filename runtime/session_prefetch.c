/* Inputs of the next step, on their way while one runs: a session's loader, a slot a leaf. The next
 * step takes what was put, before its index checks, so that these see the batch that runs. On a
 * device every input goes this way; those that were written or bound are put by the step itself. */
#include "session_internal.h"

status session_put(struct session *s, value leaf, const void *data, size_t bytes, struct error *e)
{
    if (s->loader == NULL) {
        s->loader = loader_create(s->device, s->p->graph->n_nodes);
        if (s->loader == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        }
    }
    return loader_put(s->loader, leaf.id, data, bytes, e);
}

status session_prefetch(struct session *s, value leaf, const struct tensor *t, struct error *e)
{
    TRY(session_put(s, leaf, t->data, tensor_bytes(t), e));
    if (s->device != NULL) { /* on the CPU, where addresses stand in arguments: when it is taken */
        s->pointed[leaf.id] = NULL;
    }
    return ATOLL_OK;
}

void session_forget(struct session *s, value leaf)
{
    if (s->loader != NULL) {
        loader_drop(s->loader, leaf.id);
    }
}

/* What was put must have the size that the step has. */
static status check_sizes(const struct session *s, struct error *e)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        size_t put = loader_bytes(s->loader, i);
        if (loader_holds(s->loader, i) && put != session_bytes_of(s, (value){i})) {
            return fail(e, ATOLL_SHAPE,
                        "%%%s: %zu bytes were prefetched, the step reads %zu; hint: prefetch or "
                        "bind every input whose size changes",
                        g->nodes[i].name, put, session_bytes_of(s, (value){i}));
        }
    }
    return ATOLL_OK;
}

status session_take(struct session *s, struct error *e)
{
    if (s->loader == NULL) {
        return ATOLL_OK;
    }
    TRY(check_sizes(s, e));
    for (uint32_t i = 1; i < s->p->graph->n_nodes; i++) {
        if (!loader_holds(s->loader, i)) {
            continue;
        }
        if (s->device != NULL) {
            remote_taken(s, (value){i});
        } else {
            session_point(s, (value){i}, NULL);
        }
    }
    TRY(loader_take(s->loader, s->own, e));
    if (s->is_dirty) {
        session_refresh(s);
    }
    return ATOLL_OK;
}

struct pinned_counts session_pinned(const struct session *s)
{
    return s->loader != NULL ? loader_counts(s->loader) : (struct pinned_counts){0};
}
