/* Views, indexing, random numbers and computed leaves of the eager executor against naive loops, in
 * every dtype. */
#include "eager_helper.h"

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

#include <omp.h>

static struct tensor counted(enum dtype t, uint32_t rank, const int64_t *shape)
{
    struct tensor x = tensor_new(t, rank, shape);
    uint64_t seed = 3;
    for (int64_t i = 0; i < tensor_count(&x); i++) {
        set_at(&x, i, (double)(draw(&seed, 50) + (dtype_is_float(t) ? 0 : 50)));
    }
    return x;
}

static struct tensor indices_of(enum dtype t, uint32_t rank, const int64_t *shape, int64_t range)
{
    struct tensor x = tensor_new(t, rank, shape);
    uint64_t seed = 8;
    for (int64_t i = 0; i < tensor_count(&x); i++) {
        set_at(&x, i, (double)draw(&seed, range));
    }
    return x;
}

/* The element at a multi-index, row-major. */
static int64_t place(const struct tensor *x, const int64_t *index)
{
    int64_t at = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        at = at * x->shape[d] + index[d];
    }
    return at;
}

static void unplace(const struct tensor *x, int64_t at, int64_t *index)
{
    for (uint32_t d = x->rank; d-- > 0;) {
        index[d] = at % x->shape[d];
        at /= x->shape[d];
    }
}

static void check_at(const struct tensor *y, int64_t i, double want)
{
    double got = get_at(y, i);
    ck_assert_msg(got == want || (isnan(got) && isnan(want)), "%s element %lld: %g, expected %g",
                  dtype_info[y->dtype].name, (long long)i, got, want);
}

START_TEST(views_move_elements)
{
    const int64_t shape[3] = {3, 40, 5};
    struct tensor x = counted((enum dtype)_i, 3, shape);
    status s;
    int64_t at[3];
    struct attr perm = attr_ints("perm", (int64_t[]){2, 0, -2}, 3);
    struct tensor y = run_op(OP_transpose, &x, 1, &perm, 1, &s);
    struct tensor reversed = run_op(OP_transpose, &x, 1, NULL, 0, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        check_at(&y, i, get_at(&x, place(&x, (int64_t[]){at[1], at[2], at[0]})));
        unplace(&reversed, i, at);
        check_at(&reversed, i, get_at(&x, place(&x, (int64_t[]){at[2], at[1], at[0]})));
    }
    free(y.data);
    free(reversed.data);
    struct attr cut[4] = {attr_int("axis", 1), attr_int("start", -30), attr_int("stop", 39),
                          attr_int("step", 4)};
    y = run_op(OP_slice, &x, 1, cut, 4, &s);
    ck_assert_int_eq(y.shape[1], 8);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        check_at(&y, i, get_at(&x, place(&x, (int64_t[]){at[0], 10 + 4 * at[1], at[2]})));
    }
    free(y.data);
    cut[1] = attr_int("start", 60);
    y = run_op(OP_slice, &x, 1, cut, 4, &s); /* past the end: nothing */
    ck_assert_int_eq(tensor_count(&y), 0);
    free(y.data);
    struct shape flat = {.rank = 2, .dims = {dim_of(20), dim_of(-1)}};
    struct attr to = attr_dims("shape", &flat);
    y = run_op(OP_reshape, &x, 1, &to, 1, &s);
    ck_assert(memcmp(y.data, x.data, tensor_bytes(&x)) == 0);
    free(y.data);
    free(x.data);
}
END_TEST

START_TEST(expand_repeats)
{
    static const int64_t from[3] = {4, 1, 3};
    struct tensor x = counted((enum dtype)_i, 3, from);
    struct shape shape = {.rank = 4, .dims = {dim_of(2), dim_of(4), dim_of(5), dim_of(3)}};
    struct attr to = attr_dims("shape", &shape);
    status s;
    int64_t at[4];
    struct tensor y = run_op(OP_expand, &x, 1, &to, 1, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        check_at(&y, i, get_at(&x, place(&x, (int64_t[]){at[1], 0, at[3]})));
    }
    free(y.data);
    free(x.data);
}
END_TEST

