/* Every rule of lint.def by a planted mistake: the finding has the rule's code, the node, its line
 * and the rule's hint; the same model with the mistake put right has no finding at all. */
#include "ir/parse.h"
#include "passes/lint.h"
#include "passes/policy.h"
#include "passes/train_step.h"

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

/* Leaves that the bodies read; the first node stands in line 5. */
static const char head[] =
    "graph @g(%h: f16[n,64] input, %b: bf16[n,64] input, %f: f32[n,64] input, %y: i64[n] input,\n"
    "         %m: bool[n,64] input, %t: f32[n,64] input, %w: f32[64,64] param,\n"
    "         %s: f32[] state, %k: f32[] state, %e: f16[64] state, %v: f32[9,64] param,\n"
    "         %wide: f32[64] state) {\n";

struct planted {
    const char *code, *node;
    int line;
    const char *policy, *optimizer; /* NULL: no policy; no training */
    const char *wrong, *right;      /* nodes, updates and return */
};

#define LOSS "  %loss = sum(%z) {dtype=f32}\n  return loss=%loss\n"

static const struct planted planted[] = {
    {"L001", "z", 5, "fp16", NULL, "  %z = where(%m, %h, -1e9)\n  return z=%z\n",
     "  %z = where(%m, %h, -inf)\n  return z=%z\n"},
    {"L002", "z", 6, "fp16", NULL, "  %a = abs(%h)\n  %z = add(%a, 1e-8)\n  return z=%z\n",
     "  %a = abs(%h)\n  %z = add(%a, 1e-3)\n  return z=%z\n"},
    {"L003", "z", 5, NULL, NULL, "  %z = maximum(%h, 1e-5)\n  return z=%z\n",
     "  %z = maximum(%h, 1e-4)\n  return z=%z\n"},
    {"L004", "z", 5, NULL, NULL, "  %z = layer_norm(%f) {eps=0}\n  return z=%z\n",
     "  %z = layer_norm(%f)\n  return z=%z\n"},
    {"L005", "z", 6, "bf16", NULL,
     "  %p = sigmoid(%b)\n  %z = clamp(%p) {low=0.001, high=0.9999}\n  return z=%z\n",
     "  %p = sigmoid(%b)\n  %z = clamp(%p) {low=0.001, high=0.99}\n  return z=%z\n"},
    {"L010", "z", 5, NULL, NULL, "  %z = rsqrt(%h)\n  return z=%z\n",
     "  %c = cast(%h) {dtype=f32}\n  %z = rsqrt(%c)\n  return z=%z\n"},
    {"L011", "z", 6, "bf16", NULL, "  %q = mul(%b, %b)\n  %z = sum(%q) {axes=[1]}\n  return z=%z\n",
     "  %c = cast(%b) {dtype=f32}\n  %q = mul(%c, %c)\n  %z = sum(%q) {axes=[1]}\n  return z=%z\n"},
    {"L012", "z", 5, "fp16", NULL, "  %z = sum(%h) {dtype=f16}\n  return z=%z\n",
     "  %z = mean(%h) {dtype=f16}\n  return z=%z\n"},
    {"L013", "next", 6, NULL, NULL,
     "  %r = max(%h) {axes=[0]}\n  %next = add(%e, %r)\n  update %e <- %next\n  return r=%r\n",
     "  %r = max(%h) {axes=[0]}\n  %c = cast(%r) {dtype=f32}\n  %next = add(%wide, %c)\n"
     "  update %wide <- %next\n  return r=%r\n"},
    {"L014", "more", 5, NULL, NULL, "  %more = add(%k, 1)\n  update %k <- %more\n  return k=%k\n",
     "  %more = mul(%k, 0.5)\n  update %k <- %more\n  return k=%k\n"},
    {"L020", "up", 6, NULL, NULL,
     "  %down = cast(%f) {dtype=bf16}\n  %up = cast(%down) {dtype=f32}\n  return z=%up\n",
     "  %down = cast(%f) {dtype=bf16}\n  %a = abs(%down)\n  %up = cast(%a) {dtype=f32}\n"
     "  return z=%up\n"},
    {"L021", "z", 6, NULL, NULL, "  %q = mul(%h, %h)\n  %z = cast(%q) {dtype=f32}\n  return z=%z\n",
     "  %c = cast(%h) {dtype=f32}\n  %z = mul(%c, %c)\n  return z=%z\n"},
    {"L022", "c", 5, NULL, NULL,
     "  %c = cast(%y) {dtype=bf16}\n  %z = add(%c, 0.5)\n  return z=%z\n",
     "  %c = cast(%y) {dtype=f32}\n  %z = add(%c, 0.5)\n  return z=%z\n"},
    {"L023", "i", 6, NULL, NULL,
     "  %c = cast(%y) {dtype=f32}\n  %i = cast(%c) {dtype=i64}\n  %z = take(%v, %i)\n  return "
     "z=%z\n",
     "  %z = take(%v, %y)\n  return z=%z\n"},
    {"L024", "z", 6, NULL, NULL,
     "  %p = iota() {shape=[n,64], axis=0, dtype=f32}\n  %z = cast(%p) {dtype=bf16}\n"
     "  return z=%z\n",
     "  %p = iota() {shape=[n,64], axis=1, dtype=f32}\n  %z = cast(%p) {dtype=bf16}\n"
     "  return z=%z\n"},
    {"L025", "z", 7, NULL, NULL,
     "  %a = max(%b) {axes=[1]}\n  %i = cast(%a) {dtype=i64}\n  %z = embedding(%v, %i)\n"
     "  return z=%z\n",
     "  %z = embedding(%v, %y)\n  return z=%z\n"},
    {"L030", "z", 5, "fp16", "adamw,lr=1e-3", "  %z = linear(%f, %w)\n" LOSS, NULL},
    {"L031", "n", 7, NULL, "adamw,lr=1e-3",
     "  %l = sum(%f)\n  %b2 = scale_loss(%l, %s)\n  %n = global_norm(%b2)\n  return n=%n\n",
     "  %l = sum(%f)\n  %b2 = scale_loss(%l, %s)\n  %u = unscale(%b2, %k)\n  %n = global_norm(%u)\n"
     "  return n=%n\n"},
    {"L033", "", 0, NULL, "adam,eps=0", "  %z = linear(%f, %w)\n" LOSS, NULL},
    {"L034", "loss", 6, NULL, NULL,
     "  %z = linear(%b, %b)\n  %loss = mean(%b)\n  return loss=%loss\n",
     "  %loss = mean(%b) {dtype=f32}\n  return loss=%loss\n"},
    {"L040", "z", 6, NULL, NULL, "  %p = softmax(%f)\n  %z = log(%p)\n  return z=%z\n",
     "  %z = log_softmax(%f)\n  return z=%z\n"},
    {"L041", "loss", 6, NULL, NULL,
     "  %p = sigmoid(%f)\n  %loss = binary_cross_entropy(%p, %t)\n  return loss=%loss\n",
     "  %loss = bce_with_logits(%f, %t)\n  return loss=%loss\n"},
    {"L042", "loss", 6, NULL, NULL,
     "  %p = softmax(%f)\n  %loss = cross_entropy(%p, %y)\n  return loss=%loss\n",
     "  %loss = cross_entropy(%f, %y)\n  return loss=%loss\n"},
    {"L043", "z", 7, NULL, NULL,
     "  %x = exp(%f)\n  %d = sum(%x) {axes=[1], keepdims=true}\n  %z = div(%x, %d)\n  return "
     "z=%z\n",
     "  %top = max(%f) {axes=[1], keepdims=true}\n  %c = sub(%f, %top)\n  %x = exp(%c)\n"
     "  %d = sum(%x) {axes=[1], keepdims=true}\n  %z = div(%x, %d)\n  return z=%z\n"},
    {"L044", "z", 7, NULL, NULL,
     "  %x = exp(%f)\n  %d = sum(%x) {axes=[1]}\n  %z = log(%d)\n  return z=%z\n",
     "  %z = logsumexp(%f) {axes=[1]}\n  return z=%z\n"},
    {"L045", "r", 8, NULL, NULL,
     "  %l = linear(%f, %w)\n  %q = mul(%l, %l)\n  %u = sum(%q) {axes=[1]}\n  %r = sqrt(%u)\n"
     "  return r=%r\n",
     "  %l = linear(%f, %w)\n  %q = mul(%l, %l)\n  %u = sum(%q) {axes=[1]}\n  %a = add(%u, 1e-6)\n"
     "  %r = sqrt(%a)\n  return r=%r\n"},
    {"L046", "z", 6, NULL, NULL,
     "  %d = norm(%f) {axes=[1], keepdims=true}\n  %z = div(%f, %d)\n  return z=%z\n",
     "  %z = normalize(%f)\n  return z=%z\n"},
    {"L047", "z", 8, NULL, NULL,
     "  %c = where(%m, 1, 0)\n  %d = sum(%c)\n  %a = sum(%f)\n  %z = div(%a, %d)\n  return z=%z\n",
     "  %c = where(%m, 1, 0)\n  %d = sum(%c)\n  %a = sum(%f)\n  %e1 = maximum(%d, 1)\n"
     "  %z = div(%a, %e1)\n  return z=%z\n"},
    {"L048", "z", 7, NULL, NULL,
     "  %p = sigmoid(%f)\n  %r = sub(1, %p)\n  %z = log(%r)\n  return z=%z\n",
     "  %a = neg(%f)\n  %z = log_sigmoid(%a)\n  return z=%z\n"},
    {"L049", "z", 6, NULL, NULL, "  %x = exp(%f)\n  %z = sub(%x, 1)\n  return z=%z\n",
     "  %z = expm1(%f)\n  return z=%z\n"},
    {"L050", "z", 9, NULL, NULL,
     "  %q = mul(%f, %f)\n  %mq = mean(%q) {axes=[1]}\n  %a = mean(%f) {axes=[1]}\n"
     "  %a2 = mul(%a, %a)\n  %z = sub(%mq, %a2)\n  return z=%z\n",
     "  %z = variance(%f) {axes=[1], correction=0}\n  return z=%z\n"},
    {"L051", "z", 8, NULL, NULL,
     "  %l = linear(%f, %w)\n  %p = gt(%l, 0)\n  %g = log(%l)\n  %z = where(%p, %g, 0)\n"
     "  return z=%z\n",
     "  %l = linear(%f, %w)\n  %p = gt(%l, 0)\n  %a = where(%p, %l, 1)\n  %g = log(%a)\n"
     "  %z = where(%p, %g, 0)\n  return z=%z\n"},
    {"L052", "a", 5, "fp16", NULL,
     "  %a = matmul(%f, %f) {transpose_b=true}\n  %z = mul(%a, 0.125)\n  return z=%z\n",
     "  %q = mul(%f, 0.125)\n  %z = matmul(%q, %f) {transpose_b=true}\n  return z=%z\n"},
    {"L060", "z", 8, NULL, NULL,
     "  %a = slice(%f) {axis=1, stop=24}\n  %c = cast(%a) {dtype=f8e4m3, saturate=true}\n"
     "  %d = cast(%a) {dtype=f8e4m3, saturate=true}\n  %z = matmul(%c, %d) {transpose_b=true}\n"
     "  return z=%z\n",
     "  %c = cast(%f) {dtype=f8e4m3, saturate=true}\n  %z = matmul(%c, %c) {transpose_b=true}\n"
     "  return z=%z\n"},
    {"L061", "z", 6, NULL, NULL,
     "  %c = cast(%f) {dtype=f8e5m2, saturate=true}\n  %z = matmul(%c, %c) {transpose_b=true}\n"
     "  return z=%z\n",
     "  %c = cast(%f) {dtype=f8e5m2, saturate=true}\n"
     "  %d = cast(%f) {dtype=f8e4m3, saturate=true}\n  %z = matmul(%c, %d) {transpose_b=true}\n"
     "  return z=%z\n"},
    {"L062", "z", 5, NULL, NULL, "  %z = cast(%f) {dtype=f8e4m3}\n  return z=%z\n",
     "  %z = cast(%f) {dtype=f8e4m3, saturate=true}\n  return z=%z\n"},
};

