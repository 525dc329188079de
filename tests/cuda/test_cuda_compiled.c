/* Compiled functions on a device: over a sequence of calls the bits of the CPU where no matrix
 * product is in it, and always those of one op at a time there; host reads, what is kept, training
 * steps, gradients; the device is part of the key of a plan and named in the ledger; a kernel that
 * the driver refuses; errors leave what is kept as it was; threads. */
#include "cuda_suite.h"

#include <dlfcn.h>
#include <pthread.h>

#include "tests/small_compiled.h"

static bool is_emulated;
static void (*watch)(const char *name, int nth); /* of a driver that counts; NULL: none here */
static int (*seen)(void);
static const atoll_compile_options here = {.seed = 3}, there = {.seed = 3, .device = "cuda:0"},
                                   eager_there = {.seed = 3, .device = "cuda:0", .is_eager = 1};

enum { COLUMNS = 6, MOST = 40 };

/* What a call saw on the host. */
struct sight {
    double seen[2];
    double scale;
};

/* No matrix product: a param, a scalar, a buffer that each call moves on, and two reads. */
static void walk(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    struct sight *s = context;
    (void)n;
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(COLUMNS), "normal:0.5");
    atoll_value last = atoll_buffer(t, "last", ATOLL_F32, ATOLL_DIMS(COLUMNS), "zeros");
    atoll_value scale = atoll_scalar(t, "scale", ATOLL_F32, s->scale);
    atoll_value h = atoll_add(atoll_mul(a[0], w), last);
    s->seen[0] = atoll_item(atoll_mean(h));
    atoll_value p = atoll_softmax(s->seen[0] > 0.1 ? atoll_mul(h, scale) : atoll_sub(h, scale));
    s->seen[1] = atoll_item(atoll_max(p));
    atoll_update(last, atoll_mean(p, .axes = ATOLL_DIMS(0)));
    atoll_output(t, "p", p);
    atoll_output(t, "spread",
                 atoll_sub(atoll_max(p), atoll_number(t, s->seen[1] > 0.5 ? 1.0 : 0.5)));
}

/* One fused kernel. */
static void weighted(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(COLUMNS), "normal:0.5");
    atoll_output(t, "p", atoll_softmax(atoll_mul(a[0], w)));
}

/* A perceptron. */
static void perceptron(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value w1 = atoll_param(t, "w1", ATOLL_F32, ATOLL_DIMS(8, COLUMNS), "normal:0.3");
    atoll_value b1 = atoll_param(t, "b1", ATOLL_F32, ATOLL_DIMS(8), "zeros");
    atoll_value w2 = atoll_param(t, "w2", ATOLL_F32, ATOLL_DIMS(4, 8), "normal:0.3");
    atoll_value z = atoll_linear(atoll_gelu(atoll_linear(a[0], w1, b1)), w2);
    atoll_output(t, "logits", z);
    atoll_output(t, "loss", atoll_cross_entropy(z, a[1]));
}

/* Rows and labels of call i, as many as it asks for: sizes come and go. */
static uint32_t batch(int i, float x[MOST * COLUMNS], int64_t y[MOST], atoll_view v[2])
{
    static const int64_t rows[] = {8, 8, 5, MOST, 1, 8};
    int64_t n = rows[i % 6];
    for (int64_t k = 0; k < n * COLUMNS; k++) {
        x[k] = (float)((k * 7 + i * 5) % 23) * 0.125F - 1.0F + (i % 2 != 0 ? 0.5F : 0.0F);
    }
    for (int64_t k = 0; k < n; k++) {
        y[k] = (k + i) % 4;
    }
    v[0] = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(n, COLUMNS), x);
    v[1] = atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(n), y);
    return 2;
}

static void call(atoll_compiled *f, const atoll_call_options *o, int i, uint32_t n_arguments,
                 void *context, atoll_results *r)
{
    float x[MOST * COLUMNS];
    int64_t y[MOST];
    atoll_view v[2];
    atoll_error error = {0};
    (void)batch(i, x, y, v);
    ck_assert_msg(atoll_call_with(f, o, v, n_arguments, context, r, &error) == ATOLL_OK, "%s",
                  error.text);
}

