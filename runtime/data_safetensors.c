/* Safetensors: an 8-byte header length, a JSON header, then the tensors without gaps. Also what
 * checkpoint.c writes. Invariant: every byte of the data section belongs to exactly one tensor, and
 * each tensor's offsets, dtype and shape agree, before anything is copied. */
#include "runtime/data_formats.h"
#include "runtime/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000 }; /* the format's own cap */

struct tensor {
    const char *name; /* lives in the JSON tree */
    enum dtype dtype;
    uint32_t rank, order;
    int64_t shape[ARRAY_MAX_RANK];
    size_t begin, end;
};

static status fail_tensor(struct source *s, const char *name, const char *what)
{
    return fail(s->e, ATOLL_FORMAT, "%s: tensor %s: %s", s->name, quote(name, strlen(name)).text,
                what);
}

static status read_metadata(struct source *s, json_t *object)
{
    struct dataset *d = s->out;
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        return fail(s->e, ATOLL_FORMAT, "%s: found a __metadata__ that is no object", s->name);
    }
    d->metadata = ARENA_ARRAY(&d->arena, const char *, 2 * json_object_size(object));
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value)) {
            return fail(s->e, ATOLL_FORMAT, "%s: found no string as metadata %s", s->name,
                        quote(key, strlen(key)).text);
        }
        d->metadata[2 * d->n_metadata] = arena_copy_text(&d->arena, key);
        d->metadata[2 * d->n_metadata + 1] = arena_copy_text(&d->arena, json_string_value(value));
        d->n_metadata++;
    }
    return ATOLL_OK;
}

static status read_dtype(struct source *s, struct tensor *t, const json_t *value)
{
    const char *text = json_string_value(value);
    for (int i = 1; text != NULL && i < N_DTYPES; i++) {
        if (strcmp(dtype_info[i].safetensors, text) == 0) {
            t->dtype = (enum dtype)i;
            return ATOLL_OK;
        }
    }
    return fail(s->e, ATOLL_DTYPE,
                "%s: tensor %s: found dtype %s, expected BOOL, U8, I32, I64, F16, BF16, F32, F64, "
                "F8_E4M3 or F8_E5M2",
                s->name, quote(t->name, strlen(t->name)).text,
                quote(text != NULL ? text : "", text != NULL ? strlen(text) : 0).text);
}

static status read_tensor(struct source *s, struct tensor *t, json_t *entry, size_t data_size)
{
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_object(entry) || json_object_size(entry) != 3 || !json_is_array(shape) ||
        !json_is_array(offsets) || json_array_size(offsets) != 2) {
        return fail_tensor(s, t->name, "expected exactly dtype, shape and two data_offsets");
    }
    TRY(read_dtype(s, t, json_object_get(entry, "dtype")));
    if (json_array_size(shape) > ARRAY_MAX_RANK) {
        return fail(s->e, ATOLL_UNSUPPORTED, "%s: tensor %s: found %zu dims, expected at most %d",
                    s->name, quote(t->name, strlen(t->name)).text, json_array_size(shape),
                    ARRAY_MAX_RANK);
    }
    for (; t->rank < json_array_size(shape); t->rank++) {
        const json_t *dim = json_array_get(shape, t->rank);
        t->shape[t->rank] = json_is_integer(dim) ? json_integer_value(dim) : -1;
    }
    size_t elements, bytes;
    if (!array_measure(t->dtype, t->rank, t->shape, &elements, &bytes)) {
        return fail_tensor(s, t->name, "a dim is no integer from 0, or the shape is too large");
    }
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    json_int_t from = json_is_integer(begin) ? json_integer_value(begin) : -1;
    json_int_t to = json_is_integer(end) ? json_integer_value(end) : -1;
    if (from < 0 || to < from || (size_t)to > data_size) {
        return fail(
            s->e, ATOLL_FORMAT,
            "%s: tensor %s: found data_offsets %lld to %lld, expected them to rise within the "
            "%zu bytes of data; the file is damaged or truncated",
            s->name, quote(t->name, strlen(t->name)).text, (long long)from, (long long)to,
            data_size);
    }
    t->begin = (size_t)from;
    t->end = (size_t)to;
    if (t->end - t->begin != bytes) {
        return fail(s->e, ATOLL_FORMAT,
                    "%s: tensor %s: found %zu bytes, expected %zu for its shape", s->name,
                    quote(t->name, strlen(t->name)).text, t->end - t->begin, bytes);
    }
    return ATOLL_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) { /* empty tensors stand before the one that starts there */
        return a->end < b->end ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static status check_cover(struct source *s, const struct tensor *tensors, uint32_t n,
                          size_t data_size)
{
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (tensors[i].begin != at) {
            return fail_tensor(s, tensors[i].name,
                               tensors[i].begin < at ? "its bytes overlap the tensor before it"
                                                     : "a gap lies before its bytes");
        }
        at = tensors[i].end;
    }
    if (at != data_size) {
        return fail(s->e, ATOLL_FORMAT, "%s: found %zu bytes of data, expected %zu", s->name,
                    data_size, at);
    }
    return ATOLL_OK;
}

static status read_header(struct source *s, size_t *header)
{
    uint64_t length = s->size >= 8 ? read_u64(s->bytes) : 0;
    if (s->size < 8 || length > MAX_HEADER || length > s->size - 8) {
        return fail(
            s->e, ATOLL_FORMAT,
            "%s: found %zu bytes and a header of %llu, expected a whole safetensors file; it "
            "is truncated or of another kind",
            s->name, s->size, (unsigned long long)length);
    }
    json_error_t why;
    s->json = json_loadb((const char *)s->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (s->json == NULL) {
        if (json_error_code(&why) == json_error_out_of_memory) {
            return fail(s->e, ATOLL_OUT_OF_MEMORY, "%s: out of memory while reading its header",
                        s->name);
        }
        return fail(s->e, ATOLL_FORMAT, "%s: safetensors header, byte %d: %s", s->name,
                    why.position, quote(why.text, strlen(why.text)).text);
    }
    if (!json_is_object(s->json)) {
        return fail(s->e, ATOLL_FORMAT, "%s: found a safetensors header that is no JSON object",
                    s->name);
    }
    *header = 8 + (size_t)length;
    return ATOLL_OK;
}

status load_safetensors(struct source *s)
{
    size_t header = 0;
    TRY(read_header(s, &header));
    struct tensor *tensors = ARENA_ARRAY(&s->scratch, struct tensor, json_object_size(s->json));
    uint32_t n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(s->json, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TRY(read_metadata(s, entry));
            continue;
        }
        tensors[n] = (struct tensor){.name = name, .order = n};
        TRY(read_tensor(s, &tensors[n++], entry, s->size - header));
    }
    qsort(tensors, n, sizeof *tensors, compare_offsets);
    TRY(check_cover(s, tensors, n, s->size - header));
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        struct array *a = source_add(s, t->name, t->dtype, t->rank, t->shape);
        if (a->bytes != 0) {
            memcpy(a->data, s->bytes + header + t->begin, a->bytes);
        }
        TRY(check_booleans(s, a));
    }
    return ATOLL_OK;
}
