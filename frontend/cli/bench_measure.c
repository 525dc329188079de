/* One row of atoll bench. The order is what makes rows comparable: compile cold, then warm; keep
 * the first state; warm up; put the state back (parameters, optimizer, scaler, seeds); time whole
 * steps, several times over, each from that state; and once more, untimed, to record losses and
 * what the end is. Invariant: every repetition computes the same bits. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

/* ---- state ---- */

/* What is kept from step to step, one block a leaf. */
struct snapshot {
    struct arena arena;
    void **data; /* by node id */
};

static void take_snapshot(struct snapshot *s, struct runner *r)
{
    const struct graph *g = runner_graph(r);
    s->data = ARENA_ARRAY(&s->arena, void *, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (plan_keeps(&g->nodes[i])) {
            const struct tensor *t = runner_leaf(r, g->nodes[i].name);
            s->data[i] = arena_copy(&s->arena, t->data, tensor_bytes(t));
        }
    }
}

static void put_back(const struct snapshot *s, struct runner *r)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (s->data[i] != NULL) {
            struct tensor *t = runner_leaf(r, g->nodes[i].name);
            memcpy(t->data, s->data[i], tensor_bytes(t));
        }
    }
}

/* Of names and values, one NaN as good as another. */
static const char *hash_leaves(struct runner *r, bool is_params_only, struct arena *a)
{
    const struct graph *g = runner_graph(r);
    uint64_t h = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (!plan_keeps(n) || (is_params_only && n->op != OP_param)) {
            continue;
        }
        const struct tensor *t = runner_leaf(r, n->name);
        h = hash_text(n->name, h);
        for (int64_t k = 0; k < tensor_count(t); k++) {
            size_t bytes = dtype_info[t->dtype].bytes;
            double v = dtype_load(t->dtype, (const char *)t->data + (size_t)k * bytes);
            v = isnan(v) ? (double)NAN : v;
            h = hash_bytes(&v, sizeof v, h);
        }
    }
    return arena_text(a, "%016" PRIx64, h);
}

static size_t leaf_bytes(struct runner *r)
{
    size_t bytes = 0;
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op <= OP_scalar) {
            struct tensor *t = g->nodes[i].name != NULL ? runner_leaf(r, g->nodes[i].name) : NULL;
            bytes += t != NULL && t->data != NULL ? tensor_bytes(t) : 0;
        }
    }
    return bytes;
}

/* ---- steps ---- */

/* Batch `step` of the run: full ones only, so that every step has one shape. */
static void take_batch(struct bench *b, int64_t step, struct tensor *x, struct tensor *y)
{
    int64_t an_epoch = b->split.n_train / b->batch;
    if (step % an_epoch == 0) {
        split_epoch(&b->split, step / an_epoch);
    }
    split_batch(&b->split, step % an_epoch * b->batch, b->batch, x, y);
}

/* From the host's batch to the end of the work on it. */
static status whole_step(struct runner *r, const struct tensor *x, const struct tensor *y,
                         struct error *e)
{
    TRY(runner_input(r, "x", x, e));
    if (y->data != NULL && graph_find(runner_graph(r), "y").id != 0) {
        TRY(runner_input(r, "y", y, e));
    }
    TRY(runner_step(r, e));
    return r->device != NULL ? r->device->backend->wait(r->device, e) : ATOLL_OK;
}

static const char *loss_name(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, "loss") == 0) {
            return "loss";
        }
    }
    return g->outputs[0].name;
}

/* Steps 0..n of the run; seconds of them, or their losses, when wanted. */
static status take_steps(struct bench *b, struct runner *r, int64_t n, double *seconds,
                         double *losses, struct error *e)
{
    struct tensor x, y;
    const char *loss = loss_name(runner_graph(r));
    for (int64_t i = 0; i < n; i++) {
        take_batch(b, i, &x, &y);
        double start = seconds_now();
        TRY(whole_step(r, &x, &y, e));
        if (seconds != NULL) {
            *seconds += seconds_now() - start;
        }
        if (losses != NULL) {
            losses[i] = runner_number(r, loss);
        }
    }
    return ATOLL_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static status time_steps(struct bench *b, struct runner *r, const struct snapshot *s,
                         struct bench_row *out, struct error *e)
{
    double *us = ARENA_ARRAY(&b->job.arena, double, b->repeats);
    TRY(take_steps(b, r, b->warmup, NULL, NULL, e));
    for (int64_t i = 0; i < b->repeats; i++) {
        double seconds = 0.0;
        put_back(s, r);
        TRY(take_steps(b, r, b->steps, &seconds, NULL, e));
        us[i] = seconds / (double)b->steps * 1e6;
    }
    qsort(us, (size_t)b->repeats, sizeof *us, by_size);
    int64_t half = b->repeats / 2;
    out->step_us = b->repeats % 2 != 0 ? us[half] : (us[half - 1] + us[half]) / 2.0;
    out->step_us_low = us[0];
    out->step_us_high = us[b->repeats - 1];
    out->spread_percent = (out->step_us_high - out->step_us_low) / out->step_us * 100.0;
    out->samples_per_second = (double)b->batch / out->step_us * 1e6;
    return ATOLL_OK;
}

/* The loss and accuracy of the parameters as they are, in f32, on the rows held out. */
static status validate(struct bench *b, struct runner *r, struct bench_row *out, struct error *e)
{
    struct tensor x, y;
    if (b->split.n_test == 0) {
        return ATOLL_OK;
    }
    split_test(&b->split, &x, &y);
    runner_copy_leaves(&b->validation, r);
    TRY(whole_step(&b->validation, &x, &y, e));
    out->validation_loss = runner_number(&b->validation, loss_name(runner_graph(&b->validation)));
    struct tensor logits = runner_output(&b->validation, "logits");
    if (logits.data != NULL && y.data != NULL && y.dtype == I64) {
        out->validation_accuracy = accuracy_of(&logits, &y);
    }
    return ATOLL_OK;
}

static void count_memory(struct runner *r, struct bench_row *out)
{
    out->state_bytes = (double)leaf_bytes(r);
    if (r->device != NULL) {
        out->allocated_bytes = (double)r->device->memory.peak_allocated;
        out->reserved_bytes = (double)r->device->memory.peak_reserved;
    } else { /* malloc keeps no account of what it reserves */
        out->allocated_bytes = (double)r->peak_bytes + out->state_bytes;
    }
}

static status record(struct bench *b, struct runner *r, const struct snapshot *s,
                     struct bench_row *out, struct error *e)
{
    put_back(s, r);
    out->losses = ARENA_ARRAY(&b->job.arena, double, b->steps);
    out->n_losses = b->steps;
    TRY(take_steps(b, r, b->steps, NULL, out->losses, e));
    out->train_loss = out->losses[b->steps - 1];
    out->accepted = runner_number(r, "accepted");
    out->skipped = runner_number(r, "skipped");
    out->state_hash = hash_leaves(r, false, &b->job.arena);
    count_memory(r, out);
    return validate(b, r, out, e);
}

/* ---- compiling ---- */

static void empty_cache(const char *directory)
{
    DIR *d = opendir(directory);
    char path[2048];
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        (void)unlink(path);
    }
    if (d != NULL) {
        closedir(d);
    }
}

