/* Parameters kept as bf16: the remainder form is the f32 run bit for bit, stochastic rounding is
 * right on average where nearest loses every update; each form fused as eager, resumed as never
 * stopped, and unmoved by a skipped step; the optimizer stays one call over all parameters. */
#include "tests/small_training.h"

#include <math.h>

#include "codegen/prelude/convert.h"

static const char *const forms[] = {"bf16-stochastic", "bf16-remainder",
                                    "*=bf16-stochastic,w?=bf16-remainder,g=f32"};
static const char *const optimizers[] = {"adamw,lr=1e-3", "sgd,lr=0.01,momentum=0.9", "lion",
                                         "adam,weight_decay=0.1"};
static const char *const policies[] = {"fp32", "bf16", "fp16"};

/* Each optimizer under one policy with the first form, under the next with the second, ... */
enum { N_PAIRS = 4 };
static const char *policy_of(int pair, int form)
{
    return policies[(size_t)(pair + form) % ARRAY_LEN(policies)];
}

struct setting {
    const char *form, *optimizer, *policy;
    bool is_eager;
    uint64_t seed;
};

static void open_model(struct runner *r, struct graph *model, const struct setting *s,
                       struct arena *keep)
{
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    ck_assert_int_eq(train_options_parse(&train, s->optimizer, NULL, &e), ATOLL_OK);
    ck_assert_int_eq(train_params_parse(&train, s->form, keep, &e), ATOLL_OK);
    train.rounding_seed = (int64_t)s->seed;
    train.skips_nonfinite = true;
    o.policy = policy_builtin(s->policy);
    train.scaler.is_enabled = o.policy->low == F16;
    o.is_eager = s->is_eager;
    o.cc.optimise = "-O1"; /* changes no value */
    ck_assert_msg(runner_open(r, model, &o, s->seed, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(model);
}

static void open_kept(struct runner *r, const struct setting *s, struct arena *keep)
{
    struct error e = {0};
    open_model(r, small_model(&e), s, keep);
    ck_assert_msg(small_feed(r, &e) == ATOLL_OK, "%s", e.text);
}

static void take_steps(struct runner *r, int n)
{
    struct error e = {0};
    for (int i = 0; i < n; i++) {
        ck_assert_msg(runner_step(r, &e) == ATOLL_OK, "%s", e.text);
    }
}

/* Every leaf of a that b has too, bit for bit. */
static void same_leaves(struct runner *a, struct runner *b, const char *what)
{
    const struct graph *g = runner_graph(a);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!plan_keeps(&g->nodes[i])) {
            continue;
        }
        const struct tensor *p = runner_leaf(a, g->nodes[i].name),
                            *q = runner_leaf(b, g->nodes[i].name);
        ck_assert_msg(q != NULL && p->dtype == q->dtype, "%s: %s", what, g->nodes[i].name);
        ck_assert_msg(memcmp(p->data, q->data, tensor_bytes(p)) == 0, "%s: %s differs", what,
                      g->nodes[i].name);
        n++;
    }
    ck_assert_uint_gt(n, 4);
}

START_TEST(remainder_is_the_f32_run)
{
    struct setting s = {"bf16-remainder", optimizers[_i / 2], policy_of(_i / 2, 1), _i % 2 == 0, 5};
    struct setting plain = {"f32", s.optimizer, s.policy, true, 5};
    struct runner kept, f32, back;
    struct arena keep = {0};
    open_kept(&kept, &s, &keep);
    open_kept(&f32, &plain, &keep);
    open_kept(&back, &plain, &keep);
    ck_assert_int_eq(runner_leaf(&kept, "w1")->dtype, BF16);
    for (int i = 0; i < 12; i++) {
        runner_copy_leaves(&back, &kept); /* the f32 values, and the moments */
        same_leaves(&f32, &back, s.policy);
        take_steps(&kept, 1);
        take_steps(&f32, 1);
        ASSERT_NUMBER(runner_number(&kept, "loss"), runner_number(&f32, "loss"));
        ASSERT_NUMBER(runner_number(&kept, "grad_norm"), runner_number(&f32, "grad_norm"));
    }
    runner_free(&kept);
    runner_free(&f32);
    runner_free(&back);
    arena_free(&keep);
}
END_TEST