static void same_kept(atoll_compiled *a, atoll_compiled *b, const char *name)
{
    atoll_view p, q;
    ck_assert_int_eq(atoll_compiled_state(a, name, &p, NULL), ATOLL_OK);
    ck_assert_int_eq(atoll_compiled_state(b, name, &q, NULL), ATOLL_OK);
    ck_assert_uint_eq(p.bytes, q.bytes);
    ck_assert_msg(memcmp(p.data, q.data, p.bytes) == 0, "%s differs", name);
}

/* Fused and op by op on the device, against the CPU: results, what the host read and what is kept,
 * which the host writes to once. */
START_TEST(bits_of_the_cpu)
{
    atoll_compiled *f[2] = {open_with(walk, &here),
                            open_with(walk, _i == 0 ? &there : &eager_there)};
    atoll_results *r[2] = {atoll_results_create(), atoll_results_create()};
    for (int i = 0; i < 7; i++) {
        struct sight s[2];
        for (int k = 0; k < 2; k++) {
            s[k].scale = 1.0 + 0.25 * i;
            call(f[k], NULL, i, 1, &s[k], r[k]);
        }
        ck_assert_mem_eq(s[0].seen, s[1].seen, sizeof s[0].seen);
        same_result(r[0], r[1], "p");
        same_result(r[0], r[1], "spread");
        same_kept(f[0], f[1], "last");
        for (int k = 0; k < 2 && i == 4; k++) {
            atoll_view w;
            ck_assert_int_eq(atoll_compiled_state(f[k], "w", &w, NULL), ATOLL_OK);
            ((float *)w.data)[2] = 0.75F;
        }
    }
    ck_assert_uint_eq(counters(f[1]).breaks, 14);
    ck_assert_uint_gt(counters(f[1]).hits, 0);
    ck_assert_uint_eq(counters(f[0]).builds, counters(f[1]).builds);
    for (int k = 0; k < 2; k++) {
        atoll_results_destroy(r[k]);
        atoll_compiled_destroy(f[k]);
    }
}
END_TEST

static const struct {
    const char *policy;
    int with_gradients;
    const char *optimizer;
} ways[] = {{"fp32", 0, NULL}, {"bf16", 1, NULL}, {"fp16", 0, "adamw,lr=1e-2"}};

