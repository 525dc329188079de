/* The engine behind a compiled function: entries (plans with their guards), specializations, the
 * ledger. It sees a call as a *trace*: a graph whose leaf dims are numbers, facts about its
 * arguments, and the key (policy, compiler, ...). It answers with a plan whose guards hold, or has
 * one built: static at first sight; when only sizes changed, with those sizes as symbols. What a
 * plan is, is the caller's business: build makes one, drop frees it.
 *
 *     struct callable *c = callable_create("step", &options);
 *     struct trace t; trace_of_graph(&t, graph, device, &arena); t.key = &key;
 *     struct called out;
 *     if (callable_call(c, &t, &out, &e) == ATOLL_OK) {
 *         run(out.plan, out.symbols);          (outcome EAGER: run t.graph op by op)
 *         callable_done(c, &out);
 *     }
 *
 * Any number of threads may call one callable: one builds per entry, others wait for it (or run
 * eagerly, by option). Only build runs outside of its lock. */
#ifndef ATOLL_FRONTEND_CALLABLE_H
#define ATOLL_FRONTEND_CALLABLE_H

#include "frontend/compile.h"
#include "runtime/ledger.h"

/* ---- what a call is ---- */

/* What is part of every key beside the trace; each by a text that names it in a report. */
enum key_part {
    KEY_POLICY,       /* "bf16" */
    KEY_ROUNDING,     /* "strict" */
    KEY_GRAD,         /* "training step adamw", "gradients", "forward" */
    KEY_RUNS_ON,      /* "cpu", "cuda:0" */
    KEY_ARCHITECTURE, /* "native x86_64 3f2a...", "sm_90a" */
    KEY_COMPILER,     /* path, version, flags */
    KEY_LIBRARIES,    /* "oneDNN 2.6.0" */
    KEY_VERSION,      /* Atoll's */
    N_KEY_PARTS
};
struct key {
    uint64_t hash; /* of all parts and of what stands behind their names */
    uint64_t hashes[N_KEY_PARTS];
    const char *texts[N_KEY_PARTS]; /* the creator's; outlive the calls made with the key */
    const char *gradients; /* the leaves that want one, comma-separated; NULL: not by name */
};
/* Of compile options; texts in the arena. Costs a look at the processor and the compiler: make it
 * once, not per call. */
void key_of_options(const struct compile_options *o, struct arena *arena, struct key *out);

struct trace_leaf {
    value v; /* in the graph */
    const char *name;
    struct location location;
    const char *const *dim_names; /* by axis, names for symbols; NULL, or NULL entries: none */
};
/* A value that the function read on the host before: what it records next may depend on it. */
struct trace_read {
    struct location where;
    const char *name; /* "%loss" */
    enum dtype dtype;
    double number;
};
struct trace {
    const struct graph *graph; /* every dim a number; needed on a miss only; copied then */
    uint64_t hash;             /* trace_hash of it, or the same made on the way */
    const struct key *key;
    uint32_t n_leaves;
    const struct trace_leaf *leaves; /* inputs, params, ... in graph order */
    /* FACTS_A_LEAF numbers a leaf, then the sizes spelt: each dim of each ATTR_DIMS attribute of
     * the nodes that are no leaves, in graph order */
    const int64_t *facts;
    uint32_t n_facts;
    uint32_t segment; /* place in the caller's tree of segments; 0: the start of the function */
    uint64_t call;    /* of callable_begin; 0: this lookup is a call of its own */
    const struct trace_read *reads; /* to explain by only: no part of what is looked up */
    uint32_t n_reads;
};

/* Content without sizes: ops, attributes but ATTR_DIMS, constants, wiring, names of leaves and
 * outputs, updates; not leaf dtypes, dims or devices (they are facts), locations or other names.
 *     h = TRACE_HASH_START; for each node h = trace_hash_node(h, n); then trace_hash_end(h, g). */
