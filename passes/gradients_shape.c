/* Gradient rules of contractions, views and indexing. Used by autodiff.c through the table in
 * gradients.c. Contractions run in the dtype of their forward op (low precision stays low, the
 * accumulation is f32 inside); the transposes of a product are asked for by its flags, never made.
 * What an index op did not read gets 0, and what it read out of range gives nothing. */
#include "gradients.h"

static struct shape operand_shape(const struct backward *b, uint32_t i)
{
    return graph_node(b->g, b->n.operands[i])->shape;
}

/* ---- contractions ---- */

/* c = A B, A = a or a^T as stored: dA = dc B^T, dB = A^T dc, each as its operand is stored. */
void grad_matmul(struct backward *b)
{
    value a = b->n.operands[0], c = b->n.operands[1], dy = b->dy;
    bool ta = node_bool(&b->n, "transpose_a"), tb = node_bool(&b->n, "transpose_b");
    if (wants(b, 0)) {
        give(b, 0,
             ta ? graph_matmul(b->g, c, dy, tb, true) : graph_matmul(b->g, dy, c, false, !tb));
    }
    if (wants(b, 1)) {
        give(b, 1,
             tb ? graph_matmul(b->g, dy, a, true, ta) : graph_matmul(b->g, a, dy, !ta, false));
    }
}

/* v (..,C) as (rows, C) */
static value flatten_rows(struct backward *b, value v)
{
    if (v.id == 0) {
        return v;
    }
    struct shape from = graph_node(b->g, v)->shape, to = {.rank = 2, .dims = {dim_of(1)}};
    for (uint32_t i = 0; i + 1 < from.rank; i++) {
        (void)dim_multiply(to.dims[0], from.dims[i], &to.dims[0]);
    }
    to.dims[1] = from.dims[from.rank - 1];
    return graph_reshape(b->g, v, &to);
}

/* y = x w^T + bias: dx = dy w, dw = dy^T x, dbias = sum of the rows of dy, accumulated in f32 */
void grad_linear(struct backward *b)
{
    struct shape x = operand_shape(b, 0);
    value dy = flatten_rows(b, b->dy);
    if (wants(b, 0)) {
        value dx = graph_matmul(b->g, dy, b->n.operands[1], false, false);
        give(b, 0, graph_reshape(b->g, dx, &x));
    }
    if (wants(b, 1)) {
        give(b, 1, graph_matmul(b->g, dy, flatten_rows(b, b->n.operands[0]), true, false));
    }
    if (wants(b, 2)) {
        give(b, 2, graph_reduce(b->g, OP_sum, dy, (int64_t[]){0}, 1, false));
    }
}

/* ---- views ---- */

void grad_reshape(struct backward *b)
{
    struct shape shape = operand_shape(b, 0);
    give(b, 0, graph_reshape(b->g, b->dy, &shape));
}

void grad_transpose(struct backward *b)
{
    const struct attr *perm = node_attr_named(&b->n, "perm");
    uint32_t rank = b->n.shape.rank;
    int64_t inverse[MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) {
        int64_t from = perm->n_ints == 0 ? (int64_t)(rank - 1 - i) : perm->ints[i];
        inverse[from < 0 ? from + rank : from] = i;
    }
    give(b, 0, rank == 0 ? b->dy : graph_transpose(b->g, b->dy, inverse, rank));
}

void grad_expand(struct backward *b)
{
    give(b, 0, b->dy); /* give sums */
}

static uint32_t axis_of(const struct backward *b)
{
    int64_t axis = node_int(&b->n, "axis");
    return (uint32_t)(axis < 0 ? axis + operand_shape(b, 0).rank : axis);
}

static value pad_axis(struct backward *b, value v, int64_t axis, int64_t low, int64_t high,
                      int64_t step)
{
    return graph_add(b->g, OP_pad, &v, 1,
                     (struct attr[]){attr_int("axis", axis), attr_int("low", low),
                                     attr_int("high", high), attr_int("step", step)},
                     4);
}

static value slice_axis(struct backward *b, value v, int64_t axis, int64_t start, int64_t stop,
                        int64_t step)
{
    return graph_add(b->g, OP_slice, &v, 1,
                     (struct attr[]){attr_int("axis", axis), attr_int("start", start),
                                     attr_int("stop", stop), attr_int("step", step)},
                     4);
}

