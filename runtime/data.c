/* The entries of the data loaders: read the file, find its format, unpack gzip, call the loader,
 * scale the features. Stands at the start of every training run. Invariant: on failure the data set
 * is empty and nothing is left allocated; a JSON tree is the only thing held that is no arena's. */
#include "runtime/data.h"

#define ZLIB_CONST
#include <jansson.h>
#include <string.h>
#include <zlib.h>

#include "runtime/data_formats.h"
#include "runtime/file.h"

void dataset_close(struct dataset *d)
{
    if (d != NULL) {
        arena_free(&d->arena);
        *d = (struct dataset){0};
    }
}

const struct array *dataset_find(const struct dataset *d, const char *name)
{
    for (uint32_t i = 0; i < d->n_arrays; i++) {
        if (strcmp(d->arrays[i].name, name) == 0) {
            return &d->arrays[i];
        }
    }
    return NULL;
}

const char *dataset_metadata(const struct dataset *d, const char *key)
{
    for (uint32_t i = 0; i < d->n_metadata; i++) {
        if (strcmp(d->metadata[2 * i], key) == 0) {
            return d->metadata[2 * i + 1];
        }
    }
    return NULL;
}

bool array_measure(enum dtype dtype, uint32_t rank, const int64_t *shape, size_t *elements,
                   size_t *bytes)
{
    size_t limit = (size_t)INT64_MAX / dtype_info[dtype].bytes, n = 1;
    bool empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] < 0) {
            return false;
        }
        empty = empty || shape[i] == 0;
    }
    for (uint32_t i = 0; i < rank && !empty; i++) {
        if ((size_t)shape[i] > limit / n) {
            return false;
        }
        n *= (size_t)shape[i];
    }
    *elements = empty ? 0 : n;
    *bytes = *elements * dtype_info[dtype].bytes;
    return true;
}

struct array *source_add(struct source *s, const char *name, enum dtype dtype, uint32_t rank,
                         const int64_t *shape)
{
    struct dataset *d = s->out;
    size_t elements, bytes;
    if (!array_measure(dtype, rank, shape, &elements, &bytes)) {
        bytes = SIZE_MAX; /* callers have checked; the arena refuses this */
    }
    d->arrays = arena_grow(&d->arena, d->arrays, d->n_arrays, &s->capacity, sizeof *d->arrays);
    struct array *a = &d->arrays[d->n_arrays];
    *a = (struct array){.dtype = dtype, .rank = rank, .bytes = bytes};
    for (uint32_t i = 0; i < rank; i++) {
        a->shape[i] = shape[i];
    }
    a->name = arena_copy_text(&d->arena, name);
    a->data = arena_alloc(&d->arena, bytes);
    d->n_arrays++;
    return a;
}

status check_booleans(struct source *s, const struct array *a)
{
    const uint8_t *values = a->data;
    for (size_t i = 0; a->dtype == BOOL && i < a->bytes; i++) {
        if (values[i] > 1) {
            return fail(s->e, ATOLL_DATA,
                        "%s: array %s: found byte %u as bool element %zu, expected 0 or 1", s->name,
                        quote(a->name, strlen(a->name)).text, values[i], i);
        }
    }
    return ATOLL_OK;
}

/* ---- unpacking ---- */

/* Runs the whole stream. With to NULL it only counts: the size must be known before the arena is
 * asked, because no zlib state may be held across an arena call. */
static int inflate_run(bool raw, const uint8_t *from, size_t size, uint8_t *to, size_t limit,
                       size_t *out_size)
{
    uint8_t waste[32768];
    z_stream z = {0};
    size_t in = 0, done = 0;
    int code = inflateInit2(&z, raw ? -15 : 15 + 16);
    while (code == Z_OK) {
        size_t room = to == NULL ? sizeof waste : limit - done;
        uInt out_chunk = (uInt)(room < 1u << 30 ? room : 1u << 30);
        uInt in_chunk = (uInt)(size - in < 1u << 30 ? size - in : 1u << 30);
        z.next_in = from + in;
        z.avail_in = in_chunk;
        z.next_out = to == NULL ? waste : to + done;
        z.avail_out = out_chunk;
        code = inflate(&z, Z_NO_FLUSH);
        in += in_chunk - z.avail_in;
        done += out_chunk - z.avail_out;
        if (done > limit) {
            code = Z_MEM_ERROR;
        } else if (code == Z_STREAM_END && !raw && size - in >= 2 && from[in] == 0x1f &&
                   from[in + 1] == 0x8b) {
            code = inflateReset(&z); /* the next member */
        }
    }
    inflateEnd(&z);
    *out_size = done;
    return code;
}

