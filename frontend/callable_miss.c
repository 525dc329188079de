/* Why a call found no plan: every guard that fails, of every plan there is, with what was expected,
 * what was found and where that came from; and what to do about it. Runs on a miss only. */
#include "callable_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_REASONS = 4096, MAX_ADVICE = 64, MAX_VALUES = 4 };

struct miss {
    struct ledger_event *event;
    const struct trace *t;
    struct entry *const *entries;
    uint32_t n_entries;
    const struct entry *built;
    struct arena *a;
    uint32_t reason_capacity;
    uint64_t rank; /* of the entry under way: how far it is from the call */
};

static const char *place(const char *what, struct location l, struct arena *a)
{
    return l.file != NULL ? arena_text(a, "%s at %s:%" PRIu32, what, l.file, l.line)
                          : arena_copy_text(a, what);
}

static void add_reason(struct miss *m, const struct entry *en, enum guard_kind kind,
                       const char *subject, const char *expected, const char *found,
                       const char *origin, struct location where)
{
    struct ledger_event *v = m->event;
    if (v->n_reasons == MAX_REASONS) {
        return;
    }
    v->reasons =
        arena_grow(m->a, v->reasons, v->n_reasons, &m->reason_capacity, sizeof *v->reasons);
    v->reasons[v->n_reasons++] =
        (struct ledger_reason){.entry = en->number,
                               .kind = kind,
                               .subject = subject,
                               .expected = expected,
                               .found = found,
                               .origin = origin,
                               .file = where.file != NULL ? where.file : "",
                               .line = where.line};
}

/* ---- the key ---- */

static const enum guard_kind key_kinds[N_KEY_PARTS] = {
    GUARD_POLICY,       GUARD_ROUNDING, GUARD_GRAD,      GUARD_RUNS_ON,
    GUARD_ARCHITECTURE, GUARD_COMPILER, GUARD_LIBRARIES, GUARD_VERSION};

/* Names of `a` that `b` lacks. */
static void compare_gradients(struct miss *m, const struct entry *en, const char *a, const char *b,
                              const char *was, const char *is)
{
    for (const char *p = a; *p != '\0';) {
        size_t n = strcspn(p, ",");
        const char *name = arena_text(m->a, "%.*s", (int)n, p);
        if (!list_has(b, name)) {
            add_reason(m, en, GUARD_GRAD, arena_text(m->a, "gradient of %s", name), was, is,
                       "the options of the call", (struct location){0});
        }
        p += n + (p[n] == ',');
    }
}

static void compare_keys(struct miss *m, const struct entry *en)
{
    const struct key *a = &en->key, *b = m->t->key;
    uint32_t n = m->event->n_reasons;
    for (uint32_t i = 0; i < N_KEY_PARTS; i++) {
        if (i == KEY_GRAD && a->gradients != NULL && b->gradients != NULL) {
            compare_gradients(m, en, a->gradients, b->gradients, "wanted", "not wanted");
            compare_gradients(m, en, b->gradients, a->gradients, "not wanted", "wanted");
        } else if (a->hashes[i] != b->hashes[i]) {
            bool is_named = strcmp(a->texts[i], b->texts[i]) != 0;
            add_reason(m, en, key_kinds[i], guard_kinds[key_kinds[i]].name, a->texts[i],
                       is_named ? b->texts[i] : arena_text(m->a, "%s, otherwise set", b->texts[i]),
                       "the options of the call", (struct location){0});
        }
    }
    if (a->hash != b->hash && m->event->n_reasons == n) {
        add_reason(m, en, GUARD_GRAD, "how it runs", "as it was built", "another way",
                   "the options of the call", (struct location){0});
    }
}

/* ---- the trace ---- */

static const char *node_words(const struct graph *g, const struct node *n, struct arena *a)
{
    struct text t = {.arena = a};
    text_add(&t, "%s(", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        text_add(&t, "%s%s", i > 0 ? ", " : "", graph_name(g, n->operands[i], a));
    }
    text_add(&t, ")");
    return place(t.data, n->location, a);
}

