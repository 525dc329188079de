/* atoll train: a model or a plan over a data set, with test accuracy, step times and checkpoints.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/report/report.h"
#include "runtime/file.h"
#include "stepper.h"

static const struct option options[] = {
    {"data", "FILE",
     "CSV(.gz), NPY, NPZ or safetensors with x and y (CSV: label in the last column)"},
    {"policy", "P", "precision policy (default fp32)"},
    {"optimizer", "TEXT",
     "adamw, adam, sgd or lion with settings: adamw,lr=1e-3,weight_decay=0.01"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"schedule", "TEXT", "step,50,0.5 | cosine,100 | warmup,10 | warmup,10+cosine,100"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"batch", "N", "rows a step (default 64); the last batch of an epoch may be smaller"},
    {"epochs", "N", "passes over the data (default 10)"},
    {"steps", "N", "stop after so many steps"},
    {"device", "D", "cpu, or cuda:N (default cpu)"},
    {"tf32", NULL, "let f32 matrix products of the device round their operands to TF32"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed of parameters and shuffling (default 1)"},
    {"no-shuffle", NULL, "take rows in file order"},
    {"holdout", "SHARE",
     "share of rows kept for the test, 0 to 0.9 (default 0.2); with --no-shuffle the last ones"},
    {"scale", "X", "factor on the features: a number or A/B (the digits: 1/16)"},
    READ_OPTION,
    {"label", "COLUMN", "CSV label column: name, index, last or none"},
    {"eager", NULL, "one op at a time instead of fused kernels"},
    {"save", "FILE", "write a checkpoint (safetensors) at the end"},
    {"resume", "FILE", "start from a checkpoint"},
    {"ledger", "FILE",
     "record which plan each batch ran or why one was built, for atoll explain --ledger"},
    {"json", NULL, "print the result as JSON"},
    {"quiet", NULL, "no progress"},
};

struct progress {
    bool is_terminal, is_quiet;
};

struct training {
    struct job job;
    struct runner own, evaluator;
    struct runner *runner;  /* own, or the stepper's present one (NULL before its first batch) */
    struct stepper stepper; /* --ledger: a plan a size, or for many sizes */
    struct split split;
    int64_t batch, epochs, max_steps, steps, first_step;
    double seconds, accuracy, loss, accepted, skipped; /* NaN: none */
    bool is_plan, is_evaluated;
};

/* The engine instead of one runner: a plan comes with the first batch that needs it. */
static status open_stepper(struct training *t, const char *path, struct error *e)
{
    struct callable_options o = {0};
    char *text;
    size_t size;
    if (t->max_steps == 0 || t->epochs == 0) {
        return fail(e, ATOLL_USAGE, "--ledger: found no step to record; expected 1 or more");
    }
    TRY(read_text_file(path, &t->job.arena, &text, &size, e));
    return stepper_open(&t->stepper, path, text, t->job.model, &t->job, &o, e);
}

static const struct graph *graph_of(const struct training *t)
{
    return t->runner != NULL ? runner_graph(t->runner) : t->job.model;
}

static status open_evaluator(struct training *t, struct error *e)
{
    struct compile_options forward = t->job.compile;
    forward.train = NULL;
    forward.is_eager = true; /* one run an epoch: not worth a compiler's time */
    forward.device = NULL;   /* the parameters come down; the rows are few */
    forward.dump = NULL;
    return runner_open(&t->evaluator, t->job.any_rows, &forward, t->job.seed, e);
}

