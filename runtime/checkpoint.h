/* Checkpoints are safetensors files: parameters, optimizer and scaler state, counters, random
 * state. */
#ifndef ATOLL_RUNTIME_CHECKPOINT_H
#define ATOLL_RUNTIME_CHECKPOINT_H

#include "runtime/data.h"

/* Writes the arrays in the order given, and metadata as key, value, key, value, ... (n_pairs
 * pairs). The same input gives the same bytes. Atomic: the path holds the old file or the whole new
 * one. USAGE when a name is empty, not UTF-8, "__metadata__" or comes twice, or an array's bytes
 * are not its shape's. */
status checkpoint_write(const char *path, const struct array *arrays, uint32_t n,
                        const char *const *metadata_pairs, uint32_t n_pairs, struct error *e);

/* Arrays in the order they were written; metadata in out->metadata. Close with dataset_close. */
status checkpoint_read(const char *path, struct dataset *out, struct error *e);

#endif
