/* Field cases of indices, views and broadcasts, and of the index check. See cases.h. */
#include "atoll/plan.h"
#include "ir/print.h"
#include "tests/numeric/cases.h"

#include <unistd.h>

#define EMBED                                                                                      \
    "graph @g(%w: f32[4,2] param, %i: i64[2,3] input) {\n"                                         \
    "%y = embedding(%w, %i)\n%loss = sum(%y)\nreturn loss=%loss, y=%y\n}"
#define LABELS                                                                                     \
    "graph @g(%w: f32[3,4] param, %b: f32[3] param, %x: f32[2,4] input, %t: i64[2] input) {\n"     \
    "%z = linear(%x, %w, %b)\n%loss = cross_entropy(%z, %t)\nreturn loss=%loss\n}"

static const struct field_case cases[] = {
    {.id = "FC062",
     .graph = EMBED,
     .inputs = {{"w", {10.0, 11.0, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0}},
                {"i", {3.0, 0.0, 0.0, 1.0, 3.0, 2.0}}},
     .outputs = {{"y", {40.0, 41.0, 10.0, 11.0, 10.0, 11.0, 20.0, 21.0, 40.0, 41.0, 30.0, 31.0}}}},
    {.id = "FC062 negative",
     .graph = EMBED,
     .error = "embedding %y: index -2 at [0,1] of %i is outside [0,4); nothing was run",
     .inputs = {{"i", {2.0, -2.0, 1.0, 0.0, 0.0, 0.0}}}},
    {.id = "FC062 too large",
     .graph = EMBED,
     .error = "embedding %y: index 4 at [1,2] of %i is outside [0,4); nothing was run",
     .inputs = {{"i", {0.0, 0.0, 0.0, 1.0, 2.0, 4.0}}}},
    {.id = "FC062 with gradients",
     .graph = EMBED,
     .wants_gradients = true,
     .error = "embedding %y: index 4 at [0,0] of %i is outside [0,4)",
     .inputs = {{"i", {4.0}}}},
    {.id = "FC062 in training",
     .graph = EMBED,
     .optimizer = "adamw,lr=0.1",
     .scale = 1024.0,
     .error = "embedding %y: index -1 at [1,0] of %i is outside [0,4)",
     .inputs = {{"i", {0.0, 0.0, 0.0, -1.0}}}},
    {.id = "FC062 labels in training",
     .graph = LABELS,
     .policy = "bf16",
     .optimizer = "sgd,lr=0.1,momentum=0.9",
     .error = "cross_entropy %loss: index 3 at [1] of %t is outside [0,3), or -100 to be ignored",
     .inputs = {{"x", {1.0}, .count = 1}, {"t", {-100.0, 3.0}}}},
    {.id = "FC062 one_hot",
     .graph = "graph @g(%i: i32[3] input) {\n%y = one_hot(%i) {classes=3}\nreturn y=%y\n}",
     .error = "one_hot %y: index 3 at [2] of %i is outside [0,3)",
     .inputs = {{"i", {0.0, 2.0, 3.0}}}},
    {.id = "FC062 nll_loss of a slice",
     .graph = "graph @g(%lp: f32[2,3] input, %i: i64[3] input) {\n"
              "%t = slice(%i) {start=1}\n%y = nll_loss(%lp, %t) {ignore_index=7}\n"
              "return y=%y\n}",
     .error = "nll_loss %y: index -1 at [1] of %t (made of %i) is outside [0,3), or 7 to be",
     .inputs = {{"i", {9.0, 7.0, -1.0}}}},
    {.id = "FC062 an offset",
     .graph = "graph @g(%w: f32[n,2] input, %i: i64[2] input) {\n"
              "%k = add(%i, 1)\n%y = embedding(%w, %k)\nreturn y=%y\n}",
     .error = "embedding %y: index 3 at [1] of %k (made of %i) is outside [0,3)",
     .inputs = {{"w", {0.0}, .count = 1, .size = 3}, {"i", {-1.0, 2.0}, .size = 3}}},
    {.id = "FC063 a",
     .graph = "graph @g(%x: f32[2,3] input, %i: i64[1] input) {\n"
              "%a = take(%x, %i)\nreturn a=%a\n}",
     .error = "take %a: index 2 at [0] of %i is outside [-2,2)",
     .inputs = {{"i", {2.0}}}},
    {.id = "FC063 b",
     .graph = "graph @g(%z: f32[4,3] input, %j: i64[2] input, %s: f32[2,3] input) {\n"
              "%b = index_add(%z, %j, %s)\nreturn b=%b\n}",
     .error = "index_add %b: index -1 at [1] of %j is outside [0,4)",
     .inputs = {{"j", {0.0, -1.0}}, {"s", {1.0}, .count = 1}}},
    {.id = "FC063 gather",
     .graph = "graph @g(%x: f32[2,3] input, %i: i64[2,1] input) {\n"
              "%a = gather(%x, %i)\nreturn a=%a\n}",
     .error = "gather %a: index -4 at [1,0] of %i is outside [-3,3)",
     .inputs = {{"i", {-3.0, -4.0}}}},
    {.id = "FC063 scatter_add",
     .graph = "graph @g(%x: f32[2,3] input, %i: i64[2,1] input, %s: f32[2,1] input) {\n"
              "%a = scatter_add(%x, %i, %s)\nreturn a=%a\n}",
     .error = "scatter_add %a: index 3 at [0,0] of %i is outside [-3,3)",
     .inputs = {{"i", {3.0, 0.0}}}},
    {.id = "FC063 counting from the end, and its gradient",
     .graph = "graph @g(%x: f32[3,2] param, %i: i64[2] input, %j: i64[3,2] input) {\n"
              "%a = take(%x, %i)\n%b = gather(%x, %j) {axis=1}\n"
              "%s = sum(%a)\n%t = sum(%b)\n%loss = add(%s, %t)\n"
              "return loss=%loss, a=%a, b=%b\n}",
     .wants_gradients = true,
     .inputs = {{"x", {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}},
                {"i", {0.0, -1.0}},
                {"j", {-1.0, 0.0, -2.0, -2.0, 1.0, -1.0}}},
     .outputs = {{"a", {1.0, 2.0, 5.0, 6.0}},
                 {"b", {2.0, 1.0, 3.0, 3.0, 6.0, 6.0}},
                 {"grad:x", {2.0, 2.0, 2.0, 0.0, 1.0, 3.0}}}},
    {.id = "FC064",
     .graph = "graph @g(%w: f32[4,2] param, %j: i64[800] input) {\n"
              "%n = iota() {shape=[800]}\n%a = eq(%n, 5)\n%b = eq(%n, 700)\n"
              "%c = or(%a, %b)\n%k = cast(%c) {dtype=i64}\n%i = mul(%j, %k)\n"
              "%y = embedding(%w, %i) {padding_idx=0}\n%loss = sum(%y)\nreturn loss=%loss\n}",
     .wants_gradients = true,
     .inputs = {{"j", {3.0}, .count = 1}},
     .outputs = {{"grad:w", {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0}}}},
    {.id = "FC065",
     .graph = "graph @g(%x: f32[8,4] input, %i: i64[8,4] input, %j: i64[8] input) {\n"
              "%z = constant() {value=0}\n%zero = expand(%z) {shape=[1,4]}\n"
              "%r = scatter_add(%zero, %i, %x) {axis=0}\n%y = take(%r, %j)\nreturn y=%y\n}",
     .inputs = {{"x", {0.0,  0.25, 0.5,  0.75, 1.0,  1.25, 1.5,  1.75, 2.0,  2.25, 2.5,
                       2.75, 3.0,  3.25, 3.5,  3.75, 4.0,  4.25, 4.5,  4.75, 5.0,  5.25,
                       5.5,  5.75, 6.0,  6.25, 6.5,  6.75, 7.0,  7.25, 7.5,  7.75}},
                {"i", {0.0}, .count = 1},
                {"j", {0.0}, .count = 1}},
     .outputs = {{"y", {28.0, 30.0, 32.0, 34.0}, .count = 4}}},
    {.id = "FC069",
     .graph = "graph @g(%a: f32[3,1] param, %b: f32[1,4] param, %c: f32[] param,\n"
              "%d: f32[2,3] param, %e: f32[2] param, %f: f32[3,1,2] param) {\n"
              "%y = mul(%a, %b)\n%z = mul(%c, %d)\n%u = add(%e, %f)\n"
              "%p = sum(%y)\n%q = sum(%z)\n%r = sum(%u)\n%s = add(%p, %q)\n"
              "%loss = add(%s, %r)\nreturn loss=%loss\n}",
     .wants_gradients = true,
     .inputs = {{"a", {1.0, 2.0, 3.0}},
                {"b", {1.0, 10.0, 100.0, 1000.0}},
                {"c", {2.0}},
                {"d", {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}},
                {"e", {1.0, 2.0}}},
     .outputs = {{"grad:a", {1111.0, 1111.0, 1111.0}},
                 {"grad:b", {6.0, 6.0, 6.0, 6.0}},
                 {"grad:c", {21.0}},
                 {"grad:d", {2.0}, .count = 1},
                 {"grad:e", {3.0, 3.0}},
                 {"grad:f", {1.0}, .count = 1}}},
};

