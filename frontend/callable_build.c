/* A lookup that found no plan. Under the lock: may it build, what, and why (microseconds to a
 * millisecond); outside of it: building, recording, logging. Invariant: an entry's guards are known
 * before it is built, and whoever waits for it learns of its end, also when memory runs out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "callable_internal.h"
#include "runtime/file.h"

enum { MAX_DESCRIBED = 64, GHOSTS = 4 };

/* ---- the ledger ---- */

void callable_tell(const struct callable *c, const char *category, const char *line)
{
    if (c->o.log != NULL) {
        c->o.log(c->o.log_context, category, line);
    }
}

static void tell_guards(const struct callable *c, const struct entry *en)
{
    struct arena scratch = SCRATCH_ARENA;
    for (uint32_t i = 0; i < en->guards.n; i++) {
        const struct guard *g = &en->guards.guards[i];
        callable_tell(c, "guards",
                      arena_text(&scratch, "plan %" PRIu32 ": %s %s is %s (%s)", en->number,
                                 guard_kinds[g->kind].name, g->source.subject,
                                 guard_expects(&en->guards, g, NULL, &scratch), g->source.why));
    }
    arena_free(&scratch);
}

static void tell_event(const struct callable *c, const struct ledger_event *v)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    text_add(&t, "call %" PRIu64 ", %s: ", v->call, ledger_outcome_names[v->outcome]);
    if (v->outcome == LEDGER_BUILT) {
        text_add(&t, "plan %" PRIu32 " in %.0f ms: ", v->entry, v->seconds * 1e3);
    }
    reasons_line(v, &t);
    callable_tell(c, "recompiles", t.data);
    for (uint32_t i = 0; i < v->n_advice; i++) {
        callable_tell(c, "recompiles",
                      arena_text(&scratch, "call %" PRIu64 ": %s", v->call, v->advice[i]));
    }
    arena_free(&scratch);
}

static status write_event(void *context)
{
    struct lookup *l = context;
    struct ledger_event *v = &l->event;
    if (v->outcome == LEDGER_BUILT) {
        struct ledger_entry entry = {0};
        struct arena scratch = SCRATCH_ARENA;
        describe_entry(&entry, l->en, &l->report, l->en->number <= MAX_DESCRIBED, &scratch);
        status code = ledger_add_entry(l->c->ledger, &entry, NULL);
        arena_free(&scratch);
        TRY(code);
        v->seconds = l->report.seconds;
        v->kernels_built = l->report.kernels_built;
        v->kernels_loaded = l->report.kernels_loaded;
    }
    if (v->outcome == LEDGER_REFUSED || v->outcome == LEDGER_FAILED) {
        v->error = l->e->text;
    }
    if (l->c->o.log != NULL) {
        tell_event(l->c, v);
        if (v->outcome == LEDGER_BUILT) {
            tell_guards(l->c, l->en);
        }
    }
    return ledger_add_event(l->c->ledger, v, NULL);
}

void callable_record(struct lookup *l, enum ledger_outcome outcome)
{
    l->event.outcome = outcome;
    l->event.call = l->out->call;
    l->event.segment = l->t->segment;
    l->event.entry = outcome == LEDGER_BUILT ? l->en->number : 0;
    l->out->outcome = outcome;
    (void)run_recoverable(write_event, l, NULL);
}

/* ---- a miss: under the lock ---- */

