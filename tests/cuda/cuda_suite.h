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

/* Opens the device of the tests for a suite that runs in one process; NULL: it must be skipped. */
static inline struct device *device_of_suite(void)
{
    struct nvrtc *nvrtc = nvrtc_for_tests();
    if (nvrtc == NULL) {
        return NULL;
    }
    nvrtc_close(nvrtc);
    setenv("CK_FORK", "no", 1); /* a device's context does not survive a fork */
    return device_for_tests();
}

/* A suite on the device of the tests, lent in *out while it runs; SKIPPED where it cannot run. */
static inline int run_on_device(const char *name, void (*fill)(TCase *), struct device **out)
{
    *out = device_of_suite();
    if (*out == NULL) {
        return SKIPPED;
    }
    int code = run_suite(name, fill);
    device_close(*out);
    return code;
}

#endif
