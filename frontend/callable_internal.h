/* What the files of the engine share: an entry, and the three jobs of a miss: what to build
 * (callable_plan.c), why (callable_miss.c), what to tell of it (callable_report.c). */
#ifndef ATOLL_FRONTEND_CALLABLE_INTERNAL_H
#define ATOLL_FRONTEND_CALLABLE_INTERNAL_H

#include <pthread.h>

#include "frontend/callable.h"

enum entry_state { ENTRY_BUILDING, ENTRY_READY, ENTRY_FAILED, ENTRY_EVICTED };

/* A symbol of an entry's graph: its value at a call is facts[slot] / divisor. */
struct entry_symbol {
    uint32_t slot;
    int64_t divisor;
};

struct entry {
    struct arena arena;
    uint32_t number, segment; /* number from 1 */
    enum entry_state state;
    uint64_t call; /* that built it */
    uint64_t hash;
    struct key key;       /* texts are its own */
    struct graph *traced; /* as it was called first: every dim a number */
    struct graph *graph;  /* what was compiled; the same graph when no size became a symbol */
    struct guard_set guards;
    int64_t *facts;
    struct trace_leaf *leaves;
    uint32_t n_leaves;
    struct trace_read *reads;
    uint32_t n_reads;
    struct entry_symbol symbols[MAX_SYMBOLS];
    bool is_symbolic;
    const char **remarks; /* of the plan: why a size stayed a number though it changed */
    uint32_t n_remarks;
    void *plan;
    uint32_t n_users;
    uint64_t last_used;
};

static inline bool entry_is_of(const struct entry *en, const struct trace *t)
{
    return en->segment == t->segment && en->hash == t->hash && en->key.hash == t->key->hash;
}

struct segment_count {
    uint32_t segment, n_builds;
};

struct callable {
    struct callable_options o;
    pthread_mutex_t lock;
    pthread_cond_t built;
    struct entry **entries; /* oldest first; evicted ones stay for a while, to explain by */
    uint32_t n_entries, entry_capacity, last_number;
    struct segment_count *segments;
    uint32_t n_segments, segment_capacity;
    uint32_t n_ready; /* entries with a plan */
    uint64_t last_call, clock;
    ledger *ledger;
};

/* One call on its way. */
struct lookup {
    struct callable *c;
    const struct trace *t;
    struct called *out;
    struct error *e;
    struct arena arena; /* of the event's texts */
    struct ledger_event event;
    struct entry *en; /* to be built */
    bool has_waited, is_static;
    const char *remark; /* why it is static */
    struct build_report report;
};

/* callable.c */
/* Fills *out for the call and holds the entry; under the lock. */
void entry_take(struct callable *c, struct entry *en, const struct trace *t, struct called *out);
/* Drops plans while there are too many; under the lock. */
void callable_evict(struct callable *c);
void entry_destroy(struct entry *en);

/* callable_build.c: a lookup that found nothing: an entry is planned, explained and built, or the
 * lookup is refused or eager; recorded in any case. Called under the lock, which it lets go. */
status callable_build(struct lookup *l);
/* Never changes what the call comes to: a ledger without memory loses the event. */
void callable_record(struct lookup *l, enum ledger_outcome outcome);
void callable_tell(const struct callable *c, const char *category, const char *line);

/* callable_trace.c */
/* "argument x at train.c:31" */
const char *leaf_origin(const struct graph *g, const struct trace_leaf *leaf, struct arena *a);
/* "dim 0 of x"; "size 1 of reshape %h" for the sizes spelt. */
const char *slot_subject(const struct graph *g, const struct trace_leaf *leaves, uint32_t n_leaves,
                         uint32_t slot, struct arena *a);
/* The node that spells a size slot; id 0 when the slot is an argument's. */
value slot_node(const struct graph *g, uint32_t n_leaves, uint32_t slot, uint32_t *index);
/* "x f32[64,64], y i64[64]": inputs only. */
const char *arguments_text(const struct graph *g, const struct trace_leaf *leaves,
                           uint32_t n_leaves, const int64_t *facts, struct arena *a);
/* Whether two traces have the same arguments: names and kinds. */
bool same_arguments(const struct entry *en, const struct trace *t);

/* callable_plan.c: decides what is static and what a symbol, from earlier entries of the same trace
 * (by number), and makes the graph and its guards. en has its trace copied in. */
status plan_entry(struct entry *en, struct entry *const *earlier, uint32_t n_earlier,
                  bool is_static, struct error *e);

/* callable_miss.c: fills reasons and advice of an event, in the arena. `built` is the entry that
 * will serve the call (NULL: none). */
void explain_miss(struct ledger_event *event, const struct trace *t, struct entry *const *entries,
                  uint32_t n_entries, const struct entry *built, struct arena *a);
/* "call 3: dim 0 of x 64 -> 5": the nearest entry's reasons on one line. */
void reasons_line(const struct ledger_event *event, struct text *t);

/* callable_report.c */
void describe_entry(struct ledger_entry *out, const struct entry *en,
                    const struct build_report *report, bool with_plan, struct arena *a);

#endif
