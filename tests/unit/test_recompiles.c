/* Completeness of the ledger's reasons: over random call sequences (shapes, dtypes, constants,
 * attributes, control flow, policy, rounding, gradients), every build after the first names what
 * changed, and a call with only that undone hits the plan it was compared with. Every call's
 * results are, bit for bit, those of running op by op; where rounding is relaxed, which promises
 * less, those of a plan built for the call's own sizes. test_recompiles [--sequences N] [--seed N]
 */
#include "tests/small_compiled.h"

#include <pthread.h>
#include <time.h>

#include "frontend/compiled.h"
#include "tests/fuzz/generate.h"

enum { CALLS = 6, ROWS = 5, COLUMNS = 3, WORKERS = 2 };
static uint64_t n_sequences = 60, seed;

enum { WANTS_X = 1, WANTS_B = 2 };
/* What a call is made of: each field is what a reason may name. */
struct spec {
    int64_t rows, columns;
    atoll_dtype dtype;
    double constant;
    int64_t axis;
    int flow;
    uint32_t policy;
    bool is_relaxed;
    uint32_t gradients;
};

static void model(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const struct spec *s = context;
    (void)n;
    atoll_value h = atoll_mul(a[0], atoll_number(t, s->constant));
    h = s->flow == 0 ? atoll_tanh(h) : s->flow == 1 ? atoll_sigmoid(atoll_exp(h)) : h;
    h = atoll_softmax(h, .axis = s->axis);
    if (s->flow == 2) {
        h = atoll_add(h, a[1]);
    }
    atoll_value y = atoll_sum(atoll_mul(h, h), .axes = ATOLL_AXES(0));
    atoll_output(t, "y", y);
    atoll_output(t, "loss", atoll_sum(y));
}

enum field { R, C, D, K, A, F, P, X, G, N_FIELDS };
/* What changes within a sequence: each two things do somewhere, while the kernels that there are to
 * compile stay few. One sequence in FREE_EACH changes everything. */
static const enum field themes[][4] = {{R, C, D, K}, {R, C, P, A}, {R, C, G, F}, {R, C, X, P},
                                       {R, D, P, X}, {R, G, P, X}, {R, G, D, K}, {R, F, K, P},
                                       {R, F, D, A}, {R, F, X, G}, {R, A, K, X}, {R, A, G, P}};
enum { FREE_EACH = 100 };

static void draw_change(struct draw *d, uint64_t number, struct spec *s)
{
    static const int64_t rows[] = {0, 1, 4, ROWS}, columns[] = {1, COLUMNS};
    static const atoll_dtype dtypes[] = {ATOLL_F32, ATOLL_BF16, ATOLL_F64};
    bool is_free = number % FREE_EACH == 0;
    switch (is_free ? draw_below(d, N_FIELDS)
                    : themes[number % ARRAY_LEN(themes)][draw_below(d, 4)]) {
    case R:
        s->rows = rows[draw_below(d, ARRAY_LEN(rows))];
        break;
    case C:
        s->columns = columns[draw_below(d, ARRAY_LEN(columns))];
        break;
    case D:
        s->dtype = dtypes[draw_below(d, 3)];
        break;
    case K:
        s->constant = 0.25 * (1 + draw_below(d, 2));
        break;
    case A:
        s->axis = (int64_t)draw_below(d, 2) - 1;
        break;
    case F:
        s->flow = (int)draw_below(d, 3);
        break;
    case P:
        s->policy = draw_below(d, 3);
        break;
    case X:
        s->is_relaxed = draw_chance(d, 50);
        break;
    default:
        s->gradients = draw_below(d, 4);
        break;
    }
}

static void make_arguments(const struct spec *s, double *memory, atoll_view v[2])
{
    size_t bytes = atoll_dtype_bytes(s->dtype);
    for (int i = 0; i < 2; i++) {
        unsigned char *at = (unsigned char *)(memory + i * ROWS * COLUMNS);
        for (int64_t k = 0; k < s->rows * s->columns; k++) {
            dtype_store((enum dtype)s->dtype, at + (size_t)k * bytes,
                        0.3 * (double)(k % 7) - 0.7 * i);
        }
        v[i] = atoll_view_of(i == 0 ? "x" : "b", s->dtype, ATOLL_DIMS(s->rows, s->columns), at);
    }
}

static void call(atoll_compiled *f, const struct spec *s, atoll_results *r)
{
    static const char *const policies[] = {"fp32", "bf16", "fp16"};
    static const char *const wrt[] = {NULL, "x", "b", "b,x"}; /* the order means nothing */
    const atoll_call_options o = {.policy = policies[s->policy],
                                  .rounding = s->is_relaxed ? "relaxed" : "strict",
                                  .with_gradients = s->gradients != 0,
                                  .wrt = wrt[s->gradients]};
    double memory[2 * ROWS * COLUMNS];
    atoll_view v[2];
    atoll_error error = {0};
    struct spec own = *s;
    make_arguments(s, memory, v);
    ck_assert_msg(atoll_call_with(f, &o, v, 2, &own, r, &error) == ATOLL_OK, "%s", error.text);
}