static const char *attr_words(const struct attr *p, struct arena *a)
{
    struct text t = {.arena = a};
    switch (p->kind) {
    case ATTR_INT:
        return arena_text(a, "%" PRId64, p->i);
    case ATTR_BOOL:
        return p->i != 0 ? "true" : "false";
    case ATTR_FLOAT:
        for (int digits = 6; digits <= 17; digits++) { /* the shortest that reads back */
            double back = 0;
            text_add(&t, "%.*g", digits, p->f);
            if (sscanf(t.data, "%lf", &back) == 1 && back == p->f) {
                break;
            }
            t.length = digits < 17 ? 0 : t.length;
        }
        return t.data;
    case ATTR_INTS:
        for (uint32_t i = 0; i < p->n_ints; i++) {
            text_add(&t, "%s%" PRId64, i > 0 ? "," : "", p->ints[i]);
        }
        return t.data != NULL ? t.data : "none";
    case ATTR_DTYPE:
        return dtype_info[p->dtype].name;
    default:
        return p->text;
    }
}

/* Sizes are compared as guards, elsewhere. */
static bool same_attr(const struct attr *a, const struct attr *b)
{
    return a->kind == ATTR_DIMS ? a->dims.rank == b->dims.rank : attr_equal(a, b);
}

static void compare_attrs(struct miss *m, const struct entry *en, const struct node *a,
                          const struct node *b)
{
    for (uint32_t i = 0; i < a->n_attrs; i++) {
        if (same_attr(&a->attrs[i], &b->attrs[i])) {
            continue;
        }
        bool is_constant = a->op == OP_constant && strcmp(a->attrs[i].name, "value") == 0;
        const char *what =
            is_constant
                ? "constant"
                : arena_text(m->a, "attribute %s of %s%s%s", a->attrs[i].name, op_info[a->op].name,
                             b->name != NULL ? " %" : "", b->name != NULL ? b->name : "");
        add_reason(m, en, is_constant ? GUARD_CONSTANT : GUARD_ATTRIBUTE, what,
                   attr_words(&a->attrs[i], m->a), attr_words(&b->attrs[i], m->a),
                   place(what, b->location, m->a), b->location);
    }
}

static bool same_wiring(const struct node *a, const struct node *b)
{
    bool same = a->op == b->op && a->n_operands == b->n_operands && a->n_attrs == b->n_attrs;
    for (uint32_t i = 0; same && i < a->n_operands; i++) {
        same = a->operands[i].id == b->operands[i].id;
    }
    return same;
}

static void compare_ends(struct miss *m, const struct entry *en)
{
    const struct graph *a = en->traced, *b = m->t->graph;
    bool same = a->n_outputs == b->n_outputs && a->n_updates == b->n_updates;
    for (uint32_t i = 0; same && i < a->n_outputs; i++) {
        same = a->outputs[i].value.id == b->outputs[i].value.id &&
               strcmp(a->outputs[i].name, b->outputs[i].name) == 0;
    }
    for (uint32_t i = 0; same && i < a->n_updates; i++) {
        same = a->updates[i].leaf.id == b->updates[i].leaf.id &&
               a->updates[i].next.id == b->updates[i].next.id;
    }
    if (!same) {
        add_reason(m, en, GUARD_TRACE, "what it returns",
                   arena_text(m->a, "%" PRIu32 " outputs, %" PRIu32 " updates", a->n_outputs,
                              a->n_updates),
                   arena_text(m->a,
                              "%" PRIu32 " outputs, %" PRIu32 " updates: other values or names",
                              b->n_outputs, b->n_updates),
                   "the end of the trace", (struct location){0});
    }
}

