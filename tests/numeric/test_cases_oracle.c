/* Cases from the field, each a published fault of a system of this kind with its right value: the
 * forward parts that existing ops express, as graphs in text form, evaluated by the oracle with
 * every value rounded to its dtype. A test fails with the id of its case. */
#include "ir/eval.h"
#include "ir/parse.h"
#include "passes/decompose.h"

#include "tests/suite.h"

#include <math.h>
#include <string.h>

enum { MAX_N = 32, MAX_INPUTS = 4 };
#define NOT ((double)NAN)
#define INF ((double)INFINITY)

struct data {
    const char *name;
    double values[MAX_N];
};

static const struct field_case {
    const char *id, *graph;
    struct data inputs[MAX_INPUTS], outputs[MAX_INPUTS];
    double relative, absolute; /* both 0: exact */
} cases[] = {
    {"FC011",
     "graph @g(%s: f32[] state, %t: i32[] state, %o: bool[] input) {\n"
     "%s1 = scaler_scale(%s, %t, %o) {interval=1} : f32[]\n"
     "%t1 = scaler_tracker(%s, %t, %o) {interval=1} : i32[]\n"
     "%s2 = scaler_scale(%s1, %t1, %o) {interval=1} : f32[]\n"
     "%t2 = scaler_tracker(%s1, %t1, %o) {interval=1} : i32[]\n"
     "return s1=%s1, s2=%s2, t1=%t1, t2=%t2\n}",
     {{"s", {8.507059173023462e+37}}, {"t", {0}}, {"o", {0}}},
     {{"s1", {1.7014118346046923e+38}}, {"s2", {1.7014118346046923e+38}}, {"t1", {0}}, {"t2", {0}}},
     0,
     0},
    {"FC012",
     "graph @g(%gs: f32[2] input, %r: f32[] input, %max: f32[] scalar) {\n"
     "%u = unscale(%gs, %r) : f32[2]\n%n = global_norm(%u) : f32[]\n"
     "%c = clip_grad_norm(%u, %n, %max) {eps=1e-6} : f32[2]\nreturn n=%n, c=%c\n}",
     {{"gs", {3072.0, 4096.0}}, {"r", {1.0 / 1024.0}}, {"max", {1.0}}},
     {{"n", {5.0}}, {"c", {0.599999880000024, 0.799999840000032}}},
     5e-7,
     0},
    {"FC016",
     "graph @g(%a: f32[2] input, %b: f32[0] input, %max: f32[] scalar) {\n"
     "%n = global_norm(%a, %b) : f32[]\n%m = global_norm(%a, %b) {p=inf} : f32[]\n"
     "%z = global_norm() : f32[]\n%c = clip_grad_norm(%a, %z, %max) : f32[2]\n"
     "return n=%n, m=%m, z=%z, c=%c\n}",
     {{"a", {3.0, -4.0}}, {"b", {0}}, {"max", {1.0}}},
     {{"n", {5.0}}, {"m", {4.0}}, {"z", {0.0}}, {"c", {3.0, -4.0}}},
     0,
     0},
    {"FC030",
     "graph @g(%x: f32[1,4] input) {\n%y = layer_norm(%x) {eps=1e-5} : f32[1,4]\n"
     "return y=%y\n}",
     {{"x", {65000.0, 65001.0, 65002.0, 65003.0}}},
     {{"y", {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269}}},
     0,
     3e-6},
    {"FC035",
     "graph @g(%x: f32[2,3] input) {\n%y = logsumexp(%x) {axes=[1]} : f32[2]\n"
     "return y=%y\n}",
     {{"x", {-INF, -INF, -INF, -INF, 1.0, 2.0}}},
     {{"y", {-INF, 2.313261687518223}}},
     0,
     3e-7},
    {"FC036",
     "graph @g(%z: f32[3,3] input, %t: i64[3] input) {\n"
     "%l = cross_entropy(%z, %t) {label_smoothing=0.1} : f32[]\nreturn l=%l\n}",
     {{"z", {2.0, -1.0, 0.5, 0.0, 3.0, -2.0, 1.0, 1.0, 1.0}}, {"t", {0, -100, 2}}},
     {{"l", {0.7449617926626334}}},
     2e-6,
     2e-7},
    {"FC038",
     "graph @g(%z: f32[2,2] input, %t: i64[2] input) {\n"
     "%s = cross_entropy(%z, %t) {reduction=\"sum\"} : f32[]\n"
     "%n = cross_entropy(%z, %t) {reduction=\"none\"} : f32[2]\n"
     "%m = cross_entropy(%z, %t) : f32[]\nreturn s=%s, n=%n, m=%m\n}",
     {{"z", {1.0, 2.0, 0.0, 3.0}}, {"t", {-100, -100}}},
     {{"s", {0.0}}, {"n", {0.0, 0.0}}, {"m", {NOT}}},
     0,
     0},
    {"FC039",
     "graph @g(%x: f32[4] input, %t: f32[4] input, %w: f32[] input) {\n"
     "%l = bce_with_logits(%x, %t, %w) : f32[]\nreturn l=%l\n}",
     {{"x", {0.5, -150.0, 200.0, -3.0}}, {"t", {1, 1, 0, 0}}, {"w", {2.0}}},
     {{"l", {125.24918532998349}}},
     1e-6,
     1e-9},
    {"FC041",
     "graph @g(%z: f32[2,3] input, %t: i64[2] input) {\n"
     "%l = cross_entropy(%z, %t) : f32[]\nreturn l=%l\n}",
     {{"z", {3e7, 3e7, 3e7, -3e7, -3e7, -3e7}}, {"t", {1, 2}}},
     {{"l", {1.0986122886681098}}},
     2e-7,
     0},
    {"FC045",
     "graph @g(%x: bf16[1,4] input) {\n%y = layer_norm(%x) {eps=1e-5} : bf16[1,4]\n"
     "return y=%y\n}",
     {{"x", {0.71484375, -1.8984375, -3.96875, -0.6484375}}},
     {{"y", {1.2578125, -0.259765625, -1.4609375, 0.46484375}}},
     0,
     0},
    {"FC032",
     "graph @g(%x: bf16[1,4] input) {\n%y = rms_norm(%x) : bf16[1,4]\nreturn y=%y\n}",
     {{"x", {0.050048828125, -0.030029296875, 0.02001953125, 0.060546875}}},
     {{"y", {1.15625, -0.6953125, 0.462890625, 1.3984375}}},
     0.0078125,
     0},
    {"FC046",
     "graph @g(%x: f16[3] input, %one: f16[] input) {\n"
     "%a = expand(%one) {shape=[100000]} : f16[100000]\n%m = mean(%a) : f16[]\n"
     "%k = mean(%x) : f16[]\nreturn m=%m, k=%k\n}",
     {{"x", {40000.0, 40000.0, 40000.0}}, {"one", {1.0}}},
     {{"m", {1.0}}, {"k", {40000.0}}},
     0,
     0},
    {"FC048",
     "graph @g(%b: bf16[] input, %h: f16[] input) {\n"
     "%x = expand(%b) {shape=[1000]} : bf16[1000]\n%s = sum(%x) : bf16[]\n"
     "%y = expand(%h) {shape=[4096]} : f16[4096]\n%t = sum(%y) : f16[]\n"
     "%z = expand(%b) {shape=[512,2]} : bf16[512,2]\n%u = sum(%z) {axes=[0]} : bf16[2]\n"
     "return s=%s, t=%t, u=%u\n}",
     {{"b", {1.0}}, {"h", {1.0}}},
     {{"s", {1000.0}}, {"t", {4096.0}}, {"u", {512.0, 512.0}}},
     0,
     0},
    {"FC049",
     "graph @g(%x: f32[4,4] input) {\n%i = argmax(%x) : i64[4]\n%j = argmin(%x) : i64[4]\n"
     "%m = max(%x) {axes=[-1]} : f32[4]\nreturn i=%i, j=%j, m=%m\n}",
     {{"x", {3.0, NOT, 1.0, 5.0, 1.0, 2.0, NOT, 0.0, INF, NOT, -INF, 1.0, 2.0, 7.0, 7.0, 2.0}}},
     {{"i", {1, 2, 1, 1}}, {"j", {1, 2, 1, 0}}, {"m", {NOT, NOT, NOT, 7.0}}},
     0,
     0},
    {"FC053",
     "graph @g(%a: f32[19] input, %b: f32[19] input) {\n%y = pow(%a, %b) : f32[19]\n"
     "return y=%y\n}",
     {{"a",
       {0.0, 0.0, NOT, 1.0, -0.0, -0.0, 0.0, -0.0, -8.0, -2.0, -2.0, -INF, -INF, 0.5, 2.0, -1.0,
        2.0, 1e-30, 1e30}},
      {"b",
       {0.0, -0.0, 0.0, NOT, -1.0, -2.0, 0.5, 3.0, 0.3333333432674408, 3.0, -3.0, 3.0, -3.0, INF,
        -INF, INF, 0.5, 2.0, 2.0}}},
     {{"y",
       {1.0, 1.0, 1.0, 1.0, -INF, INF, 0.0, -0.0, NOT, -8.0, -0.125, -INF, -0.0, 0.0, 0.0, 1.0,
        1.4142135381698608, 0.0, INF}}},
     0,
     0},
    {"FC055",
     "graph @g(%x: f32[12] input) {\n%y = gelu(%x) {form=\"tanh\"} : f32[12]\n"
     "return y=%y\n}",
     {{"x",
       {-3.0000000054977558e+38, -1e10, -40.0, -13.239999771118164, -6.0, -3.0, 0.0, 3.0,
        13.239999771118164, 40.0, 1e10, 3.0000000054977558e+38}}},
     {{"y",
       {0.0, 0.0, -0.0, -1.0531782462391026e-80, -8.439646700762297e-11, -0.003637392081773019, 0.0,
        2.996362607918227, 13.239999771118164, 40.0, 1e10, 3.0000000054977558e+38}}},
     2e-6,
     5e-7},
    {"FC057",
     "graph @g(%x: f32[7] input) {\n%y = softplus(%x) : f32[7]\n"
     "%a = neg(%x) : f32[7]\n%b = softplus(%a) : f32[7]\n%z = neg(%b) : f32[7]\n"
     "return y=%y, z=%z\n}",
     {{"x", {-100.0, -20.0, -1.0, 0.0, 20.0, 100.0, 1000.0}}},
     {{"y",
       {3.720075976020836e-44, 2.061153620314381e-09, 0.3132616875182228, 0.6931471805599453,
        20.000000002061153, 100.0, 1000.0}},
      {"z",
       {-100.0, -20.000000002061153, -1.3132616875182228, -0.6931471805599453,
        -2.061153620314381e-09, -3.720075976020836e-44, -0.0}}},
     1e-6,
     1e-38},
    {"FC059",
     "graph @g(%x: f32[3] input) {\n%a = log(%x) : f32[3]\n%b = rsqrt(%x) : f32[3]\n"
     "%c = add(%x, %x) : f32[3]\n%d = log1p(%x) : f32[3]\nreturn a=%a, b=%b, c=%c, d=%d\n}",
     {{"x", {9.99994610111476e-41, 9.949219096706201e-44, 1.401298464324817e-45}}},
     {{"a", {-92.10340910966488, -99.01625002639054, -103.27892990343184}},
      {"b", {1.0000026949551561e+20, 3.1703375355754457e+21, 2.671373890628154e+22}},
      {"c", {1.999989220222952e-40, 1.9898438193412402e-43, 2.802596928649634e-45}},
      {"d", {9.99994610111476e-41, 9.949219096706201e-44, 1.401298464324817e-45}}},
     3e-7,
     0},
    {"FC061",
     "graph @g(%x: f32[4] input, %h: f32[] input) {\n%r = relu(%x) : f32[4]\n"
     "%c = clamp(%x) {low=0, high=1} : f32[4]\n%m = maximum(%x, %h) : f32[4]\n"
     "%n = minimum(%h, %x) : f32[4]\nreturn r=%r, c=%c, m=%m, n=%n\n}",
     {{"x", {NOT, -1.0, 2.0, -0.0}}, {"h", {0.5}}},
     {{"r", {NOT, 0.0, 2.0, 0.0}},
      {"c", {NOT, 0.0, 1.0, 0.0}},
      {"m", {NOT, 0.5, 2.0, 0.5}},
      {"n", {NOT, -1.0, 0.5, -0.0}}},
     0,
     0},
    {"FC098",
     "graph @g(%p: f16[3] input, %g: f16[3] input, %s: f16[3] input, %lr: f64[] scalar, "
     "%b1: f64[] scalar, %b2: f64[] scalar, %eps: f64[] scalar) {\n"
     "%m = adam_exp_avg(%s, %g, %b1) : f16[3]\n%v = adam_exp_avg_sq(%s, %g, %b2) : f16[3]\n"
     "%q = adam_update(%p, %m, %v, %lr, %b1, %b2, %eps) : f16[3]\nreturn q=%q, m=%m, v=%v\n"
     "}",
     {{"p", {1.0, -2.0, 0.5}}, {"g", {0}}, {"s", {0}}, {"lr", {1e-3}}},
     {{"q", {1.0, -2.0, 0.5}}, {"m", {0}}, {"v", {0}}},
     0,
     0},
    {"FC101",
     "graph @g(%p: f32[] input, %g: f32[] input, %s: f32[] input) {\n"
     "%c = constant() {value=0.01, dtype=f64} : f64[]\n"
     "%b1 = constant() {value=0.9, dtype=f64} : f64[]\n"
     "%b2 = constant() {value=0.999, dtype=f64} : f64[]\n"
     "%lr = constant() {value=0.1, dtype=f64} : f64[]\n"
     "%d = weight_decay(%p, %p, %c) : f32[]\n%m = adam_exp_avg(%s, %g, %b1) : f32[]\n"
     "%v = adam_exp_avg_sq(%s, %g, %b2) : f32[]\n"
     "%q = adam_update(%d, %m, %v, %lr, %b1, %b2, %c) : f32[]\nreturn q=%q\n}",
     {{"p", {2.0}}, {"g", {0.5}}, {"s", {0.0}}},
     {{"q", {1.8819607843137256}}},
     1e-6,
     0},
};

