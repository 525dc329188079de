/* Global memory as kernels see it: every access is checked against the state bytes (bounds,
 * lifetime, written or not) and the last writers (other blocks of this launch, operations of other
 * streams that nothing orders before this one; other threads of this block since the last barrier).
 * Invariant: an access leaves state, writer or reader, and its thread's mark behind. */
#include "executor.h"

#include <string.h>

#include "cuda_types.h"
#include "stream_order.h"

static bool is_before(const struct launch *l, uint32_t op)
{
    return op <= l->floor || (l->ordering && order_before(l->ordering, op));
}

static uint64_t mark_of(const struct warp *w, uint32_t thread)
{
    return MARK(w->block->epoch, w->sync, thread);
}

/* An access of this thread and the one that left the mark, a thread of the same block, are ordered:
 * by a barrier of the block, or within the warp by one of the warp. */
static bool is_ordered(const struct warp *w, uint32_t thread, uint64_t mark)
{
    uint32_t other = MARK_THREAD(mark);
    bool is_mine =
        other == thread || ((other == (READER_WARP | w->index) || other / LANES == w->index) &&
                            MARK_SYNC(mark) != (w->sync & 0xffffu));
    return MARK_EPOCH(mark) != w->block->epoch || is_mine;
}

/* ---- 32 lanes at once ---- */

/* Whether a granule that this block wrote or read itself may be a race of its threads: taken lane
 * by lane then. */
static uint32_t may_race(const uint64_t *cells, const uint64_t *marks, uint64_t own, uint64_t mine,
                         uint32_t n, uint32_t shift)
{
    uint32_t races = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mark = marks[i], me = mine + (i >> shift);
        races |= (cells[i] == own) & (MARK_EPOCH(mark) == MARK_EPOCH(me)) &
                 (MARK_THREAD(mark) != MARK_THREAD(me));
    }
    return races;
}

static void leave_marks(uint64_t *marks, uint64_t mine, uint32_t n, uint32_t shift, bool is_part)
{
    for (uint32_t i = 0; i < n; i++) {
        marks[i] = is_part ? 0 : mine + (i >> shift);
    }
}

static bool state_allows(const uint8_t *state, uint32_t bytes, enum access access)
{
    uint32_t bad = 0;
    if (access == ACCESS_READ) {
        for (uint32_t i = 0; i < bytes; i++) {
            bad |= state[i] ^ BYTE_READY;
        }
    } else {
        for (uint32_t i = 0; i < bytes; i++) {
            bad |= (state[i] & (uint32_t)~BYTE_WRITTEN) ^ BYTE_ALLOCATED;
        }
    }
    return !bad;
}

bool global_range(struct warp *w, const struct instruction *in, uint64_t address, uint32_t bytes,
                  enum access access)
{
    const struct launch *l = w->block->launch;
    if (!device_in_range(address, bytes) || address % GRANULE || bytes % GRANULE) {
        return false;
    }
    uint64_t offset = address - device_memory.base;
    uint8_t *state = device_memory.state + offset;
    uint64_t *cells = device_memory.cells + offset / GRANULE;
    uint64_t *readers = device_memory.readers + offset / GRANULE;
    uint64_t own = CELL(l->op, w->block->number), floor = CELL(l->floor, UINT32_MAX);
    if (!state_allows(state, bytes, access)) {
        return false;
    }
    uint64_t *wrote = device_memory.wrote + offset / GRANULE,
             *read = device_memory.read + offset / GRANULE, mine = mark_of(w, thread_of(w, 0));
    uint32_t lane_bytes = (uint32_t)in->bytes * in->count;
    uint32_t shift = lane_bytes > 2 * GRANULE ? 2 : lane_bytes > GRANULE; /* granules of a lane */
    bool is_part = lane_bytes < GRANULE;
    uint32_t n = bytes / GRANULE,
             suspicious = is_part ? 0 : may_race(cells, wrote, own, mine, n, shift);
    uint64_t own_is_fine = in->is_noncoherent ? 0 : own; /* 0 is below any floor */
    for (uint32_t i = 0; i < n; i++) {
        suspicious |= (cells[i] > floor) & (cells[i] != own_is_fine);
    }
    if (!is_part && (access == ACCESS_WRITE || !suspicious)) {
        suspicious |= may_race(readers, read, own, mine, n, shift);
    }
    if (access == ACCESS_READ) {
        if (!suspicious) {
            leave_marks(read, mine, n, shift, is_part);
        }
        for (uint32_t i = 0; i < n && !suspicious; i++) {
            bool is_other = CELL_OP(readers[i]) == l->op && readers[i] != own;
            readers[i] = is_other ? CELL(l->op, BLOCK_UNKNOWN) : own;
        }
        return !suspicious;
    }
    for (uint32_t i = 0; i < n; i++) {
        suspicious |= (readers[i] > floor) & (readers[i] != own);
    }
    if (suspicious) {
        return false;
    }
    memset(state, BYTE_READY, bytes);
    leave_marks(wrote, mine, n, shift, is_part);
    for (uint32_t i = 0; i < n; i++) {
        cells[i] = own;
    }
    return true;
}

