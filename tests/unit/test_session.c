/* Sessions: what binding symbols does and refuses, that no two values alive at once share memory,
 * updates in place, staged and swapped, outputs that are leaves, and leaves pointed at the caller's
 * memory. Results are compared with the eager executor's, bit for bit. */
#include "tests/small_training.h"

struct built {
    struct graph *model;
    struct train_options train;
    struct compiled compiled;
    struct session *session;
};

static void build(struct built *b, const char *text, bool is_training)
{
    struct error e = {0};
    *b = (struct built){0};
    struct compile_options o = small_options(&b->train);
    if (!is_training) {
        o.train = NULL;
        o.policy = NULL;
    }
    b->model = graph_parse(text, strlen(text), "case", &e);
    ck_assert_msg(b->model != NULL, "%s", e.text);
    ck_assert_msg(compile_graph(b->model, &o, &b->compiled, &e) == ATOLL_OK, "%s", e.text);
    b->session = session_create(&b->compiled.program, &e);
    ck_assert_msg(b->session != NULL, "%s", e.text);
}

static void built_free(struct built *b)
{
    session_destroy(b->session);
    compiled_free(&b->compiled);
    graph_destroy(b->model);
}

static void bind(struct built *b, int64_t n)
{
    struct error e = {0};
    ck_assert_msg(session_bind(b->session, (int64_t[]){0, n}, &e) == ATOLL_OK, "%s", e.text);
}

static void step(struct built *b)
{
    struct error e = {0};
    ck_assert_msg(session_step(b->session, &e) == ATOLL_OK, "%s", e.text);
}

static value leaf_named(const struct built *b, const char *name)
{
    value v = graph_find(b->compiled.primitive, name);
    ck_assert_msg(v.id != 0, "no leaf %s", name);
    return v;
}

static float *floats(struct built *b, const char *name)
{
    return session_leaf(b->session, leaf_named(b, name))->data;
}

static const float *output(struct built *b, uint32_t i)
{
    return session_output(b->session, i).data;
}

/* ---- binding ---- */

static const char *const symbolic =
    "graph @g(%x: f32[n,3] input, %w: f32[3] param) { %y = mul(%x, %w)  %s = sum(%y)  return y=%y, "
    "s=%s }";

START_TEST(step_before_bind)
{
    struct built b;
    struct error e = {0};
    build(&b, symbolic, false);
    ck_assert_int_eq(session_step(b.session, &e), ATOLL_USAGE);
    built_free(&b);
    session_destroy(NULL);
}
END_TEST

START_TEST(rebind_keeps_what_has_no_symbol)
{
    static const int64_t sizes[] = {4, 1, 0, 100, 4};
    struct built b;
    build(&b, symbolic, false);
    bind(&b, 2);
    for (int i = 0; i < 3; i++) {
        floats(&b, "w")[i] = (float)(i + 1);
    }
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        int64_t n = sizes[k];
        float sum = 0.0F;
        bind(&b, n);
        const struct tensor *x = session_leaf(b.session, leaf_named(&b, "x"));
        ck_assert_int_eq(x->shape[0], n);
        for (int64_t i = 0; i < n * 3; i++) {
            ((float *)x->data)[i] = (float)i;
        }
        step(&b);
        for (int64_t i = 0; i < n * 3; i++) {
            ASSERT_NUMBER(output(&b, 0)[i], (float)(i * (i % 3 + 1)));
            sum += (float)(i * (i % 3 + 1)); /* whole numbers: any order gives them */
        }
        ASSERT_NUMBER(output(&b, 1)[0], sum);
        ck_assert_int_eq(session_output(b.session, 0).shape[0], n);
    }
    built_free(&b);
}
END_TEST

