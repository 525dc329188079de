/* Blocks of elements between storage and compute types, for the eager executor: widening is exact
 * (integers to floats round to nearest), storing rounds once. One small loop a pair of types, from
 * the prelude's own conversions, so that generated code has the same bits. */
#include "eager_internal.h"

#include <string.h>

#include "codegen/prelude/convert.h"

#define SAME(x) (x)

#define LOAD(from, to, storage, compute, widen)                                                    \
    static void load_##from##_##to(int64_t n, const void *src, int64_t stride, void *dst)          \
    {                                                                                              \
        const storage *restrict s = src;                                                           \
        compute *restrict d = dst;                                                                 \
        if (stride == 1) {                                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                d[i] = (compute)widen(s[i]);                                                       \
            }                                                                                      \
        } else if (stride == 0) {                                                                  \
            compute x = n > 0 ? (compute)widen(s[0]) : 0;                                          \
            for (int64_t i = 0; i < n; i++) {                                                      \
                d[i] = x;                                                                          \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                d[i] = (compute)widen(s[i * stride]);                                              \
            }                                                                                      \
        }                                                                                          \
    }

#define STORE(from, to, compute, storage, convert)                                                 \
    static void store_##from##_##to(int64_t n, const void *src, void *dst)                         \
    {                                                                                              \
        const compute *restrict s = src;                                                           \
        storage *restrict d = dst;                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            d[i] = (storage)convert(s[i]);                                                         \
        }                                                                                          \
    }

#define LOADS_OF_INTEGER(name, storage)                                                            \
    LOAD(name, f32, storage, float, SAME)                                                          \
    LOAD(name, f64, storage, double, SAME)                                                         \
    LOAD(name, i64, storage, int64_t, SAME)
#define LOADS_OF_FLOAT(name, storage, widen)                                                       \
    LOAD(name, f32, storage, float, widen)                                                         \
    LOAD(name, f64, storage, double, widen)

LOADS_OF_INTEGER(boolean, uint8_t)
LOADS_OF_INTEGER(u8, uint8_t)
LOADS_OF_INTEGER(i32, int32_t)
LOADS_OF_INTEGER(i64, int64_t)
LOADS_OF_FLOAT(f8e4m3, uint8_t, from_f8e4m3)
LOADS_OF_FLOAT(f8e5m2, uint8_t, from_f8e5m2)
LOADS_OF_FLOAT(f16, uint16_t, from_f16)
LOADS_OF_FLOAT(bf16, uint16_t, from_bf16)
LOADS_OF_FLOAT(f32, float, SAME)
LOAD(f64, f64, double, double, SAME)
/* no operation narrows on load; f64 under an f32 node cannot occur, its compute type is F64 */

#define IS_TRUE(x) ((x) != 0)

STORE(f32, boolean, float, uint8_t, IS_TRUE)
STORE(f32, u8, float, uint8_t, to_u8_f32)
STORE(f32, i32, float, int32_t, to_i32_f32)
STORE(f32, i64, float, int64_t, to_i64_f32)
STORE(f32, f8e4m3, float, uint8_t, to_f8e4m3)
STORE(f32, f8e5m2, float, uint8_t, to_f8e5m2)
STORE(f32, f8e4m3_sat, float, uint8_t, to_f8e4m3_sat)
STORE(f32, f8e5m2_sat, float, uint8_t, to_f8e5m2_sat)
STORE(f32, f16, float, uint16_t, to_f16)
STORE(f32, bf16, float, uint16_t, to_bf16)
STORE(f32, f32, float, float, SAME)
STORE(f32, f64, float, double, SAME)

