/* Access maps: how a view reads its base. Used by fuse (which views fold), lower (loads) and the
 * planner (aliases). Invariant: an access is affine in the indices of the view, with strides that
 * are dims. */
#include "partition.h"

void partition_free(struct partition *p)
{
    arena_free(&p->arena);
}

static struct group group_of_one(const struct graph *g, const struct group *from,
                                 const value *member)
{
    const struct node *n = graph_node(g, *member);
    struct group one = {.kind = GROUP_ROW, .domain = n->shape, .n_members = 1, .members = member};
    if (op_info[n->op].kind == REDUCTION || from->n_members == 1) {
        one = *from;
        one.members = member;
        one.n_members = 1;
    }
    return one;
}

/* keep[i]: how many first members of group i stay together. */
static void cut_groups(const struct graph *g, struct partition *p, const uint32_t *keep)
{
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        n += 1 + p->groups[i].n_members - keep[i];
    }
    struct group *groups = ARENA_ARRAY(&p->arena, struct group, n + 1);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct group *from = &p->groups[i];
        bool is_cut = keep[i] < from->n_members;
        groups[at] = is_cut && keep[i] == 1 ? group_of_one(g, from, from->members) : *from;
        groups[at++].n_members = keep[i];
        for (uint32_t m = 0; m < from->n_members && is_cut; m++) {
            p->is_stored[from->members[m].id] = true;
            if (m >= keep[i]) {
                groups[at++] = group_of_one(g, from, &from->members[m]);
            }
        }
    }
    for (uint32_t i = 0; i < at; i++) {
        for (uint32_t m = 0; m < groups[i].n_members; m++) {
            p->group_of[groups[i].members[m].id] = i + 1;
        }
    }
    p->groups = groups;
    p->n_groups = at;
}

void partition_split(const struct graph *g, struct partition *p, const bool *is_marked)
{
    struct arena scratch = SCRATCH_ARENA;
    uint32_t *keep = ARENA_ARRAY(&scratch, uint32_t, p->n_groups + 1);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        keep[i] = is_marked[i] ? 1 : p->groups[i].n_members;
    }
    cut_groups(g, p, keep);
    arena_free(&scratch);
}

void partition_limit(const struct graph *g, struct partition *p, uint32_t groups, uint32_t members)
{
    struct arena scratch = SCRATCH_ARENA;
    uint32_t *keep = ARENA_ARRAY(&scratch, uint32_t, p->n_groups + 1);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        uint32_t n = p->groups[i].n_members, some = members > 1 && members < n ? members : 1;
        bool is_row = p->groups[i].kind == GROUP_ROW;
        keep[i] = i < groups                    ? n
                  : i == groups && members >= n ? n
                  : is_row && i == groups       ? some
                                                : 1;
    }
    cut_groups(g, p, keep);
    arena_free(&scratch);
}

void partition_keep_values(struct partition *p, uint32_t most)
{
    p->keeps_values = true;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct group *g = &p->groups[i];
        for (uint32_t m = 0; g->kind == GROUP_ROW && m < g->n_members && m < most; m++) {
            p->is_stored[g->members[m].id] = true;
        }
    }
}

bool shape_strides(const struct shape *s, struct dim stride[MAX_RANK])
{
    struct dim step = dim_of(1);
    for (uint32_t i = s->rank; i-- > 0;) {
        stride[i] = step;
        if (!dim_multiply(step, s->dims[i], &step)) {
            return false;
        }
    }
    return true;
}

/* Size-1 axes inserted or dropped keep the access affine: match the other axes in order. */
static bool through_reshape(const struct node *n, const struct shape *from, struct access *a)
{
    struct dim stride[MAX_RANK] = {0};
    uint32_t at = 0;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        if (dim_is(n->shape.dims[i], 1)) {
            continue;
        }
        while (at < from->rank && dim_is(from->dims[at], 1)) {
            at++;
        }
        if (at == from->rank || !dim_equal(from->dims[at], n->shape.dims[i])) {
            return false;
        }
        stride[i] = a->stride[at++];
    }
    while (at < from->rank && dim_is(from->dims[at], 1)) {
        at++;
    }
    if (at != from->rank) {
        return false;
    }
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        a->stride[i] = stride[i];
    }
    return true;
}

bool reshape_is_affine(const struct shape *from, const struct shape *to)
{
    struct node n = {.shape = *to};
    struct access a = {0};
    return through_reshape(&n, from, &a);
}

static void through_transpose(const struct node *n, struct access *a)
{
    const struct attr *perm = node_attr_named(n, "perm");
    struct access was = *a;
    uint32_t rank = n->shape.rank;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t from = perm->n_ints == 0 ? (int64_t)(rank - 1 - i) : perm->ints[i];
        a->stride[i] = was.stride[from < 0 ? from + rank : from];
    }
}

static void through_expand(const struct node *n, const struct shape *from, struct access *a)
{
    struct access was = *a;
    uint32_t lead = n->shape.rank - from->rank;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        bool is_broadcast =
            i < lead || (dim_is(from->dims[i - lead], 1) && !dim_is(n->shape.dims[i], 1));
        a->stride[i] = is_broadcast ? dim_of(0) : was.stride[i - lead];
    }
}

static bool through_slice(const struct node *n, const struct shape *from, struct access *a)
{
    int64_t axis = node_int(n, "axis"), start = node_int(n, "start"), step = node_int(n, "step");
    axis = axis < 0 ? axis + from->rank : axis;
    struct dim size = from->dims[axis], shift;
    if (start < 0) {
        start += size.factor; /* inference saw a static size */
    }
    start = start < 0 ? 0 : start;
    if (!dim_multiply(a->stride[axis], dim_of(start), &shift) ||
        !dim_multiply(a->stride[axis], dim_of(step), &a->stride[axis])) {
        return false;
    }
    if (shift.factor == 0) {
        return true;
    }
    if (a->offset.factor == 0) {
        a->offset = shift;
        return true;
    }
    struct dim sum = a->offset; /* like terms add */
    sum.factor = shift.factor;
    if (!dim_equal(sum, shift)) {
        return false;
    }
    a->offset.factor += shift.factor;
    return true;
}

bool access_of(const struct graph *g, const bool *is_stored, value v, struct access *out)
{
    const struct node *n = graph_node(g, v);
    if (is_stored[v.id]) {
        *out = (struct access){.base = v, .offset = dim_of(0)};
        return shape_strides(&n->shape, out->stride);
    }
    if (node_is_inline(n)) {
        *out = (struct access){.base = v, .offset = dim_of(0)};
        if (n->op == OP_iota) {
            int64_t axis = node_int(n, "axis");
            out->stride[axis < 0 ? axis + n->shape.rank : axis] = dim_of(1);
        }
        return true;
    }
    if (op_info[n->op].kind != VIEW || !access_of(g, is_stored, n->operands[0], out)) {
        return false;
    }
    const struct shape *from = &graph_node(g, n->operands[0])->shape;
    switch ((int)n->op) {
    case OP_reshape:
        return through_reshape(n, from, out);
    case OP_transpose:
        through_transpose(n, out);
        return true;
    case OP_expand:
        through_expand(n, from, out);
        return true;
    default:
        return through_slice(n, from, out);
    }
}
