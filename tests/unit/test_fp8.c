/* The FP8 pass: which linears it takes and what it says of the others, which product uses what, the
 * lines of a policy file about it, and products written out for targets that lack them. */
#include "tests/suite.h"

#include "tests/fp8_models.h"

#include "ir/verify.h"

#include <stdio.h>
#include <string.h>

struct passed {
    struct graph *g;
    struct notes notes;
};

static void step(struct passed *p, pass_fn *pass, const struct pass_options *o)
{
    struct graph *out = graph_like(p->g);
    struct error e = {0};
    ck_assert_msg(pass(p->g, out, o, &p->notes) == ATOLL_OK, "%s", out->error.text);
    ck_assert_msg(graph_verify(out, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(p->g);
    p->g = out;
}

/* Through the passes up to fp8, with a training step or without. */
static void run(struct passed *p, const char *text, const struct policy *policy, bool trains)
{
    struct train_options train = train_options_default();
    struct pass_options o = {.policy = policy, .train = trains ? &train : NULL};
    *p = (struct passed){.g = fp8_model(text)};
    step(p, autocast_pass, &o);
    step(p, islands_pass, &o);
    if (trains) {
        step(p, train_step_pass, &o);
    }
    step(p, fp8_pass, &o);
}

static void passed_free(struct passed *p)
{
    graph_destroy(p->g);
    arena_free(&p->notes.arena);
}

static const char *note_of(const struct passed *p, const char *node)
{
    for (uint32_t i = 0; i < p->notes.n; i++) {
        const struct note *n = &p->notes.items[i];
        if (strcmp(n->pass, "fp8") == 0 && strcmp(n->node, node) == 0) {
            return n->text;
        }
    }
    return "";
}

static uint32_t count_products(const struct graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == OP_scaled_matmul;
    }
    return n;
}

/* ---- who is taken ---- */

static const char odd_sizes[] =
    "graph @odd(%x: f32[32,16] input, %w1: f32[16,16] param, %w2: f32[24,16] param, %w3: "
    "f32[48,24] param, %w4: f32[32,48] param, %w5: f32[16,32] param, %e: f32[9,16] param, %i: "
    "i64[32] input, %t: f32[32,16] input) {\n"
    "%a = linear(%x, %w1) %r = embedding(%e, %i) %s = add(%a, %r) %k = rms_norm(%s) %b = "
    "linear(%k, %w2) %c = linear(%b, %w3) %d = linear(%c, %w4) %f = linear(%d, %w5) %loss = "
    "mse_loss(%f, %t) return loss=%loss }";

static const struct {
    const char *policy_text, *node, *says;
} choices[] = {
    {"", "a", "first linear"},
    {"", "b", "multiples of 16"},
    {"", "c", "multiples of 16"},
    {"", "d", "tensorwise: forward f8e4m3 x f8e4m3 (one scale a tensor, one scale a tensor)"},
    {"", "f", "last linear"},
    {"", "k", "rms_norm stays out of FP8"},
    {"", "r", "embedding stays out of FP8"},
    {"", "loss", "mse_loss stays out of FP8: the loss"},
    {"fp8 \"a\" on", "a", "tensorwise: forward"},
    {"fp8 \"?\" on\nfp8 \"d\" off", "d", "an fp8 line of the policy says so"},
    {"fp8 \"?\" on\nfp8 \"d\" off", "f", "tensorwise: forward"},
    {"node \"d\" f32", "d", "the policy runs it in f32"},
    {"fp8_set least 48", "d", "smaller than the policy's fp8_least"},
};

START_TEST(each_choice_has_its_reason)
{
    struct arena a = {0};
    struct error e = {0};
    struct policy policy;
    struct passed p;
    const char *text = arena_text(&a, "base fp8-tensorwise\n%s\n", choices[_i].policy_text);
    ck_assert_msg(policy_load(&a, text, strlen(text), "my.policy", NULL, &policy, &e) == ATOLL_OK,
                  "%s", e.text);
    run(&p, odd_sizes, &policy, false);
    ck_assert_msg(strstr(note_of(&p, choices[_i].node), choices[_i].says) != NULL,
                  "%%%s: '%s', expected '%s'", choices[_i].node, note_of(&p, choices[_i].node),
                  choices[_i].says);
    passed_free(&p);
    arena_free(&a);
}
END_TEST

/* What a layer says of its three products, by recipe. */
static const struct {
    const char *policy, *says[3];
} products[] = {
    {"fp8-tensorwise",
     {"forward f8e4m3 x f8e4m3", "input gradient f8e5m2 x f8e4m3",
      "weight gradient f8e5m2 x f8e4m3"}},
    {"fp8-rowwise",
     {"forward f8e4m3 x f8e4m3 (one scale a row, one scale a row)",
      "input gradient f8e4m3 x f8e4m3 (one scale a row, one scale a row)",
      "weight gradient f8e4m3 x f8e4m3 (one scale a row, one scale a row)"}},
    {"fp8-rowwise-gw-hp",
     {"forward f8e4m3 x f8e4m3 (one scale a row, one scale a row)",
      "input gradient f8e4m3 x f8e4m3 (one scale a row, one scale a tensor)",
      "weight gradient bf16: the recipe keeps it so"}},
    {"fp8-delayed",
     {"forward f8e4m3 x f8e4m3", "input gradient f8e5m2 x f8e4m3",
      "weight gradient f8e5m2 x f8e4m3"}},
    {"fp8-blockwise",
     {"(one scale for 1x128, one scale for 128x128); input",
      "(one scale for 1x128, one scale for 128x128); weight",
      "weight gradient f8e4m3 x f8e4m3 (one scale for 1x128, one scale for 1x128)"}},
    {"fp8-mxfp8",
     {"forward f8e4m3 x f8e4m3 (one E8M0 scale for 1x32", "input gradient f8e4m3 x f8e4m3",
      "weight gradient f8e4m3 x f8e4m3"}},
};

START_TEST(each_product_is_told)
{
    struct passed p;
    run(&p, fp8_mlp, policy_builtin(products[_i].policy), true);
    const char *note = note_of(&p, "h2");
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(strstr(note, products[_i].says[i]) != NULL, "'%s', expected '%s'", note,
                      products[_i].says[i]);
    }
    passed_free(&p);
}
END_TEST

