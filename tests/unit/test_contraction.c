/* Contractions of every dtype, transposition and batch pattern against a double reference, and what
 * makes eager and fused agree: the bits depend on neither alignment nor thread count. */
#include "runtime/contraction.h"
#include "runtime/gemm.h"
#include "runtime/gemm_low.h"
#include "tests/suite.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matrix {
    enum dtype t;
    char *data;
    int64_t n;
    double *exact; /* the same numbers, for the reference */
};

static struct matrix matrix_new(enum dtype t, int64_t n, uint64_t seed)
{
    struct matrix x = {t, aligned_alloc(64, ((size_t)n * 8 + 256) / 64 * 64), n,
                       malloc((size_t)(n + 1) * sizeof(double))};
    for (int64_t i = 0; i < n; i++) {
        char *element = x.data + (size_t)i * dtype_info[t].bytes;
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        dtype_store(t, element, (double)(int64_t)(seed >> 40) / 8388608.0 - 1.0);
        x.exact[i] = dtype_load(t, element);
    }
    return x;
}

static void matrix_free(struct matrix *x)
{
    free(x->data);
    free(x->exact);
}

/* What a run left at i. */
static double result(const struct matrix *x, int64_t i)
{
    return dtype_load(x->t, x->data + (size_t)i * dtype_info[x->t].bytes);
}

static int64_t batches(const struct contraction *c, const int64_t *strides)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        n *= strides == NULL || strides[i] != 0 ? c->batch[i] : 1;
    }
    return n;
}

/* One element in double, and the sum of the sizes of its products for the error bound. */
static double exact(const struct contraction *c, const struct matrix *a, const struct matrix *b,
                    const struct matrix *bias, int64_t batch, int64_t i, int64_t j, double *size)
{
    int64_t from_a = 0, from_b = 0;
    for (uint32_t d = c->n_batch; d-- > 0;) {
        from_a += batch % c->batch[d] * c->batch_stride_a[d];
        from_b += batch % c->batch[d] * c->batch_stride_b[d];
        batch /= c->batch[d];
    }
    double sum = c->has_bias ? bias->exact[j] : 0.0;
    *size = fabs(sum);
    for (int64_t k = 0; k < c->k; k++) {
        double p = a->exact[from_a + (c->transpose_a ? k * c->m + i : i * c->k + k)] *
                   b->exact[from_b + (c->transpose_b ? j * c->k + k : k * c->n + j)];
        sum += p;
        *size += fabs(p);
    }
    return sum;
}

static void check_contraction(const struct contraction *c, struct contraction_cache *cache)
{
    struct matrix a = matrix_new(c->ab, c->m * c->k * batches(c, c->batch_stride_a), 1);
    struct matrix b = matrix_new(c->ab, c->k * c->n * batches(c, c->batch_stride_b), 2);
    struct matrix bias = matrix_new(c->c, c->n, 3);
    struct matrix out = matrix_new(c->c, c->m * c->n * batches(c, NULL), 4);
    struct error e = {0};
    ck_assert_msg(contraction_run(cache, c, a.data, b.data, c->has_bias ? bias.data : NULL,
                                  out.data, &e) == ATOLL_OK,
                  "%s", e.text);
    double accumulate = c->ab == F64 ? dtype_info[F64].epsilon : dtype_info[F32].epsilon;
    for (int64_t i = 0; i < out.n; i++) {
        double size;
        double want = exact(c, &a, &b, &bias, i / (c->m * c->n), i / c->n % c->m, i % c->n, &size);
        double bound = (double)(c->k + 2) * accumulate * size +
                       dtype_info[c->c].epsilon * fabs(want) + dtype_info[c->c].smallest_normal;
        ck_assert_msg(fabs(result(&out, i) - want) <= bound, "%s (%lld,%lld,%lld): %g, expected %g",
                      dtype_info[c->ab].name, (long long)c->m, (long long)c->n, (long long)c->k,
                      result(&out, i), want);
    }
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&bias);
    matrix_free(&out);
}

