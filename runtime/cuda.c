/* The CUDA backend: a device's context, its two streams (compute; copies) and what runs on them.
 * Uploads go on the copy stream between two events: they wait for the work that reads the old
 * contents, and later work waits for them. Invariant: every failing call is named with the kernel
 * or size it was about. */
#include "cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PINNED_HEAD = 64 };

static struct cuda_device *of(struct device *base)
{
    return (struct cuda_device *)base;
}

static CUdeviceptr address_of(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

/* ---- opening ---- */

static status read_properties(struct cuda_device *d, int ordinal, struct error *e)
{
    char name[80];
    int major = 0, minor = 0;
    CUDA(d, cuDeviceGetName, NULL, e, name, (int)sizeof name, d->device);
    CUDA(d, cuDeviceGetAttribute, "compute capability", e, &major, ATOLL_CUDA_MAJOR, d->device);
    CUDA(d, cuDeviceGetAttribute, "compute capability", e, &minor, ATOLL_CUDA_MINOR, d->device);
    CUDA(d, cuDeviceGetAttribute, "multiprocessors", e, &d->multiprocessors,
         ATOLL_CUDA_MULTIPROCESSORS, d->device);
    CUDA(d, cuDeviceGetAttribute, "threads", e, &d->threads_of_one, ATOLL_CUDA_THREADS_OF_ONE,
         d->device);
    snprintf(d->base.arch, sizeof d->base.arch, "sm_%d%d", major, minor);
    snprintf(d->base.name, sizeof d->base.name, "cuda:%d (%s, %s, driver for CUDA %d.%d)", ordinal,
             name, d->base.arch, d->api.driver / 1000, d->api.driver % 1000 / 10);
    return ATOLL_OK;
}

static status start(struct cuda_device *d, int ordinal, const struct device_options *o,
                    struct error *e)
{
    int count = 0;
    TRY(cuda_api_open(o->libcuda, &d->api, e));
    CUDA(d, cuDeviceGetCount, NULL, e, &count);
    if (ordinal >= count) {
        return fail(e, ATOLL_NOT_FOUND, "cuda:%d: there are %d CUDA devices, numbered from 0",
                    ordinal, count);
    }
    CUDA(d, cuDeviceGet, NULL, e, &d->device, ordinal);
    TRY(read_properties(d, ordinal, e));
    CUDA(d, cuDevicePrimaryCtxRetain, d->base.name, e, &d->context, d->device);
    CUDA(d, cuCtxSetCurrent, d->base.name, e, d->context);
    CUDA(d, cuStreamCreate, "compute", e, &d->compute, ATOLL_CUDA_NON_BLOCKING);
    CUDA(d, cuStreamCreate, "copies", e, &d->copies, ATOLL_CUDA_NON_BLOCKING);
    CUDA(d, cuEventCreate, "computed", e, &d->computed, ATOLL_CUDA_NO_TIMING);
    CUDA(d, cuEventCreate, "uploaded", e, &d->uploaded, ATOLL_CUDA_NO_TIMING);
    return ATOLL_OK;
}

static void cuda_close(struct device *base)
{
    struct cuda_device *d = of(base);
    if (d->context != NULL) {
        (void)d->api.cuCtxSetCurrent(d->context);
        cublaslt_close(d->blas);
        cuda_pool_free(d);
    }
    CUevent events[] = {d->computed, d->uploaded};
    for (uint32_t i = 0; i < ARRAY_LEN(events); i++) {
        if (events[i] != NULL) {
            (void)d->api.cuEventDestroy(events[i]);
        }
    }
    if (d->copies != NULL) {
        (void)d->api.cuStreamDestroy(d->copies);
    }
    if (d->compute != NULL) {
        (void)d->api.cuStreamDestroy(d->compute);
    }
    if (d->context != NULL) {
        (void)d->api.cuCtxSetCurrent(NULL);
        (void)d->api.cuDevicePrimaryCtxRelease(d->device);
    }
    cuda_api_close(&d->api);
    free(d->libcublaslt);
    free(d->blocks);
    free(d);
}

static status cuda_open(int ordinal, const struct device_options *o, struct device **out,
                        struct error *e)
{
    struct cuda_device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    d->base.backend = &cuda_backend;
    d->allows_tf32 = o->allows_tf32;
    d->base.log = o->log;
    d->base.log_context = o->log_context;
    if (o->libcublaslt != NULL) {
        d->libcublaslt = malloc(strlen(o->libcublaslt) + 1);
        if (d->libcublaslt != NULL) {
            strcpy(d->libcublaslt, o->libcublaslt);
        }
    }
    status code = start(d, ordinal, o, e);
    if (code != ATOLL_OK) {
        cuda_close(&d->base);
        return code;
    }
    *out = &d->base;
    return ATOLL_OK;
}

static status cuda_count(const struct device_options *o, int *out, struct error *e)
{
    struct cuda_api api;
    TRY(cuda_api_open(o->libcuda, &api, e));
    status code = cuda_check(&api, api.cuDeviceGetCount(out), "cuDeviceGetCount", NULL, e);
    cuda_api_close(&api);
    return code;
}

/* ---- copies ---- */

static status cuda_allocate_host(struct device *base, size_t bytes, void **out, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    void *block = NULL; /* its size stands before what is lent */
    CUDA(d, cuMemAllocHost, NULL, e, &block, bytes + PINNED_HEAD);
    memcpy(block, &bytes, sizeof bytes);
    *out = (char *)block + PINNED_HEAD;
    base->memory.pinned += bytes;
    return ATOLL_OK;
}

static void cuda_release_host(struct device *base, void *memory)
{
    if (memory != NULL) {
        void *block = (char *)memory - PINNED_HEAD;
        size_t bytes;
        memcpy(&bytes, block, sizeof bytes);
        base->memory.pinned -= bytes;
        (void)of(base)->api.cuCtxSetCurrent(of(base)->context);
        (void)of(base)->api.cuMemFreeHost(block);
    }
}

static status cuda_uploads_begin(struct device *base, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuEventRecord, "computed", e, d->computed, d->compute);
    CUDA(d, cuStreamWaitEvent, "computed", e, d->copies, d->computed, 0);
    return ATOLL_OK;
}

