/* Specialised plans give eager's bits: random graphs called through the engine at changing sizes,
 * so that plans with numbers and plans with symbols come to run, each call held against an eager
 * run of the graph with that call's sizes. */
#include "frontend/callable.h"
#include "frontend/runner.h"
#include "tests/fuzz/fill.h"
#include "tests/suite.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_CASES = 100, ENOUGH_VALUES = 24, ENOUGH_CALLS = 11, ENOUGH_SYMBOLIC = 4, SEED = 411 };
static const int64_t sizes[] = {6, 6, 4, 9, 1, 0, 6};

static status build(void *context, const struct build_request *r, void **plan,
                    struct build_report *report, struct error *e)
{
    const struct compile_options *o = context;
    struct runner *runner = calloc(1, sizeof *runner);
    ck_assert_ptr_nonnull(runner);
    status code = runner_open(runner, r->graph, o, 1, e);
    if (code != ATOLL_OK) {
        runner_free(runner);
        free(runner);
        return code;
    }
    build_report_of(report, &runner->compiled);
    *plan = runner;
    return ATOLL_OK;
}

static void drop(void *context, void *plan)
{
    (void)context;
    runner_free(plan);
    free(plan);
}

/* The same numbers into the same leaves, by name; then a step. */
static status fill_and_step(struct runner *r, const struct fuzz_case *c, uint64_t call,
                            struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
        if (!node_is_leaf(n)) {
            continue;
        }
        for (uint32_t d = 0; d < t.rank; d++) {
            t.shape[d] = dim_value(n->shape.dims[d], r->symbols);
        }
        t.data = calloc(1, tensor_bytes(&t) + 64);
        ck_assert_ptr_nonnull(t.data);
        fill_tensor(c, n->name, call, &t);
        status code = runner_input(r, n->name, &t, e);
        free(t.data);
        TRY(code);
    }
    return runner_step(r, e);
}

struct tally {
    uint32_t n_called, n_symbolic, n_values;
};

static void compare(struct runner *a, struct runner *b, uint64_t number, int64_t size,
                    struct tally *count)
{
    const struct graph *g = runner_graph(a);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor x = runner_output(a, g->outputs[i].name);
        struct tensor y = runner_output(b, g->outputs[i].name);
        ck_assert(x.dtype == y.dtype && x.rank == y.rank && tensor_bytes(&x) == tensor_bytes(&y));
        int64_t at = first_difference(&x, &y);
        ck_assert_msg(at < 0, "case %" PRIu64 ", size %" PRId64 ": output %s differs at %" PRId64,
                      number, size, g->outputs[i].name, at);
        count->n_values++;
    }
}

static void call_once(struct callable *c, const struct fuzz_case *f, const struct key *key,
                      const struct compile_options *o, uint64_t number, uint64_t call,
                      struct tally *count)
{
    struct arena a = {0};
    struct error e = {0}, eager_error = {0};
    struct trace t;
    struct called out;
    struct runner eager;
    struct compile_options eagerly = *o;
    int64_t symbols[MAX_SYMBOLS];
    eagerly.is_eager = true;
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        symbols[i] = sizes[(call + i) % ARRAY_LEN(sizes)]; /* two symbols part at times */
    }
    struct graph *g = graph_bind(f->graph, symbols, &e);
    if (g == NULL) {
        return; /* an op that has no such size */
    }
    trace_of_graph(&t, g, DEVICE_CPU, &a);
    t.key = key;
    status code = callable_call(c, &t, &out, &e);
    status eager_code = runner_open(&eager, g, &eagerly, 1, &eager_error);
    ck_assert_msg((code == ATOLL_OK) == (eager_code == ATOLL_OK), "case %" PRIu64 ": %s %s", number,
                  e.text, eager_error.text);
    if (code == ATOLL_OK) {
        struct runner *fused = out.plan;
        ck_assert_msg(runner_bind(fused, out.symbols, &e) == ATOLL_OK, "%s", e.text);
        code = fill_and_step(fused, f, call, &e);
        eager_code = fill_and_step(&eager, f, call, &eager_error);
        ck_assert_msg(code == eager_code, "case %" PRIu64 ": %s %s", number, e.text,
                      eager_error.text);
        if (code == ATOLL_OK) {
            compare(fused, &eager, number, symbols[1], count);
        }
        count->n_called++;
        count->n_symbolic += out.graph->n_symbols > 1;
        callable_done(c, &out);
    }
    runner_free(&eager);
    graph_destroy(g);
    arena_free(&a);
}

static bool is_enough(const struct tally *count)
{
    return count->n_values >= ENOUGH_VALUES && count->n_called >= ENOUGH_CALLS &&
           count->n_symbolic >= ENOUGH_SYMBOLIC;
}

START_TEST(random_graphs)
{
    struct tally count = {0};
    for (uint64_t number = 0; number < MOST_CASES && !is_enough(&count); number++) {
        struct fuzz_case f;
        struct error e = {0};
        struct arena a = {0};
        struct key key;
        struct compile_options o = {.cc = {.optimise = "-O0"}};
        generate_case(SEED, number, &f);
        if (strcmp(f.policy, "none") != 0) {
            ck_assert_int_eq(policy_named(f.policy, &o.policy, &e), ATOLL_OK);
        }
        struct callable_options options = {
            .build = build, .drop = drop, .context = &o, .limit = 100};
        struct callable *c = callable_create("random", &options);
        key_of_options(&o, &a, &key);
        for (uint64_t call = 0; f.graph->n_symbols > 1 && call < ARRAY_LEN(sizes); call++) {
            call_once(c, &f, &key, &o, number, call, &count);
        }
        callable_destroy(c);
        arena_free(&a);
        graph_destroy(f.graph);
    }
    ck_assert_msg(is_enough(&count), "%u calls, %u symbolic, %u values", count.n_called,
                  count.n_symbolic, count.n_values);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, random_graphs);
}

int main(void)
{
    return run_suite("callable bits", fill);
}
