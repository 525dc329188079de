/* Element types: one row each in dtype.def. */
#ifndef ATOLL_IR_DTYPE_H
#define ATOLL_IR_DTYPE_H

#include "base.h"

enum dtype {
    DTYPE_NONE,
#define X(id, ...) id,
#include "dtype.def"
#undef X
    N_DTYPES
};

enum dtype_class { CLASS_B = 1, CLASS_I, CLASS_F };

struct dtype_row {
    const char *name;        /* "bf16" */
    uint32_t bytes;          /* storage, 1..8 */
    enum dtype_class class;  /* boolean, integer or float */
    const char *c_storage;   /* C type of one stored element */
    const char *c_compute;   /* C type of the value in a kernel: float, double or int64_t */
    const char *safetensors; /* name in a safetensors header */
    double epsilon;          /* distance from 1 to the next value; 0 for integers */
    double max;              /* largest finite value */
    double smallest_normal;  /* 0 for integers */
};
extern const struct dtype_row dtype_info[N_DTYPES];

/* DTYPE_NONE when the name is unknown. */
enum dtype dtype_named(const char *name, size_t length);

static inline bool dtype_is_float(enum dtype t)
{
    return dtype_info[t].class == CLASS_F;
}
/* f16, bf16, f8e4m3 or f8e5m2: floats narrower than f32. */
static inline bool dtype_is_low(enum dtype t)
{
    return dtype_is_float(t) && dtype_info[t].bytes < 4;
}
/* What a primitive computes in: F32 for floats up to f32, F64 for f64, I64 for integers and bool.
 */
enum dtype dtype_compute(enum dtype t);
/* The dtype two operands meet in: the wider float; f16 with bf16 (or two different f8) gives f32;
 * an integer with a float gives the float; bool < u8 < i32 < i64. */
enum dtype dtype_promote(enum dtype a, enum dtype b);

/* One element of storage, to and from double. Conversions to narrower floats round once, to
 * nearest, ties to even; f8e4m3 above 464 gives NaN, f8e5m2 and f16 above range give infinity (the
 * non-saturating casts). i64 beyond 2^53 loses low bits in the double. */
double dtype_load(enum dtype t, const void *element);
void dtype_store(enum dtype t, void *element, double value);

#endif
