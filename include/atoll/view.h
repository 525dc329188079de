/* What every public header shares: the error record, element types, sizes, and a tensor lent to
 * look at or to fill. */
#ifndef ATOLL_VIEW_H
#define ATOLL_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "atoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Filled in by a failing call: one line saying what was found, what was expected, where, and what
 * to do. Zero-initialise; the first failure stays until you set code to ATOLL_OK. Every `error`
 * argument may be NULL. */
typedef struct atoll_error {
    atoll_status code;
    char text[1000];
} atoll_error;

typedef enum atoll_dtype {
    ATOLL_NO_DTYPE, /* as an attribute: the op's own choice */
    ATOLL_BOOL,
    ATOLL_U8,
    ATOLL_I32,
    ATOLL_I64,
    ATOLL_F8E4M3,
    ATOLL_F8E5M2,
    ATOLL_F16,
    ATOLL_BF16,
    ATOLL_F32,
    ATOLL_F64
} atoll_dtype;

/* "f32"; "none" for anything that is no dtype. A static string. */
const char *atoll_dtype_name(atoll_dtype dtype);
/* Bytes of one element; 0 for anything that is no dtype. */
size_t atoll_dtype_bytes(atoll_dtype dtype);

/* Sizes or axes, up to 8, by value: ATOLL_DIMS(64, 128); a scalar has none: ATOLL_SCALAR. */
typedef struct atoll_dims {
    uint32_t n;
    int64_t at[8];
} atoll_dims;
#ifndef __cplusplus
#define ATOLL_DIMS(...)                                                                            \
    ((atoll_dims){.n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .at = {__VA_ARGS__}})
#define ATOLL_AXES   ATOLL_DIMS
#define ATOLL_SCALAR ((atoll_dims){.n = 0})
#endif

/* A tensor lent, never owned: dense, row-major. dtype is its name ("f32", "bf16", "i64"). */
typedef struct atoll_view {
    const char *name;
    const char *dtype;
    size_t element_bytes;
    uint32_t rank;
    int64_t shape[8];
    void *data;
    size_t bytes;
} atoll_view;

/* A view of your memory, which stays yours. A size below 0, or a count of bytes that does not fit
 * 64 bits, gives a view of rank 9, which nothing accepts. */
atoll_view atoll_view_of(const char *name, atoll_dtype dtype, atoll_dims shape, void *data);

#ifdef __cplusplus
}
#endif

#endif
