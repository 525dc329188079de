/* Kernel description -> C text: spelling of types, literals, index maps, single instructions, and
 * the prologue that carries the prelude and the helpers the kernels use. Generated source rounds
 * where the description says and nowhere else. */
#include "emit.h"

#include <inttypes.h>
#include <math.h>

#include "prelude_text.h"

const char *emit_type(enum dtype t)
{
    return t == BOOL ? "int32_t" : dtype_info[t].c_compute;
}

const char *emit_storage(enum dtype t)
{
    return dtype_info[t].c_storage;
}

const char *emit_suffix(enum dtype compute)
{
    return compute == F32 ? "f32" : compute == F64 ? "f64" : "i64";
}

void emit_dim(struct text *t, const struct kernel *k, struct dim d)
{
    if (k->is_flat && k->rank == 1 && dim_equal(d, k->domain[0])) {
        text_add(t, "n");
        return;
    }
    text_add(t, "%" PRId64 "LL", d.factor);
    for (uint32_t i = 0; i < MAX_DIM_SYMBOLS && d.symbols[i] != 0; i++) {
        text_add(t, " * d[%d]", d.symbols[i]);
    }
}

void emit_count(struct text *t, const struct kernel *k, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        text_add(t, i > from ? " * " : "");
        emit_dim(t, k, k->domain[i]);
    }
    text_add(t, from == to ? "1" : "");
}

void emit_decode(struct text *t, const struct kernel *k, uint32_t from, uint32_t to,
                 const char *var, const char *indent)
{
    if (to - from == 1) {
        text_add(t, "%sconst int64_t x%u = %s;\n", indent, from, var);
        return;
    }
    for (uint32_t i = from; i < to; i++) {
        text_add(t, "%sconst int64_t x%u = %s", indent, i, var);
        if (i + 1 < to) {
            text_add(t, " / (");
            emit_count(t, k, i + 1, to);
            text_add(t, ")");
        }
        if (i > from) {
            text_add(t, " %% (");
            emit_dim(t, k, k->domain[i]);
            text_add(t, ")");
        }
        text_add(t, ";\n");
    }
}

void emit_index(struct text *t, const struct kernel *k, const struct index_map *m)
{
    bool is_first = m->offset.factor == 0;
    if (!is_first) {
        emit_dim(t, k, m->offset);
    }
    for (uint32_t i = 0; i < k->rank; i++) {
        if (m->stride[i].factor == 0) {
            continue;
        }
        text_add(t, is_first ? "" : " + ");
        is_first = false;
        if (!dim_is(m->stride[i], 1)) {
            emit_dim(t, k, m->stride[i]);
            text_add(t, " * ");
        }
        text_add(t, "x%u", i);
    }
    text_add(t, is_first ? "0" : "");
}

static void emit_literal(struct text *t, double v, enum dtype compute)
{
    v = compute == F32 ? (double)(float)v : v; /* 1e40 is infinite there */
    if (compute == I64) {
        int64_t i;
        dtype_store(I64, &i, v);
        text_add(t, i == INT64_MIN ? "(-9223372036854775807LL - 1)" : "(%" PRId64 "LL)", i);
    } else if (isnan(v)) {
        text_add(t, compute == F32 ? "A_NAN_F32" : "A_NAN_F64");
    } else if (isinf(v)) {
        text_add(t, "(%sA_INF_%s)", v < 0 ? "-" : "", compute == F32 ? "F32" : "F64");
    } else {
        text_add(t, compute == F32 ? "(%af)" : "(%a)", v);
    }
}

void emit_operand(struct text *t, const struct kernel *k, uint32_t o, enum dtype compute)
{
    const struct inst *from = &k->insts[o];
    if (from->kind == INST_NUMBER && from->is_weak) {
        emit_literal(t, from->number, compute);
        return;
    }
    bool same = from->dtype != BOOL && dtype_compute(from->dtype) == compute;
    if (!same) {
        text_add(t, "(%s)", emit_type(compute));
    }
    text_add(t, "v%u", o);
}

static const char *low_name(enum dtype t)
{
    return dtype_info[t].name;
}

void emit_round_open(struct text *t, enum dtype compute, enum dtype dtype, bool saturate)
{
    const char *sat = saturate && (dtype == F8E4M3 || dtype == F8E5M2) ? "_sat" : "";
    if (dtype == compute) {
        text_add(t, "(");
    } else if (dtype == F32 || dtype == F64) {
        text_add(t, "(%s)(", emit_type(dtype));
    } else if (dtype_is_low(dtype) && compute == F32) {
        text_add(t, "round_%s%s(", low_name(dtype), sat);
    } else if (dtype_is_low(dtype)) {
        text_add(t, "from_%s(to_%s%s_%s(", low_name(dtype), low_name(dtype), sat,
                 emit_suffix(compute));
    } else {
        text_add(t, "(%s)to_%s_%s(", emit_type(dtype), low_name(dtype), emit_suffix(compute));
    }
}

