/* Completeness of the ledger's reasons: over random call sequences (shapes, dtypes, constants,
 * attributes, control flow), every build after the first names what changed, and a call with only
 * that undone hits the plan it was compared with. Results equal those of running op by op, bit for
 * bit. test_recompiles --sequences 5000 runs as many. */
#include "tests/small_training.h"

#include "atoll/compile.h"
#include "frontend/compiled.h"
#include "tests/fuzz/generate.h"

enum { SEQUENCES = 150, FUSED_EACH = 30, CALLS = 6, ROWS = 6, COLUMNS = 4 };
static uint64_t n_sequences = SEQUENCES;

/* What a call is made of: each field is what a reason may name. */
struct spec {
    int64_t rows, columns;
    atoll_dtype dtype;
    double constant;
    int64_t axis;
    int flow;
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
    atoll_output(t, "y", atoll_sum(atoll_mul(h, h), .axes = ATOLL_AXES(0)));
}

static struct spec draw_spec(struct draw *d, const struct spec *before)
{
    static const atoll_dtype dtypes[] = {ATOLL_F32, ATOLL_BF16, ATOLL_F64};
    struct spec s = *before;
    for (uint32_t k = draw_below(d, 3); k < 3; k++) { /* up to three things change */
        switch (draw_below(d, 6)) {
        case 0:
            s.rows = draw_below(d, ROWS + 1);
            break;
        case 1:
            s.columns = 1 + draw_below(d, COLUMNS);
            break;
        case 2:
            s.dtype = dtypes[draw_below(d, 3)];
            break;
        case 3:
            s.constant = 0.25 * (1 + draw_below(d, 3));
            break;
        case 4:
            s.axis = (int64_t)draw_below(d, 2) - 1;
            break;
        default:
            s.flow = (int)draw_below(d, 3);
            break;
        }
    }
    return s;
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
    double memory[2 * ROWS * COLUMNS];
    atoll_view v[2];
    atoll_error error = {0};
    struct spec own = *s;
    make_arguments(s, memory, v);
    ck_assert_msg(atoll_call(f, v, 2, &own, r, &error) == ATOLL_OK, "%s", error.text);
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
    atoll_compiled *f, *eager;
    atoll_results *found, *expected;
    struct spec built[CALLS + 1]; /* by plan number, from 1 */
    uint32_t n_plans, n_undone;
};

static void same_results(const struct sequence *q, const struct spec *s)
{
    atoll_view a, b;
    call(q->eager, s, q->expected);
    ck_assert_int_eq(atoll_results_view(q->found, "y", &a, NULL), ATOLL_OK);
    ck_assert_int_eq(atoll_results_view(q->expected, "y", &b, NULL), ATOLL_OK);
    ck_assert_uint_eq(a.bytes, b.bytes);
    ck_assert_msg(a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0,
                  "sequence %llu: results differ", (unsigned long long)q->number);
}

/* For each plan that the build was compared with: what its reasons name, undone, hits a plan that
 * was there before. */
static void undo_reasons(struct sequence *q, const struct spec *s)
{
    struct ledger_event v = *last_event(q->f);
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
            continue; /* not compared: evicted, or replaced by a wider one */
        }
        uint32_t n_builds = q->n_plans;
        call(q->f, &back, q->found);
        const struct ledger_event *now = last_event(q->f);
        if (now->outcome != LEDGER_HIT) {
            char *text = atoll_ledger_text(atoll_compiled_ledger(q->f));
            fprintf(stderr, "%s\n", text);
            free(text);
        }
        ck_assert_msg(now->outcome == LEDGER_HIT && now->entry <= n_builds,
                      "sequence %llu: plan %u's reasons undone, and the call is %s",
                      (unsigned long long)q->number, plan, ledger_outcome_names[now->outcome]);
        q->n_undone++;
    }
}

static uint32_t run_sequence(uint64_t number)
{
    struct draw d = {.state = number * 7919 + 3};
    struct sequence q = {
        .number = number, .found = atoll_results_create(), .expected = atoll_results_create()};
    static const char *const policies[] = {"fp32", "bf16", "fp16"};
    atoll_compile_options o = {
        .policy = policies[draw_below(&d, 3)], .limit = 100, .is_eager = number % FUSED_EACH != 0};
    struct spec s = {.rows = 4, .columns = 3, .dtype = ATOLL_F32, .constant = 0.5, .axis = -1};
    atoll_error error = {0};
    ck_assert_msg(atoll_compile(model, &o, &q.f, &error) == ATOLL_OK, "%s", error.text);
    o.is_eager = 1;
    o.is_static = 1;
    ck_assert_msg(atoll_compile(model, &o, &q.eager, &error) == ATOLL_OK, "%s", error.text);
    for (int k = 0; k < CALLS; k++) {
        s = k == 0 ? s : draw_spec(&d, &s);
        call(q.f, &s, q.found);
        same_results(&q, &s);
        const struct ledger_event *v = last_event(q.f);
        if (v->outcome == LEDGER_BUILT) {
            q.built[++q.n_plans] = s;
            undo_reasons(&q, &s);
        } else {
            ck_assert_int_eq(v->outcome, LEDGER_HIT);
        }
    }
    atoll_counters n;
    atoll_ledger_counters(atoll_compiled_ledger(q.f), &n);
    ck_assert_uint_eq(n.builds, q.n_plans); /* undoing built nothing */
    atoll_compiled_destroy(q.f);
    atoll_compiled_destroy(q.eager);
    atoll_results_destroy(q.found);
    atoll_results_destroy(q.expected);
    return q.n_undone;
}

START_TEST(reasons_are_complete)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < n_sequences; i++) {
        n += run_sequence(i);
    }
    ck_assert_uint_gt(n, n_sequences); /* more than one a sequence */
}
END_TEST

static void start(void)
{
    small_start();
    setenv("ATOLL_CACHE", small_directory(), 1);
}

static void fill(TCase *tc)
{
    tcase_set_timeout(tc, 3600);
    tcase_add_unchecked_fixture(tc, start, small_clean);
    tcase_add_test(tc, reasons_are_complete);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--sequences") == 0) {
        n_sequences = strtoull(argv[2], NULL, 10);
    }
    return run_suite("recompiles", fill);
}
