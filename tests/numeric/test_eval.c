/* Oracle and definitions against PyTorch in f64: each case of fixtures/composites.txt is built,
 * decomposed and evaluated, and must agree to 1e-12; so must the eager run, to 1e-11. Below the
 * table: random numbers against the published vectors of Philox, index ops, and the emulation of
 * roundings. */
#include "ir/eval.h"
#include "passes/decompose.h"
#include "runtime/eager.h"

#include "tests/suite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LINE = 1 << 16, MAX_OPERANDS = 8, MAX_VALUES = 64 };

struct given {
    uint32_t rank;
    int64_t dims[MAX_RANK];
    double values[MAX_VALUES];
    uint32_t n;
};

struct fixture_case {
    enum op op;
    uint32_t line, n_operands, n_attrs;
    struct attr attrs[MAX_ATTRS];
    int64_t ints[MAX_ATTRS][MAX_RANK];
    char words[MAX_ATTRS][2][32];
    enum dtype dtypes[MAX_OPERANDS];
    struct given operands[MAX_OPERANDS], result;
};

/* ---- reading ---- */

static const char *word(char **at)
{
    const char *w = strtok_r(NULL, " \n", at);
    ck_assert_msg(w != NULL, "the fixture ends within a line");
    return w;
}

static void read_tensor(char **at, struct given *t)
{
    t->rank = (uint32_t)strtoul(word(at), NULL, 10);
    for (uint32_t i = 0; i < t->rank; i++) {
        t->dims[i] = strtoll(word(at), NULL, 10);
    }
    ck_assert_str_eq(word(at), ":");
    t->n = (uint32_t)strtoul(word(at), NULL, 10);
    ck_assert_uint_le(t->n, MAX_VALUES);
    for (uint32_t i = 0; i < t->n; i++) {
        t->values[i] = strtod(word(at), NULL);
    }
}

static void read_attr(char **at, struct fixture_case *c)
{
    uint32_t i = c->n_attrs++;
    char *name = c->words[i][0], *text = c->words[i][1];
    snprintf(name, sizeof c->words[i][0], "%s", word(at));
    const char *kind = word(at);
    if (strcmp(kind, "float") == 0) {
        c->attrs[i] = attr_float(name, strtod(word(at), NULL));
    } else if (strcmp(kind, "text") == 0) {
        snprintf(text, sizeof c->words[i][1], "%s", word(at));
        c->attrs[i] = attr_text(name, text);
    } else if (strcmp(kind, "ints") == 0) {
        uint32_t n = (uint32_t)strtoul(word(at), NULL, 10);
        for (uint32_t k = 0; k < n; k++) {
            c->ints[i][k] = strtoll(word(at), NULL, 10);
        }
        c->attrs[i] = attr_ints(name, c->ints[i], n);
    } else {
        int64_t number = strtoll(word(at), NULL, 10);
        c->attrs[i] =
            strcmp(kind, "bool") == 0 ? attr_bool(name, number != 0) : attr_int(name, number);
    }
}

/* ---- running ---- */

static bool is_close(double a, double b)
{
    if (a != a || b != b) {
        return a != a && b != b;
    }
    return a == b || fabs(a - b) <= 1e-12 * fabs(b) + 1e-15;
}

struct lent {
    const struct graph *g;
    struct tensor tensors[MAX_OPERANDS];
    uint64_t storage[MAX_OPERANDS][MAX_VALUES];
};

static struct tensor *lend(void *context, value v)
{
    struct lent *l = context;
    return &l->tensors[graph_node(l->g, v)->name[1] - '0'];
}

