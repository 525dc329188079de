/* Stands between Atoll and the CUDA driver (or the emulator): passes every call of cuda_api.def on
 * to the library that ATOLL_REAL_LIBCUDA names, except that the call with the number set by
 * failing_cuda_at fails; failing_cuda_calls tells how many there were. Calls that give something
 * back are never refused: what was taken must be given back whatever else went wrong. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda_api.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void failing_cuda_at(int call);
EXPORT int failing_cuda_calls(void);

static int n_calls, failing;

void failing_cuda_at(int call)
{
    n_calls = 0;
    failing = call;
}

int failing_cuda_calls(void)
{
    return n_calls;
}

static void *find(const char *name)
{
    static void *library;
    const char *path = getenv("ATOLL_REAL_LIBCUDA");
    if (library == NULL) {
        library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    return library != NULL ? dlsym(library, name) : NULL;
}

static int is_refused(const char *name)
{
    static const char *const never[] = {"Free",   "Destroy",  "Release",
                                        "Unload", "GetError", "EndCapture"};
    for (size_t i = 0; i < ARRAY_LEN(never); i++) {
        if (strstr(name, never[i]) != NULL) {
            return 0;
        }
    }
    return ++n_calls == failing;
}

#define X(name, symbol, args, names)                                                               \
    EXPORT CUresult symbol args;                                                                   \
    CUresult symbol args                                                                           \
    {                                                                                              \
        CUresult(*real) args;                                                                      \
        void *address = find(#symbol);                                                             \
        memcpy(&real, &address, sizeof real);                                                      \
        return real == NULL || is_refused(#symbol) ? 999 : real names;                             \
    }
#include "runtime/cuda_api.def"
#undef X
