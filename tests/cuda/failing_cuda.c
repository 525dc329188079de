/* Stands between Atoll and the CUDA driver (or the emulator): passes every call of cuda_api.def on
 * to the library that ATOLL_REAL_LIBCUDA names, except that the call with the number set by
 * failing_cuda_at fails; failing_cuda_calls tells how many there were. Calls that give something
 * back are never refused, nor is the choice of the context before them: what was taken must be
 * given back whatever else went wrong. failing_cuda_lie(name, n) makes the n-th call from there on
 * of those with the name in theirs say success without being made (0: each of them, -1: none);
 * failing_cuda_seen tells how many there were. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda_api.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void failing_cuda_at(int call);
EXPORT int failing_cuda_calls(void);
EXPORT void failing_cuda_lie(const char *name, int nth);
EXPORT int failing_cuda_seen(void);

static int n_calls, failing;
static char lying[64];
static int n_seen, lie_at = -1;

void failing_cuda_at(int call)
{
    n_calls = 0;
    failing = call;
}

int failing_cuda_calls(void)
{
    return n_calls;
}

void failing_cuda_lie(const char *name, int nth)
{
    strncpy(lying, name, sizeof lying - 1);
    n_seen = 0;
    lie_at = nth;
}

int failing_cuda_seen(void)
{
    return n_seen;
}

static int is_lie(const char *name)
{
    if (lying[0] == '\0' || strstr(name, lying) == NULL) {
        return 0;
    }
    n_seen++;
    return lie_at == 0 || lie_at == n_seen;
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
    static const char *const never[] = {"Free",     "Destroy",    "Release",      "Unload",
                                        "GetError", "EndCapture", "CtxSetCurrent"};
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
        if (is_lie(#symbol)) {                                                                     \
            return 0;                                                                              \
        }                                                                                          \
        return real == NULL || is_refused(#symbol) ? 999 : real names;                             \
    }
#include "runtime/cuda_api.def"
#undef X
