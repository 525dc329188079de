/* libFuzzer: any bytes as a section file. A second run seals the header with the right checksum and
 * size, which a mutation would never find, so that the entries behind them are reached. */
#include "runtime/container.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void seal(uint8_t *bytes, size_t size)
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

static void read_one(const uint8_t *bytes, size_t size)
{
    struct container c;
    struct error e = {0};
    if (container_read_bytes(bytes, size, "f", NULL, &c, &e) == ATOLL_OK) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < c.n_sections; i++) {
            sum += hash_bytes(c.sections[i].data, c.sections[i].size, 0);
        }
        if (sum == 1) {
            abort();
        }
        container_close(&c);
    } else if (e.code == ATOLL_OK || e.text[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    read_one(bytes, size);
    uint8_t *copy = malloc(size + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, size);
        seal(copy, size);
        read_one(copy, size);
        free(copy);
    }
    return 0;
}
