/* The training step against PyTorch: train_step's graph, decomposed, run by the oracle with every
 * value rounded to its dtype, beside the trajectories of tests/fixtures/training.txt (written by
 * make_training.py). The loss is sum(p gp) + sum(q gq): the gradients are what the fixture says.
 * Tolerances: 2e-6 relative on parameters (f32, 50 steps), 1e-6 on learning rates, exact scaler. */
#include "training_session.h"

#include "ir/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 4, MAX_STEPS = 64 };

static struct graph *graph_of_loss(void)
{
    struct graph *g = graph_create("given");
    value p = graph_leaf(g, OP_param, "p", F32, (int64_t[]){3}, 1);
    value q = graph_leaf(g, OP_param, "q", F32, (int64_t[]){1}, 1);
    value gp = graph_leaf(g, OP_input, "gp", F32, (int64_t[]){3}, 1);
    value gq = graph_leaf(g, OP_input, "gq", F32, (int64_t[]){1}, 1);
    value a = graph_reduce(g, OP_sum, graph_op2(g, OP_mul, p, gp), NULL, 0, false);
    value b = graph_reduce(g, OP_sum, graph_op2(g, OP_mul, q, gq), NULL, 0, false);
    graph_output(g, "loss", graph_op2(g, OP_add, a, b));
    return g;
}

static void start_given(struct session *s, const struct train_options *o)
{
    struct graph *model = graph_of_loss();
    start(s, model, o);
    graph_destroy(model);
    memcpy(leaf_data(s, "p"), (double[]){0.5, -1.25, 2.0}, 3 * sizeof(double));
    leaf_data(s, "q")[0] = 1.0;
}

static void step_given(struct session *s, const double *gradient)
{
    memcpy(leaf_data(s, "gp"), gradient, 3 * sizeof(double));
    leaf_data(s, "gq")[0] = gradient[3];
    take_step(s);
}

static void check_params(struct session *s, const double *want, const char *what, int step)
{
    double got[SIZE] = {0};
    memcpy(got, leaf_data(s, "p"), 3 * sizeof(double));
    got[3] = leaf_data(s, "q")[0];
    for (int i = 0; i < SIZE; i++) {
        double error = fabs(got[i] - want[i]) / fmax(1.0, fabs(want[i]));
        ck_assert_msg(error <= 2e-6, "%s, step %d: element %d is %.9g, expected %.9g", what, step,
                      i, got[i], want[i]);
    }
}

/* ---- the fixture ---- */

static FILE *fixture(void)
{
    char path[512];
    const char *root = getenv("ATOLL_SOURCE");
    snprintf(path, sizeof path, "%s/tests/fixtures/training.txt", root != NULL ? root : ".");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    return f;
}

static void read_numbers(FILE *f, double *out, int n)
{
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(fscanf(f, "%lf", &out[i]), 1);
    }
}

/* Moves to the next section of that keyword; false at the end. */
static bool find_section(FILE *f, const char *keyword)
{
    char word[128];
    while (fscanf(f, "%127s", word) == 1) {
        if (strcmp(word, keyword) == 0) {
            return true;
        }
    }
    return false;
}

static int read_gradients(FILE *f, double gradients[][SIZE])
{
    int steps, size;
    ck_assert(find_section(f, "gradients") && fscanf(f, "%d %d", &steps, &size) == 2);
    ck_assert(steps <= MAX_STEPS && size == SIZE);
    read_numbers(f, gradients[0], steps * SIZE);
    return steps;
}

static struct train_options options(const char *optimizer, const char *schedule)
{
    struct train_options o = train_options_default();
    struct error e = {0};
    ck_assert_msg(train_options_parse(&o, optimizer, schedule, &e) == ATOLL_OK, "%s", e.text);
    return o;
}

START_TEST(optimizers_follow)
{
    FILE *f = fixture();
    double gradients[MAX_STEPS][SIZE], want[SIZE];
    char text[128];
    int steps = read_gradients(f, gradients), n = 0;
    for (; find_section(f, "optimizer"); n++) {
        ck_assert_int_eq(fscanf(f, "%127s", text), 1);
        struct train_options o = options(text, NULL);
        struct session s = {0};
        start_given(&s, &o);
        for (int i = 0; i < steps; i++) {
            read_numbers(f, want, SIZE);
            step_given(&s, gradients[i]);
            check_params(&s, want, text, i);
        }
        finish(&s);
    }
    ck_assert_int_eq(n, 9);
    fclose(f);
}
END_TEST

