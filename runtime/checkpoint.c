/* Writes and reads checkpoints. The header is built here, by hand, because its bytes must not
 * depend on a JSON library's taste: same arrays, same file, so that two runs can be compared with
 * cmp. Invariant: what is written reads back; names that would not are refused before the file is
 * touched. */
#include "runtime/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/file.h"

struct writer {
    const char *path;
    const struct array *arrays;
    uint32_t n;
    const char *const *pairs;
    uint32_t n_pairs;
    struct arena scratch;
    struct error *e;
};

/* The length of the UTF-8 sequence at text, 0 when it is none (overlong, surrogate, too large). */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char mask, bits;
        uint32_t smallest;
    } kinds[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t length = 1; length <= 4; length++) {
        if ((text[0] & kinds[length - 1].mask) != kinds[length - 1].bits) {
            continue;
        }
        uint32_t code = text[0] & (0xffu ^ kinds[length - 1].mask);
        for (size_t i = 1; i < length; i++) {
            if ((text[i] & 0xc0) != 0x80) { /* stops at the NUL as well */
                return 0;
            }
            code = code << 6 | (text[i] & 0x3fu);
        }
        bool bad = code < kinds[length - 1].smallest || code > 0x10ffff ||
                   (code >= 0xd800 && code <= 0xdfff);
        return bad ? 0 : length;
    }
    return 0;
}

static status add_string(struct writer *w, struct text *t, const char *string)
{
    text_append(t, "\"", 1);
    for (const char *at = string; *at != '\0';) {
        size_t length = utf8_length((const unsigned char *)at);
        if (length == 0) {
            return fail(w->e, ATOLL_USAGE, "%s: found name or metadata %s, expected UTF-8", w->path,
                        quote(string, strlen(string)).text);
        }
        if (*at == '"' || *at == '\\') {
            text_add(t, "\\%c", *at);
        } else if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            text_add(t, "\\u%04x", (unsigned)*at);
        } else {
            text_append(t, at, length);
        }
        at += length;
    }
    text_append(t, "\"", 1);
    return ATOLL_OK;
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static status check_unique(struct writer *w, const char **names, uint32_t n, const char *what)
{
    qsort(names, n, sizeof *names, compare_texts);
    for (uint32_t i = 1; i < n; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return fail(w->e, ATOLL_USAGE, "%s: found two %s called %s, expected different names",
                        w->path, what, quote(names[i], strlen(names[i])).text);
        }
    }
    return ATOLL_OK;
}

static status check_names(struct writer *w)
{
    const char **names = ARENA_ARRAY(&w->scratch, const char *, w->n);
    const char **keys = ARENA_ARRAY(&w->scratch, const char *, w->n_pairs);
    for (uint32_t i = 0; i < w->n; i++) {
        const struct array *a = &w->arrays[i];
        names[i] = a->name;
        if (a->name == NULL || a->name[0] == '\0' || strcmp(a->name, "__metadata__") == 0) {
            return fail(w->e, ATOLL_USAGE, "%s: array %u has no name that a checkpoint can hold",
                        w->path, i);
        }
        size_t elements, bytes;
        if (a->dtype == DTYPE_NONE || a->rank > ARRAY_MAX_RANK ||
            !array_measure(a->dtype, a->rank, a->shape, &elements, &bytes) || bytes != a->bytes) {
            return fail(w->e, ATOLL_USAGE, "%s: array %s: its %zu bytes do not fit its shape",
                        w->path, quote(a->name, strlen(a->name)).text, a->bytes);
        }
    }
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        keys[i] = w->pairs[2 * i];
    }
    TRY(check_unique(w, names, w->n, "arrays"));
    return check_unique(w, keys, w->n_pairs, "metadata keys");
}

static status add_header(struct writer *w, struct text *t)
{
    size_t at = 0;
    const char *comma = "";
    text_add(t, "{");
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        text_add(t, i == 0 ? "\"__metadata__\":{" : ",");
        TRY(add_string(w, t, w->pairs[2 * i]));
        text_add(t, ":");
        TRY(add_string(w, t, w->pairs[2 * i + 1]));
        if (i + 1 == w->n_pairs) {
            text_add(t, "}");
            comma = ",";
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        const struct array *a = &w->arrays[i];
        text_add(t, "%s", comma);
        comma = ",";
        TRY(add_string(w, t, a->name));
        text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", dtype_info[a->dtype].safetensors);
        for (uint32_t k = 0; k < a->rank; k++) {
            text_add(t, "%s%lld", k == 0 ? "" : ",", (long long)a->shape[k]);
        }
        text_add(t, "],\"data_offsets\":[%zu,%zu]}", at, at + a->bytes);
        at += a->bytes;
    }
    text_add(t, "}");
    while (t->length % 8 != 0) { /* so that the data section is aligned */
        text_append(t, " ", 1);
    }
    return ATOLL_OK;
}

static status write_body(void *context)
{
    struct writer *w = context;
    struct text header = {.arena = &w->scratch};
    TRY(check_names(w));
    TRY(add_header(w, &header));
    uint8_t length[8];
    write_u64(length, header.length);
    size_t n_parts = (size_t)w->n + 2;
    struct file_part *parts = ARENA_ARRAY(&w->scratch, struct file_part, n_parts);
    parts[0] = (struct file_part){length, sizeof length};
    parts[1] = (struct file_part){header.data, header.length};
    for (uint32_t i = 0; i < w->n; i++) {
        parts[2 + i] = (struct file_part){w->arrays[i].data, w->arrays[i].bytes};
    }
    return file_write(w->path, parts, n_parts, w->e);
}

status checkpoint_write(const char *path, const struct array *arrays, uint32_t n,
                        const char *const *metadata_pairs, uint32_t n_pairs, struct error *e)
{
    struct writer w = {.path = path,
                       .arrays = arrays,
                       .n = n,
                       .pairs = metadata_pairs,
                       .n_pairs = n_pairs,
                       .e = e};
    status s = run_recoverable(write_body, &w, e);
    arena_free(&w.scratch);
    return s;
}

status checkpoint_read(const char *path, struct dataset *out, struct error *e)
{
    struct dataset_options o = {.format = DATA_SAFETENSORS};
    return dataset_open(path, &o, out, e);
}