/* Rows that a weight gradient sums over: a number is filled up, a symbol has to be a known
 * multiple. */
static const struct {
    const char *rows, *policy, *says;
    uint32_t products;
} rows_of[] = {
    {"n", "fp8-blockwise",
     "weight gradient bf16: a size is a symbol, not a known multiple of 128 (one scale for 1x128); "
     "hint: --shape gives it a number, or write it 128*n",
     2},
    {"n", "fp8-mxfp8", "not a known multiple of 32 (one E8M0 scale for 1x32); hint: --shape", 2},
    {"64*n", "fp8-blockwise", "weight gradient bf16: a size is a symbol", 2},
    {"64*n", "fp8-mxfp8", "weight gradient f8e4m3 x f8e4m3", 3},
    {"256*n", "fp8-blockwise", "weight gradient f8e4m3 x f8e4m3", 3},
    {"n", "fp8-rowwise", "weight gradient f8e4m3 x f8e4m3", 3},
    {"100", "fp8-blockwise", "its 100 rows filled up with zeros to a multiple of 128", 3},
    {"100", "fp8-mxfp8", "its 100 rows filled up with zeros to a multiple of 32", 3},
    {"100", "fp8-delayed", "its 100 rows filled up with zeros to a multiple of 16", 3},
    {"100", "fp8-rowwise-gw-hp", "weight gradient bf16: the recipe keeps it so", 2},
};

