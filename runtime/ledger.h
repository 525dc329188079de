/* The ledger: what became of every call of a compiled function, and for each that found no plan
 * every reason, the cost and the advice. Texts and numbers only: a ledger outlives the plans it
 * tells of, and reads back from its JSON as it was. */
#ifndef ATOLL_RUNTIME_LEDGER_H
#define ATOLL_RUNTIME_LEDGER_H

#include "atoll/compile.h"
#include "runtime/guard.h"

enum ledger_outcome {
    LEDGER_HIT,     /* a plan there was */
    LEDGER_BUILT,   /* a plan was built, and run */
    LEDGER_WAITED,  /* another thread was building that plan: a hit after it had */
    LEDGER_EAGER,   /* run op by op */
    LEDGER_REFUSED, /* an error: over the limit, or recompiles are forbidden */
    LEDGER_FAILED,  /* an error: the build failed */
    N_LEDGER_OUTCOMES
};
extern const char *const ledger_outcome_names[N_LEDGER_OUTCOMES]; /* "hit", "built", ... */

/* One guard of one entry that did not hold. */
struct ledger_reason {
    uint32_t entry;       /* whose guard; 0: of none */
    enum guard_kind kind; /* of guard.def */
    const char *subject;  /* "dim 0 of x" */
    const char *expected, *found;
    const char *origin; /* where the value came from: "argument x at train.c:31" */
    const char *file;   /* of it; "" unknown */
    uint32_t line;
};

/* One lookup, or several equal hits in a row. */
struct ledger_event {
    uint64_t call, last_call; /* the same, but for hits in a row */
    uint64_t count;           /* lookups it stands for */
    uint32_t segment;         /* 0: the function's start; else its place in the tree of segments */
    enum ledger_outcome outcome;
    uint32_t entry;        /* used or built; 0: none */
    const char *arguments; /* "x f32[5,64], y i64[5]" */
    uint32_t compared;     /* entries whose guards were looked at */
    uint32_t n_reasons, n_advice;
    struct ledger_reason *reasons; /* all failing guards of all entries compared */
    const char **advice;
    const char *error; /* REFUSED, FAILED, EAGER: why; "" otherwise */
    double seconds;    /* of building */
    uint32_t kernels_built, kernels_loaded;
};

/* A place where the graph ended before the function did. */
struct ledger_break {
    uint64_t call, last_call, count;
    uint32_t segment;   /* that it ended */
    const char *reason; /* "atoll_item reads %loss on the host" */
    const char *advice;
    const char *file;
    uint32_t line;
    const char *kind; /* "host read", "host op", "asked for" */
    /* Of a host read: dtype, the value of the first call and of the last; "" of other kinds. */
    const char *dtype, *first_value, *value;
};
enum { MAX_VALUE_TEXT = 40 };
/* The shortest number that reads back as the value of this dtype; "nan", "inf", "-inf". */
void ledger_value_text(enum dtype dtype, double number, char out[MAX_VALUE_TEXT]);

struct ledger_guard {
    enum guard_kind kind;
    const char *subject, *expects, *why, *file;
    uint32_t line;
};

/* A node of the step as the report shows it. */
struct ledger_node {
    const char *name, *op, *type, *operands, *file; /* "%h", "linear", "bf16[n,128]", "%x, %w1" */
    uint32_t line, island, group;                   /* group: index + 1; 0: none */
};
struct ledger_group {
    const char *kind, *kernel, *members; /* "rows", "k3_gelu" or "library", "gelu(%a), cast" */
    const char *why_apart;               /* lines: why neighbours are not in it; "" */
    uint64_t live_bytes;                 /* of intermediates alive while it runs; 0: unknown */
};

/* A plan that was built. */
struct ledger_entry {
    uint32_t number, segment; /* number from 1 */
    uint64_t call;            /* that built it */
    bool is_symbolic, is_evicted;
    bool is_counted;   /* among the builds: its event has come */
    const char *title; /* "n >= 2" or "x f32[64,64], y i64[64]" */
    const char *policy, *rounding;
    uint64_t hits;
    double seconds;
    uint32_t kernels_built, kernels_loaded, n_guards, n_nodes, n_groups;
    struct ledger_guard *guards;
    struct ledger_node *nodes;
    struct ledger_group *groups;
    const char *islands; /* lines: a reason an island */
    const char *source;  /* of the kernels */
    const char *cache;   /* why they were not in the disk cache; "" they were */
    uint64_t peak_bytes, leaf_bytes;
};

struct atoll_ledger {
    struct arena arena;
    const char *name; /* of the function or model */
    atoll_counters counters;
    struct ledger_event *events;
    struct ledger_break *breaks;
    struct ledger_entry *entries;
    uint32_t n_events, n_breaks, n_entries;
    uint32_t event_capacity, break_capacity, entry_capacity;
    uint64_t n_dropped; /* events not kept: there were too many */
    void *lock;         /* pthread_mutex_t, held by who writes or reads; NULL: loaded */
};
typedef struct atoll_ledger ledger;

enum { MAX_LEDGER_EVENTS = 1 << 17 };

/* Copies its name. NULL: no memory. */
ledger *ledger_create(const char *name);
void ledger_destroy(ledger *l); /* NULL is accepted */

/* Writing; all texts are copied. Each takes the lock. OUT_OF_MEMORY leaves the ledger as it was. */
status ledger_add_event(ledger *l, const struct ledger_event *event, struct error *e);
/* A plain hit that belongs to one of the last events: counted there. false: add an event. */
bool ledger_join_hit(ledger *l, uint64_t call, uint32_t segment, uint32_t entry);
status ledger_add_break(ledger *l, const struct ledger_break *b, struct error *e);
status ledger_add_entry(ledger *l, const struct ledger_entry *entry, struct error *e);
void ledger_evict(ledger *l, uint32_t entry);
void ledger_count_call(ledger *l);

/* Reading under the lock. */
void ledger_hold(const ledger *l);
void ledger_let_go(const ledger *l);

/* JSON, and back: the loader takes any bytes; FORMAT or VERSION in one line naming the field. */
char *ledger_json(const ledger *l); /* to be freed; NULL: no memory */
status ledger_save(const ledger *l, const char *path, struct error *e);
status ledger_load(const char *path, ledger **out, struct error *e);
status ledger_read_bytes(const void *bytes, size_t size, const char *name, ledger **out,
                         struct error *e);

#endif
