/* See test_support.h. */
#include "test_support.h"

#include <dlfcn.h>

#ifndef ATOLL_NVRTC
#define ATOLL_NVRTC "libnvrtc.so"
#endif

void open_context(void)
{
    CUcontext context;
    GOOD(cuInit(0));
    GOOD(cuDevicePrimaryCtxRetain(&context, 0));
    GOOD(cuCtxSetCurrent(context));
    atoll_emulator_forget_findings();
}

void close_context(void)
{
    GOOD(cuDevicePrimaryCtxRelease_v2(0));
    atoll_emulator_forget_findings();
}

char *read_text(const char *path)
{
    char full[600];
    snprintf(full, sizeof full, "%s/tests/cuda_emulator/%s", ATOLL_SOURCE_DIR, path);
    FILE *file = fopen(full, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", full);
        abort(); /* called outside of tests, too, where Check's asserts are not allowed */
    }
    size_t room = 1 << 20, n;
    char *text = malloc(room);
    n = fread(text, 1, room - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

CUmodule module_of_text(const char *ptx)
{
    CUmodule m = NULL;
    char log[600] = "";
    CUjit_option options[] = {5 /* error log */, 6 /* its size */};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUresult r = cuModuleLoadDataEx(&m, ptx, 2, options, values);
    ck_assert_msg(r == CUDA_SUCCESS, "%s", log);
    return m;
}

CUmodule module_of_fixture(const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "fixtures/%s.ptx", name);
    char *text = read_text(path);
    CUmodule m = module_of_text(text);
    free(text);
    return m;
}

CUfunction function_of(CUmodule m, const char *name)
{
    CUfunction f = NULL;
    ck_assert_msg(cuModuleGetFunction(&f, m, name) == CUDA_SUCCESS, "no kernel %s", name);
    return f;
}

CUdeviceptr device_array(size_t bytes)
{
    CUdeviceptr address = 0;
    GOOD(cuMemAlloc_v2(&address, bytes));
    return address;
}

CUdeviceptr device_copy(const void *data, size_t bytes)
{
    CUdeviceptr address = device_array(bytes);
    GOOD(cuMemcpyHtoD_v2(address, data, bytes));
    return address;
}

CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, void **parameters)
{
    CUresult r = cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, NULL, parameters, NULL);
    return r ? r : cuCtxSynchronize();
}

bool has_finding(const char *name, const char *text)
{
    static char all[100000];
    atoll_emulator_findings(all, sizeof all);
    bool found = false;
    for (char *line = all; *line && !found; line = strchr(line, '\n') + 1) {
        found = strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':';
    }
    return found && strstr(all, text);
}

void want_no_findings(void)
{
    static char all[100000];
    ck_assert_msg(atoll_emulator_findings(all, sizeof all) == 0, "findings:\n%s", all);
}

uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)((*state >> 18 ^ *state) >> 27), turn = (uint32_t)(*state >> 59);
    return x >> turn | x << (-turn & 31);
}

float random_float(uint64_t *state)
{
    static const uint32_t special[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u,
                                       1, 0x807fffffu, 0x3f800000u, 0x7f7fffffu};
    uint32_t bits = random_bits(state), which = random_bits(state);
    if (which % 8 == 0) {
        bits = special[which >> 8 & 7];
    } else if (which % 2) {
        bits = (bits & 0x80ffffffu) | ((bits >> 3 & 0x1f000000u) + 0x30000000u); /* near 1 */
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f != f ? 1.5f : f;
}

/* ---- NVRTC: the part of nvrtc.h that compiling one file needs ---- */

typedef struct _nvrtcProgram *program;
struct nvrtc {
    void *library;
    int (*create)(program *, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(program, int, const char *const *);
    int (*text_size)(program, size_t *);
    int (*text)(program, char *);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*destroy)(program *);
};

static bool open_nvrtc(struct nvrtc *n, char *reason, size_t size)
{
    const char *given = getenv("ATOLL_LIBNVRTC");
    const char *const names[] = {given ? given : ATOLL_NVRTC, "libnvrtc.so.13", "libnvrtc.so.12",
                                 "libnvrtc.so"};
    for (size_t i = 0; i < 4 && !n->library; i++) {
        n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!n->library) {
        snprintf(reason, size, "NVRTC is not installed: %s", dlerror());
        return false;
    }
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"nvrtcCreateProgram", &n->create},       {"nvrtcCompileProgram", &n->compile},
                 {"nvrtcGetPTXSize", &n->text_size},       {"nvrtcGetPTX", &n->text},
                 {"nvrtcGetProgramLogSize", &n->log_size}, {"nvrtcGetProgramLog", &n->log},
                 {"nvrtcDestroyProgram", &n->destroy}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(n->library, calls[i].name);
        if (!symbol) {
            snprintf(reason, size, "libnvrtc has no %s", calls[i].name);
            return false;
        }
        memcpy(calls[i].to, &symbol, sizeof symbol);
    }
    return true;
}

char *compile_cuda(const char *source, const char *arch, char *reason, size_t size)
{
    static struct nvrtc n;
    program p = NULL;
    size_t bytes = 0;
    char option[60];
    if (!n.destroy && !open_nvrtc(&n, reason, size)) {
        return NULL;
    }
    snprintf(option, sizeof option, "--gpu-architecture=compute_%s", arch);
    const char *const options[] = {"--fmad=false", option};
    char *text = NULL;
    bool is_good = n.create(&p, source, "test.cu", 0, NULL, NULL) == 0;
    if (is_good && n.compile(p, 2, options) == 0 && n.text_size(p, &bytes) == 0) {
        text = calloc(1, bytes + 1);
        n.text(p, text);
    } else if (is_good && n.log_size(p, &bytes) == 0) {
        char *log = calloc(1, bytes + 1);
        n.log(p, log);
        snprintf(reason, size, "compute_%s: %s", arch, log);
        free(log);
    }
    n.destroy(&p);
    return text;
}
