/* eager_run on a whole training step of a small MLP, written as primitives, against the same step
 * in double; and what the runner promises about outputs, updates, probes and errors. */
#include "runtime/eager.h"
#include "tests/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, IN = 7, HIDDEN = 6, OUT = 3 };

struct world {
    struct tensor leaves[64]; /* by node id */
    int seen;
};

static struct tensor *lend(void *context, value v)
{
    struct world *w = context;
    return w->leaves[v.id].dtype == DTYPE_NONE ? NULL : &w->leaves[v.id];
}

static void count_seen(void *context, value v, const struct tensor *t)
{
    struct world *w = context;
    ck_assert(v.id != 0 && (t->data != NULL || tensor_count(t) == 0));
    w->seen++;
}

static void give(struct world *w, value v, int64_t rows, int64_t columns, float *data)
{
    w->leaves[v.id] =
        (struct tensor){.dtype = F32, .rank = 2, .shape = {rows, columns}, .data = data};
}

static void fill(float *x, int n, int seed)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)((i * 37 + seed * 11) % 19 - 9) / 8.0f;
    }
}

/* h = relu(x w1^T); y = h w2^T; loss = sum((y - t)^2) / rows; w -= lr * gradient */
static struct graph *mlp_step(value leaves[4])
{
    struct graph *g = graph_create("step");
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){ROWS, IN}, 2);
    value t = graph_leaf(g, OP_input, "t", F32, (int64_t[]){ROWS, OUT}, 2);
    value w1 = graph_leaf(g, OP_param, "w1", F32, (int64_t[]){HIDDEN, IN}, 2);
    value w2 = graph_leaf(g, OP_param, "w2", F32, (int64_t[]){OUT, HIDDEN}, 2);
    value z = graph_op2(g, OP_linear, x, w1);
    value h = graph_op1(g, OP_relu, z);
    value d = graph_op2(g, OP_sub, graph_op2(g, OP_linear, h, w2), t);
    value loss = graph_reduce(g, OP_sum, graph_op2(g, OP_mul, d, d), NULL, 0, true);
    value dy = graph_op2(g, OP_mul, d, graph_number(g, 2.0));
    value dw2 = graph_matmul(g, dy, h, true, false);
    value dh = graph_matmul(g, dy, w2, false, false);
    value dz = graph_op3(g, OP_where, graph_op2(g, OP_gt, z, graph_number(g, 0.0)), dh,
                         graph_number(g, 0.0));
    value dw1 = graph_matmul(g, dz, x, true, false);
    value lr = graph_number(g, 0.01);
    graph_output(g, "loss", loss);
    graph_output(g, "old_w1", w1);
    graph_update(g, w1, graph_op2(g, OP_sub, w1, graph_op2(g, OP_mul, dw1, lr)));
    graph_update(g, w2, graph_op2(g, OP_sub, w2, graph_op2(g, OP_mul, dw2, lr)));
    ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
    memcpy(leaves, (value[]){x, t, w1, w2}, 4 * sizeof(value));
    return g;
}

static double reference_step(const float *x, const float *t, const float *w1, const float *w2,
                             double *n1, double *n2)
{
    double loss = 0.0, z[ROWS][HIDDEN], dy[ROWS][OUT];
    for (int i = 0; i < HIDDEN * IN; i++) {
        n1[i] = (double)w1[i];
    }
    for (int i = 0; i < OUT * HIDDEN; i++) {
        n2[i] = (double)w2[i];
    }
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < HIDDEN; j++) {
            z[r][j] = 0.0;
            for (int k = 0; k < IN; k++) {
                z[r][j] += (double)x[r * IN + k] * (double)w1[j * IN + k];
            }
        }
        for (int j = 0; j < OUT; j++) {
            double y = 0.0;
            for (int k = 0; k < HIDDEN; k++) {
                y += fmax(z[r][k], 0.0) * (double)w2[j * HIDDEN + k];
            }
            dy[r][j] = 2.0 * (y - (double)t[r * OUT + j]);
            loss += dy[r][j] * dy[r][j] / 4.0;
        }
        for (int j = 0; j < HIDDEN; j++) {
            double dh = 0.0;
            for (int k = 0; k < OUT; k++) {
                dh += dy[r][k] * (double)w2[k * HIDDEN + j];
                n2[k * HIDDEN + j] -= 0.01 * dy[r][k] * fmax(z[r][j], 0.0);
            }
            for (int k = 0; k < IN && z[r][j] > 0.0; k++) {
                n1[j * IN + k] -= 0.01 * dh * (double)x[r * IN + k];
            }
        }
    }
    return loss;
}

