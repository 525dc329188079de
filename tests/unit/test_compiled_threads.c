/* Many threads, one compiled function: every result is right, each key is built once, states count
 * every call. test_compiled_threads --calls 10000 makes so many calls a thread. */
#include "tests/small_training.h"

#include <pthread.h>

#include "atoll/compile.h"

enum { THREADS = 8, COLUMNS = 4, MOST = 16 };
static uint64_t n_calls = 1000;

struct worker {
    pthread_t thread;
    atoll_compiled *f;
    uint64_t seed, n_wrong, n_failed;
    char text[1000]; /* of the first failure */
};

static void row_sums(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value twice = atoll_mul(a[0], atoll_number(t, 2.0));
    atoll_output(t, "y", atoll_sum(twice, .axes = ATOLL_AXES(-1)));
}

static void counting(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value count = atoll_state(t, "count", ATOLL_F64, ATOLL_SCALAR, "zeros");
    atoll_update(count, atoll_add(count, atoll_cast(atoll_max(a[0]), ATOLL_F64)));
    atoll_output(t, "y", atoll_sum(a[0], .axes = ATOLL_AXES(-1)));
}

static void work(struct worker *w, bool has_state)
{
    float x[MOST * COLUMNS];
    atoll_results *r = atoll_results_create();
    for (uint64_t k = 0; k < n_calls; k++) {
        atoll_error error = {0};
        int64_t rows = 1 + (int64_t)((w->seed + k * 7) % MOST);
        for (int64_t i = 0; i < rows * COLUMNS; i++) {
            x[i] = has_state ? 1.0f : (float)(i + (int64_t)w->seed);
        }
        atoll_view v = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, COLUMNS), x), y;
        if (atoll_call(w->f, &v, 1, NULL, r, &error) != ATOLL_OK) {
            if (w->n_failed++ == 0) {
                memcpy(w->text, error.text, sizeof w->text);
            }
            continue;
        }
        (void)atoll_results_view(r, "y", &y, NULL);
        for (int64_t i = 0; i < rows; i++) {
            float sum =
                x[i * COLUMNS] + x[i * COLUMNS + 1] + x[i * COLUMNS + 2] + x[i * COLUMNS + 3];
            w->n_wrong += ((const float *)y.data)[i] != (has_state ? sum : 2.0f * sum);
        }
    }
    atoll_results_destroy(r);
}

static void *without_state(void *context)
{
    work(context, false);
    return NULL;
}

static void *with_state(void *context)
{
    work(context, true);
    return NULL;
}

static atoll_counters run_all(atoll_compiled *f, void *(*run)(void *))
{
    struct worker workers[THREADS];
    atoll_counters n;
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = f, .seed = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_msg(workers[i].n_failed == 0, "%s", workers[i].text);
        ck_assert_uint_eq(workers[i].n_wrong, 0);
    }
    atoll_ledger_counters(atoll_compiled_ledger(f), &n);
    return n;
}

static atoll_compiled *open_with(atoll_function *fn, const atoll_compile_options *o)
{
    atoll_compiled *f = NULL;
    atoll_error error = {0};
    ck_assert_msg(atoll_compile(fn, o, &f, &error) == ATOLL_OK, "%s", error.text);
    return f;
}

/* Waiting for who builds, running eagerly meanwhile, frozen, kernels. */
START_TEST(threads_share_one_function)
{
    static const atoll_compile_options options[] = {
        {.is_eager = 1},
        {.is_eager = 1, .is_eager_while_building = 1},
        {.is_eager = 1, .frozen = 1},
        {.is_eager = 0},
    };
    atoll_compiled *f = open_with(row_sums, &options[_i]);
    atoll_counters n = run_all(f, without_state);
    ck_assert_uint_eq(n.calls, THREADS * n_calls);
    ck_assert_uint_eq(n.lookups, n.calls);
    ck_assert_uint_le(n.builds, 4); /* a first size, 1, another one, any size */
    ck_assert_uint_eq(n.hits + n.builds + n.eager, n.calls);
    ck_assert(options[_i].is_eager_while_building || n.eager == 0);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(states_count_every_call)
{
    atoll_view count;
    const atoll_compile_options o = {.is_eager = 1};
    atoll_compiled *f = open_with(counting, &o);
    (void)run_all(f, with_state);
    ck_assert_int_eq(atoll_compiled_state(f, "count", &count, NULL), ATOLL_OK);
    double total;
    memcpy(&total, count.data, sizeof total);
    ASSERT_NUMBER(total, (double)(THREADS * n_calls));
    atoll_compiled_destroy(f);
}
END_TEST

static void start(void)
{
    small_start();
    setenv("ATOLL_CACHE", small_directory(), 1);
}

static void fill(TCase *tc)
{
    tcase_set_timeout(tc, 1200);
    tcase_add_unchecked_fixture(tc, start, small_clean);
    tcase_add_loop_test(tc, threads_share_one_function, 0, 4);
    tcase_add_test(tc, states_count_every_call);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--calls") == 0) {
        n_calls = strtoull(argv[2], NULL, 10);
    }
    return run_suite("compiled threads", fill);
}
