/* The public training calls over runners: a trace's graph, the options as texts, the environment's
 * settings, one runner. Invariant: a call whose error record holds a failure changes nothing. */
#include "atoll/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/capture.h"
#include "frontend/context.h"
#include "frontend/runner.h"
#include "runtime/kept.h"
#include "runtime/lend.h"

struct atoll_training {
    struct context context;
    struct train_options train;
    struct compile_options compile;
    struct runner runner;
    struct arena arena; /* of the options */
    bool *is_fed;       /* by node id */
    int64_t steps;
    bool has_stepped;
    char notice[1100]; /* "": none */
};

static bool has_failed(const atoll_error *error)
{
    return error != NULL && error->code != ATOLL_OK;
}

/* ---- options ---- */

static status scaler_mode(const struct atoll_training_options *o, const struct policy *policy,
                          bool *out, struct error *e)
{
    const char *mode = o->scaler != NULL ? o->scaler : "auto";
    bool is_auto = strcmp(mode, "auto") == 0, is_on = strcmp(mode, "on") == 0;
    if (!is_auto && !is_on && strcmp(mode, "off") != 0) {
        return fail(e, ATOLL_USAGE, "training options: scaler is '%s', expected auto, on or off",
                    mode);
    }
    *out = is_auto ? policy->low == F16 : is_on;
    return ATOLL_OK;
}

static status read_options(atoll_training *t, const struct atoll_training_options *o,
                           struct error *e)
{
    t->train = train_options_default();
    TRY(context_apply(&t->context, &t->compile, e));
    TRY(policy_named(o->policy != NULL ? o->policy : "fp32", &t->compile.policy, e));
    TRY(train_options_parse(&t->train, o->optimizer != NULL ? o->optimizer : "adamw,lr=1e-3",
                            o->schedule, e));
    TRY(train_params_parse(&t->train, o->params, &t->arena, e));
    t->train.rounding_seed = (int64_t)(o->seed & UINT64_C(0x7fffffff));
    t->train.max_norm = o->clip;
    t->train.accumulate = o->accumulate == 0 ? 1 : o->accumulate;
    TRY(scaler_mode(o, t->compile.policy, &t->train.scaler.is_enabled, e));
    TRY(train_options_check(&t->train, e));
    t->compile.train = o->is_forward ? NULL : &t->train;
    t->compile.is_eager = o->is_eager != 0;
    t->compile.is_relaxed = o->is_relaxed != 0;
    struct device_options where = context_devices(&t->context);
    where.allows_tf32 = o->allows_tf32 != 0;
    return device_open(o->device != NULL ? o->device : "cpu", &where, &t->compile.device, e);
}

/* ---- open and close ---- */

/* Without a compiler: eagerly, with the same bits, and saying so. */
static status open_runner(atoll_training *t, const struct graph *model, uint64_t seed,
                          struct error *e)
{
    struct error first = {0};
    status code = runner_open(&t->runner, model, &t->compile, seed, &first);
    if (code == ATOLL_COMPILER && !t->compile.is_eager) {
        snprintf(t->notice, sizeof t->notice, "running eagerly instead, with the same bits: %s",
                 first.text);
        runner_free(&t->runner);
        t->compile.is_eager = true;
        return runner_open(&t->runner, model, &t->compile, seed, e);
    }
    return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", first.text);
}

static status open_training(atoll_training *t, atoll_trace *trace,
                            const struct atoll_training_options *o, struct error *e)
{
    struct recovery r;
    atoll_error mistake = {0};
    if (atoll_trace_error(trace, &mistake) != ATOLL_OK) {
        return fail(e, mistake.code, "%s", mistake.text);
    }
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory while a training is opened");
    }
    context_read(&t->context);
    status code = read_options(t, o, e);
    if (code == ATOLL_OK) {
        code = open_runner(t, capture_graph(trace), o->seed, e);
    }
    arena_recover_end(&r);
    TRY(code);
    t->is_fed = calloc(runner_graph(&t->runner)->n_nodes, sizeof *t->is_fed);
    return t->is_fed != NULL
               ? ATOLL_OK
               : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory while a training is opened");
}

