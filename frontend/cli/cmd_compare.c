/* atoll compare: the same training, eager and fused, under each policy, from the same state and
 * data; bits compared after every step, and each policy's loss and gradients against the f64
 * reference. Any different bit makes it exit 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_bisect.h"
#include "frontend/compare.h"
#include "frontend/parting.h"

static const struct option options[] = {
    {"data", "FILE", "CSV(.gz), NPY, NPZ or safetensors with x and y"},
    {"policies", "LIST", "policies, comma-separated (default fp32,bf16,fp16)"},
    {"optimizer", "TEXT", "adamw, adam, sgd or lion with settings"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"schedule", "TEXT", "learning-rate schedule"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"batch", "N", "rows a step (default 64)"},
    {"epochs", "N", "passes over the data (default 5)"},
    {"device", "D", "cpu, or cuda:N (default cpu)"},
    {"tf32", NULL, "let f32 matrix products of the device round their operands to TF32"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed (default 1)"},
    {"no-shuffle", NULL, "take rows in file order"},
    {"holdout", "SHARE", "share of rows for the test (default 0.2)"},
    {"scale", "X", "factor on the features: a number or A/B"},
    READ_OPTION,
    {"label", "COLUMN", "CSV label column"},
    {"min-accuracy", "A", "fail when a test accuracy is below (default 0)"},
    {"part", "X",
     "relative L2 error from which a value counts as parted from the reference (default: 8 times "
     "the epsilon of the policy's narrow dtype)"},
    {"bisect", NULL,
     "name the first fusion that makes a run differ, and the first policy decision that takes a "
     "result further than --part from the reference"},
    {"values", NULL, "print the precision error of every output and gradient"},
    {"json", NULL, "print as JSON lines"},
};

struct side {
    struct runner runner;
    bool is_eager;
    double seconds, accuracy;
};

struct precision {
    struct closeness loss, worst;
    char worst_name[64];
    bool prints, is_json;
    const char *policy;
};

static void on_value(void *context, const char *name, const struct closeness *c)
{
    struct precision *p = context;
    if (strcmp(name, "loss") == 0) {
        p->loss = *c;
    } else if (strncmp(name, "grad:", 5) == 0 &&
               (c->relative_l2 >= p->worst.relative_l2 || isnan(c->relative_l2))) {
        p->worst = *c;
        snprintf(p->worst_name, sizeof p->worst_name, "%.60s", name);
    }
    if (p->prints && p->is_json) {
        struct json j;
        json_open(&j);
        json_text(&j, "policy", p->policy);
        json_text(&j, "value", name);
        json_number(&j, "max_abs", c->max_abs, 6);
        json_number(&j, "max_ulp", c->max_ulp, 6);
        json_number(&j, "relative_l2", c->relative_l2, 6);
        json_number(&j, "cosine", c->cosine, 9);
        json_whole(&j, "nonfinite", c->nonfinite);
        json_close("\n");
    } else if (p->prints) {
        printf("  %-6s %-14s max abs %-11.4g max ulp %-11.4g relative L2 %-11.4g cosine %.9f "
               "nonfinite %llu\n",
               p->policy, name, c->max_abs, c->max_ulp, c->relative_l2, c->cosine,
               (unsigned long long)c->nonfinite);
    }
}

/* kind: fused (against eager) or reference. */
static void print_parting(const struct precision *p, const char *kind, const char *what,
                          const char *text)
{
    if (p->is_json) {
        struct json j;
        json_open(&j);
        json_text(&j, "policy", p->policy);
        json_text(&j, "parting", kind);
        json_text(&j, "at", text);
        json_close("\n");
    } else {
        printf("%s: %s %s\n", p->policy, what, text[0] != '\0' ? text : "no value");
    }
}

static status feed_side(struct side *s, const struct tensor *x, const struct tensor *y,
                        struct error *e)
{
    return batch_feed(&s->runner, x, y, e);
}

static status open_sides(struct side sides[2], struct job *j, struct error *e)
{
    status code = ATOLL_OK;
    memset(sides, 0, 2 * sizeof *sides);
    for (int i = 0; i < 2 && code == ATOLL_OK; i++) {
        j->compile.is_eager = sides[i].is_eager = i == 0;
        code = of_model(runner_open(&sides[i].runner, j->model, &j->compile, j->seed, e), e);
    }
    return code;
}