/* Up to the first op that is another: behind it everything is. false: the traces part. */
static bool compare_traces(struct miss *m, const struct entry *en)
{
    const struct graph *a = en->traced, *b = m->t->graph;
    for (uint32_t i = 1; i < a->n_nodes && i < b->n_nodes; i++) {
        const struct node *p = &a->nodes[i], *q = &b->nodes[i];
        if (!same_wiring(p, q)) {
            add_reason(m, en, GUARD_TRACE, arena_text(m->a, "op %" PRIu32 " of the trace", i),
                       node_words(a, p, m->a), node_words(b, q, m->a),
                       place(op_info[q->op].name, q->location, m->a), q->location);
            return false;
        }
        if (!node_is_leaf(p)) {
            compare_attrs(m, en, p, q);
        }
    }
    if (a->n_nodes != b->n_nodes) {
        bool is_longer = b->n_nodes > a->n_nodes;
        const struct node *q = &b->nodes[is_longer ? a->n_nodes : b->n_nodes - 1];
        add_reason(m, en, GUARD_TRACE, "length of the trace",
                   arena_text(m->a, "%" PRIu32 " ops", a->n_nodes - 1),
                   arena_text(m->a, "%" PRIu32 " ops", b->n_nodes - 1),
                   place(is_longer ? "the first op more" : "the last op", q->location, m->a),
                   q->location);
        return false;
    }
    compare_ends(m, en);
    return true;
}

static const char *argument_names(const struct graph *g, const struct trace_leaf *l, uint32_t n,
                                  struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 0; i < n; i++) {
        text_add(&t, "%s%s %s", i > 0 ? ", " : "", op_info[graph_node(g, l[i].v)->op].name,
                 l[i].name);
    }
    return t.data != NULL ? t.data : "none";
}

/* Values read on the host before, while the reads are the same ones: what came to be recorded after
 * them may be their doing. */
static void compare_reads(struct miss *m, const struct entry *en)
{
    for (uint32_t i = 0; i < en->n_reads && i < m->t->n_reads; i++) {
        const struct trace_read *a = &en->reads[i], *b = &m->t->reads[i];
        char was[MAX_VALUE_TEXT], is[MAX_VALUE_TEXT];
        if (a->where.line != b->where.line || strcmp(a->where.file, b->where.file) != 0) {
            return;
        }
        ledger_value_text(a->dtype, a->number, was);
        ledger_value_text(b->dtype, b->number, is);
        if (strcmp(was, is) != 0) {
            add_reason(m, en, GUARD_READ, arena_text(m->a, "%s, read on the host", b->name),
                       arena_copy_text(m->a, was), arena_copy_text(m->a, is),
                       place("atoll_item", b->where, m->a), b->where);
        }
    }
}

/* ---- facts ---- */

static void compare_facts(struct miss *m, const struct entry *en, bool with_sizes)
{
    const struct trace *t = m->t;
    const struct guard_set *s = &en->guards;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct guard *g = &s->guards[i];
        uint32_t leaf = g->slot / FACTS_A_LEAF, index;
        bool is_leaf = leaf < t->n_leaves;
        if ((!is_leaf && !with_sizes) || guard_holds(g, t->facts)) {
            continue;
        }
        struct location where;
        const char *origin;
        if (is_leaf) {
            where = t->leaves[leaf].location;
            origin = leaf_origin(t->graph, &t->leaves[leaf], m->a);
        } else {
            value v = slot_node(t->graph, t->n_leaves, g->slot, &index);
            where = graph_node(t->graph, v)->location;
            origin = node_words(t->graph, graph_node(t->graph, v), m->a);
        }
        add_reason(m, en, g->kind, g->source.subject, guard_expects(s, g, t->facts, m->a),
                   guard_found(g, t->facts, m->a), origin, where);
    }
}

