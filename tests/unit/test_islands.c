/* islands: which nodes are marked, what the note says, and when a region grows: only where nothing
 * else reads the rounded value and nobody asked for the rounding. */
#include "ir/verify.h"
#include "passes/pass.h"
#include "passes/policy.h"

#include "tests/suite.h"

#include <string.h>

static const int64_t square[2] = {8, 8};

static value named1(struct graph *g, const char *name, enum op op, value a)
{
    g->origin_name = name;
    value v = graph_op1(g, op, a);
    g->origin_name = NULL;
    return v;
}

static value named2(struct graph *g, const char *name, enum op op, value a, value b)
{
    g->origin_name = name;
    value v = graph_op2(g, op, a, b);
    g->origin_name = NULL;
    return v;
}

/* What every pass must leave. */
static void verify(const struct graph *g)
{
    struct error e = {0};
    ck_assert_msg(graph_verify(g, &e) == ATOLL_OK, "%s", e.text);
}

/* autocast, then islands; destroys g. */
static struct graph *run(struct graph *g, const char *policy, struct notes *notes)
{
    struct pass_options o = {.policy = policy_builtin(policy)};
    struct graph *cast = graph_like(g), *out = graph_like(g);
    ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
    ck_assert_msg(autocast_pass(g, cast, &o, NULL) == ATOLL_OK, "%s", cast->error.text);
    ck_assert_msg(islands_pass(cast, out, &o, notes) == ATOLL_OK, "%s", out->error.text);
    verify(out);
    graph_destroy(cast);
    graph_destroy(g);
    return out;
}

/* The last node of that name that is not a cast. */
static const struct node *find(const struct graph *g, const char *name)
{
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) {
        const struct node *n = &g->nodes[i];
        if (n->op != OP_cast && n->name != NULL && strcmp(n->name, name) == 0) {
            return n;
        }
    }
    ck_abort_msg("no node %s", name);
    return NULL;
}

static uint32_t count_casts(const struct graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == OP_cast;
    }
    return n;
}

static bool says(const struct notes *notes, const char *node, const char *part)
{
    for (uint32_t i = 0; i < notes->n; i++) {
        if (strcmp(notes->items[i].pass, "islands") == 0 &&
            strcmp(notes->items[i].node, node) == 0 && strstr(notes->items[i].text, part) != NULL) {
            return true;
        }
    }
    return false;
}

/* Two islands between three matmuls: exp and its sum, then a softmax. */
static struct graph *two_islands(void)
{
    struct graph *g = graph_create("two");
    value x = graph_leaf(g, OP_input, "x", F32, square, 2);
    value w = graph_leaf(g, OP_param, "w", F32, square, 2);
    value scaled = named2(g, "scaled", OP_mul, x, graph_number(g, 2.0));
    value h = named2(g, "h", OP_linear, scaled, w);
    value e = named1(g, "e", OP_exp, h);
    g->origin_name = "s";
    value s = graph_reduce(g, OP_sum, e, (int64_t[]){-1}, 1, true);
    value p = named2(g, "p", OP_div, e, s);
    value h2 = named2(g, "h2", OP_linear, p, w);
    value soft = named1(g, "soft", OP_softmax, named1(g, "act", OP_relu, h2));
    graph_output(g, "y", named2(g, "y", OP_linear, soft, w));
    return g;
}

START_TEST(regions_are_marked)
{
    const char *const policies[] = {"bf16", "fp16", "fp16@torch-cuda"};
    struct notes notes = {0};
    struct graph *out = run(two_islands(), policies[_i], &notes);
    ck_assert_uint_eq(find(out, "e")->island, 1);
    ck_assert_uint_eq(find(out, "s")->island, 1);
    ck_assert_uint_eq(find(out, "p")->island, 1);
    ck_assert_uint_eq(find(out, "soft")->island, 2);
    const char *const outside[] = {"x", "w", "scaled", "h", "h2", "act", "y"};
    for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
        ck_assert_uint_eq(find(out, outside[i])->island, 0);
    }
    ck_assert(says(&notes, "e", "island 1: f32 for 3 nodes (e=exp, s=sum, p=div)"));
    ck_assert(says(&notes, "e", "exp: e^x leaves f16's range"));
    ck_assert(says(&notes, "e", "casts in 1, low values read directly 0, casts out 1"));
    ck_assert(says(&notes, "soft", "casts in 0, low values read directly 1, casts out 1"));
    arena_free(&notes.arena);
    graph_destroy(out);
}
END_TEST

START_TEST(fp32_and_the_cpu_list_have_none)
{
    const char *const policies[] = {"fp32", "bf16@torch-cpu"};
    struct notes notes = {0};
    struct graph *out = run(two_islands(), policies[_i], &notes);
    for (uint32_t i = 1; i < out->n_nodes; i++) {
        ck_assert_uint_eq(out->nodes[i].island, 0);
    }
    ck_assert_uint_eq(notes.n, 0);
    arena_free(&notes.arena);
    graph_destroy(out);
}
END_TEST