/* With matrix products: fused gives the bits of one op at a time, gradients and steps as well. */
START_TEST(fused_is_eager)
{
    static const char *const kept[] = {"w1", "b1", "w2"};
    atoll_compile_options a = there, b = eager_there;
    const atoll_call_options o = {.with_gradients = ways[_i].with_gradients};
    a.policy = b.policy = ways[_i].policy;
    a.optimizer = b.optimizer = ways[_i].optimizer;
    atoll_compiled *f[2] = {open_with(perceptron, &a), open_with(perceptron, &b)};
    atoll_results *r[2] = {atoll_results_create(), atoll_results_create()};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            call(f[k], o.with_gradients ? &o : NULL, i, 2, NULL, r[k]);
        }
        same_result(r[0], r[1], "loss");
        same_result(r[0], r[1], "logits");
        if (o.with_gradients) {
            same_result(r[0], r[1], "grad:w1");
            same_result(r[0], r[1], "grad:w2");
        }
        for (uint32_t k = 0; k < ARRAY_LEN(kept); k++) {
            same_kept(f[0], f[1], kept[k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        atoll_results_destroy(r[k]);
        atoll_compiled_destroy(f[k]);
    }
}
END_TEST

/* The device of one call: a plan of its own, and the ledger says why. */
START_TEST(device_is_in_the_key)
{
    const atoll_call_options on_device = {.device = "cuda:0"}, on_cpu = {.device = "cpu"};
    atoll_compiled *f = open_with(weighted, &here);
    call(f, NULL, 0, 1, NULL, NULL);
    call(f, &on_device, 0, 1, NULL, NULL);
    ck_assert_uint_eq(counters(f).builds, 2);
    call(f, &on_device, 0, 1, NULL, NULL);
    call(f, &on_cpu, 0, 1, NULL, NULL); /* that of the first call */
    call(f, NULL, 0, 1, NULL, NULL);
    ck_assert_uint_eq(counters(f).builds, 2);
    char *text = atoll_ledger_text(atoll_compiled_ledger(f));
    ck_assert_msg(strstr(text, "runs_on: cpu -> cuda:0") != NULL, "%s", text);
    free(text);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(what_is_missing)
{
    atoll_compile_options o = {.device = "cuda:77"};
    atoll_compiled *f = NULL;
    atoll_error e = {0};
    ck_assert_int_eq(atoll_compile(walk, &o, &f, &e), ATOLL_NOT_FOUND);
    ck_assert_ptr_null(f);
    e = (atoll_error){0};
    o.device = "tpu";
    ck_assert_int_eq(atoll_compile(walk, &o, &f, &e), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "expected cpu, cuda or cuda:N"));
    char *found = getenv("ATOLL_LIBNVRTC"), kept[512] = "";
    strncpy(kept, found != NULL ? found : "", sizeof kept - 1);
    setenv("ATOLL_LIBNVRTC", "/none", 1);
    f = open_with(walk, &there);
    float x[MOST * COLUMNS];
    int64_t y[MOST];
    atoll_view v[2];
    (void)batch(0, x, y, v);
    e = (atoll_error){0};
    ck_assert_int_eq(atoll_call(f, v, 1, &(struct sight){0}, NULL, &e), ATOLL_NOT_FOUND);
    ck_assert_msg(strstr(e.text, "NVRTC") != NULL, "%s", e.text);
    atoll_compiled_destroy(f);
    if (found != NULL) {
        setenv("ATOLL_LIBNVRTC", kept, 1);
    } else {
        unsetenv("ATOLL_LIBNVRTC");
    }
}
END_TEST

/* A label outside its axis, seen before anything runs: what is kept stays. */
START_TEST(an_error_changes_nothing)
{
    atoll_compile_options o = there;
    o.optimizer = "sgd,lr=0.1";
    atoll_compiled *f = open_with(perceptron, &o);
    atoll_view v[2], w;
    atoll_error e = {0};
    float x[MOST * COLUMNS], before[8 * COLUMNS];
    int64_t y[MOST];
    call(f, NULL, 0, 2, NULL, NULL);
    ck_assert_int_eq(atoll_compiled_state(f, "w1", &w, NULL), ATOLL_OK);
    memcpy(before, w.data, sizeof before);
    (void)batch(0, x, y, v);
    y[3] = 4;
    ck_assert_int_eq(atoll_call(f, v, 2, NULL, NULL, &e), ATOLL_DATA);
    ck_assert_mem_eq(before, w.data, sizeof before);
    call(f, NULL, 0, 2, NULL, NULL);
    ck_assert_mem_ne(before, w.data, sizeof before);
    atoll_compiled_destroy(f);
}
END_TEST

/* The driver refuses a fused kernel: its ops run one at a time, with the same bits. */
START_TEST(refused_kernel)
{
    atoll_compiled *f[2] = {open_with(weighted, &here), open_with(weighted, &there)};
    atoll_results *r[2] = {atoll_results_create(), atoll_results_create()};
    setenv("ATOLL_EMULATOR_REFUSE", "_mul_div", 1);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            call(f[k], NULL, i, 1, NULL, r[k]);
        }
        same_result(r[0], r[1], "p");
    }
    setenv("ATOLL_EMULATOR_REFUSE", "k", 1); /* single ops, too: nothing smaller to run */
    float x[MOST * COLUMNS];
    int64_t y[MOST];
    atoll_view v[2];
    atoll_error e = {0};
    (void)batch(4, x, y, v);
    ck_assert_int_ne(atoll_call(f[1], v, 1, NULL, r[1], &e), ATOLL_OK);
    ck_assert_msg(strstr(e.text, "refused") != NULL, "%s", e.text);
    unsetenv("ATOLL_EMULATOR_REFUSE");
    call(f[1], NULL, 4, 1, NULL, r[1]);
    call(f[0], NULL, 4, 1, NULL, r[0]);
    same_result(r[0], r[1], "p");
    for (int k = 0; k < 2; k++) {
        atoll_results_destroy(r[k]);
        atoll_compiled_destroy(f[k]);
    }
}
END_TEST

