/* decompose: every composite and training op, in each dtype and shape it takes, becomes primitives
 * of the same dtype and shape; and what was primitive stays. */
#include "passes/decompose.h"

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

/* ---- the grid: each op with operands made to fit ---- */

static const enum dtype float_dtypes[] = {F32, BF16, F16, F64, F8E4M3};
enum { N_SHAPES = 4 };

/* (rows, 4): ordinary, no rows, one row, symbolic rows. */
static struct shape make_shape(struct graph *g, int which, int64_t last)
{
    static const int64_t rows[] = {3, 0, 1};
    struct dim first = which == 3 ? dim_symbol(graph_symbol(g, "n")) : dim_of(rows[which]);
    return (struct shape){.rank = 2, .dims = {first, dim_of(last)}};
}

static value leaf(struct graph *g, const char *name, enum dtype t, const struct shape *shape)
{
    return graph_leaf_shape(g, OP_input, name, t, shape);
}

static value scalar(struct graph *g, const char *name, enum dtype t)
{
    return graph_leaf(g, OP_scalar, name, t, NULL, 0);
}

/* The op over operands that fit it; more than the minimum when `is_full`. */
static value make_op(struct graph *g, enum op op, enum dtype t, int which, bool is_full)
{
    struct shape shape = make_shape(g, which, 4), rows = shape, last = shape;
    rows.rank = 1;
    last.rank = 1;
    last.dims[0] = dim_of(4);
    value x = leaf(g, "x", t, &shape), operands[8] = {x};
    struct attr attrs[1];
    uint32_t n = 1, n_attrs = 0;
    switch (op) {
    case OP_embedding: {
        struct shape table = {.rank = 2, .dims = {dim_of(5), dim_of(4)}};
        operands[0] = leaf(g, "w", t, &table);
        operands[n++] = leaf(g, "i", I64, &rows);
        break;
    }
    case OP_one_hot:
        operands[0] = leaf(g, "i", I64, &rows);
        attrs[n_attrs++] = attr_int("classes", 4);
        break;
    case OP_dropout:
        operands[n++] = scalar(g, "seed", I64);
        break;
    case OP_layer_norm:
    case OP_rms_norm:
        operands[1] = leaf(g, "weight", F32, &last);
        operands[2] = leaf(g, "bias", t, &last);
        n = is_full ? op_info[op].max_operands : 1;
        break;
    case OP_cross_entropy:
    case OP_nll_loss:
        operands[1] = leaf(g, "target", I64, &rows);
        operands[2] = leaf(g, "weight", F32, &last);
        n = is_full ? 3 : 2;
        break;
    case OP_mse_loss:
    case OP_l1_loss:
    case OP_huber_loss:
    case OP_bce_with_logits:
    case OP_binary_cross_entropy:
        operands[1] = leaf(g, "t", F32, is_full ? &last : &shape);
        operands[2] = leaf(g, "weight", t, &last);
        n = is_full ? op_info[op].max_operands : 2;
        break;
    case OP_all_finite:
    case OP_global_norm:
        operands[1] = leaf(g, "y", F32, &last);
        operands[2] = scalar(g, "z", BF16);
        n = is_full ? 3 : op_info[op].min_operands;
        break;
    case OP_clip_grad_norm:
        operands[1] = scalar(g, "norm", F32);
        operands[2] = is_full ? scalar(g, "max", F64) : graph_number(g, 1.0);
        n = 3;
        break;
    case OP_adam_exp_avg:
    case OP_adam_exp_avg_sq:
    case OP_weight_decay:
    case OP_sgd_update:
        operands[1] = leaf(g, "g", F32, &shape);
        operands[2] = is_full ? scalar(g, "b", F64) : graph_number(g, 0.1);
        n = 3;
        break;
    case OP_adam_update:
        operands[1] = leaf(g, "m", F32, &shape);
        operands[2] = leaf(g, "v", F32, &shape);
        for (uint32_t i = 3; i < 7; i++) {
            static const char *const names[] = {"lr", "b1", "b2", "eps"};
            operands[i] = is_full ? scalar(g, names[i - 3], F64) : graph_number(g, 0.5);
        }
        n = 7;
        break;
    case OP_sgd_momentum:
        operands[1] = leaf(g, "g", F32, &shape);
        operands[2] = graph_number(g, 0.9);
        operands[3] = scalar(g, "first", BOOL);
        n = 4;
        break;
    case OP_scaler_scale:
    case OP_scaler_tracker:
        operands[0] = scalar(g, "scale", F32);
        operands[1] = scalar(g, "tracker", I32);
        operands[2] = scalar(g, "overflow", BOOL);
        n = 3;
        break;
    default:
        break;
    }
    return graph_add(g, op, operands, n, attrs, n_attrs);
}