static const enum dtype types[] = {F32, BF16, F16, F8E4M3, F8E5M2, F64};
static const int64_t sizes[][3] = {
    {64, 128, 64}, {5, 10, 128}, {1, 1, 1}, {3, 2, 1}, {17, 33, 65},   {1, 64, 300},    {64, 1, 31},
    {2, 3, 2000},  {0, 4, 3},    {4, 0, 3}, {4, 5, 0}, {100, 70, 129}, {20, 200, 1200},
};

START_TEST(products_match_double)
{
    struct contraction_cache *cache = contraction_cache_create();
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (int flags = 0; flags < 8; flags++) {
            struct contraction c = {.ab = types[_i],
                                    .c = types[_i],
                                    .transpose_a = (flags & 1) != 0,
                                    .transpose_b = (flags & 2) != 0,
                                    .has_bias = (flags & 4) != 0,
                                    .m = sizes[s][0],
                                    .n = sizes[s][1],
                                    .k = sizes[s][2]};
            check_contraction(&c, cache);
            if (dtype_is_low(c.ab)) { /* a wide result of low operands */
                c.c = F32;
                check_contraction(&c, cache);
            }
        }
    }
    contraction_cache_destroy(cache);
}
END_TEST

START_TEST(batches_broadcast)
{
    static const struct {
        uint32_t n;
        int64_t batch[3];
        bool walks_a[3], walks_b[3];
    } rows[] = {
        {1, {3}, {true}, {true}},
        {1, {3}, {false}, {true}},
        {1, {3}, {true}, {false}},
        {2, {2, 3}, {true, false}, {false, true}},
        {2, {2, 3}, {false, true}, {true, false}},
        {3, {2, 1, 2}, {true, false, true}, {true, true, false}},
        {1, {0}, {true}, {true}},
    };
    struct contraction_cache *cache = contraction_cache_create();
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (int flags = 0; flags < 4; flags++) {
            struct contraction c = {.ab = types[_i], .c = types[_i], .m = 4, .n = 6, .k = 5};
            c.transpose_a = (flags & 1) != 0;
            c.transpose_b = (flags & 2) != 0;
            c.n_batch = rows[r].n;
            int64_t step_a = c.m * c.k, step_b = c.k * c.n;
            for (uint32_t d = c.n_batch; d-- > 0;) {
                c.batch[d] = rows[r].batch[d];
                c.batch_stride_a[d] = rows[r].walks_a[d] ? step_a : 0;
                c.batch_stride_b[d] = rows[r].walks_b[d] ? step_b : 0;
                step_a *= rows[r].walks_a[d] ? c.batch[d] : 1;
                step_b *= rows[r].walks_b[d] ? c.batch[d] : 1;
            }
            check_contraction(&c, cache);
        }
    }
    contraction_cache_destroy(cache);
}
END_TEST

static const int64_t steady[][3] = {
    {64, 128, 64},   {5, 10, 128},   {128, 64, 64},   {512, 64, 256},  {64, 10, 4096},
    {16, 16, 4096},  {3, 17, 1100},  {368, 32, 1026}, {33, 100, 1024}, {20, 200, 1200},
    {16, 600, 1100}, {64, 128, 128}, {97, 300, 61},   {8, 513, 400},   {5, 300, 1023}};

