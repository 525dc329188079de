/* Scalar arithmetic as PTX defines it, on one lane: roundings, narrow formats, bit fields. Written
 * for the emulator alone: it must not share code with the product whose kernels it checks. Double
 * to a narrow format is exact through odd rounding: a double holds at least two bits more than any
 * narrower format needs, so "inexact" kept in its last bit makes the second rounding right. */
#ifndef ATOLL_EMULATOR_SCALAR_H
#define ATOLL_EMULATOR_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static inline double double_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static inline uint64_t bits_of_double(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}
/* PTX: every NaN that arithmetic makes is this one. */
static inline uint32_t store_f32(float f)
{
    return f != f ? 0x7fffffffu : bits_of(f);
}
static inline uint64_t store_f64(double d)
{
    return d != d ? 0x7fffffffffffffffu : bits_of_double(d);
}
static inline float flush(float f)
{
    uint32_t u = bits_of(f);
    return (u & 0x7f800000u) == 0 ? float_of(u & 0x80000000u) : f;
}

/* ---- odd rounding ---- */

/* value with its last bit set when error, the exact remainder, is not zero. */
static inline double make_odd(double value, double error)
{
    uint64_t u = bits_of_double(value);
    int is_even = (u & 1) == 0;
    int is_inexact = (error < 0) | (error > 0);
    uint64_t away = (error > 0) == (value > 0) ? u + 1 : u - 1;
    return double_of(is_even & is_inexact ? away : u);
}
/* a + b; the error of a sum is a double (Knuth's two-sum). */
static inline double add_odd(double a, double b)
{
    double s = a + b, t = s - a;
    return make_odd(s, (a - (s - t)) + (b - t));
}
/* The same when rounding down, where a sum of opposite numbers is -0. */
static inline double add_odd_rm(double a, double b)
{
    double s = add_odd(a, b);
    return s == 0 ? (signbit(a) || signbit(b) ? -0.0 : 0.0) : s;
}
/* a / b of two f32: the remainder a - q b is exact in one fma. */
static inline double div_odd(float a, float b)
{
    double q = (double)a / (double)b;
    double r = __builtin_fma(-q, (double)b, (double)a);
    return isfinite(q) && b < 0 ? make_odd(q, -r) : isfinite(q) ? make_odd(q, r) : q;
}
static inline double sqrt_odd(float a)
{
    double q = __builtin_sqrt((double)a);
    return a > 0 && isfinite(q) ? make_odd(q, __builtin_fma(-q, q, (double)a)) : q;
}

/* ---- double to f32 in the directed roundings ---- */

static inline float step_down(float f) /* towards -infinity; f is not NaN */
{
    uint32_t u = bits_of(f);
    return float_of(f > 0 ? u - 1 : (u & 0x7fffffffu) == 0 ? 0x80000001u : u + 1);
}
static inline float to_f32_rm(double d)
{
    float f = (float)d;
    return (double)f > d ? step_down(f) : f;
}
static inline float to_f32_rp(double d)
{
    return -to_f32_rm(-d);
}
static inline float to_f32_rz(double d)
{
    return d < 0 ? to_f32_rp(d) : to_f32_rm(d);
}
/* rcp.approx.ftz.f64 and its kind give the upper half of a double only. */
static inline double high_word(double d)
{
    return double_of(bits_of_double(d) & 0xffffffff00000000u);
}
static inline float saturate(float f) /* NaN gives +0 */
{
    return f > 0 ? (f < 1 ? f : 1.0f) : 0.0f;
}
static inline int32_t to_s32(float f) /* an integral f */
{
    return f != f               ? 0
           : f >= 2147483648.0f ? INT32_MAX
           : f < -2147483648.0f ? INT32_MIN
                                : (int32_t)f;
}

/* ---- minimum and maximum: the number if the other is a NaN; -0 lies below +0 ---- */

static inline float min_number(float a, float b)
{
    float least = a < b ? a : b < a ? b : float_of(bits_of(a) | bits_of(b)); /* equal: -0 wins */
    return a != a ? b : b != b ? a : least;
}
static inline float max_number(float a, float b)
{
    float most = a > b ? a : b > a ? b : float_of(bits_of(a) & bits_of(b));
    return a != a ? b : b != b ? a : most;
}

