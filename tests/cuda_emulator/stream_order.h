/* Which stream operations come before which. Operations are numbered in the order of their calls;
 * an operation comes after what it depends on: the one before it in its stream, events it waited
 * for, and everything the host had waited for. The set of what comes before is everything up to
 * `floor` and some numbers above it. */
#ifndef ATOLL_EMULATOR_STREAM_ORDER_H
#define ATOLL_EMULATOR_STREAM_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ordering {
    uint32_t floor;
    uint32_t n_words;
    uint64_t *words; /* bit i: operation floor + 1 + i */
};

bool order_before(const struct ordering *o, uint32_t op);
/* Adds an operation, or all that another set holds. */
void order_add(struct ordering *o, uint32_t op);
/* Adds all from first to last. */
void order_add_range(struct ordering *o, uint32_t first, uint32_t last);
void order_merge(struct ordering *o, const struct ordering *other);
void order_free(struct ordering *o);

#endif