atoll_status atoll_training_open(atoll_trace *trace, const atoll_training_options *options,
                                 atoll_training **out, atoll_error *error)
{
    const struct atoll_training_options defaults = {0};
    struct error e = {0};
    *out = NULL;
    if (has_failed(error)) {
        return error->code;
    }
    atoll_training *t = calloc(1, sizeof *t);
    if (t == NULL) {
        fail(&e, ATOLL_OUT_OF_MEMORY, "out of memory while a training is opened");
        return lend_error(&e, error);
    }
    if (open_training(t, trace, options != NULL ? options : &defaults, &e) != ATOLL_OK) {
        atoll_training_close(t);
        return lend_error(&e, error);
    }
    *out = t;
    return ATOLL_OK;
}

void atoll_training_close(atoll_training *t)
{
    if (t != NULL) {
        runner_free(&t->runner);
        device_close(t->compile.device);
        arena_free(&t->arena);
        free(t->is_fed);
        free(t);
    }
}

const char *atoll_training_notice(const atoll_training *t)
{
    return t->notice[0] != '\0' ? t->notice : NULL;
}

/* ---- steps ---- */

/* Runs one call of the runner from a recovery point of its own. */
static status guarded(atoll_training *t,
                      status (*call)(atoll_training *t, const void *what, struct error *e),
                      const void *what, atoll_error *error)
{
    struct recovery r;
    struct error e = {0};
    if (t == NULL || has_failed(error)) {
        return t == NULL ? ATOLL_USAGE : error->code;
    }
    if (arena_recover(&r)) {
        struct error memory = {0};
        fail(&memory, ATOLL_OUT_OF_MEMORY, "out of memory in a training");
        return lend_error(&memory, error);
    }
    (void)call(t, what, &e);
    arena_recover_end(&r);
    return lend_error(&e, error);
}

typedef status give_input(struct runner *r, const char *name, const struct tensor *t,
                          struct error *e);

static status give(atoll_training *t, const atoll_view *v, give_input *to, struct error *e)
{
    const char *name = v->name != NULL ? v->name : "";
    const struct graph *g = runner_graph(&t->runner);
    value leaf = graph_find(g, name);
    if (leaf.id == 0 || graph_node(g, leaf)->op != OP_input) {
        return lend_missing("the model", g, LENT_INPUT, name, e);
    }
    struct tensor in = {
        .dtype = dtype_named(v->dtype, strlen(v->dtype)), .rank = v->rank, .data = v->data};
    if (v->rank > MAX_RANK || (v->data == NULL && v->bytes > 0)) {
        return fail(e, ATOLL_USAGE, "input %%%s: found %s, expected a view of rank 0 to %d", name,
                    v->rank > MAX_RANK ? "a rank out of range" : "no data", MAX_RANK);
    }
    memcpy(in.shape, v->shape, sizeof in.shape);
    TRY(to(&t->runner, name, &in, e));
    t->is_fed[leaf.id] = true;
    return ATOLL_OK;
}

static status feed(atoll_training *t, const void *what, struct error *e)
{
    return give(t, what, runner_input, e);
}

static status prefetch(atoll_training *t, const void *what, struct error *e)
{
    return give(t, what, runner_prefetch, e);
}

atoll_status atoll_training_prefetch(atoll_training *t, const atoll_view *input, atoll_error *error)
{
    return guarded(t, prefetch, input, error);
}

atoll_status atoll_training_feed(atoll_training *t, const atoll_view *input, atoll_error *error)
{
    return guarded(t, feed, input, error);
}

static status step(atoll_training *t, const void *what, struct error *e)
{
    const struct graph *g = runner_graph(&t->runner);
    (void)what;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op == OP_input && !t->is_fed[i]) {
            return fail(e, ATOLL_USAGE,
                        "input %%%s was never fed; hint: atoll_training_feed it before the step",
                        g->nodes[i].name);
        }
    }
    TRY(runner_step(&t->runner, e));
    t->steps++;
    t->has_stepped = true;
    return ATOLL_OK;
}

