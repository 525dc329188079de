/* A matmul on emulated memory: D = scale_d * epilogue(alpha * scale_a * scale_b * op(A) op(B) +
 * beta * C + bias), summed in f32 (f64 for f64) by fused multiply-add over k in increasing order,
 * rounded once to D. Operands are checked and recorded in device memory like a kernel's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublaslt_types.h"
#include "driver.h"
#include "scalar.h"

static const struct narrow_format *format_of(uint32_t type)
{
    switch (type) {
    case CUDA_R_16F:
        return &format_f16;
    case CUDA_R_16BF:
        return &format_bf16;
    case CUDA_R_8F_E4M3:
        return &format_e4m3;
    default:
        return &format_e5m2;
    }
}

static double load(uint32_t type, const uint8_t *p)
{
    float f;
    double d;
    uint32_t bits = 0;
    switch (type) {
    case CUDA_R_64F:
        memcpy(&d, p, sizeof d);
        return d;
    case CUDA_R_32F:
        memcpy(&f, p, sizeof f);
        return (double)f;
    case CUDA_R_16F:
        memcpy(&bits, p, 2);
        return load_f16(bits);
    case CUDA_R_16BF:
        memcpy(&bits, p, 2);
        return load_bf16(bits);
    default:
        return widen(format_of(type), *p);
    }
}

static void store(uint32_t type, uint8_t *p, double value)
{
    float f = (float)value;
    uint32_t bits;
    switch (type) {
    case CUDA_R_64F:
        memcpy(p, &value, sizeof value);
        return;
    case CUDA_R_32F:
        memcpy(p, &f, sizeof f);
        return;
    case CUDA_R_16F:
        bits = store_f16(value);
        memcpy(p, &bits, 2);
        return;
    case CUDA_R_16BF:
        bits = store_bf16(value);
        memcpy(p, &bits, 2);
        return;
    default: /* FP8 results saturate */
        *p = (uint8_t)narrow(format_of(type), value, ROUND_NEAREST, 1);
    }
}

/* The matrix of one batch, its bytes checked column by column (row by row if row-major); NULL after
 * a finding. */
static uint8_t *bytes_of(const struct operation *op, const struct matrix *x, int32_t batch,
                         bool is_write)
{
    uint32_t size = type_bytes(x->type);
    CUdeviceptr start =
        x->address + (CUdeviceptr)((int64_t)batch * x->batch_stride * (int64_t)size);
    uint64_t line = x->is_row_major ? x->columns : x->rows,
             lines = x->is_row_major ? x->rows : x->columns;
    if (x->ld == (int64_t)line) {
        line *= lines;
        lines = 1;
    }
    uint8_t *first = NULL;
    for (uint64_t i = 0; i < lines; i++) {
        uint8_t *p = emulator_bytes(op, start + i * (uint64_t)x->ld * size, line * size, is_write);
        first = i == 0 ? p : first;
        if (!p) {
            return NULL;
        }
    }
    return first;
}

static uint64_t element(const struct matrix *x, uint64_t row, uint64_t column)
{
    return x->is_row_major ? row * (uint64_t)x->ld + column : column * (uint64_t)x->ld + row;
}

/* op(x) as f32 or f64, rows x columns, row by row when by_rows, else column by column. */
static void unpack(const struct matmul *m, const struct matrix *x, const uint8_t *p,
                   bool is_transposed, uint64_t rows, uint64_t columns, bool by_rows,
                   float *narrow_out, double *wide_out)
{
    uint32_t size = type_bytes(x->type);
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < columns; c++) {
            double v =
                load(x->type, p + element(x, is_transposed ? c : r, is_transposed ? r : c) * size);
            if (m->compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
                v = widen(&format_tf32, narrow(&format_tf32, v, ROUND_AWAY, 0));
            }
            uint64_t at = by_rows ? r * columns + c : c * rows + r;
            if (wide_out) {
                wide_out[at] = v;
            } else {
                narrow_out[at] = (float)v;
            }
        }
    }
}

