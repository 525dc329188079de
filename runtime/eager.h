/* The eager executor: runs a decomposed graph one primitive at a time, each over vectorised blocks,
 * never fused. The same prelude as generated code, hence the same bits. */
#ifndef ATOLL_RUNTIME_EAGER_H
#define ATOLL_RUNTIME_EAGER_H

#include "runtime/contraction.h"
#include "runtime/tensor.h"

/* Runs one node. operands: dense tensors whose dtypes and concrete shapes fit the node; result:
 * dtype, shape and data set by the caller, overwritten. symbols: values by symbol id (for size,
 * iota). */
status eager_node(const struct graph *g, value v, const struct tensor *operands,
                  struct tensor *result, const int64_t *symbols, struct contraction_cache *cache,
                  struct error *e);

/* Runs a whole decomposed graph. leaf(context, v) lends the tensor of an input, param, buffer,
 * state or scalar leaf. Intermediates are allocated one by one and freed after their last use.
 * Outputs are copied into outputs[i].data (allocated by the caller, types checked); after all nodes
 * ran, updates are copied into the leaves' tensors. probe, when not NULL, sees every computed value
 * (for compare). */
typedef struct tensor *eager_leaf(void *context, value v);
typedef void eager_probe(void *context, value v, const struct tensor *t);
struct eager_run {
    const struct graph *graph;
    const int64_t *symbols;
    eager_leaf *leaf;
    eager_probe *probe;
    void *context;
    struct tensor *outputs;
    struct contraction_cache *cache;
    size_t peak_bytes; /* out: the most bytes of intermediates alive at once */
};
status eager_run(struct eager_run *run, struct error *e);

#endif
