/* Field cases of the training step: scaler, clipping, accumulation, optimizers, dropout, random
 * numbers. See cases.h. */
#include "tests/numeric/cases.h"

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

#include <omp.h>

#define TIMES_G                                                                                    \
    "graph @g(%w: f32[] param {init=\"ones\"}, %g: f32[] input) {\n"                               \
    "%loss = mul(%w, %g)\nreturn loss=%loss\n}"
#define DECAYING                                                                                   \
    .graph = TIMES_G, .optimizer = "sgd,lr=0.1", .schedule = "step,1,0.5", .scale = 1024.0,        \
    .inputs = {{"g", {1.0, INF, 1.0, 1.0}, .is_series = true}}
#define ADAMW                                                                                      \
    .graph = TIMES_G, .optimizer = "adamw,lr=0.1,eps=0.01,weight_decay=0.1",                       \
    .inputs = {{"w", {2.0}}, {"g", {0.5, -0.25}, .is_series = true}}
#define SUMMED                                                                                     \
    "graph @g(%w: f32[] param {init=\"ones\"}, %a: f32[3] input, %k: f32[] input) {\n"             \
    "%i = iota() {shape=[3], dtype=f32}\n%is = lt(%i, %k)\n%b = where(%is, %a, 0)\n"               \
    "%m = mul(%w, %b)\n%loss = sum(%m)\nreturn loss=%loss, loss_count=%k\n}"
#define DROPOUT(attrs)                                                                             \
    "graph @g(%x: f32[3] param, %s: i64[] state) {\n%y = dropout(%x, %s) {" attrs                  \
    "}\n%loss = sum(%y)\nreturn loss=%loss, y=%y\n}"
#define DROPOUT_DATA .wants_gradients = true, .inputs = {{"x", {1.0, -2.0, 3.0}}}

