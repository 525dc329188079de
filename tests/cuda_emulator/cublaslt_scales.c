/* Scales of FP8 operands: one a row of D and one a column (OUTER_VEC_32F), or of parts along k: 128
 * (VEC128_32F, BLK128x128_32F) and 32 (VEC32_UE8M0). Which modes go together, where each is there,
 * how the factors lie, and the product with them. Invariant: a factor is read where the real
 * library reads it, and the bytes of all of them are checked first. */
#include <math.h>
#include <string.h>

#include "cublaslt_types.h"
#include "driver.h"

#define SCALAR CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
#define VEC32  CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
#define OUTER  CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
#define VEC128 CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
#define BLK128 CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F

/* ---- rules ---- */

static bool is_known(uint32_t mode)
{
    return mode == SCALAR || mode == VEC32 || mode == OUTER || mode == VEC128 || mode == BLK128;
}

bool matmul_knows_scales(const struct matmul *m)
{
    return is_known(m->scale_mode_a) && is_known(m->scale_mode_b);
}

bool matmul_has_parts(const struct matmul *m)
{
    return m->scale_mode_a != SCALAR || m->scale_mode_b != SCALAR;
}

const char *matmul_check_scales(const struct matmul *m)
{
    uint32_t a = m->scale_mode_a, b = m->scale_mode_b;
    int arch = emulator_compute_capability();
    bool are_blocks = (a == VEC128 || a == BLK128) && (b == VEC128 || b == BLK128);
    if (!are_blocks && a != b) {
        return "scale modes of A and B that do not go together";
    }
    if (a == OUTER && arch / 10 != 9) {
        return "scales a row and a column (OUTER_VEC_32F) are there on sm_90 only";
    }
    if (are_blocks && arch / 10 != 9) {
        return "scales of 128 (VEC128_32F, BLK128x128_32F) are there on sm_90 only";
    }
    if (a == VEC32 && arch < 100) {
        return "scales of 32 (VEC32_UE8M0) are there from sm_100 on";
    }
    if (a == BLK128 && b == BLK128) {
        return "BLK128x128_32F for both A and B";
    }
    if (are_blocks && (m->m % 4 || m->n % 4)) {
        return "with scales of 128, M and N are multiples of 4";
    }
    if (a == VEC32 && m->k % 32) {
        return "with scales of 32, K is a multiple of 32";
    }
    return NULL;
}

/* ---- where they lie ---- */

static uint64_t parts_of(uint64_t n, uint64_t part)
{
    return (n + part - 1) / part;
}

/* Bytes of the factors of an operand of `rows` rows (columns of B) and depth k. */
static uint64_t bytes_of_scales(uint32_t mode, uint64_t rows, uint64_t k)
{
    switch (mode) {
    case OUTER:
        return rows * sizeof(float);
    case VEC128:
        return rows * parts_of(k, 128) * sizeof(float);
    case BLK128:
        return parts_of(rows, 128) * 4 * parts_of(k, 512) * sizeof(float);
    case VEC32:
        return parts_of(rows, 128) * parts_of(k, 128) * 512;
    default:
        return sizeof(float);
    }
}

static float float_at(const uint8_t *from, uint64_t at)
{
    float f;
    memcpy(&f, from + at * sizeof f, sizeof f);
    return f;
}

/* The factor of row r in part p along k. */
static float factor(uint32_t mode, const uint8_t *from, uint64_t rows, uint64_t k, uint64_t r,
                    uint64_t p)
{
    uint64_t tile;
    switch (mode) {
    case OUTER:
        return float_at(from, r);
    case VEC128: /* those of all rows, then those of the next part */
        return float_at(from, p * rows + r);
    case BLK128:
        return float_at(from, r / 128 * 4 * parts_of(k, 512) + p);
    default: /* E8M0 in tiles of 128 rows and 4 parts, 512 bytes each */
        tile = r / 128 * parts_of(k, 128) + p / 4;
        uint8_t byte = from[tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + p % 4];
        return byte == 255 ? (float)NAN : ldexpf(1.0f, byte - 127);
    }
}

bool matmul_read_scales(const struct matmul *m, const struct operation *op, struct part_scales *out)
{
    *out = (struct part_scales){NULL, NULL};
    if (!matmul_has_parts(m)) {
        return true;
    }
    out->a = emulator_bytes(op, m->scale_a, bytes_of_scales(m->scale_mode_a, m->m, m->k), 0);
    out->b = emulator_bytes(op, m->scale_b, bytes_of_scales(m->scale_mode_b, m->n, m->k), 0);
    return out->a && out->b;
}

/* ---- the product ---- */

void matmul_multiply_parts(const struct matmul *m, const struct part_scales *s, const float *a,
                           const float *b, float *sum, float *partial)
{
    uint64_t part = m->scale_mode_a == OUTER ? m->k : m->scale_mode_a == VEC32 ? 32 : 128;
    for (uint64_t n = 0; n < m->n; n++) {
        float *to = sum + n * m->m;
        for (uint64_t p = 0; p * part < m->k; p++) {
            uint64_t end = (p + 1) * part < m->k ? (p + 1) * part : m->k;
            memset(partial, 0, m->m * sizeof *partial);
            for (uint64_t k = p * part; k < end; k++) {
                for (uint64_t i = 0; i < m->m; i++) {
                    partial[i] = __builtin_fmaf(a[k * m->m + i], b[n * m->k + k], partial[i]);
                }
            }
            float of_b = factor(m->scale_mode_b, s->b, m->n, m->k, n, p);
            for (uint64_t i = 0; i < m->m; i++) {
                float x = factor(m->scale_mode_a, s->a, m->m, m->k, i, p) * of_b * partial[i];
                to[i] = p == 0 ? x : to[i] + x;
            }
        }
    }
}
