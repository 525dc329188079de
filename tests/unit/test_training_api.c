/* Training through the C API: fused and eager agree bit for bit, checkpoints go on where they
 * stopped, a learning rate changes without a recompile, and every misuse is one line. */
#include "tests/small_training.h"

#include <math.h>

#include "atoll/train.h"

/* Five numbers into four classes. */
static atoll_trace *classifier(void)
{
    atoll_trace *t = atoll_trace_create("classifier");
    int64_t n = atoll_symbol(t, "n");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, 5));
    atoll_value y = atoll_input(t, "y", ATOLL_I64, ATOLL_DIMS(n));
    atoll_value w1 = atoll_param(t, "w1", ATOLL_F32, ATOLL_DIMS(8, 5), "normal:0.3");
    atoll_value w2 = atoll_param(t, "w2", ATOLL_F32, ATOLL_DIMS(4, 8), NULL);
    atoll_value z = atoll_linear(atoll_gelu(atoll_linear(x, w1)), w2);
    atoll_output(t, "loss", atoll_cross_entropy(z, y));
    atoll_output(t, "logits", z);
    return t;
}

static atoll_training *open_with(const atoll_training_options *o)
{
    atoll_trace *t = classifier();
    atoll_training *m = NULL;
    atoll_error error = {0};
    ck_assert_msg(atoll_training_open(t, o, &m, &error) == ATOLL_OK, "%s", error.text);
    ck_assert_ptr_null(atoll_training_notice(m));
    atoll_trace_destroy(t); /* the training keeps nothing of it */
    return m;
}

typedef atoll_status give(atoll_training *m, const atoll_view *input, atoll_error *error);

static void give_batch(atoll_training *m, int64_t rows, give *to)
{
    atoll_error error = {0};
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    atoll_view views[] = {atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, 5), x),
                          atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(rows), y)};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(to(m, &views[i], &error) == ATOLL_OK, "%s", error.text);
    }
}

static void feed(atoll_training *m, int64_t rows)
{
    give_batch(m, rows, atoll_training_feed);
}

static double step(atoll_training *m)
{
    atoll_error error = {0};
    ck_assert_msg(atoll_training_step(m, &error) == ATOLL_OK, "%s", error.text);
    return atoll_training_number(m, "loss");
}

static void same_state(atoll_training *a, atoll_training *b)
{
    atoll_view p, q;
    uint32_t n = atoll_training_state_count(a);
    ck_assert_uint_gt(n, 2);
    ck_assert_uint_eq(n, atoll_training_state_count(b));
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(atoll_training_state_at(a, i, &p, NULL), ATOLL_OK);
        ck_assert_int_eq(atoll_training_state(b, p.name, &q, NULL), ATOLL_OK);
        ck_assert_str_eq(p.dtype, q.dtype);
        ck_assert_uint_eq(p.bytes, q.bytes);
        ck_assert_mem_eq(p.data, q.data, p.bytes);
    }
}

/* ---- the same, both ways ---- */

START_TEST(both_modes_agree)
{
    static const char *const policies[] = {"fp32", "bf16", "fp16"};
    atoll_training_options o = {.policy = policies[_i], .clip = 1.0, .schedule = "step,2,0.5"};
    atoll_training *fused = open_with(&o);
    o.is_eager = 1;
    atoll_training *eager = open_with(&o);
    for (int i = 0; i < 4; i++) {
        feed(fused, i == 3 ? 5 : SMALL_ROWS); /* a last batch that is smaller */
        feed(eager, i == 3 ? 5 : SMALL_ROWS);
        ASSERT_NUMBER(step(fused), step(eager));
    }
    same_state(fused, eager);
    ck_assert_uint_gt(atoll_training_peak_bytes(fused), 0);
    ck_assert_int_eq(atoll_training_steps(fused), 4);
    atoll_view loss, logits;
    ck_assert_int_eq(atoll_training_output(fused, "loss", &loss, NULL), ATOLL_OK);
    ck_assert_uint_eq(loss.rank, 0);
    ck_assert_int_eq(atoll_training_output(fused, "logits", &logits, NULL), ATOLL_OK);
    ck_assert_int_eq(logits.shape[0], 5);
    ASSERT_NUMBER(atoll_training_number(fused, "skipped"), 0.0);
    atoll_training_close(fused);
    atoll_training_close(eager);
}
END_TEST