atoll_status atoll_training_step(atoll_training *t, atoll_error *error)
{
    return guarded(t, step, NULL, error);
}

struct setting {
    const char *name;
    double number;
};

static status set(atoll_training *t, const void *what, struct error *e)
{
    const struct setting *s = what;
    const struct graph *g = runner_graph(&t->runner);
    value leaf = graph_find(g, s->name);
    if (leaf.id == 0 || graph_node(g, leaf)->op != OP_scalar) {
        return lend_missing("the training step", g, LENT_SCALAR, s->name, e);
    }
    struct tensor *to = runner_leaf(&t->runner, s->name);
    dtype_store(to->dtype, to->data, s->number);
    return ATOLL_OK;
}

atoll_status atoll_training_set(atoll_training *t, const char *name, double number,
                                atoll_error *error)
{
    return guarded(t, set, &(struct setting){name, number}, error);
}

/* ---- what there is to see ---- */

atoll_status atoll_training_output(atoll_training *t, const char *name, atoll_view *out,
                                   atoll_error *error)
{
    struct error e = {0};
    const struct graph *g = runner_graph(&t->runner);
    struct tensor found = runner_output(&t->runner, name);
    for (uint32_t i = 0; t->has_stepped && i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            lend_view(g->outputs[i].name, &found, out);
            return ATOLL_OK;
        }
    }
    if (!t->has_stepped) {
        fail(&e, ATOLL_USAGE, "output '%s': no step ran yet", name);
    } else {
        lend_missing("the training step", g, LENT_OUTPUT, name, &e);
    }
    return lend_error(&e, error);
}

double atoll_training_number(atoll_training *t, const char *name)
{
    return t->has_stepped ? runner_number(&t->runner, name) : (double)__builtin_nan("");
}

uint32_t atoll_training_state_count(const atoll_training *t)
{
    const struct graph *g = runner_graph(&t->runner);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += leaf_is_kept(&g->nodes[i]);
    }
    return n;
}

atoll_status atoll_training_state_at(atoll_training *t, uint32_t index, atoll_view *out,
                                     atoll_error *error)
{
    struct error e = {0};
    const struct graph *g = runner_graph(&t->runner);
    uint32_t left = index;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (leaf_is_kept(&g->nodes[i]) && left-- == 0) {
            lend_view(g->nodes[i].name, runner_leaf(&t->runner, g->nodes[i].name), out);
            return ATOLL_OK;
        }
    }
    fail(&e, ATOLL_NOT_FOUND, "state %u of %u", index, atoll_training_state_count(t));
    return lend_error(&e, error);
}

atoll_status atoll_training_state(atoll_training *t, const char *name, atoll_view *out,
                                  atoll_error *error)
{
    struct error e = {0};
    const struct graph *g = runner_graph(&t->runner);
    value leaf = graph_find(g, name);
    if (leaf.id == 0 || !leaf_is_kept(graph_node(g, leaf))) {
        lend_missing("the training step", g, LENT_STATE, name, &e);
        return lend_error(&e, error);
    }
    lend_view(graph_node(g, leaf)->name, runner_leaf(&t->runner, name), out);
    return ATOLL_OK;
}

void atoll_training_copy(atoll_training *to, atoll_training *from)
{
    runner_copy_leaves(&to->runner, &from->runner);
}

int64_t atoll_training_steps(const atoll_training *t)
{
    return t->steps;
}

size_t atoll_training_peak_bytes(const atoll_training *t)
{
    return t->runner.peak_bytes;
}

/* ---- checkpoints ---- */

static status save(atoll_training *t, const void *path, struct error *e)
{
    return runner_save(&t->runner, path, t->steps, e);
}

static status load(atoll_training *t, const void *path, struct error *e)
{
    return runner_load(&t->runner, path, &t->steps, e);
}

atoll_status atoll_training_save(atoll_training *t, const char *path, atoll_error *error)
{
    return guarded(t, save, path, error);
}

atoll_status atoll_training_load(atoll_training *t, const char *path, atoll_error *error)
{
    return guarded(t, load, path, error);
}
