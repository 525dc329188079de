/* The guards of a planned entry: every fact is held by one, each with what introduced it. */
#include "callable_plan.h"

struct writing {
    struct planning *p;
    struct guard *guards;
    uint32_t n;
};

static struct guard *add_guard(struct writing *w, enum guard_kind kind, uint32_t slot, int64_t low)
{
    const struct entry *en = w->p->en;
    struct arena *a = &w->p->en->arena;
    struct guard *g = &w->guards[w->n++];
    *g = (struct guard){.kind = kind, .slot = slot, .low = low, .high = INT64_MAX};
    g->source.subject = slot_subject(en->traced, en->leaves, en->n_leaves, slot, a);
    struct location where;
    if (slot < w->p->first_size) {
        const struct trace_leaf *l = &en->leaves[slot / FACTS_A_LEAF];
        g->source.why = leaf_origin(en->traced, l, a);
        where = l->location;
    } else {
        uint32_t index;
        const struct node *n =
            graph_node(en->traced, slot_node(en->traced, en->n_leaves, slot, &index));
        g->source.why = arena_text(a, "%s spells it", planning_op(w->p, n));
        where = n->location;
    }
    g->source.file = arena_copy_text(a, where.file);
    g->source.line = where.line;
    return g;
}

static void explain_guard(struct guard *g, const struct group_of_dims *d, struct arena *a)
{
    if (d->remark != NULL) {
        g->source.why = d->remark;
        if (d->where.file != NULL) {
            g->source.file = arena_copy_text(a, d->where.file);
            g->source.line = d->where.line;
        }
    }
}

static void guard_dim(struct writing *w, uint32_t slot)
{
    struct planning *p = w->p;
    struct arena *a = &p->en->arena;
    struct group_of_dims *d = p->group_of[slot] != 0 ? &p->groups[p->group_of[slot] - 1] : NULL;
    if (d == NULL || d->is_number) {
        struct guard *g = add_guard(w, GUARD_DIM, slot, p->en->facts[slot]);
        if (d != NULL) {
            explain_guard(g, d, a);
        }
        return;
    }
    if (slot != d->leader) {
        struct guard *g = add_guard(w, GUARD_DIM_SAME, slot, 0);
        g->n_others = 1;
        g->others[0] = d->leader;
        g->source.why = arena_text(a, "they were equal at every call");
        return;
    }
    add_guard(w, GUARD_DIM_RANGE, slot, 2 * d->factor);
    if (d->factor > 1) {
        explain_guard(add_guard(w, GUARD_DIM_DIVISIBLE, slot, d->factor), d, a);
    }
}

static void guard_size(struct writing *w, uint32_t slot)
{
    const struct planning *p = w->p;
    const struct spelt *s = &p->spelt[slot - p->first_size];
    struct dim d = dim_of_spelt(p, slot);
    bool is_number = dim_is_static(d);
    struct guard *g = add_guard(w, GUARD_SIZE, slot, is_number ? d.factor : s->low);
    g->high = is_number ? 1 : s->high;
    for (uint32_t k = 0; !is_number && k < s->n; k++) {
        g->others[g->n_others++] = p->groups[s->groups[k]].leader;
    }
}

void write_guards(struct planning *p, uint32_t n_facts)
{
    struct entry *en = p->en;
    struct writing w = {.p = p};
    w.guards = ARENA_ARRAY(&en->arena, struct guard,
                           en->n_leaves * (FACT_DIM + 2 * MAX_RANK) + n_facts - p->first_size + 1);
    static const enum guard_kind kinds[] = {GUARD_DTYPE, GUARD_DEVICE, GUARD_RANK};
    for (uint32_t i = 0; i < en->n_leaves; i++) {
        uint32_t first = i * FACTS_A_LEAF;
        for (uint32_t k = 0; k < ARRAY_LEN(kinds); k++) {
            add_guard(&w, kinds[k], first + k, en->facts[first + k]);
        }
        for (uint32_t d = 0; d < (uint32_t)en->facts[first + FACT_RANK]; d++) {
            guard_dim(&w, first + FACT_DIM + d);
        }
    }
    for (uint32_t slot = p->first_size; slot < n_facts; slot++) {
        guard_size(&w, slot);
    }
    en->guards = (struct guard_set){w.n, n_facts, w.guards};
}
