/* atoll bench: one model, one data set, policies x {eager, fused}, from the same state over the
 * same batches; speed, memory, compile cost, and what the training came to. A figure that was not
 * measured is not shown: the row says why. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "codegen/nvrtc.h"
#include "runtime/file.h"

static const struct option options[] = {
    {"data", "FILE", "CSV(.gz), NPY, NPZ or safetensors with x and y"},
    {"policies", "LIST", "policies, comma-separated (default fp32,fp16,bf16,fp8-tensorwise)"},
    {"optimizer", "TEXT", "adamw, adam, sgd or lion with settings"},
    {"schedule", "TEXT", "learning-rate schedule"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"batch", "N", "rows a step (default 64); full batches only"},
    {"steps", "N", "steps a repetition (default 50)"},
    {"warmup", "N", "steps before the first repetition (default 10)"},
    {"repeats", "N", "repetitions, each from the first state (default 5)"},
    {"device", "D", "cpu, or cuda:N (default cpu)"},
    {"tf32", NULL, "let f32 matrix products of the device round their operands to TF32"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed (default 1)"},
    {"no-shuffle", NULL, "take rows in file order"},
    {"holdout", "SHARE", "share of rows for the validation loss (default 0.2)"},
    {"scale", "X", "factor on the features: a number or A/B"},
    READ_OPTION,
    {"label", "COLUMN", "CSV label column"},
    {"json", NULL, "print as JSON instead of a table"},
    {"csv", "FILE", "write the rows as CSV"},
    {"html", "FILE", "write a page with charts"},
};

/* ---- settings ---- */

static void set(struct bench *b, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void set(struct bench *b, const char *name, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (b->n_settings < ARRAY_LEN(b->settings)) {
        b->settings[b->n_settings++] =
            (struct bench_setting){name, arena_copy_text(&b->job.arena, text)};
    }
}

/* "f32[64,64]" */
static const char *type_of(struct bench *b, const struct tensor *t)
{
    struct text text = {.arena = &b->job.arena};
    if (t->data == NULL) {
        return "none";
    }
    text_add(&text, "%s[", dtype_info[t->dtype].name);
    for (uint32_t i = 0; i < t->rank; i++) {
        text_add(&text, "%s%" PRId64, i > 0 ? "," : "", t->shape[i]);
    }
    text_add(&text, "]");
    return text.data;
}

static int64_t count_params(const struct graph *g)
{
    int64_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == OP_param ? shape_count_value(&g->nodes[i].shape, NULL) : 0;
    }
    return n;
}

static void set_run(struct bench *b, const char *model)
{
    static const char *const texts[][2] = {{"optimizer", "adamw,lr=1e-3"},
                                           {"schedule", "none"},
                                           {"params", "f32"},
                                           {"clip", "none"},
                                           {"accumulate", "1"},
                                           {"scaler", "auto"},
                                           {"rounding", "strict"},
                                           {"shape", "none"},
                                           {"scale", "1"},
                                           {"read", "none"},
                                           {"label", "last"}};
    struct tensor x, y;
    split_epoch(&b->split, 0);
    split_batch(&b->split, 0, b->batch, &x, &y);
    set(b, "model", "%s", model);
    set(b, "graph", "%s", b->job.model->name);
    set(b, "parameters", "%" PRId64, count_params(b->job.model));
    set(b, "data", "%s", argument(b->arguments, "data", ""));
    set(b, "x", "%s", type_of(b, &x));
    set(b, "y", "%s", type_of(b, &y));
    set(b, "batch", "%" PRId64, b->batch);
    set(b, "training_rows", "%" PRId64, b->split.n_train);
    set(b, "validation_rows", "%" PRId64, b->split.n_test);
    set(b, "order", "%s", b->split.is_shuffled ? "shuffled" : "file");
    set(b, "seed", "%" PRIu64, b->job.seed);
    set(b, "steps", "%" PRId64, b->steps);
    set(b, "warmup", "%" PRId64, b->warmup);
    set(b, "repeats", "%" PRId64, b->repeats);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        set(b, texts[i][0], "%s", argument(b->arguments, texts[i][0], texts[i][1]));
    }
}

