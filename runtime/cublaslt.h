/* Contractions on CUDA: cuBLASLt by dlopen. Accumulates in f32 (f64 for f64), adds the bias in the
 * epilogue, rounds once; partial sums are never kept in less. The algorithm is the heuristic's
 * first for a shape (or the one a plan recorded), kept, so eager and fused make the same call and
 * get the same bits. */
#ifndef ATOLL_RUNTIME_CUBLASLT_H
#define ATOLL_RUNTIME_CUBLASLT_H

#include "runtime/backend.h"
#include "runtime/scaled.h"

struct cublaslt;
struct CUstream_st;
/* path NULL: libcublasLt.so.13, .12. The workspace comes from the device. */
status cublaslt_open(const char *path, struct device *d, bool allows_tf32, struct cublaslt **out,
                     struct error *e);
void cublaslt_close(struct cublaslt *b);
/* Device memory. Zero-size m, n or batch: nothing; k == 0: the bias or 0. UNSUPPORTED names the
 * rule of cuBLASLt that the call breaks. */
status cublaslt_run(struct cublaslt *b, const struct contraction *c, const void *a, const void *bm,
                    const void *bias, void *out, struct CUstream_st *stream, struct error *e);
/* Chooses what a run with these arguments will use, and runs nothing. */
status cublaslt_choose(struct cublaslt *b, const struct contraction *c, const void *a,
                       const void *bm, const void *bias, const void *out, struct error *e);
/* Algorithms chosen so far, lent until the next call; and those of a plan, copied, to be taken
 * instead of the heuristic's for the same product where architecture and library are the same and
 * cublasLtMatmulAlgoCheck accepts them. A choice that does not hold is logged (category kernels)
 * and made anew. */
status cublaslt_choices(struct cublaslt *b, const struct contraction_choice **out, uint32_t *n,
                        struct error *e);
status cublaslt_recall(struct cublaslt *b, const struct contraction_choice *choices, uint32_t n,
                       struct error *e);
/* f8 operands with scales, in the order of scaled_run; UNSUPPORTED as above. */
status cublaslt_run_scaled(struct cublaslt *b, const struct scaled_product *p,
                           const void *const operands[4], void *out, struct CUstream_st *stream,
                           struct error *e);
status cublaslt_check_scaled(const struct scaled_product *p, int arch, struct error *e);
/* The rules alone: needs no library. arch: 90 for sm_90. */
status cublaslt_check(const struct contraction *c, int arch, struct error *e);

#endif
