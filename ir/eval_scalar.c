/* The scalar side of the oracle: the meaning column of ops.def once in double and once in wrapping
 * int64_t, and the random numbers, from the published Philox rounds. Nothing here is shared with
 * the prelude of the kernels, which this judges. */
#include <math.h>

#include "eval_internal.h"

#define K(x)          (x)
#define ADD(a, b)     ((a) + (b))
#define SUB(a, b)     ((a) - (b))
#define MUL(a, b)     ((a) * (b))
#define NEG(a)        (-(a))
#define ABS(a)        fabs(a)
#define MIN(a, b)     ((a) != (a) || (a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) != (a) || (a) > (b) ? (a) : (b))
#define EXP(a)        exp(a)
#define EXPM1(a)      expm1(a)
#define LOG(a)        log(a)
#define LOG1P(a)      log1p(a)
#define SQRT(a)       sqrt(a)
#define POW(a, b)     pow((a), (b))
#define TANH(a)       tanh(a)
#define ERF(a)        erf(a)
#define SIGMOID(a)    sigmoid(a)
#define SIN(a)        sin(a)
#define COS(a)        cos(a)
#define ATAN(a)       atan(a)
#define ATAN2(a, b)   atan2((a), (b))
#define FLOOR(a)      floor(a)
#define CEIL(a)       ceil(a)
#define ROUND(a)      nearbyint(a)
#define POW2_FLOOR(a) pow2_floor(a)
#define POW2_CEIL(a)  pow2_ceil(a)
#define E8M0(a)       e8m0(a)
#define SIGN(a)       ((a) > 0.0 ? 1.0 : (a) < 0.0 ? -1.0 : (a) != (a) ? (a) : 0.0)
#define RELU(a)       ((a) > 0.0 || (a) != (a) ? (a) : 0.0)
#define IS_FINITE(a)  (isfinite(a) != 0)

#define HIGH(a)       bf16_high(a)
#define REST(a)       bf16_rest(a)
#define JOIN(a, b)    bf16_join((a), (b))
#define STOCH(a, b)   bf16_stochastic((a), (b))

/* e^a first where a < 0: no overflow on either side. */
static double sigmoid(double a)
{
    return a >= 0.0 ? 1.0 / (1.0 + exp(-a)) : exp(a) / (1.0 + exp(a));
}

/* m 2^n with m in [1/2, 1): 2^(n-1) lies below, 2^n above. */
static double pow2_floor(double a)
{
    int n;
    return !(a > 0.0) || isinf(a) ? a : (frexp(a, &n), ldexp(0.5, n));
}

static double pow2_ceil(double a)
{
    int n;
    return !(a > 0.0) || isinf(a) ? a : frexp(a, &n) > 0.5 ? ldexp(1.0, n) : ldexp(0.5, n);
}

static double e8m0(double a)
{
    int n;
    double x = fabs((double)(float)a);
    (void)frexp(x, &n);
    return !isfinite(x) ? 255.0 : x < 0x1p-126 ? 0.0 : n + 126;
}

/* ---- halves of an f32 ---- */

/* The distance of the bf16 around a finite x. */
static double bf16_step(double x)
{
    int exponent = 0;
    (void)frexp(x, &exponent);
    return ldexp(1.0, (x == 0.0 || exponent < -125 ? -125 : exponent) - 8);
}

static double as_f32(double x)
{
    return (double)(float)x;
}

static double bf16_overflowing(double x)
{
    return fabs(x) >= 0x1p128 ? copysign(HUGE_VAL, x) : x;
}

static double bf16_high(double x)
{
    x = as_f32(x);
    return isfinite(x) ? bf16_overflowing(round(x / bf16_step(x)) * bf16_step(x)) : x;
}

/* How far x lies beyond the bf16 below it in magnitude, in 2^-16 of the way to the next. */
static double bf16_rest(double x)
{
    x = as_f32(x);
    return isfinite(x) ? fmod(fabs(x), bf16_step(x)) / bf16_step(x) * 65536.0 : 0.0;
}

/* Half the rest or more means that high was rounded up to, maybe over a power of two. */
static double bf16_join(double high, double rest)
{
    high = as_f32(high);
    if (isnan(high) || (isinf(high) && !(rest >= 32768.0))) {
        return high;
    }
    double top = isinf(high) ? 0x1p128 : fabs(high);
    double below = rest >= 32768.0 ? top - bf16_step(nextafter(top, 0.0)) : top;
    return copysign(below + rest / 65536.0 * bf16_step(below), high);
}