/* ---- lane by lane, with words for what is wrong ---- */

static bool address_is_good(struct warp *w, const struct instruction *in, uint32_t lane,
                            uint64_t address, uint32_t bytes, enum access access)
{
    char where[200];
    const char *verb = access == ACCESS_READ    ? "reads"
                       : access == ACCESS_WRITE ? "writes"
                                                : "updates";
    if (address % bytes) {
        device_describe(address, where, sizeof where);
        warp_report(w, in, lane, FINDING_MISALIGNED, "%s %u bytes at 0x%llx, no multiple of %u: %s",
                    verb, bytes, (unsigned long long)address, bytes, where);
        warp_stop(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        return false;
    }
    uint64_t offset = address - device_memory.base;
    bool is_inside = device_in_range(address, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t state = is_inside ? device_memory.state[offset + i] : 0;
        if (state & BYTE_ALLOCATED) {
            continue;
        }
        device_describe(address + i, where, sizeof where);
        enum finding_kind kind = device_is_freed(address + i) ? FINDING_USE_AFTER_FREE
                                 : state == BYTE_PROMISED     ? FINDING_STREAM_ORDER
                                                              : FINDING_OUT_OF_BOUNDS;
        warp_report(w, in, lane, kind, "%s %u bytes at 0x%llx: %s%s", verb, bytes,
                    (unsigned long long)address, where,
                    state == BYTE_PROMISED ? ", whose allocation in its stream has not run yet"
                                           : "");
        warp_stop(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        return false;
    }
    return true;
}

static void check_written(struct warp *w, const struct instruction *in, uint32_t lane,
                          uint64_t address, uint32_t bytes)
{
    const uint8_t *state = device_memory.state + (address - device_memory.base);
    for (uint32_t i = 0; i < bytes; i++) {
        if (!(state[i] & BYTE_WRITTEN)) {
            char where[200];
            device_describe(address + i, where, sizeof where);
            warp_report(w, in, lane, FINDING_UNINITIALIZED,
                        "reads %u bytes at 0x%llx that nothing wrote: %s", bytes,
                        (unsigned long long)address, where);
            return;
        }
    }
}

/* The last writer of a granule against this access. */
static void check_writer(struct warp *w, const struct instruction *in, uint32_t lane,
                         uint64_t address, uint64_t cell, bool is_part, enum access access)
{
    const struct launch *l = w->block->launch;
    uint32_t op = CELL_OP(cell), block = CELL_BLOCK(cell);
    char where[200];
    if (op != l->op) {
        if (!is_before(l, op) && !is_part) {
            device_describe(address, where, sizeof where);
            warp_report(w, in, lane, FINDING_STREAM_ORDER,
                        "%s 0x%llx, last written by operation %u of another stream that no event "
                        "or synchronization "
                        "orders before this one (operation %u): %s",
                        access == ACCESS_READ ? "reads" : "overwrites", (unsigned long long)address,
                        op, l->op, where);
        }
        return;
    }
    bool is_own = block == w->block->number || block == BLOCK_UNKNOWN || is_part;
    if (block == BLOCK_ATOMIC) {
        is_own = access == ACCESS_ATOMIC;
    }
    if (is_own && !(in->is_noncoherent && access == ACCESS_READ)) {
        return;
    }
    device_describe(address, where, sizeof where);
    warp_report(
        w, in, lane, FINDING_GLOBAL_RACE, "%s 0x%llx, which %s of the same launch has written: %s",
        access == ACCESS_READ ? (is_own ? "reads through the read-only cache" : "reads") : "writes",
        (unsigned long long)address,
        block == BLOCK_ATOMIC ? "an atomic"
        : is_own              ? "a thread"
                              : "another block",
        where);
}

/* The last reader of a granule against this write. */
static void check_reader(struct warp *w, const struct instruction *in, uint32_t lane,
                         uint64_t address, uint64_t cell)
{
    const struct launch *l = w->block->launch;
    uint32_t op = CELL_OP(cell);
    char where[200];
    if (op == l->op ? CELL_BLOCK(cell) == w->block->number : is_before(l, op)) {
        return;
    }
    device_describe(address, where, sizeof where);
    if (op == l->op) {
        warp_report(w, in, lane, FINDING_GLOBAL_RACE,
                    "writes 0x%llx, which another block of the same launch has read: %s",
                    (unsigned long long)address, where);
    } else {
        warp_report(w, in, lane, FINDING_STREAM_ORDER,
                    "overwrites 0x%llx, which operation %u of another stream read and no event or "
                    "synchronization orders "
                    "before this one (operation %u): %s",
                    (unsigned long long)address, op, l->op, where);
    }
}

static void report_thread(struct warp *w, const struct instruction *in, uint32_t lane,
                          uint64_t address, uint64_t mark, const char *what)
{
    char where[200], thread[40] = "another thread";
    if (MARK_THREAD(mark) < READER_WARP) {
        thread_text(w->block, MARK_THREAD(mark), thread, sizeof thread);
    }
    device_describe(address, where, sizeof where);
    warp_report(w, in, lane, FINDING_GLOBAL_RACE,
                "%s 0x%llx, without a barrier between (thread %s): %s", what,
                (unsigned long long)address, thread, where);
}

/* The block's own threads: the last that wrote and read the granule, where the block is the last
 * that did; then this one leaves its mark. */
static void check_threads(struct warp *w, const struct instruction *in, uint32_t lane, uint64_t at,
                          uint64_t own, bool is_part, enum access access)
{
    uint64_t *wrote = &device_memory.wrote[at], *read = &device_memory.read[at],
             address = device_memory.base + at * GRANULE;
    uint32_t me = thread_of(w, lane);
    bool has_written = device_memory.cells[at] == own && !is_part && *wrote,
         has_read = device_memory.readers[at] == own && !is_part && *read;
    if (has_written && !is_ordered(w, me, *wrote)) {
        report_thread(w, in, lane, address, *wrote,
                      access == ACCESS_READ ? "reads what another thread of the block wrote at"
                                            : "writes what another thread of the block wrote at");
    }
    if (access == ACCESS_WRITE) {
        if (has_read && !is_ordered(w, me, *read)) {
            report_thread(w, in, lane, address, *read,
                          "writes what another thread of the block read at");
        }
        *wrote = is_part ? 0 : mark_of(w, me);
        return;
    }
    bool is_shared = has_read && MARK_EPOCH(*read) == w->block->epoch && MARK_THREAD(*read) != me;
    bool is_warp = MARK_THREAD(*read) == (READER_WARP | w->index) ||
                   (MARK_THREAD(*read) < READER_WARP && MARK_THREAD(*read) / LANES == w->index);
    *read = is_part     ? 0
            : is_shared ? mark_of(w, is_warp ? READER_WARP | w->index : READER_MANY)
                        : mark_of(w, me);
}

uint8_t *global_access(struct warp *w, const struct instruction *in, uint32_t lane,
                       uint64_t address, uint32_t bytes, enum access access)
{
    if (!address_is_good(w, in, lane, address, bytes, access)) {
        return NULL;
    }
    uint64_t offset = address - device_memory.base;
    if (access != ACCESS_WRITE) {
        check_written(w, in, lane, address, bytes);
    }
    uint64_t own =
        CELL(w->block->launch->op, access == ACCESS_ATOMIC ? BLOCK_ATOMIC : w->block->number);
    bool is_part = bytes < GRANULE;
    for (uint64_t at = offset / GRANULE; at <= (offset + bytes - 1) / GRANULE; at++) {
        uint64_t *cell = &device_memory.cells[at], last = __atomic_load_n(cell, __ATOMIC_RELAXED);
        if (last != own || in->is_noncoherent) {
            check_writer(w, in, lane, address, last, is_part, access);
        }
        if (access != ACCESS_ATOMIC) {
            check_threads(w, in, lane, at, own, is_part, access);
        }
        uint64_t *reader = &device_memory.readers[at];
        if (access == ACCESS_READ) {
            uint64_t before = __atomic_load_n(reader, __ATOMIC_RELAXED);
            bool is_other = CELL_OP(before) == CELL_OP(own) && before != own;
            __atomic_store_n(reader, is_other ? CELL(CELL_OP(own), BLOCK_UNKNOWN) : own,
                             __ATOMIC_RELAXED);
        } else {
            if (!is_part) {
                check_reader(w, in, lane, address, __atomic_load_n(reader, __ATOMIC_RELAXED));
            }
            bool is_shared = is_part && CELL_OP(last) == CELL_OP(own) && last != own;
            __atomic_store_n(cell, is_shared ? CELL(CELL_OP(own), BLOCK_UNKNOWN) : own,
                             __ATOMIC_RELAXED);
        }
    }
    if (access != ACCESS_READ) {
        memset(device_memory.state + offset, BYTE_READY, bytes);
    }
    return device_memory.storage + offset;
}

void global_read_by_warp(struct warp *w, uint64_t address, uint32_t bytes)
{
    uint64_t offset = address - device_memory.base, alone = mark_of(w, thread_of(w, 0));
    for (uint64_t at = offset / GRANULE; at <= (offset + bytes - 1) / GRANULE; at++) {
        uint64_t *read = &device_memory.read[at];
        *read = *read == alone ? mark_of(w, READER_WARP | w->index) : *read;
    }
}
