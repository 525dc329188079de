/* Operands of an instruction, constants, temporaries and emission. Everything an instruction reads
 * becomes a slot of the width its type wants: PTX lets a register be wider than the type of a load,
 * a store or a conversion, the executor does not. Invariant: an emitted instruction carries the
 * guard and the line of the statement it comes from. */
#include "parser.h"

#include <string.h>

#include "executor.h"

uint32_t new_slots(struct parser *p, uint32_t n, uint32_t lane_bytes)
{
    struct kernel *k = p->kernel;
    uint32_t slot = k->file_bytes;
    k->file_bytes += n * LANES * lane_bytes;
    uint32_t end = k->file_bytes / SLOT_UNIT;
    if (end > k->wide_room) {
        bool *more = module_alloc(p->module, 2 * end * sizeof *more);
        if (k->wide_room) {
            memcpy(more, k->is_wide, k->wide_room * sizeof *more);
        }
        k->is_wide = more;
        k->wide_room = 2 * end;
    }
    for (uint32_t i = slot / SLOT_UNIT; i < end; i++) {
        k->is_wide[i] = lane_bytes == 8;
    }
    return slot;
}

uint32_t new_slot(struct parser *p, uint32_t lane_bytes)
{
    return new_slots(p, 1, lane_bytes);
}

static uint32_t add_constant(struct parser *p, uint64_t value, uint8_t bytes,
                             bool is_dynamic_shared)
{
    struct kernel *k = p->kernel;
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const struct constant_slot *c = &k->constants[i];
        if (c->value == value && c->bytes == bytes && c->is_dynamic_shared == is_dynamic_shared) {
            return c->slot;
        }
    }
    k->constants = module_grow(p->module, k->constants, k->n_constants, &k->constants_room,
                               sizeof *k->constants);
    k->constants[k->n_constants] =
        (struct constant_slot){new_slot(p, bytes), bytes, is_dynamic_shared, value};
    return k->constants[k->n_constants++].slot;
}

uint32_t constant_slot(struct parser *p, uint64_t value, uint8_t lane_bytes)
{
    return add_constant(p, lane_bytes == 4 ? (uint32_t)value : value, lane_bytes, false);
}

static uint32_t special_slot(struct parser *p, const char *name, uint32_t length, uint8_t *bytes)
{
    static const struct {
        const char *name;
        uint8_t bytes;
    } rows[] = {
#define X(id, text, width) {text, width},
#include "special_registers.def"
#undef X
    };
    struct kernel *k = p->kernel;
    for (uint32_t id = 0; id < N_SPECIALS; id++) {
        if (!text_is(name, length, rows[id].name)) {
            continue;
        }
        *bytes = rows[id].bytes;
        for (uint32_t i = 0; i < k->n_specials; i++) {
            if (k->specials[i].id == id) {
                return k->specials[i].slot;
            }
        }
        k->specials = module_grow(p->module, k->specials, k->n_specials, &k->specials_room,
                                  sizeof *k->specials);
        k->specials[k->n_specials] =
            (struct special_slot){new_slot(p, rows[id].bytes), (enum special)id};
        return k->specials[k->n_specials++].slot;
    }
    return 0;
}

struct instruction *emit(struct parser *p, run_function *run, uint8_t n_defs)
{
    struct kernel *k = p->kernel;
    k->code = module_grow(p->module, k->code, k->n_code, &k->code_room, sizeof *k->code);
    struct instruction *in = &k->code[k->n_code++];
    *in = (struct instruction){.run = run,
                               .line = p->statement_line,
                               .guard = p->guard,
                               .is_guard_negated = p->is_guard_negated,
                               .n_defs = n_defs};
    return in;
}

/* ---- reading operands ---- */

/* A register, a special register, or the name of a variable or label. */
static void parse_named(struct parser *p, struct operand *o)
{
    o->name = take_word(p);
    o->slot = find_register(p, o->name.text, o->name.length, &o->bytes);
    if (!o->slot && o->name.text[0] == '%') {
        o->slot = special_slot(p, o->name.text, o->name.length, &o->bytes);
        if (!o->slot) {
            parse_fail(p, "%.*s is neither declared nor a special register the emulator knows",
                       (int)o->name.length, o->name.text);
        }
    }
    o->kind = o->slot ? OPERAND_REGISTER : OPERAND_SYMBOL;
    if (!o->slot) {
        o->symbol = find_symbol(p, o->name.text, o->name.length);
        if (o->symbol) {
            symbol_place(p, o->symbol);
        }
    }
}

static int64_t parse_displacement(struct parser *p)
{
    int64_t sum = 0;
    while (token_is(p, "+") || token_is(p, "-")) {
        bool is_minus = accept(p, "-");
        if (!is_minus) {
            next_token(p);
        }
        int64_t value = (int64_t)take_integer(p);
        sum += is_minus ? -value : value;
    }
    return sum;
}

/* [%rd1+16], [name], [name+4], [1024] */
static void parse_address(struct parser *p, struct operand *o)
{
    if (p->token.kind == TOKEN_WORD) {
        parse_named(p, o);
        if (o->kind == OPERAND_SYMBOL && !o->symbol) {
            parse_fail(p, "the address %.*s is not declared", (int)o->name.length, o->name.text);
        }
    } else {
        o->displacement = (int64_t)take_integer(p);
    }
    o->displacement += parse_displacement(p);
    o->kind = OPERAND_ADDRESS;
    expect(p, "]");
}

