/* API calls of streams, events, capture and graphs. A capture collects operations instead of
 * enqueueing them; streams join it by waiting for an event recorded in it, and must be back before
 * it ends. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

CUstream stream_of(CUstream handle)
{
    if (!handle || (uintptr_t)handle <= 2) { /* legacy and per-thread default stream */
        return &driver.null_stream;
    }
    for (CUstream s = driver.streams; s; s = s->next) {
        if (s == handle) {
            return s;
        }
    }
    return NULL;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    (void)priority;
    CUresult r = driver_enter();
    struct CUstream_st *s = NULL;
    if (!r && (!out || flags > STREAM_NON_BLOCKING)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    if (!r) {
        s = calloc(1, sizeof *s);
        r = s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!r) {
        s->magic = MAGIC_STREAM;
        s->lane = ++driver.last_lane;
        s->flags = flags;
        s->next = driver.streams;
        driver.streams = s;
        *out = s;
    }
    return driver_leave(r);
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
    CUresult r = driver_enter();
    CUstream *link = &driver.streams;
    while (!r && *link && *link != handle) {
        link = &(*link)->next;
    }
    if (!r && (!*link || handle->capture)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!r) { /* its operations still run: they do not need it */
        *link = handle->next;
        handle->magic = 0;
        order_free(&handle->tail);
        free(handle);
    }
    return driver_leave(r);
}

EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && !s) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && (s->capture || (s == &driver.null_stream && driver.capturing))) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return driver_leave(r ? r : run_until(&s->tail));
}

/* What is asked for may or may not be done: sometimes something runs before the answer. */
static CUresult query(const struct ordering *set)
{
    if (emulator_random() % 2) {
        run_one();
    }
    if (driver.error) {
        return driver.error;
    }
    if (!is_done(set)) {
        return CUDA_ERROR_NOT_READY;
    }
    order_merge(&driver.host, set);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream handle)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && !s) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && s->capture) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return driver_leave(r ? r : query(&s->tail));
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && !s) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r) {
        *flags = s->flags;
    }
    return driver_leave(r);
}

/* ---- events ---- */

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    CUresult r = driver_enter();
    struct CUevent_st *e = NULL;
    if (!r) {
        e = calloc(1, sizeof *e);
        r = e && out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!r) {
        e->magic = MAGIC_EVENT;
        e->flags = flags;
        e->next = driver.events;
        driver.events = e;
        *out = e;
    }
    return driver_leave(r);
}

