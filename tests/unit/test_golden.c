/* Runs tests/golden/NAME.graph: see tests/golden/README.md for the form of a case. With --update
 * the expected parts are rewritten. */
#include "tests/suite.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "codegen/emit_cuda.h"
#include "ir/dot.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/fuse.h"
#include "passes/policy.h"
#include "passes/train_step.h"

/* A pass that golden files may name: one row. */
static const struct {
    const char *name;
    pass_fn *run;
} passes[] = {
    {"simplify", simplify_pass}, {"autocast", autocast_pass},     {"islands", islands_pass},
    {"autodiff", autodiff_pass}, {"train_step", train_step_pass}, {"decompose", decompose_pass},
    {"fp8", fp8_pass},           {"recompute", recompute_pass},   {"cut", cut_pass},
};

static const char expect_mark[] = "# expect:\n";

struct run {
    struct arena arena;
    struct graph *graph; /* NULL after a failure */
    struct error error;
    struct print_options print;
    const char *source; /* kernels as C or CUDA C, after the step kernels or cuda */
    bool is_dot;
    struct pass_options options;
    struct train_options train;
};

static char *read_file(struct arena *a, const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: cannot be read", path);
    char *data = arena_alloc(a, 1 << 20);
    *size = fread(data, 1, (1 << 20) - 1, f);
    fclose(f);
    return data;
}

/* The rest of the line that begins with `key`; NULL when there is none. */
static const char *directive(struct arena *a, const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (at == NULL || (at != text && at[-1] != '\n')) {
        return NULL;
    }
    at += strlen(key);
    return arena_text(a, "%.*s", (int)strcspn(at, "\n"), at);
}

static status run_pass(struct run *r, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
        if (strcmp(passes[i].name, name) != 0) {
            continue;
        }
        struct graph *out = graph_like(r->graph);
        struct notes notes = {0};
        status code = passes[i].run(r->graph, out, &r->options, &notes);
        if (code != ATOLL_OK) {
            fail(&r->error, code, "%s", out->error.text);
        } else {
            code = graph_verify(out, &r->error);
        }
        arena_free(&notes.arena);
        graph_destroy(r->graph);
        r->graph = out;
        return code;
    }
    return fail(&r->error, ATOLL_NOT_FOUND, "no step '%s'; hint: add it to test_golden.c", name);
}

/* Every kernel of the fused graph in launch order, without the prologue. */
static status print_kernels(struct run *r, bool is_cuda)
{
    struct partition p = {0};
    struct notes notes = {0};
    struct text t = {.arena = &r->arena};
    struct cuda_kernel cuda;
    status code = fuse(r->graph, &(struct fuse_options){0}, &p, &notes, &r->error);
    for (uint32_t i = 0; code == ATOLL_OK && i < p.n_groups; i++) {
        struct kernel k;
        if (p.groups[i].kind == GROUP_SINGLE) {
            continue;
        }
        code = kernel_lower(r->graph, &p, i, false, &r->arena, &k, &r->error);
        const char *name = arena_text(&r->arena, "k%u", i);
        if (code == ATOLL_OK && is_cuda) {
            emit_kernel_cuda(&t, &k, name, false, &r->arena, &cuda);
        } else if (code == ATOLL_OK) {
            emit_kernel_c(&t, &k, name);
        }
    }
    r->source = t.data;
    partition_free(&p);
    arena_free(&notes.arena);
    return code;
}

static status run_step(struct run *r, const char *step)
{
    if (strcmp(step, "kernels") == 0 || strcmp(step, "cuda") == 0) {
        return print_kernels(r, step[0] == 'c');
    }
    if (strcmp(step, "parse") == 0) {
        return ATOLL_OK;
    }
    if (strcmp(step, "verify") == 0) {
        return graph_verify(r->graph, &r->error);
    }
    if (strcmp(step, "locations") == 0) {
        r->print.locations = true;
        return ATOLL_OK;
    }
    if (strcmp(step, "dot") == 0) {
        r->is_dot = true;
        return ATOLL_OK;
    }
    return run_pass(r, step);
}

static void run_steps(struct run *r, const char *steps)
{
    char *copy = arena_copy_text(&r->arena, steps), *rest = copy;
    for (char *s = strtok_r(copy, ", ", &rest); s != NULL; s = strtok_r(NULL, ", ", &rest)) {
        if (run_step(r, s) != ATOLL_OK) {
            graph_destroy(r->graph);
            r->graph = NULL;
            return;
        }
    }
}

static void check_reads_back(struct run *r, const struct text *t)
{
    struct error e = {0};
    struct text again = {.arena = &r->arena};
    struct graph *g = graph_parse(t->data, t->length, "printed", &e);
    ck_assert_msg(g != NULL, "%s\n%s", e.text, t->data);
    graph_print(g, &again, &r->print);
    ck_assert_str_eq(t->data, again.data);
    graph_destroy(g);
}

