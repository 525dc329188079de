/* What the CUDA tests share: whether NVRTC and a device are there, and the exit that CTest reports
 * as skipped. */
#ifndef ATOLL_TESTS_CUDA_SUITE_H
#define ATOLL_TESTS_CUDA_SUITE_H

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

#include "codegen/nvrtc.h"
#include "runtime/backend.h"

enum { SKIPPED = 77 };

/* NULL after saying why not. */
static inline struct nvrtc *nvrtc_for_tests(void)
{
    struct nvrtc *n = NULL;
    struct error e = {0};
    if (nvrtc_open(getenv("ATOLL_LIBNVRTC"), &n, &e) != ATOLL_OK) {
        printf("skipped: %s\n", e.text);
        return NULL;
    }
    return n;
}

/* The device of the tests: the one that ATOLL_LIBCUDA names (the emulator), else the first real
 * one. NULL after saying why not. */
static inline struct device *device_for_tests(void)
{
    struct device *d = NULL;
    struct error e = {0};
    struct device_options o = {.libcuda = getenv("ATOLL_LIBCUDA"),
                               .libcublaslt = getenv("ATOLL_LIBCUBLASLT")};
    if (device_open("cuda:0", &o, &d, &e) != ATOLL_OK) {
        printf("skipped: %s\n", e.text);
        return NULL;
    }
    printf("device: %s\n", d->name);
    return d;
}

#endif
