/* Reductions of the eager executor, in the canonical order: a row (reduced axes last) in chunks of
 * 16384 with 128 lanes that combine by halving, a column in chunks of 128 rows in increasing order;
 * chunk results are reduced by the same rule. The order depends on nothing but the shape, so the
 * bits do not depend on threads. */
#include "eager_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/compute.h"
#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"

enum { LANES = 128, ROW_CHUNK = 16384, COLUMN_CHUNK = 128 };

/* lanes[i] = meaning(lanes[i], x[i]) */
typedef void merge_fn(int64_t n, void *lanes, const void *x);

#define KIND_LEAF(types, op, meaning)
#define KIND_ELEMENTWISE(types, op, meaning)
#define KIND_REDUCTION(types, op, meaning) LOOP_##types(op, meaning)
#define KIND_CONTRACTION(types, op, meaning)
#define KIND_VIEW(types, op, meaning)
#define KIND_INDEX(types, op, meaning)
#define KIND_RANDOM(types, op, meaning)
#define KIND_COMPOSITE(types, op, meaning)
#define KIND_TRAINING(types, op, meaning)
#define LOOP_X(op, meaning) /* argmax, argmin: below */
#define OP(op, min, max, kind, types, shape, cuda, cpu, grad, attrs, meaning, doc)                 \
    KIND_##kind(types, op, meaning)
#define MERGE(name, meaning)                                                                       \
    static void name(int64_t n, void *lanes, const void *from)                                     \
    {                                                                                              \
        OP_TYPE *restrict y = lanes;                                                               \
        const OP_TYPE *restrict x = from;                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            OP_TYPE a = y[i], b = x[i];                                                            \
            y[i] = (meaning);                                                                      \
        }                                                                                          \
    }

#define A_F32
#include "codegen/prelude/ops.h"
#define LOOP_FI(op, meaning) MERGE(merge_##op##_f32, meaning)
#define LOOP_B(op, meaning)
#include "ir/ops.def"
#undef LOOP_FI
#undef LOOP_B
#undef A_F32
#define A_F64
#include "codegen/prelude/ops.h"
#define LOOP_FI(op, meaning) MERGE(merge_##op##_f64, meaning)
#define LOOP_B(op, meaning)
#include "ir/ops.def"
#undef LOOP_FI
#undef LOOP_B
#undef A_F64
#define A_I64
#include "codegen/prelude/ops.h"
#define LOOP_FI(op, meaning) MERGE(merge_##op##_i64, meaning)
#define LOOP_B(op, meaning)  MERGE(merge_##op##_i64, meaning)
#include "ir/ops.def"
#undef LOOP_FI
#undef LOOP_B
#undef A_I64

#define LOOP_FI(op, meaning) [OP_##op] = {merge_##op##_f32, merge_##op##_f64, merge_##op##_i64},
#define LOOP_B(op, meaning)  [OP_##op] = {NULL, NULL, merge_##op##_i64},
static merge_fn *const merges[N_OPS][N_COMPUTE] = {
#include "ir/ops.def"
};
#undef OP

/* What an accumulator starts from, as one compute element. */
static void identity_of(enum op op, enum dtype compute, void *out)
{
    double number = op == OP_prod || op == OP_all ? 1.0
                    : op == OP_max                ? -HUGE_VAL
                    : op == OP_min                ? HUGE_VAL
                                                  : 0.0;
    float narrow = (float)number;
    int64_t whole = op == OP_max ? INT64_MIN : op == OP_min ? INT64_MAX : (int64_t)number;
    if (compute == F32) {
        memcpy(out, &narrow, sizeof narrow);
    } else if (compute == F64) {
        memcpy(out, &number, sizeof number);
    } else {
        memcpy(out, &whole, sizeof whole);
    }
}

/* One level: (outer, length, inner) to (outer, n_chunks, inner). */
struct level {
    merge_fn *merge;
    load_fn *load, *splat;
    store_fn *store;
    const char *src;
    char *dst;
    size_t src_size, compute_size, dst_size;
    bool is_direct, is_row;
    int64_t outer, length, inner, n_chunks;
    double identity; /* bytes of one compute element */
};

