/* A pool of host memory that a device copies from while the host goes on. A buffer is handed out
 * only when it is free: nobody holds it, and the last copy from it is done. So a pinned source
 * cannot be overwritten too early.
 *
 *     struct pinned_buffer *b;
 *     TRY(pinned_take(pool, bytes, &b, e));
 *     memcpy(b->memory, batch, bytes);
 *     TRY(backend->upload(device, to, b->memory, bytes, e));
 *     TRY(pinned_copying(pool, b, e));
 *     pinned_give(pool, b);                    at any time: the pool waits for the copy
 *
 * A pool belongs to its device's thread. Without a device it is plain memory. */
#ifndef ATOLL_RUNTIME_PINNED_H
#define ATOLL_RUNTIME_PINNED_H

#include "runtime/backend.h"

struct pinned_buffer {
    void *memory;
    size_t bytes;   /* at least what was asked for */
    void *copied;   /* the device's mark behind the last copy; NULL: none so far */
    uint64_t given; /* when it was given back, as a number that grows */
    bool is_held;
    struct pinned_buffer *next;
};

struct pinned_counts {
    size_t allocated, reserved; /* bytes held, and bytes there are */
    size_t peak_allocated, peak_reserved;
    uint64_t waits; /* times that a buffer was asked for and the host waited for a copy */
};

struct pinned_pool;
/* d NULL: the CPU. The device outlives the pool. NULL: no memory. */
struct pinned_pool *pinned_pool_create(struct device *d);
/* Waits for the copies. NULL is accepted. */
void pinned_pool_destroy(struct pinned_pool *p);
/* A free buffer of at least so many bytes, at most twice as many unless small; where all that fit
 * are still copied from, it waits for the one given back first. Lent until pinned_give.
 * OUT_OF_MEMORY, DEVICE. */
status pinned_take(struct pinned_pool *p, size_t bytes, struct pinned_buffer **out,
                   struct error *e);
/* The uploads queued so far read from b. */
status pinned_copying(struct pinned_pool *p, struct pinned_buffer *b, struct error *e);
/* NULL is accepted. */
void pinned_give(struct pinned_pool *p, struct pinned_buffer *b);
struct pinned_counts pinned_pool_counts(const struct pinned_pool *p);

#endif
