/* ranges: its bounds are those of the conversions, its counts what converting each element gives,
 * over steps, eager and fused alike. */
#include "frontend/ranges.h"

#include "tests/small_training.h"

#include <math.h>

static double converted(enum dtype t, double x)
{
    uint64_t element = 0;
    dtype_store(t, &element, x);
    return dtype_load(t, &element);
}

START_TEST(bounds)
{
    enum dtype t = narrow_dtypes[_i];
    double low = underflow_bound(t), high = saturation_bound(t);
    ck_assert(converted(t, low) == 0.0);
    ck_assert(converted(t, nextafter(low, 1.0)) > 0.0);
    ck_assert(converted(t, nextafter(high, 0.0)) == dtype_info[t].max);
    ck_assert(!isfinite(converted(t, nextafter(high, (double)INFINITY))));
    ck_assert(isfinite(converted(t, high)) == (t == F8E4M3));
}
END_TEST

enum { N = 4000 };

/* Magnitudes over all of f32, the neighbourhood of each bound, zeros and what is not finite. */
static void fill_values(float *x)
{
    uint32_t state = 12345;
    for (int i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        enum dtype t = narrow_dtypes[i % N_NARROW];
        double near = (i / 4) % 2 == 0 ? underflow_bound(t) : saturation_bound(t);
        double any = ldexp(1.0 + (double)(state >> 8) * 0x1p-24, (int)(state % 266) - 140);
        x[i] = (float)(i % 3 == 0 ? near * (1.0 + ((double)(state % 5) - 2.0) * 0x1p-20) : any);
        x[i] = i % 2 == 0 ? -x[i] : x[i];
    }
    x[7] = 0.0F;
    x[8] = -0.0F;
    x[9] = (float)NAN;
    x[10] = (float)INFINITY;
}

START_TEST(counts)
{
    static float x[N];
    struct tensor values[2] = {{0}, {.dtype = F32, .rank = 1, .shape = {N}, .data = x}};
    struct recording rec = {.values = values, .n = 2};
    struct ranges r = {0};
    struct error e = {0};
    fill_values(x);
    ck_assert(ranges_add(&r, &rec, &e) == ATOLL_OK && ranges_add(&r, &rec, &e) == ATOLL_OK);
    const struct range *range = &r.items[1];
    ck_assert_uint_eq(r.steps, 2);
    ck_assert(range->n == 2 * N && range->zeros == 4 && range->nonfinite == 4);
    for (uint32_t k = 0; k < N_NARROW; k++) {
        uint64_t under = 0, over = 0;
        for (int i = 0; i < N; i++) {
            double given = (double)x[i], kept = converted(narrow_dtypes[k], given);
            under += given != 0.0 && kept == 0.0;
            over += isfinite(given) && !isfinite(kept);
        }
        ck_assert_uint_gt(under, 0);
        ck_assert_uint_gt(over, 0);
        ck_assert_uint_eq(range->underflow[k], 2 * under);
        ck_assert_uint_eq(range->saturate[k], 2 * over);
    }
    double amax = 0.0, least = (double)INFINITY;
    for (int i = 0; i < N; i++) {
        double a = fabs((double)x[i]);
        amax = isfinite(a) && a > amax ? a : amax;
        least = a > 0.0 && a < least ? a : least;
    }
    ck_assert(range->amax == amax && range->min_nonzero == least);
    ranges_free(&r);
}
END_TEST

static void gather(bool is_eager, struct ranges *out)
{
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct error e = {0};
    struct runner r;
    struct recording rec = {0};
    struct graph *g = small_model(&e);
    o.is_eager = is_eager;
    o.keeps_values = true;
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (int step = 0; step < 3; step++) {
        ck_assert_msg(small_feed(&r, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(trace_step(&rec, &r, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(ranges_add(out, &rec, &e) == ATOLL_OK, "%s", e.text);
        recording_free(&rec);
    }
    runner_free(&r);
    graph_destroy(g);
}

START_TEST(same_eager_and_fused)
{
    struct ranges eager = {0}, fused = {0};
    uint32_t n_seen = 0;
    gather(true, &eager);
    gather(false, &fused);
    ck_assert_uint_eq(eager.n, fused.n);
    for (uint32_t i = 1; i < eager.n; i++) {
        n_seen += eager.items[i].n > 0;
        ck_assert_msg(memcmp(&eager.items[i], &fused.items[i], sizeof eager.items[i]) == 0,
                      "node %u", i);
    }
    ck_assert_uint_gt(n_seen, 100);
    ranges_free(&eager);
    ranges_free(&fused);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, bounds, 0, N_NARROW);
    tcase_add_test(tc, counts);
    tcase_add_test(tc, same_eager_and_fused);
}

int main(void)
{
    return run_suite("ranges", fill);
}
