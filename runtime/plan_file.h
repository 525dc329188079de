/* The .plan file: sections graph (text), program (launches), library (native code), cuda (cubin and
 * PTX), cublaslt (algorithms; not in every plan), state (first values), about (text). */
#ifndef ATOLL_RUNTIME_PLAN_FILE_H
#define ATOLL_RUNTIME_PLAN_FILE_H

#include "runtime/container.h"
#include "runtime/library.h"
#include "runtime/program.h"

/* Values of a kept leaf (param, buffer, state, scalar without symbols), lent for writing. */
typedef const struct tensor *plan_leaf(void *context, value leaf);

/* graph must be what graph_parse makes of its own text (ids are compared on reading). about: lines
 * "key value". */
struct plan_code {
    const struct library *library; /* NULL: none for the CPU */
    struct device_code cuda;       /* no units: none */
};
status plan_write(const char *path, const struct program *p, const struct plan_code *code,
                  plan_leaf *leaf, void *context, const char *about, struct error *e);

struct plan_file {
    struct container container;
    struct graph *graph;
    struct program program;
    struct library *library;    /* NULL when not loaded, or none in the file */
    struct device_code cuda;    /* lies in the container */
    const unsigned char *state; /* leaves' bytes, in graph order */
    size_t state_size;
    const char *about;
};

/* is_loading: also load and link the native code. On failure out holds nothing. */
status plan_read(const char *path, bool is_loading, struct plan_file *out, struct error *e);
status plan_read_bytes(const void *bytes, size_t size, const char *name, bool is_loading,
                       struct plan_file *out, struct error *e);
void plan_file_close(struct plan_file *p);

/* plan_cuda.c: the section "cuda": stages of the launches, images by architecture and unit; the
 * section "cublaslt": contraction choices. */
struct reader;
void plan_put_cuda(struct text *t, const struct program *p, const struct device_code *code);
void plan_take_cuda(struct reader *r, struct program *p, struct device_code *out, struct arena *a);
void plan_put_choices(struct text *t, const struct device_code *code);
void plan_take_choices(struct reader *r, struct device_code *out, struct arena *a);
/* Whether a leaf's first value is in the file. */
bool plan_keeps(const struct node *n);
/* "avx512f" or the like that this processor lacks and `about` names; NULL when none. */
const char *plan_missing_feature(const char *about);
/* What kernels compiled with -march=native here need: "x86-64 avx2 avx512f ...". */
void plan_features(struct text *t);

#endif
