/* The emulated device's global memory. Device addresses are numbers in a reserved range that no
 * host pointer can equal and that faults when the host touches it; the bytes lie elsewhere. Beside
 * every byte stands its state, beside every 4 bytes the last writer, so that a check of bounds,
 * lifetime and initialisation is one compare, and a check of order another. Addresses of freed
 * memory are used again only when the range is used up. */
#ifndef ATOLL_EMULATOR_DEVICE_MEMORY_H
#define ATOLL_EMULATOR_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* State of a byte; 0: never allocated, or between two allocations. */
enum { BYTE_ALLOCATED = 1, BYTE_WRITTEN = 2, BYTE_READY = 3, BYTE_FREED = 4, BYTE_PROMISED = 8 };

/* Who last wrote a granule of 4 bytes: the stream operation (its number) and its block. */
#define GRANULE          4
#define CELL(op, block)  ((uint64_t)(op) << 32 | (block))
#define CELL_OP(cell)    ((uint32_t)((cell) >> 32))
#define CELL_BLOCK(cell) ((uint32_t)(cell))
#define BLOCK_UNKNOWN                                                                              \
    0xffffffffu /* bytes of the granule come from several blocks; several read it */
#define BLOCK_ATOMIC 0xfffffffeu
#define BLOCK_COPY   0xfffffffdu /* a copy or fill, not a kernel */

/* A thread of a block at a time: the block's epoch, its warp's count of bar.warp.sync. Means
 * something beside a cell of the same block only. */
#define MARK(epoch, sync, thread)                                                                  \
    ((uint64_t)(epoch) << 32 | (uint64_t)((sync)&0xffffu) << 16 | (thread))
#define MARK_EPOCH(mark)  ((uint32_t)((mark) >> 32))
#define MARK_SYNC(mark)   ((uint32_t)((mark) >> 16) & 0xffffu)
#define MARK_THREAD(mark) ((uint32_t)(mark)&0xffffu)

struct device_memory {
    uint64_t base, bytes;   /* the range of addresses */
    uint8_t *storage;       /* [bytes] */
    uint8_t *state;         /* [bytes] */
    uint64_t *cells;        /* [bytes / GRANULE]: the last writer */
    uint64_t *readers;      /* [bytes / GRANULE]: the last operation and block that read */
    uint64_t *wrote, *read; /* [bytes / GRANULE]: which of its threads, a MARK; 0: not known */
};
extern struct device_memory device_memory;

/* Reserves the range once; false when the host has no such room. */
bool device_memory_open(void);

struct allocation {
    uint64_t address, bytes, room; /* room: bytes until the next allocation */
    uint32_t number;               /* counts allocations from 1 */
    bool is_freed, is_module;      /* a module's variables are freed with it and are no leaks */
    bool is_async;                 /* from cuMemAllocAsync */
    const char *origin;            /* the call that made it */
};

/* 0 when there is no room: emulated device memory is ATOLL_EMULATOR_MEMORY MiB (default 8192). */
uint64_t device_allocate(uint64_t bytes, const char *origin, bool is_module, bool is_async);
/* The last context ended: frees all that is left. */
void device_free_all(void);
/* Marks freed; false when address is not the start of a live allocation. */
bool device_free(uint64_t address);
/* Whether address lies in an allocation that was freed: of large ones the state bytes are given
 * back. */
bool device_is_freed(uint64_t address);
/* The allocation around or nearest below address; NULL when there is none. */
bool device_find(uint64_t address, struct allocation *out);
void device_memory_info(uint64_t *free_bytes, uint64_t *total);
/* Reports every live allocation that no module owns as a leak. */
void device_report_leaks(void);
/* "4 bytes behind the 64 bytes of allocation 3 (cuMemAlloc)" and the like. */
void device_describe(uint64_t address, char *text, size_t size);

static inline bool device_in_range(uint64_t address, uint64_t bytes)
{
    uint64_t offset = address - device_memory.base;
    return offset < device_memory.bytes && bytes <= device_memory.bytes - offset;
}

#endif
