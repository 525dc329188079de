/* ROW kernels: an outer loop over rows and, for each phase, an inner loop over the row. A phase is
 * what can run once the reductions of the phases before it are known. Values needed again in a
 * later phase are computed again (same bits), or kept in a row buffer when that is dear.
 * Elementwise kernels are the case without reductions. */
#include "emit.h"

#include <inttypes.h>

enum { KEEP_LIMIT = 4096 };

struct row_emitter {
    const struct kernel *k;
    struct text *t;
    bool *is_needed; /* [phase * n_insts + inst] */
    bool *is_kept;   /* by inst: in a row buffer from its first phase on */
    uint32_t *first; /* by inst: first phase that computes it, + 1 */
    int64_t length;  /* of a row when static, else -1 */
};

static int op_cost(const struct inst *inst)
{
    switch ((int)inst->op) {
    case OP_exp:
    case OP_expm1:
    case OP_log:
    case OP_log1p:
    case OP_tanh:
    case OP_erf:
    case OP_sigmoid:
    case OP_sin:
    case OP_cos:
    case OP_atan:
    case OP_atan2:
    case OP_pow:
        return 12;
    case OP_div:
    case OP_sqrt:
    case OP_rsqrt:
    case OP_reciprocal:
        return 5;
    default:
        return inst->kind == INST_RANDOM ? 40 : 1;
    }
}

static int cost_of(const struct kernel *k, uint32_t i, int depth)
{
    const struct inst *inst = &k->insts[i];
    if (inst->is_row || inst->kind == INST_LOAD || depth > 12) {
        return 0;
    }
    int cost = op_cost(inst);
    for (uint32_t o = 0; o < inst->n_operands && cost < 100; o++) {
        cost += cost_of(k, inst->operands[o], depth + 1);
    }
    return cost;
}

/* Marks what the loop of a phase computes, from its roots down; stops at row values and at kept
 * ones of earlier phases. */
static void need(struct row_emitter *r, uint32_t phase, uint32_t i)
{
    const struct inst *inst = &r->k->insts[i];
    bool *seen = &r->is_needed[phase * r->k->n_insts + i];
    if (*seen || inst->is_row) {
        return;
    }
    *seen = true;
    if (r->is_kept[i] && r->first[i] != 0 && r->first[i] <= phase) {
        return;
    }
    if (r->first[i] == 0) {
        r->first[i] = phase + 1;
    }
    for (uint32_t o = 0; o < inst->n_operands; o++) {
        need(r, phase, inst->operands[o]);
    }
}

static void need_phase(struct row_emitter *r, uint32_t phase)
{
    for (uint32_t i = 0; i < r->k->n_insts; i++) {
        if (r->k->insts[i].kind == INST_REDUCE && r->k->insts[i].ready == phase) {
            need(r, phase, r->k->insts[i].operands[0]);
        }
    }
    for (uint32_t i = 0; i < r->k->n_stores; i++) {
        if (!r->k->stores[i].is_row && r->k->stores[i].phase == phase) {
            need(r, phase, r->k->stores[i].inst);
        }
    }
}

static void plan_phases(struct row_emitter *r, struct arena *a)
{
    uint32_t n = r->k->n_insts, phases = r->k->n_phases;
    r->is_needed = ARENA_ARRAY(a, bool, n *phases);
    r->is_kept = ARENA_ARRAY(a, bool, n);
    r->first = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t p = 0; p < phases; p++) {
        need_phase(r, p);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t uses = 0;
        for (uint32_t p = 0; p < phases; p++) {
            uses += r->is_needed[p * n + i];
        }
        r->is_kept[i] = uses > 1 && !r->k->is_flat && r->length >= 0 && r->length <= KEEP_LIMIT &&
                        r->k->insts[i].kind != INST_LOAD && cost_of(r->k, i, 0) >= 10;
    }
    r->is_needed = ARENA_ARRAY(a, bool, n *phases);
    r->first = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t p = 0; p < phases; p++) {
        need_phase(r, p);
    }
}

static bool has_reductions(const struct kernel *k, uint32_t phase)
{
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (k->insts[i].kind == INST_REDUCE && k->insts[i].ready == phase) {
            return true;
        }
    }
    return false;
}

static bool has_loop(const struct row_emitter *r, uint32_t phase)
{
    bool any = has_reductions(r->k, phase);
    for (uint32_t i = 0; i < r->k->n_stores; i++) {
        any = any || (!r->k->stores[i].is_row && r->k->stores[i].phase == phase);
    }
    return any;
}

static uint32_t lanes_of(const struct row_emitter *r)
{
    uint32_t lanes = LANES;
    while (r->length >= 0 && lanes > 1 && r->length <= lanes / 2) {
        lanes /= 2;
    }
    return lanes;
}

