/* The prelude's scalar functions and conversions against independent computations in double: libm
 * for mathematics, ir/dtype.c for conversions. Every f16 and bf16 input, a walk through all of f32,
 * and the neighbourhoods of thresholds; the bounds stand in scalar_table.h. */
#include "tests/suite.h"

#include "ir/dtype.h"
#include "scalar_table.h"

/* Check notes every assertion it passes; millions of them want the plain test. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

#define WALK 2100000u

/* Where some function changes its ways; each is visited with 64 neighbours on both sides. */
static const float special[] = {
    0.0f,        0x1p-149f,   0x1p-126f,     0x1p-25f,    0x1p-24f,
    0x1p-12f,    0.34657359f, 0.5f,          0.66666669f, 0.78539819f,
    1.0f,        1.3333334f,  1.41421356f,   1.5707964f,  2.0f,
    2.3561945f,  2.5f,        3.1415927f,    3.832507f,   3.95f,
    4.712389f,   6.2831855f,  9.0109129f,    9.1f,        16.635532f,
    17.32868f,   20.0f,       87.3365479f,   88.3762589f, 88.7228394f,
    89.0f,       103.278931f, 103.972084f,   104.0f,      448.0f,
    464.0f,      57344.0f,    61440.0f,      65504.0f,    65520.0f,
    0x1p22f,     0x1p23f,     16367173e+20f, 0x1p24f,     0x1p31f,
    0x1p53f,     0x1p63f,     0x1.6ac5bp98f, 0x1p127f,    0x1.fffffep127f,
    0x1.fep127f, 0x1.ffp127f, 0x1p-133f,     0x1p-134f,   0x1p-14f,
    0x1p-6f,     0x1p-16f,    0x1p-9f,       0x1p-10f,    0x1p-17f,
    255.0f,      256.0f,      7.0f,
};

static float *inputs;
static size_t n_inputs;

static uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void collect_inputs(void)
{
    size_t most = 4 * 65536u + WALK + ARRAY_LEN(special) * 258u;
    inputs = malloc(most * sizeof *inputs);
    ck_assert_ptr_nonnull(inputs);
    n_inputs = 0;
    for (uint32_t h = 0; h < 65536u; h++) {
        uint16_t half = (uint16_t)h;
        inputs[n_inputs++] = (float)dtype_load(F16, &half);
        inputs[n_inputs++] = float_of_bits(h << 16);
        inputs[n_inputs++] = float_of_bits((h << 16) | 0x8000u); /* ties of bf16 */
        inputs[n_inputs++] = float_of_bits((h << 16) | 0x8001u);
    }
    for (uint32_t i = 0; i < WALK; i++) {
        inputs[n_inputs++] = float_of_bits(i * 2654435761u);
    }
    for (size_t s = 0; s < ARRAY_LEN(special); s++) {
        for (uint32_t d = 0; d < 129u; d++) {
            uint32_t bits = bits_of_float(special[s]) + d - 64u;
            inputs[n_inputs++] = float_of_bits(bits);
            inputs[n_inputs++] = float_of_bits(bits ^ 0x80000000u);
        }
    }
    ck_assert_uint_le(n_inputs, most);
}

static void free_inputs(void)
{
    free(inputs);
}

START_TEST(function_keeps_its_bound)
{
    const struct scalar_row *row = &scalar_rows[_i];
    float y[1024];
    for (size_t i = 0; i < n_inputs; i += ARRAY_LEN(y)) {
        size_t n = n_inputs - i < ARRAY_LEN(y) ? n_inputs - i : ARRAY_LEN(y);
        row->block(y, inputs + i, n);
        for (size_t k = 0; k < n; k++) {
            double want = row->reference((double)inputs[i + k]);
            double error = ulp_error(y[k], want);
            EXPECT(error <= row->bound, "%s(%a) = %a, expected %a: %.3f ulp, bound %.1f", row->name,
                   (double)inputs[i + k], (double)y[k], want, error, row->bound);
        }
    }
}
END_TEST

static void check_pair(float x, float y)
{
    double want = pow((double)x, (double)y);
    double error = ulp_error(m_pow(x, y), want);
    EXPECT(error <= SCALAR_POW_BOUND, "pow(%a, %a) = %a, expected %a: %.3f ulp", (double)x,
           (double)y, (double)m_pow(x, y), want, error);
    want = atan2((double)x, (double)y);
    error = ulp_error(m_atan2(x, y), want);
    EXPECT(error <= SCALAR_ATAN2_BOUND, "atan2(%a, %a) = %a, expected %a: %.3f ulp", (double)x,
           (double)y, (double)m_atan2(x, y), want, error);
}