static const struct field_case cases[] = {
    {.id = "FC011",
     .graph = "graph @g(%s: f32[] state, %t: i32[] state, %o: bool[] input) {\n"
              "%s1 = scaler_scale(%s, %t, %o) {interval=1}\n"
              "%t1 = scaler_tracker(%s, %t, %o) {interval=1}\n"
              "update %s <- %s1\nupdate %t <- %t1\nreturn s1=%s1, t1=%t1\n}",
     .steps = 3,
     .inputs = {{"s", {8.507059173023462e+37}}},
     .outputs = {{"s1", {1.7014118346046923e+38}}, {"t1", {0.0}}, {"s", {1.7014118346046923e+38}}}},
    {.id = "FC012",
     .graph = "graph @g(%gs: f32[2] input, %r: f32[] input, %max: f32[] scalar) {\n"
              "%u = unscale(%gs, %r)\n%n = global_norm(%u)\n"
              "%c = clip_grad_norm(%u, %n, %max) {eps=1e-6}\nreturn n=%n, c=%c\n}",
     .inputs = {{"gs", {3072.0, 4096.0}}, {"r", {1.0 / 1024.0}}, {"max", {1.0}}},
     .outputs = {{"n", {5.0}, .relative = 5e-7},
                 {"c", {0.599999880000024, 0.799999840000032}, .relative = 5e-7}}},
    {.id = "FC012 the wrong order",
     .graph = "graph @g(%w: f32[2] param, %s: f32[] state) {\n"
              "%a = sum(%w)\n%l = scale_loss(%a, %s)\n%g = mul(%w, %l)\n%n = global_norm(%w)\n"
              "%c = clip_grad_norm(%g, %n, 1)\nreturn loss=%c\n}",
     .refused = "%c = clip_grad_norm: found operand %g scaled by %s in %l = scale_loss"},
    {.id = "FC012 in training",
     .graph = "graph @g(%w: f32[2] param {init=\"zeros\"}, %g: f32[2] input) {\n"
              "%m = mul(%w, %g)\n%loss = sum(%m)\nreturn loss=%loss\n}",
     .optimizer = "sgd,lr=1",
     .max_norm = 1.0,
     .scale = 1024.0,
     .inputs = {{"g", {3.0, 4.0}}},
     .outputs = {{"grad_norm", {5.0}},
                 {"w", {-0.599999880000024, -0.799999840000032}, .relative = 5e-7}}},
    {.id = "FC014",
     .graph = SUMMED,
     .optimizer = "sgd,lr=1",
     .steps = 2,
     .accumulate = 2,
     .inputs = {{"a", {4.0, 7.0, 9.0}}, {"k", {1.0, 0.0}, .is_series = true}},
     .outputs = {{"mean_loss", {4.0}}, {"w", {-3.0}}, {"acc.terms", {0.0}}}},
    {.id = "FC014 without micro-batches",
     .graph = SUMMED,
     .optimizer = "sgd,lr=1",
     .scale = 8.0,
     .inputs = {{"a", {1.0, 0.5, 1.5}}, {"k", {3.0}}},
     .outputs = {{"mean_loss", {1.0}}, {"w", {0.0}, .absolute = 1e-7}}},
    {.id = "FC014 no terms at all",
     .graph = SUMMED,
     .optimizer = "sgd,lr=1",
     .inputs = {{"a", {1.0, 0.5, 1.5}}, {"k", {0.0}}},
     .outputs = {{"w", {1.0}}, {"skipped", {1.0}}, {"opt.step", {0.0}}}},
    {.id = "FC016",
     .graph = "graph @g(%a: f32[2] input, %b: f32[0] input, %max: f32[] scalar) {\n"
              "%n = global_norm(%a, %b)\n%m = global_norm(%a, %b) {p=inf}\n"
              "%o = global_norm(%b, %a) {p=1}\n%e = global_norm(%b) {p=inf}\n"
              "%z = global_norm()\n%c = clip_grad_norm(%a, %z, %max)\n"
              "return n=%n, m=%m, o=%o, e=%e, z=%z, c=%c\n}",
     .inputs = {{"a", {3.0, -4.0}}, {"max", {1.0}}},
     .outputs = {{"n", {5.0}},
                 {"m", {4.0}},
                 {"o", {7.0}},
                 {"e", {0.0}},
                 {"z", {0.0}},
                 {"c", {3.0, -4.0}}}},
    {.id = "FC017, step 1",
     DECAYING,
     .steps = 1,
     .outputs = {{"w", {0.9}, .absolute = 3e-7}, {"lr", {0.1}, .absolute = 1e-9}}},
    {.id = "FC017, step 2",
     DECAYING,
     .steps = 2,
     .outputs = {{"w", {0.9}, .absolute = 3e-7}, {"skipped", {1.0}}, {"scale", {1024.0}}}},
    {.id = "FC017, step 3",
     DECAYING,
     .steps = 3,
     .outputs = {{"w", {0.85}, .absolute = 3e-7}, {"lr", {0.05}, .absolute = 1e-9}}},
    {.id = "FC017",
     DECAYING,
     .steps = 4,
     .outputs = {{"w", {0.825}, .absolute = 3e-7},
                 {"lr", {0.025}, .absolute = 1e-9},
                 {"accepted", {3.0}},
                 {"skipped", {1.0}},
                 {"scaler.scale", {512.0}}}},
    {.id = "FC019",
     .graph = "graph @g(%g: f32[2] input, %n: f32[] input) {\n"
              "%c = clip_grad_norm(%g, %n, -1)\nreturn c=%c\n}",
     .refused = "max_norm must be >= 0, found -1"},
    {.id = "FC019 as an option",
     .graph = TIMES_G,
     .optimizer = "sgd,lr=1",
     .max_norm = -1.0,
     .refused = "clip norm is -1, expected 0 or more"},
    {.id = "FC019 given to a step",
     .graph = TIMES_G,
     .optimizer = "sgd,lr=1",
     .max_norm = 1.0,
     .inputs = {{"g", {3.0}}, {"max_norm", {-1.0}}},
     .outputs = {{"w", {1.0}}, {"skipped", {1.0}}}},
    {.id = "FC098",
     .graph = "graph @g(%p: f16[3] param, %g: f16[3] input) {\n"
              "%m = mul(%p, %g)\n%loss = sum(%m)\nreturn loss=%loss\n}",
     .optimizer = "adam,lr=1e-3",
     .allows_low = true,
     .steps = 3,
     .inputs = {{"p", {1.0, -2.0, 0.5}}},
     .outputs = {{"p", {1.0, -2.0, 0.5}, .dtype = F16},
                 {"opt.m.p", {0.0, 0.0, 0.0}},
                 {"opt.v.p", {0.0, 0.0, 0.0}}}},
    {.id = "FC098 moments in f16",
     .graph = "graph @g(%p: f16[3] input, %g: f16[3] input, %s: f16[3] input, %lr: f64[] scalar, "
              "%b1: f64[] scalar, %b2: f64[] scalar, %eps: f64[] scalar) {\n"
              "%m = adam_exp_avg(%s, %g, %b1)\n%v = adam_exp_avg_sq(%s, %g, %b2)\n"
              "%q = adam_update(%p, %m, %v, %lr, %b1, %b2, %eps)\nreturn q=%q, m=%m, v=%v\n}",
     .inputs =
         {{"p", {1.0, -2.0, 0.5}}, {"lr", {1e-3}}, {"b1", {0.9}}, {"b2", {0.999}}, {"eps", {1e-8}}},
     .outputs = {{"q", {1.0, -2.0, 0.5}, .dtype = F16},
                 {"m", {0.0, 0.0, 0.0}},
                 {"v", {0.0, 0.0, 0.0}}}},
    {.id = "FC099 a f32 master",
     .graph = TIMES_G,
     .optimizer = "sgd,lr=6e-4",
     .steps = 100,
     .inputs = {{"g", {1.0}}},
     .outputs = {{"w", {0.9400019645690918}, .absolute = 3e-6}}},
    {.id = "FC099 its bf16 copy",
     .graph = "graph @g(%w: f32[] param {init=\"0.9400019645690918\"}, %g: f32[1] input) {\n"
              "%v = reshape(%w) {shape=[1,1]}\n%y = linear(%g, %v)\n%loss = sum(%y)\n"
              "return loss=%loss, y=%y\n}",
     .policy = "bf16",
     .inputs = {{"g", {1.0}}},
     .outputs = {{"y", {0.94140625}, .dtype = BF16}}},
    {.id = "FC099 a bf16 parameter",
     .graph = "graph @g(%w: bf16[] param, %g: bf16[] input) {\n"
              "%loss = mul(%w, %g)\nreturn loss=%loss\n}",
     .optimizer = "sgd,lr=6e-4",
     .refused = "parameter %w is bf16, whose updates below half an ulp vanish"},
    {.id = "FC099 a bf16 parameter that was asked for",
     .graph = "graph @g(%w: bf16[] param {init=\"ones\"}, %g: bf16[] input) {\n"
              "%loss = mul(%w, %g)\nreturn loss=%loss\n}",
     .optimizer = "sgd,lr=6e-4",
     .allows_low = true,
     .steps = 100,
     .inputs = {{"g", {1.0}}},
     .outputs = {{"w", {1.0}}}},
    {.id = "FC101, t = 1",
     ADAMW,
     .steps = 1,
     .outputs = {{"w", {1.8819607843137256}, .relative = 1e-6}, {"opt.step", {1.0}}}},
    {.id = "FC101, t = 2",
     ADAMW,
     .steps = 2,
     .outputs = {{"w", {1.83716472906434}, .relative = 1e-6},
                 {"opt.m.w", {0.02}, .relative = 1e-6},
                 {"opt.v.w", {0.00031225}, .relative = 1e-6},
                 {"opt.step", {2.0}}}},
    {.id = "FC102, p = 1",
     .graph = DROPOUT("p=1"),
     DROPOUT_DATA,
     .outputs = {{"y", {0.0, 0.0, 0.0}}, {"grad:x", {0.0, 0.0, 0.0}}}},
    {.id = "FC102, p = 0",
     .graph = DROPOUT("p=0"),
     DROPOUT_DATA,
     .outputs = {{"y", {1.0, -2.0, 3.0}}, {"grad:x", {1.0, 1.0, 1.0}}}},
    {.id = "FC102, p = 1 in eval mode",
     .graph = DROPOUT("p=1, training=false"),
     DROPOUT_DATA,
     .outputs = {{"y", {1.0, -2.0, 3.0}}, {"grad:x", {1.0, 1.0, 1.0}}}},
};

