/* The emulator's own declarations against the real cuda.h and cublasLt.h: declaring every exported
 * call again beside them does not compile when a type differs, and every number is compared.
 * Skipped where the CUDA headers are missing. */
#include "tests/suite.h"

#include <stdio.h>

#ifdef ATOLL_HAVE_CUDA_H
#include <cublasLt.h>
#include <cuda.h>

#define API(name, parameters) CUresult CUDAAPI name parameters;
#include "driver_api.def"
#undef API
#define API(type, name, parameters) type CUBLASWINAPI name parameters;
#include "cublaslt_api.def"
#undef API

static const struct {
    const char *name;
    long real, ours;
} numbers[] = {
#define X(name, value) {#name, name, value},
#include "cublaslt_constants.def"
#include "cuda_constants.def"
#undef X
#define X(name, number, value) {#name, name, number},
#include "cuda_attributes.def"
#undef X
    {"MAX_DYNAMIC_SHARED", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8},
    {"JIT_ERROR_LOG", CU_JIT_ERROR_LOG_BUFFER, 5},
    {"JIT_ERROR_LOG_BYTES", CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6},
    {"POOL_RELEASE_THRESHOLD", CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4},
    {"POOL_USED_HIGH", CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8},
    {"STREAM_NON_BLOCKING", CU_STREAM_NON_BLOCKING, 1},
    {"EVENT_DISABLE_TIMING", CU_EVENT_DISABLE_TIMING, 2},
    {"CAPTURE_ACTIVE", CU_STREAM_CAPTURE_STATUS_ACTIVE, 1},
    {"bytes of cublasLtMatmulHeuristicResult_t", sizeof(cublasLtMatmulHeuristicResult_t), 96},
};

START_TEST(number)
{
    ck_assert_msg(numbers[_i].real == numbers[_i].ours, "%s is %ld, ours %ld", numbers[_i].name,
                  numbers[_i].real, numbers[_i].ours);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, number, 0, sizeof numbers / sizeof *numbers);
}

int main(void)
{
    return run_suite("emulator_headers", fill);
}
#else
int main(void)
{
    puts("skipped: cuda.h and cublasLt.h are not installed");
    return 77;
}
#endif
