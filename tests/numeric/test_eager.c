/* Every elementwise op in every dtype it takes, over awkward values and broadcast shapes, exactly
 * against its meaning applied to one element at a time and rounded by the double conversions of
 * ir/, which share nothing with the block loops. */
#include "eager_helper.h"

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "ir/compute.h"

#define KIND_LEAF(op, meaning)
#define KIND_ELEMENTWISE(op, meaning)                                                              \
    case OP_##op:                                                                                  \
        return (OP_TYPE)(meaning);
#define KIND_REDUCTION(op, meaning)
#define KIND_CONTRACTION(op, meaning)
#define KIND_VIEW(op, meaning)
#define KIND_INDEX(op, meaning)
#define KIND_RANDOM(op, meaning)
#define KIND_COMPOSITE(op, meaning)
#define KIND_TRAINING(op, meaning)
#define OP(op, min, max, kind, types, shape, cuda, cpu, grad, attrs, meaning, doc)                 \
    ROW_##types(kind, op, meaning)
#define ROW_F(kind, op, meaning)  KIND_##kind(op, meaning)
#define ROW_FI(kind, op, meaning) KIND_##kind(op, meaning)
#define ROW_C(kind, op, meaning)  KIND_##kind(op, meaning)
#define ROW_W(kind, op, meaning)  /* where: its condition is no number */                          \
    case OP_##op:                                                                                  \
        return a != 0 ? b : c;
#define ROW_B(kind, op, meaning)
#define ROW_ANY(kind, op, meaning)
#define ROW_X(kind, op, meaning)

#define A_F32
#include "codegen/prelude/ops.h"
static float one_f32(enum op op, float a, float b, float c)
{
    switch ((int)op) {
#include "ir/ops.def"
    default:
        return a;
    }
}
#undef A_F32
#define A_F64
#include "codegen/prelude/ops.h"
static double one_f64(enum op op, double a, double b, double c)
{
    switch ((int)op) {
#include "ir/ops.def"
    default:
        return a;
    }
}
#undef A_F64
#define A_I64
#include "codegen/prelude/ops.h"
#undef ROW_F
#define ROW_F(kind, op, meaning)
#undef ROW_B
#define ROW_B(kind, op, meaning) KIND_##kind(op, meaning)
static int64_t one_i64(enum op op, int64_t a, int64_t b, int64_t c)
{
    switch ((int)op) {
#include "ir/ops.def"
    default:
        return a;
    }
}
#undef A_I64
#undef OP

static const double awkward[] = {
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    1.5,
    2.5,
    3.5,
    -3.5,
    0.1,
    -0.1,
    10.0,
    -10.0,
    88.0,
    -88.0,
    127.0,
    128.0,
    255.0,
    256.0,
    448.0,
    464.0,
    480.0,
    65504.0,
    -65504.0,
    65520.0,
    70000.,
    3.0e38,
    -3.0e38,
    1.0e-38,
    1.0e-40,
    -1.0e-45,
    6.0e-8,
    -6.0e-5,
    1.0e-7,
    1.0e7,
    8388609,
    16777217,
    2147483647.,
    -2147483648.,
    4.0e9,
    -4.0e9,
    (double)INFINITY,
    -(double)INFINITY,
    (double)NAN,
    0.0625,
    0.001953125,
    0.7071067811865476,
    3.141592653589793,
    -3.0,
};
enum { N_AWKWARD = sizeof awkward / sizeof *awkward };

static void fill(const struct tensor *x, uint64_t seed)
{
    int64_t n = tensor_count(x);
    for (int64_t i = 0; i < n; i++) {
        int64_t pick = draw(&seed, N_AWKWARD);
        set_at(x, i, pick < 0 ? (double)draw(&seed, 4000) / 512.0 : awkward[pick % N_AWKWARD]);
    }
}

static int64_t whole_at(const struct tensor *x, int64_t i)
{
    return x->dtype == I64 ? ((const int64_t *)x->data)[i] : (int64_t)get_at(x, i);
}

/* Stores as the executors do: integers wrap where dtype_store holds to the bound. */
static void store_whole(enum dtype t, void *to, int64_t v)
{
    int32_t narrow = (int32_t)v;
    if (t == I64) {
        memcpy(to, &v, 8);
    } else if (t == I32) {
        memcpy(to, &narrow, 4);
    } else if (t == U8) {
        *(uint8_t *)to = (uint8_t)v;
    } else if (t == F32) {
        float f = (float)v;
        memcpy(to, &f, 4);
    } else {
        dtype_store(t, to, (double)v); /* values here stay below 2^53 */
    }
}

/* The offset in x of the element at `i` of a result of this shape. */
static int64_t broadcast_at(const struct tensor *x, const struct tensor *y, int64_t i)
{
    int64_t at = 0, step = 1;
    for (uint32_t d = y->rank; d-- > 0;) {
        int64_t index = i % y->shape[d];
        i /= y->shape[d];
        if (d + x->rank >= y->rank) {
            int64_t size = x->shape[d + x->rank - y->rank];
            at += size == 1 ? 0 : index * step;
            step *= size;
        }
    }
    return at;
}