START_TEST(pow_and_atan2_at_special_pairs)
{
    static const float value[] = {
        0.0f,           0x1p-149f, 0x1p-140f,   0x1p-126f, 0.5f,
        0x1.fffffep-1f, 1.0f,      1.000001f,   1.5f,      2.0f,
        2.5f,           3.0f,      4.0f,        10.0f,     127.0f,
        128.0f,         149.0f,    150.0f,      0x1p23f,   8388609.0f,
        16777215.0f,    0x1p24f,   0x1p25f,     0x1p64f,   0x1.fffffep127f,
        INFINITY,       NAN,       0.333333343f};
    for (size_t i = 0; i < ARRAY_LEN(value); i++) {
        for (size_t k = 0; k < ARRAY_LEN(value); k++) {
            check_pair(value[i], value[k]);
            check_pair(-value[i], value[k]);
            check_pair(value[i], -value[k]);
            check_pair(-value[i], -value[k]);
        }
    }
}
END_TEST

START_TEST(pow_and_atan2_at_random_pairs)
{
    for (uint64_t i = 0; i < 600000; i++) {
        uint32_t a = random_u32(1, 2, 2 * i), b = random_u32(1, 2, 2 * i + 1);
        check_pair(float_of_bits(a), float_of_bits(b));
        float x = float_of_bits((a & 0x7fffffffu) % 0x7f800000u);
        x = i % 3 == 1 ? float_of_bits(0x3f000000u + (a & 0xffffffu)) : x;
        x = i % 3 == 2 ? float_of_bits(0x3f7f0000u + (a & 0x3ffffu)) : x;
        check_pair(x, (float)(((double)b * 0x1p-32 - 0.5) * 300.0 / log2((double)x)));
    }
}
END_TEST

/* One row a narrow type, saturating kinds apart. */
struct narrow {
    const char *name;
    enum dtype type;
    uint32_t codes;
    double clamp; /* saturating: values are cut to it; else 0 */
    float (*from)(uint32_t);
    uint32_t (*to)(float);
    float (*round)(float);
    uint32_t (*to_f64)(double);
    double (*round_f64)(double);
    uint32_t (*to_i64)(int64_t);
};

#define NARROW(id, bits_type, name, sat)                                                           \
    static float from_##id(uint32_t bits)                                                          \
    {                                                                                              \
        return from_##name((bits_type)bits);                                                       \
    }                                                                                              \
    static uint32_t to_##id(float x)                                                               \
    {                                                                                              \
        return to_##name##sat(x);                                                                  \
    }                                                                                              \
    static float round_##id(float x)                                                               \
    {                                                                                              \
        return round_##name##sat(x);                                                               \
    }                                                                                              \
    static uint32_t to_f64_##id(double x)                                                          \
    {                                                                                              \
        return to_##name##sat##_f64(x);                                                            \
    }                                                                                              \
    static double round_f64_##id(double x)                                                         \
    {                                                                                              \
        return round_##name##sat##_f64(x);                                                         \
    }                                                                                              \
    static uint32_t to_i64_##id(int64_t x)                                                         \
    {                                                                                              \
        return to_##name##sat##_i64(x);                                                            \
    }
NARROW(half, uint16_t, f16, )
NARROW(brain, uint16_t, bf16, )
NARROW(e4m3, uint8_t, f8e4m3, )
NARROW(e5m2, uint8_t, f8e5m2, )
NARROW(e4m3_cut, uint8_t, f8e4m3, _sat)
NARROW(e5m2_cut, uint8_t, f8e5m2, _sat)

#define ROW(id, type, codes, clamp)                                                                \
    {                                                                                              \
#id, type, codes, clamp, from_##id, to_##id, round_##id, to_f64_##id, round_f64_##id,      \
            to_i64_##id                                                                            \
    }
static const struct narrow narrow_rows[] = {
    ROW(half, F16, 65536u, 0.0),        ROW(brain, BF16, 65536u, 0.0),
    ROW(e4m3, F8E4M3, 256u, 0.0),       ROW(e5m2, F8E5M2, 256u, 0.0),
    ROW(e4m3_cut, F8E4M3, 256u, 448.0), ROW(e5m2_cut, F8E5M2, 256u, 57344.0),
};

