/* Pieces the CUDA printers share. Inner to codegen. */
#ifndef ATOLL_CODEGEN_EMIT_CUDA_INTERNAL_H
#define ATOLL_CODEGEN_EMIT_CUDA_INTERNAL_H

#include "emit.h"
#include "emit_cuda.h"

enum { THREADS = 256 };
#define ALL_PHASES UINT32_MAX

/* A printer at work on one kernel. */
struct cuda_emitter {
    const struct kernel *k;
    struct text *t;
    struct arena *arena;
    const char *name;
    struct cuda_stage *stages;
    uint32_t n_stages;
    bool wants_many;
    const char *many;
    bool *is_needed; /* by inst: what the loop at hand computes */
};

/* Opens a __global__ function `name` + suffix with the kernel's parameters and records its launch.
 */
struct cuda_stage *emit_stage(struct cuda_emitter *c, const char *suffix, uint32_t block_x,
                              uint32_t block_y);
/* Marks what the loop of a phase computes. */
void need_of_phase(struct cuda_emitter *c, uint32_t phase);
bool phase_has_reductions(const struct kernel *k, uint32_t phase);
bool phase_has_loop(const struct kernel *k, uint32_t phase);
/* Elements a thread takes at once: 16 bytes of the widest element that moves in packs; 1 when
 * nothing does. */
uint32_t width_of_loop(const struct cuda_emitter *c, uint32_t phase, uint32_t most);
/* How often the loop at hand is unrolled, as a line before it: a few loads under way at once for a
 * thread where elements are small work, otherwise not at all. The compiler's own choice is up to 16
 * copies, most of the time of compiling, for loops that a thread goes through once or twice. */
void emit_unroll(struct cuda_emitter *c, uint32_t width);
/* The work on elements [base, base + width) of the inner axes: loads, instructions, stores (under
 * the condition `live` when not NULL) and accumulation into acc<i>[]. */
void emit_elements(struct cuda_emitter *c, uint32_t phase, uint32_t width, const char *live,
                   const char *indent);
/* Row values of a phase, and its row stores under the condition `lead`. */
void emit_row_values(struct cuda_emitter *c, uint32_t phase, const char *lead, const char *indent);
/* f_sum_f32 */
void emit_functor(struct text *t, const struct inst *reduction);
/* The pattern once for each reduction of a phase: @ is its number, ~ its compute type, $ its
 * functor (f_sum_f32). */
void emit_each(struct cuda_emitter *c, uint32_t phase, const char *pattern);
/* Declares v<i>, the rounded result of reduction i, from an expression. */
void emit_result(struct text *t, const struct kernel *k, uint32_t i, const char *from,
                 const char *indent);

void emit_cuda_row(struct cuda_emitter *c);
void emit_cuda_column(struct cuda_emitter *c);

#endif
