/* The built-in matrix product, for f64 and for machines without oneDNN. */
#ifndef ATOLL_RUNTIME_GEMM_H
#define ATOLL_RUNTIME_GEMM_H

#include <stdint.h>

/* C (m,n) dense = A (m,k) B (k,n) + bias (n, or NULL); strides in elements. Each element of C adds
 * its k products in increasing k from 0, then the bias, whatever the blocking or thread count. */
void gemm_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column,
              const float *b, int64_t b_row, int64_t b_column, const float *bias, float *c);
void gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_column,
              const double *b, int64_t b_row, int64_t b_column, const double *bias, double *c);

#endif
