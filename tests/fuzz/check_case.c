/* Runs a case eagerly and fused from the same leaves and compares every output and every kept leaf
 * after every step, bit for bit, for each number of threads. On the way: each graph verifies, and
 * print, parse, print is the identity. */
#include "check_case.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fill.h"
#include "frontend/runner.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

enum { MAX_REFUSALS = 64 };

struct record {
    unsigned char *data;
    size_t n, capacity;
};

struct check {
    const struct fuzz_case *c;
    const struct check_options *o;
    struct verdict *v;
    struct runner eager, fused;
    struct arena keep;            /* what train options point to */
    struct record initial, steps; /* kept leaves before the first step; what eager gave, in order */
    struct record first;          /* steps of the first number of threads */
    bool has_contraction, has_f64; /* f64: functions whose last bits are the platform's */
    struct runner unfused;         /* on the device, one op at a time */
    uint64_t
        refusals[MAX_REFUSALS]; /* by step: the text with which eager refused an index, hashed */
};

static void __attribute__((format(printf, 3, 4)))
say(struct check *k, enum verdict_kind kind, const char *format, ...)
{
    va_list args;
    if (k->v->kind != VERDICT_SAME) {
        return;
    }
    k->v->kind = kind;
    va_start(args, format);
    vsnprintf(k->v->text, sizeof k->v->text, format, args);
    va_end(args);
}

static bool is_kept(const struct node *n)
{
    return n->op >= OP_param && n->op <= OP_scalar;
}

/* ---- graphs ---- */

static void check_text(struct check *k, const struct graph *g, const char *what)
{
    struct arena scratch = {0};
    struct text once = {.arena = &scratch}, twice = {.arena = &scratch};
    struct error e = {0};
    if (graph_verify(g, &e) != ATOLL_OK) {
        say(k, VERDICT_DIFFERENT, "%s graph does not verify: %.900s", what, e.text);
    }
    graph_print(g, &once, NULL);
    struct graph *back = graph_parse(once.data, once.length, what, &e);
    if (back == NULL) {
        say(k, VERDICT_DIFFERENT, "%s graph does not parse back: %.900s", what, e.text);
    } else {
        graph_print(back, &twice, NULL);
        if (strcmp(once.data, twice.data) != 0) {
            say(k, VERDICT_DIFFERENT, "%s graph prints differently when parsed", what);
        }
        graph_destroy(back);
    }
    arena_free(&scratch);
}

/* For a device f8 products may be written out, so there both sides are the device's. */
static void check_same_text(struct check *k)
{
    const struct runner *eager = k->o->device != NULL ? &k->unfused : &k->eager;
    struct arena scratch = {0};
    struct text a = {.arena = &scratch}, b = {.arena = &scratch};
    graph_print(runner_graph(eager), &a, NULL);
    graph_print(runner_graph(&k->fused), &b, NULL);
    if (strcmp(a.data, b.data) != 0) {
        say(k, VERDICT_DIFFERENT, "eager and fused have different primitive graphs");
    }
    arena_free(&scratch);
}

static void cover(struct check *k, const struct graph *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        k->v->is_covered[g->nodes[i].op] = 1;
        k->has_contraction = k->has_contraction || op_info[g->nodes[i].op].kind == CONTRACTION;
        k->has_f64 = k->has_f64 || g->nodes[i].dtype == F64;
    }
}

/* ---- compiling ---- */

static bool train_options_of(struct check *k, struct train_options *t)
{
    const struct fuzz_case *c = k->c;
    struct error e = {0};
    *t = train_options_default();
    if (train_options_parse(t, c->optimizer, c->schedule, &e) != ATOLL_OK) {
        say(k, VERDICT_REFUSED, "%s", e.text);
        return false;
    }
    if (train_params_parse(t, c->params, &k->keep, &e) != ATOLL_OK) {
        say(k, VERDICT_REFUSED, "%s", e.text);
        return false;
    }
    t->max_norm = c->clip;
    t->scaler.is_enabled = c->scaler > 0;
    if (c->scaler > 0) {
        t->scaler.init = c->scaler;
        t->scaler.interval = 2;
    }
    t->accumulate = c->accumulate;
    t->skips_nonfinite = c->skips;
    t->allows_low_params = c->low;
    return true;
}

