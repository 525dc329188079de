/* atoll_bench: speeds as ratios taken side by side in one run, medians of repetitions; prints one
 * JSON object. Nothing here is a test: no figure makes it fail. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/peers/bare_onednn.h"
#include "frontend/runner.h"
#include "ir/parse.h"

enum { REPEATS = 7, MAX_TIMES = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, ascending);
    return times[n / 2];
}

static void die(const char *what, const struct error *e)
{
    fprintf(stderr, "atoll_bench: %s: %s\n", what, e->text);
    exit(4);
}

static struct graph *parse(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "bench", &e);
    if (g == NULL) {
        die("graph", &e);
    }
    return g;
}

/* Fills an f32 or i64 leaf with small numbers, or labels. */
static void fill(struct tensor *t, int64_t classes)
{
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (t->dtype == I64) {
            ((int64_t *)t->data)[i] = i * 7 % classes;
        } else if (t->dtype == F32) {
            ((float *)t->data)[i] = (float)(i * 37 % 101) / 101.0f - 0.5f;
        }
    }
}

static void bind(struct runner *r, int64_t batch, int64_t classes)
{
    struct error e = {0};
    int64_t symbols[MAX_SYMBOLS];
    for (int i = 0; i < MAX_SYMBOLS; i++) {
        symbols[i] = batch;
    }
    if (runner_bind(r, symbols, &e) != ATOLL_OK || runner_step(r, &e) != ATOLL_OK) {
        die("bind", &e);
    }
    fill(runner_leaf(r, "x"), classes);
    if (runner_leaf(r, "y") != NULL) {
        fill(runner_leaf(r, "y"), classes);
    }
}

static double time_steps(struct runner *r, int steps)
{
    struct error e = {0};
    double start = now();
    for (int i = 0; i < steps; i++) {
        if (runner_step(r, &e) != ATOLL_OK) {
            die("step", &e);
        }
    }
    return (now() - start) / steps;
}

/* ---- whole steps ---- */

static const char digits[] = "graph @digits(%x: f32[n,64] input, %y: i64[n] input, %w1: "
                             "f32[128,64] param, %b1: f32[128] param, %w2: f32[128,128] param, "
                             "%b2: f32[128] param, %w3: f32[10,128] param, %b3: f32[10] param) { "
                             "%h1 = linear(%x, %w1, %b1) %a1 = gelu(%h1) "
                             "%h2 = linear(%a1, %w2, %b2) %a2 = relu(%h2) %logits = linear(%a2, "
                             "%w3, %b3) %loss = cross_entropy(%logits, %y) "
                             "return loss=%loss }";
static const char mlp[] = "graph @mlp(%x: f32[n,256] input, %y: i64[n] input, %w1: f32[512,256] "
                          "param, %b1: f32[512] param, %w2: f32[256,512] param, "
                          "%b2: f32[256] param) { %h = linear(%x, %w1, %b1) %a = gelu(%h) %z = "
                          "linear(%a, %w2, %b2) %loss = cross_entropy(%z, %y) "
                          "return loss=%loss }";

static void bench_step(const char *name, const char *text, const char *policy, int64_t classes)
{
    struct error e = {0};
    struct graph *g = parse(text);
    struct train_options train = train_options_default();
    train.max_norm = 1.0;
    train.schedule = (struct schedule){.kind = SCHEDULE_STEP, .step_size = 50, .gamma = 0.5};
    char cache[] = "/tmp/atoll_bench-XXXXXX";
    struct compile_options o = {.policy = policy_builtin(policy), .train = &train};
    struct runner fused = {0}, warm = {0}, eager = {0};
    train.scaler.is_enabled = o.policy->low == F16;
    double start = now();
    if (runner_open(&fused, g, &o, 1, &e) != ATOLL_OK) {
        die(name, &e);
    }
    double cold = now() - start;
    o.cache = mkdtemp(cache);
    if (runner_open(&warm, g, &o, 1, &e) != ATOLL_OK) {
        die(name, &e);
    }
    runner_free(&warm);
    start = now();
    if (runner_open(&warm, g, &o, 1, &e) != ATOLL_OK) {
        die(name, &e);
    }
    double from_disk = now() - start;
    runner_free(&warm);
    o.is_eager = true;
    if (runner_open(&eager, g, &o, 1, &e) != ATOLL_OK) {
        die(name, &e);
    }
    bind(&fused, 64, classes);
    bind(&eager, 64, classes);
    double f[MAX_TIMES], s[MAX_TIMES];
    for (int i = 0; i < REPEATS; i++) {
        f[i] = time_steps(&fused, 300);
        s[i] = time_steps(&eager, 100);
    }
    double tf = median(f, REPEATS), ts = median(s, REPEATS);
    printf("  \"%s_%s\": {\"fused_us\": %.1f, \"eager_us\": %.1f, \"eager_over_fused\": %.2f, "
           "\"cold_compile_s\": %.3f, "
           "\"warm_compile_s\": %.4f, \"kernels\": %u, \"launches\": %u},\n",
           name, policy, tf * 1e6, ts * 1e6, ts / tf, cold, from_disk, fused.compiled.n_kernels,
           program_calls(&fused.compiled.program));
    runner_free(&fused);
    runner_free(&eager);
    graph_destroy(g);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", cache);
    if (system(command) != 0) {
        fprintf(stderr, "atoll_bench: %s stays behind\n", cache);
    }
}

