/* Compiled functions: results are the plain function's, builds happen when they must and are told,
 * breaks bring values to the host, training steps change numbers without a recompile, errors leave
 * states as they were. */
#include "tests/small_compiled.h"

#include <math.h>

enum { COLUMNS = 3, MOST = 16 };
static float data[MOST * COLUMNS];

static atoll_view rows_of(int64_t rows, float first)
{
    for (int i = 0; i < MOST * COLUMNS; i++) {
        data[i] = first + (float)i;
    }
    return atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, COLUMNS), data);
}

static void call(atoll_compiled *f, const atoll_view *v, void *context, atoll_results *r)
{
    atoll_error error = {0};
    ck_assert_msg(atoll_call(f, v, 1, context, r, &error) == ATOLL_OK, "%s", error.text);
}

/* ---- calls ---- */

static void scaled_sum(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const double *scale = context;
    ck_assert_uint_eq(n, 1);
    atoll_value s = atoll_scalar(t, "scale", ATOLL_F32, *scale);
    atoll_output(t, "y", atoll_mul(a[0], s));
    atoll_output(t, "sum", atoll_sum(a[0]));
}

START_TEST(results_are_the_functions)
{
    atoll_compile_options o = {.is_eager = _i};
    atoll_compiled *f = open_with(scaled_sum, &o);
    atoll_results *r = atoll_results_create();
    double scale = 2.0;
    for (int64_t rows = 1; rows < 9; rows++) {
        atoll_view x = rows_of(rows, (float)rows), y;
        scale += 0.5; /* a scalar: no recompile */
        call(f, &x, &scale, r);
        ck_assert_int_eq(atoll_results_view(r, "y", &y, NULL), ATOLL_OK);
        ck_assert_int_eq(y.shape[0], rows);
        double sum = 0.0;
        for (int i = 0; i < rows * COLUMNS; i++) {
            ASSERT_NUMBER(((const float *)y.data)[i], (float)scale * data[i]);
            sum += (double)data[i];
        }
        ASSERT_NUMBER(atoll_results_number(r, "sum"), sum);
    }
    atoll_counters n = counters(f);
    ck_assert_uint_eq(n.calls, 8);
    ck_assert_uint_le(n.builds, 3); /* rows 1, rows 2, and any from then on */
    ck_assert_uint_eq(n.hits + n.builds, 8);
    ck_assert_int_eq(atoll_results_view(r, "z", &(atoll_view){0}, NULL), ATOLL_NOT_FOUND);
    ck_assert(isnan(atoll_results_number(r, "z")));
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(frozen_calls_skip_the_function)
{
    atoll_compile_options o = {.is_eager = 1, .frozen = 1};
    atoll_compiled *f = open_with(scaled_sum, &o);
    atoll_results *r = atoll_results_create();
    double scale = 3.0, other = 100.0;
    atoll_view x = rows_of(4, 1.0f), y;
    call(f, &x, &scale, r);
    call(f, &x, &other, r); /* not run again: the number of the first call stays */
    atoll_results_view(r, "y", &y, NULL);
    ASSERT_NUMBER(((const float *)y.data)[1], 6.0);
    x = rows_of(5, 1.0f);
    call(f, &x, &scale, r); /* no plan holds: traced, built with a symbol */
    x = rows_of(7, 2.0f);
    call(f, &x, &scale, r);
    ASSERT_NUMBER(atoll_results_number(r, "sum"), 2.0 * 21.0 + 210.0);
    ck_assert_uint_eq(counters(f).builds, 2);
    ck_assert_uint_eq(counters(f).calls, 4);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

static void by_first(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value y = atoll_item(a[0]) > 0.0 ? atoll_exp(a[0]) : atoll_neg(a[0]);
    atoll_output(t, "y", atoll_sum(y));
}

/* A function that looks at its data is not frozen: it may take another way. */
START_TEST(what_looks_at_data_is_traced)
{
    atoll_compile_options o = {.is_eager = 1, .frozen = 1};
    atoll_compiled *f = open_with(by_first, &o);
    atoll_results *r = atoll_results_create();
    atoll_view x = rows_of(1, 1.0f);
    call(f, &x, NULL, r);
    x = rows_of(1, -5.0f);
    call(f, &x, NULL, r);
    ASSERT_NUMBER(atoll_results_number(r, "y"), 12.0); /* 5 + 4 + 3 */
    ck_assert_uint_eq(counters(f).breaks, 0);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- breaks ---- */

struct way {
    double seen[3];
    int n;
};

static void branches(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    struct way *w = context;
    (void)n;
    w->n = 0;
    ASSERT_NUMBER(atoll_item(a[0]), data[0]); /* at hand: no break */
    atoll_value doubled = atoll_mul(a[0], atoll_number(t, 2.0));
    atoll_value used = atoll_exp(doubled); /* used before the break: computed again after */
    atoll_value total = atoll_sum(used);
    w->seen[w->n++] = atoll_item(total);
    w->seen[w->n++] = atoll_item(total); /* at hand by now */
    atoll_value y = w->seen[0] > 1000.0 ? atoll_neg(used) : atoll_add(used, total);
    atoll_graph_break(t, "for the sake of it");
    atoll_output(t, "y", atoll_mul(y, doubled));
}

START_TEST(breaks_bring_values)
{
    atoll_compile_options o = {.is_eager = _i};
    atoll_compiled *f = open_with(branches, &o);
    atoll_results *r = atoll_results_create();
    for (int k = 0; k < 6; k++) {
        struct way w;
        atoll_view x = rows_of(1, k % 2 == 0 ? -2.0f : 2.0f), y;
        call(f, &x, &w, r);
        ck_assert_int_eq(atoll_results_view(r, "y", &y, NULL), ATOLL_OK);
        ASSERT_NUMBER(w.seen[0], w.seen[1]);
        for (int i = 0; i < COLUMNS; i++) {
            double e = exp(2.0 * (double)data[i]);
            double expected = (k % 2 == 0 ? e + w.seen[0] : -e) * 2.0 * (double)data[i];
            ck_assert_double_eq_tol((double)((const float *)y.data)[i], expected,
                                    1e-5 * (1.0 + fabs(expected)));
        }
    }
    atoll_counters n = counters(f);
    ck_assert_uint_eq(n.calls, 6);
    ck_assert_uint_eq(n.breaks, 12);
    ck_assert_uint_eq(n.lookups, 18);
    ck_assert_uint_eq(n.builds, 5); /* the start, two ways, and what follows each */
    ck_assert_uint_eq(n.hits, 13);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(fullgraph_refuses_breaks)
{
    char where[200];
    atoll_error error = {0};
    struct way w;
    atoll_compile_options o = {.is_eager = 1, .fullgraph = 1};
    atoll_compiled *f = open_with(branches, &o);
    atoll_view x = rows_of(1, 1.0f);
    ck_assert_int_eq(atoll_call(f, &x, 1, &w, NULL, &error), ATOLL_CHECK_FAILED);
    snprintf(where, sizeof where, "%s:", __FILE__);
    ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s", error.text);
    ck_assert_msg(strstr(error.text, "atoll_item reads") != NULL, "%s", error.text);
    ck_assert(isnan(w.seen[0]));
    atoll_compiled_destroy(f);
}
END_TEST

static void reverse(void *context, const atoll_view *in, atoll_view *out)
{
    size_t n = in->bytes / sizeof(float);
    for (size_t i = 0; i < n; i++) {
        memcpy((float *)out->data + i, (const float *)in->data + n - 1 - i, sizeof(float));
    }
    ++*(int *)context;
}

static void with_host_op(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    atoll_value turned = atoll_host_op(atoll_neg(a[0]), "reverse", reverse, context);
    atoll_output(t, "y", atoll_add(turned, a[0]));
}

START_TEST(host_ops_run_on_the_host)
{
    int n_runs = 0;
    atoll_compile_options o = {.is_eager = 1};
    atoll_compiled *f = open_with(with_host_op, &o);
    atoll_results *r = atoll_results_create();
    for (int k = 0; k < 3; k++) {
        atoll_view x = rows_of(2, 1.0f), y;
        call(f, &x, &n_runs, r);
        atoll_results_view(r, "y", &y, NULL);
        for (int i = 0; i < 6; i++) {
            ASSERT_NUMBER(((const float *)y.data)[i], data[i] - data[5 - i]);
        }
    }
    ck_assert_int_eq(n_runs, 3);
    ck_assert_uint_eq(counters(f).builds, 2);
    ck_assert_uint_eq(counters(f).breaks, 3);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- training ---- */

static void classifier(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value w1 = atoll_param(t, "w1", ATOLL_F32, ATOLL_DIMS(8, 5), "normal:0.3");
    atoll_value w2 = atoll_param(t, "w2", ATOLL_F32, ATOLL_DIMS(4, 8), NULL);
    atoll_value z = atoll_linear(atoll_gelu(atoll_linear(a[0], w1)), w2);
    atoll_output(t, "loss", atoll_cross_entropy(z, a[1]));
}

/* Learning rate, betas, step count and loss scale change at every step: one build. */
START_TEST(a_thousand_steps_without_a_recompile)
{
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    atoll_error error = {0};
    atoll_compile_options o = {.policy = "fp16",
                               .optimizer = "adamw,lr=1e-2",
                               .schedule = "step,50,0.9",
                               .clip = 1.0,
                               .seed = 1,
                               .is_eager = _i,
                               .fails_on_recompile = 1};
    atoll_compiled *f = open_with(classifier, &o);
    atoll_results *r = atoll_results_create();
    atoll_view batch[] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(SMALL_ROWS, 5), x),
                          atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(SMALL_ROWS), y)};
    double first = 0.0;
    for (int i = 0; i < 1000; i++) {
        ck_assert_msg(atoll_call(f, batch, 2, NULL, r, &error) == ATOLL_OK, "%s", error.text);
        first = i == 0 ? atoll_results_number(r, "loss") : first;
        atoll_compiled_set(f, "lr", 1e-2 / (1.0 + i), &error);
        atoll_compiled_set(f, "beta1", 0.9 - 1e-5 * i, &error);
        ck_assert_msg(error.code == ATOLL_OK, "%s", error.text);
    }
    ck_assert(atoll_results_number(r, "loss") < first);
    ASSERT_NUMBER(atoll_results_number(r, "accepted") + atoll_results_number(r, "skipped"), 1000);
    atoll_counters n = counters(f);
    ck_assert_uint_eq(n.calls, 1000);
    ck_assert_uint_eq(n.builds, 1);
    ck_assert_uint_eq(n.recompiles, 0);
    ck_assert_uint_eq(n.hits, 999);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

/* Batches of 6, 6, 5, 6, 5 ...: the last one is built once, for its size as a symbol. */
START_TEST(partial_batches_build_once)
{
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    atoll_error error = {0};
    small_batch(x, y);
    atoll_compile_options o = {.optimizer = "adamw", .is_eager = 1};
    atoll_compiled *f = open_with(classifier, &o);
    for (int i = 0; i < 12; i++) {
        int64_t rows = i % 3 == 2 ? 5 : SMALL_ROWS;
        atoll_view batch[] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, 5), x),
                              atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(rows), y)};
        ck_assert_msg(atoll_call(f, batch, 2, NULL, NULL, &error) == ATOLL_OK, "%s", error.text);
    }
    ck_assert_uint_eq(counters(f).builds, 2);
    ck_assert_uint_eq(counters(f).recompiles, 1);
    atoll_view w;
    ck_assert_int_eq(atoll_compiled_state(f, "w1", &w, NULL), ATOLL_OK);
    ck_assert_int_eq(w.shape[0], 8);
    ck_assert_int_eq(atoll_compiled_state(f, "w9", &w, NULL), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_compiled_set(f, "w1", 1.0, NULL), ATOLL_NOT_FOUND);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- states ---- */