static bool is_right(const struct field_case *c, double found, double expected)
{
    if (found != found || expected != expected) {
        return found != found && expected != expected;
    }
    double room = c->relative * fabs(expected) + c->absolute;
    return found == expected || fabs(found - expected) <= room;
}

START_TEST(field_case)
{
    const struct field_case *c = &cases[_i];
    struct error error = {0};
    struct graph *g = graph_parse(c->graph, strlen(c->graph), c->id, &error);
    ck_assert_msg(g != NULL, "%s", error.text);
    struct graph *out = graph_like(g);
    decompose_pass(g, out, &(struct pass_options){0}, NULL);
    ck_assert_msg(out->error.code == ATOLL_OK, "%s: %s", c->id, out->error.text);
    struct eval e;
    eval_begin(&e, out, NULL);
    e.rounds = true;
    static const double betas[3][1] = {{0.9}, {0.999}, {1e-8}}; /* those of a table row's default */
    static const char *const names[] = {"b1", "b2", "eps"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        value leaf = graph_find(out, names[i]);
        if (leaf.id != 0) {
            e.values[leaf.id] = arena_copy(&e.arena, betas[i], sizeof betas[i]);
        }
    }
    for (uint32_t i = 0; i < MAX_INPUTS && c->inputs[i].name != NULL; i++) {
        value leaf = graph_find(out, c->inputs[i].name);
        ck_assert_msg(leaf.id != 0, "%s: no leaf %s", c->id, c->inputs[i].name);
        double *x = arena_copy(&e.arena, c->inputs[i].values, sizeof c->inputs[i].values);
        for (int64_t k = 0; k < eval_count(&e, leaf); k++) {
            uint64_t element = 0;
            dtype_store(graph_node(out, leaf)->dtype, &element, x[k]);
            x[k] = dtype_load(graph_node(out, leaf)->dtype, &element);
        }
        e.values[leaf.id] = x;
    }
    ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "%s: %s", c->id, error.text);
    for (uint32_t i = 0; i < out->n_outputs; i++) {
        const struct output *o = &out->outputs[i];
        ck_assert_str_eq(o->name, c->outputs[i].name);
        for (int64_t k = 0; k < eval_count(&e, o->value); k++) {
            double found = e.values[o->value.id][k], expected = c->outputs[i].values[k];
            ck_assert_msg(is_right(c, found, expected), "%s: %s[%d]: found %.17g, right is %.17g",
                          c->id, o->name, (int)k, found, expected);
        }
    }
    eval_end(&e);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(fc019_negative_max_norm_is_refused)
{
    struct graph *g = graph_create("clip");
    value x = graph_leaf(g, OP_input, "g", F32, (int64_t[]){2}, 1);
    value norm = graph_leaf(g, OP_input, "norm", F32, NULL, 0);
    graph_op3(g, OP_clip_grad_norm, x, norm, graph_constant(g, -1.0, F32));
    ck_assert_msg(strstr(g->error.text, "max_norm must be >= 0, found -1") != NULL, "FC019: %s",
                  g->error.text);
    graph_destroy(g);
}
END_TEST