/* What was cut off, and between the steps, is 0. */
void grad_slice(struct backward *b)
{
    uint32_t axis = axis_of(b);
    struct dim from = operand_shape(b, 0).dims[axis], to = b->n.shape.dims[axis];
    if (dim_equal(from, to)) {
        give(b, 0, b->dy);
        return;
    }
    int64_t size = from.factor, kept = to.factor, step = node_int(&b->n, "step");
    int64_t start = node_int(&b->n, "start");
    start = start < 0 ? start + size : start;
    start = start < 0 ? 0 : start > size ? size : start;
    int64_t spread = kept == 0 ? 0 : (kept - 1) * step + 1;
    give(b, 0, pad_axis(b, b->dy, axis, start, size - start - spread, step));
}

/* ---- index ---- */

void grad_concat(struct backward *b)
{
    uint32_t axis = axis_of(b);
    int64_t at = 0;
    for (uint32_t i = 0; i < b->n.n_operands; i++) {
        int64_t size = operand_shape(b, i).dims[axis].factor;
        if (wants(b, i)) {
            give(b, i, slice_axis(b, b->dy, axis, at, at + size, 1));
        }
        at += size;
    }
}

void grad_pad(struct backward *b)
{
    uint32_t axis = axis_of(b);
    int64_t size = operand_shape(b, 0).dims[axis].factor, step = node_int(&b->n, "step");
    int64_t low = node_int(&b->n, "low"), spread = size == 0 ? 0 : (size - 1) * step + 1;
    give(b, 0, slice_axis(b, b->dy, axis, low, low + spread, step));
}

static value index_op(struct backward *b, enum op op, const value *operands, uint32_t n,
                      int64_t axis)
{
    return graph_add(b->g, op, operands, n, (struct attr[]){attr_int("axis", axis)}, 1);
}

/* The indices add up in index order: the same bits on every device. */
void grad_take(struct backward *b)
{
    value into[] = {zeros_like(b, 0), b->n.operands[1], b->dy};
    give(b, 0, index_op(b, OP_index_add, into, 3, axis_of(b)));
}

void grad_gather(struct backward *b)
{
    value into[] = {zeros_like(b, 0), b->n.operands[1], b->dy};
    give(b, 0, index_op(b, OP_scatter_add, into, 3, axis_of(b)));
}

/* read, where the index lies inside the axis, else 0: take and gather give NaN there, but the
 * forward op ignored the element. */
static value where_inside(struct backward *b, value index, value read, uint32_t axis)
{
    value size = graph_size(b->g, operand_shape(b, 0).dims[axis], I64);
    value is_inside =
        op2(b, OP_and, op2(b, OP_ge, index, op1(b, OP_neg, size)), op2(b, OP_lt, index, size));
    return where(b, is_inside, read, number(b, 0.0));
}

void grad_index_add(struct backward *b)
{
    uint32_t axis = axis_of(b);
    give(b, 0, b->dy);
    if (!wants(b, 2)) {
        return;
    }
    /* indices along the axes they stand for in c, 1 elsewhere */
    struct shape a = operand_shape(b, 0), index = operand_shape(b, 1), to = index;
    for (uint32_t i = axis + 1; i < a.rank; i++) {
        to.dims[to.rank++] = dim_of(1);
    }
    value flags = graph_reshape(b->g, b->n.operands[1], &to);
    value read = index_op(b, OP_take, (value[]){b->dy, b->n.operands[1]}, 2, axis);
    give(b, 2, where_inside(b, flags, read, axis));
}

void grad_scatter_add(struct backward *b)
{
    uint32_t axis = axis_of(b);
    give(b, 0, b->dy);
    if (wants(b, 2)) {
        value read = index_op(b, OP_gather, (value[]){b->dy, b->n.operands[1]}, 2, axis);
        give(b, 2, where_inside(b, b->n.operands[1], read, axis));
    }
}

/* Rows of dy added at their indices; those of padding_idx stay out. */
void grad_embedding(struct backward *b)
{
    int64_t padding = node_int(&b->n, "padding_idx");
    struct dim rows = operand_shape(b, 0).dims[0];
    value index = b->n.operands[1], dy = b->dy;
    if (padding != -INT64_MAX && dy.id != 0) {
        padding += padding < 0 && dim_is_static(rows) ? rows.factor : 0;
        struct shape to = operand_shape(b, 1);
        to.dims[to.rank++] = dim_of(1);
        value flags = compare(b, OP_eq, graph_reshape(b->g, index, &to), (double)padding);
        dy = where(b, flags, number(b, 0.0), dy);
    }
    give(b, 0, index_op(b, OP_index_add, (value[]){zeros_like(b, 0), index, dy}, 3, 0));
}
