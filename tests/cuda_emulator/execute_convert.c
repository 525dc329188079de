/* cvt in all its forms, one lane at a time: the source to an exact intermediate (a 64-bit integer
 * or a double), then one rounding to the destination. Frequent forms have rows in ops_*.def. */
#include "convert.h"
#include "executor.h"
#include "parser.h"

static uint64_t read_lane(const struct warp *w, uint32_t slot, enum ptx_type type, uint32_t lane)
{
    return type_info[type].lane == 8 ? lanes64(w, slot)[lane] : lanes32(w, slot)[lane];
}

/* The integer in a register, as 64 bits: sign or zeros above it. */
static uint64_t integer_of(uint64_t bits, enum ptx_type type)
{
    uint32_t unused = 64u - 8u * type_info[type].bytes;
    return type_info[type].is_signed ? (uint64_t)((int64_t)(bits << unused) >> unused)
                                     : bits << unused >> unused;
}

static const struct narrow_format *format_of(enum ptx_type type)
{
    switch ((int)type) {
    case TYPE_f16:
    case TYPE_f16x2:
        return &format_f16;
    case TYPE_bf16:
    case TYPE_bf16x2:
        return &format_bf16;
    case TYPE_e4m3x2:
        return &format_e4m3;
    case TYPE_e5m2x2:
        return &format_e5m2;
    case TYPE_tf32:
        return &format_tf32;
    default:
        return NULL;
    }
}

static double float_value(uint64_t bits, enum ptx_type type, uint8_t saturate)
{
    if (type == TYPE_f64) {
        return double_of(bits);
    }
    if (type == TYPE_f32) {
        float f = float_of((uint32_t)bits);
        return (double)(saturate & CONVERT_FLUSH ? flush(f) : f);
    }
    return widen(format_of(type), (uint32_t)bits);
}

static double integral(double d, enum rounding rounding)
{
    switch (rounding) {
    case ROUND_ZERO:
        return trunc(d);
    case ROUND_DOWN:
        return floor(d);
    case ROUND_UP:
        return ceil(d);
    case ROUND_NEAREST:
    case ROUND_AWAY:
        break;
    }
    return rint(d);
}

/* Out of range: the nearest integer of the type. A NaN: 0, or the top bit alone where 64 bits take
 * part. */
static uint64_t to_integer(double d, enum ptx_type from, enum ptx_type to, enum rounding rounding)
{
    uint32_t bits = 8u * type_info[to].bytes;
    bool is_signed = type_info[to].is_signed;
    if (isnan(d)) {
        return from == TYPE_f64 || bits == 64 ? (uint64_t)1 << (bits - 1) : 0;
    }
    double r = integral(d, rounding), top = ldexp(1, (int)bits - is_signed);
    uint64_t most = (is_signed    ? (uint64_t)1 << (bits - 1)
                     : bits == 64 ? 0
                                  : (uint64_t)1 << bits) -
                    1;
    if (r >= top) {
        return most;
    }
    if (is_signed) {
        return r < -top ? ~most : (uint64_t)(int64_t)r;
    }
    return r <= 0 ? 0 : (uint64_t)r;
}

static uint64_t clamp_integer(uint64_t value, enum ptx_type from, enum ptx_type to)
{
    uint32_t bits = 8u * type_info[to].bytes;
    bool from_signed = type_info[from].is_signed, to_signed = type_info[to].is_signed;
    uint64_t most = to_signed    ? ((uint64_t)1 << (bits - 1)) - 1
                    : bits == 64 ? UINT64_MAX
                                 : ((uint64_t)1 << bits) - 1;
    if (from_signed && (int64_t)value < 0) {
        int64_t least = to_signed ? -(int64_t)most - 1 : 0;
        return (int64_t)value < least ? (uint64_t)least : value;
    }
    return value > most ? most : value;
}

static float to_f32(double d, enum rounding rounding)
{
    return rounding == ROUND_ZERO   ? to_f32_rz(d)
           : rounding == ROUND_DOWN ? to_f32_rm(d)
           : rounding == ROUND_UP   ? to_f32_rp(d)
                                    : (float)d;
}

