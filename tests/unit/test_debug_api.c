/* The public diagnostics, by public headers alone: a planted overflow is named with its line, eager
 * and fused; ranges and values of a run; two trainings held against each other; every misuse is one
 * line. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/debug.h"
#include "atoll/ops.h"
#include "tests/suite.h"

enum { ROWS = 6, WIDTH = 4 };
static uint32_t line_of_exp;

/* The loss falls as exp grows, with the learning rate; "tiny" is a parameter that f8e4m3 cannot
 * hold. */
static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("debug");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(ROWS, WIDTH));
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(3, WIDTH), "normal:0.1");
    atoll_value tiny = atoll_param(t, "tiny", ATOLL_F32, ATOLL_DIMS(3), "1e-9");
    atoll_value z = atoll_name(atoll_linear(x, w, tiny), "z");
    line_of_exp = __LINE__ + 1;
    atoll_value e = atoll_name(atoll_exp(z), "e");
    atoll_output(t, "loss", atoll_neg(atoll_mean(e)));
    return t;
}

static atoll_training *open_as(const char *policy, const char *optimizer, int is_eager, int keeps)
{
    atoll_trace *t = model();
    atoll_training *m = NULL;
    atoll_error error = {0};
    atoll_training_options o = {.policy = policy,
                                .optimizer = optimizer,
                                .is_eager = is_eager,
                                .keeps_values = keeps,
                                .seed = 5};
    ck_assert_msg(atoll_training_open(t, &o, &m, &error) == ATOLL_OK, "%s", error.text);
    atoll_trace_destroy(t);
    static float numbers[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) {
        numbers[i] = (float)(i % 7 - 3) / 2.0F;
    }
    atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(ROWS, WIDTH), numbers);
    ck_assert_msg(atoll_training_feed(m, &x, &error) == ATOLL_OK, "%s", error.text);
    return m;
}

static void debug_step(atoll_training *m)
{
    atoll_error error = {0};
    ck_assert_msg(atoll_debug_step(m, &error) == ATOLL_OK, "%s", error.text);
}

/* A step by a huge rate: the next exp overflows. */
START_TEST(an_overflow_is_named)
{
    int is_eager = _i == 0;
    atoll_training *m = open_as("fp32", "sgd,lr=1e4", is_eager, !is_eager);
    atoll_nonfinite found;
    debug_step(m);
    ck_assert_int_eq(atoll_debug_nonfinite(m, &found, NULL), ATOLL_OK);
    ck_assert_int_eq(found.kind, ATOLL_ALL_FINITE);
    ck_assert_str_eq(found.node, "");
    debug_step(m);
    ck_assert_int_eq(atoll_debug_nonfinite(m, &found, NULL), ATOLL_OK);
    ck_assert_int_eq(found.kind, ATOLL_NONFINITE_OVERFLOW);
    ck_assert_str_eq(found.phase, "forward");
    ck_assert_str_eq(found.node, "e");
    ck_assert_str_eq(found.op, "exp");
    ck_assert_str_eq(found.of, "exp");
    ck_assert_ptr_nonnull(strstr(found.file, "test_debug_api.c"));
    ck_assert_uint_eq(found.line, line_of_exp);
    ck_assert(isinf(found.number) && found.element >= 0 && found.element < ROWS * 3);
    ck_assert_int_eq(found.is_scaled, 0);
    ck_assert_int_eq(found.kernel[0] != '\0', !is_eager);
    ck_assert_ptr_nonnull(strstr(found.text, "= inf: overflow"));
    ck_assert_int_eq(atoll_training_steps(m), 2);
    atoll_training_close(m);
}
END_TEST

START_TEST(ranges_of_a_run)
{
    atoll_training *m = open_as("fp32", "sgd,lr=0.1", _i == 0, _i != 0);
    atoll_range r;
    atoll_view z;
    for (int i = 0; i < 3; i++) {
        debug_step(m);
    }
    ck_assert_int_eq(atoll_debug_range(m, "z", &r, NULL), ATOLL_OK);
    ck_assert_uint_eq(r.elements, 3 * ROWS * 3);
    ck_assert_uint_eq(r.nonfinite, 0);
    ck_assert_int_eq(atoll_debug_value(m, "z", &z, NULL), ATOLL_OK);
    ck_assert_int_eq(z.shape[0], ROWS);
    const float *numbers = z.data;
    for (int i = 0; i < ROWS * 3; i++) {
        ck_assert_double_le(fabs((double)numbers[i]), r.amax);
    }
    atoll_debug_forget(m);
    ck_assert_int_eq(atoll_debug_range(m, "z", &r, NULL), ATOLL_USAGE);
    atoll_training_close(m);
    m = open_as("fp32", "sgd,lr=0", _i == 0, _i != 0);
    debug_step(m);
    ck_assert_int_eq(atoll_debug_range(m, "tiny", &r, NULL), ATOLL_OK);
    ck_assert_uint_eq(r.elements, 3);
    ck_assert_double_eq(r.amax, (double)1e-9F);
    ck_assert_double_eq(r.underflow[ATOLL_NARROW_F8E4M3], 1.0);
    ck_assert_double_eq(r.underflow[ATOLL_NARROW_F16], 1.0);
    ck_assert_double_eq(r.underflow[ATOLL_NARROW_BF16], 0.0);
    ck_assert_double_eq(r.saturate[ATOLL_NARROW_F8E5M2], 0.0);
    atoll_training_close(m);
}
END_TEST

