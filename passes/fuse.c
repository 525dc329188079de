/* Fusion: last of the passes before code. Needs a primitive graph (decompose.h says what that is);
 * leaves the graph as it is and gives a partition into kernels. One walk in graph order puts each
 * node into the group of an operand, or of a sibling that reads the same value, where the domains
 * agree and no path leaves the group and comes back. Views fold into loads. Invariant: the groups,
 * taken as nodes, form no cycle. */
#include "fuse_internal.h"

static bool is_folded_view(const struct fusion *w, value v)
{
    return op_info[node_at(w, v)->op].kind == VIEW && w->group_of[v.id] == 0 && !w->is_alias[v.id];
}

/* ---- who must lie in memory as a dense tensor ---- */

static bool is_kernel_op(const struct node *n)
{
    enum op_kind k = op_info[n->op].kind;
    return k == ELEMENTWISE || k == RANDOM ||
           (k == REDUCTION && n->op != OP_argmax && n->op != OP_argmin);
}

static void find_dense(struct fusion *w)
{
    const struct graph *g = w->g;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        w->need_dense[g->outputs[i].value.id] = true;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        w->need_dense[g->updates[i].next.id] = true;
    }
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) {
        const struct node *n = &g->nodes[i];
        if (n->op == OP_reshape) {
            const struct shape *from = &node_at(w, n->operands[0])->shape;
            w->is_alias[i] = w->need_dense[i] || !reshape_is_affine(from, &n->shape);
        }
        bool reads_dense = w->is_alias[i] || (!is_kernel_op(n) && op_info[n->op].kind != VIEW);
        for (uint32_t k = 0; reads_dense && k < n->n_operands; k++) {
            w->need_dense[n->operands[k].id] = true;
        }
    }
}

/* ---- dependence ---- */

/* Does anything reachable upwards from `from` lie in group a or b (indices + 1), passing through
 * whole groups? */
static bool depends(struct fusion *w, value from, uint32_t a, uint32_t b)
{
    uint32_t depth = 0;
    w->mark_now++;
    w->stack[depth++] = from;
    w->mark[from.id] = w->mark_now;
    while (depth > 0) {
        value v = w->stack[--depth];
        uint32_t in = w->group_of[v.id];
        if (in != 0 && (in == a || in == b)) {
            return true;
        }
        struct group_list alone = {.members = {v}, .n = 1};
        const struct group_list *list = in != 0 ? w->lists[in - 1] : &alone;
        for (uint32_t m = 0; m < list->n; m++) {
            const struct node *n = node_at(w, list->members[m]);
            w->mark[list->members[m].id] = w->mark_now;
            for (uint32_t k = 0; k < n->n_operands; k++) {
                if (w->mark[n->operands[k].id] != w->mark_now) {
                    w->mark[n->operands[k].id] = w->mark_now;
                    w->stack[depth++] = n->operands[k];
                }
            }
        }
    }
    return false;
}

/* ---- joining ---- */

/* The member of group `in` that operand o denotes: itself, or what an expand to the domain spreads
 * over the row; else 0. */
static value direct(const struct fusion *w, uint32_t in, value o)
{
    if (w->group_of[o.id] == in) {
        return o;
    }
    const struct node *n = node_at(w, o);
    if (n->op == OP_expand && is_folded_view(w, o)) {
        value under = n->operands[0];
        if (w->group_of[under.id] == in && w->is_row_level[under.id] &&
            shape_equal(&n->shape, &w->groups[in - 1].domain)) {
            return under;
        }
    }
    return (value){0};
}

static uint32_t reduced_axes(const struct fusion *w, const struct node *n, uint32_t *first)
{
    const struct node *a = node_at(w, n->operands[0]);
    uint32_t mask = node_axes(n, a->shape.rank), count = 0;
    *first = a->shape.rank;
    for (uint32_t i = 0; i < a->shape.rank; i++) {
        if (mask >> i & 1U) {
            *first = *first < i ? *first : i;
            count++;
        }
    }
    return count;
}

