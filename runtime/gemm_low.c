/* Products of bf16 and f16 for contraction.c, by AVX-512 in f32: the processor's own bf16 products
 * (vdpbf16ps) flush subnormals, round sums in a way of their own and, without tiles (AMX), are no
 * faster. Operands are widened, which is exact, where they are packed: one (the "many") in panels
 * of 64, six rows of the other (the "few") are broadcast against a panel, so that 24 registers hold
 * sums. Invariant: an element of C adds its products in rising k from 0 by fused multiply-add,
 * then the bias, then is rounded once, whatever the blocking, the number of threads or the side
 * that is packed. Which side is which follows from what has to be transposed. */
#include "gemm_low.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <omp.h>
#include <string.h>

#include "codegen/prelude/convert.h"

#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

enum {
    LANES = 16,
    VECTORS = 4,
    WIDTH = LANES * VECTORS, /* of a panel */
    ROWS = 6,                /* of the few, against a panel at once */
    MORE_ROWS = 12,          /* against one vector: fewer sums would wait for each other */
    DEPTH = 256,             /* of k, packed at once */
    MOST_PANELS = 4,         /* of a task */
    SUMS_ROW = MOST_PANELS * WIDTH,
    GROUP = 48, /* rows of the few whose sums are rounded while in the first cache: of ROWS,
                   MORE_ROWS and LANES */
    MOST_ROWS = 6 * GROUP, /* of a task */
    LEAST_SHARED_WORK = 1 << 20,
    TASKS_A_THREAD = 4 /* from so many on, a thread more or less to do does not show */
};

/* Of each thread, 640 KiB: a part of a second cache. */
struct task_memory {
    float few[MOST_ROWS * DEPTH], panel[DEPTH * WIDTH], sums[MOST_ROWS * SUMS_ROW];
};

/* A matrix of k by `size` (rows or columns of C): element (p, i) at p * step + i * next. */
struct side {
    const uint16_t *data;
    int64_t size, step, next;
};

struct product {
    struct side few, many;
    int64_t k, batch, blocks, groups, panels; /* blocks of few, groups of panels of many */
    int threads;                              /* no more than there are tasks */
    enum dtype in, out;
    const void *bias;
    void *c;
    int64_t n;      /* columns of C */
    bool is_turned; /* the few are C's columns */
};

/* ---- elements ---- */

WIDE static inline __m512 widened(const uint16_t *from, enum dtype t)
{
    __m256i x = _mm256_loadu_si256((const void *)from);
    return t == F16 ? _mm512_cvtph_ps(x)
                    : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

static inline float widened_one(uint16_t x, enum dtype t)
{
    return t == F16 ? from_f16(x) : from_bf16(x);
}

/* to[i] = from[i] for a row of n. */
WIDE static void widen_row(const uint16_t *from, int64_t n, enum dtype t, float *to)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        _mm512_storeu_ps(to + i, widened(from + i, t));
    }
    for (; i < n; i++) {
        to[i] = widened_one(from[i], t);
    }
}

/* 16 elements rounded as to_bf16 and to_f16 do: to nearest, ties to even, one NaN. */
WIDE static inline __m256i rounded(__m512 x, enum dtype t)
{
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    if (t == F16) {
        __m256i h = _mm512_maskz_cvtps_ph((__mmask16)0xffff, x, _MM_FROUND_TO_NEAREST_INT);
        return _mm256_mask_mov_epi16(h, nan, _mm256_set1_epi16(0x7e00));
    }
    __m512i u = _mm512_castps_si512(x),
            even = _mm512_and_epi32(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    u = _mm512_mask_mov_epi32(_mm512_srli_epi32(u, 16), nan, _mm512_set1_epi32(0x7fc0));
    return _mm512_cvtepi32_epi16(u);
}

/* A row of C, or a part of it: sums and the bias, rounded. */
WIDE static void store_row(const float *sums, const float *bias, int64_t n, enum dtype t, void *to)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512 x = _mm512_add_ps(_mm512_loadu_ps(sums + i), _mm512_loadu_ps(bias + i));
        if (t == F32) {
            _mm512_storeu_ps((float *)to + i, x);
        } else {
            _mm256_storeu_si256((void *)((uint16_t *)to + i), rounded(x, t));
        }
    }
    for (; i < n; i++) {
        float x = sums[i] + bias[i];
        if (t == F32) {
            ((float *)to)[i] = x;
        } else {
            ((uint16_t *)to)[i] = t == F16 ? to_f16(x) : to_bf16(x);
        }
    }
}

