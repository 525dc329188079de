/* The engine: finds the entry whose guards hold, or has one built. Under the lock: looking up,
 * planning and explaining (microseconds to a millisecond); outside of it: building and logging.
 * Invariants: an entry's guards are known before it is built, so that no two threads build for one
 * call; an entry in use is never dropped; every lookup is in the ledger, with its reasons. */
#include "callable_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/file.h"

enum { DEFAULT_LIMIT = 8, DEFAULT_CAPACITY = 64 };

struct callable *callable_create(const char *name, const struct callable_options *o)
{
    struct callable *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    c->o = *o;
    c->o.limit = o->limit != 0 ? o->limit : DEFAULT_LIMIT;
    c->o.capacity = o->capacity != 0 ? o->capacity : DEFAULT_CAPACITY;
    c->ledger = ledger_create(name);
    if (c->ledger == NULL || pthread_mutex_init(&c->lock, NULL) != 0) {
        ledger_destroy(c->ledger);
        free(c);
        return NULL;
    }
    pthread_cond_init(&c->built, NULL);
    return c;
}

void entry_destroy(struct entry *en)
{
    if (en != NULL) {
        if (en->graph != en->traced) {
            graph_destroy(en->graph);
        }
        graph_destroy(en->traced);
        arena_free(&en->arena);
        free(en);
    }
}

static void drop_plan(const struct callable *c, void *plan)
{
    if (plan != NULL && c->o.drop != NULL) {
        c->o.drop(c->o.context, plan);
    }
}

void callable_clear(struct callable *c)
{
    for (uint32_t i = 0; i < c->n_entries; i++) {
        drop_plan(c, c->entries[i]->plan);
        entry_destroy(c->entries[i]);
    }
    c->n_entries = c->n_segments = c->n_ready = 0;
}

void callable_destroy(struct callable *c)
{
    if (c == NULL) {
        return;
    }
    callable_clear(c);
    ledger_destroy(c->ledger);
    pthread_cond_destroy(&c->built);
    pthread_mutex_destroy(&c->lock);
    free(c->entries);
    free(c->segments);
    free(c);
}

ledger *callable_ledger(const struct callable *c)
{
    return c->ledger;
}

/* ---- looking up ---- */

static struct entry *find(const struct callable *c, const struct trace *t, bool only_ready)
{
    for (uint32_t i = 0; i < c->n_entries; i++) {
        struct entry *en = c->entries[i];
        bool is_there = en->state == ENTRY_READY || (en->state == ENTRY_BUILDING && !only_ready);
        if (is_there && entry_is_of(en, t) && guards_hold(&en->guards, t->facts, t->n_facts)) {
            return en;
        }
    }
    return NULL;
}

void entry_take(struct callable *c, struct entry *en, const struct trace *t, struct called *out)
{
    en->n_users++;
    en->last_used = ++c->clock;
    out->entry = en;
    out->plan = en->plan;
    out->graph = en->graph;
    memset(out->symbols, 0, sizeof out->symbols);
    for (uint32_t i = 1; i < en->graph->n_symbols; i++) {
        const struct entry_symbol *s = &en->symbols[i];
        out->symbols[i] = s->divisor != 0 ? t->facts[s->slot] / s->divisor : 0;
    }
}

static uint64_t begin(struct callable *c)
{
    ledger_count_call(c->ledger);
    return ++c->last_call;
}

uint64_t callable_begin(struct callable *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t call = begin(c);
    pthread_mutex_unlock(&c->lock);
    return call;
}

/* The plan unused for longest that nobody uses; NULL: all are in use. */
static struct entry *to_evict(const struct callable *c)
{
    struct entry *oldest = NULL;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        struct entry *en = c->entries[i];
        if (en->state == ENTRY_READY && en->n_users == 0 &&
            (oldest == NULL || en->last_used < oldest->last_used)) {
            oldest = en;
        }
    }
    return oldest;
}

void callable_evict(struct callable *c)
{
    struct entry *en;
    while (c->n_ready > c->o.capacity && (en = to_evict(c)) != NULL) {
        c->n_ready--;
        ledger_evict(c->ledger, en->number);
        drop_plan(c, en->plan);
        en->plan = NULL;
        en->state = ENTRY_EVICTED;
    }
}

void callable_done(struct callable *c, const struct called *done)
{
    struct entry *en = done->entry;
    if (en != NULL) {
        pthread_mutex_lock(&c->lock);
        en->n_users--;
        callable_evict(c); /* too many were in use before */
        pthread_mutex_unlock(&c->lock);
    }
}

