/* Field cases of autocast and of what a compiler may not change. See cases.h. */
#include "tests/numeric/cases.h"

#define TWO_LINEARS                                                                                \
    "graph @g(%x: f32[2,2] param, %w: f32[2,2] param, %c: f32[2,2] input) {\n"                     \
    "%y0 = linear(%x, %w)\n%y1 = linear(%x, %w)\n%m = mul(%y1, %c)\n%loss = sum(%m)\n"             \
    "return loss=%loss, y0=%y0, y1=%y1\n}"
#define SCATTER                                                                                    \
    "graph @g(%base: f32[3] input, %idx: i64[3] input, %src: f16[3] input) {\n"                    \
    "%y = scatter_add(%base, %idx, %src) {axis=0}\nreturn y=%y\n}"
#define SUM_OF_N  "graph @g(%x: f16[n] input) {\n%y = sum(%x)\nreturn y=%y\n}"
#define SUM_OF_3  "graph @g(%x: f16[3] input) {\n%y = sum(%x)\nreturn y=%y\n}"
#define TIMES_BIG "graph @g(%x: f16[2] input) {\n%y = mul(%x, 65536.0)\nreturn y=%y\n}"
#define ONE_BACKWARD                                                                               \
    "graph @g(%x: f32[1,1] param, %w: f32[1,1] param, %c: bf16[1,1] input) {\n"                    \
    "%y = linear(%x, %w)\n%m = mul(%y, %c)\n%loss = sum(%m)\nreturn loss=%loss, y=%y\n}"
#define BCE                                                                                        \
    "graph @g(%x: f16[3] input, %t: f32[3] input) {\n"                                             \
    "%p = sigmoid(%x)\n%loss = binary_cross_entropy(%p, %t)\nreturn loss=%loss\n}"
#define BCE_LOGITS                                                                                 \
    "graph @g(%x: f16[3] input, %t: f32[3] input) {\n"                                             \
    "%loss = bce_with_logits(%x, %t)\nreturn loss=%loss\n}"
#define MASKED                                                                                     \
    "graph @g(%s: f16[2,3] input, %mask: bool[2,3] input) {\n"                                     \
    "%m = where(%mask, %s, -1e9)\n%p = softmax(%m)\nreturn p=%p\n}"
#define SIN_ATAN(n) "graph @g(%x: f32[" #n "] input) {\n%a = atan(%x)\n%y = sin(%a)\nreturn y=%y\n}"

#define TWO_LINEARS_DATA                                                                           \
    .wants_gradients = true, .inputs = {{"x", {1.0, 2.0, 3.0, -4.0}},                              \
                                        {"w", {0.5, -1.25, 2.0, 0.75}},                            \
                                        {"c", {1.0, -1.0, 0.5, 2.0}}}
#define SCATTER_DATA                                                                               \
    .inputs = {{"base", {1.0000009536743164, 0.0, 0.5}},                                           \
               {"idx", {0.0, 2.0, 0.0}},                                                           \
               {"src", {1.0, 0.25, 6.103515625e-05}}},                                             \
    .outputs = {{"y", {2.0000619888305664, 0.0, 0.75}, .dtype = F32}}
#define TIMES_BIG_DATA                                                                             \
    .inputs = {{"x", {0.01000213623046875, -0.01000213623046875}}},                                \
    .outputs = {{"y", {655.5, -655.5}, .dtype = F16}}
#define ONE_BACKWARD_DATA                                                                          \
    .wants_gradients = true, .inputs = {{"x", {2.0}}, {"w", {3.0}}, {"c", {70144.0}}},             \
    .outputs = {{"y", {6.0}, .dtype = BF16},                                                       \
                {"grad:w", {140288.0}, .dtype = F32},                                              \
                {"grad:x", {210944.0}, .dtype = F32}}
#define BCE_DATA .inputs = {{"x", {12.0, -17.0, 3.0}}, {"t", {0.0, 1.0, 1.0}}}
#define BCE_LOSS .outputs = {{"loss", {9.682864512388866}, .relative = 1e-6, .dtype = F32}}
#define MASKED_DATA                                                                                \
    .note = "%m = where: the number -1e+09 is beyond the largest f16, 65504",                      \
    .inputs = {{"s", {2.5, -1.0, 0.5, 0.0, 4.0, -2.0}}, {"mask", {1.0, 0.0, 1.0, 1.0, 1.0, 0.0}}}, \
    .outputs = {{"p",                                                                              \
                 {0.8807970779778824, 0.0, 0.11920292202211756, 0.01798620996209156,               \
                  0.9820137900379085, 0.0},                                                        \
                 .absolute = 2e-7,                                                                 \
                 .dtype = F32}}
#define SIN_ATAN_DATA                                                                              \
    .inputs = {{"x", {NOT, 0.75, INF, -INF, 0.0}, .count = 5}},                                    \
    .outputs = {{"y", {NOT, 0.6, 1.0, -1.0, 0.0}, .count = 5, .absolute = 2e-7}}

