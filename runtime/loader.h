/* The next batch on its way while a step runs. What is put is copied to a pinned buffer, so the
 * caller's memory is free at once, and uploaded on the queue of copies to memory of the loader's
 * own; taking moves it, in order with launches, to where the step reads it. Two orders hold it
 * together, as marks on the device, never as waits of the host: a step's copy waits for the upload,
 * and the next upload waits for that copy.
 *
 * Without a device both are plain copies. A loader belongs to its device's thread. */
#ifndef ATOLL_RUNTIME_LOADER_H
#define ATOLL_RUNTIME_LOADER_H

#include "runtime/pinned.h"

struct loader;
/* Slots are numbered from 0: one an input. The device (NULL: the CPU) outlives the loader. NULL: no
 * memory. */
struct loader *loader_create(struct device *d, uint32_t n_slots);
/* Work on what was taken must be done. NULL is accepted. */
void loader_destroy(struct loader *l);
/* Starts a slot's next contents on their way; a second put before the take stands for the first.
 * OUT_OF_MEMORY, DEVICE. */
status loader_put(struct loader *l, uint32_t slot, const void *data, size_t bytes, struct error *e);
/* Bytes that were put and not taken; loader_holds: whether there are any such, be they 0. */
size_t loader_bytes(const struct loader *l, uint32_t slot);
bool loader_holds(const struct loader *l, uint32_t slot);
/* What was put in the slot and not taken is forgotten. */
void loader_drop(struct loader *l, uint32_t slot);
/* Everything that was put goes to to[slot], memory of the device, before what is launched next. */
status loader_take(struct loader *l, void *const *to, struct error *e);
/* The host's copy of what the slot's last take took, until its next one; NULL: none so far. */
const void *loader_taken(const struct loader *l, uint32_t slot, size_t *bytes);
struct pinned_counts loader_counts(const struct loader *l);

#endif
