/* One tensor to f8: its largest magnitudes, the scales from them, the quantisation, and the
 * reciprocals that a scaled product takes. All of it is nodes: what is computed when can be read in
 * the graph, and fusion joins the amax and the quantisation to what makes the tensor.
 * Invariant: every quantize has one scale node, and its product the reciprocal of that node. */
#include "fp8.h"

#include <string.h>

/* Names the nodes that are added next "NAME.what". */
static void call(struct fp8_builder *b, const char *name, const char *what)
{
    b->g->origin_name = arena_text(&b->g->arena, "%s.%s", name, what);
}

static struct shape shape_of(const struct fp8_builder *b, value v)
{
    return v.id == 0 ? shape_scalar() : graph_node(b->g, v)->shape;
}

/* (rows, C) of a tensor (..,C). */
static struct shape flat_shape(const struct shape *s)
{
    struct shape flat = {.rank = 2, .dims = {dim_of(1), dim_of(1)}};
    for (uint32_t i = 0; i + 1 < s->rank; i++) {
        (void)dim_multiply(flat.dims[0], s->dims[i], &flat.dims[0]);
    }
    flat.dims[1] = s->rank == 0 ? dim_of(1) : s->dims[s->rank - 1];
    return flat;
}

value fp8_fill(struct graph *g, value x, int64_t axis, int64_t part, const char *name)
{
    struct shape flat = flat_shape(&graph_node(g, x)->shape);
    struct dim size = flat.dims[axis];
    if (!dim_is_static(size) || size.factor % part == 0) {
        return x;
    }
    g->origin_name = arena_text(&g->arena, "%s.filled", name);
    x = graph_reshape(g, x, &flat);
    struct attr attrs[] = {attr_int("axis", axis), attr_int("high", part - size.factor % part)};
    return graph_add(g, OP_pad, &x, 1, attrs, 2);
}

const char *fp8_misfit(const struct graph *g, value x, bool is_transposed, enum scale_kind kind,
                       bool fills_rows, struct arena *a)
{
    struct shape flat = flat_shape(&graph_node(g, x)->shape);
    const struct scale_kind_row *row = &scale_kind_info[kind];
    int64_t parts[2] = {is_transposed ? row->depth : row->rows,
                        is_transposed ? row->rows : row->depth};
    for (uint32_t i = 0; i < 2; i++) {
        struct dim d = flat.dims[i];
        bool is_number = dim_is_static(d), is_filled = fills_rows && i == 0 && is_number;
        if (parts[i] > 1 && d.factor % parts[i] != 0 && !is_filled) {
            return is_number
                       ? arena_text(a, "size %lld is no multiple of %lld (%s)", (long long)d.factor,
                                    (long long)parts[i], row->text)
                       : arena_text(a,
                                    "a size is a symbol, not a known multiple of %lld (%s); hint: "
                                    "--shape gives it a number, or write it %lld*%s",
                                    (long long)parts[i], row->text, (long long)parts[i],
                                    g->symbols[d.symbols[0]].name);
        }
    }
    return NULL;
}

/* ---- the tensor in the shape its scales lie over ---- */

/* (rows, C) with rows and C cut into parts of `rows` and `depth`; 1: not cut. */
static void cut_parts(const struct shape *flat, const int64_t parts[2], struct fp8_cut *c)
{
    c->shape.rank = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct dim d = flat->dims[i];
        if (parts[i] > 1) {
            d.factor /= parts[i];
            c->shape.dims[c->shape.rank++] = d;
            c->axes[c->n_axes++] = c->shape.rank;
            c->shape.dims[c->shape.rank++] = dim_of(parts[i]);
        } else {
            c->shape.dims[c->shape.rank++] = d;
        }
    }
}

static struct fp8_cut cut_of(const struct shape *s, bool is_transposed, enum scale_kind kind)
{
    struct fp8_cut c = {.shape = *s};
    struct shape flat = flat_shape(s);
    const struct scale_kind_row *row = &scale_kind_info[kind];
    if (row->depth != 0) {
        cut_parts(&flat,
                  (int64_t[]){is_transposed ? row->depth : row->rows,
                              is_transposed ? row->rows : row->depth},
                  &c);
        return c;
    }
    bool is_row = kind == SCALE_ROW;
    for (uint32_t i = 0; i < s->rank; i++) {
        bool is_last = i + 1 == s->rank;
        if (!is_row || (is_transposed ? !is_last : is_last)) {
            c.axes[c.n_axes++] = i;
        }
    }
    return c;
}

/* ---- scales ---- */

/* f32(max / max(amax, 1e-12)), the quotient in f64; then a power of two where the recipe says so.
 */
