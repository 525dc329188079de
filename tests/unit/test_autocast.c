/* autocast against PyTorch: every row of tests/fixtures/autocast_dtypes.csv is one node built, cast
 * and looked at. Then what the fixture cannot say: casts placed once, weak numbers, updates, node
 * overrides, and where Atoll's own behaviour differs. */
#include "ir/verify.h"
#include "passes/pass.h"
#include "passes/policy.h"

#include "tests/one_node.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

/* What every pass must leave. */
static void verify(const struct graph *g)
{
    struct error e = {0};
    ck_assert_msg(graph_verify(g, &e) == ATOLL_OK, "%s", e.text);
}

static struct graph *run_autocast(const struct graph *g, const struct policy *p,
                                  struct notes *notes)
{
    struct graph *out = graph_like(g);
    if (autocast_pass(g, out, &(struct pass_options){.policy = p}, notes) == ATOLL_OK) {
        verify(out);
    }
    return out;
}

static const char *result_of(const struct graph *out, const char *if_failed)
{
    if (out->error.code != ATOLL_OK) {
        return if_failed;
    }
    return dtype_info[graph_node(out, out->outputs[0].value)->dtype].name;
}

/* ---- the fixture ---- */

static uint32_t check_row(const char *line)
{
    char list[8], source[16], low[8], op_name[32], operands[8], result[8], name[32];
    ck_assert_int_eq(sscanf(line, "%7[^,],%15[^,],%7[^,],%31[^,],%7[^,],%7s", list, source, low,
                            op_name, operands, result),
                     6);
    if (strcmp(result, "error") == 0) { /* torch refuses: Atoll promotes, which breaks nothing */
        return 0;
    }
    snprintf(name, sizeof name, "%s@torch-%s", strcmp(low, "f16") == 0 ? "fp16" : "bf16", list);
    const struct policy *p = policy_builtin(name);
    enum op op = op_named(op_name, strlen(op_name));
    ck_assert_msg(p != NULL && op != OP_NONE, "%s", line);
    bool is_mixed = strcmp(operands, "mixed") == 0;
    enum dtype a = strcmp(operands, "f64") == 0 ? F64 : strcmp(operands, "f32") == 0 ? F32 : p->low;
    struct graph *g = graph_create("row");
    graph_output(g, "result", one_node(g, OP_input, op, a, is_mixed ? F32 : a));
    ck_assert_msg(g->error.code == ATOLL_OK, "%s: %s", line, g->error.text);
    struct graph *out = run_autocast(g, p, NULL);
    ck_assert_msg(strcmp(result_of(out, "banned"), result) == 0, "%s: found %s %s", line,
                  result_of(out, "banned"), out->error.text);
    graph_destroy(out);
    graph_destroy(g);
    return 1;
}

START_TEST(dtypes_are_those_of_pytorch)
{
    const char *root = getenv("ATOLL_SOURCE");
    char path[1000], line[200];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/tests/fixtures/autocast_dtypes.csv", root != NULL ? root : ".");
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] != '#' && strncmp(line, "list,", 5) != 0) {
            n += check_row(line);
        }
    }
    fclose(f);
    ck_assert_uint_ge(n, 900);
}
END_TEST

/* ---- Atoll's own behaviour: x low, weights or second operand f32 ---- */

static const struct own_case {
    enum op op;
    enum dtype a, b; /* BF16 stands for the policy's low dtype */
    const char *expected;
} own_cases[] = {
    {OP_linear, F32, F32, "low"},
    {OP_matmul, BF16, F32, "low"},
    {OP_matmul, F64, F64, "f64"},
    {OP_linear, F64, F32, "f64"},
    {OP_exp, BF16, F32, "f32"},
    {OP_exp, F64, F64, "f64"},
    {OP_pow, BF16, BF16, "f32"},
    {OP_add, BF16, BF16, "low"},
    {OP_add, BF16, F32, "f32"},
    {OP_where, BF16, F32, "f32"},
    {OP_gelu, BF16, BF16, "low"},
    {OP_layer_norm, BF16, F32, "low"},
    {OP_layer_norm, F32, F32, "f32"},
    {OP_rms_norm, BF16, F32, "low"},
    {OP_cross_entropy, BF16, BF16, "f32"},
    {OP_mse_loss, BF16, F32, "f32"},
    {OP_bce_with_logits, BF16, F32, "f32"},
    {OP_binary_cross_entropy, BF16, F32, "banned"},
    {OP_binary_cross_entropy, F32, F32, "f32"},
    {OP_sum, BF16, BF16, "f32"},
    {OP_mean, BF16, BF16, "f32"},
    {OP_norm, BF16, BF16, "f32"},
    {OP_sum, F64, F64, "f64"},
    {OP_logsumexp, BF16, BF16, "f32"},
    {OP_softmax, BF16, BF16, "f32"},
    {OP_max, BF16, BF16, "low"},
    {OP_argmax, BF16, BF16, "i64"},
    {OP_index_add, BF16, F32, "f32"},
    {OP_eq, BF16, F32, "bool"},
};

