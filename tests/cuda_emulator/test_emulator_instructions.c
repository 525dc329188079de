/* Single instructions of PTX against C: each row becomes a kernel of its own, runs over 4096
 * operand triples (every kind of float, small and large integers) and is compared bit by bit. The
 * reference is C's own arithmetic, libm, fesetround for the directed roundings, and for the narrow
 * formats the slow conversions of narrow.c, which test_formats holds against the definition of
 * "nearest". */
#include "test_support.h"

#include <fenv.h>
#include <math.h>

#include "scalar.h"

#define N       4096

/* Operands as the row sees them: low 32 bits, 16 bits, floats, doubles. */
#define U(v)    ((uint32_t)(v))
#define S(v)    ((int32_t)(uint32_t)(v))
#define L(v)    ((int64_t)(v))
#define H(v)    ((uint16_t)(v))
#define F(v)    float_of((uint32_t)(v))
#define D(v)    double_of(v)
#define F16(v)  ((long double)widen(&format_f16, H(v)))
#define BF16(v) widen(&format_bf16, H(v))
#define FB(v)   store_f32(v)
#define DB(v)   store_f64(v)

/* Exact to f16 or bf16: the long double holds every sum and product of two of them. */
static uint64_t half(const struct narrow_format *f, long double exact)
{
    double d = (double)exact;
    return narrow(f, isfinite(d) ? make_odd(d, (double)(exact - (long double)d)) : d, ROUND_NEAREST,
                  0);
}

static uint64_t directed(int mode, int op, float a, float b, float c)
{
    volatile float x = a, y = b, z = c, r;
    fesetround(mode);
    switch (op) {
    case '+':
        r = x + y;
        break;
    case '*':
        r = x * y;
        break;
    case '/':
        r = x / y;
        break;
    case 'f':
        r = fmaf(x, y, z);
        break;
    default:
        r = sqrtf(x);
    }
    fesetround(FE_TONEAREST);
    return store_f32(r);
}

static float least(float a, float b) /* PTX: the number if the other is NaN, -0 below +0 */
{
    return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}

static uint32_t field(uint32_t a, uint32_t at, uint32_t n)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < n && i < 32; i++) {
        r |= (at + i < 32 ? a >> (at + i) & 1u : 0) << i;
    }
    return r;
}

