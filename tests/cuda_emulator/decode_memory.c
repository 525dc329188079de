/* Loads, stores, atomics and asynchronous copies to code. Slots of these instructions: r[0..7] the
 * elements, r[8] the address; atomics: r[0] result, r[1] and r[2] operands. Cache and eviction
 * hints are dropped, .nc is kept (the executor checks it). Invariant: the elements have the lane
 * width of the type; wider registers are copied. */
#include <string.h>

#include "executor.h"

#include "parser.h"

static bool parse_space(const struct parts *parts, uint8_t *space)
{
    static const struct {
        const char *name;
        uint8_t space;
    } names[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},
                 {"shared::cta", SPACE_SHARED}, {"local", SPACE_LOCAL},
                 {"param", SPACE_PARAM},        {"param::entry", SPACE_PARAM},
                 {"param::func", SPACE_PARAM},  {"const", SPACE_CONST}};
    *space = SPACE_GENERIC;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (has_part(parts, names[i].name)) {
            *space = names[i].space;
            return true;
        }
    }
    return false;
}

static enum ptx_type last_type(struct parser *p, const struct parts *parts)
{
    enum ptx_type type = type_named(parts->text[parts->n - 1], parts->length[parts->n - 1]);
    if (type == TYPE_NONE || type == TYPE_pred) {
        parse_fail(p, "type %.*s of a memory access is not known to the emulator",
                   (int)parts->length[parts->n - 1], parts->text[parts->n - 1]);
    }
    return type;
}

/* Slot and displacement of [base+displacement]; the space may follow from the name. */
static void set_address(struct parser *p, struct instruction *in, const struct operand *o,
                        uint32_t base)
{
    in->r[8] = base;
    in->immediate = o->displacement;
    in->is_address_narrow = o->slot && o->bytes == 4;
    if (o->symbol && o->symbol->space == SPACE_LOCAL) {
        in->space = SPACE_LOCAL; /* ld.param of a call's variable */
    } else if (o->symbol && o->symbol->space != SPACE_PARAM && in->space == SPACE_PARAM) {
        parse_fail(p, "%.*s is no parameter", (int)o->name.length, o->name.text);
    }
    uint32_t total = (uint32_t)in->bytes * in->count;
    if ((in->space == SPACE_SHARED || in->space == SPACE_GENERIC) &&
        in->bytes < p->kernel->shared_granule) {
        p->kernel->shared_granule = in->bytes;
    }
    if (total > 32) {
        parse_fail(p, "an access of %u bytes", total);
    }
}

static uint32_t address_slot(struct parser *p, const struct operand *o)
{
    if (o->kind != OPERAND_ADDRESS) {
        parse_fail(p, "the address does not stand in []");
    }
    if (o->slot) {
        return o->slot;
    }
    struct operand symbol = *o;
    symbol.kind = OPERAND_SYMBOL;
    symbol.displacement = 0;
    return o->symbol ? source_slot(p, &symbol, TYPE_u64) : constant_slot(p, 0, 8);
}

static uint8_t vector_count(const struct parts *parts)
{
    return has_part(parts, "v2") ? 2 : has_part(parts, "v4") ? 4 : has_part(parts, "v8") ? 8 : 1;
}

/* The operand as a list of scalar operands: a vector's elements, or itself. */
static uint32_t scalars_of(struct parser *p, const struct operand *o, uint32_t count,
                           struct operand *out)
{
    if (count == 1 && o->kind != OPERAND_VECTOR) {
        out[0] = *o;
        return 1;
    }
    if (o->kind != OPERAND_VECTOR || o->n_elements != count) {
        parse_fail(p, "expected a vector of %u elements", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct operand){.kind = o->elements[i] ? OPERAND_REGISTER : OPERAND_SINK,
                                  .slot = o->elements[i],
                                  .bytes = o->element_bytes[i]};
    }
    return count;
}

/* A scalar argument or result of a call is held in a register: true when o names one of the type's
 * size, whose load or store is then a move. */
static bool is_held(struct parser *p, const struct operand *o, enum ptx_type type, uint32_t count)
{
    if (o->kind != OPERAND_ADDRESS || !o->symbol || !o->symbol->slot) {
        return false;
    }
    if (o->displacement || count != 1 || o->symbol->size != type_info[type].bytes) {
        parse_fail(p, "%.*s is accessed in another size than it is declared", (int)o->name.length,
                   o->name.text);
    }
    return true;
}

static void decode_load(struct parser *p, const struct parts *parts, const struct operand *o)
{
    struct operand list[8];
    enum ptx_type type = last_type(p, parts);
    uint8_t count = vector_count(parts);
    if (is_held(p, &o[1], type, count)) {
        uint32_t d = destination_slot(p, &o[0], type);
        emit_move(p, d, type_info[type].lane, o[1].symbol->slot, type_info[type].lane, false);
        finish_destination(p, &o[0], type, d);
        return;
    }
    uint32_t slots[8], base = address_slot(p, &o[1]);
    scalars_of(p, &o[0], count, list);
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = destination_slot(p, &list[i], type);
    }
    struct instruction *in = emit(p, run_load, count);
    memcpy(in->r, slots, count * sizeof *slots);
    parse_space(parts, &in->space);
    in->bytes = type_info[type].bytes;
    in->is_signed = type_info[type].is_signed;
    in->count = count;
    in->is_noncoherent = has_part(parts, "nc");
    set_address(p, in, &o[1], base);
    if (in->space == SPACE_PARAM && o[1].symbol) {
        in->run = run_load_parameter; /* a place known now: the same for every lane */
        in->immediate += (int64_t)o[1].symbol->address;
        uint64_t end = (uint64_t)in->immediate + (uint64_t)in->bytes * count;
        if (end > p->kernel->parameter_bytes) {
            parse_fail(p, "reads parameters up to byte %llu of %u", (unsigned long long)end,
                       p->kernel->parameter_bytes);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        finish_destination(p, &list[i], type, slots[i]);
    }
}