static bool is_trailing(const struct fusion *w, const struct node *n)
{
    uint32_t first, count = reduced_axes(w, n, &first);
    return first + count == node_at(w, n->operands[0])->shape.rank;
}

/* Shape and reduction rules of a node in a ROW group; sets *is_row when it would be one value a
 * row. */
static bool fits(const struct fusion *w, const struct node *n, uint32_t in, bool *is_row)
{
    const struct group *g = &w->groups[in - 1];
    if (g->kind != GROUP_ROW || w->lists[in - 1]->n + 1 >= MAX_GROUP_MEMBERS) {
        return false;
    }
    if (op_info[n->op].kind == REDUCTION) {
        uint32_t first, count = reduced_axes(w, n, &first);
        value o = direct(w, in, n->operands[0]);
        bool same_axes = g->n_axes == 0 || (g->n_axes == count && g->first_axis == first);
        bool is_full = o.id == 0 || !w->is_row_level[o.id];
        *is_row = true;
        return is_trailing(w, n) && same_axes && is_full &&
               shape_equal(&node_at(w, n->operands[0])->shape, &g->domain);
    }
    struct shape rows = row_shape(g);
    bool at_domain = shape_equal(&n->shape, &g->domain);
    bool at_rows = g->n_axes != 0 && shape_equal(&n->shape, &rows);
    bool has_full = false, has_row = false;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        value o = direct(w, in, n->operands[k]);
        has_row = has_row || (o.id != 0 && w->is_row_level[o.id]);
        has_full = has_full || (o.id != 0 && !w->is_row_level[o.id]);
    }
    *is_row = at_rows && (!at_domain || (has_row && !has_full));
    if (op_info[n->op].kind == RANDOM && *is_row) {
        return false;
    }
    return (at_domain || at_rows) && !(*is_row && has_full && !at_domain);
}

static bool can_add(struct fusion *w, value v, uint32_t in, bool *is_row)
{
    const struct node *n = node_at(w, v);
    if (!fits(w, n, in, is_row)) {
        return false;
    }
    for (uint32_t k = 0; k < n->n_operands; k++) {
        if (direct(w, in, n->operands[k]).id == 0 && depends(w, n->operands[k], in, in)) {
            return false;
        }
    }
    return true;
}

static void add_member(struct fusion *w, uint32_t in, value v, bool is_row)
{
    struct group *g = &w->groups[in - 1];
    const struct node *n = node_at(w, v);
    w->lists[in - 1]->members[w->lists[in - 1]->n++] = v;
    w->group_of[v.id] = in;
    w->is_row_level[v.id] = is_row;
    if (op_info[n->op].kind == REDUCTION && is_kernel_op(n)) {
        g->n_axes = reduced_axes(w, n, &g->first_axis);
    }
}

static uint32_t new_group(struct fusion *w, enum group_kind kind, const struct shape *domain)
{
    w->groups = arena_grow(&w->arena, w->groups, w->n_groups, &w->capacity, sizeof *w->groups);
    w->groups[w->n_groups] = (struct group){.kind = kind, .domain = *domain};
    w->lists[w->n_groups] = ARENA_NEW(&w->arena, struct group_list);
    return ++w->n_groups;
}

/* An expand of one value a row to the whole row: inside a kernel, the value itself. */
static bool spreads_row(const struct fusion *w, const struct node *n, const struct shape *domain)
{
    return n->op == OP_expand && w->is_row_level[n->operands[0].id] &&
           shape_equal(&n->shape, domain);
}

