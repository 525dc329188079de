/* Options of one call: gradients, policy and rounding are part of the key of a plan, wrong ones are
 * named, and no break stands between a gradient and what it is of. */
#include "tests/small_compiled.h"

#include <math.h>

enum { ROWS = 3, COLUMNS = 4 };

struct setting {
    bool breaks, is_loss; /* a break that brings the activations to the host; one output, or two */
};

static void model(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const struct setting *s = context;
    (void)n;
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(COLUMNS, COLUMNS), "normal:0.5");
    atoll_value b = atoll_param(t, "b", ATOLL_F32, ATOLL_DIMS(COLUMNS), "normal:0.5");
    atoll_value h = atoll_tanh(atoll_linear(a[0], w, b));
    if (s->breaks) {
        atoll_graph_break(t, "to see whether a gradient goes through");
    }
    atoll_value loss = atoll_mean(atoll_mul(h, h));
    atoll_output(t, "loss", loss);
    if (!s->is_loss) {
        atoll_output(t, "h", h);
    }
}

static atoll_view rows_of(float *x)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = 0.25f * (float)(i % 7) - 0.6f;
    }
    return atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(ROWS, COLUMNS), x);
}

static void call_with(atoll_compiled *f, const atoll_call_options *o, struct setting s,
                      atoll_results *r)
{
    float x[ROWS * COLUMNS];
    atoll_view v = rows_of(x);
    atoll_error error = {0};
    ck_assert_msg(atoll_call_with(f, o, &v, 1, &s, r, &error) == ATOLL_OK, "%s", error.text);
}

