/* Field cases about calls: guards, recompiles and graph breaks of compiled functions, each eager
 * and fused. The numbers come from the reports (docs/field_cases.md). */
#include "tests/small_compiled.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 12 };

/* The call's y must be want, bit for bit. */
static void check_call(atoll_compiled *f, const atoll_view *x, uint32_t n, void *context,
                       const float *want, int64_t n_want)
{
    atoll_results *r = atoll_results_create();
    atoll_error error = {0};
    atoll_view y;
    ck_assert_msg(atoll_call(f, x, n, context, r, &error) == ATOLL_OK, "%s", error.text);
    ck_assert_int_eq(atoll_results_view(r, "y", &y, &error), ATOLL_OK);
    ck_assert_uint_eq(y.bytes, (size_t)n_want * sizeof *want);
    ck_assert_mem_eq(y.data, want, y.bytes);
    atoll_results_destroy(r);
}

static void check_said(const atoll_compiled *f, const char *what)
{
    char *text = atoll_ledger_text(atoll_compiled_ledger(f));
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(strstr(text, what) != NULL, "'%s' is not in: %s", what, text);
    free(text);
}

/* The ledger's JSON, as atoll_ledger_save writes it, has `what`; so has its page `shown`. */
static void check_saved(const atoll_compiled *f, const char *what, const char *shown)
{
    const char *const wanted[] = {what, shown};
    char path[] = "/tmp/atoll-cases-calls-XXXXXX", text[60000];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (int i = 0; i < 2; i++) {
        const atoll_ledger *l = atoll_compiled_ledger(f);
        ck_assert_int_eq(
            i == 0 ? atoll_ledger_save(l, path, NULL) : atoll_ledger_html(l, path, NULL), ATOLL_OK);
        FILE *in = fopen(path, "r");
        ck_assert_ptr_nonnull(in);
        text[fread(text, 1, sizeof text - 1, in)] = '\0';
        fclose(in);
        ck_assert_msg(strstr(text, wanted[i]) != NULL, "'%s' is not in: %s", wanted[i], text);
    }
    unlink(path);
}

/* ---- numbers that change ---- */

struct factor {
    double number;
    bool is_scalar;
};

static void times(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const struct factor *k = context;
    (void)n;
    atoll_value by =
        k->is_scalar ? atoll_scalar(t, "a", ATOLL_F32, k->number) : atoll_number(t, k->number);
    atoll_output(t, "y", atoll_mul(a[0], by));
}

START_TEST(fc081)
{
    atoll_compile_options o = {.is_eager = _i % 2, .limit = 20};
    atoll_compiled *f = open_with(times, &o);
    float data[3] = {1.0f, 2.0f, 4.0f}, want[3];
    atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(3), data);
    for (int k = 1; k <= 10; k++) {
        struct factor a = {(double)((float)k / 100.0f), _i < 2};
        for (int i = 0; i < 3; i++) {
            want[i] = (float)a.number * data[i];
        }
        check_call(f, &x, 1, &a, want, 3);
    }
    ck_assert_uint_eq(counters(f).builds, _i < 2 ? 1 : 10);
    if (_i >= 2) {
        check_said(f, __FILE__);
        check_said(f, "pass it as a scalar");
    }
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(fc084)
{
    atoll_compile_options o = {.is_eager = _i};
    atoll_compiled *f = open_with(times, &o);
    float data[1] = {4.0f};
    static const double factors[] = {1.0, 10.0, 1.0};
    static const uint64_t builds[] = {1, 2, 2};
    atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(1), data);
    for (int k = 0; k < 3; k++) {
        struct factor a = {factors[k], false};
        float want = 4.0f * (float)factors[k];
        check_call(f, &x, 1, &a, &want, 1);
        ck_assert_uint_eq(counters(f).builds, builds[k]);
    }
    check_said(f, "1 -> 10");
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- sizes that change ---- */

static void twice_summed(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_sum(atoll_mul(a[0], atoll_number(t, 2.0))));
}

START_TEST(fc082)
{
    atoll_compile_options o = {.is_eager = _i};
    atoll_compiled *f = open_with(twice_summed, &o);
    static const int64_t sizes[] = {1, 2, 3, 5, 1};
    static const float want[] = {2.0f, 6.0f, 12.0f, 30.0f, 2.0f};
    float data[5] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    uint64_t before = 0;
    for (int k = 0; k < 5; k++) {
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(sizes[k]), data);
        before = counters(f).builds;
        check_call(f, &x, 1, NULL, &want[k], 1);
    }
    ck_assert_uint_le(counters(f).builds, 3);
    ck_assert_uint_eq(counters(f).builds, before); /* the last one had its plan */
    check_said(f, "dim 0 of x: 1 -> 2");
    atoll_compiled_destroy(f);
}
END_TEST

