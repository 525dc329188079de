/* Products of bf16 and f16 in f32 arithmetic, where AVX-512 is. */
#ifndef ATOLL_RUNTIME_GEMM_LOW_H
#define ATOLL_RUNTIME_GEMM_LOW_H

#include "contraction.h"

/* Whether this processor can, for operands of type t. */
bool gemm_low_serves(enum dtype t);
/* Bytes of scratch that the call needs with as many threads as OpenMP gives now, 64-byte aligned.
 */
size_t gemm_low_scratch(const struct contraction *c);
/* c: m, n, k and the batch at least 1; ab BF16 or F16; c as ab or F32. Each element of C adds its
 * products in rising k from 0, each by one fused multiply-add in f32, then the bias, and is rounded
 * once; subnormals are kept. The bits depend neither on threads nor on the rest of the shape. */
void gemm_low(const struct contraction *c, const uint16_t *a, const uint16_t *b, const void *bias,
              void *out, void *scratch);

#endif
