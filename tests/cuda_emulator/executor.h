/* Execution of a kernel: a launch is blocks, a block is warps, a warp is a register file and the
 * positions of its 32 lanes. Lanes at the same position run together; of several positions the
 * lowest goes first, so that lanes meet again where branches join. A block runs on one host thread,
 * its warps in turns from barrier to barrier; blocks run in a random order on several host threads.
 */
#ifndef ATOLL_EMULATOR_EXECUTOR_H
#define ATOLL_EMULATOR_EXECUTOR_H

#include "device_memory.h"
#include "findings.h"
#include "ptx.h"

struct ordering; /* stream_order.h: which operations come before this one */

struct launch {
    const struct kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    uint8_t *parameters; /* [kernel->parameter_bytes] */
    uint32_t op;         /* number of the stream operation */
    uint32_t floor;      /* operations up to this number come before */
    const struct ordering *ordering;
    uint64_t seed;
    uint64_t step_limit;   /* of a warp: endless beyond */
    int error;             /* CUresult; set once by a fatal finding */
    uint64_t instructions; /* executed by all threads */
};
void launch_run(struct launch *l);

/* State of a granule of shared memory: who wrote and read it last, and in which epoch, the stretch
 * between two barriers. Lanes of one warp are also ordered by bar.warp.sync, which `sync` counts.
 */
struct shared_cell {
    uint32_t write_epoch, read_epoch;
    uint16_t writer, reader, write_sync, read_sync;
};
#define READER_WARP   0x400u /* | warp: several lanes of it */
#define READER_MANY   0x800u
#define WRITER_ATOMIC 0x1000u

struct block {
    struct launch *launch;
    uint32_t index[3], number;
    uint32_t n_threads, n_warps;
    uint32_t epoch, first_epoch;
    uint32_t shared_bytes;
    uint8_t *shared;
    struct shared_cell *cells;    /* a granule each */
    uint8_t *local, *local_state; /* [thread][kernel->local_bytes]; state: 1 once written */
    struct warp *warps;
    uint8_t *files;  /* the warps' registers */
    bool is_stopped; /* by a fatal finding */
};

struct warp {
    uint8_t *file;
    struct block *block;
    const struct instruction *code;
    /* of the instruction being executed: */
    bool is_full;                                      /* every lane takes part */
    uint32_t bits;                                     /* the lanes that take part */
    uint32_t mask[LANES] __attribute__((aligned(64))); /* the same, ~0 or 0 a lane */
    /* of the warp: */
    uint32_t index, alive;
    uint32_t waiting;         /* at a barrier */
    uint32_t parked;          /* at a warp-wide instruction, until the other lanes come */
    uint32_t sync;            /* bar.warp.sync executed */
    uint32_t pc[LANES];       /* of lanes not in the running group */
    uint8_t barrier[LANES];   /* waiting: which */
    uint32_t expected[LANES]; /* waiting: threads it needs; 0: all */
    uint64_t steps;           /* instructions times lanes */
};

/* Runs the block to its end: execute.c. */
void block_run(struct block *b);

static inline uint32_t *lanes32(const struct warp *w, uint32_t slot)
{
    return (uint32_t *)(void *)(w->file + slot);
}
static inline uint64_t *lanes64(const struct warp *w, uint32_t slot)
{
    return (uint64_t *)(void *)(w->file + slot);
}

/* ---- findings of a thread (report.c) ---- */

/* "kernel K, ptx line N `text`, block (x,y,z), thread (x,y,z)" before the formatted rest. */
void warp_report(struct warp *w, const struct instruction *in, uint32_t lane,
                 enum finding_kind kind, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The kernel ends with this CUresult. */
void warp_stop(struct warp *w, int error);
uint32_t thread_of(const struct warp *w, uint32_t lane);
void thread_text(const struct block *b, uint32_t thread, char *text, size_t size);

/* ---- memory (execute_memory.c, execute_global.c, execute_shared.c) ---- */

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC };
/* Where the bytes lie on the host; NULL after a finding that ends the kernel. */
uint8_t *global_access(struct warp *w, const struct instruction *in, uint32_t lane,
                       uint64_t address, uint32_t bytes, enum access access);
uint8_t *shared_access(struct warp *w, const struct instruction *in, uint32_t lane,
                       uint64_t address, uint32_t bytes, enum access access);
uint8_t *any_access(struct warp *w, const struct instruction *in, uint32_t lane, uint64_t address,
                    uint32_t bytes, enum access access);
/* For lanes side by side in global memory: true when every byte passes every check, and then the
 * access is recorded. */
bool global_range(struct warp *w, const struct instruction *in, uint64_t address, uint32_t bytes,
                  enum access access);
/* What lane 0 has just read the other lanes read as well. */
void global_read_by_warp(struct warp *w, uint64_t address, uint32_t bytes);
run_function run_load, run_store, run_load_parameter, run_atomic, run_fence;
run_function run_shuffle, run_vote, run_warp_barrier, run_match, run_redux, run_active_mask;
run_function run_convert;
void finish_barrier_reduction(struct warp *w, const struct instruction *in, uint32_t popc, bool all,
                              bool any);

#endif