/* For a peer that takes turns: a line on stdin runs 100 fused steps of a model, digits or mlp, and
 * answers with microseconds a step. */
static int answer_steps(const char *model, const char *policy)
{
    struct error e = {0};
    bool is_digits = strcmp(model, "digits") == 0;
    if (policy_builtin(policy) == NULL || (!is_digits && strcmp(model, "mlp") != 0)) {
        fprintf(stderr, "atoll_bench --steps: found %s %s, expected digits or mlp and a policy\n",
                model, policy);
        return 2;
    }
    struct graph *g = parse(is_digits ? digits : mlp);
    struct train_options train = train_options_default();
    train.max_norm = 1.0;
    train.schedule = (struct schedule){.kind = SCHEDULE_STEP, .step_size = 50, .gamma = 0.5};
    struct compile_options o = {.policy = policy_builtin(policy), .train = &train};
    struct runner r = {0};
    if (runner_open(&r, g, &o, 1, &e) != ATOLL_OK) {
        die(model, &e);
    }
    bind(&r, 64, is_digits ? 10 : 256);
    char line[8];
    while (fgets(line, sizeof line, stdin) != NULL) {
        printf("%.2f\n", time_steps(&r, 100) * 1e6);
        fflush(stdout);
    }
    runner_free(&r);
    graph_destroy(g);
    return 0;
}

/* ---- single kernels against the machine's triad ---- */

static double triad_bytes_per_second(int64_t n)
{
    float *a = malloc((size_t)n * 4), *b = malloc((size_t)n * 4), *c = malloc((size_t)n * 4);
    double times[MAX_TIMES];
    if (a == NULL || b == NULL || c == NULL) {
        exit(4);
    }
#pragma omp parallel for simd
    for (int64_t i = 0; i < n; i++) {
        a[i] = 0.0f;
        b[i] = 1.0f;
        c[i] = 2.0f;
    }
    for (int r = 0; r < REPEATS; r++) {
        double start = now();
#pragma omp parallel for simd
        for (int64_t i = 0; i < n; i++) {
            a[i] = b[i] + 3.0f * c[i];
        }
        times[r] = now() - start;
    }
    double sum = (double)a[n / 2];
    free(a);
    free(b);
    free(c);
    return sum > 0.0 ? 12.0 * (double)n / median(times, REPEATS) : 0.0;
}

/* bytes: what the kernel must read and write. */
static void bench_kernel(const char *name, const char *text, double bytes, int64_t triad_n,
                         const char *end)
{
    struct error e = {0};
    struct graph *g = parse(text);
    struct compile_options o = {0};
    struct runner r = {0};
    double times[MAX_TIMES], triads[MAX_TIMES];
    if (runner_open(&r, g, &o, 1, &e) != ATOLL_OK) {
        die(name, &e);
    }
    bind(&r, 1, 2);
    for (int i = 0; i < REPEATS; i++) {
        times[i] = time_steps(&r, 3);
        triads[i] = triad_bytes_per_second(triad_n);
    }
    double speed = bytes / median(times, REPEATS), triad = median(triads, REPEATS);
    printf("  \"%s\": {\"gb_per_s\": %.1f, \"triad_gb_per_s\": %.1f, \"share_of_triad\": %.3f, "
           "\"launches\": %u}%s\n",
           name, speed / 1e9, triad / 1e9, speed / triad, program_calls(&r.compiled.program), end);
    runner_free(&r);
    graph_destroy(g);
}

