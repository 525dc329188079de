/* The oracle: one plain loop an op, in double, with libm; no blocks, no lanes, no vector code. It
 * reads primitive graphs only. Formulas come from the meaning column of ops.def, everything else is
 * written a second time here, independent of the executors it judges. Invariant: values of integer
 * and bool nodes are whole numbers that their dtype holds; float values are unrounded unless
 * `rounds`. */
#include "eval.h"

#include <math.h>
#include <string.h>

#include "compute.h"
#include "eval_internal.h"

/* ---- shapes ---- */

struct dense eval_dense(const struct eval *e, value v)
{
    const struct node *n = graph_node(e->graph, v);
    struct dense d = {.rank = n->shape.rank, .count = 1};
    for (uint32_t i = 0; i < d.rank; i++) {
        d.size[i] = dim_value(n->shape.dims[i], e->symbols);
        d.count *= d.size[i];
    }
    return d;
}

int64_t eval_count(const struct eval *e, value v)
{
    return eval_dense(e, v).count;
}

static uint32_t axis_of(const struct node *n, uint32_t rank)
{
    int64_t axis = node_int(n, "axis");
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

/* d as outer x length x inner around axes first..last. */
struct split {
    int64_t outer, length, inner;
};
static struct split split_at(const struct dense *d, uint32_t first, uint32_t last)
{
    struct split s = {1, 1, 1};
    for (uint32_t i = 0; i < d->rank; i++) {
        int64_t *to = i < first ? &s.outer : i <= last ? &s.length : &s.inner;
        *to *= d->size[i];
    }
    return s;
}

/* Coordinates of element i, and the element of an operand that broadcasts to them. */
static void unravel(const struct dense *d, int64_t i, int64_t at[MAX_RANK])
{
    for (uint32_t k = d->rank; k-- > 0;) {
        at[k] = i % d->size[k];
        i /= d->size[k];
    }
}

static int64_t broadcast_index(const struct dense *to, const int64_t at[MAX_RANK],
                               const struct dense *from)
{
    int64_t index = 0;
    for (uint32_t k = 0; k < from->rank; k++) {
        int64_t c = from->size[k] == 1 ? 0 : at[k + to->rank - from->rank];
        index = index * from->size[k] + c;
    }
    return index;
}

static int64_t outer_index(const struct dense *to, int64_t i, const struct dense *from)
{
    int64_t at[MAX_RANK];
    unravel(to, i, at);
    return broadcast_index(to, at, from);
}

/* ---- storing ---- */

/* x as an integer of dtype t: truncated, then wrapped; what is no number gives 0. */
static double whole(enum dtype t, double x)
{
    if (t == BOOL) {
        return x != 0.0 ? 1.0 : 0.0;
    }
    x = trunc(x);
    if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) {
        return x != x    ? 0.0
               : x > 0.0 ? dtype_info[t].max
               : t == U8 ? 0.0
                         : -dtype_info[t].max - 1.0;
    }
    int64_t v = (int64_t)x;
    v = t == U8 ? (int64_t)(uint8_t)v : t == I32 ? (int64_t)(int32_t)(uint32_t)(uint64_t)v : v;
    return (double)v;
}

double eval_rounded(const struct eval *e, enum dtype t, double x)
{
    if (!dtype_is_float(t)) {
        return whole(t, x);
    }
    if (!e->rounds || t == F64) {
        return x;
    }
    uint64_t element = 0;
    dtype_store(t, &element, x);
    return dtype_load(t, &element);
}

/* ---- leaves ---- */

static void leaf(struct eval *e, value v, const struct node *n, double *out)
{
    struct dense d = eval_dense(e, v);
    if (n->op == OP_constant) {
        out[0] = n->dtype == F64 || node_is_weak(n)
                     ? node_float(n, "value")
                     : eval_rounded(e, n->dtype, node_float(n, "value"));
        return;
    }
    if (n->op == OP_size) {
        double count = (double)shape_count_value(&node_attr_named(n, "of")->dims, e->symbols);
        out[0] = eval_rounded(e, n->dtype, count);
        return;
    }
    uint32_t axis = axis_of(n, d.rank);
    struct split s = split_at(&d, axis, axis);
    for (int64_t i = 0; i < d.count; i++) {
        out[i] = eval_rounded(e, n->dtype, (double)(i / s.inner % s.length));
    }
}

/* ---- elementwise ---- */

