/* First values of leaves, from their init text. */
#ifndef ATOLL_RUNTIME_INIT_H
#define ATOLL_RUNTIME_INIT_H

#include "runtime/tensor.h"

/* Texts: "" (param of rank >= 2: linear; else zeros), "zeros", "ones", a number, "uniform:BOUND"
 * (in [-BOUND, BOUND)), "normal:STD", "linear" (uniform with bound 1 / sqrt(size of the last axis),
 * PyTorch's Linear). Random ones draw from Philox with the stream of the leaf's name, so the same
 * seed gives the same values whatever else the graph holds. "high:STREAM:TEXT", "byte0:..." and
 * "byte1:..." are the parts of the f32 tensor that TEXT gives a leaf whose name has that stream:
 * its bf16 (bf16_high), and the bytes of its bf16_rest. */
status init_leaf(const struct node *n, uint64_t seed, struct tensor *out, struct error *e);

#endif
