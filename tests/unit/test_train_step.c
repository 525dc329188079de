/* The shape of a training step: under every policy a model with a symbolic batch becomes a verified
 * graph of primitives whose updates cover parameters, optimizer, scaler and seeds; what is refused
 * is named. The numbers are tested in tests/numeric/test_training.c. */
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/decompose.h"
#include "passes/policy.h"
#include "passes/train_step.h"

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

static const char *const model =
    "graph @m(%x: f32[n,6] input, %y: i64[n] input, %seed: i64[] state {init=\"7\"},\n"
    "         %w1: f32[8,6] param {init=\"kaiming\"}, %b1: f32[8] param, %g: f32[8] param,\n"
    "         %w2: f32[3,8] param, %idle: f32[2] param) {\n"
    "  %h = linear(%x, %w1, %b1)\n"
    "  %a = gelu(%h)\n"
    "  %c = rms_norm(%a, %g)\n"
    "  %d = dropout(%c, %seed) {p=0.1}\n"
    "  %z = linear(%d, %w2)\n"
    "  %loss = cross_entropy(%z, %y) {label_smoothing=0.1}\n"
    "  return logits=%z, loss=%loss\n"
    "}\n";

static struct graph *parse(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "test", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

/* Runs a pass and the verifier; destroys its input. */
static struct graph *apply(pass_fn *pass, struct graph *in, const struct pass_options *o,
                           struct notes *notes)
{
    struct error e = {0};
    struct graph *out = graph_like(in);
    status code = pass(in, out, o, notes);
    ck_assert_msg(code == ATOLL_OK, "%s", out->error.text);
    ck_assert_msg(graph_verify(out, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(in);
    return out;
}

static bool has_update(const struct graph *g, const char *leaf)
{
    for (uint32_t i = 0; i < g->n_updates; i++) {
        const char *name = graph_node(g, g->updates[i].leaf)->name;
        if (name != NULL && strcmp(name, leaf) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_output(const struct graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static const struct {
    const char *policy, *optimizer, *schedule;
    bool has_scaler;
    int64_t accumulate;
    double max_norm;
} steps[] = {
    {"fp32", "adamw", NULL, false, 1, 0.0},
    {"fp32", "sgd,momentum=0.9,nesterov", "step,10,0.5", false, 1, 1.0},
    {"bf16", "adamw", "cosine,10", false, 4, 1.0},
    {"fp16", "adam,weight_decay=0.1", "warmup,5+cosine,10", true, 1, 0.0},
    {"fp16", "adamw", "warmup,5", true, 3, 1.0},
    {"fp16@torch-cuda", "sgd,weight_decay=0.1,maximize", NULL, true, 1, 1.0},
    {"bf16@torch-cpu", "adamw", NULL, true, 2, 0.0},
};

START_TEST(step_is_whole)
{
    const struct policy *policy;
    struct error e = {0};
    struct notes notes = {0};
    ck_assert_int_eq(policy_named(steps[_i].policy, &policy, &e), ATOLL_OK);
    struct train_options train = train_options_default();
    status code = train_options_parse(&train, steps[_i].optimizer, steps[_i].schedule, &e);
    ck_assert_msg(code == ATOLL_OK, "%s", e.text);
    train.scaler.is_enabled = steps[_i].has_scaler;
    train.accumulate = steps[_i].accumulate;
    train.max_norm = steps[_i].max_norm;
    struct pass_options o = {.policy = policy, .train = &train};
    struct graph *g = apply(autocast_pass, parse(model), &o, &notes);
    g = apply(train_step_pass, g, &o, &notes);
    g = apply(decompose_pass, g, &o, &notes);
    g = apply(simplify_pass, g, &o, &notes);
    ck_assert_msg(primitive_verify(g, &e) == ATOLL_OK, "%s", e.text);
    bool is_sgd = train.optimizer == OPTIMIZER_SGD;
    ck_assert(has_update(g, "w1") && has_update(g, "b1") && has_update(g, "g"));
    ck_assert(!has_update(g, "idle") && has_update(g, "seed") && has_update(g, "opt.step"));
    ck_assert_int_eq(has_update(g, "opt.v.w2"), !is_sgd);
    ck_assert_int_eq(has_update(g, "opt.momentum.w2"), train.momentum > 0.0);
    ck_assert_int_eq(has_update(g, "scaler.scale"), train.scaler.is_enabled);
    ck_assert_int_eq(has_update(g, "acc.w2"), train.accumulate > 1);
    ck_assert_int_eq(graph_find(g, "max_norm").id != 0, train.max_norm > 0.0);
    static const char *const outputs[] = {"logits",  "loss",  "lr",        "accepted",
                                          "skipped", "scale", "grad_norm", "first_nonfinite"};
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        ck_assert_msg(has_output(g, outputs[i]), "no output %s", outputs[i]);
    }
    const struct node *w1 = graph_node(g, graph_find(g, "w1"));
    ck_assert_str_eq(node_text(w1, "init"), "kaiming");
    bool is_noted = false;
    for (uint32_t i = 0; i < notes.n; i++) {
        is_noted = is_noted || strcmp(notes.items[i].node, "idle") == 0;
    }
    ck_assert(is_noted);
    arena_free(&notes.arena);
    graph_destroy(g);
}
END_TEST

START_TEST(whole_step_is_left_alone)
{
    struct graph *g = parse("graph @s(%p: f32[2] param) {\n"
                            "  %loss = sum(%p)\n"
                            "  %next = sub(%p, 0.1)\n"
                            "  update %p <- %next\n"
                            "  return loss=%loss\n"
                            "}\n");
    struct train_options train = train_options_default();
    struct notes notes = {0};
    uint32_t before = g->n_nodes;
    g = apply(train_step_pass, g, &(struct pass_options){.train = &train}, &notes);
    ck_assert_uint_eq(g->n_nodes, before);
    ck_assert_uint_eq(g->n_updates, 1);
    ck_assert_uint_eq(notes.n, 1);
    arena_free(&notes.arena);
    graph_destroy(g);
}
END_TEST

/* Many parameters: the norm is taken in parts, since a node's operands are counted. */
START_TEST(many_parameters)
{
    struct graph *g = graph_create("many");
    value loss = {0};
    for (int i = 0; i < 450; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        value p = graph_leaf(g, OP_param, name, F32, NULL, 0);
        loss = i == 0 ? p : graph_op2(g, OP_add, loss, graph_op2(g, OP_mul, p, p));
    }
    graph_output(g, "loss", loss);
    struct train_options train = train_options_default();
    train.max_norm = 1.0;
    g = apply(train_step_pass, g, &(struct pass_options){.train = &train}, NULL);
    g = apply(decompose_pass, g, NULL, NULL);
    ck_assert(has_update(g, "p449"));
    graph_destroy(g);
}
END_TEST

static const struct {
    const char *text, *complaint;
    status code;
} refusals[] = {
    {"graph @s(%p: f32[2] param) {\n  return loss=%p\n}\n", "expected a float scalar", ATOLL_SHAPE},
    {"graph @s(%p: bf16[] param) {\n  return loss=%p\n}\n", "is bf16", ATOLL_DTYPE},
    {"graph @s(%x: f32[] input) {\n  return loss=%x\n}\n", "has no param", ATOLL_USAGE},
    {"graph @s(%x: f32[] input, %p: f32[] param) {\n  return loss=%x, p=%p\n}\n",
     "depends on no parameter", ATOLL_USAGE},
    {"graph @s(%lr: f32[] input, %p: f32[] param) {\n  %l = mul(%lr, %p)\n  return loss=%l\n}\n",
     "a value named %lr already", ATOLL_USAGE},
    {"graph @s(%p: f32[2] param) {\n  %l = sum(%p)\n  return loss=%l, loss_count=%p\n}\n",
     "loss_count of @s is no number", ATOLL_SHAPE},
};

START_TEST(refusals_are_named)
{
    struct graph *g = parse(refusals[_i].text), *out = graph_like(g);
    struct train_options train = train_options_default();
    status code = train_step_pass(g, out, &(struct pass_options){.train = &train}, NULL);
    ck_assert_msg(strstr(out->error.text, refusals[_i].complaint) != NULL, "%s", out->error.text);
    ck_assert_int_eq(code, refusals[_i].code);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

START_TEST(low_parameters_when_asked_for)
{
    struct graph *g = parse("graph @s(%p: bf16[4] param) {\n"
                            "  %s = mul(%p, %p)\n  %loss = sum(%s)\n  return loss=%loss\n}\n");
    struct train_options train = train_options_default();
    train.allows_low_params = true;
    g = apply(train_step_pass, g, &(struct pass_options){.train = &train}, NULL);
    ck_assert_int_eq(graph_node(g, graph_find(g, "opt.m.p"))->dtype, F32);
    g = apply(decompose_pass, g, NULL, NULL);
    graph_destroy(g);
}
END_TEST

/* Two leaves more of a remainder, a counter of a stochastic one; a pattern that no parameter has is
 * noted, and what cannot be kept as bf16 refused. */
START_TEST(parameters_kept_as_bf16)
{
    static const char *const text = "graph @s(%a: f32[4] param, %b: f32[4] param, %c: f64[4] param)"
                                    " {\n  %s = mul(%a, %b)\n  %t = mul(%s, %c)\n"
                                    "  %loss = sum(%t)\n  return loss=%loss\n}\n";
    struct train_options train = train_options_default();
    struct notes notes = {0};
    struct param_rule rules[] = {{"a", PARAM_BF16_REMAINDER},
                                 {"b", PARAM_BF16_STOCHASTIC},
                                 {"d*", PARAM_BF16_STOCHASTIC},
                                 {"c", PARAM_F32}};
    train.param_rules = rules;
    train.n_param_rules = ARRAY_LEN(rules);
    struct pass_options o = {.train = &train};
    struct graph *g = apply(train_step_pass, parse(text), &o, &notes);
    ck_assert_int_eq(graph_node(g, graph_find(g, "a"))->dtype, BF16);
    ck_assert_int_eq(graph_node(g, graph_find(g, "opt.m.a"))->dtype, F32);
    ck_assert_int_eq(graph_node(g, graph_find(g, "c"))->dtype, F64);
    static const char *const leaves[] = {"a", "b", "opt.byte0.a", "opt.byte1.a", "opt.rounding.b"};
    for (size_t i = 0; i < ARRAY_LEN(leaves); i++) {
        ck_assert_msg(has_update(g, leaves[i]), "%s is not updated", leaves[i]);
    }
    ck_assert_uint_eq(graph_find(g, "opt.byte0.b").id, 0);
    ck_assert_uint_eq(graph_find(g, "opt.rounding.a").id, 0);
    ck_assert_uint_eq(notes.n, 3);
    ck_assert_str_eq(notes.items[0].text, "params: 'd*' matches no parameter");
    graph_destroy(g);
    arena_free(&notes.arena);
    rules[3].form = PARAM_BF16_REMAINDER;
    g = parse(text);
    struct graph *out = graph_like(g);
    ck_assert_int_eq(train_step_pass(g, out, &o, NULL), ATOLL_DTYPE);
    ck_assert_msg(strstr(out->error.text, "parameter %c is f64") != NULL, "%s", out->error.text);
    graph_destroy(out);
    graph_destroy(g);
}
END_TEST

/* What is dear is there once an element: the activation's function serves its slope too, and Adam
 * divides by the root alone. In f32, and where the activation is bf16. */
static const struct {
    const char *form, *dtype;
    enum op op;
} activations[] = {{"exact", "f32", OP_erf},
                   {"exact", "bf16", OP_erf},
                   {"tanh", "f32", OP_tanh},
                   {"tanh", "bf16", OP_tanh}};

START_TEST(dear_functions_once)
{
    char text[400];
    snprintf(text, sizeof text,
             "graph @s(%%x: f32[4] input, %%w: f32[4] param) {\n  %%m = mul(%%x, %%w)\n"
             "  %%h = cast(%%m) {dtype=%s}\n  %%a = gelu(%%h) {form=\"%s\"}\n"
             "  %%loss = sum(%%a) {dtype=f32}\n  return loss=%%loss\n}\n",
             activations[_i].dtype, activations[_i].form);
    struct train_options train = train_options_default();
    struct pass_options o = {.train = &train};
    struct graph *g = apply(train_step_pass, parse(text), &o, NULL);
    g = apply(simplify_pass, apply(decompose_pass, g, &o, NULL), &o, NULL);
    uint32_t functions = 0, quotients = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        functions += g->nodes[i].op == activations[_i].op;
        quotients += g->nodes[i].op == OP_div && g->nodes[i].shape.rank > 0;
    }
    ck_assert_uint_eq(functions, 1);
    ck_assert_uint_eq(quotients, 1);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *t)
{
    tcase_add_loop_test(t, step_is_whole, 0, (int)ARRAY_LEN(steps));
    tcase_add_test(t, whole_step_is_left_alone);
    tcase_add_test(t, many_parameters);
    tcase_add_loop_test(t, refusals_are_named, 0, (int)ARRAY_LEN(refusals));
    tcase_add_test(t, low_parameters_when_asked_for);
    tcase_add_test(t, parameters_kept_as_bf16);
    tcase_add_loop_test(t, dear_functions_once, 0, (int)ARRAY_LEN(activations));
}

int main(void)
{
    return run_suite("train_step", fill);
}