static void counting(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    atoll_value count = atoll_state(t, "count", ATOLL_F32, ATOLL_SCALAR, "10");
    atoll_value next = atoll_add(count, atoll_sum(a[0]));
    atoll_update(count, next);
    if (context != NULL && atoll_item(next) > 0.0) {
        (void)atoll_add(a[0], (atoll_value){0, 0}); /* fails after a segment ran */
    }
    atoll_output(t, "next", next);
}

START_TEST(states_change_at_the_end_or_not_at_all)
{
    atoll_error error = {0};
    atoll_view count, x = rows_of(1, 1.0f); /* 1 + 2 + 3 */
    atoll_compile_options o = {.is_eager = _i};
    atoll_compiled *f = open_with(counting, &o);
    atoll_results *r = atoll_results_create();
    call(f, &x, NULL, r);
    call(f, &x, NULL, r);
    ASSERT_NUMBER(atoll_results_number(r, "next"), 22.0);
    ck_assert_int_eq(atoll_call(f, &x, 1, &o, r, &error), ATOLL_USAGE);
    ck_assert_msg(strstr(error.text, "operand b: found no value") != NULL, "%s", error.text);
    ck_assert_int_eq(atoll_compiled_state(f, "count", &count, NULL), ATOLL_OK);
    ASSERT_NUMBER(*(const float *)count.data, 22.0);
    call(f, &x, NULL, r);
    ASSERT_NUMBER(*(const float *)count.data, 28.0);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- limits ---- */

static void with_constant(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    atoll_output(t, "y", atoll_mul(a[0], atoll_number(t, *(const double *)context)));
}

static void keep_warning(void *context, const char *text)
{
    snprintf(context, 1200, "%.1100s", text);
}

START_TEST(limits_are_kept)
{
    char warned[1200] = "";
    atoll_error error = {0};
    atoll_view x = rows_of(2, 1.0f), y;
    atoll_results *r = atoll_results_create();
    atoll_compile_options o = {.is_eager = 1,
                               .limit = 2,
                               .is_eager_over_limit = _i,
                               .warn = keep_warning,
                               .warn_context = warned};
    atoll_compiled *f = open_with(with_constant, &o);
    for (int k = 0; k < 5; k++) {
        double constant = k;
        error = (atoll_error){0};
        atoll_status code = atoll_call(f, &x, 1, &constant, r, &error);
        bool is_over = k > 2;
        ck_assert_int_eq(code, is_over && _i == 0 ? ATOLL_CHECK_FAILED : ATOLL_OK);
        if (code == ATOLL_OK) {
            atoll_results_view(r, "y", &y, NULL);
            ASSERT_NUMBER(((const float *)y.data)[1], constant * (double)data[1]);
        } else {
            ck_assert_msg(strstr(error.text, "over the limit of 2 recompiles") != NULL, "%s",
                          error.text);
        }
        ck_assert_int_eq(warned[0] != '\0', is_over && _i == 1);
    }
    ck_assert_uint_eq(counters(f).builds, 3);
    ck_assert_uint_eq(counters(f).eager, _i == 1 ? 2 : 0);
    ck_assert_uint_eq(counters(f).refused, _i == 1 ? 0 : 2);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(no_compiler_runs_op_by_op)
{
    char warned[1200] = "";
    double constant = 3.0;
    atoll_view x = rows_of(2, 1.0f), y;
    atoll_results *r = atoll_results_create();
    atoll_compile_options o = {.warn = keep_warning, .warn_context = warned};
    setenv("ATOLL_CC", "/nonexistent/cc", 1);
    setenv("ATOLL_CACHE", "0", 1);
    atoll_compiled *f = open_with(with_constant, &o);
    call(f, &x, &constant, r);
    unsetenv("ATOLL_CC");
    setenv("ATOLL_CACHE", small_directory(), 1);
    ck_assert_msg(strstr(warned, "running op by op instead, with the same bits") != NULL, "%s",
                  warned);
    atoll_results_view(r, "y", &y, NULL);
    ASSERT_NUMBER(((const float *)y.data)[1], 6.0);
    atoll_results_destroy(r);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- misuse ---- */

static void own_input(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)a;
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_input(t, "z", ATOLL_F32, ATOLL_SCALAR));
}
static void no_output(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)t;
    (void)n;
    (void)context;
    (void)atoll_exp(a[0]);
}
static void bad_shape(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_matmul(a[0], a[0]));
}
static atoll_value kept;
static void keeps_a_handle(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", kept.id != 0 ? atoll_add(kept, a[0]) : a[0]);
    kept = a[0];
}

