/* NPY files (versions 1 to 3) and NPZ archives of them. The header is a Python literal; this reads
 * the one shape of it that numpy writes, bounds-checked, and refuses with a reason what Atoll has
 * no use for: Fortran order, big endian, objects, structured types. Invariant: a size is believed
 * only when the file holds that many bytes. */
#include "runtime/data_formats.h"
#include "runtime/file.h"

#include <string.h>
#include <zlib.h>

struct header {
    const char *at, *end; /* the literal; at is where parsing stands */
    enum dtype dtype;
    uint32_t rank;
    int64_t shape[ARRAY_MAX_RANK];
    bool has_descr, has_order, has_shape;
};

static const struct {
    const char *descr;
    enum dtype dtype;
} descriptions[] = {
    {"|b1", BOOL}, {"|u1", U8},  {"<i4", I32}, {"<i8", I64},
    {"<f2", F16},  {"<f4", F32}, {"<f8", F64}, {"?", BOOL},
};

static status fail_header(struct source *s, const char *name, const struct header *h,
                          const char *expected)
{
    return fail(s->e, ATOLL_FORMAT, "%s: NPY header: found %s, expected %s", name,
                quote(h->at, (size_t)(h->end - h->at)).text, expected);
}

static void skip_space(struct header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) {
        h->at++;
    }
}

static bool take(struct header *h, const char *word)
{
    size_t n = strlen(word);
    skip_space(h);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n) != 0) {
        return false;
    }
    h->at += n;
    return true;
}

/* A quoted string without escapes. */
static bool take_string(struct header *h, const char **text, size_t *length)
{
    skip_space(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"')) {
        return false;
    }
    const char *end = memchr(h->at + 1, *h->at, (size_t)(h->end - h->at) - 1);
    if (end == NULL) {
        return false;
    }
    *text = h->at + 1;
    *length = (size_t)(end - *text);
    h->at = end + 1;
    return true;
}

static status read_descr(struct source *s, const char *name, struct header *h)
{
    const char *text;
    size_t n;
    skip_space(h);
    if (h->at < h->end && *h->at == '[') {
        return fail(
            s->e, ATOLL_UNSUPPORTED,
            "%s: found an NPY array of records, expected one of plain numbers; save each field "
            "by itself",
            name);
    }
    if (!take_string(h, &text, &n)) {
        return fail_header(s, name, h, "a dtype such as '<f4'");
    }
    for (size_t i = 0; i < ARRAY_LEN(descriptions); i++) {
        if (strlen(descriptions[i].descr) == n && memcmp(descriptions[i].descr, text, n) == 0) {
            h->dtype = descriptions[i].dtype;
            h->has_descr = true;
            return ATOLL_OK;
        }
    }
    const char *why = "; convert it with astype";
    if (n > 0 && *text == '>') {
        why = "; it is big endian: convert it with astype";
    } else if (memchr(text, 'O', n) != NULL) {
        why = "; it holds Python objects: convert it to numbers";
    }
    return fail(s->e, ATOLL_DTYPE,
                "%s: found NPY dtype %s, expected |b1, |u1, <i4, <i8, <f2, <f4 or <f8%s", name,
                quote(text, n).text, why);
}

static status read_shape(struct source *s, const char *name, struct header *h)
{
    if (!take(h, "(")) {
        return fail_header(s, name, h, "a shape such as (3, 4)");
    }
    while (!take(h, ")")) {
        const char *start = h->at;
        while (h->at < h->end && *h->at >= '0' && *h->at <= '9') {
            h->at++;
        }
        size_t length = (size_t)(h->at - start);
        if (h->rank == ARRAY_MAX_RANK) {
            return fail(s->e, ATOLL_UNSUPPORTED, "%s: found an NPY array of more than %d dims",
                        name, ARRAY_MAX_RANK);
        }
        if (!integer_parse(start, length, &h->shape[h->rank])) {
            h->at = start;
            return fail_header(s, name, h, "a dim");
        }
        h->rank++;
        if (!take(h, ",") && (h->at == h->end || *h->at != ')')) {
            return fail_header(s, name, h, "a comma or ) in the shape");
        }
    }
    h->has_shape = true;
    return ATOLL_OK;
}

