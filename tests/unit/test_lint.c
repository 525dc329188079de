/* Precision diagnostics: what each rule says, and that it says nothing where the dtype holds the
 * number. */
#include "frontend/compile.h"
#include "ir/parse.h"
#include "passes/policy.h"

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *body, *policy, *says; /* NULL: nothing */
} cases[] = {
    {"%y = where(%m, %h, -1e9)", "fp16", "%y = where: the number -1e+09 is beyond the largest f16"},
    {"%y = where(%m, -1e9, %h)", "fp16", "it becomes -inf"},
    {"%y = where(%m, %b, -1e9)", "bf16", NULL},
    {"%y = where(%m, %b, -3.4e38)", "bf16", "beyond the largest bf16"},
    {"%y = where(%m, %h, -inf)", "fp16", NULL},
    {"%y = where(%m, %f, -1e9)", "fp32", NULL},
    {"%y = maximum(%h, 1e-12)", NULL, "%y = maximum: the number 1e-12 becomes 0 in f16"},
    {"%y = add(%h, 1e-8)", NULL, "%y = add: the number 1e-08 becomes 0 in f16"},
    {"%y = add(%b, 1e-8)", NULL, NULL},
    {"%y = add(%h, 0)", NULL, NULL},
    {"%y = clamp(%h) {low=1e-9, high=1e6}", NULL, "%y = clamp: the number 1e-09 becomes 0"},
    {"%y = clamp(%h) {low=1e-9, high=1e6}", NULL, "the number 1e+06 is beyond the largest f16"},
    {"%y = clamp(%h) {low=0}", NULL, NULL},
    {"%y = mul(%h, 65536)", NULL, NULL}, /* takes part at compute precision */
    {"%y = constant() {value=1e5, dtype=f16}", NULL, "%y = constant: the number 100000 is beyond"},
};

START_TEST(rules)
{
    char text[400];
    struct error e = {0};
    struct compiled c;
    struct compile_options o = {.is_eager = true};
    snprintf(text, sizeof text,
             "graph @g(%%h: f16[4] input, %%b: bf16[4] input, %%f: f32[4] input, %%m: bool[4] "
             "input) {\n%s\nreturn y=%%y\n}",
             cases[_i].body);
    struct graph *g = graph_parse(text, strlen(text), "lint", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    if (cases[_i].policy != NULL) {
        ck_assert(policy_named(cases[_i].policy, &o.policy, &e) == ATOLL_OK);
    }
    ck_assert_msg(compile_graph(g, &o, &c, &e) == ATOLL_OK, "%s", e.text);
    uint32_t n = 0, right = 0;
    for (uint32_t i = 0; i < c.notes.n; i++) {
        if (strcmp(c.notes.items[i].pass, "lint") == 0) {
            n++;
            right +=
                cases[_i].says != NULL && strstr(c.notes.items[i].text, cases[_i].says) != NULL;
            ck_assert_msg(cases[_i].says != NULL, "%s: %s", cases[_i].body, c.notes.items[i].text);
        }
    }
    ck_assert_msg(right == (cases[_i].says != NULL) && n < 3, "%s: %u notes, %u as expected",
                  cases[_i].body, n, right);
    compiled_free(&c);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, rules, 0, (int)ARRAY_LEN(cases));
}

int main(void)
{
    return run_suite("lint", fill);
}
