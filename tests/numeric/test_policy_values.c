/* Policies move roundings, not meanings: every op under every policy, run eagerly after decompose,
 * stays within a few roundings of the low dtype of its fp32 self over the same leaves. */
#include "passes/pass.h"
#include "passes/policy.h"
#include "runtime/eager.h"

#include "tests/one_node.h"
#include "tests/suite.h"

#include <math.h>
#include <string.h>

enum { MAX_LEAVES = 8, N_CELLS = 32 };

struct leaves {
    struct graph *g;
    struct tensor tensors[MAX_LEAVES];
    uint64_t data[MAX_LEAVES][N_CELLS];
    uint32_t n;
    const char *names[MAX_LEAVES];
};

static struct tensor shaped_like(const struct node *n)
{
    struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
    for (uint32_t k = 0; k < n->shape.rank; k++) {
        t.shape[k] = n->shape.dims[k].factor;
    }
    return t;
}

/* Indices 0..3; floats from 0.1 to 0.9, apart from each other in bf16 too. */
static struct tensor *lend_leaf(void *context, value v)
{
    struct leaves *l = context;
    const struct node *n = graph_node(l->g, v);
    for (uint32_t i = 0; i < l->n; i++) {
        if (strcmp(l->names[i], n->name) == 0) {
            return &l->tensors[i];
        }
    }
    struct tensor *t = &l->tensors[l->n];
    *t = shaped_like(n);
    t->data = l->data[l->n];
    l->names[l->n++] = n->name;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double x = 0.1 + 0.8 * (double)(hash_text(n->name, (uint64_t)i) % 64) / 64.0;
        dtype_store(t->dtype, (char *)t->data + (size_t)i * dtype_info[t->dtype].bytes,
                    dtype_is_float(t->dtype) ? x : (double)(i % 4));
    }
    return t;
}

/* The single output's elements; false where the policy bans the op. */
static bool evaluate(enum op op, const enum dtype mix[2], const char *policy, double *out,
                     uint32_t *n)
{
    pass_fn *const chain[] = {simplify_pass, autocast_pass, islands_pass, decompose_pass,
                              simplify_pass};
    struct pass_options o = {.policy = policy_builtin(policy)};
    struct graph *g = graph_create("op");
    struct error e = {0};
    graph_output(g, "y", one_node(g, OP_input, op, mix[0], mix[1]));
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        struct graph *next = graph_like(g);
        if (chain[i](g, next, &o, NULL) != ATOLL_OK) {
            ck_assert_msg(strstr(next->error.text, "is banned") != NULL, "%s", next->error.text);
            graph_destroy(next);
            graph_destroy(g);
            return false;
        }
        graph_destroy(g);
        g = next;
    }
    uint64_t data[2 * N_CELLS + 64];
    struct leaves l = {.g = g};
    struct tensor y = shaped_like(graph_node(g, g->outputs[0].value));
    y.data = data;
    ck_assert_uint_le(tensor_bytes(&y), sizeof data);
    struct eager_run run = {.graph = g,
                            .symbols = (int64_t[MAX_SYMBOLS]){0},
                            .leaf = lend_leaf,
                            .context = &l,
                            .outputs = &y,
                            .cache = contraction_cache_create()};
    ck_assert_msg(eager_run(&run, &e) == ATOLL_OK, "%s: %s", op_info[op].name, e.text);
    contraction_cache_destroy(run.cache);
    *n = (uint32_t)tensor_count(&y);
    for (uint32_t i = 0; i < *n; i++) {
        out[i] = dtype_load(y.dtype, (char *)y.data + i * dtype_info[y.dtype].bytes);
    }
    graph_destroy(g);
    return true;
}

static const char *const policies[] = {
    "bf16", "fp16", "bf16@torch-cuda", "bf16@torch-cpu", "fp16@torch-cuda", "fp16@torch-cpu"};

START_TEST(values_stay_near_fp32)
{
    const char *policy = policies[_i];
    enum dtype low = policy_builtin(policy)->low;
    const enum dtype mixes[][2] = {{F32, F32}, {low, low}, {low, F32}};
    double reference[4 * N_CELLS], found[4 * N_CELLS];
    uint32_t n_reference, n, n_compared = 0;
    for (int op = 1; op < N_OPS; op++) {
        for (size_t mix = 0; is_float_op((enum op)op) && mix < ARRAY_LEN(mixes); mix++) {
            ck_assert(evaluate((enum op)op, mixes[mix], "fp32", reference, &n_reference));
            if (!evaluate((enum op)op, mixes[mix], policy, found, &n)) {
                continue;
            }
            ck_assert_uint_eq(n, n_reference);
            for (uint32_t i = 0; i < n; i++, n_compared++) {
                double bound = 8 * dtype_info[low].epsilon * (fabs(reference[i]) + 0.25);
                ck_assert_msg(fabs(found[i] - reference[i]) <= bound, "%s, %s, mix %u [%u]: %g, %g",
                              op_info[op].name, policy, (unsigned)mix, (unsigned)i, found[i],
                              reference[i]);
            }
        }
    }
    ck_assert_uint_ge(n_compared, 3000);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, values_stay_near_fp32, 0, ARRAY_LEN(policies));
}

int main(void)
{
    return run_suite("policy_values", fill);
}
