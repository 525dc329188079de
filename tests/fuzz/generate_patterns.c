/* Shapes of graphs that fusion cares about and single draws seldom give: rows normalised by their
 * own reductions, values a row carried through reshapes, states updated from each other, several
 * reductions of one value. */
#include <string.h>

#include "generate_maker.h"

static enum op any_op(struct maker *m, const enum op *table, uint32_t n)
{
    return table[draw_below(m->d, n)];
}

static enum op any_binary(struct maker *m)
{
    static const enum op table[] = {OP_add, OP_sub, OP_mul,     OP_div,
                                    OP_sub, OP_mul, OP_maximum, OP_minimum};
    return any_op(m, table, ARRAY_LEN(table));
}

static enum op any_unary(struct maker *m)
{
    static const enum op table[] = {OP_neg,  OP_abs,   OP_exp,  OP_relu,   OP_tanh, OP_sigmoid,
                                    OP_sqrt, OP_rsqrt, OP_sign, OP_is_nan, OP_erf,  OP_round};
    return any_op(m, table, ARRAY_LEN(table));
}

/* One set of axes: trailing, leading or any. */
static uint32_t any_axes(struct maker *m, uint32_t rank, int64_t axes[MAX_RANK])
{
    uint32_t n = 0, from = draw_below(m->d, rank), kind = draw_below(m->d, 5);
    for (uint32_t i = 0; i < rank; i++) {
        if (kind < 3 ? i >= from : kind == 3 ? i <= from : draw_chance(m->d, 50)) {
            axes[n++] = i;
        }
    }
    return n;
}

static value reduced(struct maker *m, value x, const int64_t *axes, uint32_t n, bool keepdims)
{
    static const enum op table[] = {OP_sum, OP_max, OP_min, OP_mean, OP_sum, OP_prod, OP_logsumexp};
    struct attr attrs[2] = {attr_ints("axes", axes, n), attr_bool("keepdims", keepdims)};
    return make(m, any_op(m, table, ARRAY_LEN(table)), &x, 1, attrs, 2);
}

/* x's shape with the axes 1. */
static value with_axes(struct maker *m, value r, value x, const int64_t *axes, uint32_t n)
{
    struct shape s = node_of(m, x)->shape;
    for (uint32_t i = 0; i < n; i++) {
        s.dims[axes[i]] = dim_of(1);
    }
    struct attr attr = attr_dims("shape", &s);
    return make(m, OP_reshape, &r, 1, &attr, 1);
}

static void normalise(struct maker *m)
{
    int64_t axes[MAX_RANK];
    value x = pick_rank(m, WANT_FLOAT, 1);
    uint32_t n = any_axes(m, node_of(m, x)->shape.rank, axes);
    uint32_t rounds = 1 + draw_below(m->d, 3);
    for (uint32_t i = 0; i < rounds && x.id != 0 && dtype_is_float(node_of(m, x)->dtype); i++) {
        bool keeps = draw_chance(m->d, 60);
        value y = draw_chance(m->d, 50) ? make(m, any_unary(m), &x, 1, NULL, 0) : x;
        value r = y.id != 0 && node_of(m, y)->dtype != BOOL ? reduced(m, y, axes, n, keeps)
                                                            : reduced(m, x, axes, n, keeps);
        if (r.id == 0) {
            return;
        }
        if (draw_chance(m->d, 50)) {
            value q = make(m, any_binary(m), (value[]){r, partner(m, r, WANT_FLOAT)}, 2, NULL, 0);
            bool fits = q.id != 0 && shape_equal(&node_of(m, q)->shape, &node_of(m, r)->shape);
            r = fits ? q : r;
        }
        r = keeps ? r : with_axes(m, r, x, axes, n);
        if (draw_chance(m->d, 30)) {
            struct attr to = attr_dims("shape", &node_of(m, x)->shape);
            r = make(m, OP_expand, &r, 1, &to, 1);
        }
        x = make(m, any_binary(m), (value[]){x, r}, 2, NULL, 0);
    }
}

static bool is_free_state(const struct maker *m, value v)
{
    const struct node *n = node_of(m, v);
    for (uint32_t i = 0; i < m->g->n_updates; i++) {
        if (m->g->updates[i].leaf.id == v.id) {
            return false;
        }
    }
    return n->op == OP_state || n->op == OP_buffer || (n->op == OP_param && !m->c->is_trained);
}

static value free_state(struct maker *m)
{
    for (uint32_t i = 0; i < 20; i++) {
        value v = m->pool[draw_below(m->d, m->n_pool)];
        if (is_free_state(m, v)) {
            return v;
        }
    }
    struct shape s = any_shape(m, 3);
    for (uint32_t i = 0; i < s.rank; i++) {
        s.dims[i] = dim_is_static(s.dims[i]) ? s.dims[i] : dim_of(6);
    }
    return new_leaf(m, OP_state, any_dtype(m, WANT_NUMBER), &s);
}

