/* decompose: composites and training ops to primitives. What it leaves is the PRIMITIVE FORM that
 * fuse, lower and both executors rely on:
 *  - no COMPOSITE and no TRAINING node;
 *  - a reduction has keepdims=1 and reduces one contiguous, non-empty group of axes (argmax and
 *    argmin: one axis). A reshape behind it drops the axes. Of several groups the innermost comes
 *    first; between them values stay in the accumulate dtype;
 *  - sum and prod give their accumulate dtype (f32; f64; i64): a cast behind them rounds once. max,
 *    min, any and all give their operand's dtype;
 *  - operands and result of matmul and linear have one dtype: f16, bf16, f32 or f64;
 *  - elementwise ops may mix dtypes and broadcast; weak constants stay weak. */
#ifndef ATOLL_PASSES_DECOMPOSE_H
#define ATOLL_PASSES_DECOMPOSE_H

#include "passes/pass.h"

/* OK when g is in primitive form; else the first node that is not, and what it lacks. */
status primitive_verify(const struct graph *g, struct error *e);

#endif
