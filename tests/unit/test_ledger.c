/* The ledger: what it keeps, what it joins, its JSON there and back, and files that are none. */
#include "frontend/report/report.h"
#include "runtime/file.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void hit(ledger *l, uint64_t call, uint32_t segment, uint32_t entry)
{
    struct ledger_event v = {.call = call,
                             .segment = segment,
                             .outcome = LEDGER_HIT,
                             .entry = entry,
                             .arguments = "x f32[4]"};
    if (!ledger_join_hit(l, call, segment, entry)) {
        ck_assert_int_eq(ledger_add_event(l, &v, NULL), ATOLL_OK);
    }
}

static void built(ledger *l, uint64_t call, uint32_t segment, uint32_t entry)
{
    struct ledger_reason r[] = {{.entry = 1,
                                 .kind = GUARD_DIM,
                                 .subject = "dim 0 of x",
                                 .expected = "64",
                                 .found = "5",
                                 .origin = "argument x at t.c:3",
                                 .file = "t.c",
                                 .line = 3}};
    const char *advice[] = {"<b>\"quoted\" & 'odd'</b>"};
    struct ledger_guard g[] = {
        {GUARD_DIM_RANGE, "dim 0 of x", "2 or more", "argument x", "t.c", 3}};
    struct ledger_node nodes[] = {{"%h", "linear", "f32[n,4]", "%x, %w", "t.c", 7, 1, 1}};
    struct ledger_group groups[] = {
        {"rows", "k0_gelu", "gelu %a", "%h of group 0: a linear is a library call\n", 4096}};
    struct ledger_entry en = {.number = entry,
                              .segment = segment,
                              .call = call,
                              .is_symbolic = true,
                              .title = "x f32[n,4]; n >= 2",
                              .policy = "bf16",
                              .rounding = "strict",
                              .seconds = 0.5,
                              .kernels_built = 3,
                              .n_guards = 1,
                              .guards = g,
                              .n_nodes = 1,
                              .nodes = nodes,
                              .n_groups = 1,
                              .groups = groups,
                              .islands = "loss: cross entropy",
                              .source = "void k0(void);\n",
                              .cache = "no kernels yet",
                              .peak_bytes = 8192,
                              .leaf_bytes = 100};
    struct ledger_event v = {.call = call,
                             .segment = segment,
                             .outcome = LEDGER_BUILT,
                             .entry = entry,
                             .arguments = "x f32[5,4]",
                             .compared = 1,
                             .n_reasons = call > 1,
                             .reasons = r,
                             .n_advice = call > 1,
                             .advice = advice,
                             .seconds = 0.5,
                             .kernels_built = 3};
    ck_assert_int_eq(ledger_add_entry(l, &en, NULL), ATOLL_OK);
    ck_assert_int_eq(ledger_add_event(l, &v, NULL), ATOLL_OK);
}

static ledger *sample(void)
{
    ledger *l = ledger_create("step");
    struct ledger_break b = {.call = 1,
                             .segment = 0,
                             .reason = "atoll_item reads %loss",
                             .advice = "read it later",
                             .file = "t.c",
                             .line = 12,
                             .kind = "host read",
                             .dtype = "bf16",
                             .value = "0.25"};
    ck_assert_ptr_nonnull(l);
    for (int i = 0; i < 4; i++) {
        ledger_count_call(l);
    }
    built(l, 1, 0, 1);
    built(l, 1, 1, 2);
    built(l, 2, 0, 3);
    hit(l, 3, 0, 1);
    hit(l, 3, 1, 2);
    hit(l, 4, 0, 1);
    hit(l, 4, 1, 2);
    ck_assert_int_eq(ledger_add_break(l, &b, NULL), ATOLL_OK);
    b.call = 2;
    b.value = "nan";
    ck_assert_int_eq(ledger_add_break(l, &b, NULL), ATOLL_OK);
    ledger_evict(l, 3);
    return l;
}