static double saturated(const struct node *n, double x)
{
    double max = dtype_info[n->dtype].max;
    return x > max ? max : x < -max ? -max : x;
}

/* A number of the compute type: in the emulation, integers, weak numbers and results of libm are
 * rounded to it. */
static double widened(const struct eval *e, enum dtype compute, double x)
{
    return e->rounds && compute == F32 ? (double)(float)x : x;
}

static void elementwise(struct eval *e, value v, const struct node *n, double *out)
{
    struct dense d = eval_dense(e, v), from[3];
    enum dtype compute = node_compute(e->graph, n);
    for (uint32_t k = 0; k < n->n_operands; k++) {
        from[k] = eval_dense(e, n->operands[k]);
    }
    for (int64_t i = 0; i < d.count; i++) {
        double x[3] = {0.0, 0.0, 0.0};
        int64_t at[MAX_RANK];
        unravel(&d, i, at);
        for (uint32_t k = 0; k < n->n_operands; k++) {
            x[k] = e->values[n->operands[k].id][broadcast_index(&d, at, &from[k])];
            x[k] = n->op == OP_where && k == 0 ? x[k] : widened(e, compute, x[k]);
        }
        double y = compute == I64 && n->op != OP_where ? eval_scalar_i64(n->op, x[0], x[1])
                                                       : eval_scalar(n->op, x[0], x[1], x[2]);
        y = widened(e, compute, y);
        y = node_saturates(n) && dtype_is_float(n->dtype) ? saturated(n, y) : y;
        out[i] = eval_rounded(e, n->dtype, y);
    }
}

/* ---- reductions ---- */

static double identity(enum op op, enum dtype t)
{
    double infinite = (double)INFINITY;
    switch (op) {
    case OP_prod:
    case OP_all:
        return 1.0;
    case OP_max:
        return dtype_is_float(t)      ? -infinite
               : t == I32 || t == I64 ? -dtype_info[t].max - 1.0
                                      : 0.0;
    case OP_min:
        return dtype_is_float(t) ? infinite : dtype_info[t].max;
    default:
        return 0.0;
    }
}

static void reduction(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x = e->values[n->operands[0].id];
    struct dense from = eval_dense(e, n->operands[0]), d = eval_dense(e, v);
    uint32_t mask = node_axes(n, from.rank), first = 0, last;
    bool is_int = node_compute(e->graph, n) == I64;
    while (first < from.rank && (mask >> first & 1U) == 0) {
        first++;
    }
    for (last = first; last + 1 < from.rank && (mask >> (last + 1) & 1U) != 0;) {
        last++;
    }
    struct split s = split_at(&from, first, last);
    for (int64_t i = 0; i < d.count; i++) {
        double y = identity(n->op, graph_node(e->graph, n->operands[0])->dtype);
        for (int64_t k = 0; k < s.length; k++) {
            double b = x[(i / s.inner * s.length + k) * s.inner + i % s.inner];
            y = is_int ? eval_scalar_i64(n->op, y, b) : eval_scalar(n->op, y, b, 0.0);
        }
        out[i] = eval_rounded(e, n->dtype, y);
    }
}

/* The first NaN beats everything, else the first of the extremes. */
static void arg_reduction(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x = e->values[n->operands[0].id];
    struct dense from = eval_dense(e, n->operands[0]), d = eval_dense(e, v);
    uint32_t axis = axis_of(n, from.rank);
    struct split s = split_at(&from, axis, axis);
    for (int64_t i = 0; i < d.count; i++) {
        int64_t best = 0;
        double top = 0.0;
        for (int64_t k = 0; k < s.length; k++) {
            double b = x[(i / s.inner * s.length + k) * s.inner + i % s.inner];
            bool is_better = n->op == OP_argmax ? b > top : b < top;
            if (k == 0 || (top == top && (is_better || b != b))) {
                best = k;
                top = b;
            }
        }
        out[i] = (double)best;
    }
}

/* ---- contractions ---- */