/* Prefetched before the outputs are looked at: they stay, and the bits are those of feeding. */
START_TEST(prefetched_batches)
{
    atoll_training_options o = {.policy = "bf16", .is_eager = _i};
    atoll_training *fed = open_with(&o), *ahead = open_with(&o);
    atoll_error error = {0};
    atoll_view none = atoll_view_of("z", ATOLL_F32, ATOLL_DIMS(1), &o);
    give_batch(ahead, SMALL_ROWS, atoll_training_prefetch);
    for (int i = 0; i < 4; i++) {
        atoll_view logits;
        feed(fed, i == 2 ? 5 : SMALL_ROWS);
        double loss = step(fed);
        ck_assert_msg(atoll_training_step(ahead, &error) == ATOLL_OK, "%s", error.text);
        give_batch(ahead, i == 1 ? 5 : SMALL_ROWS, atoll_training_prefetch);
        ASSERT_NUMBER(atoll_training_number(ahead, "loss"), loss);
        ck_assert_int_eq(atoll_training_output(ahead, "logits", &logits, NULL), ATOLL_OK);
        ck_assert_int_eq(logits.shape[0], i == 2 ? 5 : SMALL_ROWS);
    }
    same_state(fed, ahead);
    ck_assert_int_eq(atoll_training_prefetch(ahead, &none, &error), ATOLL_NOT_FOUND);
    atoll_training_close(fed);
    atoll_training_close(ahead);
}
END_TEST

START_TEST(checkpoints_go_on)
{
    char path[160];
    atoll_error error = {0};
    atoll_training_options o = {.policy = "fp16", .is_eager = 1, .seed = 3};
    atoll_training *through = open_with(&o), *stopped = open_with(&o), *resumed = NULL;
    snprintf(path, sizeof path, "%s/training.safetensors", small_directory());
    feed(through, SMALL_ROWS);
    feed(stopped, SMALL_ROWS);
    for (int i = 0; i < 6; i++) {
        step(through);
    }
    for (int i = 0; i < 2; i++) {
        step(stopped);
    }
    ck_assert_msg(atoll_training_save(stopped, path, &error) == ATOLL_OK, "%s", error.text);
    o.seed = 4; /* what is loaded replaces it */
    resumed = open_with(&o);
    feed(resumed, SMALL_ROWS);
    ck_assert_msg(atoll_training_load(resumed, path, &error) == ATOLL_OK, "%s", error.text);
    ck_assert_int_eq(atoll_training_steps(resumed), 2);
    ck_assert(isnan(atoll_training_number(resumed, "loss"))); /* none ran here */
    for (int i = 0; i < 4; i++) {
        step(resumed);
    }
    same_state(through, resumed);
    ck_assert_int_eq(atoll_training_steps(resumed), 6);
    ck_assert_int_eq(atoll_training_load(resumed, "/nonexistent", &error), ATOLL_NOT_FOUND);
    atoll_training_close(through);
    atoll_training_close(stopped);
    atoll_training_close(resumed);
}
END_TEST

