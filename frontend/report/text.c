/* The ledger as text: a paragraph a call, its first line saying what happened, then why, then what
 * to do. Written so that it answers when read once. */
#include "report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/file.h"

static const struct ledger_entry *entry_of(const ledger *l, uint32_t number)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].number == number) {
            return &l->entries[i];
        }
    }
    return NULL;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- breaks ---- */

static void break_value(struct text *t, const struct ledger_break *b)
{
    if (b->value[0] != '\0') {
        bool is_one = strcmp(b->first_value, b->value) == 0;
        text_add(t, ": %s%s%s (%s)", is_one ? "" : b->first_value, is_one ? "" : " -> ", b->value,
                 b->dtype);
    }
}

static void break_line(struct text *t, const struct ledger_break *b)
{
    text_add(t, "graph break%s%s%s at %s:%" PRIu32 ", segment %" PRIu32 " ends, %" PRIu64,
             b->kind[0] != '\0' ? " (" : "", b->kind, b->kind[0] != '\0' ? ")" : "",
             b->file[0] != '\0' ? b->file : "?", b->line, b->segment, b->count);
    text_add(t, " time%s: %s", plural(b->count), b->reason);
    break_value(t, b);
    text_add(t, "\n");
}

void report_break(struct text *t, const struct ledger_break *b)
{
    break_line(t, b);
    if (b->advice[0] != '\0') {
        text_add(t, "    advice: %s\n", b->advice);
    }
}

static bool is_of_break(const struct ledger_reason *r, const struct ledger_break *b)
{
    return r->kind == GUARD_READ && r->line == b->line && strcmp(r->file, b->file) == 0;
}

/* The first event that a value read at this break explains; n_events: none. */
static uint32_t event_of(const ledger *l, const struct ledger_break *b)
{
    uint32_t i = 0;
    for (; i < l->n_events; i++) {
        const struct ledger_event *v = &l->events[i];
        for (uint32_t k = 0; k < v->n_reasons; k++) {
            if (is_of_break(&v->reasons[k], b)) {
                return i;
            }
        }
    }
    return i;
}

/* A read that made the function take another way is told where that is told: once. */
static void add_reads(struct text *t, const ledger *l, const struct ledger_event *v)
{
    bool has_read = false;
    for (uint32_t k = 0; k < v->n_reasons; k++) {
        has_read = has_read || v->reasons[k].kind == GUARD_READ;
    }
    for (uint32_t i = 0; has_read && i < l->n_breaks; i++) {
        uint32_t at = event_of(l, &l->breaks[i]);
        if (at < l->n_events && &l->events[at] == v) {
            text_add(t, "    ");
            break_line(t, &l->breaks[i]);
        }
    }
}

/* ---- calls ---- */

static void add_built(struct text *t, const ledger *l, const struct ledger_event *v)
{
    const struct ledger_entry *en = entry_of(l, v->entry);
    uint32_t kernels = v->kernels_built + v->kernels_loaded;
    text_add(t, "built plan %" PRIu32 " in %.0f ms", v->entry, v->seconds * 1e3);
    if (en != NULL) {
        text_add(t, " for %s", en->title);
    }
    if (kernels > 0) {
        text_add(t, "; %" PRIu32 " kernel%s compiled, %" PRIu32 " loaded from disk",
                 v->kernels_built, plural(v->kernels_built), v->kernels_loaded);
    }
    text_add(t, "\n");
    if (v->compared == 0) {
        text_add(t, "    why: the first call%s: there was no plan to compare with\n",
                 v->segment != 0 ? " that came to this segment" : "");
    }
}

static void add_outcome(struct text *t, const ledger *l, const struct ledger_event *v)
{
    switch (v->outcome) {
    case LEDGER_HIT:
        text_add(t, "hit: plan %" PRIu32 " runs%s\n", v->entry, v->count > 1 ? " each time" : "");
        break;
    case LEDGER_WAITED:
        text_add(t, "hit: plan %" PRIu32 " runs, after another thread had built it\n", v->entry);
        break;
    case LEDGER_BUILT:
        add_built(t, l, v);
        break;
    case LEDGER_EAGER:
        text_add(t, "EAGER, op by op: %s\n", v->error);
        break;
    default:
        text_add(t, "%s: %s\n", v->outcome == LEDGER_REFUSED ? "REFUSED" : "FAILED", v->error);
        break;
    }
}

