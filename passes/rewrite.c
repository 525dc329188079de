/* The sweep that every rewriting pass shares. Liveness first, so that a rule never sees a dead
 * node; then one loop in order. Invariant: map[i] is 0 only for dead nodes (or after an error). */
#include "pass.h"

#include <stdio.h>

void note_add(struct notes *notes, const char *pass, const char *node, const char *format, ...)
{
    va_list args;
    char text[1000];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (notes == NULL) {
        return;
    }
    notes->items =
        arena_grow(&notes->arena, notes->items, notes->n, &notes->capacity, sizeof *notes->items);
    notes->items[notes->n++] = (struct note){.pass = arena_copy_text(&notes->arena, pass),
                                             .node = arena_copy_text(&notes->arena, node),
                                             .text = arena_copy_text(&notes->arena, text)};
}

static bool *live_nodes(const struct graph *g, struct arena *scratch)
{
    bool *is_live = ARENA_ARRAY(scratch, bool, g->n_nodes);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        is_live[g->outputs[i].value.id] = true;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        is_live[g->updates[i].next.id] = true;
        is_live[g->updates[i].leaf.id] = true;
    }
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) {
        const struct node *n = &g->nodes[i];
        is_live[i] = is_live[i] || (n->op >= OP_input && n->op <= OP_scalar);
        for (uint32_t k = 0; is_live[i] && k < n->n_operands; k++) {
            is_live[n->operands[k].id] = true;
        }
    }
    return is_live;
}

status rewrite(const struct graph *in, struct graph *out, rewrite_rule *rule, void *context,
               value *map_out)
{
    struct arena scratch = SCRATCH_ARENA;
    const bool *is_live = live_nodes(in, &scratch);
    value *map = map_out != NULL ? map_out : ARENA_ARRAY(&scratch, value, in->n_nodes);
    for (uint32_t i = 1; i < in->n_nodes && out->error.code == ATOLL_OK; i++) {
        const struct node *n = &in->nodes[i];
        value operands[VARIADIC];
        if (!is_live[i]) {
            continue;
        }
        for (uint32_t k = 0; k < n->n_operands; k++) {
            operands[k] = map[n->operands[k].id];
        }
        out->origin_name = arena_copy_text(&out->arena, n->name);
        out->origin = n->location;
        out->origin.file = arena_copy_text(&out->arena, n->location.file);
        out->origin_island = n->island;
        map[i] = rule == NULL ? (value){0} : rule(out, in, (value){i}, operands, context);
        if (map[i].id == 0) {
            map[i] = graph_copy(out, n, operands);
        }
    }
    out->origin_name = NULL;
    out->origin = (struct location){0};
    out->origin_island = 0;
    graph_finish(out, in, map);
    arena_free(&scratch);
    return out->error.code;
}
