/* codegen/: kernels as data, then as text. A kernel description is what a fusion group becomes:
 * loops over a domain, loads and stores by affine maps, scalar instructions in SSA form with their
 * rounding points, reductions by phase. Two printers read it. */
#ifndef ATOLL_CODEGEN_KERNEL_H
#define ATOLL_CODEGEN_KERNEL_H

#include "ir/partition.h"

enum inst_kind {
    INST_LOAD,   /* element of args[arg] at map */
    INST_NUMBER, /* a constant */
    INST_SIZE,   /* the value of a dim */
    INST_INDEX,  /* map as a number: iota, or the linear index a random op draws by */
    INST_OP,     /* an elementwise op */
    INST_RANDOM, /* uniform, normal: operands seed, index */
    INST_REDUCE, /* a reduction of operand 0 along the row or column */
};

/* Element offset + sum stride[k] * index[k] over the kernel's axes. */
struct index_map {
    struct dim offset;
    struct dim stride[MAX_RANK];
};

struct inst {
    enum inst_kind kind;
    enum op op;
    enum dtype compute; /* what it computes in */
    enum dtype dtype;   /* what its result is rounded to */
    bool saturate, is_weak;
    uint32_t n_operands, operands[3]; /* earlier instructions */
    uint32_t arg;
    struct index_map map;
    double number;
    struct dim size;
    int64_t stream;
    bool is_row;    /* one value a row (ROW kernels): computed outside the inner loop */
    uint32_t ready; /* first phase in which it can be computed; a reduction's own phase */
    const char *name;
};

struct store {
    uint32_t inst, arg;
    struct index_map map;
    bool is_row;    /* once a row */
    uint32_t phase; /* the phase whose loop stores it */
};

struct kernel_arg {
    value v; /* whose memory */
    enum dtype dtype;
    bool is_written;
};

struct kernel {
    const char *name; /* k3_softmax: unique in a plan */
    enum group_kind kind;
    uint32_t rank; /* axes after collapsing */
    struct dim domain[MAX_RANK];
    uint32_t first_axis, n_axes; /* reduced axes; ROW: the inner loop's axes, always trailing */
    bool is_flat;                /* one row over everything: its length is the argument n */
    uint32_t n_phases;
    uint32_t n_insts, n_stores, n_args;
    struct inst *insts;
    struct store *stores;
    struct kernel_arg *args;
    const char *comment; /* the ops it stands for */
};

/* A generated kernel, once for each of count tensors (the parameters of an optimizer step; 1 unless
 * the kernel is flat): p are their arguments' pointers in args order, one tensor after another, d
 * the symbols' values by id, n the tensors' flat lengths. */
typedef void kernel_fn(void *const *p, const int64_t *d, const int64_t *n, int64_t count);

/* Group to kernel; everything is allocated in arena. Kinds ROW and COLUMN only. is_relaxed: f16 and
 * bf16 results stay in f32 inside the kernel and round when stored (a cast to f8 always rounds: it
 * is a quantisation). */
status kernel_lower(const struct graph *g, const struct partition *p, uint32_t group,
                    bool is_relaxed, struct arena *arena, struct kernel *out, struct error *e);

/* A launch of generated CUDA code. Grid: the product of items over per_block, at least one block;
 * every kernel strides over its grid, so a runtime may cut it to what the device holds. */
struct cuda_stage {
    const char *symbol;
    uint32_t n_items;
    struct dim items[MAX_RANK];
    int64_t per_block;
    uint32_t block_x, block_y;
};

/* What a kernel is on CUDA: stages in order on one stream. Parameters of every stage: the args'
 * pointers in order (16-byte aligned), the symbols (MAX_SYMBOLS int64_t by value), the length n,
 * the workspace. */
struct cuda_kernel {
    uint32_t n_stages;
    const struct cuda_stage *stages;
    /* One launch for many tensors (flat kernels of one phase), or NULL: parameters are a table in
     * device memory, the number of its rows and of blocks, the symbols. A row: length n, first
     * block, the args' pointers; a tensor takes n / stages[0].per_block blocks, rounded up, one at
     * least. */
    const char *many;
    uint32_t n_sums; /* workspace: 8 bytes * n_sums * (1 + chunks of 16384 in n) */
};

/* C source of a kernel function called `name`; prologue: what stands once before all kernels of a
 * unit (needs: ops used so far are emitted by emit_helpers from the same kernels). */
void emit_prologue_c(struct text *t, const struct kernel *kernels, uint32_t n);
void emit_kernel_c(struct text *t, const struct kernel *k, const char *name);

#endif