static double load_code(enum dtype t, uint32_t code)
{
    uint8_t byte = (uint8_t)code;
    uint16_t half = (uint16_t)code;
    return dtype_info[t].bytes == 1 ? dtype_load(t, &byte) : dtype_load(t, &half);
}

static uint32_t store_code(const struct narrow *row, double x)
{
    uint8_t byte = 0;
    uint16_t half = 0;
    if (row->clamp > 0.0 && fabs(x) > row->clamp) {
        x = copysign(row->clamp, x);
    }
    dtype_store(row->type, dtype_info[row->type].bytes == 1 ? (void *)&byte : (void *)&half, x);
    return dtype_info[row->type].bytes == 1 ? byte : half;
}

/* Same code, or both NaN (a NaN's own bits are each side's choice). */
static void check_code(const struct narrow *row, double x, uint32_t got, uint32_t want)
{
    bool same =
        got == want || (isnan(load_code(row->type, got)) && isnan(load_code(row->type, want)));
    EXPECT(same, "%s: %a became 0x%x, expected 0x%x", row->name, x, got, want);
}

static void check_from_f64(const struct narrow *row, double x)
{
    uint32_t got = row->to_f64(x);
    check_code(row, x, got, store_code(row, x));
    double rounded = row->round_f64(x), value = load_code(row->type, got);
    EXPECT(memcmp(&rounded, &value, sizeof value) == 0 || (isnan(rounded) && isnan(value)),
           "%s: %a rounded to %a, expected %a", row->name, x, rounded, value);
}

START_TEST(every_code_and_the_ties_between)
{
    const struct narrow *row = &narrow_rows[_i];
    for (uint32_t code = 0; code < row->codes; code++) {
        double value = load_code(row->type, code);
        float x = row->from(code);
        EXPECT(isnan(value) ? isnan(x) : bits_of_float(x) == bits_of_float((float)value),
               "%s: 0x%x is %a, expected %a", row->name, code, (double)x, value);
        check_code(row, value, row->to((float)value), store_code(row, value));
        uint32_t next = code + 1 == row->codes ? 0 : code + 1;
        double tie = (value + load_code(row->type, next)) / 2.0;
        check_from_f64(row, value);
        check_from_f64(row, tie);
        check_from_f64(row, nextafter(tie, HUGE_VAL));
        check_from_f64(row, nextafter(tie, -HUGE_VAL));
        check_from_f64(row, tie * (1.0 + 0x1p-30));
        check_from_f64(row, tie * (1.0 - 0x1p-30));
    }
    static const double far[] = {1e300,    0x1p128,          0x1.fffffffp127, 1e-300,  0x1p-1074,
                                 0x1p-150, 0x1.0000001p-150, 0x1p-134,        HUGE_VAL};
    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        check_from_f64(row, far[i]);
        check_from_f64(row, -far[i]);
    }
}
END_TEST

START_TEST(f32_to_narrow)
{
    const struct narrow *row = &narrow_rows[_i];
    for (size_t i = 0; i < n_inputs; i++) {
        float x = inputs[i];
        uint32_t code = row->to(x);
        check_code(row, (double)x, code, store_code(row, (double)x));
        uint32_t got = bits_of_float(row->round(x)), want = bits_of_float(row->from(code));
        EXPECT(got == want, "%s: %a rounded to 0x%08x, expected 0x%08x", row->name, (double)x, got,
               want);
    }
}
END_TEST

/* Integers next to ties, at every size: the reference rounds in integer arithmetic to 12 bits and a
 * sticky bit, which double holds exactly. */
START_TEST(i64_to_narrow)
{
    const struct narrow *row = &narrow_rows[_i];
    for (uint32_t top = 1; top < 4096u; top++) {
        for (uint32_t shift = 0; shift < 52u; shift++) {
            for (int64_t d = -1; d <= 1; d++) {
                int64_t x = (int64_t)((uint64_t)top << shift) + d;
                double exact = (double)((x >> 16) | ((x & 0xffff) != 0)) * 65536.0;
                exact = x < (INT64_C(1) << 53) ? (double)x : exact;
                check_code(row, exact, row->to_i64(x), store_code(row, exact));
                check_code(row, -exact, row->to_i64(-x), store_code(row, 0.0 - exact));
            }
        }
    }
    check_code(row, -0x1p63, row->to_i64(INT64_MIN), store_code(row, -0x1p63));
    check_code(row, 0x1p63, row->to_i64(INT64_MAX), store_code(row, 0x1p63));
}
END_TEST