/* Bytes of the kept leaves whose name begins so. */
static size_t bytes_of(struct runner *r, const char *prefix, bool wants_params)
{
    const struct graph *g = runner_graph(r);
    size_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *l = &g->nodes[i];
        bool is_it = wants_params ? l->op == OP_param
                                  : plan_keeps(l) && strncmp(l->name, prefix, strlen(prefix)) == 0;
        n += is_it ? tensor_bytes(runner_leaf(r, l->name)) : 0;
    }
    return n;
}

/* Large weights beside all else. */
static void open_large(struct runner *r, const struct setting *s, struct arena *keep)
{
    static const char text[] =
        "graph @large(%x: f32[2,96] input, %w1: f32[96,96] param, %w2: f32[96,96] param) {\n"
        "%a = linear(%x, %w1) %b = tanh(%a) %c = linear(%b, %w2) %loss = mean(%c)\n"
        "return loss=%loss }";
    struct error e = {0};
    static float x[2 * 96];
    struct tensor tx = {.dtype = F32, .rank = 2, .shape = {2, 96}, .data = x};
    open_model(r, graph_parse(text, sizeof text - 1, "large.graph", &e), s, keep);
    ck_assert_msg(runner_input(r, "x", &tx, &e) == ATOLL_OK, "%s", e.text);
}

/* bf16 and 16 bits more are the four bytes of an f32, and no f32 copy is alive from the forward
 * pass to the optimizer: the arena has no room for one of both weights beside what it has with f32
 * parameters (their bf16 copies are made in another order, which is a quarter of that). */
START_TEST(no_f32_copy_is_kept)
{
    struct setting s = {"bf16-remainder", optimizers[_i], "bf16", false, 5};
    struct setting plain = {"f32", s.optimizer, s.policy, false, 5};
    struct setting random = {"bf16-stochastic", s.optimizer, s.policy, false, 5};
    struct runner kept, f32, half;
    struct arena keep = {0};
    open_large(&kept, &s, &keep);
    open_large(&f32, &plain, &keep);
    open_large(&half, &random, &keep);
    size_t whole = bytes_of(&f32, "", true);
    ck_assert_uint_eq(whole, 2 * 96 * 96 * sizeof(float));
    ck_assert_uint_eq(2 * bytes_of(&kept, "", true), whole);
    ck_assert_uint_eq(2 * bytes_of(&kept, "opt.byte", false), whole);
    ck_assert_uint_eq(2 * bytes_of(&half, "", true), whole);
    ck_assert_uint_eq(bytes_of(&half, "opt.byte", false), 0);
    take_steps(&kept, 1);
    take_steps(&f32, 1);
    take_steps(&half, 1);
    ck_assert_msg(kept.peak_bytes < f32.peak_bytes + whole / 4, "%s: %zu bytes, with f32 %zu",
                  s.optimizer, kept.peak_bytes, f32.peak_bytes);
    ck_assert_uint_lt(half.peak_bytes, f32.peak_bytes + whole / 4);
    runner_free(&kept);
    runner_free(&f32);
    runner_free(&half);
    arena_free(&keep);
}
END_TEST

START_TEST(fused_is_eager)
{
    int form = _i / N_PAIRS, pair = _i % N_PAIRS;
    struct setting s = {forms[form], optimizers[pair], policy_of(pair, form), false, 9};
    struct setting eager = s;
    struct runner a, b;
    struct arena keep = {0};
    eager.is_eager = true;
    open_kept(&a, &s, &keep);
    open_kept(&b, &eager, &keep);
    same_leaves(&a, &b, "at the start");
    take_steps(&a, 6);
    take_steps(&b, 6);
    ASSERT_NUMBER(runner_number(&a, "loss"), runner_number(&b, "loss"));
    same_leaves(&a, &b, s.form);
    runner_free(&a);
    runner_free(&b);
    arena_free(&keep);
}
END_TEST

START_TEST(resumed_is_never_stopped)
{
    struct setting s = {forms[_i], "adamw", "bf16", false, 1}, other = s;
    struct runner whole, half, resumed;
    struct arena keep = {0};
    struct error e = {0};
    char path[128];
    int64_t steps = 0;
    other.seed = 77; /* first values and roundings come from the file */
    snprintf(path, sizeof path, "%s/params.safetensors", small_directory());
    open_kept(&whole, &s, &keep);
    open_kept(&half, &s, &keep);
    open_kept(&resumed, &other, &keep);
    take_steps(&whole, 7);
    take_steps(&half, 3);
    ck_assert_int_eq(runner_save(&half, path, 3, &e), ATOLL_OK);
    ck_assert_msg(runner_load(&resumed, path, &steps, &e) == ATOLL_OK, "%s", e.text);
    take_steps(&resumed, 4);
    same_leaves(&whole, &resumed, s.form);
    runner_free(&whole);
    runner_free(&half);
    runner_free(&resumed);
    arena_free(&keep);
}
END_TEST