#define TRACE_HASH_START UINT64_C(0x9e3779b97f4a7c15)
uint64_t trace_hash_node(uint64_t hash, const struct node *n);
uint64_t trace_hash_end(uint64_t hash, const struct graph *g); /* outputs and updates */
/* Fills all but key, segment and call, in the arena; the graph is lent. device: FACT_DEVICE of
 * every leaf. */
void trace_of_graph(struct trace *t, const struct graph *g, int64_t device, struct arena *arena);
/* Writes the facts of one leaf: FACTS_A_LEAF numbers. */
void trace_leaf_facts(int64_t *facts, enum dtype dtype, int64_t device, uint32_t rank,
                      const int64_t *dims);

/* ---- the engine ---- */

struct build_request {
    const struct graph *graph; /* to compile: the trace's, sizes as numbers or as symbols with
                                  their range; lives as long as the entry */
    const int64_t *symbols;    /* its symbols at this call, by id */
    const struct trace *trace;
    uint32_t entry; /* number, from 1 */
};
/* For the ledger; zeros where unknown. */
struct build_report {
    double seconds;
    uint32_t kernels_built, kernels_loaded;
    const struct compiled *compiled; /* lent; what the page shows of the plan comes from here */
    size_t peak_bytes, leaf_bytes;
};
typedef status build_fn(void *context, const struct build_request *r, void **plan,
                        struct build_report *report, struct error *e);
typedef void drop_fn(void *context, void *plan);
/* Counts and costs of a compilation, for a build_fn that compiles by compile_graph. */
void build_report_of(struct build_report *report, const struct compiled *c);

struct callable_options {
    build_fn *build;
    drop_fn *drop;
    void *context;
    uint32_t limit;    /* recompiles of one segment (builds after its first); 0: 8 */
    uint32_t capacity; /* plans kept; the one unused for longest goes; 0: 64 */
    bool is_static;    /* never make a size a symbol */
    bool fails_on_recompile;
    bool is_eager_over_limit;                      /* else going over the limit is an error */
    bool is_eager_while_building;                  /* another thread builds the plan: do not wait */
    log_fn *log;                                   /* recompiles, guards, graph_breaks; or NULL */
    void (*warn)(void *context, const char *text); /* running eagerly over the limit; or NULL */
    void *log_context, *warn_context;
};

struct callable;
/* NULL: no memory. */
struct callable *callable_create(const char *name, const struct callable_options *o);
/* No call may be under way. NULL is accepted. */
void callable_destroy(struct callable *c);

struct called {
    enum ledger_outcome outcome; /* HIT, WAITED, BUILT, EAGER */
    void *entry;                 /* held until callable_done; NULL: EAGER */
    void *plan;
    const struct graph *graph;    /* of the entry */
    int64_t symbols[MAX_SYMBOLS]; /* of the entry's graph, for this call; the rest 0 */
    uint64_t call;
};
/* Number of a new call, for one that has several segments. */
uint64_t callable_begin(struct callable *c);
/* CHECK_FAILED: over the limit (with the history), or a recompile where none is allowed; else what
 * the build said. Each outcome stands in the ledger, failures too. */
status callable_call(struct callable *c, const struct trace *t, struct called *out,
                     struct error *e);
/* The plan is no longer in use. */
void callable_done(struct callable *c, const struct called *done);
/* Guards only, for frozen dispatch: t->graph may be NULL, t->hash is that of the frozen trace.
 * false: no plan holds (nothing recorded): trace, then callable_call. */
bool callable_find(struct callable *c, const struct trace *t, struct called *out);
/* The segment ended before the function did; texts are copied. */
void callable_break(struct callable *c, const struct ledger_break *b);

/* Lent; may be read at any time. */
ledger *callable_ledger(const struct callable *c);
/* Every plan there is goes, the ledger stays: for tests, and after a change of the model's code. */
void callable_clear(struct callable *c);

#endif
