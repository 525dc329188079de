/* Every differentiable op: the gradient that autodiff builds, evaluated by the f64 oracle, against
 * central differences of the oracle; then the points where a formula alone would go wrong.
 * Invariant: an op with a gradient has a row in gradient_cases.h, or a check fails.
 * `test_gradients --table` prints the worst error of each op. */
#include "gradient_cases.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/decompose.h"
#include "passes/gradients.h"
#include "passes/pass.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 7, MAX_ELEMENTS = 64 };

struct leaf {
    char letter;
    value v; /* of the graph as built */
    char name[8];
    double low, high, data[MAX_ELEMENTS];
    int64_t count;
};

struct problem {
    struct leaf leaves[MAX_OPERANDS + 1]; /* operands, then the weights of the loss */
    uint32_t n_operands, n_leaves;
    enum dtype float_dtype; /* of the f and x leaves */
    struct graph *built, *ready;
};

static uint64_t random_state = 1;

static double draw(double low, double high)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return low + (high - low) * ((double)(random_state >> 11) / 9007199254740992.0);
}

static void parse_leaf(struct problem *p, const char **at)
{
    struct leaf *l = &p->leaves[p->n_leaves];
    const char *s = *at;
    char *end;
    struct shape shape = {0};
    l->letter = *s++;
    l->count = 1;
    while (*s >= '0' && *s <= '9') {
        int64_t size = strtoll(s, &end, 10);
        shape.dims[shape.rank++] = dim_of(size);
        l->count *= size;
        s = *end == ',' ? end + 1 : end;
    }
    l->high = 1.0;
    if (*s == '@') {
        l->low = strtod(s + 1, &end);
        l->high = strtod(end + 1, &end);
        s = end;
    }
    *at = *s == ' ' ? s + 1 : s;
    const char *kinds = "fxibs";
    enum dtype types[] = {p->float_dtype, p->float_dtype, I64, BOOL, I64};
    snprintf(l->name, sizeof l->name, "%c%u", l->letter, p->n_leaves);
    l->v = graph_leaf_shape(p->built, l->letter == 'f' ? OP_param : OP_input, l->name,
                            types[strchr(kinds, l->letter) - kinds], &shape);
    p->n_leaves++;
}

static void fill(struct leaf *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        double x = draw(l->low, l->letter == 'i' ? l->high + 1.0 : l->high);
        l->data[i] = l->letter == 'i'   ? floor(x)
                     : l->letter == 'b' ? (double)(x > 0.5)
                     : l->letter == 's' ? 1234.0
                                        : x;
    }
}