static void row_chunk(const struct level *l, int64_t task)
{
    _Alignas(64) double lanes[LANES], buffer[BLOCK];
    int64_t begin = task % l->n_chunks * ROW_CHUNK;
    int64_t end = begin + ROW_CHUNK < l->length ? begin + ROW_CHUNK : l->length;
    const char *row = l->src + (size_t)(task / l->n_chunks * l->length) * l->src_size;
    l->splat(LANES, &l->identity, 0, lanes);
    for (int64_t at = begin; at < end; at += BLOCK) { /* BLOCK is a multiple of LANES */
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        const char *x = row + (size_t)at * l->src_size;
        if (!l->is_direct) {
            l->load(n, x, 1, buffer);
            x = (const char *)buffer;
        }
        for (int64_t i = 0; i < n; i += LANES) {
            l->merge(n - i < LANES ? n - i : LANES, lanes, x + (size_t)i * l->compute_size);
        }
    }
    for (int64_t h = LANES / 2; h > 0; h /= 2) {
        l->merge(h, lanes, (const char *)lanes + (size_t)h * l->compute_size);
    }
    l->store(1, lanes, l->dst + (size_t)task * l->dst_size);
}

static void column_chunk(const struct level *l, int64_t task)
{
    _Alignas(64) double sums[BLOCK], buffer[BLOCK];
    int64_t blocks = (l->inner + BLOCK - 1) / BLOCK;
    int64_t first = task % blocks * BLOCK, chunk = task / blocks % l->n_chunks;
    int64_t outer = task / blocks / l->n_chunks;
    int64_t n = l->inner - first < BLOCK ? l->inner - first : BLOCK;
    int64_t begin = chunk * COLUMN_CHUNK;
    int64_t end = begin + COLUMN_CHUNK < l->length ? begin + COLUMN_CHUNK : l->length;
    l->splat(n, &l->identity, 0, sums);
    for (int64_t r = begin; r < end; r++) {
        const char *x = l->src + (size_t)((outer * l->length + r) * l->inner + first) * l->src_size;
        if (!l->is_direct) {
            l->load(n, x, 1, buffer);
            x = (const char *)buffer;
        }
        l->merge(n, sums, x);
    }
    size_t to = (size_t)((outer * l->n_chunks + chunk) * l->inner + first);
    l->store(n, sums, l->dst + to * l->dst_size);
}

static void run_level(const struct level *l)
{
    int64_t blocks = l->is_row ? 1 : (l->inner + BLOCK - 1) / BLOCK;
    int64_t n_tasks = l->outer * l->n_chunks * blocks;
    bool is_parallel = l->outer * l->length * l->inner >= PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (is_parallel)
    for (int64_t task = 0; task < n_tasks; task++) {
        if (l->is_row) {
            row_chunk(l, task);
        } else {
            column_chunk(l, task);
        }
    }
}

/* Levels until one chunk is left; the last one rounds into the result. */
static status reduce(struct level *l, enum dtype compute, store_fn *last, void *result,
                     size_t result_size, struct error *e)
{
    void *held = NULL;
    for (;;) {
        int64_t chunk = l->is_row ? ROW_CHUNK : COLUMN_CHUNK;
        l->n_chunks = l->length <= chunk ? 1 : (l->length + chunk - 1) / chunk;
        if (l->n_chunks == 1) {
            l->store = last;
            l->dst = result;
            l->dst_size = result_size;
            run_level(l);
            free(held);
            return ATOLL_OK;
        }
        void *partial = malloc((size_t)(l->outer * l->n_chunks * l->inner) * l->compute_size);
        if (partial == NULL) {
            free(held);
            return fail(e, ATOLL_OUT_OF_MEMORY, "reduction: no memory for chunk results");
        }
        l->store = store_of(compute, compute, false);
        l->dst = partial;
        l->dst_size = l->compute_size;
        run_level(l);
        free(held);
        held = partial;
        l->src = partial;
        l->src_size = l->compute_size;
        l->is_direct = true;
        l->load = l->splat;
        l->length = l->n_chunks;
    }
}

