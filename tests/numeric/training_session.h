/* A training step that keeps its state, run by the oracle with every value rounded to its dtype:
 * leaves are set from their init, each step applies the updates. */
#ifndef ATOLL_TESTS_TRAINING_SESSION_H
#define ATOLL_TESTS_TRAINING_SESSION_H

#include "ir/eval.h"
#include "ir/verify.h"
#include "passes/decompose.h"
#include "passes/train_step.h"

#include "tests/suite.h"

#include <string.h>

enum { MAX_LEAVES = 64 };

struct session {
    struct graph *g; /* primitives */
    double *leaves[MAX_LEAVES];
    value ids[MAX_LEAVES];
    uint32_t n;
    struct arena arena;
    double outputs[16][8]; /* by output, its first 8 elements */
};

static double *leaf_data(struct session *s, const char *name)
{
    value v = graph_find(s->g, name);
    ck_assert_msg(v.id != 0, "no leaf %s", name);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ids[i].id == v.id) {
            return s->leaves[i];
        }
    }
    return NULL;
}

static void start(struct session *s, const struct graph *model, const struct train_options *o)
{
    struct pass_options p = {.train = o};
    struct graph *whole = graph_like(model);
    status code = train_step_pass(model, whole, &p, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", whole->error.text);
    s->g = graph_like(model);
    code = decompose_pass(whole, s->g, &p, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", s->g->error.text);
    struct error e = {0};
    ck_assert_msg(graph_verify(whole, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(graph_verify(s->g, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(primitive_verify(s->g, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(whole);
    for (uint32_t i = 1; i < s->g->n_nodes; i++) {
        const struct node *n = &s->g->nodes[i];
        if (n->op < OP_input || n->op > OP_scalar) {
            continue;
        }
        int64_t count = shape_count_value(&n->shape, NULL);
        double *data = ARENA_ARRAY(&s->arena, double, count);
        const char *init = n->op == OP_input ? "" : node_text(n, "init");
        for (int64_t k = 0; k < count && strcmp(init, "zeros") != 0; k++) {
            data[k] = strtod(init, NULL);
        }
        ck_assert_uint_lt(s->n, MAX_LEAVES);
        s->ids[s->n] = (value){i};
        s->leaves[s->n++] = data;
    }
}

static void finish(struct session *s)
{
    graph_destroy(s->g);
    arena_free(&s->arena);
}

static void take_step(struct session *s)
{
    struct eval e = {0};
    struct error error = {0};
    struct arena fresh = {0};
    int64_t symbols[MAX_SYMBOLS] = {0};
    eval_begin(&e, s->g, symbols);
    e.rounds = true;
    for (uint32_t i = 0; i < s->n; i++) {
        e.values[s->ids[i].id] = s->leaves[i];
    }
    status code = eval_run(&e, &error);
    ck_assert_msg(code == ATOLL_OK, "%s", error.text);
    for (uint32_t i = 0; i < s->g->n_outputs && i < 16; i++) {
        value v = s->g->outputs[i].value;
        int64_t count = eval_count(&e, v) < 8 ? eval_count(&e, v) : 8;
        memcpy(s->outputs[i], e.values[v.id], (size_t)count * sizeof(double));
    }
    /* all updates read the old state: copy first, then write */
    double **next = ARENA_ARRAY(&fresh, double *, s->g->n_updates + 1);
    for (uint32_t i = 0; i < s->g->n_updates; i++) {
        value v = s->g->updates[i].next;
        next[i] = arena_copy(&fresh, e.values[v.id], (size_t)eval_count(&e, v) * sizeof(double));
    }
    for (uint32_t i = 0; i < s->g->n_updates; i++) {
        value v = s->g->updates[i].leaf;
        memcpy(e.values[v.id], next[i], (size_t)eval_count(&e, v) * sizeof(double));
    }
    arena_free(&fresh);
    eval_end(&e);
}

static const double *output(const struct session *s, const char *name)
{
    for (uint32_t i = 0; i < s->g->n_outputs; i++) {
        if (strcmp(s->g->outputs[i].name, name) == 0) {
            return s->outputs[i];
        }
    }
    ck_abort_msg("no output %s", name);
    return NULL;
}

#endif
