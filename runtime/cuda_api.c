/* Opens libcuda and finds the calls of cuda_api.def; turns CUresults into statuses, in one place.
 * Nothing here touches a device beyond cuInit. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <string.h>

status cuda_check(const struct cuda_api *api, CUresult code, const char *call, const char *subject,
                  struct error *e)
{
    const char *name = NULL, *text = NULL;
    if (code == 0) {
        return ATOLL_OK;
    }
    (void)api->cuGetErrorName(code, &name);
    (void)api->cuGetErrorString(code, &text);
    return fail(e, code == ATOLL_CUDA_OUT_OF_MEMORY ? ATOLL_OUT_OF_MEMORY : ATOLL_DEVICE,
                "%s%s%s%s: %s (%s)", call, subject != NULL ? " (" : "",
                subject != NULL ? subject : "", subject != NULL ? ")" : "",
                name != NULL ? name : "unknown error", text != NULL ? text : "no text");
}

static status find_calls(struct cuda_api *api, const char *path, struct error *e)
{
#define X(name, symbol, args, names)                                                               \
    {                                                                                              \
        void *address = dlsym(api->library, #symbol);                                              \
        if (address == NULL) {                                                                     \
            return fail(e, ATOLL_UNSUPPORTED,                                                      \
                        "CUDA driver: %s lacks %s; hint: a driver for CUDA 12 or newer is needed", \
                        path, #symbol);                                                            \
        }                                                                                          \
        memcpy(&api->name, &address, sizeof address);                                              \
    }
#include "cuda_api.def"
#undef X
    return ATOLL_OK;
}

static status start(struct cuda_api *api, const char *path, struct error *e)
{
    int count = 0;
    TRY(find_calls(api, path, e));
    TRY(cuda_check(api, api->cuInit(0), "cuInit", path, e));
    TRY(cuda_check(api, api->cuDriverGetVersion(&api->driver), "cuDriverGetVersion", path, e));
    TRY(cuda_check(api, api->cuDeviceGetCount(&count), "cuDeviceGetCount", path, e));
    return count > 0 ? ATOLL_OK : fail(e, ATOLL_NOT_FOUND, "CUDA driver: %s sees no device", path);
}

status cuda_api_open(const char *path, struct cuda_api *out, struct error *e)
{
    const char *name = path != NULL ? path : "libcuda.so.1";
    *out = (struct cuda_api){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (out->library == NULL) {
        const char *why = dlerror();
        return fail(e, ATOLL_NOT_FOUND,
                    "CUDA driver: %s cannot be opened (%s); hint: install the NVIDIA driver, or "
                    "set ATOLL_LIBCUDA to a library that stands in for it",
                    name, why != NULL ? why : "no reason given");
    }
    status code = start(out, name, e);
    if (code != ATOLL_OK) {
        cuda_api_close(out);
    }
    return code;
}

void cuda_api_close(struct cuda_api *api)
{
    if (api->library != NULL) {
        dlclose(api->library);
    }
    *api = (struct cuda_api){0};
}
