/* The section file under plans and cache entries (layout in container.h). A plan holds native code,
 * so nothing of it is believed before its checksum is right, and no offset is followed before it is
 * checked against the file's size. Invariant: a file that opens is byte for byte one that
 * container_write made. */
#include "runtime/container.h"

#include <stdio.h>
#include <string.h>

#include "runtime/file.h"

/* Like PNG's: a high bit, a name, and both line ends, so that text-mode copies break it visibly. */
static const uint8_t magic[8] = {0x89, 'A', 'T', 'L', '\r', '\n', 0x1a, '\n'};
enum { AT_FORMAT = 8, AT_COUNT = 12, AT_SIZE = 16, AT_PRODUCT = 24, AT_KIND = 56, TEXT_BYTES = 32 };
enum { AT_OFFSET = 40, AT_LENGTH = 48, AT_CHECKSUM = 56, ALIGN = 64 };

static size_t header_size(uint32_t n)
{
    return CONTAINER_FIXED + (size_t)n * CONTAINER_ENTRY + 8;
}

static size_t align_up(size_t at)
{
    return (at + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- writing ---- */

struct writer {
    const char *path, *kind;
    const struct section *sections;
    uint32_t n;
    struct arena scratch;
    struct error *e;
};

static status check_sections(const struct writer *w)
{
    if (strlen(w->kind) >= TEXT_BYTES || w->n > CONTAINER_MAX_SECTIONS) {
        return fail(w->e, ATOLL_USAGE, "%s: kind %s or %u sections: too long or too many", w->path,
                    quote(w->kind, strlen(w->kind)).text, w->n);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        const char *name = w->sections[i].name;
        size_t length = strlen(name);
        if (length == 0 || length >= CONTAINER_NAME) {
            return fail(w->e, ATOLL_USAGE, "%s: found section name %s, expected 1 to %d bytes",
                        w->path, quote(name, length).text, CONTAINER_NAME - 1);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(w->sections[k].name, name) == 0) {
                return fail(w->e, ATOLL_USAGE, "%s: found two sections called %s", w->path,
                            quote(name, length).text);
            }
        }
    }
    return ATOLL_OK;
}

static status write_body(void *context)
{
    static const uint8_t zeros[ALIGN];
    struct writer *w = context;
    TRY(check_sections(w));
    size_t head = header_size(w->n), at = head;
    uint8_t *header = arena_alloc(&w->scratch, head);
    struct file_part *parts = ARENA_ARRAY(&w->scratch, struct file_part, 1 + 2 * (size_t)w->n);
    memcpy(header, magic, sizeof magic);
    write_u32(header + AT_FORMAT, CONTAINER_FORMAT);
    write_u32(header + AT_COUNT, w->n);
    memcpy(header + AT_PRODUCT, ATOLL_VERSION_TEXT, sizeof ATOLL_VERSION_TEXT);
    memcpy(header + AT_KIND, w->kind, strlen(w->kind));
    parts[0] = (struct file_part){header, head};
    for (uint32_t i = 0; i < w->n; i++) {
        const struct section *s = &w->sections[i];
        uint8_t *entry = header + CONTAINER_FIXED + (size_t)i * CONTAINER_ENTRY;
        size_t offset = align_up(at);
        memcpy(entry, s->name, strlen(s->name));
        write_u64(entry + AT_OFFSET, offset);
        write_u64(entry + AT_LENGTH, s->size);
        write_u64(entry + AT_CHECKSUM, hash_bytes(s->data, s->size, 0));
        parts[1 + 2 * i] = (struct file_part){zeros, offset - at};
        parts[2 + 2 * i] = (struct file_part){s->data, s->size};
        at = offset + s->size;
    }
    write_u64(header + AT_SIZE, at);
    write_u64(header + head - 8, hash_bytes(header, head - 8, 0));
    return file_write(w->path, parts, 1 + 2 * (size_t)w->n, w->e);
}

_Static_assert(sizeof ATOLL_VERSION_TEXT <= TEXT_BYTES, "the version text fits its field");

status container_write(const char *path, const char *kind, const struct section *sections,
                       uint32_t n, struct error *e)
{
    struct writer w = {.path = path, .kind = kind, .sections = sections, .n = n, .e = e};
    status s = run_recoverable(write_body, &w, e);
    arena_free(&w.scratch);
    return s;
}

/* ---- reading ---- */

struct reader {
    const char *name, *kind;
    const uint8_t *bytes; /* NULL: read the file called name, into the container's arena */
    size_t size;
    struct container *out;
    struct error *e;
};

static const char damaged[] = "the file is damaged; make it again";

static status check_start(const struct reader *r)
{
    const uint8_t *b = r->bytes;
    if (r->size < sizeof magic || memcmp(b, magic, sizeof magic) != 0) {
        return fail(r->e, ATOLL_FORMAT,
                    "%s: found %s at its start, expected a file written by Atoll", r->name,
                    quote(b, r->size < 8 ? r->size : 8).text);
    }
    if (r->size < CONTAINER_FIXED + 8) {
        return fail(r->e, ATOLL_FORMAT,
                    "%s: truncated: found %zu bytes, expected at least %d; copy it "
                    "again",
                    r->name, r->size, CONTAINER_FIXED + 8);
    }
    uint32_t format = read_u32(b + AT_FORMAT);
    if (format != CONTAINER_FORMAT) {
        size_t length = 0;
        while (length < TEXT_BYTES && b[AT_PRODUCT + length] != '\0') {
            length++;
        }
        return fail(
            r->e, ATOLL_VERSION,
            "%s: found format %u written by Atoll %s, expected format %d (this is Atoll %s); "
            "make it again with this version",
            r->name, format, quote(b + AT_PRODUCT, length).text, CONTAINER_FORMAT,
            ATOLL_VERSION_TEXT);
    }
    return ATOLL_OK;
}

static status check_header(const struct reader *r, uint32_t *n)
{
    const uint8_t *b = r->bytes;
    TRY(check_start(r));
    *n = read_u32(b + AT_COUNT);
    if (*n > CONTAINER_MAX_SECTIONS) {
        return fail(r->e, ATOLL_CHECKSUM, "%s: found %u sections, expected at most %d; %s", r->name,
                    *n, CONTAINER_MAX_SECTIONS, damaged);
    }
    size_t head = header_size(*n);
    if (head > r->size) {
        return fail(r->e, ATOLL_FORMAT,
                    "%s: truncated: found %zu bytes, expected a header of %zu; copy it "
                    "again",
                    r->name, r->size, head);
    }
    uint64_t stored = read_u64(b + head - 8), computed = hash_bytes(b, head - 8, 0);
    if (stored != computed) {
        return fail(r->e, ATOLL_CHECKSUM,
                    "%s: header: found checksum %016llx, expected %016llx; %s", r->name,
                    (unsigned long long)computed, (unsigned long long)stored, damaged);
    }
    uint64_t size = read_u64(b + AT_SIZE);
    if (size != r->size) {
        return fail(r->e, ATOLL_FORMAT, "%s: %s: found %zu bytes, expected %llu; copy it again",
                    r->name, size > r->size ? "truncated" : "too long", r->size,
                    (unsigned long long)size);
    }
    return ATOLL_OK;
}

/* The checksum was right, so a bad entry comes from a hostile writer, not from an accident. */
static status check_entry(const struct reader *r, const uint8_t *entry, uint32_t i, size_t at)
{
    uint64_t offset = read_u64(entry + AT_OFFSET), length = read_u64(entry + AT_LENGTH);
    if (entry[0] == '\0' || memchr(entry, '\0', CONTAINER_NAME) == NULL || offset != align_up(at) ||
        offset > r->size || length > r->size - offset) {
        return fail(r->e, ATOLL_FORMAT,
                    "%s: section %u: found offset %llu and size %llu in %zu bytes; %s", r->name, i,
                    (unsigned long long)offset, (unsigned long long)length, r->size, damaged);
    }
    const char *name = (const char *)entry;
    uint64_t stored = read_u64(entry + AT_CHECKSUM);
    uint64_t computed = hash_bytes(r->bytes + offset, (size_t)length, 0);
    if (stored != computed) {
        return fail(r->e, ATOLL_CHECKSUM,
                    "%s: section %s: found checksum %016llx, expected %016llx; %s", r->name,
                    quote(name, strlen(name)).text, (unsigned long long)computed,
                    (unsigned long long)stored, damaged);
    }
    for (size_t k = at; k < offset; k++) {
        if (r->bytes[k] != 0) {
            return fail(r->e, ATOLL_CHECKSUM, "%s: found byte 0x%02x as padding, expected 0; %s",
                        r->name, r->bytes[k], damaged);
        }
    }
    return ATOLL_OK;
}

static status read_body(void *context)
{
    struct reader *r = context;
    struct container *c = r->out;
    if (r->bytes == NULL) {
        uint8_t *bytes;
        TRY(file_read(&c->arena, r->name, &bytes, &r->size, r->e));
        r->bytes = bytes;
    } else {
        r->bytes =
            arena_copy(&c->arena, r->bytes, r->size); /* aligned, and outlives the caller's */
    }
    uint32_t n = 0;
    TRY(check_header(r, &n));
    c->product = arena_text(&c->arena, "%.*s", TEXT_BYTES, (const char *)r->bytes + AT_PRODUCT);
    c->kind = arena_text(&c->arena, "%.*s", TEXT_BYTES, (const char *)r->bytes + AT_KIND);
    if (r->kind != NULL && strcmp(r->kind, c->kind) != 0) {
        return fail(r->e, ATOLL_FORMAT, "%s: found a file of kind %s, expected %s", r->name,
                    quote(c->kind, strlen(c->kind)).text, quote(r->kind, strlen(r->kind)).text);
    }
    c->sections = ARENA_ARRAY(&c->arena, struct section, n);
    size_t at = header_size(n);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *entry = r->bytes + CONTAINER_FIXED + (size_t)i * CONTAINER_ENTRY;
        TRY(check_entry(r, entry, i, at));
        const char *name = arena_copy_text(&c->arena, (const char *)entry);
        if (container_find(c, name) != NULL) {
            return fail(r->e, ATOLL_FORMAT, "%s: found two sections called %s; %s", r->name,
                        quote(name, strlen(name)).text, damaged);
        }
        size_t offset = (size_t)read_u64(entry + AT_OFFSET);
        c->sections[i] =
            (struct section){name, r->bytes + offset, (size_t)read_u64(entry + AT_LENGTH)};
        c->n_sections++;
        at = offset + c->sections[i].size;
    }
    if (at != r->size) {
        return fail(r->e, ATOLL_FORMAT, "%s: found %zu bytes after the last section; %s", r->name,
                    r->size - at, damaged);
    }
    return ATOLL_OK;
}

static status finish(struct reader *r)
{
    *r->out = (struct container){0};
    status s = run_recoverable(read_body, r, r->e);
    if (s != ATOLL_OK) {
        container_close(r->out);
    }
    return s;
}

status container_open(const char *path, const char *kind, struct container *out, struct error *e)
{
    struct reader r = {.name = path, .kind = kind, .out = out, .e = e};
    return finish(&r);
}

status container_read_bytes(const void *bytes, size_t size, const char *name, const char *kind,
                            struct container *out, struct error *e)
{
    struct reader r = {.name = name,
                       .kind = kind,
                       .bytes = bytes != NULL ? bytes : (const void *)"",
                       .size = bytes != NULL ? size : 0,
                       .out = out,
                       .e = e};
    return finish(&r);
}

void container_close(struct container *c)
{
    if (c != NULL) {
        arena_free(&c->arena);
        *c = (struct container){0};
    }
}

const struct section *container_find(const struct container *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_sections; i++) {
        if (strcmp(c->sections[i].name, name) == 0) {
            return &c->sections[i];
        }
    }
    return NULL;
}
