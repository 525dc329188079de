/* libFuzzer: any bytes as NPY, or as NPZ when they start like a zip archive. */
#include "runtime/data.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct dataset_options o = {.max_bytes = 1 << 20};
    struct dataset d;
    struct error e = {0};
    enum data_format format = size > 0 && bytes[0] == 'P' ? DATA_NPZ : DATA_NPY;
    if (dataset_read_bytes(format, bytes, size, "f", &o, &d, &e) == ATOLL_OK) {
        for (uint32_t i = 0; i < d.n_arrays; i++) {
            size_t elements, n;
            const struct array *a = &d.arrays[i];
            if (!array_measure(a->dtype, a->rank, a->shape, &elements, &n) || n != a->bytes) {
                abort();
            }
        }
        dataset_close(&d);
    } else if (e.code == ATOLL_OK || e.text[0] == '\0' || e.code == ATOLL_INTERNAL) {
        abort();
    }
    return 0;
}