static status read_entry(struct source *s, const char *name, struct header *h)
{
    const char *key;
    size_t n;
    if (!take_string(h, &key, &n) || !take(h, ":")) {
        return fail_header(s, name, h, "a key and a colon");
    }
    if (n == 5 && memcmp(key, "descr", n) == 0) {
        return read_descr(s, name, h);
    }
    if (n == 5 && memcmp(key, "shape", n) == 0) {
        h->rank = 0;
        return read_shape(s, name, h);
    }
    if (n == 13 && memcmp(key, "fortran_order", n) == 0) {
        if (take(h, "True")) {
            return fail(s->e, ATOLL_UNSUPPORTED,
                        "%s: found an NPY array in Fortran order, expected C order; save "
                        "numpy.ascontiguousarray of it",
                        name);
        }
        h->has_order = take(h, "False");
        return h->has_order ? ATOLL_OK : fail_header(s, name, h, "True or False");
    }
    return fail(s->e, ATOLL_FORMAT,
                "%s: found NPY header key %s, expected descr, fortran_order or shape", name,
                quote(key, n).text);
}

static status read_header(struct source *s, const char *name, struct header *h)
{
    if (!take(h, "{")) {
        return fail_header(s, name, h, "{");
    }
    while (!take(h, "}")) {
        TRY(read_entry(s, name, h));
        if (!take(h, ",") && (h->at == h->end || *h->at != '}')) {
            return fail_header(s, name, h, "a comma or }");
        }
    }
    skip_space(h);
    if (h->at != h->end) {
        return fail_header(s, name, h, "nothing after }");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape) {
        return fail(s->e, ATOLL_FORMAT, "%s: NPY header: found no %s", name,
                    !h->has_descr   ? "descr"
                    : !h->has_order ? "fortran_order"
                                    : "shape");
    }
    return ATOLL_OK;
}

static status load_image(struct source *s, const char *name, const char *array,
                         const uint8_t *bytes, size_t size)
{
    if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        return fail(s->e, ATOLL_FORMAT, "%s: found %s at its start, expected the NPY magic", name,
                    quote(bytes, size < 6 ? size : 6).text);
    }
    if (bytes[6] < 1 || bytes[6] > 3) {
        return fail(s->e, ATOLL_VERSION, "%s: found NPY version %u.%u, expected 1, 2 or 3", name,
                    bytes[6], bytes[7]);
    }
    size_t start = bytes[6] == 1 ? 10 : 12;
    size_t length = 0;
    if (size >= start) {
        length = bytes[6] == 1 ? bytes[8] | (size_t)bytes[9] << 8 : read_u32(bytes + 8);
    }
    if (size < start || length > size - start) {
        return fail(s->e, ATOLL_FORMAT,
                    "%s: truncated: found %zu bytes, expected an NPY header of %zu", name, size,
                    start + length);
    }
    struct header h = {.at = (const char *)bytes + start,
                       .end = (const char *)bytes + start + length};
    TRY(read_header(s, name, &h));
    size_t elements, expected, found = size - start - length;
    if (!array_measure(h.dtype, h.rank, h.shape, &elements, &expected)) {
        return fail(s->e, ATOLL_FORMAT, "%s: the NPY shape holds more elements than fit in memory",
                    name);
    }
    if (found != expected) {
        return fail(s->e, ATOLL_FORMAT,
                    "%s: %s: found %zu bytes of data, expected %zu for %zu elements of %s", name,
                    found < expected ? "truncated" : "too long", found, expected, elements,
                    dtype_info[h.dtype].name);
    }
    struct array *a = source_add(s, array, h.dtype, h.rank, h.shape);
    memcpy(a->data, bytes + start + length, expected);
    return check_booleans(s, a);
}

status load_npy(struct source *s)
{
    return load_image(s, s->name, "x", s->bytes, s->size);
}

/* ---- NPZ: a zip archive of NPY files ---- */

enum { ZIP_END = 22, ZIP_ENTRY = 46, ZIP_LOCAL = 30 };

struct member {
    const char *name; /* without .npy */
    uint32_t method, checksum;
    size_t packed, unpacked, offset;
};

