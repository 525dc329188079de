/* What the emulator's tests share: a context, modules from fixtures or NVRTC, arrays on the device,
 * and the findings. */
#ifndef ATOLL_EMULATOR_TEST_SUPPORT_H
#define ATOLL_EMULATOR_TEST_SUPPORT_H

#include "tests/suite.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_types.h"
#include "findings.h"

#define API(name, parameters) CUresult name parameters;
#include "driver_api.def"
#undef API
void atoll_emulator_statistics(uint64_t *launches, uint64_t *instructions);

#define GOOD(call) ck_assert_msg((call) == CUDA_SUCCESS, "%s failed", #call)

/* A fresh context with no findings; close_context releases it. */
void open_context(void);
void close_context(void);

CUmodule module_of_fixture(const char *name); /* fixtures/NAME.ptx */
CUmodule module_of_text(const char *ptx);     /* fails the test with the log */
CUfunction function_of(CUmodule m, const char *name);

CUdeviceptr device_array(size_t bytes);
CUdeviceptr device_copy(const void *data, size_t bytes);

/* One launch, waited for; the CUresult of the wait. */
CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, void **parameters);

/* True when a finding begins with `name` and all findings together hold `text`. */
bool has_finding(const char *name, const char *text);
/* Fails with the list when there are findings. */
void want_no_findings(void);

/* The file's text, malloc'ed; fails when it cannot be read. path is below tests/cuda_emulator/. */
char *read_text(const char *path);

/* NVRTC, opened at run time. NULL with a reason when it is missing; the PTX is malloc'ed. */
char *compile_cuda(const char *source, const char *arch, char *reason, size_t size);

/* kernel_checks.c: runs every kernel of a module against C. */
void check_sums(CUmodule m);
void check_scalars(CUmodule m);

uint32_t random_bits(uint64_t *state);
float random_float(uint64_t *state); /* any bits but NaN: zeros, subnormals, infinities too */

#endif