static status cuda_upload(struct device *base, void *to, const void *from, size_t bytes,
                          struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuMemcpyHtoDAsync, "upload", e, address_of(to), from, bytes, d->copies);
    return ATOLL_OK;
}

static status cuda_uploads_end(struct device *base, struct error *e)
{
    struct cuda_device *d = of(base);
    CUDA(d, cuEventRecord, "uploaded", e, d->uploaded, d->copies);
    CUDA(d, cuStreamWaitEvent, "uploaded", e, d->compute, d->uploaded, 0);
    d->has_uploads = true;
    return ATOLL_OK;
}

static status cuda_uploads_wait(struct device *base, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    if (d->has_uploads) {
        CUDA(d, cuEventSynchronize, "uploaded", e, d->uploaded);
        d->has_uploads = false;
    }
    return ATOLL_OK;
}

/* ---- marks: events ---- */

static CUstream queue_of(const struct cuda_device *d, enum device_queue queue)
{
    return queue == QUEUE_COPIES ? d->copies : d->compute;
}

static status cuda_mark(struct device *base, enum device_queue queue, void **mark, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    if (*mark == NULL) {
        CUevent fresh = NULL;
        CUDA(d, cuEventCreate, "mark", e, &fresh, ATOLL_CUDA_NO_TIMING);
        *mark = fresh;
    }
    CUDA(d, cuEventRecord, "mark", e, (CUevent)*mark, queue_of(d, queue));
    return ATOLL_OK;
}

static status cuda_await(struct device *base, enum device_queue queue, void *mark, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuStreamWaitEvent, "mark", e, queue_of(d, queue), (CUevent)mark, 0);
    return ATOLL_OK;
}

static status cuda_has_passed(struct device *base, void *mark, bool *out, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUresult code = d->api.cuEventQuery((CUevent)mark);
    *out = code == 0;
    return code == ATOLL_CUDA_NOT_READY ? ATOLL_OK
                                        : cuda_check(&d->api, code, "cuEventQuery", "mark", e);
}

static status cuda_settle(struct device *base, void *mark, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuEventSynchronize, "mark", e, (CUevent)mark);
    return ATOLL_OK;
}

static void cuda_unmark(struct device *base, void *mark)
{
    if (mark != NULL) {
        (void)of(base)->api.cuCtxSetCurrent(of(base)->context);
        (void)of(base)->api.cuEventDestroy((CUevent)mark);
    }
}

/* ---- copies in order with work ---- */

static status cuda_download(struct device *base, void *to, const void *from, size_t bytes,
                            struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuMemcpyDtoHAsync, "download", e, to, address_of(from), bytes, d->compute);
    CUDA(d, cuStreamSynchronize, "download", e, d->compute);
    return ATOLL_OK;
}

static status cuda_copy(struct device *base, void *to, const void *from, size_t bytes,
                        struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuMemcpyDtoDAsync, "copy", e, address_of(to), address_of(from), bytes, d->compute);
    return ATOLL_OK;
}