/* The eager executor on the same primitive graph: its own f64 functions, another order of sums. */
static void check_eager(const struct fixture_case *c, const struct graph *g)
{
    struct lent l = {.g = g};
    for (uint32_t i = 0; i < c->n_operands; i++) {
        const struct given *x = &c->operands[i];
        l.tensors[i] =
            (struct tensor){.dtype = c->dtypes[i], .rank = x->rank, .data = l.storage[i]};
        memcpy(l.tensors[i].shape, x->dims, sizeof x->dims);
        for (uint32_t k = 0; k < x->n; k++) {
            dtype_store(c->dtypes[i],
                        (char *)l.storage[i] + (size_t)k * dtype_info[c->dtypes[i]].bytes,
                        x->values[k]);
        }
    }
    const struct node *y = graph_node(g, g->outputs[0].value);
    uint64_t storage[MAX_VALUES] = {0};
    struct tensor out = {.dtype = y->dtype, .rank = y->shape.rank, .data = storage};
    for (uint32_t i = 0; i < out.rank; i++) {
        out.shape[i] = y->shape.dims[i].factor;
    }
    struct error error = {0};
    struct eager_run run = {.graph = g, .leaf = lend, .context = &l, .outputs = &out};
    run.cache = contraction_cache_create();
    ck_assert_msg(eager_run(&run, &error) == ATOLL_OK, "line %u: %s", (unsigned)c->line,
                  error.text);
    contraction_cache_destroy(run.cache);
    double room = y->dtype == F64 ? 1e-11 : 1e-6;
    for (uint32_t i = 0; i < c->result.n; i++) {
        double found = dtype_load(y->dtype, (char *)storage + i * dtype_info[y->dtype].bytes);
        double expected = c->result.values[i];
        bool is_right =
            is_close(found, expected) || fabs(found - expected) <= room * fabs(expected) + 1e-13;
        ck_assert_msg(is_right,
                      "fixture line %u: %s run eagerly, element %u: %.17g, PyTorch has %.17g",
                      (unsigned)c->line, op_info[c->op].name, (unsigned)i, found, expected);
    }
}

static void check_case(const struct fixture_case *c)
{
    struct graph *g = graph_create("case");
    value x[MAX_OPERANDS];
    for (uint32_t i = 0; i < c->n_operands; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", (unsigned)i);
        x[i] =
            graph_leaf(g, OP_input, name, c->dtypes[i], c->operands[i].dims, c->operands[i].rank);
    }
    graph_output(g, "y", graph_add(g, c->op, x, c->n_operands, c->attrs, c->n_attrs));
    struct graph *out = graph_like(g);
    decompose_pass(g, out, &(struct pass_options){0}, NULL);
    ck_assert_msg(out->error.code == ATOLL_OK && g->error.code == ATOLL_OK, "line %u: %s%s",
                  (unsigned)c->line, g->error.text, out->error.text);
    struct eval e;
    struct error error = {0};
    eval_begin(&e, out, NULL);
    e.rounds = c->op == OP_scaler_scale; /* f32 overflow is part of its definition */
    for (uint32_t i = 0; i < c->n_operands; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", (unsigned)i);
        e.values[graph_find(out, name).id] =
            arena_copy(&e.arena, c->operands[i].values, sizeof c->operands[i].values);
    }
    ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "%s", error.text);
    value y = out->outputs[0].value;
    ck_assert_int_eq(eval_count(&e, y), c->result.n);
    for (uint32_t i = 0; i < c->result.n; i++) {
        double found = e.values[y.id][i], expected = c->result.values[i];
        ck_assert_msg(is_close(found, expected),
                      "fixture line %u: %s, element %u: found %.17g, PyTorch has %.17g",
                      (unsigned)c->line, op_info[c->op].name, (unsigned)i, found, expected);
    }
    eval_end(&e);
    check_eager(c, out);
    graph_destroy(out);
    graph_destroy(g);
}

START_TEST(definitions_agree_with_pytorch)
{
    const char *source = getenv("ATOLL_SOURCE");
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/composites.txt", source == NULL ? "." : source);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot open %s; set ATOLL_SOURCE to the repository", path);
    static char line[MAX_LINE];
    static struct fixture_case c;
    uint32_t n_lines = 0, n_cases = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *at, *first = strtok_r(line, " \n", &at);
        n_lines++;
        if (first == NULL) {
            continue;
        }
        if (strcmp(first, "case") == 0) {
            const char *name = word(&at);
            c = (struct fixture_case){.op = op_named(name, strlen(name)), .line = n_lines};
            ck_assert_msg(c.op != OP_NONE, "no op %s", name);
        } else if (strcmp(first, "attr") == 0) {
            read_attr(&at, &c);
        } else if (strcmp(first, "operand") == 0) {
            const char *name = word(&at);
            c.dtypes[c.n_operands] = dtype_named(name, strlen(name));
            read_tensor(&at, &c.operands[c.n_operands++]);
        } else if (strcmp(first, "result") == 0) {
            read_tensor(&at, &c.result);
        } else {
            check_case(&c);
            n_cases++;
        }
    }
    fclose(file);
    ck_assert_uint_ge(n_cases, 150);
}
END_TEST