static struct segment_count *count_of(struct callable *c, uint32_t segment)
{
    for (uint32_t i = 0; i < c->n_segments; i++) {
        if (c->segments[i].segment == segment) {
            return &c->segments[i];
        }
    }
    if (c->n_segments == c->segment_capacity) {
        uint32_t capacity = c->segment_capacity * 2 + 8;
        struct segment_count *more = realloc(c->segments, capacity * sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        c->segments = more;
        c->segment_capacity = capacity;
    }
    c->segments[c->n_segments] = (struct segment_count){segment, 0};
    return &c->segments[c->n_segments++];
}

static void remove_entry(struct callable *c, uint32_t at)
{
    entry_destroy(c->entries[at]);
    memmove(&c->entries[at], &c->entries[at + 1], (--c->n_entries - at) * sizeof *c->entries);
}

/* Evicted entries explain later misses; too many of them go, the oldest first. */
static void drop_ghosts(struct callable *c)
{
    uint32_t n = 0;
    for (uint32_t i = c->n_entries; i > 0; i--) {
        bool is_ghost = c->entries[i - 1]->state == ENTRY_EVICTED;
        n += is_ghost;
        if (is_ghost && n > GHOSTS * c->o.capacity) {
            remove_entry(c, i - 1);
        }
    }
}

static status add_entry(struct lookup *l)
{
    struct callable *c = l->c;
    if (c->n_entries == c->entry_capacity) {
        uint32_t capacity = c->entry_capacity * 2 + 16;
        struct entry **more = realloc(c->entries, capacity * sizeof *more);
        if (more == NULL) {
            return fail(l->e, ATOLL_OUT_OF_MEMORY, "no memory for a plan");
        }
        c->entries = more;
        c->entry_capacity = capacity;
    }
    struct entry *en = calloc(1, sizeof *en);
    if (en == NULL) {
        return fail(l->e, ATOLL_OUT_OF_MEMORY, "no memory for a plan");
    }
    en->state = ENTRY_BUILDING;
    en->segment = l->t->segment;
    en->hash = l->t->hash;
    en->call = l->out->call;
    en->number = ++c->last_number;
    c->entries[c->n_entries++] = en;
    l->en = en;
    return ATOLL_OK;
}

/* The entry that came last goes again. */
static void take_back(struct lookup *l)
{
    struct callable *c = l->c;
    for (uint32_t i = c->n_entries; i > 0; i--) {
        if (c->entries[i - 1] == l->en) {
            c->last_number -= l->en->number == c->last_number;
            remove_entry(c, i - 1);
            break;
        }
    }
    l->en = NULL;
}

static void copy_graph(struct entry *en, const struct graph *from)
{
    struct arena scratch = SCRATCH_ARENA;
    value *map = ARENA_ARRAY(&scratch, value, from->n_nodes);
    struct graph *g = graph_temporary(from);
    g->n_symbols = 1; /* bound ones would be taken for ours */
    for (uint32_t i = 1; i < from->n_nodes; i++) {
        value operands[VARIADIC];
        const struct node *n = &from->nodes[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            operands[k] = map[n->operands[k].id];
        }
        map[i] = graph_copy(g, n, operands);
    }
    graph_finish(g, from, map);
    arena_free(&scratch);
    en->traced = en->graph = graph_keep(g);
}

static void copy_leaves(struct entry *en, const struct trace *t)
{
    struct arena *a = &en->arena;
    struct trace_leaf *leaves = ARENA_ARRAY(a, struct trace_leaf, t->n_leaves + 1);
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        uint32_t rank = (uint32_t)t->facts[i * FACTS_A_LEAF + FACT_RANK];
        leaves[i] = t->leaves[i];
        leaves[i].name = arena_copy_text(a, t->leaves[i].name);
        leaves[i].location.file = arena_copy_text(a, t->leaves[i].location.file);
        leaves[i].dim_names = NULL;
        if (t->leaves[i].dim_names != NULL) {
            const char **names = ARENA_ARRAY(a, const char *, rank + 1);
            for (uint32_t d = 0; d < rank; d++) {
                names[d] = arena_copy_text(a, t->leaves[i].dim_names[d]);
            }
            leaves[i].dim_names = names;
        }
    }
    en->leaves = leaves;
    en->n_leaves = t->n_leaves;
}

static void copy_reads(struct entry *en, const struct trace *t)
{
    en->reads = ARENA_ARRAY(&en->arena, struct trace_read, t->n_reads + 1);
    en->n_reads = t->n_reads;
    for (uint32_t i = 0; i < t->n_reads; i++) {
        en->reads[i] = t->reads[i];
        en->reads[i].name = arena_copy_text(&en->arena, t->reads[i].name);
        en->reads[i].where.file = arena_copy_text(&en->arena, t->reads[i].where.file);
    }
}

