/* Why neighbours are not one kernel: after fusion, from its partition alone. For each group and
 * each earlier group whose result it reads, one note with the first reason that holds, in the order
 * in which fusion itself would have refused. Changes nothing. */
#include "fuse.h"

#include <string.h>

struct pair {
    const struct graph *g;
    const struct partition *p;
    uint32_t from, to; /* groups: index + 1 */
    value read;        /* of `from` */
    enum op view;      /* what `to` reads it through that changes indices; OP_NONE: nothing */
    bool is_reshaped;  /* it reads through a reshape */
    struct arena *arena;
};

static const struct group *group_at(const struct pair *q, uint32_t in)
{
    return &q->p->groups[in - 1];
}

static const char *op_of_group(const struct pair *q, uint32_t in)
{
    const struct group *group = group_at(q, in);
    return op_info[graph_node(q->g, group->members[group->n_members - 1])->op].name;
}

static const char *shape_text(const struct pair *q, const struct shape *s)
{
    const char *names[MAX_SYMBOLS] = {""};
    struct text t = {.arena = q->arena};
    for (uint32_t i = 1; i < q->g->n_symbols; i++) {
        names[i] = q->g->symbols[i].name;
    }
    text_add(&t, "[");
    shape_print(&t, s, names);
    text_add(&t, "]");
    return t.data;
}

/* Whether `to` needs anything of `from` by way of a third group: its number, else 0. */
static uint32_t group_between(const struct pair *q)
{
    bool *is_seen = ARENA_ARRAY(q->arena, bool, q->g->n_nodes);
    bool *reaches = ARENA_ARRAY(q->arena, bool, q->g->n_nodes); /* a member of `from` above it */
    const struct group *to = group_at(q, q->to);
    for (uint32_t i = 1; i < q->g->n_nodes; i++) {
        const struct node *n = &q->g->nodes[i];
        uint32_t in = q->p->group_of[i];
        is_seen[i] = in == q->from;
        for (uint32_t k = 0; k < n->n_operands; k++) {
            reaches[i] = reaches[i] || is_seen[n->operands[k].id] || reaches[n->operands[k].id];
        }
    }
    for (uint32_t m = 0; m < to->n_members; m++) {
        const struct node *n = graph_node(q->g, to->members[m]);
        for (uint32_t k = 0; k < n->n_operands; k++) {
            value o = n->operands[k];
            uint32_t in = q->p->group_of[o.id];
            if (in != 0 && in != q->from && in != q->to && reaches[o.id]) {
                return in;
            }
        }
    }
    return 0;
}

static const char *reduction_text(const struct pair *q, const struct group *group)
{
    return group->n_axes == 0 ? "nothing"
                              : arena_text(q->arena, "axes %u to %u", group->first_axis,
                                           group->first_axis + group->n_axes - 1);
}

static const char *reason(const struct pair *q)
{
    const struct group *from = group_at(q, q->from), *to = group_at(q, q->to);
    uint32_t library = from->kind == GROUP_CONTRACTION ? q->from : q->to;
    uint32_t single = from->kind == GROUP_SINGLE ? q->from : q->to;
    if (from->kind == GROUP_CONTRACTION || to->kind == GROUP_CONTRACTION) {
        return arena_text(q->arena, "a %s is a library call", op_of_group(q, library));
    }
    if (from->kind == GROUP_SINGLE || to->kind == GROUP_SINGLE) {
        return arena_text(q->arena, "a %s runs by itself", op_of_group(q, single));
    }
    if (q->view != OP_NONE) {
        return arena_text(q->arena,
                          "read through a %s, at other indices than where it is computed: only "
                          "from memory",
                          op_info[q->view].name);
    }
    if (from->kind == GROUP_COLUMN) {
        return "a column reduction ends with the last row: its readers come after";
    }
    if (to->kind == GROUP_COLUMN) {
        return "others than the column reduction need the value as well: it lies in memory";
    }
    if (!shape_equal(&from->domain, &to->domain)) {
        return arena_text(q->arena, "loops differ: over %s and over %s",
                          shape_text(q, &from->domain), shape_text(q, &to->domain));
    }
    if (from->n_axes != 0 && to->n_axes != 0 &&
        (from->n_axes != to->n_axes || from->first_axis != to->first_axis)) {
        return arena_text(q->arena, "one reduces %s, the other %s", reduction_text(q, from),
                          reduction_text(q, to));
    }
    if (from->n_members + to->n_members >= MAX_GROUP_MEMBERS) {
        return arena_text(q->arena, "together %u nodes, at most %d in a kernel",
                          from->n_members + to->n_members, MAX_GROUP_MEMBERS);
    }
    uint32_t between = group_between(q);
    if (between != 0) {
        return arena_text(q->arena,
                          "group %u (%s) stands between: it needs the first, the second needs it",
                          between - 1, op_of_group(q, between));
    }
    if (q->is_reshaped) {
        return "read through a reshape, which fusion does not see through";
    }
    return "they could be one kernel: the walk in graph order came to them apart";
}

