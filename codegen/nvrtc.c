/* NVRTC by dlopen (never unloaded: it leaves memory behind each time): the few entry points used
 * here are declared by hand (tests/cuda checks them against the real header). One program a unit,
 * units on threads. Invariant: options that could change a bit (contraction, flushing, approximate
 * division) are always spelled out. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int nvrtc_result;
typedef struct _nvrtcProgram *nvrtc_program;

#define NVRTC_CALLS(X)                                                                             \
    X(nvrtcVersion, (int *major, int *minor))                                                      \
    X(nvrtcGetNumSupportedArchs, (int *n))                                                         \
    X(nvrtcGetSupportedArchs, (int *archs))                                                        \
    X(nvrtcCreateProgram, (nvrtc_program * out, const char *source, const char *name,              \
                           int n_headers, const char *const *headers, const char *const *names))   \
    X(nvrtcDestroyProgram, (nvrtc_program * program))                                              \
    X(nvrtcCompileProgram, (nvrtc_program program, int n_options, const char *const *options))     \
    X(nvrtcGetCUBINSize, (nvrtc_program program, size_t * size))                                   \
    X(nvrtcGetCUBIN, (nvrtc_program program, char *out))                                           \
    X(nvrtcGetPTXSize, (nvrtc_program program, size_t * size))                                     \
    X(nvrtcGetPTX, (nvrtc_program program, char *out))                                             \
    X(nvrtcGetProgramLogSize, (nvrtc_program program, size_t * size))                              \
    X(nvrtcGetProgramLog, (nvrtc_program program, char *out))

struct nvrtc {
    void *library;
    int major, minor;
#define X(name, args) nvrtc_result(*name) args;
    NVRTC_CALLS(X)
#undef X
};

/* The last one only trades compile time for scheduling, never a bit: a quarter less time, and the
 * kernels keep their vector accesses and use no stack (scripts/ptxas-report). Since 12.9. */
enum { N_FLAGS = 6, N_FLAGS_BEFORE_12_9 = 5, MAX_ARCHS = 64 };
static const char *const FLAGS[N_FLAGS] = {"--fmad=false",    "--ftz=false",
                                           "--prec-div=true", "--prec-sqrt=true",
                                           "--std=c++17",     "--Ofast-compile=min"};

static uint32_t count_flags(const struct nvrtc *n)
{
    bool has_fast_compile = n->major > 12 || (n->major == 12 && n->minor >= 9);
    return has_fast_compile ? N_FLAGS : N_FLAGS_BEFORE_12_9;
}

void nvrtc_flags_text(const struct nvrtc *n, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < count_flags(n) && at < size; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s%s", i > 0 ? " " : "", FLAGS[i]);
    }
}