START_TEST(range_of_a_symbol)
{
    static const int64_t outside[] = {-1, 1, 9, INT64_MAX};
    struct built b;
    struct error e = {0};
    build(&b, symbolic, false);
    b.compiled.primitive->symbols[1].low = 2;
    b.compiled.primitive->symbols[1].high = 8;
    bind(&b, 5);
    ck_assert_int_eq(session_bind(b.session, (int64_t[]){0, outside[_i]}, &e), ATOLL_SHAPE);
    ck_assert_ptr_nonnull(strstr(e.text, "symbol n = "));
    ck_assert_ptr_nonnull(strstr(e.text, "[2, 8]"));
    step(&b); /* the old binding stands */
    ck_assert_int_eq(session_output(b.session, 0).shape[0], 5);
    bind(&b, 2);
    bind(&b, 8);
    built_free(&b);
}
END_TEST

/* ---- the memory plan ---- */

struct seen {
    const unsigned char *at[4096];
    size_t bytes[4096];
};

static void see(void *context, uint32_t launch, value v, const struct tensor *t)
{
    struct seen *s = context;
    (void)launch;
    ck_assert_uint_lt(v.id, ARRAY_LEN(s->at));
    s->at[v.id] = t->data;
    s->bytes[v.id] = tensor_bytes(t);
}

/* Values that are both needed at some launch lie apart, all within the peak. */
START_TEST(no_two_alive_share_memory)
{
    static struct seen seen;
    struct built b;
    uint32_t pairs = 0;
    build(&b, small_text, true);
    const struct program *p = &b.compiled.program;
    const struct graph *g = p->graph;
    const unsigned char *lowest = NULL, *highest = NULL;
    bind(&b, 6 + 20 * _i);
    session_watch(b.session, see, &seen);
    step(&b);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (seen.at[i] == NULL || p->root[i].id != i || node_is_leaf(&g->nodes[i])) {
            continue;
        }
        const unsigned char *end = seen.at[i] + seen.bytes[i];
        lowest = lowest == NULL || seen.at[i] < lowest ? seen.at[i] : lowest;
        highest = highest == NULL || end > highest ? end : highest;
        for (uint32_t k = 1; k < i; k++) {
            if (seen.at[k] == NULL || p->root[k].id != k || node_is_leaf(&g->nodes[k]) ||
                p->first_use[i] > p->last_use[k] || p->first_use[k] > p->last_use[i]) {
                continue;
            }
            pairs++;
            ck_assert_msg(end <= seen.at[k] || seen.at[k] + seen.bytes[k] <= seen.at[i],
                          "nodes %u and %u are alive together and overlap", k, i);
        }
    }
    ck_assert_uint_gt(pairs, 10);
    ck_assert_uint_le((size_t)(highest - lowest), session_peak_bytes(b.session));
    ck_assert_uint_gt(session_leaf_bytes(b.session), 0);
    built_free(&b);
}
END_TEST

START_TEST(peak_follows_the_size)
{
    struct built b;
    build(&b, small_text, true);
    bind(&b, 4);
    size_t small = session_peak_bytes(b.session);
    bind(&b, 400);
    size_t large = session_peak_bytes(b.session);
    bind(&b, 4);
    ck_assert_uint_gt(large, 10 * small);
    ck_assert_uint_eq(session_peak_bytes(b.session), small);
    built_free(&b);
}
END_TEST

/* ---- updates ---- */

START_TEST(in_place)
{
    struct built b;
    build(&b,
          "graph @g(%x: f32[4] input, %v: f32[4] state) { %t = add(%v, %x)  update %v <- %t  "
          "return sum=%t }",
          false);
    bind(&b, 0);
    ck_assert(b.compiled.program.is_in_place[0]);
    for (int i = 0; i < 4; i++) {
        floats(&b, "x")[i] = (float)(i + 1);
    }
    for (int k = 1; k <= 3; k++) {
        step(&b);
        for (int i = 0; i < 4; i++) {
            ASSERT_NUMBER(floats(&b, "v")[i], (float)(k * (i + 1)));
            ASSERT_NUMBER(output(&b, 0)[i], (float)(k * (i + 1)));
        }
    }
    built_free(&b);
}
END_TEST

/* In place or not: the new value reads other elements of the old one, or somebody reads the old one
 * after. */