START_TEST(bits_depend_on_neither_threads_nor_alignment)
{
    const enum dtype t = types[_i];
    size_t size = dtype_info[t].bytes;
    int threads = omp_get_max_threads();
    for (size_t s = 0; s < ARRAY_LEN(steady); s++) {
        for (int flags = 0; flags < 4; flags++) {
            struct contraction c = {
                .ab = t, .c = t, .m = steady[s][0], .n = steady[s][1], .k = steady[s][2]};
            c.transpose_a = (flags & 1) != 0;
            c.transpose_b = (flags & 2) != 0;
            struct matrix a = matrix_new(t, c.m * c.k, 1), b = matrix_new(t, c.k * c.n, 2);
            struct matrix first = matrix_new(t, c.m * c.n, 3), again = matrix_new(t, c.m * c.n, 4);
            for (int run = 1; run <= 4; run++) {
                struct contraction_cache *cache = contraction_cache_create();
                char *to = run == 1 ? first.data : again.data;
                size_t shift = run == 4 ? size : 0; /* elements no longer on a 64-byte line */
                omp_set_num_threads(run == 4 ? 2 : run);
                memmove(a.data + shift, a.data, (size_t)a.n * size);
                memmove(b.data + 3 * shift, b.data, (size_t)b.n * size);
                ck_assert(contraction_run(cache, &c, a.data + shift, b.data + 3 * shift, NULL,
                                          to + 5 * shift, NULL) == ATOLL_OK);
                ck_assert_msg(memcmp(first.data, to + 5 * shift, (size_t)first.n * size) == 0,
                              "%s (%lld,%lld,%lld) run %d", dtype_info[t].name, (long long)c.m,
                              (long long)c.n, (long long)c.k, run);
                contraction_cache_destroy(cache);
            }
            matrix_free(&a);
            matrix_free(&b);
            matrix_free(&first);
            matrix_free(&again);
        }
    }
    omp_set_num_threads(threads);
}
END_TEST

/* One element as gemm_low.h defines it, rounded, to `to`. */
static void chained(const struct contraction *c, const struct matrix *a, const struct matrix *b,
                    const struct matrix *bias, int64_t batch, int64_t i, int64_t j, char *to)
{
    int64_t from_a = contraction_at(c, c->batch_stride_a, batch),
            from_b = contraction_at(c, c->batch_stride_b, batch);
    float sum = 0.0F;
    for (int64_t k = 0; k < c->k; k++) {
        double p = a->exact[from_a + (c->transpose_a ? k * c->m + i : i * c->k + k)],
               q = b->exact[from_b + (c->transpose_b ? j * c->k + k : k * c->n + j)];
        sum = fmaf((float)p, (float)q, sum);
    }
    dtype_store(c->c, to, (double)(c->has_bias ? sum + (float)bias->exact[j] : sum));
}

/* Sides of every remainder of blocks, panels and steps; a batch. Of the last two C is turned, by
 * flag 2, in one panel and in two, of one block and of two. */
static const int64_t low_sizes[][4] = {{1, 1, 1, 1},     {64, 80, 70, 1},   {7, 65, 300, 1},
                                       {200, 17, 33, 1}, {3, 400, 257, 1},  {19, 129, 16, 3},
                                       {70, 40, 512, 2}, {20, 200, 300, 1}, {70, 330, 290, 1}};