START_TEST(rows_of_weight_gradients)
{
    char text[400];
    struct passed p;
    snprintf(text, sizeof text,
             "graph @g(%%x: f32[%s,128] input, %%w1: f32[128,128] param, %%w2: f32[128,128] param, "
             "%%w3: f32[16,128] param) { %%a = linear(%%x, %%w1) %%b = linear(%%a, %%w2) %%c = "
             "linear(%%b, %%w3) %%loss = sum(%%c) return loss=%%loss }",
             rows_of[_i].rows);
    run(&p, text, policy_builtin(rows_of[_i].policy), true);
    ck_assert_msg(strstr(note_of(&p, "b"), rows_of[_i].says) != NULL, "'%s', expected '%s'",
                  note_of(&p, "b"), rows_of[_i].says);
    ck_assert_uint_eq(count_products(p.g), rows_of[_i].products);
    passed_free(&p);
}
END_TEST

/* Weights that two linears share, and rows of rank 3. */
START_TEST(attention_has_all_its_products)
{
    struct passed p;
    run(&p, fp8_attention, policy_builtin("fp8-tensorwise"), true);
    ck_assert_uint_eq(count_products(p.g), 6 * 3);
    passed_free(&p);
}
END_TEST

/* ---- delayed scaling ---- */

START_TEST(only_training_moves_the_histories)
{
    struct passed p;
    run(&p, fp8_mlp, policy_builtin("fp8-delayed"), false);
    ck_assert_uint_ne(graph_find(p.g, "fp8.h2.x.scale").id, 0);
    ck_assert_uint_eq(graph_find(p.g, "fp8.h2.x.amax").id, 0);
    ck_assert_uint_eq(p.g->n_updates, 0);
    passed_free(&p);
    run(&p, fp8_mlp, policy_builtin("fp8-delayed"), true);
    value history = graph_find(p.g, "fp8.h2.dy.amax");
    ck_assert_uint_ne(history.id, 0);
    ck_assert(dim_is(graph_node(p.g, history)->shape.dims[0], 1024));
    passed_free(&p);
}
END_TEST

/* ---- fusion ---- */

/* The group of the first node of this op and name; 0: none. */
static uint32_t group_of(const struct compiled *c, const struct partition *p, enum op op,
                         const char *name)
{
    for (uint32_t i = 1; i < c->primitive->n_nodes; i++) {
        const struct node *n = &c->primitive->nodes[i];
        if (n->op == op && n->name != NULL && strcmp(n->name, name) == 0) {
            return p->group_of[i];
        }
    }
    return 0;
}

/* Scales lie along the rows of what makes a tensor, or over parts of them: its gelu, the amax, the
 * scale and the quantisation are one kernel. Under delayed scaling the amax is not waited for. */
static const char *const fused[] = {"fp8-tensorwise", "fp8-rowwise",   "fp8-rowwise-gw-hp",
                                    "fp8-delayed",    "fp8-blockwise", "fp8-mxfp8"};

