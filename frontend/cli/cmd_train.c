/* atoll train: a model or a plan over a data set, with test accuracy, step times and checkpoints.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const struct option options[] = {
    {"data", "FILE",
     "CSV(.gz), NPY, NPZ or safetensors with x and y (CSV: label in the last column)"},
    {"policy", "P", "precision policy (default fp32)"},
    {"optimizer", "TEXT",
     "adamw, adam, sgd or lion with settings: adamw,lr=1e-3,weight_decay=0.01"},
    {"schedule", "TEXT", "step,50,0.5 | cosine,100 | warmup,10 | warmup,10+cosine,100"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"batch", "N", "rows a step (default 64); the last batch of an epoch may be smaller"},
    {"epochs", "N", "passes over the data (default 10)"},
    {"steps", "N", "stop after so many steps"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed of parameters and shuffling (default 1)"},
    {"no-shuffle", NULL, "take rows in file order"},
    {"holdout", "SHARE", "share of rows, the last ones, kept for the test (default 0.2)"},
    {"scale", "X", "factor on the features (1/16 for the digits: 0.0625)"},
    {"label", "COLUMN", "CSV label column: name, index, last or none"},
    {"eager", NULL, "one op at a time instead of fused kernels"},
    {"save", "FILE", "write a checkpoint (safetensors) at the end"},
    {"resume", "FILE", "start from a checkpoint"},
    {"json", NULL, "print the result as JSON"},
    {"quiet", NULL, "no progress"},
};

struct progress {
    bool is_terminal, is_quiet;
};

struct training {
    struct job job;
    struct runner runner, evaluator;
    struct split split;
    int64_t batch, epochs, max_steps, steps, first_step;
    double seconds, accuracy, loss;
    bool is_plan, has_test;
};

static bool is_plan_file(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".plan") == 0;
}

static status open_model(struct training *t, const char *path, const struct arguments *a,
                         struct context *c, struct error *e)
{
    t->is_plan = is_plan_file(path);
    if (t->is_plan) {
        return runner_open_plan(&t->runner, path, e);
    }
    TRY(job_open(&t->job, path, a, c, e));
    TRY(job_policy(&t->job, argument(a, "policy", "fp32"), a, e));
    t->job.compile.is_eager = argument_flag(a, "eager");
    if (runner_open(&t->runner, t->job.model, &t->job.compile, t->job.seed, e) != ATOLL_OK) {
        if (e->code != ATOLL_COMPILER) {
            return e->code;
        }
        fprintf(stderr,
                "atoll train: %s\natoll train: running eagerly instead, with the same bits\n",
                e->text);
        *e = (struct error){0};
        runner_free(&t->runner);
        t->job.compile.is_eager = true;
        TRY(runner_open(&t->runner, t->job.model, &t->job.compile, t->job.seed, e));
    }
    struct compile_options forward = t->job.compile;
    forward.train = NULL;
    forward.is_eager = true; /* one run an epoch: not worth a compiler's time */
    forward.dump = NULL;
    return runner_open(&t->evaluator, t->job.model, &forward, t->job.seed, e);
}

/* Test accuracy with the parameters as they are: eager forward of the model under its policy. */
static status evaluate(struct training *t, struct error *e)
{
    struct tensor x, y;
    t->accuracy = (double)NAN;
    if (t->is_plan || t->split.n_test == 0 || t->split.y == NULL || t->split.y->dtype != I64) {
        return ATOLL_OK;
    }
    runner_copy_leaves(&t->evaluator, &t->runner);
    split_test(&t->split, &x, &y);
    TRY(runner_input(&t->evaluator, "x", &x, e));
    TRY(runner_input(&t->evaluator, "y", &y, e));
    TRY(runner_step(&t->evaluator, e));
    struct tensor logits = runner_output(&t->evaluator, "logits");
    if (logits.data != NULL && logits.rank == 2) {
        t->accuracy = accuracy_of(&logits, &y);
    }
    return ATOLL_OK;
}

static void show(const struct progress *p, const struct training *t, int64_t epoch, bool is_end)
{
    if (p->is_quiet) {
        return;
    }
    if (p->is_terminal) {
        int filled = t->epochs > 0 ? (int)(30 * (epoch + is_end) / t->epochs) : 30;
        fprintf(stderr, "\r[%.*s%.*s] epoch %lld/%lld  step %lld  loss %.4f", filled,
                "##############################", 30 - filled, "..............................",
                (long long)(epoch + is_end), (long long)t->epochs, (long long)t->steps, t->loss);
        fflush(stderr);
    } else if (is_end) {
        printf("epoch %lld/%lld  step %lld  loss %.6f  test accuracy %.4f\n",
               (long long)(epoch + 1), (long long)t->epochs, (long long)t->steps, t->loss,
               t->accuracy);
    }
}