static status step_side(struct side *s, const struct tensor *x, const struct tensor *y,
                        struct error *e)
{
    double start = seconds_now();
    TRY(feed_side(s, x, y, e));
    TRY(runner_step(&s->runner, e));
    s->seconds += seconds_now() - start;
    return ATOLL_OK;
}

static status test_side(struct side *s, const struct job *j, struct split *split, struct error *e)
{
    struct runner forward = {0};
    struct compile_options o = j->compile;
    struct tensor x, y;
    o.train = NULL;
    o.is_eager = true;
    o.device = NULL;
    o.dump = NULL;
    s->accuracy = (double)NAN;
    split_test(split, &x, &y);
    if (y.data == NULL || split->n_test == 0) {
        return ATOLL_OK;
    }
    status code = runner_open(&forward, j->any_rows, &o, j->seed, e);
    if (code == ATOLL_OK) {
        runner_copy_leaves(&forward, &s->runner);
        struct side f = {.runner = forward};
        code = step_side(&f, &x, &y, e);
        forward = f.runner;
        struct tensor logits = runner_output(&forward, "logits");
        s->accuracy =
            code == ATOLL_OK && logits.data != NULL ? accuracy_of(&logits, &y) : (double)NAN;
    }
    runner_free(&forward);
    return code;
}

static uint32_t count_islands(const struct graph *g)
{
    uint32_t most = 0;
    for (uint32_t i = 1; g != NULL && i < g->n_nodes; i++) {
        most = g->nodes[i].island > most ? g->nodes[i].island : most;
    }
    return most;
}

/* A counter of the last step; 0 before the first. */
static double counted(struct side *s, int64_t steps, const char *name)
{
    return steps > 0 ? runner_number(&s->runner, name) : 0.0;
}

static void print_json(const struct job *j, struct side *s, int64_t steps, double step_us,
                       const struct bit_count *bits, const struct precision *p)
{
    struct json o;
    json_open(&o);
    json_text(&o, "policy", j->compile.policy->name);
    json_text(&o, "mode", s->is_eager ? "eager" : "fused");
    json_number(&o, "test_accuracy", s->accuracy, 6);
    json_number(&o, "step_us", step_us, 6);
    json_whole(&o, "peak_bytes", s->runner.peak_bytes);
    json_number(&o, "accepted", counted(s, steps, "accepted"), 16);
    json_number(&o, "skipped", counted(s, steps, "skipped"), 16);
    json_whole(&o, "islands", count_islands(s->runner.compiled.step));
    json_whole(&o, "values", bits->compared);
    json_whole(&o, "different", bits->different);
    json_number(&o, "loss_error", p->loss.max_abs, 4);
    json_number(&o, "gradient_error", p->worst.relative_l2, 4);
    json_text(&o, "worst_gradient", p->worst_name);
    json_close("\n");
}

/* A figure of the table; "-" where there is none. */
struct cell {
    char text[32];
};
static struct cell cell(const char *format, double number)
{
    struct cell c = {"-"};
    if (!isnan(number)) {
        snprintf(c.text, sizeof c.text, format, number);
    }
    return c;
}

static void print_row(const struct job *j, struct side *s, int64_t steps,
                      const struct bit_count *bits, const struct precision *p)
{
    double step_us = steps > 0 ? s->seconds / (double)steps * 1e6 : (double)NAN;
    if (p->is_json) {
        print_json(j, s, steps, step_us, bits, p);
    } else {
        printf("%-14s %-6s %9s %10s %12zu %6s/%-5s %8u %14llu %9llu %11.3g %11.3g  %s\n",
               j->compile.policy->name, s->is_eager ? "eager" : "fused",
               cell("%.4f", s->accuracy).text, cell("%.1f", step_us).text, s->runner.peak_bytes,
               cell("%.0f", counted(s, steps, "accepted")).text,
               cell("%.0f", counted(s, steps, "skipped")).text,
               count_islands(s->runner.compiled.step), (unsigned long long)bits->compared,
               (unsigned long long)bits->different, p->loss.max_abs, p->worst.relative_l2,
               p->worst_name);
    }
    fflush(stdout);
}

static status train_both(struct side sides[2], struct split *split, int64_t batch, int64_t epochs,
                         int64_t *steps, struct bit_count *bits, struct error *e)
{
    struct tensor x, y;
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        split_epoch(split, epoch);
        for (int64_t row = 0; row < split->n_train; row += batch) {
            split_batch(split, row, split->n_train - row < batch ? split->n_train - row : batch, &x,
                        &y);
            TRY(step_side(&sides[0], &x, &y, e));
            TRY(step_side(&sides[1], &x, &y, e));
            compare_runners(bits, &sides[0].runner, &sides[1].runner, false);
            ++*steps;
        }
    }
    compare_runners(bits, &sides[0].runner, &sides[1].runner, true);
    return ATOLL_OK;
}