static status fill_entry(struct lookup *l)
{
    struct entry *en = l->en;
    const struct trace *t = l->t;
    en->facts = arena_copy(&en->arena, t->facts, t->n_facts * sizeof *t->facts);
    en->guards.n_facts = t->n_facts;
    en->key = *t->key;
    for (uint32_t i = 0; i < N_KEY_PARTS; i++) {
        en->key.texts[i] = arena_copy_text(&en->arena, t->key->texts[i]);
    }
    if (en->key.gradients != NULL) {
        en->key.gradients = arena_copy_text(&en->arena, en->key.gradients);
    }
    copy_leaves(en, t);
    copy_reads(en, t);
    copy_graph(en, t->graph);
    if (en->traced->error.code != ATOLL_OK) {
        return fail(l->e, en->traced->error.code, "%s", en->traced->error.text);
    }
    bool is_static = l->c->o.is_static || l->is_static;
    for (uint32_t i = 0; i < l->c->n_entries; i++) { /* symbols did not compile before */
        const struct entry *at = l->c->entries[i];
        is_static = is_static || (at->state == ENTRY_FAILED && at->hash == en->hash);
    }
    return plan_entry(en, l->c->entries, l->c->n_entries, is_static, l->e);
}

struct history {
    struct lookup *l;
    struct text text;
};

/* "call 1 (first call); call 3 (dim 0 of x 64 -> 5)" */
static status history_body(void *context)
{
    struct history *h = context;
    struct lookup *l = h->l;
    const ledger *book = l->c->ledger;
    struct text t = {.arena = &l->arena};
    for (uint32_t i = 0; i < book->n_events; i++) {
        const struct ledger_event *v = &book->events[i];
        if (v->outcome == LEDGER_BUILT && v->segment == l->t->segment) {
            text_add(&t, "%scall %" PRIu64 " (", t.data != NULL ? "; " : "", v->call);
            reasons_line(v, &t);
            text_add(&t, ")");
        }
    }
    h->text = t;
    return ATOLL_OK;
}

/* A lookup that may not build: refused, or eager. */
static status forbidden(struct lookup *l)
{
    const struct callable *c = l->c;
    struct text why = {.arena = &l->arena};
    reasons_line(&l->event, &why);
    if (c->o.fails_on_recompile) {
        return fail(l->e, ATOLL_CHECK_FAILED,
                    "@%s, call %" PRIu64 ": a recompile where none is allowed: %s; hint: warm up "
                    "with such a call first, or allow recompiles",
                    c->ledger->name, l->out->call, why.data);
    }
    struct history h = {.l = l};
    ledger_hold(c->ledger);
    status code = run_recoverable(history_body, &h, l->e);
    ledger_let_go(c->ledger);
    TRY(code);
    return fail(l->e, ATOLL_CHECK_FAILED,
                "@%s, call %" PRIu64 ": over the limit of %" PRIu32
                " recompiles: %s; built so far: %.600s; "
                "hint: do as the ledger advises, or raise the limit",
                c->ledger->name, l->out->call, c->o.limit, why.data,
                h.text.data != NULL ? h.text.data : "nothing kept");
}

static status miss_body(void *context)
{
    struct lookup *l = context;
    struct callable *c = l->c;
    struct segment_count *n = count_of(c, l->t->segment);
    if (n == NULL) {
        return fail(l->e, ATOLL_OUT_OF_MEMORY, "no memory for a segment");
    }
    bool is_over = n->n_builds > c->o.limit;
    bool may_not = n->n_builds > 0 && (c->o.fails_on_recompile || is_over);
    l->event.arguments =
        arguments_text(l->t->graph, l->t->leaves, l->t->n_leaves, l->t->facts, &l->arena);
    if (may_not) {
        explain_miss(&l->event, l->t, c->entries, c->n_entries, NULL, &l->arena);
        return forbidden(l);
    }
    TRY(add_entry(l));
    TRY(fill_entry(l));
    explain_miss(&l->event, l->t, c->entries, c->n_entries, l->en, &l->arena);
    if (l->remark != NULL) {
        l->event.advice[l->event.n_advice++] = l->remark;
    }
    n->n_builds++;
    drop_ghosts(c);
    return ATOLL_OK;
}

