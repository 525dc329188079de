/* Loads, stores and atomics of a warp: addresses per lane, the fast way for 32 neighbours in global
 * memory, and the spaces that need no record (local, parameters). Checks: execute_global.c and
 * execute_shared.c. Invariant: no byte is touched before its access function allowed it. */
#include <string.h>

#include "cuda_types.h"
#include "executor.h"
#include "parser.h"
#include "scalar.h"

static void addresses_of(const struct warp *w, const struct instruction *in, uint64_t *address)
{
    uint64_t displacement = (uint64_t)in->immediate;
    if (in->is_address_narrow) {
        const uint32_t *base = lanes32(w, in->r[8]);
        for (uint32_t l = 0; l < LANES; l++) {
            address[l] = base[l] + displacement;
        }
    } else {
        const uint64_t *base = lanes64(w, in->r[8]);
        for (uint32_t l = 0; l < LANES; l++) {
            address[l] = base[l] + displacement;
        }
    }
}

/* ---- spaces without a record ---- */

static uint8_t *local_access(struct warp *w, const struct instruction *in, uint32_t lane,
                             uint64_t address, uint32_t bytes, enum access access)
{
    const struct block *b = w->block;
    uint32_t size = b->launch->kernel->local_bytes;
    if (address >= size || bytes > size - address) {
        warp_report(w, in, lane, FINDING_OUT_OF_BOUNDS, "%u bytes at local address %llu of %u",
                    bytes, (unsigned long long)address, size);
        warp_stop(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        return NULL;
    }
    if (address % bytes) {
        warp_report(w, in, lane, FINDING_MISALIGNED, "%u bytes at local address %llu", bytes,
                    (unsigned long long)address);
        warp_stop(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        return NULL;
    }
    size_t offset = (size_t)thread_of(w, lane) * size + address;
    if (access == ACCESS_READ && memchr(b->local_state + offset, 0, bytes)) {
        warp_report(w, in, lane, FINDING_UNINITIALIZED,
                    "%u bytes at local address %llu were never written", bytes,
                    (unsigned long long)address);
    } else if (access != ACCESS_READ) {
        memset(b->local_state + offset, 1, bytes);
    }
    return b->local + offset;
}

static uint8_t *parameter_access(struct warp *w, const struct instruction *in, uint32_t lane,
                                 uint64_t address, uint32_t bytes, enum access access)
{
    uint32_t size = w->block->launch->kernel->parameter_bytes;
    if (address >= size || bytes > size - address || access != ACCESS_READ) {
        warp_report(w, in, lane, FINDING_OUT_OF_BOUNDS,
                    "%s %u bytes at byte %llu of %u bytes of parameters",
                    access == ACCESS_READ ? "reads" : "writes", bytes, (unsigned long long)address,
                    size);
        warp_stop(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        return NULL;
    }
    return w->block->launch->parameters + address;
}

uint8_t *any_access(struct warp *w, const struct instruction *in, uint32_t lane, uint64_t address,
                    uint32_t bytes, enum access access)
{
    enum space space = (enum space)in->space;
    if (space == SPACE_GENERIC || space == SPACE_PARAM) {
        uint64_t window = address & ~(WINDOW_BYTES - 1);
        space = window == SHARED_WINDOW  ? SPACE_SHARED
                : window == LOCAL_WINDOW ? SPACE_LOCAL
                : window == PARAM_WINDOW ? SPACE_PARAM
                                         : SPACE_GLOBAL;
        address -= space == SPACE_GLOBAL ? 0 : window;
    }
    switch (space) {
    case SPACE_SHARED:
        return shared_access(w, in, lane, address, bytes, access);
    case SPACE_LOCAL:
        return local_access(w, in, lane, address, bytes, access);
    case SPACE_PARAM:
        return parameter_access(w, in, lane, address, bytes, access);
    case SPACE_GLOBAL:
    case SPACE_CONST:
    case SPACE_GENERIC:
        break;
    }
    return global_access(w, in, lane, address, bytes, access);
}

/* ---- one element of a lane ---- */

static inline uint64_t read_element(const uint8_t *p, uint32_t bytes, bool is_signed)
{
    uint64_t value = 0;
    memcpy(&value, p, bytes);
    if (is_signed && bytes < 4) {
        value = bytes == 1 ? (uint64_t)(int64_t)(int8_t)value : (uint64_t)(int64_t)(int16_t)value;
    }
    return value;
}

static void load_lane(struct warp *w, const struct instruction *in, uint32_t lane, const uint8_t *p)
{
    for (uint32_t e = 0; e < in->count; e++, p += in->bytes) {
        if (in->bytes == 8) {
            lanes64(w, in->r[e])[lane] = read_element(p, 8, false);
        } else {
            lanes32(w, in->r[e])[lane] = (uint32_t)read_element(p, in->bytes, in->is_signed);
        }
    }
}

static void store_lane(struct warp *w, const struct instruction *in, uint32_t lane, uint8_t *p)
{
    for (uint32_t e = 0; e < in->count; e++, p += in->bytes) {
        if (in->bytes == 8) {
            memcpy(p, &lanes64(w, in->r[e])[lane], 8);
        } else {
            memcpy(p, &lanes32(w, in->r[e])[lane], in->bytes);
        }
    }
}

/* ---- 32 neighbours in global memory ---- */

static bool is_global(const struct instruction *in)
{
    return in->space == SPACE_GLOBAL || in->space == SPACE_CONST || in->space == SPACE_GENERIC;
}

/* Where the lanes' bytes lie when the lanes 0 to n - 1 take part and access neighbours (stride:
 * bytes of one lane) or read one place (stride 0), all checks passed. */
struct near {
    uint8_t *p; /* NULL: take them lane by lane */
    uint32_t n, stride;
};

static struct near find_near(struct warp *w, const struct instruction *in, const uint64_t *address,
                             enum access access)
{
    uint32_t bytes = (uint32_t)in->bytes * in->count;
    struct near near = {.n = (uint32_t)__builtin_popcount(w->bits), .stride = bytes};
    uint64_t apart = 0, differs = 0;
    if (!is_global(in) || w->bits != (near.n == LANES ? UINT32_MAX : (1u << near.n) - 1)) {
        return near;
    }
    for (uint32_t l = 0; l < LANES; l++) {
        uint64_t takes_part = l < near.n ? UINT64_MAX : 0;
        apart |= (address[l] ^ (address[0] + l * bytes)) & takes_part;
        differs |= (address[l] ^ address[0]) & takes_part;
    }
    if (access == ACCESS_READ && !differs && device_in_range(address[0], bytes)) {
        near.stride = 0;
        near.p = any_access(w, in, 0, address[0], bytes, access);
        if (near.p && near.n > 1) {
            global_read_by_warp(w, address[0], bytes);
        }
    } else if (!apart && address[0] % bytes == 0 &&
               global_range(w, in, address[0], near.n * bytes, access)) {
        near.p = device_memory.storage + (address[0] - device_memory.base);
    }
    return near;
}

static void load_near(struct warp *w, const struct instruction *in, const struct near *near)
{
    const uint8_t *p = near->p;
    for (uint32_t e = 0; e < in->count; e++, p += in->bytes) {
        uint32_t *d = lanes32(w, in->r[e]);
        uint64_t *wide = lanes64(w, in->r[e]);
        if (in->bytes == 4 && near->stride == 4) {
            memcpy(d, p, near->n * 4);
        } else if (in->bytes == 4) {
            for (uint32_t l = 0; l < near->n; l++) {
                memcpy(&d[l], p + l * near->stride, 4);
            }
        } else if (in->bytes == 8) {
            for (uint32_t l = 0; l < near->n; l++) {
                memcpy(&wide[l], p + l * near->stride, 8);
            }
        } else {
            for (uint32_t l = 0; l < near->n; l++) {
                d[l] = (uint32_t)read_element(p + l * near->stride, in->bytes, in->is_signed);
            }
        }
    }
}

static void store_near(struct warp *w, const struct instruction *in, const struct near *near)
{
    uint8_t *p = near->p;
    for (uint32_t e = 0; e < in->count; e++, p += in->bytes) {
        const uint32_t *s = lanes32(w, in->r[e]);
        const uint64_t *wide = lanes64(w, in->r[e]);
        if (in->bytes == 4 && near->stride == 4) {
            memcpy(p, s, near->n * 4);
        } else if (in->bytes == 4) {
            for (uint32_t l = 0; l < near->n; l++) {
                memcpy(p + l * near->stride, &s[l], 4);
            }
        } else if (in->bytes == 8) {
            for (uint32_t l = 0; l < near->n; l++) {
                memcpy(p + l * near->stride, &wide[l], 8);
            }
        } else {
            for (uint32_t l = 0; l < near->n; l++) {
                memcpy(p + l * near->stride, &s[l], in->bytes);
            }
        }
    }
}

void run_load(struct warp *w, const struct instruction *in)
{
    uint64_t address[LANES];
    uint32_t bytes = (uint32_t)in->bytes * in->count;
    addresses_of(w, in, address);
    struct near near = find_near(w, in, address, ACCESS_READ);
    if (near.p) {
        load_near(w, in, &near);
        return;
    }
    for (uint32_t l = 0; l < LANES && !w->block->is_stopped; l++) {
        if (w->bits >> l & 1u) {
            const uint8_t *p = any_access(w, in, l, address[l], bytes, ACCESS_READ);
            if (p) {
                load_lane(w, in, l, p);
            }
        }
    }
}

void run_store(struct warp *w, const struct instruction *in)
{
    uint64_t address[LANES];
    uint32_t bytes = (uint32_t)in->bytes * in->count;
    addresses_of(w, in, address);
    struct near near = find_near(w, in, address, ACCESS_WRITE);
    if (near.p) {
        store_near(w, in, &near);
        return;
    }
    for (uint32_t l = 0; l < LANES && !w->block->is_stopped; l++) {
        if (w->bits >> l & 1u) {
            uint8_t *p = any_access(w, in, l, address[l], bytes, ACCESS_WRITE);
            if (p) {
                store_lane(w, in, l, p);
            }
        }
    }
}

void run_load_parameter(struct warp *w, const struct instruction *in)
{
    const uint8_t *p = w->block->launch->parameters + in->immediate;
    for (uint32_t e = 0; e < in->count && w->is_full; e++, p += in->bytes) {
        uint64_t value = read_element(p, in->bytes, in->is_signed);
        uint64_t *wide = lanes64(w, in->r[e]);
        uint32_t *d = lanes32(w, in->r[e]);
        if (in->bytes == 8) {
            for (uint32_t l = 0; l < LANES; l++) {
                wide[l] = value;
            }
        } else {
            for (uint32_t l = 0; l < LANES; l++) {
                d[l] = (uint32_t)value;
            }
        }
    }
    if (w->is_full) {
        return;
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            load_lane(w, in, l, p);
        }
    }
}

/* ---- atomics ---- */

static uint64_t combine_integer(const struct instruction *in, uint64_t old, uint64_t b, uint64_t c)
{
    int64_t so = in->bytes == 4 ? (int32_t)(uint32_t)old : (int64_t)old;
    int64_t sb = in->bytes == 4 ? (int32_t)(uint32_t)b : (int64_t)b;
    bool is_less = in->is_signed ? so < sb : old < b;
    switch (in->action) {
    case 0:
        return old + b;
    case 1:
        return is_less ? old : b;
    case 2:
        return is_less ? b : old;
    case 3:
        return old & b;
    case 4:
        return old | b;
    case 5:
        return old ^ b;
    case 6:
        return b;
    case 7:
        return old == b ? c : old;
    case 8:
        return old >= b ? 0 : old + 1;
    default:
        return old == 0 || old > b ? b : old - 1;
    }
}

static uint64_t combine(const struct instruction *in, uint64_t old, uint64_t b, uint64_t c)
{
    bool is_float = in->from == TYPE_f32 || in->from == TYPE_f64;
    if (is_float && in->action == 0) {
        return in->bytes == 4 ? store_f32(float_of((uint32_t)old) + float_of((uint32_t)b))
                              : store_f64(double_of(old) + double_of(b));
    }
    if (is_float && in->bytes == 4 && (in->action == 1 || in->action == 2)) {
        float x = float_of((uint32_t)old), y = float_of((uint32_t)b);
        return store_f32(in->action == 1 ? min_number(x, y) : max_number(x, y));
    }
    return combine_integer(in, old, b, c);
}

void run_atomic(struct warp *w, const struct instruction *in)
{
    uint64_t address[LANES];
    addresses_of(w, in, address);
    for (uint32_t l = 0; l < LANES; l++) {
        if (!(w->bits >> l & 1u)) {
            continue;
        }
        uint8_t *p = any_access(w, in, l, address[l], in->bytes, ACCESS_ATOMIC);
        if (!p) {
            return;
        }
        if (in->bytes == 4) { /* other blocks run on other host threads */
            uint32_t *at = (uint32_t *)(void *)p, old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
            do {
                next = (uint32_t)combine(in, old, lanes32(w, in->r[1])[l], lanes32(w, in->r[2])[l]);
            } while (!__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_RELAXED));
            if (in->r[0]) {
                lanes32(w, in->r[0])[l] = old;
            }
        } else {
            uint64_t *at = (uint64_t *)(void *)p, old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
            do {
                next = combine(in, old, lanes64(w, in->r[1])[l], lanes64(w, in->r[2])[l]);
            } while (!__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_RELAXED));
            if (in->r[0]) {
                lanes64(w, in->r[0])[l] = old;
            }
        }
    }
}

void run_fence(struct warp *w, const struct instruction *in)
{
    (void)w, (void)in;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
