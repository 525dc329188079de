/* Conversions between element types, each with one rounding (nearest, ties to even), and the base
 * macros of the prelude. The prelude (convert.h, math.h, philox.h, in this order) is written once:
 * it is compiled into the eager executor and stands as text in every generated C and CUDA C source,
 * so eager and fused, CPU and GPU give the same bits. It includes nothing and expects only the
 * names int32_t uint32_t int64_t uint64_t uint8_t uint16_t. Everything is free of branches so that
 * loops over it become vector code, and free of undefined behaviour for every input. Compile with
 * -ffp-contract=off, and for speed (values do not change) -fno-math-errno -fno-trapping-math.
 * NaN becomes one NaN per type: f16 0x7e00, bf16 0x7fc0, both f8 0x7f; an f8e4m3 overflow is a NaN
 * that keeps the sign. Subnormals are kept, in and out. */
#ifndef A_PRELUDE_CONVERT
#define A_PRELUDE_CONVERT

#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define A_CUDA 1
#else
#define A_CUDA 0
#endif

#ifndef A_FN
#if A_CUDA
#define A_FN static __device__ __forceinline__ __attribute__((unused))
#else
#define A_FN static inline __attribute__((always_inline, unused))
#endif
#endif

#if A_CUDA
#define A_FMA(a, b, c) __fmaf_rn((a), (b), (c))
#define A_SQRT(a)      __fsqrt_rn(a)
#define A_FLOOR(a)     floorf(a)
#define A_CEIL(a)      ceilf(a)
#define A_TRUNC(a)     truncf(a)
#define A_RINT(a)      rintf(a)
#else
#define A_FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#define A_SQRT(a)      __builtin_sqrtf(a)
#define A_FLOOR(a)     __builtin_floorf(a)
#define A_CEIL(a)      __builtin_ceilf(a)
#define A_TRUNC(a)     __builtin_truncf(a)
#define A_RINT(a)      __builtin_rintf(a)
#endif

A_FN uint32_t a_bits(float x)
{
#if A_CUDA
    return __float_as_uint(x);
#else
    uint32_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
#endif
}

A_FN float a_float(uint32_t u)
{
#if A_CUDA
    return __uint_as_float(u);
#else
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
#endif
}

/* Rounds to `m` mantissa bits with exponents from `low` (biased as in f32) up: adding and taking
 * away a power of two 2^(23-m) above x drops exactly the bits below the last one kept. Wants the
 * bits of a finite |x|; results above the type's range are the caller's to replace. */
A_FN uint32_t a_round_magnitude(uint32_t u, uint32_t m, uint32_t low)
{
    uint32_t exponent = u & 0x7f800000u;
    uint32_t power = (exponent > low << 23 ? exponent : low << 23) + ((23u - m) << 23);
    float anchor = a_float(power);
    return a_bits((a_float(u) + anchor) - anchor);
}

/* The bits (without sign) of a type with `m` mantissa bits and exponent bias `bias`; carries into
 * the exponent come out right, values above the range are the caller's to cut. */
A_FN uint32_t a_narrow(uint32_t u, uint32_t m, uint32_t bias)
{
    uint32_t shift = 23u - m;
    uint32_t normal = (u + ((1u << (shift - 1u)) - 1u) + ((u >> shift) & 1u)) >> shift;
    uint32_t anchor = (127u + 24u - bias - m) << 23;
    uint32_t tiny = a_bits(a_float(u) + a_float(anchor)) - anchor;
    return u < (128u - bias) << 23 ? tiny : normal - ((127u - bias) << m);
}

/* ---- bf16 ---- */
A_FN float from_bf16(uint16_t h)
{
    return a_float((uint32_t)h << 16);
}

A_FN float round_bf16(float x)
{
    uint32_t u = a_bits(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return a_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : r);
}

A_FN uint16_t to_bf16(float x)
{
    return (uint16_t)(a_bits(round_bf16(x)) >> 16);
}

/* An f32 in two halves: high, a bf16 (nearest, ties away from zero, so that the 2^16 numbers around
 * each bf16 differ in their low half), and the low 16 bits. join gives the f32 back bit for bit;
 * every NaN is one NaN. */
A_FN float high_bf16(float x)
{
    uint32_t u = a_bits(x);
    uint32_t r = (u + 0x8000u) & 0xffff0000u;
    return a_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : r);
}

A_FN float rest_bf16(float x)
{
    uint32_t u = a_bits(x);
    return (float)(int32_t)((u & 0x7fffffffu) > 0x7f800000u ? 0u : u & 0xffffu);
}

