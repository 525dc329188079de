/* Every .graph under tests/fuzz/found was once a difference between fused and eager, or a crash:
 * each is run again with several numbers of threads and must give the same bits. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/check_case.h"
#include "tests/suite.h"

enum { MAX_FOUND = 400 };
static char paths[MAX_FOUND][400];
static int n_paths;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_found(void)
{
    const char *folder = ATOLL_SOURCE_DIR "/tests/fuzz/found";
    DIR *d = opendir(folder);
    struct dirent *entry;
    while (d != NULL && n_paths < MAX_FOUND && (entry = readdir(d)) != NULL) {
        if (strstr(entry->d_name, ".graph") != NULL) {
            snprintf(paths[n_paths++], sizeof paths[0], "%s/%.100s", folder, entry->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(paths, (size_t)n_paths, sizeof paths[0], by_name);
}

START_TEST(found_case_gives_the_same_bits)
{
    static char text[1 << 18];
    struct fuzz_case c;
    struct verdict v;
    struct error e = {0};
    FILE *f = fopen(paths[_i], "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    ck_assert_msg(case_parse(text, n, paths[_i], &c, &e) == ATOLL_OK, "%s", e.text);
    struct check_options o = {
        .threads = {1, 2, 3}, .n_threads = 3, .optimise = 1, .cache = shared_kernels()};
    check_case(&c, &o, &v);
    ck_assert_msg(v.kind == VERDICT_SAME, "%s: %s", paths[_i], v.text);
    graph_destroy(c.graph);
}
END_TEST

static void fill(TCase *t)
{
    tcase_add_loop_test(t, found_case_gives_the_same_bits, 0, n_paths);
}

int main(void)
{
    list_found();
    return run_suite("found", fill);
}
