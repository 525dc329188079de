/* A blocked matrix product. A task is a tile of C; it packs a strip of B, and keeps a few rows of
 * sums in registers while it walks k. Blocking changes when a product is added, never the order, so
 * the bits are the same for any thread count. */
#include "gemm.h"

#include <string.h>

enum {
    ROWS = 64,    /* of C in a tile */
    COLUMNS = 32, /* of C in a tile: sums of STEP rows fill 8 AVX-512 registers in f32 */
    DEPTH = 128,  /* of k in a packed strip: 16 KiB in f32, half of L1 */
    STEP = 4      /* rows of sums held at once */
};

#define GEMM(name, tile, type)                                                                     \
    struct tile {                                                                                  \
        type sums[ROWS][COLUMNS], strip[DEPTH][COLUMNS], rows[STEP][DEPTH];                        \
    };                                                                                             \
    static void tile##_step(struct tile *t, int64_t row, int64_t depth)                            \
    {                                                                                              \
        type s[STEP][COLUMNS];                                                                     \
        memcpy(s, t->sums[row], sizeof s);                                                         \
        for (int64_t k = 0; k < depth; k++) {                                                      \
            for (int r = 0; r < STEP; r++) {                                                       \
                type x = t->rows[r][k];                                                            \
                for (int j = 0; j < COLUMNS; j++) {                                                \
                    s[r][j] = s[r][j] + x * t->strip[k][j];                                        \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        memcpy(t->sums[row], s, sizeof s);                                                         \
    }                                                                                              \
    void name(int64_t m, int64_t n, int64_t k, const type *a, int64_t a_row, int64_t a_column,     \
              const type *b, int64_t b_row, int64_t b_column, const type *bias, type *c)           \
    {                                                                                              \
        int64_t across = (n + COLUMNS - 1) / COLUMNS, tasks = (m + ROWS - 1) / ROWS * across;      \
        _Pragma("omp parallel for schedule(static) if (m * n * k >= 1 << 18)") for (int64_t task = \
                                                                                        0;         \
                                                                                    task < tasks;  \
                                                                                    task++)        \
        {                                                                                          \
            struct tile t;                                                                         \
            int64_t i0 = task / across * ROWS, j0 = task % across * COLUMNS;                       \
            int64_t ni = m - i0 < ROWS ? m - i0 : ROWS, nj = n - j0 < COLUMNS ? n - j0 : COLUMNS;  \
            memset(&t, 0, sizeof t);                                                               \
            for (int64_t k0 = 0; k0 < k; k0 += DEPTH) {                                            \
                int64_t nk = k - k0 < DEPTH ? k - k0 : DEPTH;                                      \
                for (int64_t p = 0; p < nk; p++) {                                                 \
                    for (int64_t j = 0; j < nj; j++) {                                             \
                        t.strip[p][j] = b[(k0 + p) * b_row + (j0 + j) * b_column];                 \
                    }                                                                              \
                }                                                                                  \
                for (int64_t i = 0; i < ni; i += STEP) {                                           \
                    for (int64_t r = 0; r < STEP && i + r < ni; r++) {                             \
                        for (int64_t p = 0; p < nk; p++) {                                         \
                            t.rows[r][p] = a[(i0 + i + r) * a_row + (k0 + p) * a_column];          \
                        }                                                                          \
                    }                                                                              \
                    tile##_step(&t, i, nk);                                                        \
                }                                                                                  \
            }                                                                                      \
            for (int64_t i = 0; i < ni; i++) {                                                     \
                for (int64_t j = 0; j < nj; j++) {                                                 \
                    type sum = t.sums[i][j];                                                       \
                    c[(i0 + i) * n + j0 + j] = bias != NULL ? sum + bias[j0 + j] : sum;            \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

GEMM(gemm_f32, tile_f32, float)
GEMM(gemm_f64, tile_f64, double)
