/* Measures the worst error of every scalar function of the prelude over many or all f32 inputs, and
 * prints the table that docs/scalar_functions.md holds. A tool, not a test: test_scalar.c asserts.
 *   scalar_record [--samples N] [--exhaustive] [function ...]
 * Build with -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp, and
 * -DVECTOR_LIBM -lmvec where glibc is 2.35 or newer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef VECTOR_LIBM
/* glibc's vector versions (4 ulp in double, nothing in f32) are ten times as fast, and declared
 * only under fast-math, which must not reach the functions measured. */
#define X(name) extern __attribute__((simd("notinbranch"))) double name(double);
X(exp)
X(expm1)
X(log)
X(log1p)
X(tanh)
X(erf)
X(sin)
X(cos)
X(atan)
#undef X
#endif

#include "scalar_table.h"

#define BLOCK 4096u

#define X(name, reference, bound)                                                                  \
    static void wanted_##name(double *restrict want, const float *restrict x)                      \
    {                                                                                              \
        for (uint32_t i = 0; i < BLOCK; i++) {                                                     \
            want[i] = reference((double)x[i]);                                                     \
        }                                                                                          \
    }
SCALAR_ROWS(X)
#undef X
static void (*const wanted[])(double *, const float *) = {
#define X(name, reference, bound) wanted_##name,
    SCALAR_ROWS(X)
#undef X
};

struct worst {
    double error;
    float x, y; /* y: second argument of pow and atan2 */
};

static void keep_worse(struct worst *w, struct worst other)
{
    if (other.error > w->error) {
        *w = other;
    }
}

/* Whether some error of the block may exceed `limit`: as ulp_error, in a form that becomes vector
 * code; what is not a plain number answers yes. */
static int may_exceed(const float *y, const double *want, double limit)
{
    int any = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint64_t bits;
        double scale;
        memcpy(&bits, &want[i], sizeof bits);
        uint64_t exponent = (bits >> 52) & 0x7ffu;
        exponent = exponent < 897u ? 897u : exponent;
        exponent = (2046u + 23u - exponent) << 52;
        memcpy(&scale, &exponent, sizeof scale);
        any |= !(fabs((double)y[i] - want[i]) * scale <= limit);
    }
    return any;
}

/* Inputs i * stride for i in [0, n): with an odd stride all residues mod 2^32, so every exponent
 * and sign gets its share, and n = 2^32 with stride 1 is exhaustive. */
static struct worst measure(size_t r, uint64_t n, uint32_t stride)
{
    const struct scalar_row *row = &scalar_rows[r];
    struct worst all = {-1.0, 0.0f, 0.0f};
    int64_t blocks = (int64_t)((n + BLOCK - 1) / BLOCK);
#pragma omp parallel
    {
        struct worst mine = {-1.0, 0.0f, 0.0f};
        float x[BLOCK], y[BLOCK];
        double want[BLOCK];
#pragma omp for schedule(dynamic, 64)
        for (int64_t b = 0; b < blocks; b++) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                x[i] = float_of_bits((uint32_t)((uint64_t)b * BLOCK + i) * stride);
            }
            row->block(y, x, BLOCK);
            wanted[r](want, x);
            if (!may_exceed(y, want, mine.error)) {
                continue;
            }
            for (uint32_t i = 0; i < BLOCK; i++) {
                keep_worse(&mine, (struct worst){ulp_error(y[i], want[i]), x[i], 0.0f});
            }
        }
#pragma omp critical
        keep_worse(&all, mine);
    }
    return all;
}

static uint64_t mixed(uint64_t i)
{
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
    return i ^ (i >> 31);
}

/* Pairs for pow whose result is mostly finite: x from anywhere, from [1/2, 2) or from close to 1.
 */
static struct worst measure_pow(uint64_t n)
{
    struct worst all = {-1.0, 0.0f, 0.0f};
#pragma omp parallel
    {
        struct worst mine = {-1.0, 0.0f, 0.0f};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (int64_t)n; i++) {
            uint64_t random = mixed((uint64_t)i);
            uint32_t bits = (uint32_t)random & 0x7fffffffu;
            bits = i % 3 == 1 ? 0x3f000000u + (bits & 0xffffffu) : bits;
            bits = i % 3 == 2 ? 0x3f7f0000u + (bits & 0x3ffffu) : bits;
            float x = float_of_bits(bits);
            double exponent = ((double)(random >> 32) * 0x1p-32 - 0.5) * 300.0;
            float y = (float)(exponent / log2((double)x));
            double error = ulp_error(m_pow(x, y), pow((double)x, (double)y));
            keep_worse(&mine, (struct worst){error, x, y});
        }
#pragma omp critical
        keep_worse(&all, mine);
    }
    return all;
}

static struct worst measure_atan2(uint64_t n)
{
    struct worst all = {-1.0, 0.0f, 0.0f};
#pragma omp parallel
    {
        struct worst mine = {-1.0, 0.0f, 0.0f};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (int64_t)n; i++) {
            uint64_t random = mixed((uint64_t)i);
            float y = float_of_bits((uint32_t)random);
            float x = float_of_bits((uint32_t)(random >> 32));
            x = i & 1 ? y * (1.0f + (float)(int32_t)(uint32_t)(random >> 32) * 0x1p-31f) : x;
            double error = ulp_error(m_atan2(y, x), atan2((double)y, (double)x));
            keep_worse(&mine, (struct worst){error, y, x});
        }
#pragma omp critical
        keep_worse(&all, mine);
    }
    return all;
}

static int is_wanted(int argc, char **argv, int first, const char *name)
{
    for (int i = first; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return 1;
        }
    }
    return first >= argc;
}

static void print_pair(const char *name, double bound, struct worst w)
{
    printf("| %s | %.3f | %.1f | %a (%.9g), %a (%.9g) |\n", name, w.error, bound, (double)w.x,
           (double)w.x, (double)w.y, (double)w.y);
}

int main(int argc, char **argv)
{
    uint64_t n = 100000000;
    uint32_t stride = 2654435761u;
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--exhaustive") == 0) {
            n = UINT64_C(1) << 32;
            stride = 1;
        } else if (strcmp(argv[first], "--samples") == 0 && first + 1 < argc) {
            n = strtoull(argv[++first], NULL, 10);
        } else {
            fprintf(stderr, "usage: scalar_record [--samples N] [--exhaustive] [function ...]\n");
            return 2;
        }
    }
    printf("%llu inputs\n| function | worst ulp | bound | worst input |\n|---|---|---|---|\n",
           (unsigned long long)n);
    for (size_t r = 0; r < sizeof scalar_rows / sizeof scalar_rows[0]; r++) {
        const struct scalar_row *row = &scalar_rows[r];
        if (is_wanted(argc, argv, first, row->name)) {
            struct worst w = measure(r, n, stride);
            printf("| %s | %.3f | %.1f | %a (%.9g) |\n", row->name, w.error, row->bound,
                   (double)w.x, (double)w.x);
            fflush(stdout);
        }
    }
    uint64_t pairs = n > 1000000000 ? 1000000000 : n;
    if (is_wanted(argc, argv, first, "pow")) {
        print_pair("pow", SCALAR_POW_BOUND, measure_pow(pairs));
    }
    if (is_wanted(argc, argv, first, "atan2")) {
        print_pair("atan2", SCALAR_ATAN2_BOUND, measure_atan2(pairs));
    }
    return 0;
}