START_TEST(counts_and_joins)
{
    ledger *l = sample();
    atoll_counters n;
    atoll_ledger_counters(l, &n);
    ck_assert_uint_eq(n.calls, 4);
    ck_assert_uint_eq(n.lookups, 7);
    ck_assert_uint_eq(n.hits, 4);
    ck_assert_uint_eq(n.builds, 3);
    ck_assert_uint_eq(n.recompiles, 1); /* of segment 0; segment 1 had its first build */
    ck_assert_uint_eq(n.kernels_built, 9);
    ck_assert_uint_eq(n.breaks, 2);
    ck_assert_uint_eq(n.evictions, 1);
    ck_assert_uint_eq(n.nanoseconds_building, 1500000000);
    ck_assert_uint_eq(l->n_events, 5); /* two hits each of plans 1 and 2 are one event each */
    ck_assert_uint_eq(l->events[3].count, 2);
    ck_assert_uint_eq(l->events[3].last_call, 4);
    ck_assert_uint_eq(l->entries[0].hits, 2);
    ck_assert(l->entries[2].is_evicted && !l->entries[1].is_evicted);
    ck_assert_uint_eq(l->n_breaks, 1);
    ck_assert_uint_eq(l->breaks[0].count, 2);
    ck_assert_uint_eq(l->breaks[0].last_call, 2);
    ck_assert_str_eq(l->breaks[0].first_value, "0.25");
    ck_assert_str_eq(l->breaks[0].value, "nan");
    ledger_destroy(l);
}
END_TEST

static char *text_of(const ledger *l, void (*report)(struct text *t, const ledger *l))
{
    struct arena a = {0};
    struct text t = {.arena = &a};
    report(&t, l);
    char *copy = strdup(t.data);
    arena_free(&a);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

/* Every field: what is read back gives the same JSON, text and page. */
START_TEST(there_and_back)
{
    char path[] = "/tmp/atoll-ledger-XXXXXX";
    int fd = mkstemp(path);
    ledger *l = sample(), *again = NULL;
    struct error e = {0};
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_msg(ledger_save(l, path, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(ledger_load(path, &again, &e) == ATOLL_OK, "%s", e.text);
    char *a = ledger_json(l), *b = ledger_json(again);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
    void (*const reports[])(struct text *, const ledger *) = {report_text, report_html};
    for (size_t i = 0; i < ARRAY_LEN(reports); i++) {
        a = text_of(l, reports[i]);
        b = text_of(again, reports[i]);
        ck_assert_str_eq(a, b);
        free(a);
        free(b);
    }
    unlink(path);
    ledger_destroy(l);
    ledger_destroy(again);
}
END_TEST

START_TEST(text_says)
{
    static const char *const lines[] = {
        "call 1, x f32[5,4]: built plan 1 in 500 ms for x f32[n,4]; n >= 2; 3 kernels compiled, 0 "
        "loaded from disk\n",
        "call 2, x f32[5,4]: built plan 3 in 500 ms",
        "    plan 1 does not hold:\n        [dim] dim 0 of x: 64 -> 5   (argument x at t.c:3)\n",
        "    kernel cache: no kernels yet\n",
        "calls 3 to 4 (2 lookups), x f32[4]: hit: plan 1 runs each time\n",
        "calls 3 to 4 (2 lookups), segment 1, x f32[4]: hit: plan 2 runs each time\n",
        "graph break (host read) at t.c:12, segment 0 ends, 2 times: atoll_item reads %loss: 0.25 "
        "-> nan (bf16)\n    advice: read it later\n",
        "4 calls: 4 hits, 3 plans built (1 recompile) in 1500 ms, 0 eager, 0 refused, 1 evicted, 2 "
        "graph breaks; kernels: 9 compiled, 0 loaded from disk\n",
    };
    ledger *l = sample();
    char *text = atoll_ledger_text(l);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no '%s' in:\n%s", lines[i], text);
    }
    free(text);
    ledger_destroy(l);
}
END_TEST

/* Nothing of the ledger becomes markup; the page fetches nothing and runs nothing. */
START_TEST(page_is_safe)
{
    ledger *l = sample();
    char *page = text_of(l, report_html);
    ck_assert_ptr_nonnull(
        strstr(page, "&#60;b&#62;&#34;quoted&#34; &#38; &#39;odd&#39;&#60;/b&#62;"));
    ck_assert_ptr_null(strstr(page, "<b>\"quoted"));
    static const char *const none[] = {"<script", "http:", "https:", "@import", "url("};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        ck_assert_msg(strstr(page, none[i]) == NULL, "the page has %s", none[i]);
    }
    static const char *const some[] = {"<meta name=\"viewport\"",
                                       "t.c:12",
                                       "host read",
                                       "bf16 0.25 &rarr; nan",
                                       "k0_gelu",
                                       "4096 bytes",
                                       "a linear is a library call",
                                       "void k0(void);",
                                       "<span class=\"island\">1</span>",
                                       "2 or more"};
    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        ck_assert_msg(strstr(page, some[i]) != NULL, "the page lacks %s", some[i]);
    }
    free(page);
    ledger_destroy(l);
}
END_TEST