START_TEST(a_skipped_step_moves_nothing)
{
    struct setting s = {forms[_i], "adamw", "bf16", false, 1};
    struct runner a, b;
    struct arena keep = {0};
    struct error e = {0};
    float x[SMALL_ROWS * 5];
    int64_t y[SMALL_ROWS];
    small_batch(x, y);
    x[3] = INFINITY;
    struct tensor bad = {.dtype = F32, .rank = 2, .shape = {SMALL_ROWS, 5}, .data = x};
    open_kept(&a, &s, &keep);
    open_kept(&b, &s, &keep);
    take_steps(&a, 3);
    take_steps(&b, 2);
    ck_assert_int_eq(runner_input(&b, "x", &bad, &e), ATOLL_OK);
    take_steps(&b, 2);
    ASSERT_NUMBER(runner_number(&b, "skipped"), 2);
    ck_assert_int_eq(small_feed(&b, &e), ATOLL_OK);
    take_steps(&b, 1);
    *(int64_t *)runner_leaf(&b, "skipped")->data = 0; /* all that it may leave behind */
    same_leaves(&a, &b, s.form);
    runner_free(&a);
    runner_free(&b);
    arena_free(&keep);
}
END_TEST

/* Kernels that take n tensors in one call, and write one of dtype `t`. */
static uint32_t calls_over(const struct runner *r, uint32_t n, enum dtype t)
{
    const struct program *p = &r->compiled.program;
    uint32_t found = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        bool writes = false;
        for (uint32_t k = l->n_reads; k < l->n_args; k++) {
            writes = writes || (graph_node(p->graph, l->args[k])->dtype == t && l->n_reads > 5);
        }
        found += l->kind == LAUNCH_KERNEL && l->count == n && writes;
    }
    return found;
}

START_TEST(the_optimizer_is_one_call)
{
    struct setting s = {forms[_i], "adamw", "fp32", false, 1};
    struct runner r;
    struct arena keep = {0};
    open_kept(&r, &s, &keep);
    ck_assert_uint_eq(calls_over(&r, 4, BF16), 1);
    runner_free(&r);
    arena_free(&keep);
}
END_TEST

/* ---- on average ---- */

enum { N = 4096, STEPS = 64 };

/* p = 1, and lr g = 2^-12: a sixteenth of the distance to the next bf16 below, 2^-8. */
static void descend(struct runner *r, const char *form, uint64_t seed, struct arena *keep)
{
    static const char text[] =
        "graph @d(%p: bf16[4096] param {init=\"ones\"}, %q: bf16[4096] param {init=\"ones\"}) {\n"
        "  %a = sum(%p) {dtype=f32}\n  %b = sum(%q) {dtype=f32}\n  %loss = add(%a, %b)\n"
        "  return loss=%loss\n}\n";
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.train = &train, .cache = small_kernels()};
    struct graph *g = graph_parse(text, sizeof text - 1, "descend", &e);
    ck_assert_int_eq(train_options_parse(&train, "sgd,lr=0.000244140625", NULL, &e), ATOLL_OK);
    ck_assert_int_eq(train_params_parse(&train, form, keep, &e), ATOLL_OK);
    train.rounding_seed = (int64_t)seed;
    train.allows_low_params = form == NULL; /* rounded to nearest */
    ck_assert_msg(runner_open(r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    take_steps(r, STEPS);
    graph_destroy(g);
}

static double mean_of(struct runner *r, const char *name)
{
    const uint16_t *p = runner_leaf(r, name)->data;
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        sum += (double)from_bf16(p[i]);
    }
    return sum / N;
}

/* 64 steps of 2^-12 are 2^-6. The spread of an element is sqrt(64 * 1/16 * 15/16) 2^-8 = 0.0076,
 * that of the mean of 4096 0.00012: five of those are allowed. */
