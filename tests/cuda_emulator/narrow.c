/* Narrow floating-point formats, generic and slow: a double to any of them in any rounding, and
 * back. scalar.h has fast versions for f16 and bf16 that a test compares with these. */
#include "scalar.h"

const struct narrow_format format_f16 = {10, 5, 0}, format_bf16 = {7, 8, 0},
                           format_e4m3 = {3, 4, 1}, format_e5m2 = {2, 5, 0},
                           format_tf32 = {10, 8, 0};

static int bias_of(const struct narrow_format *f)
{
    return (1 << (f->exponent_bits - 1)) - 1;
}

/* Code of the largest finite value; the one above it is infinity, or NaN for e4m3. */
static uint32_t largest(const struct narrow_format *f)
{
    uint32_t all = (1u << (f->exponent_bits + f->mantissa_bits)) - 1;
    return f->is_fn ? all - 1 : all - (1u << f->mantissa_bits);
}

/* Whether a value between two codes goes to the upper one: remainder in units of 2^-54 of the step.
 */
static int rounds_up(enum rounding rounding, int is_negative, int is_odd, double remainder)
{
    switch (rounding) {
    case ROUND_NEAREST:
        return remainder > 0.5 || (remainder == 0.5 && is_odd);
    case ROUND_AWAY:
        return remainder >= 0.5;
    case ROUND_DOWN:
        return is_negative && remainder > 0;
    case ROUND_UP:
        return !is_negative && remainder > 0;
    case ROUND_ZERO:
        break;
    }
    return 0;
}

uint32_t narrow(const struct narrow_format *f, double d, enum rounding rounding, int to_largest)
{
    int bias = bias_of(f), is_negative = signbit(d) != 0, exponent;
    uint32_t sign = (uint32_t)is_negative << (f->exponent_bits + f->mantissa_bits);
    uint32_t all = (1u << (f->exponent_bits + f->mantissa_bits)) - 1, most = largest(f);
    if (isnan(d)) {
        return all; /* the canonical NaN: every bit but the sign */
    }
    uint32_t beyond = to_largest ? most : most + 1; /* what lies above the range */
    if (isinf(d)) {
        return sign | beyond;
    }
    frexp(d, &exponent); /* |d| in [2^(exponent-1), 2^exponent) */
    int lowest = 1 - bias, e = exponent - 1 < lowest || d == 0 ? lowest : exponent - 1;
    double units = ldexp(fabs(d), f->mantissa_bits - e), whole = floor(units);
    if (whole >= ldexp(1, f->mantissa_bits + 1)) {
        return sign | beyond;
    }
    uint32_t code = (uint32_t)whole;
    code += (uint32_t)rounds_up(rounding, is_negative, code & 1u, units - whole);
    /* a code is exponent and mantissa in one number: the implicit bit counts as one exponent step
     */
    uint64_t bits = (uint64_t)(uint32_t)(e - lowest) << f->mantissa_bits;
    bits += code;
    if (bits > most) {
        int stays = rounding == ROUND_ZERO || (rounding == ROUND_DOWN && !is_negative) ||
                    (rounding == ROUND_UP && is_negative);
        return sign | (stays ? most : beyond);
    }
    return sign | (uint32_t)bits;
}

double widen(const struct narrow_format *f, uint32_t bits)
{
    uint32_t width = (uint32_t)(f->exponent_bits + f->mantissa_bits), all = (1u << width) - 1;
    uint32_t magnitude = bits & all, exponent = magnitude >> f->mantissa_bits;
    uint32_t fraction = magnitude & ((1u << f->mantissa_bits) - 1);
    double value;
    if (magnitude > largest(f)) {
        value = f->is_fn || fraction ? (double)NAN : (double)INFINITY;
    } else if (exponent) {
        value = ldexp((double)(fraction + (1u << f->mantissa_bits)),
                      (int)exponent - bias_of(f) - f->mantissa_bits);
    } else {
        value = ldexp((double)fraction, 1 - bias_of(f) - f->mantissa_bits);
    }
    return bits >> width & 1u ? -value : value;
}
