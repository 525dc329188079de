/* libFuzzer target of the text form: any bytes parse or are refused with a position; what parses
 * prints, parses again, verifies, and prints the same. Run: fuzz_graph_text
 * tests/fuzz/corpus_graph_text */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph_hash.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what, const char *detail)
{
    if (!holds) {
        fprintf(stderr, "%s\n%s\n", what, detail);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error e = {0}, again = {0}, bad = {0};
    struct graph *g = graph_parse((const char *)data, size, "input", &e);
    if (g == NULL) {
        require(e.code != ATOLL_OK && e.text[0] != '\0', "refused without an error", "");
        return 0;
    }
    struct arena arena = {0};
    struct text first = {.arena = &arena}, second = {.arena = &arena};
    struct print_options options = {.locations = true};
    graph_print(g, &first, &options);
    struct graph *h = graph_parse(first.data, first.length, "printed", &again);
    require(h != NULL, again.text, first.data);
    graph_print(h, &second, &options);
    require(strcmp(first.data, second.data) == 0, first.data, second.data);
    require(graph_hash(g) == graph_hash(h), "hashes differ", first.data);
    (void)graph_verify(g, &bad);
    graph_destroy(g);
    graph_destroy(h);
    arena_free(&arena);
    return 0;
}
