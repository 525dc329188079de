/* The pool of pinned buffers and the loader: counts, reuse only after the copy, the bits of runs
 * with and without prefetching, no wait of the host; and, planted through a driver that lies, the
 * faults that they exist to prevent: each is found by its name. */
#include "cuda_suite.h"

#include <dlfcn.h>

#include "frontend/runner.h"
#include "ir/parse.h"
#include "runtime/loader.h"

static struct device *device; /* behind a driver that can lie */
static void (*lie)(const char *name, int nth);
static int (*seen)(void);
static int (*findings)(char *text, size_t size); /* the emulator's; NULL on a real device */
static void (*forget_findings)(void);

/* No matrix product: the CPU's bits are the device's. */
static const char MODEL[] = "graph @g(%x: f32[n,6] input, %i: i64[n] input, %w: f32[6] param) {\n"
                            "  %a = mul(%x, %w)\n"
                            "  %p = softmax(%a)\n"
                            "  %loss = cross_entropy(%a, %i)\n"
                            "  %s = sum(%a) {axes=[0]}\n"
                            "  %c = constant() {value=0.01, dtype=f32}\n"
                            "  %d = mul(%s, %c)\n"
                            "  %v = sub(%w, %d)\n"
                            "  update %w <- %v\n"
                            "  return loss=%loss, p=%p\n}\n";

static bool has_finding(const char *name)
{
    static char text[65536];
    text[0] = '\0';
    (void)findings(text, sizeof text);
    forget_findings();
    return strstr(text, name) != NULL;
}

static void want_no_findings(void)
{
    static char text[65536];
    ck_assert_msg(findings == NULL || findings(text, sizeof text) == 0, "%s", text);
}

/* ---- the pool ---- */

START_TEST(pool_counts)
{
    struct error e = {0};
    struct pinned_pool *p = pinned_pool_create(_i == 0 ? device : NULL);
    struct pinned_buffer *a, *b, *c;
    ck_assert_int_eq(pinned_take(p, 1000, &a, &e), ATOLL_OK);
    ck_assert_int_eq(pinned_take(p, 1000, &b, &e), ATOLL_OK);
    ck_assert_ptr_ne(a, b);
    ck_assert_uint_eq(pinned_pool_counts(p).allocated, 2 * 1024);
    pinned_give(p, b);
    ck_assert_uint_eq(pinned_pool_counts(p).allocated, 1024);
    ck_assert_uint_eq(pinned_pool_counts(p).reserved, 2 * 1024);
    ck_assert_int_eq(pinned_take(p, 900, &c, &e), ATOLL_OK);
    ck_assert_ptr_eq(c, b); /* it fits */
    pinned_give(p, c);
    ck_assert_int_eq(pinned_take(p, 100, &c, &e), ATOLL_OK);
    ck_assert_ptr_ne(c, b); /* it would waste more than half */
    ck_assert_uint_eq(pinned_pool_counts(p).reserved, 2 * 1024 + 128);
    ck_assert_uint_eq(pinned_pool_counts(p).peak_allocated, 2 * 1024);
    ck_assert_uint_eq(pinned_pool_counts(p).peak_reserved, 2 * 1024 + 128);
    pinned_give(p, a);
    pinned_give(p, c);
    ck_assert_uint_eq(pinned_pool_counts(p).allocated, 0);
    ck_assert_uint_eq(pinned_pool_counts(p).waits, 0); /* nothing was copied */
    pinned_pool_destroy(p);
}
END_TEST

/* Copies from buffers of a pool, each given back at once and taken again, and returns the waits. */
static uint64_t copy_often(struct error *e)
{
    enum { BYTES = 4096 };
    struct pinned_pool *p = pinned_pool_create(device);
    void *to = NULL;
    ck_assert_int_eq(device->backend->allocate(device, BYTES, &to, e), ATOLL_OK);
    for (int i = 0; i < 8; i++) {
        struct pinned_buffer *b;
        ck_assert_msg(pinned_take(p, BYTES, &b, e) == ATOLL_OK, "%s", e->text);
        memset(b->memory, i + 1, BYTES);
        ck_assert_int_eq(device->backend->upload(device, to, b->memory, BYTES, e), ATOLL_OK);
        ck_assert_int_eq(pinned_copying(p, b, e), ATOLL_OK);
        pinned_give(p, b);
    }
    ck_assert_uint_eq(pinned_pool_counts(p).reserved, BYTES); /* always the same one */
    uint64_t waits = pinned_pool_counts(p).waits;
    pinned_pool_destroy(p);
    ck_assert_int_eq(device->backend->wait(device, e), ATOLL_OK);
    device->backend->release(device, to);
    return waits;
}

/* A buffer that is still copied from is not handed out. Where the event lies, the emulator sees
 * what happens: the pool's wait is what prevents it. */