A_FN float join_bf16(float high, float rest)
{
    float whole = rest > 0.0f ? (rest < 65535.0f ? rest : 65535.0f) : 0.0f; /* NaN: 0 */
    uint32_t u = a_bits(high), low = (uint32_t)(int32_t)whole;
    return a_float((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u
                                                   : u + low - ((low & 0x8000u) << 1));
}

/* To one of the two bf16 around x: away from zero when the random number in [0, 1) is below the
 * share that is cut off, counted in 2^-16. Infinities and NaN stay. */
A_FN float stochastic_bf16(float x, float random)
{
    float share = random > 0.0f ? (random < 1.0f ? random : 0x1.fffffep-1f) : 0.0f;
    uint32_t u = a_bits(x), r = (u + (uint32_t)(int32_t)(share * 65536.0f)) & 0xffff0000u;
    uint32_t special = (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u;
    return a_float((u & 0x7f800000u) == 0x7f800000u ? special : r);
}

/* ---- f16 ---- */
A_FN float from_f16(uint16_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16;
    uint32_t u = ((uint32_t)h & 0x7fffu) << 13;
    uint32_t normal = u + (112u << 23);
    uint32_t tiny = a_bits(a_float(u + (113u << 23)) - a_float(113u << 23));
    uint32_t r = u < (1u << 23) ? tiny : normal;
    return a_float(sign | (u >= (31u << 23) ? u + (224u << 23) : r));
}

A_FN float round_f16(float x)
{
    uint32_t sign = a_bits(x) & 0x80000000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u >= 0x477ff000u ? 0x7f800000u : a_round_magnitude(u, 10u, 113u));
    return a_float(u > 0x7f800000u ? 0x7fc00000u : r);
}

A_FN uint16_t to_f16(float x)
{
    uint32_t sign = (a_bits(x) >> 16) & 0x8000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u >= 0x477ff000u ? 0x7c00u : a_narrow(u, 10u, 15u));
    return (uint16_t)(u > 0x7f800000u ? 0x7e00u : r);
}

/* ---- f8e4m3: no infinities; 448 is the largest, beyond 464 NaN or, saturating, 448 ---- */
A_FN float from_f8e4m3(uint8_t h)
{
    uint32_t sign = ((uint32_t)h & 0x80u) << 24;
    uint32_t u = ((uint32_t)h & 0x7fu) << 20;
    uint32_t normal = u + (120u << 23);
    uint32_t tiny = a_bits(a_float(u + (121u << 23)) - a_float(121u << 23));
    uint32_t r = u < (1u << 23) ? tiny : normal;
    return a_float(sign | (u == 0x7f00000u ? 0x7fc00000u : r));
}

A_FN float round_f8e4m3(float x)
{
    uint32_t sign = a_bits(x) & 0x80000000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u > 0x43e80000u ? 0x7fc00000u : a_round_magnitude(u, 3u, 121u));
    return a_float(u > 0x7f800000u ? 0x7fc00000u : r);
}

A_FN float round_f8e4m3_sat(float x)
{
    uint32_t sign = a_bits(x) & 0x80000000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | a_round_magnitude(u > 0x43e00000u ? 0x43e00000u : u, 3u, 121u);
    return a_float(u > 0x7f800000u ? 0x7fc00000u : r);
}

A_FN uint8_t to_f8e4m3(float x)
{
    uint32_t sign = (a_bits(x) >> 24) & 0x80u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u > 0x43e80000u ? 0x7fu : a_narrow(u, 3u, 7u));
    return (uint8_t)(u > 0x7f800000u ? 0x7fu : r);
}

A_FN uint8_t to_f8e4m3_sat(float x)
{
    uint32_t sign = (a_bits(x) >> 24) & 0x80u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | a_narrow(u > 0x43e00000u ? 0x43e00000u : u, 3u, 7u);
    return (uint8_t)(u > 0x7f800000u ? 0x7fu : r);
}

/* ---- f8e5m2: the upper byte of f16; 57344 is the largest, from 61440 infinity or 57344 ---- */
A_FN float from_f8e5m2(uint8_t h)
{
    return from_f16((uint16_t)((uint32_t)h << 8));
}

A_FN float round_f8e5m2(float x)
{
    uint32_t sign = a_bits(x) & 0x80000000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u >= 0x47700000u ? 0x7f800000u : a_round_magnitude(u, 2u, 113u));
    return a_float(u > 0x7f800000u ? 0x7fe00000u : r);
}

A_FN float round_f8e5m2_sat(float x)
{
    uint32_t sign = a_bits(x) & 0x80000000u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | a_round_magnitude(u > 0x47600000u ? 0x47600000u : u, 2u, 113u);
    return a_float(u > 0x7f800000u ? 0x7fe00000u : r);
}

A_FN uint8_t to_f8e5m2(float x)
{
    uint32_t sign = (a_bits(x) >> 24) & 0x80u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | (u >= 0x47700000u ? 0x7cu : a_narrow(u, 2u, 15u));
    return (uint8_t)(u > 0x7f800000u ? 0x7fu : r);
}

