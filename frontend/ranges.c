/* Counts by comparison with the bounds of each narrow dtype; a test holds the bounds against the
 * conversions themselves. */
#include "ranges.h"

#include <math.h>
#include <stdlib.h>

const enum dtype narrow_dtypes[N_NARROW] = {F16, BF16, F8E4M3, F8E5M2};

/* Half of the smallest number: the tie goes to 0. */
double underflow_bound(enum dtype t)
{
    return dtype_info[t].smallest_normal * dtype_info[t].epsilon / 2.0;
}

/* Half a unit in the last place beyond the largest. */
double saturation_bound(enum dtype t)
{
    return dtype_info[t].max + ldexp(dtype_info[t].epsilon / 2.0, ilogb(dtype_info[t].max));
}

struct bounds {
    double low, high;
    bool is_open; /* high itself still rounds to the largest: its neighbour above is odd */
};

static void add_element(struct range *r, const struct bounds *bounds, double x)
{
    double a = fabs(x);
    r->n++;
    if (!isfinite(x)) {
        r->nonfinite++;
        return;
    }
    if (a == 0.0) {
        r->zeros++;
        return;
    }
    r->amax = a > r->amax ? a : r->amax;
    r->min_nonzero = r->min_nonzero == 0.0 || a < r->min_nonzero ? a : r->min_nonzero;
    for (uint32_t k = 0; k < N_NARROW; k++) {
        r->underflow[k] += a <= bounds[k].low;
        r->saturate[k] += bounds[k].is_open ? a > bounds[k].high : a >= bounds[k].high;
    }
}

status ranges_add(struct ranges *r, const struct recording *rec, struct error *e)
{
    struct bounds bounds[N_NARROW];
    for (uint32_t k = 0; k < N_NARROW; k++) {
        enum dtype t = narrow_dtypes[k];
        bounds[k] = (struct bounds){underflow_bound(t), saturation_bound(t), t == F8E4M3};
    }
    if (r->items == NULL) {
        r->items = calloc(rec->n, sizeof *r->items);
        r->n = rec->n;
    }
    if (r->items == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for the ranges of %u values", rec->n);
    }
    for (uint32_t i = 1; i < rec->n && i < r->n; i++) {
        const struct tensor *t = &rec->values[i];
        int64_t n = t->data != NULL && dtype_is_float(t->dtype) ? tensor_count(t) : 0;
        for (int64_t k = 0; k < n; k++) {
            const unsigned char *at =
                (const unsigned char *)t->data + (size_t)k * dtype_info[t->dtype].bytes;
            add_element(&r->items[i], bounds, dtype_load(t->dtype, at));
        }
    }
    r->steps++;
    return ATOLL_OK;
}

void ranges_free(struct ranges *r)
{
    free(r->items);
    *r = (struct ranges){0};
}
