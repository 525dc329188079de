/* The scalar functions of the prelude beside independent references in double, with the error each
 * may have in units of the last place of the f32 result (0.5 is correct rounding). test_scalar.c
 * asserts the bounds, scalar_record.c measures. */
#ifndef ATOLL_TESTS_SCALAR_TABLE_H
#define ATOLL_TESTS_SCALAR_TABLE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

struct scalar_row {
    const char *name;
    void (*block)(float *y, const float *x, size_t n);
    double (*reference)(double x);
    double bound;
};

static inline double reference_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double reference_rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

#define SCALAR_ROWS(X)                                                                             \
    X(exp, exp, 1.1)                                                                               \
    X(expm1, expm1, 1.6)                                                                           \
    X(log, log, 0.9)                                                                               \
    X(log1p, log1p, 1.7)                                                                           \
    X(tanh, tanh, 1.9)                                                                             \
    X(erf, erf, 1.9)                                                                               \
    X(sin, sin, 1.7)                                                                               \
    X(cos, cos, 1.7)                                                                               \
    X(sigmoid, reference_sigmoid, 1.7)                                                             \
    X(sqrt, sqrt, 0.5)                                                                             \
    X(rsqrt, reference_rsqrt, 1.5)                                                                 \
    X(atan, atan, 1.5)                                                                             \
    X(floor, floor, 0.0)                                                                           \
    X(ceil, ceil, 0.0)                                                                             \
    X(trunc, trunc, 0.0)                                                                           \
    X(round, nearbyint, 0.0)
#define SCALAR_POW_BOUND   1.2
#define SCALAR_ATAN2_BOUND 2.0

#define X(name, reference, bound)                                                                  \
    static void block_##name(float *y, const float *x, size_t n)                                   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            y[i] = m_##name(x[i]);                                                                 \
        }                                                                                          \
    }
SCALAR_ROWS(X)
#undef X

static const struct scalar_row scalar_rows[] = {
#define X(name, reference, bound) {#name, block_##name, reference, bound},
    SCALAR_ROWS(X)
#undef X
};

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Error of got in units of the last place of an f32 near want. Infinite when the kind is wrong: NaN
 * against number, infinity where want is far from it, a zero of the wrong sign. */
static inline double ulp_error(float got, double want)
{
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0.0 : HUGE_VAL;
    }
    if (isinf(want)) {
        return (double)got == want ? 0.0 : HUGE_VAL;
    }
    if (!signbit(got) != !signbit(want)) {
        return got == 0.0f && fabs(want) < 0x1p-149 && want != 0.0 ? 0.5 : HUGE_VAL;
    }
    if (want == 0.0) {
        return got == 0.0f ? 0.0 : HUGE_VAL;
    }
    int exponent;
    (void)frexp(want, &exponent);
    exponent = exponent < -125 ? -125 : exponent > 128 ? 128 : exponent;
    double value = isinf(got) ? copysign(0x1p128, want) : (double)got;
    if (fabs(want) >=
        0x1p128) { /* too large for f32: only infinity, or just the largest, will do */
        return isinf(got) ? 0.0 : ldexp(fabs(value - want), 24 - exponent);
    }
    return ldexp(fabs(value - want), 24 - exponent);
}

#endif