START_TEST(field_case)
{
    check_case(&cases[_i]);
}
END_TEST

/* The gradient of a broadcast operand has the operand's shape. */
START_TEST(fc069_shapes)
{
    const struct field_case *c = &cases[ARRAY_LEN(cases) - 1];
    struct error e = {0};
    struct graph *g = graph_parse(c->graph, strlen(c->graph), c->id, &e);
    struct compiled out;
    struct compile_options o = {.is_eager = true, .wants_gradients = true};
    ck_assert_msg(compile_graph(g, &o, &out, &e) == ATOLL_OK, "%s", e.text);
    for (uint32_t i = 0; i < out.primitive->n_outputs; i++) {
        const struct output *y = &out.primitive->outputs[i];
        if (strncmp(y->name, "grad:", 5) == 0) {
            const struct node *leaf = graph_node(g, graph_find(g, y->name + 5));
            ck_assert_msg(shape_equal(&graph_node(out.primitive, y->value)->shape, &leaf->shape),
                          "FC069: %s has another shape than its operand", y->name);
        }
    }
    compiled_free(&out);
    graph_destroy(g);
}
END_TEST

/* A plan holds the checks of the model that it was made of. */
START_TEST(fc062_in_a_plan)
{
    char path[] = "/tmp/atoll-index-XXXXXX";
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t labels[2] = {0, 3}, shape[] = {2, 4};
    struct error e = {0};
    struct runner r = {0};
    struct compiled passes;
    struct train_options train = train_options_default();
    struct compile_options o = {.is_eager = true, .train = &train};
    struct arena scratch = {0};
    struct text t = {.arena = &scratch};
    struct graph *g = graph_parse(LABELS, strlen(LABELS), "FC062", &e);
    ck_assert_msg(g != NULL && compile_graph(g, &o, &passes, &e) == ATOLL_OK, "%s", e.text);
    graph_print(passes.primitive, &t, NULL);
    struct graph *primitive = graph_parse(t.data, t.length, "FC062", &e);
    o.is_eager = false;
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && close(fd) == 0);
    ck_assert_msg(compile_primitive(primitive, &o, &r.compiled, &e) == ATOLL_OK &&
                      runner_from(&r, 1, &e) == ATOLL_OK &&
                      runner_write_plan(&r, path, "FC062\n", &e) == ATOLL_OK,
                  "%s", e.text);
    atoll_plan *plan = NULL;
    atoll_view w;
    atoll_error error = {0};
    ck_assert_msg(atoll_plan_open(path, &plan, &error) == ATOLL_OK, "%s", error.text);
    ck_assert(atoll_plan_bind(plan, "x", x, shape, 2, &error) == ATOLL_OK);
    ck_assert(atoll_plan_bind(plan, "t", labels, shape, 1, &error) == ATOLL_OK);
    ck_assert(atoll_plan_state(plan, "w", &w, &error) == ATOLL_OK);
    uint64_t before = hash_bytes(w.data, w.bytes, 0);
    ck_assert_int_eq(atoll_plan_step(plan, &error), ATOLL_DATA);
    ck_assert_msg(strstr(error.text, "index 3 at [1] of %t is outside [0,3)") != NULL, "%s",
                  error.text);
    ck_assert(hash_bytes(w.data, w.bytes, 0) == before);
    labels[1] = 2; /* the caller's memory: put right, the step goes */
    ck_assert(atoll_plan_step(plan, NULL) == ATOLL_OK);
    ck_assert(hash_bytes(w.data, w.bytes, 0) != before);
    atoll_plan_close(plan);
    unlink(path);
    runner_free(&r);
    compiled_free(&passes);
    graph_destroy(g);
    arena_free(&scratch);
}
END_TEST