A_FN uint8_t to_f8e5m2_sat(float x)
{
    uint32_t sign = (a_bits(x) >> 24) & 0x80u, u = a_bits(x) & 0x7fffffffu;
    uint32_t r = sign | a_narrow(u > 0x47600000u ? 0x47600000u : u, 2u, 15u);
    return (uint8_t)(u > 0x7f800000u ? 0x7fu : r);
}

/* ---- from f64 and i64 to the narrow floats ----
 * Rounding to odd on the way to f32 keeps "exact" and "which side of a tie" visible, so the second
 * rounding, to at most 11 bits, is the only one that counts. */
A_FN float a_odd_f64(double x)
{
    float near = (float)x;
    double back = (double)near;
    double size = x < 0.0 ? -x : x, back_size = back < 0.0 ? -back : back;
    uint32_t u = a_bits(near) - (back_size > size ? 1u : 0u);
    return a_float(u | (back != x ? 1u : 0u));
}

/* As above: at most 53 bits, the lowest one odd when anything was cut. */
A_FN double a_odd_i64(int64_t x)
{
    uint64_t size = x < 0 ? 0u - (uint64_t)x : (uint64_t)x;
    uint64_t cut = (size >> 11) | ((size & 0x7ffu) != 0u ? 1u : 0u);
    int large = size >> 53 != 0u;
    double d = (double)(int64_t)(large ? cut : size) * (large ? 2048.0 : 1.0);
    return x < 0 ? -d : d;
}

#define A_WIDE(bits_type, to_name, round_name)                                                     \
    A_FN bits_type to_name##_f64(double x)                                                         \
    {                                                                                              \
        return to_name(a_odd_f64(x));                                                              \
    }                                                                                              \
    A_FN double round_name##_f64(double x)                                                         \
    {                                                                                              \
        return (double)round_name(a_odd_f64(x));                                                   \
    }                                                                                              \
    A_FN bits_type to_name##_i64(int64_t x)                                                        \
    {                                                                                              \
        return to_name(a_odd_f64(a_odd_i64(x)));                                                   \
    }
A_WIDE(uint16_t, to_f16, round_f16)
A_WIDE(uint16_t, to_bf16, round_bf16)
A_WIDE(uint8_t, to_f8e4m3, round_f8e4m3)
A_WIDE(uint8_t, to_f8e5m2, round_f8e5m2)
A_WIDE(uint8_t, to_f8e4m3_sat, round_f8e4m3_sat)
A_WIDE(uint8_t, to_f8e5m2_sat, round_f8e5m2_sat)

/* ---- to integers: toward zero, NaN is 0, out of range is the nearest bound ---- */
A_FN int32_t to_i32_f32(float x)
{
    int above = x >= 2147483648.0f;
    float inside = x >= -2147483648.0f && !above ? x : 0.0f;
    int32_t r = (int32_t)inside;
    r = above ? 0x7fffffff : r;
    return x < -2147483648.0f ? -0x7fffffff - 1 : r;
}

A_FN int64_t to_i64_f32(float x)
{
    int above = x >= 9223372036854775808.0f;
    float inside = x >= -9223372036854775808.0f && !above ? x : 0.0f;
    int64_t r = (int64_t)inside;
    r = above ? 0x7fffffffffffffff : r;
    return x < -9223372036854775808.0f ? -0x7fffffffffffffff - 1 : r;
}

A_FN uint8_t to_u8_f32(float x)
{
    float low = x > 0.0f ? x : 0.0f;
    return (uint8_t)(int32_t)(low < 255.0f ? low : 255.0f);
}

A_FN uint8_t to_bool_f32(float x)
{
    return x != 0.0f ? 1 : 0;
}

A_FN int32_t to_i32_f64(double x)
{
    double low = x > -2147483648.0 ? x : -2147483648.0;
    double inside = low < 2147483647.0 ? low : 2147483647.0;
    return (int32_t)(x != x ? 0.0 : inside);
}

A_FN int64_t to_i64_f64(double x)
{
    int above = x >= 9223372036854775808.0;
    double inside = x >= -9223372036854775808.0 && !above ? x : 0.0;
    int64_t r = (int64_t)inside;
    r = above ? 0x7fffffffffffffff : r;
    return x < -9223372036854775808.0 ? -0x7fffffffffffffff - 1 : r;
}

A_FN uint8_t to_u8_f64(double x)
{
    double low = x > 0.0 ? x : 0.0;
    return (uint8_t)(int32_t)(low < 255.0 ? low : 255.0);
}

A_FN uint8_t to_bool_f64(double x)
{
    return x != 0.0 ? 1 : 0;
}

/* Integers wrap, as two's complement. */
A_FN int32_t to_i32_i64(int64_t x)
{
    return (int32_t)(uint32_t)(uint64_t)x;
}

A_FN uint8_t to_u8_i64(int64_t x)
{
    return (uint8_t)(uint64_t)x;
}

A_FN uint8_t to_bool_i64(int64_t x)
{
    return x != 0 ? 1 : 0;
}

#endif
