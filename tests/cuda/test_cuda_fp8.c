/* FP8 on a device (a real one, or the emulator as sm_90, sm_80 and sm_100): fused steps give the
 * bits of one op at a time, and stay near the CPU's; products that a GPU lacks run written out;
 * what cuBLASLt would refuse is refused in words. */
#include "cuda_suite.h"

#include "runtime/cublaslt.h"
#include "tests/fp8_models.h"

#include <math.h>

enum { STEPS = 3 };

/* As small as a recipe allows, for an emulator: D is 128 for blocks of 128, else 32; D rows. */
static const char mlp[] =
    "graph @mlp(%x: f32[D,16] input, %t: f32[D,16] input, %w1: f32[D,16] param, %b1: f32[D] "
    "param,\n"
    "%w2: f32[D,D] param, %b2: f32[D] param, %w3: f32[D,D] param, %w4: f32[16,D] param) {\n"
    "%h1 = linear(%x, %w1, %b1) %a1 = relu(%h1) %h2 = linear(%a1, %w2, %b2) %a2 = gelu(%h2)\n"
    "%h3 = linear(%a2, %w3) %a3 = relu(%h3) %z = linear(%a3, %w4) %loss = mse_loss(%z, %t)\n"
    "return loss=%loss }";
/* The same beside an attention block: kernels that both have are compiled once. */
static const char both[] =
    "graph @both(%x: f32[D,16] input, %t: f32[D,16] input, %w1: f32[D,16] param, %b1: f32[D] "
    "param,\n"
    "%w2: f32[D,D] param, %b2: f32[D] param, %w3: f32[D,D] param, %w4: f32[16,D] param,\n"
    "%we: f32[D,16] param, %wq: f32[D,D] param, %wk: f32[D,D] param, %wv: f32[D,D] param,\n"
    "%wo: f32[D,D] param, %g: f32[D] param {init=\"ones\"}, %wh: f32[16,D] param) {\n"
    "%h1 = linear(%x, %w1, %b1) %a1 = relu(%h1) %h2 = linear(%a1, %w2, %b2) %a2 = gelu(%h2)\n"
    "%h3 = linear(%a2, %w3) %a3 = relu(%h3) %z = linear(%a3, %w4) %loss1 = mse_loss(%z, %t)\n"
    "%e = linear(%x, %we) %f = reshape(%e) {shape=[4,-1,D]} %n = rms_norm(%f, %g)\n"
    "%q = linear(%n, %wq) %k = linear(%n, %wk) %v = linear(%n, %wv)\n"
    "%s = matmul(%q, %k) {transpose_b=true} %s1 = mul(%s, 0.125) %p = softmax(%s1)\n"
    "%c = matmul(%p, %v) %o = linear(%c, %wo) %r = add(%f, %o) %u = reshape(%r) {shape=[D,D]}\n"
    "%y = linear(%u, %wh) %loss2 = mse_loss(%y, %t) %loss = add(%loss1, %loss2)\n"
    "return loss=%loss }";

/* The model of a recipe: every D a number. */
static struct graph *model(const char *text, const char *policy, int64_t *rows)
{
    static char out[4000];
    const char *size = strcmp(policy, "fp8-blockwise") == 0 ? "128" : "32";
    size_t n = 0;
    for (const char *c = text; *c != '\0'; c++) {
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", *c == 'D' ? 3 : 1,
                              *c == 'D' ? size : c);
    }
    *rows = strtoll(size, NULL, 10);
    return fp8_model(out);
}

static struct device *open_device(const char *arch)
{
    setenv("ATOLL_EMULATOR_ARCH", arch, 1);
    struct device *d = device_for_tests();
    ck_assert_ptr_nonnull(d);
    return d;
}

static void open_model(struct runner *r, const char *text, const char *policy, struct device *d,
                       bool is_eager)
{
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.policy = policy_builtin(policy),
                                .train = &train,
                                .is_eager = is_eager,
                                .cache = shared_kernels(),
                                .device = d,
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    int64_t rows;
    struct graph *g = model(text, policy, &rows);
    ck_assert_msg(runner_open(r, g, &o, 7, &e) == ATOLL_OK, "%s", e.text);
    graph_destroy(g);
    static float x[128 * 16], t[128 * 16];
    for (int i = 0; i < 128 * 16; i++) {
        x[i] = (float)((i * 37) % 101 - 50) / 32.0F;
        t[i] = (float)((i * 11) % 17 - 8) / 8.0F;
    }
    struct tensor tx = {.dtype = F32, .rank = 2, .shape = {rows, 16}, .data = x};
    struct tensor tt = {.dtype = F32, .rank = 2, .shape = {rows, 16}, .data = t};
    ck_assert_int_eq(runner_input(r, "x", &tx, &e), ATOLL_OK);
    ck_assert_int_eq(runner_input(r, "t", &tt, &e), ATOLL_OK);
}

static uint32_t count_products(const struct graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == OP_scaled_matmul;
    }
    return n;
}

static const struct {
    const char *arch, *policy, *model;
    uint32_t products; /* that cuBLASLt does as they are */
} runs[] = {
    {"90", "fp8-tensorwise", both, 23},    {"90", "fp8-rowwise", both, 23},
    {"90", "fp8-rowwise-gw-hp", both, 15}, {"90", "fp8-delayed", both, 23},
    {"90", "fp8-blockwise", both, 18},     {"90", "fp8-mxfp8", mlp, 0},
    {"100", "fp8-mxfp8", both, 20},        {"100", "fp8-blockwise", mlp, 0},
    {"80", "fp8-tensorwise", mlp, 0},      {"100", "fp8-tensorwise", mlp, 6},
    {"100", "fp8-rowwise", mlp, 0},
};

