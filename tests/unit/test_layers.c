/* Layers: names, shapes and first values of their parameters are PyTorch's, their lines the user's,
 * what they compute is what a plain loop computes. */
#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "atoll/layers.h"
#include "atoll/train.h"
#include "frontend/capture.h"

static void assert_leaf(const struct graph *g, const char *name, enum op op, const char *init,
                        uint32_t rank, int64_t rows, int64_t columns)
{
    value v = graph_find(g, name);
    ck_assert_msg(v.id != 0, "no leaf %s", name);
    const struct node *n = graph_node(g, v);
    ck_assert_int_eq(n->op, op);
    ck_assert_msg(strcmp(node_text(n, "init"), init) == 0, "%s: init %s", name,
                  node_text(n, "init"));
    ck_assert_uint_eq(n->shape.rank, rank);
    ck_assert_msg(rank < 1 || n->shape.dims[0].factor == rows, "%s", name);
    ck_assert_msg(rank < 2 || n->shape.dims[1].factor == columns, "%s", name);
}

START_TEST(parameters_are_pytorchs)
{
    atoll_trace *t = atoll_trace_create("t");
    int64_t b = atoll_symbol(t, "b");
    atoll_value tokens = atoll_input(t, "tokens", ATOLL_I64, ATOLL_DIMS(b, 6));
    atoll_value h = atoll_embedding_layer(tokens, "embed", 50, 8, .padding_idx = 0);
    uint32_t line = __LINE__ + 1;
    h = atoll_block_layer(h, "block", 2, 32, .is_causal = true);
    h = atoll_dropout_layer(h, "drop", 0.25);
    h = atoll_rms_norm_layer(h, "norm");
    h = atoll_mlp_layer(h, "mlp", 16, 4, .has_bias = false, .activation = "silu");
    atoll_output(t, "y", atoll_linear_layer(h, "head", 50, .has_bias = false));
    const struct graph *g = capture_graph(t);
    ck_assert_msg(g != NULL, "%s", t->error.text);
    assert_leaf(g, "embed.weight", OP_param, "normal:1", 2, 50, 8);
    assert_leaf(g, "block.norm1.weight", OP_param, "ones", 1, 8, 0);
    assert_leaf(g, "block.norm1.bias", OP_param, "zeros", 1, 8, 0);
    /* sqrt(6 / (8 + 24)) and 1 / sqrt(8) */
    assert_leaf(g, "block.attn.in_proj.weight", OP_param, "uniform:0.4330127018922193", 2, 24, 8);
    assert_leaf(g, "block.attn.in_proj.bias", OP_param, "zeros", 1, 24, 0);
    assert_leaf(g, "block.attn.out_proj.weight", OP_param, "linear", 2, 8, 8);
    assert_leaf(g, "block.mlp.fc1.weight", OP_param, "linear", 2, 32, 8);
    assert_leaf(g, "block.mlp.fc1.bias", OP_param, "uniform:0.35355339059327373", 1, 32, 0);
    assert_leaf(g, "block.mlp.fc2.weight", OP_param, "linear", 2, 8, 32);
    assert_leaf(g, "drop.seed", OP_state, "0", 0, 0, 0);
    assert_leaf(g, "norm.weight", OP_param, "ones", 1, 8, 0);
    assert_leaf(g, "head.weight", OP_param, "linear", 2, 50, 4);
    ck_assert_uint_eq(graph_find(g, "head.bias").id, 0);
    ck_assert_uint_eq(graph_find(g, "mlp.fc1.bias").id, 0);
    uint32_t n_there = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        bool is_block = g->nodes[i].location.line == line;
        ck_assert_str_eq(g->nodes[i].location.file, __FILE__);
        n_there += is_block && g->nodes[i].op == OP_linear;
    }
    ck_assert_uint_eq(n_there, 4);
    ck_assert_int_eq(atoll_size_of(h, 0), b);
    ck_assert_int_eq(atoll_size_of(h, 1), 6);
    ck_assert_str_eq(t->scope, "");
    atoll_trace_destroy(t);
}
END_TEST

/* ---- attention against plain loops ---- */

enum { B = 2, T = 5, C = 6, H = 3, D = C / H };

