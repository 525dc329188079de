/* Kernel description -> CUDA C for NVRTC. One description becomes one launch or a few (stages): a
 * reduction over everything needs its chunk results before it can go on. Same instructions, same
 * rounding points, same order of reductions as the C text, hence the same bits. */
#ifndef ATOLL_CODEGEN_EMIT_CUDA_H
#define ATOLL_CODEGEN_EMIT_CUDA_H

#include "kernel.h"

/* A launch. Grid: the product of items over per_block, at least one block; every kernel strides
 * over its grid, so a runtime may cut it to what the device holds. */
struct cuda_stage {
    const char *symbol;
    uint32_t n_items;
    struct dim items[MAX_RANK];
    int64_t per_block;
    uint32_t block_x, block_y;
};

/* Parameters of every stage: the args' pointers in order, the symbols (struct of MAX_SYMBOLS
 * int64_t by value), the length n, the workspace. Pointers are 16-byte aligned. */
struct cuda_kernel {
    uint32_t n_stages;
    const struct cuda_stage *stages;
    uint32_t n_sums; /* workspace: 8 bytes * n_sums * (1 + chunks of 16384 in n) */
};

/* What stands once before the kernels of a unit; helpers are those the kernels use. */
void emit_prologue_cuda(struct text *t, const struct kernel *kernels, uint32_t n);
/* Functions whose names begin with `name`. */
void emit_kernel_cuda(struct text *t, const struct kernel *k, const char *name, struct arena *arena,
                      struct cuda_kernel *out);
/* An index op, argmax or argmin (a GROUP_SINGLE): args are the operands, then the result. */
status emit_single_cuda(struct text *t, const struct graph *g, value v, const char *name,
                        struct arena *arena, struct cuda_kernel *out, struct error *e);

#endif