static uint32_t read_u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static status fail_zip(struct source *s, const char *what)
{
    return fail(s->e, ATOLL_FORMAT, "%s: damaged or truncated archive: %s; copy the file again",
                s->name, what);
}

static status load_member(struct source *s, const struct member *m)
{
    const uint8_t *local = s->bytes + m->offset;
    if (s->size < ZIP_LOCAL || m->offset > s->size - ZIP_LOCAL || read_u32(local) != 0x04034b50) {
        return fail_zip(s, "a member does not start where the directory says");
    }
    size_t start = m->offset + ZIP_LOCAL + read_u16(local + 26) + read_u16(local + 28);
    if (start > s->size || m->packed > s->size - start) {
        return fail_zip(s, "a member ends behind the file");
    }
    uint8_t *bytes = NULL;
    size_t size = m->packed;
    const char *label = arena_text(&s->scratch, "%s(%s.npy)", s->name, m->name);
    if (m->method == 8) {
        TRY(inflate_bytes(s, label, true, s->bytes + start, m->packed, &bytes, &size));
    }
    const uint8_t *image = m->method == 8 ? bytes : s->bytes + start;
    if (size != m->unpacked || crc32_z(0, image, size) != m->checksum) {
        return fail(s->e, ATOLL_CHECKSUM,
                    "%s: damaged: size or checksum differs; copy the file again", label);
    }
    return load_image(s, label, m->name, image, size);
}

static status read_member(struct source *s, size_t *at, size_t end)
{
    const uint8_t *entry = s->bytes + *at;
    if (end < ZIP_ENTRY || *at > end - ZIP_ENTRY || read_u32(entry) != 0x02014b50) {
        return fail_zip(s, "the directory is broken");
    }
    size_t length = read_u16(entry + 28);
    struct member m = {.method = read_u16(entry + 10),
                       .checksum = read_u32(entry + 16),
                       .packed = read_u32(entry + 20),
                       .unpacked = read_u32(entry + 24),
                       .offset = read_u32(entry + 42)};
    *at += ZIP_ENTRY;
    const char *name = (const char *)s->bytes + *at;
    size_t all = length + read_u16(entry + 30) + read_u16(entry + 32);
    if (all > end - *at) {
        return fail_zip(s, "the directory is broken");
    }
    *at += all;
    if (m.packed == UINT32_MAX || m.unpacked == UINT32_MAX || m.offset == UINT32_MAX) {
        return fail(s->e, ATOLL_UNSUPPORTED,
                    "%s: found members of 4 GiB or more; save as safetensors instead", s->name);
    }
    if (length < 5 || memcmp(name + length - 4, ".npy", 4) != 0 ||
        memchr(name, 0, length) != NULL || (m.method != 0 && m.method != 8)) {
        return fail(
            s->e, ATOLL_UNSUPPORTED,
            "%s: found member %s packed by method %u, expected NAME.npy, stored or deflated",
            s->name, quote(name, length).text, m.method);
    }
    char *plain = arena_copy(&s->scratch, name, length);
    plain[length - 4] = '\0';
    m.name = plain;
    if (dataset_find(s->out, plain) != NULL) {
        return fail(s->e, ATOLL_FORMAT, "%s: found two arrays called %s", s->name,
                    quote(plain, length - 4).text);
    }
    return load_member(s, &m);
}

status load_npz(struct source *s)
{
    size_t at = s->size;
    const uint8_t *tail = NULL; /* the end record, before a comment of at most 65,535 bytes */
    for (size_t back = ZIP_END; back <= s->size && back <= ZIP_END + 65535 && tail == NULL;
         back++) {
        if (read_u32(s->bytes + s->size - back) == 0x06054b50) {
            tail = s->bytes + s->size - back;
        }
    }
    if (tail == NULL) {
        return fail_zip(s, "it has no end record");
    }
    size_t end = (size_t)(tail - s->bytes);
    at = read_u32(tail + 16);
    if (at > end) {
        return fail_zip(s, "the directory starts behind its end");
    }
    for (uint32_t left = read_u16(tail + 10); left > 0; left--) {
        TRY(read_member(s, &at, end));
    }
    return ATOLL_OK;
}