/* "# train: sgd,lr=0.1", "# clip: 1", "# scaler: 1024" (its first scale). */
static void set_train_options(struct run *r, const char *text, const char *file)
{
    const char *train = directive(&r->arena, text, "# train: ");
    const char *clip = directive(&r->arena, text, "# clip: ");
    const char *scaler = directive(&r->arena, text, "# scaler: ");
    if (train == NULL) {
        return;
    }
    r->train = train_options_default();
    ck_assert_msg(train_options_parse(&r->train, train, NULL, &r->error) == ATOLL_OK, "%s: %s",
                  file, r->error.text);
    r->train.max_norm = clip != NULL ? strtod(clip, NULL) : 0.0;
    r->train.scaler.is_enabled = scaler != NULL;
    r->train.scaler.init = scaler != NULL ? strtod(scaler, NULL) : r->train.scaler.init;
    r->options.train = &r->train;
}

/* What a case gives, as it stands behind the mark. */
static const char *result_of(struct run *r, const char *text, size_t size, const char *file)
{
    struct text t = {.arena = &r->arena}, out = {.arena = &r->arena};
    const char *steps = directive(&r->arena, text, "# run: ");
    const char *policy = directive(&r->arena, text, "# policy: ");
    ck_assert_msg(steps != NULL, "%s: no line '# run: parse'", file);
    if (policy != NULL) {
        r->options.policy = policy_builtin(policy);
        ck_assert_msg(r->options.policy != NULL, "%s: no policy %s", file, policy);
    }
    set_train_options(r, text, file);
    r->graph = graph_parse(text, size, file, &r->error);
    if (r->graph != NULL) {
        run_steps(r, steps);
    }
    if (r->graph == NULL) {
        text_add(&t, "error: %s\n", r->error.text);
    } else if (r->source != NULL) {
        text_add(&t, "%s", r->source);
    } else if (r->is_dot) {
        graph_dot(r->graph, &t);
    } else {
        graph_print(r->graph, &t, &r->print);
        check_reads_back(r, &t);
    }
    for (const char *line = t.data; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        text_add(&out, "#%s%.*s\n", length == 0 ? "" : " ", (int)length, line);
        line += length + (line[length] == '\n' ? 1 : 0);
    }
    return out.data;
}

/* Shows the first line that differs: Check's messages have a limit that a whole graph passes. */
static void check_lines(const char *path, const char *expected, const char *found)
{
    for (int line = 1; *expected != '\0' || *found != '\0'; line++) {
        size_t n = strcspn(expected, "\n"), m = strcspn(found, "\n");
        ck_assert_msg(n == m && memcmp(expected, found, n) == 0 && expected[n] == found[m],
                      "%s: line %d behind '# expect:'\n  expected %.*s\n  found    %.*s", path,
                      line, (int)n, expected, (int)m, found);
        expected += n + (expected[n] == '\n' ? 1 : 0);
        found += m + (found[m] == '\n' ? 1 : 0);
    }
}

/* The cases, in golden/ and golden/kernels/. Returns how many. */
static int find_cases(glob_t *files)
{
    static const char *const folders[] = {"golden", "golden/kernels"};
    const char *source = getenv("ATOLL_SOURCE");
    struct arena a = {0};
    memset(files, 0, sizeof *files);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        const char *pattern =
            arena_text(&a, "%s/tests/%s/*.graph", source != NULL ? source : ".", folders[i]);
        if (glob(pattern, i > 0 ? GLOB_APPEND : 0, NULL, files) != 0) {
            files->gl_pathc = 0; /* no case: the suite fails */
        }
    }
    arena_free(&a);
    return (int)files->gl_pathc;
}

/* Compares, or with `update` rewrites, one case. */
static void do_case(const char *path, bool update)
{
    struct run r = {0};
    size_t size;
    char *text = read_file(&r.arena, path, &size);
    char *mark = strstr(text, expect_mark);
    const char *slash = strrchr(path, '/');
    const char *found = result_of(&r, text, mark != NULL ? (size_t)(mark - text) : size,
                                  slash != NULL ? slash + 1 : path);
    if (update) {
        FILE *f = fopen(path, "wb");
        ck_assert_ptr_nonnull(f);
        size_t head = mark != NULL ? (size_t)(mark - text) : size;
        ck_assert_uint_eq(fwrite(text, 1, head, f), head);
        fprintf(f, "%s%s", expect_mark, found);
        ck_assert_int_eq(fclose(f), 0);
    } else {
        ck_assert_msg(mark != NULL, "%s: no line '# expect:'", path);
        check_lines(path, mark + strlen(expect_mark), found);
    }
    graph_destroy(r.graph);
    arena_free(&r.arena);
}

static void do_case_number(int i, bool update)
{
    glob_t files;
    find_cases(&files);
    do_case(files.gl_pathv[i], update);
    globfree(&files);
}

START_TEST(golden_case)
{
    do_case_number(_i, false);
}
END_TEST

START_TEST(golden_update)
{
    do_case_number(_i, true);
}
END_TEST

static int count_cases(void)
{
    glob_t files;
    int n = find_cases(&files);
    globfree(&files);
    return n;
}

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, golden_case, 0, count_cases());
}

static void fill_update(TCase *tc)
{
    tcase_add_loop_test(tc, golden_update, 0, count_cases());
}

int main(int argc, char **argv)
{
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0;
    return run_suite("golden", update ? fill_update : fill);
}
