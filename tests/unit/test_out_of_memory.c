/* Out of memory at every single allocation of ours, one after another: reading a model, compiling
 * its training step, stepping it, a plan's open, bind and step, a model by calls, and a
 * compiled function. The linker
 * gives this program allocation functions that fail on demand (CMakeLists.txt). Nothing may leak
 * (under AddressSanitizer), the status is OUT_OF_MEMORY, and afterwards the same work gives its
 * result. */
#include "atoll/compile.h"
#include "atoll/layers.h"
#include "atoll/plan.h"
#include "atoll/tensor.h"
#include "atoll/train.h"
#include "tests/small_training.h"

/* ---- allocation functions that fail on demand ---- */

static uint64_t countdown; /* the allocation that fails: 0 none */
static uint64_t n_failed;

/* Check allocates too: no assertion may stand between arming and disarming. */
static bool fails_now(void)
{
    bool fails = countdown != 0 && --countdown == 0;
    n_failed += fails;
    return fails;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, size);
}

/* ---- the work ---- */

struct work {
    const struct graph *model;
    struct compile_options o;
    const char *plan;
    double loss; /* after two steps */
};

static status read_model(struct work *w, struct error *e)
{
    struct graph *g = small_model(e);
    graph_destroy(g);
    w->loss = 0.0;
    return g != NULL ? ATOLL_OK : e->code;
}

static status compile_and_step(struct work *w, struct error *e)
{
    struct runner r;
    status code = runner_open(&r, w->model, &w->o, 1, e);
    code = code == ATOLL_OK ? small_feed(&r, e) : code;
    code = code == ATOLL_OK ? runner_step(&r, e) : code;
    code = code == ATOLL_OK ? runner_step(&r, e) : code;
    w->loss = code == ATOLL_OK ? runner_number(&r, "loss") : 0.0;
    runner_free(&r);
    return code;
}

static status step_plan(struct work *w, struct error *e)
{
    atoll_plan *p = NULL;
    atoll_error error = {0};
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    status code = atoll_plan_open(w->plan, &p, &error);
    if (code == ATOLL_OK) {
        code = atoll_plan_bind(p, "x", x, (int64_t[]){SMALL_ROWS, 5}, 2, &error);
    }
    if (code == ATOLL_OK) {
        code = atoll_plan_bind(p, "y", y, (int64_t[]){SMALL_ROWS}, 1, &error);
    }
    for (int i = 0; i < 2 && code == ATOLL_OK; i++) {
        code = atoll_plan_step(p, &error);
    }
    w->loss = code == ATOLL_OK ? atoll_plan_number(p, "loss") : 0.0;
    atoll_plan_close(p);
    return code != ATOLL_OK ? fail(e, error.code, "%s", error.text) : ATOLL_OK;
}

/* Save, change, load: a checkpoint that fails is written whole or not at all. */
static status save_and_load(struct work *w, struct error *e)
{
    atoll_plan *p = NULL;
    atoll_error error = {0};
    char path[160];
    uint64_t armed = countdown;
    snprintf(path, sizeof path, "%s/c.safetensors", small_directory());
    countdown = 0;
    ck_assert_int_eq(atoll_plan_open(w->plan, &p, &error), ATOLL_OK);
    countdown = armed;
    status code = atoll_plan_save(p, path, &error);
    code = code == ATOLL_OK ? atoll_plan_load(p, path, &error) : code;
    atoll_plan_close(p);
    w->loss = 0.0;
    return code != ATOLL_OK ? fail(e, code, "%s", error.text) : ATOLL_OK;
}