static const struct ledger_event *last_event(const atoll_compiled *f)
{
    const struct atoll_ledger *l = atoll_compiled_ledger(f);
    ck_assert_uint_gt(l->n_events, 0);
    return &l->events[l->n_events - 1];
}

/* What a reason names goes back to what it was. */
static void undo(struct spec *s, const struct spec *was, const struct ledger_reason *r)
{
    if (r->kind == GUARD_DTYPE) {
        s->dtype = was->dtype;
    } else if (r->kind == GUARD_CONSTANT) {
        s->constant = was->constant;
    } else if (r->kind == GUARD_ATTRIBUTE) {
        s->axis = was->axis;
    } else if (r->kind == GUARD_TRACE || r->kind == GUARD_ARGUMENTS) {
        s->flow = was->flow; /* and what the ops from there on are told */
        s->constant = was->constant;
        s->axis = was->axis;
    } else if (r->kind == GUARD_POLICY) {
        s->policy = was->policy;
    } else if (r->kind == GUARD_ROUNDING) {
        s->is_relaxed = was->is_relaxed;
    } else if (r->kind == GUARD_GRAD && strncmp(r->subject, "gradient of ", 12) == 0) {
        uint32_t one = r->subject[12] == 'x' ? WANTS_X : WANTS_B;
        s->gradients = (s->gradients & ~one) | (was->gradients & one);
    } else if (r->kind == GUARD_GRAD) {
        s->gradients = was->gradients;
    } else if (strncmp(r->subject, "dim 0", 5) == 0) {
        s->rows = was->rows;
    } else if (strncmp(r->subject, "dim 1", 5) == 0) {
        s->columns = was->columns;
    } else {
        ck_abort_msg("a reason that nothing of the call stands for: %s %s: %s -> %s",
                     guard_kinds[r->kind].name, r->subject, r->expected, r->found);
    }
}

struct sequence {
    uint64_t number;
    atoll_compiled *f, *eager, *fresh; /* fresh: fused, each size of its own */
    atoll_results *found, *expected;
    struct spec built[16 * CALLS]; /* by plan number, from 1 */
    uint32_t n_plans, n_undone, n_compared;
};

static bool is_same(const atoll_view *a, const atoll_view *b)
{
    enum dtype t = dtype_named(a->dtype, strlen(a->dtype));
    bool same = strcmp(a->dtype, b->dtype) == 0 && a->bytes == b->bytes;
    for (size_t i = 0; same && i < a->bytes; i += dtype_info[t].bytes) {
        const char *p = (const char *)a->data + i, *q = (const char *)b->data + i;
        double x = dtype_load(t, p), y = dtype_load(t, q);
        same = memcmp(p, q, dtype_info[t].bytes) == 0 || (x != x && y != y);
    }
    return same;
}

/* Every call goes through here. */
static void call_and_compare(struct sequence *q, const struct spec *s)
{
    static const char *const names[] = {"y", "loss", "grad:x", "grad:b"};
    call(q->f, s, q->found);
    call(s->is_relaxed ? q->fresh : q->eager, s, q->expected);
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        atoll_view a, b;
        bool is_wanted = i < 2 || (s->gradients & (i == 2 ? WANTS_X : WANTS_B)) != 0;
        atoll_status code = is_wanted ? ATOLL_OK : ATOLL_NOT_FOUND;
        ck_assert_int_eq(atoll_results_view(q->found, names[i], &a, NULL), code);
        ck_assert_int_eq(atoll_results_view(q->expected, names[i], &b, NULL), code);
        ck_assert_msg(!is_wanted || is_same(&a, &b), "seed %llu, sequence %llu: %s differs",
                      (unsigned long long)seed, (unsigned long long)q->number, names[i]);
    }
    q->n_compared++;
}

static void tell(const struct sequence *q)
{
    char *text = atoll_ledger_text(atoll_compiled_ledger(q->f));
    fprintf(stderr, "%s\n", text);
    free(text);
}

/* For each plan that the build was compared with: what its reasons name, undone, hits a plan that
 * was there before. */
