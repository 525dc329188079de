/* Gives mutated bytes the magic, size and checksums of a section file, which no mutation would
 * find, so that what lies behind them is reached. */
#ifndef ATOLL_TESTS_FUZZ_SEAL_H
#define ATOLL_TESTS_FUZZ_SEAL_H

#include <string.h>

#include "runtime/container.h"
#include "runtime/file.h"

static inline void seal(uint8_t *bytes, size_t size)
{
    if (size < CONTAINER_FIXED + 8) {
        return;
    }
    uint32_t n = read_u32(bytes + 12) % 8;
    size_t head = CONTAINER_FIXED + (size_t)n * CONTAINER_ENTRY;
    if (head + 8 > size) {
        return;
    }
    memcpy(bytes,
           "\x89"
           "ATL\r\n\x1a\n",
           8);
    write_u32(bytes + 8, CONTAINER_FORMAT);
    write_u32(bytes + 12, n);
    write_u64(bytes + 16, size);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *entry = bytes + CONTAINER_FIXED + (size_t)i * CONTAINER_ENTRY;
        uint64_t offset = read_u64(entry + 40), length = read_u64(entry + 48);
        if (offset <= size && length <= size - offset) {
            write_u64(entry + 56, hash_bytes(bytes + offset, (size_t)length, 0));
        }
    }
    write_u64(bytes + head, hash_bytes(bytes, head, 0));
}

#endif