void emit_round_close(struct text *t, enum dtype compute, enum dtype dtype)
{
    text_add(t, dtype_is_low(dtype) && compute != F32 ? "))" : ")");
}

void emit_identity(struct text *t, enum op op, enum dtype compute)
{
    if (op == OP_max || op == OP_min) {
        emit_literal(t,
                     compute == I64
                         ? (op == OP_max ? -9223372036854775808.0 : 9223372036854775808.0)
                         : (op == OP_max ? -HUGE_VAL : HUGE_VAL),
                     compute);
        return;
    }
    emit_literal(t, op == OP_prod || op == OP_all ? 1.0 : 0.0, compute);
}

static void emit_load(struct text *t, const struct kernel *k, const struct inst *inst)
{
    if (dtype_is_low(inst->dtype)) {
        text_add(t, "from_%s(p%u[", low_name(inst->dtype), inst->arg);
        emit_index(t, k, &inst->map);
        text_add(t, "])");
        return;
    }
    text_add(t, "(%s)p%u[", emit_type(inst->dtype), inst->arg);
    emit_index(t, k, &inst->map);
    text_add(t, "]");
}

static bool gives_bool(enum op op)
{
    return op_info[op].types == TYPES_C;
}

static void emit_op(struct text *t, const struct kernel *k, const struct inst *inst)
{
    if (inst->op == OP_cast) {
        emit_round_open(t, inst->compute, inst->dtype, inst->saturate);
        emit_operand(t, k, inst->operands[0], inst->compute);
        emit_round_close(t, inst->compute, inst->dtype);
        return;
    }
    enum dtype result = gives_bool(inst->op) ? inst->compute : inst->dtype;
    emit_round_open(t, inst->compute, result, inst->saturate);
    text_add(t, "op_%s_%s(", op_info[inst->op].name, emit_suffix(inst->compute));
    for (uint32_t i = 0; i < inst->n_operands; i++) {
        text_add(t, i > 0 ? ", " : "");
        if (inst->op == OP_where && i == 0) {
            text_add(t, "v%u", inst->operands[0]);
        } else {
            emit_operand(t, k, inst->operands[i], inst->compute);
        }
    }
    text_add(t, ")");
    emit_round_close(t, inst->compute, result);
}

void emit_inst(struct text *t, const struct kernel *k, uint32_t i, const char *indent)
{
    const struct inst *inst = &k->insts[i];
    if (inst->kind == INST_NUMBER && inst->is_weak && inst->compute == F32) {
        text_add(t, "%sconst float v%u = ", indent, i);
        emit_literal(t, inst->number, F32);
        text_add(t, "; (void)v%u;\n", i);
        return;
    }
    text_add(t, "%sconst %s v%u = ", indent, emit_type(inst->dtype), i);
    switch (inst->kind) {
    case INST_LOAD:
        emit_load(t, k, inst);
        break;
    case INST_NUMBER: {
        unsigned char bits[8];
        dtype_store(inst->dtype, bits, inst->number);
        emit_literal(t, dtype_load(inst->dtype, bits), dtype_compute(inst->dtype));
        break;
    }
    case INST_SIZE:
    case INST_INDEX:
        emit_round_open(t, I64, inst->dtype, false);
        text_add(t, "(int64_t)(");
        if (inst->kind == INST_SIZE) {
            emit_dim(t, k, inst->size);
        } else {
            emit_index(t, k, &inst->map);
        }
        text_add(t, ")");
        emit_round_close(t, I64, inst->dtype);
        break;
    case INST_RANDOM:
        text_add(t,
                 inst->op == OP_uniform ? "uniform_f32(random_u32((uint64_t)v%u, %" PRId64
                                          "ULL, (uint64_t)v%u))"
                                        : "normal_at((uint64_t)v%u, %" PRId64 "ULL, (uint64_t)v%u)",
                 inst->operands[0], inst->stream, inst->operands[1]);
        break;
    case INST_OP:
    case INST_REDUCE:
        emit_op(t, k, inst);
        break;
    }
    text_add(t, ";\n");
}

void emit_store(struct text *t, const struct kernel *k, const struct store *s, const char *indent)
{
    enum dtype dtype = k->args[s->arg].dtype; /* the instruction's own, or what it rounds to here */
    text_add(t, "%sp%u[", indent, s->arg);
    emit_index(t, k, &s->map);
    if (dtype_is_low(dtype)) {
        text_add(t, "] = to_%s(v%u);\n", low_name(dtype), s->inst);
    } else {
        text_add(t, "] = (%s)v%u;\n", emit_storage(dtype), s->inst);
    }
}

