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

/* ---- scratch arenas ---- */

/* Fills three arenas inside a recovery point and runs out of memory: own is the caller's. */
static status run_out(struct arena *own, struct arena *held, struct arena *kept, bool frees_one)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return ATOLL_OUT_OF_MEMORY;
    }
    struct arena scratch = SCRATCH_ARENA, freed = SCRATCH_ARENA, unused = SCRATCH_ARENA;
    (void)arena_alloc(own, 100);
    (void)arena_alloc(&freed, 100);
    (void)arena_alloc(&scratch, 100);
    (void)arena_alloc(held, 100);
    (void)arena_alloc(kept, 100);
    arena_hold(held); /* of this frame from here on */
    arena_keep(kept); /* an owner's from here on */
    if (frees_one) {
        arena_free(&freed);
    }
    (void)unused;
    arena_fail_after(1);
    (void)arena_alloc(&scratch, 100000);
    ck_abort_msg("the allocation came back");
    return ATOLL_OK;
}

/* Scratch and held memory goes (AddressSanitizer sees a leak), owned and kept memory stays. */
START_TEST(scratch_goes_owned_stays)
{
    struct arena own = {0}, held = {0}, kept = SCRATCH_ARENA;
    ck_assert_int_eq(run_out(&own, &held, &kept, _i == 1), ATOLL_OUT_OF_MEMORY);
    ck_assert_ptr_nonnull(own.blocks);
    ck_assert_ptr_nonnull(kept.blocks);
    ck_assert_ptr_null(held.blocks);
    arena_free(&own);
    arena_free(&kept);
    arena_free(&held); /* a second time is harmless */
}
END_TEST

/* An inner point frees what was filled since it began, and no more; the outer one the rest. */
START_TEST(recovery_points_nest)
{
    struct recovery outer, inner;
    static struct arena before =
        SCRATCH_ARENA; /* a local changed after setjmp would be indeterminate */
    if (arena_recover(&outer)) {
        ck_assert_ptr_null(before.blocks);
        return;
    }
    (void)arena_alloc(&before, 100);
    if (arena_recover(&inner)) {
        ck_assert_ptr_nonnull(before.blocks);
        arena_fail_after(1);
        (void)arena_alloc(&before, 100000); /* and now the outer one */
    } else {
        struct arena within = SCRATCH_ARENA;
        (void)arena_alloc(&within, 100);
        arena_fail_after(1);
        (void)arena_alloc(&before, 100000);
    }
    ck_abort_msg("the allocation came back");
}
END_TEST

/* Any order of freeing: the list of scratch arenas is whole afterwards. */
START_TEST(freed_in_any_order)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2},
                                    {1, 2, 0}, {0, 2, 1}, {2, 0, 1}};
    struct recovery r;
    if (arena_recover(&r)) {
        return;
    }
    struct arena a[3] = {SCRATCH_ARENA, SCRATCH_ARENA, SCRATCH_ARENA}, last = SCRATCH_ARENA;
    for (int i = 0; i < 3; i++) {
        (void)arena_alloc(&a[i], 100);
    }
    for (int i = 0; i < 3; i++) {
        arena_free(&a[orders[_i][i]]);
    }
    (void)arena_alloc(&a[1], 100); /* filled again */
    (void)arena_alloc(&last, 100);
    arena_fail_after(1);
    (void)arena_alloc(&last, 100000);
    ck_abort_msg("the allocation came back");
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
    tcase_add_loop_test(tc, scratch_goes_owned_stays, 0, 2);
    tcase_add_test(tc, recovery_points_nest);
    tcase_add_loop_test(tc, freed_in_any_order, 0, 6);
    tcase_add_loop_test(tc, pattern, 0, ARRAY_LEN(patterns));
}

int main(void)
{
    return run_suite("base", fill);
}
