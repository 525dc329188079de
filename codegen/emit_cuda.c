/* The CUDA printer: prologue, parameters, and the work on a few neighbouring elements, which is
 * what every kind of kernel has inside. Sits beside emit.c and uses its spelling of single
 * instructions. Invariant: elements move in packs of up to 16 bytes only where the index map and
 * the dims say that a pack is contiguous and aligned. */
#include "emit_cuda_internal.h"

#include <stdio.h>
#include <string.h>

#include "prelude_text.h"

enum { MOST_UNROLLED = 16 }; /* instructions of a loop's body */

void emit_functor(struct text *t, const struct inst *reduction)
{
    text_add(t, "f_%s_%s", op_info[reduction->op].name, emit_suffix(reduction->compute));
}

void emit_each(struct cuda_emitter *c, uint32_t phase, const char *pattern)
{
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        const struct inst *inst = &c->k->insts[i];
        if (inst->kind != INST_REDUCE || (phase != ALL_PHASES && inst->ready != phase)) {
            continue;
        }
        for (const char *p = pattern; *p != '\0'; p++) {
            if (*p == '@') {
                text_add(c->t, "%u", i);
            } else if (*p == '~') {
                text_add(c->t, "%s", emit_type(inst->compute));
            } else if (*p == '$') {
                emit_functor(c->t, inst);
            } else {
                text_append(c->t, p, 1);
            }
        }
    }
}

void emit_result(struct text *t, const struct kernel *k, uint32_t i, const char *from,
                 const char *indent)
{
    const struct inst *inst = &k->insts[i];
    text_add(t, "%sconst %s v%u = ", indent, emit_type(inst->dtype), i);
    emit_round_open(t, inst->compute, inst->dtype, false);
    text_add(t, "%s", from);
    emit_round_close(t, inst->compute, inst->dtype);
    text_add(t, ";\n");
}

/* ---- what a loop needs ---- */

static void need(struct cuda_emitter *c, uint32_t i)
{
    const struct inst *inst = &c->k->insts[i];
    if (c->is_needed[i] || inst->is_row) {
        return;
    }
    c->is_needed[i] = true;
    for (uint32_t o = 0; o < inst->n_operands; o++) {
        need(c, inst->operands[o]);
    }
}

static bool is_reduced_in(const struct inst *inst, uint32_t phase)
{
    return inst->kind == INST_REDUCE && inst->ready == phase;
}

static bool is_stored_in(const struct store *s, uint32_t phase)
{
    return !s->is_row && s->phase == phase;
}

void need_of_phase(struct cuda_emitter *c, uint32_t phase)
{
    memset(c->is_needed, 0, c->k->n_insts * sizeof *c->is_needed);
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        if (is_reduced_in(&c->k->insts[i], phase)) {
            need(c, c->k->insts[i].operands[0]);
        }
    }
    for (uint32_t i = 0; i < c->k->n_stores; i++) {
        if (is_stored_in(&c->k->stores[i], phase)) {
            need(c, c->k->stores[i].inst);
        }
    }
}

bool phase_has_reductions(const struct kernel *k, uint32_t phase)
{
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (is_reduced_in(&k->insts[i], phase)) {
            return true;
        }
    }
    return false;
}

bool phase_has_loop(const struct kernel *k, uint32_t phase)
{
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (is_stored_in(&k->stores[i], phase)) {
            return true;
        }
    }
    return phase_has_reductions(k, phase);
}

/* ---- packs ---- */

static bool divides(struct dim d, uint32_t width)
{
    return d.factor % (int64_t)width == 0;
}

/* A pack of `width` at a multiple of `width` along the last axis is contiguous and aligned. */
static bool is_packed(const struct kernel *k, const struct index_map *m, uint32_t width)
{
    if (k->rank == 0 || width < 2 || !dim_is(m->stride[k->rank - 1], 1) ||
        !divides(m->offset, width)) {
        return false;
    }
    for (uint32_t i = 0; i + 1 < k->rank; i++) {
        if (!divides(m->stride[i], width)) {
            return false;
        }
    }
    return k->is_flat || divides(k->domain[k->rank - 1], width);
}

