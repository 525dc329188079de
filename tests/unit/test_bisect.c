/* Bisecting: the fusion that a relaxed run differs by, to the op; the policy decision that takes a
 * result away from the reference; and that nothing is named where nothing differs. */
#include "frontend/bisect.h"

#include "tests/small_training.h"

static struct graph *parse(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse_lines(text, strlen(text), "bisect.graph", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

static float rows[SMALL_ROWS * 5];

static struct tensor batch(void)
{
    int64_t y[SMALL_ROWS];
    small_batch(rows, y);
    return (struct tensor){.dtype = F32, .rank = 2, .shape = {SMALL_ROWS, 5}, .data = rows};
}

static status feed(void *context, struct runner *r, struct error *e)
{
    (void)context;
    struct tensor x = batch();
    return runner_input(r, "x", &x, e);
}

/* %a is the first value that one kernel need not round; %b shows it. */
static const char chain[] =
    "graph @g(%x: f32[n,5] input) {\n"
    "  %p = mul(%x, 2)\n  %q = max(%p) {axes=[0]}\n"
    "  %c = cast(%x) {dtype=bf16}\n  %a = mul(%c, 1.1)\n  %b = sub(%a, %c)\n  %d = mul(%b, 1.7)\n"
    "  %e = add(%d, %a)\n  %f = cast(%e) {dtype=f32}\n  %loss = sum(%f)\n"
    "  return loss=%loss, q=%q, f=%f\n}\n";

static void search(bool is_relaxed, struct bisect *found)
{
    struct error e = {0};
    struct compile_options o = {
        .cache = small_kernels(), .cc.optimise = "-O0", .is_relaxed = is_relaxed};
    struct runner before = {0};
    struct graph *g = parse(chain);
    o.is_eager = true;
    ck_assert_msg(runner_open(&before, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    o.is_eager = false;
    ck_assert_msg(bisect_fusion(g, &o, 1, &before, feed, NULL, found, &e) == ATOLL_OK, "%s",
                  e.text);
    runner_free(&before);
    graph_destroy(g);
}

START_TEST(first_fusion)
{
    struct bisect found;
    search(true, &found);
    ck_assert_msg(found.kind == BISECT_FUSION, "%s", found.text);
    ck_assert_msg(strcmp(found.node, "b") == 0, "%s", found.text);
    ck_assert_msg(found.members == 4 && found.of > 6, "%s", found.text);
    ck_assert(strstr(found.text, "cast(%c) mul(%a) sub(%b); without the last") != NULL);
    ck_assert(strstr(found.text, "There: %b (sub, bisect.graph:6)[") != NULL);
    ck_assert(found.tries > 4 && found.tries < 14);
}
END_TEST

START_TEST(nothing_to_find)
{
    struct bisect found;
    search(false, &found);
    ck_assert_int_eq(found.kind, BISECT_NONE);
    ck_assert_uint_eq(found.tries, 1);
    ck_assert_str_eq(found.text, "the step does not differ when it is run again");
}
END_TEST

static const char sums[] =
    "graph @g(%x: f32[n,5] input, %w: f32[4,5] param {init=\"normal:0.3\"}) {\n"
    "  %z = linear(%x, %w)\n  %g = gelu(%z)\n  %u = add(%g, 500)\n  %v = sub(%u, 500)\n"
    "  %t = tanh(%v)\n  %loss = mean(%t)\n  return loss=%loss, t=%t\n}\n";

static void decide(const char *text, const char *policy, double tolerance, struct bisect *found)
{
    struct error e = {0};
    struct compile_options o = {0};
    struct tensor x = batch(), y = {0};
    struct graph *g = parse(text);
    ck_assert(policy == NULL || policy_named(policy, &o.policy, &e) == ATOLL_OK);
    ck_assert_msg(bisect_policy(g, &o, 1, &x, &y, tolerance, found, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
}

START_TEST(first_decision)
{
    struct bisect found;
    decide(sums, "fp16", 0.02, &found);
    ck_assert_msg(found.kind == BISECT_POLICY && strcmp(found.node, "u") == 0, "%s", found.text);
    ck_assert(found.without < 0.02 && found.with_it > 0.02);
    ck_assert(strstr(found.text, "%u (add, bisect.graph:4)") != NULL);
    ck_assert(strstr(found.text, "hint: node \"u\" f32") != NULL);
}
END_TEST

/* The advice helps: with that node in f32 the next decision is another one. */
START_TEST(advice_followed)
{
    struct bisect found;
    struct error e = {0};
    struct arena a = {0};
    struct policy p;
    struct compile_options o = {.policy = &p};
    struct tensor x = batch(), y = {0};
    static const char lines[] = "base fp16\nnode \"u\" f32\n";
    struct graph *g = parse(sums);
    ck_assert(policy_load(&a, lines, strlen(lines), "p", NULL, &p, &e) == ATOLL_OK);
    ck_assert_msg(bisect_policy(g, &o, 1, &x, &y, 0.02, &found, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(found.kind == BISECT_NONE, "%s", found.text);
    ck_assert(strstr(found.text, "within relative L2 0.02") != NULL);
    graph_destroy(g);
    arena_free(&a);
}
END_TEST

START_TEST(no_decision)
{
    struct bisect found;
    decide(sums, "bf16", 1e9, &found);
    ck_assert(found.kind == BISECT_NONE && found.tries == 1);
    decide(sums, "fp32", 0.0, &found);
    ck_assert(found.kind == BISECT_NONE && strstr(found.text, "no policy decision") != NULL);
    decide(sums, NULL, 0.0, &found);
    ck_assert(found.kind == BISECT_NONE && found.tries == 0);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_test(tc, first_fusion);
    tcase_add_test(tc, nothing_to_find);
    tcase_add_test(tc, first_decision);
    tcase_add_test(tc, advice_followed);
    tcase_add_test(tc, no_decision);
}

int main(void)
{
    return run_suite("bisect", fill);
}
