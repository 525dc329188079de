/* runtime/: compile, load, launch. tensor.h: a dense row-major tensor in host memory, lent, never
 * owned. */
#ifndef ATOLL_RUNTIME_TENSOR_H
#define ATOLL_RUNTIME_TENSOR_H

#include "ir/graph.h"

struct tensor {
    enum dtype dtype;
    uint32_t rank;
    int64_t shape[MAX_RANK];
    void *data; /* may be NULL when there are no elements */
};

static inline int64_t tensor_count(const struct tensor *t)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        n *= t->shape[i];
    }
    return n;
}
static inline size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_info[t->dtype].bytes;
}

#endif
