/* dispatch_bench: what calling a compiled function costs beside its kernels, in nanoseconds, best
 * of repetitions; prints one JSON object. Plans are tiny and run op by op where their own time is
 * taken off by running them alone. Nothing here is a test: no figure makes it fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "atoll/compile.h"
#include "frontend/callable.h"
#include "frontend/capture.h"

enum { REPEATS = 9, MANY = 100, OPS = 1000 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void die(const atoll_error *error)
{
    fprintf(stderr, "dispatch_bench: %s\n", error->text);
    exit(4);
}

/* Best time of one of n turns. */
static double best(void (*turn)(void *context), void *context, int n)
{
    double least = 0.0;
    for (int r = 0; r < REPEATS; r++) {
        double start = now_ns();
        for (int i = 0; i < n; i++) {
            turn(context);
        }
        double each = (now_ns() - start) / n;
        least = r == 0 || each < least ? each : least;
    }
    return least;
}

/* ---- a whole call ---- */

static void negate(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_neg(a[0]));
}

struct calling {
    atoll_compiled *f;
    atoll_view x;
    atoll_results *r;
};

static void one_call(void *context)
{
    const struct calling *c = context;
    atoll_error error = {0};
    if (atoll_call(c->f, &c->x, 1, NULL, c->r, &error) != ATOLL_OK) {
        die(&error);
    }
}

static double time_calls(int is_frozen)
{
    static float number[1];
    atoll_error error = {0};
    atoll_compile_options o = {.frozen = is_frozen};
    struct calling c = {.x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(1), number),
                        .r = atoll_results_create()};
    if (atoll_compile(negate, &o, &c.f, &error) != ATOLL_OK) {
        die(&error);
    }
    one_call(&c);
    double each = best(one_call, &c, 20000);
    atoll_compiled_destroy(c.f);
    atoll_results_destroy(c.r);
    return each;
}

/* ---- recording ---- */

struct recording {
    atoll_trace *t;
    atoll_dims shape;
};

/* OPS ops of the kinds a model has. */
static void record(void *context)
{
    struct recording *k = context;
    capture_reset(k->t, "bench");
    atoll_value x = atoll_input(k->t, "x", ATOLL_F32, k->shape);
    atoll_value w = atoll_input(k->t, "w", ATOLL_F32, k->shape);
    for (int i = 0; i < OPS / 5; i++) {
        atoll_value h = atoll_linear(x, w);
        h = atoll_gelu(h);
        h = atoll_add(h, x);
        h = atoll_layer_norm(h, .eps = 1e-6);
        x = atoll_reshape(h, ATOLL_DIMS(64, 64));
    }
    atoll_output(k->t, "y", x);
}

static double time_recording(void)
{
    struct recording k = {.t = atoll_trace_create("bench"), .shape = ATOLL_DIMS(64, 64)};
    k.t->is_lazy = true;
    double each = best(record, &k, 50);
    atoll_trace_destroy(k.t);
    return each / OPS;
}

/* ---- guards of many arguments ---- */

static void sum_all(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)context;
    atoll_value y = a[0];
    for (uint32_t i = 1; i < n; i++) {
        y = atoll_add(y, a[i]);
    }
    atoll_output(t, "y", y);
}

static status build_nothing(void *context, const struct build_request *r, void **plan,
                            struct build_report *report, struct error *e)
{
    (void)r;
    (void)report;
    (void)e;
    *plan = context;
    return ATOLL_OK;
}

struct finding {
    struct callable *c;
    struct trace t;
};

static void find(void *context)
{
    struct finding *k = context;
    struct called out;
    if (callable_find(k->c, &k->t, &out)) {
        callable_done(k->c, &out);
    }
}

/* The engine alone: facts of MANY tensors against a plan's guards, and the ledger's line. */
static double time_guards(void)
{
    struct arena arena = {0};
    struct key key = {.hash = 1};
    struct error e = {0};
    struct called out;
    struct callable_options o = {.build = build_nothing};
    struct finding k = {.c = callable_create("bench", &o)};
    atoll_trace *t = atoll_trace_create("bench");
    atoll_value a[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "a%d", i);
        a[i] = atoll_input(t, name, ATOLL_F32, ATOLL_DIMS(4, 8));
    }
    sum_all(t, a, MANY, NULL);
    for (int i = 0; i < N_KEY_PARTS; i++) {
        key.texts[i] = "";
    }
    trace_of_graph(&k.t, capture_graph(t), DEVICE_CPU, &arena);
    k.t.key = &key;
    o.context = &o;
    if (callable_call(k.c, &k.t, &out, &e) != ATOLL_OK) {
        fprintf(stderr, "dispatch_bench: %s\n", e.text);
        exit(4);
    }
    callable_done(k.c, &out);
    double each = best(find, &k, 2000);
    callable_destroy(k.c);
    atoll_trace_destroy(t);
    arena_free(&arena);
    return each;
}

int main(void)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return 4;
    }
    double frozen = time_calls(1), traced = time_calls(0);
    printf("{\"frozen_call_ns\": %.0f, \"traced_call_ns\": %.0f, \"recording_ns_per_op\": %.1f, "
           "\"guards_of_100_tensors_ns\": %.0f}\n",
           frozen, traced, time_recording(), time_guards());
    arena_recover_end(&r);
    return 0;
}
