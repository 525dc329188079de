/* Plans with CUDA code through the public API: what a C program sees on a device is what it sees on
 * the CPU; a plan without code for either says so; sections that do not fit are refused. */
#include "cuda_suite.h"

#include <pthread.h>
#include <unistd.h>

#include "atoll/plan.h"
#include "frontend/runner.h"
#include "ir/parse.h"
#include "ir/print.h"

/* No matrix product: the CPU's bits are the device's. */
static const char MODEL[] =
    "graph @g(%x: f32[n,6] input, %w: f32[6] param, %h: bf16[4,5] buffer) {\n"
    "  %a = mul(%x, %w)\n"
    "  %p = softmax(%a)\n"
    "  %loss = mean(%p)\n"
    "  %q = gelu(%h)\n"
    "  %s = sum(%a) {axes=[0]}\n"
    "  %v = sub(%w, %s)\n"
    "  update %w <- %v\n"
    "  return loss=%loss, p=%p, q=%q\n}\n";

static char path[256];
static bool is_emulated;

static void write_plan(const char *const *archs, uint32_t n, bool skips_c)
{
    struct error e = {0};
    struct runner r = {0};
    struct compiled passes;
    struct compile_options o = {.is_eager = true, .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    struct arena scratch = {0};
    struct text t = {.arena = &scratch};
    struct graph *g = graph_parse(MODEL, strlen(MODEL), "model", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(compile_graph(g, &o, &passes, &e) == ATOLL_OK, "%s", e.text);
    graph_print(passes.primitive, &t, NULL);
    struct graph *primitive = graph_parse(t.data, t.length, "primitive", &e);
    o = (struct compile_options){.cuda_archs = archs,
                                 .n_cuda_archs = n,
                                 .skips_c = skips_c,
                                 .cache = shared_kernels(),
                                 .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    ck_assert_msg(compile_primitive(primitive, &o, &r.compiled, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_from(&r, 5, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_write_plan(&r, path, "test\n", &e) == ATOLL_OK, "%s", e.text);
    runner_free(&r);
    compiled_free(&passes);
    graph_destroy(g);
    arena_free(&scratch);
}

static atoll_place place(void)
{
    return (atoll_place){.device = "cuda:0",
                         .libcuda = getenv("ATOLL_LIBCUDA"),
                         .libcublaslt = getenv("ATOLL_LIBCUBLASLT")};
}

static void step(atoll_plan *p, int64_t n, int seed)
{
    static float x[64 * 6];
    atoll_error e = {0};
    for (int i = 0; i < n * 6; i++) {
        x[i] = (float)((i * 7 + seed) % 23) * 0.125F - 1.0F;
    }
    ck_assert_msg(atoll_plan_bind(p, "x", x, (int64_t[]){n, 6}, 2, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(atoll_plan_step(p, &e) == ATOLL_OK, "%s", e.text);
}

static void same_view(const atoll_view *a, const atoll_view *b)
{
    ck_assert_uint_eq(a->bytes, b->bytes);
    ck_assert_mem_eq(a->data, b->data, a->bytes);
}

START_TEST(device_is_cpu)
{
    static const char *const archs[] = {"sm_90"};
    atoll_error e = {0};
    atoll_plan *here = NULL, *there = NULL;
    atoll_place where = place();
    write_plan(archs, 1, false);
    ck_assert_msg(atoll_plan_open(path, &here, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(atoll_plan_open_on(path, &where, &there, &e) == ATOLL_OK, "%s", e.text);
    for (int i = 0; i < 12; i++) { /* sizes change and come back; later steps are replayed */
        int64_t n = i < 4 ? 3 : i < 8 ? 40 : 3;
        atoll_view a, b;
        step(here, n, i);
        step(there, n, i);
        for (int k = 0; k < 3; k++) {
            const char *name = (const char *[]){"loss", "p", "q"}[k];
            ck_assert_int_eq(atoll_plan_output(here, name, &a, &e), ATOLL_OK);
            ck_assert_int_eq(atoll_plan_output(there, name, &b, &e), ATOLL_OK);
            same_view(&a, &b);
        }
        ck_assert_int_eq(atoll_plan_state(here, "w", &a, &e), ATOLL_OK);
        ck_assert_int_eq(atoll_plan_state(there, "w", &b, &e), ATOLL_OK);
        same_view(&a, &b);
        if (i == 5) { /* what the host writes goes up */
            ((float *)a.data)[2] = 0.75F;
            ((float *)b.data)[2] = 0.75F;
        }
    }
    atoll_plan_close(here);
    atoll_plan_close(there);
}
END_TEST

static void *step_elsewhere(void *context)
{
    step(context, 5, 2);
    return NULL;
}

/* Two plans at once, one of them stepped by another thread than the one that opened it. */
START_TEST(threads_and_plans)
{
    static const char *const archs[] = {"sm_90"};
    atoll_error e = {0};
    atoll_plan *plans[2] = {NULL, NULL};
    atoll_place where = place();
    atoll_view a, b;
    pthread_t thread;
    write_plan(archs, 1, true);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(atoll_plan_open_on(path, &where, &plans[i], &e) == ATOLL_OK, "%s", e.text);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, step_elsewhere, plans[1]), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    step(plans[0], 5, 2);
    ck_assert_int_eq(atoll_plan_output(plans[0], "p", &a, &e), ATOLL_OK);
    ck_assert_int_eq(atoll_plan_output(plans[1], "p", &b, &e), ATOLL_OK);
    same_view(&a, &b);
    atoll_plan_close(plans[0]);
    step(plans[1], 5, 3);
    atoll_plan_close(plans[1]);
}
END_TEST

/* ---- inputs of the next step ---- */

static void batch(float *x, int64_t n, int seed)
{
    for (int64_t i = 0; i < n * 6; i++) {
        x[i] = (float)((i * 7 + seed) % 23) * 0.125F - 1.0F;
    }
}

/* Prefetched while the step before runs, on the device and on the CPU: the bits of binding. */
START_TEST(prefetched_inputs)
{
    static const char *const archs[] = {"sm_90"};
    static float x[64 * 6];
    atoll_error e = {0};
    atoll_plan *bound = NULL, *ahead = NULL;
    atoll_place where = place();
    atoll_view a, b;
    write_plan(archs, 1, false);
    ck_assert_msg(atoll_plan_open(path, &bound, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(_i == 0 ? atoll_plan_open_on(path, &where, &ahead, &e)
                             : atoll_plan_open(path, &ahead, &e),
                     ATOLL_OK);
    for (int i = 0; i < 6; i++) {
        int64_t n = i < 3 ? 5 : 17;
        batch(x, n, i);
        if (i == 0) {
            ck_assert_int_eq(atoll_plan_prefetch(ahead, "x", x, (int64_t[]){n, 6}, 2, &e),
                             ATOLL_OK);
        }
        ck_assert_int_eq(atoll_plan_bind(bound, "x", x, (int64_t[]){n, 6}, 2, &e), ATOLL_OK);
        ck_assert_msg(atoll_plan_step(bound, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(atoll_plan_step(ahead, &e) == ATOLL_OK, "%s", e.text);
        n = i + 1 < 3 ? 5 : 17;
        batch(x, n, i == 4 ? 99 : i + 1);
        ck_assert_int_eq(atoll_plan_prefetch(ahead, "x", x, (int64_t[]){n, 6}, 2, &e), ATOLL_OK);
        memset(x, 0xff, sizeof x); /* ours again */
        ck_assert_int_eq(atoll_plan_output(bound, "p", &a, &e), ATOLL_OK);
        ck_assert_int_eq(atoll_plan_output(ahead, "p", &b, &e), ATOLL_OK);
        same_view(&a, &b);
        if (i == 4) { /* bound after all: the last word counts */
            static float other[17 * 6];
            batch(other, 17, 5);
            ck_assert_int_eq(atoll_plan_bind(ahead, "x", other, (int64_t[]){17, 6}, 2, &e),
                             ATOLL_OK);
        }
    }
    ck_assert_int_eq(atoll_plan_prefetch(ahead, "z", x, (int64_t[]){5, 6}, 2, &e), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_plan_prefetch(ahead, "x", x, (int64_t[]){5, 7}, 2, &e), ATOLL_SHAPE);
    ck_assert_msg(atoll_plan_step(ahead, NULL) == ATOLL_OK, "what was prefetched before stands");
    atoll_plan_close(bound);
    atoll_plan_close(ahead);
}
END_TEST

/* ---- code that the device does not run ---- */

/* Steps p on the device beside the same plan on the CPU; closes both. */
static void same_as_cpu(atoll_plan *p)
{
    static const char *const names[] = {"loss", "p", "q"};
    atoll_error e = {0};
    atoll_plan *here = NULL;
    atoll_view a, b;
    ck_assert_msg(atoll_plan_open(path, &here, &e) == ATOLL_OK, "%s", e.text);
    for (int i = 0; i < 4; i++) {
        step(here, 3 + i / 2, i);
        step(p, 3 + i / 2, i);
        for (uint32_t k = 0; k < ARRAY_LEN(names); k++) {
            ck_assert_int_eq(atoll_plan_output(here, names[k], &a, &e), ATOLL_OK);
            ck_assert_int_eq(atoll_plan_output(p, names[k], &b, &e), ATOLL_OK);
            same_view(&a, &b);
        }
        ck_assert_int_eq(atoll_plan_state(here, "w", &a, &e), ATOLL_OK);
        ck_assert_int_eq(atoll_plan_state(p, "w", &b, &e), ATOLL_OK);
        same_view(&a, &b);
    }
    atoll_plan_close(here);
    atoll_plan_close(p);
}

/* Code for a newer architecture, or none for any: the graph is compiled again, for this one. */
START_TEST(no_code_for_it)
{
    static const char *const archs[] = {"sm_120"};
    const uint32_t n = (uint32_t)_i; /* architectures in the plan */
    atoll_error e = {0};
    atoll_plan *p = NULL;
    atoll_place where = place();
    write_plan(archs, n, false);
    ck_assert_msg(atoll_plan_open_on(path, &where, &p, &e) == ATOLL_OK, "%s", e.text);
    const char *notice = atoll_plan_notice(p);
    ck_assert_ptr_nonnull(notice);
    ck_assert_ptr_nonnull(strstr(notice, "compiled again for cuda:0"));
    ck_assert_ptr_nonnull(strstr(notice, n > 0 ? "compiled for sm_120" : "no kernel for cuda:0"));
    same_as_cpu(p);
    where.libnvrtc = "/none";
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(e.text, n > 0 ? "compiled for sm_120" : "no kernel for cuda:0"));
    ck_assert_ptr_nonnull(strstr(e.text, "--target cuda:sm_"));
    ck_assert_msg(strstr(e.text, "/none") != NULL, "%s", e.text);
}
END_TEST

/* The driver refuses a module of the plan, and the kernel in it when compiled again: its group runs
 * one op at a time. */
START_TEST(refused_group_runs_op_by_op)
{
    static const char *const archs[] = {"sm_80"};
    atoll_error e = {0};
    atoll_plan *p = NULL;
    atoll_place where = place();
    write_plan(archs, 1, false);
    setenv("ATOLL_EMULATOR_REFUSE", "mul_div", 1);
    status code = atoll_plan_open_on(path, &where, &p, &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    const char *notice = atoll_plan_notice(p);
    ck_assert_ptr_nonnull(notice);
    ck_assert_msg(strstr(notice, "1 groups one op at a time") != NULL, "%s", notice);
    ck_assert_ptr_nonnull(strstr(notice, "refused, as ATOLL_EMULATOR_REFUSE wants"));
    same_as_cpu(p);
    where.libnvrtc = "/none";
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, &e), ATOLL_DEVICE);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(e.text, "refused"));
    ck_assert_ptr_nonnull(strstr(e.text, "driver (for CUDA"));
    ck_assert_msg(strstr(e.text, "/none") != NULL, "%s", e.text);
    e = (atoll_error){0};
    where.libnvrtc = NULL;
    setenv("ATOLL_EMULATOR_REFUSE", "k", 1); /* single ops, too: nothing smaller to run */
    ck_assert_int_ne(atoll_plan_open_on(path, &where, &p, &e), ATOLL_OK);
    ck_assert_ptr_nonnull(strstr(e.text, "refused"));
    unsetenv("ATOLL_EMULATOR_REFUSE");
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, NULL), ATOLL_OK);
    ck_assert_ptr_null(atoll_plan_notice(p)); /* its own code, again */
    atoll_plan_close(p);
}
END_TEST

START_TEST(only_for_the_device)
{
    static const char *const archs[] = {"sm_80"}; /* its PTX runs on what came later */
    atoll_error e = {0};
    atoll_plan *p = NULL;
    atoll_place where = place();
    write_plan(archs, 1, true);
    ck_assert_msg(atoll_plan_open_on(path, &where, &p, &e) == ATOLL_OK, "%s", e.text);
    step(p, 3, 1);
    atoll_plan_close(p);
    ck_assert_int_eq(atoll_plan_open(path, &p, &e), ATOLL_OK);
    float x[18] = {0};
    ck_assert_int_eq(atoll_plan_bind(p, "x", x, (int64_t[]){3, 6}, 2, &e), ATOLL_OK);
    ck_assert_int_eq(atoll_plan_step(p, &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "--target cpu"));
    atoll_plan_close(p);
}
END_TEST

START_TEST(bad_devices)
{
    static const char *const archs[] = {"sm_90"};
    atoll_error e = {0};
    atoll_plan *p = NULL;
    atoll_place where = place();
    write_plan(archs, 1, true);
    where.device = "cuda:77";
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, &e), ATOLL_NOT_FOUND);
    e = (atoll_error){0};
    where.device = "tpu:0";
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, &e), ATOLL_USAGE);
    ck_assert_ptr_null(p);
}
END_TEST

/* ---- algorithms of matrix products ---- */

static const char PRODUCTS[] = "graph @g(%x: f32[8,16] input, %w: f32[4,16] param) {\n"
                               "  %y = linear(%x, %w)\n  return y=%y\n}\n";
static char logged[2000];

static void keep_line(void *context, const char *category, const char *line)
{
    (void)context;
    ck_assert_str_eq(category, "kernels");
    strncat(logged, line, sizeof logged - strlen(logged) - 1);
}

static struct device *logging_device(void)
{
    struct error e = {0};
    struct device *d = NULL;
    struct device_options o = {.libcuda = getenv("ATOLL_LIBCUDA"),
                               .libcublaslt = getenv("ATOLL_LIBCUBLASLT"),
                               .log = keep_line};
    logged[0] = '\0';
    ck_assert_msg(device_open("cuda:0", &o, &d, &e) == ATOLL_OK, "%s", e.text);
    return d;
}

enum change { AS_IT_WAS, MARKED, OTHER_WORDS, OTHER_LIBRARY, OTHER_ARCH, NOT_RECORDED };

static const struct {
    enum change change;
    const char *reason; /* logged; NULL: nothing */
} choices[] = {
    {AS_IT_WAS, NULL},
    {MARKED, NULL},
    {OTHER_WORDS, "chosen again: cublasLtMatmulAlgoCheck gives status"},
    {OTHER_LIBRARY, "chosen again: it is of cuBLASLt 1, this is cuBLASLt"},
    {OTHER_ARCH, "chosen again: it is for sm_10, this is sm_"},
    {NOT_RECORDED, NULL},
};

static void change(struct contraction_choice *c, enum change how)
{
    c->algorithm[7] = how == MARKED ? 77 : c->algorithm[7]; /* a word the emulator leaves alone */
    c->algorithm[0] ^= how == OTHER_WORDS;
    c->library = how == OTHER_LIBRARY ? 1 : c->library;
    if (how == OTHER_ARCH) {
        strcpy(c->arch, "sm_10");
    }
}

static void write_products(enum change how)
{
    struct error e = {0};
    struct runner r = {0};
    struct device *d = logging_device();
    const char *const archs[] = {d->arch};
    struct compile_options o = {.cuda_archs = archs, .n_cuda_archs = 1, .skips_c = true};
    o.cache = shared_kernels();
    o.libnvrtc = getenv("ATOLL_LIBNVRTC");
    struct graph *g = graph_parse(PRODUCTS, strlen(PRODUCTS), "products", &e);
    ck_assert_msg(compile_primitive(g, &o, &r.compiled, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_from(&r, 5, &e) == ATOLL_OK, "%s", e.text);
    if (how != NOT_RECORDED) {
        struct contraction_choice changed;
        ck_assert_msg(runner_choose(&r, d, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_uint_eq(r.compiled.cuda.n_choices, 1);
        ck_assert_ptr_nonnull(strstr(r.compiled.cuda.choices[0].what, "M 8 N 4 K 16, b (N,K)"));
        changed = r.compiled.cuda.choices[0];
        change(&changed, how);
        r.compiled.cuda.choices = &changed;
        ck_assert_msg(runner_write_plan(&r, path, "test\n", &e) == ATOLL_OK, "%s", e.text);
    } else {
        ck_assert_msg(runner_write_plan(&r, path, "test\n", &e) == ATOLL_OK, "%s", e.text);
    }
    runner_free(&r);
    device_close(d);
}

/* A recorded algorithm is what the step takes, while it holds; else the heuristic's, and the log
 * says why. */
START_TEST(recorded_algorithms)
{
    struct error e = {0};
    struct runner r;
    const struct contraction_choice *taken = NULL;
    uint32_t n = 0;
    float x[8 * 16];
    write_products(choices[_i].change);
    struct device *d = logging_device();
    ck_assert_msg(runner_open_plan_on(&r, path, &(struct compile_options){.device = d}, &e) ==
                      ATOLL_OK,
                  "%s", e.text);
    ck_assert_uint_eq(r.file.cuda.n_choices, choices[_i].change != NOT_RECORDED);
    for (int i = 0; i < 8 * 16; i++) {
        x[i] = (float)(i % 7);
    }
    struct tensor t = {.dtype = F32, .rank = 2, .shape = {8, 16}, .data = x};
    ck_assert_msg(runner_input(&r, "x", &t, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(d->backend->choices(d, &taken, &n, &e), ATOLL_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(taken->algorithm[7], choices[_i].change == MARKED ? 77 : 0);
    if (choices[_i].reason != NULL) {
        ck_assert_msg(strstr(logged, choices[_i].reason) != NULL, "%s", logged);
    } else {
        ck_assert_str_eq(logged, "");
    }
    runner_free(&r);
    device_close(d);
}
END_TEST

static void keep_reason(void *context, const char *category, const char *line)
{
    (void)context;
    if (strcmp(category, "kernels") == 0 && strstr(line, "again") != NULL) {
        strncat(logged, line, sizeof logged - strlen(logged) - 1);
    }
}

/* The runner of the command line does what the public call does, and logs it. */
START_TEST(runner_compiles_again)
{
    struct error e = {0};
    struct runner here, there;
    struct device *d = logging_device();
    struct compile_options o = {.device = d,
                                .cache = shared_kernels(),
                                .libnvrtc = getenv("ATOLL_LIBNVRTC"),
                                .log = keep_reason};
    write_plan(NULL, 0, false);
    ck_assert_msg(runner_open_plan(&here, path, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_open_plan_on(&there, path, &o, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_str_eq(here.notice, "");
    ck_assert_ptr_nonnull(strstr(there.notice, "compiled again for cuda:0"));
    ck_assert_str_eq(logged, there.notice);
    ck_assert_int_eq(runner_bind(&here, (int64_t[MAX_SYMBOLS]){0, 3}, &e), ATOLL_OK);
    ck_assert_int_eq(runner_bind(&there, (int64_t[MAX_SYMBOLS]){0, 3}, &e), ATOLL_OK);
    ck_assert_int_eq(runner_step(&here, &e), ATOLL_OK);
    ck_assert_msg(runner_step(&there, &e) == ATOLL_OK, "%s", e.text);
    struct tensor a = runner_output(&here, "q"), b = runner_output(&there, "q");
    ck_assert_mem_eq(a.data, b.data, tensor_bytes(&a));
    runner_free(&here);
    runner_free(&there);
    device_close(d);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, runner_compiles_again);
    tcase_add_loop_test(tc, recorded_algorithms, 0, (int)ARRAY_LEN(choices));
    tcase_add_test(tc, device_is_cpu);
    tcase_add_loop_test(tc, prefetched_inputs, 0, 2);
    tcase_add_test(tc, threads_and_plans);
    tcase_add_loop_test(tc, no_code_for_it, 0, 2);
    if (is_emulated) {
        tcase_add_test(tc, refused_group_runs_op_by_op);
    }
    tcase_add_test(tc, only_for_the_device);
    tcase_add_test(tc, bad_devices);
}

int main(void)
{
    struct device *device = device_of_suite();
    if (device == NULL) {
        return SKIPPED;
    }
    is_emulated = strstr(device->name, "emulated") != NULL;
    device_close(device);
    snprintf(path, sizeof path, "/tmp/atoll_cuda_plan_%ld.plan", (long)getpid());
    int code = run_suite("cuda_plan", fill);
    unlink(path);
    return code;
}
