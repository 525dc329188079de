/* What the rules of decompose share: one function an op, which builds the op's definition from
 * primitives. A rule computes in `compute` (f32; f64 when an operand is f64) and ends with
 * result(), the only rounding. */
#ifndef ATOLL_PASSES_DECOMPOSE_RULES_H
#define ATOLL_PASSES_DECOMPOSE_RULES_H

#include "ir/graph.h"

struct scope {
    struct graph *g;
    struct node n;  /* the node being replaced, by value; its operands are those of the old graph */
    const value *x; /* its operands in g */
    enum dtype compute;
};

typedef value decompose_rule(struct scope *s);
decompose_rule decompose_reduction, decompose_arg, decompose_contraction, decompose_mean,
    decompose_norm, decompose_logsumexp, decompose_embedding, decompose_one_hot, decompose_dropout,
    decompose_clamp, decompose_leaky_relu, decompose_gelu, decompose_silu, decompose_softplus,
    decompose_variance, decompose_log_sigmoid, decompose_batch_norm, decompose_normalize,
    decompose_softmax, decompose_log_softmax, decompose_layer_norm, decompose_rms_norm,
    decompose_cross_entropy, decompose_nll_loss, decompose_mse_loss, decompose_l1_loss,
    decompose_huber_loss, decompose_bce_with_logits, decompose_binary_cross_entropy,
    decompose_all_finite, decompose_global_norm, decompose_clip_grad_norm, decompose_adam_exp_avg,
    decompose_adam_exp_avg_sq, decompose_adam_update, decompose_sgd_momentum,
    decompose_weight_decay, decompose_sgd_update, decompose_scaler_scale, decompose_scaler_tracker;

struct shape shape_of(const struct scope *s, value v);
uint32_t all_axes(const struct scope *s, value v);
/* v in dtype t; a weak number becomes a constant of that dtype, without a stop at f32. */
value as(struct scope *s, value v, enum dtype t);
value up(struct scope *s, uint32_t operand); /* operand in the compute dtype */
value result(struct scope *s, value v);      /* v as the node's result: its shape, its dtype */
value drop_to(struct scope *s, value v, const struct shape *shape); /* reshape */
/* Reduction over a bit mask of axes, keepdims, in primitive form: groups from the innermost. sum
 * and prod accumulate in, and give, dtype `to`; the others keep v's. */
value reduce_mask(struct scope *s, enum op op, value v, uint32_t mask, enum dtype to);
value sum_over(struct scope *s, value v, uint32_t mask); /* in the compute dtype */
value max_over(struct scope *s, value v, uint32_t mask);
/* The number of elements along the axes of mask, as a scalar of the compute dtype. */
value count_of(struct scope *s, const struct shape *shape, uint32_t mask);
/* The norm of a value already in the compute dtype; shape with keepdims. */
value norm_over(struct scope *s, value a, uint32_t mask, double p);

static inline value number(struct scope *s, double x)
{
    return graph_number(s->g, x);
}
static inline value op1(struct scope *s, enum op op, value a)
{
    return graph_op1(s->g, op, a);
}
static inline value op2(struct scope *s, enum op op, value a, value b)
{
    return graph_op2(s->g, op, a, b);
}
static inline value add(struct scope *s, value a, value b)
{
    return graph_op2(s->g, OP_add, a, b);
}
static inline value sub(struct scope *s, value a, value b)
{
    return graph_op2(s->g, OP_sub, a, b);
}
static inline value mul(struct scope *s, value a, value b)
{
    return graph_op2(s->g, OP_mul, a, b);
}
static inline value over(struct scope *s, value a, value b)
{
    return graph_op2(s->g, OP_div, a, b);
}
static inline value where(struct scope *s, value mask, value a, value b)
{
    return graph_op3(s->g, OP_where, mask, a, b);
}

#endif