/* What one element of the phase's loop does. */
static void emit_body(struct row_emitter *r, uint32_t phase, const char *indent, const char *lane)
{
    const struct kernel *k = r->k;
    emit_decode(r->t, k, k->first_axis, k->first_axis + k->n_axes, "i", indent);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (!r->is_needed[phase * k->n_insts + i]) {
            continue;
        }
        if (r->is_kept[i] && r->first[i] <= phase) {
            text_add(r->t, "%sconst %s v%u = keep%u[i];\n", indent, emit_type(k->insts[i].dtype), i,
                     i);
            continue;
        }
        emit_inst(r->t, k, i, indent);
        if (r->is_kept[i]) {
            text_add(r->t, "%skeep%u[i] = v%u;\n", indent, i, i);
        }
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (!k->stores[i].is_row && k->stores[i].phase == phase) {
            emit_store(r->t, k, &k->stores[i], indent);
        }
    }
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (inst->kind != INST_REDUCE || inst->ready != phase) {
            continue;
        }
        if (emit_is_logical(inst->op)) {
            text_add(r->t, "%sacc%u[%s] %s= (int32_t)", indent, i, lane,
                     inst->op == OP_all ? "&" : "|");
            emit_operand(r->t, k, inst->operands[0], inst->compute);
            text_add(r->t, ";\n");
        } else {
            text_add(r->t, "%sacc%u[%s] = op_%s_%s(acc%u[%s], ", indent, i, lane,
                     op_info[inst->op].name, emit_suffix(inst->compute), i, lane);
            emit_operand(r->t, k, inst->operands[0], inst->compute);
            text_add(r->t, ");\n");
        }
    }
}

/* For each reduction of the phase: a line with its type, number, op and suffix filled in. */
enum line {
    LINE_LANES,
    LINE_FOLD_SMALL,
    LINE_BEGIN,
    LINE_PUSH,
    LINE_PART,
    LINE_PUSH_PART,
    LINE_END,
    LINE_RESULT
};

static void emit_line(struct row_emitter *r, uint32_t i, enum line line, const char *indent)
{
    const struct inst *inst = &r->k->insts[i];
    const char *type = emit_type(inst->compute), *o = op_info[inst->op].name,
               *s = emit_suffix(inst->compute),
               *lane = emit_is_logical(inst->op) ? "int32_t" : type,
               *fold = emit_is_logical(inst->op) ? "bool" : s;
    struct text *t = r->t;
    switch (line) {
    case LINE_LANES:
        text_add(t, "%s%s acc%u[%u];\n%sfor (int l = 0; l < %u; l++) { acc%u[l] = ", indent, lane,
                 i, lanes_of(r), indent, lanes_of(r), i);
        emit_identity(t, inst->op, inst->compute);
        text_add(t, "; }\n");
        break;
    case LINE_FOLD_SMALL:
        for (uint32_t h = lanes_of(r) / 2; h > 0; h /= 2) {
            text_add(t,
                     "%sfor (int l = 0; l < %u; l++) { acc%u[l] = op_%s_%s(acc%u[l], acc%u[l + "
                     "%u]); }\n",
                     indent, h, i, o, s, i, i, h);
        }
        break;
    case LINE_BEGIN:
        text_add(t, "%srow_%s_%s red%u;\n%sbegin_%s_%s(&red%u);\n", indent, o, s, i, indent, o, s,
                 i);
        break;
    case LINE_PUSH:
        text_add(t, "%spush_%s_%s(&red%u, fold_%s_%s(acc%u));\n", indent, o, s, i, o, fold, i);
        break;
    case LINE_PART:
        text_add(t, "%spart%u[c] = fold_%s_%s(acc%u);\n", indent, i, o, fold, i);
        break;
    case LINE_PUSH_PART:
        text_add(t, "%spush_%s_%s(&red%u, part%u[c]);\n", indent, o, s, i, i);
        break;
    case LINE_END:
        text_add(t, "%sconst %s sum%u = end_%s_%s(&red%u);\n", indent, type, i, o, s, i);
        break;
    case LINE_RESULT:
        text_add(t, "%sconst %s v%u = ", indent, emit_type(inst->dtype), i);
        emit_round_open(t, inst->compute, inst->dtype, false);
        text_add(t,
                 lanes_of(r) <= LANES && r->length >= 0 && r->length <= CHUNK && !r->k->is_flat
                     ? "acc%u[0]"
                     : "sum%u",
                 i);
        emit_round_close(t, inst->compute, inst->dtype);
        text_add(t, ";\n");
        break;
    }
}

static void emit_lines(struct row_emitter *r, uint32_t phase, enum line line, const char *indent)
{
    for (uint32_t i = 0; i < r->k->n_insts; i++) {
        if (r->k->insts[i].kind == INST_REDUCE && r->k->insts[i].ready == phase) {
            emit_line(r, i, line, indent);
        }
    }
}

