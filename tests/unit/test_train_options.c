/* Training options as text: what the forms set, and what each mistake is answered with. */
#include "passes/train_step.h"

#include "tests/suite.h"

#include <string.h>

START_TEST(forms_set_their_fields)
{
    struct train_options o = train_options_default();
    struct error e = {0};
    status code = train_options_parse(&o, "sgd,lr=0.5,momentum=9e-1,nesterov,weight_decay=1e+0",
                                      "warmup,10,start=0.25+cosine,1e+2,eta_min=1e-5", &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(o.optimizer, OPTIMIZER_SGD);
    ck_assert_double_eq(o.lr, 0.5);
    ck_assert_double_eq(o.momentum, 0.9);
    ck_assert_double_eq(o.weight_decay, 1.0);
    ck_assert(o.is_nesterov && !o.is_maximize);
    ck_assert_int_eq(o.schedule.kind, SCHEDULE_COSINE);
    ck_assert_int_eq(o.schedule.warmup, 10);
    ck_assert_int_eq(o.schedule.t_max, 100);
    ck_assert_double_eq(o.schedule.warmup_start, 0.25);
    ck_assert_double_eq(o.schedule.eta_min, 1e-5);
    ck_assert_int_eq(train_options_parse(&o, "adam", "step,50,0.5", &e), ATOLL_OK);
    ck_assert_double_eq(o.weight_decay, 0.0);
    ck_assert_int_eq(o.schedule.step_size, 50);
    ck_assert_double_eq(o.schedule.gamma, 0.5);
    ck_assert_double_eq(o.momentum, 0.0);
    ck_assert_int_eq(o.schedule.warmup, 0);
    ck_assert_int_eq(train_options_parse(&o, "lion,weight_decay=0.1", NULL, &e), ATOLL_OK);
    ck_assert_int_eq(o.optimizer, OPTIMIZER_LION);
    ck_assert_double_eq(o.lr, 1e-4);
    ck_assert_double_eq(o.beta2, 0.99);
    ck_assert_int_eq(train_options_parse(&o, "adam", NULL, &e), ATOLL_OK);
    ck_assert_int_eq(train_options_parse(&o, NULL, "none", &e), ATOLL_OK);
    ck_assert_int_eq(o.optimizer, OPTIMIZER_ADAM);
    ck_assert_int_eq(o.schedule.kind, SCHEDULE_CONSTANT);
}
END_TEST

static const struct {
    const char *optimizer, *schedule, *complaint;
} bad_options[] = {
    {"adamx", NULL, "optimizer 'adamx' is unknown"},
    {"adamw,lr=fast", NULL, "lr must be a number"},
    {"adamw,momentum=0.9", NULL, "'momentum=0.9' is not one of its settings"},
    {"lion,eps=1e-8", NULL, "'eps=1e-8' is not one of its settings"},
    {"sgd,nesterov", NULL, "for nesterov"},
    {"adam,beta1=1", NULL, "beta1 is 1"},
    {"adamw,lr=1,lr=2", NULL, "lr is given twice"},
    {"adam", "linear,5", "schedule 'linear' is unknown"},
    {"adam", "step", "step needs its length"},
    {"adam", "step,0.5", "whole number of steps"},
    {"adam", "cosine,10+warmup,5", "'warmup' cannot stand there"},
    {"adam", "step,10,0.5,3", "'3' is not one of its settings"},
};

START_TEST(bad_options_are_named)
{
    struct train_options o = train_options_default();
    struct error e = {0};
    status code = train_options_parse(&o, bad_options[_i].optimizer, bad_options[_i].schedule, &e);
    ck_assert_int_eq(code, ATOLL_USAGE);
    ck_assert_msg(strstr(e.text, bad_options[_i].complaint) != NULL, "%s", e.text);
}
END_TEST

START_TEST(ways_to_keep_parameters)
{
    struct train_options o = train_options_default();
    struct error e = {0};
    struct arena keep = {0};
    ck_assert_int_eq(train_params_parse(&o, "bf16-remainder,w?=bf16-stochastic,a=b=f32", &keep, &e),
                     ATOLL_OK);
    ck_assert_uint_eq(o.n_param_rules, 3);
    ck_assert_str_eq(o.param_rules[0].pattern, "*");
    ck_assert_int_eq(o.param_rules[0].form, PARAM_BF16_REMAINDER);
    ck_assert_str_eq(o.param_rules[1].pattern, "w?");
    ck_assert_int_eq(o.param_rules[1].form, PARAM_BF16_STOCHASTIC);
    ck_assert_str_eq(o.param_rules[2].pattern, "a=b"); /* a name may hold one */
    ck_assert_int_eq(train_options_parse(&o, "sgd", NULL, &e), ATOLL_OK);
    ck_assert_uint_eq(o.n_param_rules, 3); /* an optimizer's text says nothing of them */
    ck_assert_int_eq(train_params_parse(&o, NULL, &keep, &e), ATOLL_OK);
    ck_assert_uint_eq(o.n_param_rules, 0);
    ck_assert_int_eq(train_params_parse(&o, "w1=bf16", &keep, &e), ATOLL_USAGE);
    ck_assert_msg(strstr(e.text, "'bf16' is no way to keep parameters") != NULL, "%s", e.text);
    arena_free(&keep);
}
END_TEST

static void fill(TCase *t)
{
    tcase_add_test(t, forms_set_their_fields);
    tcase_add_loop_test(t, bad_options_are_named, 0, (int)ARRAY_LEN(bad_options));
    tcase_add_test(t, ways_to_keep_parameters);
}

int main(void)
{
    return run_suite("train_options", fill);
}
