/* frontend/: the way in. compile.h: the conductor, from a model graph to a program, whole pipeline
 * on one screen (compile.c). */
#ifndef ATOLL_FRONTEND_COMPILE_H
#define ATOLL_FRONTEND_COMPILE_H

#include "codegen/cc.h"
#include "frontend/compile_cuda.h"
#include "passes/fuse.h"
#include "passes/policy.h"
#include "passes/train_step.h"
#include "runtime/library.h"
#include "runtime/program.h"

/* fusion, precision, memory, kernels, recompiles, guards, graph_breaks */
typedef void log_fn(void *context, const char *category, const char *line);

/* How much is fused, for bisecting: see partition_limit. */
struct fusion_limit {
    uint32_t groups, members;
};

struct compile_options {
    const struct policy *policy;       /* NULL: fp32 */
    const struct train_options *train; /* NULL: the graph as it is */
    bool wants_gradients;              /* instead of a training step: outputs grad:NAME */
    const char *gradients;             /* of these leaves, comma-separated; NULL: every param */
    bool is_relaxed;                   /* rounding mode: relaxed; strict otherwise */
    bool is_unfused;                   /* every op its own kernel */
    const struct fusion_limit *limit;  /* NULL: none */
    bool keeps_values;                 /* a session can show every value after a step: slower,
                                          and nothing shares memory */
    bool is_eager;                     /* stop at the primitive graph: no fusion, no kernels */
    struct device *device;             /* where it will run; NULL: the CPU */
    bool tries_loading;                /* kernels that the device cannot load count as failed */
    bool skips_c;                      /* no C kernels: for a program that runs on CUDA only */
    const char *const *cuda_archs;     /* "sm_80", ...: CUDA kernels for each */
    uint32_t n_cuda_archs;
    const char *libnvrtc; /* path of NVRTC; NULL: as the loader finds it */
    struct cc_options cc;
    const char *cache;    /* directory of compiled libraries; NULL: none */
    uint64_t cache_limit; /* bytes that its entries may take; 0: any number */
    void (*dump)(void *context, const char *name,
                 const char *text); /* each stage's text, or NULL */
    void *dump_context;
    const char *disabled;   /* passes to leave out, comma-separated; NULL: none */
    const char *stop_after; /* after this pass only those that a program cannot do without */
    bool
        checks; /* a runner compares each fused launch with eager (strict rounding), at each step */
    log_fn *log; /* what was decided, a line at a time, by category; or NULL */
    void *log_context;
    void (*warn)(void *context, const char *text); /* one line about what went another way */
    void *warn_context;
};

struct compiled {
    struct graph *step; /* after autocast, autodiff and the training step: what people look at */
    struct graph *primitive; /* what the executors run */
    struct partition partition;
    struct kernel *kernels; /* by group; is used where symbols[i] != NULL */
    const char **symbols;
    uint32_t n_kernels; /* distinct kernel functions */
    struct text source; /* the generated C */
    struct library *library;
    struct cuda_code cuda;
    struct program program;
    struct arena arena;
    struct notes notes;
    double seconds_passes, seconds_compiler;
    bool is_from_cache;
    const char *cache_miss; /* why the kernels were not in the cache; NULL: they were, or none */
    const char *cache_told; /* what was removed from the cache for its limit; NULL: nothing */
    log_fn *log;            /* of the options */
    void *log_context;
};

/* The same for o->device alone, once: its kernels and no C; eager there is one kernel an op. arch:
 * set, and to be kept until the compilation ends. */
struct compile_options compile_options_there(const struct compile_options *o, const char *arch[1]);
/* The name of the i-th pass that these options run; NULL behind the last. */
const char *compile_pass_name(const struct compile_options *o, uint32_t i);
/* out is zeroed first; compiled_free it in either case. */
status compile_graph(const struct graph *model, const struct compile_options *o,
                     struct compiled *out, struct error *e);
/* The second half alone: an already primitive graph (taken over: freed with out) to kernels and
 * program. */
status compile_primitive(struct graph *primitive, const struct compile_options *o,
                         struct compiled *out, struct error *e);
void compiled_free(struct compiled *c);

/* What the use of the cache left to tell: kept in c, warned of. For compile_cuda too. */
void compile_note_cache(struct compiled *c, const struct compile_options *o, const struct text *why,
                        const struct text *told, const struct error *warning);

#endif
