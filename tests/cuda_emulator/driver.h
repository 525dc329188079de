/* The emulated driver: one device, its contexts, streams, events and the operations that wait in
 * streams. Nothing asynchronous runs when it is called: it becomes a numbered operation with the
 * set of operations that come before it, and runs when the host waits for something, in a random
 * order that this set allows. One lock covers everything; it may be taken again by a host function.
 */
#ifndef ATOLL_EMULATOR_DRIVER_H
#define ATOLL_EMULATOR_DRIVER_H

#include <stdbool.h>

#include "cuda_types.h"
#include "export.h"
#include "findings.h"
#include "stream_order.h"

#define API(name, parameters) EXPORT CUresult name parameters;
#include "driver_api.def"
#undef API

struct kernel;

enum operation_kind {
    OP_LAUNCH,
    OP_UPLOAD,
    OP_DOWNLOAD,
    OP_COPY,
    OP_FILL,
    OP_ALLOCATE,
    OP_FREE,
    OP_EVENT,
    OP_HOST,
    OP_LIBRARY
};

/* Work that another emulated library does on device memory; see emulator_enqueue. */
struct operation;
typedef void library_function(void *data, const struct operation *op);

struct operation {
    uint32_t number;
    struct ordering before; /* in a graph: numbers of its nodes */
    enum operation_kind kind;
    uint32_t lane;    /* stream it was given to: one lane is done in order */
    const char *call; /* the API call, for findings */
    /* LAUNCH */
    const struct kernel *kernel;
    uint32_t grid[3], block[3], shared_bytes;
    uint8_t *parameters; /* owned */
    /* copies and fills: device or host addresses */
    uint64_t to, from, bytes;
    uint8_t *snapshot;  /* UPLOAD from pageable memory: the bytes at the time of the call; owned */
    uint64_t host_hash; /* pinned memory: what its bytes were at the time of the call */
    bool is_pinned;
    uint32_t value, width; /* FILL */
    CUevent event;
    CUhostFn host;
    library_function *library;
    void *data; /* HOST, LIBRARY; of LIBRARY owned: data_bytes long */
    size_t data_bytes;
};

struct CUstream_st {
    uint32_t magic, lane, flags;
    struct ordering tail; /* all that the next operation of this stream comes after */
    CUgraph capture;      /* NULL: not capturing */
    struct ordering capture_tail;
    bool is_capture_origin;
    CUstream next;
};
struct CUevent_st {
    uint32_t magic, flags;
    bool is_recorded;
    struct ordering at;
    CUgraph capture; /* recorded in this capture */
    struct ordering capture_at;
    bool has_time;
    double milliseconds;
    CUevent next;
};
struct CUgraph_st {
    uint32_t magic;
    struct operation *nodes; /* number i + 1 */
    uint32_t n, room;
};
struct CUgraphExec_st {
    uint32_t magic;
    struct operation *nodes;
    uint32_t n;
};
struct CUmod_st {
    uint32_t magic;
    struct module *module;
    struct CUfunc_st *functions;
    CUmodule next;
};
struct CUfunc_st {
    uint32_t magic;
    struct kernel *kernel;
    struct CUfunc_st *next;
};
struct CUctx_st {
    uint32_t magic;
    int retained;
    bool is_primary;
    CUcontext next; /* of the destroyed ones, kept so that threads see a stale handle */
};
enum {
    MAGIC_STREAM = 0x5731,
    MAGIC_EVENT,
    MAGIC_GRAPH,
    MAGIC_EXEC,
    MAGIC_MODULE,
    MAGIC_FUNCTION,
    MAGIC_CONTEXT
};

/* True when the handle is of its kind and alive (freed handles lose their mark). */
#define IS_HANDLE(h, kind) ((h) && (h)->magic == MAGIC_##kind)

struct driver {
    bool is_initialized;
    CUresult error; /* sticky: a kernel failed */
    int n_contexts;
    struct ordering host; /* what the host has waited for */
    uint32_t last_number, last_lane;
    struct operation **pending;
    size_t n_pending, pending_room;
    struct CUstream_st null_stream;
    CUstream streams;
    CUevent events;
    CUmodule modules;
    int capturing; /* streams being captured as origin */
};
extern struct driver driver;

/* Takes the lock. Refuses without cuInit, with a sticky error, or without a current context. */
CUresult driver_enter(void);
CUresult driver_enter_without_context(void);
CUresult driver_leave(CUresult result);

/* The stream of a handle (NULL and 1: the null stream); NULL: no such stream. */
CUstream stream_of(CUstream handle);
/* Takes over what the operation owns. */
CUresult enqueue(CUstream stream, struct operation op);
/* Runs operations in a random order until everything in the set is done. */
CUresult run_until(const struct ordering *wanted);
CUresult run_all(void);
void run_one(void);
bool is_done(const struct ordering *set);
void operation_release(struct operation *op);
void operation_copy(struct operation *to, const struct operation *from); /* for graphs */
void forget_pending(void);

/* copies.c */
bool check_device_range(const char *call, uint64_t address, uint64_t bytes);
void execute_copy(struct operation *op);
void prepare_host_side(struct operation *op); /* when the operation is enqueued: snapshot or hash */
/* Checks bytes for an operation that is no kernel and records it as their writer. */
bool operation_access(const struct operation *op, uint64_t address, uint64_t bytes, bool is_write);
uint8_t *device_bytes(uint64_t address);

/* host_memory.c */
bool is_pinned(const void *memory, size_t bytes);
void release_pinned(void);

/* ---- exported for the emulated cuBLASLt and for tests ---- */

/* Enqueues function(data) as an operation of the stream; data is copied. */
EXPORT CUresult emulator_enqueue(CUstream stream, const char *call, library_function *function,
                                 const void *data, size_t bytes);
/* Device bytes for the running operation, checked and recorded like a kernel's; NULL after a
 * finding. */
EXPORT void *emulator_bytes(const struct operation *op, CUdeviceptr address, size_t bytes,
                            int is_write);
EXPORT int emulator_compute_capability(void);
EXPORT void emulator_misuse(const char *call, const char *why);
/* Launches so far and instructions their threads executed. */
EXPORT void atoll_emulator_statistics(uint64_t *launches, uint64_t *instructions);

#endif
