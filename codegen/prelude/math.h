/* Scalar mathematics of kernels: f32 functions made of IEEE operations, explicit fma and integer
 * arithmetic only, so the bits are the same on every CPU and GPU, in eager and in fused code. No
 * branches, no f64, no calls. Bounds in ulp are kept by tests/numeric/test_scalar.c and measured in
 * docs/scalar_functions.md. Polynomials are minimax fits of our own, coefficients rounded to f32
 * one after another with the rest refitted. Needs convert.h before it. */
#ifndef A_PRELUDE_MATH
#define A_PRELUDE_MATH

#define A_NAN      a_float(0x7fc00000u)
#define A_INFINITY a_float(0x7f800000u)
/* 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits. */
#define A_MAGIC    12582912.0f

A_FN float m_abs(float x)
{
    return a_float(a_bits(x) & 0x7fffffffu);
}

/* The smaller and the larger; NaN when either is; b for zeros of both signs. Two selects, one after
 * the other: nested or joined by || they become branches, which gcc does not vectorise. */
#define A_DEFINE_EXTREMES(type, suffix)                                                            \
    A_FN type m_minimum##suffix(type a, type b)                                                    \
    {                                                                                              \
        type m = a < b ? a : b;                                                                    \
        return a != a ? a : m;                                                                     \
    }                                                                                              \
    A_FN type m_maximum##suffix(type a, type b)                                                    \
    {                                                                                              \
        type m = a > b ? a : b;                                                                    \
        return a != a ? a : m;                                                                     \
    }
A_DEFINE_EXTREMES(float, )
A_DEFINE_EXTREMES(double, _f64)

/* |x| with the sign of s. */
A_FN float a_with_sign(float x, float s)
{
    return a_float((a_bits(x) & 0x7fffffffu) | (a_bits(s) & 0x80000000u));
}

/* 2^n for -126 <= n <= 127. */
A_FN float a_power_of_two(uint32_t n)
{
    return a_float((n + 127u) << 23);
}

/* x * 2^n with one rounding for -252 <= n <= 254 and x in [1/2, 2]: halves of the power keep the
 * first product exact. */
A_FN float a_scale(float x, uint32_t n)
{
    uint32_t half = (uint32_t)((int32_t)n >> 1);
    return x * a_power_of_two(half) * a_power_of_two(n - half);
}

/* exp(x) - 1 = 2^n (q + 1) - 1 with |x - n ln 2| <= ln(2)/2 and q = exp(x - n ln 2) - 1. Wants a
 * finite x of modest size. */
A_FN float a_expm1_reduced(float x, uint32_t *n)
{
    float t = A_FMA(x, 1.44269502f, A_MAGIC);
    float k = t - A_MAGIC;
    *n = a_bits(t) - 0x4b400000u;
    float r = A_FMA(k, -0.693145752f, x); /* -ln 2 in two parts, the first with 16 bits */
    r = A_FMA(k, -1.42860677e-06f, r);
    float p = A_FMA(0.00139422202f, r, 0.00836886093f);
    p = A_FMA(p, r, 0.0416663848f);
    p = A_FMA(p, r, 0.166665196f);
    p = A_FMA(p, r, 0.5f);
    return A_FMA(r * r, p, r);
}

A_FN float m_exp(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    uint32_t n;
    float q = a_expm1_reduced(c, &n);
    return a_scale(q + 1.0f, n);
}

A_FN float m_expm1(float x)
{
    float c = x < -20.0f ? -20.0f : x;
    c = c > 89.0f ? 89.0f : c;
    uint32_t n;
    float q = a_expm1_reduced(c, &n);
    float half = a_power_of_two(n - 1u); /* halved: 2^128 is out of range */
    float r = A_FMA(half, q, half - 0.5f);
    return a_with_sign(n == 0u ? q : r + r, x);
}

/* a / (b + b_low) to about half an ulp for b well inside the normal range: a linear guess of 1/b on
 * the bits (12% off), a cubic Newton step, and a second one folded into the correction by the
 * remainder. Cheaper than a vector divide. */
A_FN float a_quotient(float a, float b, float b_low)
{
    float y = a_float(0x7ef311c3u - a_bits(b));
    float e = A_FMA(-b, y, 1.0f);
    y = A_FMA(A_FMA(e, e, e), y, y);
    e = A_FMA(-b, y, 1.0f);
    float q = a * y;
    float rest = A_FMA(-b_low, q, A_FMA(-b, q, a));
    return A_FMA(rest, A_FMA(e, y, y), q);
}

