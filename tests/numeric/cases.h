/* Cases from the field, each a published fault of a system of this kind with its right value, as
 * rows of a table: a graph in text form, its inputs, what must come out. Every row runs in the
 * oracle (each value rounded to its dtype), eager and fused; a row with a `policy` goes through
 * autocast, one with `wants_gradients` gives grad:NAME for every param, one with an `optimizer` is
 * a training step, of which `outputs` may name leaves, as the last step leaves them. `refused`:
 * compiling must fail and say so. `error`: the step must fail, say so, and have changed no leaf. A
 * failure names the case, the executor, the output and the element. */
#ifndef ATOLL_TESTS_CASES_H
#define ATOLL_TESTS_CASES_H

#include "frontend/runner.h"
#include "ir/eval.h"
#include "ir/parse.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wmissing-field-initializers" /* a row names what it needs */
#endif

enum { CASE_VALUES = 34, CASE_DATA = 9 };
#define NOT ((double)NAN)
#define INF ((double)INFINITY)
#define ANY 1.5e300 /* not asserted */

/* Element k is values[k], or with a count values[k % count]. */
struct case_data {
    const char *name;
    double values[CASE_VALUES];
    uint32_t count;
    double relative, absolute; /* of an output; both 0: exact */
    enum dtype dtype;          /* of an output; DTYPE_NONE: not asserted */
    double ulps;               /* of an output: as many of `dtype` */
    bool has_signed_zeros;     /* of an output: -0 is not 0 */
    int64_t size;              /* of an input with the symbol n: its value */
    bool is_series;            /* of an input: values[k] throughout in step k */
};

struct field_case {
    const char *id, *graph, *policy;
    bool wants_gradients, skips_oracle, allows_low;
    const char *optimizer, *schedule; /* a training step */
    double max_norm, scale;           /* of a training step: clip, first loss scale; 0: none */
    uint32_t steps, accumulate;       /* 0: one */
    const char *refused, *error, *note;
    struct case_data inputs[CASE_DATA], outputs[CASE_DATA];
};

static double case_value(const struct case_data *d, int64_t k)
{
    return d->values[d->count != 0 ? k % d->count : k];
}

/* Distance from |x| to the next number of t. */
static double ulp_of(enum dtype t, double x)
{
    int exponent;
    double size = fmax(fabs(x), dtype_info[t].smallest_normal);
    (void)frexp(size, &exponent);
    return ldexp(dtype_info[t].epsilon, exponent - 1);
}

static bool is_right(const struct case_data *d, double found, double expected)
{
    if (expected == ANY) {
        return true;
    }
    if (found != found || expected != expected) {
        return found != found && expected != expected;
    }
    if (d->has_signed_zeros && expected == 0.0 && signbit(found) != signbit(expected)) {
        return false;
    }
    double room = d->relative * fabs(expected) + d->absolute;
    room += d->ulps > 0.0 && !isinf(expected) ? d->ulps * ulp_of(d->dtype, expected) : 0.0;
    return found == expected || fabs(found - expected) <= room;
}

/* checks_dtype: not where t only holds the numbers. */
static void check_output(const struct field_case *c, const char *how, const struct case_data *d,
                         const struct tensor *t, bool checks_dtype)
{
    ck_assert_msg(t->dtype != DTYPE_NONE, "%s, %s: no output %s", c->id, how, d->name);
    ck_assert_msg(!checks_dtype || d->dtype == DTYPE_NONE || d->dtype == t->dtype,
                  "%s, %s: %s is %s, right is %s", c->id, how, d->name, dtype_info[t->dtype].name,
                  dtype_info[d->dtype].name);
    for (int64_t k = 0; k < tensor_count(t); k++) {
        const char *at = (const char *)t->data + (size_t)k * dtype_info[t->dtype].bytes;
        double found = dtype_load(t->dtype, at), expected = case_value(d, k);
        ck_assert_msg(is_right(d, found, expected), "%s, %s: %s[%d]: found %.17g, right is %.17g",
                      c->id, how, d->name, (int)k, found, expected);
    }
}