/* Which findings the model has; train_options of the row, the scaler as asked. */
static void lint_text(const char *text, const struct planted *p, bool has_scaler,
                      struct findings *out)
{
    struct error e = {0};
    struct train_options train = train_options_default();
    struct pass_options o = {0};
    struct graph *g = graph_parse_lines(text, strlen(text), "bad.graph", &e);
    ck_assert_msg(g != NULL, "%s\n%s", e.text, text);
    if (p->policy != NULL) {
        ck_assert(policy_named(p->policy, &o.policy, &e) == ATOLL_OK);
    }
    if (p->optimizer != NULL) {
        ck_assert_msg(train_options_parse(&train, p->optimizer, NULL, &e) == ATOLL_OK, "%s",
                      e.text);
        train.scaler.is_enabled = has_scaler;
        o.train = &train;
    }
    ck_assert_msg(lint_model(g, &o, out, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
}

static const struct finding *find(const struct findings *f, const char *code)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (strcmp(f->items[i].code, code) == 0) {
            return &f->items[i];
        }
    }
    return NULL;
}

static const char *hint_of(const char *code)
{
    struct finding rule;
    for (uint32_t i = 0; lint_rule_at(i, &rule); i++) {
        if (strcmp(rule.code, code) == 0) {
            return rule.hint;
        }
    }
    return "no such rule";
}

