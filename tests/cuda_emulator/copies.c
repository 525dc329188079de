/* Copies and fills, at the call and when they run. At the call device ranges are checked as the
 * driver checks them; pageable sources are copied aside, pinned ones hashed, so that a host that
 * touches them too early is found when the copy runs. When it runs, state and writers of the bytes
 * are checked like a kernel's. Invariant: what is copied keeps its "written" marks. */
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "driver.h"

static uint64_t hash_of(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t h = 0x9e3779b97f4a7c15u ^ bytes;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; bytes; bytes--, p++) {
        h = (h ^ *p) * 0xff51afd7ed558ccdu;
    }
    return h;
}

uint8_t *device_bytes(uint64_t address)
{
    return device_memory.storage + (address - device_memory.base);
}

bool check_device_range(const char *call, uint64_t address, uint64_t bytes)
{
    struct allocation a;
    char where[200];
    bool is_known = device_find(address, &a);
    bool is_inside =
        is_known && address - a.address <= a.bytes && bytes <= a.bytes - (address - a.address);
    if (is_inside && !a.is_freed) {
        return true;
    }
    device_describe(is_inside || !is_known ? address : a.address + a.bytes, where, sizeof where);
    finding_report(is_inside ? FINDING_USE_AFTER_FREE : FINDING_OUT_OF_BOUNDS, address,
                   "%s of %llu bytes at 0x%llx: %s", call, (unsigned long long)bytes,
                   (unsigned long long)address, where);
    return false;
}

void prepare_host_side(struct operation *op)
{
    if (op->kind != OP_UPLOAD && op->kind != OP_DOWNLOAD) {
        return;
    }
    bool is_upload = op->kind == OP_UPLOAD;
    void *host = (void *)(uintptr_t)(is_upload ? op->from : op->to);
    op->is_pinned = is_pinned(host, op->bytes);
    if (is_upload && !op->is_pinned) {
        op->snapshot = malloc(op->bytes + 1);
        if (op->snapshot) {
            memcpy(op->snapshot, host, op->bytes);
        }
    } else if (!is_upload && op->is_pinned) {
        memset(host, 0xfb, op->bytes); /* a host that reads too early reads this */
    }
    if (op->is_pinned) {
        op->host_hash = hash_of(host, op->bytes);
    }
}

#define CHUNK 1024 /* bytes or granules looked at with one test: nearly all pass */

/* True when no granule of [at, end) was written or read by an operation above the floor. */
static bool is_settled(uint64_t at, uint64_t end, uint32_t floor, bool with_readers)
{
    uint64_t most = CELL(floor, UINT32_MAX);
    uint32_t above = 0;
    for (uint64_t i = at; i < end; i++) {
        above |= device_memory.cells[i] > most;
    }
    for (uint64_t i = at; i < end && with_readers; i++) {
        above |= device_memory.readers[i] > most;
    }
    return !above;
}

static bool is_ready(const uint8_t *state, uint64_t n, bool is_write)
{
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        bad |= (state[i] | (is_write ? BYTE_WRITTEN : 0u)) ^ BYTE_READY;
    }
    return !bad;
}

/* Reports the first granule that the operation must not touch yet. */
static void check_granules(const struct operation *op, uint64_t address, uint64_t bytes,
                           bool is_write)
{
    char where[200];
    uint64_t offset = address - device_memory.base;
    uint64_t end = (offset + bytes + GRANULE - 1) / GRANULE, next = 0;
    for (uint64_t at = offset / GRANULE; at < end; at++) {
        if (at >= next) {
            next = at + CHUNK < end ? at + CHUNK : end;
            if (is_settled(at, next, op->before.floor, is_write)) {
                at = next - 1;
                continue;
            }
        }
        uint32_t other = CELL_OP(device_memory.cells[at]),
                 reader = CELL_OP(device_memory.readers[at]);
        bool is_reader = is_write && reader != op->number && !order_before(&op->before, reader);
        other = is_reader ? reader : other;
        if (other != op->number && !order_before(&op->before, other)) {
            device_describe(device_memory.base + at * GRANULE, where, sizeof where);
            finding_report(FINDING_STREAM_ORDER, op->number,
                           "%s (operation %u) %s 0x%llx, last %s by operation %u of another "
                           "stream that no event "
                           "or synchronization orders before it: %s",
                           op->call, op->number, is_write ? "overwrites" : "reads",
                           (unsigned long long)(device_memory.base + at * GRANULE),
                           is_reader ? "read" : "written", other, where);
            return; /* the copy runs all the same */
        }
    }
}

