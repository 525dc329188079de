/* The cache of compiled kernels: it may only cost time. Processes that compile the same text at
 * once, damaged, foreign and unwritable entries: the result is right, one line says what was wrong,
 * and the next run is silent. */
#include "frontend/runner.h"
#include "ir/parse.h"
#include "passes/policy.h"

#include "tests/suite.h"

#include "runtime/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 8, ROUNDS = 20 };

static char directory[64];
static struct {
    uint32_t n;
    char text[1000];
} warned;

static void on_warning(void *context, const char *text)
{
    (void)context;
    warned.n++;
    snprintf(warned.text, sizeof warned.text, "%s", text);
}

static struct graph *parsed(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "cache", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

/* y of the graph over x; NaN when anything failed. */
static double run_graph(const struct graph *g, const char *cache, const char *policy, float *x,
                        enum dtype *out, bool *is_hit)
{
    struct error e = {0};
    struct runner r;
    struct compile_options o = {.cache = cache, .warn = on_warning, .cc = {.optimise = "-O0"}};
    struct tensor t = {.dtype = F32, .rank = 1, .shape = {3}, .data = x};
    double y = (double)__builtin_nan("");
    warned.n = 0;
    bool is_good = policy == NULL || policy_named(policy, &o.policy, &e) == ATOLL_OK;
    is_good = is_good && runner_open(&r, g, &o, 1, &e) == ATOLL_OK;
    if (is_good && policy != NULL) {
        t = (struct tensor){.dtype = F32, .rank = 2, .shape = {1, 1}, .data = x};
    }
    if (is_good && runner_input(&r, "x", &t, &e) == ATOLL_OK && runner_step(&r, &e) == ATOLL_OK) {
        struct tensor found = runner_output(&r, "y");
        y = dtype_load(found.dtype, found.data);
        *out = found.dtype;
        *is_hit = r.compiled.is_from_cache;
    }
    if (is_good) {
        runner_free(&r);
    }
    return y;
}

/* sum(x * x + 1) over 1, 2, 3: right is 17. */
static double run_17(const char *cache, bool *is_hit)
{
    float x[] = {1.0F, 2.0F, 3.0F};
    enum dtype t;
    struct graph *g = parsed("graph @g(%x: f32[3] input) {\n%s = mul(%x, %x)\n%t = add(%s, 1)\n"
                             "%y = sum(%t)\nreturn y=%y\n}");
    double y = run_graph(g, cache, NULL, x, &t, is_hit);
    graph_destroy(g);
    return y;
}

/* Calls look(path) for every file; returns how many there are whose name ends so. */
static uint32_t each_file(const char *end, void (*look)(const char *path))
{
    uint32_t n = 0;
    DIR *d = opendir(directory);
    for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
        size_t length = strlen(f->d_name);
        if (length > strlen(end) && strcmp(f->d_name + length - strlen(end), end) == 0) {
            char path[400];
            snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
            n++;
            if (look != NULL) {
                look(path);
            }
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

static void remove_file(const char *path)
{
    unlink(path);
}

static void setup(void)
{
    snprintf(directory, sizeof directory, "/tmp/atoll-cache-test-XXXXXX");
    ck_assert(mkdtemp(directory) != NULL);
}

static void teardown(void)
{
    each_file("", remove_file);
    rmdir(directory);
}

START_TEST(fc105_processes_at_once)
{
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[PROCESSES];
        char stray[160];
        int n_warned = 0;
        pid_t gone = fork();
        if (gone == 0) {
            _exit(0);
        }
        ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
        each_file("", remove_file);
        snprintf(stray, sizeof stray, "%s/0123456789abcdef.kernels.%ld.0000000000.tmp", directory,
                 (long)gone);
        FILE *f = fopen(stray, "w"); /* what a killed process left */
        ck_assert(f != NULL && fputs("half", f) >= 0 && fclose(f) == 0);
        for (int i = 0; i < PROCESSES; i++) {
            children[i] = fork();
            ck_assert_int_ge(children[i], 0);
            if (children[i] == 0) {
                bool is_hit;
                bool is_right = run_17(directory, &is_hit) == 17.0;
                bool is_told =
                    strstr(warned.text, "removed 4 bytes of an unfinished write") != NULL;
                _exit(!is_right ? 1 : warned.n == 0 ? 0 : warned.n == 1 && is_told ? 2 : 3);
            }
        }
        for (int i = 0; i < PROCESSES; i++) {
            int result = -1;
            ck_assert_int_eq(waitpid(children[i], &result, 0), children[i]);
            ck_assert_msg(WIFEXITED(result) && WEXITSTATUS(result) % 2 == 0, "FC105: process %d",
                          i);
            n_warned += WEXITSTATUS(result) == 2;
        }
        bool is_hit = false;
        ck_assert(run_17(directory, &is_hit) == 17.0 && is_hit && warned.n == 0);
        ck_assert_uint_eq(each_file(".kernels", NULL), 1);
        ck_assert_int_eq(n_warned,
                         1); /* of the stray one, by who removed it; of the race nothing */
        ck_assert_uint_eq(each_file(".tmp", NULL), 0);
    }
}
END_TEST

/* ---- damage ---- */

static long size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long)info.st_size : -1;
}