/* The same steps again from the start, up to the first at which the two sides part, to name the
 * value. Steps are deterministic, so it is found where the bits were. */
static status find_parting(struct job *j, struct split *split, int64_t batch, int64_t epochs,
                           struct parting *parting, int64_t *step, struct error *e)
{
    struct side sides[2];
    struct tensor x, y;
    status code = open_sides(sides, j, e);
    *step = 0;
    for (int64_t epoch = 0; epoch < epochs && code == ATOLL_OK && !parting->is_found; epoch++) {
        split_epoch(split, epoch);
        for (int64_t row = 0; row < split->n_train && code == ATOLL_OK && !parting->is_found;
             row += batch) {
            split_batch(split, row, split->n_train - row < batch ? split->n_train - row : batch, &x,
                        &y);
            code = feed_side(&sides[0], &x, &y, e);
            code = code == ATOLL_OK ? feed_side(&sides[1], &x, &y, e) : code;
            code = code == ATOLL_OK ? parting_step(&sides[0].runner, &sides[1].runner, parting, e)
                                    : code;
            ++*step;
        }
    }
    runner_free(&sides[0].runner);
    runner_free(&sides[1].runner);
    return code;
}

/* What --bisect adds; step: the one at which fused and eager part, 0: none. */
static status bisect_both(struct job *j, struct split *split, int64_t batch, int64_t step,
                          double tolerance, const struct precision *p, struct error *e)
{
    struct bisect found;
    if (step > 0) {
        TRY(compare_bisect_fusion(j, split, batch, step, &found, e));
        print_parting(p, "fusion", "bisect:", found.text);
    }
    TRY(compare_bisect_policy(j, split, batch, tolerance, &found, e));
    print_parting(p, "policy", "bisect:", found.text);
    return ATOLL_OK;
}

static status part_tolerance(const struct job *j, const struct arguments *a, double *out,
                             struct error *e)
{
    enum dtype low = j->compile.policy->low != DTYPE_NONE ? j->compile.policy->low : F32;
    return argument_number(a, "part", 8.0 * dtype_info[low].epsilon, 0.0, 1e9, out, e);
}

static status compare_policy(struct job *j, struct split *split, const struct arguments *a,
                             int64_t batch, int64_t epochs, struct bit_count *total, double *low,
                             struct error *e)
{
    struct side sides[2];
    struct bit_count bits = {0};
    struct parting parting = {0};
    struct precision p = {.prints = argument_flag(a, "values"),
                          .is_json = argument_flag(a, "json")};
    struct tensor x, y;
    int64_t steps = 0, at = 0;
    double tolerance;
    char what[100];
    p.policy = j->compile.policy->name;
    memset(sides, 0, sizeof sides);
    split_epoch(split, 0);
    split_batch(split, 0, split->n_train < batch ? split->n_train : batch, &x, &y);
    TRY(part_tolerance(j, a, &tolerance, e));
    status code = of_model(compare_precision(j->model, &j->compile, j->seed, &x, &y, on_value, &p,
                                             tolerance, &parting, e),
                           e);
    bool sees_values = j->compile.device == NULL; /* the reference's policy run is the CPU's */
    if (code == ATOLL_OK && sees_values) {
        snprintf(what, sizeof what,
                 "first value over relative L2 %.3g from the reference:", tolerance);
        print_parting(&p, "reference", what, parting.text);
    }
    parting = (struct parting){0};
    code = code == ATOLL_OK ? open_sides(sides, j, e) : code;
    code = code == ATOLL_OK ? train_both(sides, split, batch, epochs, &steps, &bits, e) : code;
    for (int i = 0; i < 2 && code == ATOLL_OK; i++) {
        code = test_side(&sides[i], j, split, e);
        print_row(j, &sides[i], steps, &bits, &p);
        *low =
            isnan(*low) || isnan(sides[i].accuracy) ? (double)NAN : fmin(*low, sides[i].accuracy);
    }
    total->compared += bits.compared;
    total->different += bits.different;
    runner_free(&sides[0].runner);
    runner_free(&sides[1].runner);
    if (code == ATOLL_OK && bits.different > 0) {
        code = find_parting(j, split, batch, epochs, &parting, &at, e);
        print_parting(&p, "fused", "fused and eager part at", parting.text);
    }
    if (code == ATOLL_OK && argument_flag(a, "bisect")) {
        code = bisect_both(j, split, batch, parting.is_found ? at : 0, tolerance, &p, e);
    }
    if (bits.different > 0 && total->first[0] == '\0') {
        snprintf(total->first, sizeof total->first, "%.20s: %.400s", p.policy,
                 parting.is_found ? parting.text : bits.first);
    }
    return code;
}