static const struct old_value {
    const char *name, *text;
    float expected[3]; /* %v after a step from 1 2 3, %x being 10 20 30 */
    bool is_apart;     /* in place, a wide enough machine would hide the mistake */
} old_values[] = {
    {"reversed reader",
     "graph @g(%x: f32[3] input, %v: f32[3] state) { %r = slice(%v) {axis=0, start=1, stop=3}  %z "
     "= "
     "slice(%v) {axis=0, start=0, stop=1}  %c = concat(%r, %z)  %t = add(%c, %x)  update %v <- %t  "
     "return out=%t }",
     {12.0F, 23.0F, 31.0F},
     false},
    {"its first element for all",
     "graph @g(%x: f32[3] input, %v: f32[3] state) { %f = slice(%v) {axis=0, start=0, stop=1}  %t "
     "= "
     "add(%x, %f)  update %v <- %t  return out=%t }",
     {11.0F, 21.0F, 31.0F},
     true},
    {"row sum of the old value",
     "graph @g(%x: f32[3] input, %v: f32[3] state) { %s = sum(%v) {axes=[0], keepdims=true}  %t = "
     "add(%x, %s)  update %v <- %t  return out=%t }",
     {16.0F, 26.0F, 36.0F},
     false},
    {"the old value is an output as well",
     "graph @g(%x: f32[3] input, %v: f32[3] state) { %t = add(%v, %x)  update %v <- %t  return "
     "out=%t, old=%v }",
     {11.0F, 22.0F, 33.0F},
     false},
    {"an input for a state",
     "graph @g(%x: f32[3] input, %v: f32[3] state) { %t = neg(%v)  update %v <- %x  return out=%t "
     "}",
     {10.0F, 20.0F, 30.0F},
     false},
};

START_TEST(updates_read_the_old_values)
{
    const struct old_value *c = &old_values[_i];
    struct built b;
    build(&b, c->text, false);
    bind(&b, 0);
    ck_assert(!c->is_apart || !b.compiled.program.is_in_place[0]);
    for (int i = 0; i < 3; i++) {
        floats(&b, "v")[i] = (float)(i + 1);
        floats(&b, "x")[i] = (float)(10 * (i + 1));
    }
    step(&b);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(floats(&b, "v")[i] == c->expected[i], "%s: [%d] is %g, expected %g", c->name,
                      i, (double)floats(&b, "v")[i], (double)c->expected[i]);
    }
    if (strstr(c->text, "old=%v") != NULL) { /* a snapshot: the value before the step */
        ck_assert(b.compiled.program.is_snapshot[1]);
        for (int i = 0; i < 3; i++) {
            ASSERT_NUMBER(output(&b, 1)[i], (float)(i + 1));
        }
    }
    built_free(&b);
}
END_TEST

/* All updates read the old state: two leaves swap, a third follows one of them. */
START_TEST(swap)
{
    struct built b;
    build(&b,
          "graph @g(%p: f32[2] state, %q: f32[2] state, %r: f32[2] state) { %t = add(%p, %q)  "
          "update %p <- %q  update %q <- %p  update %r <- %p  return out=%t }",
          false);
    bind(&b, 0);
    for (int i = 0; i < 2; i++) {
        floats(&b, "p")[i] = 1.0F;
        floats(&b, "q")[i] = 2.0F;
        floats(&b, "r")[i] = 3.0F;
    }
    for (int k = 0; k < 3; k++) {
        step(&b);
        ASSERT_NUMBER(floats(&b, "p")[1], k % 2 == 0 ? 2.0F : 1.0F);
        ASSERT_NUMBER(floats(&b, "q")[1], k % 2 == 0 ? 1.0F : 2.0F);
        ASSERT_NUMBER(floats(&b, "r")[1], k % 2 == 0 ? 1.0F : 2.0F);
        ASSERT_NUMBER(output(&b, 0)[1], 3.0F);
    }
    built_free(&b);
}
END_TEST

/* ---- pointed leaves ---- */