START_TEST(field_case)
{
    check_case(&cases[_i]);
}
END_TEST

/* FC014 itself: micro-batches of 1 and 3 terms, whose mean is over 4 terms. */
START_TEST(fc014_uneven_micro_batches)
{
    const char *text = "graph @g(%w: f32[] param {init=\"ones\"}, %a: f32[n] input) {\n"
                       "%m = mul(%w, %a)\n%loss = sum(%m)\n%one = mul(%a, 0)\n%u = add(%one, 1)\n"
                       "%k = sum(%u)\nreturn loss=%loss, loss_count=%k\n}";
    static float first[] = {4.0F}, second[] = {1.0F, 0.5F, 1.5F};
    struct tensor batches[] = {{.dtype = F32, .rank = 1, .shape = {1}, .data = first},
                               {.dtype = F32, .rank = 1, .shape = {3}, .data = second}};
    struct error e = {0};
    struct runner r;
    struct train_options train = train_options_default();
    ck_assert(train_options_parse(&train, "sgd,lr=1", NULL, &e) == ATOLL_OK);
    train.accumulate = 2;
    struct compile_options o = {.is_eager = _i == 0, .cache = shared_kernels(), .train = &train};
    struct graph *g = graph_parse(text, strlen(text), "FC014", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(runner_input(&r, "a", &batches[i], &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
    }
    double w = dtype_load(F32, runner_leaf(&r, "w")->data);
    ck_assert_msg(runner_number(&r, "mean_loss") == 1.75, "FC014: mean loss %g",
                  runner_number(&r, "mean_loss"));
    ck_assert_msg(w == 1.0 - 1.75, "FC014: w is %g after a gradient of 1.75", w);
    runner_free(&r);
    graph_destroy(g);
}
END_TEST

/* FC104: element i of a draw depends on (seed, stream, i) alone: not on the length, the number of
 * threads, the executor, or on what is fused with it. */
START_TEST(fc104_draws_by_index)
{
    static const int64_t sizes[] = {1000, 40961, 200000};
    int64_t n = sizes[_i / 2], seed = 7;
    const char *text = "graph @g(%s: i64[] input, %x: f32[n] input) {\n"
                       "%u = uniform(%s) {shape=[n], stream=3}\n%y = add(%u, %x)\nreturn u=%y\n}";
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "FC104", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    for (int threads = 1; threads <= 3; threads += 2) {
        struct runner r;
        struct compile_options o = {.is_eager = _i % 2 == 0, .cache = shared_kernels()};
        struct tensor s = {.dtype = I64, .data = &seed}, x = {F32, 1, {n}, NULL};
        x.data = calloc((size_t)n, sizeof(float));
        omp_set_num_threads(threads);
        ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_input(&r, "x", &x, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_input(&r, "s", &s, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
        const float *u = runner_output(&r, "u").data;
        for (int64_t i = 0; i < n; i++) {
            float right = uniform_f32(random_u32(7, 3, (uint64_t)i));
            ck_assert_msg(u[i] == right, "FC104: element %d of %d: %g, right is %g", (int)i, (int)n,
                          (double)u[i], (double)right);
        }
        runner_free(&r);
        free(x.data);
    }
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
    tcase_add_loop_test(tc, fc014_uneven_micro_batches, 0, 2);
    tcase_add_loop_test(tc, fc104_draws_by_index, 0, 6);
}

int main(void)
{
    return run_suite("field cases, training", fill);
}