/* Two ROW groups over one domain become one when no path runs between them outside. */
static bool try_merge(struct fusion *w, uint32_t a, uint32_t b)
{
    struct group *ga = &w->groups[a - 1], *gb = &w->groups[b - 1];
    struct group_list *la = w->lists[a - 1], *lb = w->lists[b - 1];
    bool same_axes = ga->n_axes == 0 || gb->n_axes == 0 ||
                     (ga->n_axes == gb->n_axes && ga->first_axis == gb->first_axis);
    if (a == b || ga->kind != GROUP_ROW || gb->kind != GROUP_ROW || !same_axes ||
        !shape_equal(&ga->domain, &gb->domain) || la->n + lb->n + 1 >= MAX_GROUP_MEMBERS) {
        return false;
    }
    const struct group_list *both[2] = {la, lb};
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t m = 0; m < both[s]->n; m++) {
            const struct node *n = node_at(w, both[s]->members[m]);
            for (uint32_t k = 0; k < n->n_operands; k++) {
                value o = n->operands[k];
                bool is_inside = direct(w, a, o).id != 0 || direct(w, b, o).id != 0;
                if (is_inside && op_info[n->op].kind == VIEW && !spreads_row(w, n, &ga->domain)) {
                    return false; /* it reads its operand at other indices: only from memory */
                }
                if (!is_inside && depends(w, o, a, b)) {
                    return false;
                }
            }
        }
    }
    struct group_list merged = {.n = 0};
    for (uint32_t i = 0, j = 0; i < la->n || j < lb->n;) {
        bool from_a = j == lb->n || (i < la->n && la->members[i].id < lb->members[j].id);
        merged.members[merged.n++] = from_a ? la->members[i++] : lb->members[j++];
    }
    for (uint32_t j = 0; j < lb->n; j++) {
        w->group_of[lb->members[j].id] = a;
    }
    if (ga->n_axes == 0) {
        ga->n_axes = gb->n_axes;
        ga->first_axis = gb->first_axis;
    }
    *la = merged;
    lb->n = 0;
    return true;
}

/* ---- the walk ---- */

/* A reduction, or what one reads. */
static bool is_reduced(const struct fusion *w, value v)
{
    bool is = op_info[node_at(w, v)->op].kind == REDUCTION;
    for (uint32_t i = v.id + 1; i < w->g->n_nodes && !is; i++) {
        const struct node *user = &w->g->nodes[i];
        is = op_info[user->op].kind == REDUCTION && user->operands[0].id == v.id;
    }
    return is;
}

/* Groups that read a value which n reads too, over n's domain. Single numbers (schedules, scaler,
 * counters) gather without one: a launch costs more than they do. */
static uint32_t sibling(struct fusion *w, value v, uint32_t before, bool *is_row)
{
    const struct node *n = node_at(w, v);
    for (uint32_t in = before; in > 0 && before - in < 24; in--) {
        const struct group_list *list = w->lists[in - 1];
        if (list->n == 0 || !fits(w, n, in, is_row)) {
            continue;
        }
        /* Into a whole-tensor reduction (a norm, a finite check) it would bring a store of its own,
         * and part the parameters of an optimizer into kernels of different shapes. */
        bool is_whole = w->groups[in - 1].n_axes == w->groups[in - 1].domain.rank;
        if (is_whole && !*is_row && n->shape.rank > 0 && !is_reduced(w, v)) {
            continue;
        }
        bool are_numbers = n->shape.rank == 0 && w->groups[in - 1].domain.rank == 0;
        if (are_numbers && can_add(w, v, in, is_row)) {
            return in;
        }
        for (uint32_t m = 0; m < list->n; m++) {
            const struct node *other = node_at(w, list->members[m]);
            for (uint32_t k = 0; k < other->n_operands * n->n_operands; k++) {
                value o = n->operands[k % n->n_operands];
                bool is_shared = o.id == other->operands[k / n->n_operands].id;
                if (is_shared && !node_is_inline(node_at(w, o)) && node_at(w, o)->shape.rank > 0 &&
                    can_add(w, v, in, is_row)) {
                    return in;
                }
            }
        }
    }
    return 0;
}