bool operation_access(const struct operation *op, uint64_t address, uint64_t bytes, bool is_write)
{
    char where[200];
    uint64_t offset = address - device_memory.base;
    uint8_t *state = device_memory.state + offset;
    bool is_inside = device_in_range(address, bytes), is_unwritten = false;
    uint64_t next = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        if (i >= next && is_inside) {
            next = i + CHUNK < bytes ? i + CHUNK : bytes;
            if (is_ready(state + i, next - i, is_write)) {
                i = next - 1;
                continue;
            }
        }
        uint8_t s = is_inside ? state[i] : 0;
        if (!(s & BYTE_ALLOCATED)) {
            device_describe(address + i, where, sizeof where);
            enum finding_kind kind = device_is_freed(address + i) ? FINDING_USE_AFTER_FREE
                                     : s == BYTE_PROMISED         ? FINDING_STREAM_ORDER
                                                                  : FINDING_OUT_OF_BOUNDS;
            finding_report(kind, op->number, "%s (operation %u) %s 0x%llx: %s", op->call,
                           op->number, is_write ? "writes" : "reads",
                           (unsigned long long)(address + i), where);
            return false;
        }
        if (!is_write && !(s & BYTE_WRITTEN) && !is_unwritten && op->kind != OP_COPY) {
            is_unwritten = true;
            device_describe(address + i, where, sizeof where);
            finding_report(FINDING_UNINITIALIZED, op->number,
                           "%s (operation %u) reads 0x%llx that nothing wrote: %s", op->call,
                           op->number, (unsigned long long)(address + i), where);
        }
    }
    check_granules(op, address, bytes, is_write);
    for (uint64_t at = offset / GRANULE; !is_write && at * GRANULE < offset + bytes; at++) {
        device_memory.readers[at] = CELL(op->number, BLOCK_COPY);
    }
    if (is_write) {
        memset(state, BYTE_READY, bytes);
        for (uint64_t at = offset / GRANULE; at * GRANULE < offset + bytes; at++) {
            device_memory.cells[at] = CELL(op->number, BLOCK_COPY);
        }
    }
    return true;
}

static void check_pinned(const struct operation *op, const void *host)
{
    bool is_upload = op->kind == OP_UPLOAD;
    if (!is_pinned(host, op->bytes)) {
        finding_report(FINDING_PINNED, op->number,
                       "%s (operation %u): the host freed the buffer of %llu bytes before",
                       op->call, op->number, (unsigned long long)op->bytes);
    } else if (hash_of(host, op->bytes) != op->host_hash) {
        finding_report(FINDING_PINNED, op->number,
                       "%s (operation %u): the host wrote to its %s of %llu bytes at %p after the "
                       "call: wait for the copy first",
                       op->call, op->number, is_upload ? "source" : "destination",
                       (unsigned long long)op->bytes, host);
    }
}

static void execute_fill(const struct operation *op)
{
    if (operation_access(op, op->to, op->bytes, true)) {
        uint8_t *to = device_bytes(op->to);
        for (uint64_t i = 0; i < op->bytes; i += op->width) {
            memcpy(to + i, &op->value, op->width);
        }
    }
}

void execute_copy(struct operation *op)
{
    void *host = (void *)(uintptr_t)(op->kind == OP_UPLOAD ? op->from : op->to);
    if (op->is_pinned) {
        check_pinned(op, host);
        if (!is_pinned(host, op->bytes)) {
            return;
        }
    }
    if (op->kind == OP_FILL) {
        execute_fill(op);
    } else if (op->kind == OP_UPLOAD && operation_access(op, op->to, op->bytes, true)) {
        memcpy(device_bytes(op->to), op->snapshot ? op->snapshot : host, op->bytes);
    } else if (op->kind == OP_DOWNLOAD && operation_access(op, op->from, op->bytes, false)) {
        memcpy(host, device_bytes(op->from), op->bytes);
    } else if (op->kind == OP_COPY && operation_access(op, op->from, op->bytes, false) &&
               operation_access(op, op->to, op->bytes, true)) {
        memmove(device_bytes(op->to), device_bytes(op->from), op->bytes);
        memmove(device_memory.state + (op->to - device_memory.base),
                device_memory.state + (op->from - device_memory.base), op->bytes);
    }
}

EXPORT void *emulator_bytes(const struct operation *op, CUdeviceptr address, size_t bytes,
                            int is_write)
{
    return operation_access(op, address, bytes, is_write != 0) ? device_bytes(address) : NULL;
}

EXPORT void emulator_misuse(const char *call, const char *why)
{
    finding_report(FINDING_MISUSE, (uint64_t)(uintptr_t)why, "%s: %s", call, why);
}