static void add_reasons(struct text *t, const struct ledger_event *v)
{
    for (uint32_t i = 0; i < v->n_reasons; i++) {
        const struct ledger_reason *r = &v->reasons[i];
        if (i == 0 || r->entry != v->reasons[i - 1].entry) {
            text_add(t, "    plan %" PRIu32 " does not hold:\n", r->entry);
        }
        text_add(t, "        [%s] %s: %s -> %s", guard_kinds[r->kind].name, r->subject, r->expected,
                 r->found);
        text_add(t, r->origin[0] != '\0' ? "   (%s)\n" : "\n", r->origin);
    }
}

void report_event(struct text *t, const ledger *l, const struct ledger_event *v)
{
    text_add(t, v->count > 1 && v->last_call != v->call ? "calls %" PRIu64 " to " : "call ",
             v->call);
    text_add(t, "%" PRIu64, v->last_call != 0 ? v->last_call : v->call);
    if (v->count > 1) {
        text_add(t, " (%" PRIu64 " lookups)", v->count);
    }
    if (v->segment != 0) {
        text_add(t, ", segment %" PRIu32, v->segment);
    }
    text_add(t, ", %s: ", v->arguments);
    add_outcome(t, l, v);
    add_reads(t, l, v);
    add_reasons(t, v);
    for (uint32_t i = 0; i < v->n_advice; i++) {
        text_add(t, "    %s%s\n", i == 0 ? "advice: " : "        ", v->advice[i]);
    }
    const struct ledger_entry *en = entry_of(l, v->entry);
    if (v->outcome == LEDGER_BUILT && en != NULL && en->cache[0] != '\0') {
        text_add(t, "    kernel cache: %s\n", en->cache);
    }
}

void report_counters(struct text *t, const atoll_counters *n)
{
    text_add(t,
             "%" PRIu64 " call%s: %" PRIu64 " hit%s, %" PRIu64 " plan%s built (%" PRIu64
             " recompile%s) in %.0f ms, %" PRIu64 " eager, %" PRIu64 " refused, %" PRIu64
             " evicted, %" PRIu64 " graph break%s; kernels: %" PRIu64 " compiled, %" PRIu64
             " loaded from disk\n",
             n->calls, plural(n->calls), n->hits, plural(n->hits), n->builds, plural(n->builds),
             n->recompiles, plural(n->recompiles), (double)n->nanoseconds_building * 1e-6, n->eager,
             n->refused, n->evictions, n->breaks, plural(n->breaks), n->kernels_built,
             n->kernels_loaded);
}

void report_text(struct text *t, const ledger *l)
{
    for (uint32_t i = 0; i < l->n_events; i++) {
        report_event(t, l, &l->events[i]);
    }
    for (uint32_t i = 0; i < l->n_breaks; i++) {
        if (event_of(l, &l->breaks[i]) == l->n_events) {
            report_break(t, &l->breaks[i]);
        }
    }
    if (l->n_dropped > 0) {
        text_add(t, "%" PRIu64 " later events were counted but not kept\n", l->n_dropped);
    }
    report_counters(t, &l->counters);
}

/* ---- the public entry ---- */

struct telling {
    const ledger *l;
    struct arena arena;
    struct text text;
};

static status tell_body(void *context)
{
    struct telling *x = context;
    x->text.arena = &x->arena;
    report_text(&x->text, x->l);
    return ATOLL_OK;
}

char *atoll_ledger_text(const atoll_ledger *l)
{
    struct telling x = {.l = l};
    ledger_hold(l);
    status code = run_recoverable(tell_body, &x, NULL);
    ledger_let_go(l);
    char *out = code == ATOLL_OK ? strdup(x.text.data) : NULL;
    arena_free(&x.arena);
    return out;
}
