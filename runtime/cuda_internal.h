/* What the files of the CUDA backend share. CUDA types stay in these files. */
#ifndef ATOLL_RUNTIME_CUDA_INTERNAL_H
#define ATOLL_RUNTIME_CUDA_INTERNAL_H

#include "runtime/backend.h"
#include "runtime/cublaslt.h"
#include "runtime/cuda_api.h"

struct cuda_block {
    CUdeviceptr address;
    size_t bytes;
    bool is_used;
};

struct cuda_device {
    struct device base; /* first: a struct device * is one of these */
    struct cuda_api api;
    CUdevice device;
    CUcontext context;
    CUstream compute, copies;
    CUevent computed, uploaded;
    bool has_uploads; /* since the last uploads_wait */
    int multiprocessors, threads_of_one;
    struct cuda_block *blocks; /* the pool: memory taken from the driver */
    uint32_t n_blocks, block_capacity;
    struct cublaslt *blas; /* opened by the first contraction */
    char *libcublaslt;
    bool allows_tf32;
};

/* A checked call of the driver, from a function that returns status. */
#define CUDA(d, call, subject, e, ...)                                                             \
    TRY(cuda_check(&(d)->api, (d)->api.call(__VA_ARGS__), #call, subject, e))

/* Makes the device's context the calling thread's: another thread, or another device, may have been
 * at work since. First in every entry of the backend. */
#define ENTER(d, e) CUDA(d, cuCtxSetCurrent, NULL, e, (d)->context)

status cuda_allocate(struct device *base, size_t bytes, void **out, struct error *e);
void cuda_release(struct device *base, void *memory);
void cuda_pool_free(struct cuda_device *d);

status cuda_load(struct device *base, const struct device_code *code, void **out, struct error *e);
void cuda_unload(struct device *base, void *loaded);
status cuda_find(struct device *base, void *loaded, const char *symbol, void **out,
                 struct error *e);

#endif