START_TEST(early_overwrite)
{
    struct error e = {0};
    uint64_t waits = copy_often(&e);
    want_no_findings();
    if (findings != NULL) {
        ck_assert_uint_gt(waits, 0); /* nothing runs there before somebody waits */
        lie("cuEventQuery", 0);
        (void)copy_often(&e);
        lie("", -1);
        ck_assert(has_finding("pinned buffer touched while its copy was pending"));
    }
}
END_TEST

/* ---- with and without prefetching ---- */

static void open_runner(struct runner *r, bool is_here, bool is_eager)
{
    struct error e = {0};
    struct compile_options o = {.device = is_here ? NULL : device,
                                .is_eager = is_eager,
                                .cache = shared_kernels(),
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    struct graph *g = graph_parse(MODEL, strlen(MODEL), "test", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(runner_open(r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
}

enum { MOST = 40 };
static float rows[MOST * 6];
static int64_t labels[MOST];

static void give_batch(struct runner *r, int i, bool is_ahead)
{
    struct error e = {0};
    int64_t n = i < 4 ? 5 : i < 7 ? MOST : 3; /* sizes change */
    for (int64_t k = 0; k < n * 6; k++) {
        rows[k] = (float)((k * 7 + i * 5) % 23) * 0.125F - 1.0F;
    }
    for (int64_t k = 0; k < n; k++) {
        labels[k] = (k + i) % 6;
    }
    struct tensor x = {.dtype = F32, .rank = 2, .shape = {n, 6}, .data = rows},
                  y = {.dtype = I64, .rank = 1, .shape = {n}, .data = labels};
    status code = is_ahead ? runner_prefetch(r, "x", &x, &e) : runner_input(r, "x", &x, &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    code = is_ahead ? runner_prefetch(r, "i", &y, &e) : runner_input(r, "i", &y, &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    memset(rows, 0xff, sizeof rows); /* they are ours again */
    memset(labels, 0xff, sizeof labels);
}

static void same_tensor(const struct tensor *a, const struct tensor *b)
{
    ck_assert_uint_eq(tensor_bytes(a), tensor_bytes(b));
    ck_assert_mem_eq(a->data, b->data, tensor_bytes(a));
}

static void same_state(struct runner *a, struct runner *b)
{
    static const char *const names[] = {"loss", "p"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tensor x = runner_output(a, names[i]), y = runner_output(b, names[i]);
        same_tensor(&x, &y);
    }
    same_tensor(runner_leaf(a, "w"), runner_leaf(b, "w"));
}

/* fused and eager on the device, fused and eager on the CPU: each with prefetching against the CPU
 * without. */
START_TEST(same_bits)
{
    struct error e = {0};
    struct runner plain, ahead;
    open_runner(&plain, true, true);
    open_runner(&ahead, _i >= 2, _i % 2 != 0);
    give_batch(&ahead, 0, true);
    for (int i = 0; i < 10; i++) {
        give_batch(&plain, i, false);
        ck_assert_msg(runner_step(&plain, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&ahead, &e) == ATOLL_OK, "%s", e.text);
        if (i < 9) {
            give_batch(&ahead, i + 1, true); /* the outputs of step i are not yet looked at */
        }
        same_state(&plain, &ahead);
        if (i == 5) { /* what comes last counts: a batch that is not to be */
            give_batch(&ahead, 2, true);
            give_batch(&ahead, i + 1, false);
        }
    }
    runner_free(&plain);
    runner_free(&ahead);
    want_no_findings();
}
END_TEST

/* An input of the last step, asked for by the host: what the step read; and one that is wrong. */
START_TEST(what_the_host_sees)
{
    struct error e = {0};
    struct runner r;
    float first;
    open_runner(&r, _i != 0, false);
    give_batch(&r, 0, true);
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_OK);
    give_batch(&r, 1, true);
    memcpy(&first, runner_leaf(&r, "x")->data, sizeof first);
    ck_assert(first == -1.0F);
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_OK);
    int64_t wrong[3] = {0, 77, 1};
    float x[18] = {0};
    struct tensor t = {.dtype = I64, .rank = 1, .shape = {3}, .data = wrong},
                  u = {.dtype = F32, .rank = 2, .shape = {3, 6}, .data = x};
    ck_assert_int_eq(runner_prefetch(&r, "i", &t, &e), ATOLL_OK);
    ck_assert_int_eq(runner_prefetch(&r, "x", &u, &e), ATOLL_OK);
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_DATA); /* the check sees the batch that would run */
    ck_assert_ptr_nonnull(strstr(e.text, "77"));
    e = (struct error){0};
    ck_assert_int_eq(runner_prefetch(&r, "none", &t, &e), ATOLL_NOT_FOUND);
    e = (struct error){0};
    ck_assert_int_eq(runner_prefetch(&r, "x", &t, &e), ATOLL_SHAPE);
    e = (struct error){0};
    u.shape[0] = 2;
    ck_assert_int_eq(runner_prefetch(&r, "x", &u, &e), ATOLL_OK); /* two rows, and three labels */
    ck_assert_int_eq(runner_prefetch(&r, "i", &t, &e), ATOLL_OK);
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_SHAPE);
    ck_assert_msg(strstr(e.text, "prefetched") != NULL, "%s", e.text);
    runner_free(&r);
    want_no_findings();
}
END_TEST

/* ---- order ---- */

/* Steps ahead of the reader until all is as it will stay. */
static void warm_up(struct runner *r)
{
    struct error e = {0};
    open_runner(r, false, false);
    for (int i = 0; i < 4; i++) {
        give_batch(r, 0, true);
        ck_assert_msg(runner_step(r, &e) == ATOLL_OK, "%s", e.text);
        (void)runner_number(r, "loss");
    }
}

/* Neither putting a batch nor the step that takes it waits for the device. */
START_TEST(no_wait_of_the_host)
{
    struct error e = {0};
    struct runner r;
    warm_up(&r);
    lie("Synchronize", -1);
    give_batch(&r, 1, true);
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_OK);
    give_batch(&r, 2, true); /* while that step runs */
    ck_assert_int_eq(seen(), 0);
    (void)runner_number(&r, "loss");
    ck_assert_int_eq(seen(), 1);
    lie("", -1);
    struct pinned_counts n = session_pinned(r.session);
    ck_assert_uint_eq(n.waits, 0);
    ck_assert_uint_eq(n.reserved, 2 * (128 + 64)); /* two buffers an input */
    ck_assert_uint_eq(n.peak_allocated, n.reserved);
    runner_free(&r);
}
END_TEST

/* A step has two orders between its streams: uploads wait until the last step has read its batch,
 * the step waits for the uploads. Each of them left out is found. */
START_TEST(missing_wait)
{
    struct error e = {0};
    struct runner r;
    warm_up(&r);
    for (int i = 0; i < 3; i++) { /* the first under way, not waited for, when the lies begin */
        give_batch(&r, i, true);
        ck_assert_int_eq(runner_step(&r, &e), ATOLL_OK);
        if (i == 0) {
            lie("cuStreamWaitEvent", _i); /* -1: none, to begin with */
        }
    }
    ck_assert_int_eq(seen(), 4);
    lie("", -1);
    (void)runner_number(&r, "loss");
    runner_free(&r);
    ck_assert_int_eq(has_finding("missing order between streams"), _i > 0);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, pool_counts, 0, 2);
    tcase_add_test(tc, early_overwrite);
    tcase_add_loop_test(tc, same_bits, 0, 4);
    tcase_add_loop_test(tc, what_the_host_sees, 0, 2);
    tcase_add_test(tc, no_wait_of_the_host);
    if (findings != NULL) {
        tcase_add_loop_test(tc, missing_wait, -1, 0);
        tcase_add_loop_test(tc, missing_wait, 1, 5);
    }
}

