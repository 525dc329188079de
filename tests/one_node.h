/* One node of every op that reads floats, over leaves of given dtypes: what table-driven tests of
 * passes start from. */
#ifndef ATOLL_TESTS_ONE_NODE_H
#define ATOLL_TESTS_ONE_NODE_H

#include "ir/graph.h"

static const int64_t square[2] = {4, 8};

/* Has a float operand; the training step's own ops and those of f8 products left out. */
static inline bool is_float_op(enum op op)
{
    enum op_kind kind = op_info[op].kind;
    return kind != LEAF && kind != TRAINING && kind != RANDOM && op_info[op].types != TYPES_B &&
           op != OP_one_hot && op != OP_cast && op != OP_quantize && op != OP_scaled_matmul;
}

/* Elementwise ops of the training step, which stand behind differentiation: floats in and out, and
 * no gradient. */
static inline bool is_step_op(enum op op)
{
    return op == OP_scale_loss || op == OP_unscale || op == OP_bf16_high || op == OP_bf16_rest ||
           op == OP_bf16_join || op == OP_bf16_stochastic || op == OP_e8m0;
}

/* The op over float leaves of kind `leaf`, (4,8) or (8): the first of dtype a, the others b. */
static inline value one_node(struct graph *g, enum op leaf, enum op op, enum dtype a, enum dtype b)
{
    value x = graph_leaf(g, leaf, "x", a, square, 2);
    value y = graph_leaf(g, leaf, "y", b, square, 2);
    value row = graph_leaf(g, leaf, "row", b, (int64_t[]){8}, 1);
    value labels = graph_leaf(g, OP_input, "labels", I64, (int64_t[]){4}, 1);
    value seed = graph_leaf(g, OP_input, "seed", I64, NULL, 0);
    value cells = graph_leaf(g, OP_input, "cells", I64, square, 2);
    struct attr last = attr_int("axis", 1);
    struct attr last_axes = attr_ints("axes", (int64_t[]){1}, 1);
    struct attr flipped = attr_bool("transpose_b", true);
    struct shape shape = {.rank = 2, .dims = {dim_of(8), dim_of(4)}};
    struct shape wide = {.rank = 3, .dims = {dim_of(2), dim_of(4), dim_of(8)}};
    struct attr dims = attr_dims("shape", op == OP_expand ? &wide : &shape);
    switch ((int)op) {
    case OP_where:
        return graph_op3(g, op, graph_op1(g, OP_is_nan, x), x, y);
    case OP_matmul:
        return graph_add(g, op, (value[]){x, y}, 2, &flipped, 1);
    case OP_layer_norm:
        return graph_op3(g, op, x, row, row);
    case OP_rms_norm:
        return graph_op2(g, op, x, row);
    case OP_reshape:
    case OP_expand:
        return graph_add(g, op, &x, 1, &dims, 1);
    case OP_take:
    case OP_embedding:
    case OP_cross_entropy:
    case OP_nll_loss:
        return graph_op2(g, op, x, labels);
    case OP_gather:
        return graph_op2(g, op, x, cells);
    case OP_dropout:
        return graph_op2(g, op, x, seed);
    case OP_index_add:
        return graph_op3(g, op, x, labels, y);
    case OP_scatter_add:
        return graph_op3(g, op, x, cells, y);
    case OP_argmax:
    case OP_argmin:
        return graph_add(g, op, &x, 1, &last, 1);
    case OP_sum:
    case OP_prod:
    case OP_max:
    case OP_min:
    case OP_mean:
    case OP_norm:
    case OP_logsumexp:
        return graph_add(g, op, &x, 1, &last_axes, 1);
    case OP_concat: /* capture refuses mixed operands: autocast meets them behind a cast operand */
        return a == b ? graph_op2(g, op, x, y)
                      : graph_op2(g, op, graph_cast(g, x, b), graph_cast(g, y, b));
    default:
        return op_info[op].min_operands == 1 ? graph_op1(g, op, x) : graph_op2(g, op, x, y);
    }
}

#endif