static void bench_dispatch(void)
{
    struct error e = {0};
    struct graph *g = parse("graph @tiny(%x: f32[4] input, %s: f32[4] state) { %a = add(%x, %s) %b "
                            "= mul(%a, 0.5) update %s <- %b return b=%b }");
    struct compile_options o = {0};
    struct runner r = {0};
    double times[MAX_TIMES];
    if (runner_open(&r, g, &o, 1, &e) != ATOLL_OK) {
        die("dispatch", &e);
    }
    for (int i = 0; i < REPEATS; i++) {
        times[i] = time_steps(&r, 20000);
    }
    printf("  \"dispatch\": {\"us\": %.3f, \"launches\": %u},\n", median(times, REPEATS) * 1e6,
           program_calls(&r.compiled.program));
    runner_free(&r);
    graph_destroy(g);
}

/* Ours and oneDNN's own call in turn, each long enough to be past the clock's grain. */
static void bench_linear(int64_t m, int64_t k, int64_t n)
{
    char text[400];
    snprintf(
        text, sizeof text,
        "graph @linear(%%x: bf16[%lld,%lld] input, %%w: bf16[%lld,%lld] param, %%b: bf16[%lld] "
        "param) { %%y = linear(%%x, %%w, %%b) return y=%%y }",
        (long long)m, (long long)k, (long long)n, (long long)k, (long long)n);
    struct error e = {0};
    struct graph *g = parse(text);
    struct compile_options o = {0};
    struct runner r = {0};
    struct bare_linear *bare = bare_linear_create(m, k, n);
    double ours[MAX_TIMES], theirs[MAX_TIMES];
    if (runner_open(&r, g, &o, 1, &e) != ATOLL_OK) {
        die("linear", &e);
    }
    if (bare != NULL) {
        bind(&r, 1, 2);
        bare_linear_run(bare);
        for (int i = 0; i < REPEATS; i++) {
            ours[i] = time_steps(&r, 20);
            double start = now();
            for (int s = 0; s < 20; s++) {
                bare_linear_run(bare);
            }
            theirs[i] = (now() - start) / 20;
        }
        double t = median(ours, REPEATS), b = median(theirs, REPEATS);
        printf("  \"linear_bf16_%lldx%lldx%lld\": {\"us\": %.1f, \"onednn_us\": %.1f, "
               "\"share_of_onednn\": %.3f},\n",
               (long long)m, (long long)k, (long long)n, t * 1e6, b * 1e6, b / t);
        bare_linear_destroy(bare);
    }
    runner_free(&r);
    graph_destroy(g);
}

int main(int argc, char **argv)
{
    struct arena a = {0};
    if (argc == 4 && strcmp(argv[1], "--steps") == 0) {
        return answer_steps(argv[2], argv[3]);
    }
    printf("{\n  \"threads\": %d, \"compiler\": \"%s\", \"contractions\": \"%s\",\n",
           omp_get_max_threads(), cc_version(NULL, &a), contraction_library());
    arena_free(&a);
    bench_step("digits", digits, "fp32", 10);
    bench_step("digits", digits, "bf16", 10);
    bench_step("digits", digits, "fp16", 10);
    bench_step("mlp", mlp, "fp32", 256);
    bench_step("mlp", mlp, "bf16", 256);
    bench_dispatch();
    bench_linear(64, 128, 128);
    bench_linear(64, 256, 512);
    bench_linear(512, 1024, 1024);
    bench_linear(256, 4096, 1024);
    int64_t n = 1 << 24;
    bench_kernel("chain_f32",
                 "graph @chain(%x: f32[16777216] input, %z: f32[16777216] buffer) { %a = mul(%x, "
                 "1.5) %b = add(%a, %z) %c = relu(%b) "
                 "%d = sub(%c, 0.25) %e = maximum(%d, %x) return e=%e }",
                 12.0 * (double)n, n, ",");
    bench_kernel("softmax_f32",
                 "graph @softmax(%x: f32[16384,1024] input) { %p = softmax(%x) return p=%p }",
                 8.0 * (double)n, n, ",");
    bench_kernel("layer_norm_f32",
                 "graph @norm(%x: f32[16384,1024] input, %w: f32[1024] param, %b: f32[1024] param) "
                 "{ %y = layer_norm(%x, %w, %b) "
                 "return y=%y }",
                 8.0 * (double)n, n, "");
    printf("}\n");
    return 0;
}
