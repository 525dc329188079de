/* Contractions for both executors: one descriptor, one call, hence the same bits. oneDNN for f32,
 * and for bf16 where the processor has tiles for it; bf16 and f16 else by gemm_low.c where AVX-512
 * is; other low floats are widened to f32, multiplied, and rounded once; f64 and builds without
 * oneDNN use the built-in product. */
#include "contraction.h"

#include <stdlib.h>
#include <string.h>

#include "gemm.h"
#include "gemm_low.h"
#include "onednn.h"
#include "codegen/prelude/convert.h"

struct contraction_cache {
    struct onednn *onednn; /* NULL: not built in, or no engine */
    bool has_bf16;
    void *scratch; /* widened operands; grows to the largest call */
    size_t scratch_size;
};

/* ---- the descriptor ---- */

/* Drops batch axes of size 1 and merges neighbours that both operands walk as one; a batch that
 * only a walks becomes more rows. */
static void simplify_batch(struct contraction *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        if (c->batch[i] == 1) {
            continue;
        }
        bool merges = kept > 0 &&
                      c->batch_stride_a[kept - 1] == c->batch_stride_a[i] * c->batch[i] &&
                      c->batch_stride_b[kept - 1] == c->batch_stride_b[i] * c->batch[i];
        uint32_t to = merges ? kept - 1 : kept++;
        c->batch[to] = merges ? c->batch[to] * c->batch[i] : c->batch[i];
        c->batch_stride_a[to] = c->batch_stride_a[i];
        c->batch_stride_b[to] = c->batch_stride_b[i];
    }
    for (uint32_t i = kept; i < MAX_RANK - 2; i++) {
        c->batch[i] = c->batch_stride_a[i] = c->batch_stride_b[i] = 0;
    }
    c->n_batch = kept;
    if (kept == 1 && c->batch_stride_b[0] == 0 && !c->transpose_a &&
        c->batch_stride_a[0] == c->m * c->k) {
        c->m *= c->batch[0];
        c->n_batch = 0;
        c->batch[0] = c->batch_stride_a[0] = 0;
    }
}

static status matmul_of(const struct node *n, const struct shape *a, const struct shape *b,
                        struct contraction *out)
{
    uint32_t ra = a->rank - 2, rb = b->rank - 2;
    out->transpose_a = node_bool(n, "transpose_a");
    out->transpose_b = node_bool(n, "transpose_b");
    out->m = a->dims[out->transpose_a ? ra + 1 : ra].factor;
    out->k = a->dims[out->transpose_a ? ra : ra + 1].factor;
    out->n = b->dims[out->transpose_b ? rb : rb + 1].factor;
    out->n_batch = ra > rb ? ra : rb;
    int64_t step_a = out->m * out->k, step_b = out->k * out->n;
    for (uint32_t i = 0; i < out->n_batch; i++) { /* i counts from the last batch axis */
        int64_t da = i < ra ? a->dims[ra - 1 - i].factor : 1;
        int64_t db = i < rb ? b->dims[rb - 1 - i].factor : 1;
        uint32_t to = out->n_batch - 1 - i;
        out->batch[to] = da == 1 ? db : da;
        out->batch_stride_a[to] = da == 1 ? 0 : step_a;
        out->batch_stride_b[to] = db == 1 ? 0 : step_b;
        step_a *= da;
        step_b *= db;
    }
    simplify_batch(out);
    return ATOLL_OK;
}

status contraction_of(const struct node *n, const struct shape *a, const struct shape *b,
                      struct contraction *out, struct error *e)
{
    memset(out, 0, sizeof *out);
    out->ab = out->c = n->dtype;
    for (uint32_t i = 0; i < a->rank + b->rank; i++) {
        struct dim d = i < a->rank ? a->dims[i] : b->dims[i - a->rank];
        if (!dim_is_static(d) || d.factor < 0) {
            return fail(e, ATOLL_SHAPE, "%s: operand sizes must be numbers here; bind the symbols",
                        op_info[n->op].name);
        }
    }
    if (n->op == OP_matmul && a->rank >= 2 && b->rank >= 2) {
        return matmul_of(n, a, b, out);
    }
    if (n->op != OP_linear || a->rank < 1 || b->rank != 2) {
        return fail(e, ATOLL_INTERNAL, "%s: not a contraction over these ranks",
                    op_info[n->op].name);
    }
    out->transpose_b = true;
    out->has_bias = n->n_operands == 3;
    out->k = a->dims[a->rank - 1].factor;
    out->n = b->dims[0].factor;
    out->m = 1;
    for (uint32_t i = 0; i + 1 < a->rank; i++) {
        out->m *= a->dims[i].factor;
    }
    return ATOLL_OK;
}