/* The grouped value under views that fold into loads. *view: the one nearest to the reader that
 * changes indices; *is_reshaped: one that only spreads or renames them. */
static value under_views(const struct partition *p, const struct graph *g, value v, enum op *view,
                         bool *is_reshaped)
{
    while (p->group_of[v.id] == 0 && op_info[graph_node(g, v)->op].kind == VIEW) {
        const struct node *n = graph_node(g, v);
        bool is_spread = n->op == OP_expand || n->op == OP_reshape;
        if (*view == OP_NONE && !is_spread) {
            *view = n->op;
        }
        *is_reshaped = *is_reshaped || n->op == OP_reshape;
        v = n->operands[0];
    }
    return v;
}

/* All that the second group reads of the first: the first such value, and any view on the way. */
static void find_reads(struct pair *q)
{
    const struct group *to = group_at(q, q->to);
    for (uint32_t m = 0; m < to->n_members; m++) {
        const struct node *n = graph_node(q->g, to->members[m]);
        for (uint32_t k = 0; k < n->n_operands; k++) {
            enum op view = OP_NONE;
            bool is_reshaped = false;
            value v = under_views(q->p, q->g, n->operands[k], &view, &is_reshaped);
            if (q->p->group_of[v.id] == q->from) {
                q->read = q->read.id == 0 ? v : q->read;
                q->view = q->view == OP_NONE ? view : q->view;
                q->is_reshaped = q->is_reshaped || is_reshaped;
            }
        }
    }
}

static void explain_pair(struct pair *q, struct notes *notes)
{
    struct arena own = SCRATCH_ARENA;
    q->arena = &own;
    find_reads(q);
    note_add(notes, "fuse", graph_name(q->g, q->read, &own), "groups %u and %u: %s", q->from - 1,
             q->to - 1, reason(q));
    arena_free(&own);
}

void fuse_explain(const struct graph *g, const struct partition *p, struct notes *notes)
{
    struct arena scratch = SCRATCH_ARENA;
    uint32_t *told = ARENA_ARRAY(&scratch, uint32_t, p->n_groups + 1); /* by group: last reader */
    for (uint32_t to = 1; to <= p->n_groups; to++) {
        const struct group *group = &p->groups[to - 1];
        for (uint32_t m = 0; m < group->n_members; m++) {
            const struct node *n = graph_node(g, group->members[m]);
            for (uint32_t k = 0; k < n->n_operands; k++) {
                struct pair q = {.g = g, .p = p, .to = to};
                bool is_reshaped = false;
                enum op view = OP_NONE;
                q.from = p->group_of[under_views(p, g, n->operands[k], &view, &is_reshaped).id];
                if (q.from != 0 && q.from != to && told[q.from] != to) {
                    told[q.from] = to;
                    explain_pair(&q, notes);
                }
            }
        }
    }
    arena_free(&scratch);
}