START_TEST(quantize_joins_its_producer)
{
    struct train_options train = train_options_default();
    struct compile_options o = {
        .policy = policy_builtin(fused[_i]), .train = &train, .is_eager = true};
    struct compiled c;
    struct partition p;
    struct error e = {0};
    struct graph *g = fp8_model(fp8_mlp);
    ck_assert_msg(compile_graph(g, &o, &c, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(fuse(c.primitive, NULL, &p, NULL, &e), ATOLL_OK);
    uint32_t producer = group_of(&c, &p, OP_erf, "a1");
    ck_assert_uint_ne(producer, 0);
    ck_assert_uint_eq(group_of(&c, &p, OP_max, "h2.x.amax"), producer);
    ck_assert_uint_eq(group_of(&c, &p, OP_quantize, "h2.x.f8e4m3"), producer);
    uint32_t backward = group_of(&c, &p, OP_where, "a2.grad");
    ck_assert_uint_eq(group_of(&c, &p, OP_quantize, _i % 3 == 0 ? "h2.dy.f8e5m2" : "h2.dy.f8e4m3"),
                      backward);
    partition_free(&p);
    compiled_free(&c);
    graph_destroy(g);
}
END_TEST

/* ---- targets ---- */

static const struct {
    const char *policy, *archs[2];
    uint32_t kept; /* scaled products */
    const char *says;
} targets[] = {
    {"fp8-tensorwise", {"sm_90a"}, 6, ""},
    {"fp8-tensorwise", {"sm_89"}, 6, ""},
    {"fp8-tensorwise", {"sm_80"}, 0, "for sm_80: f8 needs sm_89"},
    {"fp8-tensorwise", {"sm_90a", "sm_80"}, 0, "for sm_80"},
    {"fp8-rowwise", {"sm_90"}, 6, ""},
    {"fp8-rowwise", {"sm_100"}, 0, "for sm_100: scales a row are there on sm_90 only"},
    {"fp8-rowwise-gw-hp", {"sm_90"}, 4, ""},
    {"fp8-blockwise", {"sm_90"}, 6, ""},
    {"fp8-blockwise", {"sm_100"}, 0, "for sm_100: scales of blocks are there on sm_90 only"},
    {"fp8-blockwise", {"sm_90", "sm_89"}, 0, "for sm_89: scales of blocks"},
    {"fp8-mxfp8", {"sm_100"}, 6, ""},
    {"fp8-mxfp8", {"sm_120"}, 6, ""},
    {"fp8-mxfp8", {"sm_90"}, 0, "for sm_90: E8M0 scales are there from sm_100 on"},
};

START_TEST(products_that_a_target_lacks_are_written_out)
{
    struct passed p;
    struct pass_options o = {.cuda_archs = targets[_i].archs,
                             .n_cuda_archs = targets[_i].archs[1] != NULL ? 2 : 1};
    bool is_told = targets[_i].says[0] == '\0';
    run(&p, fp8_mlp, policy_builtin(targets[_i].policy), true);
    step(&p, fp8_paths_pass, &o);
    ck_assert_uint_eq(count_products(p.g), targets[_i].kept);
    for (uint32_t i = 0; i < p.notes.n; i++) {
        is_told = is_told || strstr(p.notes.items[i].text, targets[_i].says) != NULL;
    }
    ck_assert_msg(is_told, "no note says '%s'", targets[_i].says);
    passed_free(&p);
}
END_TEST

/* A sum over a symbol need not be a multiple of 16 on the device. */
START_TEST(a_symbol_is_written_out_too)
{
    static const char text[] =
        "graph @g(%x: f32[n,32] input, %w1: f32[32,32] param, %w2: f32[32,32] param, %w3: "
        "f32[16,32] param) { %a = linear(%x, %w1) %b = linear(%a, %w2) %c = linear(%b, %w3) %loss "
        "= sum(%c) return loss=%loss }";
    static const char *const archs[] = {"sm_90"};
    struct passed p;
    struct pass_options o = {.cuda_archs = archs, .n_cuda_archs = 1};
    run(&p, text, policy_builtin("fp8-tensorwise"), true);
    step(&p, fp8_paths_pass, &o);
    ck_assert_uint_eq(count_products(p.g), 2);
    passed_free(&p);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, each_choice_has_its_reason, 0, (int)ARRAY_LEN(choices));
    tcase_add_loop_test(tc, each_product_is_told, 0, (int)ARRAY_LEN(products));
    tcase_add_loop_test(tc, rows_of_weight_gradients, 0, (int)ARRAY_LEN(rows_of));
    tcase_add_test(tc, attention_has_all_its_products);
    tcase_add_test(tc, only_training_moves_the_histories);
    tcase_add_loop_test(tc, quantize_joins_its_producer, 0, (int)ARRAY_LEN(fused));
    tcase_add_loop_test(tc, products_that_a_target_lacks_are_written_out, 0,
                        (int)ARRAY_LEN(targets));
    tcase_add_test(tc, a_symbol_is_written_out_too);
}

int main(void)
{
    return run_suite("fp8", fill);
}
