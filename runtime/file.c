/* Files in and out for the loaders, checkpoints, plans and the cache. Reading sizes the file first,
 * allocates, and only then opens it; writing goes through a temporary name, fsync and rename, so a
 * crash leaves either the old file or the new one. */
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static status fail_errno(struct error *e, const char *doing, const char *path)
{
    int number = errno;
    char reason[128];
    if (strerror_r(number, reason, sizeof reason) != 0) {
        snprintf(reason, sizeof reason, "error %d", number);
    }
    return fail(e, number == ENOENT ? ATOLL_NOT_FOUND : ATOLL_IO, "%s: %s: %s", path, doing,
                reason);
}

/* 0 and *done < size when the file ends early. */
static int read_all(int fd, uint8_t *at, size_t size, size_t *done)
{
    *done = 0;
    while (*done < size) {
        ssize_t got = read(fd, at + *done, size - *done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            return 0;
        }
        *done += (size_t)got;
    }
    return 0;
}

status file_read(struct arena *a, const char *path, uint8_t **bytes, size_t *size, struct error *e)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return fail_errno(e, "cannot be read", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return fail(e, ATOLL_FORMAT, "%s: found %s, expected a regular file", path,
                    S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    }
    size_t expected = (size_t)info.st_size;
    uint8_t *buffer = arena_alloc(a, expected + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno(e, "cannot be read", path);
    }
    size_t done = 0;
    int failed = read_all(fd, buffer, expected, &done);
    status s = failed ? fail_errno(e, "reading failed", path) : ATOLL_OK;
    close(fd);
    if (s == ATOLL_OK && done != expected) {
        s = fail(e, ATOLL_IO, "%s: shrank from %zu to %zu bytes while it was read", path, expected,
                 done);
    }
    *bytes = buffer;
    *size = done;
    return s;
}

static int write_all(int fd, const uint8_t *at, size_t size)
{
    while (size > 0) {
        ssize_t put = write(fd, at, size < 1u << 30 ? size : 1u << 30);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -1;
        }
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

static int write_parts(int fd, const struct file_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (write_all(fd, parts[i].data, parts[i].size) != 0) {
            return -1;
        }
    }
    return fsync(fd);
}

/* Not mkstemp: the file shall have the mode that the umask gives, not 0600. */
static int open_temporary(const char *path, char *name)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int length = snprintf(name, PATH_BYTES, "%s.%ld.%09ld%d.tmp", path, (long)getpid(),
                              now.tv_nsec, attempt);
        if (length < 0 || length >= PATH_BYTES) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            (void)flock(fd, LOCK_EX | LOCK_NB); /* who finds it unlocked knows its writer gone */
        }
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

/* The rename itself must reach the disk; file systems that cannot sync a directory say EINVAL. */
static void sync_directory(const char *path)
{
    char name[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    if (length >= sizeof name) {
        return;
    }
    memcpy(name, path, length);
    name[length] = '\0';
    int fd = open(length == 0 ? "." : name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

status file_write(const char *path, const struct file_part *parts, size_t n, struct error *e)
{
    char name[PATH_BYTES];
    int fd = open_temporary(path, name);
    if (fd < 0) {
        return fail_errno(e, "cannot be written", path);
    }
    status s = ATOLL_OK;
    if (write_parts(fd, parts, n) != 0) {
        s = fail_errno(e, "writing failed, the old file is kept", path);
    }
    if (close(fd) != 0 && s == ATOLL_OK) {
        s = fail_errno(e, "writing failed, the old file is kept", path);
    }
    if (s == ATOLL_OK && rename(name, path) != 0) {
        s = fail_errno(e, "cannot be replaced", path);
    }
    if (s != ATOLL_OK) {
        unlink(name);
        return s;
    }
    sync_directory(path);
    return ATOLL_OK;
}

status file_probe(const char *path, struct error *e)
{
    char name[PATH_BYTES];
    struct stat info;
    if (path[0] == '\0' || (stat(path, &info) == 0 && S_ISDIR(info.st_mode))) {
        return fail(e, ATOLL_USAGE, "'%s': found %s, expected the name of a file to write", path,
                    path[0] == '\0' ? "nothing" : "a directory");
    }
    int fd = open_temporary(path, name);
    if (fd < 0) {
        return fail_errno(e, "cannot be written", path);
    }
    close(fd);
    unlink(name);
    return ATOLL_OK;
}

status run_recoverable(status (*body)(void *context), void *context, struct error *e)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory on the host");
    }
    status s = body(context);
    arena_recover_end(&r);
    return s;
}

struct quoted quote(const void *text, size_t length)
{
    enum { SHOWN = 40 };
    struct quoted q;
    const unsigned char *from = text;
    size_t at = 0;
    q.text[at++] = '"';
    for (size_t i = 0; i < length && i < SHOWN; i++) {
        if (from[i] < 0x20 || from[i] >= 0x7f || from[i] == '"' || from[i] == '\\') {
            at += (size_t)snprintf(q.text + at, 5, "\\x%02x", from[i]);
        } else {
            q.text[at++] = (char)from[i];
        }
    }
    snprintf(q.text + at, sizeof q.text - at, "%s\"", length > SHOWN ? "..." : "");
    return q;
}

uint64_t read_u64(const uint8_t *at)
{
    return (uint64_t)read_u32(at) | (uint64_t)read_u32(at + 4) << 32;
}

uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void write_u64(uint8_t *at, uint64_t value)
{
    write_u32(at, (uint32_t)value);
    write_u32(at + 4, (uint32_t)(value >> 32));
}

void write_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}