static status open_model(struct training *t, const char *path, const struct arguments *a,
                         struct context *c, struct error *e)
{
    t->is_plan = is_plan_name(path);
    t->runner = &t->own;
    if (t->is_plan) {
        TRY(argument_only(a,
                          " data batch epochs steps seed no-shuffle holdout scale label read save "
                          "resume json quiet device tf32 ",
                          "a plan is compiled already; hint: give it to atoll compile", e));
        struct device_options where = context_devices(c);
        where.allows_tf32 = argument_flag(a, "tf32");
        TRY(device_open(argument(a, "device", "cpu"), &where, &t->job.compile.device, e));
        TRY(context_apply(c, &t->job.compile, e));
        TRY(runner_open_plan_on(t->runner, path, &t->job.compile, e));
        if (t->runner->notice[0] != '\0') {
            fprintf(stderr, "atoll train: %s\n", t->runner->notice);
        }
        return ATOLL_OK;
    }
    TRY(job_open(&t->job, path, a, c, e));
    TRY(job_policy(&t->job, argument(a, "policy", "fp32"), a, e));
    t->job.compile.is_eager = argument_flag(a, "eager");
    if (argument(a, "ledger", NULL) != NULL) {
        t->runner = NULL;
        TRY(open_stepper(t, path, e));
        return open_evaluator(t, e);
    }
    if (runner_open(t->runner, t->job.model, &t->job.compile, t->job.seed, e) != ATOLL_OK) {
        if (e->code != ATOLL_COMPILER) {
            return of_model(e->code, e);
        }
        fprintf(stderr,
                "atoll train: %s\natoll train: running eagerly instead, with the same bits\n",
                e->text);
        *e = (struct error){0};
        runner_free(t->runner);
        t->job.compile.is_eager = true;
        TRY(runner_open(t->runner, t->job.model, &t->job.compile, t->job.seed, e));
    }
    if (t->runner->compiled.cuda.n_split > 0) {
        fprintf(stderr,
                "atoll train: %u groups run one op at a time, their kernels did not compile; "
                "hint: atoll inspect --notes\n",
                t->runner->compiled.cuda.n_split);
    }
    return open_evaluator(t, e);
}

/* NULL when there is a test accuracy to measure, else why not. */
static const char *why_untested(const struct training *t)
{
    if (t->is_plan) {
        return "a plan holds the training step only";
    }
    if (t->split.n_test == 0) {
        return "no rows held out";
    }
    if (t->split.y == NULL || t->split.y->dtype != I64) {
        return "no i64 labels y in the data";
    }
    const struct graph *g = runner_graph(&t->evaluator);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, "logits") == 0 &&
            graph_node(g, g->outputs[i].value)->shape.rank == 2) {
            return NULL;
        }
    }
    return "the model returns no logits=%z of shape [rows, classes]";
}

/* Test accuracy with the parameters as they are: eager forward of the model under its policy. */
static status evaluate(struct training *t, struct error *e)
{
    struct tensor x, y;
    t->accuracy = (double)NAN;
    t->is_evaluated = true;
    if (why_untested(t) != NULL) {
        return ATOLL_OK;
    }
    runner_copy_leaves(&t->evaluator, t->runner);
    split_test(&t->split, &x, &y);
    TRY(runner_input(&t->evaluator, "x", &x, e));
    if (graph_find(runner_graph(&t->evaluator), "y").id != 0) {
        TRY(runner_input(&t->evaluator, "y", &y, e));
    }
    TRY(runner_step(&t->evaluator, e));
    struct tensor logits = runner_output(&t->evaluator, "logits");
    t->accuracy = accuracy_of(&logits, &y);
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
        printf("epoch %lld/%lld  step %lld  loss %.6f", (long long)(epoch + 1),
               (long long)t->epochs, (long long)t->steps, t->loss);
        printf(isnan(t->accuracy) ? "\n" : "  test accuracy %.4f\n", t->accuracy);
    }
}

/* Sizes of the symbols that an input's shape holds. */
static void read_sizes(const struct graph *g, const char *name, const struct tensor *t,
                       int64_t *sizes)
{
    value v = graph_find(g, name);
    const struct node *n = graph_node(g, v);
    for (uint32_t i = 0; v.id != 0 && t->data != NULL && i < n->shape.rank && i < t->rank; i++) {
        struct dim d = n->shape.dims[i];
        if (!dim_is_static(d) && d.symbols[1] == 0) {
            sizes[d.symbols[0]] = t->shape[i] / d.factor;
        }
    }
}

static status choose_runner(struct training *t, const struct tensor *x, const struct tensor *y,
                            struct error *e)
{
    int64_t sizes[MAX_SYMBOLS];
    if (t->stepper.callable == NULL) {
        return ATOLL_OK;
    }
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        sizes[i] = -1;
    }
    read_sizes(t->job.model, "x", x, sizes);
    read_sizes(t->job.model, "y", y, sizes);
    return stepper_call(&t->stepper, sizes, &t->runner, e);
}