START_TEST(fused_is_eager)
{
    struct device *d = open_device(runs[_i].arch);
    struct runner fused, eager, cpu;
    bool is_short = is_sanitized() && shared_kernels() == NULL; /* the same host code, less of it */
    const char *text = is_short ? mlp : runs[_i].model;
    open_model(&fused, text, runs[_i].policy, d, false);
    open_model(&eager, text, runs[_i].policy, d, true);
    open_model(&cpu, text, runs[_i].policy, NULL, true);
    bool is_emulated = getenv("ATOLL_LIBCUDA") != NULL && text == runs[_i].model;
    uint32_t products = count_products(runner_graph(&fused));
    ck_assert_msg(!is_emulated || products == runs[_i].products, "%s: %u products of cuBLASLt",
                  runs[_i].policy, products);
    for (int i = 0; i < STEPS; i++) {
        double a = fp8_step(&fused), b = fp8_step(&eager), c = fp8_step(&cpu);
        ck_assert_msg(a == b && isfinite(a), "%s: step %d: %.9g, eager %.9g", runs[_i].policy, i, a,
                      b);
        ck_assert_double_eq_tol(a, c, 1e-3 * c);
        fp8_same_leaves(&fused, &eager, runs[_i].policy);
    }
    runner_free(&fused);
    runner_free(&eager);
    runner_free(&cpu);
    device_close(d);
}
END_TEST

/* ---- rules ---- */

static const struct {
    struct scaled_product p;
    int arch;
    const char *words; /* NULL: allowed */
} rules[] = {
    {{F8E4M3, F8E4M3, BF16, SCALE_TENSOR, SCALE_TENSOR, 3, 16, 32}, 90, NULL},
    {{F8E5M2, F8E4M3, F32, SCALE_TENSOR, SCALE_TENSOR, 3, 4, 32}, 89, NULL},
    {{F8E4M3, F8E4M3, BF16, SCALE_ROW, SCALE_ROW, 3, 16, 32}, 90, NULL},
    {{F8E4M3, F8E4M3, BF16, SCALE_ROW, SCALE_ROW, 3, 16, 32}, 89, "sm_90 only"},
    {{F8E4M3, F8E4M3, BF16, SCALE_ROW, SCALE_ROW, 3, 16, 32}, 100, "sm_90 only"},
    {{F8E4M3, F8E4M3, BF16, SCALE_BLOCK_T, SCALE_TILE_4, 4, 128, 128}, 90, NULL},
    {{F8E4M3, F8E4M3, BF16, SCALE_TILE_4, SCALE_BLOCK_T, 128, 8, 128}, 90, NULL},
    {{F8E4M3, F8E4M3, BF16, SCALE_BLOCK_T, SCALE_TILE_4, 3, 128, 128}, 90, "M = 3"},
    {{F8E4M3, F8E4M3, BF16, SCALE_BLOCK_T, SCALE_TILE_4, 4, 128, 128}, 100, "sm_90 only"},
    {{F8E4M3, F8E4M3, BF16, SCALE_BLOCK, SCALE_TILE, 4, 128, 128}, 90, "are read as block_t"},
    {{F8E4M3, F8E4M3, BF16, SCALE_TILE_4, SCALE_TILE_4, 128, 128, 128}, 90, "both have 128x128"},
    {{F8E4M3, F8E4M3, BF16, SCALE_MX_TILED, SCALE_MX_TILED, 3, 16, 32}, 100, NULL},
    {{F8E4M3, F8E4M3, BF16, SCALE_MX_TILED, SCALE_MX_TILED, 3, 16, 32}, 90, "from sm_100 on"},
    {{F8E4M3, F8E4M3, BF16, SCALE_MX_TILED, SCALE_BLOCK_T, 4, 16, 128}, 100, "no scale pointers"},
    {{F8E4M3, F8E4M3, BF16, SCALE_TENSOR, SCALE_TENSOR, 3, 16, 32}, 80, "sm_89"},
    {{F8E5M2, F8E5M2, BF16, SCALE_TENSOR, SCALE_TENSOR, 3, 16, 32}, 90, "f8e5m2 times f8e5m2"},
    {{F8E4M3, F8E4M3, BF16, SCALE_TENSOR, SCALE_TENSOR, 3, 16, 24}, 90, "found 24"},
    {{F8E4M3, F8E4M3, BF16, SCALE_TENSOR, SCALE_TENSOR, 3, 12, 32}, 90, "N = 12"},
};

START_TEST(rules_in_words)
{
    struct error e = {0};
    status code = cublaslt_check_scaled(&rules[_i].p, rules[_i].arch, &e);
    ck_assert_int_eq(code, rules[_i].words == NULL ? ATOLL_OK : ATOLL_UNSUPPORTED);
    ck_assert_msg(rules[_i].words == NULL || strstr(e.text, rules[_i].words) != NULL, "%s", e.text);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_set_timeout(tc, 1200);
    tcase_add_loop_test(tc, fused_is_eager, 0, (int)ARRAY_LEN(runs));
    tcase_add_loop_test(tc, rules_in_words, 0, (int)ARRAY_LEN(rules));
}

int main(void)
{
    struct device *d = device_of_suite();
    if (d == NULL) {
        return SKIPPED;
    }
    device_close(d);
    return run_suite("cuda_fp8", fill);
}
