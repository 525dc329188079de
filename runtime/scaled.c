/* f8 products on the CPU. Both operands are widened chunk by chunk along K, a chunk being what lies
 * under one scale; its product is a contraction like any other, so the library and the order of its
 * sums are those of f32. Invariant: the bits depend on the shape alone, as that contraction's do.
 */
#include "scaled.h"

#include <math.h>
#include <string.h>

#include "codegen/prelude/convert.h"

void scaled_product_of(const struct node *n, enum dtype a, enum dtype b, const int64_t a_shape[2],
                       const int64_t b_shape[2], struct scaled_product *out)
{
    *out = (struct scaled_product){.a = a,
                                   .b = b,
                                   .c = n->dtype,
                                   .scale_a = node_scale_kind(n, 0),
                                   .scale_b = node_scale_kind(n, 1),
                                   .m = a_shape[0],
                                   .n = b_shape[0],
                                   .k = a_shape[1]};
}

/* Columns at..at+width of (rows,k) into (rows,width). */
static void widen(enum dtype t, int64_t rows, int64_t k, int64_t at, int64_t width,
                  const uint8_t *from, float *to)
{
#pragma omp parallel for schedule(static) if (rows * width >= 1 << 15)
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *x = from + r * k + at;
        float *y = to + r * width;
        if (t == F8E4M3) {
            for (int64_t i = 0; i < width; i++) {
                y[i] = from_f8e4m3(x[i]);
            }
        } else {
            for (int64_t i = 0; i < width; i++) {
                y[i] = from_f8e5m2(x[i]);
            }
        }
    }
}

/* The scales of one chunk: element i of the rows has at[i / rows * step]. */
struct lane {
    const float *at;
    int64_t rows, step;
};

/* Scales that lie as a library wants them, one after another again, f32. */
static void straighten(enum scale_kind kind, int64_t rows, int64_t k, const void *from, float *to)
{
    const struct scale_kind_row *row = &scale_kind_info[kind];
    int64_t size[2] = {rows, k}, down = rows / row->rows, across = k / row->depth;
    for (int64_t r = 0; r < down; r++) {
        for (int64_t p = 0; p < across; p++) {
            int64_t at = scale_index(kind, size, r, p);
            uint8_t byte = row->dtype == U8 ? ((const uint8_t *)from)[at] : 0;
            to[r * across + p] = row->dtype != U8 ? ((const float *)from)[at]
                                 : byte == 255    ? (float)NAN
                                                  : ldexpf(1.0F, byte - 127);
        }
    }
}

/* How many floats straighten gives; 0: the scales are straight already. */
static int64_t to_straighten(enum scale_kind kind, int64_t rows, int64_t k)
{
    const struct scale_kind_row *row = &scale_kind_info[kind];
    return row->plain == kind ? 0 : rows / row->rows * (k / row->depth);
}

static struct lane lane_of(const float *scales, enum scale_kind kind, int64_t k, int64_t at)
{
    const struct scale_kind_row *part = &scale_kind_info[kind];
    int64_t columns = part->depth == 0 ? 1 : k / part->depth;
    return (struct lane){scales + (part->depth == 0 ? 0 : at / part->depth), part->rows, columns};
}

static float lane_at(const struct lane *l, int64_t i)
{
    return l->at[l->rows == 0 ? 0 : i / l->rows * l->step];
}

/* sum = (first ? 0 : sum) + partial s t */
static void scale_chunk(const struct scaled_product *p, const struct lane *a, const struct lane *b,
                        bool is_first, const float *partial, float *sum)
{
#pragma omp parallel for schedule(static) if (p->m * p->n >= 1 << 15)
    for (int64_t i = 0; i < p->m; i++) {
        float s = lane_at(a, i);
        for (int64_t j = 0; j < p->n; j++) {
            float x = partial[i * p->n + j] * s * lane_at(b, j);
            sum[i * p->n + j] = is_first ? x : sum[i * p->n + j] + x;
        }
    }
}

static void round_result(enum dtype t, int64_t n, const float *from, void *out)
{
    uint16_t *low = out;
    if (t == F32) {
        memcpy(out, from, (size_t)n * sizeof *from);
        return;
    }
#pragma omp parallel for simd schedule(static) if (n >= 1 << 15)
    for (int64_t i = 0; i < n; i++) {
        low[i] = t == BF16 ? to_bf16(from[i]) : to_f16(from[i]);
    }
}

/* What lies under one scale of either operand; all of K where both have one scale along it. */
static int64_t chunk_of(const struct scaled_product *p)
{
    int64_t a = scale_kind_info[p->scale_a].depth, b = scale_kind_info[p->scale_b].depth;
    int64_t least = a == 0 || (b != 0 && b < a) ? b : a;
    return least == 0 ? p->k : least;
}

static int64_t padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

status scaled_run(struct contraction_cache *cache, const struct scaled_product *p,
                  const void *const operands[4], void *out, struct error *e)
{
    int64_t chunk = chunk_of(p), n_out = p->m * p->n;
    if (n_out == 0) {
        return ATOLL_OK;
    }
    if (p->k == 0) {
        memset(out, 0, (size_t)n_out * dtype_info[p->c].bytes);
        return ATOLL_OK;
    }
    const float *s = operands[2], *t = operands[3];
    int64_t n_s = to_straighten(p->scale_a, p->m, p->k);
    int64_t n_t = to_straighten(p->scale_b, p->n, p->k);
    int64_t total = padded(p->m * chunk) + padded(p->n * chunk) + 2 * padded(n_out);
    float *a;
    TRY(contraction_scratch(cache, (size_t)(total + n_s + n_t) * sizeof *a, &a, e));
    float *b = a + padded(p->m * chunk), *partial = b + padded(p->n * chunk);
    float *sum = partial + padded(n_out), *straight = a + total;
    if (n_s > 0) {
        straighten(p->scale_a, p->m, p->k, operands[2], straight);
        s = straight;
    }
    if (n_t > 0) {
        straighten(p->scale_b, p->n, p->k, operands[3], straight + n_s);
        t = straight + n_s;
    }
    for (int64_t at = 0; at < p->k; at += chunk) {
        struct contraction c = {
            .ab = F32, .c = F32, .transpose_b = true, .m = p->m, .n = p->n, .k = chunk};
        struct lane of_a = lane_of(s, p->scale_a, p->k, at);
        struct lane of_b = lane_of(t, p->scale_b, p->k, at);
        widen(p->a, p->m, p->k, at, chunk, operands[0], a);
        widen(p->b, p->n, p->k, at, chunk, operands[1], b);
        TRY(contraction_run(cache, &c, a, b, NULL, partial, e));
        scale_chunk(p, &of_a, &of_b, at == 0, partial, sum);
    }
    round_result(p->c, n_out, sum, out);
    return ATOLL_OK;
}
