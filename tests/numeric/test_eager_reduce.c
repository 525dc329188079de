/* Reductions in every dtype, bit for bit against a naive transcription of the canonical order, over
 * sizes on both sides of every boundary (lanes, chunks), for rows and columns; argmax and argmin.
 */
#include "eager_helper.h"

#include <omp.h>

/* The order, written out: x has n elements `stride` apart. */
#define CANONICAL(type, combine)                                                                   \
    static type row_##type(enum op op, type identity, const type *x, int64_t n)                    \
    {                                                                                              \
        int64_t chunks = n <= 16384 ? 1 : (n + 16383) / 16384;                                     \
        type *results = calloc((size_t)chunks, sizeof *results);                                   \
        for (int64_t c = 0; c < chunks; c++) {                                                     \
            type lanes[128];                                                                       \
            for (int k = 0; k < 128; k++) {                                                        \
                lanes[k] = identity;                                                               \
            }                                                                                      \
            for (int64_t i = 0; i < 16384 && c * 16384 + i < n; i++) {                             \
                lanes[i % 128] = combine(op, lanes[i % 128], x[c * 16384 + i]);                    \
            }                                                                                      \
            for (int h = 64; h >= 1; h /= 2) {                                                     \
                for (int k = 0; k < h; k++) {                                                      \
                    lanes[k] = combine(op, lanes[k], lanes[k + h]);                                \
                }                                                                                  \
            }                                                                                      \
            results[c] = lanes[0];                                                                 \
        }                                                                                          \
        type out = chunks == 1 ? results[0] : row_##type(op, identity, results, chunks);           \
        free(results);                                                                             \
        return out;                                                                                \
    }                                                                                              \
    static type column_##type(enum op op, type identity, const type *x, int64_t n)                 \
    {                                                                                              \
        int64_t chunks = n <= 128 ? 1 : (n + 127) / 128;                                           \
        type *results = calloc((size_t)chunks, sizeof *results);                                   \
        for (int64_t c = 0; c < chunks; c++) {                                                     \
            results[c] = identity;                                                                 \
            for (int64_t i = c * 128; i < c * 128 + 128 && i < n; i++) {                           \
                results[c] = combine(op, results[c], x[i]);                                        \
            }                                                                                      \
        }                                                                                          \
        type out = chunks == 1 ? results[0] : column_##type(op, identity, results, chunks);        \
        free(results);                                                                             \
        return out;                                                                                \
    }

#define COMBINE_FLOAT(type)                                                                        \
    static type combine_##type(enum op op, type a, type b)                                         \
    {                                                                                              \
        if (op == OP_sum || op == OP_prod) {                                                       \
            return op == OP_sum ? a + b : a * b;                                                   \
        }                                                                                          \
        if (a != a || b != b) {                                                                    \
            return (type)NAN;                                                                      \
        }                                                                                          \
        return op == OP_max ? (a > b ? a : b) : (a < b ? a : b);                                   \
    }
COMBINE_FLOAT(float)
COMBINE_FLOAT(double)

static int64_t combine_int64_t(enum op op, int64_t a, int64_t b)
{
    switch ((int)op) {
    case OP_sum:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case OP_prod:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_max:
        return a > b ? a : b;
    case OP_min:
        return a < b ? a : b;
    case OP_any:
        return a != 0 || b != 0;
    default:
        return a != 0 && b != 0;
    }
}
CANONICAL(float, combine_float)
CANONICAL(double, combine_double)
CANONICAL(int64_t, combine_int64_t)

static double identity_of(enum op op)
{
    return op == OP_prod || op == OP_all ? 1.0
           : op == OP_max                ? -(double)INFINITY
           : op == OP_min                ? (double)INFINITY
                                         : 0.0;
}

static void fill(const struct tensor *x, enum op op, uint64_t seed)
{
    for (int64_t i = 0; i < tensor_count(x); i++) {
        double v = (double)draw(&seed, 1000) / 256.0;
        if (x->dtype == BOOL) {
            v = draw(&seed, 300) != 0;
        } else if (op == OP_prod) {
            v = dtype_is_float(x->dtype) ? 1.0 + v / 64.0 : (double)draw(&seed, 3);
        } else if (!dtype_is_float(x->dtype)) {
            v = (double)draw(&seed, 100000);
        }
        set_at(x, i, v);
    }
}

