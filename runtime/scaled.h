/* Products of f8 operands with scales, for both executors: one descriptor, one call, the same bits.
 * On the CPU an exact emulation of what a GPU's tensor core does: f8 values widen to f32 without a
 * rounding, products accumulate in f32, scales apply to the sums, one rounding at the end. */
#ifndef ATOLL_RUNTIME_SCALED_H
#define ATOLL_RUNTIME_SCALED_H

#include "ir/scaled.h"
#include "runtime/contraction.h"

/* C (M,N) of dtype c = A (M,K) times B (N,K) transposed, all row-major and dense. */
struct scaled_product {
    enum dtype a, b, c;
    enum scale_kind scale_a, scale_b;
    int64_t m, n, k;
};

/* From a scaled_matmul node and the dtypes and static shapes of its first two operands. */
void scaled_product_of(const struct node *n, enum dtype a, enum dtype b, const int64_t a_shape[2],
                       const int64_t b_shape[2], struct scaled_product *out);
/* operands: a, b, their reciprocal scales. With s a scale of a and t one of b:
 *   tensor, row      C = round((sum a b) s t)
 *   block, tile, mx  the sum of each 128 (mx: 32) along K is multiplied by its s and t and added to
 *                    an f32 accumulator, in increasing k; then rounded
 * Zero m or n: nothing; k == 0: zeros. OUT_OF_MEMORY when there is no room for the widened copies.
 */
status scaled_run(struct contraction_cache *cache, const struct scaled_product *p,
                  const void *const operands[4], void *out, struct error *e);

#endif