static struct graph *decompose(const struct graph *g)
{
    struct graph *out = graph_like(g);
    struct error e = {0};
    decompose_pass(g, out, &(struct pass_options){0}, NULL);
    ck_assert_msg(out->error.code == ATOLL_OK, "%s", out->error.text);
    ck_assert_msg(primitive_verify(out, &e) == ATOLL_OK, "%s", e.text);
    return out;
}

static void check_output(const struct graph *g, const struct graph *out)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct node *a = graph_node(g, g->outputs[i].value);
        const struct node *b = graph_node(out, out->outputs[i].value);
        ck_assert_msg(a->dtype == b->dtype && shape_equal(&a->shape, &b->shape),
                      "%s: the type changed", op_info[a->op].name);
    }
}

START_TEST(composites_become_primitives)
{
    enum op op = (enum op)_i;
    if (op_info[op].kind != COMPOSITE && op_info[op].kind != TRAINING &&
        op_info[op].kind != REDUCTION) {
        return;
    }
    bool takes_bool = op_info[op].types == TYPES_B;
    for (uint32_t t = 0; t < ARRAY_LEN(float_dtypes); t++) {
        for (int which = 0; which < N_SHAPES * 2; which++) {
            struct graph *g = graph_create("grid");
            enum dtype dtype = takes_bool ? BOOL : float_dtypes[t];
            graph_output(g, "y", make_op(g, op, dtype, which % N_SHAPES, which >= N_SHAPES));
            bool may_refuse =
                op == OP_variance || op == OP_batch_norm; /* of nothing, or of one value */
            if (may_refuse && g->error.code != ATOLL_OK) {
                ck_assert(which % N_SHAPES != 0);
                graph_destroy(g);
                continue;
            }
            ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
            struct graph *out = decompose(g), *again = decompose(out);
            check_output(g, out);
            ck_assert_uint_le(again->n_nodes, out->n_nodes); /* dead nodes go */
            graph_destroy(again);
            graph_destroy(out);
            graph_destroy(g);
        }
    }
}
END_TEST

/* ---- reductions ---- */

static const struct reduce_case {
    enum op op;
    enum dtype from, to;
    int64_t axes[3];
    uint32_t n_axes;
    bool keepdims;
    uint32_t n_groups; /* reductions expected */
} reduce_cases[] = {
    {OP_sum, F32, DTYPE_NONE, {1, 2}, 2, false, 1},
    {OP_sum, F32, DTYPE_NONE, {0, 2}, 2, false, 2},
    {OP_sum, BF16, DTYPE_NONE, {2, 0}, 2, true, 2},
    {OP_sum, F16, F64, {0}, 1, true, 1},
    {OP_sum, I32, DTYPE_NONE, {-1}, 1, false, 1},
    {OP_sum, U8, I64, {0}, 0, false, 1},
    {OP_prod, F8E5M2, F32, {0, 2}, 2, false, 2},
    {OP_max, BF16, DTYPE_NONE, {0, 2}, 2, false, 2},
    {OP_min, I64, DTYPE_NONE, {1}, 1, true, 1},
    {OP_any, BOOL, DTYPE_NONE, {0, 2}, 2, true, 2},
    {OP_all, BOOL, DTYPE_NONE, {0}, 0, false, 1},
    {OP_mean, F16, DTYPE_NONE, {0, 2}, 2, false, 2},
    {OP_norm, F32, DTYPE_NONE, {0, 2}, 2, true, 2},
    {OP_logsumexp, F64, DTYPE_NONE, {0, 2}, 2, true, 4},
};

