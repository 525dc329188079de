/* Elementwise primitives of the eager executor: a block interpreter. For each block of the result,
 * operands are widened into compute-type buffers, the op's loop (made from its row of ops.def) runs
 * over them, and the result is rounded once into storage. Same prelude, same compute type as the
 * generated code, hence the same bits. */
#include "eager_internal.h"

#include <string.h>

#include "ir/compute.h"
#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"

typedef void run_fn(int64_t n, const void *a, const void *b, const void *c, void *out);

#define KIND_LEAF(types, op, meaning)
#define KIND_ELEMENTWISE(types, op, meaning) LOOP_##types(op, meaning)
#define KIND_REDUCTION(types, op, meaning)
#define KIND_CONTRACTION(types, op, meaning)
#define KIND_VIEW(types, op, meaning)
#define KIND_INDEX(types, op, meaning)
#define KIND_RANDOM(types, op, meaning)
#define KIND_COMPOSITE(types, op, meaning)
#define KIND_TRAINING(types, op, meaning)
#define LOOP_X(op, meaning) /* cast: a load and a store */

#define A_F32
#include "codegen/prelude/ops.h"
#define SUFFIX(op)           run_##op##_f32
#define LOOP_F(op, meaning)  LOOP(op, OP_TYPE, float, meaning)
#define LOOP_FI(op, meaning) LOOP(op, OP_TYPE, float, meaning)
#define LOOP_C(op, meaning)  LOOP(op, OP_TYPE, uint8_t, meaning)
#define LOOP_B(op, meaning)
#define LOOP_W(op, meaning) LOOP(op, int, float, meaning)
#include "eager_loops.inc"
#undef A_F32

#define A_F64
#include "codegen/prelude/ops.h"
#define SUFFIX(op)           run_##op##_f64
#define LOOP_F(op, meaning)  LOOP(op, OP_TYPE, double, meaning)
#define LOOP_FI(op, meaning) LOOP(op, OP_TYPE, double, meaning)
#define LOOP_C(op, meaning)  LOOP(op, OP_TYPE, uint8_t, meaning)
#define LOOP_B(op, meaning)
#define LOOP_W(op, meaning) LOOP(op, int, double, meaning)
#include "eager_loops.inc"
#undef A_F64

#define A_I64
#include "codegen/prelude/ops.h"
#define SUFFIX(op) run_##op##_i64
#define LOOP_F(op, meaning)
#define LOOP_FI(op, meaning) LOOP(op, OP_TYPE, int64_t, meaning)
#define LOOP_C(op, meaning)  LOOP(op, OP_TYPE, uint8_t, meaning)
#define LOOP_B(op, meaning)  LOOP(op, OP_TYPE, uint8_t, meaning)
#define LOOP_W(op, meaning)  LOOP(op, int, int64_t, meaning)
#include "eager_loops.inc"
#undef A_I64

#define LOOP_F(op, meaning)  [OP_##op] = {run_##op##_f32, run_##op##_f64, NULL},
#define LOOP_FI(op, meaning) [OP_##op] = {run_##op##_f32, run_##op##_f64, run_##op##_i64},
#define LOOP_C(op, meaning)  LOOP_FI(op, meaning)
#define LOOP_W(op, meaning)  LOOP_FI(op, meaning)
#define LOOP_B(op, meaning)  [OP_##op] = {NULL, NULL, run_##op##_i64},
static run_fn *const runs[N_OPS][N_COMPUTE] = {
#define OP(op, min, max, kind, types, shape, cuda, cpu, grad, attrs, meaning, doc)                 \
    KIND_##kind(types, op, meaning)
#include "ir/ops.def"
#undef OP
};

/* One operand as the loops see it. */
struct source {
    const char *data;
    size_t size;               /* bytes an element */
    int64_t strides[MAX_RANK]; /* over the collapsed dims; 0: broadcast */
    bool is_dense;             /* laid out as the result */
    bool is_direct;            /* storage is the compute type */
    load_fn *load;
    double weak; /* where data points for a weak constant */
};

struct sweep {
    uint32_t rank, n_sources;
    int64_t dims[MAX_RANK], count;
    struct source sources[3];
    run_fn *run;     /* NULL: copy (cast) */
    store_fn *store; /* NULL: the loop writes storage itself */
    char *out;
    size_t out_size;
};

/* Drops dims of size 1 and merges neighbours that every operand walks as one. */
static void collapse(struct sweep *s)
{
    uint32_t kept = 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        if (s->dims[d] == 1) {
            continue;
        }
        bool merges = kept > 0;
        for (uint32_t i = 0; i < s->n_sources && merges; i++) {
            const int64_t *strides = s->sources[i].strides;
            merges = strides[kept - 1] == strides[d] * s->dims[d];
        }
        uint32_t to = merges ? kept - 1 : kept++;
        s->dims[to] = merges ? s->dims[to] * s->dims[d] : s->dims[d];
        for (uint32_t i = 0; i < s->n_sources; i++) {
            s->sources[i].strides[to] = s->sources[i].strides[d];
        }
    }
    s->rank = kept;
}

static void fill_strides(struct source *o, const struct tensor *t, const struct tensor *result)
{
    int64_t step = 1;
    o->is_dense = true;
    for (uint32_t d = result->rank; d-- > 0;) {
        uint32_t skip = result->rank - t->rank;
        int64_t size = d >= skip ? t->shape[d - skip] : 1;
        o->strides[d] = size == 1 ? 0 : step;
        o->is_dense = o->is_dense && size == result->shape[d];
        step *= size;
    }
}