static void cut_to_half(const char *path)
{
    ck_assert_int_eq(truncate(path, size_of(path) / 2), 0);
}

static void cut_to_nothing(const char *path)
{
    ck_assert_int_eq(truncate(path, 0), 0);
}

static void flip_a_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    ck_assert(f != NULL && fseek(f, size_of(path) / 2, SEEK_SET) == 0);
    int byte = fgetc(f);
    ck_assert(byte != EOF && fseek(f, -1, SEEK_CUR) == 0);
    ck_assert(fputc(255 - byte, f) != EOF && fclose(f) == 0);
}

static void replace_by_text(const char *path)
{
    FILE *f = fopen(path, "w");
    ck_assert(f != NULL && fputs("not a cache entry\n", f) >= 0 && fclose(f) == 0);
}

static void give_away(const char *path)
{
    ck_assert_int_eq(chown(path, 65534, 65534), 0);
}

static const struct {
    void (*damage)(const char *path);
    const char *says;
    bool needs_root;
} damages[] = {
    {cut_to_half, "bytes", false},        {cut_to_nothing, "found", false},
    {flip_a_byte, "checksum", false},     {replace_by_text, "compiled again", false},
    {give_away, "belongs to user", true},
};

START_TEST(fc106_damaged_entries)
{
    bool is_hit;
    if (damages[_i].needs_root && geteuid() != 0) {
        return; /* only root can give a file away */
    }
    ck_assert(run_17(directory, &is_hit) == 17.0 && !is_hit && warned.n == 0);
    ck_assert_uint_eq(each_file(".kernels", damages[_i].damage), 1);
    ck_assert(run_17(directory, &is_hit) == 17.0 && !is_hit);
    ck_assert_msg(warned.n == 1 && strstr(warned.text, directory) != NULL &&
                      strstr(warned.text, damages[_i].says) != NULL &&
                      strstr(warned.text, "compiled again") != NULL &&
                      strchr(warned.text, '\n') == NULL,
                  "FC106: %u warnings: %s", warned.n, warned.text);
    ck_assert(run_17(directory, &is_hit) == 17.0 && is_hit && warned.n == 0);
}
END_TEST

START_TEST(fc106_foreign_directory)
{
    bool is_hit;
    if (geteuid() != 0) {
        return; /* only root can give a directory away */
    }
    ck_assert(run_17(directory, &is_hit) == 17.0 && warned.n == 0);
    give_away(directory);
    ck_assert(run_17(directory, &is_hit) == 17.0 && !is_hit);
    ck_assert_msg(warned.n == 1 && strstr(warned.text, "belongs to user 65534: not used") != NULL,
                  "%u: %s", warned.n, warned.text);
}
END_TEST