/* instruction, kinds of d a b c (r: 32 bits, d: 64, h: 16, p: predicate), value of d from A B C */
#define ROWS(X)                                                                                    \
    X("add.rn.f32", "rrr", FB(F(A) + F(B)))                                                        \
    X("sub.f32", "rrr", FB(F(A) - F(B)))                                                           \
    X("mul.rn.f32", "rrr", FB(F(A) * F(B)))                                                        \
    X("div.rn.f32", "rrr", FB(F(A) / F(B)))                                                        \
    X("sqrt.rn.f32", "rr", FB(sqrtf(F(A))))                                                        \
    X("fma.rn.f32", "rrrr", FB(fmaf(F(A), F(B), F(C))))                                            \
    X("add.rz.f32", "rrr", directed(FE_TOWARDZERO, '+', F(A), F(B), 0))                            \
    X("add.rm.f32", "rrr", directed(FE_DOWNWARD, '+', F(A), F(B), 0))                              \
    X("mul.rp.f32", "rrr", directed(FE_UPWARD, '*', F(A), F(B), 0))                                \
    X("div.rz.f32", "rrr", directed(FE_TOWARDZERO, '/', F(A), F(B), 0))                            \
    X("div.rp.f32", "rrr", directed(FE_UPWARD, '/', F(A), F(B), 0))                                \
    X("fma.rm.f32", "rrrr", directed(FE_DOWNWARD, 'f', F(A), F(B), F(C)))                          \
    X("fma.rz.f32", "rrrr", directed(FE_TOWARDZERO, 'f', F(A), F(B), F(C)))                        \
    X("sqrt.rm.f32", "rr", directed(FE_DOWNWARD, 's', F(A), 0, 0))                                 \
    X("min.f32", "rrr", FB(least(F(A), F(B))))                                                     \
    X("max.f32", "rrr", FB(-least(-F(A), -F(B))))                                                  \
    X("min.NaN.f32", "rrr", isnan(F(A)) || isnan(F(B)) ? 0x7fffffffu : FB(least(F(A), F(B))))      \
    X("add.rn.f64", "ddd", DB(D(A) + D(B)))                                                        \
    X("fma.rn.f64", "dddd", DB(fma(D(A), D(B), D(C))))                                             \
    X("div.rn.f64", "ddd", DB(D(A) / D(B)))                                                        \
    X("add.f16", "hhh", half(&format_f16, F16(A) + F16(B)))                                        \
    X("mul.f16", "hhh", half(&format_f16, F16(A) * F16(B)))                                        \
    X("fma.rn.f16", "hhhh", half(&format_f16, F16(A) * F16(B) + F16(C)))                           \
    X("fma.rn.bf16x2", "rrrr",                                                                     \
      half(&format_bf16, (long double)add_odd(BF16(A) * BF16(B), BF16(C))) |                       \
          half(&format_bf16, (long double)add_odd(BF16(A >> 16) * BF16(B >> 16), BF16(C >> 16)))   \
              << 16)                                                                               \
    X("max.f16x2", "rrr",                                                                          \
      half(&format_f16, F16(A) > F16(B) || isnan(F16(B))      ? F16(A)                             \
                        : F16(A) == F16(B) && signbit(F16(B)) ? F16(A)                             \
                                                              : F16(B)) |                          \
          half(&format_f16, F16(A >> 16) > F16(B >> 16) || isnan(F16(B >> 16)) ? F16(A >> 16)      \
                            : F16(A >> 16) == F16(B >> 16) && signbit(F16(B >> 16))                \
                                ? F16(A >> 16)                                                     \
                                : F16(B >> 16))                                                    \
              << 16)                                                                               \
    X("add.rn.bf16", "hhh", half(&format_bf16, (long double)add_odd(BF16(A), BF16(B))))            \
    X("cvt.rn.f16.f32", "hr", narrow(&format_f16, (double)F(A), ROUND_NEAREST, 0))                 \
    X("cvt.rz.f16.f32", "hr", narrow(&format_f16, (double)F(A), ROUND_ZERO, 0))                    \
    X("cvt.rn.bf16.f32", "hr", narrow(&format_bf16, (double)F(A), ROUND_NEAREST, 0))               \
    X("cvt.f32.f16", "rh", FB((float)F16(A)))                                                      \
    X("cvt.f32.bf16", "rh", FB((float)BF16(A)))                                                    \
    X("cvt.rn.bf16x2.f32", "rrr",                                                                  \
      narrow(&format_bf16, (double)F(A), ROUND_NEAREST, 0) << 16 |                                 \
          narrow(&format_bf16, (double)F(B), ROUND_NEAREST, 0))                                    \
    X("cvt.rn.satfinite.e4m3x2.f32", "hrr",                                                        \
      narrow(&format_e4m3, (double)F(A), ROUND_NEAREST, 1) << 8 |                                  \
          narrow(&format_e4m3, (double)F(B), ROUND_NEAREST, 1))                                    \
    X("cvt.rn.satfinite.e5m2x2.f32", "hrr",                                                        \
      narrow(&format_e5m2, (double)F(A), ROUND_NEAREST, 1) << 8 |                                  \
          narrow(&format_e5m2, (double)F(B), ROUND_NEAREST, 1))                                    \
    X("cvt.rn.f16x2.e4m3x2", "rh",                                                                 \
      narrow(&format_f16, widen(&format_e4m3, H(A) >> 8), ROUND_NEAREST, 0) << 16 |                \
          narrow(&format_f16, widen(&format_e4m3, H(A) & 255), ROUND_NEAREST, 0))                  \
    X("cvt.rna.tf32.f32", "rr", narrow(&format_tf32, (double)F(A), ROUND_AWAY, 0) << 13)           \
    X("cvt.rn.f32.f64", "rd", FB((float)D(A)))                                                     \
    X("cvt.f64.f32", "dr", DB((double)F(A)))                                                       \
    X("cvt.rn.f32.u64", "rd", FB((float)A))                                                        \
    X("cvt.rn.f32.s64", "rd", FB((float)L(A)))                                                     \
    X("cvt.rn.f64.s64", "dd", DB((double)L(A)))                                                    \
    X("cvt.rzi.s32.f32", "rr",                                                                     \
      isnan(F(A))       ? 0                                                                        \
      : F(A) >= 0x1p31f ? INT32_MAX                                                                \
      : F(A) < -0x1p31f ? INT32_MIN                                                                \
                        : (int32_t)F(A))                                                           \
    X("cvt.rni.u32.f32", "rr",                                                                     \
      !(F(A) > 0)       ? 0                                                                        \
      : F(A) >= 0x1p32f ? UINT32_MAX                                                               \
                        : (uint32_t)rintf(F(A)))                                                   \
    X("cvt.rmi.s64.f64", "dd",                                                                     \
      isnan(D(A))      ? INT64_MIN                                                                 \
      : D(A) >= 0x1p63 ? INT64_MAX                                                                 \
      : D(A) < -0x1p63 ? INT64_MIN                                                                 \
                       : (int64_t)floor(D(A)))                                                     \
    X("cvt.rni.f32.f32", "rr", FB(rintf(F(A))))                                                    \
    X("cvt.sat.f32.f32", "rr", FB(F(A) > 0 ? fminf(F(A), 1) : 0))                                  \
    X("cvt.s32.s8", "rr", (int8_t)A)                                                               \
    X("cvt.s64.s16", "dh", (uint64_t)(int64_t)(int16_t)A)                                          \
    X("cvt.u16.u32", "hr", H(A))                                                                   \
    X("cvt.sat.s8.s32", "rr", S(A) > 127 ? 127 : S(A) < -128 ? -128 : S(A))                        \
    X("cvt.sat.u8.s32", "rr", S(A) > 255 ? 255 : S(A) < 0 ? 0 : S(A))                              \
    X("add.s32", "rrr", U(A) + U(B))                                                               \
    X("sub.u64", "ddd", A - B)                                                                     \
    X("mul.hi.s32", "rrr", U((int64_t)S(A) * S(B) >> 32))                                          \
    X("mul.wide.s32", "drr", (uint64_t)((int64_t)S(A) * S(B)))                                     \
    X("mul.wide.u16", "rhh", (uint32_t)H(A) * H(B))                                                \
    X("mad.lo.s32", "rrrr", U(A) * U(B) + U(C))                                                    \
    X("mad.wide.u32", "drrd", (uint64_t)U(A) * U(B) + C)                                           \
    X("div.u32", "rrr", U(B) ? U(A) / U(B) : UINT32_MAX)                                           \
    X("rem.s64", "ddd", L(B) == -1 || !B ? (B ? 0 : A) : (uint64_t)(L(A) % L(B)))                  \
    X("abs.s32", "rr", S(A) < 0 ? 0u - U(A) : U(A))                                                \
    X("neg.s16", "hh", H(0 - A))                                                                   \
    X("dp4a.s32.u32", "rrrr",                                                                      \
      U((int8_t)A *(int)(B & 255) + (int8_t)(A >> 8) * (int)(B >> 8 & 255) +                       \
        (int8_t)(A >> 16) * (int)(B >> 16 & 255) + (int8_t)(A >> 24) * (int)(B >> 24 & 255)) +     \
          U(C))                                                                                    \
    X("dp2a.lo.u32.u32", "rrrr", U(H(A) * (B & 255) + H(A >> 16) * (B >> 8 & 255)) + U(C))         \
    X("dp2a.hi.s32.u32", "rrrr",                                                                   \
      U((int16_t)A *(int)(B >> 16 & 255) + (int16_t)(A >> 16) * (int)(B >> 24 & 255)) + U(C))      \
    X("min.s16", "hhh", (int16_t)A < (int16_t)B ? H(A) : H(B))                                     \
    X("shl.b32", "rrr", U(B) > 31 ? 0 : U(A) << U(B))                                              \
    X("shr.s32", "rrr", S(A) >> (U(B) > 31 ? 31 : U(B)))                                           \
    X("shr.u64", "ddr", U(B) > 63 ? 0 : A >> U(B))                                                 \
    X("shf.l.wrap.b32", "rrrr", U(((B << 32 | U(A)) << (C & 31)) >> 32))                           \
    X("shf.r.clamp.b32", "rrrr", U(C) > 31 ? U(B) : U((B << 32 | U(A)) >> U(C)))                   \
    X("bfe.u32", "rrrr", field(U(A), B & 255, C & 255))                                            \
    X("popc.b64", "rd", __builtin_popcountll(A))                                                   \
    X("clz.b32", "rr", U(A) ? __builtin_clz(U(A)) : 32)                                            \
    X("bfind.s32", "rr",                                                                           \
      S(A) == 0 || S(A) == -1 ? UINT32_MAX : U(31 - __builtin_clz(U(S(A) < 0 ? ~A : A))))          \
    X("bfind.shiftamt.u32", "rr", U(A) == 0 ? UINT32_MAX : U(__builtin_clz(U(A))))                 \
    X("bfind.shiftamt.s64", "rd",                                                                  \
      A == 0 || ~A == 0 ? UINT32_MAX : U(__builtin_clzll(A >> 63 ? ~A : A)))                       \
    X("prmt.b32", "rrrr", prmt(U(A), U(B), U(C)))                                                  \
    X("and.b64", "ddd", A &B)                                                                      \
    X("not.b16", "hh", H(~A))                                                                      \
    X("selp.b32", "rrrp", C & 1 ? U(A) : U(B))                                                     \
    X("slct.s32.f32", "rrrr", F(C) >= 0 ? U(A) : U(B))                                             \
    X("copysign.f32", "rrr", (U(A) & 0x80000000u) | (U(B) & 0x7fffffffu))                          \
    X("setp.lt.f32", "prr", F(A) < F(B))                                                           \
    X("setp.gtu.f32", "prr", !(F(A) <= F(B)))                                                      \
    X("setp.nan.f32", "prr", isnan(F(A)) || isnan(F(B)))                                           \
    X("setp.ne.f32", "prr", F(A) < F(B) || F(A) > F(B))                                            \
    X("setp.le.s32", "prr", S(A) <= S(B))                                                          \
    X("setp.hi.u32", "prr", U(A) > U(B))                                                           \
    X("setp.lt.and.s32", "prrp", S(A) < S(B) && (C & 1))                                           \
    X("setp.ne.xor.u64", "pddp", (A != B) ^ (C & 1))