uint32_t width_of_loop(const struct cuda_emitter *c, uint32_t phase, uint32_t most)
{
    const struct kernel *k = c->k;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (c->is_needed[i] && inst->kind == INST_LOAD && is_packed(k, &inst->map, 2)) {
            uint32_t own = dtype_info[inst->dtype].bytes;
            bytes = own > bytes ? own : bytes;
        }
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (is_stored_in(&k->stores[i], phase) && is_packed(k, &k->stores[i].map, 2)) {
            uint32_t own = dtype_info[k->args[k->stores[i].arg].dtype].bytes;
            bytes = own > bytes ? own : bytes;
        }
    }
    uint32_t width = bytes == 0 ? 1 : 16 / bytes;
    width = width > most ? most : width;
    while (width > 1 && !k->is_flat && !divides(k->domain[k->rank - 1], width)) {
        width /= 2;
    }
    return width;
}

static void emit_pack(struct text *t, enum dtype dtype, uint32_t width)
{
    text_add(t, "a_pack<%s, %u>", emit_storage(dtype), width);
}

static void emit_packed_loads(struct cuda_emitter *c, uint32_t width, const char *indent)
{
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        const struct inst *inst = &c->k->insts[i];
        if (c->is_needed[i] && inst->kind == INST_LOAD && is_packed(c->k, &inst->map, width)) {
            text_add(c->t, "%sconst ", indent);
            emit_pack(c->t, inst->dtype, width);
            text_add(c->t, " q%u = *(const ", i);
            emit_pack(c->t, inst->dtype, width);
            text_add(c->t, " *)&p%u[", inst->arg);
            emit_index(c->t, c->k, &inst->map);
            text_add(c->t, "];\n");
        }
    }
}

static void emit_packed_stores(struct cuda_emitter *c, uint32_t phase, uint32_t width,
                               const char *live, bool is_declaration, const char *indent)
{
    for (uint32_t i = 0; i < c->k->n_stores; i++) {
        const struct store *s = &c->k->stores[i];
        if (!is_stored_in(s, phase) || !is_packed(c->k, &s->map, width)) {
            continue;
        }
        enum dtype dtype = c->k->args[s->arg].dtype;
        text_add(c->t, "%s", indent);
        if (is_declaration) {
            emit_pack(c->t, dtype, width);
            text_add(c->t, " w%u;\n", i);
            continue;
        }
        if (live != NULL) {
            text_add(c->t, "if (%s) ", live);
        }
        text_add(c->t, "*(");
        emit_pack(c->t, dtype, width);
        text_add(c->t, " *)&p%u[", s->arg);
        emit_index(c->t, c->k, &s->map);
        text_add(c->t, "] = w%u;\n", i);
    }
}

static void emit_element_stores(struct cuda_emitter *c, uint32_t phase, uint32_t width,
                                const char *live, const char *indent)
{
    for (uint32_t i = 0; i < c->k->n_stores; i++) {
        const struct store *s = &c->k->stores[i];
        if (!is_stored_in(s, phase)) {
            continue;
        }
        enum dtype dtype = c->k->args[s->arg].dtype;
        if (is_packed(c->k, &s->map, width)) {
            if (dtype_is_low(dtype)) {
                text_add(c->t, "%sw%u.at[j] = to_%s(v%u);\n", indent, i, dtype_info[dtype].name,
                         s->inst);
            } else {
                text_add(c->t, "%sw%u.at[j] = (%s)v%u;\n", indent, i, emit_storage(dtype), s->inst);
            }
        } else if (live != NULL) {
            text_add(c->t, "%sif (%s) {\n", indent, live);
            emit_store(c->t, c->k, s, indent);
            text_add(c->t, "%s}\n", indent);
        } else {
            emit_store(c->t, c->k, s, indent);
        }
    }
}