/* tanh |x| = E / (E + 2), E = exp(2 |x|) - 1; from 9.1 on it rounds to 1. */
A_FN float m_tanh(float x)
{
    float a = m_abs(x);
    a = a > 9.1f ? 9.1f : a;
    uint32_t n;
    float q = a_expm1_reduced(a + a, &n);
    float s = a_power_of_two(n);
    float e = A_FMA(s, q, s - 1.0f);
    float d = e + 2.0f;
    return a_with_sign(a_quotient(e, d, e - (d - 2.0f)), x);
}

/* 1 / (1 + exp(-x)), from e = exp(-|x|): no overflow, and small results keep their precision. */
A_FN float m_sigmoid(float x)
{
    float e = m_exp(-m_abs(x));
    float d = 1.0f + e;
    return a_quotient(a_bits(x) >> 31 != 0u ? e : 1.0f, d, e - (d - 1.0f));
}

/* log(1 + f) for f in [-1/3, 1/3], plus k ln 2. */
A_FN float a_log_reduced(float f, float k)
{
    float p = A_FMA(-0.128792912f, f, 0.139855936f);
    p = A_FMA(p, f, -0.121874534f);
    p = A_FMA(p, f, 0.140055433f);
    p = A_FMA(p, f, -0.166802213f);
    p = A_FMA(p, f, 0.200104356f);
    p = A_FMA(p, f, -0.249998048f);
    p = A_FMA(p, f, 0.333332151f);
    p = A_FMA(p, f, -0.5f);
    float r = A_FMA(f * f, p, k * -1.90465421e-09f);
    return A_FMA(k, 0.693147182f, f + r);
}

/* x = m 2^k with m in [2/3, 4/3), for the bits of a positive normal x. */
A_FN float a_split(uint32_t u, uint32_t *k)
{
    uint32_t shifted = u - 0x3f2aaaabu;
    *k = (uint32_t)((int32_t)shifted >> 23);
    return a_float((shifted & 0x7fffffu) + 0x3f2aaaabu);
}

A_FN float m_log(float x)
{
    int small = x < 1.17549435e-38f;
    uint32_t k;
    float m = a_split(a_bits(small ? x * 8388608.0f : x), &k);
    float r = a_log_reduced(m - 1.0f, (float)(int32_t)k - (small ? 23.0f : 0.0f));
    r = x < A_INFINITY ? r : x; /* +inf and NaN */
    r = x < 0.0f ? A_NAN : r;
    return x == 0.0f ? -A_INFINITY : r;
}

/* 1 + x = 2^k (1 + f): while x is small f comes from x itself, x 2^-k + (2^-k - 1), so that what
 * 1 + x rounds away is kept; later it does not count. */
A_FN float m_log1p(float x)
{
    float u = 1.0f + x;
    uint32_t k;
    float m = a_split(a_bits(u), &k);
    int large = x > 16777216.0f;
    float s = a_power_of_two(large ? 0u : 0u - k);
    float f = large ? m - 1.0f : A_FMA(x, s, s - 1.0f);
    float r = a_log_reduced(f, (float)(int32_t)k);
    r = x < A_INFINITY ? r : x;
    r = x < -1.0f ? A_NAN : r;
    r = x == -1.0f ? -A_INFINITY : r;
    return m_abs(x) < 1.17549435e-38f ? x : r;
}

/* erf |x| = 1 - exp(-g) with g = -log(erfc |x|) = |x| (2 / sqrt(pi) + |x| Q(|x|)), which is smooth
 * to the end; from 3.95 on erf rounds to 1. */
A_FN float m_erf(float x)
{
    float a = m_abs(x);
    a = a > 3.95f ? 3.95f : a;
    float p = A_FMA(-9.31741488e-06f, a, 0.000118233897f);
    p = A_FMA(p, a, -0.000635137607f);
    p = A_FMA(p, a, 0.00167163089f);
    p = A_FMA(p, a, -0.000165481048f);
    p = A_FMA(p, a, -0.0191499833f);
    p = A_FMA(p, a, 0.102776878f);
    p = A_FMA(p, a, 0.636619508f);
    p = A_FMA(p, a, -5.86353828e-08f); /* 2 / sqrt(pi) in two parts */
    float g = A_FMA(a, 1.12837923f, a * p);
    uint32_t n;
    float q = a_expm1_reduced(-g, &n);
    float s = a_power_of_two(n);
    return a_with_sign(A_FMA(s, q, s - 1.0f), x);
}