static void contraction(struct eval *e, value v, const struct node *n, double *out)
{
    bool is_linear = n->op == OP_linear, ta = node_bool(n, "transpose_a");
    bool tb = is_linear || node_bool(n, "transpose_b");
    const double *a = e->values[n->operands[0].id], *b = e->values[n->operands[1].id];
    struct dense da = eval_dense(e, n->operands[0]), db = eval_dense(e, n->operands[1]);
    struct dense d = eval_dense(e, v), batch = d, batch_a = da, batch_b = db;
    int64_t cols = d.rank == 0 ? 1 : d.size[d.rank - 1];
    int64_t rows = is_linear ? (cols == 0 ? 0 : d.count / cols) : d.size[d.rank - 2];
    int64_t inner = da.size[da.rank - (ta ? 2U : 1U)];
    batch.rank = is_linear ? 0 : d.rank - 2;
    batch_a.rank = is_linear ? 0 : da.rank - 2;
    batch_b.rank = is_linear ? 0 : db.rank - 2;
    for (int64_t i = 0; i < d.count; i++) {
        int64_t col = i % cols, row = i / cols % rows, at = i / cols / rows;
        int64_t base_a = outer_index(&batch, at, &batch_a) * rows * inner;
        int64_t base_b = outer_index(&batch, at, &batch_b) * cols * inner;
        double y = 0.0;
        for (int64_t k = 0; k < inner; k++) {
            y += a[base_a + (ta ? k * rows + row : row * inner + k)] *
                 b[base_b + (tb ? col * inner + k : k * cols + col)];
        }
        y += n->n_operands == 3 ? e->values[n->operands[2].id][col] : 0.0;
        out[i] = eval_rounded(e, n->dtype, y);
    }
}

/* ---- views ---- */

static void view(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x = e->values[n->operands[0].id];
    struct dense from = eval_dense(e, n->operands[0]), d = eval_dense(e, v);
    const struct attr *perm = node_attr_named(n, "perm");
    for (int64_t i = 0; i < d.count; i++) {
        int64_t at[MAX_RANK], source[MAX_RANK], index = 0;
        unravel(&d, i, at);
        if (n->op == OP_reshape) {
            out[i] = x[i];
            continue;
        }
        if (n->op == OP_expand) {
            out[i] = x[broadcast_index(&d, at, &from)];
            continue;
        }
        memcpy(source, at, sizeof source);
        for (uint32_t k = 0; n->op == OP_transpose && k < d.rank; k++) {
            int64_t axis = perm->n_ints == 0 ? (int64_t)(d.rank - 1 - k) : perm->ints[k];
            source[axis < 0 ? axis + d.rank : axis] = at[k];
        }
        if (n->op == OP_slice) {
            uint32_t axis = axis_of(n, d.rank);
            int64_t size = from.size[axis], start = node_int(n, "start");
            start = start < 0 ? start + size : start;
            start = start < 0 ? 0 : start;
            source[axis] = start + at[axis] * node_int(n, "step");
        }
        for (uint32_t k = 0; k < from.rank; k++) {
            index = index * from.size[k] + source[k];
        }
        out[i] = x[index];
    }
}

/* ---- index ---- */

/* -1: out of range. */
static int64_t index_within(double index, int64_t length)
{
    int64_t at = (int64_t)index;
    at = at < 0 ? at + length : at;
    return at < 0 || at >= length ? -1 : at;
}

static double missing(const struct node *n)
{
    return dtype_is_float(n->dtype) ? (double)NAN : 0.0;
}

static void concat(struct eval *e, value v, const struct node *n, double *out)
{
    struct dense d = eval_dense(e, v);
    uint32_t axis = axis_of(n, d.rank);
    struct split to = split_at(&d, axis, axis);
    int64_t start = 0;
    for (uint32_t k = 0; k < n->n_operands; k++) {
        struct dense from = eval_dense(e, n->operands[k]);
        struct split s = split_at(&from, axis, axis);
        for (int64_t i = 0; i < from.count; i++) {
            int64_t row = i / s.inner / s.length, at = i / s.inner % s.length;
            out[(row * to.length + start + at) * to.inner + i % s.inner] =
                e->values[n->operands[k].id][i];
        }
        start += s.length;
    }
}

static void pad(struct eval *e, value v, const struct node *n, double *out)
{
    struct dense d = eval_dense(e, v), from = eval_dense(e, n->operands[0]);
    uint32_t axis = axis_of(n, d.rank);
    struct split to = split_at(&d, axis, axis), s = split_at(&from, axis, axis);
    int64_t low = node_int(n, "low"), step = node_int(n, "step");
    for (int64_t i = 0; i < d.count; i++) {
        int64_t row = i / to.inner / to.length, at = i / to.inner % to.length - low;
        bool is_inside = at >= 0 && at % step == 0 && at / step < s.length;
        out[i] = is_inside ? e->values[n->operands[0].id]
                                      [(row * s.length + at / step) * s.inner + i % to.inner]
                           : eval_rounded(e, n->dtype, node_float(n, "value"));
    }
}