static status find_calls(struct nvrtc *n, const char *path, struct error *e)
{
#define X(name, args)                                                                              \
    {                                                                                              \
        void *address = dlsym(n->library, #name);                                                  \
        if (address == NULL) {                                                                     \
            return fail(e, ATOLL_UNSUPPORTED,                                                      \
                        "NVRTC: %s has no %s; hint: CUDA 12 or 13 is needed", path, #name);        \
        }                                                                                          \
        memcpy(&n->name, &address, sizeof address);                                                \
    }
    NVRTC_CALLS(X)
#undef X
    return n->nvrtcVersion(&n->major, &n->minor) == 0
               ? ATOLL_OK
               : fail(e, ATOLL_UNSUPPORTED, "NVRTC: %s does not tell its version", path);
}

status nvrtc_open(const char *path, struct nvrtc **out, struct error *e)
{
    const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    struct nvrtc *n = calloc(1, sizeof *n);
    const char *found = path;
    if (n == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < ARRAY_LEN(names) && n->library == NULL && path == NULL; i++) {
        found = names[i];
        n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (path != NULL) {
        n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (n->library == NULL) {
        free(n);
        return fail(e, ATOLL_NOT_FOUND,
                    "NVRTC: %s cannot be opened (%s); hint: install CUDA's nvrtc package, or set "
                    "ATOLL_LIBNVRTC to the library's path",
                    path != NULL ? path : "libnvrtc.so.13", dlerror());
    }
    status code = find_calls(n, found, e);
    if (code != ATOLL_OK) {
        nvrtc_close(n);
        return code;
    }
    *out = n;
    return ATOLL_OK;
}

void nvrtc_close(struct nvrtc *n)
{
    if (n != NULL) {
        dlclose(n->library);
        free(n);
    }
}

void nvrtc_version(const struct nvrtc *n, int *major, int *minor)
{
    *major = n->major;
    *minor = n->minor;
}

/* ---- architectures ---- */

static int known_archs(const struct nvrtc *n, int archs[MAX_ARCHS])
{
    int count = 0;
    if (n->nvrtcGetNumSupportedArchs(&count) != 0 || count < 1 || count > MAX_ARCHS ||
        n->nvrtcGetSupportedArchs(archs) != 0) {
        return 0;
    }
    return count;
}

void nvrtc_newest_arch(const struct nvrtc *n, char out[16])
{
    int archs[MAX_ARCHS], count = known_archs(n, archs);
    snprintf(out, 16, "sm_%d", count > 0 ? archs[count - 1] : 0);
}

status nvrtc_check_arch(const struct nvrtc *n, const char *arch, struct error *e)
{
    int archs[MAX_ARCHS], count = known_archs(n, archs), wanted = 0, used = 0;
    bool is_name = sscanf(arch, "sm_%d%n", &wanted, &used) == 1 && wanted > 0 &&
                   strspn(arch + used, "af") == strlen(arch + used) && strlen(arch + used) < 2;
    if (!is_name) {
        return fail(e, ATOLL_USAGE,
                    "'%s' is no architecture: expected sm_ and a number, as sm_80 or sm_90a", arch);
    }
    for (int i = 0; i < count; i++) {
        if (archs[i] == wanted) {
            return ATOLL_OK;
        }
    }
    if (count == 0) {
        return ATOLL_OK; /* let the compiler say */
    }
    bool is_newer = wanted > archs[count - 1];
    return fail(e, ATOLL_UNSUPPORTED,
                "%s is not known to NVRTC %d.%d, which compiles for sm_%d to sm_%d; hint: %s", arch,
                n->major, n->minor, archs[0], archs[count - 1],
                is_newer ? "install a newer CUDA, or name an older architecture: its PTX runs there"
                         : "name one of these, or install an older CUDA");
}

/* ---- one unit ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 1;
    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

/* The compiler's words, then the source with line numbers. NULL: no memory. */
static char *numbered_log(const char *words, const char *source)
{
    size_t size = strlen(words) + strlen(source) + (size_t)count_lines(source) * 8 + 64;
    char *log = malloc(size);
    if (log == NULL) {
        return NULL;
    }
    int at = snprintf(log, size, "%s\n---- source ----\n", words);
    uint32_t line = 1;
    for (const char *p = source; *p != '\0' && at > 0;) {
        size_t length = strcspn(p, "\n");
        at += snprintf(log + at, size - (size_t)at, "%5" PRIu32 "  %.*s\n", line++, (int)length, p);
        p += length + (p[length] == '\n');
    }
    return log;
}

static char *take_log(const struct nvrtc *n, nvrtc_program program, const char *source)
{
    size_t size = 0;
    char *words = n->nvrtcGetProgramLogSize(program, &size) == 0 ? calloc(1, size + 1) : NULL;
    if (words == NULL || n->nvrtcGetProgramLog(program, words) != 0) {
        free(words);
        return NULL;
    }
    char *log = numbered_log(words, source);
    free(words);
    return log;
}

static bool take_results(const struct nvrtc *n, nvrtc_program program, struct nvrtc_image *image)
{
    if (n->nvrtcGetCUBINSize(program, &image->cubin_size) != 0 ||
        n->nvrtcGetPTXSize(program, &image->ptx_size) != 0) {
        return false;
    }
    image->cubin = malloc(image->cubin_size + 1);
    image->ptx = malloc(image->ptx_size + 1);
    return image->cubin != NULL && image->ptx != NULL &&
           n->nvrtcGetCUBIN(program, image->cubin) == 0 && n->nvrtcGetPTX(program, image->ptx) == 0;
}

static bool compile_unit(const struct nvrtc *n, const char *arch, const char *source,
                         struct nvrtc_image *image)
{
    char arch_flag[64];
    const char *flags[N_FLAGS + 1];
    nvrtc_program program = NULL;
    double start = now();
    snprintf(arch_flag, sizeof arch_flag, "--gpu-architecture=%s", arch);
    uint32_t n_flags = count_flags(n);
    memcpy(flags, FLAGS, n_flags * sizeof *FLAGS);
    flags[n_flags] = arch_flag;
    if (n->nvrtcCreateProgram(&program, source, "kernels.cu", 0, NULL, NULL) != 0) {
        return false;
    }
    bool is_done = n->nvrtcCompileProgram(program, (int)n_flags + 1, flags) == 0 &&
                   take_results(n, program, image);
    if (!is_done) {
        image->log = take_log(n, program, source);
    }
    n->nvrtcDestroyProgram(&program);
    image->seconds = now() - start;
    return is_done;
}

/* The line of the log that holds "error", for the one-line message. */
static void first_error(const char *log, char *out, size_t size)
{
    const char *at = log != NULL ? strstr(log, "error") : NULL;
    while (at != NULL && at > log && at[-1] != '\n') {
        at--;
    }
    snprintf(out, size, "%.*s", at != NULL ? (int)strcspn(at, "\n") : 6,
             at != NULL ? at : "no log");
}

status nvrtc_compile(const struct nvrtc *nvrtc, const char *arch, const char *const *units,
                     uint32_t n, uint32_t n_threads, struct nvrtc_image *images, struct error *e)
{
    memset(images, 0, n * sizeof *images);
    TRY(nvrtc_check_arch(nvrtc, arch, e));
    int failed = -1, threads = (int)(n_threads > 0 ? n_threads : 1);
    (void)threads; /* without OpenMP */
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (uint32_t i = 0; i < n; i++) {
        if (!compile_unit(nvrtc, arch, units[i], &images[i])) {
#pragma omp critical(nvrtc_failed)
            failed = failed < 0 || (int)i < failed ? (int)i : failed;
        }
    }
    if (failed >= 0) {
        char line[400];
        first_error(images[failed].log, line, sizeof line);
        return fail(e, ATOLL_COMPILER, "NVRTC %d.%d for %s, unit %d: %s", nvrtc->major,
                    nvrtc->minor, arch, failed, line);
    }
    return ATOLL_OK;
}

void nvrtc_images_free(struct nvrtc_image *images, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free(images[i].cubin);
        free(images[i].ptx);
        free(images[i].log);
        images[i] = (struct nvrtc_image){0};
    }
}
