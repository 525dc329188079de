/* Pieces the emitters share: spelling of types, literals, dims, loads, rounding. Inner to codegen.
 */
#ifndef ATOLL_CODEGEN_EMIT_H
#define ATOLL_CODEGEN_EMIT_H

#include "kernel.h"

const char *emit_type(enum dtype t); /* of a variable: float, double, int64_t, int32_t for bool */
const char *emit_storage(enum dtype t); /* of memory */
const char *emit_suffix(enum dtype compute);
void emit_dim(struct text *t, const struct kernel *k, struct dim d);
/* The element a map points at, out of x<axis>. */
void emit_index(struct text *t, const struct kernel *k, const struct index_map *m);
/* Product of axes [from, to); "1" when empty. */
void emit_count(struct text *t, const struct kernel *k, uint32_t from, uint32_t to);
/* Declares x<axis> for axes [from, to) out of the linear index `var`. */
void emit_decode(struct text *t, const struct kernel *k, uint32_t from, uint32_t to,
                 const char *var, const char *indent);
/* A map as an expression of x0, x1, ... */
void emit_index(struct text *t, const struct kernel *k, const struct index_map *m);
/* Declares v<i> for instruction i (not a reduction). */
void emit_inst(struct text *t, const struct kernel *k, uint32_t i, const char *indent);
/* Instruction o as an expression of the compute type. */
void emit_operand(struct text *t, const struct kernel *k, uint32_t o, enum dtype compute);
/* Opens and closes the rounding of an expression of type `compute` to dtype. */
void emit_round_open(struct text *t, enum dtype compute, enum dtype dtype, bool saturate);
void emit_round_close(struct text *t, enum dtype compute, enum dtype dtype);
void emit_identity(struct text *t, enum op op, enum dtype compute);
void emit_store(struct text *t, const struct kernel *k, const struct store *s, const char *indent);
/* Does any of the n kernels compute op in that type: is its helper needed? */
bool emit_uses(const struct kernel *kernels, uint32_t n, enum op op, enum dtype compute);
/* op_<name>_<type>: the meaning of an op (of a reduction: of one step) as a function. */
void emit_helper(struct text *t, enum op op, enum dtype compute);
void emit_args(struct text *t, const struct kernel *k);

void emit_row(struct text *t, const struct kernel *k);
void emit_column(struct text *t, const struct kernel *k);

enum { CHUNK = 16384, LANES = 128, COLUMN_CHUNK = 128, TILE = 256 };

/* Reductions of bools keep their lanes as the i32 that bools are in expressions: in i64, the type
 * they are computed in elsewhere, half as many fit a register. */
static inline bool emit_is_logical(enum op op)
{
    return op == OP_all || op == OP_any;
}

/* How many elements of the kernel's loop are worth a thread's turn, by the weight of its body: one
 * for a load or a cheap op, more for a function such as erf. Threads share a loop of more than
 * LEAST_BLOCKS blocks. No value depends on it. */
int64_t emit_block(const struct kernel *k);
enum {
    LARGEST_BLOCK = 8192,
    SMALLEST_BLOCK = 1024,
    BLOCK_WEIGHT = 32768,
    FUNCTION_WEIGHT = 8,
    LEAST_BLOCKS = 4
};

#endif
