/* Unit tests of the ground: error record, arenas and their recovery point, text, patterns. They
 * stand below everything, so they include nothing but ir/base.h and Check. */
#include "ir/base.h"

#include "tests/suite.h"

#include <string.h>

START_TEST(first_error_wins)
{
    struct error e = {0};
    ck_assert_int_eq(fail(&e, ATOLL_SHAPE, "first %d", 1), ATOLL_SHAPE);
    ck_assert_int_eq(fail(&e, ATOLL_DATA, "second"), ATOLL_DATA);
    ck_assert_int_eq(e.code, ATOLL_SHAPE);
    ck_assert_str_eq(e.text, "first 1");
    ck_assert_int_eq(fail(NULL, ATOLL_IO, "no record"), ATOLL_IO);
}
END_TEST

START_TEST(arena_memory_is_zeroed_and_aligned)
{
    struct arena a = {0};
    for (size_t size = 0; size < 70000; size = size * 3 + 1) {
        unsigned char *p = arena_alloc(&a, size);
        ck_assert_uint_eq((uintptr_t)p % (size >= 64 ? 64 : 16), 0);
        for (size_t i = 0; i < size; i++) {
            ck_assert_uint_eq(p[i], 0);
        }
        memset(p, 0xff, size);
    }
    arena_free(&a);
    ck_assert_ptr_null(a.blocks);
}
END_TEST

static status grow_text(struct arena *a, uint64_t fail_at)
{
    struct recovery r;
    if (arena_recover(&r)) {
        arena_fail_after(0);
        arena_free(a);
        return ATOLL_OUT_OF_MEMORY;
    }
    arena_fail_after(fail_at);
    struct text t = {.arena = a};
    for (int i = 0; i < 20000; i++) {
        text_add(&t, "%d,", i);
    }
    arena_fail_after(0);
    arena_recover_end(&r);
    return ATOLL_OK;
}

START_TEST(every_failed_allocation_comes_back)
{
    uint64_t n = 1;
    for (;; n++) {
        struct arena a = {0};
        status s = grow_text(&a, n);
        arena_free(&a);
        if (s == ATOLL_OK) {
            break;
        }
        ck_assert_int_eq(s, ATOLL_OUT_OF_MEMORY);
    }
    ck_assert_uint_gt(n, 3);
}
END_TEST

static const struct {
    const char *pattern, *text;
    bool matches;
} patterns[] = {
    {"*", "", true},          {"", "", true},          {"", "a", false},
    {"a?c", "abc", true},     {"a?c", "ac", false},    {"*.ln*", "b0.ln1", true},
    {"a*b*c", "aXbY", false}, {"a*b*c", "abbc", true}, {"A", "a", false},
    {"**a", "bba", true},
};

START_TEST(pattern)
{
    ck_assert_int_eq(pattern_matches(patterns[_i].pattern, patterns[_i].text),
                     patterns[_i].matches);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, first_error_wins);
    tcase_add_test(tc, arena_memory_is_zeroed_and_aligned);
    tcase_add_test(tc, every_failed_allocation_comes_back);
    tcase_add_loop_test(tc, pattern, 0, ARRAY_LEN(patterns));
}

int main(void)
{
    return run_suite("base", fill);
}