static double saturated(enum dtype t, double x)
{
    double most = dtype_info[t].max;
    return x > most ? most : x < -most ? -most : x;
}

static void check_all(enum op op, const struct tensor *x, uint32_t n, enum dtype compute,
                      const struct tensor *y)
{
    uint64_t want;
    int64_t at[3] = {0};
    for (int64_t i = 0; i < tensor_count(y); i++) {
        for (uint32_t k = 0; k < 3; k++) {
            at[k] = k < n ? broadcast_at(&x[k], y, i) : at[0];
        }
        const struct tensor *b = n > 1 ? &x[1] : x, *c = n > 2 ? &x[2] : x;
        if (compute == F32) { /* integers are read straight into a float */
            float v[3];
            const struct tensor *from[3] = {x, b, c};
            for (int k = 0; k < 3; k++) {
                v[k] = dtype_is_float(from[k]->dtype) ? (float)get_at(from[k], at[k])
                                                      : (float)whole_at(from[k], at[k]);
            }
            double result = (double)one_f32(op, v[0], v[1], v[2]);
            dtype_store(y->dtype, &want, op == OP_quantize ? saturated(y->dtype, result) : result);
        } else if (compute == F64) {
            double result = one_f64(op, get_at(x, at[0]), get_at(b, at[1]), get_at(c, at[2]));
            dtype_store(y->dtype, &want, op == OP_quantize ? saturated(y->dtype, result) : result);
        } else {
            store_whole(y->dtype, &want,
                        one_i64(op, whole_at(x, at[0]), whole_at(b, at[1]), whole_at(c, at[2])));
        }
        const char *got = (const char *)y->data + (size_t)i * dtype_info[y->dtype].bytes;
        ck_assert_msg(same_element(y->dtype, got, &want),
                      "%s %s: element %lld of (%g, %g, %g): %.9g, expected %.9g", op_info[op].name,
                      dtype_info[x[n - 1].dtype].name, (long long)i, get_at(x, at[0]),
                      get_at(b, at[1]), get_at(c, at[2]), dtype_load(y->dtype, got),
                      dtype_load(y->dtype, &want));
    }
}

/* Shapes of a, b, c; 1100 elements cross a block, 34200 start threads. */
static const struct {
    uint32_t rank[3];
    int64_t shape[3][4];
} shapes[] = {
    {{1, 1, 1}, {{1100}, {1100}, {1100}}},
    {{2, 1, 0}, {{19, 60}, {60}, {0}}},
    {{3, 2, 3}, {{3, 1, 5}, {4, 1}, {3, 4, 5}}},
    {{2, 2, 1}, {{190, 180}, {190, 1}, {1}}},
    {{0, 0, 0}, {{0}, {0}, {0}}},
    {{1, 1, 2}, {{0}, {1}, {3, 1}}},
};

enum { PARALLEL_ROW = 3 };

static enum dtype compute_of(enum op op, enum dtype t)
{
    enum dtype compute = op_info[op].types == TYPES_B ? I64 : dtype_compute(t);
    return op_info[op].types == TYPES_F && compute == I64 ? F32 : compute;
}

static void try_op(enum op op, enum dtype t, size_t row)
{
    struct tensor x[3];
    uint32_t n = op_info[op].min_operands;
    for (uint32_t k = 0; k < n; k++) {
        enum dtype own = op_info[op].types == TYPES_W && k == 0 ? BOOL : t;
        x[k] = tensor_new(own, shapes[row].rank[k], shapes[row].shape[k]);
        fill(&x[k], 17 + k + 100 * row);
    }
    status s;
    struct tensor y = run_op(op, x, n, NULL, 0, &s);
    if (y.data != NULL) {
        check_all(op, x, n, compute_of(op, t), &y);
    } else {
        /* anything else must be taken, but for scales that are larger than what they scale */
        ck_assert(t == BOOL || op_info[op].types == TYPES_B || op == OP_quantize);
    }
    for (uint32_t k = 0; k < n; k++) {
        free(x[k].data);
    }
    free(y.data);
}

START_TEST(elementwise_is_its_meaning)
{
    enum op op = (enum op)_i;
    if (op_info[op].kind != ELEMENTWISE || op == OP_cast) {
        return;
    }
    for (int t = 1; t < N_DTYPES; t++) {
        for (size_t row = 0; row < ARRAY_LEN(shapes); row++) {
            if (row == PARALLEL_ROW && t != F32) {
                continue; /* slow to check one by one, and threads know no dtype */
            }
            try_op(op, (enum dtype)t, row);
        }
    }
}
END_TEST

