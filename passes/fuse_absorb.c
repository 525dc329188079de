/* Fusion behind the walk: groups that are better off inside another. Used by fuse.c. Invariant: a
 * group goes where its only readers are, so no path can leave and come back. */
#include "fuse_internal.h"

/* ---- column prologues ---- */

static bool used_only_by(const struct fusion *w, uint32_t e, uint32_t c)
{
    for (uint32_t i = 1; i < w->g->n_nodes; i++) {
        const struct node *n = &w->g->nodes[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            uint32_t in = w->group_of[n->operands[k].id];
            if (in == e && w->group_of[i] != e && w->group_of[i] != c) {
                return false;
            }
        }
    }
    for (uint32_t m = 0; m < w->lists[e - 1]->n; m++) {
        if (w->need_dense[w->lists[e - 1]->members[m].id]) {
            return false;
        }
    }
    return true;
}

/* A chain that only feeds one column reduction is computed inside it. */
void fuse_absorb_prologues(struct fusion *w)
{
    for (uint32_t c = 1; c <= w->n_groups; c++) {
        struct group *g = &w->groups[c - 1];
        struct group_list *list = w->lists[c - 1];
        if (g->kind != GROUP_COLUMN || list->n == 0) {
            continue;
        }
        uint32_t e = w->group_of[node_at(w, list->members[0])->operands[0].id];
        if (e == 0 || w->groups[e - 1].kind != GROUP_ROW || w->groups[e - 1].n_axes != 0 ||
            !shape_equal(&w->groups[e - 1].domain, &g->domain) || !used_only_by(w, e, c) ||
            w->lists[e - 1]->n + list->n >= MAX_GROUP_MEMBERS) {
            continue;
        }
        struct group_list *from = w->lists[e - 1];
        for (uint32_t m = 0; m < list->n; m++) {
            from->members[from->n++] = list->members[m];
        }
        for (uint32_t m = 0; m < from->n; m++) {
            w->group_of[from->members[m].id] = c;
        }
        *list = *from;
        from->n = 0;
    }
}

/* ---- chains of one value a row ---- */

/* The row reduction that alone uses v, a value of one element a row; 0: none. No path can come
 * back: v's own group stands before it already. */
static uint32_t only_row_user(const struct fusion *w, value v)
{
    const struct node *n = node_at(w, v);
    uint32_t home = 0;
    for (uint32_t i = v.id + 1; i < w->g->n_nodes; i++) {
        const struct node *user = &w->g->nodes[i];
        for (uint32_t k = 0; k < user->n_operands; k++) {
            if (user->operands[k].id != v.id) {
                continue;
            }
            uint32_t in = w->group_of[i];
            if (in == 0 || (home != 0 && in != home) || op_info[user->op].kind == VIEW) {
                return 0;
            }
            home = in;
        }
    }
    if (home == 0 || home == w->group_of[v.id] || w->groups[home - 1].kind != GROUP_ROW ||
        w->groups[home - 1].n_axes == 0 || w->lists[home - 1]->n + 1 >= MAX_GROUP_MEMBERS) {
        return 0;
    }
    struct shape rows = row_shape(&w->groups[home - 1]);
    return shape_equal(&n->shape, &rows) ? home : 0;
}

static void move_member(struct fusion *w, value v, uint32_t to)
{
    struct group_list *from = w->lists[w->group_of[v.id] - 1], *list = w->lists[to - 1];
    uint32_t kept = 0, at = list->n++;
    for (uint32_t m = 0; m < from->n; m++) {
        if (from->members[m].id != v.id) {
            from->members[kept++] = from->members[m];
        }
    }
    from->n = kept;
    for (; at > 0 && list->members[at - 1].id > v.id; at--) {
        list->members[at] = list->members[at - 1];
    }
    list->members[at] = v;
    w->group_of[v.id] = to;
    w->is_row_level[v.id] = true;
}

/* What only one row reduction reads is computed there, users first: a loss's check of its targets,
 * say. */
void fuse_absorb_row_values(struct fusion *w)
{
    for (uint32_t i = w->g->n_nodes - 1; i > 0; i--) {
        uint32_t from = w->group_of[i];
        if (from == 0 || w->groups[from - 1].kind != GROUP_ROW || w->need_dense[i] ||
            op_info[w->g->nodes[i].op].kind != ELEMENTWISE || w->is_row_level[i]) {
            continue;
        }
        uint32_t to = only_row_user(w, (value){i});
        if (to != 0) {
            move_member(w, (value){i}, to);
        }
    }
}