/* The next policy of a comma-separated list that is cut up; NULL behind the last. */
static const char *next_policy(char **list)
{
    char *name = *list, *comma = name != NULL ? strchr(name, ',') : NULL;
    if (comma != NULL) {
        *comma++ = '\0';
    }
    *list = comma;
    return name;
}

static void print_head(void)
{
    printf("%-14s %-6s %9s %10s %12s %12s %8s %14s %9s %11s %11s\n", "policy", "mode", "test acc",
           "step us", "peak bytes", "acc./skipped", "islands", "values", "bits diff", "loss error",
           "grad error");
}

static status verdict(const struct job *j, const struct bit_count *total, double low, double wanted,
                      struct error *e)
{
    if (total->different > 0 && !j->compile.is_relaxed) {
        return fail(e, ATOLL_CHECK_FAILED, "fused differs from eager, first at %s", total->first);
    }
    if (wanted > 0.0 && isnan(low)) {
        return fail(e, ATOLL_CHECK_FAILED,
                    "no test accuracy to hold against %.4f; hint: hold rows out (--holdout), with "
                    "i64 labels and an output logits",
                    wanted);
    }
    return wanted == 0.0 || low >= wanted
               ? ATOLL_OK
               : fail(e, ATOLL_CHECK_FAILED, "test accuracy %.4f, expected at least %.4f", low,
                      wanted);
}

static status compare_all(struct job *j, struct split *split, const struct arguments *a,
                          struct error *e)
{
    struct bit_count total = {0};
    double wanted, low = 1.0;
    int64_t batch, epochs;
    TRY(argument_whole(a, "batch", 64, 1, 1000000000, &batch, e));
    TRY(argument_whole(a, "epochs", 5, 0, 1000000, &epochs, e));
    TRY(argument_number(a, "min-accuracy", 0, 0, 1, &wanted, e));
    TRY(split_check(split, j->model, e));
    TRY(split_check_rows(split, j, batch, epochs, INT64_MAX, e));
    const char *policies = argument(a, "policies", "fp32,bf16,fp16"), *name;
    char *list = arena_copy_text(&j->arena, policies);
    while ((name = next_policy(&list)) !=
           NULL) { /* a slip in the last one shows before the first */
        TRY(job_policy(j, name, a, e));
    }
    bool is_json = argument_flag(a, "json");
    if (!is_json) {
        print_head();
    }
    list = arena_copy_text(&j->arena, policies);
    while ((name = next_policy(&list)) != NULL) {
        TRY(job_policy(j, name, a, e));
        TRY(compare_policy(j, split, a, batch, epochs, &total, &low, e));
    }
    if (!is_json) {
        printf("fused == eager: %llu values compared, %llu with different bits\n"
               "loss error, grad error: eager against the f64 reference of the original graph "
               "(absolute; relative L2 of the worst gradient)\n",
               (unsigned long long)total.compared, (unsigned long long)total.different);
    }
    return verdict(j, &total, low, wanted, e);
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    struct job j = {0};
    struct split split = {0};
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL; hint: atoll compare MODEL --data FILE");
    }
    TRY(not_a_plan(a->positional[0], e));
    status code = job_open_lines(&j, a->positional[0], a, c, e);
    code = code == ATOLL_OK ? split_open(&split, a, j.seed, e) : code;
    code = code == ATOLL_OK ? compare_all(&j, &split, a, e) : code;
    split_close(&split);
    job_close(&j);
    return code;
}

const struct command command_compare = {
    "compare",
    "MODEL --data FILE [options]",
    "run {eager, fused} x policies from the same state; bits, accuracy, speed, and error against "
    "f64",
    "  atoll compare examples/digits.graph --data examples/data/digits.csv.gz --scale 0.0625 "
    "--policies fp32,bf16,fp16\n",
    options,
    ARRAY_LEN(options),
    run,
};
