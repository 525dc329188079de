/* The C compiler as a child process: what it makes loads and runs, every way it can fail is one
 * line with a status, and whatever happens the temporary directory is empty afterwards. Planted
 * compilers are small scripts. */
#include "codegen/cc.h"
#include "runtime/library.h"

#include "tests/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *root(void)
{
    static char path[64];
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "/tmp/atoll-cc-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(path));
    }
    return path;
}

static void start(void)
{
    (void)root();
}

static void clean(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root());
    ck_assert_int_eq(system(command), 0);
}

/* A directory of its own for each test, under root. */
static const char *make_directory(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", root(), name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    return path;
}

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(d);
    return n;
}

static const char *const good[] = {"int one(void) { return 1; }\n",
                                   "int two(void) { return 2; }\n"};

static status compile(const struct cc_options *o, const char *const *units, uint32_t n,
                      void **bytes, size_t *size, struct error *e)
{
    size_t sizes[20];
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = strlen(units[i]);
    }
    *bytes = NULL;
    return cc_compile(o, units, sizes, n, bytes, size, e);
}

/* ---- it works ---- */

static int call(struct library *l, const char *name)
{
    int (*fn)(void);
    void *address = library_find(l, name);
    ck_assert_ptr_nonnull(address);
    memcpy(&fn, &address, sizeof fn);
    return fn();
}

START_TEST(units_become_one_library)
{
    char directory[128];
    struct error e = {0};
    void *bytes;
    size_t size = 0;
    struct cc_options o = {.temporary = make_directory(directory, "good"), .optimise = "-O0"};
    ck_assert_msg(compile(&o, good, 2, &bytes, &size, &e) == ATOLL_OK, "%s", e.text);
    struct library *l = library_open(bytes, size, "test", &e);
    ck_assert_msg(l != NULL, "%s", e.text);
    ck_assert_int_eq(call(l, "one"), 1);
    ck_assert_int_eq(call(l, "two"), 2);
    ck_assert_ptr_null(library_find(l, "three"));
    library_close(l);
    free(bytes);
    ck_assert_int_eq(count_entries(directory), 0);
}
END_TEST

/* Libraries that are open together keep their own functions, though their names are the same. */
START_TEST(libraries_side_by_side)
{
    static const char *const texts[] = {"int number(void) { return 1; }\n",
                                        "int number(void) { return 2; }\n",
                                        "int number(void) { return 3; }\n"};
    struct error e = {0};
    struct library *open[3];
    for (int i = 0; i < 3; i++) {
        void *bytes;
        size_t size = 0;
        ck_assert_msg(compile(NULL, &texts[i], 1, &bytes, &size, &e) == ATOLL_OK, "%s", e.text);
        open[i] = library_open(bytes, size, "test", &e);
        ck_assert_msg(open[i] != NULL, "%s", e.text);
        free(bytes);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(call(open[i], "number"), i + 1);
    }
    for (int i = 0; i < 3; i++) {
        library_close(open[i]);
    }
}
END_TEST

