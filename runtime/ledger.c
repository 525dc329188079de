/* Keeping the ledger. Everything written is copied into its arena under its lock; hits that follow
 * each other are one event, so a long run costs no memory. Invariant: counters count every lookup,
 * kept as an event or not. */
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/file.h"

const char *const ledger_outcome_names[N_LEDGER_OUTCOMES] = {"hit",   "built",   "waited",
                                                             "eager", "refused", "failed"};

enum { LOOK_BACK = 16 }; /* events searched for one to join */

void ledger_destroy(ledger *l)
{
    if (l == NULL) {
        return;
    }
    if (l->lock != NULL) {
        pthread_mutex_destroy(l->lock);
        free(l->lock);
    }
    arena_free(&l->arena);
    free(l);
}

void ledger_hold(const ledger *l)
{
    if (l->lock != NULL) {
        pthread_mutex_lock(l->lock);
    }
}

void ledger_let_go(const ledger *l)
{
    if (l->lock != NULL) {
        pthread_mutex_unlock(l->lock);
    }
}

/* One write: under the lock and with a recovery point, so that no memory leaves neither locked. */
struct writing {
    ledger *l;
    const void *what;
    void (*write)(ledger *l, const void *what);
};

static status write_body(void *context)
{
    struct writing *w = context;
    w->write(w->l, w->what);
    return ATOLL_OK;
}

static status write_held(ledger *l, const void *what, void (*write)(ledger *, const void *),
                         struct error *e)
{
    struct writing w = {l, what, write};
    ledger_hold(l);
    status code = run_recoverable(write_body, &w, e);
    ledger_let_go(l);
    return code;
}

static const char *text_or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static const char *copy(ledger *l, const char *text)
{
    return arena_copy_text(&l->arena, text_or_empty(text));
}

static void write_name(ledger *l, const void *what)
{
    l->name = copy(l, what);
}

ledger *ledger_create(const char *name)
{
    ledger *l = calloc(1, sizeof *l);
    pthread_mutex_t *lock = malloc(sizeof *lock);
    if (l == NULL || lock == NULL || pthread_mutex_init(lock, NULL) != 0) {
        free(l);
        free(lock);
        return NULL;
    }
    l->lock = lock;
    if (write_held(l, name, write_name, NULL) != ATOLL_OK) {
        ledger_destroy(l);
        return NULL;
    }
    return l;
}

/* ---- events ---- */

static void count(atoll_counters *n, const struct ledger_event *v, bool is_first)
{
    n->lookups++;
    n->hits += v->outcome == LEDGER_HIT || v->outcome == LEDGER_WAITED;
    n->eager += v->outcome == LEDGER_EAGER;
    n->refused += v->outcome == LEDGER_REFUSED || v->outcome == LEDGER_FAILED;
    if (v->outcome == LEDGER_BUILT) {
        n->builds++;
        n->recompiles += !is_first;
        n->kernels_built += v->kernels_built;
        n->kernels_loaded += v->kernels_loaded;
        n->nanoseconds_building += (uint64_t)(v->seconds * 1e9);
    }
}

static bool is_plain_hit(const struct ledger_event *v)
{
    return v->outcome == LEDGER_HIT && v->n_reasons == 0 && v->n_advice == 0;
}

/* The event among the last hits that a hit of this entry belongs to. */
static struct ledger_event *joined(ledger *l, uint32_t segment, uint32_t entry)
{
    for (uint32_t i = l->n_events; i > 0 && l->n_events - i < LOOK_BACK; i--) {
        struct ledger_event *at = &l->events[i - 1];
        if (!is_plain_hit(at)) {
            return NULL;
        }
        if (at->entry == entry && at->segment == segment) {
            return at;
        }
    }
    return NULL;
}

