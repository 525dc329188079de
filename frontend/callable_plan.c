/* What to build for a call that no plan holds for. Sizes that earlier calls of the same trace had
 * otherwise become symbols: dims that always went together share one, the sizes that ops spell must
 * follow from them, and 0 and 1 stay numbers, for they broadcast and vanish. The trace is then
 * replayed with symbolic leaf dims through shape inference; an op that cannot take a symbol makes
 * its dim a number again (or a multiple), and is named as the reason. Invariant: the guards of an
 * entry hold for exactly the calls whose trace its graph is, sizes put in. */
#include "callable_plan.h"

#include <inttypes.h>
#include <string.h>

/* ---- which sizes changed ---- */

static bool is_dim_slot(const struct planning *p, uint32_t slot)
{
    uint32_t at = slot % FACTS_A_LEAF;
    return slot < p->first_size && at >= FACT_DIM &&
           at - FACT_DIM < (uint32_t)p->en->facts[slot - at + FACT_RANK];
}

static bool has_changed(const struct planning *p, uint32_t slot)
{
    for (uint32_t i = 0; i < p->n_seen; i++) {
        if (p->seen[i]->facts[slot] != p->en->facts[slot]) {
            return true;
        }
    }
    return false;
}

static bool go_together(const struct planning *p, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < p->n_seen; i++) {
        if (p->seen[i]->facts[a] != p->seen[i]->facts[b]) {
            return false;
        }
    }
    return p->en->facts[a] == p->en->facts[b];
}

static void group_slot(struct planning *p, uint32_t slot)
{
    int64_t now = p->en->facts[slot];
    for (uint32_t i = 0; i < p->n_groups; i++) {
        if (go_together(p, p->groups[i].leader, slot)) {
            p->group_of[slot] = i + 1;
            return;
        }
    }
    if (p->n_groups + 1 < MAX_SYMBOLS) { /* more than that stay numbers */
        p->groups[p->n_groups] = (struct group_of_dims){
            .leader = slot, .now = now, .is_number = now == 0 || now == 1, .factor = 1};
        p->group_of[slot] = ++p->n_groups;
    }
}

static void find_groups(struct planning *p)
{
    for (uint32_t slot = 0; slot < p->first_size; slot++) {
        if (is_dim_slot(p, slot) && has_changed(p, slot)) {
            group_slot(p, slot);
        }
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        struct group_of_dims *g = &p->groups[i];
        if (g->is_number) {
            g->remark = arena_text(
                &p->en->arena,
                "%s is %" PRId64 ": sizes 0 and 1 have a plan of their own each (they vanish and "
                "broadcast)",
                slot_subject(p->en->traced, p->en->leaves, p->en->n_leaves, g->leader, p->arena),
                g->now);
        }
    }
}

/* ---- sizes that ops spell ---- */

static int64_t value_of(const struct planning *p, const int64_t *facts, uint32_t group)
{
    return facts[p->groups[group].leader];
}

