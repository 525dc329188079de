/* Scales and f8 bytes of every recipe against fixtures/fp8.txt (torchao's formulas in PyTorch), bit
 * for bit; delayed scaling step by step; and the product on the CPU against the oracle, exactly
 * where sums are whole numbers that f32 holds. */
#include "frontend/runner.h"
#include "ir/eval.h"
#include "passes/fp8.h"
#include "runtime/scaled.h"
#include "tests/suite.h"

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the fixtures ---- */

static FILE *open_fixtures(void)
{
    char path[500];
    const char *source = getenv("ATOLL_SOURCE");
    snprintf(path, sizeof path, "%s/tests/fixtures/fp8.txt", source == NULL ? "." : source);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s: cannot be read", path);
    return f;
}

static int digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c - 'a' + 10;
}

/* n elements of `bytes` bytes each, as hex numbers without blanks between. */
static void read_hex(FILE *f, size_t bytes, int64_t n, void *out)
{
    int c = fgetc(f);
    while (c == ' ') {
        c = fgetc(f);
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 2 * bytes; k++) {
            bits = bits << 4 | (uint32_t)digit(c);
            c = fgetc(f);
        }
        memcpy((char *)out + (size_t)i * bytes, &bits, bytes); /* little endian, as f32 needs */
    }
    ck_assert_int_eq(c, '\n');
}

static const struct fp8_recipe *recipe_named(const char *name)
{
    for (size_t i = 0; i < N_FP8_RECIPES; i++) {
        if (strcmp(fp8_recipes[i].name, name) == 0) {
            return &fp8_recipes[i];
        }
    }
    ck_abort_msg("no recipe %s", name);
    return NULL;
}

static void run_graph(struct graph *g, const struct tensor *x, struct tensor *data,
                      struct tensor *inverse, struct runner *r)
{
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    ck_assert_msg(g->error.code == ATOLL_OK, "%s", g->error.text);
    ck_assert_msg(runner_open(r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_input(r, "x", x, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_msg(runner_step(r, &e) == ATOLL_OK, "%s", e.text);
    *data = runner_output(r, "data");
    *inverse = runner_output(r, "inverse");
}

static void check_case(FILE *f, const char *line)
{
    char recipe[32], kind_name[16], f8[16], dtype[8];
    int is_transposed;
    long long rows, columns, scale_rows, scale_columns;
    enum scale_kind kind;
    ck_assert_int_eq(sscanf(line, "case %31s %15s %d %15s %7s %lld %lld", recipe, kind_name,
                            &is_transposed, f8, dtype, &rows, &columns),
                     7);
    ck_assert(scale_kind_named(kind_name, &kind));
    enum dtype t = dtype_named(dtype, strlen(dtype)), to = dtype_named(f8, strlen(f8));
    static uint8_t x[1 << 17], want[1 << 15];
    static float inverse[1 << 12];
    ck_assert_int_eq(fscanf(f, "x"), 0);
    read_hex(f, dtype_info[t].bytes, rows * columns, x);
    ck_assert_int_eq(fscanf(f, "inverse %lld %lld", &scale_rows, &scale_columns), 2);
    read_hex(f, 4, scale_rows * scale_columns, inverse);
    ck_assert_int_eq(fscanf(f, "f8"), 0);
    read_hex(f, 1, rows * columns, want);

    struct arena a = {0};
    struct graph *g = graph_create("operand");
    struct fp8_options o = {.recipe = recipe_named(recipe)};
    struct fp8_builder b = {.g = g, .o = &o, .arena = &a};
    value v = graph_leaf(g, OP_input, "x", t, (int64_t[]){rows, columns}, 2);
    ck_assert_ptr_null(fp8_misfit(g, v, is_transposed != 0, kind, false, &a));
    struct fp8_operand made = fp8_quantize(&b, v, is_transposed != 0, kind, to, "x");
    graph_output(g, "data", made.data);
    graph_output(g, "inverse", made.inverse);
    struct runner r;
    struct tensor data, scales;
    struct tensor given = {.dtype = t, .rank = 2, .shape = {rows, columns}, .data = x};
    run_graph(g, &given, &data, &scales, &r);
    ck_assert_int_eq(data.shape[0], is_transposed ? columns : rows);
    ck_assert_int_eq(scales.shape[0], scale_rows);
    ck_assert_int_eq(scales.shape[1], scale_columns);
    ck_assert_msg(memcmp(scales.data, inverse, tensor_bytes(&scales)) == 0, "%s: scales differ",
                  line);
    ck_assert_msg(memcmp(data.data, want, tensor_bytes(&data)) == 0, "%s: f8 bytes differ", line);
    runner_free(&r);
    graph_destroy(g);
    arena_free(&a);
}

START_TEST(scales_and_bytes_are_torchao_s)
{
    FILE *f = open_fixtures();
    char line[200];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL && strncmp(line, "case", 4) == 0) {
        line[strcspn(line, "\n")] = '\0';
        check_case(f, line);
        n++;
    }
    ck_assert_int_ge(n, 30);
    fclose(f);
}
END_TEST

/* ---- delayed scaling ---- */

static void check_delayed(FILE *f, const char *line)
{
    char algo[16];
    long long margin, history;
    int n;
    float amax[64], want[64];
    ck_assert_int_eq(sscanf(line, "delayed %lld %lld %15s %d", &margin, &history, algo, &n), 4);
    ck_assert_int_eq(fscanf(f, "amax"), 0);
    read_hex(f, 4, n, amax);
    ck_assert_int_eq(fscanf(f, "scale"), 0);
    read_hex(f, 4, n, want);
    struct arena a = {0};
    struct graph *g = graph_create("delayed");
    struct fp8_options o = {.recipe = recipe_named("delayed"),
                            .margin = margin,
                            .history = history,
                            .is_most_recent = strcmp(algo, "most_recent") == 0};
    struct fp8_builder b = {.g = g, .o = &o, .arena = &a, .is_training = true};
    value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){2, 16}, 2);
    struct fp8_operand made = fp8_quantize(&b, x, false, SCALE_TENSOR, F8E4M3, "x");
    graph_output(g, "data", made.data);
    graph_output(g, "inverse", made.inverse);
    struct runner r;
    struct error e = {0};
    struct compile_options options = {.is_eager = true};
    ck_assert_msg(runner_open(&r, g, &options, 1, &e) == ATOLL_OK, "%s", e.text);
    float old = 1.0F;
    for (int i = 0; i < n; i++) {
        float values[32] = {0.0F};
        struct tensor given = {.dtype = F32, .rank = 2, .shape = {2, 16}, .data = values};
        values[7] = -amax[i];
        ck_assert_msg(runner_input(&r, "x", &given, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
        /* this step still used the old scale */
        ck_assert_double_eq(runner_number(&r, "inverse"), (double)(1.0F / old));
        old = *(const float *)runner_leaf(&r, "fp8.x.scale")->data;
        ck_assert_msg(memcmp(&old, &want[i], 4) == 0, "%s: step %d: %a, expected %a", line, i,
                      (double)old, (double)want[i]);
    }
    runner_free(&r);
    graph_destroy(g);
    arena_free(&a);
}

START_TEST(delayed_scales_follow_the_history)
{
    FILE *f = open_fixtures();
    static char line[1 << 20];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "delayed", 7) == 0) {
            line[strcspn(line, "\n")] = '\0';
            check_delayed(f, line);
            n++;
        }
    }
    ck_assert_int_eq(n, 6);
    fclose(f);
}
END_TEST

