/* Guards: what must hold for a compiled plan to stand for a call. A call's facts are one flat
 * vector of integers (for each argument its dtype, device, rank and dims, then the sizes that ops
 * spell), so checking is one loop over a table; saying what failed, and who introduced the guard,
 * is a second walk that only a miss takes. */
#ifndef ATOLL_RUNTIME_GUARD_H
#define ATOLL_RUNTIME_GUARD_H

#include "ir/graph.h"

enum guard_kind {
#define X(name, json, doc) GUARD_##name,
#include "runtime/guard.def"
#undef X
    N_GUARD_KINDS
};
struct guard_kind_row {
    const char *name, *doc; /* as JSON spells it; what it says */
};
extern const struct guard_kind_row guard_kinds[N_GUARD_KINDS];
/* N_GUARD_KINDS when there is no such name. */
enum guard_kind guard_kind_named(const char *name);

/* The facts of one argument, in this order. Dims behind the rank are 0. */
enum { FACT_DTYPE, FACT_DEVICE, FACT_RANK, FACT_DIM, FACTS_A_LEAF = FACT_DIM + MAX_RANK };
enum { DEVICE_CPU = -1 }; /* FACT_DEVICE: this, or the N of cuda:N */

/* What a guard is about, for people. */
struct guard_source {
    const char *subject; /* "dim 0 of x", "size 1 of reshape %h" */
    const char *why;     /* "x is an argument", "slice %s cuts along it" */
    const char *file;    /* of the call that introduced it; NULL: unknown */
    uint32_t line;
};

/* value = facts[slot]. DTYPE, DEVICE, RANK, DIM: value == low. DIM_RANGE: low <= value <= high.
 * DIM_DIVISIBLE: value % low == 0. DIM_SAME: value == facts[others[0]]. SIZE: value * high == low
 * times the product of facts[others[0..n_others)]; without others that is one number. */
struct guard {
    enum guard_kind kind;
    uint32_t slot, n_others, others[MAX_DIM_SYMBOLS];
    int64_t low, high;
    struct guard_source source;
};

struct guard_set {
    uint32_t n, n_facts; /* of a call that they can hold for */
    const struct guard *guards;
};

/* Facts are n_facts long, else nothing holds. */
bool guards_hold(const struct guard_set *s, const int64_t *facts, uint32_t n_facts);
/* Whether one guard holds; facts are s->n_facts long. */
bool guard_holds(const struct guard *g, const int64_t *facts);
/* "64", "2 or more", "a multiple of 8", "dim 0 of y (5)". */
const char *guard_expects(const struct guard_set *s, const struct guard *g, const int64_t *facts,
                          struct arena *a);
/* The value found: a number, or the name of a dtype or device. */
const char *guard_found(const struct guard *g, const int64_t *facts, struct arena *a);

#endif