/* The value of one group of n elements, `stride` apart from `at`, stored into want. */
static void expect(enum op op, const struct tensor *x, int64_t at, int64_t n, int64_t stride,
                   bool is_row, enum dtype result, void *want)
{
    enum dtype compute = dtype_compute(dtype_promote(x->dtype, result));
    if (compute == I64) {
        int64_t *v = calloc((size_t)n + 1, sizeof *v), r;
        int64_t id = op == OP_max ? INT64_MIN : op == OP_min ? INT64_MAX : (int64_t)identity_of(op);
        for (int64_t i = 0; i < n; i++) {
            v[i] = (int64_t)get_at(x, at + i * stride);
        }
        r = is_row ? row_int64_t(op, id, v, n) : column_int64_t(op, id, v, n);
        int32_t narrow = (int32_t)r;
        uint8_t byte = result == BOOL ? r != 0 : (uint8_t)r;
        memcpy(want,
               result == I64   ? (void *)&r
               : result == I32 ? (void *)&narrow
                               : (void *)&byte,
               dtype_info[result].bytes);
        free(v);
    } else if (compute == F64) {
        double *v = calloc((size_t)n + 1, sizeof *v), id = identity_of(op);
        for (int64_t i = 0; i < n; i++) {
            v[i] = get_at(x, at + i * stride);
        }
        dtype_store(result, want, is_row ? row_double(op, id, v, n) : column_double(op, id, v, n));
        free(v);
    } else {
        float *v = calloc((size_t)n + 1, sizeof *v), id = (float)identity_of(op);
        for (int64_t i = 0; i < n; i++) {
            v[i] = (float)get_at(x, at + i * stride);
        }
        dtype_store(result, want,
                    (double)(is_row ? row_float(op, id, v, n) : column_float(op, id, v, n)));
        free(v);
    }
}

static void check_reduction(enum op op, const struct tensor *x, enum dtype to, const char *what)
{
    status s;
    struct attr attrs[3] = {attr_ints("axes", (int64_t[]){1}, 1), attr_bool("keepdims", true),
                            attr_dtype("dtype", to)};
    struct tensor y = run_op(op, x, 1, attrs, op == OP_sum || op == OP_prod ? 3 : 2, &s);
    if (y.data == NULL) {
        return; /* sum of bool, any of floats */
    }
    int64_t n = x->shape[1], inner = x->rank == 3 ? x->shape[2] : 1;
    for (int64_t i = 0; i < tensor_count(&y); i++) {
        uint64_t want = 0;
        expect(op, x, i / inner * n * inner + i % inner, n, inner, x->rank == 2, y.dtype, &want);
        const char *got = (const char *)y.data + (size_t)i * dtype_info[y.dtype].bytes;
        ck_assert_msg(same_element(y.dtype, got, &want), "%s %s %s n=%lld: %.17g, expected %.17g",
                      op_info[op].name, dtype_info[x->dtype].name, what, (long long)n,
                      dtype_load(y.dtype, got), dtype_load(y.dtype, &want));
    }
    free(y.data);
}

static const enum op ops[] = {OP_sum, OP_prod, OP_max, OP_min, OP_any, OP_all};
static const int64_t lengths[] = {0, 1, 2, 127, 128, 129, 1023, 1025, 16383, 16384, 16385, 100000};

static void check_sizes(enum op op, enum dtype t, int64_t n)
{
    const int64_t shapes[3][3] = {{2, n, 0}, {2, n, 3}, {1, n, 1030}};
    for (int k = 0; k < (n <= 1025 ? 3 : 2); k++) {
        struct tensor x = tensor_new(t, k == 0 ? 2 : 3, shapes[k]);
        fill(&x, op, (uint64_t)n + 7);
        check_reduction(op, &x, DTYPE_NONE, k == 0 ? "row" : "column");
        if (t == BF16) { /* a wider result */
            check_reduction(op, &x, F32, "wider");
            check_reduction(op, &x, F64, "f64");
        }
        free(x.data);
    }
}

START_TEST(reductions_have_the_canonical_order)
{
    for (size_t o = 0; o < ARRAY_LEN(ops); o++) {
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            check_sizes(ops[o], (enum dtype)_i, lengths[i]);
        }
    }
}
END_TEST

START_TEST(two_million_elements_recur_twice)
{
    const int64_t row[2] = {1, 2200000}, column[3] = {1, 20000, 1};
    struct tensor x = tensor_new(F32, 2, row), y = tensor_new(F32, 3, column);
    fill(&x, OP_sum, 3);
    fill(&y, OP_sum, 4);
    check_reduction(OP_sum, &x, DTYPE_NONE, "row");
    check_reduction(OP_sum, &y, DTYPE_NONE, "column");
    free(x.data);
    free(y.data);
}
END_TEST