static void check_integers(double x)
{
    int32_t i32;
    int64_t i64;
    uint8_t u8, truth;
    dtype_store(I32, &i32, x);
    dtype_store(I64, &i64, x);
    dtype_store(U8, &u8, x);
    dtype_store(BOOL, &truth, x);
    EXPECT(to_i32_f64(x) == i32 && to_i64_f64(x) == i64 && to_u8_f64(x) == u8 &&
               to_bool_f64(x) == truth,
           "integers of the double %a", x);
    float f = (float)x;
    if ((double)f == x || isnan(x)) {
        EXPECT(to_i32_f32(f) == i32 && to_i64_f32(f) == i64 && to_u8_f32(f) == u8 &&
                   to_bool_f32(f) == truth,
               "integers of the float %a", x);
    }
}

START_TEST(floats_to_integers)
{
    static const double edge[] = {0x1p31, 0x1p63, 0x1p53, 255.0, 256.0, 1.0, 0x1p62, 2147483647.0};
    for (size_t i = 0; i < n_inputs; i++) {
        check_integers((double)inputs[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(edge); i++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            double x = sign * edge[i];
            check_integers(x);
            check_integers(nextafter(x, HUGE_VAL));
            check_integers(nextafter(x, -HUGE_VAL));
            check_integers(x + 0.5);
            check_integers(x - 1.0);
        }
    }
}
END_TEST

START_TEST(integers_wrap)
{
    ck_assert_int_eq(to_i32_i64(INT64_C(0x180000000)), INT32_MIN);
    ck_assert_int_eq(to_i32_i64(-1), -1);
    ck_assert_int_eq(to_u8_i64(-1), 255);
    ck_assert_int_eq(to_u8_i64(256), 0);
    ck_assert_int_eq(to_bool_i64(INT64_MIN), 1);
    ck_assert_int_eq(to_bool_i64(0), 0);
}
END_TEST

START_TEST(philox_known_answers)
{
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const uint32_t *k = known[i];
        uint64_t block = ((uint64_t)k[1] << 32) | k[0], stream = ((uint64_t)k[3] << 32) | k[2];
        uint64_t seed = ((uint64_t)k[5] << 32) | k[4];
        for (uint32_t word = 0; word < 4; word++) {
            ck_assert_uint_eq(philox4x32(k[0], k[1], k[2], k[3], k[4], k[5], word), k[6 + word]);
            if (block >> 62 == 0) {
                ck_assert_uint_eq(random_u32(seed, stream, block * 4 + word), k[6 + word]);
            }
        }
    }
}
END_TEST

START_TEST(uniform_and_normal_moments)
{
    double sum = 0.0, squares = 0.0, uniform = 0.0;
    uint32_t n = 1000000;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = random_u32(7, 1, i), b = random_u32(7, 2, i);
        float u = uniform_f32(a), z = normal_f32(a, b);
        EXPECT(u >= 0.0f && u < 1.0f, "%a is not in [0, 1)", (double)u);
        uniform += (double)u;
        sum += (double)z;
        squares += (double)z * (double)z;
    }
    ck_assert_double_eq_tol(uniform / n, 0.5, 0.002);
    ck_assert_double_eq_tol(sum / n, 0.0, 0.005);
    ck_assert_double_eq_tol(squares / n, 1.0, 0.01);
    ck_assert(uniform_f32(0xffffffffu) == 1.0f - 0x1p-24f);
    ck_assert(normal_f32(0, 0) == 0.0f);
    ck_assert(isfinite(normal_f32(0xffffffffu, 0xffffffffu)));
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, collect_inputs, free_inputs);
    tcase_add_loop_test(tc, function_keeps_its_bound, 0, (int)ARRAY_LEN(scalar_rows));
    tcase_add_loop_test(tc, f32_to_narrow, 0, (int)ARRAY_LEN(narrow_rows));
    tcase_add_test(tc, floats_to_integers);
    tcase_add_test(tc, pow_and_atan2_at_special_pairs);
    tcase_add_test(tc, pow_and_atan2_at_random_pairs);
    tcase_add_loop_test(tc, every_code_and_the_ties_between, 0, (int)ARRAY_LEN(narrow_rows));
    tcase_add_loop_test(tc, i64_to_narrow, 0, (int)ARRAY_LEN(narrow_rows));
    tcase_add_test(tc, integers_wrap);
    tcase_add_test(tc, philox_known_answers);
    tcase_add_test(tc, uniform_and_normal_moments);
}

int main(void)
{
    return run_suite("scalar", fill);
}
