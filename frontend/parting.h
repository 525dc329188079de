/* Where two runs of one step part: the first value, in the order of computation, whose bits differ
 * between eager and fused, or that lies too far from the f64 reference. */
#ifndef ATOLL_FRONTEND_PARTING_H
#define ATOLL_FRONTEND_PARTING_H

#include "frontend/runner.h"
#include "ir/eval.h"

struct parting {
    bool is_found;
    char text[600]; /* "%h (gelu, model.graph:4)[2,3]: eager 0.5, fused 0.25, in launch 3 (k2_...)"
                     */
};

/* Copies of the values that one eager step computed, by node id. Zero-initialise. */
struct recording {
    struct tensor *values; /* data NULL: not computed */
    uint32_t n;
    bool is_short; /* memory ran out */
};
/* Steps the eager runner and keeps every value. */
status recording_step(struct recording *rec, struct runner *eager, struct error *e);
void recording_free(struct recording *rec);

/* Steps both, from equal leaves: every launch of the fused one is compared as it ends with what the
 * eager one computed. */
status parting_step(struct runner *eager, struct runner *fused, struct parting *out,
                    struct error *e);

/* The first named value of the recorded run whose relative L2 distance from the value of that name
 * in the oracle's graph is above tolerance: a name stands for the last node that bears it, which is
 * what the op of the model gives after all its primitives. */
void parting_from_reference(const struct recording *rec, const struct graph *g,
                            const struct eval *oracle, double tolerance, struct parting *out);

/* Describes one differing element: name, op, location, index. */
void parting_describe(struct parting *out, const struct graph *g, value v, const struct tensor *t,
                      int64_t element);

#endif