status eager_reduction(const struct eager_call *c)
{
    const struct node *n = c->node;
    const struct tensor *x = &c->operands[0];
    enum dtype compute = node_compute(c->graph, n);
    uint32_t mask = node_axes(n, x->rank), first = 0, last = 0;
    while (first < x->rank && (mask >> first & 1U) == 0) {
        first++;
    }
    for (last = first; last < x->rank && (mask >> last & 1U) != 0;) {
        last++;
    }
    if (mask >> last != 0) {
        return fail(c->error, ATOLL_UNSUPPORTED,
                    "%s: axes are not adjacent; decompose splits such a reduction into groups",
                    op_info[n->op].name);
    }
    struct level l = {.merge = merges[n->op][compute_index(compute)],
                      .load = load_of(x->dtype, compute),
                      .splat = load_of(compute, compute),
                      .src = x->data,
                      .src_size = dtype_info[x->dtype].bytes,
                      .compute_size = dtype_info[compute].bytes,
                      .is_direct = is_direct(x->dtype, compute),
                      .is_row = last == x->rank,
                      .outer = 1,
                      .length = 1,
                      .inner = 1};
    for (uint32_t d = 0; d < x->rank; d++) {
        int64_t *to = d < first ? &l.outer : d < last ? &l.length : &l.inner;
        *to *= x->shape[d];
    }
    if (l.merge == NULL || l.load == NULL) {
        return fail(c->error, ATOLL_INTERNAL, "%s: no loop for compute type %s",
                    op_info[n->op].name, dtype_info[compute].name);
    }
    identity_of(n->op, compute, &l.identity);
    return reduce(&l, compute, store_of(compute, c->result->dtype, false), c->result->data,
                  dtype_info[c->result->dtype].bytes, c->error);
}

/* ---- argmax, argmin ---- */

/* The first index of the extreme; the first NaN beats everything. */
#define FIRST_EXTREME(name, type)                                                                  \
    static int64_t name(const char *x, load_fn *load, size_t size, int64_t length, int64_t stride, \
                        bool is_max)                                                               \
    {                                                                                              \
        type best = 0, v;                                                                          \
        int64_t at = 0;                                                                            \
        for (int64_t i = 0; i < length; i++) {                                                     \
            load(1, x + (size_t)(i * stride) * size, 1, &v);                                       \
            if (i == 0 || (is_max ? v > best : v < best) || (v != v && best == best)) {            \
                best = v;                                                                          \
                at = i;                                                                            \
            }                                                                                      \
        }                                                                                          \
        return at;                                                                                 \
    }
FIRST_EXTREME(first_f32, float)
FIRST_EXTREME(first_f64, double)
FIRST_EXTREME(first_i64, int64_t)

status eager_arg_reduction(const struct eager_call *c)
{
    const struct node *n = c->node;
    const struct tensor *x = &c->operands[0];
    enum dtype compute = node_compute(c->graph, n);
    load_fn *load = load_of(x->dtype, compute);
    size_t size = dtype_info[x->dtype].bytes;
    uint32_t axis = axis_of(n, x->rank);
    bool is_max = n->op == OP_argmax;
    int64_t outer, length, inner, *out = c->result->data;
    split_at(x, axis, axis, &outer, &length, &inner);
    int64_t count = outer * inner;
#pragma omp parallel for schedule(static) if (count * length >= PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) {
        const char *at =
            (const char *)x->data + (size_t)(i / inner * length * inner + i % inner) * size;
        out[i] = compute == F32   ? first_f32(at, load, size, length, inner, is_max)
                 : compute == F64 ? first_f64(at, load, size, length, inner, is_max)
                                  : first_i64(at, load, size, length, inner, is_max);
    }
    return ATOLL_OK;
}