START_TEST(pointed_leaves)
{
    struct built b;
    float x[4] = {1, 2, 3, 4}, other[4] = {5, 6, 7, 8}, state[4] = {0};
    build(&b,
          "graph @g(%x: f32[4] input, %v: f32[4] state) { %t = add(%v, %x)  update %v <- %t  "
          "return sum=%t }",
          false);
    bind(&b, 0);
    float *own = floats(&b, "v");
    session_point(b.session, leaf_named(&b, "x"), x);
    session_point(b.session, leaf_named(&b, "v"), state);
    step(&b);
    ck_assert_mem_eq(state, x, sizeof x);
    ck_assert_ptr_eq(floats(&b, "v"), state);
    session_point(b.session, leaf_named(&b, "x"), other);
    step(&b);
    ASSERT_NUMBER(state[3], 12.0F);
    ASSERT_NUMBER(x[3], 4.0F);
    ASSERT_NUMBER(own[3], 0.0F);
    session_point(b.session, leaf_named(&b, "v"), NULL); /* its own memory again */
    step(&b);
    ck_assert_ptr_eq(floats(&b, "v"), own);
    ASSERT_NUMBER(own[3], 8.0F);
    ASSERT_NUMBER(state[3], 12.0F);
    built_free(&b);
}
END_TEST

/* ---- against eager ---- */

static void same(const char *name, const struct tensor *a, const struct tensor *b)
{
    ck_assert_int_eq(tensor_count(a), tensor_count(b));
    ck_assert_msg(memcmp(a->data, b->data, tensor_bytes(a)) == 0, "%s: other bits", name);
}

/* A training step over changing sizes, fused and eager from the same state. */
START_TEST(training_like_eager)
{
    static const int64_t sizes[] = {6, 2, 6, 33, 1};
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    struct runner eager, fused;
    static float x[33 * 5];
    static int64_t y[33];
    ck_assert_msg(runner_open(&fused, model, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    o.is_eager = true;
    ck_assert_msg(runner_open(&eager, model, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        for (int64_t i = 0; i < sizes[k] * 5; i++) {
            x[i] = (float)((i * 13 + (int64_t)k) % 17 - 8) / 5.0F;
            y[i / 5] = (i + (int64_t)k) % 4;
        }
        struct tensor tx = {.dtype = F32, .rank = 2, .shape = {sizes[k], 5}, .data = x};
        struct tensor ty = {.dtype = I64, .rank = 1, .shape = {sizes[k]}, .data = y};
        struct runner *both[2] = {&fused, &eager};
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(runner_input(both[r], "x", &tx, &e), ATOLL_OK);
            ck_assert_int_eq(runner_input(both[r], "y", &ty, &e), ATOLL_OK);
            ck_assert_int_eq(runner_step(both[r], &e), ATOLL_OK);
        }
        const struct graph *g = runner_graph(&fused);
        for (uint32_t i = 0; i < g->n_outputs; i++) {
            struct tensor a = runner_output(&fused, g->outputs[i].name),
                          c = runner_output(&eager, g->outputs[i].name);
            same(g->outputs[i].name, &a, &c);
        }
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            if (plan_keeps(&g->nodes[i])) {
                same(g->nodes[i].name, runner_leaf(&fused, g->nodes[i].name),
                     runner_leaf(&eager, g->nodes[i].name));
            }
        }
    }
    ASSERT_NUMBER((float)runner_number(&fused, "accepted"), 5.0F);
    runner_free(&fused);
    runner_free(&eager);
    graph_destroy(model);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_test(tc, step_before_bind);
    tcase_add_test(tc, rebind_keeps_what_has_no_symbol);
    tcase_add_loop_test(tc, range_of_a_symbol, 0, 4);
    tcase_add_loop_test(tc, no_two_alive_share_memory, 0, 3);
    tcase_add_test(tc, peak_follows_the_size);
    tcase_add_test(tc, in_place);
    tcase_add_loop_test(tc, updates_read_the_old_values, 0, ARRAY_LEN(old_values));
    tcase_add_test(tc, swap);
    tcase_add_test(tc, pointed_leaves);
    tcase_add_test(tc, training_like_eager);
}

int main(void)
{
    return run_suite("session", fill);
}
