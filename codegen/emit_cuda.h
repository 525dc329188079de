/* Kernel description -> CUDA C for NVRTC. One description becomes one launch or a few (stages): a
 * reduction over everything needs its chunk results before it can go on. Same instructions, same
 * rounding points, same order of reductions as the C text, hence the same bits. */
#ifndef ATOLL_CODEGEN_EMIT_CUDA_H
#define ATOLL_CODEGEN_EMIT_CUDA_H

#include "kernel.h"

/* What stands once before the kernels of a unit; helpers are those the kernels use. */
void emit_prologue_cuda(struct text *t, const struct kernel *kernels, uint32_t n);
/* Functions whose names begin with `name`. wants_many: also one over many tensors, where the kernel
 * is flat and of one phase. */
void emit_kernel_cuda(struct text *t, const struct kernel *k, const char *name, bool wants_many,
                      struct arena *arena, struct cuda_kernel *out);
/* An index op, argmax or argmin (a GROUP_SINGLE): args are the operands, then the result. */
status emit_single_cuda(struct text *t, const struct graph *g, value v, const char *name,
                        struct arena *arena, struct cuda_kernel *out, struct error *e);

#endif