/* take has one index a slice, gather one an element. */
static void read_at(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x = e->values[n->operands[0].id], *indices = e->values[n->operands[1].id];
    struct dense from = eval_dense(e, n->operands[0]), by = eval_dense(e, n->operands[1]);
    uint32_t axis = axis_of(n, from.rank);
    struct split s = split_at(&from, axis, axis);
    int64_t count = eval_count(e, v), each = n->op == OP_take ? by.count : by.size[axis];
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i / s.inner % each, row = i / s.inner / each;
        int64_t at = index_within(indices[n->op == OP_take ? k : i], s.length);
        out[i] = at < 0 ? missing(n) : x[(row * s.length + at) * s.inner + i % s.inner];
    }
}

static void add_at(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x = e->values[n->operands[0].id], *indices = e->values[n->operands[1].id];
    const double *source = e->values[n->operands[2].id];
    struct dense from = eval_dense(e, n->operands[0]), by = eval_dense(e, n->operands[1]);
    uint32_t axis = axis_of(n, from.rank);
    struct split s = split_at(&from, axis, axis);
    int64_t count = eval_count(e, n->operands[2]);
    int64_t each = n->op == OP_index_add ? by.count : by.size[axis];
    bool is_int = node_compute(e->graph, n) == I64;
    memcpy(out, x, (size_t)from.count * sizeof *out);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i / s.inner % each, row = i / s.inner / each;
        int64_t at = index_within(indices[n->op == OP_index_add ? k : i], s.length);
        if (at >= 0) {
            double *to = &out[(row * s.length + at) * s.inner + i % s.inner];
            *to = is_int ? eval_scalar_i64(OP_add, *to, source[i]) : *to + source[i];
        }
    }
    for (int64_t i = 0; i < eval_count(e, v); i++) {
        out[i] = eval_rounded(e, n->dtype, out[i]);
    }
}

/* ---- the run ---- */

static status run_node(struct eval *e, value v, const struct node *n, double *out,
                       struct error *error)
{
    switch (op_info[n->op].kind) {
    case LEAF:
        if (n->op <= OP_scalar) {
            return fail(error, ATOLL_USAGE, "eval: %s %s has no value; set it before the run",
                        op_info[n->op].name, n->name == NULL ? "" : n->name);
        }
        leaf(e, v, n, out);
        return ATOLL_OK;
    case ELEMENTWISE:
        elementwise(e, v, n, out);
        return ATOLL_OK;
    case REDUCTION:
        (n->op == OP_argmax || n->op == OP_argmin ? arg_reduction : reduction)(e, v, n, out);
        return ATOLL_OK;
    case CONTRACTION:
        (n->op == OP_scaled_matmul ? eval_scaled : contraction)(e, v, n, out);
        return ATOLL_OK;
    case VIEW:
        view(e, v, n, out);
        return ATOLL_OK;
    case INDEX:
        (n->op == OP_concat                       ? concat
         : n->op == OP_pad                        ? pad
         : n->op == OP_take || n->op == OP_gather ? read_at
                                                  : add_at)(e, v, n, out);
        return ATOLL_OK;
    case RANDOM:
        eval_random(e, n, eval_count(e, v), out);
        return ATOLL_OK;
    case COMPOSITE:
    case TRAINING:
        break;
    }
    return fail(error, ATOLL_USAGE, "eval: %s is no primitive; run the decompose pass first",
                op_info[n->op].name);
}

void eval_begin(struct eval *e, const struct graph *g, const int64_t *symbols)
{
    *e = (struct eval){.graph = g, .symbols = symbols};
    e->values = ARENA_ARRAY(&e->arena, double *, g->n_nodes);
}

status eval_run(struct eval *e, struct error *error)
{
    for (uint32_t i = 1; i < e->graph->n_nodes; i++) {
        value v = {i};
        int64_t count = eval_count(e, v);
        if (count < 0) {
            return fail(error, ATOLL_SHAPE, "eval: node %u has a symbolic size that is not bound",
                        (unsigned)i);
        }
        if (e->values[i] != NULL) {
            continue;
        }
        e->values[i] = ARENA_ARRAY(&e->arena, double, count == 0 ? 1 : count);
        TRY(run_node(e, v, graph_node(e->graph, v), e->values[i], error));
    }
    return ATOLL_OK;
}

void eval_end(struct eval *e)
{
    arena_free(&e->arena);
    *e = (struct eval){0};
}
