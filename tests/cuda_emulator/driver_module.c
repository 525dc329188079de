/* API calls of modules, functions and launches. PTX text is executed; machine code (a cubin or a
 * fat binary) is refused with CUDA_ERROR_NO_BINARY_FOR_GPU, upon which a program takes the PTX
 * beside it. Limits of a launch are those of hardware. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "driver.h"
#include "ptx.h"

static bool is_machine_code(const void *image)
{
    static const uint8_t elf[4] = {0x7f, 'E', 'L', 'F'}, fat_binary[4] = {0x50, 0xed, 0x55, 0xba};
    return memcmp(image, elf, 4) == 0 || memcmp(image, fat_binary, 4) == 0;
}

static void write_log(unsigned int n, const CUjit_option *options, void **values, const char *text)
{
    char *log = NULL;
    size_t size = 0;
    for (unsigned int i = 0; i < n; i++) {
        if (options[i] == JIT_ERROR_LOG) {
            log = values[i];
        } else if (options[i] == JIT_ERROR_LOG_BYTES) {
            size = (size_t)(uintptr_t)values[i];
            values[i] = (void *)(uintptr_t)strlen(text);
        }
    }
    if (log && size) {
        snprintf(log, size, "%s", text);
    }
}

/* A kernel whose name has the text of ATOLL_EMULATOR_REFUSE: a module that a driver cannot load. */
static bool is_to_be_refused(const struct module *m)
{
    const char *part = getenv("ATOLL_EMULATOR_REFUSE"); /* not kept: a test sets it in between */
    for (uint32_t i = 0; part && *part && i < m->n_kernels; i++) {
        if (!m->kernels[i].is_function && strstr(m->kernels[i].name, part)) {
            return true;
        }
    }
    return false;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n_options,
                                   CUjit_option *options, void **values)
{
    CUresult r = driver_enter();
    char error[500] = "";
    struct module *m = NULL;
    if (!r && (!out || !image)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!r && is_machine_code(image)) {
        snprintf(error, sizeof error, "the emulator runs PTX text, not machine code");
        r = CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!r) {
        m = module_load(image, error, sizeof error);
        r = m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    }
    if (!r && is_to_be_refused(m)) {
        snprintf(error, sizeof error, "refused, as ATOLL_EMULATOR_REFUSE wants");
        module_unload(m);
        r = CUDA_ERROR_INVALID_PTX;
    }
    unsigned arch = (unsigned)emulator_arch();
    if (!r && (m->is_specific ? m->target != arch : m->target > arch)) {
        snprintf(error, sizeof error,
                 "PTX for sm_%u%s, the emulated device is sm_%u (ATOLL_EMULATOR_ARCH)", m->target,
                 m->is_specific ? "a, which no other device runs" : "", arch);
        module_unload(m);
        r = CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    struct CUmod_st *h = r ? NULL : calloc(1, sizeof *h);
    if (h) {
        h->magic = MAGIC_MODULE;
        h->module = m;
        h->next = driver.modules;
        driver.modules = h;
        *out = h;
    } else {
        r = r ? r : CUDA_ERROR_OUT_OF_MEMORY;
        write_log(n_options, options, values, error);
    }
    return driver_leave(r);
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

EXPORT CUresult cuModuleUnload(CUmodule h)
{
    CUresult r = driver_enter_without_context();
    if (r || !IS_HANDLE(h, MODULE)) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    run_all(); /* kernels of the module may be pending */
    for (CUmodule *link = &driver.modules; *link; link = &(*link)->next) {
        if (*link == h) {
            *link = h->next;
            break;
        }
    }
    while (h->functions) {
        struct CUfunc_st *next = h->functions->next;
        h->functions->magic = 0;
        free(h->functions);
        h->functions = next;
    }
    module_unload(h->module);
    h->magic = 0;
    free(h);
    return driver_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule h, const char *name)
{
    CUresult r = driver_enter();
    if (r || !IS_HANDLE(h, MODULE) || !name || !out) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    struct kernel *k = module_kernel(h->module, name);
    struct CUfunc_st *f = h->functions;
    while (f && f->kernel != k) {
        f = f->next;
    }
    if (k && !f) {
        f = calloc(1, sizeof *f);
        if (f) {
            *f = (struct CUfunc_st){MAGIC_FUNCTION, k, h->functions};
            h->functions = f;
        }
    }
    *out = f;
    return driver_leave(!k ? CUDA_ERROR_NOT_FOUND : f ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule h,
                                     const char *name)
{
    CUresult r = driver_enter();
    if (r || !IS_HANDLE(h, MODULE)) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    r = CUDA_ERROR_NOT_FOUND;
    for (uint32_t i = 0; i < h->module->n_globals && r; i++) {
        const struct global_variable *g = &h->module->globals[i];
        if (strcmp(g->name, name) == 0) {
            r = CUDA_SUCCESS;
            if (address) {
                *address = g->address;
            }
            if (bytes) {
                *bytes = g->bytes;
            }
        }
    }
    return driver_leave(r);
}

/* ---- functions ---- */

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f)
{
    CUresult r = driver_enter();
    if (r || !IS_HANDLE(f, FUNCTION) || !value) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    const struct kernel *k = f->kernel;
    switch (attribute) {
    case FUNC_MAX_THREADS:
        *value = k->max_threads && k->max_threads < 1024 ? (int)k->max_threads : 1024;
        break;
    case FUNC_SHARED:
        *value = (int)k->shared_bytes;
        break;
    case FUNC_LOCAL:
        *value = (int)k->local_bytes;
        break;
    case FUNC_REGISTERS: /* no machine code, no count: the text's, which are not yet allocated */
        *value = k->n_registers < 255 ? (int)k->n_registers : 255;
        break;
    case FUNC_PTX_VERSION:
        *value = (int)k->module->target;
        break;
    case FUNC_BINARY_VERSION:
        *value = emulator_arch();
        break;
    case FUNC_MAX_DYNAMIC_SHARED:
        *value = k->dynamic_shared ? (int)k->dynamic_shared : SHARED_DEFAULT - (int)k->shared_bytes;
        break;
    default:
        *value = 0;
    }
    return driver_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value)
{
    CUresult r = driver_enter();
    if (!r && !IS_HANDLE(f, FUNCTION)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && attribute == FUNC_MAX_DYNAMIC_SHARED) {
        bool is_good = value >= 0 && (uint32_t)value + f->kernel->shared_bytes <= SHARED_MOST;
        f->kernel->dynamic_shared = is_good ? (uint32_t)value : f->kernel->dynamic_shared;
        r = is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    } else if (!r && attribute != FUNC_PREFERRED_CARVEOUT) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    return driver_leave(r);
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction f)
{
    CUresult r = driver_enter();
    if (!r && IS_HANDLE(f, FUNCTION)) {
        *name = f->kernel->name;
    } else if (!r) {
        r = CUDA_ERROR_INVALID_HANDLE;
    }
    return driver_leave(r);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads,
                                                            size_t dynamic_shared)
{
    CUresult r = driver_enter();
    if (r || !IS_HANDLE(f, FUNCTION) || !blocks || threads < 1 || threads > 1024) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_VALUE);
    }
    size_t shared = f->kernel->shared_bytes + dynamic_shared + 1024; /* 1024: reserved per block */
    size_t by_shared = (SHARED_MOST + 1024) / shared, by_threads = 2048u / (unsigned)threads;
    size_t most = by_threads < by_shared ? by_threads : by_shared;
    *blocks = most < 32 ? (int)most : 32;
    return driver_leave(CUDA_SUCCESS);
}