/* ---- narrow formats (narrow.c) ---- */

enum rounding { ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP, ROUND_AWAY /* ties */ };
struct narrow_format {
    int mantissa_bits, exponent_bits;
    int is_fn; /* e4m3: no infinity, the last code is NaN */
};
extern const struct narrow_format format_f16, format_bf16, format_e4m3, format_e5m2, format_tf32;
/* Bits of d in the format; saturate: finite and infinite values beyond the range become the
 * largest. */
uint32_t narrow(const struct narrow_format *f, double d, enum rounding rounding, int to_largest);
double widen(const struct narrow_format *f, uint32_t bits);

/* The same for f16 and bf16 to nearest, free of branches. d is exact or odd. */
static inline uint32_t store_half(double d, int mantissa_bits, int bias, uint32_t infinity)
{
    uint64_t u = bits_of_double(d), magnitude = u & 0x7fffffffffffffffu;
    uint32_t sign = (uint32_t)(u >> 48) & 0x8000u;
    uint64_t lowest = (uint64_t)(1024 - bias) << 52, exponent = magnitude & 0x7ff0000000000000u;
    /* adding 2^(e + 52 - m) rounds at bit m */
    double anchor =
        double_of((exponent > lowest ? exponent : lowest) + ((uint64_t)(52 - mantissa_bits) << 52));
    uint64_t r = bits_of_double((double_of(magnitude) + anchor) - anchor);
    uint64_t smallest = (uint64_t)(1024 - bias - mantissa_bits)
                        << 52; /* one unit of the subnormals */
    uint32_t normal = (uint32_t)((r - ((uint64_t)(1023 - bias) << 52)) >> (52 - mantissa_bits));
    double small = double_of(r < lowest ? r : 0);
    uint32_t tiny = (uint32_t)(int32_t)(small * (1.0 / double_of(smallest)));
    uint32_t bits = r < lowest ? tiny : normal;
    bits = magnitude >= 0x7ff0000000000000u || bits > infinity ? infinity : bits;
    return d != d ? 0x7fffu : sign | bits;
}
static inline uint32_t store_f16(double d)
{
    return store_half(d, 10, 15, 0x7c00u);
}
static inline uint32_t store_bf16(double d)
{
    return store_half(d, 7, 127, 0x7f80u);
}
static inline double load_bf16(uint32_t bits)
{
    return (double)float_of(bits << 16);
}
static inline double load_f16(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7fffu;
    /* the bits at the place of an f32 are 2^-112 times the value; infinity and NaN need their own
     * exponent */
    float scaled = float_of(magnitude << 13) * 0x1p112f;
    float special = float_of(0x7f800000u | (magnitude & 0x3ffu) << 13);
    float f = magnitude >= 0x7c00u ? special : scaled;
    return (double)(bits & 0x8000u ? -f : f);
}
/* An operation on both halves of packed pairs: NAME_f16x2, NAME_bf16x2. */
#define PAIR_FUNCTION(name, t, value)                                                              \
    static inline uint32_t name##_##t##x2(uint32_t a, uint32_t b, uint32_t c)                      \
    {                                                                                              \
        uint32_t pair = 0;                                                                         \
        for (uint32_t shift = 0; shift < 32; shift += 16) {                                        \
            double x = load_##t(a >> shift & 0xffffu), y = load_##t(b >> shift & 0xffffu);         \
            double z = load_##t(c >> shift & 0xffffu);                                             \
            (void)z;                                                                               \
            pair |= (store_##t(value) & 0xffffu) << shift;                                         \
        }                                                                                          \
        return pair;                                                                               \
    }
#define PAIR_FUNCTIONS(t)                                                                          \
    PAIR_FUNCTION(pair_add, t, add_odd(x, y))                                                      \
    PAIR_FUNCTION(pair_sub, t, add_odd(x, -y))                                                     \
    PAIR_FUNCTION(pair_mul, t, x *y)                                                               \
    PAIR_FUNCTION(pair_fma, t, add_odd(x *y, z))                                                   \
    PAIR_FUNCTION(pair_min, t, (double)min_number((float)x, (float)y))                             \
    PAIR_FUNCTION(pair_max, t, (double)max_number((float)x, (float)y))
PAIR_FUNCTIONS(f16)
PAIR_FUNCTIONS(bf16)

/* ---- integers and bit fields ---- */

static inline int32_t clamp_s32(int64_t v)
{
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}
static inline uint64_t high_u64(uint64_t a, uint64_t b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t middle = ah * bl + (al * bl >> 32);
    return ah * bh + (middle >> 32) + ((al * bh + (uint32_t)middle) >> 32);
}
static inline int64_t high_s64(int64_t a, int64_t b)
{
    uint64_t high = high_u64((uint64_t)a, (uint64_t)b);
    return (int64_t)(high - (a < 0 ? (uint64_t)b : 0) - (b < 0 ? (uint64_t)a : 0));
}
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t hit = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        r |= table >> i & 1 ? hit : 0;
    }
    return r;
}
/* Sum of the products of four bytes. */
static inline uint32_t dot4(uint32_t a, uint32_t b, int a_is_signed, int b_is_signed)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < 32; i += 8) {
        int32_t x = a_is_signed ? (int8_t)(a >> i) : (uint8_t)(a >> i);
        int32_t y = b_is_signed ? (int8_t)(b >> i) : (uint8_t)(b >> i);
        sum += x * y;
    }
    return (uint32_t)sum;
}
/* Sum of the products of the two halves of a with the low two bytes of b. */
static inline uint32_t dot2(uint32_t a, uint32_t b, int a_is_signed, int b_is_signed)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < 2; i++) {
        int32_t x = a_is_signed ? (int16_t)(a >> 16 * i) : (uint16_t)(a >> 16 * i);
        int32_t y = b_is_signed ? (int8_t)(b >> 8 * i) : (uint8_t)(b >> 8 * i);
        sum += x * y;
    }
    return (uint32_t)sum;
}
/* Default mode: each 4 bits of the selector take one of 8 bytes, bit 3 spreads its sign. */
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t s = selector >> 4 * i & 15u, byte = (uint32_t)(bytes >> 8 * (s & 7)) & 255u;
        r |= (s & 8 ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}
