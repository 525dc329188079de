/* The pool of pinned buffers: a list; buffers are few (two an input) and live as long as the pool.
 * Invariant: a buffer that is handed out has no copy under way. */
#include "pinned.h"

#include <stdlib.h>

struct pinned_pool {
    struct device *device; /* NULL: the CPU */
    struct pinned_buffer *buffers;
    struct pinned_counts counts;
    uint64_t n_given;
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

struct pinned_pool *pinned_pool_create(struct device *d)
{
    struct pinned_pool *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->device = d;
    }
    return p;
}

static void free_buffer(struct pinned_pool *p, struct pinned_buffer *b)
{
    if (p->device != NULL) {
        if (b->copied != NULL) {
            (void)p->device->backend->settle(p->device, b->copied, NULL);
            p->device->backend->unmark(p->device, b->copied);
        }
        p->device->backend->release_host(p->device, b->memory);
    } else {
        free(b->memory);
    }
    p->counts.reserved -= b->bytes;
    free(b);
}

/* Those that nobody holds, or all. */
static void free_buffers(struct pinned_pool *p, bool is_all)
{
    for (struct pinned_buffer **link = &p->buffers; *link != NULL;) {
        struct pinned_buffer *b = *link;
        if (b->is_held && !is_all) {
            link = &b->next;
        } else {
            *link = b->next;
            free_buffer(p, b);
        }
    }
}

void pinned_pool_destroy(struct pinned_pool *p)
{
    if (p != NULL) {
        free_buffers(p, true);
        free(p);
    }
}

static bool fits(const struct pinned_buffer *b, size_t bytes)
{
    return !b->is_held && b->bytes >= bytes && b->bytes / 2 <= bytes;
}

/* One whose copy is done, else the one given back first. NULL: none fits. */
static status find_free(struct pinned_pool *p, size_t bytes, struct pinned_buffer **out,
                        struct error *e)
{
    struct pinned_buffer *first = NULL;
    for (struct pinned_buffer *b = p->buffers; b != NULL; b = b->next) {
        bool is_done = true;
        if (!fits(b, bytes)) {
            continue;
        }
        if (b->copied != NULL) {
            TRY(p->device->backend->has_passed(p->device, b->copied, &is_done, e));
        }
        if (is_done) {
            *out = b;
            return ATOLL_OK;
        }
        first = first == NULL || b->given < first->given ? b : first;
    }
    *out = first;
    if (first == NULL) {
        return ATOLL_OK;
    }
    p->counts.waits++;
    return p->device->backend->settle(p->device, first->copied, e);
}

static status allocate(struct pinned_pool *p, size_t bytes, void **out, struct error *e)
{
    if (p->device != NULL) {
        return p->device->backend->allocate_host(p->device, bytes, out, e);
    }
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out != NULL ? ATOLL_OK
                        : fail(e, ATOLL_OUT_OF_MEMORY, "no memory for a batch of %zu bytes", bytes);
}

static status add(struct pinned_pool *p, size_t bytes, struct pinned_buffer **out, struct error *e)
{
    struct pinned_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    struct error why = {0};
    status code = allocate(p, bytes, &b->memory, &why);
    if (code == ATOLL_OUT_OF_MEMORY) {
        free_buffers(p, false); /* of other sizes; then once more */
        why = (struct error){0};
        code = allocate(p, bytes, &b->memory, &why);
    }
    if (code != ATOLL_OK) {
        free(b);
        return fail(e, code, "%s", why.text);
    }
    b->bytes = bytes;
    b->next = p->buffers;
    p->buffers = *out = b;
    p->counts.reserved += bytes;
    p->counts.peak_reserved = larger(p->counts.peak_reserved, p->counts.reserved);
    return ATOLL_OK;
}

status pinned_take(struct pinned_pool *p, size_t bytes, struct pinned_buffer **out, struct error *e)
{
    size_t size = larger((bytes + 63) / 64 * 64, 64);
    struct pinned_buffer *b = NULL;
    TRY(find_free(p, size, &b, e));
    if (b == NULL) {
        TRY(add(p, size, &b, e));
    }
    b->is_held = true;
    p->counts.allocated += b->bytes;
    p->counts.peak_allocated = larger(p->counts.peak_allocated, p->counts.allocated);
    *out = b;
    return ATOLL_OK;
}

status pinned_copying(struct pinned_pool *p, struct pinned_buffer *b, struct error *e)
{
    return p->device == NULL ? ATOLL_OK
                             : p->device->backend->mark(p->device, QUEUE_COPIES, &b->copied, e);
}

void pinned_give(struct pinned_pool *p, struct pinned_buffer *b)
{
    if (b != NULL) {
        b->is_held = false;
        b->given = ++p->n_given;
        p->counts.allocated -= b->bytes;
    }
}

struct pinned_counts pinned_pool_counts(const struct pinned_pool *p)
{
    return p->counts;
}