static void summed(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_sum(a[0]));
}

START_TEST(fc089)
{
    atoll_compile_options o = {.is_eager = _i % 2, .limit = _i < 2 ? 0 : 1, .is_static = _i >= 2};
    atoll_compiled *f = open_with(summed, &o);
    float data[MOST];
    for (int i = 0; i < MOST; i++) {
        data[i] = 1.0f;
    }
    for (int64_t n = 2; n <= (_i < 2 ? 12 : 3); n++) {
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(n), data);
        float want = (float)n;
        check_call(f, &x, 1, NULL, &want, 1);
    }
    ck_assert_uint_le(counters(f).builds, 2);
    if (_i >= 2) { /* over the limit: each build with its guard */
        atoll_error error = {0};
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(4), data);
        ck_assert_int_eq(atoll_call(f, &x, 1, NULL, NULL, &error), ATOLL_CHECK_FAILED);
        ck_assert_msg(strstr(error.text, "over the limit of 1 recompiles") != NULL &&
                          strstr(error.text, "call 1 (first call)") != NULL &&
                          strstr(error.text, "call 2 (dim 0 of x 2 -> 3") != NULL,
                      "%s", error.text);
    }
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- gradients ---- */

static void scaled(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const bool *has_param = context;
    atoll_value w = *has_param ? atoll_param(t, "w", ATOLL_F32, ATOLL_SCALAR, "ones") : a[n - 1];
    atoll_output(t, "y", atoll_mul(w, a[0]));
}

/* One call: y must be 15, and the gradient of each name as large as given, or none (NaN). */
static void check_gradients(atoll_compiled *f, bool has_param, const atoll_call_options *o,
                            double d_w, double d_x)
{
    float three[1] = {3.0f}, five[1] = {5.0f};
    atoll_view in[2] = {atoll_view_of("x", ATOLL_F32, ATOLL_SCALAR, five),
                        atoll_view_of("w", ATOLL_F32, ATOLL_SCALAR, three)};
    atoll_results *r = atoll_results_create();
    atoll_error error = {0};
    ck_assert_msg(atoll_call_with(f, o, in, has_param ? 1 : 2, &has_param, r, &error) == ATOLL_OK,
                  "%s", error.text);
    ck_assert(atoll_results_number(r, "y") == 15.0);
    const double want[2] = {d_w, d_x};
    for (int i = 0; i < 2; i++) {
        double found = atoll_results_number(r, i == 0 ? "grad:w" : "grad:x");
        ck_assert_msg(found == want[i] || (found != found && want[i] != want[i]),
                      "d_%c is %g, right is %g", "wx"[i], found, want[i]);
    }
    atoll_results_destroy(r);
}

/* w a param of the function, or an argument; eager and fused. */
START_TEST(fc085)
{
    const double none = (double)NAN;
    bool has_param = _i >= 2;
    atoll_compile_options o = {.is_eager = _i % 2};
    atoll_compiled *f = open_with(scaled, &o);
    if (has_param) { /* the first call makes it, one; its value is the caller's */
        float one[1] = {1.0f};
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_SCALAR, one), w;
        ck_assert_int_eq(atoll_call(f, &x, 1, &has_param, NULL, NULL), ATOLL_OK);
        ck_assert_int_eq(atoll_compiled_state(f, "w", &w, NULL), ATOLL_OK);
        *(float *)w.data = 3.0f;
    }
    const char *wrt = has_param ? NULL : "w", *with_x = has_param ? "x" : "x,w";
    const atoll_call_options with = {.with_gradients = 1, .wrt = wrt};
    const atoll_call_options frozen = {.with_gradients = 1, .frozen = has_param ? "w" : NULL};
    const atoll_call_options both = {.with_gradients = 1, .wrt = with_x};
    const atoll_call_options only_x = {.with_gradients = 1, .wrt = "x", .frozen = frozen.frozen};
    check_gradients(f, has_param, NULL, none, none);
    check_gradients(f, has_param, &with, 5.0, none);
    check_said(f, "[grad] grad: forward -> gradients of w   (the options of the call)");
    check_gradients(f, has_param, &frozen, none, none); /* nothing wants one: call 1's plan */
    check_gradients(f, has_param, &with, 5.0, none);    /* call 2's */
    ck_assert_uint_eq(counters(f).builds, 2);
    check_gradients(f, has_param, &both, 5.0, 3.0);
    check_said(f, "[grad] gradient of x: not wanted -> wanted   (the options of the call)");
    check_gradients(f, has_param, &only_x, none, 3.0);
    check_said(f, "[grad] gradient of w: wanted -> not wanted   (the options of the call)");
    check_said(f, "advice: gradient of w changed wanted -> not wanted: each has plans of its own");
    check_gradients(f, has_param, &both, 5.0, 3.0);
    ck_assert_uint_eq(counters(f).builds, 4);
    atoll_compiled_destroy(f);
}
END_TEST

