/* One planted graph per rule of verify.def, and graphs that must pass. Rules that the builder keeps
 * by itself are broken by editing the node in memory. */
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

#include "ir/parse.h"
#include "ir/verify.h"

#define HEAD                                                                                       \
    "graph @g(%x: f32[4] input, %w: f32[4] param, %s: f32[] state, %t: f32[] state, "              \
    "%lr: f32[] scalar) {"
#define SCALED                                                                                     \
    "%l = sum(%x) @ \"model.c\":3 %b = scale_loss(%l, %s) @ \"loss.c\":7 "                         \
    "%g = mul(%x, %b) %i = reciprocal(%s) %u = unscale(%g, %i) "

static void plant_operation(struct graph *g)
{
    g->nodes[6].op = N_OPS;
}
static void plant_order(struct graph *g)
{
    static const value later = {7};
    g->nodes[6].operands = &later;
}
static void plant_count(struct graph *g)
{
    g->nodes[6].n_operands = 0;
}
static void plant_attrs(struct graph *g)
{
    g->nodes[6].n_attrs = 0;
}
static void plant_symbol(struct graph *g)
{
    g->nodes[6].shape.dims[0].symbols[0] = 9;
}
static void plant_rank(struct graph *g)
{
    g->nodes[6].shape.rank = 9;
}
static void plant_refusal(struct graph *g)
{
    g->nodes[6].op = OP_not; /* takes bool alone */
}
static void plant_type(struct graph *g)
{
    g->nodes[6].dtype = BF16;
}
static void plant_dtype(struct graph *g)
{
    g->nodes[6].dtype = N_DTYPES;
}
static void plant_no_name(struct graph *g)
{
    g->nodes[1].name = NULL;
}
static void plant_same_name(struct graph *g)
{
    g->nodes[2].name = "x";
}
static void plant_output(struct graph *g)
{
    g->outputs[0].value.id = 99;
}
static void plant_update(struct graph *g)
{
    g->updates[0].leaf.id = 1;
}
static void plant_update_value(struct graph *g)
{
    g->updates[0].next.id = 99;
}
static void plant_twice(struct graph *g)
{
    graph_update(g, g->updates[0].leaf, g->updates[0].next);
}
static void plant_update_type(struct graph *g)
{
    g->updates[0].next.id = 1;
}
static void plant_range(struct graph *g)
{
    g->symbols[graph_symbol(g, "n")].low = -1;
}
static void plant_check(struct graph *g)
{
    g->checks[0].index.id = 99;
}
static void plant_check_type(struct graph *g)
{
    g->checks[0].index.id = 1;
}
static void plant_tag(struct graph *g)
{
    g->nodes[6].scale = 3;
}
static void plant_tag_id(struct graph *g)
{
    g->nodes[6].scale = 1000;
}

#define CHECKED                                                                                    \
    HEAD "%i = iota() {shape=[2]} %a = take(%x, %i) check %i in [4] for \"take %a\" return y=%a }"
#define PLAIN HEAD "%a = exp(%x) %b = sum(%a) update %s <- %b return y=%a, z=%b }"
#define PRODUCT                                                                                    \
    "%c = reshape(%x) {shape=[1,4]} %k = exp(%s) %j = sin(%s) %q = quantize(%c, %k) %a = "         \
    "reciprocal(%k) "
#define PRODUCT_END                                                                                \
    "%v = reshape(%a) {shape=[1,1]} %z = reshape(%b) {shape=[1,1]} %p = scaled_matmul(%q, %q, "    \
    "%v, %z) return y=%p }"
