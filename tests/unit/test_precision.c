/* The passes about precision and those behind them, in pipeline order, over every op, policy and
 * mix of operand dtypes, with gradients where the result is a float: each graph on the way passes
 * the verifier. */
#include "ir/verify.h"
#include "passes/pass.h"
#include "passes/policy.h"

#include "tests/one_node.h"
#include "tests/suite.h"

#include <string.h>

static const char *const policies[] = {
    "fp32",          "bf16", "fp16", "bf16@torch-cuda", "bf16@torch-cpu", "fp16@torch-cuda",
    "fp16@torch-cpu"};

/* The op summed to a scalar "loss"; parameters are its float operands. */
static struct graph *loss_of(enum op op, enum dtype a, enum dtype b, bool *is_float)
{
    struct graph *g = graph_create("op");
    g->origin_name = "node";
    value y = one_node(g, OP_param, op, a, b);
    ck_assert_msg(y.id != 0, "%s", g->error.text);
    *is_float = dtype_is_float(graph_node(g, y)->dtype);
    if (*is_float && graph_node(g, y)->shape.rank > 0) {
        g->origin_name = "total";
        y = graph_reduce(g, OP_sum, y, NULL, 0, false);
    }
    graph_output(g, "loss", y);
    return g;
}

/* Runs the chain; destroys g. Returns the passes run. */
static uint32_t run_chain(struct graph *g, const char *policy, bool is_float, const char *op)
{
    pass_fn *const chain[] = {simplify_pass, autocast_pass,  islands_pass,
                              autodiff_pass, decompose_pass, simplify_pass};
    struct pass_options o = {.policy = policy_builtin(policy)};
    uint32_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        if (chain[i] == autodiff_pass && !is_float) {
            continue;
        }
        struct graph *out = graph_like(g);
        struct error e = {0};
        status code = chain[i](g, out, &o, NULL);
        bool is_banned = code != ATOLL_OK && strstr(out->error.text, "is banned") != NULL;
        ck_assert_msg(code == ATOLL_OK || is_banned, "%s, %s: %s", op, policy, out->error.text);
        ck_assert_msg(is_banned || graph_verify(out, &e) == ATOLL_OK, "%s, %s, pass %u: %s", op,
                      policy, (unsigned)i, e.text);
        graph_destroy(g);
        g = out;
        if (is_banned) {
            break;
        }
        n++;
    }
    graph_destroy(g);
    return n;
}

START_TEST(every_graph_on_the_way_is_valid)
{
    const struct policy *p = policy_builtin(policies[_i]);
    enum dtype low = p->low == DTYPE_NONE ? BF16 : p->low;
    const enum dtype mixes[][2] = {{F32, F32}, {low, low}, {low, F32}, {F32, low}, {F64, F64}};
    uint32_t n = 0;
    for (int op = 1; op < N_OPS; op++) {
        if (!is_float_op((enum op)op) || is_step_op((enum op)op)) {
            continue;
        }
        for (size_t mix = 0; mix < ARRAY_LEN(mixes); mix++) {
            bool is_float;
            struct graph *g = loss_of((enum op)op, mixes[mix][0], mixes[mix][1], &is_float);
            n += run_chain(g, policies[_i], is_float, op_info[op].name);
        }
    }
    ck_assert_uint_ge(n, 1500);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, every_graph_on_the_way_is_valid, 0, ARRAY_LEN(policies));
}

int main(void)
{
    return run_suite("precision", fill);
}
