/* The seam between sessions and a device that is not the host: memory, copies, launches. A session
 * without a device runs on the CPU and never comes here. Backends are rows of BACKENDS[]
 * (backend.c); a device belongs to one thread at a time. */
#ifndef ATOLL_RUNTIME_BACKEND_H
#define ATOLL_RUNTIME_BACKEND_H

#include "codegen/kernel.h"
#include "runtime/contraction.h"
#include "runtime/scaled.h"

/* One line about a decision, under a category of ATOLL_LOG. */
typedef void device_log(void *context, const char *category, const char *line);

/* Where the vendor's libraries are; NULL: as the loader finds them. */
struct device_options {
    const char *libcuda, *libcublaslt;
    bool allows_tf32; /* f32 contractions may round their operands to TF32 */
    bool no_replay;   /* launch every step anew */
    device_log *log;  /* NULL: nobody listens */
    void *log_context;
};

/* Native code of a program: for each unit and architecture an image. */
struct device_image {
    const char *arch; /* "sm_90a" */
    const void *cubin;
    size_t cubin_size;
    const char *ptx; /* NUL-terminated; NULL: none */
};
struct device_code {
    uint32_t n_units, n_archs;
    const struct device_image *images; /* [arch * n_units + unit] */
    const struct contraction_choice *choices;
    uint32_t n_choices;
};

/* What a device's library chose for a contraction, as plans keep it. */
struct contraction_choice {
    char what[160]; /* the product in words: equal words, equal call */
    char arch[16];  /* where it was chosen, and by which version of the library */
    uint64_t library;
    uint64_t algorithm[8]; /* the library's own words */
    uint64_t workspace;    /* bytes */
};

struct device_memory {
    size_t allocated, reserved; /* in use, and taken from the driver */
    size_t peak_allocated, peak_reserved;
    size_t pinned; /* host memory locked for copies */
};

/* One kernel to launch: parameters are addresses of the values, in order. */
struct device_launch {
    void *function;
    const char *symbol;
    uint64_t blocks; /* wanted; cut to what fills the device */
    uint32_t block_x, block_y;
    void **parameters;
};

/* Launches and copies between device memories in order; uploads, beside them. */
enum device_queue { QUEUE_COMPUTE, QUEUE_COPIES };

struct backend;
struct device {
    const struct backend *backend;
    char name[160]; /* "cuda:0 (NVIDIA H100, sm_90, driver 13.0)" */
    char arch[16];  /* "sm_90" */
    struct device_memory memory;
    device_log *log; /* of the options */
    void *log_context;
};

/* Calls fail with DEVICE (the driver said no; text has call and kernel) or OUT_OF_MEMORY. */
struct backend {
    const char *name;
    status (*open)(int ordinal, const struct device_options *o, struct device **out,
                   struct error *e);
    void (*close)(struct device *d);
    /* How many devices there are; fails with the reason when none can be used. */
    status (*count)(const struct device_options *o, int *out, struct error *e);

    status (*allocate)(struct device *d, size_t bytes, void **out, struct error *e);
    void (*release)(struct device *d, void *memory); /* work on it must be done */
    status (*allocate_host)(struct device *d, size_t bytes, void **out, struct error *e);
    void (*release_host)(struct device *d, void *memory);

    /* Uploads between begin and end wait for all work so far and are done before what is launched
     * after; `from` (pinned) may not be written before uploads_wait. An upload outside of them is
     * ordered by marks alone. */
    status (*uploads_begin)(struct device *d, struct error *e);
    status (*upload)(struct device *d, void *to, const void *from, size_t bytes, struct error *e);
    status (*uploads_end)(struct device *d, struct error *e);
    status (*uploads_wait)(struct device *d, struct error *e);
    /* A mark stands behind all that a queue holds now: *mark is made where it is NULL, else moved.
     * Await: what the queue gets from here on waits for it. Settle: the host waits. */
    status (*mark)(struct device *d, enum device_queue queue, void **mark, struct error *e);
    status (*await)(struct device *d, enum device_queue queue, void *mark, struct error *e);
    status (*has_passed)(struct device *d, void *mark, bool *out, struct error *e);
    status (*settle)(struct device *d, void *mark, struct error *e);
    void (*unmark)(struct device *d, void *mark); /* NULL is accepted */
    /* Waits for the work before it and for the copy. */
    status (*download)(struct device *d, void *to, const void *from, size_t bytes, struct error *e);
    /* In order with launches. */
    status (*copy)(struct device *d, void *to, const void *from, size_t bytes, struct error *e);
    status (*wait)(struct device *d, struct error *e);

    status (*load)(struct device *d, const struct device_code *code, void **out, struct error *e);
    void (*unload)(struct device *d, void *loaded);
    status (*find)(struct device *d, void *loaded, const char *symbol, void **out, struct error *e);
    status (*launch)(struct device *d, const struct device_launch *l, struct error *e);
    status (*contract)(struct device *d, const struct contraction *c, const void *a, const void *b,
                       const void *bias, void *out, struct error *e);
    /* Chooses an algorithm for a contraction without running it; those chosen so far, lent until
     * the next call; and those that a plan recorded, to be taken again where they still hold. */
    status (*choose)(struct device *d, const struct contraction *c, const void *a, const void *b,
                     const void *bias, const void *out, struct error *e);
    status (*choices)(struct device *d, const struct contraction_choice **out, uint32_t *n,
                      struct error *e);
    status (*recall)(struct device *d, const struct contraction_choice *choices, uint32_t n,
                     struct error *e);

    /* What is launched between begin and end is recorded, not run; replay runs it. */
    status (*record_begin)(struct device *d, struct error *e);
    status (*record_end)(struct device *d, void **out, struct error *e);
    status (*replay)(struct device *d, void *recording, struct error *e);
    void (*record_free)(struct device *d, void *recording);

    /* As scaled_run, on device memory. */
    status (*contract_scaled)(struct device *d, const struct scaled_product *p,
                              const void *const operands[4], void *out, struct error *e);
};

/* "cpu" gives *out = NULL; "cuda:N" (or "cuda") opens it. */
status device_open(const char *name, const struct device_options *o, struct device **out,
                   struct error *e);
void device_close(struct device *d); /* NULL is accepted */
/* One line a backend and device: what is there, or what is missing. */
void devices_describe(const struct device_options *o, struct text *t);

extern const struct backend cuda_backend;

#endif
