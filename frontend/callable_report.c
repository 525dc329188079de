/* What the ledger keeps of a plan: its guards, and for the page its graph with dtypes and islands,
 * its fusion groups with why neighbours are apart, its kernels' source, and the bytes alive as each
 * group runs. All of it text, for the plan may be gone when it is read. */
#include <stdio.h>
#include <string.h>

#include "callable_internal.h"

void build_report_of(struct build_report *report, const struct compiled *c)
{
    bool is_cuda = c->cuda.n_units > 0;
    uint32_t n = is_cuda ? c->cuda.n_kernels : c->n_kernels;
    bool is_loaded =
        is_cuda ? c->cuda.n_cached == c->cuda.n_units * c->cuda.n_archs : c->is_from_cache;
    report->seconds = c->seconds_passes + c->seconds_compiler + c->cuda.seconds;
    report->kernels_built = is_loaded ? 0 : n;
    report->kernels_loaded = is_loaded ? n : 0;
    report->compiled = c;
}

static void describe_guards(struct ledger_entry *out, const struct entry *en, struct arena *a)
{
    out->n_guards = en->guards.n;
    out->guards = ARENA_ARRAY(a, struct ledger_guard, en->guards.n + N_KEY_PARTS + 1);
    for (uint32_t i = 0; i < en->guards.n; i++) {
        const struct guard *g = &en->guards.guards[i];
        out->guards[i] = (struct ledger_guard){.kind = g->kind,
                                               .subject = g->source.subject,
                                               .expects = guard_expects(&en->guards, g, NULL, a),
                                               .why = g->source.why,
                                               .file = g->source.file,
                                               .line = g->source.line};
    }
    static const enum guard_kind kinds[N_KEY_PARTS] = {
        GUARD_POLICY,       GUARD_ROUNDING, GUARD_GRAD,      GUARD_RUNS_ON,
        GUARD_ARCHITECTURE, GUARD_COMPILER, GUARD_LIBRARIES, GUARD_VERSION};
    for (uint32_t i = 0; i < N_KEY_PARTS; i++) {
        out->guards[out->n_guards++] = (struct ledger_guard){.kind = kinds[i],
                                                             .subject = guard_kinds[kinds[i]].name,
                                                             .expects = en->key.texts[i],
                                                             .why = "part of every key"};
    }
}

static const char *title(const struct entry *en, struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 1; i < en->graph->n_nodes; i++) {
        if (en->graph->nodes[i].op == OP_input) {
            text_add(&t, "%s%s %s", t.data != NULL ? ", " : "", en->graph->nodes[i].name,
                     graph_type(en->graph, (value){i}, a));
        }
    }
    for (uint32_t i = 1; i < en->graph->n_symbols; i++) {
        const struct symbol *s = &en->graph->symbols[i];
        text_add(&t, "%s%s >= %lld", i > 1 ? ", " : "; ", s->name, (long long)s->low);
    }
    return t.data != NULL ? t.data : "no arguments";
}

/* ---- the graph ---- */

static void describe_nodes(struct ledger_entry *out, const struct graph *g, struct arena *a)
{
    out->nodes = ARENA_ARRAY(a, struct ledger_node, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        struct text operands = {.arena = a};
        for (uint32_t k = 0; k < n->n_operands; k++) {
            const struct node *o = graph_node(g, n->operands[k]);
            text_add(&operands, "%s", k > 0 ? ", " : "");
            if (o->op == OP_constant) {
                text_add(&operands, "%.9g", node_float(o, "value"));
            } else {
                text_add(&operands, "%s", graph_name(g, n->operands[k], a));
            }
        }
        if (n->op == OP_constant) {
            continue;
        }
        out->nodes[out->n_nodes++] = (struct ledger_node){.name = graph_name(g, (value){i}, a),
                                                          .op = op_info[n->op].name,
                                                          .type = graph_type(g, (value){i}, a),
                                                          .operands = operands.data,
                                                          .file = n->location.file,
                                                          .line = n->location.line,
                                                          .island = n->island};
    }
}

static const char *notes_of(const struct notes *notes, const char *pass, struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 0; i < notes->n; i++) {
        const struct note *n = &notes->items[i];
        if (strcmp(n->pass, pass) == 0) {
            text_add(&t, "%s%s%s\n", n->node, n->node[0] != '\0' ? ": " : "", n->text);
        }
    }
    return t.data;
}

/* ---- groups ---- */

/* Bytes of a value at the sizes of the call that built the plan. */
static uint64_t bytes_of(const struct graph *g, value v, const int64_t *symbols)
{
    const struct node *n = graph_node(g, v);
    int64_t count = shape_count_value(&n->shape, symbols);
    return count > 0 ? (uint64_t)count * dtype_info[n->dtype].bytes : 0;
}