START_TEST(cast_rounds_once)
{
    enum dtype from = (enum dtype)_i;
    const int64_t shape[1] = {3000};
    struct tensor x = tensor_new(from, 1, shape);
    fill(&x, 5);
    for (int t = 1; t < N_DTYPES; t++) {
        status s;
        struct attr to = attr_dtype("dtype", (enum dtype)t);
        struct tensor y = run_op(OP_cast, &x, 1, &to, 1, &s);
        ck_assert(y.data != NULL && y.dtype == (enum dtype)t);
        for (int64_t i = 0; i < shape[0]; i++) {
            uint64_t want = 0;
            if (dtype_is_float(from)) {
                dtype_store(y.dtype, &want, get_at(&x, i));
            } else {
                store_whole(y.dtype, &want, whole_at(&x, i));
            }
            const char *got = (const char *)y.data + (size_t)i * dtype_info[t].bytes;
            ck_assert_msg(same_element(y.dtype, got, &want), "%s to %s: %.9g gave %.9g, not %.9g",
                          dtype_info[from].name, dtype_info[t].name, get_at(&x, i),
                          dtype_load(y.dtype, got), dtype_load(y.dtype, &want));
        }
        free(y.data);
    }
    free(x.data);
}
END_TEST

START_TEST(saturating_cast_stays_finite)
{
    const int64_t shape[1] = {4};
    struct tensor x = tensor_new(F32, 1, shape);
    const float in[4] = {1e6f, -1e6f, INFINITY, 3.0f};
    memcpy(x.data, in, sizeof in);
    for (int k = 0; k < 2; k++) {
        status s;
        enum dtype t = k == 0 ? F8E4M3 : F8E5M2;
        struct tensor y =
            run_op(OP_cast, &x, 1,
                   (struct attr[]){attr_dtype("dtype", t), attr_bool("saturate", true)}, 2, &s);
        double max = dtype_info[t].max;
        const double want[4] = {max, -max, max, 3.0};
        for (int i = 0; i < 4; i++) {
            ck_assert_double_eq(get_at(&y, i), want[i]);
        }
        free(y.data);
    }
    free(x.data);
}
END_TEST

/* A weak number takes part at compute precision: f16 * 65536 computes in f32, f64 * 0.1 in f64. */
START_TEST(weak_numbers_keep_precision)
{
    static const struct {
        enum dtype t;
        double x, number, want;
    } rows[] = {
        {F16, 0.5, 65536.0, 32768.0}, {F16, 2.0, 0.0001, 0.0002}, {F64, 1.0, 0.1, 0.1},
        {F64, 1.0, 1e300, 1e300},     {I32, 7.0, 3.0, 21.0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct graph *g = graph_create("weak");
        struct error e = {0};
        value a = graph_leaf(g, OP_input, "a", rows[i].t, NULL, 0);
        value r = graph_op2(g, OP_mul, a, graph_number(g, rows[i].number));
        uint64_t in, weak = 0, out = 0, want = 0;
        dtype_store(rows[i].t, &in, rows[i].x);
        dtype_store(rows[i].t, &want, rows[i].want);
        struct tensor x[2] = {{.dtype = rows[i].t, .data = &in}, {.dtype = F32, .data = &weak}};
        struct tensor y = {.dtype = rows[i].t, .data = &out};
        ck_assert(graph_node(g, r)->dtype == rows[i].t);
        ck_assert_msg(eager_node(g, r, x, &y, NULL, NULL, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_double_eq(dtype_load(y.dtype, &out), dtype_load(y.dtype, &want));
        graph_destroy(g);
    }
}
END_TEST

/* i64 values that a double cannot hold stay exact, and wrap. */
START_TEST(i64_is_exact)
{
    const int64_t shape[1] = {3};
    struct tensor x[2] = {tensor_new(I64, 1, shape), tensor_new(I64, 1, shape)};
    const int64_t a[3] = {INT64_MAX, (INT64_C(1) << 53) + 1, INT64_MIN}, b[3] = {1, 1, -1};
    const int64_t sum[3] = {INT64_MIN, (INT64_C(1) << 53) + 2, INT64_MAX};
    status s;
    memcpy(x[0].data, a, sizeof a);
    memcpy(x[1].data, b, sizeof b);
    struct tensor y = run_op(OP_add, x, 2, NULL, 0, &s);
    ck_assert(memcmp(y.data, sum, sizeof sum) == 0);
    free(y.data);
    free(x[0].data);
    free(x[1].data);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_loop_test(tc, elementwise_is_its_meaning, 1, N_OPS);
    tcase_add_loop_test(tc, cast_rounds_once, 1, N_DTYPES);
    tcase_add_test(tc, saturating_cast_stays_finite);
    tcase_add_test(tc, weak_numbers_keep_precision);
    tcase_add_test(tc, i64_is_exact);
}

int main(void)
{
    return run_suite("eager elementwise", add_tests);
}
