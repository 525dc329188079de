/* libFuzzer: any bytes as a section file. A second run seals the header with the right checksum and
 * size, which a mutation would never find, so that the entries behind them are reached. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

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