START_TEST(mistake)
{
    const struct planted *p = &planted[_i];
    struct findings f = {0};
    char text[2000];
    snprintf(text, sizeof text, "%s%s}\n", head, p->wrong);
    lint_text(text, p, false, &f);
    const struct finding *found = find(&f, p->code);
    ck_assert_msg(found != NULL, "%s: not found among %u", p->code, f.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f.n; i++) {
        n += strcmp(f.items[i].code, p->code) == 0;
    }
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(found->node, p->node);
    ck_assert_int_eq((int)found->location.line, p->line);
    ck_assert(p->line == 0 || strcmp(found->location.file, "bad.graph") == 0);
    ck_assert_str_eq(found->hint, hint_of(p->code));
    ck_assert_int_gt((int)strlen(found->what), 10);
    arena_free(&f.arena);
}
END_TEST

/* The mistake put right, by the text or (NULL) by the options, leaves nothing to find. */
START_TEST(put_right)
{
    struct planted p = planted[_i];
    struct findings f = {0};
    char text[2000];
    snprintf(text, sizeof text, "%s%s}\n", head, p.right != NULL ? p.right : p.wrong);
    if (p.right == NULL && strcmp(p.code, "L033") == 0) {
        p.optimizer = "adam";
    }
    lint_text(text, &p, true, &f);
    ck_assert_msg(f.n == 0, "%s: %s %s: %s", p.code, f.n > 0 ? f.items[0].code : "",
                  f.n > 0 ? f.items[0].label : "", f.n > 0 ? f.items[0].what : "");
    arena_free(&f.arena);
}
END_TEST