STORE(f64, boolean, double, uint8_t, IS_TRUE)
STORE(f64, u8, double, uint8_t, to_u8_f64)
STORE(f64, i32, double, int32_t, to_i32_f64)
STORE(f64, i64, double, int64_t, to_i64_f64)
STORE(f64, f8e4m3, double, uint8_t, to_f8e4m3_f64)
STORE(f64, f8e5m2, double, uint8_t, to_f8e5m2_f64)
STORE(f64, f8e4m3_sat, double, uint8_t, to_f8e4m3_sat_f64)
STORE(f64, f8e5m2_sat, double, uint8_t, to_f8e5m2_sat_f64)
STORE(f64, f16, double, uint16_t, to_f16_f64)
STORE(f64, bf16, double, uint16_t, to_bf16_f64)
STORE(f64, f32, double, float, SAME)
STORE(f64, f64, double, double, SAME)

STORE(i64, boolean, int64_t, uint8_t, IS_TRUE)
STORE(i64, u8, int64_t, uint8_t, SAME)
STORE(i64, i32, int64_t, int32_t, SAME)
STORE(i64, i64, int64_t, int64_t, SAME)
STORE(i64, f8e4m3, int64_t, uint8_t, to_f8e4m3_i64)
STORE(i64, f8e5m2, int64_t, uint8_t, to_f8e5m2_i64)
STORE(i64, f8e4m3_sat, int64_t, uint8_t, to_f8e4m3_sat_i64)
STORE(i64, f8e5m2_sat, int64_t, uint8_t, to_f8e5m2_sat_i64)
STORE(i64, f16, int64_t, uint16_t, to_f16_i64)
STORE(i64, bf16, int64_t, uint16_t, to_bf16_i64)
STORE(i64, f32, int64_t, float, SAME)
STORE(i64, f64, int64_t, double, SAME)

uint32_t compute_index(enum dtype compute)
{
    return compute == F32 ? 0 : compute == F64 ? 1 : 2;
}

load_fn *load_of(enum dtype storage, enum dtype compute)
{
    static load_fn *const loads[N_DTYPES][N_COMPUTE] = {
        [BOOL] = {load_boolean_f32, load_boolean_f64, load_boolean_i64},
        [U8] = {load_u8_f32, load_u8_f64, load_u8_i64},
        [I32] = {load_i32_f32, load_i32_f64, load_i32_i64},
        [I64] = {load_i64_f32, load_i64_f64, load_i64_i64},
        [F8E4M3] = {load_f8e4m3_f32, load_f8e4m3_f64, NULL},
        [F8E5M2] = {load_f8e5m2_f32, load_f8e5m2_f64, NULL},
        [F16] = {load_f16_f32, load_f16_f64, NULL},
        [BF16] = {load_bf16_f32, load_bf16_f64, NULL},
        [F32] = {load_f32_f32, load_f32_f64, NULL},
        [F64] = {NULL, load_f64_f64, NULL},
    };
    return loads[storage][compute_index(compute)];
}

#define STORES(c)                                                                                  \
    {                                                                                              \
        [BOOL] = store_##c##_boolean, [U8] = store_##c##_u8, [I32] = store_##c##_i32,              \
        [I64] = store_##c##_i64, [F8E4M3] = store_##c##_f8e4m3, [F8E5M2] = store_##c##_f8e5m2,     \
        [F16] = store_##c##_f16, [BF16] = store_##c##_bf16, [F32] = store_##c##_f32,               \
        [F64] = store_##c##_f64,                                                                   \
    }

store_fn *store_of(enum dtype compute, enum dtype storage, bool saturate)
{
    static store_fn *const stores[N_COMPUTE][N_DTYPES] = {STORES(f32), STORES(f64), STORES(i64)};
    static store_fn *const saturating[N_COMPUTE][2] = {
        {store_f32_f8e4m3_sat, store_f32_f8e5m2_sat},
        {store_f64_f8e4m3_sat, store_f64_f8e5m2_sat},
        {store_i64_f8e4m3_sat, store_i64_f8e5m2_sat},
    };
    if (saturate && (storage == F8E4M3 || storage == F8E5M2)) {
        return saturating[compute_index(compute)][storage == F8E4M3 ? 0 : 1];
    }
    return stores[compute_index(compute)][storage];
}