/* y = x w^T + b over rows of C */
static void project(const float *x, const float *w, const float *b, double *y, int n_out)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = (double)b[o];
        for (int c = 0; c < C; c++) {
            y[o] += (double)x[c] * (double)w[o * C + c];
        }
    }
}

static void attention(const float *x, const float *w, const float *b, const float *out_w,
                      const float *out_b, bool is_causal, double *y)
{
    double qkv[T][3 * C];
    float mixed[T][C];
    for (int i = 0; i < T; i++) {
        project(x + i * C, w, b, qkv[i], 3 * C);
    }
    for (int h = 0; h < H; h++) {
        for (int i = 0; i < T; i++) {
            double weights[T], sum = 0.0;
            for (int k = 0; k < T; k++) {
                double s = 0.0;
                for (int d = 0; d < D; d++) {
                    s += qkv[i][h * D + d] * qkv[k][C + h * D + d];
                }
                weights[k] = is_causal && k > i ? 0.0 : exp(s / sqrt((double)D));
                sum += weights[k];
            }
            for (int d = 0; d < D; d++) {
                double v = 0.0;
                for (int k = 0; k < T; k++) {
                    v += weights[k] / sum * qkv[k][2 * C + h * D + d];
                }
                mixed[i][h * D + d] = (float)v;
            }
        }
    }
    for (int i = 0; i < T; i++) {
        project(mixed[i], out_w, out_b, y + i * C, C);
    }
}

static const float *parameter(atoll_training *m, const char *name)
{
    atoll_view v;
    atoll_error error = {0};
    ck_assert_msg(atoll_training_state(m, name, &v, &error) == ATOLL_OK, "%s", error.text);
    return v.data;
}

START_TEST(attention_is_the_loops)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(atoll_symbol(t, "b"), T, C));
    atoll_output(t, "y", atoll_attention_layer(x, "a", H, .is_causal = _i == 1));
    atoll_training *m = NULL;
    atoll_error error = {0};
    atoll_training_options o = {.is_forward = 1, .is_eager = 1, .seed = 5};
    ck_assert_msg(atoll_training_open(t, &o, &m, &error) == ATOLL_OK, "%s", error.text);
    float data[B * T * C];
    for (int i = 0; i < B * T * C; i++) {
        data[i] = sinf((float)i);
    }
    atoll_view in = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(B, T, C), data), out;
    atoll_training_feed(m, &in, &error);
    atoll_training_step(m, &error);
    ck_assert_msg(atoll_training_output(m, "y", &out, &error) == ATOLL_OK, "%s", error.text);
    ck_assert_uint_eq(out.rank, 3);
    const float *found = out.data;
    for (int row = 0; row < B; row++) {
        double expected[T * C];
        attention(data + row * T * C, parameter(m, "a.in_proj.weight"),
                  parameter(m, "a.in_proj.bias"), parameter(m, "a.out_proj.weight"),
                  parameter(m, "a.out_proj.bias"), _i == 1, expected);
        for (int i = 0; i < T * C; i++) {
            ck_assert_double_eq_tol((double)found[row * T * C + i], expected[i], 1e-5);
        }
    }
    atoll_training_close(m);
    atoll_trace_destroy(t);
}
END_TEST

/* A block trains: its loss goes down, and the dropout's seed moves. */
START_TEST(blocks_train)
{
    atoll_trace *t = atoll_trace_create("t");
    int64_t b = atoll_symbol(t, "b");
    atoll_value tokens = atoll_input(t, "tokens", ATOLL_I64, ATOLL_DIMS(b, 4));
    atoll_value h = atoll_embedding_layer(tokens, "embed", 7, 8);
    h = atoll_block_layer(h, "block", 2, 16, .is_causal = true, .is_rms = true);
    h = atoll_dropout_layer(h, "drop", 0.1);
    atoll_value logits = atoll_linear_layer(atoll_layer_norm_layer(h, "norm"), "head", 7);
    atoll_output(t, "loss",
                 atoll_cross_entropy(atoll_reshape(logits, ATOLL_DIMS(-1, 7)),
                                     atoll_reshape(tokens, ATOLL_DIMS(-1))));
    atoll_training *m = NULL;
    atoll_error error = {0};
    atoll_training_options o = {.optimizer = "adamw,lr=1e-2", .seed = 1, .is_eager = 1};
    ck_assert_msg(atoll_training_open(t, &o, &m, &error) == ATOLL_OK, "%s", error.text);
    int64_t data[3 * 4] = {1, 2, 3, 4, 5, 6, 0, 1, 2, 2, 5, 3};
    double first = 0.0;
    atoll_view in = atoll_view_of("tokens", ATOLL_I64, ATOLL_DIMS(3, 4), data), seed;
    atoll_training_feed(m, &in, &error);
    for (int i = 0; i < 30; i++) {
        atoll_training_step(m, &error);
        first = i == 0 ? atoll_training_number(m, "loss") : first;
    }
    ck_assert_msg(error.code == ATOLL_OK, "%s", error.text);
    ck_assert(atoll_training_number(m, "loss") < 0.5 * first);
    ck_assert_int_eq(atoll_training_state(m, "drop.seed", &seed, &error), ATOLL_OK);
    ck_assert_int_eq(*(const int64_t *)seed.data, 30);
    atoll_training_close(m);
    atoll_trace_destroy(t);
}
END_TEST

