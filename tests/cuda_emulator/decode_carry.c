/* Integer arithmetic with the carry flag: add.cc, addc[.cc], sub.cc, subc[.cc],
 * mad[c].{lo,hi}[.cc], as 128-bit integers need it. Each becomes a few plain instructions; the flag
 * is a predicate of the kernel. After a subtraction it holds the borrow, as the PTX manual says. */
#include <string.h>

#include "executor.h"
#include "parser.h"

static void emit_row(struct parser *p, const char *stem, const char *type, uint32_t d, uint32_t a,
                     uint32_t b, uint32_t c)
{
    char name[40];
    size_t length = strlen(stem);
    memcpy(name, stem, length);
    strcpy(name + length, type);
    struct instruction *in = emit(p, find_op(name, (uint32_t)strlen(name))->run, 1);
    in->r[0] = d;
    in->r[1] = a;
    in->r[2] = b;
    in->r[3] = c;
}

/* d = a + b + flag, or a - b - flag; the flag becomes carry or borrow. type: "u32" or "u64". */
static void emit_sum(struct parser *p, bool is_sub, const char *type, uint32_t d, uint32_t a,
                     uint32_t b, bool takes_flag, bool gives_flag)
{
    bool is_wide = strcmp(type, "u64") == 0;
    uint8_t lane = is_wide ? 8 : 4;
    uint32_t flag = p->kernel->carry_slot;
    uint32_t first = new_slot(p, lane), over = new_slot(p, 4), over_again = new_slot(p, 4),
             sum = first;
    emit_row(p, is_sub ? "sub." : "add.", type, first, a, b, 0);
    emit_row(p, "setp.lt.", type, over, is_sub ? a : first, is_sub ? b : a, 0);
    if (takes_flag) {
        uint32_t one = new_slot(p, lane);
        sum = new_slot(p, lane);
        emit_row(p, "selp.", type, one, constant_slot(p, 1, lane), constant_slot(p, 0, lane), flag);
        emit_row(p, is_sub ? "sub." : "add.", type, sum, first, one, 0);
        emit_row(p, "setp.lt.", type, over_again, is_sub ? first : sum, is_sub ? one : first, 0);
        emit_row(p, "or.", "pred", over, over, over_again, 0);
    }
    if (gives_flag) {
        emit_row(p, "mov.", "pred", flag, over, 0, 0);
    }
    emit_move(p, d, lane, sum, lane, false);
}

bool decode_carry(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n)
{
    struct parts parts;
    split_mnemonic(mnemonic, &parts);
    bool is_mad = part_is(&parts, 0, "mad") || part_is(&parts, 0, "madc");
    bool is_sub = part_is(&parts, 0, "sub") || part_is(&parts, 0, "subc");
    bool takes =
        part_is(&parts, 0, "addc") || part_is(&parts, 0, "subc") || part_is(&parts, 0, "madc");
    bool gives = has_part(&parts, "cc");
    bool is_known = is_mad || is_sub || part_is(&parts, 0, "add") || part_is(&parts, 0, "addc");
    if (!is_known || (!takes && !gives) || n != (is_mad ? 4u : 3u)) {
        return false;
    }
    enum ptx_type type = type_named(parts.text[parts.n - 1], parts.length[parts.n - 1]);
    if (type_info[type].is_float || type_info[type].bytes < 4) {
        return false;
    }
    const char *plain = type_info[type].lane == 8 ? "u64" : "u32";
    if (!p->kernel->carry_slot) {
        p->kernel->carry_slot = new_slot(p, 4);
    }
    uint32_t a = source_slot(p, &o[1], type), b = source_slot(p, &o[2], type),
             d = destination_slot(p, &o[0], type);
    if (is_mad) {
        uint32_t product = new_slot(p, type_info[type].lane);
        emit_row(p, has_part(&parts, "hi") ? "mul.hi." : "mul.lo.", type_info[type].name, product,
                 a, b, 0);
        a = product;
        b = source_slot(p, &o[3], type);
    }
    emit_sum(p, is_sub, plain, d, a, b, takes, gives);
    finish_destination(p, &o[0], type, d);
    return true;
}