/* A recorded step has the bits of any other, fused those of eager; bf16 is another run. */
START_TEST(trainings_are_compared)
{
    atoll_training *plain = open_as("bf16", "adamw", 0, 0), *eager = open_as("bf16", "adamw", 1, 0);
    atoll_training *seen = open_as("bf16", "adamw", 0, 1), *wide = open_as("fp32", "adamw", 1, 0);
    atoll_error error = {0};
    atoll_bits bits;
    atoll_distance far;
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(atoll_training_step(plain, &error) == ATOLL_OK, "%s", error.text);
        debug_step(eager);
        debug_step(seen);
        debug_step(wide);
    }
    ck_assert_int_eq(atoll_debug_compare(plain, eager, &bits, &error), ATOLL_OK);
    ck_assert_uint_eq(bits.different, 0);
    ck_assert_uint_ge(bits.compared, 3 * (3 * WIDTH + 3));
    ck_assert_int_eq(atoll_debug_compare(plain, seen, &bits, &error), ATOLL_OK);
    ck_assert_msg(bits.different == 0, "%s", bits.first);
    ck_assert_int_eq(atoll_debug_compare(plain, wide, &bits, &error), ATOLL_OK);
    ck_assert_uint_gt(bits.different, 0);
    ck_assert_str_ne(bits.first, "");
    ck_assert_int_eq(atoll_debug_distance(plain, wide, "loss", &far, &error), ATOLL_OK);
    ck_assert_uint_eq(far.elements, 1);
    ck_assert(far.max_abs > 0.0 && far.relative_l2 < 0.05);
    ck_assert_int_eq(atoll_debug_distance(plain, eager, "w", &far, &error), ATOLL_OK);
    ck_assert_double_eq(far.max_abs, 0.0);
    ck_assert_double_eq(far.max_ulp, 0.0);
    atoll_training_close(plain);
    atoll_training_close(eager);
    atoll_training_close(seen);
    atoll_training_close(wide);
}
END_TEST

START_TEST(misuse_is_one_line)
{
    atoll_error error = {0};
    atoll_nonfinite found;
    atoll_range r;
    atoll_view v;
    atoll_bits bits;
    atoll_distance far;
    atoll_training *fused = open_as("fp32", "adamw", 0, 0), *eager = open_as("fp32", "adamw", 1, 0);
    ck_assert_int_eq(atoll_debug_step(fused, &error), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "keeps_values"));
    ck_assert_int_eq(atoll_training_steps(fused), 0);
    ck_assert_int_eq(atoll_debug_step(eager, &error), ATOLL_USAGE); /* the record holds a failure */
    ck_assert_int_eq(atoll_training_steps(eager), 0);
    ck_assert_int_eq(atoll_debug_nonfinite(eager, &found, NULL), ATOLL_USAGE);
    ck_assert_int_eq(atoll_debug_compare(eager, fused, &bits, NULL), ATOLL_USAGE);
    debug_step(eager);
    error = (atoll_error){0};
    ck_assert_int_eq(atoll_debug_range(eager, "zz", &r, &error), ATOLL_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "no float named %zz"));
    ck_assert_int_eq(atoll_debug_value(eager, "zz", &v, NULL), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_debug_compare(eager, fused, &bits, NULL), ATOLL_USAGE);
    ck_assert_int_eq(atoll_training_step(fused, NULL), ATOLL_OK);
    ck_assert_int_eq(atoll_debug_distance(eager, fused, "zz", &far, NULL), ATOLL_NOT_FOUND);
    atoll_training_close(fused);
    atoll_training_close(eager);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, an_overflow_is_named, 0, 2);
    tcase_add_loop_test(tc, ranges_of_a_run, 0, 2);
    tcase_add_test(tc, trainings_are_compared);
    tcase_add_test(tc, misuse_is_one_line);
}

int main(void)
{
    return run_suite("debug_api", fill);
}