/* ---- what the fixture does not hold ---- */

/* Evaluates a primitive graph's first output into values[]; leaf x is given. */
static void evaluate(const struct graph *g, const double *x, bool rounds, double *values)
{
    struct eval e;
    struct error error = {0};
    ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
    eval_begin(&e, g, NULL);
    e.rounds = rounds;
    value leaf = graph_find(g, "x"), y = g->outputs[0].value;
    if (leaf.id != 0) {
        size_t bytes = (size_t)eval_count(&e, leaf) * sizeof *x;
        e.values[leaf.id] = arena_copy(&e.arena, x, bytes);
    }
    ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "%s", error.text);
    memcpy(values, e.values[y.id], (size_t)eval_count(&e, y) * sizeof *values);
    eval_end(&e);
}

/* Counter 0, key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8 (Random123's known answers). */
START_TEST(uniform_is_philox)
{
    static const uint32_t words[] = {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U};
    struct graph *g = graph_create("random");
    struct shape shape = {.rank = 1, .dims = {dim_of(4)}};
    value seed = graph_constant(g, 0.0, I64);
    graph_output(
        g, "y", graph_add(g, OP_uniform, &seed, 1, (struct attr[]){attr_dims("shape", &shape)}, 1));
    double found[4];
    evaluate(g, NULL, false, found);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert(found[i] == (words[i] >> 8) * 0x1p-24);
    }
    graph_destroy(g);
}
END_TEST

START_TEST(take_reads_outside_as_nan_and_counts_back)
{
    struct graph *g = graph_create("take");
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){3}, 1);
    struct shape shape = {.rank = 1, .dims = {dim_of(5)}};
    value i = graph_add(g, OP_iota, NULL, 0, (struct attr[]){attr_dims("shape", &shape)}, 1);
    graph_output(g, "y", graph_op2(g, OP_take, x, graph_op2(g, OP_sub, i, graph_number(g, 1.0))));
    double found[5];
    evaluate(g, (double[]){5.0, 6.0, 7.0}, false, found);
    ck_assert(found[0] == 7.0 && found[1] == 5.0 && found[2] == 6.0 && found[3] == 7.0);
    ck_assert(isnan(found[4]));
    graph_destroy(g);
}
END_TEST

START_TEST(rounds_emulates_storage)
{
    for (int rounds = 0; rounds < 2; rounds++) {
        struct graph *g = graph_create("round");
        value x = graph_leaf(g, OP_input, "x", BF16, (int64_t[]){1}, 1);
        graph_output(g, "y", graph_op2(g, OP_add, x, graph_number(g, 1.0)));
        double found[1];
        evaluate(g, (double[]){256.0}, rounds != 0, found);
        ck_assert(found[0] == (rounds != 0 ? 256.0 : 257.0));
        graph_destroy(g);
    }
}
END_TEST

START_TEST(integers_wrap)
{
    struct graph *g = graph_create("wrap");
    value x = graph_leaf(g, OP_input, "x", I32, (int64_t[]){1}, 1);
    graph_output(g, "y", graph_op2(g, OP_add, x, x));
    double found[1];
    evaluate(g, (double[]){2147483647.0}, false, found);
    ck_assert(found[0] == -2.0);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, definitions_agree_with_pytorch);
    tcase_add_test(tc, uniform_is_philox);
    tcase_add_test(tc, take_reads_outside_as_nan_and_counts_back);
    tcase_add_test(tc, rounds_emulates_storage);
    tcase_add_test(tc, integers_wrap);
}

int main(void)
{
    return run_suite("eval", fill);
}