/* ---- misuse ---- */

static atoll_value x; /* f32[4,6] of the trace under test */
static atoll_value tokens;

static void bad_name(atoll_trace *t)
{
    (void)t;
    (void)atoll_linear_layer(x, NULL, 3);
}
static void bad_count(atoll_trace *t)
{
    (void)t;
    (void)atoll_linear_layer(x, "fc", 0);
}
static void bad_rank(atoll_trace *t)
{
    (void)t;
    (void)atoll_attention_layer(x, "a", 2);
}
static void bad_heads(atoll_trace *t)
{
    (void)atoll_attention_layer(atoll_reshape(x, ATOLL_DIMS(2, 2, 6)), "a", 4);
    (void)t;
}
static void bad_symbol(atoll_trace *t)
{
    int64_t n = atoll_symbol(t, "n");
    (void)atoll_layer_norm_layer(atoll_input(t, "s", ATOLL_F32, ATOLL_DIMS(4, n)), "norm");
}
static void bad_activation(atoll_trace *t)
{
    (void)t;
    (void)atoll_mlp_layer(x, "mlp", 3, 4, .activation = "swish");
}
static void bad_indices(atoll_trace *t)
{
    (void)t;
    (void)atoll_embedding_layer(x, "e", 3, 4);
}
static void same_name(atoll_trace *t)
{
    (void)t;
    (void)atoll_linear_layer(x, "fc", 3);
    (void)atoll_linear_layer(x, "fc", 3);
}

static const struct {
    void (*make)(atoll_trace *t);
    atoll_status status;
    const char *says;
} mistakes[] = {
    {bad_name, ATOLL_USAGE, "atoll_linear_layer: the name is NULL"},
    {bad_count, ATOLL_USAGE, "n_out is 0, expected 1 or more"},
    {bad_rank, ATOLL_SHAPE, "x has rank 2, expected 3: (B,T,C)"},
    {bad_heads, ATOLL_SHAPE, "6 channels over 4 heads is not whole"},
    {bad_symbol, ATOLL_SHAPE, "size -1 of x is a symbol, expected a number"},
    {bad_activation, ATOLL_USAGE, "activation 'swish': expected gelu"},
    {bad_indices, ATOLL_DTYPE, "embedding("},
    {same_name, ATOLL_USAGE, "there is a leaf \"fc.weight\" already"},
};

START_TEST(misuse_is_told)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_error error = {0};
    x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(4, 6));
    tokens = atoll_input(t, "tokens", ATOLL_I64, ATOLL_DIMS(4));
    mistakes[_i].make(t);
    ck_assert_int_eq(atoll_trace_error(t, &error), mistakes[_i].status);
    ck_assert_msg(strncmp(error.text, __FILE__, strlen(__FILE__)) == 0, "%s", error.text);
    ck_assert_msg(strstr(error.text, mistakes[_i].says) != NULL, "%s", error.text);
    atoll_trace_destroy(t);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, parameters_are_pytorchs);
    tcase_add_loop_test(tc, attention_is_the_loops, 0, 2);
    tcase_add_test(tc, blocks_train);
    tcase_add_loop_test(tc, misuse_is_told, 0, ARRAY_LEN(mistakes));
}

int main(void)
{
    return run_suite("layers", fill);
}