#define BREAK(value)                                                                               \
    "{\"format\": 1, \"name\": \"a\", \"events\": [], \"breaks\": [{\"call\": 1, \"last_call\": "  \
    "1, "                                                                                          \
    "\"count\": 1, \"segment\": 0, \"reason\": \"r\", \"advice\": \"\", \"file\": \"\", "          \
    "\"line\": 0, "                                                                                \
    "\"value\": " value "}]}"
static const struct bad {
    const char *text, *says;
    status code;
} bad[] = {
    {"", "no JSON", ATOLL_FORMAT},
    {"{\"format\": 1", "no JSON", ATOLL_FORMAT},
    {"[1]", "found an array, expected an object", ATOLL_FORMAT},
    {"{}", "format: found nothing, expected a whole number", ATOLL_FORMAT},
    {"{\"format\": 9}", "found a ledger of format 9, expected 1", ATOLL_VERSION},
    {"{\"format\": 1, \"name\": 4}", "name: found a whole number, expected a text", ATOLL_FORMAT},
    {"{\"format\": 1, \"name\": \"a\", \"events\": [{\"call\": -1}]}",
     "events[0].call: found -1, expected a whole number from 0", ATOLL_FORMAT},
    {"{\"format\": 1, \"name\": \"a\", \"events\": [3]}",
     "events[0].: found a whole number, expected an object", ATOLL_FORMAT},
    {"{\"format\": 1, \"name\": \"a\", \"events\": [], \"breaks\": [{\"call\": 1, \"last_call\": "
     "1, "
     "\"count\": 1, \"segment\": 4294967296}]}",
     "breaks[0].segment: found 4294967296", ATOLL_FORMAT},
    {BREAK("\"4\""), "entries: found nothing", ATOLL_FORMAT}, /* the break itself is accepted */
    {BREAK("4"), "breaks[0].value: found a whole number, expected a text", ATOLL_FORMAT},
    {BREAK("\"0123456789012345678901234567890123456789\""),
     "breaks[0].value: found a longer text, expected a text of less than 40 bytes", ATOLL_FORMAT},
    {"{\"format\": 1, \"name\": \"a\\u0000b\"}", "no JSON", ATOLL_FORMAT},
    {"{\"format\": 1, \"format\": 1}", "no JSON", ATOLL_FORMAT},
};

START_TEST(bad_files)
{
    ledger *l = NULL;
    struct error e = {0};
    const struct bad *b = &bad[_i];
    ck_assert_int_eq(ledger_read_bytes(b->text, strlen(b->text), "f.json", &l, &e), b->code);
    ck_assert_ptr_null(l);
    ck_assert_msg(strncmp(e.text, "f.json:", 7) == 0 && strstr(e.text, b->says) != NULL &&
                      strchr(e.text, '\n') == NULL,
                  "'%s' not in: %s", b->says, e.text);
}
END_TEST

/* A word that is none, wherever one stands. */
START_TEST(bad_words)
{
    static const struct {
        const char *from, *to, *says;
    } words[] = {{"\"outcome\": \"hit\"", "\"outcome\": \"hat\"", "expected hit, built"},
                 {"\"kind\": \"dim\"", "\"kind\": \"dom\"", "expected a guard kind"},
                 {"\"is_symbolic\": true", "\"is_symbolic\": 1", "expected true or false"},
                 {"\"seconds\": 0.5", "\"seconds\": []", "expected a number"}};
    ledger *l = sample(), *none = NULL;
    struct error e = {0};
    char *json = ledger_json(l), *at = strstr(json, words[_i].from);
    size_t from = strlen(words[_i].from), to = strlen(words[_i].to);
    ck_assert_ptr_nonnull(at);
    memcpy(at, words[_i].to, to);
    memset(at + to, ' ', from - to);
    ck_assert_int_eq(ledger_read_bytes(json, strlen(json), "f.json", &none, &e), ATOLL_FORMAT);
    ck_assert_msg(strstr(e.text, words[_i].says) != NULL, "%s", e.text);
    free(json);
    ledger_destroy(l);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, counts_and_joins);
    tcase_add_test(tc, there_and_back);
    tcase_add_test(tc, text_says);
    tcase_add_test(tc, page_is_safe);
    tcase_add_loop_test(tc, bad_files, 0, (int)ARRAY_LEN(bad));
    tcase_add_loop_test(tc, bad_words, 0, 4);
}

int main(void)
{
    return run_suite("ledger", fill);
}