START_TEST(stochastic_is_right_on_average)
{
    struct runner r, nearest, again, other;
    struct arena keep = {0};
    descend(&r, "bf16-stochastic", 3, &keep);
    descend(&nearest, NULL, 3, &keep);
    descend(&again, "bf16-stochastic", 3, &keep);
    descend(&other, "bf16-stochastic", 4, &keep);
    ck_assert_double_lt(fabs(mean_of(&r, "p") - (1.0 - 0x1p-6)), 0.0006);
    ck_assert_double_lt(fabs(mean_of(&r, "q") - (1.0 - 0x1p-6)), 0.0006);
    ASSERT_NUMBER(mean_of(&nearest, "p"), 1.0); /* every update vanished */
    size_t bytes = N * sizeof(uint16_t);
    const void *p = runner_leaf(&r, "p")->data;
    ck_assert_mem_eq(p, runner_leaf(&again, "p")->data, bytes);
    ck_assert_mem_ne(p, runner_leaf(&other, "p")->data, bytes);
    ck_assert_mem_ne(p, runner_leaf(&r, "q")->data, bytes); /* each parameter draws its own */
    runner_free(&r);
    runner_free(&nearest);
    runner_free(&again);
    runner_free(&other);
    arena_free(&keep);
}
END_TEST

/* The model's own bf16 parameters with a remainder: no update is lost, though each is below half
 * an ulp of the bf16. */
START_TEST(remainder_of_a_bf16_model)
{
    struct runner r;
    struct arena keep = {0};
    descend(&r, "bf16-remainder", 1, &keep);
    ASSERT_NUMBER(mean_of(&r, "p"), 1.0 - 0x1p-6);
    runner_free(&r);
    arena_free(&keep);
}
END_TEST

/* ---- the two halves ---- */

/* All 2^16 upper halves with lower halves about the places where rounding turns, and a walk over
 * the rest. */
START_TEST(halves_make_the_whole)
{
    static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t high = 0; high < 65536; high++) {
        for (size_t k = 0; k < ARRAY_LEN(lows) + 4; k++) {
            uint32_t low = k < ARRAY_LEN(lows) ? lows[k] : (high * 40503U + k * 9973U) & 0xffffU;
            uint32_t bits = high << 16 | low;
            float x = a_float(bits), half = high_bf16(x), rest = rest_bf16(x);
            ck_assert_uint_eq(a_bits(half) & 0xffffU, 0);
            ck_assert_uint_eq(a_bits(join_bf16(half, rest)), isnan(x) ? 0x7fc00000U : bits);
            ck_assert(isnan(x) || rest == (float)low);
            ck_assert(isnan(x) || low == 0x8000 || a_bits(half) == a_bits(round_bf16(x)));
        }
    }
}
END_TEST

/* Exactly the random numbers below the cut-off share round away from zero. */
START_TEST(stochastic_counts)
{
    static const float values[] = {1.003F, -1.003F, 3e-40F, 1.0F, -2e38F, 0.0F};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        uint32_t bits = a_bits(values[i]), n_away = 0;
        for (uint32_t k = 0; k < 65536; k++) {
            float y = stochastic_bf16(values[i], (float)k * 0x1p-16f);
            bool is_away = a_bits(y) == (bits & 0xffff0000U) + 0x10000U;
            ck_assert(is_away || a_bits(y) == (bits & 0xffff0000U));
            n_away += is_away;
        }
        ck_assert_uint_eq(n_away, bits & 0xffffU);
    }
    ck_assert(isinf(stochastic_bf16(INFINITY, 0.999F)));
    ck_assert(isinf(stochastic_bf16(-INFINITY, 0.999F)));
    ck_assert(isnan(stochastic_bf16(NAN, 0.999F)));
    ck_assert(isnan(stochastic_bf16(a_float(0x7f800001U), 0.0F))); /* its upper half is infinity */
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, no_f32_copy_is_kept, 0, (int)ARRAY_LEN(optimizers));
    tcase_add_loop_test(tc, remainder_is_the_f32_run, 0, 2 * N_PAIRS);
    tcase_add_loop_test(tc, fused_is_eager, 0, 3 * N_PAIRS);
    tcase_add_loop_test(tc, resumed_is_never_stopped, 0, (int)ARRAY_LEN(forms));
    tcase_add_loop_test(tc, a_skipped_step_moves_nothing, 0, (int)ARRAY_LEN(forms));
    tcase_add_loop_test(tc, the_optimizer_is_one_call, 0, 2);
    tcase_add_test(tc, stochastic_is_right_on_average);
    tcase_add_test(tc, remainder_of_a_bf16_model);
    tcase_add_test(tc, halves_make_the_whole);
    tcase_add_test(tc, stochastic_counts);
}

int main(void)
{
    return run_suite("params", fill);
}
