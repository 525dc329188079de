/* Allocation of emulated device memory and what can be said about an address. Below: kernels
 * (execute_global.c) and copies (stream_work.c) read the state bytes. Invariant: the state bytes of
 * an allocation say what it may be used for; its record only serves messages and leaks. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "device_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "findings.h"

#define LEAST                                                                                      \
    ((uint64_t)16 << 20) /* of addresses; else eight times the memory, so that freed ones rest */
#define ALIGNMENT 512u   /* of allocations; real ones have 256 at least */
#define LARGE     65536u /* freed allocations from here on give their pages back */

struct device_memory device_memory;

static struct {
    pthread_mutex_t lock;
    struct allocation *list; /* by address */
    size_t n, capacity;
    uint64_t next; /* first address never used */
    uint64_t in_use, limit;
    uint32_t number;
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *reserve(uint64_t bytes, int protection, uint64_t hint)
{
    void *p = mmap((void *)(uintptr_t)hint, bytes, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* What stands beside every granule. */
enum { N_SHADOWS = 4 };
static uint64_t **const shadows[N_SHADOWS] = {&device_memory.cells, &device_memory.readers,
                                              &device_memory.wrote, &device_memory.read};

bool device_memory_open(void)
{
    pthread_mutex_lock(&heap.lock);
    if (!device_memory.bytes) {
        const char *limit = getenv("ATOLL_EMULATOR_MEMORY");
        heap.limit = (limit ? strtoull(limit, NULL, 10) : 8192) << 20;
        uint64_t range = 8 * heap.limit > LEAST ? 8 * heap.limit : LEAST,
                 granules = range / GRANULE;
        void *addresses = reserve(range, PROT_NONE, (uint64_t)0x2000 << 32);
        device_memory.storage = reserve(range, PROT_READ | PROT_WRITE, 0);
        device_memory.state = reserve(range, PROT_READ | PROT_WRITE, 0);
        bool has_all = addresses && device_memory.storage && device_memory.state;
        for (uint32_t i = 0; i < N_SHADOWS; i++) {
            *shadows[i] = reserve(granules * sizeof(uint64_t), PROT_READ | PROT_WRITE, 0);
            has_all = has_all && *shadows[i];
        }
        if (has_all) {
            device_memory.base = (uint64_t)(uintptr_t)addresses;
            device_memory.bytes = range;
            heap.next = device_memory.base + ALIGNMENT;
        }
    }
    bool is_open = device_memory.bytes != 0;
    pthread_mutex_unlock(&heap.lock);
    return is_open;
}

/* Zeros; of a large stretch whole pages are given back instead. */
static void clear(void *at, uint64_t bytes)
{
    uint64_t page = 4096, address = (uint64_t)(uintptr_t)at;
    uint64_t start = (address + page - 1) / page * page, end = (address + bytes) / page * page;
    if (bytes < LARGE || end <= start) {
        memset(at, 0, bytes);
        return;
    }
    memset(at, 0, start - address);
    memset((void *)(uintptr_t)end, 0, address + bytes - end);
    madvise((void *)(uintptr_t)start, end - start, MADV_DONTNEED);
}

/* Index of the last record at or below address; n when none is. */
static size_t find(uint64_t address)
{
    size_t low = 0, high = heap.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (heap.list[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low ? low - 1 : heap.n;
}

/* A record with at least room bytes: fresh addresses, else the longest freed ones. */
static struct allocation *place(uint64_t room)
{
    if (heap.next + room > device_memory.base + device_memory.bytes) {
        struct allocation *oldest = NULL;
        for (size_t i = 0; i < heap.n; i++) {
            struct allocation *a = &heap.list[i];
            if (a->is_freed && a->room >= room && (!oldest || a->number < oldest->number)) {
                oldest = a;
            }
        }
        return oldest;
    }
    if (heap.n == heap.capacity) {
        size_t capacity = heap.capacity ? 2 * heap.capacity : 256;
        struct allocation *list = realloc(heap.list, capacity * sizeof *list);
        if (!list) {
            return NULL;
        }
        heap.list = list;
        heap.capacity = capacity;
    }
    struct allocation *a = &heap.list[heap.n++];
    *a = (struct allocation){.address = heap.next, .room = room};
    heap.next += room;
    return a;
}

static void clear_shadows(uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = 0; i < N_SHADOWS; i++) {
        clear(*shadows[i] + offset / GRANULE, bytes / GRANULE * sizeof(uint64_t));
    }
}

uint64_t device_allocate(uint64_t bytes, const char *origin, bool is_module, bool is_async)
{
    pthread_mutex_lock(&heap.lock);
    uint64_t address = 0;
    uint64_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    struct allocation *a = NULL;
    if (bytes <= heap.limit && heap.in_use + bytes <= heap.limit) {
        a = place(room);
    }
    if (a) {
        uint64_t offset = a->address - device_memory.base;
        bool is_used = a->is_freed; /* addresses that an older allocation had */
        a->bytes = bytes;
        a->number = ++heap.number;
        a->is_freed = false;
        a->is_module = is_module;
        a->is_async = is_async;
        a->origin = origin;
        heap.in_use += bytes;
        if (is_used) {
            clear(device_memory.state + offset, a->room);
            clear_shadows(offset, a->room);
        }
        memset(device_memory.state + offset, is_async ? BYTE_PROMISED : BYTE_ALLOCATED, bytes);
        if (bytes < LARGE) { /* what nothing wrote shows as a NaN of its own */
            memset(device_memory.storage + offset, 0xfb, bytes);
        }
        address = a->address;
    }
    pthread_mutex_unlock(&heap.lock);
    return address;
}

static void release(struct allocation *a)
{
    uint64_t offset = a->address - device_memory.base;
    a->is_freed = true;
    heap.in_use -= a->bytes;
    if (a->bytes < LARGE) {
        memset(device_memory.state + offset, BYTE_FREED, a->bytes);
    } else { /* its record says that it is freed: device_is_freed */
        clear(device_memory.state + offset, a->bytes);
        clear(device_memory.storage + offset, a->bytes);
        clear_shadows(offset, a->bytes);
    }
}

bool device_free(uint64_t address)
{
    pthread_mutex_lock(&heap.lock);
    size_t i = find(address);
    bool is_start = i < heap.n && heap.list[i].address == address && !heap.list[i].is_freed;
    if (is_start) {
        release(&heap.list[i]);
    }
    pthread_mutex_unlock(&heap.lock);
    return is_start;
}

void device_free_all(void)
{
    pthread_mutex_lock(&heap.lock);
    for (size_t i = 0; i < heap.n; i++) {
        if (!heap.list[i].is_freed) {
            release(&heap.list[i]);
        }
    }
    pthread_mutex_unlock(&heap.lock);
}

bool device_find(uint64_t address, struct allocation *out)
{
    pthread_mutex_lock(&heap.lock);
    size_t i = device_in_range(address, 0) ? find(address) : heap.n;
    if (i < heap.n) {
        *out = heap.list[i];
    }
    bool found = i < heap.n;
    pthread_mutex_unlock(&heap.lock);
    return found;
}

bool device_is_freed(uint64_t address)
{
    struct allocation a;
    return device_find(address, &a) && a.is_freed && address - a.address < a.bytes;
}

void device_memory_info(uint64_t *free_bytes, uint64_t *total)
{
    pthread_mutex_lock(&heap.lock);
    *free_bytes = heap.limit - heap.in_use;
    *total = heap.limit;
    pthread_mutex_unlock(&heap.lock);
}

void device_report_leaks(void)
{
    pthread_mutex_lock(&heap.lock);
    for (size_t i = 0; i < heap.n; i++) {
        const struct allocation *a = &heap.list[i];
        if (!a->is_freed && !a->is_module) {
            finding_report(
                FINDING_LEAK, a->number,
                "%llu bytes at 0x%llx, allocation %u (%s), live at the end of the context",
                (unsigned long long)a->bytes, (unsigned long long)a->address, a->number, a->origin);
        }
    }
    pthread_mutex_unlock(&heap.lock);
}

void device_describe(uint64_t address, char *text, size_t size)
{
    struct allocation a;
    if (!device_find(address, &a)) {
        snprintf(text, size, "not an address of device memory");
        return;
    }
    uint64_t offset = address - a.address;
    const char *freed = a.is_freed ? "freed " : "";
    if (offset < a.bytes) {
        snprintf(text, size, "byte %llu of the %llu bytes of %sallocation %u (%s)",
                 (unsigned long long)offset, (unsigned long long)a.bytes, freed, a.number,
                 a.origin);
    } else {
        snprintf(text, size, "%llu bytes behind the %llu bytes of %sallocation %u (%s)",
                 (unsigned long long)(offset - a.bytes), (unsigned long long)a.bytes, freed,
                 a.number, a.origin);
    }
}
