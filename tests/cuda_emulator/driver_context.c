/* API calls of the device, contexts and errors. One device; contexts share its memory, as they
 * would one address space. When the last context ends, live memory is a leak and everything goes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"
#include "driver.h"
#include "ptx.h"

struct driver driver = {.null_stream = {.magic = MAGIC_STREAM}};

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static _Thread_local CUcontext current[16]; /* a stack; the top is the current context */
static _Thread_local int n_current;
static CUcontext destroyed;
static struct CUctx_st primary = {.magic = MAGIC_CONTEXT, .is_primary = true};

static void make_lock(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

CUresult driver_enter_without_context(void)
{
    pthread_once(&lock_once, make_lock);
    pthread_mutex_lock(&lock);
    return driver.is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUcontext current_context(void)
{
    CUcontext c = n_current ? current[n_current - 1] : NULL;
    return IS_HANDLE(c, CONTEXT) && (!c->is_primary || c->retained) ? c : NULL;
}

CUresult driver_enter(void)
{
    CUresult r = driver_enter_without_context();
    if (!r && !current_context()) {
        r = n_current && current[n_current - 1] ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                : CUDA_ERROR_INVALID_CONTEXT;
    }
    return r ? r : driver.error;
}

CUresult driver_leave(CUresult result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    driver_enter_without_context();
    if (flags) {
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    }
    driver.is_initialized = driver.is_initialized || device_memory_open();
    return driver_leave(driver.is_initialized ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = 13000;
    return CUDA_SUCCESS;
}

/* ---- the device ---- */

static CUresult check_device(CUdevice device, const void *out)
{
    CUresult r = driver_enter_without_context();
    return r             ? r
           : device != 0 ? CUDA_ERROR_INVALID_DEVICE
           : !out        ? CUDA_ERROR_INVALID_VALUE
                         : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult r = check_device(ordinal, device);
    if (!r) {
        *device = 0;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    CUresult r = check_device(0, count);
    if (!r) {
        *count = 1;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult r = check_device(device, name);
    if (!r && length > 0) {
        snprintf(name, (size_t)length, "Atoll emulated GPU (sm_%d)", emulator_arch());
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult r = check_device(device, value);
    if (!r) {
        switch (attribute) {
#define X(name, number, answer)                                                                    \
    case number:                                                                                   \
        *value = answer;                                                                           \
        break;
#include "cuda_attributes.def"
#undef X
        default:
            *value = 0; /* a feature it does not have */
        }
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult r = check_device(device, bytes);
    uint64_t unused, total;
    if (!r) {
        device_memory_info(&unused, &total);
        *bytes = total;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult r = check_device(device, uuid);
    if (!r) {
        memcpy(uuid->bytes, "atoll emulated 0", 16);
    }
    return driver_leave(r);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    CUresult r = check_device(device, id);
    if (!r && length > 0) {
        snprintf(id, (size_t)length, "0000:00:00.0");
    }
    return driver_leave(r);
}

EXPORT int emulator_compute_capability(void)
{
    return emulator_arch();
}

/* ---- contexts ---- */

/* The last context ends: what is pending runs, what lives is reported, all goes. */
static void end_contexts(void)
{
    run_all();
    forget_pending();
    device_report_leaks();
    release_pinned();
    while (driver.modules) {
        cuModuleUnload(driver.modules);
    }
    while (driver.streams) { /* a stale handle is no longer in the lists */
        CUstream s = driver.streams;
        driver.streams = s->next;
        order_free(&s->tail);
        order_free(&s->capture_tail);
        free(s);
    }
    while (driver.events) {
        CUevent e = driver.events;
        driver.events = e->next;
        order_free(&e->at);
        order_free(&e->capture_at);
        free(e);
    }
    device_free_all();
    order_free(&driver.null_stream.tail);
    driver.host.floor = driver.last_number;
    driver.error = CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult r = check_device(device, context);
    if (!r) {
        driver.n_contexts += primary.retained++ == 0;
        *context = &primary;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult r = check_device(device, &primary);
    if (!r && primary.retained == 0) {
        r = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!r && primary.retained == 1) {
        if (--driver.n_contexts == 0) {
            end_contexts();
        }
        primary.retained = 0;
    } else if (!r) {
        primary.retained--;
    }
    return driver_leave(r);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult r = check_device(device, &primary);
    if (!r && primary.retained) {
        end_contexts();
    }
    return driver_leave(r);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    (void)flags;
    return driver_leave(check_device(device, &primary));
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult r = check_device(device, active);
    if (!r) {
        *active = primary.retained != 0;
        if (flags) {
            *flags = 0;
        }
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
    (void)flags;
    CUresult r = check_device(device, context);
    struct CUctx_st *c = NULL;
    if (!r && params) {
        r = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!r) {
        c = calloc(1, sizeof *c);
        r = c && n_current < 16 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!r) {
        c->magic = MAGIC_CONTEXT;
        driver.n_contexts++;
        current[n_current++] = c;
        *context = c;
    } else {
        free(c);
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult r = driver_enter_without_context();
    if (!r && (!IS_HANDLE(context, CONTEXT) || context->is_primary)) {
        r = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!r) {
        if (--driver.n_contexts == 0) {
            end_contexts();
        }
        n_current -= n_current && current[n_current - 1] == context;
        context->magic = 0; /* threads may still have it as current: they see that it is gone */
        context->next = destroyed;
        destroyed = context;
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult r = driver_enter_without_context();
    if (!r && context && !IS_HANDLE(context, CONTEXT)) {
        r = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!r) {
        n_current = n_current ? n_current : 1;
        current[n_current - 1] = context;
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult r = check_device(0, context);
    if (!r) {
        *context = n_current ? current[n_current - 1] : NULL;
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult r = driver_enter_without_context();
    if (!r && (!IS_HANDLE(context, CONTEXT) || n_current == 16)) {
        r = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!r) {
        current[n_current++] = context;
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult r = driver_enter_without_context();
    if (!r && !n_current) {
        r = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!r) {
        n_current--;
        if (context) {
            *context = current[n_current];
        }
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult r = driver_enter();
    if (!r) {
        *device = 0;
    }
    return driver_leave(r);
}

EXPORT CUresult cuCtxSynchronize(void)
{
    CUresult r = driver_enter();
    if (!r && driver.capturing) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return driver_leave(r ? r : run_all());
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult r = driver_enter();
    if (!r && least) {
        *least = 0;
    }
    if (!r && greatest) {
        *greatest = -5;
    }
    return driver_leave(r);
}

/* ---- errors and addresses of calls ---- */

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    switch (error) {
#define X(name, value)                                                                             \
    case value:                                                                                    \
        *text = #name;                                                                             \
        return CUDA_SUCCESS;
#include "cuda_constants.def"
#undef X
    default:
        *text = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    static const struct {
        CUresult error;
        const char *text;
    } rows[] = {
        {CUDA_ERROR_ILLEGAL_ADDRESS,
         "a kernel touched memory it must not touch (emulator: see its findings)"},
        {CUDA_ERROR_MISALIGNED_ADDRESS,
         "a kernel used an address that is no multiple of the access (emulator: see its findings)"},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, "no code for this device (the emulator runs PTX text only)"},
        {CUDA_ERROR_INVALID_PTX,
         "the emulator does not understand this PTX (see the error log of cuModuleLoadDataEx)"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NOT_READY, "the work is not done yet"},
    };
    CUresult r = cuGetErrorName(error, text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].error == error) {
            *text = rows[i].text;
        }
    }
    return r;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        void (*call)(void);
    } rows[] = {
#define API(name, parameters) {#name, (void (*)(void))name},
#include "driver_api.def"
#undef API
    };
    (void)version, (void)flags;
    size_t length = strlen(symbol);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* the plain name stands for the newest version */
        bool is_same = strncmp(rows[i].name, symbol, length) == 0;
        const char *rest = is_same ? rows[i].name + length : "x";
        if (is_same && (!*rest || (rest[0] == '_' && rest[1] == 'v'))) {
            memcpy(function, &rows[i].call, sizeof *function);
            if (status) {
                *status = 0;
            }
            return CUDA_SUCCESS;
        }
    }
    *function = NULL;
    if (status) {
        *status = 1;
    }
    return CUDA_ERROR_NOT_FOUND;
}