static uint32_t place(struct fusion *w, value v, bool *is_row)
{
    const struct node *n = node_at(w, v);
    uint32_t home = 0;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        value o = n->operands[k];
        uint32_t in = w->group_of[o.id];
        if (in == 0 && node_at(w, o)->op == OP_expand) {
            in = w->group_of[node_at(w, o)->operands[0].id];
        }
        if (in == 0 || in == home || w->groups[in - 1].kind != GROUP_ROW) {
            continue;
        }
        if (home == 0) {
            home = can_add(w, v, in, is_row) ? in : 0;
        } else {
            try_merge(w, home, in);
        }
    }
    if (home != 0) {
        bool again; /* merging changed what lies inside */
        if (can_add(w, v, home, &again)) {
            *is_row = again;
            return home;
        }
        return 0;
    }
    return w->waits[v.id] ? 0 : sibling(w, v, w->n_groups, is_row);
}

static void walk(struct fusion *w, bool is_off)
{
    for (uint32_t i = 1; i < w->g->n_nodes; i++) {
        value v = {i};
        const struct node *n = node_at(w, v);
        enum op_kind kind = op_info[n->op].kind;
        bool is_row = false;
        if (node_is_leaf(n) || w->is_alias[i] || (node_is_inline(n) && !w->need_dense[i]) ||
            (kind == VIEW && !w->need_dense[i])) {
            continue;
        }
        if (kind == CONTRACTION) {
            add_member(w, new_group(w, GROUP_CONTRACTION, &n->shape), v, false);
        } else if (kind == VIEW || node_is_inline(n)) {
            add_member(w, new_group(w, GROUP_ROW, &n->shape), v, false);
        } else if (!is_kernel_op(n)) {
            add_member(w, new_group(w, GROUP_SINGLE, &n->shape), v, false);
        } else if (kind == REDUCTION && !is_trailing(w, n)) {
            add_member(w, new_group(w, GROUP_COLUMN, &node_at(w, n->operands[0])->shape), v, true);
        } else {
            uint32_t home = is_off ? 0 : place(w, v, &is_row);
            bool is_reduction = kind == REDUCTION;
            if (home == 0) {
                const struct node *domain = is_reduction ? node_at(w, n->operands[0]) : n;
                home = new_group(w, GROUP_ROW, &domain->shape);
                is_row = is_reduction;
            }
            add_member(w, home, v, is_row);
        }
    }
}

/* ---- result ---- */

static void mark_stored(const struct fusion *w, struct partition *p)
{
    for (uint32_t i = 1; i < w->g->n_nodes; i++) {
        const struct node *n = &w->g->nodes[i];
        if (node_is_leaf(n) || w->is_alias[i] || (w->group_of[i] != 0 && w->need_dense[i])) {
            p->is_stored[i] = true;
        }
        bool is_reader = w->group_of[i] != 0 || is_folded_view(w, (value){i}) || w->is_alias[i];
        for (uint32_t k = 0; is_reader && k < n->n_operands; k++) {
            uint32_t from = n->operands[k].id;
            if (w->group_of[from] != 0 && w->group_of[from] != w->group_of[i]) {
                /* an expand inside the group names the row value itself; only a reader elsewhere
                 * needs memory */
                p->is_stored[from] = true;
            }
        }
    }
}

/* A folded expand that every user reads directly does not force its operand into memory. */
static void unmark_direct(const struct fusion *w, struct partition *p)
{
    for (uint32_t r = 1; r < w->g->n_nodes; r++) {
        if (!p->is_stored[r] || w->group_of[r] == 0 || w->need_dense[r]) {
            continue;
        }
        bool is_needed = false;
        for (uint32_t i = r + 1; i < w->g->n_nodes && !is_needed; i++) {
            const struct node *n = &w->g->nodes[i];
            for (uint32_t k = 0; k < n->n_operands; k++) {
                value o = n->operands[k];
                bool is_it = o.id == r;
                bool through = node_at(w, o)->op == OP_expand && is_folded_view(w, o) &&
                               node_at(w, o)->operands[0].id == r;
                if (is_it && is_folded_view(w, (value){i}) && n->op == OP_expand) {
                    continue; /* judged at the expand's users */
                }
                if ((is_it || through) && direct(w, w->group_of[r], o).id != r) {
                    is_needed = true;
                } else if ((is_it || through) && w->group_of[i] != w->group_of[r]) {
                    is_needed = true;
                }
            }
        }
        p->is_stored[r] = is_needed;
    }
}

