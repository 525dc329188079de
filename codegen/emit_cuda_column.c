/* CUDA text of COLUMN kernels: a thread a column within a chunk of 128 rows, neighbouring threads
 * on neighbouring columns; chunks side by side in a block, their results taken in order by the
 * first row of threads, level by level. The canonical order, whatever the block. */
#include "emit_cuda_internal.h"

#include <stdio.h>

enum { COLUMNS = 32, CHUNKS = 16 }; /* 512 threads */

static bool is_reduction(const struct inst *inst)
{
    return inst->kind == INST_REDUCE;
}

/* One chunk: rows [lo, hi) of this thread's column into acc<i>. */
static void emit_chunk(struct cuda_emitter *c, const char *indent)
{
    const struct kernel *k = c->k;
    uint32_t inner = k->first_axis + k->n_axes;
    char deeper[32];
    (void)snprintf(deeper, sizeof deeper, "%s    ", indent);
    char pattern[64];
    (void)snprintf(pattern, sizeof pattern, "%s~ acc@ = $::identity();\n", indent);
    emit_each(c, ALL_PHASES, pattern);
    need_of_phase(c, 0);
    emit_unroll(c, 1);
    text_add(c->t, "%sfor (int64_t r = lo; r < hi; r++) {\n", indent);
    emit_decode(c->t, k, k->first_axis, inner, "r", deeper);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (!is_reduction(&k->insts[i])) {
            emit_inst(c->t, k, i, deeper);
        }
    }
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (is_reduction(inst)) {
            text_add(c->t, "%sacc%u = op_%s_%s(acc%u, ", deeper, i, op_info[inst->op].name,
                     emit_suffix(inst->compute), i);
            emit_operand(c->t, k, inst->operands[0], inst->compute);
            text_add(c->t, ");\n");
        }
    }
    text_add(c->t, "%s}\n", indent);
}

static void emit_stores(struct cuda_emitter *c, const char *from, const char *after,
                        const char *indent)
{
    char expression[32];
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        if (is_reduction(&c->k->insts[i])) {
            (void)snprintf(expression, sizeof expression, "%s%u%s", from, i, after);
            emit_result(c->t, c->k, i, expression, indent);
        }
    }
    for (uint32_t i = 0; i < c->k->n_stores; i++) {
        emit_store(c->t, c->k, &c->k->stores[i], indent);
    }
}

static void emit_sizes(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    uint32_t inner = k->first_axis + k->n_axes;
    text_add(c->t, "    const int64_t outer = ");
    emit_count(c->t, k, 0, k->first_axis);
    text_add(c->t, ", R = ");
    emit_count(c->t, k, k->first_axis, inner);
    text_add(c->t, ", J = ");
    emit_count(c->t, k, inner, k->rank);
    text_add(c->t, ";\n");
}

/* Rows that are one chunk at most: a thread a column, nothing shared. */
static void emit_single_chunk(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    uint32_t inner = k->first_axis + k->n_axes;
    struct cuda_stage *s = emit_stage(c, "", LANES, 1);
    for (uint32_t i = 0; i < k->rank; i++) {
        if (i < k->first_axis || i >= inner) {
            s->items[s->n_items++] = k->domain[i];
        }
    }
    s->per_block = LANES;
    emit_sizes(c);
    text_add(c->t,
             "#pragma unroll 1\n"
             "    for (int64_t q = (int64_t)blockIdx.x * %d + threadIdx.x; q < outer * J; q += "
             "(int64_t)gridDim.x * %d) {\n"
             "        const int64_t o = q / J, c = q %% J, lo = 0, hi = R;\n",
             LANES, LANES);
    emit_decode(c->t, k, 0, k->first_axis, "o", "        ");
    emit_decode(c->t, k, inner, k->rank, "c", "        ");
    emit_chunk(c, "        ");
    emit_stores(c, "acc", "", "        ");
    text_add(c->t, "    }\n}\n");
}

static void emit_many_chunks(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    uint32_t inner = k->first_axis + k->n_axes;
    struct cuda_stage *s = emit_stage(c, "", COLUMNS, CHUNKS);
    for (uint32_t i = 0; i < k->rank; i++) {
        if (i < k->first_axis || i >= inner) {
            struct dim d = k->domain[i];
            bool is_cut = i + 1 == k->rank && dim_is_static(d); /* else blocks to spare */
            s->items[s->n_items++] = is_cut ? dim_of((d.factor + COLUMNS - 1) / COLUMNS) : d;
        }
    }
    emit_sizes(c);
    text_add(c->t, "    const int64_t tiles = (J + %d) / %d;\n", COLUMNS - 1, COLUMNS);
    emit_each(c, ALL_PHASES, "    __shared__ ~ part@[16][32];\n");
    text_add(c->t,
             "#pragma unroll 1\n"
             "    for (int64_t q = blockIdx.x; q < outer * tiles; q += gridDim.x) {\n"
             "        const int64_t o = q / tiles, c = q %% tiles * %d + threadIdx.x;\n"
             "        const bool live = c < J;\n",
             COLUMNS);
    emit_decode(c->t, k, 0, k->first_axis, "o", "        ");
    emit_decode(c->t, k, inner, k->rank, "c", "        ");
    emit_each(c, ALL_PHASES, "        a_column<$> all@;\n");
    text_add(c->t,
             "#pragma unroll 1\n"
             "        for (int64_t first = 0; first < R; first += %d) {\n"
             "            const int64_t lo = first + threadIdx.y * %d;\n"
             "            const int64_t hi = !live ? lo : lo + %d < R ? lo + %d : R;\n",
             CHUNKS * COLUMN_CHUNK, COLUMN_CHUNK, COLUMN_CHUNK, COLUMN_CHUNK);
    emit_chunk(c, "            ");
    emit_each(c, ALL_PHASES, "            part@[threadIdx.y][threadIdx.x] = acc@;\n");
    text_add(c->t,
             "            __syncthreads();\n            if (threadIdx.y == 0) {\n"
             "#pragma unroll 1\n"
             "                for (int y = 0; y < %d && first + y * %d < R; y++) {\n",
             CHUNKS, COLUMN_CHUNK);
    emit_each(c, ALL_PHASES, "                    all@.push(part@[y][threadIdx.x]);\n");
    text_add(c->t, "                }\n            }\n            __syncthreads();\n        }\n"
                   "        if (live && threadIdx.y == 0) {\n");
    emit_stores(c, "all", ".end()", "            ");
    text_add(c->t, "        }\n    }\n}\n");
}

void emit_cuda_column(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    struct dim rows = dim_of(1);
    bool is_known = true;
    for (uint32_t i = k->first_axis; i < k->first_axis + k->n_axes; i++) {
        is_known = is_known && dim_multiply(rows, k->domain[i], &rows);
    }
    if (is_known && dim_is_static(rows) && rows.factor <= COLUMN_CHUNK) {
        emit_single_chunk(c);
    } else {
        emit_many_chunks(c);
    }
}
