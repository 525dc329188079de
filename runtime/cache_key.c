/* The key of the cache, part by part, and why there is no entry of a key: what a key was made of is
 * kept beside its entry as a small text, and a miss is held against the nearest. Invariant: these
 * texts explain; nothing is ever loaded because of them. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache.h"
#include "runtime/file.h"

const char *const cache_part_names[N_CACHE_PARTS] = {"source", "flags",  "compiler",
                                                     "arch",   "policy", "version"};

enum { MAX_LISTED = 4096 }; /* entries looked at */

/* ---- parts ---- */

static uint64_t processor_hash(char name[300])
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[4096];
    uint64_t hash = 0;
    snprintf(name, 300, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        bool is_name = strncmp(line, "model name", 10) == 0;
        line[strcspn(line, "\n")] = '\0';
        if (is_name || strncmp(line, "flags", 5) == 0) {
            hash = hash_text(line, hash);
        }
        if (is_name && strchr(line, ':') != NULL) {
            snprintf(name, 300, "%.200s", strchr(line, ':') + 1 + (strchr(line, ':')[1] == ' '));
        }
        if (line[0] == '\0') {
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return hash;
}

/* Path, size and time of change cost no process. */
static void compiler_text(const char *compiler, char out[300])
{
    char path[4096];
    struct stat info;
    const char *search = strchr(compiler, '/') != NULL ? "" : "/usr/local/bin:/usr/bin:/bin";
    for (const char *p = search;;) {
        size_t length = strcspn(p, ":");
        snprintf(path, sizeof path, "%.*s%s%s", (int)length, p, length > 0 ? "/" : "", compiler);
        if (stat(path, &info) == 0) {
            snprintf(out, 300, "%.200s of %lld bytes, changed at %lld", path,
                     (long long)info.st_size, (long long)info.st_mtime);
            return;
        }
        if (p[length] == '\0') {
            snprintf(out, 300, "%.250s", compiler);
            return;
        }
        p += length + 1;
    }
}

/* What tells entries of one policy apart is in their text; the hash is over all of it. */
static void set_part(struct cache_key *k, enum cache_part part, uint64_t hash)
{
    k->hashes[part] = hash;
    k->hash = hash_u64(hash, k->hash);
    for (char *c = k->texts[part]; *c != '\0'; c++) {
        *c = *c >= ' ' ? *c : ' '; /* one line each */
    }
}

void cache_key_of(const struct cc_options *o, const char *const *units, const size_t *sizes,
                  uint32_t n, struct cache_key *out)
{
    uint64_t source = n;
    size_t bytes = 0;
    *out = (struct cache_key){.hash = 1};
    for (uint32_t i = 0; i < n; i++) {
        source = hash_bytes(units[i], sizes[i], source);
        bytes += sizes[i];
    }
    char(*t)[300] = out->texts;
    snprintf(t[CACHE_SOURCE], sizeof *t, "%" PRIu32 " units of %zu bytes, hash %016" PRIx64, n,
             bytes, source);
    snprintf(t[CACHE_FLAGS], sizeof *t, "%.200s -march=%.30s %.30s", cc_flags(),
             o->march != NULL ? o->march : "native", o->optimise != NULL ? o->optimise : "-O2");
    compiler_text(o->compiler != NULL ? o->compiler : "cc", t[CACHE_COMPILER]);
    uint64_t processor = processor_hash(t[CACHE_ARCH]);
    snprintf(t[CACHE_POLICY], sizeof *t, "%.200s", o->policy != NULL ? o->policy : "none");
    snprintf(t[CACHE_VERSION], sizeof *t, "%s", ATOLL_VERSION_TEXT);
    set_part(out, CACHE_SOURCE, source);
    set_part(out, CACHE_FLAGS, hash_text(t[CACHE_FLAGS], 0));
    set_part(out, CACHE_COMPILER, hash_text(t[CACHE_COMPILER], 0));
    set_part(out, CACHE_ARCH, processor);
    set_part(out, CACHE_POLICY, hash_text(t[CACHE_POLICY], 0));
    set_part(out, CACHE_VERSION, hash_text(t[CACHE_VERSION], 0));
    snprintf(out->model, sizeof out->model, "%.100s", o->model != NULL ? o->model : "");
}

void cache_key_of_image(const struct nvrtc *nvrtc, const char *arch, const char *source,
                        const char *policy, const char *model, struct cache_key *out)
{
    int major = 0, minor = 0;
    nvrtc_version(nvrtc, &major, &minor);
    *out = (struct cache_key){.hash = 2};
    char(*t)[300] = out->texts;
    uint64_t source_hash = hash_text(source, 0);
    snprintf(t[CACHE_SOURCE], sizeof *t, "CUDA C of %zu bytes, hash %016" PRIx64, strlen(source),
             source_hash);
    nvrtc_flags_text(nvrtc, t[CACHE_FLAGS], sizeof *t);
    snprintf(t[CACHE_COMPILER], sizeof *t, "NVRTC %d.%d", major, minor);
    snprintf(t[CACHE_ARCH], sizeof *t, "%.100s", arch);
    snprintf(t[CACHE_POLICY], sizeof *t, "%.200s", policy);
    snprintf(t[CACHE_VERSION], sizeof *t, "%s", ATOLL_VERSION_TEXT);
    set_part(out, CACHE_SOURCE, source_hash);
    for (uint32_t i = CACHE_FLAGS; i < N_CACHE_PARTS; i++) {
        set_part(out, (enum cache_part)i, hash_text(t[i], 0));
    }
    snprintf(out->model, sizeof out->model, "%.110s", model);
}

/* ---- beside the entry ---- */

/* "model NAME", then for each part "NAME HASH TEXT", a line each. */
void cache_key_store(const char *directory, const struct cache_key *key)
{
    char path[4096], text[N_CACHE_PARTS * 400 + 200];
    size_t at = (size_t)snprintf(text, sizeof text, "model %s\n", key->model);
    for (uint32_t i = 0; i < N_CACHE_PARTS; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %016" PRIx64 " %s\n",
                               cache_part_names[i], key->hashes[i], key->texts[i]);
    }
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".about", directory, key->hash);
    struct file_part part = {text, at};
    (void)file_write(path, &part, 1, NULL);
}