/* Row i of r becomes column i. */
WIDE static inline void turn(__m512 r[LANES])
{
    __m512 t[LANES];
    UNROLLED
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLLED
    for (int i = 0; i < LANES; i += 4) {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]),
                c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* ---- packing ---- */

static int64_t whole_vectors(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* panel[p][j] for the many from j0 on, up to a panel of them; 0 up to the next whole vector. */
WIDE static void pack_panel(float *panel, const struct side *s, int64_t j0, int64_t p0,
                            int64_t depth, enum dtype t)
{
    int64_t width = s->size - j0 < WIDTH ? s->size - j0 : WIDTH, end = whole_vectors(width), p = 0;
    const uint16_t *from = s->data + p0 * s->step + j0 * s->next;
    if (s->next == 1) {
        for (; p < depth; p++) {
            widen_row(from + p * s->step, width, t, panel + p * WIDTH);
            for (int64_t j = width; j < end; j++) {
                panel[p * WIDTH + j] = 0.0F;
            }
        }
        return;
    }
    for (; s->step == 1 && p + LANES <= depth; p += LANES) {
        for (int64_t j = 0; j < end; j += LANES) {
            __m512 r[LANES];
            UNROLLED
            for (int i = 0; i < LANES; i++) {
                r[i] =
                    j + i < width ? widened(from + p + (j + i) * s->next, t) : _mm512_setzero_ps();
            }
            turn(r);
            UNROLLED
            for (int i = 0; i < LANES; i++) {
                _mm512_store_ps(panel + (p + i) * WIDTH + j, r[i]);
            }
        }
    }
    for (; p < depth; p++) {
        for (int64_t j = 0; j < end; j++) {
            panel[p * WIDTH + j] =
                j < width ? widened_one(from[p * s->step + j * s->next], t) : 0.0F;
        }
    }
}

/* few[i][p] where k is dense, else few[p][i]: as it lies, so that nothing is transposed. */
WIDE static void pack_few(float *few, const struct side *s, int64_t i0, int64_t rows, int64_t p0,
                          int64_t depth, enum dtype t)
{
    const uint16_t *from = s->data + p0 * s->step + i0 * s->next;
    if (s->step == 1) {
        for (int64_t i = 0; i < rows; i++) {
            widen_row(from + i * s->next, depth, t, few + i * DEPTH);
        }
    } else {
        for (int64_t p = 0; p < depth; p++) {
            widen_row(from + p * s->step, rows, t, few + p * MOST_ROWS);
        }
    }
}

/* ---- a tile ---- */

/* sums[i][j] (goes_on: +)= few[i] panel[][j] over the depth, for R rows and V vectors. */
#define DEFINE_TILE(R, V)                                                                          \
    WIDE static void tile_##R##_##V(int64_t depth, const float *few, int64_t row, int64_t step,    \
                                    const float *panel, float *sums, bool goes_on)                 \
    {                                                                                              \
        __m512 s[R][V];                                                                            \
        UNROLLED for (int i = 0; i < R; i++)                                                       \
        {                                                                                          \
            UNROLLED for (int j = 0; j < V; j++)                                                   \
            {                                                                                      \
                s[i][j] = goes_on ? _mm512_load_ps(sums + i * SUMS_ROW + j * LANES)                \
                                  : _mm512_setzero_ps();                                           \
            }                                                                                      \
        }                                                                                          \
        for (int64_t p = 0; p < depth; p++, few += step, panel += WIDTH) {                         \
            __m512 v[V];                                                                           \
            UNROLLED for (int j = 0; j < V; j++)                                                   \
            {                                                                                      \
                v[j] = _mm512_load_ps(panel + j * LANES);                                          \
            }                                                                                      \
            UNROLLED for (int i = 0; i < R; i++)                                                   \
            {                                                                                      \
                __m512 x = _mm512_set1_ps(few[i * row]);                                           \
                UNROLLED for (int j = 0; j < V; j++)                                               \
                {                                                                                  \
                    s[i][j] = _mm512_fmadd_ps(x, v[j], s[i][j]);                                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLLED for (int i = 0; i < R; i++)                                                       \
        {                                                                                          \
            UNROLLED for (int j = 0; j < V; j++)                                                   \
            {                                                                                      \
                _mm512_store_ps(sums + i * SUMS_ROW + j * LANES, s[i][j]);                         \
            }                                                                                      \
        }                                                                                          \
    }
#define DEFINE_TILES(R) DEFINE_TILE(R, 1) DEFINE_TILE(R, 2) DEFINE_TILE(R, 3) DEFINE_TILE(R, 4)
DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)
DEFINE_TILES(4)
DEFINE_TILES(5)
DEFINE_TILES(6)
DEFINE_TILE(12, 1)
typedef void tile_function(int64_t, const float *, int64_t, int64_t, const float *, float *, bool);
static tile_function *const tiles[ROWS][VECTORS] = {
    {tile_1_1, tile_1_2, tile_1_3, tile_1_4}, {tile_2_1, tile_2_2, tile_2_3, tile_2_4},
    {tile_3_1, tile_3_2, tile_3_3, tile_3_4}, {tile_4_1, tile_4_2, tile_4_3, tile_4_4},
    {tile_5_1, tile_5_2, tile_5_3, tile_5_4}, {tile_6_1, tile_6_2, tile_6_3, tile_6_4}};

/* ---- a task ---- */

/* The bias of n columns of C from j on, as f32; zeros without one. -0 + 0 would be +0: -0 is what
 * adding nothing is. */
static void bias_of(const struct product *x, int64_t j, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = x->bias == NULL ? -0.0F
                : x->out == F32 ? ((const float *)x->bias)[j + i]
                                : widened_one(((const uint16_t *)x->bias)[j + i], x->out);
    }
}

static void *at(const struct product *x, int64_t i, int64_t j)
{
    return (char *)x->c + (size_t)(i * x->n + j) * dtype_info[x->out].bytes;
}

/* Rows of C: the few from i on, the many from j on. */
static void store_straight(const struct product *x, const float *sums, int64_t i, int64_t rows,
                           int64_t j, int64_t columns)
{
    float bias[WIDTH];
    bias_of(x, j, columns, bias);
    for (int64_t r = 0; r < rows; r++) {
        store_row(sums + r * SUMS_ROW, bias, columns, x->out, at(x, i + r, j));
    }
}

/* Columns of C: the few from j on; its rows are the many, from i on. 16 rows at a time. */
WIDE static void store_turned(const struct product *x, const float *sums, int64_t j,
                              int64_t columns, int64_t i, int64_t rows)
{
    float bias[GROUP], lines[LANES][GROUP];
    bias_of(x, j, columns, bias);
    for (int64_t r = 0; r < rows; r += LANES) {
        for (int64_t q = 0; q < columns; q += LANES) {
            __m512 block[LANES];
            UNROLLED
            for (int l = 0; l < LANES; l++) {
                block[l] = _mm512_load_ps(sums + (q + l) * SUMS_ROW + r);
            }
            turn(block);
            UNROLLED
            for (int l = 0; l < LANES; l++) {
                _mm512_storeu_ps(lines[l] + q, block[l]);
            }
        }
        for (int64_t l = 0; l < LANES && r + l < rows; l++) {
            store_row(lines[l], bias, columns, x->out, at(x, i + r + l, j));
        }
    }
}

/* The first n rows of few against a panel of so many columns. */
static void run_group(const struct product *x, const float *few, int64_t n, const float *panel,
                      int64_t columns, int64_t depth, float *sums, bool goes_on)
{
    int64_t row = x->few.step == 1 ? DEPTH : 1, step = x->few.step == 1 ? 1 : MOST_ROWS;
    int64_t vectors = whole_vectors(columns) / LANES;
    for (int64_t i = 0, rows; i < n; i += rows) {
        bool is_narrow = vectors == 1 && n - i >= MORE_ROWS;
        rows = is_narrow ? MORE_ROWS : n - i < ROWS ? n - i : ROWS;
        tile_function *tile = is_narrow ? tile_12_1 : tiles[rows - 1][vectors - 1];
        tile(depth, few + i * row, row, step, panel, sums + i * SUMS_ROW, goes_on);
    }
}

static void run_task(const struct product *x, int64_t block, int64_t group, struct task_memory *m)
{
    int64_t height = whole_vectors((x->few.size + x->blocks - 1) / x->blocks), i0 = block * height;
    int64_t left = x->few.size - i0, rows = left < height ? left : height;
    int64_t j0 = group * x->panels * WIDTH, j1 = j0 + x->panels * WIDTH;
    j1 = j1 < x->many.size ? j1 : x->many.size;
    for (int64_t p = 0; p < x->k && rows > 0; p += DEPTH) {
        int64_t depth = x->k - p < DEPTH ? x->k - p : DEPTH;
        pack_few(m->few, &x->few, i0, rows, p, depth, x->in);
        for (int64_t j = j0; j < j1; j += WIDTH) {
            int64_t columns = j1 - j < WIDTH ? j1 - j : WIDTH;
            pack_panel(m->panel, &x->many, j, p, depth, x->in);
            for (int64_t i = 0; i < rows; i += GROUP) {
                int64_t n = rows - i < GROUP ? rows - i : GROUP;
                float *sums = x->k <= DEPTH ? m->sums : m->sums + i * SUMS_ROW + (j - j0);
                run_group(x, m->few + i * (x->few.step == 1 ? DEPTH : 1), n, m->panel, columns,
                          depth, sums, p > 0);
                if (p + DEPTH >= x->k && x->is_turned) {
                    store_turned(x, sums, i0 + i, n, j, columns);
                } else if (p + DEPTH >= x->k) {
                    store_straight(x, sums, i0 + i, n, j, columns);
                }
            }
        }
    }
}

/* ---- the product ---- */

bool gemm_low_serves(enum dtype t)
{
    return (t == BF16 || t == F16) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

/* Blocks and groups, such that threads get as many tasks each. */
static void cut(struct product *x, int64_t threads)
{
    int64_t batch = x->batch, panels = (x->many.size + WIDTH - 1) / WIDTH,
            least = TASKS_A_THREAD * threads;
    x->blocks = (x->few.size + MOST_ROWS - 1) / MOST_ROWS;
    for (x->panels = MOST_PANELS;; x->panels /= 2) {
        x->groups = (panels + x->panels - 1) / x->panels;
        int64_t tasks = batch * x->blocks * x->groups;
        if (tasks % threads == 0 || tasks >= least || x->panels == 1) {
            break;
        }
    }
    while (batch * x->blocks * x->groups < least && batch * x->blocks * x->groups % threads != 0 &&
           x->few.size / (x->blocks + 1) >= 2 * LANES) {
        x->blocks++;
    }
    int64_t tasks = batch * x->blocks * x->groups;
    x->threads = (int)(tasks < threads ? tasks : threads);
}

/* Transposing costs most, next to it a panel that is not full. Where k is dense on both sides, a
 * small A is what is transposed, unless so few rows would leave most of a vector empty. */
static void choose(struct product *x, const struct contraction *c)
{
    struct side a = {
        .size = c->m, .step = c->transpose_a ? c->m : 1, .next = c->transpose_a ? 1 : c->k};
    struct side b = {
        .size = c->n, .step = c->transpose_b ? 1 : c->n, .next = c->transpose_b ? c->k : 1};
    x->is_turned = c->transpose_b && c->m >= LANES &&
                   (double)c->m * (double)(c->n + c->k) < (double)c->n * (double)c->k;
    x->few = x->is_turned ? b : a;
    x->many = x->is_turned ? a : b;
}

static struct product product_of(const struct contraction *c)
{
    struct product x = {.k = c->k, .batch = 1, .in = c->ab, .out = c->c, .n = c->n};
    for (uint32_t d = 0; d < c->n_batch; d++) {
        x.batch *= c->batch[d];
    }
    choose(&x, c);
    double work = (double)x.batch * (double)c->m * (double)c->n * (double)c->k;
    cut(&x, work < LEAST_SHARED_WORK ? 1 : omp_get_max_threads());
    return x;
}

size_t gemm_low_scratch(const struct contraction *c)
{
    return (size_t)product_of(c).threads * sizeof(struct task_memory);
}

void gemm_low(const struct contraction *c, const uint16_t *a, const uint16_t *b, const void *bias,
              void *out, void *scratch)
{
    const struct product x = product_of(c);
    struct task_memory *memory = scratch;
    int64_t tasks = x.blocks * x.groups;
#pragma omp parallel for schedule(static) num_threads(x.threads) if (x.threads > 1)
    for (int64_t task = 0; task < x.batch * tasks; task++) {
        struct product part = x;
        int64_t i = task / tasks;
        const uint16_t *from_a = a + contraction_at(c, c->batch_stride_a, i),
                       *from_b = b + contraction_at(c, c->batch_stride_b, i);
        part.bias = c->has_bias ? bias : NULL;
        part.c = (char *)out + (size_t)(i * c->m * c->n) * dtype_info[c->c].bytes;
        part.few.data = x.is_turned ? from_b : from_a;
        part.many.data = x.is_turned ? from_a : from_b;
        run_task(&part, task % tasks / x.groups, task % x.groups, memory + omp_get_thread_num());
    }
}

#else

bool gemm_low_serves(enum dtype t)
{
    (void)t;
    return false;
}

size_t gemm_low_scratch(const struct contraction *c)
{
    (void)c;
    return 0;
}

void gemm_low(const struct contraction *c, const uint16_t *a, const uint16_t *b, const void *bias,
              void *out, void *scratch)
{
    (void)c, (void)a, (void)b, (void)bias, (void)out, (void)scratch;
}

#endif