/* s read in another order than it is written: one slice of it for all, or transposed. */
static value read_across(struct maker *m, value s)
{
    const struct shape *shape = &node_of(m, s)->shape;
    bool is_square = shape->rank == 2 && dim_equal(shape->dims[0], shape->dims[1]);
    if (is_square && draw_chance(m->d, 70)) {
        return make(m, OP_transpose, &s, 1, NULL, 0);
    }
    if (shape->rank == 0) {
        return s;
    }
    uint32_t axis = draw_below(m->d, shape->rank);
    int64_t size = shape->dims[axis].factor, at = draw_below(m->d, (uint32_t)size);
    struct attr attrs[3] = {attr_int("axis", axis), attr_int("start", at),
                            attr_int("stop", at + 1)};
    return make(m, OP_slice, &s, 1, attrs, 3);
}

/* state <- f(state, other), other of its shape or spread over it. */
static void step_state(struct maker *m)
{
    value s = free_state(m), next = s;
    if (s.id == 0 || node_of(m, s)->dtype == BOOL) {
        return;
    }
    uint32_t rounds = 1 + draw_below(m->d, 3);
    for (uint32_t i = 0; i < rounds && next.id != 0; i++) {
        value o[2] = {next, partner(m, s, WANT_NUMBER)};
        if (draw_chance(m->d, 40)) {
            o[1] = draw_chance(m->d, 50) ? s : read_across(m, s);
        }
        next = make(m, any_binary(m), o, 2, NULL, 0);
    }
    if (next.id != 0 && node_of(m, next)->dtype != node_of(m, s)->dtype) {
        struct attr attr = attr_dtype("dtype", node_of(m, s)->dtype);
        next = make(m, OP_cast, &next, 1, &attr, 1);
    }
    if (next.id != 0 && shape_equal(&node_of(m, next)->shape, &node_of(m, s)->shape)) {
        graph_update(m->g, s, next);
    }
}

/* a <- b, b <- a, or one of them through a transpose or from an expression of the other. */
static void swap_states(struct maker *m)
{
    value a = free_state(m);
    if (a.id == 0) {
        return;
    }
    struct shape s = node_of(m, a)->shape;
    value b = new_leaf(m, OP_state, node_of(m, a)->dtype, &s);
    if (b.id == 0 || node_of(m, b)->op != OP_state) {
        return;
    }
    value x = a, y = b;
    if (draw_chance(m->d, 50) && node_of(m, a)->dtype != BOOL) {
        x = make(m, OP_add, (value[]){a, b}, 2, NULL, 0);
    }
    if (draw_chance(m->d, 40) && s.rank == 2 && dim_equal(s.dims[0], s.dims[1])) {
        y = make(m, OP_transpose, &y, 1, NULL, 0);
    }
    if (x.id != 0 && y.id != 0) {
        graph_update(m->g, a, y);
        graph_update(m->g, b, x);
    }
}

/* Several reductions of one chain, over the same or other axes. */
static void reduce_often(struct maker *m)
{
    value x = pick_rank(m, WANT_FLOAT, 2);
    value y = make(m, any_binary(m), (value[]){x, partner(m, x, WANT_FLOAT)}, 2, NULL, 0);
    int64_t axes[MAX_RANK];
    if (y.id == 0) {
        return;
    }
    uint32_t n = any_axes(m, node_of(m, y)->shape.rank, axes), rounds = 2 + draw_below(m->d, 3);
    for (uint32_t i = 0; i < rounds; i++) {
        if (draw_chance(m->d, 40)) {
            n = any_axes(m, node_of(m, y)->shape.rank, axes);
        }
        (void)reduced(m, draw_chance(m->d, 70) ? y : x, axes, n, draw_chance(m->d, 50));
    }
}

/* An element compared with something of its row, and chosen by it. */
static void choose(struct maker *m)
{
    value x = pick_rank(m, WANT_NUMBER, 1);
    value y = partner(m, x, WANT_NUMBER);
    value is = make(m, draw_chance(m->d, 50) ? OP_lt : OP_ge, (value[]){x, y}, 2, NULL, 0);
    value z = make(m, OP_where, (value[]){is, x, partner(m, x, WANT_NUMBER)}, 3, NULL, 0);
    if (z.id != 0 && draw_chance(m->d, 50)) {
        make(m, OP_not, &is, 1, NULL, 0);
    }
}

void make_pattern(struct maker *m)
{
    switch (draw_below(m->d, 7)) {
    case 0:
    case 1:
        normalise(m);
        break;
    case 2:
    case 3:
        step_state(m);
        break;
    case 4:
        swap_states(m);
        break;
    case 5:
        reduce_often(m);
        break;
    default:
        choose(m);
        break;
    }
}
