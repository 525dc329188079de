/* The engine: static at first sight, symbols when sizes change, every failing guard told, limits,
 * eviction, builds that fail, many threads. Plans here are counters, nothing is compiled. */
#include "frontend/callable.h"
#include "frontend/report/report.h"
#include "ir/parse.h"
#include "tests/suite.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char model[] =
    "graph @m(%%x: %s[%d,%d] input, %%y: f32[%d] input, %%w: f32[3,%d] param) {\n"
    "  %%h = linear(%%x, %%w) @ \"m.c\":4\n"
    "  %%k = constant() {value=%s, dtype=f32} @ \"m.c\":5\n"
    "  %%s = mul(%%h, %%k) @ \"m.c\":6\n"
    "  %%t = %s(%%s) @ \"m.c\":7\n"
    "  %%z = sum(%%t) {axes=[1]}\n"
    "  %%r = add(%%z, %%y)\n"
    "  return r=%%r\n}\n";

/* One call as a test varies it. */
struct variant {
    int n, m;
    const char *dtype, *constant, *op, *policy;
};
static const struct variant usual = {64, 8, "f32", "0.5", "relu", "fp32"};

struct plan {
    int64_t n; /* number of the build */
};
struct fixture {
    struct arena arena;
    struct callable *c;
    uint32_t n_builds, n_dropped, n_warned;
    bool refuses_symbols, fails;
    pthread_mutex_t lock;
    int delay;
};

static status build(void *context, const struct build_request *r, void **plan,
                    struct build_report *report, struct error *e)
{
    struct fixture *f = context;
    pthread_mutex_lock(&f->lock);
    f->n_builds++;
    pthread_mutex_unlock(&f->lock);
    if (f->fails || (f->refuses_symbols && r->graph->n_symbols > 1)) {
        return fail(e, ATOLL_SHAPE, "planted: no symbols here");
    }
    for (volatile int i = 0; i < f->delay; i++) {
    }
    *plan = malloc(sizeof(struct plan));
    report->seconds = 0.25;
    report->kernels_built = 2;
    return *plan != NULL ? ATOLL_OK : ATOLL_OUT_OF_MEMORY;
}

static void drop(void *context, void *plan)
{
    struct fixture *f = context;
    f->n_dropped++;
    free(plan);
}

static void warn(void *context, const char *text)
{
    struct fixture *f = context;
    ck_assert_ptr_nonnull(strstr(text, "over the limit"));
    f->n_warned++;
}

static void start(struct fixture *f, const struct callable_options *with)
{
    struct callable_options o = with != NULL ? *with : (struct callable_options){0};
    *f = (struct fixture){.n_builds = 0};
    pthread_mutex_init(&f->lock, NULL);
    o.build = build;
    o.drop = drop;
    o.warn = warn;
    o.context = o.warn_context = f;
    f->c = callable_create("m", &o);
    ck_assert_ptr_nonnull(f->c);
}

static void end(struct fixture *f)
{
    callable_destroy(f->c);
    arena_free(&f->arena);
}

static struct graph *parsed(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "t.graph", &e);
    ck_assert_msg(g != NULL, "%s\n%s", e.text, text);
    return g;
}

static void key_named(struct key *k, const char *policy)
{
    *k = (struct key){.hash = hash_text(policy, 0)};
    for (uint32_t i = 0; i < N_KEY_PARTS; i++) {
        k->texts[i] = i == KEY_POLICY ? policy : "same";
        k->hashes[i] = hash_text(k->texts[i], 0);
    }
}

/* Calls with a graph; the plan is let go at once. */
static status call_graph(struct fixture *f, const struct graph *g, const char *policy,
                         struct called *out, struct error *e)
{
    struct arena a = {0};
    struct trace t;
    struct key k;
    key_named(&k, policy);
    trace_of_graph(&t, g, DEVICE_CPU, &a);
    t.key = &k;
    status code = callable_call(f->c, &t, out, e);
    if (code == ATOLL_OK) {
        callable_done(f->c, out);
    }
    arena_free(&a);
    return code;
}