/* Lion as a plain loop in double. Half an ulp in the blend of moment and gradient can turn a sign
 * only where the blend is as good as 0; these gradients keep away from that. */
START_TEST(lion_follows_a_plain_loop)
{
    static const char *const texts[] = {"lion,lr=0.01", "lion,lr=0.02,beta1=0.8,beta2=0.95,"
                                                        "weight_decay=0.1"};
    struct train_options o = options(texts[_i], NULL);
    double want[SIZE] = {0.5, -1.25, 2.0, 1.0}, moment[SIZE] = {0};
    struct session s = {0};
    start_given(&s, &o);
    for (int step = 0; step < 40; step++) {
        double gradient[SIZE];
        for (int i = 0; i < SIZE; i++) {
            gradient[i] = sin(1.0 + 0.7 * step * (i + 1)) + 0.25 * (i - 1.5);
            double blend = o.beta1 * moment[i] + (1.0 - o.beta1) * gradient[i];
            ck_assert_double_gt(fabs(blend), 1e-6);
            want[i] -= o.lr * o.weight_decay * want[i];
            want[i] -= o.lr * (blend > 0.0 ? 1.0 : -1.0);
            moment[i] = o.beta2 * moment[i] + (1.0 - o.beta2) * gradient[i];
        }
        step_given(&s, gradient);
        check_params(&s, want, texts[_i], step);
    }
    ck_assert_double_eq_tol(leaf_data(&s, "opt.m.q")[0], moment[3], 1e-6);
    finish(&s);
}
END_TEST

START_TEST(clipping_follows)
{
    FILE *f = fixture();
    double gradients[MAX_STEPS][SIZE], want[1 + SIZE], max_norm;
    int steps = read_gradients(f, gradients), n = 0;
    for (; find_section(f, "clip"); n++) {
        read_numbers(f, &max_norm, 1);
        struct train_options o = options("sgd,lr=0.05", NULL);
        o.max_norm = max_norm;
        struct session s = {0};
        start_given(&s, &o);
        for (int i = 0; i < steps; i++) {
            read_numbers(f, want, 1 + SIZE);
            step_given(&s, gradients[i]);
            ck_assert_double_le(fabs(output(&s, "grad_norm")[0] - want[0]), 1e-6 * want[0]);
            check_params(&s, &want[1], "clip", i);
        }
        finish(&s);
    }
    ck_assert_int_eq(n, 2);
    fclose(f);
}
END_TEST

START_TEST(accumulation_follows)
{
    FILE *f = fixture();
    double gradients[MAX_STEPS][SIZE], want[SIZE];
    int every, steps;
    read_gradients(f, gradients);
    ck_assert(find_section(f, "accumulate") && fscanf(f, "%d %d", &every, &steps) == 2);
    struct train_options o = options("adamw,lr=0.01", NULL);
    o.accumulate = every;
    struct session s = {0};
    start_given(&s, &o);
    for (int i = 0; i < steps; i++) {
        read_numbers(f, want, SIZE);
        step_given(&s, gradients[i]);
        check_params(&s, want, "accumulate", i);
        ck_assert_double_eq(output(&s, "accepted")[0], (i + 1) / every);
    }
    ck_assert_double_eq(output(&s, "skipped")[0], 0.0);
    finish(&s);
    fclose(f);
}
END_TEST

START_TEST(schedules_follow)
{
    FILE *f = fixture();
    char text[128];
    double zero[SIZE] = {0}, rate;
    int steps, n = 0;
    for (; find_section(f, "schedule"); n++) {
        ck_assert_int_eq(fscanf(f, "%127s %d", text, &steps), 2);
        struct train_options o = options("sgd,lr=0.4", text);
        struct session s = {0};
        start_given(&s, &o);
        for (int i = 0; i < steps; i++) {
            read_numbers(f, &rate, 1);
            step_given(&s, zero);
            double got = output(&s, "lr")[0];
            ck_assert_msg(fabs(got - rate) <= 1e-6 * rate + 1e-12,
                          "%s: lr of step %d is %.12g, "
                          "expected %.12g",
                          text, i, got, rate);
        }
        finish(&s);
    }
    ck_assert_int_eq(n, 8);
    fclose(f);
}
END_TEST