static void emit_element(struct cuda_emitter *c, uint32_t phase, uint32_t width, const char *live,
                         const char *indent)
{
    const struct kernel *k = c->k;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (!c->is_needed[i]) {
            continue;
        }
        if (inst->kind == INST_LOAD && is_packed(k, &inst->map, width)) {
            bool is_low = dtype_is_low(inst->dtype);
            text_add(c->t, "%sconst %s v%u = %s%s%sq%u.at[j]%s;\n", indent, emit_type(inst->dtype),
                     i, is_low ? "from_" : "(",
                     is_low ? dtype_info[inst->dtype].name : emit_type(inst->dtype),
                     is_low ? "(" : ")", i, is_low ? ")" : "");
        } else {
            emit_inst(c->t, k, i, indent);
        }
    }
    emit_element_stores(c, phase, width, live, indent);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (is_reduced_in(inst, phase)) {
            text_add(c->t, "%sacc%u[%s] = op_%s_%s(acc%u[%s], ", indent, i, width > 1 ? "j" : "0",
                     op_info[inst->op].name, emit_suffix(inst->compute), i, width > 1 ? "j" : "0");
            emit_operand(c->t, k, inst->operands[0], inst->compute);
            text_add(c->t, ");\n");
        }
    }
}

void emit_unroll(struct cuda_emitter *c, uint32_t width)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        n += c->is_needed[i];
    }
    uint32_t copies = n * width > MOST_UNROLLED ? 1 : width > 1 ? 2 : 4;
    text_add(c->t, "#pragma unroll %u\n", copies);
}

void emit_elements(struct cuda_emitter *c, uint32_t phase, uint32_t width, const char *live,
                   const char *indent)
{
    const struct kernel *k = c->k;
    uint32_t from = k->first_axis, to = k->first_axis + k->n_axes;
    char deeper[32];
    (void)snprintf(deeper, sizeof deeper, "%s    ", indent);
    if (width == 1) {
        emit_decode(c->t, k, from, to, "base", indent);
        emit_element(c, phase, 1, live, indent);
        return;
    }
    text_add(c->t, "%s{\n", indent);
    emit_decode(c->t, k, from, to, "base", deeper);
    emit_packed_loads(c, width, deeper);
    emit_packed_stores(c, phase, width, live, true, deeper);
    text_add(
        c->t,
        "#pragma unroll\n%sfor (int j = 0; j < %u; j++) {\n%s    const int64_t i = base + j;\n",
        deeper, width, deeper);
    char deepest[40];
    (void)snprintf(deepest, sizeof deepest, "%s    ", deeper);
    emit_decode(c->t, k, from, to, "i", deepest);
    emit_element(c, phase, width, live, deepest);
    text_add(c->t, "%s}\n", deeper);
    emit_packed_stores(c, phase, width, live, false, deeper);
    text_add(c->t, "%s}\n", indent);
}

void emit_row_values(struct cuda_emitter *c, uint32_t phase, const char *lead, const char *indent)
{
    const struct kernel *k = c->k;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (k->insts[i].is_row && k->insts[i].kind != INST_REDUCE && k->insts[i].ready == phase) {
            emit_inst(c->t, k, i, indent);
        }
    }
    for (uint32_t i = 0; i < k->n_stores && lead != NULL; i++) {
        if (k->stores[i].is_row && k->stores[i].phase == phase) {
            text_add(c->t, "%sif (%s) {\n", indent, lead);
            emit_store(c->t, k, &k->stores[i], indent);
            text_add(c->t, "%s}\n", indent);
        }
    }
}

/* ---- functions ---- */

