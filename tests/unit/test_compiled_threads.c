/* Many threads, one compiled function: every result is right, each key is built exactly once,
 * states count every call. test_compiled_threads --calls N makes so many calls a thread. */
#include "tests/small_compiled.h"

#include <pthread.h>

#include "runtime/ledger.h"

enum { THREADS = 8, COLUMNS = 4, FIRST = 2, SIZES = 16, MOST = FIRST + SIZES, POLICIES = 3 };
static uint64_t n_calls = 10000;

struct worker {
    pthread_t thread;
    atoll_compiled *f;
    uint64_t seed, n_wrong, n_failed;
    uint32_t n_policies; /* that its calls choose among */
    char text[1000];     /* of the first failure */
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
    static const char *const policies[POLICIES] = {"fp32", "bf16", "fp16"};
    float x[MOST * COLUMNS];
    atoll_results *r = atoll_results_create();
    for (uint64_t k = 0; k < n_calls; k++) {
        atoll_error error = {0};
        int64_t rows = FIRST + (int64_t)((w->seed + k * 7) % SIZES);
        const atoll_call_options o = {.policy = policies[(w->seed + k / SIZES) % POLICIES]};
        for (int64_t i = 0; i < rows * COLUMNS; i++) {
            x[i] = has_state ? 1.0f : (float)(i + (int64_t)w->seed);
        }
        atoll_view v = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(rows, COLUMNS), x), y;
        if (atoll_call_with(w->f, w->n_policies > 1 ? &o : NULL, &v, 1, NULL, r, &error) !=
            ATOLL_OK) {
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

static atoll_counters run_all(atoll_compiled *f, uint32_t n_policies, void *(*run)(void *))
{
    struct worker workers[THREADS];
    atoll_counters n;
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = f, .seed = i, .n_policies = n_policies};
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

/* What a build is for: no two are for the same. */
static void check_keys(const atoll_compiled *f, uint64_t n_keys)
{
    const struct atoll_ledger *l = atoll_compiled_ledger(f);
    ck_assert_uint_eq(counters(f).builds, n_keys);
    ck_assert_uint_eq(l->n_entries, n_keys);
    for (uint32_t i = 0; i < l->n_entries; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const struct ledger_entry *a = &l->entries[i], *b = &l->entries[k];
            ck_assert_msg(strcmp(a->title, b->title) != 0 || strcmp(a->policy, b->policy) != 0,
                          "plans %u and %u are both for %s, %s", b->number, a->number, a->title,
                          a->policy);
        }
    }
}

/* Waiting for who builds, running eagerly meanwhile, frozen, kernels. Sizes from 2 on have two
 * keys: the first size seen, and any other; kept as numbers each is a key, of each policy. */
static const struct sharing {
    atoll_compile_options options;
    uint32_t n_policies;
    uint64_t n_keys;
} sharings[] = {
    {{.is_eager = 1}, 1, 2},
    {{.is_eager = 1, .is_eager_while_building = 1}, 1, 2},
    {{.is_eager = 1, .frozen = 1}, 1, 2},
    {{.is_eager = 0}, 1, 2},
    {{.is_eager = 1, .is_static = 1, .limit = 100}, 1, SIZES},
    {{.is_eager = 1, .is_static = 1, .limit = 100}, POLICIES, SIZES *POLICIES},
    {{.is_eager = 1, .is_static = 1, .limit = 100, .is_eager_while_building = 1},
     POLICIES,
     SIZES *POLICIES},
    {{.is_static = 1, .limit = 100}, 1, SIZES},
};

START_TEST(threads_share_one_function)
{
    const struct sharing *s = &sharings[_i];
    atoll_compiled *f = open_with(row_sums, &s->options);
    atoll_counters n = run_all(f, s->n_policies, without_state);
    ck_assert_uint_eq(n.calls, THREADS * n_calls);
    ck_assert_uint_eq(n.lookups, n.calls);
    check_keys(f, s->n_keys);
    ck_assert_uint_eq(n.hits + n.builds + n.eager, n.calls);
    ck_assert(s->options.is_eager_while_building || n.eager == 0);
    atoll_compiled_destroy(f);
}
END_TEST

START_TEST(states_count_every_call)
{
    atoll_view count;
    const atoll_compile_options o = {.is_eager = 1};
    atoll_compiled *f = open_with(counting, &o);
    (void)run_all(f, 1, with_state);
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
    tcase_add_loop_test(tc, threads_share_one_function, 0, ARRAY_LEN(sharings));
    tcase_add_test(tc, states_count_every_call);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--calls") == 0) {
        n_calls = strtoull(argv[2], NULL, 10);
    }
    return run_suite("compiled threads", fill);
}
