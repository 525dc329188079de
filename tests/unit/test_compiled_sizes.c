/* Calls of 64, 64, 5, 1, 0 and 64 rows through the public API: what is built, what the ledger says
 * of it, and the bits of every result and state, fused against eager. */
#include "tests/small_compiled.h"

#include <math.h>

enum { MOST_ROWS = 64, WIDTH = 5, CLASSES = 4 };
static const int64_t rows[] = {64, 64, 5, 1, 0, 64};

static void classifier(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value w1 = atoll_param(t, "w1", ATOLL_F32, ATOLL_DIMS(8, WIDTH), "normal:0.3");
    atoll_value g = atoll_param(t, "g", ATOLL_F32, ATOLL_DIMS(8), "ones");
    atoll_value w2 = atoll_param(t, "w2", ATOLL_F32, ATOLL_DIMS(CLASSES, 8), "normal:0.3");
    atoll_value h = atoll_rms_norm(atoll_gelu(atoll_linear(a[0], w1)), g);
    atoll_value z = atoll_linear(h, w2);
    atoll_output(t, "loss", atoll_cross_entropy(z, a[1]));
    atoll_output(t, "p", atoll_softmax(z));
}

static const struct kind {
    atoll_compile_options options;
    bool with_gradients;
    const char *outputs[8];
} kinds[] = {
    {{.policy = "fp32"}, false, {"loss", "p"}},
    {{.policy = "bf16"}, false, {"loss", "p"}},
    {{.policy = "bf16"}, true, {"loss", "p", "grad:w1", "grad:g", "grad:w2", "grad:x"}},
    {{.policy = "fp32", .optimizer = "adamw,lr=1e-2", .clip = 1.0}, false, {"loss", "p"}},
    {{.policy = "fp16", .optimizer = "adamw,lr=1e-2"}, false, {"loss", "p", "accepted", "skipped"}},
};

/* The same bits; a NaN is a NaN. */
static void same(const atoll_view *a, const atoll_view *b, const char *what, int64_t n)
{
    enum dtype t = dtype_named(a->dtype, strlen(a->dtype));
    size_t bytes = dtype_info[t].bytes;
    ck_assert_str_eq(a->dtype, b->dtype);
    ck_assert_uint_eq(a->bytes, b->bytes);
    for (size_t i = 0; i < a->bytes; i += bytes) {
        const char *p = (const char *)a->data + i, *q = (const char *)b->data + i;
        double x = dtype_load(t, p), y = dtype_load(t, q);
        ck_assert_msg(memcmp(p, q, bytes) == 0 || (x != x && y != y), "%s of %d rows: %g and %g",
                      what, (int)n, x, y);
    }
}

static void call(atoll_compiled *f, const struct kind *k, int64_t n, atoll_results *r)
{
    static float x[MOST_ROWS * WIDTH];
    static int64_t y[MOST_ROWS];
    const atoll_call_options o = {.with_gradients = 1, .wrt = "x"};
    atoll_error error = {0};
    for (int64_t i = 0; i < MOST_ROWS * WIDTH; i++) {
        x[i] = 0.1f * (float)(i * 37 % 41) - 2.0f;
        y[i / WIDTH] = i / WIDTH % CLASSES;
    }
    atoll_view v[] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(n, WIDTH), x),
                      atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(n), y)};
    ck_assert_msg(atoll_call_with(f, k->with_gradients ? &o : NULL, v, 2, NULL, r, &error) ==
                      ATOLL_OK,
                  "%d rows: %s", (int)n, error.text);
}

static void same_after(const struct kind *k, atoll_compiled *const f[2], atoll_results *const r[2],
                       int64_t n)
{
    static const char *const params[] = {"w1", "g", "w2"};
    atoll_view a, b;
    for (size_t i = 0; i < ARRAY_LEN(k->outputs) && k->outputs[i] != NULL; i++) {
        ck_assert_int_eq(atoll_results_view(r[0], k->outputs[i], &a, NULL), ATOLL_OK);
        ck_assert_int_eq(atoll_results_view(r[1], k->outputs[i], &b, NULL), ATOLL_OK);
        same(&a, &b, k->outputs[i], n);
    }
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        ck_assert_int_eq(atoll_compiled_state(f[0], params[i], &a, NULL), ATOLL_OK);
        ck_assert_int_eq(atoll_compiled_state(f[1], params[i], &b, NULL), ATOLL_OK);
        same(&a, &b, params[i], n);
    }
}

static void check_text(const atoll_compiled *f)
{
    static const char advice[] =
        "    advice: dim 0 of x took 64, then 5: it is a symbol from now on, 2 or more, and such "
        "sizes compile no more\n";
    static const char *const said[] = {
        "call 1, x f32[64,5], y i64[64]: built plan 1 in ",
        "    why: the first call: there was no plan to compare with\n",
        "call 2, x f32[64,5], y i64[64]: hit: plan 1 runs\n",
        "call 3, x f32[5,5], y i64[5]: built plan 2 in ",
        "    plan 1 does not hold:\n        [dim] dim 0 of x: 64 -> 5   (argument x at ",
        "        [dim] dim 0 of y: 64 -> 5   (argument y at ",
        advice,
        "call 4, x f32[1,5], y i64[1]: built plan 3 in ",
        "    plan 2 does not hold:\n        [dim_range] dim 0 of x: 2 or more -> 1   (argument x ",
        "dim 0 of x is 1: sizes 0 and 1 have a plan of their own each (they vanish and broadcast)",
        "call 5, x f32[0,5], y i64[0]: built plan 4 in ",
        "        [dim_range] dim 0 of x: 2 or more -> 0   (argument x at ",
        "    plan 3 does not hold:\n        [dim] dim 0 of x: 1 -> 0   (argument x at ",
        "dim 0 of x is 0: sizes 0 and 1 have a plan of their own each (they vanish and broadcast)",
        "call 6, x f32[64,5], y i64[64]: hit: plan 1 runs\n",
        "6 calls: 2 hits, 4 plans built (3 recompiles) in ",
    };
    char *text = atoll_ledger_text(atoll_compiled_ledger(f));
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        ck_assert_msg(strstr(text, said[i]) != NULL, "no '%s' in:\n%s", said[i], text);
    }
    free(text);
}

START_TEST(few_rows_and_none)
{
    static const uint64_t builds[] = {1, 1, 2, 3, 4, 4};
    const struct kind *k = &kinds[_i];
    atoll_compiled *f[2];
    atoll_results *r[2];
    for (int e = 0; e < 2; e++) {
        atoll_compile_options o = k->options;
        o.is_eager = e;
        o.seed = 3;
        f[e] = open_with(classifier, &o);
        r[e] = atoll_results_create();
    }
    for (size_t c = 0; c < ARRAY_LEN(rows); c++) {
        for (int e = 0; e < 2; e++) {
            call(f[e], k, rows[c], r[e]);
            ck_assert_uint_eq(counters(f[e]).builds, builds[c]);
        }
        same_after(k, f, r, rows[c]);
        double loss = atoll_results_number(r[0], "loss");
        ck_assert(rows[c] == 0 ? isnan(loss) : isfinite(loss)); /* of nothing there is no mean */
    }
    for (int e = 0; e < 2; e++) {
        check_text(f[e]);
        atoll_results_destroy(r[e]);
        atoll_compiled_destroy(f[e]);
    }
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, few_rows_and_none, 0, ARRAY_LEN(kinds));
}

int main(void)
{
    return run_suite("sizes of calls", fill);
}