static double bf16_stochastic(double x, double random)
{
    x = as_f32(x);
    if (!isfinite(x)) {
        return x;
    }
    double step = bf16_step(x), below = trunc(x / step) * step;
    bool is_up = bf16_rest(x) + floor(random * 65536.0) >= 65536.0;
    return bf16_overflowing(is_up ? below + copysign(step, x) : below);
}

/* A selector a kind and types: rows that a table wants expand to one case of its switch. */
#define SKIP(name, meaning)
#define KIND_LEAF(types, name, meaning)
#define KIND_ELEMENTWISE(types, name, meaning) TAKE_##types(name, meaning)
#define KIND_REDUCTION(types, name, meaning)   TAKE_##types(name, meaning)
#define KIND_CONTRACTION(types, name, meaning)
#define KIND_VIEW(types, name, meaning)
#define KIND_INDEX(types, name, meaning)
#define KIND_RANDOM(types, name, meaning)
#define KIND_COMPOSITE(types, name, meaning)
#define KIND_TRAINING(types, name, meaning)
#define OP(name, min, max, kind, types, shape, cuda, cpu, grad, attrs, meaning, doc)               \
    KIND_##kind(types, name, meaning)
#define CASE(name, meaning)                                                                        \
    case OP_##name:                                                                                \
        return (double)(meaning);
#define CHOICE(name, meaning)                                                                      \
    case OP_##name:                                                                                \
        return a != 0 ? b : c;

#define TAKE_F   CASE
#define TAKE_FI  CASE
#define TAKE_C   CASE
#define TAKE_X   CASE
#define TAKE_ANY SKIP
#define TAKE_W   CHOICE
#define TAKE_B   SKIP
double eval_scalar(enum op op, double a, double b, double c)
{
    if (op_info[op].types == TYPES_B) {
        return eval_scalar_i64(op, a, b);
    }
    switch (op) {
#include "ops.def"
    default:
        return (double)NAN;
    }
}

/* ---- the same in int64_t, wrapping ---- */

#undef ADD
#undef SUB
#undef MUL
#undef NEG
#undef ABS
#undef MIN
#undef MAX
#undef SIGN
#undef RELU
#undef IS_FINITE
#define ADD(a, b)    wrap((uint64_t)(a) + (uint64_t)(b))
#define SUB(a, b)    wrap((uint64_t)(a) - (uint64_t)(b))
#define MUL(a, b)    wrap((uint64_t)(a) * (uint64_t)(b))
#define NEG(a)       wrap(0U - (uint64_t)(a))
#define ABS(a)       ((a) < 0 ? NEG(a) : (a))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
#define SIGN(a)      (((a) > 0) - ((a) < 0))
#define RELU(a)      ((a) > 0 ? (a) : 0)
#define IS_FINITE(a) true

static int64_t wrap(uint64_t bits)
{
    return (int64_t)bits;
}

static int64_t to_i64(double x)
{
    return x >= 9223372036854775808.0    ? INT64_MAX
           : x >= -9223372036854775808.0 ? (int64_t)x
                                         : INT64_MIN;
}

#undef TAKE_F
#undef TAKE_B
#undef TAKE_W
#define TAKE_F SKIP
#define TAKE_B CASE
#define TAKE_W SKIP
double eval_scalar_i64(enum op op, double x, double y)
{
    int64_t a = to_i64(x), b = to_i64(y);
    switch (op) {
#include "ops.def"
    default:
        return (double)NAN;
    }
}

/* ---- random numbers: Philox 4x32-10 ---- */

struct block {
    uint32_t word[4];
};

static struct block philox(uint64_t index, uint64_t stream, uint64_t seed)
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53U * c[0], p1 = (uint64_t)0xCD9E8D57U * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return (struct block){{c[0], c[1], c[2], c[3]}};
}

static double uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (philox(index >> 2, stream, seed).word[index & 3U] >> 8) * 0x1p-24;
}

/* Box and Muller; 1 - u lies in (0, 1]. */
static double normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double u = uniform(seed, stream, 2 * index), t = uniform(seed, stream, 2 * index + 1);
    return sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * t);
}

void eval_random(const struct eval *e, const struct node *n, int64_t count, double *out)
{
    uint64_t seed = (uint64_t)to_i64(e->values[n->operands[0].id][0]);
    uint64_t stream = (uint64_t)node_int(n, "stream");
    for (int64_t i = 0; i < count; i++) {
        double x = n->op == OP_normal ? normal(seed, stream, (uint64_t)i)
                                      : uniform(seed, stream, (uint64_t)i);
        out[i] = eval_rounded(e, F32, x);
    }
}