/* Gives a batch to the step at hand or, ahead, to the next one, beside the step that runs. */
static status give_batch(struct training *t, int64_t row, bool is_ahead, struct error *e)
{
    struct tensor x, y;
    int64_t left = t->split.n_train - row;
    split_batch(&t->split, row, left < t->batch ? left : t->batch, &x, &y);
    if (is_ahead) {
        return batch_prefetch(t->runner, &x, &y, e);
    }
    TRY(choose_runner(t, &x, &y, e));
    return batch_feed(t->runner, &x, &y, e);
}

/* On a device the next batch of the epoch travels while the present step runs. */
static bool is_prefetched(const struct training *t, int64_t row)
{
    return t->runner->device != NULL && t->stepper.callable == NULL && row < t->split.n_train &&
           t->steps + 1 < t->max_steps;
}

static status one_epoch(struct training *t, int64_t epoch, const struct progress *p,
                        struct error *e)
{
    int64_t first = t->steps > t->first_step ? t->steps : t->first_step;
    bool is_there = false; /* the batch at hand was prefetched */
    split_epoch(&t->split, epoch);
    for (int64_t row = 0; row < t->split.n_train && t->steps < t->max_steps; row += t->batch) {
        if (t->steps < t->first_step) { /* done before the checkpoint this run resumed from */
            t->steps++;
            continue;
        }
        double start = seconds_now();
        TRY(is_there ? ATOLL_OK : give_batch(t, row, false, e));
        TRY(runner_step(t->runner, e));
        is_there = is_prefetched(t, row + t->batch);
        TRY(is_there ? give_batch(t, row + t->batch, true, e) : ATOLL_OK);
        double loss = runner_number(t->runner, "loss");
        t->seconds += seconds_now() - start;
        t->steps++;
        t->loss = isnan(loss) ? (double)NAN : loss; /* a NaN prints without its sign */
        if (p->is_terminal && t->steps % 16 == 0) {
            show(p, t, epoch, false);
        }
    }
    if (t->steps > first) {
        TRY(evaluate(t, e));
        show(p, t, epoch, true);
    }
    return ATOLL_OK;
}

static void report_json(const struct training *t, const char *policy, double step)
{
    struct json j;
    json_open(&j);
    json_text(&j, "policy", policy);
    json_text(&j, "mode", t->job.compile.is_eager ? "eager" : "fused");
    json_whole(&j, "steps", (uint64_t)t->steps);
    json_number(&j, "loss", t->loss, 9);
    json_number(&j, "test_accuracy", t->accuracy, 6);
    json_number(&j, "step_us", step, 6);
    json_whole(&j, "peak_bytes", t->runner->peak_bytes);
    if (t->runner->device != NULL) {
        json_whole(&j, "device_allocated_bytes", t->runner->device->memory.peak_allocated);
        json_whole(&j, "device_reserved_bytes", t->runner->device->memory.peak_reserved);
        struct pinned_counts pinned = session_pinned(t->runner->session);
        json_whole(&j, "pinned_allocated_bytes", pinned.peak_allocated);
        json_whole(&j, "pinned_reserved_bytes", pinned.peak_reserved);
    }
    json_number(&j, "accepted", t->accepted, 16);
    json_number(&j, "skipped", t->skipped, 16);
    json_close("\n");
}

static void report(struct training *t, bool is_json)
{
    int64_t ran = t->steps - t->first_step;
    double step = ran > 0 ? t->seconds / (double)ran * 1e6 : (double)NAN;
    const char *policy = t->is_plan ? "plan" : t->job.compile.policy->name;
    if (ran > 0) {
        t->accepted = runner_number(t->runner, "accepted");
        t->skipped = runner_number(t->runner, "skipped");
    }
    if (is_json) {
        report_json(t, policy, step);
        return;
    }
    printf("%s %s: %lld steps", policy, t->job.compile.is_eager ? "eager" : "fused",
           (long long)t->steps);
    if (ran > 0) {
        printf(", loss %.6f", t->loss);
    }
    if (why_untested(t) == NULL) {
        printf(", test accuracy %.4f", t->accuracy);
    } else {
        printf(", no test accuracy (%s)", why_untested(t));
    }
    if (ran > 0) {
        printf(", %.1f us a step, peak %zu bytes", step, t->runner->peak_bytes);
    }
    if (t->runner->device != NULL) {
        printf(", device memory %zu bytes of %zu reserved",
               t->runner->device->memory.peak_allocated, t->runner->device->memory.peak_reserved);
    }
    if (!isnan(t->accepted)) {
        printf(", accepted %.0f, skipped %.0f", t->accepted, t->skipped);
    }
    putchar('\n');
}

