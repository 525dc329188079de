/* A fused kernel that does not compile, or that the driver does not load: its group runs one op at
 * a time, with the reason among the notes and the same bits; a single op that does not compile is
 * an error that says which. NVRTC is reached through a library that makes chosen kernels fail. */
#include "cuda_suite.h"

#include "frontend/runner.h"
#include "ir/parse.h"

static struct device *device;
static const char *stub;

static const char GRAPH[] = "graph @g(%x: f32[3,40] buffer, %w: f32[40] buffer) {\n"
                            "  %a = mul(%x, %w)\n"
                            "  %m = max(%a) {axes=[1], keepdims=true}\n"
                            "  %d = sub(%a, %m)\n"
                            "  %e = exp(%d)\n"
                            "  %s = sum(%e) {axes=[1], keepdims=true}\n"
                            "  %y = div(%e, %s)\n"
                            "  return y=%y, s=%s\n}\n";

static void fill_leaf(struct runner *r, const char *name)
{
    struct tensor *t = runner_leaf(r, name);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        ((float *)t->data)[i] = (float)(i % 17) * 0.25F - 2.0F;
    }
}

static void same_outputs(struct runner *a, struct runner *b)
{
    struct error e = {0};
    struct runner *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        fill_leaf(both[i], "x");
        fill_leaf(both[i], "w");
        ck_assert_msg(runner_step(both[i], &e) == ATOLL_OK, "%s", e.text);
    }
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "y" : "s";
        struct tensor x = runner_output(a, name), y = runner_output(b, name);
        ck_assert_mem_eq(x.data, y.data, tensor_bytes(&x));
    }
}

static status open_with(struct runner *r, const char *plant, struct device *d, struct error *e)
{
    struct compile_options o = {.device = d, .libnvrtc = stub, .is_eager = d == NULL};
    setenv("ATOLL_PLANT", plant, 1);
    struct graph *g = graph_parse(GRAPH, strlen(GRAPH), "test", e);
    ck_assert_ptr_nonnull(g);
    status code = runner_open(r, g, &o, 1, e);
    graph_destroy(g);
    return code;
}

START_TEST(group_runs_op_by_op)
{
    struct error e = {0};
    struct runner split, whole, cpu;
    ck_assert_msg(open_with(&split, "_mul_div(", device, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(open_with(&whole, "", device, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(open_with(&cpu, "", NULL, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_uint_eq(whole.compiled.cuda.n_split, 0);
    ck_assert_uint_eq(whole.compiled.partition.n_groups, 1);
    ck_assert_uint_eq(split.compiled.cuda.n_split, 1);
    ck_assert_uint_eq(split.compiled.partition.n_groups, 6);
    bool has_note = false;
    for (uint32_t i = 0; i < split.compiled.notes.n; i++) {
        const char *text = split.compiled.notes.items[i].text;
        has_note = has_note || (strstr(text, "one op at a time") && strstr(text, "planted"));
    }
    ck_assert(has_note);
    same_outputs(&split, &whole);
    same_outputs(&split, &cpu);
    runner_free(&split);
    runner_free(&whole);
    runner_free(&cpu);
}
END_TEST

static char logged[8000];

static void keep_line(void *context, const char *category, const char *line)
{
    (void)context;
    if (strcmp(category, "kernels") == 0) {
        strncat(logged, line, sizeof logged - strlen(logged) - 2);
        strcat(logged, "\n");
    }
}

static status open_refused(struct runner *r, const char *refused, struct error *e)
{
    struct compile_options o = {
        .device = device, .libnvrtc = getenv("ATOLL_LIBNVRTC"), .log = keep_line};
    logged[0] = '\0';
    setenv("ATOLL_EMULATOR_REFUSE", refused, 1);
    struct graph *g = graph_parse(GRAPH, strlen(GRAPH), "test", e);
    status code = runner_open(r, g, &o, 1, e);
    unsetenv("ATOLL_EMULATOR_REFUSE");
    graph_destroy(g);
    return code;
}

/* A module that the driver loads neither as cubin nor as PTX: as if its kernels had not compiled.
 */
START_TEST(unloadable_group_runs_op_by_op)
{
    struct error e = {0};
    struct runner split, whole;
    ck_assert_msg(open_refused(&split, "_mul_div", &e) == ATOLL_OK, "%s", e.text);
    ck_assert_uint_eq(split.compiled.cuda.n_split, 1);
    ck_assert_uint_eq(split.compiled.partition.n_groups, 6);
    ck_assert_msg(strstr(logged, "k0_mul_div runs one op at a time: cuModuleLoadDataEx") != NULL,
                  "%s", logged);
    ck_assert_ptr_nonnull(strstr(logged, "refused, as ATOLL_EMULATOR_REFUSE wants"));
    ck_assert_msg(open_with(&whole, "", device, &e) == ATOLL_OK, "%s", e.text);
    same_outputs(&split, &whole);
    runner_free(&split);
    runner_free(&whole);
    ck_assert_int_ne(open_refused(&split, "k", &e), ATOLL_OK); /* every kernel: single ops too */
    ck_assert_ptr_nonnull(strstr(e.text, "refused"));
    runner_free(&split);
}
END_TEST

START_TEST(one_op_is_an_error)
{
    struct error e = {0};
    struct runner r;
    ck_assert_int_eq(open_with(&r, "op_exp_f32", device, &e), ATOLL_COMPILER);
    ck_assert_ptr_nonnull(strstr(e.text, "planted"));
    runner_free(&r);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, group_runs_op_by_op);
    tcase_add_test(tc, one_op_is_an_error);
    if (strstr(device->name, "emulated") != NULL) {
        tcase_add_test(tc, unloadable_group_runs_op_by_op);
    }
}

int main(void)
{
    stub = getenv("ATOLL_FAILING_NVRTC");
    if (stub == NULL) {
        printf("skipped: needs ATOLL_FAILING_NVRTC set as ctest does\n");
        return SKIPPED;
    }
    return run_on_device("cuda_fallback", fill, &device);
}