START_TEST(low_products_are_chains)
{
    enum dtype t = _i % 2 == 0 ? BF16 : F16;
    int threads = omp_get_max_threads();
    for (size_t s = 0; s < ARRAY_LEN(low_sizes) && gemm_low_serves(t); s++) {
        for (int flags = 0; flags < 8; flags++) {
            struct contraction c = {.ab = t,
                                    .c = _i < 2 ? t : F32,
                                    .transpose_a = (flags & 1) != 0,
                                    .transpose_b = (flags & 2) != 0,
                                    .has_bias = (flags & 4) != 0,
                                    .n_batch = low_sizes[s][3] > 1,
                                    .batch = {low_sizes[s][3]},
                                    .m = low_sizes[s][0],
                                    .n = low_sizes[s][1],
                                    .k = low_sizes[s][2]};
            c.batch_stride_a[0] = c.m * c.k;
            c.batch_stride_b[0] = flags % 2 == 0 ? c.k * c.n : 0;
            struct matrix a = matrix_new(t, c.m * c.k * low_sizes[s][3], 1),
                          b = matrix_new(t, c.k * c.n * low_sizes[s][3], 2),
                          bias = matrix_new(c.c, c.n, 3),
                          out = matrix_new(c.c, c.m * c.n * low_sizes[s][3], 4);
            for (int k = 0; k < 3 && a.n > 300; k++) {
                static const double special[] = {(double)NAN, (double)INFINITY, -3e4};
                dtype_store(t, a.data + (size_t)(97 * k) * dtype_info[t].bytes, special[k]);
                a.exact[97 * k] = dtype_load(t, a.data + (size_t)(97 * k) * dtype_info[t].bytes);
            }
            omp_set_num_threads(1 + (int)s % 3);
            void *scratch = aligned_alloc(64, gemm_low_scratch(&c));
            gemm_low(&c, (void *)a.data, (void *)b.data, bias.data, out.data, scratch);
            for (int64_t i = 0; i < out.n; i++) {
                char want[4], *found = out.data + (size_t)i * dtype_info[c.c].bytes;
                chained(&c, &a, &b, &bias, i / (c.m * c.n), i / c.n % c.m, i % c.n, want);
                bool is_nan = c.c == F32 && isnan(result(&out, i)); /* of any bits */
                ck_assert_msg((is_nan && isnan(dtype_load(F32, want))) ||
                                  memcmp(want, found, dtype_info[c.c].bytes) == 0,
                              "%s %zu flags %d element %d: %a, not %a", dtype_info[t].name, s,
                              flags, (int)i, result(&out, i), dtype_load(c.c, want));
            }
            free(scratch);
            matrix_free(&a);
            matrix_free(&b);
            matrix_free(&bias);
            matrix_free(&out);
        }
    }
    omp_set_num_threads(threads);
}
END_TEST

/* What the system says of the processor, apart from what the library made of it. */
static bool has_bf16_tiles(void)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t size = 0;
    bool has = false;
    while (f != NULL && !has && getline(&line, &size, f) >= 0) {
        has = strstr(line, "amx_bf16") != NULL;
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
    return has;
}

/* Subnormals of the operands, of a product of normal numbers, and of a sum. */
START_TEST(subnormals_are_kept)
{
    const enum dtype t = types[_i];
    enum { N = 40 };
    const double normal = dtype_info[t].smallest_normal, smallest = normal * dtype_info[t].epsilon;
    struct contraction_cache *cache = contraction_cache_create();
    if (contraction_flushes(cache, t)) { /* as the page on numerics says, and only there */
        ck_assert(t == BF16 && has_bf16_tiles());
        contraction_cache_destroy(cache);
        return;
    }
    struct contraction c = {.ab = t, .c = t, .m = N, .n = N, .k = N};
    struct matrix a = matrix_new(t, N * N, 1), b = matrix_new(t, N * N, 2),
                  out = matrix_new(t, N * N, 3);
    for (int64_t i = 0; i < N * N; i++) {
        size_t at = (size_t)i * dtype_info[t].bytes;
        dtype_store(t, a.data + at, i % N == 0 ? smallest * (1.0 + (double)(i / N % 2)) : 0.0);
        dtype_store(t, b.data + at, i / N == 0 ? 1.0 : 0.0);
        if (i % N == 1) {
            dtype_store(t, a.data + at, i / N >= 20 ? 1.5 * normal : 0.0);
        }
        if (i / N == 1) {
            dtype_store(t, b.data + at, 0.5);
        }
    }
    ck_assert_int_eq(contraction_run(cache, &c, a.data, b.data, NULL, out.data, NULL), ATOLL_OK);
    for (int64_t i = 0; i < N * N; i++) {
        double want = smallest * (1.0 + (double)(i / N % 2)) + (i / N >= 20 ? 0.75 * normal : 0.0);
        ck_assert_msg(result(&out, i) == want, "%s row %d: %g, not %g", dtype_info[t].name,
                      (int)(i / N), result(&out, i), want);
    }
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&out);
    contraction_cache_destroy(cache);
}
END_TEST

