/* Primitives of the generator: elementwise, reductions, contractions, views, index and random ops,
 * each with operands and attributes that are likely to fit. */
#include <stdint.h>

#include "generate_maker.h"
#include "passes/gradients.h"

void make_elementwise(struct maker *m, enum op op)
{
    const struct op_row *row = &op_info[op];
    value o[3] = {{0}, {0}, {0}};
    if (op == OP_cast) {
        o[0] = pick(m, WANT_ANY);
        struct attr a[2] = {attr_dtype("dtype", any_dtype(m, WANT_ANY)),
                            attr_bool("saturate", draw_chance(m->d, 30))};
        make(m, op, o, 1, a, 2);
        return;
    }
    if (op == OP_quantize && m->c->is_trained) { /* no gradient */
        return;
    }
    if (op == OP_scale_loss || op == OP_unscale) {
        if (m->c->is_trained) { /* no gradient */
            return;
        }
        struct shape s = shape_scalar();
        value scale = new_leaf(m, OP_state, F32, &s);
        o[0] = graph_op2(m->g, OP_scale_loss, pick(m, WANT_FLOAT), scale);
        o[1] = graph_op1(m->g, OP_reciprocal, scale);
        keep(m, graph_op2(m->g, OP_unscale, o[0], o[1]));
        return;
    }
    if (m->c->is_trained && row->types == TYPES_F && gradient_rule(op) == NULL) {
        return; /* the step's own: parameters taken apart and together */
    }
    unsigned want = row->types == TYPES_B   ? WANT_BOOL
                    : draw_chance(m->d, 85) ? WANT_FLOAT
                                            : WANT_NUMBER;
    if (op == OP_where) {
        o[1] = pick(m, want);
        o[2] = partner(m, o[1], want);
        o[0] = partner(m, o[1], WANT_BOOL);
    } else {
        o[0] = pick(m, want);
        if (row->min_operands > 1) {
            o[1] = partner(m, o[0], want);
            if (draw_chance(m->d, 30)) {
                value t = o[0];
                o[0] = o[1];
                o[1] = t;
            }
        }
    }
    make(m, op, o, row->min_operands, NULL, 0);
}

/* Attributes of a reduction over a value of that rank; n of them. */
static uint32_t reduction_attrs(struct maker *m, enum op op, uint32_t rank, int64_t axes[MAX_RANK],
                                struct attr attrs[4])
{
    uint32_t n_axes = 0, n = 0, r = draw_below(m->d, 10);
    if (op == OP_argmax || op == OP_argmin) {
        attrs[n++] = attr_int("axis", draw_below(m->d, rank));
    } else {
        for (uint32_t i = 0; i < rank; i++) {
            bool is_in = r < 4 ? i + 1 == rank : r < 6 ? i == 0 : draw_chance(m->d, 50);
            if (is_in) {
                axes[n_axes++] = draw_chance(m->d, 30) ? (int64_t)i - rank : i;
            }
        }
        attrs[n++] = attr_ints("axes", axes, n_axes);
    }
    attrs[n++] = attr_bool("keepdims", draw_chance(m->d, 60));
    bool has_dtype = op == OP_sum || op == OP_prod || op == OP_mean || op == OP_norm;
    if (has_dtype && draw_chance(m->d, 25)) {
        attrs[n++] = attr_dtype("dtype", draw_chance(m->d, 70) ? F32 : any_float(m));
    }
    return n;
}

void make_reduction(struct maker *m, enum op op)
{
    bool is_bool = op == OP_any || op == OP_all;
    value a = pick_rank(m,
                        is_bool                 ? WANT_BOOL
                        : draw_chance(m->d, 85) ? WANT_FLOAT
                                                : WANT_NUMBER,
                        op == OP_argmax || op == OP_argmin ? 1 : 0);
    int64_t axes[MAX_RANK];
    struct attr attrs[5];
    uint32_t n = reduction_attrs(m, op, node_of(m, a)->shape.rank, axes, attrs);
    if (op == OP_norm) {
        static const double powers[] = {2, 1, 3, 0.5, (double)__builtin_inff()};
        attrs[n++] = attr_float("p", powers[draw_below(m->d, 5)]);
    }
    value y = make(m, op, &a, 1, attrs, n);
    if (y.id != 0 && !is_bool && node_of(m, y)->dtype != BOOL && draw_chance(m->d, 40)) {
        make(m, draw_chance(m->d, 50) ? OP_sub : OP_mul, (value[]){a, y}, 2, NULL, 0);
    }
}

