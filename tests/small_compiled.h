/* What tests of compiled functions share. */
#ifndef ATOLL_TESTS_SMALL_COMPILED_H
#define ATOLL_TESTS_SMALL_COMPILED_H

#include "tests/small_training.h"

#include <string.h>

#include "atoll/compile.h"

static inline atoll_compiled *open_with(atoll_function *fn, const atoll_compile_options *o)
{
    atoll_compiled *f = NULL;
    atoll_error error = {0};
    ck_assert_msg(atoll_compile(fn, o, &f, &error) == ATOLL_OK, "%s", error.text);
    return f;
}

static inline atoll_counters counters(const atoll_compiled *f)
{
    atoll_counters n;
    atoll_ledger_counters(atoll_compiled_ledger(f), &n);
    return n;
}

/* Compiled functions keep their kernels where the run does, not in the user's cache. */
static inline void small_calls_start(void)
{
    small_start();
    setenv("ATOLL_CACHE", small_kernels(), 1);
}

/* One output of two calls has the same bits. */
static inline void same_result(const atoll_results *a, const atoll_results *b, const char *name)
{
    atoll_view p, q;
    ck_assert_int_eq(atoll_results_view(a, name, &p, NULL), ATOLL_OK);
    ck_assert_int_eq(atoll_results_view(b, name, &q, NULL), ATOLL_OK);
    ck_assert_uint_eq(p.bytes, q.bytes);
    ck_assert_msg(memcmp(p.data, q.data, p.bytes) == 0, "%s differs", name);
}

#endif