START_TEST(scaler_follows)
{
    FILE *f = fixture();
    int interval, steps, skipped = 0;
    double row[SIZE], want[SIZE + 2], scale = 65536.0;
    ck_assert(find_section(f, "scaler") && fscanf(f, "%d %d", &interval, &steps) == 2);
    struct train_options o = options("adamw,lr=0.01", NULL);
    o.scaler.is_enabled = true;
    o.scaler.interval = interval;
    struct session s = {0};
    start_given(&s, &o);
    for (int i = 0; i < steps; i++) {
        read_numbers(f, row, SIZE);
        read_numbers(f, want, SIZE + 2);
        step_given(&s, row);
        check_params(&s, want, "scaler", i);
        ck_assert_double_eq(output(&s, "scale")[0], scale);
        bool is_skip = want[SIZE] < scale;
        skipped += is_skip;
        ck_assert_int_eq(output(&s, "first_nonfinite")[0] >= 0.0, is_skip);
        scale = want[SIZE];
        ck_assert_double_eq(leaf_data(&s, "scaler.scale")[0], scale);
        ck_assert_double_eq(leaf_data(&s, "scaler.tracker")[0], want[SIZE + 1]);
        ck_assert_double_eq(output(&s, "skipped")[0], skipped);
        ck_assert_double_eq(output(&s, "accepted")[0], i + 1 - skipped);
        ck_assert_double_eq(leaf_data(&s, "opt.step")[0], i + 1 - skipped);
    }
    ck_assert_int_gt(skipped, 3);
    finish(&s);
    fclose(f);
}
END_TEST

static struct graph *class_graph(int rows, int classes, bool is_weighted, const struct attr *attrs)
{
    struct graph *g = graph_create("classes");
    value z = graph_leaf(g, OP_param, "z", F32, (int64_t[]){rows, classes}, 2);
    value y = graph_leaf(g, OP_input, "y", I64, (int64_t[]){rows}, 1);
    value in[] = {z, y, {0}};
    if (is_weighted) {
        in[2] = graph_leaf(g, OP_input, "w", F32, (int64_t[]){classes}, 1);
    }
    value each = graph_add(g, OP_cross_entropy, in, is_weighted ? 3 : 2, attrs, 3);
    value loss =
        graph_node(g, each)->shape.rank == 0 ? each : graph_reduce(g, OP_sum, each, NULL, 0, false);
    graph_output(g, "each", each);
    graph_output(g, "loss", loss);
    return g;
}

static bool is_close(double got, double want)
{
    return (isnan(got) && isnan(want)) || fabs(got - want) <= 1e-6 * fmax(1.0, fabs(want));
}

START_TEST(cross_entropy_follows)
{
    FILE *f = fixture();
    int rows, classes, n = 0, weighted, ignore, count;
    double z[64], w[16], y[16], smoothing, loss[16], grad[64];
    char reduction[16];
    ck_assert(find_section(f, "cross_entropy") && fscanf(f, "%d %d", &rows, &classes) == 2);
    read_numbers(f, z, rows * classes);
    read_numbers(f, w, classes);
    for (; find_section(f, "variant"); n++) {
        ck_assert_int_eq(
            fscanf(f, "%d %lf %d %15s %d", &weighted, &smoothing, &ignore, reduction, &count), 5);
        read_numbers(f, y, rows);
        read_numbers(f, loss, count);
        read_numbers(f, grad, rows * classes);
        struct attr attrs[] = {attr_int("ignore_index", ignore),
                               attr_float("label_smoothing", smoothing),
                               attr_text("reduction", reduction)};
        struct graph *model = class_graph(rows, classes, weighted != 0, attrs);
        struct train_options o = options("sgd,lr=1", NULL); /* z moves by minus the gradient */
        struct session s = {0};
        start(&s, model, &o);
        memcpy(leaf_data(&s, "z"), z, (size_t)(rows * classes) * sizeof *z);
        memcpy(leaf_data(&s, "y"), y, (size_t)rows * sizeof *y);
        if (weighted) {
            memcpy(leaf_data(&s, "w"), w, (size_t)classes * sizeof *w);
        }
        take_step(&s);
        for (int i = 0; i < count; i++) {
            double got = output(&s, "each")[i];
            ck_assert_msg(is_close(got, loss[i]),
                          "variant %d (weighted %d, smoothing %g, ignore "
                          "%d, %s): loss %g, expected %g",
                          n, weighted, smoothing, ignore, reduction, got, loss[i]);
        }
        for (int i = 0; i < rows * classes; i++) {
            double got = z[i] - leaf_data(&s, "z")[i];
            ck_assert_msg(is_close(got, grad[i]),
                          "variant %d (weighted %d, smoothing %g, ignore "
                          "%d, %s): gradient %d is %g, expected %g",
                          n, weighted, smoothing, ignore, reduction, i, got, grad[i]);
        }
        finish(&s);
        graph_destroy(model);
    }
    ck_assert_int_eq(n, 72);
    fclose(f);
}
END_TEST