START_TEST(misuse_is_told)
{
    static const struct {
        atoll_function *fn;
        atoll_status status;
        const char *says;
    } wrong[] = {{own_input, ATOLL_USAGE, "the inputs of a compiled function are its arguments"},
                 {no_output, ATOLL_USAGE, "recorded no output and no update"},
                 {bad_shape, ATOLL_SHAPE, "matmul(f32[2,3], f32[2,3])"}};
    atoll_error error = {0};
    atoll_view x = rows_of(2, 1.0f);
    atoll_compile_options o = {.is_eager = 1};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        atoll_compiled *f = open_with(wrong[i].fn, &o);
        error = (atoll_error){0};
        ck_assert_int_eq(atoll_call(f, &x, 1, NULL, NULL, &error), wrong[i].status);
        ck_assert_msg(strstr(error.text, wrong[i].says) != NULL, "%s", error.text);
        ck_assert_msg(strncmp(error.text, __FILE__, strlen(__FILE__)) == 0, "%s", error.text);
        atoll_compiled_destroy(f);
    }
    atoll_compiled *f = open_with(keeps_a_handle, &o);
    call(f, &x, NULL, NULL);
    error = (atoll_error){0};
    ck_assert_int_eq(atoll_call(f, &x, 1, NULL, NULL, &error), ATOLL_USAGE);
    ck_assert_msg(strstr(error.text, "a trace that is finished") != NULL, "%s", error.text);
    atoll_view bad = x;
    bad.data = NULL;
    error = (atoll_error){0};
    ck_assert_int_eq(atoll_call(f, &bad, 1, NULL, NULL, &error), ATOLL_USAGE);
    ck_assert_msg(strstr(error.text, "argument 0: found no data") != NULL, "%s", error.text);
    atoll_compiled_destroy(f);
    error = (atoll_error){0};
    ck_assert_int_eq(atoll_compile(NULL, NULL, &f, &error), ATOLL_USAGE);
    o = (atoll_compile_options){.schedule = "step,5,0.5"};
    error = (atoll_error){0};
    ck_assert_int_eq(atoll_compile(no_output, &o, &f, &error), ATOLL_USAGE);
    ck_assert_ptr_null(f);
    atoll_trace *t = atoll_trace_create("t");
    ck_assert(isnan(atoll_item(atoll_input(t, "x", ATOLL_F32, ATOLL_SCALAR))));
    ck_assert_int_eq(atoll_trace_error(t, NULL), ATOLL_USAGE);
    atoll_trace_destroy(t);
    atoll_compiled_destroy(NULL);
    atoll_results_destroy(NULL);
}
END_TEST

static void start(void)
{
    small_start();
    setenv("ATOLL_CACHE", small_directory(), 1);
}

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, start, small_clean);
    tcase_add_loop_test(tc, results_are_the_functions, 0, 2);
    tcase_add_test(tc, frozen_calls_skip_the_function);
    tcase_add_test(tc, what_looks_at_data_is_traced);
    tcase_add_loop_test(tc, breaks_bring_values, 0, 2);
    tcase_add_test(tc, fullgraph_refuses_breaks);
    tcase_add_test(tc, host_ops_run_on_the_host);
    tcase_add_loop_test(tc, a_thousand_steps_without_a_recompile, 0, 2);
    tcase_add_test(tc, partial_batches_build_once);
    tcase_add_loop_test(tc, states_change_at_the_end_or_not_at_all, 0, 2);
    tcase_add_loop_test(tc, limits_are_kept, 0, 2);
    tcase_add_test(tc, no_compiler_runs_op_by_op);
    tcase_add_test(tc, misuse_is_told);
}

int main(void)
{
    return run_suite("compiled functions", fill);
}
