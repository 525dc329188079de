/* COLUMN kernels: reductions over axes that are not the last. A tile of columns at a time; rows are
 * added in order, 128 to a chunk, and chunk results again 128 to a chunk, level by level: the
 * canonical order, whatever the tiling. */
#include "emit.h"

enum { LEVELS = 5 };

static bool is_reduction(const struct inst *inst)
{
    return inst->kind == INST_REDUCE;
}

/* lev<i>[level][j]: 0 holds the chunk under way. */
static void emit_levels(struct text *t, const struct kernel *k)
{
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (is_reduction(&k->insts[i])) {
            text_add(t, "        %s lev%u[%d][%d];\n", emit_type(k->insts[i].compute), i, LEVELS,
                     TILE);
            text_add(t,
                     "        for (int a = 0; a < %d; a++) { for (int j = 0; j < m; j++) { "
                     "lev%u[a][j] = ",
                     LEVELS, i);
            emit_identity(t, k->insts[i].op, k->insts[i].compute);
            text_add(t, "; } }\n");
        }
    }
    text_add(t, "        int64_t count[%d] = {0};\n", LEVELS);
}

/* Carries level a into a + 1 for every reduction. */
static void emit_carry(struct text *t, const struct kernel *k, const char *indent)
{
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (!is_reduction(inst)) {
            continue;
        }
        text_add(t,
                 "%sfor (int j = 0; j < m; j++) {\n%s    lev%u[a + 1][j] = op_%s_%s(lev%u[a + "
                 "1][j], lev%u[a][j]);\n",
                 indent, indent, i, op_info[inst->op].name, emit_suffix(inst->compute), i, i);
        text_add(t, "%s    lev%u[a][j] = ", indent, i);
        emit_identity(t, inst->op, inst->compute);
        text_add(t, ";\n%s}\n", indent);
    }
}

static void emit_body(struct text *t, const struct kernel *k, uint32_t inner)
{
    const char *indent = "                ";
    text_add(t,
             "#pragma omp simd\n            for (int j = 0; j < m; j++) {\n%sconst int64_t c = j0 "
             "+ j;\n%s(void)c;\n",
             indent, indent);
    emit_decode(t, k, inner, k->rank, "c", indent);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (!is_reduction(&k->insts[i])) {
            emit_inst(t, k, i, indent);
        }
    }
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (is_reduction(inst)) {
            text_add(t, "%slev%u[0][j] = op_%s_%s(lev%u[0][j], ", indent, i, op_info[inst->op].name,
                     emit_suffix(inst->compute), i);
            emit_operand(t, k, inst->operands[0], inst->compute);
            text_add(t, ");\n");
        }
    }
    text_add(t, "            }\n");
}

static void emit_results(struct text *t, const struct kernel *k, uint32_t inner)
{
    const char *indent = "            ";
    text_add(t, "        for (int a = 0; a + 1 < %d; a++) {\n", LEVELS);
    emit_carry(t, k, indent);
    text_add(t,
             "        }\n        for (int j = 0; j < m; j++) {\n%sconst int64_t c = j0 + "
             "j;\n%s(void)c;\n",
             indent, indent);
    emit_decode(t, k, inner, k->rank, "c", indent);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (is_reduction(inst)) {
            text_add(t, "%sconst %s v%u = ", indent, emit_type(inst->dtype), i);
            emit_round_open(t, inst->compute, inst->dtype, false);
            text_add(t, "lev%u[%d][j]", i, LEVELS - 1);
            emit_round_close(t, inst->compute, inst->dtype);
            text_add(t, ";\n");
        }
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        emit_store(t, k, &k->stores[i], indent);
    }
    text_add(t, "        }\n");
}

void emit_column(struct text *t, const struct kernel *k)
{
    uint32_t inner = k->first_axis + k->n_axes;
    text_add(t, "    const int64_t outer = ");
    emit_count(t, k, 0, k->first_axis);
    text_add(t, ", R = ");
    emit_count(t, k, k->first_axis, inner);
    text_add(t, ", J = ");
    emit_count(t, k, inner, k->rank);
    text_add(t, ", tiles = (J + %d) / %d;\n", TILE - 1, TILE);
    text_add(t,
             "#pragma omp parallel for schedule(static) if (outer * tiles > 1 && outer * R * J > "
             "%d)\n"
             "    for (int64_t q = 0; q < outer * tiles; q++) {\n"
             "        const int64_t o = q / tiles, j0 = (q %% tiles) * %d;\n"
             "        const int m = J - j0 < %d ? (int)(J - j0) : %d;\n        (void)o;\n",
             LEAST_BLOCKS * (int)emit_block(k), TILE, TILE, TILE);
    emit_decode(t, k, 0, k->first_axis, "o", "        ");
    emit_levels(t, k);
    text_add(t, "        for (int64_t r = 0; r < R; r++) {\n");
    emit_decode(t, k, k->first_axis, inner, "r", "            ");
    emit_body(t, k, inner);
    text_add(t,
             "            count[0]++;\n            for (int a = 0; a + 1 < %d && count[a] == %d; "
             "a++) {\n",
             LEVELS, COLUMN_CHUNK);
    emit_carry(t, k, "                ");
    text_add(t, "                count[a] = 0;\n                count[a + 1]++;\n            }\n   "
                "     }\n");
    emit_results(t, k, inner);
    text_add(t, "    }\n");
}
