/* simplify: each rule on a small graph, and beside each what must stay, because dropping it would
 * change a bit. */
#include "ir/verify.h"
#include "passes/pass.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What every pass must leave. */
static void verify(const struct graph *g)
{
    struct error e = {0};
    ck_assert_msg(graph_verify(g, &e) == ATOLL_OK, "%s", e.text);
}

static struct graph *simplify(const struct graph *g)
{
    struct graph *out = graph_like(g);
    simplify_pass(g, out, &(struct pass_options){0}, NULL);
    ck_assert_msg(out->error.code == ATOLL_OK, "%s", out->error.text);
    verify(out);
    return out;
}

static uint32_t count_ops(const struct graph *g, enum op op)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == op;
    }
    return n;
}

static value input(struct graph *g, const char *name, enum dtype t)
{
    return graph_leaf(g, OP_input, name, t, (int64_t[]){2, 3}, 2);
}

/* ---- folding ---- */

static const struct fold_case {
    enum op op;
    enum dtype a_dtype, b_dtype; /* DTYPE_NONE: weak */
    double a, b;
    bool folds;
    double expected;
} fold_cases[] = {
    {OP_add, F32, F32, 0.1, 0.2, true, (double)(0.1F + 0.2F)},
    {OP_add, F16, F16, 2048.0, 1.0, true, 2048.0},
    {OP_add, BF16, BF16, 256.0, 1.0, true, 256.0},
    {OP_add, F16, DTYPE_NONE, 1.0, 0.0004, true, 1.0},
    {OP_add, F64, F64, 0.1, 0.2, true, 0.1 + 0.2},
    {OP_add, F32, F32, -0.0, 0.0, true, 0.0},
    {OP_mul, F32, F32, 0.0, -5.0, true, -0.0},
    {OP_mul, F16, DTYPE_NONE, 2.0, 65536.0, true, (double)INFINITY},
    {OP_mul, F32, F32, 0.0, (double)INFINITY, false, 0.0},
    {OP_div, F32, F32, 1.0, 3.0, true, (double)(1.0F / 3.0F)},
    {OP_div, I32, I32, 7.0, 2.0, true, 3.5},
    {OP_div, F32, F32, 1.0, -0.0, true, -(double)INFINITY},
    {OP_div, F32, F32, 0.0, 0.0, false, 0.0},
    {OP_add, I32, I32, 2147483647.0, 1.0, false, 0.0},
    {OP_add, I64, I64, 40.0, 2.0, true, 42.0},
    {OP_mul, I64, I64, 0.0, -5.0, true, 0.0},
    {OP_mul, I64, I64, 9007199254740991.0, 3.0, false, 0.0},
    {OP_pow, F32, F32, 2.0, 3.0, false, 0.0},
    {OP_minimum, F32, F32, 0.0, -0.0, false, 0.0},
    {OP_maximum, F32, F32, 1.0, 2.0, true, 2.0},
    {OP_lt, F32, F32, 1.0, 2.0, true, 1.0},
    {OP_eq, F32, F32, 0.1, 0.1, true, 1.0},
    {OP_eq, F16, DTYPE_NONE, 0.1, 0.1, true, 0.0},
    {OP_eq, F32, DTYPE_NONE, 0.1, 0.1, true, 1.0},
};

static value constant(struct graph *g, double v, enum dtype t)
{
    return t == DTYPE_NONE ? graph_number(g, v) : graph_constant(g, v, t);
}

