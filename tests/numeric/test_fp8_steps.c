/* Steps under FP8: an infinity before the saturating cast skips the step, or the window of
 * micro-batches it is in; saturations and underflows are counted. */
#include "tests/fp8_models.h"

#include <math.h>

/* An infinite input: the saturating cast would make it 448, so nothing later could tell. */
START_TEST(an_infinity_before_the_cast_skips_the_step)
{
    struct runner r;
    struct dataset d;
    fp8_data(&d);
    fp8_open(&r, fp8_mlp, policy_builtin(fp8_policies[_i]), _i % 2 == 0);
    fp8_feed(&r, &d, 0);
    (void)fp8_step(&r);
    ck_assert_double_eq(runner_number(&r, "accepted"), 1.0);
    float *bias = runner_leaf(&r, "b1")->data, old = bias[5], weight[4];
    memcpy(weight, runner_leaf(&r, "w2")->data, sizeof weight);
    bias[5] = INFINITY;
    fp8_feed(&r, &d, 1);
    (void)fp8_step(&r);
    ck_assert_double_eq(runner_number(&r, "skipped"), 1.0);
    ck_assert_mem_eq(weight, runner_leaf(&r, "w2")->data, sizeof weight);
    bias = runner_leaf(&r, "b1")->data;
    bias[5] = old;
    fp8_feed(&r, &d, 1);
    ck_assert(isfinite(fp8_step(&r)));
    ck_assert_double_eq(runner_number(&r, "accepted"), 2.0);
    runner_free(&r);
    dataset_close(&d);
}
END_TEST

/* Of three micro-batches the first overflows: the window is skipped, the next one is not. */
START_TEST(a_window_remembers_an_infinity)
{
    struct runner r;
    struct dataset d;
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.policy = policy_builtin("fp8-delayed"),
                                .train = &train,
                                .is_eager = _i == 0,
                                .cache = small_kernels(),
                                .cc = {.optimise = "-O1"}};
    struct graph *g = fp8_model(fp8_mlp);
    train.accumulate = 3;
    ck_assert_msg(runner_open(&r, g, &o, 3, &e) == ATOLL_OK, "%s", e.text);
    fp8_data(&d);
    float old = 0.0F;
    for (int i = 0; i < 6; i++) {
        float *bias = runner_leaf(&r, "b1")->data;
        old = i == 0 ? bias[5] : old;
        bias[5] = i == 0 ? INFINITY : old;
        fp8_feed(&r, &d, i);
        (void)fp8_step(&r);
        ck_assert_double_eq(runner_number(&r, "skipped"), i < 2 ? 0.0 : 1.0);
        ck_assert_double_eq(runner_number(&r, "accepted"), i < 5 ? 0.0 : 1.0);
    }
    runner_free(&r);
    graph_destroy(g);
    dataset_close(&d);
}
END_TEST

/* Scales start at 1 under delayed scaling, and gradients are small: they underflow at first, and
 * less when the history has seen them. Values of 10^5 saturate. */
START_TEST(counts_are_outputs)
{
    struct runner r;
    struct dataset d;
    struct policy p = *policy_builtin("fp8-delayed");
    p.fp8.wants_counts = true;
    fp8_data(&d);
    fp8_open(&r, fp8_mlp, &p, _i == 0);
    fp8_feed(&r, &d, 0);
    (void)fp8_step(&r);
    double first = runner_number(&r, "fp8.underflowed:h2.dy");
    ck_assert_double_gt(first, 200.0);
    ck_assert_double_eq(runner_number(&r, "fp8.saturated:h2.x"), 0.0);
    fp8_feed(&r, &d, 0);
    (void)fp8_step(&r);
    ck_assert_double_lt(runner_number(&r, "fp8.underflowed:h2.dy"), first / 2.0);
    float *w = runner_leaf(&r, "w2")->data;
    memset(w, 0, sizeof *w * 128 * 128);
    w[0] = 1e5F;
    w[1] = -1e5F;
    fp8_feed(&r, &d, 0);
    (void)fp8_step(&r);
    ck_assert_double_eq(runner_number(&r, "fp8.saturated:h2.w"), 2.0);
    runner_free(&r);
    dataset_close(&d);
}
END_TEST

/* fp8_mlp with rows "100", which are filled up for the weight gradients, or "128*n". */
static const char *with_rows(const char *rows)
{
    static char out[2000];
    const char *from = strchr(fp8_mlp, ':'), *rest = from + strlen(": f32[128,64] input");
    const char *labels = strstr(rest, "i64[128]");
    snprintf(out, sizeof out, "%.*s: f32[%s,64] input%.*si64[%s]%s", (int)(from - fp8_mlp), fp8_mlp,
             rows, (int)(labels - rest), rest, rows, labels + strlen("i64[128]"));
    return out;
}

static uint32_t products_of(struct runner *r)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < runner_graph(r)->n_nodes; i++) {
        n += runner_graph(r)->nodes[i].op == OP_scaled_matmul;
    }
    return n;
}

/* All products but those that the recipe itself leaves in bf16 are f8, fused is eager, and a symbol
 * that stands for 128 rows gives the bits of 128. */
START_TEST(rows_filled_up_and_symbols)
{
    bool is_symbol = _i % 2 == 1;
    const char *policy = fp8_policies[_i / 2];
    struct runner fused, eager;
    struct dataset d;
    fp8_data(&d);
    fp8_open(&fused, with_rows(is_symbol ? "128*n" : "100"), policy_builtin(policy), false);
    fp8_open(&eager, is_symbol ? fp8_mlp : with_rows("100"), policy_builtin(policy), true);
    ck_assert_uint_eq(products_of(&fused), strstr(policy, "gw-hp") != NULL ? 4 : 6);
    for (int i = 0; i < 2; i++) {
        fp8_feed(&fused, &d, i);
        fp8_feed(&eager, &d, i);
        double a = fp8_step(&fused), b = fp8_step(&eager);
        ck_assert_msg(a == b && isfinite(a), "%s: %.9g, eager %.9g", policy, a, b);
        fp8_same_leaves(&fused, &eager, policy);
    }
    ck_assert_double_eq(runner_number(&fused, "accepted"), 2.0);
    runner_free(&fused);
    runner_free(&eager);
    dataset_close(&d);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, an_infinity_before_the_cast_skips_the_step, 0,
                        (int)ARRAY_LEN(fp8_policies));
    tcase_add_loop_test(tc, a_window_remembers_an_infinity, 0, 2);
    tcase_add_loop_test(tc, counts_are_outputs, 0, 2);
    tcase_add_loop_test(tc, rows_filled_up_and_symbols, 0, 2 * (int)ARRAY_LEN(fp8_policies));
}

int main(void)
{
    return run_suite("fp8_steps", fill);
}