static void *function_of(void *library, const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

int main(void)
{
    struct error e = {0};
    struct nvrtc *nvrtc = nvrtc_for_tests();
    const char *stub = getenv("ATOLL_FAILING_CUDA"), *real = getenv("ATOLL_LIBCUDA");
    struct device_options o = {.libcuda = stub, .libcublaslt = getenv("ATOLL_LIBCUBLASLT")};
    nvrtc_close(nvrtc);
    if (nvrtc == NULL || stub == NULL) {
        printf("skipped: needs NVRTC, and ATOLL_FAILING_CUDA set as ctest does\n");
        return SKIPPED;
    }
    if (real != NULL) {
        setenv("ATOLL_REAL_LIBCUDA", real, 1);
    }
    setenv("CK_FORK", "no", 1); /* a device's context does not survive a fork */
    if (device_open("cuda:0", &o, &device, &e) != ATOLL_OK) {
        printf("skipped: %s\n", e.text);
        return SKIPPED;
    }
    void *library = dlopen(stub, RTLD_NOW | RTLD_LOCAL),
         *emulator = real != NULL ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *f[] = {function_of(library, "failing_cuda_lie"),
                 function_of(library, "failing_cuda_seen"),
                 function_of(emulator, "atoll_emulator_findings"),
                 function_of(emulator, "atoll_emulator_forget_findings")};
    memcpy(&lie, &f[0], sizeof lie);
    memcpy(&seen, &f[1], sizeof seen);
    memcpy(&findings, &f[2], sizeof findings);
    memcpy(&forget_findings, &f[3], sizeof forget_findings);
    int result = run_suite("cuda_loader", fill);
    device_close(device);
    return result;
}