START_TEST(scalars_change_without_a_recompile)
{
    atoll_error error = {0};
    atoll_view before, after;
    float kept[8 * 5];
    atoll_training_options o = {.optimizer = "sgd,lr=0.1", .is_eager = 1};
    atoll_training *m = open_with(&o);
    feed(m, SMALL_ROWS);
    step(m);
    atoll_training_state(m, "w1", &before, &error);
    memcpy(kept, before.data, sizeof kept);
    ck_assert_msg(atoll_training_set(m, "lr", 0.0, &error) == ATOLL_OK, "%s", error.text);
    step(m);
    atoll_training_state(m, "w1", &after, &error);
    ck_assert_mem_eq(after.data, kept, sizeof kept);
    atoll_training_set(m, "lr", 0.1, &error);
    step(m);
    atoll_training_state(m, "w1", &after, &error);
    ck_assert_mem_ne(after.data, kept, sizeof kept);
    atoll_training_close(m);
}
END_TEST

START_TEST(a_forward_model_takes_the_parameters)
{
    atoll_training_options o = {.is_eager = 1, .seed = 9};
    atoll_training *m = open_with(&o);
    feed(m, SMALL_ROWS);
    step(m);
    step(m);
    o.is_forward = 1;
    o.seed = 0;
    atoll_training *forward = open_with(&o);
    atoll_training_copy(forward, m);
    feed(forward, SMALL_ROWS);
    double at_hand = step(forward);
    ASSERT_NUMBER(at_hand, step(m)); /* a step reports the loss before its update */
    ck_assert_int_eq(atoll_training_state(forward, "opt.m.w1", &(atoll_view){0}, NULL),
                     ATOLL_NOT_FOUND);
    atoll_training_close(m);
    atoll_training_close(forward);
}
END_TEST

/* ---- misuse ---- */

static const struct {
    atoll_training_options o;
    atoll_status status;
    const char *says;
} refused[] = {
    {{.policy = "int4"}, ATOLL_USAGE, "no policy 'int4'"},
    {{.optimizer = "adamw,speed=3"}, ATOLL_USAGE, "speed"},
    {{.schedule = "steps"}, ATOLL_USAGE, "steps"},
    {{.clip = -1.0}, ATOLL_USAGE, "clip norm is -1"},
    {{.accumulate = -2}, ATOLL_USAGE, "accumulate is -2"},
    {{.scaler = "maybe"}, ATOLL_USAGE, "scaler is 'maybe', expected auto, on or off"},
    {{.device = "abacus"}, ATOLL_USAGE, "abacus"},
};

START_TEST(options_are_refused)
{
    atoll_trace *t = classifier();
    atoll_training *m = NULL;
    atoll_error error = {0};
    atoll_status code = atoll_training_open(t, &refused[_i].o, &m, &error);
    ck_assert_msg(code == refused[_i].status, "%d: %s", (int)code, error.text);
    ck_assert_int_eq(error.code, code);
    ck_assert_msg(strstr(error.text, refused[_i].says) != NULL, "%s", error.text);
    ck_assert_ptr_null(m);
    atoll_trace_destroy(t);
}
END_TEST

START_TEST(models_are_refused)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_training *m = NULL;
    atoll_error error = {0};
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(2));
    atoll_output(t, "y", x);
    ck_assert_int_ne(atoll_training_open(t, NULL, &m, &error), ATOLL_OK);
    ck_assert_msg(strstr(error.text, "loss") != NULL || strstr(error.text, "param") != NULL, "%s",
                  error.text);
    atoll_trace_destroy(t);
    t = atoll_trace_create("t");
    error = (atoll_error){0};
    uint32_t line = __LINE__ + 1;
    (void)atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(-3));
    char where[200];
    snprintf(where, sizeof where, "%s:%u: ", __FILE__, line);
    ck_assert_int_eq(atoll_training_open(t, NULL, &m, &error), ATOLL_SHAPE);
    ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s", error.text);
    ck_assert_int_eq(atoll_training_open(NULL, NULL, &m, &(atoll_error){0}), ATOLL_OUT_OF_MEMORY);
    atoll_trace_destroy(t);
}
END_TEST

static atoll_status feed_one(atoll_training *m, atoll_view v, atoll_error *error)
{
    *error = (atoll_error){0};
    return atoll_training_feed(m, &v, error);
}

