/* CUDA text of the ops that are a group of their own: indexing, padding, argmax. One thread an
 * element of the result, or a block a slice of it where the order of additions is part of the
 * result: adds go in increasing source position, in the compute type, rounded once, as in the eager
 * executor. An index counts from the end when negative; out of range it reads NaN (0) and adds
 * nothing. */
#include "emit_cuda_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/compute.h"

struct single {
    const struct graph *g;
    const struct node *n;
    value v;
    struct text *t;
    struct arena *arena;
    const char *name;
    struct cuda_stage *stages;
    uint32_t n_stages;
};

static const struct node *operand(const struct single *s, uint32_t i)
{
    return graph_node(s->g, s->n->operands[i]);
}

static uint32_t axis_of(const struct single *s, uint32_t rank)
{
    int64_t axis = node_int(s->n, "axis");
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

static void emit_size(struct text *t, struct dim d)
{
    text_add(t, "%" PRId64 "LL", d.factor);
    for (uint32_t i = 0; i < MAX_DIM_SYMBOLS && d.symbols[i] != 0; i++) {
        text_add(t, " * d[%d]", d.symbols[i]);
    }
}

static void emit_product(struct text *t, const struct shape *s, uint32_t from, uint32_t to)
{
    text_add(t, "(int64_t)1");
    for (uint32_t i = from; i < to; i++) {
        text_add(t, " * ");
        emit_size(t, s->dims[i]);
    }
}

/* Declares outer_NAME, length_NAME, inner_NAME of a shape around an axis. */
static void emit_split(struct single *s, const struct shape *shape, uint32_t axis, const char *name)
{
    text_add(s->t, "    const int64_t outer_%s = ", name);
    emit_product(s->t, shape, 0, axis);
    text_add(s->t, ", length_%s = ", name);
    emit_product(s->t, shape, axis, axis < shape->rank ? axis + 1 : axis);
    text_add(s->t, ", inner_%s = ", name);
    emit_product(s->t, shape, axis < shape->rank ? axis + 1 : axis, shape->rank);
    text_add(s->t, ";\n    (void)outer_%s; (void)length_%s; (void)inner_%s;\n", name, name, name);
}

static void begin(struct single *s, const char *suffix, const struct shape *items)
{
    struct cuda_stage *stage = &s->stages[s->n_stages++];
    *stage = (struct cuda_stage){.symbol = arena_text(s->arena, "%s%s", s->name, suffix),
                                 .n_items = items->rank,
                                 .per_block = THREADS,
                                 .block_x = THREADS,
                                 .block_y = 1};
    memcpy(stage->items, items->dims, sizeof items->dims);
    text_add(s->t, "\nextern \"C\" __global__ void __launch_bounds__(%d) %s(", THREADS,
             stage->symbol);
    for (uint32_t i = 0; i < s->n->n_operands; i++) {
        text_add(s->t, "const %s *p%u, ", emit_storage(operand(s, i)->dtype), i);
    }
    text_add(s->t,
             "%s *y, const a_symbols symbols, int64_t n, uint64_t *work)\n{\n"
             "    const int64_t *d = symbols.at;\n    const int64_t count = ",
             emit_storage(s->n->dtype));
    emit_product(s->t, items, 0, items->rank);
    text_add(s->t, ";\n");
}

static void begin_loop(struct single *s)
{
    text_add(s->t,
             "#pragma unroll 1\n"
             "    for (int64_t u = (int64_t)blockIdx.x * %d + threadIdx.x; u < count; u += "
             "(int64_t)gridDim.x * %d) {\n",
             THREADS, THREADS);
}

static void end(struct single *s)
{
    text_add(s->t, "    }\n}\n");
}

/* The storage bits of a value of the result's type. */
static void emit_bits(struct single *s, double number)
{
    enum dtype dtype = s->n->dtype;
    uint64_t bits = 0;
    dtype_store(dtype, &bits, number);
    if (dtype == F32) {
        text_add(s->t, "a_float(0x%" PRIx64 "u)", bits);
    } else if (dtype == F64) {
        text_add(s->t, "__longlong_as_double(0x%" PRIx64 "ll)", bits);
    } else {
        text_add(s->t, "(%s)0x%" PRIx64 "ll", emit_storage(dtype), bits);
    }
}

static void emit_missing(struct single *s)
{
    emit_bits(s, dtype_is_float(s->n->dtype) ? (double)NAN : 0.0);
}

/* Declares an index, counted from 0; out of range it stays so. */
static void emit_position(struct single *s, const char *indent, const char *name, const char *place)
{
    text_add(s->t, "%sint64_t %s = p1[%s];\n%s%s = %s < 0 ? %s + length_x : %s;\n", indent, name,
             place, indent, name, name, name, name);
}

static void emit_take(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape, *indices = &operand(s, 1)->shape;
    begin(s, "", &s->n->shape);
    emit_split(s, x, axis_of(s, x->rank), "x");
    text_add(s->t, "    const int64_t m = ");
    emit_product(s->t, indices, 0, indices->rank);
    text_add(s->t, ";\n");
    begin_loop(s);
    text_add(s->t, "        const int64_t run = u / inner_x, i = u %% inner_x;\n");
    emit_position(s, "        ", "at", "run % m");
    text_add(s->t, "        y[u] = at < 0 || at >= length_x ? ");
    emit_missing(s);
    text_add(s->t, " : p0[(run / m * length_x + at) * inner_x + i];\n");
    end(s);
}

static void emit_gather(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape, *indices = &operand(s, 1)->shape;
    uint32_t axis = axis_of(s, x->rank);
    begin(s, "", &s->n->shape);
    emit_split(s, x, axis, "x");
    text_add(s->t, "    const int64_t m = ");
    emit_size(s->t, indices->dims[axis]);
    text_add(s->t, ";\n");
    begin_loop(s);
    emit_position(s, "        ", "at", "u");
    text_add(s->t, "        y[u] = at < 0 || at >= length_x ? ");
    emit_missing(s);
    text_add(s->t, " : p0[(u / (m * inner_x) * length_x + at) * inner_x + u %% inner_x];\n");
    end(s);
}

static void emit_concat(struct single *s)
{
    uint32_t axis = axis_of(s, s->n->shape.rank);
    for (uint32_t i = 0; i < s->n->n_operands; i++) {
        const struct shape *x = &operand(s, i)->shape;
        begin(s, arena_text(s->arena, "_part%u", i), x);
        emit_split(s, x, axis, "x");
        emit_split(s, &s->n->shape, axis, "y");
        text_add(s->t, "    const int64_t before = 0");
        for (uint32_t k = 0; k < i; k++) {
            text_add(s->t, " + ");
            emit_size(s->t, operand(s, k)->shape.dims[axis]);
        }
        text_add(s->t, ";\n    const int64_t run = length_x * inner_x;\n");
        begin_loop(s);
        text_add(
            s->t,
            "        y[u / run * length_y * inner_y + before * inner_y + u %% run] = p%u[u];\n", i);
        end(s);
    }
}

static void emit_pad(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape;
    uint32_t axis = axis_of(s, s->n->shape.rank);
    begin(s, "", &s->n->shape);
    emit_split(s, x, axis, "x");
    emit_split(s, &s->n->shape, axis, "y");
    begin_loop(s);
    text_add(s->t,
             "        const int64_t from = u / inner_y %% length_y - %" PRId64
             "LL, k = from / %" PRId64 "LL;\n"
             "        const bool is_copy = from >= 0 && from %% %" PRId64
             "LL == 0 && k < length_x;\n        y[u] = is_copy ? p0[(u / (length_y * inner_y) * "
             "length_x + k) * inner_x + u %% inner_y] : ",
             node_int(s->n, "low"), node_int(s->n, "step"), node_int(s->n, "step"));
    emit_bits(s, node_float(s->n, "value"));
    text_add(s->t, ";\n");
    end(s);
}

/* An element of storage as a value of the compute type. */
static void emit_wide(struct single *s, enum dtype from, enum dtype compute, const char *element)
{
    if (dtype_is_low(from)) {
        text_add(s->t, "(%s)from_%s(%s)", emit_type(compute), dtype_info[from].name, element);
    } else {
        text_add(s->t, "(%s)%s", emit_type(compute), element);
    }
}

static void emit_rounded(struct single *s, enum dtype compute, const char *sum)
{
    enum dtype to = s->n->dtype;
    if (to == compute) {
        text_add(s->t, "%s", sum);
    } else if (to == F32 || to == F64) {
        text_add(s->t, "(%s)%s", emit_type(to), sum);
    } else {
        text_add(s->t, "to_%s%s%s(%s)", dtype_info[to].name,
                 dtype_is_low(to) && compute == F32 ? "" : "_",
                 dtype_is_low(to) && compute == F32 ? "" : emit_suffix(compute), sum);
    }
}

/* sum = sum + p2[source] */
static void emit_add(struct single *s, const char *indent, enum dtype compute, const char *source)
{
    text_add(s->t, "%ssum = %s", indent,
             compute == I64 ? "(int64_t)((uint64_t)sum + (uint64_t)(" : "sum + (");
    emit_wide(s, operand(s, 2)->dtype, compute, arena_text(s->arena, "p2[%s]", source));
    text_add(s->t, "%s;\n", compute == I64 ? "))" : ")");
}

/* What x holds there, and, the sum done, what the result gets. */
static void emit_base(struct single *s, enum dtype compute, const char *to)
{
    emit_wide(s, operand(s, 0)->dtype, compute, arena_text(s->arena, "p0[%s]", to));
    text_add(s->t, ";\n");
}

static void emit_result_of(struct single *s, enum dtype compute, const char *to)
{
    text_add(s->t, "y[%s] = ", to);
    emit_rounded(s, compute, "sum");
    text_add(s->t, ";\n");
}

/* Adds are wanted only where some position has the index: the rest is a copy. */
static void emit_index_base(struct single *s, enum dtype compute)
{
    begin(s, "_base", &operand(s, 0)->shape);
    begin_loop(s);
    text_add(s->t, "        const %s sum = ", emit_type(compute));
    emit_base(s, compute, "u");
    text_add(s->t, "        ");
    emit_result_of(s, compute, "u");
    end(s);
}

/* A block a position (and outer slice). The first position of an index value is its owner and adds
 * for all of them: threads look at as many positions at once, a bit each says which hold the value,
 * and those are added in order, each thread to its own inner elements. So every position is
 * compared with every other once, whatever the size of a slice, and every source is read once. */
static void emit_index_adds(struct single *s, enum dtype compute)
{
    text_add(s->t,
             "    __shared__ unsigned matches[%d];\n#pragma unroll 1\n"
             "    for (int64_t u = blockIdx.x; u < count; u += gridDim.x) {\n"
             "        const int64_t k = u %% m, o = u / m;\n",
             THREADS / 32);
    emit_position(s, "        ", "at", "k");
    text_add(s->t,
             "        bool is_taken = at < 0 || at >= length_x;\n#pragma unroll 1\n"
             "        for (int64_t q = threadIdx.x; q < k && !is_taken; q += %d) {\n",
             THREADS);
    emit_position(s, "            ", "other", "q");
    text_add(s->t,
             "            is_taken = other == at;\n        }\n"
             "        if (__syncthreads_or(is_taken)) {\n            continue;\n        }\n"
             "#pragma unroll 1\n"
             "        for (int64_t i = threadIdx.x; i - threadIdx.x < inner_x; i += %d) {\n"
             "            const int64_t to = (o * length_x + at) * inner_x + i;\n"
             "            %s sum = 0;\n            if (i < inner_x) {\n                sum = ",
             THREADS, emit_type(compute));
    emit_base(s, compute, "to");
    text_add(s->t,
             "            }\n#pragma unroll 1\n"
             "            for (int64_t first = k; first < m; first += %d) {\n"
             "                const int64_t mine = first + threadIdx.x;\n"
             "                bool is_match = false;\n                if (mine < m) {\n",
             THREADS);
    emit_position(s, "                    ", "other", "mine");
    text_add(s->t,
             "                    is_match = other == at;\n                }\n"
             "                const unsigned found = __ballot_sync(0xffffffffu, is_match);\n"
             "                if (threadIdx.x %% 32 == 0) {\n"
             "                    matches[threadIdx.x / 32] = found;\n                }\n"
             "                __syncthreads();\n#pragma unroll 1\n"
             "                for (int w = 0; w < %d && i < inner_x; w++) {\n#pragma unroll 1\n"
             "                    for (unsigned left = matches[w]; left != 0; left &= left - 1) {\n"
             "                        const int64_t q = first + w * 32 + __ffs((int)left) - 1;\n",
             THREADS / 32);
    emit_add(s, "                        ", compute, "(o * m + q) * inner_x + i");
    text_add(s->t, "                    }\n                }\n                __syncthreads();\n"
                   "            }\n            if (i < inner_x) {\n                ");
    emit_result_of(s, compute, "to");
    text_add(s->t, "            }\n        }\n");
}

static void emit_index_add(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape, *indices = &operand(s, 1)->shape;
    enum dtype compute = node_compute(s->g, s->n);
    struct shape positions = operand(s, 2)->shape; /* without inner dims */
    uint32_t axis = axis_of(s, x->rank);
    positions.rank = axis + indices->rank;
    emit_index_base(s, compute);
    begin(s, "_add", &positions);
    s->stages[s->n_stages - 1].per_block = 1;
    emit_split(s, x, axis, "x");
    text_add(s->t, "    const int64_t m = ");
    emit_product(s->t, indices, 0, indices->rank);
    text_add(s->t, ";\n");
    emit_index_adds(s, compute);
    end(s);
}

/* One thread an element of the result; it walks the indices of its own line. */
static void emit_scatter_add(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape, *indices = &operand(s, 1)->shape;
    enum dtype compute = node_compute(s->g, s->n);
    uint32_t axis = axis_of(s, x->rank);
    begin(s, "", x);
    emit_split(s, x, axis, "x");
    text_add(s->t, "    const int64_t m = ");
    emit_size(s->t, indices->dims[axis]);
    text_add(s->t, ";\n");
    begin_loop(s);
    text_add(s->t,
             "        const int64_t i = u %% inner_x, at = u / inner_x %% length_x;\n"
             "        const int64_t line = u / (inner_x * length_x) * m;\n        %s sum = ",
             emit_type(compute));
    emit_base(s, compute, "u");
    text_add(s->t, "        for (int64_t k = 0; k < m; k++) {\n"
                   "            const int64_t q = (line + k) * inner_x + i;\n");
    emit_position(s, "            ", "other", "q");
    text_add(s->t, "            if (other == at) {\n");
    emit_add(s, "                ", compute, "q");
    text_add(s->t, "            }\n        }\n        ");
    emit_result_of(s, compute, "u");
    end(s);
}

/* The first of the best; NaN beats everything. */
static void emit_arg(struct single *s)
{
    const struct shape *x = &operand(s, 0)->shape;
    enum dtype compute = node_compute(s->g, s->n);
    const char *type = emit_type(compute);
    begin(s, "", &s->n->shape);
    emit_split(s, x, axis_of(s, x->rank), "x");
    begin_loop(s);
    text_add(s->t,
             "        const int64_t first = u / inner_x * length_x * inner_x + u %% inner_x;\n"
             "        int64_t best = 0;\n        %s top = 0;\n"
             "        for (int64_t k = 0; k < length_x; k++) {\n            const %s value = ",
             type, type);
    emit_wide(s, operand(s, 0)->dtype, compute, "p0[first + k * inner_x]");
    text_add(s->t,
             ";\n            if (k == 0 || (top == top && (value %c top || value != value))) {\n"
             "                best = k;\n                top = value;\n            }\n        }\n"
             "        y[u] = best;\n",
             s->n->op == OP_argmax ? '>' : '<');
    end(s);
}

status emit_single_cuda(struct text *t, const struct graph *g, value v, const char *name,
                        struct arena *arena, struct cuda_kernel *out, struct error *e)
{
    const struct node *n = graph_node(g, v);
    struct single s = {.g = g, .n = n, .v = v, .t = t, .arena = arena, .name = name};
    s.stages = ARENA_ARRAY(arena, struct cuda_stage, n->n_operands + 2);
    text_add(t, "\n/* %s */", op_info[n->op].name);
    switch ((int)n->op) {
    case OP_take:
        emit_take(&s);
        break;
    case OP_gather:
        emit_gather(&s);
        break;
    case OP_concat:
        emit_concat(&s);
        break;
    case OP_pad:
        emit_pad(&s);
        break;
    case OP_index_add:
        emit_index_add(&s);
        break;
    case OP_scatter_add:
        emit_scatter_add(&s);
        break;
    case OP_argmax:
    case OP_argmin:
        emit_arg(&s);
        break;
    default:
        return fail(e, ATOLL_UNSUPPORTED, "cuda: no kernel for %s; hint: run this graph on cpu",
                    op_info[n->op].name);
    }
    *out = (struct cuda_kernel){.n_stages = s.n_stages, .stages = s.stages};
    return ATOLL_OK;
}
