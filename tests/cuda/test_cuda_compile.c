/* Every kernel of the digits demo (three policies) and of random graphs compiles with NVRTC for
 * each architecture, fused and one op at a time; without a warning, without spills into f64, and
 * with 16-byte accesses where they belong. Prints counts and seconds. */
#include "cuda_suite.h"

#include "frontend/compile.h"
#include "ir/parse.h"
#include "tests/fuzz/generate.h"

static const char *const ARCHS[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { N_ARCHS = 4, N_GRAPHS = 2, N_GRAPHS_SANITIZED = 1 };

static struct graph *read_model(const char *path)
{
    static char text[1 << 16];
    char full[1024];
    struct error e = {0};
    snprintf(full, sizeof full, "%s/%s", ATOLL_SOURCE_DIR, path);
    FILE *f = fopen(full, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    struct graph *g = graph_parse(text, n, path, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

static void compile_demo(struct compiled *c, const char *policy, bool is_unfused, uint32_t n_archs,
                         struct compile_options *o, struct train_options *train)
{
    struct error e = {0};
    struct graph *g = read_model("examples/digits.graph");
    *train = train_options_default();
    train->max_norm = 1.0;
    train->scaler.is_enabled = strcmp(policy, "fp16") == 0;
    *o = (struct compile_options){.train = train,
                                  .is_unfused = is_unfused,
                                  .skips_c = true,
                                  .cuda_archs = ARCHS,
                                  .n_cuda_archs = n_archs,
                                  .cache = shared_kernels(),
                                  .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    ck_assert_int_eq(policy_named(policy, &o->policy, &e), ATOLL_OK);
    status code = compile_graph(g, o, c, &e);
    ck_assert_msg(code == ATOLL_OK, "%s: %s\n%.20000s", policy, e.text,
                  c->cuda.images != NULL && c->cuda.images[0].log != NULL ? c->cuda.images[0].log
                                                                          : "");
    graph_destroy(g);
}

static uint64_t case_now; /* of the random graphs; generate_case(20, N, ..) */

/* Where the kernel or function that `at` lies in begins. */
static const char *function_at(const char *ptx, const char *at)
{
    const char *found = ptx;
    while (at > ptx && found == ptx) {
        at--;
        bool is_head = strncmp(at, ".entry ", 7) == 0 || strncmp(at, ".func ", 6) == 0;
        found = is_head ? at : found;
    }
    return found;
}

static void absent(const char *ptx, const char *word)
{
    for (const char *at = strstr(ptx, word); at != NULL; at = strstr(at + 1, word)) {
        const char *in = function_at(ptx, at);
        size_t length = strcspn(in, "\n");
        /* CUDA's own sine and cosine of large f64 numbers, not ours */
        const char *own = strstr(in, "__internal_trig_reduction_slowpathd");
        bool is_cuda = own != NULL && own < in + length;
        ck_assert_msg(is_cuda, "case %d: found '%.*s' in %.*s", (int)case_now,
                      (int)strcspn(at, "\n"), at, (int)length, in);
    }
}

/* Every image is there; nothing lies in local memory, flushes or computes in f64 (unless the graph
 * does). */
static void check_code(const struct compiled *c)
{
    bool has_f64 = false;
    for (uint32_t i = 1; i < c->primitive->n_nodes; i++) {
        has_f64 = has_f64 || c->primitive->nodes[i].dtype == F64;
    }
    for (uint32_t i = 0; i < c->cuda.n_archs * c->cuda.n_units; i++) {
        const struct nvrtc_image *image = &c->cuda.images[i];
        ck_assert_ptr_nonnull(image->cubin);
        ck_assert_uint_gt(image->cubin_size, 100);
        ck_assert_mem_eq(image->cubin,
                         "\x7f"
                         "ELF",
                         4);
        absent(image->ptx, ".local .align");
        if (!has_f64) { /* the toolkit's own functions of f64 do both */
            absent(image->ptx, ".ftz");
            absent(image->ptx, "fma.rn.f64");
        }
    }
}

static const char *const POLICIES[] = {"fp32", "bf16", "fp16"};

START_TEST(demo)
{
    struct compiled c;
    struct compile_options o;
    struct train_options train;
    bool is_unfused = _i >= 3;
    uint32_t n_archs = is_unfused ? 1 : N_ARCHS;
    compile_demo(&c, POLICIES[_i % 3], is_unfused, n_archs, &o, &train);
    ck_assert_uint_gt(c.cuda.n_kernels, 5);
    check_code(&c);
    printf("digits %s %s: %u kernels (%u functions) in %u units for %d architectures, %.2f s\n",
           POLICIES[_i % 3], is_unfused ? "eager" : "fused", c.cuda.n_kernels, c.cuda.n_functions,
           c.cuda.n_units, n_archs, c.cuda.seconds);
    compiled_free(&c);
}
END_TEST

/* The optimizer's kernels walk whole parameters: 16 bytes at a time. */
START_TEST(packs)
{
    struct compiled c;
    struct compile_options o;
    struct train_options train;
    compile_demo(&c, "bf16", false, 1, &o, &train);
    bool loads = false, stores = false;
    for (uint32_t u = 0; u < c.cuda.n_units; u++) {
        loads = loads || strstr(c.cuda.images[u].ptx, "ld.global.v4.f32") != NULL;
        stores = stores || strstr(c.cuda.images[u].ptx, "st.global.v4.f32") != NULL;
    }
    ck_assert(loads && stores);
    compiled_free(&c);
}
END_TEST

static void damage(const char *directory)
{
    char command[512]; /* a byte of every entry becomes another */
    snprintf(command, sizeof command,
             "for f in %s/*.cuda; do printf X | dd of=$f bs=1 seek=100 conv=notrunc 2>/dev/null; "
             "done",
             directory);
    ck_assert_int_eq(system(command), 0);
}

static uint32_t cached_units(const char *directory, uint32_t *n_units)
{
    static const char GRAPH[] = "graph @g(%x: f32[5,70] input) {\n  %y = softmax(%x)\n  return "
                                "y=%y\n}\n";
    struct compiled c;
    struct error e = {0};
    struct compile_options o = {.skips_c = true,
                                .cuda_archs = ARCHS,
                                .n_cuda_archs = 2,
                                .cache = directory,
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    struct graph *g = graph_parse(GRAPH, strlen(GRAPH), "cached", &e);
    ck_assert_msg(compile_graph(g, &o, &c, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_mem_eq(c.cuda.images[0].cubin,
                     "\x7f"
                     "ELF",
                     4);
    ck_assert_ptr_nonnull(strstr(c.cuda.images[0].ptx, ".entry"));
    uint32_t n = c.cuda.n_cached;
    *n_units = c.cuda.n_units * c.cuda.n_archs;
    compiled_free(&c);
    graph_destroy(g);
    return n;
}

START_TEST(cache)
{
    char directory[] = "/tmp/atoll_cuda_cache_XXXXXX", command[64];
    uint32_t n;
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_uint_eq(cached_units(directory, &n), 0);
    ck_assert_uint_eq(cached_units(directory, &n), n);
    damage(directory);
    ck_assert_uint_eq(cached_units(directory, &n), 0);
    ck_assert_uint_eq(cached_units(directory, &n), n);
    snprintf(command, sizeof command, "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

struct said {
    char miss[2000], warned[1000];
    uint32_t n_warned;
};

static void on_warning(void *context, const char *text)
{
    struct said *s = context;
    s->n_warned++;
    snprintf(s->warned, sizeof s->warned, "%s", text);
}

/* What a compilation of a row softmax says of the cache. */
static struct said compile_cached(const char *directory, int width, bool is_relaxed,
                                  uint32_t n_archs)
{
    struct said s = {0};
    char text[200];
    struct compiled c;
    struct error e = {0};
    struct compile_options o = {.skips_c = true,
                                .is_relaxed = is_relaxed,
                                .cuda_archs = ARCHS,
                                .n_cuda_archs = n_archs,
                                .cache = directory,
                                .warn = on_warning,
                                .warn_context = &s,
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    snprintf(text, sizeof text,
             "graph @g(%%x: f32[5,%d] input) {\n %%y = softmax(%%x)\n return y=%%y\n}\n", width);
    struct graph *g = graph_parse(text, strlen(text), "cached", &e);
    ck_assert_msg(compile_graph(g, &o, &c, &e) == ATOLL_OK, "%s", e.text);
    snprintf(s.miss, sizeof s.miss, "%s", c.cache_miss != NULL ? c.cache_miss : "");
    compiled_free(&c);
    graph_destroy(g);
    return s;
}

static void check_miss(const struct said *s, const char *what, uint32_t n_warned)
{
    ck_assert_msg(what == NULL ? s->miss[0] == '\0' : strstr(s->miss, what) != NULL,
                  "'%s' is not in: %s", what != NULL ? what : "nothing", s->miss);
    ck_assert_msg(s->n_warned == n_warned, "%u warnings: %s", s->n_warned, s->warned);
}

/* Part by part, as misses of C kernels are; what is wrong with the cache is a warning here too. */
START_TEST(misses_are_explained)
{
    char directory[] = "/tmp/atoll_cuda_miss_XXXXXX", command[64], arch[60];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    struct said s = compile_cached(directory, 70, false, 1);
    check_miss(&s, "no kernels of @g, CUDA unit 1 of 1 in the cache yet", 0);
    s = compile_cached(directory, 70, false, 1);
    check_miss(&s, NULL, 0);
    snprintf(arch, sizeof arch, "differs in arch: %s -> %s", ARCHS[0], ARCHS[1]);
    s = compile_cached(directory, 70, false, 2);
    check_miss(&s, arch, 0);
    s = compile_cached(directory, 70, true, 1);
    check_miss(&s, "policy: fp32 strict -> fp32 relaxed", 0);
    s = compile_cached(directory, 71, false, 1);
    check_miss(&s, "differs in source: CUDA C of ", 0);
    damage(directory);
    s = compile_cached(directory, 70, false, 1);
    check_miss(&s, "the entry of the same key is gone or not sound: compiled again", 1);
    ck_assert_msg(strstr(s.warned, "checksum") != NULL, "%s", s.warned);
    s = compile_cached("/proc/none", 70, false, 1);
    check_miss(&s, "no kernels of @g", 1);
    ck_assert_msg(strstr(s.warned, "kernels are compiled each time") != NULL, "%s", s.warned);
    snprintf(command, sizeof command, "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

struct totals {
    uint64_t graphs, kernels, functions;
    double wall, seconds[N_ARCHS]; /* of the conductor; of NVRTC, over all threads */
};

/* One random graph for every architecture. */
static void compile_case(uint64_t number, struct totals *totals)
{
    struct fuzz_case f;
    struct compiled c;
    struct error e = {0};
    struct train_options train = train_options_default();
    case_now = number;
    generate_case(20, number, &f);
    train.allows_low_params = true;
    struct compile_options o = {.train = f.is_trained ? &train : NULL,
                                .skips_c = true,
                                .cuda_archs = ARCHS,
                                .n_cuda_archs = N_ARCHS,
                                .cache = shared_kernels(),
                                .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    bool has_policy =
        strcmp(f.policy, "none") == 0 || policy_named(f.policy, &o.policy, &e) == ATOLL_OK;
    ck_assert_msg(has_policy, "%s", e.text);
    status code = compile_graph(f.graph, &o, &c, &e);
    bool is_compiler = code == ATOLL_COMPILER || code == ATOLL_INTERNAL;
    for (uint32_t u = 0; is_compiler && c.cuda.images != NULL && u < c.cuda.n_units; u++) {
        printf("%s", c.cuda.images[u].log != NULL ? c.cuda.images[u].log : "");
    }
    ck_assert_msg(!is_compiler, "case %d: %s", (int)number, e.text);
    if (code == ATOLL_OK) {
        ck_assert_uint_eq(c.cuda.n_archs, N_ARCHS);
        check_code(&c);
        for (uint32_t i = 0; i < N_ARCHS * c.cuda.n_units; i++) {
            totals->seconds[i / c.cuda.n_units] += c.cuda.images[i].seconds;
        }
        totals->graphs++;
        totals->kernels += c.cuda.n_kernels;
        totals->functions += c.cuda.n_functions;
        totals->wall += c.cuda.seconds;
    }
    compiled_free(&c);
    graph_destroy(f.graph);
}

START_TEST(random_graphs)
{
    const char *wanted = getenv("ATOLL_CUDA_GRAPHS");
    uint64_t n = is_sanitized() ? N_GRAPHS_SANITIZED : N_GRAPHS;
    n = wanted != NULL ? strtoull(wanted, NULL, 10) : n;
    struct totals totals = {0};
    for (uint64_t i = 0; i < n; i++) {
        compile_case(i, &totals);
    }
    printf("random graphs: %d of %d compiled for each of %d architectures, the rest refused by a "
           "pass; %d kernels (%d functions) each, %.1f s\n",
           (int)totals.graphs, (int)n, N_ARCHS, (int)totals.kernels, (int)totals.functions,
           totals.wall);
    for (uint32_t a = 0; a < N_ARCHS; a++) {
        printf("  %-8s %8.1f s of NVRTC\n", ARCHS[a], totals.seconds[a]);
    }
    ck_assert_uint_gt(totals.graphs, n / 2);
}
END_TEST

static struct nvrtc *nvrtc;

/* ---- what goes wrong ---- */

START_TEST(unknown_archs)
{
    struct error e = {0};
    ck_assert_int_eq(nvrtc_check_arch(nvrtc, "sm_999", &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "sm_999 is not known to NVRTC"));
    ck_assert_ptr_nonnull(strstr(e.text, "newer CUDA"));
    e = (struct error){0};
    ck_assert_int_eq(nvrtc_check_arch(nvrtc, "sm_30", &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "older CUDA"));
    e = (struct error){0};
    ck_assert_int_eq(nvrtc_check_arch(nvrtc, "ampere", &e), ATOLL_USAGE);
    ck_assert_int_eq(nvrtc_check_arch(nvrtc, "sm_90ax", NULL), ATOLL_USAGE);
    ck_assert_int_eq(nvrtc_check_arch(nvrtc, "sm_90a", NULL), ATOLL_OK);
}
END_TEST

START_TEST(failing_source)
{
    struct error e = {0};
    struct nvrtc_image images[2];
    const char *const units[] = {"extern \"C\" __global__ void fine() {}\n",
                                 "\nextern \"C\" __global__ void bad() { return 1 +; }\n"};
    ck_assert_int_eq(nvrtc_compile(nvrtc, "sm_80", units, 2, 2, images, &e), ATOLL_COMPILER);
    ck_assert_ptr_nonnull(strstr(e.text, "unit 1"));
    ck_assert_ptr_nonnull(strstr(e.text, "expected an expression"));
    ck_assert_ptr_nonnull(images[0].cubin);
    ck_assert_ptr_null(images[0].log);
    ck_assert_ptr_nonnull(images[1].log);
    ck_assert_ptr_nonnull(strstr(images[1].log, "    2  extern \"C\" __global__ void bad()"));
    nvrtc_images_free(images, 2);
}
END_TEST

START_TEST(missing_library)
{
    struct error e = {0};
    struct nvrtc *n = NULL;
    ck_assert_int_eq(nvrtc_open("/nonexistent/libnvrtc.so", &n, &e), ATOLL_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(e.text, "ATOLL_LIBNVRTC"));
    ck_assert_ptr_null(n);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, demo, 0, 6);
    tcase_add_test(tc, packs);
    tcase_add_test(tc, cache);
    tcase_add_test(tc, misses_are_explained);
    tcase_add_test(tc, random_graphs);
    tcase_add_test(tc, unknown_archs);
    tcase_add_test(tc, failing_source);
    tcase_add_test(tc, missing_library);
}

int main(void)
{
    nvrtc = nvrtc_for_tests();
    if (nvrtc == NULL) {
        return SKIPPED;
    }
    int code = run_suite("cuda_compile", fill);
    nvrtc_close(nvrtc);
    return code;
}
