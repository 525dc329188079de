/* Loads a shared object from memory through an anonymous file, so that nothing executable is left
 * on a disk. The loader knows a library by its path, /proc/self/fd/N: the file stays open as long
 * as its library, so that no other one comes to have that N. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct library {
    void *handle;
    void *bytes;
    size_t size;
    int fd;
};

static bool write_all(int fd, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        data += n;
        size -= (size_t)n;
    }
    return true;
}

struct library *library_open(const void *bytes, size_t size, const char *name, struct error *e)
{
    struct library *l = calloc(1, sizeof *l);
    if (l == NULL || (l->bytes = malloc(size + 1)) == NULL) {
        free(l);
        fail(e, ATOLL_OUT_OF_MEMORY, "%s: no memory for %zu bytes of kernels", name, size);
        return NULL;
    }
    l->fd = memfd_create("atoll-kernels", MFD_CLOEXEC);
    if (l->fd < 0 || !write_all(l->fd, bytes, size)) {
        fail(e, ATOLL_IO, "%s: kernels cannot be mapped: %s", name, strerror(errno));
    } else {
        char path[64];
        memcpy(l->bytes, bytes, size);
        l->size = size;
        snprintf(path, sizeof path, "/proc/self/fd/%d", l->fd);
        l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (l->handle == NULL) {
            fail(e, ATOLL_FORMAT,
                 "%s: kernels do not load: %s; hint: compile again on this machine", name,
                 dlerror());
        }
    }
    if (l->handle == NULL) {
        library_close(l);
        return NULL;
    }
    return l;
}

void *library_find(struct library *l, const char *symbol)
{
    return dlsym(l->handle, symbol);
}

const void *library_bytes(const struct library *l, size_t *size)
{
    *size = l->size;
    return l->bytes;
}

void library_close(struct library *l)
{
    if (l != NULL) {
        if (l->handle != NULL) {
            dlclose(l->handle);
        }
        if (l->fd >= 0) {
            close(l->fd);
        }
        free(l->bytes);
        free(l);
    }
}
