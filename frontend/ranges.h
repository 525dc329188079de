/* ranges: what the values of a run would lose in narrower dtypes, gathered over the traces of its
 * steps: evidence for a policy.
 *
 *     struct ranges r = {0};
 *     for each step: TRY(trace_step(&rec, &runner, e)); TRY(ranges_add(&r, &rec, e));
 *     ... r.items[v.id] ...
 *     ranges_free(&r);
 */
#ifndef ATOLL_FRONTEND_RANGES_H
#define ATOLL_FRONTEND_RANGES_H

#include "frontend/trace.h"

enum { N_NARROW = 4 };
extern const enum dtype narrow_dtypes[N_NARROW]; /* f16, bf16, f8e4m3, f8e5m2 */

/* Of one value, over all its elements in all steps. */
struct range {
    uint64_t n, zeros, nonfinite;
    double amax, min_nonzero;                         /* of finite elements; 0: there were none */
    uint64_t underflow[N_NARROW], saturate[N_NARROW]; /* would become 0; would pass the largest */
};

struct ranges {
    struct range *items; /* by node id; n 0: not a float, or never computed */
    uint32_t n;
    uint64_t steps;
};

status ranges_add(struct ranges *r, const struct recording *rec, struct error *e);
void ranges_free(struct ranges *r);

/* The magnitude up to which a number becomes 0 in t, and from which (f8e4m3: above which) it is
 * infinite, or NaN: rounding to nearest, ties to even. */
double underflow_bound(enum dtype t);
double saturation_bound(enum dtype t);

#endif