static void set_nvrtc(struct bench *b)
{
    struct nvrtc *n = NULL;
    struct error e = {0};
    int major, minor;
    if (nvrtc_open(b->job.compile.libnvrtc, &n, &e) == ATOLL_OK) {
        nvrtc_version(n, &major, &minor);
        set(b, "nvrtc", "%d.%d", major, minor);
        nvrtc_close(n);
    } else {
        set(b, "nvrtc", "none");
    }
}

/* The first "model name" of the kernel's list. */
static void set_processor(struct bench *b)
{
    char line[400], *colon;
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool is_found = false;
    while (f != NULL && !is_found && fgets(line, sizeof line, f) != NULL) {
        is_found = strncmp(line, "model name", 10) == 0 && (colon = strchr(line, ':')) != NULL;
    }
    if (f != NULL) {
        fclose(f);
    }
    line[strcspn(line, "\n")] = '\0';
    set(b, "processor", "%s", is_found ? colon + 2 : "unknown");
}

static void set_machine(struct bench *b)
{
    struct text features = {.arena = &b->job.arena};
    const struct device *d = b->job.compile.device;
    const char *compiler = cc_version(&b->job.compile.cc, &b->job.arena);
    plan_features(&features);
    b->is_emulated = d != NULL && strstr(d->name, "emulated") != NULL;
    set(b, "device", "%s", d != NULL ? d->name : "cpu");
    set(b, "emulated", "%s", b->is_emulated ? "yes: no time here is a speed" : "no");
    set(b, "tf32", "%s", argument_flag(b->arguments, "tf32") ? "allowed" : "off");
    set_processor(b);
    set(b, "instructions", "%s", features.data);
    set(b, "threads", "%d", omp_get_max_threads());
    set(b, "compiler", "%s", compiler[0] != '\0' ? compiler : "none");
    set(b, "flags", "%s", cc_flags());
    set_nvrtc(b);
    set(b, "contractions", "%s", d != NULL ? "cuBLASLt" : contraction_library());
    set(b, "atoll", "%s", ATOLL_VERSION_TEXT);
}

/* ---- rows ---- */

static struct bench_row *next_row(struct bench *b)
{
    b->rows = arena_grow(&b->job.arena, b->rows, b->n_rows, &b->row_capacity, sizeof *b->rows);
    return &b->rows[b->n_rows++];
}

static status bench_policy(struct bench *b, const char *name, struct error *e)
{
    status code = job_policy(&b->job, name, b->arguments, e);
    for (int k = 0; k < 2; k++) {
        struct bench_row row;
        if (code == ATOLL_UNSUPPORTED) { /* named, but not in this build */
            bench_not_run(b, name, k == 0, e->text, &row);
        } else {
            TRY(code);
            TRY(bench_measure(b, k == 0, &row, e));
        }
        *next_row(b) = row;
    }
    if (code == ATOLL_UNSUPPORTED) {
        *e = (struct error){0};
    }
    return ATOLL_OK;
}

static void relate_rows(struct bench *b)
{
    double base = (double)NAN;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bench_row *r = &b->rows[i];
        if (strcmp(r->policy, "fp32") == 0 && strcmp(r->mode, "eager") == 0) {
            base = r->step_us;
        }
    }
    for (uint32_t i = 0; i < b->n_rows; i++) {
        struct bench_row *r = &b->rows[i], *eager = i % 2 == 1 ? &b->rows[i - 1] : r;
        r->speedup = base / r->step_us;
        if (r->is_measured && eager != r && eager->is_measured) {
            r->same_as_eager = strcmp(r->state_hash, eager->state_hash) == 0 ? "yes" : "no";
        }
        if (r->is_measured && b->is_emulated) {
            r->status = "emulated: not a speed";
        }
    }
}

