/* Gradient rules: one function a name in the gradient column of ops.def. A rule sees one forward
 * node of the graph and the gradient of its value, adds nodes behind it and gives each operand its
 * share. Rules of one rounding run in the dtype of the forward op; rules of several operations
 * compute in f32 (f64) inside and round once, as composites do. */
#ifndef ATOLL_PASSES_GRADIENTS_H
#define ATOLL_PASSES_GRADIENTS_H

#include "ir/graph.h"

struct backward {
    struct graph *g;   /* forward nodes first; rules append */
    struct node n;     /* the forward node, by value: g->nodes may move while nodes are added */
    value y, dy;       /* its value and the gradient of it, same dtype and shape */
    value *grad;       /* by id of a forward node; 0: none yet */
    const bool *needs; /* by id: depends on a value whose gradient was asked for */
};

typedef void grad_rule(struct backward *b);
#define OP(name, min, max, kind, types, shape, cuda, cpu, grad, ...) grad_rule grad_##grad;
#include "ir/ops.def"
#undef OP

/* NULL when the op has no rule. */
grad_rule *gradient_rule(enum op op);

/* Whether operand i needs a gradient. Rules ask before they build. */
bool wants(const struct backward *b, uint32_t i);
/* Adds v to the gradient of operand i: summed to its shape, cast to its dtype. */
void give(struct backward *b, uint32_t i, value v);
/* v summed over the axes along which `shape` was broadcast to v's. */
value sum_to(struct graph *g, value v, const struct shape *shape);

/* v in the dtype that rules compute in: f32, or f64 when the forward op or v is f64. */
value widen(struct backward *b, value v);
value widen_operand(struct backward *b, uint32_t i);
enum dtype compute_dtype(const struct backward *b);

/* Reductions over a bit mask of axes with keepdims. */
value reduce_axes(struct backward *b, enum op op, value v, uint32_t mask);
/* v, the value of a reduction of operand 0 over mask, as if it had been made with keepdims. */
value keep_axes(struct backward *b, value v, uint32_t mask);
/* The number of elements along the axes of mask in shape, as a scalar. */
value axes_count(struct backward *b, const struct shape *shape, uint32_t mask);
value zeros_like(struct backward *b, uint32_t operand); /* of the operand's dtype and shape */

static inline value number(struct backward *b, double x)
{
    return graph_number(b->g, x);
}
static inline value op1(struct backward *b, enum op op, value x)
{
    return graph_op1(b->g, op, x);
}
static inline value op2(struct backward *b, enum op op, value x, value y)
{
    return graph_op2(b->g, op, x, y);
}
static inline value add(struct backward *b, value x, value y)
{
    return graph_op2(b->g, OP_add, x, y);
}
static inline value sub(struct backward *b, value x, value y)
{
    return graph_op2(b->g, OP_sub, x, y);
}
static inline value mul(struct backward *b, value x, value y)
{
    return graph_op2(b->g, OP_mul, x, y);
}
static inline value over(struct backward *b, value x, value y)
{
    return graph_op2(b->g, OP_div, x, y);
}
static inline value where(struct backward *b, value mask, value x, value y)
{
    return graph_op3(b->g, OP_where, mask, x, y);
}
static inline value compare(struct backward *b, enum op op, value x, double y)
{
    return graph_op2(b->g, op, x, graph_number(b->g, y));
}

#endif