/* ---- the product ---- */

static const struct {
    enum scale_kind a, b;
    int64_t m, n, k;
} products[] = {
    {SCALE_TENSOR, SCALE_TENSOR, 17, 9, 48},     {SCALE_ROW, SCALE_ROW, 5, 33, 32},
    {SCALE_ROW, SCALE_TENSOR, 5, 33, 32},        {SCALE_BLOCK, SCALE_TILE, 7, 256, 384},
    {SCALE_BLOCK, SCALE_BLOCK, 7, 20, 256},      {SCALE_MX, SCALE_MX, 6, 11, 160},
    {SCALE_TILE, SCALE_MX, 128, 3, 128},         {SCALE_TENSOR, SCALE_TENSOR, 4, 4, 0},
    {SCALE_TENSOR, SCALE_TENSOR, 0, 4, 16},      {SCALE_BLOCK_T, SCALE_TILE_4, 7, 256, 384},
    {SCALE_TILE_4, SCALE_BLOCK_T, 256, 20, 384}, {SCALE_MX_TILED, SCALE_MX_TILED, 130, 40, 160},
    {SCALE_MX_TILED, SCALE_MX, 33, 5, 128},
};

/* Whole numbers up to 8 and scales that are powers of two: every sum is exact in f32. */
static void fill_exact(struct eval *e, const value v[4], void *const memory[4],
                       const int64_t counts[4])
{
    uint32_t seed = 5;
    for (uint32_t i = 0; i < 4; i++) {
        enum dtype t = graph_node(e->graph, v[i])->dtype;
        e->values[v[i].id] = ARENA_ARRAY(&e->arena, double, counts[i] + 1);
        for (int64_t k = 0; k < counts[i]; k++) {
            seed = seed * 1664525U + 1013904223U;
            int64_t number = (int64_t)(seed >> 24) % 17 - 8;
            double x = i < 2     ? (double)number
                       : t == U8 ? 127.0 + (double)(number / 4)
                                 : ldexp(1.0, (int)number / 4);
            e->values[v[i].id][k] = x;
            dtype_store(t, (char *)memory[i] + (size_t)k * dtype_info[t].bytes, x);
        }
    }
}

