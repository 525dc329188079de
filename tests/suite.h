/* What every Check program shares: check.h without its old macro fail(), which is our function's
 * name, and the main that refuses to pass when no check ran (a misspelt CK_RUN_SUITE would). */
#ifndef ATOLL_TESTS_SUITE_H
#define ATOLL_TESTS_SUITE_H

#include <check.h>
#undef fail

/* An assertion that holds costs nothing: Check would write where it stands to a file each time and
 * read that file back in quadratic time, minutes for a suite of millions under sanitizers. */
#define _mark_point(file, line) ((void)0)

#include <stdbool.h>
#include <stdlib.h>

/* Whether this run is for a sanitizer's sake: then loops that repeat the same code may be short. */
static inline bool is_sanitized(void)
{
    const char *by = getenv("ATOLL_SANITIZED");
    return by != NULL && *by != '\0';
}

/* Where kernels are kept that a whole run of tests compiles once: scripts/test makes the directory,
 * empty, for both of its builds; NULL elsewhere, which is none. An entry is found by all that its
 * compiler reads, so nothing is left out but compiling the same again. What tests the compiling,
 * the cache or their counts has a directory of its own. */
static inline const char *shared_kernels(void)
{
    return getenv("ATOLL_TEST_CACHE");
}

/* Runs one suite that fill() has filled; returns what main returns. */
static inline int run_suite(const char *name, void (*fill)(TCase *tc))
{
    Suite *suite = suite_create(name);
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, 300);
    suite_add_tcase(suite, tc);
    fill(tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