static const struct field_case cases[] = {
    {.id = "FC001",
     .graph = TWO_LINEARS,
     .policy = "bf16",
     TWO_LINEARS_DATA,
     .outputs = {{"y0", {-2.0, 3.5, 6.5, 3.0}, .dtype = BF16},
                 {"y1", {-2.0, 3.5, 6.5, 3.0}, .dtype = BF16},
                 {"grad:w", {2.5, 0.0, 5.0, -10.0}, .dtype = F32},
                 {"grad:x", {-1.5, -2.0, 4.25, 0.875}, .dtype = F32}}},
    {.id = "FC001 as PyTorch lists it",
     .graph = TWO_LINEARS,
     .policy = "bf16@torch-cuda",
     TWO_LINEARS_DATA,
     .outputs = {{"y1", {-2.0, 3.5, 6.5, 3.0}, .dtype = BF16},
                 {"grad:w", {2.5, 0.0, 5.0, -10.0}, .dtype = F32},
                 {"grad:x", {-1.5, -2.0, 4.25, 0.875}, .dtype = F32}}},
    {.id = "FC002", .graph = SCATTER, .policy = "fp16@torch-cuda", SCATTER_DATA},
    {.id = "FC002 own policy", .graph = SCATTER, .policy = "fp16", SCATTER_DATA},
    {.id = "FC004", .graph = TIMES_BIG, TIMES_BIG_DATA},
    {.id = "FC004 under autocast", .graph = TIMES_BIG, .policy = "fp16", TIMES_BIG_DATA},
    {.id = "FC004 as PyTorch lists it",
     .graph = TIMES_BIG,
     .policy = "fp16@torch-cpu",
     TIMES_BIG_DATA},
    {.id = "FC006, n = 3",
     .graph = SUM_OF_N,
     .policy = "fp16",
     .inputs = {{"x", {40000.0}, .count = 1, .size = 3}},
     .outputs = {{"y", {120000.0}, .dtype = F32}}},
    {.id = "FC006, n = 5",
     .graph = SUM_OF_N,
     .policy = "fp16@torch-cuda",
     .inputs = {{"x", {40000.0}, .count = 1, .size = 5}},
     .outputs = {{"y", {200000.0}, .dtype = F32}}},
    {.id = "FC006, n = 4",
     .graph = SUM_OF_N,
     .policy = "fp16@torch-cuda",
     .inputs = {{"x", {40000.0}, .count = 1, .size = 4}},
     .outputs = {{"y", {160000.0}, .dtype = F32}}},
    {.id = "FC006, a size that is known",
     .graph = SUM_OF_3,
     .policy = "fp16@torch-cuda",
     .inputs = {{"x", {40000.0}, .count = 1}},
     .outputs = {{"y", {120000.0}, .dtype = F32}}},
    {.id = "FC008", .graph = ONE_BACKWARD, .policy = "bf16", ONE_BACKWARD_DATA},
    {.id = "FC008 as PyTorch lists it",
     .graph = ONE_BACKWARD,
     .policy = "bf16@torch-cuda",
     ONE_BACKWARD_DATA},
    {.id = "FC009", .graph = BCE, .policy = "fp16", .refused = "bce_with_logits", BCE_DATA},
    {.id = "FC009 as PyTorch lists it",
     .graph = BCE,
     .policy = "fp16@torch-cuda",
     .refused = "bce_with_logits",
     BCE_DATA},
    {.id = "FC009 with logits", .graph = BCE_LOGITS, .policy = "fp16", BCE_DATA, BCE_LOSS},
    {.id = "FC009 with logits, as PyTorch lists it",
     .graph = BCE_LOGITS,
     .policy = "fp16@torch-cuda",
     BCE_DATA,
     BCE_LOSS},
    {.id = "FC010", .graph = MASKED, .policy = "fp16", MASKED_DATA},
    {.id = "FC010 as PyTorch lists it", .graph = MASKED, .policy = "fp16@torch-cuda", MASKED_DATA},
    {.id = "FC029",
     .graph = "graph @g(%x: f32[3] input) {\n"
              "%b = abs(%x)\n%m = max(%b)\n%c = maximum(%m, 1.1754943508222875e-38)\n"
              "%s = div(448.0, %c)\n%f = minimum(%s, 1.7014118346046923e+38)\n"
              "%r = reciprocal(%f)\n%q0 = mul(%x, %f)\n"
              "%q = cast(%q0) {dtype=f8e4m3, saturate=true}\n%w = cast(%q) {dtype=f32}\n"
              "%d = div(%w, %f)\n%ok = is_finite(%f)\n%kr = is_finite(%r)\n"
              "%z = slice(%d) {start=2}\nreturn d=%d, z=%z, ok=%ok, kr=%kr\n}",
     .inputs = {{"x", {7.174648137343064e-43, -3.587324068671532e-43, 0.0}}},
     .outputs = {{"d",
                  {7.174648137343064e-43, -3.587324068671532e-43, 0.0},
                  .absolute = 7.174648137343064e-43},
                 {"z", {0.0}},
                 {"ok", {1.0}},
                 {"kr", {1.0}}}},
    {.id = "FC071",
     .graph = "graph @g(%x: f32[1,2] input, %w: f32[2,1] input, %b: f32[1] input) {\n"
              "%m = matmul(%x, %w)\n%h = cast(%m) {dtype=bf16}\n%y = add(%h, %b)\n"
              "return h=%h, y=%y\n}",
     .inputs = {{"x", {1.0, 0.001953125}}, {"w", {1.0, 1.0}}, {"b", {0.25}}},
     .outputs = {{"h", {1.0}, .dtype = BF16}, {"y", {1.25}, .dtype = F32}}},
    {.id = "FC072",
     .graph = "graph @g(%x: f32[7] input) {\n"
              "%a = cast(%x) {dtype=bf16}\n%y = cast(%a) {dtype=f32}\n"
              "%b = cast(%x) {dtype=f16}\n%z = cast(%b) {dtype=f32}\nreturn y=%y, z=%z\n}",
     .inputs = {{"x",
                 {1.00390625, 1.01171875, 3.1415927410125732, -9.99994610111476e-41,
                  3.3999999521443642e+38, 9.183549615799121e-41, 0.10000000149011612}}},
     .outputs = {{"y",
                  {1.0, 1.015625, 3.140625, -9.183549615799121e-41, INF, 9.183549615799121e-41,
                   0.10009765625},
                  .has_signed_zeros = true},
                 {"z",
                  {1.00390625, 1.01171875, 3.140625, -0.0, INF, 0.0, 0.0999755859375},
                  .has_signed_zeros = true}}},
    {.id = "FC073",
     .graph = "graph @g(%x: bf16[3] input) {\n"
              "%b = abs(%x)\n%a = max(%b)\n%c = clamp(%a) {low=1e-12}\n%r = div(448.0, %c)\n"
              "%s = cast(%r) {dtype=f32}\nreturn r=%r, s=%s\n}",
     .inputs = {{"x", {1.5, -4.28125, 0.75}}},
     .outputs = {{"r", {104.5}, .dtype = BF16}, {"s", {104.5}, .dtype = F32}}},
    {.id = "FC074",
     .graph = "graph @g(%c: u8[] input, %d: u8[] input, %x: f32[2] input) {\n"
              "%n = neg(%c)\n%y = add(%n, %x)\n%e = neg(%d)\n%l = lt(%e, 4)\n"
              "return n=%n, y=%y, l=%l\n}",
     .inputs = {{"c", {7.0}}, {"d", {6.0}}, {"x", {1.5, -0.25}}},
     .outputs = {{"n", {249.0}, .dtype = U8},
                 {"y", {250.5, 248.75}, .dtype = F32},
                 {"l", {0.0}, .dtype = BOOL}}},
    {.id = "FC074 neighbours",
     .graph = "graph @g(%c: u8[2] input, %i: i32[1] input, %x: f32[1] input) {\n"
              "%s = sub(%c, 8)\n%a = add(%c, 250)\n%m = mul(%c, %c)\n%t = add(%i, %i)\n"
              "%u = add(%s, %x)\n%v = add(%a, %x)\n%w = add(%m, %x)\n%z = add(%t, %x)\n"
              "return u=%u, v=%v, w=%w, z=%z\n}",
     .inputs = {{"c", {7.0, 20.0}}, {"i", {2147483647.0}}, {"x", {0.5}}},
     .outputs = {{"u", {255.5, 12.5}}, {"v", {1.5, 14.5}}, {"w", {49.5, 144.5}}, {"z", {-1.5}}}},
    {.id = "FC077",
     .graph = "graph @g(%x: bf16[1] input, %y: bf16[1] input) {\n"
              "%r = add(%x, %y)\n%t = sub(%r, %x)\n%e = sub(%y, %t)\nreturn r=%r, t=%t, e=%e\n}",
     .inputs = {{"x", {1.0}}, {"y", {0.0048828125}}},
     .outputs = {{"r", {1.0078125}, .dtype = BF16},
                 {"t", {0.0078125}, .dtype = BF16},
                 {"e", {-0.0029296875}, .dtype = BF16}}},
    {.id = "FC078, scalar code", .graph = SIN_ATAN(1), SIN_ATAN_DATA},
    {.id = "FC078, a tail", .graph = SIN_ATAN(17), SIN_ATAN_DATA},
    {.id = "FC078, vectors", .graph = SIN_ATAN(4096), SIN_ATAN_DATA},
    {.id = "FC080",
     .graph = "graph @g(%mask: f32[] input, %s: f32[2] input) {\n"
              "%o = sub(1, %mask)\n%k = mul(1e30, %o)\n%t = sub(%s, %k)\n%m = max(%t)\n"
              "%y = sub(%t, %m)\nreturn y=%y\n}",
     .inputs = {{"mask", {1.0}}, {"s", {0.699999988079071, 0.5}}},
     .outputs = {{"y", {0.0, -0.19999998807907104}}}},
};

START_TEST(field_case)
{
    check_case(&cases[_i]);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, field_case, 0, ARRAY_LEN(cases));
}

int main(void)
{
    return run_suite("field cases, precision", fill);
}