/* Differentiates and decomposes what is built, and verifies both. */
static void make_ready(struct problem *p, bool verifies)
{
    struct graph *gradients = graph_like(p->built);
    struct error e = {0};
    p->ready = graph_like(p->built);
    status code = autodiff_pass(p->built, gradients, NULL, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", gradients->error.text);
    code = decompose_pass(gradients, p->ready, NULL, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", p->ready->error.text);
    if (verifies) {
        ck_assert_msg(graph_verify(gradients, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(graph_verify(p->ready, &e) == ATOLL_OK, "%s", e.text);
    }
    ck_assert_msg(primitive_verify(p->ready, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(gradients);
}

/* A model as text: its parameters are differentiated, integers are drawn from 0 to 2. */
static void parse_model(struct problem *p, const char *text)
{
    struct error e = {0};
    p->built = graph_parse(text, strlen(text), "model", &e);
    ck_assert_msg(p->built != NULL, "%s", e.text);
    for (uint32_t i = 1; i < p->built->n_nodes; i++) {
        const struct node *n = &p->built->nodes[i];
        if (n->op < OP_input || n->op > OP_scalar) {
            continue;
        }
        bool is_float = dtype_is_float(n->dtype);
        struct leaf *l = &p->leaves[p->n_leaves++];
        *l = (struct leaf){.v = {i}, .low = is_float ? -1.0 : 0.0, .high = is_float ? 1.0 : 2.0};
        l->letter = n->op == OP_param ? 'f' : n->op == OP_state ? 's' : is_float ? 'x' : 'i';
        snprintf(l->name, sizeof l->name, "%s", n->name);
        l->count = shape_count_value(&n->shape, NULL);
    }
    p->n_operands = p->n_leaves;
    make_ready(p, true);
}

/* loss = sum(op(...) r), r random, or ones */
static void build(struct problem *p, enum op op, const char *operands, const struct attr *attrs,
                  bool is_weighted)
{
    p->built = graph_create("gradient");
    for (const char *at = operands; *at != '\0';) {
        parse_leaf(p, &at);
    }
    p->n_operands = p->n_leaves;
    value in[MAX_OPERANDS];
    for (uint32_t i = 0; i < p->n_operands; i++) {
        in[i] = p->leaves[i].v;
    }
    uint32_t n_attrs = 0;
    while (n_attrs < 4 && attrs[n_attrs].name != NULL) {
        n_attrs++;
    }
    value y = graph_add(p->built, op, in, p->n_operands, attrs, n_attrs);
    ck_assert_msg(y.id != 0, "%s", p->built->error.text);
    y = graph_cast(p->built, y, F32);
    if (is_weighted) {
        struct leaf *r = &p->leaves[p->n_leaves++];
        struct shape shape = graph_node(p->built, y)->shape;
        *r = (struct leaf){.letter = 'x', .name = "r", .low = -1.0, .high = 1.0, .count = 1};
        r->v = graph_leaf_shape(p->built, OP_input, "r", F32, &shape);
        r->count = shape_count_value(&shape, NULL);
        y = graph_op2(p->built, OP_mul, y, r->v);
    }
    value loss = graph_node(p->built, y)->shape.rank == 0
                     ? y
                     : graph_reduce(p->built, OP_sum, y, NULL, 0, false);
    graph_output(p->built, "loss", loss);
    make_ready(p, op != OP_scale_loss); /* the verifier wants a user's gradient unscaled */
}

static void finish(struct problem *p)
{
    graph_destroy(p->built);
    graph_destroy(p->ready);
}

/* Output `at` of the ready graph. */
static void run(struct problem *p, uint32_t at, bool rounds, double *out)
{
    struct eval e = {0};
    struct error error = {0};
    int64_t symbols[MAX_SYMBOLS];
    memset(symbols, 0xff, sizeof symbols);
    eval_begin(&e, p->ready, symbols);
    e.rounds = rounds;
    for (uint32_t i = 0; i < p->n_leaves; i++) {
        value v = graph_find(p->ready, p->leaves[i].name);
        e.values[v.id] = p->leaves[i].data;
    }
    status code = eval_run(&e, &error);
    ck_assert_msg(code == ATOLL_OK, "%s", error.text);
    value v = p->ready->outputs[at].value;
    memcpy(out, e.values[v.id], (size_t)eval_count(&e, v) * sizeof *out);
    eval_end(&e);
}

/* The gradient of operand i is output 1 + (number of f operands before it). */
static uint32_t gradient_output(const struct problem *p, uint32_t i)
{
    uint32_t at = 1;
    for (uint32_t k = 0; k < i; k++) {
        at += p->leaves[k].letter == 'f';
    }
    return at;
}

static double difference(struct problem *p, struct leaf *l, int64_t i)
{
    double x = l->data[i], h = 1e-3, f[4];
    for (int k = 0; k < 4; k++) { /* fourth order: the error is h^4 */
        l->data[i] = x + h * (double[]){-2, -1, 1, 2}[k];
        run(p, 0, false, &f[k]);
    }
    l->data[i] = x;
    return (f[0] - 8.0 * f[1] + 8.0 * f[2] - f[3]) / (12.0 * h);
}

/* Over every element of every parameter, for two draws of the leaves. */
static double worst_of(struct problem *p)
{
    double worst = 0.0, got[MAX_ELEMENTS];
    for (int seed = 1; seed <= 2; seed++) {
        random_state = (uint64_t)seed * 77U;
        for (uint32_t i = 0; i < p->n_leaves; i++) {
            fill(&p->leaves[i]);
        }
        for (uint32_t i = 0; i < p->n_operands; i++) {
            struct leaf *l = &p->leaves[i];
            if (l->letter != 'f') {
                continue;
            }
            run(p, gradient_output(p, i), false, got);
            for (int64_t k = 0; k < l->count; k++) {
                double want = difference(p, l, k);
                double error = fabs(got[k] - want) / fmax(1.0, fabs(want));
                worst = error > worst || isnan(error) ? error : worst;
            }
        }
    }
    return worst;
}

static double worst_error(const struct gradient_case *c)
{
    struct problem p = {.float_dtype = F32};
    build(&p, c->op, c->operands, c->attrs, true);
    double worst = worst_of(&p);
    finish(&p);
    return worst;
}

START_TEST(gradient_matches_differences)
{
    const struct gradient_case *c = &gradient_cases[_i];
    double worst = worst_error(c);
    ck_assert_msg(worst <= 1e-7, "%s(%s): worst relative error %g", op_info[c->op].name,
                  c->operands, worst);
}
END_TEST

/* Values used twice, broadcasts on both sides, and rules behind one another. */
static const char *const models[] = {
    "graph @fan(%a: f32[3] param, %b: f32[2,3] param) {\n"
    "  %s = sin(%a)\n  %m = mul(%s, %a)\n  %k = mul(%b, %b)\n  %t = add(%m, %k)\n"
    "  %u = mul(%t, %s)\n  %loss = sum(%u)\n  return loss=%loss\n}\n",
    "graph @attention(%x: f32[2,3,4] input, %y: i64[2,3] input, %wq: f32[4,4] param,\n"
    "                 %wk: f32[4,4] param, %wv: f32[4,4] param, %g: f32[4] param) {\n"
    "  %n = rms_norm(%x, %g)\n  %q = linear(%n, %wq)\n  %k = linear(%n, %wk)\n"
    "  %v = linear(%n, %wv)\n  %s = matmul(%q, %k) {transpose_b=true}\n"
    "  %p = softmax(%s)\n  %o = matmul(%p, %v)\n  %r = add(%o, %n)\n"
    "  %loss = cross_entropy(%r, %y)\n  return loss=%loss\n}\n",
    "graph @words(%i: i64[2,4] input, %e: f32[3,4] param, %w: f32[4] param, %b: f32[4] param,\n"
    "             %seed: i64[] state) {\n"
    "  %v = embedding(%e, %i)\n  %n = layer_norm(%v, %w, %b)\n"
    "  %d = dropout(%n, %seed) {p=0.25}\n  %t = transpose(%d) {perm=[0,2,1]}\n"
    "  %c = concat(%t, %d) {axis=2}\n  %h = slice(%c) {axis=2, start=1, stop=7, step=2}\n"
    "  %k = max(%h) {axes=[1]}\n  %a = silu(%k)\n  %l = logsumexp(%a) {axes=[1]}\n"
    "  %loss = mean(%l)\n  return loss=%loss\n}\n",
};

START_TEST(model_matches_differences)
{
    struct problem p = {.float_dtype = F32};
    parse_model(&p, models[_i]);
    double worst = worst_of(&p);
    ck_assert_msg(worst <= 1e-7, "model %d: worst relative error %g", _i, worst);
    finish(&p);
}
END_TEST

/* Low-precision and f64 parameters: each gradient has its parameter's dtype, and rounding it as the
 * executors do leaves it near the exact one. */
START_TEST(gradient_keeps_dtype)
{
    static const enum dtype dtypes[] = {BF16, F16, F64};
    const struct gradient_case *c = &gradient_cases[_i / 3];
    struct problem p = {.float_dtype = dtypes[_i % 3]};
    double exact[MAX_ELEMENTS], got[MAX_ELEMENTS], size = 1.0;
    build(&p, c->op, c->operands, c->attrs, true);
    random_state = 5;
    for (uint32_t i = 0; i < p.n_leaves; i++) {
        fill(&p.leaves[i]);
        for (int64_t k = 0; strchr("fx", p.leaves[i].letter) != NULL && k < p.leaves[i].count;
             k++) {
            char element[8];
            dtype_store(p.float_dtype, element, p.leaves[i].data[k]);
            p.leaves[i].data[k] = dtype_load(p.float_dtype, element);
        }
    }
    for (uint32_t i = 0; i < p.n_operands; i++) {
        if (p.leaves[i].letter != 'f') {
            continue;
        }
        value v = p.ready->outputs[gradient_output(&p, i)].value;
        ck_assert_int_eq(graph_node(p.ready, v)->dtype, p.float_dtype);
        run(&p, gradient_output(&p, i), false, exact);
        run(&p, gradient_output(&p, i), true, got);
        for (int64_t k = 0; k < p.leaves[i].count; k++) {
            size = fmax(size, fabs(exact[k]));
        }
        for (int64_t k = 0; k < p.leaves[i].count; k++) {
            double bound = 8.0 * dtype_info[c->op == OP_cast ? BF16 : p.float_dtype].epsilon;
            bound = fmax(bound, 1e-6); /* r and the loss are f32 */
            ck_assert_msg(fabs(got[k] - exact[k]) <= bound * size,
                          "%s(%s) in %s: gradient %d of operand %u is %g, expected %g",
                          op_info[c->op].name, c->operands, dtype_info[p.float_dtype].name, (int)k,
                          i, got[k], exact[k]);
        }
    }
    finish(&p);
}
END_TEST

START_TEST(empty_keeps_shape)
{
    const struct gradient_case *c = &empty_cases[_i];
    struct problem p = {.float_dtype = F32};
    double got[MAX_ELEMENTS];
    build(&p, c->op, c->operands, c->attrs, true);
    for (uint32_t i = 0; i < p.n_leaves; i++) {
        fill(&p.leaves[i]);
    }
    for (uint32_t i = 0; i < p.n_operands; i++) {
        if (p.leaves[i].letter == 'f') {
            value v = p.ready->outputs[gradient_output(&p, i)].value;
            const struct shape *want = &graph_node(p.built, p.leaves[i].v)->shape;
            ck_assert(shape_equal(&graph_node(p.ready, v)->shape, want));
            run(&p, gradient_output(&p, i), true, got);
        }
    }
    finish(&p);
}
END_TEST

START_TEST(edge_is_known)
{
    const struct edge_case *c = &edge_cases[_i];
    struct problem p = {.float_dtype = F32};
    double got[MAX_ELEMENTS];
    const double *from = c->values, *want = c->expected;
    build(&p, c->op, c->operands, c->attrs, false);
    for (uint32_t i = 0; i < p.n_leaves; i++) {
        memcpy(p.leaves[i].data, from, (size_t)p.leaves[i].count * sizeof *from);
        from += p.leaves[i].count;
    }
    for (uint32_t i = 0; i < p.n_operands; i++) {
        if (p.leaves[i].letter != 'f') {
            continue;
        }
        run(&p, gradient_output(&p, i), false, got);
        for (int64_t k = 0; k < p.leaves[i].count; k++, want++) {
            bool is_same = got[k] == *want || fabs(got[k] - *want) <= 1e-12;
            ck_assert_msg(is_same, "%s(%s): gradient %d of operand %u is %g, expected %g",
                          op_info[c->op].name, c->operands, (int)k, i, got[k], *want);
        }
    }
    finish(&p);
}
END_TEST

START_TEST(every_rule_has_a_case)
{
    for (uint32_t op = 1; op < N_OPS; op++) {
        bool has_gradient = gradient_rule((enum op)op) != NULL ||
                            (op_info[op].kind == COMPOSITE && op != OP_one_hot);
        bool is_tested = false;
        for (size_t i = 0; i < ARRAY_LEN(gradient_cases); i++) {
            is_tested = is_tested || gradient_cases[i].op == (enum op)op;
        }
        ck_assert_msg(!has_gradient || is_tested, "%s has no row in gradient_cases.h",
                      op_info[op].name);
    }
}
END_TEST

START_TEST(refuses_what_it_cannot_differentiate)
{
    struct graph *g = graph_create("g");
    value p = graph_leaf(g, OP_param, "p", F32, (int64_t[]){3}, 1);
    graph_output(g, "loss", p);
    struct graph *out = graph_like(g);
    ck_assert_int_eq(autodiff_pass(g, out, NULL, NULL), ATOLL_SHAPE);
    ck_assert_msg(strstr(out->error.text, "expected a float scalar") != NULL, "%s",
                  out->error.text);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(unused_parameter_gets_zeros)
{
    struct graph *g = graph_create("g");
    value p = graph_leaf(g, OP_param, "p", BF16, (int64_t[]){3}, 1);
    graph_leaf(g, OP_param, "idle", F32, (int64_t[]){2}, 1);
    graph_output(g, "loss", graph_reduce(g, OP_sum, p, NULL, 0, false));
    struct graph *out = graph_like(g);
    struct notes notes = {0};
    ck_assert_int_eq(autodiff_pass(g, out, NULL, &notes), ATOLL_OK);
    ck_assert_str_eq(out->outputs[1].name, "grad:p");
    ck_assert_int_eq(graph_node(out, out->outputs[1].value)->dtype, BF16);
    ck_assert_str_eq(out->outputs[2].name, "grad:idle");
    ck_assert_uint_eq(notes.n, 1);
    arena_free(&notes.arena);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(print_table)
{
    printf("%-22s %-40s %s\n", "op", "operands", "worst relative error");
    for (size_t i = 0; i < ARRAY_LEN(gradient_cases); i++) {
        const struct gradient_case *c = &gradient_cases[i];
        printf("%-22s %-40s %.2e\n", op_info[c->op].name, c->operands, worst_error(c));
    }
}
END_TEST

static void fill_table(TCase *t)
{
    tcase_add_test(t, print_table);
}

static void fill_case(TCase *t)
{
    tcase_add_loop_test(t, gradient_matches_differences, 0, (int)ARRAY_LEN(gradient_cases));
    tcase_add_loop_test(t, model_matches_differences, 0, (int)ARRAY_LEN(models));
    tcase_add_loop_test(t, gradient_keeps_dtype, 0, 3 * (int)ARRAY_LEN(gradient_cases));
    tcase_add_loop_test(t, empty_keeps_shape, 0, (int)ARRAY_LEN(empty_cases));
    tcase_add_loop_test(t, edge_is_known, 0, (int)ARRAY_LEN(edge_cases));
    tcase_add_test(t, every_rule_has_a_case);
    tcase_add_test(t, refuses_what_it_cannot_differentiate);
    tcase_add_test(t, unused_parameter_gets_zeros);
}

int main(int argc, char **argv)
{
    bool is_table = argc > 1 && strcmp(argv[1], "--table") == 0;
    return run_suite("gradients", is_table ? fill_table : fill_case);
}
