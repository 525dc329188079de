/* Comparing runs: fused against eager bit by bit, and a policy against the f64 reference of the
 * original graph. */
#ifndef ATOLL_FRONTEND_COMPARE_H
#define ATOLL_FRONTEND_COMPARE_H

#include "frontend/parting.h"

/* Counts of elements compared and of those whose bits differ (a NaN equals any NaN; -0 and +0
 * differ). */
struct bit_count {
    uint64_t compared, different;
    char first[512];     /* the first value that differs, or "" */
    int64_t first_index; /* its element */
};
void compare_tensors(struct bit_count *count, const char *name, const struct tensor *a,
                     const struct tensor *b);
/* Every output, and every param, buffer and state, of two runners of one graph. */
void compare_runners(struct bit_count *count, struct runner *a, struct runner *b, bool with_leaves);

/* How far a tensor is from doubles. */
struct closeness {
    double max_abs, relative_l2, cosine;
    double max_ulp; /* in units of the last place of the tensor's dtype, at the reference's
                       magnitude */
    uint64_t n, nonfinite;
};
struct closeness compare_to_reference(const struct tensor *t, const double *reference);

/* Precision error of a policy on one batch: loss and gradients of the eager run against the f64
 * oracle on the model without any policy, from the same parameters. report(context, name,
 * closeness) is called for each output; parting, when not NULL, says which named value is the first
 * whose relative L2 error is above tolerance. */
typedef void closeness_report(void *context, const char *name, const struct closeness *c);
status compare_precision(const struct graph *model, const struct compile_options *o, uint64_t seed,
                         const struct tensor *x, const struct tensor *y, closeness_report *report,
                         void *context, double tolerance, struct parting *parting, struct error *e);

#endif