/* The same text gives the same bytes: plans and caches depend on it. */
START_TEST(twice_the_same_bytes)
{
    struct error e = {0};
    void *bytes[2];
    size_t sizes[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(compile(NULL, good, 2, &bytes[i], &sizes[i], &e), ATOLL_OK);
    }
    ck_assert_uint_eq(sizes[0], sizes[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}
END_TEST

/* ---- it fails ---- */

static const struct failure {
    const char *name;
    const char *script; /* of a planted compiler; NULL: cc itself; "": a path to nothing */
    const char *unit;   /* the first unit; NULL: a good one */
    status code;
    const char *says[2];
} failures[] = {
    {"missing", "", NULL, ATOLL_COMPILER, {"cannot be started", "ATOLL_CC"}},
    {"unit", NULL, "int f(void) { return nothing; }\n", ATOLL_COMPILER, {"error", "nothing"}},
    {"link",
     NULL,
     "int one(void) { return 1; }\nint two(void) { return 1; }\n",
     ATOLL_COMPILER,
     {"failed on generated code", "two"}},
    {"silent", "exit 3", NULL, ATOLL_COMPILER, {"failed on generated code", "no message"}},
    {"killed", "kill -9 $$", NULL, ATOLL_COMPILER, {"failed on generated code", "no message"}},
    {"long line",
     "head -c 3000 /dev/zero | tr '\\0' e; echo error: long; exit 1",
     NULL,
     ATOLL_COMPILER,
     {"failed on generated code", "eeee"}},
    {"second only",
     "case $* in *unit1.c*) echo error: second >&2; exit 1;; esac; exec cc \"$@\"",
     NULL,
     ATOLL_COMPILER,
     {"error: second", ""}},
    {"first only",
     "case $* in *unit0.c*) echo error: first >&2; exit 1;; esac; exec cc \"$@\"",
     NULL,
     ATOLL_COMPILER,
     {"error: first", ""}},
    {"writes nothing", "exit 0", NULL, ATOLL_IO, {"kernels.so", "cannot read"}},
};

START_TEST(fails_in_one_line)
{
    const struct failure *f = &failures[_i];
    char directory[128], compiler[160], name[16];
    struct error e = {0};
    void *bytes;
    size_t size = 0;
    snprintf(name, sizeof name, "fails%d", _i);
    snprintf(compiler, sizeof compiler, "%s/cc%d", root(), _i);
    struct cc_options o = {.temporary = make_directory(directory, name), .optimise = "-O0"};
    if (f->script != NULL) {
        o.compiler = compiler;
    }
    if (f->script != NULL && f->script[0] != '\0') {
        FILE *script = fopen(compiler, "w");
        ck_assert_ptr_nonnull(script);
        fprintf(script, "#!/bin/sh\n%s\n", f->script);
        ck_assert_int_eq(fclose(script), 0);
        ck_assert_int_eq(chmod(compiler, 0700), 0);
    }
    const char *const units[] = {f->unit != NULL ? f->unit : good[0], good[1]};
    status code = compile(&o, units, 2, &bytes, &size, &e);
    ck_assert_msg(code == f->code, "%s: status %d: %s", f->name, (int)code, e.text);
    ck_assert_int_eq(e.code, f->code);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(strstr(e.text, f->says[i]) != NULL, "%s: '%s' not in: %s", f->name,
                      f->says[i], e.text);
    }
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert_ptr_null(bytes);
    ck_assert_msg(count_entries(directory) == 0, "%s: files are left in %s", f->name, directory);
}
END_TEST

START_TEST(temporary_directory_that_cannot_be)
{
    static const char *const none[] = {"/proc/none", "/dev/null", "/nonexistent"};
    struct error e = {0};
    void *bytes;
    size_t size;
    struct cc_options o = {.temporary = none[_i]};
    ck_assert_int_eq(compile(&o, good, 1, &bytes, &size, &e), ATOLL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, none[_i]));
    ck_assert_ptr_null(bytes);
}
END_TEST

/* Lengths around the longest that fits: each works, or is refused with the limit in the message. */
START_TEST(temporary_directory_of_any_length)
{
    char base[128], path[1600];
    uint32_t works = 0, refused = 0;
    make_directory(base, "long");
    for (size_t length = 970; length <= 1400; length += length > 1010 ? 90 : 7) {
        struct error e = {0};
        void *bytes;
        size_t size, at = (size_t)snprintf(path, sizeof path, "%s", base);
        while (at < length) { /* components of at most 100 bytes */
            size_t part = length - at > 100 ? 100 : length - at;
            path[at] = '/';
            memset(path + at + 1, 'd', part - 1);
            at += part;
            path[at] = '\0';
            ck_assert(mkdir(path, 0700) == 0 || at < length || part == 1 ||
                      access(path, F_OK) == 0);
        }
        struct cc_options o = {.temporary = path, .optimise = "-O0"};
        status code = compile(&o, good, 1, &bytes, &size, &e);
        if (code == ATOLL_OK) {
            works++;
            free(bytes);
        } else {
            refused++;
            ck_assert_int_eq(code, ATOLL_IO);
            ck_assert_msg(strstr(e.text, "TMPDIR") != NULL, "%zu bytes: %s", length, e.text);
        }
    }
    ck_assert_uint_gt(works, 2);
    ck_assert_uint_gt(refused, 2);
}
END_TEST

START_TEST(too_many_units)
{
    const char *units[17];
    struct error e = {0};
    void *bytes;
    size_t size;
    for (int i = 0; i < 17; i++) {
        units[i] = "";
    }
    ck_assert_int_eq(compile(NULL, units, 17, &bytes, &size, &e), ATOLL_INTERNAL);
}
END_TEST

START_TEST(version_and_flags)
{
    struct arena a = {0};
    ck_assert_str_ne(cc_version(NULL, &a), "");
    ck_assert_str_eq(cc_version(&(struct cc_options){.compiler = "/nonexistent/cc"}, &a), "");
    ck_assert_ptr_nonnull(strstr(cc_flags(), "-ffp-contract=off"));
    arena_free(&a);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, start, clean);
    tcase_add_test(tc, units_become_one_library);
    tcase_add_test(tc, libraries_side_by_side);
    tcase_add_test(tc, twice_the_same_bytes);
    tcase_add_loop_test(tc, fails_in_one_line, 0, ARRAY_LEN(failures));
    tcase_add_loop_test(tc, temporary_directory_that_cannot_be, 0, 3);
    tcase_add_test(tc, temporary_directory_of_any_length);
    tcase_add_test(tc, too_many_units);
    tcase_add_test(tc, version_and_flags);
}

int main(void)
{
    return run_suite("cc", fill);
}
