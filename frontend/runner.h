/* A model made runnable one way (policy, eager or fused) with its tensors: what train, compare and
 * plans step. */
#ifndef ATOLL_FRONTEND_RUNNER_H
#define ATOLL_FRONTEND_RUNNER_H

#include "frontend/compile.h"
#include "runtime/plan_file.h"

struct runner {
    struct compiled compiled;
    struct plan_file file;   /* when opened from a plan: owns graph, program and library */
    bool is_again;           /* of the plan only its graph: compiled again for the device */
    bool is_eager;           /* on the CPU; on a device eager is a session of one-op kernels */
    struct device *device;   /* lent; NULL: the CPU */
    struct session *session; /* fused */
    struct tensor *leaves;   /* eager: by node id, own memory */
    size_t *leaf_capacity;
    struct tensor *outputs; /* eager */
    size_t *output_capacity;
    struct contraction_cache *cache;
    int64_t symbols[MAX_SYMBOLS];
    int64_t next[MAX_SYMBOLS]; /* of the next step, where something was prefetched for it */
    bool has_next;
    struct loader *loader; /* eager: what was prefetched; a session has its own */
    size_t peak_bytes;
    void (*probe)(void *context, value v, const struct tensor *t); /* eager: sees every value */
    void *probe_context;
    char notice[1000];   /* of a plan: why it was compiled again; "": it was not */
    struct runner *twin; /* checks on: an eager runner of the same graph, stepped beside */
};

/* Compiles and allocates; leaves are initialised from their init texts with `seed`. runner_free in
 * either case. */
status runner_open(struct runner *r, const struct graph *model, const struct compile_options *o,
                   uint64_t seed, struct error *e);
/* The same over compiled, which is taken over. */
status runner_from(struct runner *r, uint64_t seed, struct error *e);
/* From a plan file: fused, with the plan's first state. */
status runner_open_plan(struct runner *r, const char *path, struct error *e);
/* The same on the device of the options; where that refuses the plan's code, compiled again as they
 * say (frontend/plan_again.h): notice, then, has the reason. */
status runner_open_plan_on(struct runner *r, const char *path, const struct compile_options *o,
                           struct error *e);
void runner_free(struct runner *r);

/* The primitive graph the runner executes. */
static inline const struct graph *runner_graph(const struct runner *r)
{
    return r->compiled.primitive;
}
/* Sets symbol values (by id of the primitive graph) for the next steps. */
status runner_bind(struct runner *r, const int64_t *symbols, struct error *e);
/* Binds one symbol from the shape of an input tensor, and its data is copied in. */
status runner_input(struct runner *r, const char *name, const struct tensor *t, struct error *e);
/* The same for the next step, beside the one that runs: sizes and outputs stay until then. */
status runner_prefetch(struct runner *r, const char *name, const struct tensor *t, struct error *e);
/* NULL when there is no such leaf. */
struct tensor *runner_leaf(struct runner *r, const char *name);
/* Eager leaves get their memory at the present symbols, as a step gives it to them. */
status runner_fit_leaf(struct runner *r, value leaf, struct error *e);
status runner_fit_leaves(struct runner *r, struct error *e);
/* What was prefetched becomes the inputs, at its sizes; a step begins with it. */
status runner_take_next(struct runner *r, struct error *e);
status runner_step(struct runner *r, struct error *e);
/* data NULL when there is no such output. */
struct tensor runner_output(struct runner *r, const char *name);
/* First element of an output as a number; NaN when there is none. */
double runner_number(struct runner *r, const char *name);
/* Writes the runner as a plan; its primitive graph must come from graph_parse. */
status runner_write_plan(struct runner *r, const char *path, const char *about, struct error *e);
/* Lets a device that the runner is compiled for choose the algorithms of the matrix products, at
 * the sizes bound, for the plan to record. */
status runner_choose(struct runner *r, struct device *device, struct error *e);
/* Checkpoints of params, buffers and states. */
status runner_save(struct runner *r, const char *path, int64_t steps, struct error *e);
status runner_load(struct runner *r, const char *path, int64_t *steps, struct error *e);
/* Copies every param, buffer and state leaf that both have by name; an f32 param takes the f32
 * value of one that is kept as bf16. */
void runner_copy_leaves(struct runner *to, struct runner *from);

#endif