static value scale_from(struct fp8_builder *b, value amax, enum dtype t)
{
    struct graph *g = b->g;
    value wide = graph_cast(g, amax, F64), max = graph_constant(g, dtype_info[t].max, F64);
    if (b->o->recipe->scales == FP8_E8M0) {
        value ratio = graph_cast(g, graph_op2(g, OP_div, wide, max), F32);
        value low = graph_op2(g, OP_maximum, ratio, graph_number(g, 0x1p-127));
        value up = graph_op1(g, OP_pow2_ceil, low);
        return graph_op1(g, OP_reciprocal, graph_op2(g, OP_minimum, up, graph_number(g, 0x1p127)));
    }
    value least = graph_op2(g, OP_maximum, wide, graph_constant(g, 1e-12, F64));
    value scale = graph_cast(g, graph_op2(g, OP_div, max, least), F32);
    return b->o->recipe->scales == FP8_POW2 ? graph_op1(g, OP_pow2_floor, scale) : scale;
}

static void test_finite(struct fp8_builder *b, value amax)
{
    if (!b->tests_finite || amax.id == 0) {
        return;
    }
    value good = graph_op1(b->g, OP_is_finite, amax);
    good = graph_reduce(b->g, OP_all, good, NULL, 0, false);
    b->is_finite = b->is_finite.id == 0 ? good : graph_op2(b->g, OP_and, b->is_finite, good);
}

/* ---- delayed scaling ---- */

static value state(struct fp8_builder *b, const char *name, enum dtype t, const struct shape *shape,
                   const char *init)
{
    const char *own = name;
    for (int i = 2; graph_find(b->g, own).id != 0; i++) {
        own = arena_text(b->arena, "%s_%d", name, i);
    }
    b->g->origin_name = arena_copy_text(&b->g->arena, own);
    struct attr attrs[] = {attr_dims("shape", shape), attr_dtype("dtype", t),
                           attr_text("init", init)};
    return graph_add(b->g, OP_state, NULL, 0, attrs, 3);
}

/* The slot of the ring that this step's amax goes to. */
static value ring_place(struct fp8_builder *b, int64_t length)
{
    struct shape none = shape_scalar();
    if (b->place.id == 0) {
        b->place = state(b, "fp8.place", I64, &none, "0");
        value next = graph_op2(b->g, OP_add, b->place, graph_number(b->g, 1.0));
        value is_end = graph_op2(b->g, OP_ge, next, graph_number(b->g, (double)length));
        graph_update(b->g, b->place,
                     graph_op3(b->g, OP_where, is_end, graph_number(b->g, 0.0), next));
    }
    return b->place;
}

/* The next scale: max 2^-margin / (largest of the history, this step's amax among it), at most the
 * largest f32; the old one where that amax is 0, infinite or NaN. A NaN leaves no trace. */
static void update_delayed(struct fp8_builder *b, value scale, value amax, enum dtype t,
                           const char *name)
{
    struct graph *g = b->g;
    struct shape none = shape_scalar(), ring = {.rank = 1};
    int64_t length = b->o->history > 0 ? b->o->history : b->o->recipe->history;
    ring.dims[0] = dim_of(length);
    value history = state(b, arena_text(b->arena, "fp8.%s.amax", name), F32, &ring, "zeros");
    value place = ring_place(b, length);
    call(b, name, "history");
    value zero = graph_number(g, 0.0), now = graph_cast(g, graph_reshape(g, amax, &none), F32);
    now = graph_op3(g, OP_where, graph_op1(g, OP_is_nan, now), zero, now);
    struct attr attrs[] = {attr_dims("shape", &ring)};
    value slots = graph_add(g, OP_iota, NULL, 0, attrs, 1);
    value next = graph_op3(g, OP_where, graph_op2(g, OP_eq, slots, place), now, history);
    value top = b->o->is_most_recent ? now : graph_reduce(g, OP_max, next, NULL, 0, false);
    double max = dtype_info[t].max;
    for (int64_t i = 0; i < b->o->margin; i++) {
        max *= 0.5;
    }
    value fresh = graph_op2(g, OP_div, graph_constant(g, max, F32), top);
    fresh = graph_op2(g, OP_minimum, fresh, graph_constant(g, dtype_info[F32].max, F32));
    value is_good =
        graph_op2(g, OP_and, graph_op2(g, OP_gt, top, zero), graph_op1(g, OP_is_finite, top));
    graph_update(g, history, next);
    graph_update(g, scale, graph_op3(g, OP_where, is_good, fresh, scale));
}

/* ---- counts ---- */

static value count(struct fp8_builder *b, value mask)
{
    return graph_reduce(b->g, OP_sum, graph_cast(b->g, mask, I64), NULL, 0, false);
}

/* Values that the cast cut down to the largest, and those other than 0 that became 0. */
static void add_counts(struct fp8_builder *b, value x, value scale, value data, enum dtype t,
                       const char *name)
{
    struct graph *g = b->g;
    if (!b->o->wants_counts) {
        return;
    }
    value size = graph_op1(g, OP_abs, graph_op2(g, OP_mul, graph_cast(g, x, F32), scale));
    value is_over = graph_op2(g, OP_gt, size, graph_number(g, dtype_info[t].max));
    value was = graph_op2(g, OP_ne, x, graph_number(g, 0.0));
    value is_zero = graph_op2(g, OP_eq, data, graph_number(g, 0.0));
    struct fp8_count c = {.name = arena_copy_text(b->arena, name),
                          .saturated = count(b, is_over),
                          .underflowed = count(b, graph_op2(g, OP_and, was, is_zero))};
    b->counts = arena_grow(b->arena, b->counts, b->n_counts, &b->count_capacity, sizeof c);
    b->counts[b->n_counts++] = c;
}