static inline uint64_t reverse_u64(uint64_t v)
{
    v = (v >> 1 & 0x5555555555555555u) | (v & 0x5555555555555555u) << 1;
    v = (v >> 2 & 0x3333333333333333u) | (v & 0x3333333333333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0fu) | (v & 0x0f0f0f0f0f0f0f0fu) << 4;
    return __builtin_bswap64(v);
}
/* Bit of the most significant digit; -1 for 0 and -1. */
static inline int find_s64(int64_t v)
{
    uint64_t u = (uint64_t)(v < 0 ? ~v : v);
    return u ? 63 - __builtin_clzll(u) : -1;
}
static inline uint64_t extract_u64(uint64_t a, uint32_t at, uint32_t length, uint32_t width)
{
    uint64_t v = at >= width ? 0 : a >> at;
    return length >= 64 ? v : v & (((uint64_t)1 << length) - 1);
}
/* Bits beyond the top are copies of the sign; so are those above the field. */
static inline int64_t extract_s64(int64_t a, uint32_t at, uint32_t length, uint32_t width)
{
    if (length == 0) {
        return 0;
    }
    int64_t v = a >> (at >= width ? width - 1 : at);
    return length >= 64 ? v : (int64_t)((uint64_t)v << (64 - length)) >> (64 - length);
}
static inline uint64_t insert_u64(uint64_t field, uint64_t into, uint32_t at, uint32_t length,
                                  uint32_t width)
{
    if (at >= width || length == 0) {
        return into;
    }
    uint64_t mask = (length >= 64 ? UINT64_MAX : ((uint64_t)1 << length) - 1) << at;
    return (into & ~mask) | (field << at & mask);
}

#endif