#define X(instruction, kinds, value) {instruction, kinds},
static const struct {
    const char *instruction, *kinds;
} rows[] = {ROWS(X)};
#undef X
#define N_ROWS (sizeof rows / sizeof *rows)

static uint64_t operands[3][N], expected[N_ROWS][N];

/* The values of all rows for one triple of operands. */
static void evaluate(uint64_t A, uint64_t B, uint64_t C, size_t at)
{
#define X(instruction, kinds, value) (uint64_t)(value),
    const uint64_t values[] = {ROWS(X)};
#undef X
    for (size_t r = 0; r < N_ROWS; r++) {
        expected[r][at] = values[r];
    }
}

/* Low and high halves are floats of every kind, doubles, or integers small and large. */
static uint64_t random_operand(uint64_t *seed)
{
    float f = random_float(seed), g = random_float(seed);
    uint64_t bits = (uint64_t)bits_of(f) << 32 | bits_of(g);
    switch (random_bits(seed) % 6) {
    case 0:
        return bits_of_double((double)f * 0.37);
    case 1:
        return random_bits(seed) % 70;
    case 2:
        return 0 - (uint64_t)(random_bits(seed) % 70);
    case 3:
        return (uint64_t)random_bits(seed) << 32 | random_bits(seed);
    default:
        return bits;
    }
}

