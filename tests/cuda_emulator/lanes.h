/* What the rows of ops_*.def become: for each a function over the lanes of a warp, and a row of a
 * table that leads from its names to it. A file includes this, then defines X from LANES_FUNCTION
 * and includes its .def, then again with LANES_ROW. */
#ifndef ATOLL_EMULATOR_LANES_H
#define ATOLL_EMULATOR_LANES_H

#include "executor.h"
#include "parser.h"
#include "scalar.h"

/* Types of a row: the slot's lane, the C type of the value, and to and from. z32: f32 with .ftz. */
#define LANE_none     uint32_t
#define LANE_pred     uint32_t
#define LANE_u16      uint32_t
#define LANE_s16      uint32_t
#define LANE_u32      uint32_t
#define LANE_s32      uint32_t
#define LANE_u64      uint64_t
#define LANE_s64      uint64_t
#define LANE_f16      uint32_t
#define LANE_bf16     uint32_t
#define LANE_f32      uint32_t
#define LANE_z32      uint32_t
#define LANE_f64      uint64_t

#define VALUE_none    uint32_t
#define VALUE_pred    uint32_t
#define VALUE_u16     uint32_t
#define VALUE_s16     int32_t
#define VALUE_u32     uint32_t
#define VALUE_s32     int32_t
#define VALUE_u64     uint64_t
#define VALUE_s64     int64_t
#define VALUE_f16     double
#define VALUE_bf16    double
#define VALUE_f32     float
#define VALUE_z32     float
#define VALUE_f64     double

#define LOAD_none(x)  (x)
#define LOAD_pred(x)  (x)
#define LOAD_u16(x)   ((x)&0xffffu)
#define LOAD_s16(x)   ((int32_t)(int16_t)(x))
#define LOAD_u32(x)   (x)
#define LOAD_s32(x)   ((int32_t)(x))
#define LOAD_u64(x)   (x)
#define LOAD_s64(x)   ((int64_t)(x))
#define LOAD_f16(x)   load_f16(x)
#define LOAD_bf16(x)  load_bf16(x)
#define LOAD_f32(x)   float_of(x)
#define LOAD_z32(x)   flush(float_of(x))
#define LOAD_f64(x)   double_of(x)

#define STORE_pred(v) ((v) ? UINT32_MAX : 0u)
#define STORE_u16(v)  ((uint32_t)(v)&0xffffu)
#define STORE_s16(v)  ((uint32_t)(v)&0xffffu)
#define STORE_u32(v)  ((uint32_t)(v))
#define STORE_s32(v)  ((uint32_t)(v))
#define STORE_u64(v)  ((uint64_t)(v))
#define STORE_s64(v)  ((uint64_t)(v))
#define STORE_f16(v)  store_f16((double)(v))
#define STORE_bf16(v) store_bf16((double)(v))
#define STORE_f32(v)  store_f32(v)
#define STORE_z32(v)  store_f32(flush(v))
#define STORE_f64(v)  store_f64(v)

#define TYPE_z32      TYPE_f32
#define TYPE_none     TYPE_NONE

#define LANES_FUNCTION(id, names, D, A, B, C, value)                                               \
    static void run_##id(struct warp *w, const struct instruction *in)                             \
    {                                                                                              \
        LANE_##D *d = (LANE_##D *)(void *)(w->file + in->r[0]);                                    \
        const LANE_##A *pa = (const LANE_##A *)(const void *)(w->file + in->r[1]);                 \
        const LANE_##B *pb = (const LANE_##B *)(const void *)(w->file + in->r[2]);                 \
        const LANE_##C *pc = (const LANE_##C *)(const void *)(w->file + in->r[3]);                 \
        if (w->is_full) {                                                                          \
            _Pragma("omp simd") for (uint32_t l = 0; l < LANES; l++)                               \
            {                                                                                      \
                LANES_BODY(A, B, C) d[l] = STORE_##D(value);                                       \
            }                                                                                      \
        } else {                                                                                   \
            _Pragma("omp simd") for (uint32_t l = 0; l < LANES; l++)                               \
            {                                                                                      \
                LANES_BODY(A, B, C) LANE_##D result = STORE_##D(value);                            \
                d[l] = w->mask[l] ? result : d[l];                                                 \
            }                                                                                      \
        }                                                                                          \
    }
#define LANES_BODY(A, B, C)                                                                        \
    VALUE_##A a = LOAD_##A(pa[l]);                                                                 \
    VALUE_##B b = LOAD_##B(pb[l]);                                                                 \
    VALUE_##C c = LOAD_##C(pc[l]);                                                                 \
    (void)a, (void)b, (void)c;

#define LANES_ROW(id, names, D, A, B, C, value)                                                    \
    {names, run_##id, TYPE_##D, TYPE_##A, TYPE_##B, TYPE_##C},

#endif