static void emit_group(struct fusion *w, struct partition *p, uint32_t in, uint32_t *place_of);

static void emit_needs(struct fusion *w, struct partition *p, value v, uint32_t *place_of)
{
    uint32_t in = w->group_of[v.id];
    if (in != 0) {
        emit_group(w, p, in, place_of);
        return;
    }
    const struct node *n = node_at(w, v);
    for (uint32_t k = 0; k < n->n_operands; k++) {
        emit_needs(w, p, n->operands[k], place_of);
    }
}

/* Depth-first: what a group reads stands before it. place_of: 0 new, UINT32_MAX under way, else
 * index + 1. */
static void emit_group(struct fusion *w, struct partition *p, uint32_t in, uint32_t *place_of)
{
    if (place_of[in - 1] != 0) {
        return;
    }
    place_of[in - 1] = UINT32_MAX;
    const struct group_list *list = w->lists[in - 1];
    for (uint32_t m = 0; m < list->n; m++) {
        const struct node *n = node_at(w, list->members[m]);
        for (uint32_t k = 0; k < n->n_operands; k++) {
            if (direct(w, in, n->operands[k]).id == 0) {
                emit_needs(w, p, n->operands[k], place_of);
            }
        }
    }
    struct group *g = &p->groups[p->n_groups];
    *g = w->groups[in - 1];
    g->n_members = list->n;
    g->members = arena_copy(&p->arena, list->members, list->n * sizeof *list->members);
    place_of[in - 1] = ++p->n_groups;
    for (uint32_t m = 0; m < list->n; m++) {
        p->group_of[list->members[m].id] = p->n_groups;
    }
}

status fuse(const struct graph *g, const struct fuse_options *o, struct partition *out,
            struct notes *notes, struct error *e)
{
    struct fusion w = {.g = g, .notes = notes, .arena = SCRATCH_ARENA};
    uint32_t n = g->n_nodes;
    w.group_of = ARENA_ARRAY(&w.arena, uint32_t, n);
    w.is_row_level = ARENA_ARRAY(&w.arena, bool, n);
    w.need_dense = ARENA_ARRAY(&w.arena, bool, n);
    w.is_alias = ARENA_ARRAY(&w.arena, bool, n);
    w.mark = ARENA_ARRAY(&w.arena, uint32_t, n);
    w.stack = ARENA_ARRAY(&w.arena, value, n);
    w.waits = fuse_waiting(g, &w.arena);
    w.lists = ARENA_ARRAY(&w.arena, struct group_list *, n);
    find_dense(&w);
    walk(&w, o != NULL && o->is_off);
    fuse_absorb_prologues(&w);
    if (o == NULL || !o->is_off) {
        fuse_absorb_row_values(&w);
    }
    *out = (struct partition){0};
    out->groups = ARENA_ARRAY(&out->arena, struct group, w.n_groups + 1);
    out->group_of = ARENA_ARRAY(&out->arena, uint32_t, n);
    out->is_stored = ARENA_ARRAY(&out->arena, bool, n);
    mark_stored(&w, out);
    unmark_direct(&w, out);
    uint32_t *place_of = ARENA_ARRAY(&w.arena, uint32_t, w.n_groups + 1);
    for (uint32_t in = 1; in <= w.n_groups; in++) {
        if (w.lists[in - 1]->n != 0) {
            emit_group(&w, out, in, place_of);
        }
    }
    arena_free(&w.arena);
    if (notes != NULL && (o == NULL || !o->is_off)) {
        fuse_explain(g, out, notes);
    }
    (void)e;
    return ATOLL_OK;
}