/* d is exact, or odd where the destination is narrower than a double. */
static uint64_t to_float(double d, const struct instruction *in)
{
    enum ptx_type to = (enum ptx_type)in->to;
    if (in->saturate & CONVERT_INTEGRAL) {
        d = integral(d, (enum rounding)in->rounding);
    }
    if (in->saturate & CONVERT_SATURATE) {
        d = d > 0 ? (d < 1 ? d : 1) : 0;
    } else if (in->saturate & CONVERT_RELU && d < 0) {
        d = 0;
    }
    if (to == TYPE_f64) {
        return store_f64(d);
    }
    if (to == TYPE_f32) {
        float f = to_f32(d, (enum rounding)in->rounding);
        return store_f32(in->saturate & CONVERT_FLUSH ? flush(f) : f);
    }
    uint32_t bits =
        narrow(format_of(to), d, (enum rounding)in->rounding, in->saturate & CONVERT_TO_LARGEST);
    return to == TYPE_tf32 ? bits << 13 : bits;
}

/* An integer as a double: odd where bits are lost, unless the destination is f64. */
static double integer_as_double(uint64_t value, bool is_signed, const struct instruction *in)
{
    bool is_negative = is_signed && (int64_t)value < 0;
    uint64_t magnitude = is_negative ? 0 - value : value;
    double d = (double)magnitude;
    if (in->to != TYPE_f64 || in->rounding != ROUND_NEAREST) {
        /* the upper 53 bits, exactly; what is below counts as one sticky bit */
        uint32_t lost = magnitude >> 53 ? 11u - (uint32_t)__builtin_clzll(magnitude) : 0;
        uint64_t kept = magnitude >> lost;
        bool is_inexact = kept << lost != magnitude;
        bool away = is_inexact && (in->rounding == (is_negative ? ROUND_DOWN : ROUND_UP));
        kept += in->to == TYPE_f64 ? away : 0;
        d = ldexp((double)(in->to == TYPE_f64 ? kept : kept | is_inexact), (int)lost);
    }
    return is_negative ? -d : d;
}

static uint64_t convert(const struct instruction *in, uint64_t bits)
{
    enum ptx_type from = (enum ptx_type)in->from, to = (enum ptx_type)in->to;
    bool from_float = type_info[from].is_float, to_is_float = type_info[to].is_float;
    if (from_float) {
        double d = float_value(bits, from, in->saturate);
        return to_is_float ? to_float(d, in) : to_integer(d, from, to, (enum rounding)in->rounding);
    }
    uint64_t value = integer_of(bits, from);
    if (to_is_float) {
        return to_float(integer_as_double(value, type_info[from].is_signed, in), in);
    }
    value = in->saturate & CONVERT_SATURATE ? clamp_integer(value, from, to) : value;
    return integer_of(value, to);
}

/* cvt.f16x2.f32 d, a, b: a becomes the upper half, b the lower; e4m3x2 to f16x2 and back likewise.
 */
static uint64_t convert_packed(const struct instruction *in, uint64_t a, uint64_t b)
{
    uint32_t to_bits = type_info[in->to].bytes * 4u, from_bits = type_info[in->from].bytes * 4u;
    bool is_from_packed = in->from == TYPE_f16x2 || in->from == TYPE_bf16x2 ||
                          in->from == TYPE_e4m3x2 || in->from == TYPE_e5m2x2;
    uint64_t mask = ((uint64_t)1 << from_bits) - 1;
    uint64_t upper = is_from_packed ? a >> from_bits & mask : a,
             lower = is_from_packed ? a & mask : b;
    return convert(in, upper) << to_bits | convert(in, lower);
}

void run_convert(struct warp *w, const struct instruction *in)
{
    bool is_packed = in->to == TYPE_f16x2 || in->to == TYPE_bf16x2 || in->to == TYPE_e4m3x2 ||
                     in->to == TYPE_e5m2x2;
    for (uint32_t l = 0; l < LANES; l++) {
        if (!(w->bits >> l & 1u)) {
            continue;
        }
        uint64_t a = read_lane(w, in->r[1], (enum ptx_type)in->from, l);
        uint64_t b = is_packed ? read_lane(w, in->r[2], (enum ptx_type)in->from, l) : 0;
        uint64_t value = is_packed ? convert_packed(in, a, b) : convert(in, a);
        if (type_info[in->to].lane == 8) {
            lanes64(w, in->r[0])[l] = value;
        } else {
            lanes32(w, in->r[0])[l] = (uint32_t)value;
        }
    }
}
