/* Libraries of kernels, several at once: each finds its own functions. */
#include "codegen/cc.h"
#include "runtime/library.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

typedef int number_fn(void);

static struct library *compiled(int number)
{
    char text[64];
    const char *units[] = {text};
    struct error e = {0};
    void *bytes = NULL;
    size_t size = 0;
    int n = snprintf(text, sizeof text, "int k0(void) { return %d; }\n", number);
    size_t sizes[] = {(size_t)n};
    ck_assert_msg(cc_compile(NULL, units, sizes, 1, &bytes, &size, &e) == ATOLL_OK, "%s", e.text);
    struct library *l = library_open(bytes, size, "test", &e);
    ck_assert_msg(l != NULL, "%s", e.text);
    free(bytes);
    return l;
}

static int number_of(struct library *l)
{
    union {
        void *address;
        number_fn *function;
    } k = {.address = library_find(l, "k0")};
    ck_assert_ptr_nonnull(k.address);
    return k.function();
}

START_TEST(each_its_own)
{
    struct library *a = compiled(1), *b = compiled(2);
    ck_assert_int_eq(number_of(a), 1);
    ck_assert_int_eq(number_of(b), 2);
    library_close(a);
    struct library *c = compiled(3);
    ck_assert_int_eq(number_of(b), 2);
    ck_assert_int_eq(number_of(c), 3);
    library_close(b);
    library_close(c);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, each_its_own);
}

int main(void)
{
    return run_suite("library", fill);
}
