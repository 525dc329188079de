/* The part of the CUDA Driver API's types that the emulator implements, declared by us so that it
 * builds without the toolkit. Handles are pointers to the emulator's own structures. Enumerations
 * are numbers of the same width as the real ones; only values the emulator looks at have names. */
#ifndef ATOLL_EMULATOR_CUDA_TYPES_H
#define ATOLL_EMULATOR_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum {
#define X(name, value) name = value,
#include "cuda_constants.def"
#undef X
#define X(name, number, value) name = number,
#include "cuda_attributes.def"
#undef X
};

typedef unsigned int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
typedef void (*CUhostFn)(void *data);
typedef unsigned int CUdevice_attribute, CUfunction_attribute, CUjit_option, CUmemPool_attribute,
    CUstreamCaptureMode, CUstreamCaptureStatus, CUdriverProcAddressQueryResult;

enum {
    FUNC_MAX_THREADS = 0,
    FUNC_SHARED = 1,
    FUNC_CONST = 2,
    FUNC_LOCAL = 3,
    FUNC_REGISTERS = 4,
    FUNC_PTX_VERSION = 5,
    FUNC_BINARY_VERSION = 6,
    FUNC_MAX_DYNAMIC_SHARED = 8,
    FUNC_PREFERRED_CARVEOUT = 9
};
enum { JIT_INFO_LOG = 3, JIT_INFO_LOG_BYTES = 4, JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6 };
enum {
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED = 7,
    POOL_USED_HIGH = 8
};
enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2 };
enum { CAPTURE_NONE = 0, CAPTURE_ACTIVE = 1 };

#define EMULATED_MULTIPROCESSORS 8
#define SHARED_DEFAULT           49152  /* of a block, without asking */
#define SHARED_MOST              232448 /* with CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */

/* Settings from the environment (settings.c). */
int emulator_threads(
    void);               /* ATOLL_EMULATOR_THREADS: host threads for blocks; default: processors */
int emulator_arch(void); /* ATOLL_EMULATOR_ARCH: 90 for sm_90 */
/* ATOLL_EMULATOR_STEPS: instructions times lanes after which a warp counts as endless; default 2^33
 */
uint64_t emulator_step_limit(void);
uint64_t emulator_random(void); /* from ATOLL_EMULATOR_SEED (default 1) */

#endif