/* L032 by what the parameter's magnitude, its dtype, the optimizer and its lr make of an update. */
START_TEST(updates_that_vanish)
{
    static const struct {
        const char *dtype, *init, *optimizer;
        bool is_lost;
    } cases[] = {
        {"bf16", "ones", "adamw,lr=1e-3", true},
        {"bf16", "ones", "adamw,lr=1e-2", false},
        {"bf16", "normal:0.02", "adamw,lr=1e-3", false},
        {"bf16", "normal:0.02", "lion,lr=1e-5", true},
        {"f16", "ones", "adamw,lr=1e-3", false},
        {"f16", "ones", "adamw,lr=1e-4", true},
        {"bf16", "0.5", "sgd,lr=0.01", true},
        {"f32", "ones", "adamw,lr=1e-6", false},
        {"bf16", "zeros", "adamw,lr=1e-6", false},
    };
    struct planted p = {.optimizer = cases[_i].optimizer};
    struct findings f = {0};
    char text[400];
    snprintf(text, sizeof text,
             "graph @g(%%x: f32[64] input,\n %%p: %s[64] param {init=\"%s\"}) {\n  %%z = mul(%%x, "
             "%%p)\n  %%loss = mean(%%z) {dtype=f32}\n  return loss=%%loss\n}\n",
             cases[_i].dtype, cases[_i].init);
    lint_text(text, &p, true, &f);
    const struct finding *found = find(&f, "L032");
    ck_assert_msg((found != NULL) == cases[_i].is_lost, "case %d", _i);
    if (found != NULL) {
        ck_assert_str_eq(found->node, "p");
        ck_assert_int_eq((int)found->location.line, 2);
        ck_assert_str_eq(found->hint, hint_of("L032"));
    }
    arena_free(&f.arena);
}
END_TEST

