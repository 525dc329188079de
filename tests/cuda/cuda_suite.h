/* What the CUDA tests share: whether NVRTC and a device are there, and the exit that CTest reports
 * as skipped. */
#ifndef ATOLL_TESTS_CUDA_SUITE_H
#define ATOLL_TESTS_CUDA_SUITE_H

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

#include "codegen/nvrtc.h"

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

#endif
