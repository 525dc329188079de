/* cvt to code, for the forms that have no row in ops_*.def: cvt[.rounding][.ftz][.sat].to.from, and
 * the packed ones with two sources. One generic instruction carries types, rounding and saturation
 * (execute_convert.c). */
#include "executor.h"
#include "parser.h"
#include "convert.h"

static const struct {
    const char *name;
    uint8_t rounding, is_integral;
} roundings[] = {{"rn", ROUND_NEAREST, 0}, {"rz", ROUND_ZERO, 0},  {"rm", ROUND_DOWN, 0},
                 {"rp", ROUND_UP, 0},      {"rna", ROUND_AWAY, 0}, {"rni", ROUND_NEAREST, 1},
                 {"rzi", ROUND_ZERO, 1},   {"rmi", ROUND_DOWN, 1}, {"rpi", ROUND_UP, 1}};

static bool is_packed(enum ptx_type t)
{
    return t == TYPE_f16x2 || t == TYPE_bf16x2 || t == TYPE_e4m3x2 || t == TYPE_e5m2x2;
}

bool decode_convert(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n)
{
    struct parts parts;
    split_mnemonic(mnemonic, &parts);
    if (!part_is(&parts, 0, "cvt") || parts.n < 3 || n < 2) {
        return false;
    }
    enum ptx_type to = type_named(parts.text[parts.n - 2], parts.length[parts.n - 2]);
    enum ptx_type from = type_named(parts.text[parts.n - 1], parts.length[parts.n - 1]);
    uint8_t rounding = ROUND_NEAREST, saturate = 0;
    for (uint32_t i = 1; i + 2 < parts.n; i++) {
        bool is_known = part_is(&parts, i, "sat") || part_is(&parts, i, "satfinite") ||
                        part_is(&parts, i, "relu") || part_is(&parts, i, "ftz");
        saturate |= part_is(&parts, i, "sat")         ? CONVERT_SATURATE
                    : part_is(&parts, i, "satfinite") ? CONVERT_TO_LARGEST
                    : part_is(&parts, i, "relu")      ? CONVERT_RELU
                    : part_is(&parts, i, "ftz")       ? CONVERT_FLUSH
                                                      : 0;
        for (size_t r = 0; r < sizeof roundings / sizeof *roundings; r++) {
            if (part_is(&parts, i, roundings[r].name)) {
                rounding = roundings[r].rounding;
                saturate |= roundings[r].is_integral ? CONVERT_INTEGRAL : 0;
                is_known = true;
            }
        }
        if (!is_known) {
            return false;
        }
    }
    bool takes_two = is_packed(to) && !is_packed(from);
    if (to == TYPE_NONE || from == TYPE_NONE || n != (takes_two ? 3u : 2u)) {
        return false;
    }
    uint32_t a = source_slot(p, &o[1], from), b = takes_two ? source_slot(p, &o[2], from) : 0;
    uint32_t d = destination_slot(p, &o[0], to);
    struct instruction *in = emit(p, run_convert, 1);
    in->r[0] = d;
    in->r[1] = a;
    in->r[2] = b;
    in->to = (uint8_t)to;
    in->from = (uint8_t)from;
    in->rounding = rounding;
    in->saturate = saturate;
    finish_destination(p, &o[0], to, d);
    return true;
}