START_TEST(product_is_the_oracle_s)
{
    int64_t m = products[_i].m, n = products[_i].n, k = products[_i].k;
    struct shape shapes[4] = {{.rank = 2, .dims = {dim_of(m), dim_of(k)}},
                              {.rank = 2, .dims = {dim_of(n), dim_of(k)}}};
    ck_assert(scale_shape(products[_i].a, &shapes[0], &shapes[2]));
    ck_assert(scale_shape(products[_i].b, &shapes[1], &shapes[3]));
    const enum dtype dtypes[] = {F8E5M2, F8E4M3, scale_kind_info[products[_i].a].dtype,
                                 scale_kind_info[products[_i].b].dtype};
    static char memory[4][1 << 17];
    void *const parts[4] = {memory[0], memory[1], memory[2], memory[3]};
    static float out[1 << 13];
    struct graph *g = graph_create("product");
    value v[4];
    int64_t counts[4];
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = graph_leaf_shape(g, OP_input, (const char *[]){"a", "b", "s", "t"}[i], dtypes[i],
                                &shapes[i]);
        counts[i] = shape_count_value(&shapes[i], NULL);
    }
    struct attr attrs[] = {attr_text("scale_a", scale_kind_info[products[_i].a].name),
                           attr_text("scale_b", scale_kind_info[products[_i].b].name),
                           attr_dtype("dtype", F32)};
    value y = graph_add(g, OP_scaled_matmul, v, 4, attrs, 3);
    ck_assert_msg(y.id != 0, "%s", g->error.text);
    struct eval e;
    struct error error = {0};
    eval_begin(&e, g, NULL);
    fill_exact(&e, v, parts, counts);
    ck_assert_msg(eval_run(&e, &error) == ATOLL_OK, "%s", error.text);
    struct scaled_product p;
    scaled_product_of(graph_node(g, y), F8E5M2, F8E4M3, (int64_t[]){m, k}, (int64_t[]){n, k}, &p);
    struct contraction_cache *cache = contraction_cache_create();
    const void *operands[4] = {memory[0], memory[1], memory[2], memory[3]};
    ck_assert_msg(scaled_run(cache, &p, operands, out, &error) == ATOLL_OK, "%s", error.text);
    for (int64_t i = 0; i < m * n; i++) {
        ck_assert_double_eq((double)out[i], e.values[y.id][i]);
    }
    contraction_cache_destroy(cache);
    eval_end(&e);
    graph_destroy(g);
}
END_TEST

/* Where each factor lies: as cuBLASLt's documentation has it. */
START_TEST(factors_lie_as_the_library_reads_them)
{
    int64_t size[2] = {300, 640}, tall[2] = {300, 320};
    ck_assert_int_eq(scale_index(SCALE_BLOCK, size, 7, 3), 7 * 5 + 3);
    ck_assert_int_eq(scale_index(SCALE_BLOCK_T, size, 7, 3), 3 * 300 + 7);
    ck_assert_int_eq(scale_index(SCALE_TILE, size, 1, 3), 5 + 3);
    ck_assert_int_eq(scale_index(SCALE_TILE_4, size, 1, 3), 8 + 3);
    /* 300 rows of 10: filled up to 384 of 12, 3 by 3 tiles; (197,6) is in tile (1,1), there (69,2)
     */
    ck_assert_int_eq(scale_index(SCALE_MX_TILED, tall, 197, 6), 4 * 512 + 5 * 16 + 2 * 4 + 2);
    bool is_taken[384 * 12] = {false};
    for (int64_t r = 0; r < 300; r++) {
        for (int64_t p = 0; p < 10; p++) {
            int64_t at = scale_index(SCALE_MX_TILED, tall, r, p);
            ck_assert(at >= 0 && at < 384 * 12 && !is_taken[at]);
            is_taken[at] = true;
        }
    }
    struct shape laid, operand = {.rank = 2, .dims = {dim_of(300), dim_of(320)}};
    ck_assert(scale_shape(SCALE_MX_TILED, &operand, &laid));
    ck_assert(dim_is(laid.dims[0], 384) && dim_is(laid.dims[1], 12));
    operand.dims[0] = dim_symbol(1);
    ck_assert(!scale_shape(SCALE_MX_TILED, &operand, &laid));
    operand.dims[0].factor = 128;
    ck_assert(scale_shape(SCALE_MX_TILED, &operand, &laid));
}
END_TEST

START_TEST(e8m0_of_powers_of_two)
{
    for (int e = -149; e <= 127; e++) {
        ck_assert_double_eq((double)m_e8m0(ldexpf(1.0F, e)), e < -126 ? 0.0 : e + 127.0);
    }
    ck_assert_double_eq((double)m_e8m0(0.0F), 0.0);
    ck_assert_double_eq((double)m_e8m0((float)NAN), 255.0);
    ck_assert_double_eq((double)m_e8m0((float)INFINITY), 255.0);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, factors_lie_as_the_library_reads_them);
    tcase_add_test(tc, e8m0_of_powers_of_two);
    tcase_add_test(tc, scales_and_bytes_are_torchao_s);
    tcase_add_test(tc, delayed_scales_follow_the_history);
    tcase_add_loop_test(tc, product_is_the_oracle_s, 0, (int)ARRAY_LEN(products));
}

int main(void)
{
    return run_suite("fp8_scales", fill);
}