/* ---- the cache ---- */

struct contraction_cache *contraction_cache_create(void)
{
    struct contraction_cache *cache = calloc(1, sizeof *cache);
#ifdef ATOLL_HAVE_ONEDNN
    /* Only a oneDNN that cannot be used here is done without: falling back for want of memory would
     * give one session other bits than the next. */
    if (cache != NULL && onednn_create(&cache->onednn) == ATOLL_OUT_OF_MEMORY) {
        free(cache);
        return NULL;
    }
    if (cache != NULL) {
        cache->has_bf16 = cache->onednn != NULL && onednn_has(cache->onednn, BF16, BF16);
    }
#endif
    return cache;
}

void contraction_cache_destroy(struct contraction_cache *cache)
{
    if (cache == NULL) {
        return;
    }
#ifdef ATOLL_HAVE_ONEDNN
    onednn_destroy(cache->onednn);
#endif
    free(cache->scratch);
    free(cache);
}

bool contraction_flushes(const struct contraction_cache *cache, enum dtype t)
{
    return t == BF16 && cache->has_bf16;
}

const char *contraction_library(void)
{
#ifdef ATOLL_HAVE_ONEDNN
    return "oneDNN " ONEDNN_VERSION_TEXT;
#else
    return "built-in";
#endif
}

/* ---- running ---- */

static int64_t batch_count(const struct contraction *c, const int64_t *strides)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        n *= strides == NULL || strides[i] != 0 ? c->batch[i] : 1;
    }
    return n;
}

/* Calls the built-in product once a batch element. */
static void run_builtin(const struct contraction *c, const void *a, const void *b, const void *bias,
                        void *out)
{
    int64_t a_row = c->transpose_a ? 1 : c->k, a_column = c->transpose_a ? c->m : 1;
    int64_t b_row = c->transpose_b ? 1 : c->n, b_column = c->transpose_b ? c->k : 1;
    int64_t n = batch_count(c, NULL);
    for (int64_t i = 0; i < n; i++) {
        int64_t at_a = contraction_at(c, c->batch_stride_a, i),
                at_b = contraction_at(c, c->batch_stride_b, i), at = i * c->m * c->n;
        if (c->ab == F64) {
            gemm_f64(c->m, c->n, c->k, (const double *)a + at_a, a_row, a_column,
                     (const double *)b + at_b, b_row, b_column, bias, (double *)out + at);
        } else {
            gemm_f32(c->m, c->n, c->k, (const float *)a + at_a, a_row, a_column,
                     (const float *)b + at_b, b_row, b_column, bias, (float *)out + at);
        }
    }
}

static status run_direct(struct contraction_cache *cache, const struct contraction *c,
                         const void *a, const void *b, const void *bias, void *out, struct error *e)
{
#ifdef ATOLL_HAVE_ONEDNN
    if (cache->onednn != NULL && c->ab != F64) {
        return onednn_run(cache->onednn, c, a, b, bias, out, e);
    }
#endif
    (void)cache;
    (void)e;
    run_builtin(c, a, b, bias, out);
    return ATOLL_OK;
}

/* One loop a dtype, so that each vectorises. */
#define DEFINE_CONVERSIONS(name, storage)                                                          \
    static void widen_##name(int64_t n, const storage *from, float *to)                            \
    {                                                                                              \
        _Pragma("omp parallel for simd schedule(static) if (n >= 1 << 15)") for (int64_t i = 0;    \
                                                                                 i < n; i++)       \
        {                                                                                          \
            to[i] = from_##name(from[i]);                                                          \
        }                                                                                          \
    }                                                                                              \
    static void narrow_##name(int64_t n, const float *from, storage *to)                           \
    {                                                                                              \
        _Pragma("omp parallel for simd schedule(static) if (n >= 1 << 15)") for (int64_t i = 0;    \
                                                                                 i < n; i++)       \
        {                                                                                          \
            to[i] = to_##name(from[i]);                                                            \
        }                                                                                          \
    }
DEFINE_CONVERSIONS(f16, uint16_t)
DEFINE_CONVERSIONS(bf16, uint16_t)
DEFINE_CONVERSIONS(f8e4m3, uint8_t)
DEFINE_CONVERSIONS(f8e5m2, uint8_t)

static void widen(enum dtype t, int64_t n, const void *from, float *to)
{
    if (t == F16) {
        widen_f16(n, from, to);
    } else if (t == BF16) {
        widen_bf16(n, from, to);
    } else if (t == F8E4M3) {
        widen_f8e4m3(n, from, to);
    } else {
        widen_f8e5m2(n, from, to);
    }
}

