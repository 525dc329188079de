/* What the files of fusion share: the state of the walk. */
#ifndef ATOLL_PASSES_FUSE_INTERNAL_H
#define ATOLL_PASSES_FUSE_INTERNAL_H

#include "fuse.h"

struct fusion {
    const struct graph *g;
    struct arena arena;
    struct group *groups;
    struct group_list {
        value members[MAX_GROUP_MEMBERS];
        uint32_t n;
    } * *lists;
    uint32_t n_groups, capacity;
    uint32_t *group_of; /* by node: index + 1; 0 none */
    bool *is_row_level; /* by node: one value a row of its ROW group */
    bool *need_dense;   /* by node: somebody outside kernels reads it */
    bool *is_alias;     /* by node: a reshape that shares its operand's memory */
    const bool *waits;  /* by node: no kernel takes it but its readers' */
    uint32_t *mark, mark_now;
    value *stack;
    struct notes *notes;
};

static inline const struct node *node_at(const struct fusion *w, value v)
{
    return graph_node(w->g, v);
}

/* One value a row of a ROW group: its domain with ones for the axes it reduces. */
static inline struct shape row_shape(const struct group *g)
{
    struct shape s = g->domain;
    for (uint32_t i = 0; i < g->n_axes; i++) {
        s.dims[g->first_axis + i] = dim_of(1);
    }
    return s;
}

/* fuse_absorb.c, behind the walk: chains that feed one column reduction alone go into it; and what
 * only one row reduction reads, one value a row, is computed there. */
void fuse_absorb_prologues(struct fusion *w);
void fuse_absorb_row_values(struct fusion *w);

#endif