static void prepare(void)
{
    uint64_t seed = 42;
    for (size_t i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) {
            operands[k][i] = random_operand(&seed);
        }
        operands[2][i] =
            i % 5 == 0 ? operands[0][i] ^ 0x80000000u : operands[2][i]; /* sums that cancel */
        evaluate(operands[0][i], operands[1][i], operands[2][i], i);
    }
}

static const char *register_of(char kind)
{
    return kind == 'd' ? "%rd" : kind == 'h' ? "%rs" : kind == 'p' ? "%p" : "%r";
}

/* A kernel that applies one instruction to element tid + ctaid * ntid of the three arrays. */
static void write_kernel(char *ptx, size_t size, const char *instruction, const char *kinds)
{
    char loads[600] = "", list[100] = "";
    for (size_t k = 1; kinds[k]; k++) {
        const char *type = kinds[k] == 'd' ? "u64" : kinds[k] == 'h' ? "u16" : "u32";
        snprintf(loads + strlen(loads), sizeof loads - strlen(loads),
                 "ld.global.%s %s%zu, [%%rd1%zu];\n", type,
                 kinds[k] == 'p' ? "%r2" : register_of(kinds[k]), k, k);
        if (kinds[k] == 'p') {
            snprintf(loads + strlen(loads), sizeof loads - strlen(loads),
                     "and.b32 %%r3, %%r2%zu, 1;\nsetp.ne.u32 %%p%zu, %%r3, 0;\n", k, k);
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), ", %s%zu", register_of(kinds[k]),
                 k);
    }
    const char *store = kinds[0] == 'd'   ? "st.global.u64 [%rd10], %rd0;"
                        : kinds[0] == 'h' ? "st.global.u16 [%rd10], %rs0;"
                        : kinds[0] == 'p' ? "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%rd10], %r0;"
                                          : "st.global.u32 [%rd10], %r0;";
    snprintf(ptx, size,
             ".version 8.0\n.target sm_90\n.address_size 64\n"
             ".visible .entry f(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)\n{\n"
             ".reg .pred %%p<8>;\n.reg .b16 %%rs<8>;\n.reg .b32 %%r<30>;\n.reg .b64 %%rd<30>;\n"
             "mov.u32 %%r8, %%ctaid.x;\nmov.u32 %%r9, %%ntid.x;\nmov.u32 %%r10, %%tid.x;\n"
             "mad.lo.u32 %%r11, %%r8, %%r9, %%r10;\nmul.wide.u32 %%rd9, %%r11, 8;\n"
             "ld.param.u64 %%rd20, [out];\nld.param.u64 %%rd21, [a];\nld.param.u64 %%rd22, "
             "[b];\nld.param.u64 %%rd23, [c];\n"
             "add.s64 %%rd10, %%rd20, %%rd9;\nadd.s64 %%rd11, %%rd21, %%rd9;\nadd.s64 %%rd12, "
             "%%rd22, %%rd9;\nadd.s64 %%rd13, %%rd23, %%rd9;\n"
             "%s%s %s0%s;\n%s\nret;\n}\n",
             loads, instruction, register_of(kinds[0]), list, store);
}