/* ---- a host read ---- */

static int line_of_read;

static void scaled_by_read(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value moved = atoll_neg(a[0]); /* of an argument itself a read costs nothing */
    line_of_read = __LINE__ + 1;
    double s = -atoll_item(moved);
    atoll_output(t, "y", atoll_mul(a[1], atoll_scalar(t, "s", ATOLL_F32, s)));
}

START_TEST(fc088)
{
    atoll_compile_options o = {.is_eager = _i % 2, .fullgraph = _i >= 2};
    atoll_compiled *f = open_with(scaled_by_read, &o);
    float three[1] = {3.0f}, v[2] = {1.0f, 2.0f}, want[2] = {3.0f, 6.0f}, next[2] = {0.1f, 0.2f};
    atoll_view in[2] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(1), three),
                        atoll_view_of("v", ATOLL_F32, ATOLL_DIMS(2), v)};
    char where[300];
    if (_i >= 2) {
        atoll_error error = {0};
        ck_assert_int_eq(atoll_call(f, in, 2, NULL, NULL, &error), ATOLL_CHECK_FAILED);
        snprintf(where, sizeof where, "%s:%d: ", __FILE__, line_of_read);
        ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s", error.text);
    } else {
        check_call(f, in, 2, NULL, want, 2);
        ck_assert_uint_eq(counters(f).breaks, 1);
        ck_assert_uint_eq(counters(f).lookups, 2); /* two graphs */
        snprintf(where, sizeof where, "%s:%d", __FILE__, line_of_read);
        check_said(f, where);
        check_said(f, "read it after the call");
        check_said(f, "reads %3 (neg) on the host: -3 (f32)");
        three[0] = 0.1f;
        check_call(f, in, 2, NULL, next, 2);
        check_said(f, "segment 0 ends, 2 times: atoll_item reads %3 (neg) on the host: -3 -> -0.1 "
                      "(f32)");
        check_saved(f, "\"value\": \"-0.1\"", "f32 -3 &rarr; -0.1");
        check_saved(f, "\"dtype\": \"f32\"", "host read");
    }
    atoll_compiled_destroy(f);
}
END_TEST

/* A way for each sign. */
static void by_sign(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value moved = atoll_name(atoll_neg(a[0]), "moved");
    double s = atoll_item(moved);
    atoll_output(t, "y", s > 0.0 ? atoll_neg(a[0]) : s < 0.0 ? atoll_abs(a[0]) : atoll_exp(a[0]));
}

static uint32_t count_said(const atoll_compiled *f, const char *what)
{
    char *text = atoll_ledger_text(atoll_compiled_ledger(f));
    uint32_t n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
        n++;
    }
    free(text);
    return n;
}

/* Each way is one explanation; the break is told with the first that it led to, and only there. */
START_TEST(fc088_reads_that_choose)
{
    atoll_compile_options o = {.is_eager = 1};
    atoll_compiled *f = open_with(by_sign, &o);
    static const float values[] = {2.0f, -3.0f, 0.0f, 5.0f}, want[] = {2.0f, 3.0f, 1.0f, 5.0f};
    for (int k = 0; k < 4; k++) {
        float one[1] = {values[k]};
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(1), one);
        check_call(f, &x, 1, NULL, &want[k], 1);
        ck_assert_uint_eq(count_said(f, "graph break ("), 1);
        ck_assert_uint_eq(count_said(f, "\ngraph break ("), k == 0 ? 1 : 0); /* apart, or within */
        ck_assert_uint_eq(count_said(f, "advice: "), k == 0 ? 1 : k < 3 ? (uint32_t)k : 2);
    }
    check_said(f, "[read] %moved, read on the host: -2 -> 3   (atoll_item at ");
    check_said(f, "[read] %moved, read on the host: 3 -> -0   (atoll_item at ");
    check_said(f, "segment 0 ends, 4 times: atoll_item reads %moved on the host: -2 -> -5 (f32)");
    atoll_compiled_destroy(f);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_calls_start, small_clean);
    tcase_add_loop_test(tc, fc081, 0, 4);
    tcase_add_loop_test(tc, fc082, 0, 2);
    tcase_add_loop_test(tc, fc084, 0, 2);
    tcase_add_loop_test(tc, fc085, 0, 4);
    tcase_add_loop_test(tc, fc088, 0, 4);
    tcase_add_test(tc, fc088_reads_that_choose);
    tcase_add_loop_test(tc, fc089, 0, 4);
}

int main(void)
{
    return run_suite("cases_calls", fill);
}