/* ---- the ledger ---- */

/* A hit of an entry that the caller has taken: it stays until callable_done. */
static status write_hit(void *context)
{
    struct lookup *l = context;
    const struct entry *en = l->out->entry;
    l->event.arguments =
        arguments_text(en->traced, en->leaves, en->n_leaves, l->t->facts, &l->arena);
    return ledger_add_event(l->c->ledger, &l->event, l->e);
}

static status record_hit(struct lookup *l)
{
    const struct entry *en = l->out->entry;
    l->out->outcome = l->has_waited ? LEDGER_WAITED : LEDGER_HIT;
    if (!l->has_waited && ledger_join_hit(l->c->ledger, l->out->call, en->segment, en->number)) {
        return ATOLL_OK;
    }
    l->event = (struct ledger_event){.call = l->out->call,
                                     .segment = en->segment,
                                     .outcome = l->out->outcome,
                                     .entry = en->number};
    return run_recoverable(write_hit, l, l->e);
}

/* ---- a call ---- */

static status call_body(void *context)
{
    return callable_build(context);
}

/* Under the lock: waits while the plan is being built. NULL: a miss, or *is_eager. */
static struct entry *find_or_wait(struct lookup *l, bool *is_eager)
{
    struct callable *c = l->c;
    struct entry *en = find(c, l->t, false);
    while (en != NULL && en->state == ENTRY_BUILDING) {
        if (c->o.is_eager_while_building) {
            *is_eager = true;
            return NULL;
        }
        l->has_waited = true;
        pthread_cond_wait(&c->built, &c->lock);
        en = find(c, l->t, false);
    }
    return en;
}

static status arguments_body(void *context)
{
    struct lookup *l = context;
    l->event.arguments =
        arguments_text(l->t->graph, l->t->leaves, l->t->n_leaves, l->t->facts, &l->arena);
    return ATOLL_OK;
}

status callable_call(struct callable *c, const struct trace *t, struct called *out, struct error *e)
{
    struct error own = {0};
    struct lookup l = {.c = c, .t = t, .out = out, .e = &own};
    bool is_eager = false;
    *out = (struct called){.call = t->call};
    pthread_mutex_lock(&c->lock);
    out->call = t->call != 0 ? t->call : begin(c);
    struct entry *en = find_or_wait(&l, &is_eager);
    if (en != NULL) {
        entry_take(c, en, t, out);
    }
    bool is_miss = en == NULL && !is_eager;
    if (!is_miss) { /* else the lock is kept, so that no other thread plans for this call too */
        pthread_mutex_unlock(&c->lock);
    }
    status code = ATOLL_OK;
    if (en != NULL) {
        (void)record_hit(&l);
    } else if (is_eager) {
        (void)run_recoverable(arguments_body, &l, NULL);
        l.event.error = "another thread is building the plan";
        callable_record(&l, LEDGER_EAGER);
    } else {
        code = run_recoverable(call_body, &l, &own);
    }
    arena_free(&l.arena);
    return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", own.text);
}

bool callable_find(struct callable *c, const struct trace *t, struct called *out)
{
    struct lookup l = {.c = c, .t = t, .out = out};
    *out = (struct called){.call = t->call};
    pthread_mutex_lock(&c->lock);
    struct entry *en = find(c, t, true);
    if (en != NULL) {
        out->call = t->call != 0 ? t->call : begin(c);
        entry_take(c, en, t, out);
    }
    pthread_mutex_unlock(&c->lock);
    if (en != NULL) {
        (void)record_hit(&l);
        arena_free(&l.arena);
    }
    return en != NULL;
}

struct breaking {
    struct callable *c;
    const struct ledger_break *b;
};

static status tell_break(void *context)
{
    const struct breaking *k = context;
    const struct ledger_break *b = k->b;
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    text_add(&t, "call %" PRIu64 ", segment %" PRIu32 ": %s:%" PRIu32 ": %s: %s", b->call,
             b->segment, b->file != NULL ? b->file : "?", b->line, b->kind, b->reason);
    if (b->value != NULL) {
        text_add(&t, ": %s (%s)", b->value, b->dtype);
    }
    text_add(&t, "; %s", b->advice);
    callable_tell(k->c, "graph_breaks", t.data);
    arena_free(&scratch);
    return ATOLL_OK;
}

void callable_break(struct callable *c, const struct ledger_break *b)
{
    struct breaking k = {c, b};
    (void)ledger_add_break(c->ledger, b, NULL);
    if (c->o.log != NULL) {
        (void)run_recoverable(tell_break, &k, NULL);
    }
}