A_FN uint32_t a_multiply_high(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

/* 32 bits from bit `shift` on of the 64 bits high:low. */
A_FN uint32_t a_window(uint32_t high, uint32_t low, uint32_t shift)
{
    return (high << shift) | (low >> 1 >> (31u - shift));
}

/* The i-th of five constants, by masks: gcc makes a jump table of a chain of selects. */
A_FN uint32_t a_pick(uint32_t i, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t w4)
{
    uint32_t w = w0 ^ ((0u - (uint32_t)(i > 0u)) & (w0 ^ w1));
    w ^= (0u - (uint32_t)(i > 1u)) & (w1 ^ w2);
    w ^= (0u - (uint32_t)(i > 2u)) & (w2 ^ w3);
    return w ^ ((0u - (uint32_t)(i > 3u)) & (w3 ^ w4));
}

/* |x| = quadrant pi/2 + r with |r| <= pi/4, after Payne and Hanek: |x| is M 2^(e - 150), and
 * M * (2/pi * 2^(e - 88)) mod 2^64 holds two bits of quadrant above 62 bits of fraction. The 96
 * bits of 2/pi that count are picked by selects: a table in memory would cost scalar loads. Below
 * pi/4 r is |x| itself. */
A_FN float a_quadrant(float x, uint32_t *quadrant)
{
    uint32_t u = a_bits(x) & 0x7fffffffu;
    uint32_t e = u >> 23;
    e = e < 126u ? 126u : e;
    e = e > 254u ? 254u : e;
    uint32_t word = (e - 120u) >> 5, shift = (e - 120u) & 31u;
    uint32_t w0 = a_pick(word, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u);
    uint32_t w1 = a_pick(word, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u);
    uint32_t w2 = a_pick(word, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u);
    uint32_t w3 = a_pick(word, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    uint32_t m = (u & 0x7fffffu) | 0x800000u;
    uint32_t middle = a_window(w1, w2, shift);
    uint32_t low = m * middle;
    uint32_t turn_low = low + a_multiply_high(m, a_window(w2, w3, shift));
    uint32_t turn = m * a_window(w0, w1, shift) + a_multiply_high(m, middle);
    turn += (turn_low < low ? 1u : 0u) + (1u << 29);
    int direct = u < 0x3f490fdbu;
    *quadrant = direct ? 0u : turn >> 30;
    /* Back to a signed fraction, taken in two exact parts of 24 and 31 bits. */
    float q = (float)((int32_t)((turn >> 6) & 0xffffffu) - 0x800000) * 0x1p-24f;
    float q_low = (float)(int32_t)(((turn << 25) | (turn_low >> 7)) & 0x7fffffffu) * 0x1p-55f;
    float r = A_FMA(q, 1.57079637f, A_FMA(q, -4.37113883e-08f, q_low * 1.57079637f));
    r = direct ? a_float(u) : r;
    return u < 0x7f800000u ? r : A_NAN;
}

/* sin(r + quadrant pi/2) for |r| <= pi/4. */
A_FN float a_sin_quadrant(float r, uint32_t quadrant)
{
    float z = r * r;
    float s = A_FMA(A_FMA(-0.000195182758f, z, 0.00833218917f), z, -0.166666552f);
    s = A_FMA(s * z, r, r);
    float c = A_FMA(A_FMA(2.44325602e-05f, z, -0.00138873106f), z, 0.0416666456f);
    c = A_FMA(A_FMA(c, z, -0.5f), z, 1.0f);
    return a_float(a_bits((quadrant & 1u) != 0u ? c : s) ^ ((quadrant & 2u) << 30));
}

A_FN float m_sin(float x)
{
    uint32_t quadrant;
    float r = a_quadrant(x, &quadrant);
    r = a_sin_quadrant(r, quadrant);
    return a_float(a_bits(r) ^ (a_bits(x) & 0x80000000u));
}

A_FN float m_cos(float x)
{
    uint32_t quadrant;
    float r = a_quadrant(x, &quadrant);
    return a_sin_quadrant(r, quadrant + 1u);
}

/* log2(a) as an unevaluated sum, good to 2^-32 of its size: with s = (m - 1) / (m + 1) it is
 * k + s (c1 + c3 s^2 + ...), the first terms carried in pairs of floats. a is positive, finite. */
A_FN float a_log2_pair(float a, float *out_low)
{
    int small = a < 1.17549435e-38f;
    uint32_t n;
    float f = a_split(a_bits(small ? a * 8388608.0f : a), &n) - 1.0f;
    float k = (float)(int32_t)n - (small ? 23.0f : 0.0f);
    float d = 2.0f + f, d_low = f - (d - 2.0f);
    float y = a_float(0x7ef311c3u - a_bits(d));
    float e = A_FMA(-d, y, 1.0f);
    y = A_FMA(A_FMA(e, e, e), y, y);
    e = A_FMA(-d, y, 1.0f);
    y = A_FMA(A_FMA(e, e, e), y, y);
    float s = f * y;
    float s_low = A_FMA(-d_low, s, A_FMA(-d, s, f)) * y;
    float u = s * s;
    float u_low = A_FMA(s + s, s_low, A_FMA(s, s, -u));
    float w = A_FMA(A_FMA(0.344394982f, u, 0.411538631f), u, 0.577083647f);
    w = A_FMA(u, w, -7.02846181e-09f);
    float c = 0.961796701f + w, c_low = w - (c - 0.961796701f);
    float b = u * c, b_low = A_FMA(u, c, -b) + A_FMA(u, c_low, u_low * c);
    float t = 2.88539004f + b, t_low = (b - (t - 2.88539004f)) + (b_low + 3.85192607e-08f);
    float p = s * t, p_low = A_FMA(s, t, -p) + A_FMA(s, t_low, s_low * t);
    float high = k + p;
    *out_low = (p - (high - k)) + p_low;
    return high;
}

/* C99 Annex F: pow(x, 0) = pow(1, y) = 1 even for NaN; a negative x wants an integer y. */
A_FN float m_pow(float x, float y)
{
    float a = m_abs(x);
    float low;
    float high = a_log2_pair(a, &low);
    float p = y * high;
    float p_low = A_FMA(y, high, -p) + y * low;
    p_low = m_abs(p) < 200.0f ? p_low : 0.0f;
    p = p > 200.0f ? 200.0f : p;
    p = p < -200.0f ? -200.0f : p;
    float t = p + A_MAGIC;
    float r = (p - (t - A_MAGIC)) + p_low;
    float q = A_FMA(0.000153274988f, r, 0.00133912417f);
    q = A_FMA(q, r, 0.0096185049f);
    q = A_FMA(q, r, 0.0555035919f);
    q = A_FMA(q, r, 0.240226477f);
    q = A_FMA(q, r, 0.693147182f);
    float z = a_scale(A_FMA(q, r, 1.0f), a_bits(t) - 0x4b400000u);

    /* |x| = 0, inf or NaN, and infinite y, sit at the edges; `parity` is 0 unless y is odd. */
    uint32_t y_size = a_bits(y) & 0x7fffffffu;
    float half = y * 0.5f;
    int whole = A_FLOOR(y) == y;
    uint32_t parity = A_FLOOR(half) != half ? a_bits(x) & 0x80000000u : 0u;
    float edge = (a < 1.0f) == (y > 0.0f) ? 0.0f : A_INFINITY;
    z = a_bits(a) - 1u >= 0x7f7fffffu ? edge : z;
    edge = a == 1.0f ? 1.0f : edge;
    z = y_size == 0x7f800000u ? edge : z;
    z = a_float(a_bits(z) | (whole ? parity : 0u));
    uint32_t fraction = whole ? 0u : a_bits(x) >> 31;
    fraction = a_bits(a) - 1u >= 0x7f7fffffu ? 0u : fraction;
    z = fraction != 0u ? A_NAN : z;
    z = a_bits(a) > 0x7f800000u ? A_NAN : z;
    z = y_size > 0x7f800000u ? A_NAN : z;
    z = y_size == 0u ? 1.0f : z;
    return x == 1.0f ? 1.0f : z;
}

/* atan on [0, 1]. */
A_FN float a_atan_reduced(float q)
{
    float z = q * q;
    float p = A_FMA(-0.00178270042f, z, 0.0108682672f);
    p = A_FMA(p, z, -0.0310964193f);
    p = A_FMA(p, z, 0.0578810163f);
    p = A_FMA(p, z, -0.0839929432f);
    p = A_FMA(p, z, 0.10950879f);
    p = A_FMA(p, z, -0.142640159f);
    p = A_FMA(p, z, 0.199985296f);
    p = A_FMA(p, z, -0.333332986f);
    return A_FMA(p * z, q, q);
}

A_FN float m_atan2(float y, float x)
{
    float a = m_abs(y), b = m_abs(x);
    float small = a < b ? a : b, large = a < b ? b : a;
    float q = small / (large == 0.0f ? 1.0f : large);
    q = small == A_INFINITY ? 1.0f : q;
    float r = a_atan_reduced(q);
    r = a > b ? 1.57079637f - (r + 4.37113883e-08f) : r;
    r = a_bits(x) >> 31 != 0u ? 3.14159274f - (r + 8.74227766e-08f) : r;
    r = a != a ? A_NAN : r;
    r = b != b ? A_NAN : r;
    return a_with_sign(r, y);
}

A_FN float m_atan(float x)
{
    return m_atan2(x, 1.0f);
}

A_FN float m_sqrt(float x)
{
    return A_SQRT(x);
}

A_FN float m_rsqrt(float x)
{
    return 1.0f / A_SQRT(x);
}

A_FN float m_floor(float x)
{
    return A_FLOOR(x);
}

A_FN float m_ceil(float x)
{
    return A_CEIL(x);
}

A_FN float m_trunc(float x)
{
    return A_TRUNC(x);
}

/* Ties to even. */
A_FN float m_round(float x)
{
    return A_RINT(x);
}

/* The power of two next to x >= 0 towards zero: its bits without the mantissa, subnormals through a
 * power of two of their own. */
A_FN float m_pow2_floor(float x)
{
    uint32_t u = a_bits(x);
    uint32_t tiny = a_bits(a_float(a_bits(x * 8388608.0f) & 0x7f800000u) * 1.1920928955078125e-07f);
    uint32_t r = u < 0x00800000u ? tiny : u & 0x7f800000u;
    return u > 0x7f800000u ? x : a_float(r);
}

/* The next one away from zero, where x is none itself. */
A_FN float m_pow2_ceil(float x)
{
    float low = m_pow2_floor(x);
    return low < x ? low + low : low;
}

/* The exponent field, sign left out. */
A_FN float m_e8m0(float x)
{
    return (float)(int32_t)(a_bits(x) >> 23 & 0xffu);
}

/* f64: the platform's own; CPU and GPU may differ in the last bits. */
#if A_CUDA
#define A_LIBM(name) name
#else
#define A_LIBM(name) __builtin_##name
#endif
#define A_FROM_LIBM(name, libm)                                                                    \
    A_FN double m_##name##_f64(double x)                                                           \
    {                                                                                              \
        return A_LIBM(libm)(x);                                                                    \
    }
A_FROM_LIBM(exp, exp)
A_FROM_LIBM(expm1, expm1)
A_FROM_LIBM(log, log)
A_FROM_LIBM(log1p, log1p)
A_FROM_LIBM(tanh, tanh)
A_FROM_LIBM(erf, erf)
A_FROM_LIBM(sin, sin)
A_FROM_LIBM(cos, cos)
A_FROM_LIBM(atan, atan)
A_FROM_LIBM(sqrt, sqrt)
A_FROM_LIBM(floor, floor)
A_FROM_LIBM(ceil, ceil)
A_FROM_LIBM(trunc, trunc)
A_FROM_LIBM(round, rint)
A_FROM_LIBM(abs, fabs)

A_FN uint64_t a_bits_f64(double x)
{
#if A_CUDA
    return (uint64_t)__double_as_longlong(x);
#else
    uint64_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
#endif
}

A_FN double a_float_f64(uint64_t u)
{
#if A_CUDA
    return __longlong_as_double((int64_t)u);
#else
    double x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
#endif
}

A_FN double m_pow2_floor_f64(double x)
{
    uint64_t u = a_bits_f64(x), mask = 0x7ff0000000000000u;
    double tiny = a_float_f64(a_bits_f64(x * 4503599627370496.0) & mask) / 4503599627370496.0;
    double r = u < 0x0010000000000000u ? tiny : a_float_f64(u & mask);
    return u > mask ? x : r;
}

A_FN double m_pow2_ceil_f64(double x)
{
    double low = m_pow2_floor_f64(x);
    return low < x ? low + low : low;
}

A_FN double m_pow_f64(double x, double y)
{
    return A_LIBM(pow)(x, y);
}

A_FN double m_atan2_f64(double y, double x)
{
    return A_LIBM(atan2)(y, x);
}

A_FN double m_rsqrt_f64(double x)
{
    return 1.0 / m_sqrt_f64(x);
}

A_FN double m_sigmoid_f64(double x)
{
    double e = m_exp_f64(-m_abs_f64(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

#endif
