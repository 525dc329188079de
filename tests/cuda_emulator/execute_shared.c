/* Shared memory: bounds, alignment, initialisation and races. Two threads race when one writes what
 * the other touches and no barrier lies between; lanes of one warp are also ordered by
 * bar.warp.sync. Invariant: a cell's epochs belong to this block only if they are at least
 * first_epoch; older ones are a block that ran here before. */
#include "cuda_types.h"
#include "executor.h"

static void report_race(struct warp *w, const struct instruction *in, uint32_t lane,
                        uint64_t address, const char *what, uint32_t other)
{
    char thread[40] = "another thread";
    if (other < READER_WARP) {
        thread_text(w->block, other, thread, sizeof thread);
    }
    warp_report(w, in, lane, FINDING_SHARED_RACE,
                "%s shared address %llu without a barrier between (thread %s)", what,
                (unsigned long long)address, thread);
}

/* True when an access of this lane and one of `thread` in the present epoch are ordered. */
static bool is_ordered(const struct warp *w, uint32_t lane, uint32_t thread, uint16_t sync)
{
    return thread == thread_of(w, lane) ||
           (thread / LANES == w->index && sync != (uint16_t)w->sync);
}

static void check_cell(struct warp *w, const struct instruction *in, uint32_t lane,
                       uint64_t address, struct shared_cell *c, enum access access)
{
    const struct block *b = w->block;
    uint32_t me = thread_of(w, lane);
    uint16_t writer = (uint16_t)(access == ACCESS_ATOMIC ? WRITER_ATOMIC : me);
    if (access != ACCESS_WRITE && c->write_epoch < b->first_epoch) {
        warp_report(w, in, lane, FINDING_UNINITIALIZED,
                    "reads shared address %llu that no thread of the block wrote",
                    (unsigned long long)address);
    }
    bool both_atomic = access == ACCESS_ATOMIC && c->writer == WRITER_ATOMIC;
    if (c->write_epoch == b->epoch && !both_atomic &&
        !is_ordered(w, lane, c->writer, c->write_sync)) {
        report_race(w, in, lane, address,
                    access == ACCESS_READ ? "reads what another thread wrote at"
                                          : "writes what another thread wrote at",
                    c->writer);
    }
    if (access == ACCESS_READ) {
        bool is_first = c->read_epoch != b->epoch || c->reader == me ||
                        (c->reader < READER_WARP && is_ordered(w, lane, c->reader, c->read_sync));
        bool same_warp = c->reader == (READER_WARP | w->index) ||
                         (c->reader < READER_WARP && c->reader / LANES == w->index);
        c->reader = (uint16_t)(is_first ? me : same_warp ? READER_WARP | w->index : READER_MANY);
        c->read_epoch = b->epoch;
        c->read_sync = (uint16_t)w->sync;
        return;
    }
    if (c->read_epoch == b->epoch && !both_atomic) {
        bool is_fine = c->reader < READER_WARP ? is_ordered(w, lane, c->reader, c->read_sync)
                                               : c->reader == (READER_WARP | w->index) &&
                                                     c->read_sync != (uint16_t)w->sync;
        if (!is_fine) {
            report_race(w, in, lane, address, "writes what another thread read at", c->reader);
        }
    }
    c->write_epoch = b->epoch;
    c->writer = writer;
    c->write_sync = (uint16_t)w->sync;
}

uint8_t *shared_access(struct warp *w, const struct instruction *in, uint32_t lane,
                       uint64_t address, uint32_t bytes, enum access access)
{
    struct block *b = w->block;
    if (address >= b->shared_bytes || bytes > b->shared_bytes - address) {
        warp_report(w, in, lane, FINDING_OUT_OF_BOUNDS,
                    "%u bytes at shared address %llu, the block has %u bytes", bytes,
                    (unsigned long long)address, b->shared_bytes);
        warp_stop(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        return NULL;
    }
    if (address % bytes) {
        warp_report(w, in, lane, FINDING_MISALIGNED,
                    "%u bytes at shared address %llu, no multiple of %u", bytes,
                    (unsigned long long)address, bytes);
        warp_stop(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        return NULL;
    }
    uint32_t granule = b->launch->kernel->shared_granule;
    for (uint64_t at = address / granule; at <= (address + bytes - 1) / granule; at++) {
        check_cell(w, in, lane, at * granule, &b->cells[at], access);
    }
    return b->shared + address;
}