START_TEST(own_behaviour)
{
    const struct own_case *c = &own_cases[_i];
    const char *const names[] = {"bf16", "fp16"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct policy *p = policy_builtin(names[i]);
        enum dtype a = c->a == BF16 ? p->low : c->a, b = c->b == BF16 ? p->low : c->b;
        struct graph *g = graph_create("own");
        graph_output(g, "result", one_node(g, OP_input, c->op, a, b));
        struct graph *out = run_autocast(g, p, NULL);
        const char *expected =
            strcmp(c->expected, "low") == 0 ? dtype_info[p->low].name : c->expected;
        ck_assert_msg(strcmp(result_of(out, "banned"), expected) == 0, "%s: %s, expected %s %s",
                      op_info[c->op].name, result_of(out, "banned"), expected, out->error.text);
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

/* ---- casts ---- */

static uint32_t count_ops(const struct graph *g, enum op op)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == op;
    }
    return n;
}

static bool says(const struct notes *notes, const char *node, const char *part)
{
    for (uint32_t i = 0; i < notes->n; i++) {
        if (strcmp(notes->items[i].node, node) == 0 && strstr(notes->items[i].text, part) != NULL) {
            return true;
        }
    }
    return false;
}

START_TEST(weights_are_cast_once)
{
    struct graph *g = graph_create("shared");
    struct notes notes = {0};
    value x = graph_leaf(g, OP_input, "x", F32, square, 2);
    value w = graph_leaf(g, OP_param, "w", F32, (int64_t[]){8, 8}, 2);
    g->origin_name = "h1";
    value h = graph_op2(g, OP_linear, x, w);
    g->origin_name = "h2";
    h = graph_op2(g, OP_linear, h, w);
    graph_output(g, "h", h);
    struct graph *out = run_autocast(g, policy_builtin("bf16"), &notes);
    ck_assert_int_eq(out->error.code, ATOLL_OK);
    ck_assert_uint_eq(count_ops(out, OP_cast), 2); /* x and w; h1 is bf16 already */
    ck_assert(says(&notes, "h1", "linear is lower: reads bf16"));
    bool has_name = false;
    for (uint32_t i = 1; i < out->n_nodes; i++) {
        has_name = has_name || (out->nodes[i].op == OP_cast && out->nodes[i].name != NULL &&
                                strcmp(out->nodes[i].name, "w.bf16") == 0);
    }
    ck_assert(has_name);
    arena_free(&notes.arena);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* low → exp in f32 → matmul in low, and a value that was only widened is narrowed by taking the
 * original. */
START_TEST(widened_values_are_not_rounded_back)
{
    struct graph *g = graph_create("back");
    value x = graph_leaf(g, OP_input, "x", BF16, (int64_t[]){8, 8}, 2);
    value e = graph_op1(g, OP_exp, x);
    graph_output(g, "y", graph_matmul(g, e, x, false, false));
    struct graph *out = run_autocast(g, policy_builtin("bf16"), NULL);
    ck_assert_uint_eq(count_ops(out, OP_cast), 2);
    const struct node *y = graph_node(out, out->outputs[0].value);
    ck_assert_int_eq(graph_node(out, y->operands[1])->op, OP_input);
    ck_assert_int_eq(y->dtype, BF16);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* mul(x_f16, 65536.0): the number is weak, so the node stays f16, computes in f32 and is not cast.
 */
START_TEST(weak_numbers_stay)
{
    const char *const names[] = {"fp32", "fp16", "fp16@torch-cuda", "fp16@torch-cpu"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct graph *g = graph_create("weak");
        value x = graph_leaf(g, OP_input, "x", F16, square, 2);
        graph_output(g, "y", graph_op2(g, OP_mul, x, graph_number(g, 65536.0)));
        struct graph *out = run_autocast(g, policy_builtin(names[i]), NULL);
        ck_assert_str_eq(result_of(out, "error"), "f16");
        ck_assert_uint_eq(count_ops(out, OP_cast), 0);
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

/* A sum under fp16 gives f32, for static and symbolic shapes; a dtype that was asked for stays. */
START_TEST(sums_give_f32)
{
    const char *const names[] = {"fp16", "fp16@torch-cuda"};
    for (int i = 0; i < 8; i++) {
        bool is_symbolic = (i & 1) != 0, is_asked = (i & 2) != 0;
        struct graph *g = graph_create("sum");
        struct shape shape = {.rank = 2, .dims = {dim_of(4), dim_of(8)}};
        if (is_symbolic) {
            shape.dims[0] = dim_symbol(graph_symbol(g, "n"));
        }
        value x = graph_leaf_shape(g, OP_input, "x", F16, &shape);
        struct attr dtype = attr_dtype("dtype", F16);
        graph_output(g, "y", graph_add(g, OP_sum, &x, 1, &dtype, is_asked ? 1 : 0));
        struct graph *out = run_autocast(g, policy_builtin(names[i >> 2]), NULL);
        ck_assert_str_eq(result_of(out, "error"), is_asked ? "f16" : "f32");
        ck_assert_uint_eq(count_ops(out, OP_cast), 0);
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

START_TEST(fp32_changes_nothing)
{
    for (int op = 1; op < N_OPS; op++) {
        if (!is_float_op((enum op)op)) {
            continue;
        }
        struct graph *g = graph_create("fp32");
        graph_output(g, "y", one_node(g, OP_input, (enum op)op, F32, F32));
        ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
        struct graph *out = run_autocast(g, NULL, NULL);
        ck_assert_uint_eq(out->n_nodes, g->n_nodes);
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            ck_assert_int_eq(out->nodes[i].op, g->nodes[i].op);
            ck_assert_int_eq(out->nodes[i].dtype, g->nodes[i].dtype);
        }
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

START_TEST(integers_and_explicit_casts_pass)
{
    struct graph *g = graph_create("untouched");
    value i = graph_leaf(g, OP_input, "i", I32, square, 2);
    value x = graph_leaf(g, OP_input, "x", F16, square, 2);
    graph_output(g, "i", graph_op2(g, OP_add, i, i));
    graph_output(g, "x", graph_cast(g, x, F32));
    graph_output(g, "mixed", graph_op2(g, OP_add, x, graph_cast(g, x, F32)));
    struct graph *out = run_autocast(g, policy_builtin("bf16"), NULL);
    ck_assert_int_eq(graph_node(out, out->outputs[0].value)->dtype, I32);
    ck_assert_int_eq(graph_node(out, out->outputs[1].value)->dtype, F32);
    ck_assert_int_eq(graph_node(out, out->outputs[2].value)->dtype, F32);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(updates_keep_their_dtype)
{
    struct graph *g = graph_create("update");
    value s = graph_leaf(g, OP_state, "s", F32, square, 2);
    value w = graph_leaf(g, OP_param, "w", F32, (int64_t[]){8, 8}, 2);
    value next = graph_matmul(g, s, w, false, false);
    graph_update(g, s, next);
    graph_output(g, "y", next);
    struct graph *out = run_autocast(g, policy_builtin("bf16"), NULL);
    ck_assert_msg(out->error.code == ATOLL_OK, "%s", out->error.text);
    ck_assert_uint_eq(out->n_outputs, 1);
    ck_assert_uint_eq(out->n_updates, 1);
    ck_assert_int_eq(graph_node(out, out->updates[0].next)->dtype, F32);
    ck_assert_int_eq(graph_node(out, out->outputs[0].value)->dtype, BF16);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* Mixed operands of concat come to be when autocast lowers one of them. */
START_TEST(concat_of_a_lowered_value)
{
    const char *const names[] = {"bf16", "bf16@torch-cuda", "bf16@torch-cpu"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct graph *g = graph_create("concat");
        value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){8, 8}, 2);
        graph_output(g, "y", graph_op2(g, OP_concat, graph_matmul(g, x, x, false, false), x));
        struct graph *out = run_autocast(g, policy_builtin(names[i]), NULL);
        ck_assert_str_eq(result_of(out, "error"), "f32");
        graph_destroy(out);
        graph_destroy(g);
    }
}
END_TEST

/* PyTorch on CUDA rounds the log-probabilities of half logits; Atoll does not. */
START_TEST(cross_entropy_on_cuda_rounds_inside)
{
    struct graph *g = graph_create("loss");
    g->origin_name = "loss";
    graph_output(g, "y", one_node(g, OP_input, OP_cross_entropy, BF16, BF16));
    struct notes notes = {0};
    struct graph *out = run_autocast(g, policy_builtin("bf16@torch-cuda"), &notes);
    const struct node *loss = graph_node(out, out->outputs[0].value);
    ck_assert_int_eq(loss->op, OP_nll_loss);
    const struct node *cast = graph_node(out, loss->operands[0]);
    ck_assert_int_eq(cast->op, OP_cast);
    ck_assert_int_eq(graph_node(out, cast->operands[0])->op, OP_log_softmax);
    ck_assert_int_eq(graph_node(out, cast->operands[0])->dtype, BF16);
    ck_assert(says(&notes, "loss", "rounded to bf16"));
    graph_destroy(out);
    out = run_autocast(g, policy_builtin("bf16"), NULL);
    ck_assert_int_eq(graph_node(out, out->outputs[0].value)->op, OP_cross_entropy);
    graph_destroy(out);
    graph_destroy(g);
    arena_free(&notes.arena);
}
END_TEST

START_TEST(overrides_win)
{
    static const char text[] = "base fp16\nop gelu fp32\nnode \"head\" f32\nnode \"act\" inherit\n"
                               "op relu fp32_out\nnode \"haed\" f32\n";
    struct arena a = {0};
    struct error e = {0};
    struct policy p;
    ck_assert_int_eq(policy_load(&a, text, sizeof text - 1, "p", NULL, &p, &e), ATOLL_OK);
    struct graph *g = graph_create("overrides");
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){8, 8}, 2);
    g->origin_name = "body";
    value h = graph_op2(g, OP_linear, x, x);
    g->origin_name = "act";
    graph_output(g, "act", graph_op1(g, OP_gelu, h));
    g->origin_name = "other";
    graph_output(g, "other", graph_op1(g, OP_gelu, h));
    g->origin_name = NULL;
    g->origin = (struct location){"model.c", 7};
    graph_output(g, "relu", graph_op1(g, OP_relu, h));
    g->origin_name = "head";
    graph_output(g, "head", graph_op2(g, OP_linear, h, x));
    struct notes notes = {0};
    struct graph *out = run_autocast(g, &p, &notes);
    const enum dtype expected[] = {F16, F32, F32, F32};
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(graph_node(out, out->outputs[i].value)->dtype, expected[i]);
    }
    ck_assert(says(&notes, "head", "runs in f32"));
    ck_assert(says(&notes, "model.c:7", "relu is fp32"));
    ck_assert(says(&notes, "", "node \"haed\" decides nothing"));
    graph_destroy(out);
    graph_destroy(g);
    arena_free(&notes.arena);
    arena_free(&a);
}
END_TEST

START_TEST(banned_names_the_way_out)
{
    struct graph *g = graph_create("bce");
    g->origin_name = "loss";
    g->origin = (struct location){"model.c", 12};
    graph_output(g, "y", one_node(g, OP_input, OP_binary_cross_entropy, BF16, BF16));
    struct graph *out = run_autocast(g, policy_builtin("bf16"), NULL);
    ck_assert_int_eq(out->error.code, ATOLL_DTYPE);
    const char *const parts[] = {"model.c:12", "%loss", "binary_cross_entropy", "bce_with_logits"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        ck_assert_msg(strstr(out->error.text, parts[i]) != NULL, "%s", out->error.text);
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, dtypes_are_those_of_pytorch);
    tcase_add_loop_test(tc, own_behaviour, 0, ARRAY_LEN(own_cases));
    tcase_add_test(tc, weights_are_cast_once);
    tcase_add_test(tc, widened_values_are_not_rounded_back);
    tcase_add_test(tc, weak_numbers_stay);
    tcase_add_test(tc, sums_give_f32);
    tcase_add_test(tc, fp32_changes_nothing);
    tcase_add_test(tc, integers_and_explicit_casts_pass);
    tcase_add_test(tc, updates_keep_their_dtype);
    tcase_add_test(tc, concat_of_a_lowered_value);
    tcase_add_test(tc, cross_entropy_on_cuda_rounds_inside);
    tcase_add_test(tc, overrides_win);
    tcase_add_test(tc, banned_names_the_way_out);
}

int main(void)
{
    return run_suite("autocast", fill);
}