static status open_timed(struct bench *b, struct runner *r, double *ms, struct error *e)
{
    double start = seconds_now();
    TRY(of_model(runner_open(r, b->job.model, &b->job.compile, b->job.seed, e), e));
    *ms = (seconds_now() - start) * 1e3;
    return ATOLL_OK;
}

/* Compiles with an empty cache, and makes the first step. */
static status compile_cold(struct bench *b, struct bench_row *out, struct error *e)
{
    struct runner r = {0};
    double seconds = 0.0;
    empty_cache(b->cache);
    status code = open_timed(b, &r, &out->compile_cold_ms, e);
    if (code == ATOLL_OK) {
        out->initial_hash = hash_leaves(&r, true, &b->job.arena);
        code = take_steps(b, &r, 1, &seconds, NULL, e);
        out->first_step_ms = seconds * 1e3;
    }
    runner_free(&r);
    return code;
}

static status measure_warm(struct bench *b, bool is_eager, struct bench_row *out, struct error *e)
{
    struct runner r = {0};
    struct snapshot s = {0};
    status code = open_timed(b, &r, &out->compile_warm_ms, e);
    if (code == ATOLL_OK) {
        take_snapshot(&s, &r);
        code = time_steps(b, &r, &s, out, e);
    }
    code = code == ATOLL_OK ? record(b, &r, &s, out, e) : code;
    bool has_kernels = r.session != NULL && code == ATOLL_OK;
    out->kernels = has_kernels ? (double)r.compiled.n_kernels : is_eager ? 0.0 : (double)NAN;
    out->calls = has_kernels ? (double)program_calls(&r.compiled.program) : (double)NAN;
    runner_free(&r);
    arena_free(&s.arena);
    return code;
}

/* A device of its own for each row: peaks of memory begin at nothing. */
static status open_device(struct bench *b, struct error *e)
{
    struct device_options where = context_devices(b->context);
    where.allows_tf32 = argument_flag(b->arguments, "tf32");
    device_close(b->job.compile.device);
    b->job.compile.device = NULL;
    return device_open(argument(b->arguments, "device", "cpu"), &where, &b->job.compile.device, e);
}

static void start_row(struct bench *b, const char *policy, bool is_eager, struct bench_row *out)
{
    *out = (struct bench_row){.status = "measured"};
    for (uint32_t i = 0; i < n_bench_columns; i++) {
        const struct bench_column *c = &bench_columns[i];
        if (c->kind == BENCH_NUMBER) {
            double none = (double)NAN;
            memcpy((char *)out + c->offset, &none, sizeof none);
        }
    }
    out->policy = arena_copy_text(&b->job.arena, policy);
    out->mode = is_eager ? "eager" : "fused";
    out->initial_hash = out->state_hash = out->same_as_eager = "-";
}

void bench_not_run(struct bench *b, const char *policy, bool is_eager, const char *why,
                   struct bench_row *out)
{
    start_row(b, policy, is_eager, out);
    out->status = arena_text(&b->job.arena, "not run: %s", why);
}

void bench_clean(struct bench *b)
{
    empty_cache(b->cache);
    (void)rmdir(b->cache);
}

status bench_measure(struct bench *b, bool is_eager, struct bench_row *out, struct error *e)
{
    const char *policy = b->job.compile.policy->name;
    start_row(b, policy, is_eager, out);
    b->job.compile.is_eager = is_eager;
    b->job.compile.cache = b->cache;
    status code = open_device(b, e);
    code = code == ATOLL_OK ? compile_cold(b, out, e) : code;
    code = code == ATOLL_OK ? measure_warm(b, is_eager, out, e) : code;
    out->is_measured = code == ATOLL_OK;
    if (code == ATOLL_UNSUPPORTED || code == ATOLL_COMPILER || code == ATOLL_DEVICE ||
        code == ATOLL_OUT_OF_MEMORY) { /* half a row is no row */
        bench_not_run(b, policy, is_eager, e->text, out);
        *e = (struct error){0};
        return ATOLL_OK;
    }
    return code;
}