static bool open_both(struct check *k)
{
    struct train_options train;
    struct error e = {0};
    char level[8];
    snprintf(level, sizeof level, "-O%d", k->o->optimise);
    struct compile_options o = {
        .is_eager = true, .is_unfused = k->o->is_unfused, .cache = k->o->cache};
    o.cc.optimise = level;
    if (strcmp(k->c->policy, "none") != 0 &&
        policy_named(k->c->policy, &o.policy, &e) != ATOLL_OK) {
        say(k, VERDICT_REFUSED, "%s", e.text);
        return false;
    }
    if (k->c->is_trained && !train_options_of(k, &train)) {
        return false;
    }
    o.train = k->c->is_trained ? &train : NULL;
    status code = runner_open(&k->eager, k->c->graph, &o, k->c->data, &e);
    if (code != ATOLL_OK) {
        say(k, code == ATOLL_INTERNAL ? VERDICT_DIFFERENT : VERDICT_REFUSED, "eager: %.900s",
            e.text);
        return false;
    }
    if (k->o->device != NULL) {
        o.device = k->o->device;
        o.libnvrtc = k->o->libnvrtc;
        if (runner_open(&k->unfused, k->c->graph, &o, k->c->data, &e) != ATOLL_OK) {
            say(k, VERDICT_DIFFERENT, "eager compiles, not so for the device: %.900s", e.text);
            return false;
        }
    }
    o.is_eager = false;
    if (runner_open(&k->fused, k->c->graph, &o, k->c->data, &e) != ATOLL_OK) {
        say(k, VERDICT_DIFFERENT, "eager compiles, fused does not: %.900s", e.text);
        return false;
    }
    return true;
}

/* ---- running ---- */

static void append(struct record *r, const void *data, size_t n)
{
    if (r->n + n > r->capacity) {
        r->capacity = 2 * r->capacity + n + 4096;
        r->data = realloc(r->data, r->capacity);
        if (r->data == NULL) {
            abort();
        }
    }
    if (n > 0) {
        memcpy(r->data + r->n, data, n);
    }
    r->n += n;
}

/* Fills the model's own leaves; those the training step added keep their first values. */
static void start_leaves(struct check *k)
{
    const struct graph *g = runner_graph(&k->eager);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (!is_kept(n)) {
            continue;
        }
        struct tensor *t = &k->eager.leaves[i];
        if (graph_find(k->c->graph, n->name).id != 0) {
            fill_tensor(k->c, n->name, 99, t);
        }
        append(&k->initial, t->data, tensor_bytes(t));
    }
}

static void reset_leaves(struct check *k, struct runner *r)
{
    const struct graph *g = runner_graph(r);
    size_t at = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (is_kept(&g->nodes[i])) {
            struct tensor *t = runner_leaf(r, g->nodes[i].name);
            size_t bytes = tensor_bytes(t);
            if (bytes > 0) {
                memcpy(t->data, k->initial.data + at, bytes);
            }
            at += bytes;
        }
    }
}

static status feed(struct check *k, struct runner *r, uint32_t step, struct error *e)
{
    const struct graph *g = runner_graph(r);
    int64_t symbols[MAX_SYMBOLS] = {0};
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        symbols[i] = k->c->sizes[(step + i - 1) % k->c->n_steps];
    }
    TRY(runner_bind(r, symbols, e));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->op != OP_input) {
            continue;
        }
        struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
        for (uint32_t a = 0; a < t.rank; a++) {
            t.shape[a] = dim_value(n->shape.dims[a], symbols);
        }
        t.data = calloc(1, tensor_bytes(&t) + 8);
        if (t.data == NULL) {
            abort();
        }
        fill_tensor(k->c, n->name, step, &t);
        status code = runner_input(r, n->name, &t, e);
        free(t.data);
        TRY(code);
    }
    return ATOLL_OK;
}

/* Visits what a step gave, outputs then kept leaves. */
typedef void visit_fn(struct check *k, const char *what, const char *name, const struct tensor *t,
                      uint32_t step);
static void visit(struct check *k, struct runner *r, uint32_t step, visit_fn *fn)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor t = runner_output(r, g->outputs[i].name);
        fn(k, "output", g->outputs[i].name, &t, step);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (is_kept(&g->nodes[i])) {
            fn(k, "leaf", g->nodes[i].name, runner_leaf(r, g->nodes[i].name), step);
        }
    }
}

static void remember(struct check *k, const char *what, const char *name, const struct tensor *t,
                     uint32_t step)
{
    (void)what;
    (void)name;
    (void)step;
    append(&k->steps, t->data, tensor_bytes(t));
}