/* A model by calls, trained eagerly. */
static status train_by_calls(struct work *w, struct error *e)
{
    atoll_error error = {0};
    atoll_training *m = NULL;
    atoll_training_options o = {.is_eager = 1, .seed = 1};
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    atoll_view views[] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(SMALL_ROWS, 5), x),
                          atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(SMALL_ROWS), y)};
    atoll_trace *t = atoll_trace_create("small");
    int64_t n = atoll_symbol(t, "n");
    atoll_value in = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, 5));
    atoll_value h = atoll_mlp_layer(in, "mlp", 8, 4);
    atoll_output(t, "loss", atoll_cross_entropy(h, atoll_input(t, "y", ATOLL_I64, ATOLL_DIMS(n))));
    (void)atoll_training_open(t, &o, &m, &error);
    for (int i = 0; i < 2 && m != NULL; i++) {
        (void)atoll_training_feed(m, &views[0], &error);
        (void)atoll_training_feed(m, &views[1], &error);
        (void)atoll_training_step(m, &error);
    }
    w->loss = error.code == ATOLL_OK ? atoll_training_number(m, "loss") : 0.0;
    atoll_training_close(m);
    atoll_trace_destroy(t);
    return error.code != ATOLL_OK ? fail(e, error.code, "%s", error.text) : ATOLL_OK;
}

static void counted(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value count = atoll_state(t, "count", ATOLL_F32, ATOLL_SCALAR, "zeros");
    atoll_value total = atoll_sum(a[0]);
    double scale = atoll_item(total);
    atoll_update(count, atoll_add(count, total));
    atoll_output(t, "loss", atoll_sum(atoll_mul(a[0], atoll_number(t, scale))));
}

/* A compiled function with a graph break and a state, two calls of two sizes. */
static status call_compiled(struct work *w, struct error *e)
{
    atoll_error error = {0};
    atoll_compiled *f = NULL;
    atoll_results *r = atoll_results_create();
    atoll_compile_options o = {.is_eager = 1};
    float x[] = {1, 2, 3, 4, 5, 6};
    if (r == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no results");
    }
    (void)atoll_compile(counted, &o, &f, &error);
    for (int64_t rows = 3; rows > 1 && error.code == ATOLL_OK; rows--) {
        atoll_view v = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, 2), x);
        (void)atoll_call(f, &v, 1, NULL, r, &error);
    }
    w->loss = error.code == ATOLL_OK ? atoll_results_number(r, "loss") : 0.0;
    const atoll_call_options with = {.policy = "bf16", .with_gradients = 1, .wrt = "x"};
    atoll_view v = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(2, 2), x);
    (void)(error.code == ATOLL_OK ? atoll_call_with(f, &with, &v, 1, NULL, NULL, &error)
                                  : error.code);
    atoll_compiled_destroy(f);
    atoll_results_destroy(r);
    return error.code != ATOLL_OK ? fail(e, error.code, "%s", error.text) : ATOLL_OK;
}

/* A module of three tensors is converted twice; a conversion that fails leaves it as it was. */
static status convert_module(struct work *w, struct error *e)
{
    static const char *const names[] = {"a", "b", "c"};
    atoll_error error = {0};
    float data[3] = {1.0F, 2.0F, 3.0F};
    atoll_module *m = atoll_module_create(&error);
    for (int i = 0; i < 3 && m != NULL; i++) {
        atoll_tensor *t = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(3), data, &error);
        (void)(t != NULL ? atoll_module_add(m, names[i], ATOLL_MODULE_PARAM, t, &error)
                         : ATOLL_OUT_OF_MEMORY);
        atoll_tensor_release(t);
    }
    if (error.code == ATOLL_OK && atoll_module_to(m, ATOLL_BF16, &error) == NULL) {
        for (uint32_t i = 0; i < 3; i++) {
            bool is_kept = atoll_tensor_dtype(atoll_module_at(m, i, NULL, NULL)) == ATOLL_F32;
            error.code = is_kept ? error.code : ATOLL_INTERNAL;
        }
    }
    if (error.code == ATOLL_OK) {
        (void)atoll_module_to(m, ATOLL_F64, &error);
    }
    w->loss = error.code == ATOLL_OK ? atoll_tensor_number(atoll_module_get(m, "b"), 1) : 0.0;
    atoll_module_destroy(m);
    return error.code != ATOLL_OK ? fail(e, error.code, "%s", error.text) : ATOLL_OK;
}

