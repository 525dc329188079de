/* Products of f8 operands with scales: how an operand (R,K), K the contraction axis, is cut into
 * parts that share a scale. A scale tensor is f32 of rank 2: one element a part, and holds the
 * reciprocal of what the values were multiplied by when they were quantised. */
#ifndef ATOLL_IR_SCALED_H
#define ATOLL_IR_SCALED_H

#include "graph.h"

enum scale_kind { SCALE_TENSOR, SCALE_ROW, SCALE_BLOCK, SCALE_TILE, SCALE_MX, N_SCALE_KINDS };

struct scale_kind_row {
    const char *name;
    int64_t rows, depth; /* of a part: along R and along K; 0: all of it */
    const char *text;    /* for notes */
};
extern const struct scale_kind_row scale_kind_info[N_SCALE_KINDS];

/* False when there is none of that name. */
bool scale_kind_named(const char *name, enum scale_kind *out);
/* Of operand 0 (a) or 1 (b) of a scaled_matmul. */
enum scale_kind node_scale_kind(const struct node *n, uint32_t operand);
/* The shape of the scales of an operand (R,K); false when a size is no multiple of its part's. */
bool scale_shape(enum scale_kind kind, const struct shape *operand, struct shape *out);
/* NULL, or what cuBLASLt lacks for a product with scales of these kinds on an architecture (90 for
 * sm_90): such a product is written out in f32 instead (passes/fp8_paths.c). */
const char *scaled_lack(enum scale_kind a, enum scale_kind b, int arch);
/* The quantize node an f8 value comes from, seen through views and f8 leaves left out; 0: none. */
value scaled_source(const struct graph *g, value v);
/* The value behind reshapes, expands, transposes and slices. */
value behind_views(const struct graph *g, value v);

#endif
