/* The queue of operations: what is enqueued, what may run next, and running it. Below: execute.c
 * for kernels, copies.c for copies; above: the API calls. Invariant: an operation runs only when
 * nothing pending comes before it, and the lowest number can always run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device_memory.h"
#include "driver.h"
#include "executor.h"

#define MAX_PENDING 256 /* more than this run early: memory is finite */

static struct {
    uint64_t launches, instructions;
} statistics;

EXPORT void atoll_emulator_statistics(uint64_t *launches, uint64_t *instructions)
{
    *launches = statistics.launches;
    *instructions = statistics.instructions;
}

void operation_release(struct operation *op)
{
    order_free(&op->before);
    free(op->parameters);
    free(op->snapshot);
    if (op->kind == OP_LIBRARY) {
        free(op->data);
    }
}

static void *copy_bytes(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (!copy) {
        fputs("CUDA emulator: the host has no memory for an operation\n", stderr);
        abort();
    }
    if (bytes) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

void operation_copy(struct operation *to, const struct operation *from)
{
    *to = *from;
    to->before = (struct ordering){0};
    order_merge(&to->before, &from->before);
    if (from->parameters) {
        to->parameters = copy_bytes(from->parameters, from->kernel->parameter_bytes);
    }
    if (from->kind == OP_LIBRARY) {
        to->data = copy_bytes(from->data, from->data_bytes);
    }
    to->snapshot = NULL;
}

/* ---- what is pending ---- */

bool is_done(const struct ordering *set)
{
    for (size_t i = 0; i < driver.n_pending; i++) {
        if (order_before(set, driver.pending[i]->number)) {
            return false;
        }
    }
    return true;
}

static bool can_run(size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (order_before(&driver.pending[i]->before, driver.pending[j]->number)) {
            return false;
        }
    }
    return true;
}

/* One of the first operations of each lane that can run, at random. */
static size_t choose(void)
{
    uint32_t seen[64];
    size_t ready[64], n_seen = 0, n_ready = 0;
    for (size_t i = 0; i < driver.n_pending && n_seen < 64; i++) {
        bool is_seen = false;
        for (size_t s = 0; s < n_seen; s++) {
            is_seen = is_seen || seen[s] == driver.pending[i]->lane;
        }
        if (!is_seen) {
            seen[n_seen++] = driver.pending[i]->lane;
            if (can_run(i)) {
                ready[n_ready++] = i;
            }
        }
    }
    return ready[emulator_random() % n_ready];
}

/* ---- running ---- */

static void execute_launch(const struct operation *op)
{
    struct launch l = {.kernel = op->kernel,
                       .dynamic_shared = op->shared_bytes,
                       .parameters = op->parameters,
                       .op = op->number,
                       .floor = op->before.floor,
                       .ordering = &op->before,
                       .seed = emulator_random(),
                       .step_limit = emulator_step_limit()};
    memcpy(l.grid, op->grid, sizeof l.grid);
    memcpy(l.block, op->block, sizeof l.block);
    launch_run(&l);
    statistics.launches++;
    statistics.instructions += l.instructions;
    if (l.error) {
        driver.error = (CUresult)l.error;
    }
}

static void execute_allocation(const struct operation *op)
{
    uint64_t offset = op->to - device_memory.base;
    if (op->kind == OP_FREE) {
        if (!device_free(op->to)) {
            finding_report(FINDING_USE_AFTER_FREE, op->number,
                           "%s (operation %u): 0x%llx is freed already", op->call, op->number,
                           (unsigned long long)op->to);
        }
        return;
    }
    if (device_memory.state[offset] == BYTE_PROMISED || op->bytes == 0) {
        memset(device_memory.state + offset, BYTE_ALLOCATED, op->bytes);
        for (uint64_t i = 0; i < (op->bytes + GRANULE - 1) / GRANULE; i++) {
            device_memory.cells[offset / GRANULE + i] = CELL(op->number, BLOCK_COPY);
        }
    }
}

static void execute(struct operation *op)
{
    struct timespec now;
    switch (op->kind) {
    case OP_LAUNCH:
        execute_launch(op);
        break;
    case OP_UPLOAD:
    case OP_DOWNLOAD:
    case OP_COPY:
    case OP_FILL:
        execute_copy(op);
        break;
    case OP_ALLOCATE:
    case OP_FREE:
        execute_allocation(op);
        break;
    case OP_EVENT:
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (op->event) {
            op->event->has_time = true;
            op->event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        }
        break;
    case OP_HOST:
        op->host(op->data);
        break;
    case OP_LIBRARY:
        op->library(op->data, op);
        break;
    }
}