static const char *const network =
    "graph @network(%x: f32[7,4] input, %y: i64[7] input, %w1: f32[6,4] param, %b1: f32[6] param,\n"
    "    %s: f32[6] param, %t: f32[6] param, %w2: f32[3,6] param, %b2: f32[3] param) {\n"
    "  %h = linear(%x, %w1, %b1)\n  %a = gelu(%h)\n  %n = layer_norm(%a, %s, %t)\n"
    "  %z = linear(%n, %w2, %b2)\n  %loss = cross_entropy(%z, %y) {label_smoothing=0.1}\n"
    "  return loss=%loss\n}\n";

/* Reads six parameters; compares with the session's, or sets them. */
static void read_parameters(FILE *f, struct session *s, bool compares)
{
    char name[8];
    double numbers[32];
    int count;
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(fscanf(f, "%7s %d", name, &count), 2);
        read_numbers(f, numbers, count);
        double *data = leaf_data(s, name);
        for (int k = 0; k < count; k++) {
            ck_assert_msg(!compares || fabs(data[k] - numbers[k]) <= 1e-5,
                          "%s[%d] is %.9g, expected %.9g", name, k, data[k], numbers[k]);
        }
        memcpy(data, numbers, (size_t)count * sizeof *data);
    }
}

START_TEST(network_follows)
{
    FILE *f = fixture();
    int steps;
    double want[2];
    struct error e = {0};
    struct graph *model = graph_parse(network, strlen(network), "network", &e);
    ck_assert_msg(model != NULL, "%s", e.text);
    struct train_options o = options("adamw,lr=0.02", NULL);
    o.max_norm = 0.5;
    struct session s = {0};
    start(&s, model, &o);
    ck_assert(find_section(f, "network") && fscanf(f, "%d", &steps) == 1);
    read_numbers(f, leaf_data(&s, "x"), 28);
    read_numbers(f, leaf_data(&s, "y"), 7);
    read_parameters(f, &s, false);
    for (int i = 0; i < steps; i++) {
        read_numbers(f, want, 2);
        take_step(&s);
        ck_assert_double_le(fabs(output(&s, "loss")[0] - want[0]), 2e-6);
        ck_assert_double_le(fabs(output(&s, "grad_norm")[0] - want[1]), 2e-5);
    }
    read_parameters(f, &s, true);
    finish(&s);
    graph_destroy(model);
    fclose(f);
}
END_TEST

/* ---- what PyTorch does not do ---- */

START_TEST(small_scale_overflow_is_seen)
{
    struct train_options o = options("adamw,lr=0.01", NULL);
    o.scaler.is_enabled = true;
    struct session s = {0};
    start_given(&s, &o);
    double before[3];
    memcpy(before, leaf_data(&s, "p"), sizeof before);
    leaf_data(&s, "scaler.scale")[0] = 0x1p-140;
    step_given(&s, (double[]){1.0, 2.0, 1e30, 1.0});
    ck_assert_double_eq(output(&s, "first_nonfinite")[0], 0.0);
    ck_assert_double_eq(output(&s, "skipped")[0], 1.0);
    ck_assert_mem_eq(before, leaf_data(&s, "p"), sizeof before);
    finish(&s);
}
END_TEST

START_TEST(nonfinite_norm_skips_without_scaler)
{
    struct train_options o = options("sgd,lr=1,momentum=0.9", "step,1,0.5");
    o.max_norm = 1.0;
    struct session s = {0};
    start_given(&s, &o);
    step_given(&s, (double[]){1.0, 2.0, (double)INFINITY, 1.0});
    ck_assert_double_eq(leaf_data(&s, "p")[2], 2.0);
    ck_assert_double_eq(leaf_data(&s, "opt.momentum.p")[0], 0.0);
    ck_assert_double_eq(leaf_data(&s, "opt.step")[0], 0.0);
    ck_assert_double_eq(output(&s, "skipped")[0], 1.0);
    step_given(&s, (double[]){0.0, 0.0, 0.5, 0.0});
    ck_assert_double_eq(output(&s, "lr")[0], 1.0); /* the schedule did not move */
    ck_assert_double_eq(leaf_data(&s, "p")[2], 1.5);
    finish(&s);
}
END_TEST

