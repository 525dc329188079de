/* Bisecting a difference: which fusion makes a fused step differ from an eager one, and which
 * decision of a policy takes a result too far from the f64 reference. */
#ifndef ATOLL_FRONTEND_BISECT_H
#define ATOLL_FRONTEND_BISECT_H

#include "frontend/compare.h"

/* Sets the inputs of one step. */
typedef status bisect_feed(void *context, struct runner *r, struct error *e);

enum bisect_kind {
    BISECT_NONE,   /* nothing differs */
    BISECT_OP,     /* an op differs though every op is a kernel of its own */
    BISECT_FUSION, /* it takes several ops in one kernel */
    BISECT_POLICY
};

struct bisect {
    enum bisect_kind kind;
    char node[96];            /* OP, FUSION: the last op that it takes; POLICY: whose decision */
    uint32_t group, n_groups; /* FUSION: the kernel, in launch order, of how many groups */
    uint32_t members, of;     /* FUSION: it takes the first so many of the group's ops */
    uint32_t tries;           /* runs it took */
    double without, with_it;  /* POLICY: worst relative L2 error before and with the decision */
    double alone; /* POLICY: with this one node in f32 and all else as the policy says */
    char text[1400];
};

/* before: an eager runner with the leaves as they are before the step at which fused and eager
 * part; o: the options of the fused run. */
status bisect_fusion(const struct graph *model, const struct compile_options *o, uint64_t seed,
                     struct runner *before, bisect_feed *feed, void *context, struct bisect *out,
                     struct error *e);
/* On the batch x, y: in the order of the model, the first op whose dtype by o->policy takes the
 * worst of outputs and gradients above tolerance (relative L2), when the ops behind it run in f32.
 */
status bisect_policy(const struct graph *model, const struct compile_options *o, uint64_t seed,
                     const struct tensor *x, const struct tensor *y, double tolerance,
                     struct bisect *out, struct error *e);

#endif
