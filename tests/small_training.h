/* A small training step for tests that go through the whole of Atoll: a classifier of 5 numbers
 * into 4 classes with a norm, a bf16 policy and AdamW, over a symbolic number of rows; and the plan
 * file of it. */
#ifndef ATOLL_TESTS_SMALL_TRAINING_H
#define ATOLL_TESTS_SMALL_TRAINING_H

#include "frontend/runner.h"
#include "ir/parse.h"
#include "ir/print.h"

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char small_text[] =
    "graph @small(%x: f32[n,5] input, %y: i64[n] input, %w1: f32[8,5] param {init=\"normal:0.3\"}, "
    "%b1: f32[8] param {init=\"zeros\"}, %g: f32[8] param {init=\"ones\"}, %w2: f32[4,8] param "
    "{init=\"normal:0.3\"}) {\n"
    "  %h = linear(%x, %w1, %b1)\n  %a = gelu(%h)\n  %k = rms_norm(%a, %g)\n"
    "  %z = linear(%k, %w2)\n  %loss = cross_entropy(%z, %y)\n  return loss=%loss, logits=%z\n}\n";

enum { SMALL_ROWS = 6 };

/* Check's own comparison of floats promotes them, which our flags refuse. */
#define ASSERT_NUMBER(found, expected) ck_assert_double_eq((double)(found), (double)(expected))

/* A private directory, made once a program. */
static inline const char *small_directory(void)
{
    static char path[64];
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "/tmp/atoll-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(path));
    }
    return path;
}

static inline void
small_start(void) /* unchecked fixtures of a suite: before the tests fork, after */
{
    (void)small_directory();
}

static inline void small_clean(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", small_directory());
    ck_assert_int_eq(system(command), 0);
}

/* The cache of kernels: the run's, else the program's own. */
static inline const char *small_kernels(void)
{
    return shared_kernels() != NULL ? shared_kernels() : small_directory();
}

static inline struct graph *small_model(struct error *e)
{
    return graph_parse(small_text, sizeof small_text - 1, "small.graph", e);
}

static inline struct compile_options small_options(struct train_options *train)
{
    *train = train_options_default();
    train->max_norm = 1.0;
    return (struct compile_options){
        .policy = policy_builtin("bf16"), .train = train, .cache = small_kernels()};
}

static inline void small_batch(float x[SMALL_ROWS * 5], int64_t y[SMALL_ROWS])
{
    for (int i = 0; i < SMALL_ROWS * 5; i++) {
        x[i] = (float)((i * 7) % 11 - 5) / 4.0F;
    }
    for (int i = 0; i < SMALL_ROWS; i++) {
        y[i] = (i * 3) % 4;
    }
}

static inline status small_feed(struct runner *r, struct error *e)
{
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    struct tensor tx = {.dtype = F32, .rank = 2, .shape = {SMALL_ROWS, 5}, .data = x};
    struct tensor ty = {.dtype = I64, .rank = 1, .shape = {SMALL_ROWS}, .data = y};
    TRY(runner_input(r, "x", &tx, e));
    return runner_input(r, "y", &ty, e);
}

/* What `atoll compile` does: passes, the primitive graph through its text, kernels, the file. */
static inline status small_plan(const char *path, struct error *e)
{
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct compiled passes = {0};
    struct runner r = {0};
    struct arena a = {0};
    struct text t = {.arena = &a};
    struct graph *model = small_model(e), *primitive = NULL;
    o.is_eager = true;
    status code = compile_graph(model, &o, &passes, e);
    if (code == ATOLL_OK) {
        graph_print(passes.primitive, &t, NULL);
        primitive = graph_parse(t.data, t.length, "small", e);
        o.is_eager = false;
        code = compile_primitive(primitive, &o, &r.compiled, e);
    }
    code = code == ATOLL_OK ? runner_from(&r, 1, e) : code;
    code = code == ATOLL_OK ? runner_write_plan(&r, path, "model small\n", e) : code;
    runner_free(&r);
    compiled_free(&passes);
    graph_destroy(model);
    arena_free(&a);
    return code;
}

#endif
