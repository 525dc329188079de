/* What a primitive computes in: one rule, shared by type inference, the eager executor and the code
 * generator, so that none can disagree about a rounding point. */
#ifndef ATOLL_IR_COMPUTE_H
#define ATOLL_IR_COMPUTE_H

#include "graph.h"

/* A constant with weak=1: takes part at the compute precision of the node that reads it and does
 * not promote. An executor converts its `value` attribute straight to the reader's compute type. */
bool node_is_weak(const struct node *n);
/* Whether its result saturates: quantize, and casts that say so. */
bool node_saturates(const struct node *n);
/* The dtype operands first..n meet in; DTYPE_NONE when there are none. */
enum dtype operands_promoted(const struct graph *g, const struct node *n, uint32_t first);
/* F32, F64 or I64: what operands are widened to (a C cast: integers to floats round to nearest) and
 * what the result is rounded from.
 *   elementwise  the compute type of the operands' promotion (where: of b and c; integers under an
 * op on floats: F32); comparisons the same; and or xor not: I64; cast: its source's reductions   of
 * the promotion of operand and result (sum of f16 to f64 accumulates in f64) index_add, scatter_add
 * of the promotion of base and source anything else  of the result's dtype */
enum dtype node_compute(const struct graph *g, const struct node *n);

#endif
