/* Checks of a graph that need its data: the ranges of symbols, and index checks, which the
 * executors hold against the data before a step runs anything. Added by passes/index_checks.c to a
 * model, carried by graph_finish through every pass. Invariant: a check's index is an integer
 * value. */
#include "graph.h"

#include <string.h>

static bool same_check(const struct index_check *a, const struct index_check *b)
{
    return a->index.id == b->index.id && dim_equal(a->size, b->size) &&
           a->counts_from_end == b->counts_from_end && a->may_ignore == b->may_ignore &&
           a->ignored == b->ignored && strcmp(a->user, b->user) == 0;
}

void graph_check(struct graph *g, const struct index_check *c)
{
    if (c->index.id == 0 || dtype_info[graph_node(g, c->index)->dtype].class != CLASS_I) {
        fail(&g->error, ATOLL_DTYPE, "graph @%s: an index check of %s, expected integers", g->name,
             c->index.id == 0 ? "no value" : dtype_info[graph_node(g, c->index)->dtype].name);
        return;
    }
    for (uint32_t i = 0; i < g->n_checks; i++) {
        if (same_check(&g->checks[i], c)) {
            return;
        }
    }
    g->checks =
        arena_grow(&g->arena, g->checks, g->n_checks, &g->check_capacity, sizeof *g->checks);
    g->checks[g->n_checks] = *c;
    g->checks[g->n_checks++].user = arena_copy_text(&g->arena, c->user);
}

status graph_check_symbols(const struct graph *g, const int64_t *symbol_values, struct error *e)
{
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        const struct symbol *s = &g->symbols[i];
        int64_t n = symbol_values[i];
        if (n < s->low || n > s->high) {
            return fail(e, ATOLL_SHAPE,
                        "symbol %s = %lld is outside the range [%lld, %lld] this program was "
                        "compiled for",
                        s->name, (long long)n, (long long)s->low, (long long)s->high);
        }
    }
    return ATOLL_OK;
}
