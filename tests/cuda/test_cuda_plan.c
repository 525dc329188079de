/* Plans with CUDA code through the public API: what a C program sees on a device is what it sees on
 * the CPU; a plan without code for either says so; sections that do not fit are refused. */
#include "cuda_suite.h"

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

START_TEST(no_code_for_it)
{
    static const char *const archs[] = {"sm_120"};
    atoll_error e = {0};
    atoll_plan *p = NULL;
    atoll_place where = place();
    write_plan(archs, 1, true);
    ck_assert_int_eq(atoll_plan_open_on(path, &where, &p, &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(e.text, "compiled for sm_120"));
    ck_assert_ptr_nonnull(strstr(e.text, "--target cuda:sm_"));
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

static void fill(TCase *tc)
{
    tcase_add_test(tc, device_is_cpu);
    tcase_add_test(tc, no_code_for_it);
    tcase_add_test(tc, only_for_the_device);
    tcase_add_test(tc, bad_devices);
}

int main(void)
{
    struct nvrtc *nvrtc = nvrtc_for_tests();
    if (nvrtc == NULL) {
        return SKIPPED;
    }
    nvrtc_close(nvrtc);
    setenv("CK_FORK", "no", 1); /* a device's context does not survive a fork */
    struct device *device = device_for_tests();
    if (device == NULL) {
        return SKIPPED;
    }
    device_close(device);
    snprintf(path, sizeof path, "/tmp/atoll_cuda_plan_%ld.plan", (long)getpid());
    int code = run_suite("cuda_plan", fill);
    unlink(path);
    return code;
}