static void undo_reasons(struct sequence *q, const struct spec *s)
{
    struct ledger_event v = *last_event(q->f);
    uint32_t n_undone = q->n_undone;
    ck_assert_uint_eq(v.entry, q->n_plans);
    if (q->n_plans == 1) {
        return;
    }
    ck_assert_uint_gt(v.n_reasons, 0);
    ck_assert_uint_gt(v.n_advice, 0);
    for (uint32_t plan = 1; plan < q->n_plans; plan++) {
        struct spec back = *s;
        uint32_t n = 0;
        for (uint32_t i = 0; i < v.n_reasons; i++) {
            if (v.reasons[i].entry == plan) {
                undo(&back, &q->built[plan], &v.reasons[i]);
                n++;
            }
        }
        if (n == 0) {
            continue; /* a failed try to make its sizes symbols */
        }
        uint32_t n_builds = q->n_plans;
        call_and_compare(q, &back);
        const struct ledger_event *now = last_event(q->f);
        if (now->outcome != LEDGER_HIT) {
            tell(q);
        }
        ck_assert_msg(now->outcome == LEDGER_HIT && now->entry <= n_builds,
                      "seed %llu, sequence %llu: plan %u's reasons undone, and the call is %s",
                      (unsigned long long)seed, (unsigned long long)q->number, plan,
                      ledger_outcome_names[now->outcome]);
        q->n_undone++;
    }
    ck_assert_uint_gt(q->n_undone, n_undone);
}

static void open_sequence(struct sequence *q)
{
    atoll_compile_options o = {.limit = 100};
    q->f = open_with(model, &o);
    o.is_static = 1;
    q->fresh = open_with(model, &o);
    o.is_eager = 1;
    q->eager = open_with(model, &o);
    q->found = atoll_results_create();
    q->expected = atoll_results_create();
}

static void run_sequence(struct sequence *q)
{
    struct draw d = {.state = (seed + q->number) * 7919 + 3};
    struct spec s = {.rows = 4, .columns = 3, .dtype = ATOLL_F32, .constant = 0.5, .axis = -1};
    for (int k = 0; k < CALLS; k++) {
        for (uint32_t n = draw_below(&d, 3); k > 0 && n < 3; n++) { /* up to three things change */
            draw_change(&d, q->number, &s);
        }
        call_and_compare(q, &s);
        const struct ledger_event *v = last_event(q->f);
        if (v->outcome == LEDGER_BUILT) {
            q->built[++q->n_plans] = s;
            undo_reasons(q, &s);
        } else {
            ck_assert_int_eq(v->outcome, LEDGER_HIT);
        }
    }
    ck_assert_uint_eq(counters(q->f).builds, q->n_plans); /* undoing built nothing */
    ck_assert_uint_eq(counters(q->f).calls, q->n_compared);
    ck_assert_uint_eq(atoll_compiled_ledger(q->f)->n_entries, q->n_plans);
}

static void close_sequence(struct sequence *q)
{
    atoll_compiled_destroy(q->f);
    atoll_compiled_destroy(q->eager);
    atoll_compiled_destroy(q->fresh);
    atoll_results_destroy(q->found);
    atoll_results_destroy(q->expected);
}

/* Sequences share nothing but the cache of kernels: workers take every so many. */
struct worker {
    pthread_t thread;
    uint64_t first, n_undone, n_calls, n_plans, n_kernels;
};

static void *work(void *context)
{
    struct worker *w = context;
    for (uint64_t i = w->first; i < n_sequences; i += WORKERS) {
        struct sequence q = {.number = i};
        open_sequence(&q);
        run_sequence(&q);
        w->n_undone += q.n_undone;
        w->n_calls += q.n_compared;
        w->n_plans += q.n_plans;
        w->n_kernels += counters(q.f).kernels_built + counters(q.fresh).kernels_built;
        close_sequence(&q);
    }
    return NULL;
}

START_TEST(reasons_are_complete)
{
    struct worker workers[WORKERS];
    struct worker all = {0};
    for (uint64_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.first = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint64_t i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        all.n_undone += workers[i].n_undone;
        all.n_calls += workers[i].n_calls;
        all.n_plans += workers[i].n_plans;
        all.n_kernels += workers[i].n_kernels;
    }
    printf("%llu calls compared, %llu plans built, %llu reasons undone, %llu kernels compiled\n",
           (unsigned long long)all.n_calls, (unsigned long long)all.n_plans,
           (unsigned long long)all.n_undone, (unsigned long long)all.n_kernels);
    ck_assert_uint_gt(all.n_undone, n_sequences); /* more than one a sequence */
}
END_TEST

static void fill(TCase *tc)
{
    tcase_set_timeout(tc, 3600);
    tcase_add_unchecked_fixture(tc, small_calls_start, small_clean);
    tcase_add_test(tc, reasons_are_complete);
}

int main(int argc, char **argv)
{
    seed = (uint64_t)time(NULL);
    n_sequences = is_sanitized() ? 15 : n_sequences;
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t *option = strcmp(argv[i], "--sequences") == 0 ? &n_sequences
                           : strcmp(argv[i], "--seed") == 0    ? &seed
                                                               : NULL;
        if (option != NULL) {
            *option = strtoull(argv[i + 1], NULL, 10);
        }
    }
    printf("test_recompiles --sequences %llu --seed %llu\n", (unsigned long long)n_sequences,
           (unsigned long long)seed);
    return run_suite("recompiles", fill);
}