static bool is_zero(const atoll_results *r, const char *name)
{
    atoll_view v;
    ck_assert_int_eq(atoll_results_view(r, name, &v, NULL), ATOLL_OK);
    for (size_t i = 0; i < v.bytes; i++) {
        if (((const unsigned char *)v.data)[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Fused against eager, with a break and without: one set of bits. */
START_TEST(gradients_go_through_breaks)
{
    atoll_results *r[4];
    const atoll_call_options o = {.with_gradients = 1, .wrt = "x"};
    static const char *const names[] = {"loss", "grad:w", "grad:b", "grad:x"};
    for (int i = 0; i < 4; i++) {
        atoll_compile_options how = {.is_eager = i % 2, .seed = 5};
        atoll_compiled *f = open_with(model, &how);
        r[i] = atoll_results_create();
        call_with(f, &o, (struct setting){.breaks = i >= 2}, r[i]);
        ck_assert_uint_eq(counters(f).breaks, i >= 2 ? 1 : 0);
        atoll_compiled_destroy(f);
    }
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        ck_assert(!is_zero(r[0], names[k]));
        for (int i = 1; i < 4; i++) {
            same_result(r[0], r[i], names[k]);
        }
    }
    for (int i = 0; i < 4; i++) {
        atoll_results_destroy(r[i]);
    }
}
END_TEST

/* Nor does a training step lose its gradients at a break. */
START_TEST(training_goes_through_breaks)
{
    float after[2][COLUMNS * COLUMNS], before[COLUMNS * COLUMNS];
    for (int i = 0; i < 2; i++) {
        atoll_compile_options how = {.is_eager = _i, .seed = 5, .optimizer = "sgd,lr=0.5"};
        atoll_compiled *f = open_with(model, &how);
        atoll_results *r = atoll_results_create();
        atoll_view w;
        for (int k = 0; k < 3; k++) {
            call_with(f, NULL, (struct setting){.breaks = i, .is_loss = true}, r);
            ck_assert_int_eq(atoll_compiled_state(f, "w", &w, NULL), ATOLL_OK);
            memcpy(k == 0 ? before : after[i], w.data, sizeof before);
        }
        ck_assert_uint_eq(counters(f).breaks, 3 * (uint64_t)i);
        ck_assert_mem_ne(before, after[i], sizeof before);
        atoll_results_destroy(r);
        atoll_compiled_destroy(f);
    }
    ck_assert_mem_eq(after[0], after[1], sizeof before);
}
END_TEST

/* A call with a policy is a call of a function compiled with it. */
START_TEST(policies_are_of_the_call)
{
    static const char *const policies[] = {"fp32", "bf16", "fp16"};
    atoll_compile_options how = {.is_eager = _i, .seed = 5};
    atoll_compiled *f = open_with(model, &how);
    atoll_results *a = atoll_results_create(), *b = atoll_results_create();
    for (int k = 0; k < 6; k++) {
        how.policy = policies[k % 3];
        atoll_compiled *other = open_with(model, &how);
        const atoll_call_options o = {.policy = how.policy};
        call_with(f, &o, (struct setting){0}, a);
        call_with(other, NULL, (struct setting){0}, b);
        same_result(a, b, "loss");
        same_result(a, b, "h");
        atoll_compiled_destroy(other);
    }
    ck_assert_uint_eq(counters(f).builds, 3);
    ck_assert_uint_eq(counters(f).hits, 3);
    const atoll_call_options relaxed = {.policy = "fp16", .rounding = "relaxed"};
    call_with(f, &relaxed, (struct setting){0}, a);
    char *text = atoll_ledger_text(atoll_compiled_ledger(f));
    static const char rounding[] =
        "plan 3 does not hold:\n        [rounding] rounding: strict -> relaxed   (the options of "
        "the call)\n    advice: rounding changed strict -> relaxed: each has plans of its own";
    static const char *const said[] = {"[policy] policy: fp32 -> bf16   (the options of the call)",
                                       "[policy] policy: bf16 -> fp16   (the options of the call)",
                                       rounding};
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        ck_assert_msg(strstr(text, said[i]) != NULL, "no '%s' in:\n%s", said[i], text);
    }
    free(text);
    atoll_results_destroy(a);
    atoll_results_destroy(b);
    atoll_compiled_destroy(f);
}
END_TEST

/* A frozen function's plans are found on arguments alone; a call with options is traced, and leaves
 * them as they are. */
START_TEST(frozen_functions_take_options)
{
    atoll_compile_options how = {.is_eager = 1, .frozen = 1, .seed = 5};
    const atoll_call_options o = {.with_gradients = 1};
    atoll_compiled *f = open_with(model, &how);
    atoll_results *r = atoll_results_create(), *plain = atoll_results_create();
    for (int k = 0; k < 3; k++) {
        call_with(f, NULL, (struct setting){0}, plain);
        ck_assert(isnan(atoll_results_number(plain, "grad:b")));
        call_with(f, &o, (struct setting){0}, r);
        ck_assert(!is_zero(r, "grad:b"));
        same_result(plain, r, "loss");
    }
    ck_assert_uint_eq(counters(f).builds, 2);
    atoll_results_destroy(r);
    atoll_results_destroy(plain);
    atoll_compiled_destroy(f);
}
END_TEST

static const struct mistake {
    atoll_call_options options;
    const char *optimizer, *says;
} mistakes[] = {
    {{.with_gradients = 1, .wrt = "x,q"}, NULL, "call options: wrt: no argument 'q' was recorded"},
    {{.with_gradients = 1, .wrt = "w"}, NULL, "call options: wrt: no argument 'w' was recorded"},
    {{.with_gradients = 1, .wrt = "i"}, NULL, "wrt: argument 'i' is no float: it has no gradient"},
    {{.with_gradients = 1, .frozen = "b,"}, NULL, NULL},
    {{.with_gradients = 1, .frozen = "x"}, NULL, "frozen: no param 'x' was recorded"},
    {{.wrt = "x"}, NULL, "call options: wrt without gradients; hint: .with_gradients = 1"},
    {{.frozen = "w"}, NULL, "call options: frozen without gradients"},
    {{.rounding = "loose"}, NULL, "rounding is 'loose', expected strict or relaxed"},
    {{.policy = "fp7"}, NULL, "fp7"},
    {{.with_gradients = 1}, "sgd,lr=0.1", "call options: @function has an optimizer"},
};

START_TEST(mistakes_are_named)
{
    const struct mistake *m = &mistakes[_i];
    atoll_compile_options how = {.is_eager = 1, .optimizer = m->optimizer};
    atoll_compiled *f = open_with(model, &how);
    float x[ROWS * COLUMNS];
    int64_t whole[2] = {1, 2};
    struct setting s = {.is_loss = true};
    atoll_view v[2] = {rows_of(x), atoll_view_of("i", ATOLL_I64, ATOLL_DIMS(2), whole)};
    atoll_error error = {0};
    atoll_status code = atoll_call_with(f, &m->options, v, 2, &s, NULL, &error);
    ck_assert_int_eq(code, m->says == NULL ? ATOLL_OK : ATOLL_USAGE);
    ck_assert_msg(m->says == NULL || strstr(error.text, m->says) != NULL, "%s", error.text);
    ck_assert_uint_eq(counters(f).builds, m->says == NULL ? 1 : 0);
    atoll_compiled_destroy(f);
}
END_TEST

/* What has no scalar to differentiate says so. */
static void vector(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_tanh(a[0]));
}

START_TEST(only_a_scalar_has_gradients)
{
    atoll_compile_options how = {.is_eager = 1};
    atoll_compiled *f = open_with(vector, &how);
    float x[ROWS * COLUMNS];
    const atoll_call_options o = {.with_gradients = 1, .wrt = "x"};
    atoll_view v = rows_of(x);
    atoll_error error = {0};
    ck_assert_int_eq(atoll_call_with(f, &o, &v, 1, NULL, NULL, &error), ATOLL_SHAPE);
    ck_assert_msg(strstr(error.text, "output 'y' is f32[3,4], expected a float scalar") != NULL,
                  "%s", error.text);
    atoll_compiled_destroy(f);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_test(tc, gradients_go_through_breaks);
    tcase_add_loop_test(tc, training_goes_through_breaks, 0, 2);
    tcase_add_loop_test(tc, policies_are_of_the_call, 0, 2);
    tcase_add_test(tc, frozen_functions_take_options);
    tcase_add_loop_test(tc, mistakes_are_named, 0, ARRAY_LEN(mistakes));
    tcase_add_test(tc, only_a_scalar_has_gradients);
}

int main(void)
{
    return run_suite("options of calls", fill);
}