/* Whether value = low / high * product of the groups, at every call seen and at this one. */
static bool fits_all(const struct planning *p, uint32_t slot, const struct spelt *s)
{
    for (uint32_t i = 0; i <= p->n_seen; i++) {
        const int64_t *facts = i < p->n_seen ? p->seen[i]->facts : p->en->facts;
        int64_t right = s->low, left;
        for (uint32_t k = 0; k < s->n; k++) {
            if (__builtin_mul_overflow(right, value_of(p, facts, s->groups[k]), &right)) {
                return false;
            }
        }
        if (__builtin_mul_overflow(facts[slot], s->high, &left) || left != right) {
            return false;
        }
    }
    return true;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Factor from a call at which nothing vanishes, then held against all. */
static bool follows(const struct planning *p, uint32_t slot, struct spelt *s)
{
    for (uint32_t i = 0; i <= p->n_seen; i++) {
        const int64_t *facts = i < p->n_seen ? p->seen[i]->facts : p->en->facts;
        int64_t product = 1;
        bool fits = facts[slot] > 0;
        for (uint32_t k = 0; k < s->n; k++) {
            fits = fits &&
                   !__builtin_mul_overflow(product, value_of(p, facts, s->groups[k]), &product);
        }
        if (fits && product > 0) {
            int64_t common = gcd(facts[slot], product);
            s->low = facts[slot] / common;
            s->high = product / common;
            return fits_all(p, slot, s);
        }
    }
    return false;
}

static void find_spelt(struct planning *p, uint32_t slot)
{
    struct spelt *s = &p->spelt[slot - p->first_size];
    *s = (struct spelt){.low = p->en->facts[slot], .high = 1};
    if (!has_changed(p, slot)) {
        return;
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        struct spelt one = {.n = 1, .groups = {i}};
        if (follows(p, slot, &one)) {
            *s = one;
            return;
        }
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        for (uint32_t k = i; k < p->n_groups; k++) {
            struct spelt two = {.n = 2, .groups = {i, k}};
            if (follows(p, slot, &two)) {
                *s = two;
                return;
            }
        }
    }
}

/* ---- replay ---- */

static struct dim dim_of_group(const struct group_of_dims *g)
{
    struct dim d = dim_symbol(g->symbol);
    d.factor = g->factor;
    return g->is_number ? dim_of(g->now) : d;
}

struct dim dim_of_spelt(const struct planning *p, uint32_t slot)
{
    const struct spelt *s = &p->spelt[slot - p->first_size];
    struct dim d = dim_of(s->low);
    bool ok = true;
    for (uint32_t k = 0; k < s->n; k++) {
        ok = ok && dim_multiply(d, dim_of_group(&p->groups[s->groups[k]]), &d);
    }
    if (!ok || d.factor % s->high != 0) {
        return dim_of(p->en->facts[slot]);
    }
    d.factor /= s->high;
    return d;
}

/* The name given, else "dim0_of_x". */
static const char *name_symbol(const struct planning *p, const struct group_of_dims *g)
{
    uint32_t leaf = g->leader / FACTS_A_LEAF, axis = g->leader % FACTS_A_LEAF - FACT_DIM;
    const struct trace_leaf *l = &p->en->leaves[leaf];
    const char *given = l->dim_names != NULL ? l->dim_names[axis] : NULL;
    for (uint32_t i = 1; given != NULL && i < p->graph->n_symbols; i++) {
        given = strcmp(p->graph->symbols[i].name, given) == 0 ? NULL : given;
    }
    if (given != NULL) {
        return given;
    }
    char *name = arena_text(p->arena, "dim%" PRIu32 "_of_%s", axis, l->name);
    for (char *c = name; *c != '\0'; c++) {
        bool is_word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' ||
                       (*c >= '0' && *c <= '9');
        *c = is_word ? *c : '_';
    }
    for (uint32_t i = 1; i < p->graph->n_symbols; i++) {
        if (strcmp(p->graph->symbols[i].name, name) == 0) { /* a slot is one symbol's at most */
            return arena_text(p->arena, "%s_%" PRIu32, name, g->leader);
        }
    }
    return name;
}

static void declare_symbols(struct planning *p)
{
    for (uint32_t i = 0; i < p->n_groups; i++) {
        struct group_of_dims *g = &p->groups[i];
        if (!g->is_number) {
            g->symbol = graph_symbol(p->graph, name_symbol(p, g));
            p->graph->symbols[g->symbol].low = 2;
        }
    }
}

static void symbolic_attrs(const struct planning *p, const struct node *n, uint32_t *leaf,
                           uint32_t *size, struct attr *out)
{
    memcpy(out, n->attrs, n->n_attrs * sizeof *out);
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        for (uint32_t d = 0; out[i].kind == ATTR_DIMS && d < out[i].dims.rank; d++) {
            uint32_t slot = node_is_leaf(n) ? *leaf * FACTS_A_LEAF + FACT_DIM + d : (*size)++;
            if (!node_is_leaf(n)) {
                out[i].dims.dims[d] = dim_of_spelt(p, slot);
            } else if (p->group_of[slot] != 0) {
                out[i].dims.dims[d] = dim_of_group(&p->groups[p->group_of[slot] - 1]);
            }
        }
    }
    *leaf += node_is_leaf(n);
}

