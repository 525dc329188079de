/* Greedy shrinking: one change at a time (an output or update less, a node replaced by an input,
 * an option off), kept when the case still fails. What nothing needs any more is not copied. */
#include "shrink.h"

#include <stdio.h>
#include <time.h>

struct change {
    uint32_t output, update, node; /* what to drop, + 1; node: by id; 0: none */
};

static bool *find_needed(const struct graph *g, const struct change *x, struct arena *a)
{
    bool *is_needed = ARENA_ARRAY(a, bool, g->n_nodes);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        is_needed[g->outputs[i].value.id] |= i + 1 != x->output;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        is_needed[g->updates[i].next.id] |= i + 1 != x->update;
        is_needed[g->updates[i].leaf.id] |= i + 1 != x->update;
    }
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) {
        for (uint32_t k = 0; is_needed[i] && i != x->node && k < g->nodes[i].n_operands; k++) {
            is_needed[g->nodes[i].operands[k].id] = true;
        }
    }
    return is_needed;
}

static struct graph *changed(const struct graph *g, const struct change *x)
{
    struct arena scratch = {0};
    struct graph *out = graph_like(g);
    value *map = ARENA_ARRAY(&scratch, value, g->n_nodes);
    bool *is_needed = find_needed(g, x, &scratch);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        value operands[VARIADIC];
        if (!is_needed[i]) {
            continue;
        }
        if (i == x->node) {
            char name[32];
            snprintf(name, sizeof name, "q%u", i);
            map[i] = graph_leaf_shape(out, OP_input, name, n->dtype, &n->shape);
            continue;
        }
        for (uint32_t k = 0; k < n->n_operands; k++) {
            operands[k] = map[n->operands[k].id];
        }
        map[i] = graph_copy(out, n, operands);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (i + 1 != x->output) {
            graph_output(out, g->outputs[i].name, map[g->outputs[i].value.id]);
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (i + 1 != x->update) {
            graph_update(out, map[g->updates[i].leaf.id], map[g->updates[i].next.id]);
        }
    }
    arena_free(&scratch);
    return out;
}

struct shrinker {
    struct fuzz_case *c;
    const struct check_options *o;
    struct verdict *v;
    double until;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool still_fails(struct shrinker *s, const struct fuzz_case *c)
{
    struct verdict v;
    check_case(c, s->o, &v);
    if (v.kind == VERDICT_DIFFERENT) {
        *s->v = v;
        return true;
    }
    return false;
}

static bool try_change(struct shrinker *s, const struct change *x)
{
    struct fuzz_case c = *s->c;
    c.graph = changed(s->c->graph, x);
    if (now() > s->until || c.graph->n_outputs + c.graph->n_updates == 0 ||
        c.graph->error.code != ATOLL_OK || !still_fails(s, &c)) {
        graph_destroy(c.graph);
        return false;
    }
    graph_destroy(s->c->graph);
    *s->c = c;
    return true;
}

static void try_options(struct shrinker *s)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct fuzz_case c = *s->c;
        switch (i) {
        case 0:
            c.is_trained = false;
            break;
        case 1:
            snprintf(c.policy, sizeof c.policy, "none");
            break;
        case 2:
            c.clip = 0;
            break;
        case 3:
            c.scaler = 0;
            break;
        case 4:
            c.accumulate = 1;
            break;
        case 5:
            c.schedule[0] = '\0';
            break;
        case 6:
            c.params[0] = '\0';
            break;
        default:
            c.n_steps = 1;
            break;
        }
        if (now() < s->until && still_fails(s, &c)) {
            *s->c = c;
        }
    }
}

void shrink_case(struct fuzz_case *c, const struct check_options *o, double budget,
                 struct verdict *v)
{
    struct shrinker s = {c, o, v, now() + budget};
    try_options(&s);
    for (bool is_smaller = true; is_smaller && now() < s.until;) {
        is_smaller = false;
        for (uint32_t i = c->graph->n_outputs; i > 0; i--) {
            is_smaller = try_change(&s, &(struct change){.output = i}) || is_smaller;
        }
        for (uint32_t i = c->graph->n_updates; i > 0; i--) {
            is_smaller = try_change(&s, &(struct change){.update = i}) || is_smaller;
        }
        for (uint32_t i = c->graph->n_nodes; i-- > 1;) {
            if (i < c->graph->n_nodes && op_info[c->graph->nodes[i].op].kind != LEAF) {
                is_smaller = try_change(&s, &(struct change){.node = i}) || is_smaller;
            }
        }
        try_options(&s);
    }
}
