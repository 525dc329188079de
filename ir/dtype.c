/* Element types and the conversions of single elements, through double, that the parser, the oracle
 * and the loaders use. Kernels use the prelude's own; a test holds both against each other for
 * every input. */
#include "dtype.h"

#include <math.h>
#include <string.h>

const struct dtype_row dtype_info[N_DTYPES] = {
    [DTYPE_NONE] = {"none", 0, CLASS_B, "void", "void", "NONE", 0, 0, 0},
#define X(id, name, bytes, class, storage, compute, safetensors, epsilon, max, normal)             \
    [id] = {name, bytes, CLASS_##class, storage, compute, safetensors, epsilon, max, normal},
#include "dtype.def"
#undef X
};

enum dtype dtype_named(const char *name, size_t length)
{
    for (int t = 1; t < N_DTYPES; t++) {
        if (strlen(dtype_info[t].name) == length && memcmp(dtype_info[t].name, name, length) == 0) {
            return (enum dtype)t;
        }
    }
    return DTYPE_NONE;
}

enum dtype dtype_compute(enum dtype t)
{
    if (t == F64) {
        return F64;
    }
    return dtype_is_float(t) ? F32 : I64;
}

enum dtype dtype_promote(enum dtype a, enum dtype b)
{
    if (a == b || b == DTYPE_NONE) {
        return a;
    }
    if (a == DTYPE_NONE) {
        return b;
    }
    if (dtype_is_float(a) != dtype_is_float(b)) {
        return dtype_is_float(a) ? a : b;
    }
    if (!dtype_is_float(a)) { /* rows of dtype.def stand in widening order */
        return a > b ? a : b;
    }
    if (dtype_info[a].bytes == dtype_info[b].bytes) {
        return F32;
    }
    return dtype_info[a].bytes > dtype_info[b].bytes ? a : b;
}

/* A float format of 1 sign bit, e exponent bits and m mantissa bits; finite_only is the OCP "fn"
 * kind. */
struct format {
    int e, m;
    bool finite_only;
};

static struct format format_of(enum dtype t)
{
    switch ((int)t) {
    case F8E4M3:
        return (struct format){4, 3, true};
    case F8E5M2:
        return (struct format){5, 2, false};
    case F16:
        return (struct format){5, 10, false};
    default:
        return (struct format){8, 7, false};
    }
}

static double decode(struct format f, uint32_t bits)
{
    int bias = (1 << (f.e - 1)) - 1;
    uint32_t mantissa = bits & ((1U << f.m) - 1U);
    int exponent = (int)(bits >> f.m) & ((1 << f.e) - 1);
    double sign = bits >> (f.e + f.m) ? -1.0 : 1.0;
    if (exponent == (1 << f.e) - 1) {
        if (f.finite_only ? mantissa == (1U << f.m) - 1U : mantissa != 0) {
            return (double)NAN;
        }
        if (!f.finite_only) {
            return sign * HUGE_VAL;
        }
    }
    if (exponent == 0) {
        return sign * ldexp(mantissa, 1 - bias - f.m);
    }
    return sign * ldexp(mantissa + (double)(1U << f.m), exponent - bias - f.m);
}

static uint32_t encode(struct format f, double value)
{
    int bias = (1 << (f.e - 1)) - 1;
    uint32_t sign = signbit(value) ? 1U << (f.e + f.m) : 0;
    uint32_t top = ((1U << f.e) - 1U) << f.m;
    if (isnan(value)) {
        return f.finite_only ? top | ((1U << f.m) - 1U) : top | (1U << (f.m - 1));
    }
    double magnitude = fabs(value);
    uint32_t overflow = f.finite_only ? top | ((1U << f.m) - 1U) : top;
    int exponent = 0;
    if (isinf(value)) {
        return sign | overflow;
    }
    frexp(magnitude, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    if (magnitude == 0.0 || exponent > bias + 1) {
        return magnitude == 0.0 ? sign : sign | overflow;
    }
    /* nearbyint under the default mode is nearest, ties to even; a carry into the exponent is part
     * of the sum. */
    double units = nearbyint(ldexp(magnitude, f.m - exponent));
    uint32_t bits = (uint32_t)units;
    bits = (uint32_t)((exponent + bias - 1) * (1 << f.m)) + bits;
    return sign | (bits >= overflow ? overflow : bits);
}

double dtype_load(enum dtype t, const void *element)
{
    uint16_t half;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    switch ((int)t) {
    case BOOL:
    case U8:
        return *(const uint8_t *)element;
    case I32:
        memcpy(&i32, element, sizeof i32);
        return i32;
    case I64:
        memcpy(&i64, element, sizeof i64);
        return (double)i64;
    case F8E4M3:
    case F8E5M2:
        return decode(format_of(t), *(const uint8_t *)element);
    case F16:
    case BF16:
        memcpy(&half, element, sizeof half);
        return decode(format_of(t), half);
    case F32:
        memcpy(&f32, element, sizeof f32);
        return (double)f32;
    default:
        memcpy(&f64, element, sizeof f64);
        return f64;
    }
}

/* Truncates toward zero; NaN gives 0 and values out of range the nearest bound, as every integer
 * cast here does. */
static int64_t to_integer(double value, double low, double high, int64_t top)
{
    if (isnan(value)) {
        return 0;
    }
    if (value >= high) {
        return top;
    }
    return value <= low ? (int64_t)low : (int64_t)value;
}

void dtype_store(enum dtype t, void *element, double value)
{
    uint16_t half;
    int32_t i32;
    int64_t i64;
    float f32;
    switch ((int)t) {
    case BOOL:
        *(uint8_t *)element = value != 0.0;
        break;
    case U8:
        *(uint8_t *)element = (uint8_t)to_integer(value, 0.0, 255.0, 255);
        break;
    case I32:
        i32 = (int32_t)to_integer(value, -2147483648.0, 2147483647.0, INT32_MAX);
        memcpy(element, &i32, sizeof i32);
        break;
    case I64:
        i64 = to_integer(value, -9223372036854775808.0, 9223372036854775808.0, INT64_MAX);
        memcpy(element, &i64, sizeof i64);
        break;
    case F8E4M3:
    case F8E5M2:
        *(uint8_t *)element = (uint8_t)encode(format_of(t), value);
        break;
    case F16:
    case BF16:
        half = (uint16_t)encode(format_of(t), value);
        memcpy(element, &half, sizeof half);
        break;
    case F32:
        f32 = (float)value;
        memcpy(element, &f32, sizeof f32);
        break;
    default:
        memcpy(element, &value, sizeof value);
        break;
    }
}