START_TEST(mlp_step_matches_double)
{
    float x[ROWS * IN], t[ROWS * OUT], w1[HIDDEN * IN], w2[OUT * HIDDEN], old[HIDDEN * IN], loss;
    double n1[HIDDEN * IN], n2[OUT * HIDDEN];
    value leaves[4];
    struct world w = {.seen = 0};
    struct error e = {0};
    struct graph *g = mlp_step(leaves);
    fill(x, ROWS * IN, 1);
    fill(t, ROWS * OUT, 2);
    fill(w1, HIDDEN * IN, 3);
    fill(w2, OUT * HIDDEN, 4);
    give(&w, leaves[0], ROWS, IN, x);
    give(&w, leaves[1], ROWS, OUT, t);
    give(&w, leaves[2], HIDDEN, IN, w1);
    give(&w, leaves[3], OUT, HIDDEN, w2);
    double want = reference_step(x, t, w1, w2, n1, n2);
    float before = w1[0];
    struct tensor outputs[2] = {
        {.dtype = F32, .rank = 2, .shape = {1, 1}, .data = &loss},
        {.dtype = F32, .rank = 2, .shape = {HIDDEN, IN}, .data = old},
    };
    struct eager_run run = {.graph = g,
                            .leaf = lend,
                            .probe = count_seen,
                            .context = &w,
                            .outputs = outputs,
                            .cache = contraction_cache_create()};
    ck_assert_msg(eager_run(&run, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_double_eq_tol((double)loss, want, 1e-5 * want);
    ck_assert(old[0] == before);
    for (int i = 0; i < HIDDEN * IN; i++) {
        ck_assert_double_eq_tol((double)w1[i], n1[i], 1e-5);
    }
    for (int i = 0; i < OUT * HIDDEN; i++) {
        ck_assert_double_eq_tol((double)w2[i], n2[i], 1e-5);
    }
    ck_assert_int_eq(w.seen, (int)g->n_nodes - 1 - 4);
    ck_assert(run.peak_bytes > 0 && run.peak_bytes < 4096);
    contraction_cache_destroy(run.cache);
    graph_destroy(g);
}
END_TEST

/* Two states that trade places must both see the value before the step. */
START_TEST(updates_are_simultaneous)
{
    struct graph *g = graph_create("swap");
    float a[2] = {1, 2}, b[2] = {3, 4};
    struct world w = {.seen = 0};
    struct error e = {0};
    value va = graph_leaf(g, OP_state, "a", F32, (int64_t[]){2}, 1);
    value vb = graph_leaf(g, OP_state, "b", F32, (int64_t[]){2}, 1);
    graph_update(g, va, vb);
    graph_update(g, vb, va);
    w.leaves[va.id] = (struct tensor){.dtype = F32, .rank = 1, .shape = {2}, .data = a};
    w.leaves[vb.id] = (struct tensor){.dtype = F32, .rank = 1, .shape = {2}, .data = b};
    struct eager_run run = {.graph = g, .leaf = lend, .context = &w};
    ck_assert_int_eq(eager_run(&run, &e), ATOLL_OK);
    ck_assert(a[0] == 3 && a[1] == 4 && b[0] == 1 && b[1] == 2);
    graph_destroy(g);
}
END_TEST

START_TEST(wrong_leaf_is_an_error)
{
    struct graph *g = graph_create("wrong");
    float a[3] = {0}, out[2];
    struct world w = {.seen = 0};
    struct error e = {0};
    value va = graph_leaf(g, OP_input, "a", F32, (int64_t[]){2}, 1);
    graph_output(g, "y", graph_op1(g, OP_neg, va));
    struct tensor output = {.dtype = F32, .rank = 1, .shape = {2}, .data = out};
    struct eager_run run = {.graph = g, .leaf = lend, .context = &w, .outputs = &output};
    ck_assert_int_eq(eager_run(&run, &e), ATOLL_SHAPE); /* none lent */
    ck_assert(strstr(e.text, "'a'") != NULL);
    w.leaves[va.id] = (struct tensor){.dtype = F32, .rank = 1, .shape = {3}, .data = a};
    e.code = ATOLL_OK;
    ck_assert_int_eq(eager_run(&run, &e), ATOLL_SHAPE); /* wrong size */
    graph_destroy(g);
}
END_TEST

START_TEST(composites_are_refused)
{
    struct graph *g = graph_create("composite");
    float a[2] = {1, 2}, out[2];
    struct world w = {.seen = 0};
    struct error e = {0};
    value va = graph_leaf(g, OP_input, "a", F32, (int64_t[]){2}, 1);
    graph_output(g, "y", graph_op1(g, OP_softmax, va));
    w.leaves[va.id] = (struct tensor){.dtype = F32, .rank = 1, .shape = {2}, .data = a};
    struct tensor output = {.dtype = F32, .rank = 1, .shape = {2}, .data = out};
    struct eager_run run = {.graph = g, .leaf = lend, .context = &w, .outputs = &output};
    ck_assert_int_eq(eager_run(&run, &e), ATOLL_USAGE);
    ck_assert(strstr(e.text, "decompose") != NULL);
    graph_destroy(g);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, mlp_step_matches_double);
    tcase_add_test(tc, updates_are_simultaneous);
    tcase_add_test(tc, wrong_leaf_is_an_error);
    tcase_add_test(tc, composites_are_refused);
}

int main(void)
{
    return run_suite("eager_run", add_tests);
}
