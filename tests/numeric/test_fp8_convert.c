/* Every conversion to f8, saturating and not, of all f16 and bf16 values and of 10^7 f32 values,
 * against a search through the format's own values: those are made from sign, exponent and fraction
 * here, and the nearest is found by comparing distances, which f64 holds exactly. */
#include "eager_helper.h"

#include <assert.h>
#include <math.h>

#include "codegen/prelude/convert.h"

/* A format as it is written down: bits of the fraction, bias, and what its last exponent holds. */
struct format {
    enum dtype dtype;
    uint32_t fraction, bias;
    double most, nan_from; /* not saturating: above it NaN or infinity */
    uint8_t over;          /* what that becomes, without sign */
    double finite[128];    /* values of the codes from 0 on, ascending */
    uint32_t n_finite;
};

static struct format formats[] = {
    {.dtype = F8E4M3, .fraction = 3, .bias = 7, .most = 448.0, .nan_from = 464.0, .over = 0x7f},
    {.dtype = F8E5M2,
     .fraction = 2,
     .bias = 15,
     .most = 57344.0,
     .nan_from = 61440.0,
     .over = 0x7c},
};

static void fill_formats(void)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct format *f = &formats[i];
        for (uint32_t code = 0; code < 128; code++) {
            uint32_t exponent = code >> f->fraction, part = code & ((1U << f->fraction) - 1U);
            double unit = ldexp(1.0, -(int)f->fraction);
            double v = exponent == 0 ? ldexp(part * unit, 1 - (int)f->bias)
                                     : ldexp(1.0 + part * unit, (int)(exponent - f->bias));
            if (v <= f->most) {
                f->finite[f->n_finite++] = v;
            }
        }
        assert(f->finite[f->n_finite - 1] == f->most);
    }
}

/* Nearest, ties to the even code. */
static uint32_t nearest(const struct format *f, double x)
{
    uint32_t low = 0, high = f->n_finite - 1;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(f->finite[middle] <= x ? &low : &high) = middle;
    }
    double below = x - f->finite[low], above = f->finite[high] - x;
    return below < above || (!(above < below) && low % 2 == 0) ? low : high;
}

static uint8_t expected(const struct format *f, double x, bool saturates)
{
    double size = fabs(x);
    uint32_t sign = signbit(x) ? 0x80U : 0U;
    bool is_over = f->dtype == F8E4M3 ? size > f->nan_from : size >= f->nan_from;
    if (isnan(x)) {
        return 0x7f;
    }
    if (is_over && !saturates) {
        return (uint8_t)(sign | f->over);
    }
    return (uint8_t)(sign | nearest(f, size < f->most ? size : f->most));
}

static uint8_t converted(enum dtype t, float x, bool saturates)
{
    return t == F8E4M3 ? (saturates ? to_f8e4m3_sat(x) : to_f8e4m3(x))
                       : (saturates ? to_f8e5m2_sat(x) : to_f8e5m2(x));
}

static void check_value(const struct format *f, float x)
{
    for (int saturates = 0; saturates < 2; saturates++) {
        uint8_t want = expected(f, (double)x, saturates != 0);
        uint8_t got = converted(f->dtype, x, saturates != 0);
        if (got != want) {
            ck_abort_msg("%s of %a, saturating %d: 0x%02x, expected 0x%02x",
                         dtype_info[f->dtype].name, (double)x, saturates, got, want);
        }
    }
}

/* ---- the conversions themselves ---- */

START_TEST(all_f16_and_bf16)
{
    for (uint32_t bits = 0; bits < 1U << 16; bits++) {
        check_value(&formats[_i], from_f16((uint16_t)bits));
        check_value(&formats[_i], from_bf16((uint16_t)bits));
    }
}
END_TEST

/* Half of them of any bits, half near the range where f8 has values. */
START_TEST(ten_million_f32)
{
    uint32_t state = 12345;
    for (int i = 0; i < 10000000; i++) {
        state = state * 1664525U + 1013904223U;
        uint32_t bits = state ^ state >> 13;
        uint32_t near = (bits & 0x80ffffffU) | (96U + (bits >> 24) % 52U) << 23;
        check_value(&formats[_i], a_float(i % 2 == 0 ? bits : near));
    }
}
END_TEST

