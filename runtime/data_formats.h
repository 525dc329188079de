/* What the loaders of the single formats share: the source they read and the data set they fill.
 * Internal to runtime/data*.c. */
#ifndef ATOLL_RUNTIME_DATA_FORMATS_H
#define ATOLL_RUNTIME_DATA_FORMATS_H

#include "runtime/data.h"

struct json_t;

/* Lives in the frame of the public entry, outside the recovery point. */
struct source {
    const char *name;
    const uint8_t *bytes;
    size_t size;
    enum data_format format;
    struct dataset_options options;
    struct arena scratch;
    struct dataset *out;
    uint32_t capacity;   /* of out->arrays */
    struct json_t *json; /* the one thing that is no arena's: freed by the entry */
    struct error *e;
};

status load_csv(struct source *s);
status load_npy(struct source *s);
status load_npz(struct source *s);
status load_safetensors(struct source *s);

/* Appends an array whose measure was checked; its data is zeroed. */
struct array *source_add(struct source *s, const char *name, enum dtype dtype, uint32_t rank,
                         const int64_t *shape);

/* Booleans are stored as 0 or 1: anything else would be undefined later on. */
status check_booleans(struct source *s, const struct array *a);

/* Unpacks all gzip members (raw false), or one raw deflate stream, into the scratch arena. */
status inflate_bytes(struct source *s, const char *name, bool raw, const uint8_t *from, size_t size,
                     uint8_t **out, size_t *out_size);

enum number_kind { NUMBER_NONE, NUMBER_FINITE, NUMBER_NONFINITE };

/* Reads a decimal number, whatever the locale; both results are rounded once, to nearest. A number
 * beyond f32 is NONFINITE with *single infinite and *wide still right. */
enum number_kind number_parse(const char *text, size_t length, double *wide, float *single);

/* An integer of at most 18 digits, or a decimal of integral value below 2^53. */
bool integer_parse(const char *text, size_t length, int64_t *value);

#endif
