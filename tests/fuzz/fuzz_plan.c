/* libFuzzer: any bytes as a plan, never loading its native code. A second run seals the container,
 * so that graph text, program and state are read and held against each other. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_file.h"
#include "tests/fuzz/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_one(const uint8_t *bytes, size_t size)
{
    struct plan_file p;
    struct error e = {0};
    if (plan_read_bytes(bytes, size, "fuzz.plan", false, &p, &e) == ATOLL_OK) {
        plan_file_close(&p);
    } else if (e.text[0] == '\0') {
        abort(); /* a refusal without a reason */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    read_one(bytes, size);
    uint8_t *copy = aligned_alloc(64, (size + 64) / 64 * 64);
    if (copy != NULL) {
        if (size > 0) {
            memcpy(copy, bytes, size);
        }
        seal(copy, size);
        read_one(copy, size);
        free(copy);
    }
    return 0;
}
