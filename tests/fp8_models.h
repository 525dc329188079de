/* What FP8 is tested on: a perceptron of four linears and an attention block over digits, with rows
 * that every recipe can cut. */
#ifndef ATOLL_TESTS_FP8_MODELS_H
#define ATOLL_TESTS_FP8_MODELS_H

#include "runtime/data.h"
#include "tests/small_training.h"

#include <stdio.h>
#include <string.h>

static const char fp8_mlp[] =
    "graph @mlp(%x: f32[128,64] input, %y: i64[128] input,\n"
    "  %w1: f32[128,64] param, %b1: f32[128] param, %w2: f32[128,128] param, %b2: f32[128] param,\n"
    "  %w3: f32[256,128] param, %b3: f32[256] param, %w4: f32[10,256] param) {\n"
    "  %h1 = linear(%x, %w1, %b1)  %a1 = gelu(%h1)  %h2 = linear(%a1, %w2, %b2)  %a2 = relu(%h2)\n"
    "  %h3 = linear(%a2, %w3, %b3)  %a3 = silu(%h3)  %z = linear(%a3, %w4)\n"
    "  %loss = cross_entropy(%z, %y)  return loss=%loss\n}\n";

/* 32 images of 4 rows of 16 pixels: 128 tokens. */
static const char fp8_attention[] =
    "graph @attention(%x: f32[32,64] input, %y: i64[32] input, %we: f32[128,16] param,\n"
    "  %wq: f32[128,128] param, %wk: f32[128,128] param, %wv: f32[128,128] param,\n"
    "  %wo: f32[128,128] param, %g: f32[128] param {init=\"ones\"}, %wu: f32[256,128] param,\n"
    "  %bu: f32[256] param, %wd: f32[128,256] param, %wh: f32[10,128] param) {\n"
    "  %t = reshape(%x) {shape=[32,4,16]}  %e = linear(%t, %we)  %k0 = rms_norm(%e, %g)\n"
    "  %q = linear(%k0, %wq)  %k = linear(%k0, %wk)  %v = linear(%k0, %wv)\n"
    "  %s = matmul(%q, %k) {transpose_b=true}  %s1 = mul(%s, 0.08838834764831845)\n"
    "  %p = softmax(%s1)  %c = matmul(%p, %v)  %o = linear(%c, %wo)  %r = add(%e, %o)\n"
    "  %u = linear(%r, %wu, %bu)  %ua = gelu(%u)  %d = linear(%ua, %wd)  %r2 = add(%r, %d)\n"
    "  %m = mean(%r2) {axes=[1]}  %z = linear(%m, %wh)  %loss = cross_entropy(%z, %y)\n"
    "  return loss=%loss\n}\n";

static const char *const fp8_policies[] = {"fp8-tensorwise", "fp8-rowwise",   "fp8-rowwise-gw-hp",
                                           "fp8-delayed",    "fp8-blockwise", "fp8-mxfp8"};

static inline struct graph *fp8_model(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "model.graph", &e);
    ck_assert_msg(g != NULL && e.code == ATOLL_OK, "%s", e.text);
    return g;
}

/* Compiled with a training step; kernels are kept. */
static inline void fp8_open(struct runner *r, const char *model, const struct policy *policy,
                            bool is_eager)
{
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.policy = policy,
                                .train = &train,
                                .is_eager = is_eager,
                                .cache = small_kernels(),
                                .cc = {.optimise = "-O1"}}; /* changes no value */
    struct graph *g = fp8_model(model);
    train.max_norm = 1.0;
    ck_assert_msg(runner_open(r, g, &o, 3, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
}

static inline void fp8_data(struct dataset *d)
{
    struct error e = {0};
    struct dataset_options o = {.scale = 1.0F / 16};
    char path[500];
    const char *source = getenv("ATOLL_SOURCE");
    snprintf(path, sizeof path, "%s/examples/data/digits.csv.gz", source != NULL ? source : ".");
    ck_assert_msg(dataset_open(path, &o, d, &e) == ATOLL_OK, "%s", e.text);
}

/* Batch number i of the digits, as many rows as the model reads. */
static inline void fp8_feed(struct runner *r, const struct dataset *d, int i)
{
    const struct array *x = dataset_find(d, "x"), *y = dataset_find(d, "y");
    struct error e = {0};
    int64_t rows =
        graph_node(runner_graph(r), graph_find(runner_graph(r), "x"))->shape.dims[0].factor;
    int64_t at = i * rows % (x->shape[0] - rows);
    struct tensor tx = {
        .dtype = F32, .rank = 2, .shape = {rows, 64}, .data = (float *)x->data + at * 64};
    struct tensor ty = {.dtype = I64, .rank = 1, .shape = {rows}, .data = (int64_t *)y->data + at};
    ck_assert_msg(runner_input(r, "x", &tx, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_input(r, "y", &ty, &e) == ATOLL_OK, "%s", e.text);
}

static inline double fp8_step(struct runner *r)
{
    struct error e = {0};
    ck_assert_msg(runner_step(r, &e) == ATOLL_OK, "%s", e.text);
    return runner_number(r, "loss");
}

/* Every kept leaf of both has the same bits. */
static inline void fp8_same_leaves(struct runner *a, struct runner *b, const char *what)
{
    const struct graph *g = runner_graph(a);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (plan_keeps(&g->nodes[i])) {
            const struct tensor *p = runner_leaf(a, g->nodes[i].name);
            const struct tensor *q = runner_leaf(b, g->nodes[i].name);
            ck_assert_msg(memcmp(p->data, q->data, tensor_bytes(p)) == 0, "%s: %%%s differs", what,
                          g->nodes[i].name);
        }
    }
}

#endif