START_TEST(fc106_unwritable_directory)
{
    char path[160];
    bool is_hit;
    snprintf(path, sizeof path, "%s/file", directory);
    replace_by_text(path);
    snprintf(path, sizeof path, "%s/file/cache", directory); /* below a file: for root too */
    ck_assert(run_17(path, &is_hit) == 17.0 && !is_hit);
    ck_assert_msg(warned.n == 1 &&
                      strstr(warned.text, "kernels are compiled each time: cannot be written") !=
                          NULL,
                  "%u: %s", warned.n, warned.text);
}
END_TEST

/* ---- the limit ---- */

/* A file of 1000 bytes, used so many seconds ago. */
static void put_file(const char *name, int64_t seconds_ago)
{
    char path[160], bytes[1000] = {0};
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "w");
    ck_assert(f != NULL && fwrite(bytes, sizeof bytes, 1, f) == 1 && fclose(f) == 0);
    struct timespec times[2] = {{.tv_sec = time(NULL) - seconds_ago}};
    times[1] = times[0];
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool has_file(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static const struct {
    const char *name;
    int64_t seconds_ago;
    bool stays;
} files[] = {
    {"00000000000000aa.kernels", 900, true}, /* the oldest, but being written */
    {"00000000000000aa.about", 900, true},
    {"00000000000000bb.kernels", 800, false},
    {"00000000000000bb.about", 800, false},
    {"00000000000000cc.cuda", 100, true}, /* used lately, though its text is old */
    {"00000000000000cc.about", 850, true},
    {"00000000000000dd.about", 500, false}, /* its entry is gone */
    {"00000000000000ee.kernels", 400, true},
    {"notes.txt", 10000, true}, /* none of the cache's */
    {"00000000000000ff.kernels.bak", 10000, true},
    {"00000000000000bb.kernels.1.000000001.tmp", 0, true}, /* somebody writes it */
};

START_TEST(limit_removes_the_unused)
{
    struct arena a = {0};
    struct text told = {.arena = &a};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        put_file(files[i].name, files[i].seconds_ago);
    }
    ck_assert_uint_eq(cache_sweep(directory), 0);
    cache_shrink(directory, 8000, 0xaa, &told); /* 8 files of 1000 */
    ck_assert_ptr_null(told.data);
    cache_shrink(directory, 5999, 0xaa, &told); /* 6000 would do with bb gone */
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        ck_assert_msg(has_file(files[i].name) == files[i].stays, "%s %s", files[i].name,
                      files[i].stays ? "is gone" : "is there");
    }
    ck_assert_str_eq(told.data, "2 entries of 3000 bytes, unused for longest, removed from the "
                                "cache: it is limited to 5999 bytes and has 5000");
    cache_shrink(directory, 1, 0xaa, &told);
    ck_assert(has_file("00000000000000aa.kernels") && !has_file("00000000000000cc.cuda"));
    ck_assert(has_file("notes.txt"));
    arena_free(&a);
}
END_TEST

/* ---- the key ---- */

static const struct {
    const char *policy;
    enum dtype dtype;
    double right;
} policies[] = {
    {"bf16", BF16, 1.0}, {"fp16", F16, 1.00390625}, {"fp32", F32, 1.00390625}, {"bf16", BF16, 1.0}};

START_TEST(fc107_policies_share_a_cache)
{
    struct graph *g = parsed("graph @g(%x: f32[1,1] input, %w: f32[1,1] param {init=\"ones\"}) {\n"
                             "%y = linear(%x, %w)\nreturn y=%y\n}");
    float x[] = {1.00390625F};
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        enum dtype found = DTYPE_NONE;
        bool is_hit;
        double y = run_graph(g, directory, policies[i].policy, x, &found, &is_hit);
        ck_assert_msg(found == policies[i].dtype && y == policies[i].right,
                      "FC107: %s gives %s %.9g", policies[i].policy, dtype_info[found].name, y);
    }
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, fc105_processes_at_once);
    tcase_add_loop_test(tc, fc106_damaged_entries, 0, (int)ARRAY_LEN(damages));
    tcase_add_test(tc, fc106_foreign_directory);
    tcase_add_test(tc, fc106_unwritable_directory);
    tcase_add_test(tc, limit_removes_the_unused);
    tcase_add_test(tc, fc107_policies_share_a_cache);
}

int main(void)
{
    return run_suite("cache", fill);
}
