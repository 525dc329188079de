/* Training under every FP8 recipe, on a perceptron and on an attention block: fused and eager have
 * the same bits, and the loss after 200 steps stays near bf16's. */
#include "tests/fp8_models.h"

#include <math.h>

enum { STEPS_COMPARED = 4, STEPS = 200, LAST = 20 };
/* The mean loss of the last 20 of 200 steps is at most this much above bf16's. */
#define MARGIN 0.05

static const char *const models[] = {fp8_mlp, fp8_attention};

static uint32_t count_products(const struct graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == OP_scaled_matmul;
    }
    return n;
}

START_TEST(fused_is_eager)
{
    const char *policy = fp8_policies[_i / 2];
    struct runner fused, eager;
    if (is_sanitized() && _i % 2 == 1) {
        return; /* the attention block runs the perceptron's code, three times as long */
    }
    struct dataset d;
    fp8_data(&d);
    fp8_open(&fused, models[_i % 2], policy_builtin(policy), false);
    fp8_open(&eager, models[_i % 2], policy_builtin(policy), true);
    uint32_t layers = _i % 2 == 0 ? 2 : 6, high = strcmp(policy, "fp8-rowwise-gw-hp") == 0;
    ck_assert_uint_eq(count_products(runner_graph(&fused)), layers * (3 - high));
    for (int i = 0; i < STEPS_COMPARED; i++) {
        fp8_feed(&fused, &d, i);
        fp8_feed(&eager, &d, i);
        double a = fp8_step(&fused), b = fp8_step(&eager);
        ck_assert(a == b && isfinite(a));
        fp8_same_leaves(&fused, &eager, policy);
    }
    runner_free(&fused);
    runner_free(&eager);
    dataset_close(&d);
}
END_TEST

static double train(const char *model, const char *policy, const struct dataset *d)
{
    struct runner r;
    double sum = 0.0;
    fp8_open(&r, model, policy_builtin(policy), false);
    for (int i = 0; i < STEPS; i++) {
        fp8_feed(&r, d, i);
        double loss = fp8_step(&r);
        sum += i >= STEPS - LAST ? loss : 0.0;
    }
    ck_assert_double_eq(runner_number(&r, "skipped"), 0.0);
    runner_free(&r);
    return sum / LAST;
}

START_TEST(loss_stays_near_bf16)
{
    struct dataset d;
    fp8_data(&d);
    double reference = train(models[_i], "bf16", &d);
    ck_assert_double_lt(reference, 1.0); /* 2.3 at first */
    for (size_t k = 0; k < ARRAY_LEN(fp8_policies); k++) {
        double loss = train(models[_i], fp8_policies[k], &d);
        ck_assert_msg(loss < reference + MARGIN, "%s: loss %g, bf16 %g", fp8_policies[k], loss,
                      reference);
    }
    dataset_close(&d);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_set_timeout(tc, 1200);
    tcase_add_loop_test(tc, fused_is_eager, 0, 2 * (int)ARRAY_LEN(fp8_policies));
    if (!is_sanitized()) { /* thousands of steps for a figure: no new code runs in them */
        tcase_add_loop_test(tc, loss_stays_near_bf16, 0, (int)ARRAY_LEN(models));
    }
}

int main(void)
{
    return run_suite("fp8_training", fill);
}
