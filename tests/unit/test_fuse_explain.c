/* Why not fused: one note for each two groups of which one reads the other, none for a graph that
 * is one kernel, with the reason that holds. */
#include "frontend/compile.h"
#include "ir/parse.h"

#include "tests/suite.h"

#include <string.h>

static const struct fact {
    const char *text;
    uint32_t n; /* notes */
    const char *node, *says;
} facts[] = {
    {"graph @g(%x: f32[8,9] input) { %a = exp(%x)  %b = tanh(%a)  return out=%b }", 0, "", ""},
    {"graph @g(%x: f32[8,9] input) { %y = softmax(%x)  return out=%y }", 0, "", ""},
    {"graph @g(%x: f32[8,8] input) { %a = exp(%x)  %m = matmul(%a, %x)  return out=%m }", 1, "%a",
     "groups 0 and 1: a matmul is a library call"},
    {"graph @g(%x: f32[8,8] input) { %m = matmul(%x, %x)  %a = exp(%m)  return out=%a }", 1, "%m",
     "groups 0 and 1: a matmul is a library call"},
    {"graph @g(%x: f32[8,9] input, %i: i64[3] input) { %a = exp(%x)  %y = take(%a, %i)  return "
     "out=%y }",
     1, "%a", "a take runs by itself"},
    {"graph @g(%x: f32[8,9] input) { %s = sum(%x) {axes=[0]}  %y = exp(%s)  return out=%y }", 1,
     "%s", "a column reduction ends with the last row"},
    {"graph @g(%x: f32[8,9] input) { %a = exp(%x)  %s = sum(%a) {axes=[0]}  return out=%s, a=%a }",
     1, "%a", "others than the column reduction need the value"},
    {"graph @g(%x: f32[n,9] input) { %s = sum(%x)  %y = mul(%x, %s)  return out=%y }", 1, "%s",
     "read through a reshape"},
    {"graph @g(%x: f32[n,9] input) { %s = sum(%x) {axes=[1], keepdims=true}  %t = sum(%s)  return "
     "s=%s, t=%t }",
     1, "%s", "loops differ: over [n,9] and over [n,1]"},
    {"graph @g(%x: f32[8,8] input) { %a = exp(%x)  %m = matmul(%a, %a)  %y = add(%a, %m)  return "
     "out=%y }",
     3, "%a", "groups 0 and 2: group 1 (matmul) stands between"},
    {"graph @g(%x: f32[8,8] input) { %a = exp(%x)  %t = transpose(%a)  %y = add(%a, %t)  return "
     "out=%y, a=%a }",
     1, "%a", "read through a transpose"},
};

static void explain(const char *text, bool is_off, struct compiled *c, struct notes *notes)
{
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    struct fuse_options fuse_options = {.is_off = is_off};
    struct graph *g = graph_parse(text, strlen(text), "case", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(compile_graph(g, &o, c, &e), ATOLL_OK);
    ck_assert_int_eq(fuse(c->primitive, &fuse_options, &c->partition, notes, &e), ATOLL_OK);
    graph_destroy(g);
}

START_TEST(reason)
{
    const struct fact *f = &facts[_i];
    struct compiled c;
    struct notes notes = {0};
    bool is_found = f->n == 0;
    explain(f->text, false, &c, &notes);
    for (uint32_t i = 0; i < notes.n; i++) {
        ck_assert_str_eq(notes.items[i].pass, "fuse");
        is_found = is_found || (strcmp(notes.items[i].node, f->node) == 0 &&
                                strstr(notes.items[i].text, f->says) != NULL);
    }
    ck_assert_msg(is_found, "no '%s' about %s; the first of %u: %s %s", f->says, f->node, notes.n,
                  notes.n > 0 ? notes.items[0].node : "", notes.n > 0 ? notes.items[0].text : "");
    ck_assert_msg(notes.n == f->n, "%u notes, expected %u: %s", notes.n, f->n, f->text);
    arena_free(&notes.arena);
    compiled_free(&c);
}
END_TEST

/* Fusion off is a reason that nobody needs to be told of each value. */
START_TEST(off)
{
    struct compiled c;
    struct notes notes = {0};
    explain(facts[0].text, true, &c, &notes);
    ck_assert_uint_eq(notes.n, 0);
    ck_assert_uint_eq(c.partition.n_groups, 2);
    arena_free(&notes.arena);
    compiled_free(&c);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, reason, 0, ARRAY_LEN(facts));
    tcase_add_test(tc, off);
}

int main(void)
{
    return run_suite("fuse_explain", fill);
}