static status cuda_wait(struct device *base, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuStreamSynchronize, "copies", e, d->copies);
    CUDA(d, cuStreamSynchronize, "compute", e, d->compute);
    d->has_uploads = false;
    return ATOLL_OK;
}

/* ---- work ---- */

/* Kernels stride over their grid: more blocks than the device holds a few times over bring
 * nothing. */
static unsigned int grid_of(const struct cuda_device *d, const struct device_launch *l)
{
    uint64_t threads = (uint64_t)l->block_x * l->block_y;
    uint64_t resident = (uint64_t)d->threads_of_one / threads;
    uint64_t most = (uint64_t)d->multiprocessors * (resident > 0 ? resident : 1) * 4;
    return (unsigned int)(l->blocks < most ? l->blocks : most);
}

static status cuda_launch(struct device *base, const struct device_launch *l, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuLaunchKernel, l->symbol, e, (CUfunction)l->function, grid_of(d, l), 1, 1, l->block_x,
         l->block_y, 1, 0, d->compute, l->parameters, NULL);
    return ATOLL_OK;
}

static status need_blas(struct cuda_device *d, struct error *e)
{
    ENTER(d, e);
    return d->blas != NULL ? ATOLL_OK
                           : cublaslt_open(d->libcublaslt, &d->base, d->allows_tf32, &d->blas, e);
}

static status cuda_contract(struct device *base, const struct contraction *c, const void *a,
                            const void *b, const void *bias, void *out, struct error *e)
{
    struct cuda_device *d = of(base);
    TRY(need_blas(d, e));
    return cublaslt_run(d->blas, c, a, b, bias, out, d->compute, e);
}

static status cuda_choose(struct device *base, const struct contraction *c, const void *a,
                          const void *b, const void *bias, const void *out, struct error *e)
{
    TRY(need_blas(of(base), e));
    return cublaslt_choose(of(base)->blas, c, a, b, bias, out, e);
}

static status cuda_choices(struct device *base, const struct contraction_choice **out, uint32_t *n,
                           struct error *e)
{
    TRY(need_blas(of(base), e));
    return cublaslt_choices(of(base)->blas, out, n, e);
}

static status cuda_recall(struct device *base, const struct contraction_choice *choices, uint32_t n,
                          struct error *e)
{
    if (n == 0) {
        return ATOLL_OK;
    }
    TRY(need_blas(of(base), e));
    return cublaslt_recall(of(base)->blas, choices, n, e);
}

static status cuda_contract_scaled(struct device *base, const struct scaled_product *p,
                                   const void *const operands[4], void *out, struct error *e)
{
    struct cuda_device *d = of(base);
    TRY(need_blas(d, e));
    return cublaslt_run_scaled(d->blas, p, operands, out, d->compute, e);
}

/* ---- recording a step ---- */

static status cuda_record_begin(struct device *base, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuStreamBeginCapture, "step", e, d->compute, ATOLL_CUDA_CAPTURE_THREAD);
    return ATOLL_OK;
}

static status cuda_record_end(struct device *base, void **out, struct error *e)
{
    struct cuda_device *d = of(base);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUDA(d, cuStreamEndCapture, "step", e, d->compute, &graph);
    status code = cuda_check(&d->api, d->api.cuGraphInstantiate(&exec, graph, 0),
                             "cuGraphInstantiate", "step", e);
    (void)d->api.cuGraphDestroy(graph);
    *out = exec;
    return code;
}

static status cuda_replay(struct device *base, void *recording, struct error *e)
{
    struct cuda_device *d = of(base);
    ENTER(d, e);
    CUDA(d, cuGraphLaunch, "step", e, (CUgraphExec)recording, d->compute);
    return ATOLL_OK;
}

static void cuda_record_free(struct device *base, void *recording)
{
    if (recording != NULL) {
        (void)of(base)->api.cuGraphExecDestroy((CUgraphExec)recording);
    }
}

const struct backend cuda_backend = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .count = cuda_count,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .uploads_begin = cuda_uploads_begin,
    .upload = cuda_upload,
    .uploads_end = cuda_uploads_end,
    .uploads_wait = cuda_uploads_wait,
    .mark = cuda_mark,
    .await = cuda_await,
    .has_passed = cuda_has_passed,
    .settle = cuda_settle,
    .unmark = cuda_unmark,
    .download = cuda_download,
    .copy = cuda_copy,
    .wait = cuda_wait,
    .load = cuda_load,
    .unload = cuda_unload,
    .find = cuda_find,
    .launch = cuda_launch,
    .contract = cuda_contract,
    .choose = cuda_choose,
    .choices = cuda_choices,
    .recall = cuda_recall,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .record_free = cuda_record_free,
    .contract_scaled = cuda_contract_scaled,
};
