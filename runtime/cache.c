/* Content-addressed: the key hashes every unit's text, the flags, the compiler and the processor.
 * Entries are checksummed containers written to a temporary name and renamed; one that is damaged,
 * foreign or unreadable is made again, with a warning. Invariant: nothing that another user could
 * have written is ever loaded: entries are ours, and so is their directory (or root's). */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
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

/* The container of an entry of this user's that is sound; what else there is, is a warning. */
static bool open_entry(const char *path, const char *kind, struct container *out,
                       struct error *warning)
{
    struct stat info;
    struct error reason = {0};
    if (stat(path, &info) != 0) {
        return false;
    }
    if (info.st_uid != geteuid()) {
        fail(&reason, ATOLL_IO, "%s: it belongs to user %u", path, (unsigned)info.st_uid);
    } else if (container_open(path, kind, out, &reason) == ATOLL_OK) {
        utimensat(AT_FDCWD, path, NULL, 0); /* used now: for cache_shrink */
        return true;
    }
    fail(warning, ATOLL_FORMAT, "cache entry %.700s; compiled again", reason.text);
    return false;
}

static bool load_library(const char *path, struct library **out, struct error *warning)
{
    struct container c;
    struct error reason = {0};
    *out = NULL;
    if (!open_entry(path, "kernels", &c, warning)) {
        return false;
    }
    const struct section *s = container_find(&c, "library");
    *out = s != NULL ? library_open(s->data, s->size, path, &reason) : NULL;
    container_close(&c);
    if (*out == NULL) {
        fail(warning, ATOLL_FORMAT, "cache entry %.700s; compiled again",
             reason.code != ATOLL_OK ? reason.text : path);
    }
    return *out != NULL;
}

/* Writers that race for one entry have the same bytes: whoever renames last wins, and there is
 * nothing to warn of. */
static void store_entry(const struct cache_use *use, const struct cache_key *key, const char *kind,
                        const struct section *sections, uint32_t n)
{
    char path[4096];
    struct error reason = {0};
    make_directories(use->directory);
    uint64_t swept = cache_sweep(use->directory);
    if (swept > 0) {
        fail(use->warning, ATOLL_IO,
             "cache %.600s: removed %" PRIu64 " bytes of an unfinished write: a process was killed",
             use->directory, swept);
    }
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".%s", use->directory, key->hash, kind);
    if (container_write(path, kind, sections, n, &reason) != ATOLL_OK) {
        size_t length = strlen(path); /* the directory says it: one warning, not one an entry */
        bool is_named = strncmp(reason.text, path, length) == 0 && reason.text[length] == ':';
        fail(use->warning, ATOLL_IO,
             "cache %.600s: it cannot be used, so kernels are compiled each time%s", use->directory,
             is_named ? reason.text + length : "");
        return;
    }
    cache_key_store(use->directory, key);
    if (use->limit > 0) {
        cache_shrink(use->directory, use->limit, key->hash, use->told);
    }
}

static bool is_usable(const struct cache_use *use)
{
    return use->directory != NULL && use->directory[0] != '\0' &&
           is_trusted(use->directory, use->warning);
}

static void entry_path(const struct cache_use *use, const struct cache_key *key, const char *kind,
                       char path[4096])
{
    snprintf(path, 4096, "%s/%016" PRIx64 ".%s", use->directory, key->hash, kind);
}

status cached_compile(const struct cache_use *use, const struct cc_options *o,
                      const char *const *units, const size_t *sizes, uint32_t n,
                      struct library **out, bool *is_hit, struct error *e)
{
    char path[4096];
    void *bytes = NULL;
    size_t size = 0;
    struct cache_key key;
    bool has_cache = is_usable(use);
    *is_hit = false;
    if (has_cache) {
        cache_key_of(o, units, sizes, n, &key);
        entry_path(use, &key, "kernels", path);
        if (load_library(path, out, use->warning)) {
            *is_hit = true;
            return ATOLL_OK;
        }
        if (use->why_miss != NULL) {
            cache_explain(use->directory, &key, use->why_miss);
        }
    }
    TRY(cc_compile(o, units, sizes, n, &bytes, &size, e));
    *out = library_open(bytes, size, "compiled kernels", e);
    if (*out != NULL && has_cache) {
        const struct section s = {.name = "library", .data = bytes, .size = size};
        store_entry(use, &key, "kernels", &s, 1);
    }
    free(bytes);
    return *out != NULL ? ATOLL_OK : e->code;
}

/* ---- CUDA ---- */

static void *copy_of(const struct section *s)
{
    void *copy = s != NULL ? malloc(s->size + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, s->data, s->size);
        ((char *)copy)[s->size] = '\0';
    }
    return copy;
}

bool cached_image_load(const struct cache_use *use, const struct cache_key *key,
                       struct nvrtc_image *out)
{
    char path[4096];
    struct container c;
    *out = (struct nvrtc_image){0};
    if (!is_usable(use)) {
        return false;
    }
    entry_path(use, key, "cuda", path);
    if (open_entry(path, "cuda", &c, use->warning)) {
        const struct section *cubin = container_find(&c, "cubin"), *ptx = container_find(&c, "ptx");
        out->cubin = copy_of(cubin);
        out->ptx = copy_of(ptx);
        out->cubin_size = cubin != NULL ? cubin->size : 0;
        out->ptx_size = ptx != NULL ? ptx->size : 0;
        container_close(&c);
        if (out->cubin != NULL && out->ptx != NULL) {
            return true;
        }
        nvrtc_images_free(out, 1);
    }
    if (use->why_miss != NULL) {
        cache_explain(use->directory, key, use->why_miss);
    }
    return false;
}

void cached_image_store(const struct cache_use *use, const struct cache_key *key,
                        const struct nvrtc_image *image)
{
    const struct section sections[] = {
        {.name = "cubin", .data = image->cubin, .size = image->cubin_size},
        {.name = "ptx", .data = image->ptx, .size = image->ptx_size}};
    if (is_usable(use) && image->cubin != NULL && image->ptx != NULL) {
        store_entry(use, key, "cuda", sections, ARRAY_LEN(sections));
    }
}