static status one_epoch(struct training *t, int64_t epoch, const struct progress *p,
                        struct error *e)
{
    split_epoch(&t->split, epoch);
    for (int64_t row = 0; row < t->split.n_train && t->steps < t->max_steps; row += t->batch) {
        struct tensor x, y;
        if (t->steps < t->first_step) { /* done before the checkpoint this run resumed from */
            t->steps++;
            continue;
        }
        int64_t n = t->split.n_train - row < t->batch ? t->split.n_train - row : t->batch;
        split_batch(&t->split, row, n, &x, &y);
        double start = seconds_now();
        TRY(runner_input(&t->runner, "x", &x, e));
        if (y.data != NULL && graph_find(runner_graph(&t->runner), "y").id != 0) {
            TRY(runner_input(&t->runner, "y", &y, e));
        }
        TRY(runner_step(&t->runner, e));
        t->seconds += seconds_now() - start;
        t->steps++;
        t->loss = runner_number(&t->runner, "loss");
        if (p->is_terminal && t->steps % 16 == 0) {
            show(p, t, epoch, false);
        }
    }
    TRY(evaluate(t, e));
    show(p, t, epoch, true);
    return ATOLL_OK;
}

static void report(struct training *t, bool is_json)
{
    double accepted = runner_number(&t->runner, "accepted"),
           skipped = runner_number(&t->runner, "skipped");
    double step = t->steps > 0 ? t->seconds / (double)t->steps * 1e6 : 0.0;
    const char *form = is_json ? "{\"policy\": \"%s\", \"mode\": \"%s\", \"steps\": %lld, "
                                 "\"loss\": %.9g, \"test_accuracy\": %.6f, \"step_us\": %.2f, "
                                 "\"peak_bytes\": %zu, \"accepted\": %.0f, \"skipped\": %.0f}\n"
                               : "%s %s: %lld steps, loss %.6f, test accuracy %.4f, %.1f us a "
                                 "step, peak %zu bytes, accepted %.0f, skipped %.0f\n";
    const char *policy = t->is_plan ? "plan" : t->job.compile.policy->name;
    printf(form, policy, t->runner.is_eager ? "eager" : "fused", (long long)t->steps, t->loss,
           isnan(t->accuracy) && is_json ? -1.0 : t->accuracy, step, t->runner.peak_bytes, accepted,
           skipped);
}

static status run_training(struct training *t, const struct arguments *a, struct context *c,
                           struct error *e)
{
    struct progress p = {.is_terminal = isatty(2) && !argument_flag(a, "json"),
                         .is_quiet = argument_flag(a, "quiet") || argument_flag(a, "json")};
    double batch, epochs, steps, seed;
    TRY(argument_number(a, "batch", 64, 1, 1e9, &batch, e));
    TRY(argument_number(a, "epochs", 10, 0, 1e9, &epochs, e));
    TRY(argument_number(a, "steps", 1e18, 0, 1e18, &steps, e));
    TRY(argument_number(a, "seed", 1, 0, 9e15, &seed, e));
    t->batch = (int64_t)batch;
    t->epochs = (int64_t)epochs;
    t->max_steps = (int64_t)steps;
    TRY(split_open(&t->split, a, (uint64_t)seed, e));
    TRY(open_model(t, a->positional[0], a, c, e));
    TRY(split_check_labels(&t->split, runner_graph(&t->runner), e));
    if (argument(a, "resume", NULL) != NULL) {
        /* the data is taken up where the checkpoint left it: the bits are those of never having
         * stopped */
        TRY(runner_load(&t->runner, argument(a, "resume", ""), &t->first_step, e));
    }
    for (int64_t epoch = 0; epoch < t->epochs && t->steps < t->max_steps; epoch++) {
        TRY(one_epoch(t, epoch, &p, e));
    }
    if (p.is_terminal && !p.is_quiet) {
        fputc('\n', stderr);
    }
    if (argument(a, "save", NULL) != NULL) {
        TRY(runner_save(&t->runner, argument(a, "save", ""), t->steps, e));
    }
    report(t, argument_flag(a, "json"));
    return ATOLL_OK;
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE,
                    "expected one MODEL or PLAN; hint: atoll train MODEL --data FILE");
    }
    struct training *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = run_training(t, a, c, e);
    runner_free(&t->runner);
    runner_free(&t->evaluator);
    split_close(&t->split);
    job_close(&t->job);
    free(t);
    return code;
}

const struct command command_train = {
    "train",
    "MODEL|PLAN --data FILE [options]",
    "train a model or step a plan over a data set",
    "  atoll train examples/digits.graph --data examples/data/digits.csv.gz --scale 0.0625 "
    "--policy bf16\n"
    "  atoll train step.plan --data digits.csv.gz --scale 0.0625 --save end.safetensors\n",
    options,
    ARRAY_LEN(options),
    run,
};
