/* Content-addressed: the key hashes every unit's text, the flags, the compiler and the processor.
 * Entries are checksummed containers written to a temporary name and renamed; one that is damaged,
 * foreign or unreadable is made again, with a warning. Invariant: nothing that another user could
 * have written is ever loaded: entries are ours, and so is their directory (or root's). */
#include "cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/container.h"

static void make_directories(const char *path)
{
    char part[4096];
    for (size_t i = 1; i < sizeof part - 1; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            mkdir(part, 0700);
        }
        if (path[i] == '\0') {
            return;
        }
    }
}

/* false: nothing in the directory may be used. One that does not exist yet is fine. */
static bool is_trusted(const char *directory, struct error *warning)
{
    struct stat info;
    if (stat(directory, &info) != 0 || info.st_uid == geteuid() || info.st_uid == 0) {
        return true;
    }
    fail(warning, ATOLL_IO,
         "cache %s: the directory belongs to user %u: not used; hint: set ATOLL_CACHE to one of "
         "yours",
         directory, (unsigned)info.st_uid);
    return false;
}

static bool load_entry(const char *path, struct library **out, struct error *warning)
{
    struct container c;
    struct stat info;
    struct error reason = {0};
    *out = NULL;
    if (stat(path, &info) != 0) {
        return false;
    }
    if (info.st_uid != geteuid()) {
        fail(&reason, ATOLL_IO, "%s: it belongs to user %u", path, (unsigned)info.st_uid);
    } else if (container_open(path, "kernels", &c, &reason) == ATOLL_OK) {
        const struct section *s = container_find(&c, "library");
        *out = s != NULL ? library_open(s->data, s->size, path, &reason) : NULL;
        container_close(&c);
    }
    if (*out == NULL) {
        fail(warning, ATOLL_FORMAT, "cache entry %.700s; compiled again",
             reason.code != ATOLL_OK ? reason.text : path);
    }
    return *out != NULL;
}

static void store_entry(const char *directory, const char *path, const void *bytes, size_t size,
                        struct error *warning)
{
    struct section s = {.name = "library", .data = bytes, .size = size};
    struct error reason = {0};
    make_directories(directory);
    if (container_write(path, "kernels", &s, 1, &reason) != ATOLL_OK) {
        size_t length = strlen(path); /* the directory says it: one warning, not one an entry */
        bool is_named = strncmp(reason.text, path, length) == 0 && reason.text[length] == ':';
        fail(warning, ATOLL_IO,
             "cache %.600s: it cannot be used, so kernels are compiled each time%s", directory,
             is_named ? reason.text + length : "");
    }
}

status cached_compile(const char *directory, const struct cc_options *o, const char *const *units,
                      const size_t *sizes, uint32_t n, struct library **out, bool *is_hit,
                      struct text *why_miss, struct error *warning, struct error *e)
{
    char path[4096] = "";
    void *bytes = NULL;
    size_t size = 0;
    struct cache_key key;
    *is_hit = false;
    if (directory != NULL && directory[0] != '\0' && is_trusted(directory, warning)) {
        cache_key_of(o, units, sizes, n, &key);
        snprintf(path, sizeof path, "%s/%016" PRIx64 ".kernels", directory, key.hash);
        if (load_entry(path, out, warning)) {
            *is_hit = true;
            return ATOLL_OK;
        }
        if (why_miss != NULL) {
            cache_explain(directory, &key, why_miss);
        }
    }
    TRY(cc_compile(o, units, sizes, n, &bytes, &size, e));
    *out = library_open(bytes, size, "compiled kernels", e);
    if (*out != NULL && path[0] != '\0') {
        store_entry(directory, path, bytes, size, warning);
        cache_key_store(directory, &key);
    }
    free(bytes);
    return *out != NULL ? ATOLL_OK : e->code;
}

/* ---- CUDA ---- */

/* An entry of this user's that is sound. */
static bool open_entry(const char *path, const char *kind, struct container *out)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_uid == geteuid() &&
           container_open(path, kind, out, NULL) == ATOLL_OK;
}

static void *copy_of(const struct section *s)
{
    void *copy = s != NULL ? malloc(s->size + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, s->data, s->size);
        ((char *)copy)[s->size] = '\0';
    }
    return copy;
}

bool cached_image_load(const char *directory, uint64_t key, struct nvrtc_image *out)
{
    char path[4096];
    struct container c;
    *out = (struct nvrtc_image){0};
    if (directory == NULL || directory[0] == '\0' || !is_trusted(directory, NULL)) {
        return false;
    }
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".cuda", directory, key);
    if (!open_entry(path, "cuda", &c)) {
        return false;
    }
    const struct section *cubin = container_find(&c, "cubin"), *ptx = container_find(&c, "ptx");
    out->cubin = copy_of(cubin);
    out->ptx = copy_of(ptx);
    out->cubin_size = cubin != NULL ? cubin->size : 0;
    out->ptx_size = ptx != NULL ? ptx->size : 0;
    container_close(&c);
    if (out->cubin == NULL || out->ptx == NULL) {
        nvrtc_images_free(out, 1);
        return false;
    }
    return true;
}

void cached_image_store(const char *directory, uint64_t key, const struct nvrtc_image *image)
{
    char path[4096];
    struct section sections[] = {{.name = "cubin", .data = image->cubin, .size = image->cubin_size},
                                 {.name = "ptx", .data = image->ptx, .size = image->ptx_size}};
    if (directory == NULL || directory[0] == '\0' || !is_trusted(directory, NULL) ||
        image->cubin == NULL || image->ptx == NULL) {
        return;
    }
    make_directories(directory);
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".cuda", directory, key);
    (void)container_write(path, "cuda", sections, ARRAY_LEN(sections), NULL);
}
