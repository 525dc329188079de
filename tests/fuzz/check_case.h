/* One case held against the promise: fused and eager give the same bits. On a device, fused there
 * against eager here; where the graph has matrix products or f64 functions, whose bits belong to
 * the device, against one op at a time there. */
#ifndef ATOLL_TESTS_FUZZ_CHECK_CASE_H
#define ATOLL_TESTS_FUZZ_CHECK_CASE_H

#include "generate.h"

struct check_options {
    int threads[8]; /* OpenMP threads, one full comparison each */
    uint32_t n_threads;
    bool is_unfused;
    struct device *device; /* fused runs there; NULL: on the CPU */
    const char *libnvrtc;
    const char *cache; /* of kernels; NULL: none */
    int optimise;      /* level of the C compiler: 0 to 3 */
};

enum verdict_kind { VERDICT_SAME, VERDICT_REFUSED, VERDICT_DIFFERENT };
struct verdict {
    enum verdict_kind kind;
    char text[1200]; /* what was refused or differs */
    uint64_t n_values;
    uint32_t n_kernels;
    double seconds_compiler;
    uint8_t is_covered[256]; /* by op: ran in the primitive graph or stands in the model */
};

void check_case(const struct fuzz_case *c, const struct check_options *o, struct verdict *v);

#endif