/* ---- the three ways to run ---- */

static void set_leaf(struct runner *r, const struct field_case *c, const struct case_data *d,
                     uint32_t step)
{
    struct error e = {0};
    value v = graph_find(runner_graph(r), d->name);
    ck_assert_msg(v.id != 0, "%s: no leaf %s", c->id, d->name);
    const struct node *n = graph_node(runner_graph(r), v);
    struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
    int64_t symbols[MAX_SYMBOLS] = {0};
    for (uint32_t i = 1; i < MAX_SYMBOLS; i++) {
        symbols[i] = d->size;
    }
    for (uint32_t i = 0; i < t.rank; i++) {
        t.shape[i] = dim_value(n->shape.dims[i], symbols);
    }
    t.data = calloc(1, tensor_bytes(&t) + 64);
    for (int64_t k = 0; k < tensor_count(&t); k++) {
        dtype_store(t.dtype, (char *)t.data + (size_t)k * dtype_info[t.dtype].bytes,
                    d->is_series ? d->values[step] : case_value(d, k));
    }
    ck_assert_msg(runner_input(r, d->name, &t, &e) == ATOLL_OK, "%s: %s", c->id, e.text);
    free(t.data);
}

/* The oracle over the runner's graph and leaves as they are. */
static void check_oracle(const struct field_case *c, struct runner *r)
{
    const struct graph *g = runner_graph(r);
    struct eval e;
    struct error error = {0};
    eval_begin(&e, g, r->symbols);
    e.rounds = true;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op < OP_input || g->nodes[i].op > OP_scalar) {
            continue;
        }
        const struct tensor *t = &r->leaves[i];
        int64_t count = eval_count(&e, (value){i});
        e.values[i] = ARENA_ARRAY(&e.arena, double, count + 1); /* an input not given is 0 */
        for (int64_t k = 0; t->data != NULL && k < count; k++) {
            const char *at = (const char *)t->data + (size_t)k * dtype_info[t->dtype].bytes;
            e.values[i][k] = dtype_load(t->dtype, at);
        }
    }
    ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "%s, oracle: %s", c->id, error.text);
    for (uint32_t i = 0; i < CASE_DATA && c->outputs[i].name != NULL; i++) {
        const struct case_data *d = &c->outputs[i];
        struct tensor t = {.rank = 1};
        for (uint32_t k = 0; k < g->n_outputs; k++) {
            if (strcmp(g->outputs[k].name, d->name) == 0) {
                value v = g->outputs[k].value;
                t.dtype = F64; /* values are rounded to their dtype, but held in double */
                t.shape[0] = eval_count(&e, v);
                t.data = e.values[v.id];
                ck_assert(d->dtype == DTYPE_NONE || graph_node(g, v)->dtype == d->dtype);
            }
        }
        for (uint32_t k = 0; k < g->n_updates; k++) {
            value v = g->updates[k].next;
            if (strcmp(graph_node(g, g->updates[k].leaf)->name, d->name) == 0) {
                t = (struct tensor){.dtype = F64, .rank = 1, .shape = {eval_count(&e, v)}};
                t.data = e.values[v.id];
            }
        }
        check_output(c, "oracle", d, &t, false);
    }
    eval_end(&e);
}

/* Every kept leaf, one after another. */
static uint64_t hash_leaves(struct runner *r)
{
    const struct graph *g = runner_graph(r);
    uint64_t hash = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op >= OP_param && g->nodes[i].op <= OP_scalar) {
            const struct tensor *t = runner_leaf(r, g->nodes[i].name);
            hash = hash_bytes(t->data, tensor_bytes(t), hash);
        }
    }
    return hash;
}

static void check_note(const struct field_case *c, const struct notes *notes)
{
    bool is_there = c->note == NULL;
    for (uint32_t i = 0; i < notes->n && !is_there; i++) {
        is_there = strstr(notes->items[i].text, c->note) != NULL;
    }
    ck_assert_msg(is_there, "%s: no note says \"%s\"", c->id, c->note);
}