static struct called call_text(struct fixture *f, const char *text)
{
    struct called out;
    struct error e = {0};
    struct graph *g = parsed(text);
    ck_assert_msg(call_graph(f, g, "fp32", &out, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
    return out;
}

static void write_model(char text[1000], const struct variant *v)
{
    int n = snprintf(text, 1000, model, v->dtype, v->n, v->m, v->n, v->m, v->constant, v->op);
    ck_assert(n > 0 && n < 1000);
}

static struct called call(struct fixture *f, const struct variant *v)
{
    char text[1000];
    struct called out;
    struct error e = {0};
    write_model(text, v);
    struct graph *g = parsed(text);
    ck_assert_msg(call_graph(f, g, v->policy, &out, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
    return out;
}

static struct called call_n(struct fixture *f, int n)
{
    struct variant v = usual;
    v.n = n;
    return call(f, &v);
}

static const struct ledger_event *last_event(const struct fixture *f)
{
    const ledger *l = callable_ledger(f->c);
    ck_assert_uint_gt(l->n_events, 0);
    return &l->events[l->n_events - 1];
}

static const struct ledger_reason *reason_of(const struct ledger_event *v, enum guard_kind kind)
{
    for (uint32_t i = 0; i < v->n_reasons; i++) {
        if (v->reasons[i].kind == kind) {
            return &v->reasons[i];
        }
    }
    ck_abort_msg("no reason %s", guard_kinds[kind].name);
}

static bool advises(const struct ledger_event *v, const char *what)
{
    for (uint32_t i = 0; i < v->n_advice; i++) {
        if (strstr(v->advice[i], what) != NULL) {
            return true;
        }
    }
    return false;
}

/* ---- sizes ---- */

START_TEST(partial_batch)
{
    struct fixture f;
    start(&f, NULL);
    ck_assert_int_eq(call_n(&f, 64).outcome, LEDGER_BUILT);
    ck_assert_int_eq(call_n(&f, 64).outcome, LEDGER_HIT);
    struct called five = call_n(&f, 5);
    ck_assert_int_eq(five.outcome, LEDGER_BUILT);
    ck_assert_uint_eq(five.graph->n_symbols, 2);
    ck_assert_int_eq(five.symbols[1], 5);
    ck_assert_int_eq(five.graph->symbols[1].low, 2);
    ck_assert(advises(last_event(&f),
                      "dim 0 of x took 64, then 5: it is a symbol from now on, 2 or more"));
    ck_assert_str_eq(reason_of(last_event(&f), GUARD_DIM)->subject, "dim 0 of x");
    ck_assert_str_eq(reason_of(last_event(&f), GUARD_DIM)->expected, "64");
    ck_assert_str_eq(reason_of(last_event(&f), GUARD_DIM)->found, "5");
    static const int again[] = {5, 64, 7, 2, 100000};
    for (size_t i = 0; i < ARRAY_LEN(again); i++) {
        ck_assert_int_eq(call_n(&f, again[i]).outcome, LEDGER_HIT);
    }
    ck_assert_int_eq(call_n(&f, 7).symbols[1], 7);
    ck_assert_uint_eq(f.n_builds, 2);
    ck_assert_int_eq(call_n(&f, 1).outcome, LEDGER_BUILT); /* 0 and 1: one plan each, once */
    ck_assert(advises(last_event(&f), "dim 0 of x is 1"));
    ck_assert_int_eq(call_n(&f, 0).outcome, LEDGER_BUILT);
    ck_assert_int_eq(call_n(&f, 1).outcome, LEDGER_HIT);
    ck_assert_int_eq(call_n(&f, 0).outcome, LEDGER_HIT);
    ck_assert_uint_eq(f.n_builds, 4);
    atoll_counters n;
    atoll_ledger_counters(callable_ledger(f.c), &n);
    ck_assert_uint_eq(n.calls, 13);
    ck_assert_uint_eq(n.builds, 4);
    ck_assert_uint_eq(n.recompiles, 3);
    ck_assert_uint_eq(n.hits, 9);
    end(&f);
    ck_assert_uint_eq(f.n_dropped, 4);
}
END_TEST

/* Dims that went together share a symbol; one that then goes its own way is told as such. */
START_TEST(dims_that_go_together)
{
    struct fixture f;
    start(&f, NULL);
    static const char *const text = "graph @t(%%x: f32[%d] input, %%y: f32[%d] input) {\n"
                                    "%%a = exp(%%x)\n%%b = exp(%%y)\nreturn a=%%a, b=%%b\n}\n";
    static const struct {
        int x, y;
        enum ledger_outcome outcome;
        uint32_t n_symbols;
    } calls[] = {{4, 4, LEDGER_BUILT, 1},
                 {6, 6, LEDGER_BUILT, 2},
                 {9, 9, LEDGER_HIT, 2},
                 {9, 8, LEDGER_BUILT, 3},
                 {3, 7, LEDGER_HIT, 3}};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        char own[300];
        snprintf(own, sizeof own, text, calls[i].x, calls[i].y);
        struct called out = call_text(&f, own);
        ck_assert_int_eq(out.outcome, calls[i].outcome);
        ck_assert_uint_eq(out.graph->n_symbols, calls[i].n_symbols);
        if (i == 3) {
            const struct ledger_reason *r = reason_of(last_event(&f), GUARD_DIM_SAME);
            ck_assert_str_eq(r->subject, "dim 0 of y");
            ck_assert_str_eq(r->expected, "dim 0 of x (9)");
            ck_assert_str_eq(r->found, "8");
        }
    }
    end(&f);
}
END_TEST

static const struct op_case {
    const char *name, *text; /* %1$d: the size that changes */
    int sizes[4];
    uint32_t n_builds;
    const char *remark;
} op_cases[] = {
    {"slice cuts the axis",
     "graph @t(%%x: f32[%1$d,3] input) {\n%%a = slice(%%x) {axis=0, start=1} @ \"m.c\":9\nreturn "
     "a=%%a\n}\n",
     {8, 6, 5, 8},
     3,
     "slice %a needs the size of dim 0 of x as a number"},
    {"slice of the other axis",
     "graph @t(%%x: f32[%1$d,3] input) {\n%%a = slice(%%x) {axis=1, start=1}\nreturn a=%%a\n}\n",
     {8, 6, 5, 8},
     2,
     NULL},
    {"concat along the axis",
     "graph @t(%%x: f32[%1$d,3] input, %%y: f32[2,3] input) {\n%%a = concat(%%x, %%y)\nreturn "
     "a=%%a\n}\n",
     {8, 6, 5, 6},
     3,
     "concat %a needs the size of dim 0 of x"},
    {"reshape needs a multiple",
     "graph @t(%%x: f32[%1$d,3] input) {\n%%a = reshape(%%x) {shape=[-1,6]}\nreturn a=%%a\n}\n",
     {8, 6, 10, 12},
     2,
     "reshape %a must divide dim 0 of x by 2"},
    {"a spelt size follows",
     "graph @t(%%x: f32[%1$d,3] input) {\n%%a = reshape(%%x) {shape=[3,%1$d]}\nreturn a=%%a\n}\n",
     {8, 6, 10, 12},
     2,
     NULL},
};

START_TEST(ops_and_symbols)
{
    const struct op_case *k = &op_cases[_i];
    struct fixture f;
    bool has_remark = false;
    start(&f, NULL);
    for (size_t i = 0; i < ARRAY_LEN(k->sizes); i++) {
        char text[400];
        snprintf(text, sizeof text, k->text, k->sizes[i]);
        struct called out = call_text(&f, text);
        const struct ledger_event *v = last_event(&f);
        if (out.outcome == LEDGER_BUILT && k->remark != NULL) {
            has_remark = has_remark || advises(v, k->remark);
        }
    }
    ck_assert_msg(f.n_builds == k->n_builds, "%s: %" PRIu32 " builds, expected %" PRIu32, k->name,
                  f.n_builds, k->n_builds);
    ck_assert_msg(has_remark == (k->remark != NULL), "%s: no advice '%s'", k->name, k->remark);
    end(&f);
}
END_TEST

/* A multiple is held: 7 rows do not divide by 2. */
START_TEST(divisible_is_guarded)
{
    static const char *const text =
        "graph @t(%%x: f32[%d,4] input) {\n%%a = reshape(%%x) {shape=[-1,8]}\nreturn a=%%a\n}\n";
    struct fixture f;
    struct called out = {0};
    static const int sizes[] = {8, 6, 14};
    start(&f, NULL);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char own[300];
        snprintf(own, sizeof own, text, sizes[i]);
        out = call_text(&f, own);
    }
    ck_assert_int_eq(out.outcome, LEDGER_HIT);
    ck_assert_int_eq(out.symbols[1], 7); /* 14 = 2 * 7 */
    end(&f);
}
END_TEST

/* ---- everything else that a guard is about ---- */

static const struct change {
    const char *name;
    struct variant v;
    enum guard_kind kind;
    const char *subject, *expected, *found, *advice;
} changes[] = {
    {"constant",
     {64, 8, "f32", "0.25", "relu", "fp32"},
     GUARD_CONSTANT,
     "constant",
     "0.5",
     "0.25",
     "constant at m.c:5 changed 0.5 -> 0.25: pass it as a scalar"},
    {"op",
     {64, 8, "f32", "0.5", "tanh", "fp32"},
     GUARD_TRACE,
     "op 7 of the trace",
     "relu(%s) at m.c:7",
     "tanh(%s) at m.c:7",
     "took another way (tanh at m.c:7)"},
    {"policy",
     {64, 8, "f32", "0.5", "relu", "bf16"},
     GUARD_POLICY,
     "policy",
     "fp32",
     "bf16",
     "policy changed fp32 -> bf16"},
};

START_TEST(changes_are_told)
{
    const struct change *k = &changes[_i];
    struct fixture f;
    start(&f, NULL);
    (void)call(&f, &usual);
    ck_assert_int_eq(call(&f, &k->v).outcome, LEDGER_BUILT);
    const struct ledger_event *v = last_event(&f);
    const struct ledger_reason *r = reason_of(v, k->kind);
    ck_assert_str_eq(r->subject, k->subject);
    ck_assert_str_eq(r->expected, k->expected);
    ck_assert_str_eq(r->found, k->found);
    ck_assert_msg(advises(v, k->advice), "%s: no advice '%s'", k->name, k->advice);
    ck_assert_uint_eq(v->n_reasons, 1);
    ck_assert_int_eq(call(&f, &k->v).outcome, LEDGER_HIT);
    ck_assert_int_eq(call(&f, &usual).outcome, LEDGER_HIT);
    end(&f);
}
END_TEST

START_TEST(dtype_rank_arguments_attribute)
{
    static const struct {
        const char *first, *then;
        enum guard_kind kind;
        const char *expected, *found;
    } cases[] = {
        {"graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         "graph @t(%x: f64[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n", GUARD_DTYPE, "f32", "f64"},
        {"graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         "graph @t(%x: f32[4,1] input) {\n%a = exp(%x)\nreturn a=%a\n}\n", GUARD_RANK, "1", "2"},
        {"graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         "graph @t(%x: f32[4] input, %y: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         GUARD_ARGUMENTS, "input x", "input x, input y"},
        {"graph @t(%x: f32[4] input) {\n%a = leaky_relu(%x) {slope=0.1}\nreturn a=%a\n}\n",
         "graph @t(%x: f32[4] input) {\n%a = leaky_relu(%x) {slope=0.2}\nreturn a=%a\n}\n",
         GUARD_ATTRIBUTE, "0.1", "0.2"},
        {"graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         "graph @t(%x: f32[4] input) {\n%a = exp(%x)\n%b = exp(%a)\nreturn a=%a\n}\n", GUARD_TRACE,
         "2 ops", "3 ops"},
        {"graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn a=%a\n}\n",
         "graph @t(%x: f32[4] input) {\n%a = exp(%x)\nreturn b=%a\n}\n", GUARD_TRACE,
         "1 outputs, 0 updates", "1 outputs, 0 updates: other values or names"},
    };
    struct fixture f;
    start(&f, NULL);
    (void)call_text(&f, cases[_i].first);
    ck_assert_int_eq(call_text(&f, cases[_i].then).outcome, LEDGER_BUILT);
    const struct ledger_reason *r = reason_of(last_event(&f), cases[_i].kind);
    ck_assert_str_eq(r->expected, cases[_i].expected);
    ck_assert_str_eq(r->found, cases[_i].found);
    ck_assert_uint_gt(last_event(&f)->n_advice, 0);
    end(&f);
}
END_TEST

/* ---- limits ---- */

START_TEST(over_the_limit)
{
    struct callable_options o = {.limit = 2, .is_static = true, .is_eager_over_limit = _i == 1};
    struct fixture f;
    struct called out;
    struct error e = {0};
    char text[1000];
    start(&f, &o);
    for (int n = 10; n < 13; n++) {
        ck_assert_int_eq(call_n(&f, n).outcome, LEDGER_BUILT);
    }
    struct variant v = usual;
    v.n = 13;
    write_model(text, &v);
    struct graph *g = parsed(text);
    status code = call_graph(&f, g, "fp32", &out, &e);
    if (_i == 1) {
        ck_assert_int_eq(code, ATOLL_OK);
        ck_assert_int_eq(out.outcome, LEDGER_EAGER);
        ck_assert_ptr_null(out.plan);
        ck_assert_uint_eq(f.n_warned, 1);
    } else {
        ck_assert_int_eq(code, ATOLL_CHECK_FAILED);
        ck_assert_int_eq(last_event(&f)->outcome, LEDGER_REFUSED);
        ck_assert_msg(
            strstr(e.text, "over the limit of 2 recompiles: dim 0 of x 12 -> 13") != NULL &&
                strstr(e.text, "call 1 (first call); call 2 (dim 0 of x 10 -> 11") != NULL,
            "%s", e.text);
        ck_assert_ptr_null(strchr(e.text, '\n'));
    }
    ck_assert_uint_eq(f.n_builds, 3);
    ck_assert_uint_eq(last_event(&f)->compared, 3);
    ck_assert_int_eq(call_n(&f, 11).outcome, LEDGER_HIT); /* what there is goes on */
    graph_destroy(g);
    end(&f);
}
END_TEST

START_TEST(recompile_forbidden)
{
    struct callable_options o = {.fails_on_recompile = true};
    struct fixture f;
    struct called out;
    struct error e = {0};
    char text[1000];
    struct variant v = usual;
    start(&f, &o);
    (void)call(&f, &usual);
    v.n = 5;
    write_model(text, &v);
    struct graph *g = parsed(text);
    ck_assert_int_eq(call_graph(&f, g, "fp32", &out, &e), ATOLL_CHECK_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, "a recompile where none is allowed: dim 0 of x 64 -> 5"));
    graph_destroy(g);
    end(&f);
}
END_TEST

START_TEST(eviction)
{
    struct callable_options o = {.capacity = 2, .is_static = true};
    struct fixture f;
    start(&f, &o);
    (void)call_n(&f, 10);
    (void)call_n(&f, 11);
    (void)call_n(&f, 10);
    (void)call_n(&f, 12); /* 11 was used longest ago */
    ck_assert_uint_eq(f.n_dropped, 1);
    ck_assert_int_eq(call_n(&f, 10).outcome, LEDGER_HIT);
    ck_assert_int_eq(call_n(&f, 11).outcome, LEDGER_BUILT);
    ck_assert_str_eq(reason_of(last_event(&f), GUARD_EVICTED)->found, "evicted to make room");
    ck_assert(advises(last_event(&f), "raise the capacity"));
    atoll_counters n;
    atoll_ledger_counters(callable_ledger(f.c), &n);
    ck_assert_uint_eq(n.evictions, 2);
    end(&f);
    ck_assert_uint_eq(f.n_dropped, f.n_builds);
}
END_TEST

/* ---- builds that fail ---- */

START_TEST(symbols_that_do_not_compile)
{
    struct fixture f;
    start(&f, NULL);
    f.refuses_symbols = true;
    (void)call_n(&f, 64);
    struct called five = call_n(&f, 5);
    ck_assert_int_eq(five.outcome, LEDGER_BUILT);
    ck_assert_uint_eq(five.graph->n_symbols, 1);
    ck_assert(advises(last_event(&f), "with symbols for sizes it does not compile"));
    ck_assert(advises(last_event(&f), "planted: no symbols here"));
    uint32_t n = f.n_builds;
    ck_assert_int_eq(call_n(&f, 6).outcome, LEDGER_BUILT);
    ck_assert_uint_eq(f.n_builds, n + 1); /* not tried again */
    ck_assert_int_eq(call_n(&f, 5).outcome, LEDGER_HIT);
    end(&f);
}
END_TEST

START_TEST(failed_build)
{
    struct fixture f;
    struct called out;
    struct error e = {0};
    char text[1000];
    start(&f, NULL);
    f.fails = true;
    write_model(text, &usual);
    struct graph *g = parsed(text);
    ck_assert_int_eq(call_graph(&f, g, "fp32", &out, &e), ATOLL_SHAPE);
    ck_assert_str_eq(e.text, "planted: no symbols here");
    ck_assert_int_eq(last_event(&f)->outcome, LEDGER_FAILED);
    f.fails = false;
    ck_assert_int_eq(call(&f, &usual).outcome, LEDGER_BUILT);
    graph_destroy(g);
    end(&f);
}
END_TEST

/* ---- completeness ---- */

static uint64_t seed = 1;
static uint32_t draw(uint32_t n)
{
    seed = hash_u64(seed, 7);
    return (uint32_t)(seed % n);
}

static struct variant drawn(void)
{
    static const int ns[] = {0, 1, 2, 3, 5, 8, 64}, ms[] = {1, 4, 8};
    static const char *const dtypes[] = {"f32", "f32", "f32"};
    static const char *const constants[] = {"0.5", "0.25", "1e-3"};
    static const char *const ops[] = {"relu", "tanh", "exp"}, *const policies[] = {"fp32", "bf16"};
    return (struct variant){ns[draw(7)],        ms[draw(3)],  dtypes[draw(3)],
                            constants[draw(3)], ops[draw(3)], policies[draw(2)]};
}

/* The call with what the reasons of one entry name put back to what that entry was built with. */
static struct variant undone(const struct ledger_event *v, uint32_t entry, struct variant now,
                             const struct variant *then)
{
    for (uint32_t i = 0; i < v->n_reasons; i++) {
        const struct ledger_reason *r = &v->reasons[i];
        if (r->entry != entry) {
            continue;
        }
        bool is_rows =
            strcmp(r->subject, "dim 0 of x") == 0 || strcmp(r->subject, "dim 0 of y") == 0;
        bool is_columns =
            strcmp(r->subject, "dim 1 of x") == 0 || strcmp(r->subject, "dim 1 of w") == 0;
        now.n = is_rows ? then->n : now.n;
        now.m = is_columns ? then->m : now.m;
        now.constant = r->kind == GUARD_CONSTANT ? then->constant : now.constant;
        now.op = r->kind == GUARD_TRACE ? then->op : now.op;
        now.policy = r->kind == GUARD_POLICY ? then->policy : now.policy;
        if (!is_rows && !is_columns && r->kind != GUARD_CONSTANT && r->kind != GUARD_TRACE &&
            r->kind != GUARD_POLICY) {
            ck_abort_msg("an unexpected reason: %s", r->subject);
        }
    }
    return now;
}

/* Every build but the first has reasons; each entry's reasons, undone, make the call hit it. A
 * constant behind another op is told when the op is put back: so undo until nothing changes. */
START_TEST(reasons_are_complete)
{
    struct callable_options o = {.limit = 100000, .capacity = 100000};
    struct fixture f;
    struct variant built[400];
    start(&f, &o);
    for (int i = 0; i < 5000; i++) {
        struct variant v = drawn();
        uint32_t before = f.n_builds;
        struct called out = call(&f, &v);
        ck_assert_int_eq(f.n_builds, before + (out.outcome == LEDGER_BUILT));
        if (out.outcome != LEDGER_BUILT) {
            continue;
        }
        const struct ledger_event own = *last_event(&f);
        ck_assert_uint_lt(own.entry, ARRAY_LEN(built));
        built[own.entry] = v;
        ck_assert_uint_eq(own.compared, own.entry - 1);
        for (uint32_t k = 1; k < own.entry; k++) {
            struct variant back = undone(&own, k, v, &built[k]);
            if (strcmp(back.op, v.op) != 0) { /* what lies behind the op was not compared */
                back.constant = built[k].constant;
            }
            uint32_t n = f.n_builds;
            struct called again = call(&f, &back);
            ck_assert_msg(again.outcome == LEDGER_HIT && f.n_builds == n,
                          "call %d: reasons of plan %u undone do not make it hit", i, k);
        }
    }
    ck_assert_uint_gt(f.n_builds, 50);
    end(&f);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 8, CALLS = 1000, SIZES = 8 };
static const int thread_sizes[SIZES] = {64, 5, 7, 1, 0, 64, 9, 2};

struct worker {
    struct fixture *f;
    const struct trace *traces; /* by size; shared */
    uint32_t number, n_wrong;
};

static void *work(void *context)
{
    struct worker *w = context;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t at = (i * 7 + w->number) % SIZES;
        struct called out;
        struct error e = {0};
        status code = callable_call(w->f->c, &w->traces[at], &out, &e);
        w->n_wrong += code != ATOLL_OK || out.plan == NULL;
        for (uint32_t k = 1; code == ATOLL_OK && k < out.graph->n_symbols; k++) {
            w->n_wrong += out.symbols[k] != thread_sizes[at];
        }
        if (code == ATOLL_OK) {
            callable_done(w->f->c, &out);
        }
    }
    return NULL;
}

START_TEST(many_threads)
{
    struct fixture f;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct trace traces[SIZES];
    struct graph *graphs[SIZES];
    struct key key;
    start(&f, NULL);
    f.delay = 100000;
    key_named(&key, "fp32");
    for (uint32_t i = 0; i < SIZES; i++) {
        struct variant v = usual;
        char text[1000];
        v.n = thread_sizes[i];
        write_model(text, &v);
        graphs[i] = parsed(text);
        trace_of_graph(&traces[i], graphs[i], DEVICE_CPU, &f.arena);
        traces[i].key = &key;
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){&f, traces, i, 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(workers[i].n_wrong, 0);
    }
    atoll_counters n;
    atoll_ledger_counters(callable_ledger(f.c), &n);
    ck_assert_uint_eq(n.lookups, THREADS * CALLS);
    ck_assert_uint_eq(n.hits + n.builds, THREADS * CALLS);
    ck_assert_uint_eq(n.builds, f.n_builds);
    ck_assert_uint_le(f.n_builds, 4); /* the first size, its symbol, 1, 0 */
    for (uint32_t i = 0; i < SIZES; i++) {
        graph_destroy(graphs[i]);
    }
    end(&f);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, partial_batch);
    tcase_add_test(tc, dims_that_go_together);
    tcase_add_loop_test(tc, ops_and_symbols, 0, (int)ARRAY_LEN(op_cases));
    tcase_add_test(tc, divisible_is_guarded);
    tcase_add_loop_test(tc, changes_are_told, 0, (int)ARRAY_LEN(changes));
    tcase_add_loop_test(tc, dtype_rank_arguments_attribute, 0, 6);
    tcase_add_loop_test(tc, over_the_limit, 0, 2);
    tcase_add_test(tc, recompile_forbidden);
    tcase_add_test(tc, eviction);
    tcase_add_test(tc, symbols_that_do_not_compile);
    tcase_add_test(tc, failed_build);
    tcase_add_test(tc, reasons_are_complete);
    tcase_add_test(tc, many_threads);
}

int main(void)
{
    return run_suite("callable", fill);
}