START_TEST(calls_are_refused)
{
    atoll_error error = {0};
    atoll_view view;
    float x[10] = {0};
    int64_t y[2] = {1, 7};
    atoll_training_options o = {.is_eager = 1};
    atoll_training *m = open_with(&o);
    ck_assert_int_eq(atoll_training_step(m, &error), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "input %x was never fed"));
    ck_assert_int_eq(atoll_training_step(m, &error), ATOLL_USAGE); /* the record holds a failure */
    ck_assert_int_eq(feed_one(m, atoll_view_of("z", ATOLL_F32, ATOLL_DIMS(2, 5), x), &error),
                     ATOLL_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "the model has no input 'z'; it has: x y"));
    ck_assert_int_eq(feed_one(m, atoll_view_of("x", ATOLL_F64, ATOLL_DIMS(2, 5), x), &error),
                     ATOLL_SHAPE);
    ck_assert_int_eq(feed_one(m, atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(2, 4), x), &error),
                     ATOLL_SHAPE);
    ck_assert_int_eq(feed_one(m, atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(-2, 5), x), &error),
                     ATOLL_USAGE);
    ck_assert_int_eq(feed_one(m, atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(2, 5), NULL), &error),
                     ATOLL_USAGE);
    ck_assert_int_eq(feed_one(m, atoll_view_of(NULL, ATOLL_F32, ATOLL_DIMS(2, 5), x), &error),
                     ATOLL_NOT_FOUND);
    ck_assert_int_eq(feed_one(m, atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(2, 5), x), &error),
                     ATOLL_OK);
    ck_assert_int_eq(feed_one(m, atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(2), y), &error),
                     ATOLL_OK);
    ck_assert_int_eq(atoll_training_step(m, &error), ATOLL_DATA); /* label 7 of 4 classes */
    ck_assert_int_eq(atoll_training_output(m, "loss", &view, NULL), ATOLL_USAGE); /* none ran */
    y[1] = 3;
    feed_one(m, atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(2), y), &error);
    step(m);
    ck_assert_int_eq(atoll_training_output(m, "lost", &view, NULL), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_training_state(m, "x", &view, NULL), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_training_state_at(m, 1000, &view, NULL), ATOLL_NOT_FOUND);
    ck_assert_int_eq(atoll_training_set(m, "w1", 1.0, NULL), ATOLL_NOT_FOUND);
    ck_assert(isnan(atoll_training_number(m, "lost")));
    atoll_training_close(m);
    atoll_training_close(NULL);
}
END_TEST

START_TEST(views_are_measured)
{
    atoll_view v = atoll_view_of("x", ATOLL_BF16, ATOLL_DIMS(3, 4), NULL);
    ck_assert_uint_eq(v.bytes, 24);
    ck_assert_uint_eq(v.element_bytes, 2);
    ck_assert_str_eq(v.dtype, "bf16");
    ck_assert_uint_eq(atoll_view_of("x", ATOLL_F32, ATOLL_SCALAR, NULL).bytes, 4);
    ck_assert_uint_eq(atoll_view_of("x", ATOLL_F64, ATOLL_DIMS(INT64_MAX, 9), NULL).rank, 9);
    ck_assert_str_eq(atoll_dtype_name((atoll_dtype)99), "none");
    ck_assert_uint_eq(atoll_dtype_bytes(ATOLL_NO_DTYPE), 0);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, both_modes_agree, 0, 3);
    tcase_add_loop_test(tc, prefetched_batches, 0, 2);
    tcase_add_test(tc, checkpoints_go_on);
    tcase_add_test(tc, scalars_change_without_a_recompile);
    tcase_add_test(tc, a_forward_model_takes_the_parameters);
    tcase_add_loop_test(tc, options_are_refused, 0, ARRAY_LEN(refused));
    tcase_add_test(tc, models_are_refused);
    tcase_add_test(tc, calls_are_refused);
    tcase_add_test(tc, views_are_measured);
}

int main(void)
{
    return run_suite("training", fill);
}
