/* What keeps the cache's directory small: entries unused for longest go when all of them are over a
 * limit, and what a killed writer left half-written goes. Invariant: only names that the cache
 * itself gives, of files of ours, are ever removed; a temporary file that a writer holds stays. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/cache.h"

enum { HASH_DIGITS = 16, OLD_SECONDS = 10 };

static bool is_hash(const char *name, uint64_t *hash)
{
    char *end = NULL;
    bool ok = strspn(name, "0123456789abcdef") == HASH_DIGITS;
    *hash = ok ? strtoull(name, &end, 16) : 0;
    return ok && *end == '.';
}

static bool is_ours(const char *path, struct stat *info)
{
    return lstat(path, info) == 0 && S_ISREG(info->st_mode) && info->st_uid == geteuid();
}

/* ---- unfinished writes ---- */

/* "HASH.kernels.PID.NUMBER.tmp": the writer's number; 0: no such name. */
static long writer_of(const char *name)
{
    uint64_t hash;
    size_t length = strlen(name);
    if (!is_hash(name, &hash) || length < 5 || strcmp(name + length - 4, ".tmp") != 0) {
        return 0;
    }
    const char *at = strchr(name + HASH_DIGITS + 1, '.');
    char *end = NULL;
    long pid = at != NULL ? strtol(at + 1, &end, 10) : 0;
    return pid > 0 && *end == '.' ? pid : 0;
}

/* A writer holds a lock on its file. The process number alone says nothing in another container,
 * the lock nothing in the moment before it is taken: both, or the lock and some age. */
static bool is_left(const char *path, long writer)
{
    struct stat info;
    if (!is_ours(path, &info)) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    bool is_gone = kill((pid_t)writer, 0) != 0 && errno == ESRCH;
    if (fd >= 0) {
        close(fd);
    }
    return is_free && (is_gone || time(NULL) - info.st_mtime > OLD_SECONDS);
}

uint64_t cache_sweep(const char *directory)
{
    DIR *d = opendir(directory);
    uint64_t bytes = 0;
    for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
        long writer = writer_of(f->d_name);
        char path[4096];
        struct stat info;
        if (writer == 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
        if (is_left(path, writer) && lstat(path, &info) == 0 && unlink(path) == 0) {
            bytes += (uint64_t)info.st_size;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return bytes;
}

/* ---- the limit ---- */

/* The files of one key: compiled code, and the text beside it. */
struct unit {
    uint64_t hash, bytes;
    int64_t seconds; /* of last use */
    long nanoseconds;
};

struct units {
    struct unit *items;
    size_t n, room;
};

static const char *const kinds[] = {"kernels", "cuda", "about"};

static bool add_file(struct units *u, uint64_t hash, const struct stat *info)
{
    if (u->n == u->room) {
        size_t room = u->room * 2 + 256;
        struct unit *more = realloc(u->items, room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        u->items = more;
        u->room = room;
    }
    u->items[u->n++] = (struct unit){.hash = hash,
                                     .bytes = (uint64_t)info->st_size,
                                     .seconds = (int64_t)info->st_mtim.tv_sec,
                                     .nanoseconds = info->st_mtim.tv_nsec};
    return true;
}

static bool list_files(const char *directory, struct units *u)
{
    DIR *d = opendir(directory);
    bool ok = d != NULL;
    for (struct dirent *f; ok && (f = readdir(d)) != NULL;) {
        char path[4096];
        struct stat info;
        uint64_t hash;
        bool is_file = false;
        for (size_t i = 0; is_hash(f->d_name, &hash) && i < ARRAY_LEN(kinds); i++) {
            is_file = is_file || strcmp(f->d_name + HASH_DIGITS + 1, kinds[i]) == 0;
        }
        snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
        if (is_file && is_ours(path, &info)) {
            ok = add_file(u, hash, &info);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return ok;
}

static int by_hash(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static bool is_older(const struct unit *x, const struct unit *y)
{
    return x->seconds != y->seconds ? x->seconds < y->seconds : x->nanoseconds < y->nanoseconds;
}

static int by_age(const void *a, const void *b)
{
    return is_older(b, a) - is_older(a, b);
}

/* Files of one key as one: used when the last of them was. */
static void join(struct units *u)
{
    size_t n = 0;
    qsort(u->items, u->n, sizeof *u->items, by_hash);
    for (size_t i = 0; i < u->n; i++) {
        struct unit *last = n > 0 ? &u->items[n - 1] : NULL;
        if (last == NULL || last->hash != u->items[i].hash) {
            u->items[n++] = u->items[i];
            continue;
        }
        uint64_t bytes = last->bytes + u->items[i].bytes;
        *last = is_older(last, &u->items[i]) ? u->items[i] : *last;
        last->bytes = bytes;
    }
    u->n = n;
}

static void remove_unit(const char *directory, uint64_t hash)
{
    char path[4096];
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        snprintf(path, sizeof path, "%s/%016" PRIx64 ".%s", directory, hash, kinds[i]);
        unlink(path);
    }
}

void cache_shrink(const char *directory, uint64_t limit, uint64_t kept, struct text *told)
{
    struct units u = {0};
    uint64_t total = 0, bytes = 0;
    uint32_t n = 0;
    if (list_files(directory, &u) && u.n > 0) {
        join(&u);
        qsort(u.items, u.n, sizeof *u.items, by_age);
        for (size_t i = 0; i < u.n; i++) {
            total += u.items[i].bytes;
        }
        for (size_t i = 0; i < u.n && total > limit; i++) {
            if (u.items[i].hash != kept) {
                remove_unit(directory, u.items[i].hash);
                total -= u.items[i].bytes;
                bytes += u.items[i].bytes;
                n++;
            }
        }
    }
    free(u.items);
    if (n > 0 && told != NULL) {
        text_add(told,
                 "%" PRIu32 " entries of %" PRIu64 " bytes, unused for longest, removed from the "
                 "cache: it is limited to %" PRIu64 " bytes and has %" PRIu64,
                 n, bytes, limit, total);
    }
}
