/* libFuzzer: any bytes as safetensors. The header length is set to what fits, so that mutations
 * reach the JSON and the offsets; the first byte says how many data bytes follow the header. */
#include "runtime/data.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t header = size - 1, data = bytes[0];
    uint8_t *file = calloc(1, 8 + header + data);
    if (file == NULL) {
        return 0;
    }
    write_u64(file, header);
    memcpy(file + 8, bytes + 1, header);
    struct dataset d;
    struct error e = {0};
    if (dataset_read_bytes(DATA_SAFETENSORS, file, 8 + header + data, "f", NULL, &d, &e) ==
        ATOLL_OK) {
        size_t sum = 0;
        for (uint32_t i = 0; i < d.n_arrays; i++) {
            sum += d.arrays[i].bytes;
        }
        if (sum != data) {
            abort();
        }
        dataset_close(&d);
    } else if (e.code == ATOLL_OK || e.text[0] == '\0') {
        abort();
    }
    free(file);
    file = NULL;
    e = (struct error){0};
    if (dataset_read_bytes(DATA_SAFETENSORS, bytes, size, "f", NULL, &d, &e) == ATOLL_OK) {
        dataset_close(&d);
    }
    return 0;
}