/* false: the node `culprit` does not take its operands. Out of memory leaves by longjmp: the graph
 * is scratch until it is kept. */
static bool replay(struct planning *p)
{
    const struct graph *g = p->en->traced;
    value *map = ARENA_ARRAY(p->arena, value, g->n_nodes);
    uint32_t leaf = 0, size = p->first_size;
    p->graph = graph_temporary(g); /* the trace has no symbols */
    declare_symbols(p);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct node n = g->nodes[i];
        value operands[VARIADIC];
        struct attr attrs[MAX_ATTRS];
        for (uint32_t k = 0; k < n.n_operands; k++) {
            operands[k] = map[n.operands[k].id];
        }
        symbolic_attrs(p, &n, &leaf, &size, attrs);
        n.attrs = attrs;
        map[i] = graph_copy(p->graph, &n, operands);
        if (map[i].id == 0) {
            p->culprit = i;
            p->refusal = p->graph->error;
            return false;
        }
    }
    graph_finish(p->graph, g, map);
    p->culprit = 0;
    p->refusal = p->graph->error;
    return p->graph->error.code == ATOLL_OK;
}

/* ---- what an op cannot take ---- */

static bool has_symbol(const struct shape *s, uint8_t symbol)
{
    for (uint32_t i = 0; i < s->rank; i++) {
        if (memchr(s->dims[i].symbols, symbol, MAX_DIM_SYMBOLS) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether the node that refused may have done so because of the symbol: it is in the axis that a
 * slice, concat or pad works along, or anywhere in its operands or attributes for other ops. */
static bool is_involved(const struct planning *p, const struct node *n, uint8_t symbol)
{
    /* the replay added the nodes before the culprit one for one */
    bool has_axis = n->op == OP_slice || n->op == OP_concat || n->op == OP_pad;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        struct shape s = p->graph->nodes[n->operands[k].id].shape;
        if (has_axis && s.rank > 0) {
            int64_t axis = node_int(n, "axis");
            s.dims[0] = s.dims[axis < 0 ? axis + s.rank : axis];
            s.rank = 1;
        }
        if (has_symbol(&s, symbol)) {
            return true;
        }
    }
    return false;
}

/* The dim as 2, 3, ... times a symbol, when all sizes seen are such multiples. 0: no more. */
static int64_t next_factor(const struct planning *p, const struct group_of_dims *g)
{
    int64_t common = g->now;
    for (uint32_t i = 0; i < p->n_seen; i++) {
        int64_t v = p->seen[i]->facts[g->leader];
        common = v > 1 ? gcd(common, v) : common; /* 0 and 1 have plans of their own */
    }
    for (int64_t f = g->factor + 1; f <= common && f <= 4096; f++) {
        if (common % f == 0 && g->now / f >= 2) {
            return f;
        }
    }
    return 0;
}

const char *planning_op(const struct planning *p, const struct node *n)
{
    return arena_text(&p->en->arena, "%s%s%s", op_info[n->op].name, n->name != NULL ? " %" : "",
                      n->name != NULL ? n->name : "");
}

/* Makes less of the groups involved in the refusal symbolic. false: there are none. */
static bool give_in(struct planning *p)
{
    const struct graph *g = p->en->traced;
    const struct node *n = &g->nodes[p->culprit];
    bool is_whole = true, any = false; /* an update, or sizes spelt: every symbol is suspect */
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct group_of_dims *d = &p->groups[i];
        is_whole = is_whole && (d->is_number || p->culprit == 0 || !is_involved(p, n, d->symbol));
    }
    bool may_divide = !is_whole && n->op == OP_reshape;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        struct group_of_dims *d = &p->groups[i];
        if (d->is_number || !(is_whole || is_involved(p, n, d->symbol))) {
            continue;
        }
        int64_t factor = may_divide ? next_factor(p, d) : 0;
        const char *subject = slot_subject(g, p->en->leaves, p->en->n_leaves, d->leader, p->arena);
        const char *op = p->culprit == 0 ? "an update" : planning_op(p, n);
        any = true;
        d->where = n->location;
        d->factor = factor != 0 ? factor : 1;
        d->is_number = factor == 0;
        d->remark = factor != 0 ? arena_text(&p->en->arena, "%s must divide %s by %" PRId64, op,
                                             subject, factor)
                                : arena_text(&p->en->arena,
                                             "%s needs the size of %s as a number, so each size "
                                             "gets its own plan",
                                             op, subject);
    }
    return any;
}

