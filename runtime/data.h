/* Data sets: named arrays on the host, from CSV (also gzipped), NPY, NPZ and safetensors files.
 *
 *     struct error e = {0};
 *     struct dataset_options o = {.scale = 1.0f / 16};
 *     struct dataset d;
 *     TRY(dataset_open("digits.csv.gz", &o, &d, &e));
 *     const struct array *x = dataset_find(&d, "x");      f32 [1797, 64]
 *     const struct array *y = dataset_find(&d, "y");      i64 [1797]
 *     dataset_close(&d);
 *
 * A CSV gives the features "x", f32 [rows, columns], and the labels "y", i64 [rows]; an NPY file
 * gives "x"; NPZ and safetensors keep their names and come in file order. */
#ifndef ATOLL_RUNTIME_DATA_H
#define ATOLL_RUNTIME_DATA_H

#include "ir/base.h"
#include "ir/dtype.h"

enum { ARRAY_MAX_RANK = 8 };

struct array {
    const char *name;
    enum dtype dtype;
    uint32_t rank;
    int64_t shape[ARRAY_MAX_RANK];
    void *data; /* row-major, 64-byte aligned from 64 bytes on; never NULL */
    size_t bytes;
};

struct dataset {
    struct arena arena;
    struct array *arrays;
    uint32_t n_arrays;
    const char **metadata; /* key, value, key, value, ...: safetensors' __metadata__ */
    uint32_t n_metadata;   /* pairs */
};

enum data_format { DATA_AUTO, DATA_CSV, DATA_NPY, DATA_NPZ, DATA_SAFETENSORS };
enum data_label { LABEL_LAST, LABEL_NONE, LABEL_INDEX, LABEL_NAME };
enum data_header { HEADER_DETECT, HEADER_YES, HEADER_NO };

/* All zero: the format is found from the magic bytes and the name, the last CSV column is the
 * label, a first line without any number is a header. */
struct dataset_options {
    enum data_format format;
    enum data_label label;
    int64_t label_index;  /* LABEL_INDEX: from 0 */
    char label_name[128]; /* LABEL_NAME: a name of the header line */
    enum data_header header;
    char separator;       /* 0: the first of , ; and tab that the first line holds */
    bool allow_nonfinite; /* accept inf and nan as features */
    float scale;          /* factor of "x", 0 for 1; another dtype of "x" becomes f32 */
    size_t max_bytes;     /* cap on what a compressed file may unpack to; 0: 16 GiB */
};

/* Reads the options from text, comma separated, into o; what is not named stays. In any order:
 *   label=last | none | INDEX (from 0) | NAME      header=detect | yes | no
 *   separator=detect | comma | semicolon | tab | C   nonfinite=refuse | allow
 *   scale=NUMBER or A/B                               format=csv | npy | npz | safetensors
 * Messages of the loaders speak of these. USAGE when a key or value is none of them. */
status dataset_options_parse(const char *text, struct dataset_options *o, struct error *e);

/* o may be NULL. On failure out holds nothing; on success dataset_close frees it. Statuses:
 * NOT_FOUND, IO; FORMAT (the file is not what it says), DATA (a value is wrong), DTYPE,
 * UNSUPPORTED, NOT_FOUND (label column), OUT_OF_MEMORY. */
status dataset_open(const char *path, const struct dataset_options *o, struct dataset *out,
                    struct error *e);

/* The same from memory; name stands in messages and, for DATA_AUTO, its ending counts. */
status dataset_read_bytes(enum data_format format, const void *bytes, size_t size, const char *name,
                          const struct dataset_options *o, struct dataset *out, struct error *e);

void dataset_close(struct dataset *d);

/* NULL when there is none. */
const struct array *dataset_find(const struct dataset *d, const char *name);
const char *dataset_metadata(const struct dataset *d, const char *key);

/* Elements and bytes of a shape; false when a dim is negative or the product does not fit. */
bool array_measure(enum dtype dtype, uint32_t rank, const int64_t *shape, size_t *elements,
                   size_t *bytes);

#endif
