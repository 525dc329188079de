/* libFuzzer: any bytes as CSV or gzipped CSV. The first byte chooses the options; what loads must
 * have labels and features of equal length. */
#include "runtime/data.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct dataset_options o = {.label = (enum data_label)(bytes[0] & 3),
                                .label_index = bytes[0] >> 6,
                                .label_name = "y",
                                .header = (enum data_header)((bytes[0] >> 2 & 3) % 3),
                                .allow_nonfinite = bytes[0] & 16,
                                .scale = bytes[0] & 32 ? 0.5f : 0,
                                .max_bytes = 1 << 20};
    struct dataset d;
    struct error e = {0};
    if (dataset_read_bytes(DATA_CSV, bytes + 1, size - 1, "f.csv", &o, &d, &e) == ATOLL_OK) {
        const struct array *y = dataset_find(&d, "y");
        if (y != NULL && y->shape[0] != d.arrays[0].shape[0]) {
            abort();
        }
        dataset_close(&d);
    } else if (e.code == ATOLL_OK || e.text[0] == '\0' || e.code == ATOLL_INTERNAL) {
        abort();
    }
    return 0;
}