/* While a row is worked on from the cache, the next one is fetched: its loads stand a row further.
 * Only long static rows, one line of memory each, gain by it. */
static void emit_prefetch(struct row_emitter *r, uint32_t phase, const char *indent)
{
    const struct kernel *k = r->k;
    if (phase != 1 || k->is_flat || k->rank != 2 || k->n_axes != 1 || r->length < 2 * LANES) {
        return;
    }
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (inst->kind != INST_LOAD || inst->is_row || inst->ready > 0 ||
            !dim_is(inst->map.stride[1], 1) || inst->map.stride[0].factor == 0) {
            continue;
        }
        text_add(r->t,
                 "%s    for (int q = 0; q < %u; q += %u) { const int64_t x1 = b + q; "
                 "__builtin_prefetch(&p%u[",
                 indent, lanes_of(r), 64 / dtype_info[inst->dtype].bytes, inst->arg);
        emit_index(r->t, k, &inst->map);
        text_add(r->t, "] + ");
        emit_dim(r->t, k, inst->map.stride[0]);
        text_add(r->t, "); }\n");
    }
}

/* m elements from b on, each in its lane. */
static void emit_turn(struct row_emitter *r, uint32_t phase, const char *indent)
{
    emit_prefetch(r, phase, indent);
    text_add(r->t,
             "#pragma omp simd\n%s    for (int l = 0; l < m; l++) {\n%s        const int64_t i = b "
             "+ l;\n",
             indent, indent);
    emit_body(r, phase, "                ", "l");
    text_add(r->t, "%s    }\n%s}\n", indent, indent);
}

/* The 128-lane walk over elements [lo, hi). In flat kernels, whose tensors may have any length, the
 * last turn has code of its own: the loop of the others is twice as fast for a length it knows. */
static void emit_lane_loop(struct row_emitter *r, uint32_t phase, const char *lo, const char *hi,
                           const char *indent)
{
    uint32_t lanes = lanes_of(r);
    if (r->k->is_flat) {
        text_add(r->t,
                 "%sint64_t b = %s;\n%sfor (; b + %u <= %s; b += %u) {\n%s    const int m = %u;\n",
                 indent, lo, indent, lanes, hi, lanes, indent, lanes);
        emit_turn(r, phase, indent);
        text_add(r->t, "%sif (b < %s) {\n%s    const int m = (int)(%s - b);\n", indent, hi, indent,
                 hi);
        emit_turn(r, phase, indent);
        return;
    }
    text_add(r->t, "%sfor (int64_t b = %s; b < %s; b += %u) {\n", indent, lo, hi, lanes);
    if (r->length > 0 && r->length <= CHUNK && r->length % lanes == 0) {
        text_add(r->t, "%s    const int m = %u;\n", indent, lanes); /* no shorter last turn */
    } else {
        text_add(r->t, "%s    const int m = %s - b < %u ? (int)(%s - b) : %u;\n", indent, hi, lanes,
                 hi, lanes);
    }
    emit_turn(r, phase, indent);
}

static void emit_flat_reduction(struct row_emitter *r, uint32_t phase)
{
    struct text *t = r->t;
    emit_lines(r, phase, LINE_BEGIN, "    ");
    text_add(t, "    for (int64_t s = 0; s < n; s += %lldLL) {\n", (long long)CHUNK * CHUNK);
    text_add(t, "        const int64_t left = (n - s + %d) / %d, chunks = left < %d ? left : %d;\n",
             CHUNK - 1, CHUNK, CHUNK, CHUNK);
    for (uint32_t i = 0; i < r->k->n_insts; i++) {
        if (r->k->insts[i].kind == INST_REDUCE && r->k->insts[i].ready == phase) {
            text_add(t, "        %s part%u[%d];\n", emit_type(r->k->insts[i].compute), i, CHUNK);
        }
    }
    text_add(t, "#pragma omp parallel for schedule(static) if (chunks > 1)\n        for (int64_t c "
                "= 0; c < chunks; c++) {\n");
    text_add(t, "            const int64_t lo = s + c * %d, hi = lo + %d < n ? lo + %d : n;\n",
             CHUNK, CHUNK, CHUNK);
    emit_lines(r, phase, LINE_LANES, "            ");
    emit_lane_loop(r, phase, "lo", "hi", "            ");
    emit_lines(r, phase, LINE_PART, "            ");
    text_add(t, "        }\n        for (int64_t c = 0; c < chunks; c++) {\n");
    emit_lines(r, phase, LINE_PUSH_PART, "            ");
    text_add(t, "        }\n    }\n");
    emit_lines(r, phase, LINE_END, "    ");
}

