/* Checkpoints of a graph's kept leaves: params, buffers and states, by name. */
#ifndef ATOLL_RUNTIME_KEPT_H
#define ATOLL_RUNTIME_KEPT_H

#include "runtime/tensor.h"

typedef struct tensor *kept_leaf(void *context, value leaf);

static inline bool leaf_is_kept(const struct node *n)
{
    return n->op == OP_param || n->op == OP_buffer || n->op == OP_state;
}
/* Writes every kept leaf, and in the metadata how many steps were done. */
status kept_save(const char *path, const struct graph *g, kept_leaf *leaf, void *context,
                 int64_t steps, struct error *e);
/* Reads them back (steps: 0 when the file does not say); DATA when one is missing or of another
 * type, and then nothing is changed. */
status kept_load(const char *path, const struct graph *g, kept_leaf *leaf, void *context,
                 int64_t *steps, struct error *e);

#endif