START_TEST(reductions_reduce_one_group_each)
{
    const struct reduce_case *c = &reduce_cases[_i];
    struct graph *g = graph_create("reduce");
    value x = graph_leaf(g, OP_input, "x", c->from, (int64_t[]){2, 3, 4}, 3);
    struct attr attrs[] = {attr_ints("axes", c->axes, c->n_axes),
                           attr_bool("keepdims", c->keepdims), attr_dtype("dtype", c->to)};
    uint32_t n_attrs = c->to == DTYPE_NONE ? 2 : 3, n_found = 0;
    graph_output(g, "y", graph_add(g, c->op, &x, 1, attrs, n_attrs));
    ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
    struct graph *out = decompose(g);
    check_output(g, out);
    for (uint32_t i = 1; i < out->n_nodes; i++) {
        n_found += op_info[out->nodes[i].op].kind == REDUCTION;
    }
    ck_assert_uint_eq(n_found, c->n_groups);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* ---- contractions ---- */

static const struct contraction_case {
    enum dtype a, b, bias; /* DTYPE_NONE: a matmul */
    enum dtype inside;     /* of the product's operands */
} contraction_cases[] = {
    {BF16, BF16, DTYPE_NONE, BF16}, {BF16, F16, DTYPE_NONE, F32},
    {F16, F32, DTYPE_NONE, F32},    {I32, F16, DTYPE_NONE, F32},
    {I64, F64, DTYPE_NONE, F64},    {I32, I32, DTYPE_NONE, F32},
    {F8E4M3, F8E4M3, F8E4M3, F32},  {F8E4M3, F8E5M2, DTYPE_NONE, F32},
    {BF16, BF16, F32, F32},         {F16, F16, F16, F16},
    {F32, F32, F64, F64},
};

START_TEST(contractions_have_one_dtype)
{
    const struct contraction_case *c = &contraction_cases[_i];
    struct graph *g = graph_create("contraction");
    value x[3] = {graph_leaf(g, OP_input, "a", c->a, (int64_t[]){2, 2}, 2),
                  graph_leaf(g, OP_input, "b", c->b, (int64_t[]){2, 2}, 2)};
    enum op op = OP_matmul;
    if (c->bias != DTYPE_NONE) {
        op = OP_linear;
        x[2] = graph_leaf(g, OP_input, "c", c->bias, (int64_t[]){2}, 1);
    }
    graph_output(g, "y", graph_add(g, op, x, op == OP_linear ? 3 : 2, NULL, 0));
    struct graph *out = decompose(g);
    check_output(g, out);
    for (uint32_t i = 1; i < out->n_nodes; i++) {
        if (out->nodes[i].op == op) {
            ck_assert_int_eq(out->nodes[i].dtype, c->inside);
        }
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(verify_names_what_is_not_primitive)
{
    struct graph *g = graph_create("raw");
    struct error e = {0};
    value x = graph_leaf(g, OP_input, "x", BF16, (int64_t[]){2, 3}, 2);
    graph_output(g, "y", graph_op1(g, OP_gelu, x));
    ck_assert_int_eq(primitive_verify(g, &e), ATOLL_INTERNAL);
    ck_assert(strstr(e.text, "gelu") != NULL);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, composites_become_primitives, 1, N_OPS);
    tcase_add_loop_test(tc, reductions_reduce_one_group_each, 0, ARRAY_LEN(reduce_cases));
    tcase_add_loop_test(tc, contractions_have_one_dtype, 0, ARRAY_LEN(contraction_cases));
    tcase_add_test(tc, verify_names_what_is_not_primitive);
}

int main(void)
{
    return run_suite("decompose", fill);
}
