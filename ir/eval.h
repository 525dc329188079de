/* The oracle: interprets a decomposed graph in double, one plain loop an op, with libm. Every float
 * value is a double (casts to a float dtype do not round: it is the reference of the original
 * maths); integers and bool are doubles that hold whole numbers. */
#ifndef ATOLL_IR_EVAL_H
#define ATOLL_IR_EVAL_H

#include "graph.h"

struct eval {
    const struct graph *graph; /* primitives only */
    const int64_t *symbols;    /* values by symbol id */
    bool rounds; /* true: round every value to its dtype, as the executors do (a slow emulation of
                    them) */
    double **values; /* by node id; leaves set by the caller before eval_run, the rest allocated in
                        arena */
    struct arena arena;
};

/* values[] zeroed, sized to the graph. */
void eval_begin(struct eval *e, const struct graph *g, const int64_t *symbols);
status eval_run(struct eval *e, struct error *error);
void eval_end(struct eval *e);
int64_t eval_count(const struct eval *e, value v);

#endif