/* ---- building: outside of the lock ---- */

/* What a graph with symbols may fail by that one with numbers would not. */
static bool may_be_symbols(status code)
{
    return code != ATOLL_COMPILER && code != ATOLL_OUT_OF_MEMORY && code != ATOLL_IO &&
           code != ATOLL_DEVICE && code != ATOLL_DATA;
}

struct building {
    struct lookup *l;
    struct build_request request;
    void *plan;
};

static status build_body(void *context)
{
    struct building *b = context;
    struct lookup *l = b->l;
    return l->c->o.build(l->c->o.context, &b->request, &b->plan, &l->report, l->e);
}

static status build(struct lookup *l)
{
    struct callable *c = l->c;
    struct entry *en = l->en;
    struct called bound = {0};
    pthread_mutex_lock(&c->lock);
    entry_take(c, en, l->t, &bound); /* for its symbols; and so that it stays */
    pthread_mutex_unlock(&c->lock);
    struct building b = {l, {en->graph, bound.symbols, l->t, en->number}, NULL};
    status code = run_recoverable(build_body, &b, l->e); /* waiting threads must learn of it */
    pthread_mutex_lock(&c->lock);
    en->state = code == ATOLL_OK ? ENTRY_READY : ENTRY_FAILED;
    c->n_ready += code == ATOLL_OK;
    if (code == ATOLL_OK) {
        en->plan = bound.plan = b.plan;
        bound.call = l->out->call;
        *l->out = bound;
        callable_evict(c);
    } else {
        en->n_users--;
    }
    pthread_cond_broadcast(&c->built);
    pthread_mutex_unlock(&c->lock);
    return code;
}

static void forget_failed(struct lookup *l)
{
    pthread_mutex_lock(&l->c->lock);
    struct segment_count *n = count_of(l->c, l->t->segment);
    n->n_builds--;
    take_back(l);
    pthread_mutex_unlock(&l->c->lock);
}

/* The same call once more, with numbers for symbols. The failed entry stays: it says that symbols
 * do not compile for this trace. */
static status build_static(struct lookup *l)
{
    struct error why = *l->e;
    *l->e = (struct error){0};
    l->event = (struct ledger_event){0};
    l->is_static = true;
    l->remark = arena_text(&l->arena,
                           "with symbols for sizes it does not compile, so each size "
                           "gets its own plan: %.300s",
                           why.text);
    pthread_mutex_lock(&l->c->lock);
    count_of(l->c, l->t->segment)->n_builds--;
    l->c->last_number -= l->en->number == l->c->last_number;
    l->en->number = 0;
    return callable_build(l);
}

status callable_build(struct lookup *l)
{
    struct callable *c = l->c;
    status code = run_recoverable(miss_body, l, l->e);
    if (code != ATOLL_OK && l->en != NULL) {
        take_back(l);
        pthread_cond_broadcast(&c->built);
    }
    pthread_mutex_unlock(&c->lock);
    if (code != ATOLL_OK) {
        bool is_refused = code == ATOLL_CHECK_FAILED;
        bool is_eager = is_refused && c->o.is_eager_over_limit && !c->o.fails_on_recompile;
        if (is_eager) {
            l->event.error = arena_text(&l->arena, "%s", l->e->text);
            if (c->o.warn != NULL) {
                c->o.warn(c->o.warn_context, l->e->text);
            }
            *l->e = (struct error){0};
        }
        callable_record(l, is_eager ? LEDGER_EAGER : is_refused ? LEDGER_REFUSED : LEDGER_FAILED);
        return is_eager ? ATOLL_OK : code;
    }
    code = build(l);
    if (code == ATOLL_OK) {
        callable_record(l, LEDGER_BUILT);
        return ATOLL_OK;
    }
    if (l->en->is_symbolic && may_be_symbols(code)) {
        return build_static(l);
    }
    callable_record(l, LEDGER_FAILED);
    forget_failed(l);
    return code;
}