static void copy_parts(ledger *l, struct ledger_event *to, const struct ledger_event *from)
{
    to->arguments = copy(l, from->arguments);
    to->error = copy(l, from->error);
    to->reasons = ARENA_ARRAY(&l->arena, struct ledger_reason, from->n_reasons + 1);
    to->advice = ARENA_ARRAY(&l->arena, const char *, from->n_advice + 1);
    for (uint32_t i = 0; i < from->n_reasons; i++) {
        struct ledger_reason *r = &to->reasons[i];
        *r = from->reasons[i];
        r->subject = copy(l, r->subject);
        r->expected = copy(l, r->expected);
        r->found = copy(l, r->found);
        r->origin = copy(l, r->origin);
        r->file = copy(l, r->file);
    }
    for (uint32_t i = 0; i < from->n_advice; i++) {
        to->advice[i] = copy(l, from->advice[i]);
    }
}

static struct ledger_entry *entry_numbered(const ledger *l, uint32_t number)
{
    if (number >= 1 && number <= l->n_entries && l->entries[number - 1].number == number) {
        return &l->entries[number - 1];
    }
    for (uint32_t i = 0; i < l->n_entries; i++) { /* threads may end their builds out of order */
        if (l->entries[i].number == number) {
            return &l->entries[i];
        }
    }
    return NULL;
}

static bool is_first_build(const ledger *l, uint32_t segment)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].segment == segment && l->entries[i].is_counted) {
            return false;
        }
    }
    return true;
}

static void write_event(ledger *l, const void *what)
{
    const struct ledger_event *v = what;
    if (l->n_events < MAX_LEDGER_EVENTS) {
        l->events =
            arena_grow(&l->arena, l->events, l->n_events, &l->event_capacity, sizeof *l->events);
        struct ledger_event own = *v;
        own.last_call = v->call;
        own.count = 1;
        copy_parts(l, &own, v);
        l->events[l->n_events++] = own;
    } else {
        l->n_dropped++;
    }
    struct ledger_entry *used = entry_numbered(l, v->entry);
    count(&l->counters, v, is_first_build(l, v->segment));
    if (used != NULL) {
        used->hits += v->outcome == LEDGER_HIT || v->outcome == LEDGER_WAITED;
        used->is_counted = used->is_counted || v->outcome == LEDGER_BUILT;
    }
}

bool ledger_join_hit(ledger *l, uint64_t call, uint32_t segment, uint32_t entry)
{
    ledger_hold(l);
    struct ledger_event *at = joined(l, segment, entry);
    if (at != NULL) {
        struct ledger_entry *used = entry_numbered(l, entry);
        at->count++;
        at->last_call = call > at->last_call ? call : at->last_call;
        l->counters.lookups++;
        l->counters.hits++;
        if (used != NULL) {
            used->hits++;
        }
    }
    ledger_let_go(l);
    return at != NULL;
}

status ledger_add_event(ledger *l, const struct ledger_event *event, struct error *e)
{
    return write_held(l, event, write_event, e);
}

/* ---- breaks ---- */

void ledger_value_text(enum dtype dtype, double number, char out[MAX_VALUE_TEXT])
{
    for (int digits = 1; digits <= 17; digits++) {
        uint64_t bits = 0;
        snprintf(out, MAX_VALUE_TEXT, "%.*g", digits, number);
        dtype_store(dtype, &bits, strtod(out, NULL));
        double back = dtype_load(dtype, &bits);
        if (back == number || number != number) {
            break;
        }
    }
    if (number != number) { /* the sign of a NaN says nothing */
        snprintf(out, MAX_VALUE_TEXT, "nan");
    }
}

