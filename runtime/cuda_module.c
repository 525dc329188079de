/* Native code onto a device: for each unit the cubin made for it, else PTX that the driver
 * compiles. A cubin runs on its own major version from its minor version up; one made for sm_90a
 * only on exactly that; PTX runs on its architecture and every later one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

enum { LOG_BYTES = 4096 };

struct cuda_loaded {
    uint32_t n;
    CUmodule modules[];
};

struct arch {
    int major, minor;
    bool is_exact; /* sm_90a */
};

static struct arch arch_of(const char *text)
{
    int number = 0, used = 0;
    (void)sscanf(text, "sm_%d%n", &number, &used);
    return (struct arch){number / 10, number % 10, text[used] == 'a'};
}

static int number_of(struct arch a)
{
    return a.major * 10 + a.minor;
}

/* How well an image fits: 0 not at all, else the higher the better. */
static int cubin_fit(struct arch image, struct arch device)
{
    bool runs = image.is_exact ? number_of(image) == number_of(device)
                               : image.major == device.major && image.minor <= device.minor;
    return runs ? 2 * number_of(image) + image.is_exact : 0;
}

static int ptx_fit(struct arch image, struct arch device)
{
    bool runs = image.is_exact ? number_of(image) == number_of(device)
                               : number_of(image) <= number_of(device);
    return runs ? 2 * number_of(image) + image.is_exact : 0;
}

static CUresult load_ptx(struct cuda_device *d, const char *ptx, CUmodule *out, char *log)
{
    CUjit_option options[] = {ATOLL_CUDA_JIT_ERROR_LOG, ATOLL_CUDA_JIT_ERROR_SIZE};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    log[0] = '\0';
    return d->api.cuModuleLoadDataEx(out, ptx, 2, options, values);
}

static status load_unit(struct cuda_device *d, const struct device_code *code, uint32_t unit,
                        CUmodule *out, struct error *e)
{
    const struct device_image *cubin = NULL, *ptx = NULL;
    struct arch device = arch_of(d->base.arch);
    int best_cubin = 0, best_ptx = 0;
    char archs[160] = "", log[LOG_BYTES];
    for (uint32_t a = 0; a < code->n_archs; a++) {
        const struct device_image *image = &code->images[a * code->n_units + unit];
        struct arch arch = arch_of(image->arch);
        int fit = image->cubin != NULL ? cubin_fit(arch, device) : 0;
        if (fit > best_cubin) {
            best_cubin = fit;
            cubin = image;
        }
        fit = image->ptx != NULL ? ptx_fit(arch, device) : 0;
        if (fit > best_ptx) {
            best_ptx = fit;
            ptx = image;
        }
        size_t at = strlen(archs);
        (void)snprintf(archs + at, sizeof archs - at, " %s", image->arch);
    }
    if (cubin != NULL && d->api.cuModuleLoadDataEx(out, cubin->cubin, 0, NULL, NULL) == 0) {
        return ATOLL_OK;
    }
    if (ptx == NULL) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "%s: the kernels are compiled for%s, and none runs there; hint: compile with "
                    "--target cuda:%s",
                    d->base.name, archs, d->base.arch);
    }
    CUresult result = load_ptx(d, ptx->ptx, out, log);
    if (result == 0) {
        return ATOLL_OK;
    }
    cuda_check(&d->api, result, "cuModuleLoadDataEx", d->base.name, e);
    if (e != NULL) { /* the driver's own words, and what helps */
        size_t at = strlen(e->text);
        (void)snprintf(e->text + at, sizeof e->text - at,
                       " %.300s; hint: the driver (for CUDA %d.%d) may be older than the compiler "
                       "that made this PTX for %s: update it, or compile with --target cuda:%s",
                       log, d->api.driver / 1000, d->api.driver % 1000 / 10, ptx->arch,
                       d->base.arch);
    }
    return ATOLL_DEVICE;
}

status cuda_load(struct device *base, const struct device_code *code, void **out, struct error *e)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct cuda_loaded *l = calloc(1, sizeof *l + code->n_units * sizeof l->modules[0]);
    if (l == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t u = 0; u < code->n_units; u++) {
        status result = load_unit(d, code, u, &l->modules[u], e);
        if (result != ATOLL_OK) {
            cuda_unload(base, l);
            return result;
        }
        l->n++;
    }
    *out = l;
    return ATOLL_OK;
}

void cuda_unload(struct device *base, void *loaded)
{
    struct cuda_loaded *l = loaded;
    for (uint32_t u = 0; l != NULL && u < l->n; u++) {
        (void)((struct cuda_device *)base)->api.cuModuleUnload(l->modules[u]);
    }
    free(l);
}

status cuda_find(struct device *base, void *loaded, const char *symbol, void **out, struct error *e)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct cuda_loaded *l = loaded;
    CUfunction function = NULL;
    for (uint32_t u = 0; l != NULL && u < l->n; u++) {
        CUresult code = d->api.cuModuleGetFunction(&function, l->modules[u], symbol);
        if (code != ATOLL_CUDA_NOT_FOUND) { /* another unit has it */
            *out = function;
            return cuda_check(&d->api, code, "cuModuleGetFunction", symbol, e);
        }
    }
    return fail(e, ATOLL_NOT_FOUND, "kernel %s is not in the modules; hint: compile the plan again",
                symbol);
}