static CUevent *find_event(CUevent event)
{
    CUevent *link = &driver.events;
    while (*link && *link != event) {
        link = &(*link)->next;
    }
    return *link ? link : NULL;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult r = driver_enter();
    CUevent *link = find_event(event);
    if (!r && !link) {
        r = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!r) {
        *link = event->next;
        for (size_t i = 0; i < driver.n_pending; i++) {
            driver.pending[i]->event =
                driver.pending[i]->event == event ? NULL : driver.pending[i]->event;
        }
        order_free(&event->at);
        order_free(&event->capture_at);
        free(event);
    }
    return driver_leave(r);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream handle)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (r || !find_event(event) || !s) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    if (s->capture) {
        order_free(&event->capture_at);
        event->capture = s->capture;
        order_merge(&event->capture_at, &s->capture_tail);
        return driver_leave(CUDA_SUCCESS);
    }
    event->capture = NULL;
    event->has_time = false;
    event->is_recorded = true;
    r = enqueue(s, (struct operation){.kind = OP_EVENT, .call = "cuEventRecord", .event = event});
    order_free(&event->at);
    order_merge(&event->at, &s->tail);
    return driver_leave(r);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    return flags ? CUDA_ERROR_NOT_SUPPORTED : cuEventRecord(event, stream);
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    (void)flags;
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (r || !s || !find_event(event)) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_HANDLE);
    }
    if (event->capture && (!s->capture || s->capture == event->capture)) {
        s->capture = event->capture;
        order_merge(&s->capture_tail, &event->capture_at);
    } else if (event->capture || s->capture) {
        r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    } else if (event->is_recorded) {
        order_merge(&s->tail, &event->at);
    }
    return driver_leave(r);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    CUresult r = driver_enter();
    if (!r && !find_event(event)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && event->capture) {
        r = CUDA_ERROR_CAPTURED_EVENT;
    }
    return driver_leave(r ? r : query(&event->at));
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    CUresult r = driver_enter();
    if (!r && !find_event(event)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && event->capture) {
        r = CUDA_ERROR_CAPTURED_EVENT;
    }
    return driver_leave(r ? r : run_until(&event->at));
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    CUresult r = driver_enter();
    if (!r && (!find_event(start) || !find_event(end) || !start->is_recorded || !end->is_recorded ||
               (start->flags | end->flags) & EVENT_DISABLE_TIMING)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r && (!start->has_time || !end->has_time)) {
        r = CUDA_ERROR_NOT_READY;
    } else if (!r) {
        *milliseconds = (float)(end->milliseconds - start->milliseconds);
    }
    return driver_leave(r);
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* ---- capture ---- */

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    (void)mode;
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && (!s || s == &driver.null_stream)) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (!r && s->capture) {
        r = CUDA_ERROR_ILLEGAL_STATE;
    }
    struct CUgraph_st *g = r ? NULL : calloc(1, sizeof *g);
    if (g) {
        g->magic = MAGIC_GRAPH;
        order_free(&s->capture_tail);
        s->capture = g;
        s->is_capture_origin = true;
        driver.capturing++;
    }
    return driver_leave(r ? r : g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static void leave_capture(CUgraph g)
{
    for (CUstream s = driver.streams; s; s = s->next) {
        if (s->capture == g) {
            s->capture = NULL;
            s->is_capture_origin = false;
            order_free(&s->capture_tail);
        }
    }
    for (CUevent e = driver.events; e; e = e->next) {
        e->capture = e->capture == g ? NULL : e->capture;
    }
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && (!s || !s->capture || !out)) {
        r = CUDA_ERROR_ILLEGAL_STATE;
    } else if (!r && !s->is_capture_origin) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (r) {
        return driver_leave(r);
    }
    CUgraph g = s->capture;
    for (uint32_t node = 1; node <= g->n && !r; node++) {
        if (!order_before(&s->capture_tail, node)) {
            r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED; /* another stream did not come back */
        }
    }
    leave_capture(g);
    driver.capturing--;
    *out = r ? NULL : g;
    if (r) {
        cuGraphDestroy(g);
    }
    return driver_leave(r);
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUresult r = driver_enter();
    CUstream s = stream_of(handle);
    if (!r && (!s || !status)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r) {
        *status = s->capture ? CAPTURE_ACTIVE : CAPTURE_NONE;
    }
    return driver_leave(r);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static _Thread_local CUstreamCaptureMode present;
    CUstreamCaptureMode old = present;
    present = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- graphs; cuGraphLaunch: stream_work.c ---- */

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)flags;
    CUresult r = driver_enter();
    if (r || !IS_HANDLE(g, GRAPH) || !out) {
        return driver_leave(r ? r : CUDA_ERROR_INVALID_VALUE);
    }
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
    struct operation *nodes = calloc(g->n + 1, sizeof *nodes);
    if (!exec || !nodes) {
        free(exec);
        free(nodes);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        operation_copy(&nodes[i], &g->nodes[i]);
    }
    *exec = (struct CUgraphExec_st){MAGIC_EXEC, nodes, g->n};
    *out = exec;
    return driver_leave(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    CUresult r = driver_enter();
    return driver_leave(r                                            ? r
                        : IS_HANDLE(exec, EXEC) && stream_of(stream) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_HANDLE);
}

static void release_nodes(struct operation *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        operation_release(&nodes[i]);
    }
    free(nodes);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    CUresult r = driver_enter_without_context();
    if (!r && !IS_HANDLE(exec, EXEC)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r) {
        release_nodes(exec->nodes, exec->n);
        exec->magic = 0;
        free(exec);
    }
    return driver_leave(r);
}

EXPORT CUresult cuGraphDestroy(CUgraph g)
{
    CUresult r = driver_enter_without_context();
    if (!r && !IS_HANDLE(g, GRAPH)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!r) {
        release_nodes(g->nodes, g->n);
        g->magic = 0;
        free(g);
    }
    return driver_leave(r);
}

EXPORT CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
    CUresult r = driver_enter();
    if (!r && (!IS_HANDLE(g, GRAPH) || nodes)) {
        r = nodes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
    } else if (!r) {
        *n = g->n;
    }
    return driver_leave(r);
}