/* ---- threads ---- */

struct caller {
    atoll_compiled *f;
    int first;
    double sum;
};

static void *call_often(void *context)
{
    struct caller *c = context;
    atoll_results *r = atoll_results_create();
    for (int i = 0; i < 12; i++) {
        call(c->f, NULL, c->first + i, 2, NULL, r);
        c->sum += atoll_results_number(r, "loss");
    }
    atoll_results_destroy(r);
    return NULL;
}

START_TEST(threads)
{
    enum { THREADS = 3 };
    atoll_compiled *f = open_with(perceptron, &there);
    struct caller callers[THREADS], alone;
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){f, i, 0.0};
        ck_assert_int_eq(pthread_create(&ids[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        alone = (struct caller){f, i, 0.0};
        (void)call_often(&alone);
        ASSERT_NUMBER(callers[i].sum, alone.sum);
    }
    ck_assert_uint_le(counters(f).builds, 4);
    atoll_compiled_destroy(f);
}
END_TEST

/* What is kept goes to the device when it changed since it was there: not with every call. */
START_TEST(kept_stays_there)
{
    atoll_compile_options o = there;
    atoll_compiled *f = open_with(weighted, &o), *step;
    atoll_results *r = atoll_results_create();
    atoll_view w;
    call(f, NULL, 0, 1, NULL, r);
    watch("cuMemcpyHtoDAsync", -1);
    call(f, NULL, 1, 1, NULL, r);
    ck_assert_int_eq(seen(), 1); /* the argument */
    ck_assert_int_eq(atoll_compiled_state(f, "w", &w, NULL), ATOLL_OK);
    call(f, NULL, 1, 1, NULL, r);
    ck_assert_int_eq(seen(), 3); /* somebody may write to it from now on */
    o.optimizer = "sgd,lr=0.1";
    step = open_with(perceptron, &o);
    call(step, NULL, 0, 2, NULL, r);
    watch("cuMemcpyHtoDAsync", -1);
    call(step, NULL, 1, 2, NULL, r);
    ck_assert_int_eq(seen(), 2);
    ck_assert_int_eq(atoll_compiled_set(step, "lr", 0.5, NULL), ATOLL_OK);
    call(step, NULL, 1, 2, NULL, r);
    ck_assert_int_eq(seen(), 5); /* and the number */
    watch("", -1);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
    atoll_compiled_destroy(step);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_calls_start, small_clean);
    tcase_add_loop_test(tc, bits_of_the_cpu, 0, 2);
    tcase_add_loop_test(tc, fused_is_eager, 0, (int)ARRAY_LEN(ways));
    tcase_add_test(tc, device_is_in_the_key);
    tcase_add_test(tc, what_is_missing);
    tcase_add_test(tc, an_error_changes_nothing);
    tcase_add_test(tc, threads);
    if (is_emulated) {
        tcase_add_test(tc, refused_kernel);
    }
    if (watch != NULL) {
        tcase_add_test(tc, kept_stays_there);
    }
}

/* Puts the driver that counts before the real one. */
static void count_calls(void)
{
    const char *stub = getenv("ATOLL_FAILING_CUDA"), *real = getenv("ATOLL_LIBCUDA");
    void *library = stub != NULL ? dlopen(stub, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library != NULL) {
        void *f[] = {dlsym(library, "failing_cuda_lie"), dlsym(library, "failing_cuda_seen")};
        memcpy(&watch, &f[0], sizeof watch);
        memcpy(&seen, &f[1], sizeof seen);
        if (real != NULL) {
            setenv("ATOLL_REAL_LIBCUDA", real, 1);
        }
        setenv("ATOLL_LIBCUDA", stub, 1);
    }
}

int main(void)
{
    count_calls();
    struct device *device = device_of_suite();
    if (device == NULL) {
        return SKIPPED;
    }
    is_emulated = strstr(device->name, "emulated") != NULL;
    device_close(device);
    return run_suite("cuda_compiled", fill);
}