static void decode_store(struct parser *p, const struct parts *parts, const struct operand *o)
{
    struct operand list[8];
    enum ptx_type type = last_type(p, parts);
    uint8_t count = vector_count(parts);
    if (is_held(p, &o[0], type, count)) {
        uint8_t lane = type_info[type].lane;
        emit_move(p, o[0].symbol->slot, lane, source_slot(p, &o[1], type), lane, false);
        return;
    }
    uint32_t slots[8], base = address_slot(p, &o[0]);
    scalars_of(p, &o[1], count, list);
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = source_slot(p, &list[i], type);
    }
    struct instruction *in = emit(p, run_store, 0);
    memcpy(in->r, slots, count * sizeof *slots);
    parse_space(parts, &in->space);
    in->bytes = type_info[type].bytes;
    in->count = count;
    set_address(p, in, &o[0], base);
}

/* atom.OP.TYPE d, [a], b[, c]; red.OP.TYPE [a], b */
static bool decode_atomic(struct parser *p, const struct parts *parts, const struct operand *o,
                          uint32_t n)
{
    static const char *const actions[] = {"add", "min",  "max", "and", "or",
                                          "xor", "exch", "cas", "inc", "dec"};
    bool is_reduction = part_is(parts, 0, "red");
    const struct operand *address = &o[is_reduction ? 0 : 1], *b = address + 1, *c = address + 2;
    enum ptx_type type = last_type(p, parts);
    uint8_t action = 0;
    while (action < 10 && !has_part(parts, actions[action])) {
        action++;
    }
    bool is_known = action < 10 && type_info[type].bytes >= 4 && type != TYPE_f16x2 &&
                    type != TYPE_bf16x2 && vector_count(parts) == 1 &&
                    n >= (is_reduction ? 2u : 3u);
    if (!is_known) {
        return false;
    }
    uint32_t base = address_slot(p, address), value = source_slot(p, b, type);
    uint32_t other = action == 7 ? source_slot(p, c, type) : 0;
    uint32_t d = is_reduction ? 0 : destination_slot(p, &o[0], type);
    struct instruction *in = emit(p, run_atomic, d != 0);
    in->r[0] = d;
    in->r[1] = value;
    in->r[2] = other;
    parse_space(parts, &in->space);
    in->bytes = type_info[type].bytes;
    in->count = 1;
    in->is_signed = type_info[type].is_signed;
    in->from = (uint8_t)type;
    in->action = action;
    set_address(p, in, address, base);
    if (d) {
        finish_destination(p, &o[0], type, d);
    }
    return true;
}

/* cp.async.{ca,cg}.shared.global [to], [from], 4|8|16: done at once; waiting for it is then
 * nothing. */
static bool decode_copy(struct parser *p, const struct parts *parts, const struct operand *o,
                        uint32_t n)
{
    if (!part_is(parts, 1, "async") || has_part(parts, "bulk") || has_part(parts, "mbarrier")) {
        return false;
    }
    if (has_part(parts, "commit_group") || has_part(parts, "wait_group") ||
        has_part(parts, "wait_all")) {
        return true;
    }
    if (n != 3 || o[2].kind != OPERAND_NUMBER || o[2].number.value % 4 || o[2].number.value > 16) {
        return false;
    }
    uint32_t bases[2] = {address_slot(p, &o[1]), address_slot(p, &o[0])}, slots[4];
    uint8_t count = (uint8_t)(o[2].number.value / 4);
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = new_slot(p, 4);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct instruction *in = emit(p, i ? run_store : run_load, i ? 0 : count);
        memcpy(in->r, slots, count * sizeof *slots);
        in->space = i ? SPACE_SHARED : SPACE_GLOBAL;
        in->bytes = 4;
        in->count = count;
        set_address(p, in, &o[1 - i], bases[i]);
    }
    return true;
}

bool decode_memory(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n)
{
    struct parts parts;
    split_mnemonic(mnemonic, &parts);
    if ((part_is(&parts, 0, "ld") || part_is(&parts, 0, "ldu")) && n >= 2) {
        decode_load(p, &parts, o);
        return true;
    } else if (part_is(&parts, 0, "st") && n >= 2) {
        decode_store(p, &parts, o);
        return true;
    } else if ((part_is(&parts, 0, "atom") || part_is(&parts, 0, "red")) && n >= 2) {
        return decode_atomic(p, &parts, o, n);
    } else if (part_is(&parts, 0, "cp")) {
        return decode_copy(p, &parts, o, n);
    }
    return false;
}