static void compare_entry(struct miss *m, const struct entry *en)
{
    uint32_t n = m->event->n_reasons;
    bool has_arguments = same_arguments(en, m->t), is_same_trace = true;
    compare_keys(m, en);
    if (!has_arguments) {
        add_reason(m, en, GUARD_ARGUMENTS, "arguments",
                   argument_names(en->traced, en->leaves, en->n_leaves, m->a),
                   argument_names(m->t->graph, m->t->leaves, m->t->n_leaves, m->a),
                   "the arguments of the call", (struct location){0});
        return;
    }
    if (en->hash != m->t->hash) {
        compare_reads(m, en);
        uint32_t before = m->event->n_reasons;
        is_same_trace = compare_traces(m, en);
        if (m->event->n_reasons == before) {
            add_reason(m, en, GUARD_TRACE, "content of the trace", "as it was",
                       "another content hash", "the trace", (struct location){0});
        }
    }
    compare_facts(m, en, is_same_trace && en->guards.n_facts == m->t->n_facts);
    if (m->event->n_reasons == n && en->state == ENTRY_EVICTED) {
        add_reason(m, en, GUARD_EVICTED, "its plan", "kept", "evicted to make room",
                   "the capacity of the callable", (struct location){0});
    }
}

/* ---- advice ---- */

static void add_advice(struct miss *m, const char *text)
{
    struct ledger_event *v = m->event;
    for (uint32_t i = 0; i < v->n_advice; i++) {
        if (strcmp(v->advice[i], text) == 0) {
            return;
        }
    }
    if (v->n_advice < MAX_ADVICE) {
        v->advice[v->n_advice++] = text;
    }
}

/* "dim 0 of x took 64, then 5". */
static const char *values_seen(const struct miss *m, uint32_t slot, const char *subject)
{
    int64_t values[MAX_VALUES], now = m->t->facts[slot];
    uint32_t n = 0;
    struct text t = {.arena = m->a};
    for (uint32_t i = 0; i < m->n_entries && n < MAX_VALUES; i++) {
        const struct entry *en = m->entries[i];
        int64_t v = en->hash == m->t->hash && slot < en->guards.n_facts ? en->facts[slot] : now;
        bool is_new = v != now;
        for (uint32_t k = 0; k < n; k++) {
            is_new = is_new && values[k] != v;
        }
        if (is_new) {
            values[n++] = v;
        }
    }
    text_add(&t, "%s took ", subject);
    for (uint32_t i = 0; i < n; i++) {
        text_add(&t, "%" PRId64 ", ", values[i]);
    }
    text_add(&t, "then %" PRId64, now);
    return t.data;
}

static void advise_symbols(struct miss *m)
{
    const struct entry *en = m->built;
    for (uint32_t i = 0; en != NULL && en->is_symbolic && i < en->guards.n; i++) {
        const struct guard *g = &en->guards.guards[i];
        if (g->kind == GUARD_DIM_RANGE) {
            bool has_changed = false;
            for (uint32_t k = 0; k < m->n_entries; k++) {
                has_changed =
                    has_changed || (m->entries[k]->hash == m->t->hash &&
                                    m->entries[k]->facts[g->slot] != m->t->facts[g->slot]);
            }
            if (has_changed) {
                add_advice(m, arena_text(m->a,
                                         "%s: it is a symbol from now on, %s, and such sizes "
                                         "compile no more",
                                         values_seen(m, g->slot, g->source.subject),
                                         guard_expects(&en->guards, g, NULL, m->a)));
            }
        }
    }
    for (uint32_t i = 0; en != NULL && i < en->n_remarks; i++) {
        add_advice(m, en->remarks[i]);
    }
}

/* What chose the way, when a host read may have. */
static bool follows_read(const struct miss *m, const struct ledger_reason *r)
{
    for (uint32_t i = 0; i < m->event->n_reasons; i++) {
        const struct ledger_reason *at = &m->event->reasons[i];
        if (at->entry == r->entry && at->kind == GUARD_READ) {
            return true;
        }
    }
    return false;
}

