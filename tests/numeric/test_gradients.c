/* Every differentiable op: the gradient that autodiff builds, evaluated by the f64 oracle, against
 * central differences of the oracle; then the points where a formula alone would go wrong.
 * Invariant: an op with a gradient has a row in gradient_cases.h, or a check fails.
 * `test_gradients --table` prints the worst error of each op. */
#include "gradient_cases.h"
#include "ir/eval.h"
#include "passes/gradients.h"
#include "passes/pass.h"

#include "tests/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 4, MAX_ELEMENTS = 64 };

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
    enum dtype types[] = {F32, F32, I64, BOOL, I64};
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
    struct graph *gradients = graph_like(p->built);
    p->ready = graph_like(p->built);
    status code = autodiff_pass(p->built, gradients, NULL, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", gradients->error.text);
    code = decompose_pass(gradients, p->ready, NULL, NULL);
    ck_assert_msg(code == ATOLL_OK, "%s", p->ready->error.text);
    graph_destroy(gradients);
}

static void finish(struct problem *p)
{
    graph_destroy(p->built);
    graph_destroy(p->ready);
}

/* Output `at` of the ready graph. */
static void run(struct problem *p, uint32_t at, double *out)
{
    struct eval e = {0};
    struct error error = {0};
    int64_t symbols[MAX_SYMBOLS];
    memset(symbols, 0xff, sizeof symbols);
    eval_begin(&e, p->ready, symbols);
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
        run(p, 0, &f[k]);
    }
    l->data[i] = x;
    return (f[0] - 8.0 * f[1] + 8.0 * f[2] - f[3]) / (12.0 * h);
}

static double worst_error(const struct gradient_case *c)
{
    struct problem p = {0};
    double worst = 0.0, got[MAX_ELEMENTS];
    build(&p, c->op, c->operands, c->attrs, true);
    for (int seed = 1; seed <= 2; seed++) {
        random_state = (uint64_t)seed * 77U;
        for (uint32_t i = 0; i < p.n_leaves; i++) {
            fill(&p.leaves[i]);
        }
        for (uint32_t i = 0; i < p.n_operands; i++) {
            struct leaf *l = &p.leaves[i];
            if (l->letter != 'f') {
                continue;
            }
            run(&p, gradient_output(&p, i), got);
            for (int64_t k = 0; k < l->count; k++) {
                double want = difference(&p, l, k);
                double error = fabs(got[k] - want) / fmax(1.0, fabs(want));
                worst = error > worst || isnan(error) ? error : worst;
            }
        }
    }
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

START_TEST(edge_is_known)
{
    const struct edge_case *c = &edge_cases[_i];
    struct problem p = {0};
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
        run(&p, gradient_output(&p, i), got);
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