static const struct {
    enum verify_code code;
    const char *text;
    void (*plant)(struct graph *g);
    const char *says; /* part of the message */
} cases[] = {
    {V001, PLAIN, plant_operation, "found operation number"},
    {V002, PLAIN, plant_order, "found value number 7 as operand 0"},
    {V003, PLAIN, plant_count, "found 0 operands, expected 1 to 1"},
    {V004, HEAD "%a = softmax(%x) return y=%a }", plant_attrs, "%a = softmax: found 0 attributes"},
    {V005, PLAIN, plant_symbol, "undeclared symbol"},
    {V005, PLAIN, plant_rank, "over 8 dims"},
    {V006, PLAIN, plant_refusal, "expected bool"},
    {V007, PLAIN, plant_type, "found bf16[4], expected f32[4]"},
    {V007, PLAIN, plant_dtype, "found no dtype"},
    {V008, PLAIN, plant_no_name, "found no name"},
    {V008, PLAIN, plant_same_name, "second leaf"},
    {V009, PLAIN, plant_output, "output y: found value number 99"},
    {V009, HEAD "%a = exp(%x) return y=%a, y=%x }", NULL, "second output named y"},
    {V010, PLAIN, plant_update, "expected a state, param or buffer"},
    {V010, PLAIN, plant_update_value, "99"},
    {V011, PLAIN, plant_twice, "found a second update, by %b"},
    {V012, PLAIN, plant_update_type, "found %x of type f32[4], expected f32[]"},
    {V013, PLAIN, plant_range, "symbol n: found [-1,"},
    {V014, HEAD "%c = cast(%x) {dtype=f16} %a = exp(%c) island 2 return y=%a }", NULL,
     "found f16[4] in island 2"},
    {V015, CHECKED, plant_check, "found no integers"},
    {V015, CHECKED, plant_check_type, "%x = input: index check 0"},
    {V016, HEAD PRODUCT "%b = reciprocal(%j) " PRODUCT_END, NULL,
     "found scale %z for operand %q, expected the reciprocal of %k, by which it was quantized"},
    {V016,
     HEAD "%c = reshape(%x) {shape=[1,4]} %q = cast(%c) {dtype=f8e4m3} %k = exp(%s) %r = "
          "reshape(%k) {shape=[1,1]} %p = scaled_matmul(%q, %q, %r, %r) return y=%p }",
     NULL, "found operand %q without a quantize behind it"},
    {V020, PLAIN, plant_tag, "found tag %s, expected none"},
    {V020, PLAIN, plant_tag_id, "found tag no value, expected none"},
    {V021, HEAD SCALED "%m = sum(%g) %d = scale_loss(%m, %s) return y=%d }", NULL,
     "already scaled by %s in %b = scale_loss at loss.c:7"},
    {V022, HEAD SCALED "%d = scale_loss(%l, %t) @ \"b.c\":9 %e = add(%g, %d) return y=%e }", NULL,
     "%g scaled by %s in %b = scale_loss at loss.c:7 and %d scaled by %t in %d = scale_loss at "
     "b.c:9"},
    {V023,
     HEAD SCALED "%n = global_norm(%u) %c = clip_grad_norm(%g, %n, 1) @ \"clip.c\":5 return y=%c }",
     NULL,
     "%c = clip_grad_norm at clip.c:5: found operand %g scaled by %s in %b = scale_loss at "
     "loss.c:7, expected an unscaled gradient; hint: unscale the gradient first"},
    {V023, HEAD SCALED "%n = global_norm(%u, %g) return y=%n }", NULL, "%n = global_norm"},
    {V023, HEAD SCALED "%n = adam_exp_avg(%w, %g, 0.9) return y=%n }", NULL, "adam_exp_avg"},
    {V023, HEAD SCALED "%n = adam_exp_avg_sq(%w, %g, 0.9) return y=%n }", NULL, "adam_exp_avg_sq"},
    {V023, HEAD SCALED "%n = adam_update(%w, %g, %w, %lr, 0.9, 0.9, 1e-8) return y=%n }", NULL,
     "adam_update"},
    {V023, HEAD SCALED "%n = sgd_momentum(%w, %g, 0.9, 1) return y=%n }", NULL, "sgd_momentum"},
    {V023, HEAD SCALED "%n = sgd_update(%w, %g, %lr) return y=%n }", NULL, "sgd_update"},
    {V023, HEAD SCALED "%n = weight_decay(%g, %w, 0.1) return y=%n }", NULL, "weight_decay"},
    {V024, HEAD SCALED "%n = sub(%w, %g) update %w <- %n return }", NULL,
     "found new value %n scaled by %s"},
    {V025, HEAD SCALED "return grad:x=%g }", NULL, "found output grad:x scaled by %s"},
};

static struct graph *parsed(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "planted", &e);
    ck_assert_msg(g != NULL, "%s\n%s", e.text, text);
    ck_assert_msg(g->n_nodes > 6, "%s", text);
    return g;
}

START_TEST(planted_rule_is_named)
{
    struct error e = {0};
    struct graph *g = parsed(cases[_i].text);
    if (cases[_i].plant != NULL) {
        cases[_i].plant(g);
    }
    ck_assert_msg(graph_verify(g, &e) == ATOLL_VERIFY, "passes: %s", cases[_i].text);
    ck_assert_msg(strstr(e.text, verify_info[cases[_i].code].code) != NULL, "expected %s: %s",
                  verify_info[cases[_i].code].code, e.text);
    ck_assert_msg(strstr(e.text, cases[_i].says) != NULL, "expected \"%s\": %s", cases[_i].says,
                  e.text);
    graph_destroy(g);
}
END_TEST

START_TEST(every_rule_is_planted)
{
    bool is_planted[N_VERIFY_CODES] = {false};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        is_planted[cases[i].code] = true;
    }
    for (int i = 0; i < N_VERIFY_CODES; i++) {
        ck_assert_msg(is_planted[i], "%s has no planted graph", verify_info[i].code);
    }
}
END_TEST

static const char *const sound[] = {
    PLAIN,
    HEAD SCALED "%ok = all_finite(%g) %n = global_norm(%u) %c = clip_grad_norm(%u, %n, 1) "
                "%p = sgd_update(%w, %c, %lr) update %w <- %p return loss=%b, raw=%g, grad:x=%u }",
    HEAD "%c = cast(%x) {dtype=f16} %f = cast(%c) {dtype=f32} island 1 %a = exp(%f) island 1 "
         "%d = cast(%a) {dtype=f16} island 1 return y=%d }",
    HEAD PRODUCT "%b = reciprocal(%k) " PRODUCT_END,
};

START_TEST(sound_graphs_pass)
{
    struct error e = {0};
    struct graph *g = parsed(sound[_i]);
    ck_assert_msg(graph_verify(g, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
}
END_TEST

START_TEST(out_of_memory_is_a_status)
{
    struct error e = {0};
    struct graph *g = parsed(sound[1]);
    arena_fail_after(1);
    ck_assert_int_eq(graph_verify(g, &e), ATOLL_OUT_OF_MEMORY);
    arena_fail_after(0);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, planted_rule_is_named, 0, (int)ARRAY_LEN(cases));
    tcase_add_test(tc, every_rule_is_planted);
    tcase_add_loop_test(tc, sound_graphs_pass, 0, (int)ARRAY_LEN(sound));
    tcase_add_test(tc, out_of_memory_is_a_status);
}

int main(void)
{
    return run_suite("verify", fill);
}