/* ---- all of it ---- */

static void take_remarks(struct planning *p)
{
    struct entry *en = p->en;
    en->remarks = ARENA_ARRAY(&en->arena, const char *, p->n_groups + 1);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        if (p->groups[i].remark != NULL) {
            en->remarks[en->n_remarks++] = p->groups[i].remark;
        }
    }
}

static void take_symbols(struct planning *p)
{
    struct entry *en = p->en;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct group_of_dims *g = &p->groups[i];
        if (!g->is_number) {
            en->symbols[g->symbol] = (struct entry_symbol){g->leader, g->factor};
            en->is_symbolic = true;
        }
    }
}

static bool same_ranks(const struct entry *a, const struct entry *b)
{
    for (uint32_t i = 0; i < a->n_leaves; i++) {
        if (a->facts[i * FACTS_A_LEAF + FACT_RANK] != b->facts[i * FACTS_A_LEAF + FACT_RANK]) {
            return false;
        }
    }
    return true;
}

/* Earlier entries that were this trace at other sizes, under any key. */
static void find_seen(struct planning *p, struct entry *const *earlier, uint32_t n)
{
    struct entry **seen = ARENA_ARRAY(p->arena, struct entry *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct entry *at = earlier[i];
        if (at != p->en && at->segment == p->en->segment && at->hash == p->en->hash &&
            at->n_leaves == p->en->n_leaves && at->guards.n_facts == p->en->guards.n_facts &&
            same_ranks(at, p->en)) {
            seen[p->n_seen++] = earlier[i];
        }
    }
    p->seen = seen;
}

status plan_entry(struct entry *en, struct entry *const *earlier, uint32_t n_earlier,
                  bool is_static, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    uint32_t n_facts = en->guards.n_facts;
    struct planning p = {.en = en, .arena = &scratch, .first_size = en->n_leaves * FACTS_A_LEAF};
    p.group_of = ARENA_ARRAY(&scratch, uint32_t, p.first_size + 1);
    p.spelt = ARENA_ARRAY(&scratch, struct spelt, n_facts - p.first_size + 1);
    if (!is_static) {
        find_seen(&p, earlier, n_earlier);
        find_groups(&p);
    }
    for (uint32_t slot = p.first_size; slot < n_facts; slot++) {
        find_spelt(&p, slot);
    }
    bool is_done = replay(&p);
    while (!is_done && give_in(&p)) {
        graph_destroy(p.graph);
        is_done = replay(&p);
    }
    status code = is_done ? ATOLL_OK : fail(e, p.refusal.code, "%s", p.refusal.text);
    if (is_done) {
        take_remarks(&p);
        take_symbols(&p);
        write_guards(&p, n_facts);
    }
    if (is_done && en->is_symbolic) {
        en->graph = graph_keep(p.graph);
    } else {
        graph_destroy(p.graph);
        en->graph = en->traced;
    }
    arena_free(&scratch);
    return code;
}