static void compare_with(struct check *k, struct record *r, const char *what, const char *name,
                         const struct tensor *t, uint32_t step)
{
    struct tensor expected = *t;
    if (r->capacity < tensor_bytes(t) || r->n > r->capacity - tensor_bytes(t)) {
        say(k, VERDICT_DIFFERENT, "%s %s: more data than eager gave", what, name);
        return;
    }
    expected.data = r->data + r->n;
    r->n += tensor_bytes(t);
    k->v->n_values += (uint64_t)tensor_count(t);
    int64_t at = first_difference(&expected, t);
    if (at >= 0) {
        size_t bytes = dtype_info[t->dtype].bytes;
        const unsigned char *a = (unsigned char *)expected.data + (size_t)at * bytes,
                            *b = (unsigned char *)t->data + (size_t)at * bytes;
        uint64_t x = 0, y = 0;
        memcpy(&x, a, bytes);
        memcpy(&y, b, bytes);
        say(k, VERDICT_DIFFERENT,
            "step %u, %d threads, %s %s, %s element %lld of %lld: expected %.17g (0x%llx), found "
            "%.17g (0x%llx)",
            step, omp_get_max_threads(), what, name, dtype_info[t->dtype].name, (long long)at,
            (long long)tensor_count(t), dtype_load(t->dtype, a), (unsigned long long)x,
            dtype_load(t->dtype, b), (unsigned long long)y);
    }
}

static void against_eager(struct check *k, const char *what, const char *name,
                          const struct tensor *t, uint32_t step)
{
    compare_with(k, &k->steps, what, name, t, step);
}

/* Indices out of range are part of the data here: both ways must refuse them alike, and what they
 * read without the check must agree too. */
static status step_once(struct check *k, struct runner *r, uint32_t step, struct error *e)
{
    struct graph *g = r->compiled.primitive;
    uint32_t n_checks = g->n_checks;
    status code = runner_step(r, e);
    uint64_t refusal = code == ATOLL_DATA ? hash_text(e->text, 1) : 0;
    if (r->is_eager) {
        k->refusals[step % MAX_REFUSALS] = refusal;
    } else if (refusal != k->refusals[step % MAX_REFUSALS]) {
        say(k, VERDICT_DIFFERENT, "step %u: eager and fused refuse an index differently: %.800s",
            step, e->text);
    }
    if (refusal != 0) {
        *e = (struct error){0};
        g->n_checks = 0;
        code = runner_step(r, e);
        g->n_checks = n_checks;
    }
    return code;
}

static bool run(struct check *k, struct runner *r, visit_fn *fn, const char *what)
{
    struct error e = {0};
    reset_leaves(k, r);
    for (uint32_t step = 0; step < k->c->n_steps; step++) {
        status code = feed(k, r, step, &e);
        code = code == ATOLL_OK ? step_once(k, r, step, &e) : code;
        if (code != ATOLL_OK) {
            bool is_eager = r->is_eager && code != ATOLL_INTERNAL;
            say(k, is_eager ? VERDICT_REFUSED : VERDICT_DIFFERENT, "%s, step %u: %.900s", what,
                step, e.text);
            return false;
        }
        visit(k, r, step, fn);
    }
    return true;
}

/* Without contractions eager gives the same bits whatever the number of threads. */
static void check_threads(struct check *k)
{
    if (k->first.data == NULL) {
        append(&k->first, k->steps.data, k->steps.n);
    } else if (!k->has_contraction && (k->first.n != k->steps.n ||
                                       memcmp(k->first.data, k->steps.data, k->steps.n) != 0)) {
        say(k, VERDICT_DIFFERENT, "eager depends on the number of threads (%d)",
            omp_get_max_threads());
    }
}

static void run_all(struct check *k)
{
    start_leaves(k);
    for (uint32_t i = 0; i < k->o->n_threads && k->v->kind == VERDICT_SAME; i++) {
        omp_set_num_threads(k->o->threads[i]);
        k->steps.n = 0;
        if (!run(k, &k->eager, remember, "eager")) {
            return;
        }
        check_threads(k);
        if (k->o->device != NULL && (k->has_contraction || k->has_f64)) {
            k->steps.n = 0;
            (void)run(k, &k->unfused, remember, "one op at a time on the device");
        }
        k->steps.capacity = k->steps.n;
        k->steps.n = 0;
        (void)run(k, &k->fused, against_eager, "fused");
    }
}

void check_case(const struct fuzz_case *c, const struct check_options *o, struct verdict *v)
{
    struct check k = {.c = c, .o = o, .v = v};
    *v = (struct verdict){0};
    cover(&k, c->graph);
    check_text(&k, c->graph, "model");
    if (v->kind == VERDICT_SAME && open_both(&k)) {
        cover(&k, runner_graph(&k.eager));
        check_text(&k, k.fused.compiled.step, "step");
        check_text(&k, runner_graph(&k.fused), "primitive");
        check_same_text(&k);
        v->n_kernels = k.fused.compiled.n_kernels;
        v->seconds_compiler = k.fused.compiled.seconds_compiler;
        run_all(&k);
    }
    runner_free(&k.eager);
    runner_free(&k.fused);
    runner_free(&k.unfused);
    arena_free(&k.keep);
    free(k.initial.data);
    free(k.steps.data);
    free(k.first.data);
}