static void write_break(ledger *l, const void *what)
{
    const struct ledger_break *b = what;
    const char *file = b->file != NULL ? b->file : "";
    l->counters.breaks++;
    for (uint32_t i = 0; i < l->n_breaks; i++) {
        struct ledger_break *at = &l->breaks[i];
        if (at->segment == b->segment && at->line == b->line && strcmp(at->file, file) == 0 &&
            strcmp(at->reason, b->reason) == 0) {
            at->count++;
            if (b->call > at->last_call) {
                at->last_call = b->call;
                at->value =
                    strcmp(at->value, text_or_empty(b->value)) == 0 ? at->value : copy(l, b->value);
            }
            return;
        }
    }
    if (l->n_breaks == MAX_LEDGER_EVENTS) {
        l->n_dropped++;
        return;
    }
    l->breaks =
        arena_grow(&l->arena, l->breaks, l->n_breaks, &l->break_capacity, sizeof *l->breaks);
    l->breaks[l->n_breaks++] = (struct ledger_break){.call = b->call,
                                                     .last_call = b->call,
                                                     .count = 1,
                                                     .segment = b->segment,
                                                     .reason = copy(l, b->reason),
                                                     .advice = copy(l, b->advice),
                                                     .file = copy(l, file),
                                                     .line = b->line,
                                                     .kind = copy(l, b->kind),
                                                     .dtype = copy(l, b->dtype),
                                                     .first_value = copy(l, b->value),
                                                     .value = copy(l, b->value)};
}

status ledger_add_break(ledger *l, const struct ledger_break *b, struct error *e)
{
    return write_held(l, b, write_break, e);
}

/* ---- entries ---- */

static void copy_guards(ledger *l, struct ledger_entry *to, const struct ledger_entry *from)
{
    to->guards = ARENA_ARRAY(&l->arena, struct ledger_guard, from->n_guards + 1);
    for (uint32_t i = 0; i < from->n_guards; i++) {
        const struct ledger_guard *g = &from->guards[i];
        to->guards[i] = (struct ledger_guard){.kind = g->kind,
                                              .subject = copy(l, g->subject),
                                              .expects = copy(l, g->expects),
                                              .why = copy(l, g->why),
                                              .file = copy(l, g->file),
                                              .line = g->line};
    }
}

static void copy_plan(ledger *l, struct ledger_entry *to, const struct ledger_entry *from)
{
    to->nodes = ARENA_ARRAY(&l->arena, struct ledger_node, from->n_nodes + 1);
    to->groups = ARENA_ARRAY(&l->arena, struct ledger_group, from->n_groups + 1);
    for (uint32_t i = 0; i < from->n_nodes; i++) {
        struct ledger_node *n = &to->nodes[i];
        *n = from->nodes[i];
        n->name = copy(l, n->name);
        n->op = copy(l, n->op);
        n->type = copy(l, n->type);
        n->operands = copy(l, n->operands);
        n->file = copy(l, n->file);
    }
    for (uint32_t i = 0; i < from->n_groups; i++) {
        struct ledger_group *g = &to->groups[i];
        *g = from->groups[i];
        g->kind = copy(l, g->kind);
        g->kernel = copy(l, g->kernel);
        g->members = copy(l, g->members);
        g->why_apart = copy(l, g->why_apart);
    }
}

static void write_entry(ledger *l, const void *what)
{
    const struct ledger_entry *from = what;
    struct ledger_entry own = *from;
    own.title = copy(l, from->title);
    own.policy = copy(l, from->policy);
    own.rounding = copy(l, from->rounding);
    own.islands = copy(l, from->islands);
    own.source = copy(l, from->source);
    own.cache = copy(l, from->cache);
    copy_guards(l, &own, from);
    copy_plan(l, &own, from);
    l->entries =
        arena_grow(&l->arena, l->entries, l->n_entries, &l->entry_capacity, sizeof *l->entries);
    l->entries[l->n_entries++] = own;
}

status ledger_add_entry(ledger *l, const struct ledger_entry *entry, struct error *e)
{
    return write_held(l, entry, write_entry, e);
}

void ledger_evict(ledger *l, uint32_t entry)
{
    ledger_hold(l);
    struct ledger_entry *gone = entry_numbered(l, entry);
    if (gone != NULL) {
        gone->is_evicted = true;
    }
    l->counters.evictions++;
    ledger_let_go(l);
}

void ledger_count_call(ledger *l)
{
    ledger_hold(l);
    l->counters.calls++;
    ledger_let_go(l);
}

void atoll_ledger_counters(const atoll_ledger *l, atoll_counters *out)
{
    ledger_hold(l);
    *out = l->counters;
    ledger_let_go(l);
}