/* false: no such text, or none of ours. */
static bool read_about(const char *path, struct cache_key *out)
{
    char line[512];
    struct stat info;
    FILE *f = fopen(path, "r");
    *out = (struct cache_key){0};
    bool ok = f != NULL && fstat(fileno(f), &info) == 0 && info.st_uid == geteuid() &&
              fgets(line, sizeof line, f) != NULL && strncmp(line, "model ", 6) == 0;
    if (ok) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(out->model, sizeof out->model, "%.100s", line + 6);
    }
    for (uint32_t i = 0; ok && i < N_CACHE_PARTS; i++) {
        size_t n = strlen(cache_part_names[i]);
        char *end = NULL;
        ok = fgets(line, sizeof line, f) != NULL && strncmp(line, cache_part_names[i], n) == 0;
        out->hashes[i] = ok ? strtoull(line + n, &end, 16) : 0;
        ok = ok && *end == ' ';
        if (ok) {
            end[strcspn(end, "\n")] = '\0';
            snprintf(out->texts[i], sizeof out->texts[i], "%.290s", end + 1);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

static uint32_t differences(const struct cache_key *a, const struct cache_key *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_CACHE_PARTS; i++) {
        n += a->hashes[i] != b->hashes[i];
    }
    return n;
}

typedef void about_fn(void *context, int64_t changed, const struct cache_key *about);

static void each_about(const char *directory, about_fn *look, void *context)
{
    DIR *d = opendir(directory);
    uint32_t n = 0;
    for (struct dirent *f; d != NULL && n < MAX_LISTED && (f = readdir(d)) != NULL;) {
        size_t length = strlen(f->d_name);
        char path[4096];
        struct stat info;
        struct cache_key about;
        if (length != 22 || strcmp(f->d_name + 16, ".about") != 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
        n++;
        if (stat(path, &info) == 0 && read_about(path, &about)) {
            about.hash = strtoull(f->d_name, NULL, 16);
            look(context, (int64_t)info.st_mtime, &about);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* ---- why there is none ---- */

struct nearest {
    const struct cache_key *key;
    struct cache_key found;
    uint32_t n_of_model, n_differing;
    int64_t changed;
};

static void look_nearest(void *context, int64_t changed, const struct cache_key *about)
{
    struct nearest *n = context;
    if (strcmp(about->model, n->key->model) != 0) {
        return;
    }
    uint32_t differing = differences(about, n->key);
    if (n->n_of_model++ == 0 || differing < n->n_differing ||
        (differing == n->n_differing && changed > n->changed)) {
        n->found = *about;
        n->n_differing = differing;
        n->changed = changed;
    }
}

void cache_explain(const char *directory, const struct cache_key *key, struct text *out)
{
    struct nearest n = {.key = key};
    each_about(directory, look_nearest, &n);
    if (n.n_of_model == 0) {
        text_add(out, "no kernels of @%s in the cache yet", key->model);
        return;
    }
    if (n.n_differing == 0) {
        text_add(out, "the entry of the same key is gone or not sound: compiled again");
        return;
    }
    text_add(out, "nearest of %" PRIu32 " entries of @%s, %016" PRIx64 ", differs in", n.n_of_model,
             key->model, n.found.hash);
    const char *separator = " ";
    for (uint32_t i = N_CACHE_PARTS; i > 0; i--) { /* the source last: it follows the others */
        if (n.found.hashes[i - 1] != key->hashes[i - 1]) {
            text_add(out, "%s%s: %s -> %s", separator, cache_part_names[i - 1],
                     n.found.texts[i - 1], key->texts[i - 1]);
            separator = "; ";
        }
    }
}