START_TEST(concat_and_pad)
{
    enum dtype t = (enum dtype)_i;
    struct tensor x[3] = {counted(t, 3, (int64_t[]){2, 3, 4}), counted(t, 3, (int64_t[]){2, 0, 4}),
                          counted(t, 3, (int64_t[]){2, 5, 4})};
    status s;
    int64_t at[3];
    struct attr axis = attr_int("axis", -2);
    struct tensor y = run_op(OP_concat, x, 3, &axis, 1, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        const struct tensor *from = at[1] < 3 ? &x[0] : &x[2];
        check_at(
            &y, i,
            get_at(from, place(from, (int64_t[]){at[0], at[1] < 3 ? at[1] : at[1] - 3, at[2]})));
    }
    free(y.data);
    struct attr around[5] = {attr_int("axis", 1), attr_int("low", 2), attr_int("high", 1),
                             attr_int("step", 3), attr_float("value", 1.0)};
    y = run_op(OP_pad, x, 1, around, 5, &s);
    ck_assert_int_eq(y.shape[1], 10);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        bool is_inside = at[1] >= 2 && at[1] < 9 && (at[1] - 2) % 3 == 0;
        check_at(&y, i,
                 is_inside ? get_at(&x[0], place(&x[0], (int64_t[]){at[0], (at[1] - 2) / 3, at[2]}))
                           : 1.0);
    }
    free(y.data);
    for (int k = 0; k < 3; k++) {
        free(x[k].data);
    }
}
END_TEST

static double missing(enum dtype t)
{
    return dtype_is_float(t) ? (double)NAN : 0.0;
}

/* Indices run from -9 to 9 over an axis of 7: negative ones count from the end, the rest miss. */
static int64_t resolve(double index, int64_t length)
{
    int64_t at = (int64_t)index < 0 ? (int64_t)index + length : (int64_t)index;
    return at >= 0 && at < length ? at : -1;
}

START_TEST(take_and_gather)
{
    enum dtype t = (enum dtype)_i;
    struct tensor x[2] = {counted(t, 3, (int64_t[]){3, 7, 4}),
                          indices_of(t % 2 == 0 ? I64 : I32, 2, (int64_t[]){5, 2}, 9)};
    status s;
    int64_t at[4];
    struct attr axis = attr_int("axis", 1);
    struct tensor y = run_op(OP_take, x, 2, &axis, 1, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        int64_t from = resolve(get_at(&x[1], at[1] * 2 + at[2]), 7);
        check_at(&y, i,
                 from < 0 ? missing(t)
                          : get_at(&x[0], place(&x[0], (int64_t[]){at[0], from, at[3]})));
    }
    free(y.data);
    free(x[1].data);
    x[1] = indices_of(I64, 3, (int64_t[]){3, 11, 4}, 9);
    y = run_op(OP_gather, x, 2, &axis, 1, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        unplace(&y, i, at);
        int64_t from = resolve(get_at(&x[1], i), 7);
        check_at(&y, i,
                 from < 0 ? missing(t)
                          : get_at(&x[0], place(&x[0], (int64_t[]){at[0], from, at[2]})));
    }
    free(y.data);
    free(x[0].data);
    free(x[1].data);
}
END_TEST