void make_contraction(struct maker *m, enum op op)
{
    if (op == OP_scaled_matmul) {
        make_scaled_product(m);
        return;
    }
    value o[3] = {pick_rank(m, WANT_FLOAT, op == OP_matmul ? 2 : 1), {0}, {0}};
    const struct node *n = node_of(m, o[0]);
    struct shape a = n->shape;
    enum dtype t = draw_chance(m->d, 70) ? n->dtype : any_float(m);
    int64_t cols = 1 + draw_below(m->d, 20);
    if (op == OP_linear) {
        struct shape w = {.rank = 2, .dims = {dim_of(cols), a.dims[a.rank - 1]}};
        struct shape bias = {.rank = 1, .dims = {w.dims[0]}};
        o[1] = new_leaf(m, OP_param, m->c->is_trained ? F32 : t, &w);
        o[2] = new_leaf(m, OP_param, m->c->is_trained ? F32 : t, &bias);
        make(m, op, o, draw_chance(m->d, 60) ? 3 : 2, NULL, 0);
        return;
    }
    bool ta = draw_chance(m->d, 25), tb = draw_chance(m->d, 40);
    struct dim k = a.dims[a.rank - (ta ? 2U : 1U)];
    struct shape b = {.rank = 2, .dims = {tb ? dim_of(cols) : k, tb ? k : dim_of(cols)}};
    if (a.rank > 2 && draw_chance(m->d, 50)) {
        b.rank = 3;
        b.dims[2] = b.dims[1];
        b.dims[1] = b.dims[0];
        b.dims[0] = draw_chance(m->d, 30) ? dim_of(1) : a.dims[a.rank - 3];
    }
    o[1] = draw_chance(m->d, 15) ? o[0] : new_leaf(m, OP_param, m->c->is_trained ? F32 : t, &b);
    struct attr attrs[2] = {attr_bool("transpose_a", ta), attr_bool("transpose_b", tb)};
    make(m, op, o, 2, attrs, 2);
}

/* ---- views ---- */

static void make_reshape(struct maker *m, value a)
{
    struct shape s = node_of(m, a)->shape;
    uint32_t at = draw_below(m->d, s.rank);
    switch (draw_below(m->d, 5)) {
    case 0:
        s = (struct shape){.rank = 1, .dims = {dim_of(-1)}};
        break;
    case 1: /* merge two axes */
        if (s.rank >= 2 && at + 1 < s.rank &&
            dim_multiply(s.dims[at], s.dims[at + 1], &s.dims[at])) {
            for (uint32_t i = at + 1; i + 1 < s.rank; i++) {
                s.dims[i] = s.dims[i + 1];
            }
            s.rank--;
        }
        break;
    case 2: /* an axis of 1 more */
        if (s.rank < 5) {
            for (uint32_t i = s.rank; i > at; i--) {
                s.dims[i] = s.dims[i - 1];
            }
            s.dims[at] = dim_of(1);
            s.rank++;
        }
        break;
    case 3: { /* axes of 1 away */
        uint32_t n = 0;
        for (uint32_t i = 0; i < s.rank; i++) {
            if (!dim_is(s.dims[i], 1)) {
                s.dims[n++] = s.dims[i];
            }
        }
        s.rank = n;
        break;
    }
    default: /* split */
        if (s.rank > 0 && s.rank < 5 && s.dims[at].factor % 2 == 0 && s.dims[at].factor > 0) {
            for (uint32_t i = s.rank; i > at; i--) {
                s.dims[i] = s.dims[i - 1];
            }
            s.dims[at] = dim_of(2);
            s.dims[at + 1].factor /= 2;
            s.rank++;
        }
        break;
    }
    struct attr attr = attr_dims("shape", &s);
    make(m, OP_reshape, &a, 1, &attr, 1);
}

static void make_expand(struct maker *m, value a)
{
    struct shape s = node_of(m, a)->shape;
    for (uint32_t i = 0; i < s.rank; i++) {
        if (dim_is(s.dims[i], 1) && draw_chance(m->d, 70)) {
            s.dims[i] = m->dims[draw_below(m->d, 4)];
        }
    }
    if (s.rank < 4 && draw_chance(m->d, 40)) {
        for (uint32_t i = s.rank; i > 0; i--) {
            s.dims[i] = s.dims[i - 1];
        }
        s.dims[0] = dim_of(1 + draw_below(m->d, 4));
        s.rank++;
    }
    if (shape_count_value(&s, m->symbols) <= m->limit) {
        struct attr attr = attr_dims("shape", &s);
        make(m, OP_expand, &a, 1, &attr, 1);
    }
}

static void make_slice(struct maker *m, value a)
{
    const struct shape *s = &node_of(m, a)->shape;
    uint32_t axis = draw_below(m->d, s->rank);
    int64_t size = s->rank > 0 && dim_is_static(s->dims[axis]) ? s->dims[axis].factor : 0;
    int64_t start = draw_below(m->d, (uint32_t)size + 1);
    int64_t stop =
        draw_chance(m->d, 30) ? INT64_MAX : start + draw_below(m->d, (uint32_t)(size - start) + 1);
    if (draw_chance(m->d, 10)) {
        start -= size;
    }
    struct attr attrs[4] = {
        attr_int("axis", axis), attr_int("start", start), attr_int("stop", stop),
        attr_int("step", 1 + (draw_chance(m->d, 30) ? draw_below(m->d, 3) : 0))};
    make(m, OP_slice, &a, 1, attrs, 4);
}

