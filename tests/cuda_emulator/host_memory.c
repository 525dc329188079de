/* Pinned host memory: a list of ranges, allocated here or registered. Copies ask whether a range is
 * pinned, because only then may they run after the call returned. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct range {
    uint8_t *memory;
    size_t bytes;
    bool is_registered; /* the host's own memory */
    struct range *next;
};
static struct range *ranges;

bool is_pinned(const void *memory, size_t bytes)
{
    const uint8_t *p = memory;
    for (const struct range *r = ranges; r; r = r->next) {
        if (p >= r->memory && p + bytes <= r->memory + r->bytes) {
            return true;
        }
    }
    return false;
}

static CUresult add(void *memory, size_t bytes, bool is_registered)
{
    struct range *r = malloc(sizeof *r);
    if (!r) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *r = (struct range){memory, bytes, is_registered, ranges};
    ranges = r;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    CUresult r = driver_enter();
    if (!r && (!memory || !bytes)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    if (!r) {
        *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        r = *memory ? add(*memory, bytes, false) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemAllocHost_v2(void **memory, size_t bytes)
{
    return cuMemHostAlloc(memory, bytes, 0);
}

EXPORT CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    CUresult r = driver_enter();
    if (!r && (!memory || !bytes)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!r && is_pinned(memory, 1)) {
        r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    return driver_leave(r ? r : add(memory, bytes, true));
}

static CUresult drop(const void *memory, bool is_registered, CUresult otherwise)
{
    CUresult r = driver_enter();
    struct range **link = &ranges;
    while (*link && !((*link)->memory == memory && (*link)->is_registered == is_registered)) {
        link = &(*link)->next;
    }
    struct range *found = *link;
    if (found) {
        *link = found->next;
        free(is_registered ? NULL : found->memory);
        free(found);
    }
    return driver_leave(r ? r : found ? CUDA_SUCCESS : otherwise);
}

EXPORT CUresult cuMemFreeHost(void *memory)
{
    return drop(memory, false, CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemHostUnregister(void *memory)
{
    return drop(memory, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void release_pinned(void)
{
    while (ranges) {
        struct range *r = ranges;
        ranges = r->next;
        if (!r->is_registered) {
            finding_report(
                FINDING_LEAK, (uint64_t)(uintptr_t)r->memory,
                "%zu bytes of pinned host memory (cuMemHostAlloc), live at the end of the context",
                r->bytes);
            free(r->memory);
        }
        free(r);
    }
}