void emit_args(struct text *t, const struct kernel *k)
{
    for (uint32_t i = 0; i < k->n_args; i++) {
        const char *type = emit_storage(k->args[i].dtype),
                   *c = k->args[i].is_written ? "" : "const ";
        text_add(t, "    %s%s *p%u = (%s%s *)p[%u];\n", c, type, i, c, type, i);
    }
}

/* ---- prologue ---- */

void emit_helper(struct text *t, enum op op, enum dtype compute)
{
    const struct op_row *row = &op_info[op];
    uint32_t n = row->kind == REDUCTION ? 2 : row->max_operands;
    const char *type = emit_type(compute);
    text_add(t, "A_FN %s op_%s_%s(%s a", row->types == TYPES_C ? "int32_t" : type, row->name,
             emit_suffix(compute), op == OP_where ? "int32_t" : type);
    for (uint32_t i = 1; i < n; i++) {
        text_add(t, ", %s %c", type, (char)('a' + i));
    }
    text_add(t, ") { return %s; }\n", row->meaning);
}

bool emit_uses(const struct kernel *kernels, uint32_t n, enum op op, enum dtype compute)
{
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < kernels[k].n_insts; i++) {
            const struct inst *inst = &kernels[k].insts[i];
            if ((inst->kind == INST_OP || inst->kind == INST_REDUCE) && inst->op == op &&
                inst->compute == compute) {
                return true;
            }
        }
    }
    return false;
}

/* Halves of the lanes onto each other. Lanes of bools are i32. */
static void emit_fold(struct text *t, enum op op, enum dtype compute, const char *name,
                      const char *lane)
{
    const char *o = op_info[op].name;
    text_add(t, "static inline %s fold_%s_%s(%s *lane)\n{\n", emit_type(compute), o, name, lane);
    for (int h = LANES / 2; h > 0; h /= 2) {
        text_add(
            t, "    for (int k = 0; k < %d; k++) { lane[k] = op_%s_%s(lane[k], lane[k + %d]); }\n",
            h, o, emit_suffix(compute), h);
    }
    text_add(t, "    return lane[0];\n}\n");
}

/* The canonical order of a row whose chunks are more than one: chunk results form a row of their
 * own. */
static void emit_reducer(struct text *t, enum op op, enum dtype compute)
{
    const char *type = emit_type(compute), *s = emit_suffix(compute), *o = op_info[op].name;
    struct text id = {.arena = t->arena};
    emit_identity(&id, op, compute);
    emit_fold(t, op, compute, s, type);
    if (emit_is_logical(op)) {
        emit_fold(t, op, compute, "bool", "int32_t");
    }
    text_add(t,
             "typedef struct { %s lane[2][128]; int64_t count[2]; } row_%s_%s;\n"
             "static inline void begin_%s_%s(row_%s_%s *r)\n{\n"
             "    for (int k = 0; k < 128; k++) { r->lane[0][k] = r->lane[1][k] = %s; }\n"
             "    r->count[0] = r->count[1] = 0;\n}\n",
             type, o, s, o, s, o, s, id.data);
    text_add(t,
             "static inline void push_%s_%s(row_%s_%s *r, %s x)\n{\n"
             "    %s *to = &r->lane[0][r->count[0] & 127];\n    *to = op_%s_%s(*to, x);\n"
             "    if (++r->count[0] == 16384) {\n        %s y = fold_%s_%s(r->lane[0]);\n"
             "        for (int k = 0; k < 128; k++) { r->lane[0][k] = %s; }\n"
             "        r->count[0] = 0;\n        to = &r->lane[1][r->count[1]++ & 127];\n"
             "        *to = op_%s_%s(*to, y);\n    }\n}\n",
             o, s, o, s, type, type, o, s, type, o, s, id.data, o, s);
    text_add(t,
             "static inline %s end_%s_%s(row_%s_%s *r)\n{\n    int64_t rest = r->count[0];\n"
             "    %s y = fold_%s_%s(r->lane[0]);\n    if (r->count[1] == 0) { return y; }\n"
             "    if (rest > 0) {\n        %s *to = &r->lane[1][r->count[1] & 127];\n"
             "        *to = op_%s_%s(*to, y);\n    }\n    return fold_%s_%s(r->lane[1]);\n}\n",
             type, o, s, o, s, type, o, s, type, o, s, o, s);
}

