/* API calls of device memory, the pool, copies and fills. Allocation and release without a stream
 * happen at once: hardware waits for pending work in cuMemFree today, but does not promise it, so
 * work that is still pending then finds its memory freed. */
#include <string.h>

#include "device_memory.h"
#include "driver.h"

static struct {
    uint64_t used, used_high, threshold;
} pool;

struct CUmemPoolHandle_st {
    int unused;
};
static struct CUmemPoolHandle_st default_pool;

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUresult r = driver_enter();
    if (!r && (!address || !bytes)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    if (!r) {
        *address = device_allocate(bytes, "cuMemAlloc", false, false);
        r = *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult r = driver_enter();
    struct allocation a;
    if (!r && address && !device_free(address)) {
        bool is_twice = device_find(address, &a) && a.address == address && a.is_freed;
        finding_report(is_twice ? FINDING_USE_AFTER_FREE : FINDING_MISUSE, address,
                       "cuMemFree of 0x%llx: %s", address,
                       is_twice ? "it is freed already" : "not the start of an allocation");
        r = CUDA_ERROR_INVALID_VALUE;
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (!r && (!address || !bytes || !stream)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    if (!r && stream->capture) {
        r = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!r) {
        *address = device_allocate(bytes, "cuMemAllocAsync", false, true);
        r = *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!r) {
        pool.used += bytes;
        pool.used_high = pool.used > pool.used_high ? pool.used : pool.used_high;
        r = enqueue(stream, (struct operation){.kind = OP_ALLOCATE,
                                               .call = "cuMemAllocAsync",
                                               .to = *address,
                                               .bytes = bytes});
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool from,
                                        CUstream stream)
{
    return from == &default_pool ? cuMemAllocAsync(address, bytes, stream)
                                 : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    struct allocation a;
    if (!r && (!stream || !device_find(address, &a) || a.address != address)) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    if (!r) {
        pool.used -= a.is_async && a.bytes <= pool.used ? a.bytes : 0;
        r = enqueue(stream, (struct operation){.kind = OP_FREE,
                                               .call = "cuMemFreeAsync",
                                               .to = address,
                                               .bytes = a.bytes});
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
    CUresult r = driver_enter_without_context();
    if (!r && (device || !out)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!r) {
        *out = &default_pool;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(out, device);
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute attribute, void *value)
{
    CUresult r = driver_enter_without_context();
    if (!r && (p != &default_pool || !value)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!r && attribute == POOL_RELEASE_THRESHOLD) {
        memcpy(&pool.threshold, value, sizeof pool.threshold);
    } else if (!r && attribute == POOL_USED_HIGH) {
        pool.used_high = pool.used;
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute attribute, void *value)
{
    CUresult r = driver_enter_without_context();
    if (!r && (p != &default_pool || !value)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (!r && attribute >= POOL_RELEASE_THRESHOLD && attribute <= POOL_USED_HIGH) {
        /* nothing is cached: reserved is what is used */
        uint64_t answers[] = {pool.threshold, pool.used, pool.used_high, pool.used, pool.used_high};
        memcpy(value, &answers[attribute - POOL_RELEASE_THRESHOLD], sizeof *answers);
    } else if (!r) {
        int yes = 1; /* the reuse policies */
        memcpy(value, &yes, sizeof yes);
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t bytes)
{
    (void)bytes;
    return p == &default_pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult r = driver_enter();
    uint64_t available, all;
    if (!r) {
        device_memory_info(&available, &all);
        *free_bytes = available;
        *total = all;
    }
    return driver_leave(r);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    CUresult r = driver_enter();
    struct allocation a;
    if (!r && (!device_find(address, &a) || a.is_freed || address - a.address >= a.bytes)) {
        r = CUDA_ERROR_NOT_FOUND;
    }
    if (!r && base) {
        *base = a.address;
    }
    if (!r && bytes) {
        *bytes = a.bytes;
    }
    return driver_leave(r);
}

/* ---- copies ---- */

static CUresult copy(CUstream handle, struct operation op)
{
    CUresult r = driver_enter();
    CUstream stream = stream_of(handle);
    if (!r && !stream) {
        r = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!r && !op.bytes) {
        return driver_leave(CUDA_SUCCESS);
    }
    bool to_device = op.kind != OP_DOWNLOAD,
         from_device = op.kind == OP_DOWNLOAD || op.kind == OP_COPY;
    if (!r && ((to_device && !check_device_range(op.call, op.to, op.bytes)) ||
               (from_device && !check_device_range(op.call, op.from, op.bytes)))) {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    r = r ? r : enqueue(stream, op);
    /* into pageable memory the driver copies before it returns */
    if (!r && op.kind == OP_DOWNLOAD && !stream->capture &&
        !is_pinned((void *)(uintptr_t)op.to, op.bytes)) {
        r = run_until(&stream->tail);
    }
    return driver_leave(r);
}

/* The calls without a stream use the null stream; host memory is done with when they return. */
static CUresult copy_now(struct operation op)
{
    CUresult r = driver_enter();
    if (!r && driver.capturing) {
        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    r = r ? r : copy(NULL, op);
    if (!r && op.kind != OP_COPY && op.kind != OP_FILL) {
        r = run_until(&driver.null_stream.tail);
    }
    return driver_leave(r);
}

static struct operation upload(CUdeviceptr to, const void *from, size_t bytes, const char *call)
{
    return (struct operation){
        .kind = OP_UPLOAD, .call = call, .to = to, .from = (uintptr_t)from, .bytes = bytes};
}

static struct operation download(void *to, CUdeviceptr from, size_t bytes, const char *call)
{
    return (struct operation){
        .kind = OP_DOWNLOAD, .call = call, .to = (uintptr_t)to, .from = from, .bytes = bytes};
}

static struct operation move(CUdeviceptr to, CUdeviceptr from, size_t bytes, const char *call)
{
    return (struct operation){
        .kind = OP_COPY, .call = call, .to = to, .from = from, .bytes = bytes};
}

static struct operation fill(CUdeviceptr to, uint32_t value, uint32_t width, size_t n,
                             const char *call)
{
    return (struct operation){.kind = OP_FILL,
                              .call = call,
                              .to = to,
                              .value = value,
                              .width = width,
                              .bytes = n * width};
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_now(upload(to, from, bytes, "cuMemcpyHtoD"));
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_now(download(to, from, bytes, "cuMemcpyDtoH"));
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now(move(to, from, bytes, "cuMemcpyDtoD"));
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                     CUstream stream)
{
    return copy(stream, upload(to, from, bytes, "cuMemcpyHtoDAsync"));
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(stream, download(to, from, bytes, "cuMemcpyDtoHAsync"));
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    return copy(stream, move(to, from, bytes, "cuMemcpyDtoDAsync"));
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n)
{
    return copy_now(fill(to, value, 1, n, "cuMemsetD8"));
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n)
{
    return to % 2 ? CUDA_ERROR_INVALID_VALUE : copy_now(fill(to, value, 2, n, "cuMemsetD16"));
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t n)
{
    return to % 4 ? CUDA_ERROR_INVALID_VALUE : copy_now(fill(to, value, 4, n, "cuMemsetD32"));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
    return copy(stream, fill(to, value, 1, n, "cuMemsetD8Async"));
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream)
{
    return to % 2 ? CUDA_ERROR_INVALID_VALUE
                  : copy(stream, fill(to, value, 2, n, "cuMemsetD16Async"));
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
    return to % 4 ? CUDA_ERROR_INVALID_VALUE
                  : copy(stream, fill(to, value, 4, n, "cuMemsetD32Async"));
}
