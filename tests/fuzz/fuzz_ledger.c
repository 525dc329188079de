/* libFuzzer: any bytes as a ledger. What loads must print as JSON that loads again to the same. */
#include "frontend/report/report.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    ledger *l = NULL, *again = NULL;
    struct error e = {0};
    if (ledger_read_bytes(bytes, size, "f.json", &l, &e) != ATOLL_OK) {
        if (e.text[0] == '\0' || strchr(e.text, '\n') != NULL) {
            abort(); /* a refusal without a reason, or of several lines */
        }
        return 0;
    }
    struct arena a = {0};
    struct text page = {.arena = &a};
    report_text(&page, l);
    report_html(&page, l);
    arena_free(&a);
    char *one = ledger_json(l), *two = NULL;
    if (one == NULL || ledger_read_bytes(one, strlen(one), "f.json", &again, &e) != ATOLL_OK ||
        (two = ledger_json(again)) == NULL || strcmp(one, two) != 0) {
        abort();
    }
    free(one);
    free(two);
    ledger_destroy(l);
    ledger_destroy(again);
    return 0;
}