static void narrow(enum dtype t, int64_t n, const float *from, void *to)
{
    if (t == F16) {
        narrow_f16(n, from, to);
    } else if (t == BF16) {
        narrow_bf16(n, from, to);
    } else if (t == F8E4M3) {
        narrow_f8e4m3(n, from, to);
    } else {
        narrow_f8e5m2(n, from, to);
    }
}

static status need_scratch(struct contraction_cache *cache, size_t size, struct error *e)
{
    if (size <= cache->scratch_size) {
        return ATOLL_OK;
    }
    size = (size + 63) / 64 * 64;
    free(cache->scratch);
    cache->scratch = aligned_alloc(64, size);
    cache->scratch_size = cache->scratch != NULL ? size : 0;
    return cache->scratch != NULL
               ? ATOLL_OK
               : fail(e, ATOLL_OUT_OF_MEMORY, "contraction: no memory for %zu bytes of f32", size);
}

status contraction_scratch(struct contraction_cache *cache, size_t size, float **out,
                           struct error *e)
{
    TRY(need_scratch(cache, size, e));
    *out = cache->scratch;
    return ATOLL_OK;
}

static status run_widened(struct contraction_cache *cache, const struct contraction *c,
                          const void *a, const void *b, const void *bias, void *out,
                          struct error *e)
{
    int64_t n_a = c->m * c->k * batch_count(c, c->batch_stride_a);
    int64_t n_b = c->k * c->n * batch_count(c, c->batch_stride_b);
    int64_t n_out = c->m * c->n * batch_count(c, NULL), n_bias = c->has_bias ? c->n : 0;
    int64_t sizes[4] = {n_a, n_b, n_bias, n_out}, total = 0;
    float *parts[4];
    for (int i = 0; i < 4; i++) {
        total += (sizes[i] + 15) / 16 * 16;
    }
    TRY(need_scratch(cache, (size_t)total * sizeof(float), e));
    parts[0] = cache->scratch;
    for (int i = 1; i < 4; i++) {
        parts[i] = parts[i - 1] + (sizes[i - 1] + 15) / 16 * 16;
    }
    struct contraction wide = *c;
    wide.ab = wide.c = F32;
    widen(c->ab, n_a, a, parts[0]);
    widen(c->ab, n_b, b, parts[1]);
    if (c->c == F32) {
        return run_direct(cache, &wide, parts[0], parts[1], bias, out, e);
    }
    widen(c->c, n_bias, bias, parts[2]);
    TRY(run_direct(cache, &wide, parts[0], parts[1], c->has_bias ? parts[2] : NULL, parts[3], e));
    narrow(c->c, n_out, parts[3], out);
    return ATOLL_OK;
}

/* No products: the bias, or zeros, in every row. */
static void fill_bias(const struct contraction *c, const void *bias, void *out)
{
    size_t row = (size_t)c->n * dtype_info[c->c].bytes;
    int64_t rows = c->m * batch_count(c, NULL);
    for (int64_t i = 0; i < rows; i++) {
        if (c->has_bias) {
            memcpy((char *)out + (size_t)i * row, bias, row);
        } else {
            memset((char *)out + (size_t)i * row, 0, row);
        }
    }
}

status contraction_run(struct contraction_cache *cache, const struct contraction *c, const void *a,
                       const void *b, const void *bias, void *out, struct error *e)
{
    if (!dtype_is_float(c->ab) || (c->c != c->ab && !(c->c == F32 && dtype_is_low(c->ab)))) {
        return fail(e, ATOLL_DTYPE,
                    "contraction: %s operands with a %s result; expected one float "
                    "dtype, cast first",
                    dtype_info[c->ab].name, dtype_info[c->c].name);
    }
    if (c->m == 0 || c->n == 0 || batch_count(c, NULL) == 0) {
        return ATOLL_OK;
    }
    if (c->k == 0) {
        fill_bias(c, bias, out);
        return ATOLL_OK;
    }
    if (!dtype_is_low(c->ab) || (c->ab == BF16 && cache->has_bf16)) {
        return run_direct(cache, c, a, b, bias, out, e);
    }
    if (gemm_low_serves(c->ab)) {
        TRY(need_scratch(cache, gemm_low_scratch(c), e));
        gemm_low(c, a, b, bias, out, cache->scratch);
        return ATOLL_OK;
    }
    return run_widened(cache, c, a, b, bias, out, e);
}
