/* Whole files in and out, and the recovery wrapper of the public entries of runtime/ that load or
 * store. No function here holds a file open across an arena call. */
#ifndef ATOLL_RUNTIME_FILE_H
#define ATOLL_RUNTIME_FILE_H

#include "ir/base.h"

/* Reads a regular file into the arena, with a NUL after its last byte. */
status file_read(struct arena *a, const char *path, uint8_t **bytes, size_t *size, struct error *e);

struct file_part {
    const void *data;
    size_t size;
};

/* Writes the parts one after the other to a temporary name in the same directory, syncs and
 * renames: a reader sees the old file or the whole new one. On failure the old file is untouched
 * and the temporary file is gone. Allocates nothing. */
status file_write(const char *path, const struct file_part *parts, size_t n, struct error *e);

/* Whether file_write could write there: makes a temporary file beside it and removes it again.
 * USAGE when the path is a directory or empty. */
status file_probe(const char *path, struct error *e);

/* Calls body(context) with a recovery point set; OUT_OF_MEMORY when an arena call left by it. The
 * caller then frees the arenas that context holds. */
status run_recoverable(status (*body)(void *context), void *context, struct error *e);

/* At most 40 bytes of text in double quotes, the rest as "..."; what is not printable as \xNN. */
struct quoted {
    char text[176];
};
struct quoted quote(const void *text, size_t length);

/* Little-endian integers at any alignment. */
uint64_t read_u64(const uint8_t *at);
uint32_t read_u32(const uint8_t *at);
void write_u64(uint8_t *at, uint64_t value);
void write_u32(uint8_t *at, uint32_t value);

#endif