START_TEST(constants_fold_as_kernels_compute)
{
    const struct fold_case *c = &fold_cases[_i];
    struct graph *g = graph_create("fold");
    value v = graph_op2(g, c->op, constant(g, c->a, c->a_dtype), constant(g, c->b, c->b_dtype));
    graph_output(g, "y", v);
    struct graph *out = simplify(g);
    const struct node *y = graph_node(out, out->outputs[0].value);
    ck_assert_int_eq(y->dtype, graph_node(g, v)->dtype);
    ck_assert_msg((y->op == OP_constant) == c->folds, "%s of %g and %g", op_info[c->op].name, c->a,
                  c->b);
    if (c->folds) {
        double found = node_float(y, "value");
        ck_assert_msg(memcmp(&found, &c->expected, sizeof found) == 0, "%s: %.17g, expected %.17g",
                      op_info[c->op].name, found, c->expected);
        ck_assert(!node_bool(y, "weak"));
        ck_assert_uint_eq(out->n_nodes, 2);
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

static const struct cast_fold {
    enum dtype from, to;
    double v;
    bool folds;
    double expected;
} cast_folds[] = {
    {F32, BF16, 1.01, true, 1.0078125},
    {F32, F16, 70000.0, true, (double)INFINITY},
    {F32, F64, 0.1, true, (double)0.1F},
    {F64, F32, 0.1, true, (double)0.1F},
    {F64, F16, 0.1, false, 0.0}, /* by way of f32 or not is the kernel's matter */
    {I64, F32, 16777216.0, true, 16777216.0},
    {I64, F16, 16777217.0, false, 0.0},
    {F32, I32, 3.0, true, 3.0},
    {F32, I32, 3.5, false, 0.0},
    {F32, I32, 3e9, false, 0.0},
};

START_TEST(casts_of_constants_fold)
{
    const struct cast_fold *c = &cast_folds[_i];
    struct graph *g = graph_create("fold");
    graph_output(g, "y", graph_cast(g, graph_constant(g, c->v, c->from), c->to));
    struct graph *out = simplify(g);
    const struct node *y = graph_node(out, out->outputs[0].value);
    ck_assert_int_eq(y->dtype, c->to);
    ck_assert_int_eq(y->op == OP_constant, c->folds);
    if (c->folds) {
        ck_assert_double_eq(node_float(y, "value"), c->expected);
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(static_sizes_are_numbers)
{
    struct graph *g = graph_create("size");
    graph_output(g, "a", graph_size(g, dim_of(48), F32));
    graph_output(g, "b", graph_size(g, dim_of(16777217), F32)); /* f32 does not hold it */
    graph_output(g, "c", graph_size(g, dim_symbol(graph_symbol(g, "n")), F32));
    struct graph *out = simplify(g);
    const struct node *a = graph_node(out, out->outputs[0].value);
    ck_assert_int_eq(a->op, OP_constant);
    ck_assert_double_eq(node_float(a, "value"), 48.0);
    ck_assert_int_eq(graph_node(out, out->outputs[1].value)->op, OP_size);
    ck_assert_int_eq(graph_node(out, out->outputs[2].value)->op, OP_size);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* ---- casts: from → over → to; kept counts the casts left ---- */

static const struct cast_case {
    enum dtype from, over, to;
    uint32_t kept;
} cast_cases[] = {
    {BF16, F32, BF16, 0},     {F16, F32, F16, 0},    {F32, BF16, F32, 2},
    {F32, F16, F32, 2},       {F16, BF16, F16, 2},   {BF16, F16, BF16, 2},
    {F32, F64, F32, 0},       {BF16, F32, F64, 1},   {F16, F32, BF16, 1},
    {F32, F64, F16, 1},       {F8E4M3, F16, F32, 1}, {F8E5M2, BF16, F8E5M2, 0},
    {F32, F16, BF16, 2},      {I32, I64, I32, 0},    {I64, I32, I64, 2},
    {I32, F32, I32, 2},       {I32, F64, I32, 0},    {U8, F16, U8, 0},
    {BOOL, F32, BOOL, 0},     {I64, F64, I64, 2},    {F32, I32, F32, 2},
    {F8E4M3, F8E5M2, F32, 2}, {I64, U8, I64, 2},
};

START_TEST(casts_that_round_stay)
{
    const struct cast_case *c = &cast_cases[_i];
    struct graph *g = graph_create("casts");
    value v = graph_cast(g, graph_cast(g, input(g, "x", c->from), c->over), c->to);
    graph_output(g, "y", v);
    struct graph *out = simplify(g);
    ck_assert_msg(count_ops(out, OP_cast) == c->kept, "%s>%s>%s: %u casts",
                  dtype_info[c->from].name, dtype_info[c->over].name, dtype_info[c->to].name,
                  (unsigned)count_ops(out, OP_cast));
    ck_assert_int_eq(graph_node(out, out->outputs[0].value)->dtype, c->to);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* A saturating cast turns e5m2's infinity into its largest value, even from e5m2 itself. */
START_TEST(saturating_casts_stay)
{
    struct graph *g = graph_create("saturate");
    value x = input(g, "x", F8E5M2);
    value wide = graph_cast(g, x, F32);
    struct attr attrs[] = {attr_dtype("dtype", F8E5M2), attr_bool("saturate", true)};
    graph_output(g, "y", graph_add(g, OP_cast, &wide, 1, attrs, 2));
    graph_output(g, "z", graph_add(g, OP_cast, &x, 1, attrs, 2));
    struct graph *out = simplify(g);
    for (uint32_t i = 0; i < 2; i++) {
        const struct node *n = graph_node(out, out->outputs[i].value);
        ck_assert_int_eq(n->op, OP_cast);
        ck_assert(node_bool(n, "saturate"));
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* ---- arithmetic with a number ---- */

static const struct number_case {
    enum op op;
    enum dtype x, number; /* DTYPE_NONE: weak */
    double v;
    bool is_first, drops;
} number_cases[] = {
    {OP_mul, F16, DTYPE_NONE, 1.0, false, true}, {OP_mul, F32, F32, 1.0, true, true},
    {OP_mul, I32, I32, 1.0, false, true},        {OP_div, BF16, DTYPE_NONE, 1.0, false, true},
    {OP_div, I32, I32, 1.0, false, false},       {OP_mul, F16, F32, 1.0, false, false},
    {OP_sub, F32, F32, 0.0, false, true},        {OP_sub, F32, F32, -0.0, false, false},
    {OP_add, F32, F32, 0.0, false, false},       {OP_add, F32, F32, -0.0, false, true},
    {OP_add, F32, F32, -0.0, true, true},        {OP_add, F32, I32, -0.0, false, false},
    {OP_mul, F32, F32, 0.0, false, false},       {OP_sub, F32, F32, 0.0, true, false},
    {OP_div, F32, F32, 1.0, true, false},        {OP_pow, F32, F32, 1.0, false, false},
    {OP_mul, F32, F32, -1.0, false, false},      {OP_mul, F32, I32, 1.0, false, true},
};

START_TEST(only_exact_identities)
{
    const struct number_case *c = &number_cases[_i];
    struct graph *g = graph_create("number");
    value x = input(g, "x", c->x), k = constant(g, c->v, c->number);
    graph_output(g, "y", c->is_first ? graph_op2(g, c->op, k, x) : graph_op2(g, c->op, x, k));
    struct graph *out = simplify(g);
    enum op found = graph_node(out, out->outputs[0].value)->op;
    ck_assert_msg((found == OP_input) == c->drops, "%s %s %g", op_info[c->op].name,
                  dtype_info[c->x].name, c->v);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* x - x, x*0 and x/x are not numbers for every x. */
START_TEST(no_other_algebra)
{
    struct graph *g = graph_create("algebra");
    value x = input(g, "x", F32);
    graph_output(g, "a", graph_op2(g, OP_sub, x, x));
    graph_output(g, "b", graph_op2(g, OP_div, x, x));
    graph_output(g, "c", graph_op1(g, OP_neg, graph_op1(g, OP_neg, x)));
    struct graph *out = simplify(g);
    ck_assert_uint_eq(out->n_nodes, g->n_nodes);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(multiplying_by_one_keeps_a_broadcast)
{
    struct graph *g = graph_create("broadcast");
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){1, 3}, 2);
    struct shape wide = {.rank = 2, .dims = {dim_of(2), dim_of(3)}};
    value ones = graph_expand(g, graph_constant(g, 1.0, F32), &wide);
    value y = graph_op2(g, OP_mul, x, ones);
    graph_output(g, "y", y);
    struct graph *out = simplify(g);
    ck_assert_int_eq(graph_node(out, out->outputs[0].value)->op, OP_mul);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* ---- views ---- */

START_TEST(views_that_change_nothing)
{
    struct graph *g = graph_create("views");
    uint8_t n = graph_symbol(g, "n");
    struct shape shape = {.rank = 2, .dims = {dim_symbol(n), dim_of(6)}};
    struct shape split = {.rank = 3, .dims = {dim_symbol(n), dim_of(2), dim_of(3)}};
    value x = graph_leaf_shape(g, OP_input, "x", F32, &shape);
    struct attr same = attr_dims("shape", &shape);
    struct attr infer =
        attr_dims("shape", &(struct shape){.rank = 2, .dims = {dim_of(-1), dim_of(6)}});
    value to_three = graph_reshape(g, x, &split);
    graph_output(g, "a", graph_add(g, OP_reshape, &x, 1, &same, 1));
    graph_output(g, "b", graph_add(g, OP_reshape, &to_three, 1, &infer, 1));
    graph_output(g, "c", graph_add(g, OP_expand, &x, 1, &same, 1));
    graph_output(g, "d", graph_add(g, OP_slice, &x, 1, NULL, 0));
    graph_output(g, "e", graph_transpose(g, graph_transpose(g, x, NULL, 0), NULL, 0));
    graph_output(g, "f", graph_transpose(g, x, (int64_t[]){0, -1}, 2));
    struct graph *out = simplify(g);
    ck_assert_uint_eq(out->n_nodes, 2);
    for (uint32_t i = 0; i < out->n_outputs; i++) {
        ck_assert_int_eq(graph_node(out, out->outputs[i].value)->op, OP_input);
    }
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(transposes_compose)
{
    struct graph *g = graph_create("views");
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){2, 3, 4}, 3);
    value t = graph_transpose(g, x, (int64_t[]){1, 2, 0}, 3);
    graph_output(g, "y", graph_transpose(g, t, (int64_t[]){1, 2, 0}, 3));
    graph_output(g, "z", graph_transpose(g, x, (int64_t[]){0, 2, 1}, 3));
    struct graph *out = simplify(g);
    const struct node *y = graph_node(out, out->outputs[0].value);
    ck_assert_uint_eq(count_ops(out, OP_transpose), 2);
    ck_assert(shape_equal(&y->shape, &graph_node(g, g->outputs[0].value)->shape));
    ck_assert_int_eq(graph_node(out, y->operands[0])->op, OP_input);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* ---- sharing ---- */

START_TEST(equal_nodes_are_shared)
{
    struct graph *g = graph_create("share");
    value x = input(g, "x", F32);
    value a = graph_op1(g, OP_exp, graph_op2(g, OP_add, x, graph_constant(g, 2.0, F32)));
    value b = graph_op1(g, OP_exp, graph_op2(g, OP_add, x, graph_constant(g, 2.0, F32)));
    graph_op1(g, OP_log, b); /* dead */
    graph_output(g, "y", graph_op2(g, OP_mul, a, b));
    graph_output(g, "zero", graph_op2(g, OP_add, x, graph_constant(g, 0.0, F32)));
    graph_output(g, "minus", graph_op2(g, OP_mul, x, graph_constant(g, -0.0, F32)));
    graph_output(g, "weak", graph_op2(g, OP_mul, x, graph_number(g, 2.0)));
    struct graph *out = simplify(g);
    ck_assert_uint_eq(count_ops(out, OP_exp), 1);
    ck_assert_uint_eq(count_ops(out, OP_log), 0);
    ck_assert_uint_eq(count_ops(out, OP_constant), 4); /* 2, 0, -0 and the weak 2 */
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(random_ops_tags_and_islands_are_not_shared)
{
    struct graph *g = graph_create("apart");
    value seed = graph_leaf(g, OP_input, "seed", I64, NULL, 0);
    value x = input(g, "x", F32);
    value s = graph_leaf(g, OP_state, "s", F32, NULL, 0),
          t = graph_leaf(g, OP_state, "t", F32, NULL, 0);
    graph_output(g, "d0", graph_op2(g, OP_dropout, x, seed));
    graph_output(g, "d1", graph_op2(g, OP_dropout, x, seed));
    graph_output(g, "s", graph_op1(g, OP_exp, graph_op2(g, OP_scale_loss, x, s)));
    graph_output(g, "t", graph_op1(g, OP_exp, graph_op2(g, OP_scale_loss, x, t)));
    graph_output(g, "plain", graph_op1(g, OP_exp, x));
    g->origin_island = 3;
    graph_output(g, "island", graph_op1(g, OP_exp, x));
    struct graph *out = simplify(g);
    ck_assert_uint_eq(count_ops(out, OP_dropout), 2);
    ck_assert_uint_eq(count_ops(out, OP_exp), 4);
    ck_assert(graph_node(out, out->outputs[2].value)->scale != 0);
    ck_assert(graph_node(out, out->outputs[2].value)->scale !=
              graph_node(out, out->outputs[3].value)->scale);
    ck_assert_uint_eq(graph_node(out, out->outputs[5].value)->island, 3);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* What is left is a fixed point, and leaves stay though nothing reads them. */
START_TEST(again_changes_nothing)
{
    struct graph *g = graph_create("again");
    value x = input(g, "x", BF16);
    input(g, "unused", F32);
    value y =
        graph_op2(g, OP_mul, graph_cast(g, graph_cast(g, x, F32), BF16), graph_number(g, 1.0));
    graph_output(g, "y", graph_op1(g, OP_exp, y));
    for (uint32_t i = 0; i < 300; i++) { /* past the first size of the table of shared nodes */
        char name[8];
        snprintf(name, sizeof name, "k%u", (unsigned)i);
        graph_output(g, name, graph_op2(g, OP_mul, x, graph_number(g, (double)(i % 250) + 2.0)));
    }
    struct graph *once = simplify(g);
    struct graph *twice = simplify(once);
    ck_assert_uint_eq(once->n_nodes, 1 + 2 + 1 + 2 * 250);
    ck_assert_uint_eq(twice->n_nodes, once->n_nodes);
    ck_assert_uint_ne(graph_find(once, "unused").id, 0);
    graph_destroy(twice);
    graph_destroy(once);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, constants_fold_as_kernels_compute, 0, ARRAY_LEN(fold_cases));
    tcase_add_loop_test(tc, casts_of_constants_fold, 0, ARRAY_LEN(cast_folds));
    tcase_add_test(tc, static_sizes_are_numbers);
    tcase_add_loop_test(tc, casts_that_round_stay, 0, ARRAY_LEN(cast_cases));
    tcase_add_test(tc, saturating_casts_stay);
    tcase_add_loop_test(tc, only_exact_identities, 0, ARRAY_LEN(number_cases));
    tcase_add_test(tc, no_other_algebra);
    tcase_add_test(tc, multiplying_by_one_keeps_a_broadcast);
    tcase_add_test(tc, views_that_change_nothing);
    tcase_add_test(tc, transposes_compose);
    tcase_add_test(tc, equal_nodes_are_shared);
    tcase_add_test(tc, random_ops_tags_and_islands_are_not_shared);
    tcase_add_test(tc, again_changes_nothing);
}

int main(void)
{
    return run_suite("simplify", fill);
}
