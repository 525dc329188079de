/* The cache of compiled libraries: what a second call loads instead of compiling, what makes
 * another key, and that a cache in any state costs time only. A compiler that counts its runs says
 * whether one was needed. */
#include "runtime/cache.h"

#include "tests/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64], compiler[96], counter[96];

static void start(void)
{
    snprintf(root, sizeof root, "/tmp/atoll-cache-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(compiler, sizeof compiler, "%s/cc", root);
    snprintf(counter, sizeof counter, "%s/runs", root);
    FILE *f = fopen(compiler, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\necho x >>%s\nexec cc \"$@\"\n", counter);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(compiler, 0700), 0);
}

static void clean(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

/* Runs of the compiler since the last call. */
static int runs(void)
{
    FILE *f = fopen(counter, "r");
    int n = 0;
    for (int c; f != NULL && (c = fgetc(f)) != EOF;) {
        n += c == '\n';
    }
    if (f != NULL) {
        fclose(f);
        unlink(counter);
    }
    return n;
}

/* The only entry of the cache. */
static void entry_of(const char *directory, char path[512])
{
    DIR *d = opendir(directory);
    int n = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] != '.') {
            snprintf(path, 512, "%s/%.200s", directory, entry->d_name);
            n++;
        }
    }
    closedir(d);
    ck_assert_int_eq(n, 1);
}

/* Compiles (or loads) a unit that returns `number`, checks that it does; whether it was loaded. */
static bool get(const char *directory, const struct cc_options *o, int number)
{
    char text[64];
    struct error e = {0};
    struct library *l = NULL;
    bool is_hit = false;
    snprintf(text, sizeof text, "int f(void) { return %d; }\n", number);
    const char *const units[] = {text};
    const size_t sizes[] = {strlen(text)};
    status code = cached_compile(directory, o, units, sizes, 1, &l, &is_hit, &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    int (*fn)(void);
    void *address = library_find(l, "f");
    ck_assert_ptr_nonnull(address);
    memcpy(&fn, &address, sizeof fn);
    ck_assert_int_eq(fn(), number);
    library_close(l);
    return is_hit;
}

static const char *fresh(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s/deep/cache", root, name);
    (void)runs();
    return path;
}

START_TEST(second_time_loads)
{
    char directory[128], path[512];
    struct cc_options o = {.compiler = compiler, .optimise = "-O0"};
    fresh(directory, "second");
    ck_assert(!get(directory, &o, 1));
    ck_assert_int_eq(runs(), 2); /* one unit, one link */
    ck_assert(get(directory, &o, 1));
    ck_assert_int_eq(runs(), 0);
    entry_of(directory, path);
    struct stat info;
    ck_assert_int_eq(stat(directory, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0700);
}
END_TEST

START_TEST(no_cache)
{
    static const char *const none[] = {NULL, "", "/proc/none", "/dev/null/cache"};
    struct cc_options o = {.compiler = compiler, .optimise = "-O0"};
    (void)runs();
    for (int i = 0; i < 2; i++) {
        ck_assert(!get(none[_i], &o, 1));
        ck_assert_int_eq(runs(), 2);
    }
}
END_TEST

/* Text, flags and compiler: each makes another key. */
START_TEST(other_keys)
{
    char directory[128];
    struct cc_options o = {.compiler = compiler, .optimise = "-O0"};
    fresh(directory, "keys");
    ck_assert(!get(directory, &o, 1));
    ck_assert(!get(directory, &o, 2));
    o.optimise = "-O1";
    ck_assert(!get(directory, &o, 1));
    o.march = "x86-64";
#if defined(__x86_64__)
    ck_assert(!get(directory, &o, 1));
#endif
    o = (struct cc_options){.compiler = "cc", .optimise = "-O0"};
    ck_assert(!get(directory, &o, 1));
    ck_assert(get(directory, &o, 1));
    /* the compiler was replaced by another of the same name */
    o.compiler = compiler;
    ck_assert(get(directory, &o, 1));
    FILE *f = fopen(compiler, "a");
    fputs("# another version\n", f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert(!get(directory, &o, 1));
}
END_TEST

/* ---- damaged entries ---- */

static void cut(const char *path, long size)
{
    ck_assert_int_eq(truncate(path, size / 2), 0);
}

static void empty(const char *path, long size)
{
    (void)size;
    ck_assert_int_eq(truncate(path, 0), 0);
}

static void flip(const char *path, long size)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    fseek(f, size / 2, SEEK_SET);
    int c = fgetc(f);
    fseek(f, size / 2, SEEK_SET);
    fputc(c ^ 0xff, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void directory_instead(const char *path, long size)
{
    (void)size;
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void foreign(const char *path, long size)
{
    (void)size;
    ck_assert(geteuid() != 0 || chown(path, 12345, 12345) == 0);
    if (geteuid() != 0) { /* only root can give files away */
        cut(path, size);
    }
}

static const struct damage {
    const char *name;
    void (*do_it)(const char *path, long size);
    bool heals; /* the entry is made again */
} damages[] = {{"cut", cut, true},
               {"empty", empty, true},
               {"flip", flip, true},
               {"directory", directory_instead, false},
               {"foreign", foreign, true}};

START_TEST(damaged_entries_are_made_again)
{
    const struct damage *d = &damages[_i];
    char directory[128], path[512];
    struct stat info;
    struct cc_options o = {.compiler = compiler, .optimise = "-O0"};
    fresh(directory, d->name);
    ck_assert(!get(directory, &o, 7));
    entry_of(directory, path);
    ck_assert_int_eq(stat(path, &info), 0);
    d->do_it(path, (long)info.st_size);
    (void)runs();
    ck_assert_msg(!get(directory, &o, 7), "%s: loaded", d->name);
    ck_assert_int_eq(runs(), 2);
    ck_assert_msg(get(directory, &o, 7) == d->heals, "%s: the next call", d->name);
}
END_TEST

START_TEST(a_failing_compiler_leaves_nothing)
{
    char directory[128];
    struct error e = {0};
    struct library *l = NULL;
    bool is_hit = true;
    const char *const units[] = {"int f(void) { return }\n"};
    const size_t sizes[] = {strlen(units[0])};
    fresh(directory, "failing");
    struct cc_options o = {.compiler = compiler};
    ck_assert_int_eq(cached_compile(directory, &o, units, sizes, 1, &l, &is_hit, &e),
                     ATOLL_COMPILER);
    ck_assert(!is_hit);
    ck_assert_ptr_null(l);
    ck_assert_int_ne(access(directory, F_OK), 0);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, start, clean);
    tcase_add_test(tc, second_time_loads);
    tcase_add_loop_test(tc, no_cache, 0, 4);
    tcase_add_test(tc, other_keys);
    tcase_add_loop_test(tc, damaged_entries_are_made_again, 0, ARRAY_LEN(damages));
    tcase_add_test(tc, a_failing_compiler_leaves_nothing);
}

int main(void)
{
    return run_suite("cached_compile", fill);
}