/* The policies before the first is run: a slip in the last one shows at once. */
static status check_policies(struct bench *b, char *list, struct error *e)
{
    for (char *name = list, *comma; name != NULL; name = comma) {
        comma = strchr(name, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        status code = job_policy(&b->job, name, b->arguments, e);
        if (code == ATOLL_UNSUPPORTED) {
            *e = (struct error){0};
        } else {
            TRY(code);
        }
    }
    return ATOLL_OK;
}

static status run_rows(struct bench *b, struct error *e)
{
    const char *all = argument(b->arguments, "policies", "fp32,fp16,bf16,fp8-tensorwise");
    TRY(check_policies(b, arena_copy_text(&b->job.arena, all), e));
    char *list = arena_copy_text(&b->job.arena, all);
    for (char *name = list, *comma; name != NULL; name = comma) {
        comma = strchr(name, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        TRY(bench_policy(b, name, e));
    }
    relate_rows(b);
    return ATOLL_OK;
}

static status open_validation(struct bench *b, struct error *e)
{
    struct compile_options o = b->job.compile;
    TRY(policy_named("fp32", &o.policy, e));
    o.train = NULL;
    o.device = NULL;
    o.is_eager = true;
    o.dump = NULL;
    return of_model(runner_open(&b->validation, b->job.any_rows, &o, b->job.seed, e), e);
}

static status read_counts(struct bench *b, struct error *e)
{
    const struct arguments *a = b->arguments;
    TRY(argument_whole(a, "batch", 64, 1, 1000000000, &b->batch, e));
    TRY(argument_whole(a, "steps", 50, 1, 1000000, &b->steps, e));
    TRY(argument_whole(a, "warmup", 10, 0, 1000000, &b->warmup, e));
    TRY(argument_whole(a, "repeats", 5, 1, 1000, &b->repeats, e));
    if (b->split.n_train < b->batch) {
        return fail(e, ATOLL_USAGE,
                    "--batch %" PRId64 ": the data has %" PRId64
                    " training rows; hint: a smaller batch, or --holdout 0",
                    b->batch, b->split.n_train);
    }
    return job_check_rows(&b->job, b->batch, e);
}

static status report(const struct bench *b, struct error *e)
{
    const char *csv = argument(b->arguments, "csv", NULL),
               *html = argument(b->arguments, "html", NULL);
    if (argument_flag(b->arguments, "json")) {
        bench_print_json(b);
    } else {
        bench_print_table(b);
    }
    TRY(csv != NULL ? bench_write_csv(b, csv, e) : ATOLL_OK);
    TRY(html != NULL ? bench_write_html(b, html, e) : ATOLL_OK);
    for (uint32_t i = 0; i < b->n_rows && !b->job.compile.is_relaxed; i++) {
        if (strcmp(b->rows[i].same_as_eager, "no") == 0) {
            return fail(e, ATOLL_CHECK_FAILED,
                        "%s: fused ends in other bits than eager; hint: atoll compare names the "
                        "first value that differs",
                        b->rows[i].policy);
        }
    }
    return ATOLL_OK;
}

static status run_bench(struct bench *b, struct error *e)
{
    const struct arguments *a = b->arguments;
    const char *const files[] = {argument(a, "csv", NULL), argument(a, "html", NULL)};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        TRY(files[i] != NULL ? file_probe(files[i], e) : ATOLL_OK);
    }
    TRY(job_open(&b->job, a->positional[0], a, b->context, e));
    TRY(split_open(&b->split, a, b->job.seed, e));
    TRY(split_check(&b->split, b->job.model, e));
    TRY(read_counts(b, e));
    TRY(open_validation(b, e));
    set_run(b, a->positional[0]);
    set_machine(b);
    TRY(run_rows(b, e));
    return report(b, e);
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL; hint: atoll bench MODEL --data FILE");
    }
    TRY(not_a_plan(a->positional[0], e));
    struct bench *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    const char *base = c->temporary != NULL && c->temporary[0] != '\0' ? c->temporary : "/tmp";
    b->arguments = a;
    b->context = c;
    snprintf(b->cache, sizeof b->cache, "%.900s/atoll-bench-XXXXXX", base);
    status code = mkdtemp(b->cache) != NULL
                      ? run_bench(b, e)
                      : fail(e, ATOLL_IO, "%s: no directory for kernels can be made", base);
    bench_clean(b);
    runner_free(&b->validation);
    split_close(&b->split);
    job_close(&b->job);
    free(b);
    return code;
}

const struct command command_bench = {
    "bench",
    "MODEL --data FILE [options]",
    "policies x {eager, fused} on one model and data set: speed, memory, compile cost, loss",
    "  atoll bench examples/digits.graph --data examples/data/digits.csv.gz --scale 1/16\n"
    "  atoll bench examples/digits.graph --data examples/data/digits.csv.gz --scale 1/16 "
    "--json --html bench.html\n",
    options,
    ARRAY_LEN(options),
    run,
};