static void case_options(const struct field_case *c, struct compile_options *o,
                         struct train_options *train)
{
    struct error e = {0};
    o->wants_gradients = c->wants_gradients;
    if (c->policy != NULL) {
        ck_assert_msg(policy_named(c->policy, &o->policy, &e) == ATOLL_OK, "%s", e.text);
    }
    if (c->optimizer == NULL) {
        return;
    }
    *train = train_options_default();
    ck_assert_msg(train_options_parse(train, c->optimizer, c->schedule, &e) == ATOLL_OK, "%s: %s",
                  c->id, e.text);
    train->max_norm = c->max_norm;
    train->accumulate = c->accumulate == 0 ? 1 : c->accumulate;
    train->allows_low_params = c->allows_low;
    train->scaler.is_enabled = c->scale > 0.0;
    train->scaler.init = c->scale > 0.0 ? c->scale : train->scaler.init;
    o->train = train;
}

static void check_step(const struct field_case *c, struct runner *r, const char *how, bool is_last)
{
    struct error e = {0};
    uint64_t before = hash_leaves(r);
    status code = runner_step(r, &e);
    if (c->error != NULL) {
        ck_assert_msg(code == ATOLL_DATA && strstr(e.text, c->error) != NULL, "%s, %s: found %s",
                      c->id, how, code == ATOLL_OK ? "no error" : e.text);
        ck_assert_msg(hash_leaves(r) == before, "%s, %s: a refused step changed a leaf", c->id,
                      how);
        return;
    }
    ck_assert_msg(code == ATOLL_OK, "%s, %s: %s", c->id, how, e.text);
    for (uint32_t i = 0; is_last && i < CASE_DATA && c->outputs[i].name != NULL; i++) {
        struct tensor t = runner_output(r, c->outputs[i].name);
        struct tensor *leaf = runner_leaf(r, c->outputs[i].name);
        check_output(c, how, &c->outputs[i], t.data == NULL && leaf != NULL ? leaf : &t, true);
    }
}

static void check_run(const struct field_case *c, const struct graph *g, bool is_eager)
{
    struct error e = {0};
    struct runner r;
    struct train_options train;
    struct compile_options o = {.is_eager = is_eager, .cache = shared_kernels()};
    const char *how = is_eager ? "eager" : "fused";
    case_options(c, &o, &train);
    status code = runner_open(&r, g, &o, 1, &e);
    if (c->refused != NULL) {
        ck_assert_msg(code != ATOLL_OK && strstr(e.text, c->refused) != NULL, "%s, %s: found %s",
                      c->id, how, code == ATOLL_OK ? "no error" : e.text);
        runner_free(&r);
        return;
    }
    ck_assert_msg(code == ATOLL_OK, "%s, %s: %s", c->id, how, e.text);
    check_note(c, &r.compiled.notes);
    uint32_t steps = c->steps == 0 ? 1 : c->steps;
    for (uint32_t k = 0; k < steps; k++) {
        for (uint32_t i = 0; i < CASE_DATA && c->inputs[i].name != NULL; i++) {
            if (k == 0 || c->inputs[i].is_series) {
                set_leaf(&r, c, &c->inputs[i], k);
            }
        }
        if (is_eager && !c->skips_oracle && c->error == NULL && k + 1 == steps) {
            check_oracle(c, &r);
        }
        check_step(c, &r, how, k + 1 == steps);
    }
    runner_free(&r);
}

static void check_case(const struct field_case *c)
{
    struct error e = {0};
    struct graph *g = graph_parse(c->graph, strlen(c->graph), c->id, &e);
    if (g == NULL && c->refused != NULL) {
        ck_assert_msg(strstr(e.text, c->refused) != NULL, "%s: found %s", c->id, e.text);
        return;
    }
    ck_assert_msg(g != NULL, "%s: %s", c->id, e.text);
    check_run(c, g, true);
    check_run(c, g, false);
    graph_destroy(g);
}

#endif
