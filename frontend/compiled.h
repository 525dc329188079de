/* What the files behind atoll_compile share. A compiled function is an engine of plans
 * (callable.h), a store of named tensors that outlive calls (params, buffers, states, the training
 * step's numbers), and idle traces. A call is a trace on its way: leaves with their memory, results
 * that breaks brought to the host, segments.
 *     compiled.c calls · compiled_frozen.c without tracing · compiled_break.c breaks
 *     compiled_plan.c builds and runs · compiled_store.c tensors by name, results
 *     compiled_way.c options of one call · compiled_device.c devices */
#ifndef ATOLL_FRONTEND_COMPILED_H
#define ATOLL_FRONTEND_COMPILED_H

#include <pthread.h>

#include "atoll/compile.h"
#include "frontend/callable.h"
#include "frontend/capture.h"
#include "frontend/context.h"
#include "runtime/contraction.h"

/* A tensor that outlives calls. It never moves. */
struct stored {
    char *name;
    enum op op;
    struct tensor tensor;
    uint64_t version;     /* grows with each change; under in_store */
    _Atomic bool is_lent; /* people have a view of it: it may change unseen between calls */
    struct stored *next;
};

/* A way to compile: policy, rounding, gradients, and the key of plans made so. The key stands
 * first, so that a trace's key leads to the options. */
struct way {
    struct key key;
    struct compile_options options;
    const struct way *forward; /* of segments before the last: without gradients */
    struct arena arena;        /* of ways that calls brought: texts of the key */
    struct way *next;
};
static inline const struct way *way_of(const struct trace *t)
{
    return (const struct way *)(const void *)t->key;
}

/* How a segment may be recorded without running the function: for frozen calls. */
enum { MAX_FROZEN = 8 };
struct frozen {
    uint64_t hash;
    uint32_t n_arguments, n_leaves, n_facts;
    int64_t *facts;    /* of the recorded call; those of arguments are overwritten */
    uint64_t *numbers; /* by leaf: values of scalars */
    bool *is_number;   /* by leaf */
};

struct segment_place {
    uint64_t hash; /* of all that was recorded before it */
};

struct atoll_compiled {
    atoll_function *function;
    char *name;
    struct context context;
    struct train_options train;
    struct way forward, last;  /* of segments before the last, and of the last */
    struct way *ways;          /* others, that calls brought */
    struct opened *devices;    /* that options named */
    pthread_mutex_t on_device; /* of them, and of all that lies on them */
    bool fullgraph, is_frozen;
    void (*warn)(void *context, const char *text);
    void *warn_context;
    uint64_t seed;
    struct callable *engine;
    struct arena arena; /* texts of the keys */

    pthread_mutex_t lock;      /* of all that follows */
    pthread_mutex_t building;  /* one compilation at a time */
    pthread_rwlock_t in_store; /* held while a plan reads (or writes) what is stored */
    struct stored *store;
    struct running *idle;
    struct segment_place *segments;
    uint32_t n_segments, segment_room;
    struct frozen *frozen[MAX_FROZEN];
    uint32_t n_frozen;
};

/* What the function read on the host so far; later reads are not told of. */
enum { MAX_READS = 16 };
struct read_names {
    char name[160];
};

/* A call on its way; reused. */
struct running {
    struct atoll_compiled *f;
    struct atoll_trace *trace;
    atoll_site site;
    struct running *next;
    uint64_t call;    /* number; 0: no break so far */
    uint32_t segment; /* place in the tree */
    uint64_t mark;    /* hash of the breaks so far */
    const struct way *way;
    const atoll_call_options *options; /* NULL: as the function was compiled */
    char *names;                       /* of leaves that want a gradient, comma-separated */
    uint32_t names_room;
    bool reads_data; /* the function looked at an argument: it may record otherwise next time */

    const void **data; /* by leaf of the trace: arguments, what breaks brought; NULL: stored */
    void **owned;      /* to be freed at the end */
    int64_t *facts;
    const void **ordered; /* by leaf of the segment's graph */
    atoll_value *arguments;
    struct trace_leaf *leaves;
    uint32_t n_data, n_owned, n_facts, n_ordered;
    uint32_t data_room, owned_room, fact_room, ordered_room, argument_room, trace_leaf_room;
    struct trace_read reads[MAX_READS];
    struct read_names read_names[MAX_READS];
    uint32_t n_reads;
    uint32_t *frontier; /* values that a segment brings to the host */
    uint32_t n_frontier, frontier_room;
};

struct plan;
/* Takes an output of a run: i-th of the graph's. */
typedef status take_output(void *context, const char *name, uint32_t i, const struct tensor *t,
                           struct error *e);

/* compiled_plan.c */
status plan_build(void *context, const struct build_request *r, void **plan,
                  struct build_report *report, struct error *e);
void plan_drop(void *context, void *plan);
status plan_run(struct plan *p, const int64_t *symbols, const void *const *ordered,
                take_output *take, void *context, struct error *e);
/* Op by op, without a plan. */
status plan_run_eagerly(struct atoll_compiled *f, const struct trace *t, const void *const *ordered,
                        take_output *take, void *context, struct error *e);

/* compiled_device.c: the device of this name ("cpu" or NULL: NULL), opened at first sight. */
status compiled_device(struct atoll_compiled *f, const char *name, struct device **out,
                       struct error *e);
void compiled_devices_free(struct atoll_compiled *f);

/* compiled_way.c: how a call with options runs, made at first sight. Before the function is run;
 * then, for the last segment, with the gradients that are wanted of what was recorded. */
status way_begin(struct running *r, struct error *e);
status way_last(struct running *r, uint32_t n_arguments, struct error *e);
void ways_free(struct atoll_compiled *f);

/* compiled_frozen.c: true when the call is done without tracing, as *code says. */
bool frozen_call(struct atoll_compiled *f, const atoll_view *v, uint32_t n, atoll_results *results,
                 status *code, struct error *e);
/* For later calls: what this one recorded and ran. */
void frozen_keep(struct running *r, uint32_t n_arguments);
void frozen_free(struct atoll_compiled *f);

/* Of what a segment recorded, as the engine knows it. */
static inline uint64_t segment_hash(const struct running *r, bool is_last)
{
    return hash_u64(r->mark, r->trace->hash) + is_last;
}

/* compiled_store.c: the tensor of a leaf, made and initialised at first sight. */
status store_find(struct atoll_compiled *f, const struct node *n, const int64_t *symbols,
                  struct stored **out, struct error *e);
void store_free(struct atoll_compiled *f);
status results_take(void *context, const char *name, uint32_t i, const struct tensor *t,
                    struct error *e);
void results_begin(struct atoll_results *r);

/* compiled.c: finds or builds the plan of what is recorded so far and runs it; for the last segment
 * the trace's own outputs, before it the frontier. */
status run_segment(struct running *r, bool is_last, take_output *take, void *context,
                   struct error *e);

#endif
