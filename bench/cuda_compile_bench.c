/* How long a training step takes to compile for CUDA, cold: no cache, NVRTC on two threads, no GPU
 * needed. cuda_compile_bench [GRAPH] [ARCH] [THREADS] [TIMES]; one JSON line a time. The graph is
 * one of a small language model whose step has 60 different kernels. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/context.h"
#include "ir/parse.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct graph *read_graph(const char *path, struct error *e)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail(e, ATOLL_IO, "%s: cannot be read; hint: run this where the repository is", path);
        return NULL;
    }
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return graph_parse(text, n, path, e);
}

/* cpu: of all threads, which other work on the machine lengthens less. */
static void report(const struct compiled *c, const char *arch, int threads, double seconds,
                   double cpu)
{
    double nvrtc = 0, longest = 0;
    for (uint32_t u = 0; u < c->cuda.n_units; u++) {
        double one = c->cuda.images[u].seconds;
        nvrtc += one;
        longest = one > longest ? one : longest;
    }
    printf("{\"arch\": \"%s\", \"threads\": %d, \"kernels\": %u, \"functions\": %u, \"units\": %u, "
           "\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"passes_seconds\": %.3f, "
           "\"nvrtc_wall_seconds\": %.3f, "
           "\"units_seconds\": %.3f, \"longest_unit_seconds\": %.3f}\n",
           arch, threads, c->cuda.n_kernels, c->cuda.n_functions, c->cuda.n_units, seconds, cpu,
           c->seconds_passes, c->cuda.seconds, nvrtc, longest);
    fflush(stdout);
}

static status compile_once(const struct graph *g, const char *arch, int threads, struct context *c,
                           struct error *e)
{
    struct compiled compiled;
    struct train_options train = train_options_default();
    struct compile_options o = {
        .train = &train, .skips_c = true, .cuda_archs = &arch, .n_cuda_archs = 1};
    train.max_norm = 1.0;
    TRY(policy_named("bf16", &o.policy, e));
    TRY(context_apply(c, &o, e));
    o.cache = NULL;
    double start = now();
    clock_t start_cpu = clock();
    status code = compile_graph(g, &o, &compiled, e);
    if (code == ATOLL_OK) {
        report(&compiled, arch, threads, now() - start,
               (double)(clock() - start_cpu) / (double)CLOCKS_PER_SEC);
    }
    compiled_free(&compiled);
    return code;
}

int main(int argc, char **argv)
{
    struct context c;
    struct error e = {0};
    const char *path = argc > 1 ? argv[1] : "bench/transformer.graph",
               *arch = argc > 2 ? argv[2] : "sm_90a";
    int threads = argc > 3 ? atoi(argv[3]) : 2, times = argc > 4 ? atoi(argv[4]) : 3;
    context_read(&c);
    omp_set_num_threads(threads > 0 ? threads : 1);
    struct graph *g = read_graph(path, &e);
    status code = g != NULL ? ATOLL_OK : e.code;
    for (int i = 0; i < times && code == ATOLL_OK; i++) {
        code = compile_once(g, arch, threads, &c, &e);
    }
    graph_destroy(g);
    if (code != ATOLL_OK) {
        fprintf(stderr, "cuda_compile_bench: %s\n", e.text);
    }
    return code == ATOLL_OK ? 0 : code == ATOLL_USAGE ? 2 : 4;
}