static const char *const own_transposes[] = {
    "graph @g(%m: f32[3,3] state, %v: f32[5] state, %big: f32[80000,5,5] state) {\n"
    "%t = transpose(%m)\n%m1 = mul(%t, 1.0)\n"
    "%p = transpose(%big) {perm=[0,2,1]}\n%b1 = mul(%p, 1.0)\n"
    "%i = iota() {shape=[5]}\n%j = sub(4, %i)\n%v1 = take(%v, %j)\n"
    "update %m <- %m1\nupdate %v <- %v1\nupdate %big <- %b1\nreturn m=%m1\n}",
    "graph @g(%m: f32[3,3] state, %v: f32[5] state, %big: f32[80000,5,5] state) {\n"
    "%m1 = transpose(%m)\n%b1 = transpose(%big) {perm=[0,2,1]}\n"
    "%i = iota() {shape=[5]}\n%j = sub(4, %i)\n%v1 = take(%v, %j)\n"
    "update %m <- %m1\nupdate %v <- %v1\nupdate %big <- %b1\nreturn n=%b1\n}",
};

enum { N_BIG = 80000 * 25 };

/* A state updated with its own transpose or reverse: the whole right side is read first. */
START_TEST(fc067_update_by_itself)
{
    const char *text = own_transposes[_i / 2];
    struct error e = {0};
    struct runner r;
    struct compile_options o = {.is_eager = _i % 2 == 0, .cache = shared_kernels()};
    struct graph *g = graph_parse(text, strlen(text), "FC067", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    float *m = runner_leaf(&r, "m")->data, *v = runner_leaf(&r, "v")->data,
          *big = runner_leaf(&r, "big")->data;
    for (int k = 0; k < N_BIG; k++) {
        m[k % 9] = (float)(k % 9);
        v[k % 5] = (float)(k % 5 + 1);
        big[k] = (float)k;
    }
    ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
    int n_wrong = 0, first = -1;
    for (int k = N_BIG; k-- > 0;) { /* one assertion for all: each costs a write */
        int block = k / 25 * 25, row = k % 25 / 5, column = k % 5;
        bool is_wrong = big[k] != (float)(block + column * 5 + row);
        n_wrong += is_wrong;
        first = is_wrong ? k : first;
    }
    ck_assert_msg(n_wrong == 0, "FC067: %d wrong elements, first at %d", n_wrong, first);
    for (int k = 0; k < 9; k++) {
        ck_assert_msg(m[k] == (float)(k % 3 * 3 + k / 3), "FC067: m[%d]", k);
        ck_assert_msg(v[k % 5] == (float)(5 - k % 5), "FC067: v[%d]", k % 5);
    }
    runner_free(&r);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
    tcase_add_test(tc, fc062_in_a_plan);
    tcase_add_test(tc, fc069_shapes);
    tcase_add_loop_test(tc, fc067_update_by_itself, 0, 2 * ARRAY_LEN(own_transposes));
}

int main(void)
{
    return run_suite("field cases, indices", fill);
}