void emit_prologue_c(struct text *t, const struct kernel *kernels, uint32_t n)
{
    static const enum dtype computes[] = {F32, F64, I64};
    static const char *const sections[] = {"A_F32", "A_F64", "A_I64"};
    text_add(
        t,
        "typedef unsigned char uint8_t;\ntypedef unsigned short uint16_t;\ntypedef int int32_t;\n"
        "typedef unsigned int uint32_t;\ntypedef long int64_t;\ntypedef unsigned long uint64_t;\n"
        "#define A_INF_F32 __builtin_inff()\n#define A_INF_F64 __builtin_inf()\n"
        "#define A_NAN_F32 __builtin_nanf(\"\")\n#define A_NAN_F64 __builtin_nan(\"\")\n");
    text_add(t, "int omp_get_thread_num(void);\nint omp_get_num_threads(void);\n");
    text_add(t, "%s\n%s\n%s\n", prelude_convert, prelude_math, prelude_philox);
    text_add(t, "A_FN float normal_at(uint64_t seed, uint64_t stream, uint64_t i)\n{\n"
                "    return normal_f32(random_u32(seed, stream, 2 * i), random_u32(seed, stream, 2 "
                "* i + 1));\n}\n");
    for (uint32_t c = 0; c < ARRAY_LEN(computes); c++) {
        text_add(t, "#define %s\n%s\n", sections[c], prelude_ops);
        for (int op = 1; op < N_OPS; op++) {
            if (op != OP_cast && emit_uses(kernels, n, (enum op)op, computes[c])) {
                emit_helper(t, (enum op)op, computes[c]);
                if (op_info[op].kind == REDUCTION) {
                    emit_reducer(t, (enum op)op, computes[c]);
                }
            }
        }
        text_add(t, "#undef %s\n", sections[c]);
    }
}

int64_t emit_block(const struct kernel *k)
{
    int64_t weight = 0, block = LARGEST_BLOCK;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        bool is_function = inst->kind == INST_RANDOM || op_is_function(inst->op);
        weight += inst->is_row ? 0 : is_function ? FUNCTION_WEIGHT : 1;
    }
    while (block > SMALLEST_BLOCK && block * weight > BLOCK_WEIGHT) {
        block /= 2;
    }
    return block;
}

/* The entry of a flat kernel: all its tensors in one call. A chain's large tensors are each cut in
 * one stretch a thread, so that a thread meets the same part of a parameter in every kernel and
 * finds it in its own cache; blocks of the small ones are dealt out in turns, counted over all of
 * them. Reductions share out their own chunks. */
static void emit_tensors(struct text *t, const struct kernel *k, const char *name, bool is_chain)
{
    text_add(t, "void %s(void *const *p, const int64_t *d, const int64_t *n, int64_t count)\n{\n",
             name);
    if (!is_chain) {
        text_add(
            t,
            "    for (int64_t t = 0; t < count; t++) {\n        %s_one(p + t * %u, d, n[t]);\n "
            "   }\n}\n",
            name, k->n_args);
        return;
    }
    text_add(t,
             "    enum { BLOCK = %d };\n    int64_t blocks = 0;\n"
             "    for (int64_t t = 0; t < count; t++) { blocks += (n[t] + BLOCK - 1) / BLOCK; }\n"
             "#pragma omp parallel if (blocks > %d)\n    {\n"
             "        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();\n"
             "        int64_t turn = me;\n"
             "        for (int64_t t = 0; t < count; t++) {\n"
             "            const int64_t of = (n[t] + BLOCK - 1) / BLOCK;\n"
             "            const int is_cut = of >= %d * all;\n"
             "            const int64_t last = is_cut ? of * (me + 1) / all : of;\n"
             "            int64_t at = is_cut ? of * me / all : turn;\n",
             (int)emit_block(k), LEAST_BLOCKS, LEAST_BLOCKS);
    text_add(
        t,
        "            while (at < last) {\n"
        "                const int64_t lo = at * BLOCK, hi = (is_cut ? last : at + 1) * BLOCK;\n"
        "                %s_part(p + t * %u, d, n[t], lo, hi < n[t] ? hi : n[t]);\n"
        "                at = is_cut ? last : at + all;\n            }\n"
        "            turn = is_cut ? turn : at - of;\n        }\n    }\n}\n",
        name, k->n_args);
}

void emit_kernel_c(struct text *t, const struct kernel *k, const char *name)
{
    bool is_flat_chain = k->is_flat && k->n_phases == 1;
    const char *head = is_flat_chain ? "_part(void *const *p, const int64_t *d, int64_t n, int64_t "
                                       "lo, int64_t hi)"
                       : k->is_flat
                           ? "_one(void *const *p, const int64_t *d, int64_t n)"
                           : "(void *const *p, const int64_t *d, const int64_t *n, int64_t count)";
    text_add(t, "\n/* %s */\n%svoid %s%s\n{\n", k->comment, k->is_flat ? "static " : "", name,
             head);
    emit_args(t, k);
    text_add(t, "    (void)p; (void)d; (void)n;\n");
    if (k->kind == GROUP_COLUMN) {
        emit_column(t, k);
    } else {
        emit_row(t, k);
    }
    text_add(t, "}\n");
    if (k->is_flat) {
        emit_tensors(t, k, name, is_flat_chain);
    }
}
