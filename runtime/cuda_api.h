/* The CUDA Driver API by dlopen: a table of the calls of cuda_api.def. Types are declared here;
 * with ATOLL_REAL_CUDA_H they come from the toolkit's cuda.h, which is how a test holds these
 * declarations against the real ones. */
#ifndef ATOLL_RUNTIME_CUDA_API_H
#define ATOLL_RUNTIME_CUDA_API_H

#include "ir/base.h"

#ifdef ATOLL_REAL_CUDA_H
#include <cuda.h>
#else
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUjit_option;
typedef int CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
#endif

enum {
    ATOLL_CUDA_OUT_OF_MEMORY = 2,
    ATOLL_CUDA_NOT_FOUND = 500,
    ATOLL_CUDA_NOT_READY = 600,
    ATOLL_CUDA_NON_BLOCKING = 1,     /* of a stream */
    ATOLL_CUDA_NO_TIMING = 2,        /* of an event */
    ATOLL_CUDA_CAPTURE_THREAD = 1,   /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
    ATOLL_CUDA_JIT_ERROR_LOG = 5,    /* CU_JIT_ERROR_LOG_BUFFER */
    ATOLL_CUDA_JIT_ERROR_SIZE = 6,   /* CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES */
    ATOLL_CUDA_MULTIPROCESSORS = 16, /* device attributes */
    ATOLL_CUDA_THREADS_OF_ONE = 39,
    ATOLL_CUDA_MAJOR = 75,
    ATOLL_CUDA_MINOR = 76
};

struct cuda_api {
    void *library;
    int driver; /* 13000: CUDA 13.0 */
#define X(name, symbol, args, names) CUresult(*name) args;
#include "cuda_api.def"
#undef X
};

/* path NULL: libcuda.so.1. NOT_FOUND when there is no library or no device, with the remedy. */
status cuda_api_open(const char *path, struct cuda_api *out, struct error *e);
void cuda_api_close(struct cuda_api *api);
/* OK, or a status that names call, subject (may be NULL) and what the driver says. */
status cuda_check(const struct cuda_api *api, CUresult code, const char *call, const char *subject,
                  struct error *e);

#endif