/* 100 steps of 6e-4: a f32 master moves, a bf16 parameter stays where it is. */
START_TEST(fc099_low_parameters_stall)
{
    static const enum dtype dtypes[] = {F32, BF16};
    static const double right[] = {0.9400019645690918, 1.0}, bf16_copy[] = {0.94140625, 1.0};
    for (uint32_t t = 0; t < ARRAY_LEN(dtypes); t++) {
        struct graph *g = graph_create("sgd");
        value p = graph_constant(g, 1.0, dtypes[t]), grad = graph_constant(g, 1.0, dtypes[t]);
        value lr = graph_constant(g, 6e-4, F64);
        for (int step = 0; step < 100; step++) {
            p = graph_op3(g, OP_sgd_update, p, grad, lr);
        }
        graph_output(g, "p", p);
        graph_output(g, "copy", graph_cast(g, p, BF16));
        struct graph *out = graph_like(g);
        decompose_pass(g, out, &(struct pass_options){0}, NULL);
        struct eval e;
        struct error error = {0};
        eval_begin(&e, out, NULL);
        e.rounds = true;
        ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "FC099: %s", error.text);
        double found = e.values[out->outputs[0].value.id][0];
        ck_assert_msg(fabs(found - right[t]) <= 3e-6, "FC099: %.17g", found);
        ck_assert(e.values[out->outputs[1].value.id][0] == bf16_copy[t]);
        eval_end(&e);
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, fc019_negative_max_norm_is_refused);
    tcase_add_test(tc, fc099_low_parameters_stall);
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
}

int main(void)
{
    return run_suite("field cases, oracle", fill);
}