/* An overflow in one micro-batch spoils its window: nothing moves, the scale falls where the window
 * ends, the next one starts clean. */
START_TEST(overflow_skips_the_window)
{
    struct train_options o = options("sgd,lr=1", NULL);
    o.scaler.is_enabled = true;
    o.accumulate = 2;
    struct session s = {0};
    start_given(&s, &o);
    step_given(&s, (double[]){(double)INFINITY, 1.0, 1.0, 1.0});
    ck_assert_double_eq(leaf_data(&s, "scaler.scale")[0], 65536.0);
    ck_assert_double_eq(output(&s, "skipped")[0], 0.0);
    step_given(&s, (double[]){1.0, 1.0, 1.0, 1.0});
    ck_assert_double_eq(leaf_data(&s, "scaler.scale")[0], 32768.0);
    ck_assert_double_eq(output(&s, "skipped")[0], 1.0);
    ck_assert_double_eq(leaf_data(&s, "p")[0], 0.5);
    step_given(&s, (double[]){0.25, 0.0, 0.0, 0.0});
    step_given(&s, (double[]){0.25, 0.0, 0.0, 0.0});
    ck_assert_double_eq(output(&s, "accepted")[0], 1.0);
    ck_assert_double_eq(leaf_data(&s, "p")[0], 0.25);
    ck_assert_double_eq(leaf_data(&s, "scaler.tracker")[0], 1.0);
    finish(&s);
}
END_TEST

START_TEST(nonfinite_is_skipped_when_asked)
{
    for (int skips = 0; skips < 2; skips++) {
        struct train_options o = options("sgd,lr=1", NULL);
        o.skips_nonfinite = skips != 0;
        struct session s = {0};
        start_given(&s, &o);
        step_given(&s, (double[]){0.0, 0.0, 0.0, (double)NAN});
        ck_assert_double_eq(output(&s, "first_nonfinite")[0], 1.0); /* q */
        ck_assert_int_eq(isnan(leaf_data(&s, "q")[0]), !skips);
        finish(&s);
    }
}
END_TEST

/* first_nonfinite counts all parameters of the graph, those without a gradient too. */
START_TEST(nonfinite_is_placed)
{
    const char *text = "graph @i(%idle: f32[] param, %p: f32[] param, %q: f32[] param,\n"
                       "         %gp: f32[] input, %gq: f32[] input) {\n"
                       "  %a = mul(%p, %gp)\n  %b = mul(%q, %gq)\n  %loss = add(%a, %b)\n"
                       "  return loss=%loss\n}\n";
    struct error e = {0};
    struct graph *model = graph_parse(text, strlen(text), "placed", &e);
    ck_assert_msg(model != NULL, "%s", e.text);
    struct train_options o = options("sgd", NULL);
    struct session s = {0};
    start(&s, model, &o);
    take_step(&s);
    ck_assert_double_eq(output(&s, "first_nonfinite")[0], -1.0);
    leaf_data(&s, "gq")[0] = (double)NAN;
    take_step(&s);
    ck_assert_double_eq(output(&s, "first_nonfinite")[0], 2.0);
    finish(&s);
    graph_destroy(model);
}
END_TEST

static void fill(TCase *t)
{
    tcase_add_test(t, optimizers_follow);
    tcase_add_loop_test(t, lion_follows_a_plain_loop, 0, 2);
    tcase_add_test(t, clipping_follows);
    tcase_add_test(t, accumulation_follows);
    tcase_add_test(t, schedules_follow);
    tcase_add_test(t, scaler_follows);
    tcase_add_test(t, cross_entropy_follows);
    tcase_add_test(t, network_follows);
    tcase_add_test(t, small_scale_overflow_is_seen);
    tcase_add_test(t, nonfinite_norm_skips_without_scaler);
    tcase_add_test(t, overflow_skips_the_window);
    tcase_add_test(t, nonfinite_is_skipped_when_asked);
    tcase_add_test(t, nonfinite_is_placed);
}

int main(void)
{
    return run_suite("training", fill);
}