static const char *advice_for(const struct miss *m, const struct ledger_reason *r)
{
    struct location where = {r->file[0] != '\0' ? r->file : NULL, r->line};
    switch (r->kind) {
    case GUARD_CONSTANT:
        return arena_text(m->a,
                          "%s changed %s -> %s: pass it as a scalar (an input), then it may change "
                          "without a recompile",
                          place("constant", where, m->a), r->expected, r->found);
    case GUARD_ATTRIBUTE:
        return arena_text(m->a,
                          "%s changed %s -> %s: an attribute is part of the plan; keep it, or use "
                          "an op that takes it as a value",
                          r->origin, r->expected, r->found);
    case GUARD_TRACE:
        if (follows_read(m, r)) {
            return arena_text(m->a,
                              "after the host read the function took another way (%s): choose by "
                              "atoll's where instead of an if, or read it after the call, as an "
                              "output",
                              r->origin);
        }
        return arena_text(m->a,
                          "the function took another way (%s): choose by atoll's where instead of "
                          "an if, or keep the ways apart in functions of their own",
                          r->origin);
    case GUARD_ARGUMENTS:
        return "call it with the same arguments, or compile a function for each list";
    case GUARD_DTYPE:
        return arena_text(m->a, "%s came as %s, was %s: cast it before the call", r->subject,
                          r->found, r->expected);
    case GUARD_RANK:
        return arena_text(m->a, "%s came with %s dims, was %s: reshape it before the call",
                          r->subject, r->found, r->expected);
    case GUARD_DEVICE:
        return arena_text(m->a, "%s came from %s, was on %s: keep it on one device", r->subject,
                          r->found, r->expected);
    case GUARD_SIZE:
        return arena_text(m->a,
                          "%s took %s, was %s: write it as a product of dims (or -1 in a reshape) "
                          "and it follows them",
                          r->subject, r->found, r->expected);
    case GUARD_EVICTED:
        return "raise the capacity: more plans are in use than are kept";
    case GUARD_DIM:
    case GUARD_DIM_RANGE:
    case GUARD_DIM_DIVISIBLE:
    case GUARD_DIM_SAME:
        return NULL; /* advise_symbols says it */
    case GUARD_READ:
        return NULL; /* what it decided has the advice */
    default:
        return arena_text(m->a, "%s changed %s -> %s: each has plans of its own", r->subject,
                          r->expected, r->found);
    }
}

/* The entry with the fewest failing guards, the latest of them; its reasons are [first, first+n).
 */
static void nearest(const struct ledger_event *v, uint32_t *first, uint32_t *n)
{
    *first = *n = 0;
    for (uint32_t i = 0; i < v->n_reasons;) {
        uint32_t end = i;
        while (end < v->n_reasons && v->reasons[end].entry == v->reasons[i].entry) {
            end++;
        }
        if (*n == 0 || end - i <= *n) {
            *first = i;
            *n = end - i;
        }
        i = end;
    }
}

static void advise(struct miss *m)
{
    uint32_t first, n;
    nearest(m->event, &first, &n);
    m->event->advice = ARENA_ARRAY(m->a, const char *, MAX_ADVICE + 1); /* the caller may add one */
    advise_symbols(m);
    for (uint32_t i = first; i < first + n; i++) {
        const char *text = advice_for(m, &m->event->reasons[i]);
        if (text != NULL) {
            add_advice(m, text);
        }
    }
}

void explain_miss(struct ledger_event *event, const struct trace *t, struct entry *const *entries,
                  uint32_t n_entries, const struct entry *built, struct arena *a)
{
    struct miss m = {.event = event, .t = t, .entries = entries, .built = built, .a = a};
    struct entry **compared = ARENA_ARRAY(a, struct entry *, n_entries + 1);
    for (uint32_t i = 0; i < n_entries; i++) {
        if (entries[i] != built && entries[i]->segment == t->segment &&
            entries[i]->state != ENTRY_FAILED) {
            compared[m.n_entries++] = entries[i];
        }
    }
    m.entries = compared;
    event->compared = m.n_entries;
    for (uint32_t i = 0; i < m.n_entries; i++) {
        compare_entry(&m, compared[i]);
    }
    advise(&m);
}

void reasons_line(const struct ledger_event *event, struct text *t)
{
    uint32_t first, n;
    nearest(event, &first, &n);
    if (n == 0) {
        text_add(t, "first call");
    }
    for (uint32_t i = first; i < first + n; i++) {
        const struct ledger_reason *r = &event->reasons[i];
        text_add(t, "%s%s %s -> %s", i > first ? ", " : "", r->subject, r->expected, r->found);
    }
}