void make_view(struct maker *m, enum op op)
{
    value a = pick_rank(m, WANT_ANY, op == OP_slice || op == OP_transpose ? 1 : 0);
    if (op == OP_transpose) {
        uint32_t rank = node_of(m, a)->shape.rank;
        int64_t perm[MAX_RANK];
        for (uint32_t i = 0; i < rank; i++) {
            uint32_t k = draw_below(m->d, i + 1);
            perm[i] = perm[k];
            perm[k] = i;
        }
        struct attr attr = attr_ints("perm", perm, draw_chance(m->d, 20) ? 0 : rank);
        make(m, op, &a, 1, &attr, 1);
    } else if (op == OP_reshape) {
        make_reshape(m, a);
    } else if (op == OP_expand) {
        make_expand(m, a);
    } else {
        make_slice(m, a);
    }
}

/* ---- index and random ---- */

/* Some axis; *size is what indices along it stay below. */
static uint32_t some_axis(struct maker *m, value a, int64_t *size)
{
    const struct shape *s = &node_of(m, a)->shape;
    uint32_t axis = draw_below(m->d, s->rank);
    int64_t n = dim_value(s->dims[axis], m->symbols);
    *size = n > 0 ? n : 1;
    return axis;
}

static void make_indexed(struct maker *m, enum op op)
{
    bool is_any = op == OP_take || op == OP_gather;
    value o[3] = {pick_rank(m, is_any ? WANT_ANY : WANT_NUMBER, 1), {0}, {0}};
    int64_t size;
    uint32_t axis = some_axis(m, o[0], &size);
    struct shape s = node_of(m, o[0])->shape, b = {0};
    struct attr attr = attr_int("axis", draw_chance(m->d, 30) ? (int64_t)axis - s.rank : axis);
    if (op == OP_gather || op == OP_scatter_add) {
        b = s;
        b.dims[axis] = dim_of(draw_below(m->d, 6));
        o[1] = new_indices(m, size, &b);
        o[2] = op == OP_scatter_add ? new_leaf(m, OP_input, node_of(m, o[0])->dtype, &b) : o[2];
        make(m, op, o, op == OP_scatter_add ? 3 : 2, &attr, 1);
        return;
    }
    b.rank = draw_below(m->d, 3);
    struct shape c = {.rank = 0};
    for (uint32_t i = 0; i < b.rank; i++) {
        b.dims[i] =
            draw_chance(m->d, 20) ? m->dims[draw_below(m->d, 4)] : dim_of(draw_below(m->d, 5));
    }
    for (uint32_t i = 0; i < s.rank; i++) {
        for (uint32_t k = 0; i == axis && k < b.rank; k++) {
            c.dims[c.rank++] = b.dims[k];
        }
        if (i != axis) {
            c.dims[c.rank++] = s.dims[i];
        }
    }
    if (shape_count_value(&c, m->symbols) > m->limit) {
        return;
    }
    o[1] = new_indices(m, size, &b);
    o[2] = op == OP_index_add ? new_leaf(m, OP_input, node_of(m, o[0])->dtype, &c) : o[2];
    make(m, op, o, op == OP_index_add ? 3 : 2, &attr, 1);
}

static void make_concat(struct maker *m)
{
    value o[4] = {pick_rank(m, WANT_ANY, 1)};
    const struct node *n = node_of(m, o[0]);
    struct shape s = n->shape;
    uint32_t axis = draw_below(m->d, s.rank), count = 1 + draw_below(m->d, 4);
    for (uint32_t i = 1; i < count; i++) {
        o[i] = pick_rank(m, WANT_ANY, 1);
        struct shape other = node_of(m, o[i])->shape;
        other.dims[axis] = s.dims[axis];
        if (other.rank != s.rank || node_of(m, o[i])->dtype != node_of(m, o[0])->dtype ||
            !shape_equal(&other, &s)) {
            s.dims[axis] = dim_of(draw_below(m->d, 5));
            o[i] =
                draw_chance(m->d, 40) ? o[0] : new_leaf(m, OP_input, node_of(m, o[0])->dtype, &s);
            s = node_of(m, o[0])->shape;
        }
    }
    struct attr attr = attr_int("axis", axis);
    make(m, OP_concat, o, count, &attr, 1);
}

void make_index(struct maker *m, enum op op)
{
    if (op == OP_concat) {
        make_concat(m);
    } else if (op == OP_pad) {
        static const double values[] = {0, 1, -2.5, (double)__builtin_inff(), 1e9};
        value a = pick_rank(m, WANT_ANY, 1);
        struct attr attrs[5] = {
            attr_int("axis", draw_below(m->d, node_of(m, a)->shape.rank)),
            attr_int("low", draw_below(m->d, 4)), attr_int("high", draw_below(m->d, 4)),
            attr_int("step", 1 + (draw_chance(m->d, 30) ? draw_below(m->d, 3) : 0)),
            attr_float("value", values[draw_below(m->d, 5)])};
        make(m, op, &a, 1, attrs, 5);
    } else {
        make_indexed(m, op);
    }
}

void make_random(struct maker *m, enum op op)
{
    struct shape scalar = shape_scalar(), s = any_shape(m, 3);
    value seed = new_leaf(m, OP_state, I64, &scalar);
    struct attr attrs[2] = {attr_dims("shape", &s), attr_int("stream", draw_below(m->d, 5))};
    make(m, op, &seed, 1, attrs, 2);
}
