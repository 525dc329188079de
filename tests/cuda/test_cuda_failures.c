/* Every driver call fails once: opening the device, loading, binding, steps (launched, recorded,
 * replayed), reading back. Each failure is a status that names the call; nothing crashes, and what
 * was taken is given back: afterwards the same work runs through. */
#include "cuda_suite.h"

#include <dlfcn.h>

#include "frontend/runner.h"
#include "ir/parse.h"

static const char GRAPH[] = "graph @g(%x: f32[n,6] input, %w: f32[6] param) {\n"
                            "  %a = mul(%x, %w)\n"
                            "  %p = softmax(%a)\n"
                            "  %loss = sum(%p)\n"
                            "  %s = sum(%a) {axes=[0]}\n"
                            "  %v = sub(%w, %s)\n"
                            "  update %w <- %v\n"
                            "  return loss=%loss, p=%p\n}\n";

static const char *stub;
static void (*fail_at)(int call);
static int (*calls)(void);
static int n_working;            /* calls up to the point where things are given back */
static struct compiled compiled; /* compiled once, for the device's architecture */

static status run_steps(struct session *s, struct error *e)
{
    const struct graph *g = compiled.primitive;
    for (int i = 0; i < 5; i++) {
        int64_t symbols[MAX_SYMBOLS] = {0, i < 3 ? 4 : 9};
        TRY(session_bind(s, symbols, e));
        struct tensor *x = session_leaf(s, graph_find(g, "x"));
        for (int64_t k = 0; k < tensor_count(x); k++) {
            ((float *)x->data)[k] = (float)(k % 5) * 0.5F;
        }
        TRY(session_step(s, e));
        struct tensor p = session_output(s, 1);
        if (p.data == NULL) {
            return session_step(s, e); /* says why */
        }
        float first;
        memcpy(&first, p.data, sizeof first);
        if (!(first >= 0.0F && first <= 1.0F)) {
            return fail(e, ATOLL_CHECK_FAILED, "softmax gave %g", (double)first);
        }
    }
    (void)session_leaf(s, graph_find(g, "w"));
    int64_t symbols[MAX_SYMBOLS] = {0, 9};
    TRY(session_bind(s, symbols, e));
    return session_step(s, e);
}

static status whole(struct error *e)
{
    struct device *d = NULL;
    struct device_options o = {.libcuda = stub};
    struct device_code code;
    struct device_image *images = cuda_code_images(&compiled.cuda, &code);
    status result = device_open("cuda:0", &o, &d, e);
    struct session *s =
        result == ATOLL_OK ? session_create_on(&compiled.program, d, &code, e) : NULL;
    if (s != NULL) {
        result = run_steps(s, e);
    } else if (result == ATOLL_OK) {
        result = e->code;
    }
    n_working = calls();
    session_destroy(s);
    device_close(d);
    free(images);
    return result;
}

START_TEST(every_call)
{
    struct error e = {0};
    fail_at(0);
    ck_assert_msg(whole(&e) == ATOLL_OK, "%s", e.text);
    int n = n_working;
    uint32_t unnoticed = 0; /* a cubin that does not load is replaced by its PTX */
    ck_assert_int_gt(n, 60);
    for (int i = 1; i <= n; i++) {
        e = (struct error){0};
        fail_at(i);
        status code = whole(&e);
        unnoticed += code == ATOLL_OK;
        ck_assert_msg(unnoticed <= compiled.cuda.n_units, "call %d of %d failed unnoticed", i, n);
        ck_assert_msg(code == ATOLL_OK || strstr(e.text, "cu") != NULL ||
                          strstr(e.text, "memory") != NULL ||
                          strstr(e.text, "not in the modules") != NULL,
                      "call %d: %s", i, e.text);
    }
    e = (struct error){0};
    fail_at(0);
    ck_assert_msg(whole(&e) == ATOLL_OK, "afterwards: %s", e.text);
    printf("%d driver calls, each failed once\n", n);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, every_call);
}

static status compile_for(const struct device *d, struct error *e)
{
    const char *const archs[] = {d->arch};
    struct compile_options o = {.cuda_archs = archs,
                                .n_cuda_archs = 1,
                                .skips_c = true,
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    struct graph *g = graph_parse(GRAPH, strlen(GRAPH), "test", e);
    if (g == NULL) {
        return e->code;
    }
    status code = compile_graph(g, &o, &compiled, e);
    graph_destroy(g);
    return code;
}

int main(void)
{
    struct error e = {0};
    struct nvrtc *nvrtc = nvrtc_for_tests();
    stub = getenv("ATOLL_FAILING_CUDA");
    struct device *d = nvrtc != NULL && stub != NULL ? device_for_tests() : NULL;
    nvrtc_close(nvrtc);
    if (d == NULL) {
        printf("skipped: needs NVRTC, a device, and ATOLL_FAILING_CUDA set as ctest does\n");
        return SKIPPED;
    }
    if (getenv("ATOLL_LIBCUDA") != NULL) {
        setenv("ATOLL_REAL_LIBCUDA", getenv("ATOLL_LIBCUDA"), 1);
    }
    setenv("CK_FORK", "no", 1); /* a device's context does not survive a fork */
    void *library = dlopen(stub, RTLD_NOW | RTLD_LOCAL);
    void *at = library != NULL ? dlsym(library, "failing_cuda_at") : NULL;
    void *count = library != NULL ? dlsym(library, "failing_cuda_calls") : NULL;
    status code = compile_for(d, &e);
    device_close(d);
    if (at == NULL || count == NULL || code != ATOLL_OK) {
        printf("cannot start: %s\n", e.text);
        return EXIT_FAILURE;
    }
    memcpy(&fail_at, &at, sizeof at);
    memcpy(&calls, &count, sizeof count);
    int result = run_suite("cuda_failures", fill);
    compiled_free(&compiled);
    dlclose(library);
    return result;
}