static void live_bytes(uint64_t *by_group, const struct compiled *c, const int64_t *symbols,
                       struct arena *a)
{
    const struct program *p = &c->program;
    uint64_t *change =
        ARENA_ARRAY(a, uint64_t, p->n_launches + 2); /* wraps: a sum of differences */
    for (uint32_t i = 1; i < c->primitive->n_nodes; i++) {
        bool is_own = p->root[i].id == i && !node_is_leaf(&c->primitive->nodes[i]);
        if (is_own && p->first_use[i] < p->n_launches && p->last_use[i] != UINT32_MAX) {
            uint64_t bytes = bytes_of(c->primitive, (value){i}, symbols);
            uint32_t last = p->last_use[i] < p->n_launches ? p->last_use[i] : p->n_launches - 1;
            change[p->first_use[i]] += bytes;
            change[last + 1] -= bytes;
        }
    }
    uint64_t now = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        now += change[i];
        by_group[p->launches[i].group] = now;
    }
}

/* Notes of fuse say "groups 2 and 5: reason": they go to the later group. */
static const char *why_apart(const struct notes *notes, uint32_t group, struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 0; i < notes->n; i++) {
        const struct note *n = &notes->items[i];
        unsigned from, to;
        int at = 0;
        if (strcmp(n->pass, "fuse") == 0 &&
            sscanf(n->text, "groups %u and %u: %n", &from, &to, &at) == 2 && at > 0 &&
            to == group) {
            text_add(&t, "%s of group %u: %s\n", n->node, from, n->text + at);
        }
    }
    return t.data;
}

static void describe_groups(struct ledger_entry *out, const struct compiled *c,
                            const int64_t *symbols, struct arena *a)
{
    static const char *const kinds[] = {"rows", "columns", "contraction", "single"};
    const struct partition *p = &c->partition;
    uint64_t *live = ARENA_ARRAY(a, uint64_t, p->n_groups + 1);
    out->groups = ARENA_ARRAY(a, struct ledger_group, p->n_groups + 1);
    out->n_groups = p->n_groups;
    if (p->n_groups > 0) {
        live_bytes(live, c, symbols, a);
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        struct text members = {.arena = a};
        for (uint32_t m = 0; m < p->groups[i].n_members; m++) {
            const struct node *n = graph_node(c->primitive, p->groups[i].members[m]);
            text_add(&members, "%s%s%s%s", m > 0 ? ", " : "", op_info[n->op].name,
                     n->name != NULL ? " %" : "", n->name != NULL ? n->name : "");
        }
        out->groups[i] =
            (struct ledger_group){.kind = kinds[p->groups[i].kind],
                                  .kernel = c->symbols[i] != NULL ? c->symbols[i] : "library",
                                  .members = members.data,
                                  .why_apart = why_apart(&c->notes, i, a),
                                  .live_bytes = live[i]};
    }
}

/* A named node of the step stands in the group of the last primitive that bears its name. */
static void place_nodes(struct ledger_entry *out, const struct compiled *c, struct arena *a)
{
    for (uint32_t i = c->primitive->n_nodes - 1; i > 0; i--) {
        const struct node *n = &c->primitive->nodes[i];
        uint32_t group = c->partition.group_of[i];
        if (n->name == NULL || group == 0) {
            continue;
        }
        const char *name = graph_name(c->primitive, (value){i}, a);
        for (uint32_t k = 0; k < out->n_nodes; k++) {
            if (out->nodes[k].group == 0 && strcmp(out->nodes[k].name, name) == 0) {
                out->nodes[k].group = group;
            }
        }
    }
}

void describe_entry(struct ledger_entry *out, const struct entry *en,
                    const struct build_report *report, bool with_plan, struct arena *a)
{
    const struct compiled *c = report->compiled;
    int64_t symbols[MAX_SYMBOLS] = {0};
    for (uint32_t i = 1; i < en->graph->n_symbols; i++) {
        const struct entry_symbol *s = &en->symbols[i];
        symbols[i] = s->divisor != 0 ? en->facts[s->slot] / s->divisor : 0;
    }
    *out = (struct ledger_entry){.number = en->number,
                                 .segment = en->segment,
                                 .call = en->call,
                                 .is_symbolic = en->is_symbolic,
                                 .title = title(en, a),
                                 .policy = en->key.texts[KEY_POLICY],
                                 .rounding = en->key.texts[KEY_ROUNDING],
                                 .seconds = report->seconds,
                                 .kernels_built = report->kernels_built,
                                 .kernels_loaded = report->kernels_loaded,
                                 .peak_bytes = report->peak_bytes,
                                 .leaf_bytes = report->leaf_bytes};
    describe_guards(out, en, a);
    if (c == NULL || !with_plan) {
        return;
    }
    out->cache = c->cache_miss;
    out->source = c->source.data;
    out->islands = notes_of(&c->notes, "islands", a);
    describe_nodes(out, c->step != NULL ? c->step : c->primitive, a);
    if (c->partition.n_groups > 0) {
        describe_groups(out, c, symbols, a);
        place_nodes(out, c, a);
    }
}
