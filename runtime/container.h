/* Sections in a checksummed, versioned file: what .plan files and cache entries are made of.
 *
 * All integers little endian. 88 bytes: magic (8), format version u32, sections u32, file size u64,
 * product version text, NUL-padded (32), name of the container's kind, NUL-padded (32). Then per
 * section 64 bytes: name, NUL-padded (40), offset u64, size u64, XXH3-64 u64. Then XXH3-64 of
 * everything before, u64. Each section starts at a multiple of 64; what lies between is zero. No
 * byte can change unnoticed. */
#ifndef ATOLL_RUNTIME_CONTAINER_H
#define ATOLL_RUNTIME_CONTAINER_H

#include "ir/base.h"

enum {
    CONTAINER_FORMAT = 2,
    CONTAINER_FIXED = 88,
    CONTAINER_ENTRY = 64,
    CONTAINER_NAME = 40, /* bytes of a name with its NUL */
    CONTAINER_MAX_SECTIONS = 4096
};

struct section {
    const char *name; /* unique, 1 to 39 bytes */
    const void *data; /* 64-byte aligned when opened */
    size_t size;
};

struct container {
    struct arena arena;
    const char *kind;
    const char *product; /* version text of the Atoll that wrote it */
    struct section *sections;
    uint32_t n_sections;
};

/* Atomic (temporary name, fsync, rename) and deterministic. kind says what the sections are
 * ("plan", "kernels"), at most 31 bytes. Statuses: USAGE, IO, NOT_FOUND (directory), OUT_OF_MEMORY.
 */
status container_write(const char *path, const char *kind, const struct section *sections,
                       uint32_t n, struct error *e);

/* Opens and checks the whole file. kind NULL accepts any. FORMAT: not such a file, truncated or of
 * another kind; VERSION: another format version; CHECKSUM: damaged. On failure out holds nothing.
 */
status container_open(const char *path, const char *kind, struct container *out, struct error *e);
status container_read_bytes(const void *bytes, size_t size, const char *name, const char *kind,
                            struct container *out, struct error *e);
void container_close(struct container *c);

/* NULL when there is none. */
const struct section *container_find(const struct container *c, const char *name);

#endif