static void emit_row_reduction(struct row_emitter *r, uint32_t phase, const char *indent)
{
    struct text *t = r->t;
    if (r->length >= 0 && r->length <= CHUNK) {
        emit_lines(r, phase, LINE_LANES, indent);
        emit_lane_loop(r, phase, "0", "K", indent);
        emit_lines(r, phase, LINE_FOLD_SMALL, indent);
        return;
    }
    emit_lines(r, phase, LINE_BEGIN, indent);
    text_add(t,
             "%sfor (int64_t lo = 0; lo < K; lo += %d) {\n%s    const int64_t hi = lo + %d < K ? "
             "lo + %d : K;\n",
             indent, CHUNK, indent, CHUNK, CHUNK);
    emit_lines(r, phase, LINE_LANES, "            ");
    emit_lane_loop(r, phase, "lo", "hi", "            ");
    emit_lines(r, phase, LINE_PUSH, "            ");
    text_add(t, "%s}\n", indent);
    emit_lines(r, phase, LINE_END, indent);
}

static void emit_plain_loop(struct row_emitter *r, uint32_t phase, const char *indent)
{
    struct text *t = r->t;
    if (r->k->is_flat) {
        bool is_part = r->k->n_phases == 1; /* the caller deals out the blocks */
        if (!is_part) {
            int block = (int)emit_block(r->k);
            text_add(t,
                     "#pragma omp parallel for schedule(static) if (n > %d)\n"
                     "    for (int64_t lo = 0; lo < n; lo += %d) {\n"
                     "        const int64_t hi = lo + %d < n ? lo + %d : n;\n",
                     LEAST_BLOCKS * block, block, block, block);
        }
        text_add(t, "#pragma omp simd\n        for (int64_t i = lo; i < hi; i++) {\n");
        emit_body(r, phase, "            ", "");
        text_add(t, "        }\n%s", is_part ? "" : "    }\n");
        return;
    }
    text_add(t, "#pragma omp simd\n%sfor (int64_t i = 0; i < K; i++) {\n", indent);
    emit_body(r, phase, "            ", "");
    text_add(t, "%s}\n", indent);
}

static void emit_phases(struct row_emitter *r, const char *indent)
{
    const struct kernel *k = r->k;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (r->is_kept[i]) {
            text_add(r->t, "%s%s keep%u[%" PRId64 "];\n", indent, emit_type(k->insts[i].dtype), i,
                     r->length > 0 ? r->length : 1);
        }
    }
    for (uint32_t phase = 0; phase < k->n_phases; phase++) {
        for (uint32_t i = 0; i < k->n_insts; i++) {
            if (k->insts[i].is_row && k->insts[i].kind != INST_REDUCE &&
                k->insts[i].ready == phase) {
                emit_inst(r->t, k, i, indent);
            }
        }
        for (uint32_t i = 0; i < k->n_stores; i++) {
            if (k->stores[i].is_row && k->stores[i].phase == phase) {
                emit_store(r->t, k, &k->stores[i], indent);
            }
        }
        if (!has_loop(r, phase)) {
            continue;
        }
        if (!has_reductions(k, phase)) {
            emit_plain_loop(r, phase, indent);
        } else if (k->is_flat) {
            emit_flat_reduction(r, phase);
        } else {
            emit_row_reduction(r, phase, indent);
        }
        emit_lines(r, phase, LINE_RESULT, indent);
    }
}

void emit_row(struct text *t, const struct kernel *k)
{
    struct arena scratch = SCRATCH_ARENA;
    struct row_emitter r = {.k = k, .t = t, .length = 1};
    for (uint32_t i = k->first_axis; i < k->first_axis + k->n_axes; i++) {
        r.length =
            r.length < 0 || !dim_is_static(k->domain[i]) ? -1 : r.length * k->domain[i].factor;
    }
    if (k->is_flat) {
        r.length = -1;
    }
    plan_phases(&r, &scratch);
    if (k->is_flat) {
        emit_phases(&r, "    ");
        arena_free(&scratch);
        return;
    }
    text_add(t, "    const int64_t rows = ");
    emit_count(t, k, 0, k->first_axis);
    text_add(t, ", K = ");
    emit_count(t, k, k->first_axis, k->first_axis + k->n_axes);
    text_add(t, ";\n");
    if (k->first_axis > 0) {
        text_add(t,
                 "#pragma omp parallel for schedule(static) if (rows > 1 && rows * K > %" PRId64
                 ")\n",
                 LEAST_BLOCKS * emit_block(k) / 2);
    }
    text_add(t, "    for (int64_t r = 0; r < rows; r++) {\n");
    emit_decode(t, k, 0, k->first_axis, "r", "        ");
    emit_phases(&r, "        ");
    text_add(t, "    }\n");
    arena_free(&scratch);
}