/* linear → layer_norm (f32 weights) → act → exp, with the ways in which act's value is read. */
enum readers { ONLY_EXP, EXP_AND_SUM, NO_ACT, ALSO_LINEAR, ALSO_OUTPUT, RESIDUAL, ASKED };

static struct graph *norm_chain(enum readers readers)
{
    struct graph *g = graph_create("chain");
    value x = graph_leaf(g, OP_input, "x", F32, square, 2);
    value w = graph_leaf(g, OP_param, "w", F32, square, 2);
    value gain = graph_leaf(g, OP_param, "gain", F32, square, 1);
    value h = named2(g, "h", OP_linear, x, w);
    value v = named2(g, "norm", OP_layer_norm, h, gain);
    if (readers == ASKED) {
        g->origin_name = "asked";
        v = graph_cast(g, v, BF16);
        g->origin_name = NULL;
    }
    if (readers == RESIDUAL) {
        v = named2(g, "act", OP_add, v, h);
    } else if (readers != NO_ACT) {
        v = named2(g, "half", OP_mul, v, graph_number(g, 0.5));
        v = named1(g, "act", OP_gelu, v);
    }
    value e = named1(g, "e", OP_exp, v);
    graph_output(g, "e", named2(g, "y", OP_linear, e, w));
    if (readers == EXP_AND_SUM) {
        g->origin_name = "s";
        graph_output(g, "s", graph_reduce(g, OP_sum, v, NULL, 0, false));
    }
    if (readers == ALSO_LINEAR) {
        graph_output(g, "z", named2(g, "z", OP_linear, v, w));
    }
    if (readers == ALSO_OUTPUT) {
        graph_output(g, "act", v);
    }
    return g;
}

static const struct grow_case {
    enum readers readers;
    bool grows;
} grow_cases[] = {
    {ONLY_EXP, true},     {EXP_AND_SUM, true},  {NO_ACT, true},
    {ALSO_LINEAR, false}, {ALSO_OUTPUT, false}, {RESIDUAL, false},
};

START_TEST(regions_grow)
{
    const struct grow_case *c = &grow_cases[_i];
    struct notes notes = {0};
    struct graph *out = run(norm_chain(c->readers), "bf16", &notes);
    const struct node *norm = find(out, "norm"), *e = find(out, "e");
    ck_assert_int_eq(e->dtype, F32);
    if (c->grows) {
        ck_assert_uint_eq(norm->island, e->island);
        ck_assert_uint_eq(count_casts(out), 3); /* x, w, e */
        ck_assert(says(&notes, "norm", "is left out"));
        ck_assert(c->readers == NO_ACT || says(&notes, "act", "gelu grown into the island"));
        ck_assert(says(&notes, "norm", "layer_norm: the variance cancels"));
    } else {
        ck_assert_uint_ne(norm->island, e->island);
        ck_assert_int_eq(find(out, "act")->dtype, BF16);
        ck_assert(!says(&notes, "act", "grown"));
    }
    arena_free(&notes.arena);
    graph_destroy(out);
}
END_TEST

/* A cast that a person wrote stays, and PyTorch's behaviours are not grown. */
START_TEST(what_was_asked_for_stays)
{
    struct graph *out = run(norm_chain(ASKED), "fp16", NULL);
    ck_assert_int_eq(find(out, "act")->dtype, BF16);
    graph_destroy(out);
    out = run(norm_chain(ONLY_EXP), "bf16@torch-cpu", NULL);
    ck_assert_int_eq(find(out, "act")->dtype, BF16);
    graph_destroy(out);
}
END_TEST

START_TEST(node_lines_are_named_and_kept)
{
    static const char text[] = "base bf16\nnode \"act\" bf16\nnode \"body\" f32\n";
    struct arena a = {0};
    struct policy p;
    ck_assert_int_eq(policy_load(&a, text, sizeof text - 1, "p", NULL, &p, NULL), ATOLL_OK);
    struct graph *g = norm_chain(ONLY_EXP), *cast = graph_like(g), *out = graph_like(g);
    value w = graph_find(g, "w");
    graph_output(g, "body", named2(g, "body", OP_linear, named2(g, "before", OP_linear, w, w), w));
    struct pass_options o = {.policy = &p};
    struct notes notes = {0};
    ck_assert_int_eq(autocast_pass(g, cast, &o, NULL), ATOLL_OK);
    ck_assert_int_eq(islands_pass(cast, out, &o, &notes), ATOLL_OK);
    ck_assert_int_eq(find(out, "act")->dtype, BF16);
    ck_assert_uint_ne(find(out, "body")->island, 0);
    ck_assert(says(&notes, "body", "a node line of the policy asks for f32"));
    arena_free(&notes.arena);
    graph_destroy(out);
    graph_destroy(cast);
    graph_destroy(g);
    arena_free(&a);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, regions_are_marked, 0, 3);
    tcase_add_loop_test(tc, fp32_and_the_cpu_list_have_none, 0, 2);
    tcase_add_loop_test(tc, regions_grow, 0, ARRAY_LEN(grow_cases));
    tcase_add_test(tc, what_was_asked_for_stays);
    tcase_add_test(tc, node_lines_are_named_and_kept);
}

int main(void)
{
    return run_suite("islands", fill);
}