/* {%r1, %r2, _, 0} */
static void parse_vector(struct parser *p, struct operand *o)
{
    o->kind = OPERAND_VECTOR;
    while (!accept(p, "}")) {
        struct operand element = {0};
        parse_operand(p, &element);
        if (o->n_elements == 8) {
            parse_fail(p, "a vector of more than 8 elements");
        }
        uint32_t i = o->n_elements++;
        if (element.kind == OPERAND_NUMBER) {
            uint8_t bytes = element.number.float_bytes == 8 ? 8 : 4;
            o->elements[i] = constant_slot(p, element.number.value, bytes);
            o->element_bytes[i] = bytes;
        } else {
            o->elements[i] = element.slot;
            o->element_bytes[i] = element.bytes;
        }
        accept(p, ",");
    }
}

void parse_operand(struct parser *p, struct operand *o)
{
    *o = (struct operand){0};
    o->is_negated = accept(p, "!");
    if (accept(p, "[")) {
        parse_address(p, o);
    } else if (accept(p, "{")) {
        parse_vector(p, o);
    } else if (accept(p, "_")) {
        o->kind = OPERAND_SINK;
    } else if (p->token.kind == TOKEN_WORD) {
        parse_named(p, o);
        if (o->kind == OPERAND_SYMBOL) {
            o->displacement = parse_displacement(p);
        } else if (accept(p, "|")) {
            struct operand second;
            parse_operand(p, &second);
            o->pair = second.slot;
        }
    } else {
        o->kind = OPERAND_NUMBER;
        bool is_negative = accept(p, "-");
        o->number = p->token;
        if (p->token.kind != TOKEN_NUMBER) {
            parse_fail(p, "found \"%.*s\", expected an operand", (int)p->token.length,
                       p->token.text);
        }
        next_token(p);
        if (is_negative && !o->number.float_bytes) {
            o->number.value = 0 - o->number.value;
        } else if (is_negative) {
            o->number.value ^= (uint64_t)1 << (8 * o->number.float_bytes - 1);
        }
    }
}

/* ---- slots for operands ---- */

void emit_move(struct parser *p, uint32_t to, uint8_t to_bytes, uint32_t from, uint8_t from_bytes,
               bool is_signed)
{
    const char *name = to_bytes == from_bytes ? (to_bytes == 8 ? "mov.b64" : "mov.b32")
                       : to_bytes == 4        ? "cvt.u32.u64"
                       : is_signed            ? "cvt.s64.s32"
                                              : "cvt.u64.u32";
    struct instruction *in = emit(p, find_op(name, (uint32_t)strlen(name))->run, 1);
    in->r[0] = to;
    in->r[1] = from;
}

uint64_t symbol_address(const struct symbol *s)
{
    if (s->is_parameter) {
        return PARAM_WINDOW + s->address;
    }
    return s->is_dynamic_shared ? 0 : s->address;
}

static uint64_t number_as(const struct token *number, enum ptx_type type)
{
    uint64_t value = number->value;
    if (type == TYPE_pred) {
        return value ? 0xffffffffu : 0;
    }
    if (type == TYPE_f32 && number->float_bytes == 8) {
        double d;
        memcpy(&d, &value, sizeof d);
        float f = (float)d;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        return bits;
    }
    return type_info[type].bytes < 4 ? value & ((1u << 8 * type_info[type].bytes) - 1) : value;
}

uint32_t source_slot(struct parser *p, const struct operand *o, enum ptx_type type)
{
    uint8_t lane = type_info[type].lane;
    if (o->kind == OPERAND_NUMBER) {
        return constant_slot(p, number_as(&o->number, type), lane);
    }
    if (o->kind == OPERAND_SYMBOL) {
        if (!o->symbol || o->symbol->kind != SYMBOL_VARIABLE) {
            parse_fail(p, "%.*s is not declared", (int)o->name.length, o->name.text);
        }
        uint64_t value = symbol_address(o->symbol) + (uint64_t)o->displacement;
        return add_constant(p, value, lane, o->symbol->is_dynamic_shared);
    }
    if (o->kind != OPERAND_REGISTER) {
        parse_fail(p, "an operand is neither a register nor a constant");
    }
    if (type == TYPE_pred && o->is_negated) {
        uint32_t slot = new_slot(p, 4);
        struct instruction *in = emit(p, find_op("not.pred", 8)->run, 1);
        in->r[0] = slot;
        in->r[1] = o->slot;
        return slot;
    }
    if (o->bytes == lane) {
        return o->slot;
    }
    uint32_t slot = new_slot(p, lane);
    emit_move(p, slot, lane, o->slot, o->bytes, type_info[type].is_signed);
    return slot;
}

uint32_t destination_slot(struct parser *p, const struct operand *o, enum ptx_type type)
{
    if (o->kind == OPERAND_SINK) {
        return new_slot(p, type_info[type].lane);
    }
    if (o->kind != OPERAND_REGISTER) {
        parse_fail(p, "the destination is no register");
    }
    return o->bytes == type_info[type].lane ? o->slot : new_slot(p, type_info[type].lane);
}

void finish_destination(struct parser *p, const struct operand *o, enum ptx_type type,
                        uint32_t slot)
{
    if (o->kind == OPERAND_REGISTER && o->slot != slot) {
        emit_move(p, o->slot, o->bytes, slot, type_info[type].lane, type_info[type].is_signed);
    }
}
