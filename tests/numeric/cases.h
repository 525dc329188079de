/* Cases from the field, each a published fault of a system of this kind with its right value, as
 * rows of a table: a graph in text form, its inputs, what must come out. Every row runs in the
 * oracle (each value rounded to its dtype), eager and fused; a row with a `policy` goes through
 * autocast, one with `wants_gradients` gives grad:NAME for every param. A failure names the case,
 * the executor, the output and the element. */
#ifndef ATOLL_TESTS_CASES_H
#define ATOLL_TESTS_CASES_H

#include "frontend/runner.h"
#include "ir/eval.h"
#include "ir/parse.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    int64_t size;              /* of an input with the symbol n: its value */
};

struct field_case {
    const char *id, *graph, *policy;
    bool wants_gradients, skips_oracle;
    struct case_data inputs[CASE_DATA], outputs[CASE_DATA];
};

static double case_value(const struct case_data *d, int64_t k)
{
    return d->values[d->count != 0 ? k % d->count : k];
}

static bool is_right(const struct case_data *d, double found, double expected)
{
    if (expected == ANY) {
        return true;
    }
    if (found != found || expected != expected) {
        return found != found && expected != expected;
    }
    return found == expected ||
           fabs(found - expected) <= d->relative * fabs(expected) + d->absolute;
}

/* found(context, k) gives element k of the output. */
static void check_output(const struct field_case *c, const char *how, const struct case_data *d,
                         const struct tensor *t)
{
    ck_assert_msg(t->dtype != DTYPE_NONE, "%s, %s: no output %s", c->id, how, d->name);
    ck_assert_msg(d->dtype == DTYPE_NONE || d->dtype == t->dtype, "%s, %s: %s is %s, right is %s",
                  c->id, how, d->name, dtype_info[t->dtype].name, dtype_info[d->dtype].name);
    for (int64_t k = 0; k < tensor_count(t); k++) {
        const char *at = (const char *)t->data + (size_t)k * dtype_info[t->dtype].bytes;
        double found = dtype_load(t->dtype, at), expected = case_value(d, k);
        ck_assert_msg(is_right(d, found, expected), "%s, %s: %s[%d]: found %.17g, right is %.17g",
                      c->id, how, d->name, (int)k, found, expected);
    }
}

/* ---- the three ways to run ---- */

static void set_leaf(struct runner *r, const struct field_case *c, const struct case_data *d)
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
                    case_value(d, k));
    }
    ck_assert_msg(runner_input(r, d->name, &t, &e) == ATOLL_OK, "%s: %s", c->id, e.text);
    free(t.data);
}

/* The oracle over the runner's graph and leaves. */
static void check_oracle(const struct field_case *c, struct runner *r)
{
    const struct graph *g = runner_graph(r);
    struct eval e;
    struct error error = {0};
    eval_begin(&e, g, r->symbols);
    e.rounds = true;
    for (uint32_t i = 0; i < CASE_DATA && c->inputs[i].name != NULL; i++) {
        value leaf = graph_find(g, c->inputs[i].name);
        const struct tensor *t = runner_leaf(r, c->inputs[i].name);
        e.values[leaf.id] = ARENA_ARRAY(&e.arena, double, tensor_count(t) + 1);
        for (int64_t k = 0; k < tensor_count(t); k++) {
            const char *at = (const char *)t->data + (size_t)k * dtype_info[t->dtype].bytes;
            e.values[leaf.id][k] = dtype_load(t->dtype, at);
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
        struct case_data values = *d;
        values.dtype = DTYPE_NONE;
        check_output(c, "oracle", &values, &t);
    }
    eval_end(&e);
}

static void check_run(const struct field_case *c, const struct graph *g, bool is_eager)
{
    struct error e = {0};
    struct runner r;
    struct compile_options o = {.is_eager = is_eager, .wants_gradients = c->wants_gradients};
    const char *how = is_eager ? "eager" : "fused";
    if (c->policy != NULL) {
        ck_assert_msg(policy_named(c->policy, &o.policy, &e) == ATOLL_OK, "%s", e.text);
    }
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s, %s: %s", c->id, how, e.text);
    for (uint32_t i = 0; i < CASE_DATA && c->inputs[i].name != NULL; i++) {
        set_leaf(&r, c, &c->inputs[i]);
    }
    if (is_eager && !c->skips_oracle) {
        check_oracle(c, &r);
    }
    ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s, %s: %s", c->id, how, e.text);
    for (uint32_t i = 0; i < CASE_DATA && c->outputs[i].name != NULL; i++) {
        struct tensor t = runner_output(&r, c->outputs[i].name);
        check_output(c, how, &c->outputs[i], &t);
    }
    runner_free(&r);
}

static void check_case(const struct field_case *c)
{
    struct error e = {0};
    struct graph *g = graph_parse(c->graph, strlen(c->graph), c->id, &e);
    ck_assert_msg(g != NULL, "%s: %s", c->id, e.text);
    check_run(c, g, true);
    check_run(c, g, false);
    graph_destroy(g);
}

#endif
