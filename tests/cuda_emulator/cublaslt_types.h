/* The part of cuBLASLt's types that the emulator implements, declared by us, and a matmul as the
 * emulator sees it: plain data that is checked at the call and computed when its stream runs. */
#ifndef ATOLL_EMULATOR_CUBLASLT_TYPES_H
#define ATOLL_EMULATOR_CUBLASLT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_types.h"

enum {
#define X(name, value) name = value,
#include "cublaslt_constants.def"
#undef X
};

typedef unsigned int cublasStatus_t, cublasComputeType_t, cudaDataType_t, cudaDataType,
    cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatmulAlgoConfigAttributes_t;
typedef CUstream cudaStream_t;
typedef struct cublasLtContext *cublasLtHandle_t;
/* Attributes by number: all fit into 8 bytes. is_alive: not destroyed. */
struct attributes {
    uint64_t value[40];
    bool is_alive;
};
typedef struct attributes *cublasLtMatmulDesc_t, *cublasLtMatrixLayout_t,
    *cublasLtMatmulPreference_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

struct matrix {
    CUdeviceptr address;
    uint32_t type;
    uint64_t rows, columns; /* as stored */
    int64_t ld;
    bool is_row_major;
    int32_t batches;
    int64_t batch_stride; /* elements */
};
struct matmul {
    struct matrix a, b, c, d;
    bool transpose_a, transpose_b;
    uint32_t compute, epilogue, bias_type;
    uint64_t m, n, k;
    CUdeviceptr bias, scale_a, scale_b, scale_c, scale_d, amax_d;
    int64_t bias_stride;
    uint32_t scale_mode_a, scale_mode_b; /* of the first two scale pointers */
    bool scalars_on_device;
    double alpha, beta;            /* on the host */
    CUdeviceptr alpha_at, beta_at; /* on the device */
    uint32_t alignment[4];         /* promised for a, b, c, d */
};

uint32_t type_bytes(uint32_t type);
bool type_is_f8(uint32_t type);
/* cublaslt_rules.c: CUBLAS_STATUS_SUCCESS, or why the real library would refuse, in words. */
cublasStatus_t matmul_check_problem(const struct matmul *m, const char **why);
cublasStatus_t matmul_check_pointers(const struct matmul *m, const char **why);
/* cublaslt_scales.c: scale pointers of more than one factor a tensor. */
struct operation;
/* The scales of op(A) by row, those of op(B) by column: bytes of either, NULL where one factor is
 * all. */
struct part_scales {
    const uint8_t *a, *b;
};
bool matmul_knows_scales(const struct matmul *m);
bool matmul_has_parts(const struct matmul *m);
const char *matmul_check_scales(const struct matmul *m); /* NULL, or the rule that is broken */
/* False after a finding. */
bool matmul_read_scales(const struct matmul *m, const struct operation *op,
                        struct part_scales *out);
/* sum = a b with the scales on it, column by column: an f32 sum for each part along k in increasing
 * order, times both scales, added to what the parts before gave. partial: room for one column. */
void matmul_multiply_parts(const struct matmul *m, const struct part_scales *s, const float *a,
                           const float *b, float *sum, float *partial);
/* cublaslt_matmul.c: a library_function of driver.h. */
void matmul_run(void *job, const struct operation *op);

#endif