/* sum = a b, column by column, in increasing k. */
#define MULTIPLY(name, type, fused)                                                                \
    static void name(const struct matmul *m, const type *a, const type *b, type *sum)              \
    {                                                                                              \
        memset(sum, 0, m->m * m->n * sizeof *sum);                                                 \
        for (uint64_t n = 0; n < m->n; n++) {                                                      \
            type *to = sum + n * m->m;                                                             \
            for (uint64_t k = 0; k < m->k; k++) {                                                  \
                const type *from = a + k * m->m;                                                   \
                type factor = b[n * m->k + k];                                                     \
                for (uint64_t i = 0; i < m->m; i++) {                                              \
                    to[i] = fused(from[i], factor, to[i]);                                         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
MULTIPLY(multiply_f32, float, __builtin_fmaf)
MULTIPLY(multiply_f64, double, __builtin_fma)

/* A float on the device, 1 when there is none; false after a finding. */
static bool read_factor(const struct operation *op, CUdeviceptr at, float *out)
{
    *out = 1.0f;
    if (!at) {
        return true;
    }
    const void *p = emulator_bytes(op, at, sizeof *out, 0);
    if (p) {
        memcpy(out, p, sizeof *out);
    }
    return p != NULL;
}

struct scalars {
    double alpha, beta;
    float a, b, c, d;
    struct part_scales parts; /* of rows or blocks; a and b are 1 then */
    bool is_wide;
};

static bool read_scalars(const struct matmul *m, const struct operation *op, struct scalars *s)
{
    s->is_wide = m->compute == CUBLAS_COMPUTE_64F || m->compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    s->alpha = m->alpha;
    s->beta = m->beta;
    if (m->scalars_on_device) {
        uint32_t type = s->is_wide ? CUDA_R_64F : CUDA_R_32F;
        const uint8_t *alpha = emulator_bytes(op, m->alpha_at, type_bytes(type), 0);
        const uint8_t *beta = emulator_bytes(op, m->beta_at, type_bytes(type), 0);
        if (!alpha || !beta) {
            return false;
        }
        s->alpha = load(type, alpha);
        s->beta = load(type, beta);
    }
    bool has_parts = matmul_has_parts(m);
    return matmul_read_scales(m, op, &s->parts) &&
           read_factor(op, has_parts ? 0 : m->scale_a, &s->a) &&
           read_factor(op, has_parts ? 0 : m->scale_b, &s->b) &&
           read_factor(op, m->scale_c, &s->c) && read_factor(op, m->scale_d, &s->d);
}

/* Everything behind the sum, in the compute type; each line is one operation of it. */
static double finish(const struct matmul *m, const struct scalars *s, double sum, double c,
                     double bias, float *amax)
{
    if (s->is_wide) {
        double v = s->alpha * sum + (s->beta != 0 ? s->beta * c : 0) + bias;
        return m->epilogue & CUBLASLT_EPILOGUE_RELU && v < 0 ? 0 : v;
    }
    float v = (float)s->alpha * s->a * s->b * (float)sum;
    v = s->beta != 0 ? v + (float)s->beta * s->c * (float)c : v;
    v = m->epilogue & CUBLASLT_EPILOGUE_BIAS ? v + (float)bias : v;
    v = m->epilogue & CUBLASLT_EPILOGUE_RELU && v < 0 ? 0 : v;
    float magnitude = fabsf(v);
    *amax = magnitude > *amax ? magnitude : *amax;
    return (double)(s->d * v);
}

static bool run_batch(const struct matmul *m, const struct operation *op, int32_t batch,
                      struct scalars *s, void *room, float *amax)
{
    size_t unit = s->is_wide ? sizeof(double) : sizeof(float);
    uint8_t *a = room, *b = a + m->m * m->k * unit, *sum = b + m->k * m->n * unit;
    const uint8_t *from_a = bytes_of(op, &m->a, batch, false),
                  *from_b = bytes_of(op, &m->b, batch, false);
    const uint8_t *c = s->beta != 0 ? bytes_of(op, &m->c, batch, false) : NULL;
    const uint8_t *bias = NULL;
    bool has_bias = (m->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    uint32_t bias_bytes = type_bytes(m->bias_type);
    if (has_bias) {
        CUdeviceptr at =
            m->bias + (CUdeviceptr)((int64_t)batch * m->bias_stride * (int64_t)bias_bytes);
        bias = emulator_bytes(op, at, m->m * bias_bytes, 0);
    }
    uint8_t *d = from_a && from_b && (c || s->beta == 0) && (bias || !has_bias)
                     ? bytes_of(op, &m->d, batch, true)
                     : NULL;
    if (!d) {
        return false;
    }
    float *narrow_a = s->is_wide ? NULL : (float *)(void *)a,
          *narrow_b = s->is_wide ? NULL : (float *)(void *)b;
    double *wide_a = s->is_wide ? (double *)(void *)a : NULL,
           *wide_b = s->is_wide ? (double *)(void *)b : NULL;
    unpack(m, &m->a, from_a, m->transpose_a, m->m, m->k, false, narrow_a, wide_a);
    unpack(m, &m->b, from_b, m->transpose_b, m->k, m->n, false, narrow_b, wide_b);
    if (s->parts.a) {
        matmul_multiply_parts(m, &s->parts, narrow_a, narrow_b, (float *)(void *)sum,
                              (float *)(void *)sum + m->m * m->n);
    } else if (s->is_wide) {
        multiply_f64(m, wide_a, wide_b, (double *)(void *)sum);
    } else {
        multiply_f32(m, narrow_a, narrow_b, (float *)(void *)sum);
    }
    for (uint64_t n = 0; n < m->n; n++) {
        for (uint64_t i = 0; i < m->m; i++) {
            double value = load(s->is_wide ? CUDA_R_64F : CUDA_R_32F, sum + (n * m->m + i) * unit);
            double old = c ? load(m->c.type, c + element(&m->c, i, n) * type_bytes(m->c.type)) : 0;
            double add = bias ? load(m->bias_type, bias + i * bias_bytes) : 0;
            store(m->d.type, d + element(&m->d, i, n) * type_bytes(m->d.type),
                  finish(m, s, value, old, add, amax));
        }
    }
    return true;
}

void matmul_run(void *job, const struct operation *op)
{
    const struct matmul *m = job;
    struct scalars s;
    float amax = 0;
    if (!read_scalars(m, op, &s)) {
        return;
    }
    void *room = malloc((m->m * m->k + m->k * m->n + m->m * m->n + m->m) *
                        (s.is_wide ? sizeof(double) : sizeof(float)));
    if (!room) {
        fputs("CUDA emulator: the host has no memory for a matmul\n", stderr);
        abort();
    }
    bool is_good = true;
    for (int32_t batch = 0; batch < m->d.batches && is_good; batch++) {
        is_good = run_batch(m, op, batch, &s, room, &amax);
    }
    free(room);
    void *at = is_good && m->amax_d ? emulator_bytes(op, m->amax_d, sizeof amax, 1) : NULL;
    if (at) {
        memcpy(at, &amax, sizeof amax);
    }
}