static const struct job {
    const char *name;
    status (*run)(struct work *w, struct error *e);
    bool is_eager;
    uint64_t at_least; /* allocations it takes, so that a job that does nothing is seen */
    uint64_t may_pass; /* allocations it can do without: the cache's, which costs time only */
} jobs[] = {
    {"read a model", read_model, false, 2, 0},
    {"passes and eager steps", compile_and_step, true, 60, 0},
    {"passes, kernels and fused steps", compile_and_step, false, 60, 12},
    {"plan", step_plan, false, 10, 0},
    {"checkpoint", save_and_load, false, 4, 0},
    {"a model by calls", train_by_calls, true, 60, 0},
    {"a compiled function", call_compiled, true, 60, 40},
    {"a module", convert_module, false, 20, 0},
};

START_TEST(every_allocation_may_fail)
{
    const struct job *job = &jobs[_i];
    struct train_options train;
    struct error e = {0};
    char plan[128];
    snprintf(plan, sizeof plan, "%s/small.plan", small_directory());
    struct work w = {.o = small_options(&train), .plan = plan};
    w.o.cache = small_directory();
    w.o.is_eager = job->is_eager;
    struct graph *model = small_model(&e);
    w.model = model;
    ck_assert_msg(small_plan(plan, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(job->run(&w, &e) == ATOLL_OK, "%s: %s", job->name, e.text);
    double expected = w.loss;
    uint64_t n = 1, passed = 0;
    for (;; n++) {
        struct error failed = {0};
        n_failed = 0;
        countdown = n;
        status code = job->run(&w, &failed);
        countdown = 0;
        if (n_failed == 0) {
            ck_assert_msg(code == ATOLL_OK, "%s: %s", job->name, failed.text);
            break;
        }
        passed += code == ATOLL_OK;
        ck_assert_msg(code == ATOLL_OUT_OF_MEMORY || code == ATOLL_OK,
                      "%s: allocation %llu failed: status %d: %s", job->name, (unsigned long long)n,
                      (int)code, failed.text);
        ck_assert_int_eq(failed.code, code);
    }
    ck_assert_msg(passed <= job->may_pass, "%s: %llu failed allocations went unnoticed", job->name,
                  (unsigned long long)passed);
    ck_assert_msg(n > job->at_least, "%s: only %llu allocations", job->name,
                  (unsigned long long)n - 1);
    ck_assert_msg(w.loss == expected, "%s: loss %g, %g at first", job->name, w.loss, expected);
    graph_destroy(model);
}
END_TEST

/* A refusal whose text finds no memory is the same refusal. */
START_TEST(refusals_keep_their_status)
{
    atoll_plan *p = NULL;
    struct error e = {0};
    atoll_error error = {0};
    char plan[128];
    float x[4] = {0};
    snprintf(plan, sizeof plan, "%s/refusal.plan", small_directory());
    ck_assert_msg(small_plan(plan, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(atoll_plan_open(plan, &p, &error) == ATOLL_OK, "%s", error.text);
    countdown = 1;
    n_failed = 0;
    status code = atoll_plan_bind(p, "x", x, (int64_t[]){2, 2}, 2, &error);
    countdown = 0;
    ck_assert_uint_eq(n_failed, 1);
    ck_assert_int_eq(code, ATOLL_SHAPE);
    ck_assert_msg(strstr(error.text, "%x") != NULL, "%s", error.text);
    atoll_plan_close(p);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, every_allocation_may_fail, 0, ARRAY_LEN(jobs));
    tcase_add_test(tc, refusals_keep_their_status);
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
}

int main(void)
{
    return run_suite("out of memory", fill);
}