START_TEST(threads_do_not_change_bits)
{
    const int64_t shape[2] = {3, 50000};
    struct tensor x = tensor_new(F32, 2, shape);
    int threads = omp_get_max_threads();
    fill(&x, OP_sum, 3);
    for (int n = 1; n <= 3; n++) {
        omp_set_num_threads(n);
        check_reduction(OP_sum, &x, DTYPE_NONE, "row");
    }
    omp_set_num_threads(threads);
    free(x.data);
}
END_TEST

START_TEST(all_axes_and_leading_groups)
{
    const int64_t shape[3] = {3, 50, 7};
    struct tensor x = tensor_new(F32, 3, shape);
    status s;
    fill(&x, OP_sum, 9);
    struct tensor flat = run_op(OP_sum, &x, 1, NULL, 0, &s);
    uint64_t want = 0;
    expect(OP_sum, &x, 0, 1050, 1, true, F32, &want);
    ck_assert(memcmp(flat.data, &want, 4) == 0);
    struct attr attrs[1] = {attr_ints("axes", (int64_t[]){0, 1}, 2)};
    struct tensor columns = run_op(OP_sum, &x, 1, attrs, 1, &s);
    for (int64_t i = 0; i < 7; i++) {
        expect(OP_sum, &x, i, 150, 7, false, F32, &want);
        ck_assert(memcmp((char *)columns.data + 4 * i, &want, 4) == 0);
    }
    free(flat.data);
    free(columns.data);
    free(x.data);
}
END_TEST

/* NaN spreads through max and min, wherever it stands. */
START_TEST(nan_is_the_extreme)
{
    const int64_t shape[2] = {1, 300};
    struct tensor x = tensor_new(F32, 2, shape);
    for (int64_t at = 0; at < 300; at += 13) {
        for (int64_t i = 0; i < 300; i++) {
            set_at(&x, i, i == at || i == at + 2 ? (double)NAN : (double)i);
        }
        check_reduction(OP_max, &x, DTYPE_NONE, "NaN");
        check_reduction(OP_min, &x, DTYPE_NONE, "NaN");
        for (int k = 0; k < 2; k++) {
            status s;
            struct tensor y = run_op(k == 0 ? OP_argmax : OP_argmin, &x, 1, NULL, 0, &s);
            ck_assert_int_eq(*(int64_t *)y.data, at);
            free(y.data);
        }
    }
    free(x.data);
}
END_TEST

START_TEST(arg_reductions_find_the_first)
{
    enum dtype t = (enum dtype)_i;
    const int64_t shape[3] = {3, 41, 5};
    struct tensor x = tensor_new(t, 3, shape);
    uint64_t seed = 5;
    for (int64_t i = 0; i < tensor_count(&x); i++) {
        set_at(&x, i, (double)(draw(&seed, 6) + (dtype_is_float(t) ? 0 : 6)));
    }
    for (int axis = 0; axis < 3; axis++) {
        for (int k = 0; k < 2; k++) {
            status s;
            struct attr along = attr_int("axis", axis - 3);
            struct tensor y = run_op(k == 0 ? OP_argmax : OP_argmin, &x, 1, &along, 1, &s);
            int64_t inner = axis == 0 ? 205 : axis == 1 ? 5 : 1, n = shape[axis];
            for (int64_t i = 0; i < tensor_count(&y); i++) {
                int64_t from = i / inner * n * inner + i % inner, best = 0;
                for (int64_t j = 1; j < n; j++) {
                    double v = get_at(&x, from + j * inner), w = get_at(&x, from + best * inner);
                    best = (k == 0 ? v > w : v < w) ? j : best;
                }
                ck_assert_int_eq(((int64_t *)y.data)[i], best);
            }
            free(y.data);
        }
    }
    free(x.data);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_loop_test(tc, reductions_have_the_canonical_order, 1, N_DTYPES);
    tcase_add_test(tc, two_million_elements_recur_twice);
    tcase_add_test(tc, threads_do_not_change_bits);
    tcase_add_test(tc, all_axes_and_leading_groups);
    tcase_add_test(tc, nan_is_the_extreme);
    tcase_add_loop_test(tc, arg_reductions_find_the_first, 1, N_DTYPES);
}

int main(void)
{
    return run_suite("eager reductions", add_tests);
}
