/* Stands between Atoll and NVRTC and makes the compilation of chosen text fail: a source that holds
 * the text of ATOLL_PLANT gets an #error in its first line. All calls go on to the real library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static void *find(const char *name)
{
    static void *library; /* of this test library only */
    if (library == NULL) {
        library = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
    }
    return library != NULL ? dlsym(library, name) : NULL;
}

#define FORWARD(name, parameters, arguments)                                                       \
    EXPORT int name parameters;                                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters;                                                                     \
        void *address = find(#name);                                                               \
        memcpy(&real, &address, sizeof real);                                                      \
        return real != NULL ? real arguments : 1;                                                  \
    }

FORWARD(nvrtcVersion, (int *a, int *b), (a, b))
FORWARD(nvrtcGetNumSupportedArchs, (int *n), (n))
FORWARD(nvrtcGetSupportedArchs, (int *archs), (archs))
FORWARD(nvrtcDestroyProgram, (void **program), (program))
FORWARD(nvrtcCompileProgram, (void *program, int n, const char *const *options),
        (program, n, options))
FORWARD(nvrtcGetCUBINSize, (void *program, size_t *size), (program, size))
FORWARD(nvrtcGetCUBIN, (void *program, char *out), (program, out))
FORWARD(nvrtcGetPTXSize, (void *program, size_t *size), (program, size))
FORWARD(nvrtcGetPTX, (void *program, char *out), (program, out))
FORWARD(nvrtcGetProgramLogSize, (void *program, size_t *size), (program, size))
FORWARD(nvrtcGetProgramLog, (void *program, char *out), (program, out))

EXPORT int nvrtcCreateProgram(void **out, const char *source, const char *name, int n,
                              const char *const *headers, const char *const *names);
int nvrtcCreateProgram(void **out, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names)
{
    int (*real)(void **, const char *, const char *, int, const char *const *, const char *const *);
    void *address = find("nvrtcCreateProgram");
    const char *plant = getenv("ATOLL_PLANT");
    if (address == NULL) {
        return 1;
    }
    memcpy(&real, &address, sizeof real);
    if (plant == NULL || plant[0] == '\0' || strstr(source, plant) == NULL) {
        return real(out, source, name, n, headers, names);
    }
    size_t size = strlen(source) + 64;
    char *changed = malloc(size);
    if (changed == NULL) {
        return 1;
    }
    snprintf(changed, size, "#error planted\n%s", source);
    int code = real(out, changed, name, n, headers, names);
    free(changed);
    return code;
}