/* The values around each tie, in f32. */
START_TEST(around_every_tie)
{
    const struct format *f = &formats[_i];
    for (uint32_t i = 0; i + 1 < f->n_finite; i++) {
        float tie = (float)((f->finite[i] + f->finite[i + 1]) / 2.0);
        float around[] = {nextafterf(tie, 0.0F), tie, nextafterf(tie, INFINITY),
                          (float)f->finite[i]};
        for (size_t k = 0; k < ARRAY_LEN(around); k++) {
            check_value(f, around[k]);
            check_value(f, -around[k]);
        }
    }
}
END_TEST

static const struct {
    float x;
    uint8_t e4m3_sat, e4m3, e5m2_sat, e5m2;
} thresholds[] = {
    {448.0F, 0x7e, 0x7e, 0x5f, 0x5f},
    {464.0F, 0x7e, 0x7e, 0x5f, 0x5f},
    {464.00003F, 0x7e, 0x7f, 0x5f, 0x5f},
    {-464.00003F, 0xfe, 0xff, 0xdf, 0xdf},
    {61439.996F, 0x7e, 0x7f, 0x7b, 0x7b},
    {61440.0F, 0x7e, 0x7f, 0x7b, 0x7c},
    {-61440.0F, 0xfe, 0xff, 0xfb, 0xfc},
    {INFINITY, 0x7e, 0x7f, 0x7b, 0x7c},
    {-INFINITY, 0xfe, 0xff, 0xfb, 0xfc},
    {NAN, 0x7f, 0x7f, 0x7f, 0x7f},
    {-NAN, 0x7f, 0x7f, 0x7f, 0x7f},
    {0x1p-10F, 0x00, 0x00, 0x14, 0x14}, /* half of e4m3's smallest: a tie to 0 */
    {0x1p-17F, 0x00, 0x00, 0x00, 0x00}, /* half of e5m2's smallest */
    {-0x1p-17F, 0x80, 0x80, 0x80, 0x80},
    {0x1.8p-17F, 0x00, 0x00, 0x01, 0x01},
};

START_TEST(published_thresholds)
{
    float x = thresholds[_i].x;
    const uint8_t want[] = {thresholds[_i].e4m3_sat, thresholds[_i].e4m3, thresholds[_i].e5m2_sat,
                            thresholds[_i].e5m2};
    const uint8_t got[] = {to_f8e4m3_sat(x), to_f8e4m3(x), to_f8e5m2_sat(x), to_f8e5m2(x)};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        ck_assert_msg(got[i] == want[i], "%g, column %d: 0x%02x, expected 0x%02x", (double)x,
                      (int)i, got[i], want[i]);
    }
}
END_TEST

/* ---- the ops that use them ---- */

/* cast and quantize of every value of a 16-bit dtype. */
START_TEST(casts_and_quantize)
{
    const struct format *f = &formats[_i % 2];
    enum dtype from = _i / 2 == 0 ? F16 : BF16;
    const int64_t shape[1] = {1 << 16};
    struct tensor x = tensor_new(from, 1, shape), one = tensor_new(F32, 0, shape);
    for (int64_t i = 0; i < shape[0]; i++) {
        ((uint16_t *)x.data)[i] = (uint16_t)i;
    }
    *(float *)one.data = 1.0F;
    for (int how = 0; how < 3; how++) {
        status s;
        struct attr attrs[] = {attr_dtype("dtype", f->dtype), attr_bool("saturate", how == 1)};
        struct tensor in[] = {x, one};
        struct tensor y = how == 2 ? run_op(OP_quantize, in, 2, attrs, 1, &s)
                                   : run_op(OP_cast, &x, 1, attrs, 2, &s);
        ck_assert_ptr_nonnull(y.data);
        for (int64_t i = 0; i < shape[0]; i++) {
            uint16_t bits = (uint16_t)i;
            float v = from == F16 ? from_f16(bits) : from_bf16(bits);
            uint8_t want = expected(f, (double)v, how != 0), got = ((uint8_t *)y.data)[i];
            ck_assert_msg(got == want, "%g: 0x%02x, expected 0x%02x", (double)v, got, want);
        }
        free(y.data);
    }
    free(x.data);
    free(one.data);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_loop_test(tc, all_f16_and_bf16, 0, (int)ARRAY_LEN(formats));
    tcase_add_loop_test(tc, ten_million_f32, 0, (int)ARRAY_LEN(formats));
    tcase_add_loop_test(tc, around_every_tie, 0, (int)ARRAY_LEN(formats));
    tcase_add_loop_test(tc, published_thresholds, 0, (int)ARRAY_LEN(thresholds));
    tcase_add_loop_test(tc, casts_and_quantize, 0, 4);
}

int main(void)
{
    fill_formats();
    return run_suite("fp8_convert", add_tests);
}
