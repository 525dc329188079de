/* Holds a graph's index checks against the data of a step before anything runs. */
#ifndef ATOLL_RUNTIME_INDEX_CHECK_H
#define ATOLL_RUNTIME_INDEX_CHECK_H

#include "runtime/tensor.h"

/* Lends the tensor of an input, param, buffer, state or scalar leaf. */
typedef struct tensor *index_leaf(void *context, value leaf);

/* DATA, with the op, the index, where it stands and what is valid, when an index that a step would
 * read from its leaves is out of range: the same for every executor. An index that the model
 * computes from floats is not looked at: out of range it reads NaN (0 for integers) and adds
 * nothing. */
status index_checks_run(const struct graph *g, const int64_t *symbols, index_leaf *leaf,
                        void *context, struct error *e);

#endif
