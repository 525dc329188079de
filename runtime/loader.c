/* The loader: by slot one staging memory on the device and up to two pinned buffers, one that
 * travels and one that was taken last (people may still look at it). Invariant: an upload to a
 * staging waits for the copy that reads it, and that copy for the upload. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct pinned_buffer *next, *taken; /* put and not taken; taken last */
    size_t bytes, taken_bytes;          /* of next, and of taken */
    void *staging;                      /* device memory */
    size_t capacity;
};

struct loader {
    struct device *device;
    struct pinned_pool *pool;
    void *uploaded, *read; /* marks: behind the uploads, and behind the copies out of stagings */
    bool waits_for_read;   /* uploads from here on must wait for the mark `read` */
    uint32_t n_slots, n_held;
    struct slot slots[];
};

struct loader *loader_create(struct device *d, uint32_t n_slots)
{
    struct loader *l = calloc(1, sizeof *l + n_slots * sizeof l->slots[0]);
    if (l == NULL) {
        return NULL;
    }
    l->device = d;
    l->n_slots = n_slots;
    l->pool = pinned_pool_create(d);
    if (l->pool == NULL) {
        free(l);
        return NULL;
    }
    return l;
}

void loader_destroy(struct loader *l)
{
    if (l == NULL) {
        return;
    }
    pinned_pool_destroy(l->pool); /* uploads are done then */
    for (uint32_t i = 0; l->device != NULL && i < l->n_slots; i++) {
        l->device->backend->release(l->device, l->slots[i].staging);
    }
    if (l->device != NULL) {
        l->device->backend->unmark(l->device, l->uploaded);
        l->device->backend->unmark(l->device, l->read);
    }
    free(l);
}

/* Memory for the slot's contents; growing is rare, and waits for whoever uses the old one. */
static status fit_staging(struct loader *l, struct slot *s, size_t bytes, struct error *e)
{
    const struct backend *backend = l->device->backend;
    if (s->capacity >= bytes && s->staging != NULL) {
        return ATOLL_OK;
    }
    TRY(backend->wait(l->device, e));
    backend->release(l->device, s->staging);
    s->staging = NULL;
    s->capacity = 0;
    TRY(backend->allocate(l->device, bytes, &s->staging, e));
    s->capacity = bytes;
    return ATOLL_OK;
}

static status upload(struct loader *l, struct slot *s, struct pinned_buffer *b, size_t bytes,
                     struct error *e)
{
    const struct backend *backend = l->device->backend;
    TRY(fit_staging(l, s, bytes, e));
    if (l->waits_for_read) {
        TRY(backend->await(l->device, QUEUE_COPIES, l->read, e));
        l->waits_for_read = false;
    }
    status code = backend->upload(l->device, s->staging, b->memory, bytes, e);
    status marked = pinned_copying(l->pool, b, code == ATOLL_OK ? e : NULL);
    return code != ATOLL_OK ? code : marked;
}

status loader_put(struct loader *l, uint32_t slot, const void *data, size_t bytes, struct error *e)
{
    struct slot *s = &l->slots[slot];
    struct pinned_buffer *b;
    TRY(pinned_take(l->pool, bytes, &b, e));
    status code = ATOLL_OK;
    if (bytes > 0) {
        memcpy(b->memory, data, bytes);
        code = l->device != NULL ? upload(l, s, b, bytes, e) : ATOLL_OK;
    }
    if (code != ATOLL_OK) {
        pinned_give(l->pool, b);
        return code;
    }
    loader_drop(l, slot);
    s->next = b;
    s->bytes = bytes;
    l->n_held++;
    return ATOLL_OK;
}

size_t loader_bytes(const struct loader *l, uint32_t slot)
{
    return loader_holds(l, slot) ? l->slots[slot].bytes : 0;
}

bool loader_holds(const struct loader *l, uint32_t slot)
{
    return l->slots[slot].next != NULL;
}

void loader_drop(struct loader *l, uint32_t slot)
{
    struct slot *s = &l->slots[slot];
    l->n_held -= s->next != NULL;
    pinned_give(l->pool, s->next);
    s->next = NULL;
}

static status move(struct loader *l, struct slot *s, void *to, struct error *e)
{
    if (s->bytes == 0) {
        return ATOLL_OK;
    }
    if (l->device != NULL) {
        return l->device->backend->copy(l->device, to, s->staging, s->bytes, e);
    }
    memcpy(to, s->next->memory, s->bytes);
    return ATOLL_OK;
}

status loader_take(struct loader *l, void *const *to, struct error *e)
{
    if (l->n_held == 0) {
        return ATOLL_OK;
    }
    if (l->device != NULL) {
        TRY(l->device->backend->mark(l->device, QUEUE_COPIES, &l->uploaded, e));
        TRY(l->device->backend->await(l->device, QUEUE_COMPUTE, l->uploaded, e));
    }
    for (uint32_t i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        if (s->next != NULL) {
            TRY(move(l, s, to[i], e));
            pinned_give(l->pool, s->taken);
            s->taken = s->next;
            s->taken_bytes = s->bytes;
            s->next = NULL;
            l->n_held--;
        }
    }
    if (l->device != NULL) {
        TRY(l->device->backend->mark(l->device, QUEUE_COMPUTE, &l->read, e));
        l->waits_for_read = true;
    }
    return ATOLL_OK;
}

const void *loader_taken(const struct loader *l, uint32_t slot, size_t *bytes)
{
    *bytes = l->slots[slot].taken_bytes;
    return l->slots[slot].taken != NULL ? l->slots[slot].taken->memory : NULL;
}

struct pinned_counts loader_counts(const struct loader *l)
{
    return pinned_pool_counts(l->pool);
}
