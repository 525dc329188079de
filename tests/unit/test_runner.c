/* Runners: one model run eagerly or fused, its inputs bound and refused, its leaves, outputs,
 * checkpoints and plans, and checks that step an eager twin beside the fused run. */
#include "frontend/parting.h"
#include "tests/small_training.h"

#include <math.h>
#include <omp.h>

static void open_small(struct runner *r, bool is_eager, uint64_t seed)
{
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    o.is_eager = is_eager;
    ck_assert_msg(runner_open(r, model, &o, seed, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(small_feed(r, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(model); /* the runner keeps nothing of it */
}

static double step(struct runner *r)
{
    struct error e = {0};
    ck_assert_msg(runner_step(r, &e) == ATOLL_OK, "%s", e.text);
    return runner_number(r, "loss");
}

static void same_leaves(struct runner *a, struct runner *b)
{
    const struct graph *g = runner_graph(a);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (plan_keeps(&g->nodes[i])) {
            const struct tensor *p = runner_leaf(a, g->nodes[i].name),
                                *q = runner_leaf(b, g->nodes[i].name);
            ck_assert_mem_eq(p->data, q->data, tensor_bytes(p));
        }
    }
}

/* ---- the same, both ways ---- */

START_TEST(both_modes_agree)
{
    struct runner fused, eager;
    open_small(&fused, false, 3);
    open_small(&eager, true, 3);
    ck_assert_ptr_null(eager.session);
    ck_assert_ptr_nonnull(fused.session);
    same_leaves(&fused, &eager);
    for (int i = 0; i < 3; i++) {
        ASSERT_NUMBER(step(&fused), step(&eager));
    }
    same_leaves(&fused, &eager);
    ck_assert_uint_gt(eager.peak_bytes, 0);
    ck_assert_uint_gt(fused.peak_bytes, 0);
    runner_free(&fused);
    runner_free(&eager);
}
END_TEST

/* Parameters of one multi-tensor kernel: empty, below, at and above its blocks, few and many blocks
 * a thread. However many threads share them, each element is updated once. */
START_TEST(threads_share_tensors)
{
    static const int threads[] = {1, 2, 3, 5, 16};
    static const char text[] =
        "graph @m(%a: f32[0] param, %b: f32[1] param, %c: f32[1023] param, %d: f32[4096] param,\n"
        "         %e: f32[1025] param, %f: f32[9000] param, %g: f32[70001] param,\n"
        "         %h: f32[20480] param) {\n"
        "  %p = concat(%a, %b, %c, %d, %e, %f, %g, %h) {axis=0}\n"
        "  %q = tanh(%p)\n  %loss = sum(%q)\n  return loss=%loss\n}\n";
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.policy = policy_builtin("fp32"), .train = &train};
    struct graph *g = graph_parse(text, strlen(text), "test", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    struct runner fused, eager;
    int before = omp_get_max_threads();
    ck_assert_msg(runner_open(&fused, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    o.is_eager = true;
    ck_assert_msg(runner_open(&eager, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        omp_set_num_threads(threads[i]);
        ASSERT_NUMBER(step(&fused), step(&eager));
        same_leaves(&fused, &eager);
    }
    omp_set_num_threads(before);
    runner_free(&fused);
    runner_free(&eager);
    graph_destroy(g);
}
END_TEST

START_TEST(seed_decides_the_first_values)
{
    struct runner a, b;
    open_small(&a, true, 1);
    open_small(&b, true, _i == 0 ? 1 : 2);
    bool is_same = memcmp(runner_leaf(&a, "w1")->data, runner_leaf(&b, "w1")->data, 8 * 5 * 4) == 0;
    ck_assert_int_eq(is_same, _i == 0);
    runner_copy_leaves(&b, &a);
    same_leaves(&a, &b);
    runner_free(&a);
    runner_free(&b);
}
END_TEST

/* Leaves go from a training runner into a forward one of the same parameters: those both have. */
START_TEST(copy_into_another_graph)
{
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    struct graph *model = small_model(&e);
    struct runner training, forward;
    open_small(&training, false, 1);
    ck_assert_int_eq(runner_open(&forward, model, &o, 99, &e), ATOLL_OK);
    ck_assert_int_eq(small_feed(&forward, &e), ATOLL_OK);
    (void)step(&training);
    runner_copy_leaves(&forward, &training);
    ck_assert_mem_eq(runner_leaf(&forward, "w1")->data, runner_leaf(&training, "w1")->data, 160);
    ck_assert(isfinite(step(&forward)));
    runner_free(&training);
    runner_free(&forward);
    graph_destroy(model);
}
END_TEST

START_TEST(what_there_is_not)
{
    struct runner r;
    open_small(&r, _i == 1, 1);
    (void)step(&r);
    ck_assert_ptr_null(runner_leaf(&r, "nothing"));
    ck_assert_ptr_null(runner_output(&r, "nothing").data);
    ck_assert(isnan(runner_number(&r, "nothing")));
    runner_free(&r);
}
END_TEST

/* ---- inputs ---- */

static const struct misfit {
    const char *name, *leaf;
    struct tensor t;
    status code;
    const char *says;
} misfits[] = {
    {"no leaf", "z", {.dtype = F32, .rank = 2, .shape = {6, 5}}, ATOLL_NOT_FOUND, "no input %z"},
    {"dtype",
     "x",
     {.dtype = F64, .rank = 2, .shape = {6, 5}},
     ATOLL_SHAPE,
     "%x: expected f32[n,5], found f64"},
    {"rank", "x", {.dtype = F32, .rank = 1, .shape = {30}}, ATOLL_SHAPE, "found f32[30]"},
    {"width", "x", {.dtype = F32, .rank = 2, .shape = {5, 6}}, ATOLL_SHAPE, "expected f32[n,5]"},
};

START_TEST(input_that_does_not_fit)
{
    const struct misfit *m = &misfits[(size_t)_i % ARRAY_LEN(misfits)];
    struct runner r, untouched;
    struct error e = {0};
    struct tensor t = m->t;
    double data[64] = {0};
    t.data = data;
    open_small(&r, (size_t)_i >= ARRAY_LEN(misfits), 1);
    open_small(&untouched, true, 1);
    ck_assert_int_eq(runner_input(&r, m->leaf, &t, &e), m->code);
    ck_assert_msg(strstr(e.text, m->says) != NULL, "%s: '%s' not in: %s", m->name, m->says, e.text);
    ASSERT_NUMBER(step(&r), step(&untouched));
    runner_free(&r);
    runner_free(&untouched);
}
END_TEST

/* Each input sets the symbol; two that disagree leave the last one's size, and the step of a graph
 * whose tensors were filled for another size still runs over the size that holds. */
START_TEST(sizes_change_between_steps)
{
    struct runner r;
    struct error e = {0};
    static float x[64 * 5];
    static int64_t y[64];
    open_small(&r, _i == 1, 1);
    for (int64_t n = 1; n <= 64; n *= 4) {
        struct tensor tx = {.dtype = F32, .rank = 2, .shape = {n, 5}, .data = x};
        struct tensor ty = {.dtype = I64, .rank = 1, .shape = {n}, .data = y};
        ck_assert_int_eq(runner_input(&r, "x", &tx, &e), ATOLL_OK);
        ck_assert_int_eq(runner_input(&r, "y", &ty, &e), ATOLL_OK);
        ck_assert(isfinite(step(&r)));
        ck_assert_int_eq(runner_output(&r, "logits").shape[0], n);
    }
    runner_free(&r);
}
END_TEST

/* ---- checkpoints and plans ---- */

START_TEST(save_and_resume)
{
    struct runner whole, half, resumed;
    struct error e = {0};
    char path[128];
    int64_t steps = 0;
    snprintf(path, sizeof path, "%s/runner.safetensors", small_directory());
    open_small(&whole, false, 1);
    open_small(&half, false, 1);
    for (int i = 0; i < 4; i++) {
        (void)step(&whole);
    }
    for (int i = 0; i < 2; i++) {
        (void)step(&half);
    }
    ck_assert_int_eq(runner_save(&half, path, 2, &e), ATOLL_OK);
    open_small(&resumed, _i == 1, 77); /* eager or fused: the file does not know */
    ck_assert_int_eq(runner_load(&resumed, path, &steps, &e), ATOLL_OK);
    ck_assert_int_eq(steps, 2);
    for (int i = 0; i < 2; i++) {
        (void)step(&resumed);
    }
    same_leaves(&whole, &resumed);
    runner_free(&whole);
    runner_free(&half);
    runner_free(&resumed);
}
END_TEST

START_TEST(checkpoint_of_another_graph)
{
    static const char *const text = "graph @g(%x: f32[2] input, %w1: f32[7] param {init=\"ones\"}) "
                                    "{ %y = sum(%w1)  return y=%y }";
    struct runner r, other, untouched;
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    char path[128];
    int64_t steps = 5;
    struct graph *g = graph_parse(text, strlen(text), "other", &e);
    snprintf(path, sizeof path, "%s/other.safetensors", small_directory());
    ck_assert_int_eq(runner_open(&other, g, &o, 1, &e), ATOLL_OK);
    ck_assert_int_eq(runner_save(&other, path, 9, &e), ATOLL_OK);
    open_small(&r, false, 1);
    open_small(&untouched, false, 1);
    ck_assert_int_eq(runner_load(&r, path, &steps, &e), ATOLL_DATA);
    ck_assert_int_eq(steps, 5);
    same_leaves(&r, &untouched);
    runner_free(&r);
    runner_free(&other);
    runner_free(&untouched);
    graph_destroy(g);
}
END_TEST

START_TEST(plan_there_and_back)
{
    struct runner r, from_plan;
    struct error e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/runner.plan", small_directory());
    ck_assert_msg(small_plan(path, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_open_plan(&from_plan, path, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(small_feed(&from_plan, &e), ATOLL_OK);
    open_small(&r, false, 1);
    same_leaves(&r, &from_plan);
    for (int i = 0; i < 3; i++) {
        ASSERT_NUMBER(step(&r), step(&from_plan));
    }
    runner_free(&r);
    runner_free(&from_plan);
    ck_assert_int_eq(runner_open_plan(&from_plan, "/nonexistent.plan", &e), ATOLL_NOT_FOUND);
    runner_free(&from_plan);
}
END_TEST

/* ---- failures ---- */

START_TEST(no_compiler)
{
    struct runner r;
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    o.cache = NULL;
    o.cc.compiler = "/nonexistent/cc";
    ck_assert_int_eq(runner_open(&r, model, &o, 1, &e), ATOLL_COMPILER);
    runner_free(&r);
    graph_destroy(model);
}
END_TEST

static const struct list {
    const char *disabled, *stop_after;
    status code;
} lists[] = {{"fuse,islands", NULL, ATOLL_OK},
             {"", "", ATOLL_OK},
             {"simplify,autocast", NULL, ATOLL_OK},
             {NULL, "simplify", ATOLL_OK},
             {NULL, "fuse", ATOLL_OK},
             {NULL, "train_step", ATOLL_OK},
             {"decompose", NULL, ATOLL_USAGE},
             {"fuse,decompose", NULL, ATOLL_USAGE},
             {"fus", NULL, ATOLL_USAGE},
             {"fuse,,islands", NULL, ATOLL_USAGE},
             {NULL, "simplify,fuse", ATOLL_USAGE},
             {NULL, "fusee", ATOLL_USAGE}};

START_TEST(passes_left_out)
{
    const struct list *l = &lists[_i];
    struct runner r;
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    o.disabled = l->disabled;
    o.stop_after = l->stop_after != NULL && l->stop_after[0] != '\0' ? l->stop_after : NULL;
    o.is_eager = true;
    status code = runner_open(&r, model, &o, 1, &e);
    ck_assert_msg(code == l->code, "%s: status %d: %s", l->disabled != NULL ? l->disabled : "",
                  (int)code, e.text);
    if (code == ATOLL_OK) {
        ck_assert_int_eq(small_feed(&r, &e), ATOLL_OK);
        ck_assert(isfinite(step(&r)));
    }
    runner_free(&r);
    graph_destroy(model);
}
END_TEST

/* ---- checks and partings ---- */

static float wrong_by; /* what the planted kernel adds */
static kernel_fn *true_kernel;
static uint32_t wrong_arg;

/* Runs the true kernel, then spoils one element of its last result. */
static void planted(void *const *args, const int64_t *symbols, const int64_t *flat, int64_t count)
{
    true_kernel(args, symbols, flat, count);
    float *out = args[wrong_arg];
    out[1] += wrong_by;
}

/* A launch in the middle that writes an f32 tensor of over one element. */
static const struct launch *spoil(struct runner *r)
{
    struct program *p = &r->compiled.program;
    for (uint32_t i = p->n_launches / 2; i < p->n_launches; i++) {
        struct launch *l = &p->launches[i];
        const struct node *n = graph_node(p->graph, l->args[l->n_args - 1]);
        if (l->kind == LAUNCH_KERNEL && l->count == 1 && n->dtype == F32 &&
            shape_count_value(&n->shape, r->symbols) > 1) {
            true_kernel = l->fn;
            wrong_arg = l->n_args - 1;
            l->fn = planted;
            return l;
        }
    }
    ck_abort_msg("no launch to spoil");
    return NULL;
}

START_TEST(a_planted_difference_is_named)
{
    struct runner fused, eager;
    struct error e = {0};
    struct parting parting;
    open_small(&fused, false, 1);
    open_small(&eager, true, 1);
    ck_assert_int_eq(parting_step(&eager, &fused, &parting, &e), ATOLL_OK);
    ck_assert_msg(!parting.is_found, "%s", parting.text);
    const struct launch *l = spoil(&fused);
    wrong_by = 0.0F;
    ck_assert_int_eq(parting_step(&eager, &fused, &parting, &e), ATOLL_OK);
    ck_assert_msg(!parting.is_found, "%s", parting.text);
    wrong_by = 1.0F;
    ck_assert_int_eq(parting_step(&eager, &fused, &parting, &e), ATOLL_OK);
    ck_assert(parting.is_found);
    ck_assert_msg(strstr(parting.text, l->symbol) != NULL, "%s not in: %s", l->symbol,
                  parting.text);
    ck_assert_msg(strstr(parting.text, "1]: eager ") != NULL, "element 1 not in: %s", parting.text);
    runner_free(&fused);
    runner_free(&eager);
}
END_TEST

START_TEST(checks)
{
    struct runner r, plain;
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    o.checks = true;
    ck_assert_msg(runner_open(&r, model, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_ptr_nonnull(r.twin);
    ck_assert_int_eq(small_feed(&r, &e), ATOLL_OK);
    open_small(&plain, false, 1);
    for (int i = 0; i < 3; i++) {
        ASSERT_NUMBER(step(&r), step(&plain));
    }
    const struct launch *l = spoil(&r);
    wrong_by = 1.0F;
    ck_assert_int_eq(runner_step(&r, &e), ATOLL_CHECK_FAILED);
    ck_assert_msg(strstr(e.text, l->symbol) != NULL, "%s not in: %s", l->symbol, e.text);
    runner_free(&r);
    runner_free(&plain);
    graph_destroy(model);
}
END_TEST

/* Eager has nothing to compare, relaxed rounding differs by right: no twin. */
START_TEST(no_twin)
{
    struct runner r;
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    o.checks = true;
    o.is_eager = _i == 0;
    o.is_relaxed = _i == 1;
    ck_assert_msg(runner_open(&r, model, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_ptr_null(r.twin);
    runner_free(&r);
    graph_destroy(model);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_test(tc, both_modes_agree);
    tcase_add_test(tc, threads_share_tensors);
    tcase_add_loop_test(tc, seed_decides_the_first_values, 0, 2);
    tcase_add_test(tc, copy_into_another_graph);
    tcase_add_loop_test(tc, what_there_is_not, 0, 2);
    tcase_add_loop_test(tc, input_that_does_not_fit, 0, 2 * ARRAY_LEN(misfits));
    tcase_add_loop_test(tc, sizes_change_between_steps, 0, 2);
    tcase_add_loop_test(tc, save_and_resume, 0, 2);
    tcase_add_test(tc, checkpoint_of_another_graph);
    tcase_add_test(tc, plan_there_and_back);
    tcase_add_test(tc, no_compiler);
    tcase_add_loop_test(tc, passes_left_out, 0, ARRAY_LEN(lists));
    tcase_add_test(tc, a_planted_difference_is_named);
    tcase_add_test(tc, checks);
    tcase_add_loop_test(tc, no_twin, 0, 2);
}

int main(void)
{
    return run_suite("runner", fill);
}