/* A bf16 parameter that keeps what rounding cuts off loses nothing. */
START_TEST(updates_that_are_kept)
{
    static const char *const forms[] = {"bf16-remainder", "p=bf16-stochastic", "q=bf16-remainder"};
    static const char text[] = "graph @g(%x: f32[64] input, %p: bf16[64] param {init=\"ones\"}) {\n"
                               "  %z = mul(%x, %p)\n  %loss = mean(%z) {dtype=f32}\n"
                               "  return loss=%loss\n}\n";
    struct error e = {0};
    struct arena a = {0};
    struct findings f = {0};
    struct train_options train = train_options_default();
    struct pass_options o = {.train = &train};
    struct graph *g = graph_parse(text, strlen(text), "kept", &e);
    ck_assert_msg(train_params_parse(&train, forms[_i], &a, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(lint_model(g, &o, &f, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(find(&f, "L032") != NULL, _i == 2);
    arena_free(&f.arena);
    arena_free(&a);
    graph_destroy(g);
}
END_TEST

/* A rule without a planted mistake is a rule nobody has seen work. */
START_TEST(every_rule_is_planted)
{
    struct finding rule;
    for (uint32_t i = 0; lint_rule_at(i, &rule); i++) {
        bool is_planted = strcmp(rule.code, "L032") == 0;
        for (size_t k = 0; k < ARRAY_LEN(planted); k++) {
            is_planted = is_planted || strcmp(planted[k].code, rule.code) == 0;
        }
        ck_assert_msg(is_planted, "%s: no planted mistake", rule.code);
    }
}
END_TEST

static void check_clean(const char *file, const char *policy, const char *optimizer)
{
    char path[600];
    static char text[1 << 16];
    struct planted p = {.policy = policy, .optimizer = optimizer};
    struct findings f = {0};
    snprintf(path, sizeof path, "%s/examples/%s", ATOLL_SOURCE_DIR, file);
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s", path);
    size_t n = fread(text, 1, sizeof text - 1, in);
    text[n] = '\0';
    fclose(in);
    lint_text(text, &p, true, &f);
    ck_assert_msg(f.n == 0, "%s under %s: %s %s: %s", file, policy, f.n > 0 ? f.items[0].code : "",
                  f.n > 0 ? f.items[0].label : "", f.n > 0 ? f.items[0].what : "");
    arena_free(&f.arena);
}

START_TEST(clean_models)
{
    static const char *const policies[] = {"fp32",
                                           "bf16",
                                           "fp16",
                                           "bf16@torch-cuda",
                                           "fp16@torch-cuda",
                                           "bf16@torch-cpu",
                                           "fp16@torch-cpu",
                                           "fp8-tensorwise",
                                           "fp8-rowwise",
                                           "fp8-rowwise-gw-hp",
                                           "fp8-delayed",
                                           "fp8-blockwise",
                                           "fp8-mxfp8"};
    static const char *const optimizers[] = {"adamw,lr=1e-3", "sgd,lr=0.1", "lion,lr=1e-4"};
    for (size_t i = 0; i < ARRAY_LEN(optimizers); i++) {
        check_clean("digits.graph", policies[_i], optimizers[i]);
        check_clean("transformer.graph", policies[_i], optimizers[i]);
    }
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, mistake, 0, (int)ARRAY_LEN(planted));
    tcase_add_loop_test(tc, put_right, 0, (int)ARRAY_LEN(planted));
    tcase_add_loop_test(tc, updates_that_vanish, 0, 9);
    tcase_add_loop_test(tc, updates_that_are_kept, 0, 3);
    tcase_add_test(tc, every_rule_is_planted);
    tcase_add_loop_test(tc, clean_models, 0, 13);
}

int main(void)
{
    return run_suite("lint_rules", fill);
}