/* From a checkpoint: the data is taken up where it left it, so that the bits are those of never
 * having stopped. */
static status resume(struct training *t, const char *path, struct error *e)
{
    int64_t batches = (t->split.n_train + t->batch - 1) / t->batch, end;
    TRY(runner_load(t->runner, path, &t->first_step, e));
    if (__builtin_mul_overflow(batches, t->epochs, &end) || end > t->max_steps) {
        end = t->max_steps;
    }
    return t->first_step <= end
               ? ATOLL_OK
               : fail(e, ATOLL_USAGE,
                      "%s is %lld steps on, this run ends after %lld; hint: raise --epochs or "
                      "--steps",
                      path, (long long)t->first_step, (long long)end);
}

static status write_ledger(const struct training *t, const char *path, bool is_quiet,
                           struct error *e)
{
    const ledger *l = callable_ledger(t->stepper.callable);
    struct arena scratch = SCRATCH_ARENA;
    struct text line = {.arena = &scratch};
    if (!is_quiet) {
        report_counters(&line, &l->counters);
        printf("ledger %s: %s", path, line.data);
    }
    arena_free(&scratch);
    return ledger_save(l, path, e);
}

static status run_training(struct training *t, const struct arguments *a, struct context *c,
                           struct error *e)
{
    struct progress p = {.is_terminal = isatty(2) && !argument_flag(a, "json"),
                         .is_quiet = argument_flag(a, "quiet") || argument_flag(a, "json")};
    const char *from = argument(a, "resume", NULL), *to = argument(a, "save", NULL);
    const char *book = argument(a, "ledger", NULL);
    int64_t seed;
    t->loss = t->accuracy = t->accepted = t->skipped = (double)NAN;
    TRY(argument_whole(a, "batch", 64, 1, 1000000000, &t->batch, e));
    TRY(argument_whole(a, "epochs", 10, 0, 1000000000, &t->epochs, e));
    TRY(argument_whole(a, "steps", INT64_MAX, 0, MAX_SEED, &t->max_steps, e));
    TRY(argument_whole(a, "seed", 1, 0, MAX_SEED, &seed, e));
    TRY(to != NULL ? file_probe(to, e) : ATOLL_OK); /* not after an hour of training */
    TRY(book != NULL ? file_probe(book, e) : ATOLL_OK);
    if (book != NULL && from != NULL) {
        return fail(e, ATOLL_USAGE,
                    "--ledger and --resume: a ledger begins with a run; expected one of them");
    }
    TRY(split_open(&t->split, a, (uint64_t)seed, e));
    TRY(open_model(t, a->positional[0], a, c, e));
    TRY(split_check(&t->split, graph_of(t), e));
    if (!t->is_plan) {
        TRY(split_check_rows(&t->split, &t->job, t->batch, t->epochs, t->max_steps, e));
    }
    TRY(from != NULL ? resume(t, from, e) : ATOLL_OK);
    for (int64_t epoch = 0; epoch < t->epochs && t->steps < t->max_steps; epoch++) {
        TRY(one_epoch(t, epoch, &p, e));
    }
    if (p.is_terminal && !p.is_quiet) {
        fputc('\n', stderr);
    }
    TRY(t->is_evaluated ? ATOLL_OK : evaluate(t, e));
    TRY(to != NULL ? runner_save(t->runner, to, t->steps, e) : ATOLL_OK);
    report(t, argument_flag(a, "json"));
    return book != NULL ? write_ledger(t, book, p.is_quiet, e) : ATOLL_OK;
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
    stepper_close(&t->stepper);
    runner_free(&t->own);
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