/* ---- launches ---- */

/* NULL when hardware would take it. */
static const char *refuse_launch(const struct kernel *k, const uint32_t *grid,
                                 const uint32_t *block, uint32_t shared)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    uint32_t allowed = k->dynamic_shared > SHARED_DEFAULT - k->shared_bytes
                           ? k->dynamic_shared
                           : SHARED_DEFAULT - k->shared_bytes;
    if (!grid[0] || !grid[1] || !grid[2] || !threads) {
        return "a dimension is 0";
    }
    if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535) {
        return "the grid is larger than 2147483647 x 65535 x 65535";
    }
    if (threads > 1024 || block[2] > 64) {
        return "the block has more than 1024 threads, or more than 64 in z";
    }
    if (k->max_threads && threads > k->max_threads) {
        return "the block has more threads than the kernel's __launch_bounds__";
    }
    if (k->required[0] && memcmp(k->required, block, sizeof k->required) != 0) {
        return "the block differs from the kernel's .reqntid";
    }
    if (shared > allowed) {
        return "more dynamic shared memory than allowed: raise "
               "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES";
    }
    return NULL;
}

/* The parameter block from a list of pointers; NULL when one is missing. */
static uint8_t *pack_parameters(const struct kernel *k, void **parameters)
{
    uint8_t *data = calloc(1, k->parameter_bytes + 16);
    for (uint32_t i = 0; i < k->n_parameters && data; i++) {
        if (!parameters || !parameters[i]) {
            free(data);
            return NULL;
        }
        memcpy(data + k->parameters[i].offset, parameters[i], k->parameters[i].bytes);
    }
    return data;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream handle,
                               void **parameters, void **extra)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (r || !IS_HANDLE(f, FUNCTION) || !stream) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    struct operation op = {.kind = OP_LAUNCH,
                           .call = "cuLaunchKernel",
                           .kernel = f->kernel,
                           .grid = {grid_x, grid_y, grid_z},
                           .block = {block_x, block_y, block_z},
                           .shared_bytes = shared_bytes};
    const char *refusal = refuse_launch(f->kernel, op.grid, op.block, shared_bytes);
    if (refusal || extra) {
        refusal = refusal ? refusal : "the extra argument is not supported: use kernelParams";
        finding_report(FINDING_MISUSE, (uint64_t)(uintptr_t)f->kernel,
                       "cuLaunchKernel of %s, grid (%u,%u,%u), block (%u,%u,%u): %s",
                       f->kernel->name, grid_x, grid_y, grid_z, block_x, block_y, block_z, refusal);
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    op.parameters = pack_parameters(f->kernel, parameters);
    if (!op.parameters) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return driver_leave(enqueue(stream, op));
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (!r && (!stream || !function)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    return driver_leave(r ? r
                          : enqueue(stream, (struct operation){.kind = OP_HOST,
                                                               .call = "cuLaunchHostFunc",
                                                               .host = function,
                                                               .data = data}));
}