struct cuda_stage *emit_stage(struct cuda_emitter *c, const char *suffix, uint32_t block_x,
                              uint32_t block_y)
{
    struct cuda_stage *s = &c->stages[c->n_stages++];
    *s = (struct cuda_stage){.symbol = arena_text(c->arena, "%s%s", c->name, suffix),
                             .per_block = 1,
                             .block_x = block_x,
                             .block_y = block_y};
    text_add(c->t, "\nextern \"C\" __global__ void __launch_bounds__(%u) %s(", block_x * block_y,
             s->symbol);
    for (uint32_t i = 0; i < c->k->n_args; i++) {
        const struct kernel_arg *arg = &c->k->args[i];
        text_add(c->t, "%s%s *p%u, ", arg->is_written ? "" : "const ", emit_storage(arg->dtype), i);
    }
    text_add(c->t, "const a_symbols symbols, int64_t n, uint64_t *work)\n{\n"
                   "    const int64_t *d = symbols.at;\n");
    return s;
}

void emit_kernel_cuda(struct text *t, const struct kernel *k, const char *name, bool wants_many,
                      struct arena *arena, struct cuda_kernel *out)
{
    struct cuda_emitter c = {.k = k, .t = t, .arena = arena, .name = name};
    c.wants_many = wants_many;
    c.stages = ARENA_ARRAY(arena, struct cuda_stage, 3 * k->n_phases + 1);
    c.is_needed = ARENA_ARRAY(arena, bool, k->n_insts + 1);
    text_add(t, "\n/* %s */", k->comment);
    if (k->kind == GROUP_COLUMN) {
        emit_cuda_column(&c);
    } else {
        emit_cuda_row(&c);
    }
    *out = (struct cuda_kernel){.n_stages = c.n_stages, .stages = c.stages, .many = c.many};
    for (uint32_t i = 0; i < k->n_insts && c.n_stages > 1; i++) {
        out->n_sums += k->insts[i].kind == INST_REDUCE;
    }
}

/* ---- prologue ---- */

static void emit_cuda_helper(struct text *t, enum op op, enum dtype compute)
{
    const struct op_row *row = &op_info[op];
    const char *type = emit_type(compute), *s = emit_suffix(compute);
    emit_helper(t, op, compute);
    if (row->kind == REDUCTION) {
        text_add(t,
                 "struct f_%s_%s {\n    typedef %s type;\n"
                 "    A_FN type op(type a, type b) { return op_%s_%s(a, b); }\n"
                 "    A_FN type identity() { return ",
                 row->name, s, type, row->name, s);
        emit_identity(t, op, compute);
        text_add(t, "; }\n};\n");
    }
}

void emit_prologue_cuda(struct text *t, const struct kernel *kernels, uint32_t n)
{
    static const enum dtype computes[] = {F32, F64, I64};
    static const char *const sections[] = {"A_F32", "A_F64", "A_I64"};
    text_add(t, "%s\n%s\n%s\n%s\n", prelude_cuda, prelude_convert, prelude_math, prelude_philox);
    text_add(t, "#define A_INF_F32 a_float(0x7f800000u)\n"
                "#define A_NAN_F32 a_float(0x7fc00000u)\n"
                "#define A_INF_F64 __longlong_as_double(0x7ff0000000000000ll)\n"
                "#define A_NAN_F64 __longlong_as_double(0x7ff8000000000000ll)\n"
                "A_FN float normal_at(uint64_t seed, uint64_t stream, uint64_t i)\n{\n"
                "    return normal_f32(random_u32(seed, stream, 2 * i), random_u32(seed, stream, 2 "
                "* i + 1));\n}\n");
    for (uint32_t c = 0; c < ARRAY_LEN(computes); c++) {
        text_add(t, "#define %s\n%s\n", sections[c], prelude_ops);
        for (int op = 1; op < N_OPS; op++) {
            if (op != OP_cast && emit_uses(kernels, n, (enum op)op, computes[c])) {
                emit_cuda_helper(t, (enum op)op, computes[c]);
            }
        }
        text_add(t, "#undef %s\n", sections[c]);
    }
}