status inflate_bytes(struct source *s, const char *name, bool raw, const uint8_t *from, size_t size,
                     uint8_t **out, size_t *out_size)
{
    size_t limit = s->options.max_bytes != 0 ? s->options.max_bytes : (size_t)16 << 30;
    size_t unpacked = 0, again = 0;
    int code = inflate_run(raw, from, size, NULL, limit, &unpacked);
    if (unpacked > limit) {
        return fail(s->e, ATOLL_DATA, "%s: unpacks to more than %zu bytes, the limit", name, limit);
    }
    if (code == Z_MEM_ERROR) {
        return fail(s->e, ATOLL_OUT_OF_MEMORY, "%s: out of memory while unpacking", name);
    }
    if (code == Z_BUF_ERROR) {
        return fail(s->e, ATOLL_FORMAT,
                    "%s: truncated: the compressed data ends after %zu bytes (%zu unpacked), "
                    "expected an end mark; copy the file again",
                    name, size, unpacked);
    }
    if (code != Z_STREAM_END) {
        return fail(
            s->e, ATOLL_CHECKSUM,
            "%s: damaged: the compressed data is invalid after %zu unpacked bytes; copy the "
            "file again",
            name, unpacked);
    }
    *out = arena_alloc(&s->scratch, unpacked + 1);
    code = inflate_run(raw, from, size, *out, unpacked, &again);
    *out_size = unpacked;
    /* A full buffer may hide the end mark from zlib; the first run has seen it and the checksum. */
    if (again != unpacked || (code != Z_STREAM_END && code != Z_BUF_ERROR)) {
        return fail(s->e, ATOLL_INTERNAL, "%s: unpacked to %zu bytes, then to %zu", name, unpacked,
                    again);
    }
    return ATOLL_OK;
}

/* ---- which format ---- */

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && memcmp(name + n - m, ending, m) == 0;
}

static bool starts_with(const struct source *s, const char *magic, size_t length)
{
    return s->size >= length && memcmp(s->bytes, magic, length) == 0;
}

/* The magic decides; without one, the name does. */
static enum data_format find_format(const struct source *s)
{
    static const struct {
        const char *ending;
        enum data_format format;
    } endings[] = {
        {".csv", DATA_CSV},    {".csv.gz", DATA_CSV},
        {".tsv", DATA_CSV},    {".tsv.gz", DATA_CSV},
        {".txt", DATA_CSV},    {".data", DATA_CSV},
        {".npy", DATA_NPY},    {".npz", DATA_NPZ},
        {".npy.gz", DATA_NPY}, {".safetensors", DATA_SAFETENSORS},
    };
    if (starts_with(s, "\x93NUMPY", 6)) {
        return DATA_NPY;
    }
    if (starts_with(s, "PK\x03\x04", 4)) {
        return DATA_NPZ;
    }
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        if (ends_with(s->name, endings[i].ending)) {
            return endings[i].format;
        }
    }
    return DATA_AUTO;
}

/* ---- loading ---- */

static void scale_features(struct source *s)
{
    float scale = s->options.scale;
    for (uint32_t i = 0; i < s->out->n_arrays && scale != 0.0f && scale != 1.0f; i++) {
        struct array *a = &s->out->arrays[i];
        if (strcmp(a->name, "x") != 0) {
            continue;
        }
        size_t item = dtype_info[a->dtype].bytes, n = a->bytes / item;
        float *scaled = a->dtype == F32 ? a->data : ARENA_ARRAY(&s->out->arena, float, n);
        for (size_t k = 0; k < n; k++) {
            scaled[k] = (float)dtype_load(a->dtype, (char *)a->data + k * item) * scale;
        }
        a->data = scaled;
        a->dtype = F32;
        a->bytes = n * sizeof(float);
    }
}

static status load(void *context)
{
    struct source *s = context;
    if (starts_with(s, "\x1f\x8b", 2)) {
        uint8_t *unpacked;
        TRY(inflate_bytes(s, s->name, false, s->bytes, s->size, &unpacked, &s->size));
        s->bytes = unpacked;
    }
    if (s->format == DATA_AUTO) {
        s->format = find_format(s);
    }
    switch (s->format) {
    case DATA_CSV:
        TRY(load_csv(s));
        break;
    case DATA_NPY:
        TRY(load_npy(s));
        break;
    case DATA_NPZ:
        TRY(load_npz(s));
        break;
    case DATA_SAFETENSORS:
        TRY(load_safetensors(s));
        break;
    case DATA_AUTO:
        return fail(
            s->e, ATOLL_FORMAT,
            "%s: found an unknown kind of file, expected a name ending in .csv, .csv.gz, .npy, "
            ".npz or .safetensors",
            s->name);
    }
    scale_features(s);
    return ATOLL_OK;
}

static status load_path(void *context)
{
    struct source *s = context;
    uint8_t *bytes;
    TRY(file_read(&s->scratch, s->name, &bytes, &s->size, s->e));
    s->bytes = bytes;
    return load(s);
}

static status finish(struct source *s, status (*body)(void *))
{
    *s->out = (struct dataset){0};
    status result = run_recoverable(body, s, s->e);
    json_decref(s->json);
    arena_free(&s->scratch);
    if (result != ATOLL_OK) {
        dataset_close(s->out);
    }
    return result;
}

status dataset_open(const char *path, const struct dataset_options *o, struct dataset *out,
                    struct error *e)
{
    struct source s = {.name = path, .out = out, .e = e};
    if (o != NULL) {
        s.options = *o;
        s.format = o->format;
    }
    return finish(&s, load_path);
}

status dataset_read_bytes(enum data_format format, const void *bytes, size_t size, const char *name,
                          const struct dataset_options *o, struct dataset *out, struct error *e)
{
    struct source s = {
        .name = name, .bytes = bytes, .size = size, .format = format, .out = out, .e = e};
    if (o != NULL) {
        s.options = *o;
    }
    return finish(&s, load);
}