void run_one(void)
{
    if (!driver.n_pending) {
        return;
    }
    size_t i = choose();
    struct operation *op = driver.pending[i];
    /* it stays in the list while it runs: a host function may ask */
    if (!driver.error) {
        execute(op);
    }
    for (i = 0; i < driver.n_pending && driver.pending[i] != op; i++) {
    }
    memmove(&driver.pending[i], &driver.pending[i + 1],
            (driver.n_pending - i - 1) * sizeof *driver.pending);
    driver.n_pending--;
    operation_release(op);
    free(op);
}

CUresult run_until(const struct ordering *wanted)
{
    while (!driver.error && !is_done(wanted)) {
        run_one();
    }
    order_merge(&driver.host, wanted);
    return driver.error;
}

CUresult run_all(void)
{
    struct ordering all = {.floor = driver.last_number};
    return run_until(&all);
}

void forget_pending(void)
{
    for (size_t i = 0; i < driver.n_pending; i++) {
        operation_release(driver.pending[i]);
        free(driver.pending[i]);
    }
    driver.n_pending = 0;
}

/* ---- enqueueing ---- */

static void capture(CUstream stream, struct operation op)
{
    CUgraph g = stream->capture;
    if (g->n == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        struct operation *nodes = realloc(g->nodes, g->room * sizeof *nodes);
        if (!nodes) {
            fputs("CUDA emulator: the host has no memory for a graph\n", stderr);
            abort();
        }
        g->nodes = nodes;
    }
    op.number = g->n + 1;
    op.lane = stream->lane;
    order_merge(&op.before, &stream->capture_tail);
    order_add(&stream->capture_tail, op.number);
    g->nodes[g->n++] = op;
}

static void push(const struct operation *op)
{
    if (driver.n_pending == driver.pending_room) {
        driver.pending_room = driver.pending_room ? 2 * driver.pending_room : 64;
        struct operation **list = realloc(driver.pending, driver.pending_room * sizeof *list);
        if (!list) {
            fputs("CUDA emulator: the host has no memory for its streams\n", stderr);
            abort();
        }
        driver.pending = list;
    }
    driver.pending[driver.n_pending++] = copy_bytes(op, sizeof *op);
}

/* The null stream comes after all blocking streams and they after it. */
static void join_null_stream(CUstream stream)
{
    if (stream == &driver.null_stream) {
        for (CUstream s = driver.streams; s; s = s->next) {
            if (!(s->flags & STREAM_NON_BLOCKING)) {
                order_merge(&stream->tail, &s->tail);
            }
        }
    } else if (!(stream->flags & STREAM_NON_BLOCKING)) {
        order_merge(&stream->tail, &driver.null_stream.tail);
    }
}

CUresult enqueue(CUstream stream, struct operation op)
{
    if (stream->capture) {
        capture(stream, op);
        return CUDA_SUCCESS;
    }
    while (driver.n_pending >= MAX_PENDING && !driver.error) {
        run_one();
    }
    join_null_stream(stream);
    order_merge(&stream->tail, &driver.host);
    op.number = ++driver.last_number;
    op.lane = stream->lane;
    order_merge(&op.before, &stream->tail);
    order_add(&stream->tail, op.number);
    prepare_host_side(&op);
    push(&op);
    return driver.error;
}

/* A graph: its nodes with their own order, after all that came before in the stream. */
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (r || !IS_HANDLE(exec, EXEC) || !stream) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    if (stream->capture) {
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    join_null_stream(stream);
    order_merge(&stream->tail, &driver.host);
    uint32_t base = driver.last_number;
    struct ordering start = {0};
    order_merge(&start, &stream->tail);
    for (uint32_t i = 0; i < exec->n; i++) {
        struct operation op;
        operation_copy(&op, &exec->nodes[i]);
        struct ordering before = op.before;
        op.before = (struct ordering){0};
        order_merge(&op.before, &start);
        order_add_range(&op.before, base + 1, base + before.floor);
        for (uint32_t node = before.floor + 1; node <= i; node++) {
            if (order_before(&before, node)) {
                order_add(&op.before, base + node);
            }
        }
        order_free(&before);
        op.number = ++driver.last_number;
        prepare_host_side(&op);
        push(&op);
    }
    order_add_range(&stream->tail, base + 1, base + exec->n);
    order_free(&start);
    while (driver.n_pending >= MAX_PENDING && !driver.error) {
        run_one();
    }
    return driver_leave(driver.error);
}

EXPORT CUresult emulator_enqueue(CUstream handle, const char *call, library_function *function,
                                 const void *data, size_t bytes)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (r || !stream) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    return driver_leave(enqueue(stream, (struct operation){.kind = OP_LIBRARY,
                                                           .call = call,
                                                           .library = function,
                                                           .data = copy_bytes(data, bytes),
                                                           .data_bytes = bytes}));
}