/* The elements start..start+n of the result's order, in the compute type: in place where possible.
 */
static const void *load_block(const struct sweep *s, const struct source *o, int64_t start,
                              int64_t n, void *buffer, size_t compute_size)
{
    if (o->is_dense) {
        const char *at = o->data + (size_t)start * o->size;
        if (o->is_direct) {
            return at;
        }
        o->load(n, at, 1, buffer);
        return buffer;
    }
    int64_t index[MAX_RANK], at = 0, rest = start;
    for (uint32_t d = s->rank; d-- > 0;) {
        index[d] = rest % s->dims[d];
        rest /= s->dims[d];
        at += index[d] * o->strides[d];
    }
    char *to = buffer;
    uint32_t last =
        s->rank - 1; /* rank 0 is one element, dense or a scalar: handled by the caller */
    while (n > 0) {
        int64_t run = s->dims[last] - index[last];
        run = run < n ? run : n;
        o->load(run, o->data + (size_t)at * o->size, o->strides[last], to);
        to += (size_t)run * compute_size;
        n -= run;
        at += run * o->strides[last];
        index[last] += run;
        for (uint32_t d = last; d > 0 && index[d] == s->dims[d]; d--) {
            at += o->strides[d - 1] - s->dims[d] * o->strides[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
    return buffer;
}

static void run_block(const struct sweep *s, int64_t block, size_t compute_size)
{
    _Alignas(64) double buffers[4][BLOCK];
    int64_t start = block * BLOCK;
    int64_t n = s->count - start < BLOCK ? s->count - start : BLOCK;
    const void *in[3] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < s->n_sources; i++) {
        in[i] = load_block(s, &s->sources[i], start, n, buffers[i], compute_size);
    }
    for (uint32_t i = s->n_sources; i < 3; i++) {
        in[i] = in[0];
    }
    char *to = s->out + (size_t)start * s->out_size;
    if (s->store == NULL) {
        s->run(n, in[0], in[1], in[2], to);
        return;
    }
    if (s->run != NULL) {
        s->run(n, in[0], in[1], in[2], buffers[3]);
    }
    s->store(n, s->run != NULL ? buffers[3] : in[0], to);
}

static status fill_source(const struct eager_call *c, uint32_t i, enum dtype compute,
                          struct source *o)
{
    const struct node *from = graph_node(c->graph, c->node->operands[i]);
    const struct tensor *t = &c->operands[i];
    fill_strides(o, t, c->result);
    if (node_is_weak(from)) { /* straight to compute precision, whatever the constant's own dtype */
        o->weak = node_float(from, "value");
        o->data = (const char *)&o->weak;
        if (compute == F32) {
            float f = (float)o->weak;
            memcpy(&o->weak, &f, sizeof f);
        } else if (compute == I64) {
            int64_t whole = (int64_t)o->weak;
            memcpy(&o->weak, &whole, sizeof whole);
        }
        o->size = dtype_info[compute].bytes;
        o->load = load_of(compute, compute);
        o->is_direct = true;
        return ATOLL_OK;
    }
    o->data = t->data;
    o->size = dtype_info[t->dtype].bytes;
    o->load = load_of(t->dtype, compute);
    o->is_direct = is_direct(t->dtype, compute);
    return o->load != NULL
               ? ATOLL_OK
               : fail(c->error, ATOLL_INTERNAL, "%s: operand %d is %s, which %s cannot hold",
                      op_info[c->node->op].name, (int)i, dtype_info[t->dtype].name,
                      dtype_info[compute].name);
}

status eager_elementwise(const struct eager_call *c)
{
    const struct node *n = c->node;
    enum dtype compute = node_compute(c->graph, n);
    size_t compute_size = dtype_info[compute].bytes;
    struct sweep s = {.rank = c->result->rank,
                      .n_sources = n->n_operands,
                      .count = tensor_count(c->result),
                      .run = runs[n->op][compute_index(compute)],
                      .out = c->result->data,
                      .out_size = dtype_info[c->result->dtype].bytes};
    if (n->n_operands < 1 || n->n_operands > 3 || (s.run == NULL && n->op != OP_cast)) {
        return fail(c->error, ATOLL_INTERNAL, "%s: no loop for compute type %s",
                    op_info[n->op].name, dtype_info[compute].name);
    }
    enum op_types types = op_info[n->op].types;
    bool is_written = types == TYPES_C || types == TYPES_B ||
                      (n->op != OP_cast && is_direct(c->result->dtype, compute));
    s.store = is_written ? NULL : store_of(compute, c->result->dtype, node_saturates(n));
    memcpy(s.dims, c->result->shape, sizeof s.dims);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        TRY(fill_source(c, i, compute, &s.sources[i]));
    }
    if (s.count == 0) {
        return ATOLL_OK;
    }
    collapse(&s);
    if (s.rank == 0) { /* one element: every operand is dense */
        for (uint32_t i = 0; i < s.n_sources; i++) {
            s.sources[i].is_dense = true;
        }
    }
    int64_t n_blocks = (s.count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (s.count >= PARALLEL_FROM)
    for (int64_t block = 0; block < n_blocks; block++) {
        run_block(&s, block, compute_size);
    }
    return ATOLL_OK;
}
