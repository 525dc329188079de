/* A program: a primitive graph in its executable form, a list of launches over buffers. A session:
 * one program's memory, stepped again and again. Building needs what passes found (ir/partition.h)
 * and the kernels' addresses; running needs neither. */
#ifndef ATOLL_RUNTIME_PROGRAM_H
#define ATOLL_RUNTIME_PROGRAM_H

#include "codegen/kernel.h"
#include "runtime/backend.h"
#include "runtime/contraction.h"
#include "runtime/pinned.h"
#include "runtime/tensor.h"

enum launch_kind { LAUNCH_KERNEL, LAUNCH_CONTRACTION, LAUNCH_SINGLE };

struct launch {
    enum launch_kind kind;
    const char *symbol; /* KERNEL: its name in the library */
    kernel_fn *fn;      /* KERNEL: set by program_link */
    struct dim flat;    /* KERNEL: the length argument n */
    value node;         /* the node of a CONTRACTION or SINGLE; the last member of a KERNEL */
    uint32_t n_reads;   /* args[0..n_reads) are read, the rest written */
    uint32_t n_args;
    const value *args;       /* values whose memory is passed, in order */
    struct cuda_kernel cuda; /* KERNEL, SINGLE: no stages when not compiled for CUDA */
    bool is_single_pass; /* each element is read before it is written: updates may go in place */
    uint32_t count; /* KERNEL: launches that one call runs, this and the next ones: the same kernel
                       over several tensors; 0: run by one before */
    uint32_t group; /* of the partition it comes from; known while building only */
};

struct program {
    struct arena arena;
    const struct graph *graph; /* borrowed; outlives the program */
    struct launch *launches;
    uint32_t n_launches;
    value *root; /* by node id: whose memory it lies in (aliases, in-place updates); 0: nowhere */
    uint32_t *first_use, *last_use; /* by root id: launches; UINT32_MAX when never */
    bool *is_in_place;              /* by update index */
    bool keeps_values; /* of the partition: a value's memory is its own to the end of the step */
    bool *is_snapshot; /* by output index: a leaf that the step changes, copied before it runs */
};

/* launches come from the partition: kernels[i] belongs to group i and is unused unless symbols[i]
 * is set. */
status program_build(const struct graph *g, const struct partition *p, const struct kernel *kernels,
                     const char *const *symbols, struct program *out, struct error *e);
/* Looks the kernels up: find(context, symbol) gives an address or NULL. */
typedef void *program_find(void *context, const char *symbol);
status program_link(struct program *p, program_find *find, void *context, struct error *e);
/* Calls a step makes: kernels, each over one or several tensors, and library calls. */
uint32_t program_calls(const struct program *p);
void program_free(struct program *p);

struct session;
/* Memory for one program. Leaves start as zeros. NULL on failure. The program outlives it. */
struct session *session_create(const struct program *p, struct error *e);
/* The same on a device (NULL: the CPU); code is what its kernels compiled to, needed during the
 * call. The device outlives it. Leaves and outputs are then host copies, in step when asked for. */
struct session *session_create_on(const struct program *p, struct device *device,
                                  const struct device_code *code, struct error *e);
void session_destroy(struct session *s);
/* Fixes the symbols for the next steps: plans and allocates memory (again only when a size was not
 * seen lately). Leaves without symbols keep their contents. */
status session_bind(struct session *s, const int64_t *symbol_values, struct error *e);
/* On a device, at the sizes bound: the algorithms that its contractions take, lent until the next
 * call on the device. */
status session_choices(struct session *s, const struct contraction_choice **out, uint32_t *n,
                       struct error *e);
/* The tensor of a leaf, owned by the session; data is valid until the next session_bind. */
struct tensor *session_leaf(struct session *s, value leaf);
/* Makes a leaf's memory the caller's (NULL: the session's own again); must stay valid during steps.
 */
void session_point(struct session *s, value leaf, void *data);
/* Copies an input of the next step and starts its way to where the session runs, beside a step that
 * is under way; outputs of the last step stay. The next step takes it, at the sizes bound by then
 * (SHAPE if it has others), in place of what was pointed to. OUT_OF_MEMORY, DEVICE. */
status session_prefetch(struct session *s, value leaf, const struct tensor *t, struct error *e);
/* What was prefetched and no step took is forgotten. */
void session_forget(struct session *s, value leaf);
/* Of the pinned buffers that inputs travel from. */
struct pinned_counts session_pinned(const struct session *s);
/* Runs every launch, then the updates. */
status session_step(struct session *s, struct error *e);
/* Shows every value that a launch wrote as its call ends (later ones may reuse the memory). NULL:
 * nobody watches. */
typedef void session_watcher(void *context, uint32_t launch, value v, const struct tensor *t);
void session_watch(struct session *s, session_watcher *watcher, void *context);
/* The tensor of output i after a step; valid until the next step or bind. */
struct tensor session_output(struct session *s, uint32_t i);
/* What a leaf holds after a step, in host memory to look at; lent until the next call. DEVICE. */
status session_fetch(struct session *s, value leaf, struct tensor *out, struct error *e);
/* On a device: what session_leaf or session_output could not do since the last step or the last
 * time asked, for they have no record to fill; the next step would say so. */
status session_outcome(struct session *s, struct error *e);
/* Copies what v holds into memory that the caller frees: out->data, NULL where v has no memory of
 * its own (it lives inside a kernel; few do when the program keeps its values). Leaves after a step
 * hold what the step made of them. */
status session_read(struct session *s, value v, struct tensor *out, struct error *e);
/* Bytes of the arena of intermediates (peak alive), and of leaves owned. */
size_t session_peak_bytes(const struct session *s);
size_t session_leaf_bytes(const struct session *s);

#endif