/* Adds in source order, in float (the compute type here), one rounding at the end. */
static void check_adds(enum op op, const struct tensor *x, const struct tensor *y, int64_t length,
                       int64_t inner)
{
    int64_t n = tensor_count(&x[0]), n_source = tensor_count(&x[2]);
    double *sums = calloc((size_t)n + 1, sizeof *sums);
    bool is_f32 = dtype_compute(dtype_promote(x[0].dtype, x[2].dtype)) == F32;
    for (int64_t i = 0; i < n; i++) {
        sums[i] = get_at(&x[0], i);
    }
    int64_t sources = op == OP_scatter_add ? x[1].shape[1] : tensor_count(&x[1]);
    for (int64_t i = 0; i < n_source; i++) {
        int64_t k = i / inner % sources, outer = i / inner / sources;
        int64_t at = resolve(get_at(&x[1], op == OP_scatter_add ? i : k), length);
        if (at >= 0) {
            double *sum = &sums[(outer * length + at) * inner + i % inner];
            *sum += get_at(&x[2], i);
            *sum = is_f32 ? (double)(float)*sum : *sum;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t want = 0;
        dtype_store(y->dtype, &want, sums[i]);
        check_at(y, i, dtype_load(y->dtype, &want));
    }
    free(sums);
}

START_TEST(adds_are_in_order)
{
    enum dtype t = (enum dtype)_i;
    if (t == BOOL || t == U8) { /* u8 wraps; sums here go past 255 */
        return;
    }
    struct attr axis = attr_int("axis", 1);
    for (int big = 0; big < 2; big++) {
        int64_t n = big ? 4000 : 13;
        struct tensor x[3] = {counted(t, 3, (int64_t[]){3, 7, 4}), indices_of(I64, 1, &n, 9),
                              counted(t, 3, (int64_t[]){3, n, 4})};
        status s;
        for (int64_t i = 0; i < tensor_count(&x[2]) && dtype_is_float(t); i++) {
            set_at(&x[2], i, get_at(&x[2], i) / 3.0); /* the order shows in the last bits */
        }
        struct tensor y = run_op(OP_index_add, x, 3, &axis, 1, &s);
        if (y.data != NULL) {
            check_adds(OP_index_add, x, &y, 7, 4);
            free(y.data);
        }
        free(x[1].data);
        x[1] = indices_of(I64, 3, (int64_t[]){3, n, 4}, 9);
        y = run_op(OP_scatter_add, x, 3, &axis, 1, &s);
        if (y.data != NULL) {
            check_adds(OP_scatter_add, x, &y, 7, 4);
            free(y.data);
        }
        for (int k = 0; k < 3; k++) {
            free(x[k].data);
        }
    }
}
END_TEST

START_TEST(random_is_a_function_of_the_index)
{
    int64_t seed = -77, n = 40000;
    struct tensor x = {.dtype = I64, .data = &seed};
    struct shape shape = {.rank = 1, .dims = {dim_of(n)}};
    struct attr attrs[2] = {attr_dims("shape", &shape), attr_int("stream", 5)};
    int threads = omp_get_max_threads();
    for (int k = 1; k <= 3; k++) {
        status s;
        omp_set_num_threads(k);
        struct tensor u = run_op(OP_uniform, &x, 1, attrs, 2, &s);
        struct tensor z = run_op(OP_normal, &x, 1, attrs, 2, &s);
        double mean = 0.0, square = 0.0;
        for (int64_t i = 0; i < n; i++) {
            uint64_t at = (uint64_t)i;
            float want = uniform_f32(random_u32((uint64_t)seed, 5, at));
            float normal = normal_f32(random_u32((uint64_t)seed, 5, 2 * at),
                                      random_u32((uint64_t)seed, 5, 2 * at + 1));
            ck_assert(memcmp((float *)u.data + i, &want, 4) == 0);
            ck_assert(memcmp((float *)z.data + i, &normal, 4) == 0);
            ck_assert(want >= 0.0f && want < 1.0f);
            mean += (double)normal / (double)n;
            square += (double)normal * (double)normal / (double)n;
        }
        ck_assert(fabs(mean) < 0.03 && fabs(square - 1.0) < 0.05);
        free(u.data);
        free(z.data);
    }
    omp_set_num_threads(threads);
}
END_TEST

START_TEST(computed_leaves)
{
    enum dtype t = (enum dtype)_i;
    struct shape shape = {.rank = 3, .dims = {dim_of(2), dim_of(30), dim_of(3)}};
    struct attr attrs[3] = {attr_dims("shape", &shape), attr_int("axis", 1),
                            attr_dtype("dtype", t)};
    status s;
    struct tensor y = run_op(OP_iota, NULL, 0, attrs, 3, &s);
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        double index = (double)(i / 3 % 30);
        uint64_t want = 0;
        dtype_store(t, &want, index);
        check_at(&y, i, dtype_load(t, &want));
    }
    free(y.data);
    struct attr of[2] = {attr_dims("of", &shape), attr_dtype("dtype", I64)};
    y = run_op(OP_size, NULL, 0, of, 2, &s);
    ck_assert_int_eq(*(int64_t *)y.data, 180);
    free(y.data);
    struct attr number[2] = {attr_float("value", 1.0), attr_dtype("dtype", t)};
    y = run_op(OP_constant, NULL, 0, number, 2, &s);
    check_at(&y, 0, 1.0);
    free(y.data);
}
END_TEST

/* Nodes over operands of unlike dtypes: a linear with an f32 weight under a bf16 input. */
START_TEST(contractions_convert_operands)
{
    struct tensor x[3] = {counted(BF16, 2, (int64_t[]){4, 6}), counted(F32, 2, (int64_t[]){3, 6}),
                          counted(I32, 1, (int64_t[]){3})};
    status s;
    struct tensor y = run_op(OP_linear, x, 3, NULL, 0, &s);
    ck_assert(y.data != NULL && y.dtype == F32);
    for (int64_t i = 0; i < 12; i++) {
        double want = get_at(&x[2], i % 3);
        for (int64_t k = 0; k < 6; k++) {
            want += get_at(&x[0], i / 3 * 6 + k) * get_at(&x[1], i % 3 * 6 + k);
        }
        check_at(&y, i, want); /* small whole numbers: exact */
    }
    free(y.data);
    for (int k = 0; k < 3; k++) {
        free(x[k].data);
    }
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_loop_test(tc, views_move_elements, 1, N_DTYPES);
    tcase_add_loop_test(tc, expand_repeats, 1, N_DTYPES);
    tcase_add_loop_test(tc, concat_and_pad, 1, N_DTYPES);
    tcase_add_loop_test(tc, take_and_gather, 1, N_DTYPES);
    tcase_add_loop_test(tc, adds_are_in_order, 1, N_DTYPES);
    tcase_add_test(tc, random_is_a_function_of_the_index);
    tcase_add_loop_test(tc, computed_leaves, 1, N_DTYPES);
    tcase_add_test(tc, contractions_convert_operands);
}

int main(void)
{
    return run_suite("eager views, index, random", add_tests);
}
