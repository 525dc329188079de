/* The section file of plans and cache entries: round trip, and no byte can change or go missing
 * unnoticed. */
#include "runtime/container.h"
#include "runtime/file.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[64];

/* Writes three sections (one empty) and returns the file's bytes. */
static uint8_t *make_file(struct arena *a, size_t *size)
{
    static const struct section sections[] = {{"graph", "graph @f() {}", 13},
                                              {"empty", "", 0},
                                              {"kernels.so",
                                               "\x7f"
                                               "ELF, or so",
                                               11}};
    struct error e = {0};
    uint8_t *bytes;
    snprintf(path, sizeof path, "/tmp/atoll_container_%ld", (long)getpid());
    ck_assert_msg(container_write(path, "plan", sections, 3, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(file_read(a, path, &bytes, size, &e), ATOLL_OK);
    return bytes;
}

START_TEST(round_trip)
{
    struct arena a = {0};
    size_t n;
    make_file(&a, &n);
    struct error e = {0};
    struct container c;
    ck_assert_msg(container_open(path, "plan", &c, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_str_eq(c.kind, "plan");
    ck_assert_str_eq(c.product, ATOLL_VERSION_TEXT);
    ck_assert_uint_eq(c.n_sections, 3);
    ck_assert_uint_eq(container_find(&c, "graph")->size, 13);
    ck_assert_mem_eq(container_find(&c, "graph")->data, "graph @f() {}", 13);
    ck_assert_uint_eq(container_find(&c, "empty")->size, 0);
    ck_assert_uint_eq((uintptr_t)container_find(&c, "kernels.so")->data % 64, 0);
    ck_assert_ptr_null(container_find(&c, "other"));
    container_close(&c);
    ck_assert_int_eq(container_open(path, NULL, &c, &e), ATOLL_OK);
    container_close(&c);
    ck_assert_int_eq(container_open(path, "kernels", &c, &e), ATOLL_FORMAT);
    ck_assert_ptr_nonnull(strstr(e.text, ": found a file of kind \"plan\", expected \"kernels\""));
    unlink(path);
    arena_free(&a);
}
END_TEST

static status read_copy(const uint8_t *bytes, size_t size, struct error *e)
{
    struct container c;
    uint8_t *copy = malloc(size + 1); /* exact size: the sanitizer sees any read behind it */
    uint8_t *exact = size > 0 ? realloc(copy, size) : copy;
    memcpy(exact, bytes, size);
    status s = container_read_bytes(exact, size, "a.plan", "plan", &c, e);
    container_close(&c);
    free(exact);
    return s;
}

START_TEST(every_flipped_bit_is_refused)
{
    struct arena a = {0};
    size_t n;
    uint8_t *bytes = make_file(&a, &n);
    unlink(path);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            struct error e = {0};
            bytes[i] ^= (uint8_t)(1 << bit);
            status s = read_copy(bytes, n, &e);
            ck_assert_msg(s == ATOLL_FORMAT || s == ATOLL_VERSION || s == ATOLL_CHECKSUM,
                          "byte %zu bit %d: %s", i, bit, e.text);
            ck_assert_int_eq(strncmp(e.text, "a.plan: ", 8), 0);
            ck_assert(strstr(e.text, "found") != NULL && strstr(e.text, "expected") != NULL);
            ck_assert_ptr_null(strchr(e.text, '\n'));
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    struct error e = {0};
    ck_assert_int_eq(read_copy(bytes, n, &e), ATOLL_OK);
    arena_free(&a);
}
END_TEST

START_TEST(every_cut_and_more_is_refused)
{
    struct arena a = {0};
    size_t n;
    uint8_t *bytes = make_file(&a, &n);
    unlink(path);
    for (size_t cut = 0; cut < n; cut++) {
        struct error e = {0};
        ck_assert_int_eq(read_copy(bytes, cut, &e), ATOLL_FORMAT);
        ck_assert(cut < 8 || strstr(e.text, "a.plan: truncated: found") != NULL);
    }
    struct error e = {0};
    uint8_t *longer = arena_alloc(&a, n + 1);
    memcpy(longer, bytes, n);
    ck_assert_int_eq(read_copy(longer, n + 1, &e), ATOLL_FORMAT);
    ck_assert_ptr_nonnull(strstr(e.text, "a.plan: too long: found"));
    arena_free(&a);
}
END_TEST

static void seal(uint8_t *bytes)
{
    size_t head = CONTAINER_FIXED + (size_t)read_u32(bytes + 12) * CONTAINER_ENTRY;
    write_u64(bytes + head, hash_bytes(bytes, head, 0));
}

/* Files that a hostile writer has sealed with the right checksum. */
START_TEST(lies_under_a_right_checksum_are_refused)
{
    static const struct {
        size_t at;
        uint64_t value;
        const char *says;
    } lies[] = {
        {CONTAINER_FIXED + 40, 64, "section 0: found offset 64"},
        {CONTAINER_FIXED + 40, UINT64_MAX, "section 0: found offset 18446744073709551615"},
        {CONTAINER_FIXED + 48, UINT64_MAX, "section 0: found offset"},
        {CONTAINER_FIXED + 48, 12, "section \"graph\": found checksum"},
        {CONTAINER_FIXED, 0, "section 0: found"},
        {CONTAINER_FIXED + CONTAINER_ENTRY, 0x6870617267, "found two sections called \"graph\""},
        {16, 3, "too long: found"},
    };
    struct arena a = {0};
    size_t n;
    uint8_t *bytes = make_file(&a, &n), *copy = arena_alloc(&a, n);
    unlink(path);
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        struct error e = {0};
        memcpy(copy, bytes, n);
        write_u64(copy + lies[i].at, lies[i].value);
        seal(copy);
        ck_assert_int_ne(read_copy(copy, n, &e), ATOLL_OK);
        ck_assert_msg(strstr(e.text, lies[i].says) != NULL, "\"%s\" lacks \"%s\"", e.text,
                      lies[i].says);
    }
    struct error e = {0};
    memcpy(copy, bytes, n);
    write_u32(copy + 12, 2); /* one section less than there are bytes for */
    seal(copy);
    ck_assert_int_eq(read_copy(copy, n, &e), ATOLL_FORMAT);
    arena_free(&a);
}
END_TEST

START_TEST(a_newer_file_names_both_versions)
{
    struct arena a = {0};
    size_t n;
    uint8_t *bytes = make_file(&a, &n);
    unlink(path);
    bytes[8] = CONTAINER_FORMAT + 1;
    memcpy(bytes + 24, "9.8.7", 6);
    seal(bytes);
    struct error e = {0};
    ck_assert_int_eq(read_copy(bytes, n, &e), ATOLL_VERSION);
    ck_assert_str_eq(e.text,
                     "a.plan: found format 3 written by Atoll \"9.8.7\", expected format 2 (this "
                     "is Atoll " ATOLL_VERSION_TEXT "); make it again with this version");
    arena_free(&a);
}
END_TEST

START_TEST(bad_sections_are_refused)
{
    static const struct {
        struct section sections[2];
        const char *says;
    } cases[] = {
        {{{"a", "", 0}, {"a", "", 0}}, "found two sections called \"a\""},
        {{{"a", "", 0}, {"", "", 0}}, "found section name \"\", expected 1 to 39 bytes"},
        {{{"a", "", 0}, {"0123456789012345678901234567890123456789", "", 0}},
         "expected 1 to 39 bytes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error e = {0};
        ck_assert_int_eq(container_write("/tmp/never", "plan", cases[i].sections, 2, &e),
                         ATOLL_USAGE);
        ck_assert_msg(strstr(e.text, cases[i].says) != NULL, "%s", e.text);
    }
    struct container c;
    struct error e = {0};
    ck_assert_int_eq(container_open("/nonexistent/a.plan", "plan", &c, &e), ATOLL_NOT_FOUND);
    ck_assert_int_eq(container_read_bytes(NULL, 0, "a.plan", "plan", &c, NULL), ATOLL_FORMAT);
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    struct arena a = {0};
    size_t n;
    make_file(&a, &n);
    status s = ATOLL_OUT_OF_MEMORY;
    for (uint64_t count = 1; s == ATOLL_OUT_OF_MEMORY; count++) {
        struct error e = {0};
        struct container c;
        arena_fail_after(count);
        s = container_open(path, "plan", &c, &e);
        arena_fail_after(0);
        container_close(&c);
    }
    ck_assert_int_eq(s, ATOLL_OK);
    unlink(path);
    arena_free(&a);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, round_trip);
    tcase_add_test(tc, every_flipped_bit_is_refused);
    tcase_add_test(tc, every_cut_and_more_is_refused);
    tcase_add_test(tc, lies_under_a_right_checksum_are_refused);
    tcase_add_test(tc, a_newer_file_names_both_versions);
    tcase_add_test(tc, bad_sections_are_refused);
    tcase_add_test(tc, every_failed_allocation_is_reported);
}

int main(void)
{
    return run_suite("container", fill);
}