/* ---- an operand ---- */

/* The operand's form of the scales: the shape that scaled_matmul wants, transposed with the data.
 */
static value lay_out(struct fp8_builder *b, value v, const struct fp8_cut *c, enum scale_kind kind,
                     bool is_transposed)
{
    struct shape whole = flat_shape(&c->shape), s = {.rank = 2};
    if (scale_kind_info[kind].depth == 0) {
        struct dim rows = is_transposed ? whole.dims[1] : whole.dims[0];
        s.dims[0] = kind == SCALE_ROW ? rows : dim_of(1);
        s.dims[1] = dim_of(1);
        return graph_reshape(b->g, v, &s);
    }
    struct shape parts = shape_of(b, v); /* with a 1 for each axis that shares a scale */
    for (uint32_t i = 0, at = 0; i < parts.rank; i++) {
        if (at < c->n_axes && c->axes[at] == (int64_t)i) {
            at++;
        } else {
            s.dims[i == 0 ? 0 : 1] = parts.dims[i];
        }
    }
    v = graph_reshape(b->g, v, &s);
    return is_transposed ? graph_transpose(b->g, v, (int64_t[]){1, 0}, 2) : v;
}

static void make(struct fp8_builder *b, struct fp8_made *m)
{
    struct graph *g = b->g;
    struct shape own = shape_of(b, m->x), none = shape_scalar();
    bool is_delayed = b->o->recipe->history > 0;
    m->cut = cut_of(&own, m->is_transposed, m->kind);
    call(b, m->name, "parts");
    value cut = graph_reshape(g, m->x, &m->cut.shape), amax = {0}, scale;
    if (!is_delayed || b->is_training) {
        call(b, m->name, "amax");
        amax = graph_reduce(g, OP_max, graph_op1(g, OP_abs, cut), m->cut.axes, m->cut.n_axes, true);
        test_finite(b, amax);
    }
    if (is_delayed) {
        scale = state(b, arena_text(b->arena, "fp8.%s.scale", m->name), F32, &none, "1");
    } else {
        call(b, m->name, "scale");
        scale = scale_from(b, amax, m->dtype);
    }
    call(b, m->name, dtype_info[m->dtype].name);
    m->data = graph_add(g, OP_quantize, (value[]){cut, scale}, 2,
                        (struct attr[]){attr_dtype("dtype", m->dtype)}, 1);
    call(b, m->name, "inverse");
    m->inverse = graph_op1(g, OP_reciprocal, scale);
    call(b, m->name, "counts");
    add_counts(b, cut, scale, m->data, m->dtype, m->name);
    if (is_delayed && b->is_training) {
        update_delayed(b, scale, amax, m->dtype, m->name);
    }
}

static const struct fp8_made *find(struct fp8_builder *b, const struct fp8_made *wanted)
{
    bool is_delayed = b->o->recipe->history > 0;
    for (uint32_t i = 0; i < b->n_made; i++) {
        const struct fp8_made *m = &b->made[i];
        if (m->x.id == wanted->x.id && m->is_transposed == wanted->is_transposed &&
            m->kind == wanted->kind && m->dtype == wanted->dtype &&
            (!is_delayed || strcmp(m->name, wanted->name) == 0)) {
            return m;
        }
    }
    b->made = arena_grow(b->arena, b->made, b->n_made, &b->capacity, sizeof *b->made);
    b->made[b->n_made] = *wanted;
    make(b, &b->made[b->n_made]);
    return &b->made[b->n_made++];
}

struct fp8_operand fp8_quantize(struct fp8_builder *b, value x, bool is_transposed,
                                enum scale_kind kind, enum dtype t, const char *name)
{
    bool has_sides = kind != SCALE_TENSOR && kind != SCALE_TILE;
    struct fp8_made wanted = {.x = x,
                              .is_transposed = is_transposed && has_sides,
                              .kind = kind,
                              .dtype = t,
                              .name = arena_copy_text(b->arena, name)};
    const struct fp8_made *m = find(b, &wanted);
    struct shape own = shape_of(b, x), flat = flat_shape(&own);
    call(b, name, is_transposed ? "transposed" : "rows");
    value data = graph_reshape(b->g, m->data, &flat);
    data = is_transposed ? graph_transpose(b->g, data, (int64_t[]){1, 0}, 2) : data;
    call(b, name, "inverse");
    return (struct fp8_operand){data, lay_out(b, m->inverse, &m->cut, kind, is_transposed)};
}
