/* fuse: which nodes share a kernel. Reads a primitive graph (decompose), changes nothing, gives a
 * partition. */
#ifndef ATOLL_PASSES_FUSE_H
#define ATOLL_PASSES_FUSE_H

#include "ir/partition.h"
#include "passes/pass.h"

struct fuse_options {
    bool is_off; /* every node its own kernel */
};
/* notes receives "why not fused" for neighbours that could have been one kernel. */
status fuse(const struct graph *g, const struct fuse_options *o, struct partition *out,
            struct notes *notes, struct error *e);
/* fuse_wait.c: by node, whether it is made of leaves alone and read by later elementwise ops only:
 * it goes into their kernel, whatever else reads its leaves. */
bool *fuse_waiting(const struct graph *g, struct arena *a);
/* fuse_explain.c: the notes, one for each two groups of which one reads the other's result. */
void fuse_explain(const struct graph *g, const struct partition *p, struct notes *notes);

#endif