/* More descriptors than the cache holds, twice over: what was dropped is made again. */
START_TEST(cache_forgets_and_recovers)
{
    struct contraction_cache *cache = contraction_cache_create();
    for (int round = 0; round < 2; round++) {
        for (int64_t m = 1; m <= 300; m++) {
            struct contraction c = {.ab = F32, .c = F32, .m = m, .n = 3, .k = 2};
            check_contraction(&c, cache);
        }
    }
    contraction_cache_destroy(cache);
}
END_TEST

START_TEST(builtin_product_matches_double)
{
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        struct contraction c = {.ab = F32, .c = F32, .has_bias = true, .m = m, .n = n, .k = k};
        struct matrix a = matrix_new(F32, m * k, 1), b = matrix_new(F32, k * n, 2);
        struct matrix bias = matrix_new(F32, n, 3), out = matrix_new(F32, m * n, 4);
        gemm_f32(m, n, k, (float *)(void *)a.data, k, 1, (float *)(void *)b.data, n, 1,
                 (float *)(void *)bias.data, (float *)(void *)out.data);
        for (int64_t i = 0; i < m * n; i++) {
            double size, want = exact(&c, &a, &b, &bias, 0, i / n, i % n, &size);
            ck_assert_double_eq_tol(result(&out, i), want,
                                    (double)(k + 2) * dtype_info[F32].epsilon * size);
        }
        matrix_free(&a);
        matrix_free(&b);
        matrix_free(&bias);
        matrix_free(&out);
    }
}
END_TEST

START_TEST(descriptor_of_nodes)
{
    struct graph *g = graph_create("nodes");
    struct contraction c;
    value x = graph_leaf(g, OP_input, "x", BF16, (int64_t[]){2, 3, 4, 5}, 4);
    value w = graph_leaf(g, OP_input, "w", BF16, (int64_t[]){7, 5}, 2);
    value b = graph_leaf(g, OP_input, "b", BF16, (int64_t[]){7}, 1);
    value y = graph_leaf(g, OP_input, "y", BF16, (int64_t[]){3, 6, 5}, 3);
    value l = graph_op3(g, OP_linear, x, w, b), p = graph_matmul(g, x, y, false, true);
    value q = graph_matmul(g, x, w, false, true);
    ck_assert_int_eq(contraction_of(graph_node(g, l), &graph_node(g, x)->shape,
                                    &graph_node(g, w)->shape, &c, NULL),
                     ATOLL_OK);
    ck_assert(c.ab == BF16 && c.has_bias && c.transpose_b && c.n_batch == 0 && c.m == 24 &&
              c.n == 7 && c.k == 5);
    ck_assert_int_eq(contraction_of(graph_node(g, p), &graph_node(g, x)->shape,
                                    &graph_node(g, y)->shape, &c, NULL),
                     ATOLL_OK);
    ck_assert(c.n_batch == 2 && c.batch[0] == 2 && c.batch[1] == 3 && c.batch_stride_a[0] == 60 &&
              c.batch_stride_a[1] == 20 && c.batch_stride_b[0] == 0 && c.batch_stride_b[1] == 30);
    ck_assert_int_eq(contraction_of(graph_node(g, q), &graph_node(g, x)->shape,
                                    &graph_node(g, w)->shape, &c, NULL),
                     ATOLL_OK);
    ck_assert(c.n_batch == 0 && c.m == 24); /* a batch over one weight is more rows */
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, products_match_double, 0, ARRAY_LEN(types));
    tcase_add_loop_test(tc, batches_broadcast, 0, ARRAY_LEN(types));
    tcase_add_loop_test(tc, bits_depend_on_neither_threads_nor_alignment, 0, ARRAY_LEN(types));
    tcase_add_loop_test(tc, low_products_are_chains, 0, 4);
    tcase_add_loop_test(tc, subnormals_are_kept, 0, ARRAY_LEN(types));
    tcase_add_test(tc, cache_forgets_and_recovers);
    tcase_add_test(tc, builtin_product_matches_double);
    tcase_add_test(tc, descriptor_of_nodes);
}

int main(void)
{
    return run_suite("contraction", fill);
}