START_TEST(instruction)
{
    static uint64_t out[N];
    char ptx[4000];
    open_context();
    write_kernel(ptx, sizeof ptx, rows[_i].instruction, rows[_i].kinds);
    CUmodule m = module_of_text(ptx);
    CUdeviceptr to = device_array(sizeof out), from[3];
    GOOD(cuMemsetD8_v2(to, 0, sizeof out));
    for (int k = 0; k < 3; k++) {
        from[k] = device_copy(operands[k], sizeof operands[k]);
    }
    /* 50 threads a block: the second warp of each is not full */
    GOOD(launch(function_of(m, "f"), N / 50, 50, 0, (void *[]){&to, &from[0], &from[1], &from[2]}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (size_t i = 0; i < N / 50 * 50; i++) {
        char kind = rows[_i].kinds[0];
        uint64_t want = expected[_i][i] & (kind == 'd'   ? UINT64_MAX
                                           : kind == 'h' ? 0xffffu
                                                         : UINT32_MAX);
        ck_assert_msg(out[i] == want, "%s of %llx, %llx, %llx: %llx, expected %llx",
                      rows[_i].instruction, (unsigned long long)operands[0][i],
                      (unsigned long long)operands[1][i], (unsigned long long)operands[2][i],
                      (unsigned long long)out[i], (unsigned long long)want);
    }
    want_no_findings();
    GOOD(cuMemFree_v2(to));
    for (int k = 0; k < 3; k++) {
        GOOD(cuMemFree_v2(from[k]));
    }
    close_context();
}
END_TEST

/* narrow() by the definition: a code gives itself; halfway between two, the even one; just beside,
 * the nearer; directed roundings the one on their side. */
START_TEST(formats)
{
    const struct narrow_format *const all[] = {&format_f16, &format_bf16, &format_e4m3,
                                               &format_e5m2, &format_tf32};
    const struct narrow_format *f = all[_i];
    uint32_t n = (1u << (f->mantissa_bits + f->exponent_bits)) - 1, step = _i == 4 ? 97 : 1;
    for (uint32_t code = 0; code < n; code += step) {
        double low = widen(f, code), high = widen(f, code + 1);
        if (!isfinite(low) || !isfinite(high)) {
            break;
        }
        double middle = (low + high) / 2;
        uint32_t even = code & 1 ? code + 1 : code;
        ck_assert_uint_eq(narrow(f, low, ROUND_NEAREST, 0), code);
        ck_assert_uint_eq(narrow(f, middle, ROUND_NEAREST, 0), even);
        ck_assert_uint_eq(narrow(f, middle, ROUND_AWAY, 0), code + 1);
        ck_assert_uint_eq(narrow(f, nextafter(middle, 0), ROUND_NEAREST, 0), code);
        ck_assert_uint_eq(narrow(f, nextafter(middle, (double)INFINITY), ROUND_NEAREST, 0),
                          code + 1);
        ck_assert_uint_eq(narrow(f, middle, ROUND_ZERO, 0), code);
        ck_assert_uint_eq(narrow(f, middle, ROUND_UP, 0), code + 1);
        ck_assert_uint_eq(narrow(f, -middle, ROUND_DOWN, 0), (code + 1) | (n + 1));
        ck_assert_uint_eq(narrow(f, -middle, ROUND_UP, 0), code | (n + 1));
    }
    /* known values, beyond the range */
    ck_assert_uint_eq(narrow(&format_f16, 65519.0, ROUND_NEAREST, 0), 0x7bff);
    ck_assert_uint_eq(narrow(&format_f16, 65520.0, ROUND_NEAREST, 0), 0x7c00);
    ck_assert_uint_eq(narrow(&format_e4m3, 448.0, ROUND_NEAREST, 1), 0x7e);
    ck_assert_uint_eq(narrow(&format_e4m3, 1e9, ROUND_NEAREST, 1), 0x7e);
    ck_assert_uint_eq(narrow(&format_e4m3, 465.0, ROUND_NEAREST, 0), 0x7f);
    ck_assert_uint_eq(narrow(&format_e5m2, -1e9, ROUND_NEAREST, 1), 0xfb);
    ck_assert_uint_eq(narrow(&format_e5m2, 61440.0, ROUND_NEAREST, 0), 0x7c);
}
END_TEST

/* A jump table, and a barrier that reduces a predicate over the block. */
START_TEST(control)
{
    static const char ptx[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry f(.param .u64 out)\n{\n"
        ".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n"
        "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n"
        "add.s64 %rd3, %rd1, %rd2;\nand.b32 %r2, %r1, 3;\nmov.u32 %r3, 7;\n"
        "table: .branchtargets L0, L1, L2, L1;\nbrx.idx %r2, table;\n"
        "L0: add.u32 %r3, %r3, 100;\nL1: add.u32 %r3, %r3, 10;\nL2: add.u32 %r3, %r3, 1;\n"
        "setp.gt.u32 %p1, %r3, 20;\nbar.red.popc.u32 %r4, 0, %p1;\nadd.u32 %r3, %r3, %r4;\n"
        "@!%p1 add.u32 %r3, %r3, 1000;\nst.global.u32 [%rd3], %r3;\nret;\n}\n";
    uint32_t out[70];
    open_context();
    CUmodule m = module_of_text(ptx);
    CUdeviceptr to = device_array(sizeof out);
    GOOD(launch(function_of(m, "f"), 1, 70, 0, (void *[]){&to}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (uint32_t i = 0; i < 70; i++) {
        uint32_t r = i % 4 == 0 ? 118 : i % 4 == 2 ? 8 : 18;
        ck_assert_uint_eq(out[i], r + 18 + (r > 20 ? 0 : 1000)); /* 18 threads with i % 4 == 0 */
    }
    want_no_findings();
    GOOD(cuMemFree_v2(to));
    close_context();
}
END_TEST

__extension__ typedef unsigned __int128 wide_uint;

/* 128 bits through the carry flag: out = a * b + (c : a), then minus (b : c). */
START_TEST(carry)
{
    static const char ptx[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry f(.param .u64 out, .param .u64 in)\n{\n"
        ".reg .b32 %r<4>;\n.reg .b64 %rd<30>;\n"
        "ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [in];\nmov.u32 %r1, %tid.x;\n"
        "mul.wide.u32 %rd3, %r1, 32;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n"
        "ld.global.v2.u64 {%rd6, %rd7}, [%rd5];\nld.global.u64 %rd8, [%rd5+16];\n"
        "mad.lo.cc.u64 %rd9, %rd6, %rd7, %rd6;\nmadc.hi.u64 %rd10, %rd6, %rd7, %rd8;\n"
        "st.global.v2.u64 [%rd4], {%rd9, %rd10};\n"
        "sub.cc.u64 %rd11, %rd9, %rd8;\nsubc.u64 %rd12, %rd10, %rd7;\n"
        "add.cc.u64 %rd11, %rd11, %rd11;\naddc.cc.u64 %rd12, %rd12, %rd12;\n"
        "st.global.v2.u64 [%rd4+16], {%rd11, %rd12};\nret;\n}\n";
    uint64_t in[32][4], out[32][4];
    open_context();
    CUmodule m = module_of_text(ptx);
    for (int i = 0; i < 128; i++) {
        in[i / 4][i % 4] = operands[i % 3][i];
    }
    CUdeviceptr from = device_copy(in, sizeof in), to = device_array(sizeof out);
    GOOD(launch(function_of(m, "f"), 1, 32, 0, (void *[]){&to, &from}));
    GOOD(cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < 32; i++) {
        uint64_t a = in[i][0], b = in[i][1], c = in[i][2];
        wide_uint sum = (wide_uint)a * b + ((wide_uint)c << 64 | a);
        wide_uint twice = 2 * (sum - ((wide_uint)b << 64 | c));
        ck_assert_uint_eq(out[i][0], (uint64_t)sum);
        ck_assert_uint_eq(out[i][1], (uint64_t)(sum >> 64));
        ck_assert_uint_eq(out[i][2], (uint64_t)twice);
        ck_assert_uint_eq(out[i][3], (uint64_t)(twice >> 64));
    }
    want_no_findings();
    GOOD(cuMemFree_v2(from));
    GOOD(cuMemFree_v2(to));
    close_context();
}
END_TEST

/* An instruction the emulator does not know stops the load and names the line. */
START_TEST(unknown_instruction)
{
    char ptx[4000], log[600] = "";
    CUmodule m;
    CUjit_option options[] = {5, 6};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    open_context();
    write_kernel(ptx, sizeof ptx, "frobnicate.u32", "rr");
    ck_assert_uint_eq(cuModuleLoadDataEx(&m, ptx, 2, options, values), CUDA_ERROR_INVALID_PTX);
    ck_assert_str_eq(log, "ptx line 24: the emulator does not know the instruction frobnicate.u32");
    ck_assert_uint_eq(cuModuleLoadData(&m, "\177ELF"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, instruction, 0, N_ROWS);
    tcase_add_loop_test(tc, formats, 0, 5);
    tcase_add_test(tc, control);
    tcase_add_test(tc, carry);
    tcase_add_test(tc, unknown_instruction);
}

int main(void)
{
    prepare();
    return run_suite("emulator_instructions", fill);
}
