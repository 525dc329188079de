/* The pool of device memory: blocks taken from the driver are kept and given out again, the
 * smallest that fits and wastes at most half. When the driver has no more, blocks not in use go
 * back to it and it is asked once more. */
#include <stdlib.h>

#include "cuda_internal.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void count_use(struct device_memory *m, size_t bytes)
{
    m->allocated += bytes;
    m->peak_allocated = larger(m->peak_allocated, m->allocated);
}

static struct cuda_block *find_free(struct cuda_device *d, size_t bytes)
{
    struct cuda_block *best = NULL;
    for (uint32_t i = 0; i < d->n_blocks; i++) {
        struct cuda_block *b = &d->blocks[i];
        bool fits = !b->is_used && b->bytes >= bytes && b->bytes / 2 <= bytes;
        if (fits && (best == NULL || b->bytes < best->bytes)) {
            best = b;
        }
    }
    return best;
}

static void give_back(struct cuda_device *d, bool is_all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n_blocks; i++) {
        if (d->blocks[i].is_used && !is_all) {
            d->blocks[kept++] = d->blocks[i];
            continue;
        }
        (void)d->api.cuMemFree(d->blocks[i].address);
        d->base.memory.reserved -= d->blocks[i].bytes;
    }
    d->n_blocks = kept;
}

status cuda_allocate(struct device *base, size_t bytes, void **out, struct error *e)
{
    struct cuda_device *d = (struct cuda_device *)base;
    size_t size = (larger(bytes, 1) + 511) / 512 * 512;
    struct cuda_block *found = find_free(d, size);
    if (found == NULL) {
        if (d->n_blocks == d->block_capacity) {
            uint32_t capacity = 2 * d->block_capacity + 64;
            struct cuda_block *more = realloc(d->blocks, capacity * sizeof *more);
            if (more == NULL) {
                return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
            }
            d->blocks = more;
            d->block_capacity = capacity;
        }
        struct cuda_block fresh = {.bytes = size};
        CUresult code = d->api.cuMemAlloc(&fresh.address, size);
        if (code == ATOLL_CUDA_OUT_OF_MEMORY) {
            give_back(d, false);
            code = d->api.cuMemAlloc(&fresh.address, size);
        }
        if (code == ATOLL_CUDA_OUT_OF_MEMORY) {
            return fail(e, ATOLL_OUT_OF_MEMORY,
                        "%s: no %zu bytes of device memory left; %zu are in use", d->base.name,
                        size, base->memory.allocated);
        }
        TRY(cuda_check(&d->api, code, "cuMemAlloc", NULL, e));
        d->blocks[d->n_blocks] = fresh;
        found = &d->blocks[d->n_blocks++];
        base->memory.reserved += size;
        base->memory.peak_reserved = larger(base->memory.peak_reserved, base->memory.reserved);
    }
    found->is_used = true;
    count_use(&base->memory, found->bytes);
    *out = (void *)(uintptr_t)found->address;
    return ATOLL_OK;
}

void cuda_release(struct device *base, void *memory)
{
    struct cuda_device *d = (struct cuda_device *)base;
    for (uint32_t i = 0; i < d->n_blocks; i++) {
        if (memory != NULL && d->blocks[i].address == (CUdeviceptr)(uintptr_t)memory) {
            d->blocks[i].is_used = false;
            base->memory.allocated -= d->blocks[i].bytes;
        }
    }
}

void cuda_pool_free(struct cuda_device *d)
{
    give_back(d, true);
}
