/* What planning an entry (callable_plan.c) and writing its guards (callable_guards.c) share. */
#ifndef ATOLL_FRONTEND_CALLABLE_PLAN_H
#define ATOLL_FRONTEND_CALLABLE_PLAN_H

#include "callable_internal.h"

enum { MAX_PRODUCT = 2 }; /* dims in the product that a spelt size may be */

/* A size that changed: the dims that had equal values at every call seen. */
struct group_of_dims {
    uint32_t leader;    /* its first slot */
    int64_t now;        /* value at this call */
    bool is_number;     /* stays one: 0 or 1 now, or an op needs it */
    uint8_t symbol;     /* in the graph under way */
    int64_t factor;     /* the dim is factor * symbol */
    const char *remark; /* why it stays a number, or a multiple */
    struct location where;
};

/* A spelt size: low * product of groups' values / high. n 0: the number low. */
struct spelt {
    int64_t low, high;
    uint32_t n, groups[MAX_PRODUCT];
};

struct planning {
    struct entry *en;
    struct entry *const *seen; /* of the same trace */
    uint32_t n_seen;
    struct arena *arena; /* scratch */
    uint32_t *group_of;  /* by slot of a dim: index + 1; 0: it never changed */
    struct group_of_dims groups[MAX_SYMBOLS];
    uint32_t n_groups;
    struct spelt *spelt; /* by slot - first_size */
    uint32_t first_size;
    struct graph *graph;
    uint32_t culprit; /* node of the trace that would not take its operands */
    struct error refusal;
};

/* The dim a spelt size is; its number when that is no whole multiple of symbols. */
struct dim dim_of_spelt(const struct planning *p, uint32_t slot);
/* "slice %s", in the entry's arena. */
const char *planning_op(const struct planning *p, const struct node *n);
/* The guards under which the planned graph stands for a call. */
void write_guards(struct planning *p, uint32_t n_facts);

#endif
