/* What fuse finds: a graph's nodes in groups, each one kernel or one library call, in an order that
 * can run. Plain data, in ir/ so that codegen and runtime need not see passes/. */
#ifndef ATOLL_IR_PARTITION_H
#define ATOLL_IR_PARTITION_H

#include "graph.h"

enum group_kind {
    GROUP_ROW,    /* elementwise nodes over a domain, with any reductions over its trailing axes */
    GROUP_COLUMN, /* elementwise nodes over a domain, feeding reductions over axes that are not
                     trailing */
    GROUP_CONTRACTION, /* one matmul or linear: a library call */
    GROUP_SINGLE,      /* one index op: the eager kernel of that op */
};

struct group {
    enum group_kind kind;
    struct shape domain;         /* ROW, COLUMN: what the loops run over */
    uint32_t first_axis, n_axes; /* the reduced group of axes; n_axes 0: no reduction */
    uint32_t n_members;
    const value *members; /* in graph order */
};

struct partition {
    struct arena arena;
    uint32_t n_groups;
    struct group *groups; /* in schedule order */
    uint32_t *group_of; /* by node id: index + 1 of its group; 0: a leaf, a number, a folded view or
                           an alias */
    bool *is_stored;    /* by node id: the value lies in memory (leaves, group results others need,
                           aliases) */
    bool keeps_values;  /* every kernel stores all it computes, and the memory of a value serves
                           nothing else in the step: for looking at values afterwards */
};

enum { MAX_GROUP_MEMBERS = 400 };

/* A node that a kernel spells in place, never a group member: constant, size, iota. */
static inline bool node_is_inline(const struct node *n)
{
    return n->op == OP_constant || n->op == OP_size || n->op == OP_iota;
}
static inline bool node_is_leaf(const struct node *n)
{
    return n->op >= OP_input && n->op <= OP_scalar;
}

void partition_free(struct partition *p);
/* Makes each member of the groups marked (by group index) a group of its own, in the same order:
 * what to do when a group's kernel cannot be built. */
void partition_split(const struct graph *g, struct partition *p, const bool *is_marked);

/* For bisecting: the first `groups` groups stay, of the next one its first `members` members stay
 * together (ROW groups; others stay whole or not at all), and all else is one op a group. */
void partition_limit(const struct graph *g, struct partition *p, uint32_t groups, uint32_t members);
/* Makes the kernels store what they compute: see keeps_values. What a COLUMN group computes for its
 * reduction, and what is beyond `most` values of one group, stays inside. */
void partition_keep_values(struct partition *p, uint32_t most);

/* How the value of a view (or a broadcast operand) is read from the memory of its base: element at
 * index (i0, i1, ...) of v's shape lies at offset + sum stride[k] * ik of the base, in elements. */
struct access {
    value base;
    struct dim offset;
    struct dim stride[MAX_RANK];
};
/* Follows transpose, expand, slice and size-1 reshapes down to the value that lies in memory
 * (is_stored), or to an inline node: then offset and strides give the number that iota has there.
 * false when v cannot be read so. */
bool access_of(const struct graph *g, const bool *is_stored, value v, struct access *out);
/* Whether a reshape only adds or drops axes of size 1. */
bool reshape_is_affine(const struct shape *from, const struct shape *to);
/* Strides of a dense row-major tensor; false when a product does not fit. */
bool shape_strides(const struct shape *s, struct dim stride[MAX_RANK]);

#endif
