/* One instruction of PTX to code: a look-up in the tables of ops_*.def by its full name, and what
 * does not fit a row: comparisons with a second predicate, packing, warp-wide instructions,
 * barriers. Loads, stores and atomics: decode_memory.c; conversions: decode_convert.c. Invariant:
 * an instruction either becomes code or stops the load with its line; nothing is skipped in
 * silence. */
#include "parser.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"
#include "tables.h"

/* ---- the tables by name ---- */

#define BUCKETS 4096u
struct entry {
    const char *name;
    uint32_t length;
    const struct op_row *row;
};
static struct entry entries[BUCKETS];
static pthread_once_t entries_once = PTHREAD_ONCE_INIT;

static uint32_t hash(const char *name, uint32_t length)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < length; i++) {
        h = (h ^ (uint8_t)name[i]) * 16777619u;
    }
    return h;
}

static void enter_table(const struct op_row *rows)
{
    for (const struct op_row *row = rows; row->names; row++) {
        const char *at = row->names;
        while (*at) {
            uint32_t length = (uint32_t)strcspn(at, " ");
            uint32_t i = hash(at, length) % BUCKETS;
            while (entries[i].name) {
                i = (i + 1) % BUCKETS;
            }
            entries[i] = (struct entry){at, length, row};
            at += length + (at[length] == ' ');
        }
    }
}

static void enter_tables(void)
{
    enter_table(ops_integer);
    enter_table(ops_float);
}

const struct op_row *find_op(const char *name, uint32_t length)
{
    pthread_once(&entries_once, enter_tables);
    for (uint32_t i = hash(name, length) % BUCKETS; entries[i].name; i = (i + 1) % BUCKETS) {
        if (entries[i].length == length && memcmp(entries[i].name, name, length) == 0) {
            return entries[i].row;
        }
    }
    return NULL;
}

static struct instruction *emit_named(struct parser *p, const char *name, uint32_t d, uint32_t a,
                                      uint32_t b, uint32_t c)
{
    struct instruction *in = emit(p, find_op(name, (uint32_t)strlen(name))->run, 1);
    in->r[0] = d;
    in->r[1] = a;
    in->r[2] = b;
    in->r[3] = c;
    return in;
}

static void want_operands(struct parser *p, struct token mnemonic, uint32_t n, uint32_t wanted)
{
    if (n < wanted) {
        parse_fail(p, "%.*s has %u operands, %u expected", (int)mnemonic.length, mnemonic.text, n,
                   wanted);
    }
}

/* ---- a row ---- */

static void decode_row(struct parser *p, struct token mnemonic, const struct op_row *row,
                       struct operand *o, uint32_t n)
{
    uint8_t types[3] = {row->a, row->b, row->c};
    uint32_t sources[3] = {0}, n_sources = 0;
    while (n_sources < 3 && types[n_sources] != TYPE_NONE && n_sources + 1 < n) {
        sources[n_sources] = source_slot(p, &o[n_sources + 1], (enum ptx_type)types[n_sources]);
        n_sources++;
    }
    bool is_pair =
        strstr(row->names, "x2") != NULL; /* packed rows name a third source only fma has */
    want_operands(p, mnemonic, n, is_pair ? 2 : n_sources + 1);
    if (!is_pair && n_sources < 3 && types[n_sources] != TYPE_NONE) {
        parse_fail(p, "%.*s has %u operands, more are expected", (int)mnemonic.length,
                   mnemonic.text, n);
    }
    uint32_t fourth = 0;
    bool is_bfi = n == 5 && strncmp(row->names, "bfi", 3) == 0;
    if (is_bfi) {
        fourth = source_slot(p, &o[4], TYPE_u32);
    }
    uint32_t d = destination_slot(p, &o[0], (enum ptx_type)row->d);
    struct instruction *in = emit(p, row->run, 1);
    in->r[0] = d;
    memcpy(&in->r[1], sources, sizeof sources);
    in->r[4] = fourth;
    if (n == 5 && !is_bfi) { /* lop3: the table */
        in->immediate = (int64_t)o[4].number.value;
    } else if (n > 4 + (uint32_t)is_bfi || (n > 4 && o[4].kind != OPERAND_NUMBER && !is_bfi)) {
        parse_fail(p, "%.*s has %u operands, fewer are expected", (int)mnemonic.length,
                   mnemonic.text, n);
    }
    finish_destination(p, &o[0], (enum ptx_type)row->d, d);
}

/* ---- setp.CMP[.BOOL][.ftz].TYPE p[|q], a, b[, [!]c] ---- */

static void decode_setp(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n)
{
    struct parts parts;
    split_mnemonic(mnemonic, &parts);
    char name[40] = "setp", combine[12] = "";
    for (uint32_t i = 1; i < parts.n; i++) {
        if (part_is(&parts, i, "and") || part_is(&parts, i, "or") || part_is(&parts, i, "xor")) {
            memcpy(combine, parts.text[i], parts.length[i]);
            strcpy(combine + parts.length[i], ".pred");
        } else if (strlen(name) + parts.length[i] + 2 < sizeof name) {
            strcat(name, ".");
            strncat(name, parts.text[i], parts.length[i]);
        }
    }
    const struct op_row *row = find_op(name, (uint32_t)strlen(name));
    if (!row) {
        parse_fail(p, "%.*s: the emulator does not know this comparison", (int)mnemonic.length,
                   mnemonic.text);
    }
    want_operands(p, mnemonic, n, combine[0] ? 4 : 3);
    uint32_t a = source_slot(p, &o[1], (enum ptx_type)row->a);
    uint32_t b = source_slot(p, &o[2], (enum ptx_type)row->b);
    uint32_t c = combine[0] ? source_slot(p, &o[3], TYPE_pred) : 0;
    uint32_t d = destination_slot(p, &o[0], TYPE_pred);
    if (!combine[0] && !o[0].pair) {
        emit_named(p, name, d, a, b, 0);
        return;
    }
    uint32_t compared = new_slot(p, 4), negated = new_slot(p, 4);
    emit_named(p, name, compared, a, b, 0);
    emit_named(p, "not.pred", negated, compared, 0, 0);
    /* d may be c: the second predicate first */
    uint32_t second = o[0].pair ? new_slot(p, 4) : 0;
    if (second) {
        emit_named(p, combine[0] ? combine : "mov.pred", second, negated, c, 0);
    }
    emit_named(p, combine[0] ? combine : "mov.pred", d, compared, c, 0);
    if (second) {
        emit_named(p, "mov.pred", o[0].pair, second, 0, 0);
    }
}

/* ---- mov with vectors: {a, b} into one register and back ---- */

static void decode_pack(struct parser *p, const struct operand *to, const struct operand *from,
                        bool is_wide)
{
    /* d = from[0] | from[1] << bits | ...; halves of 16 bits in 32, or of 16 or 32 bits in 64 */
    uint32_t n = from->n_elements, bits = (is_wide ? 64u : 32u) / n;
    uint32_t sum = constant_slot(p, 0, is_wide ? 8 : 4);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = from->elements[i];
        if (bits == 16) { /* a 16-bit register may hold a sign above its 16 bits */
            part = new_slot(p, 4);
            emit_named(p, "cvt.u32.u16", part, from->elements[i], 0, 0);
        }
        if (is_wide && from->element_bytes[i] == 4) {
            uint32_t narrow = part;
            part = new_slot(p, 8);
            emit_named(p, "cvt.u64.u32", part, narrow, 0, 0);
        }
        uint32_t moved = new_slot(p, 8), next = i + 1 == n ? to->slot : new_slot(p, 8);
        emit_named(p, is_wide ? "shl.b64" : "shl.b32", moved, part, constant_slot(p, i * bits, 4),
                   0);
        emit_named(p, is_wide ? "or.b64" : "or.b32", next, sum, moved, 0);
        sum = next;
    }
}

static void decode_unpack(struct parser *p, const struct operand *to, uint32_t from, bool is_wide)
{
    uint32_t n = to->n_elements, bits = (is_wide ? 64u : 32u) / n;
    uint32_t copy = new_slot(p, 8); /* an element may be the source itself */
    emit_named(p, is_wide ? "mov.b64" : "mov.b32", copy, from, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        if (!to->elements[i]) {
            continue; /* _ */
        }
        uint32_t part = copy;
        if (i) {
            part = new_slot(p, 8);
            emit_named(p, is_wide ? "shr.u64" : "shr.u32", part, copy,
                       constant_slot(p, i * bits, 4), 0);
        }
        if (is_wide) {
            uint32_t low = new_slot(p, 4);
            emit_named(p, "cvt.u32.u64", low, part, 0, 0);
            part = low;
        }
        emit_named(p, bits == 16 ? "cvt.u32.u16" : "mov.b32", to->elements[i], part, 0, 0);
    }
}

static bool decode_vector_move(struct parser *p, struct parts *parts, struct operand *o)
{
    bool is_wide = part_is(parts, 1, "b64") || part_is(parts, 1, "u64") || part_is(parts, 1, "f64");
    if (o[1].kind == OPERAND_VECTOR) {
        decode_pack(p, &o[0], &o[1], is_wide);
        return true;
    }
    if (o[0].kind == OPERAND_VECTOR) {
        decode_unpack(p, &o[0], source_slot(p, &o[1], is_wide ? TYPE_u64 : TYPE_u32), is_wide);
        return true;
    }
    return false;
}

/* ---- addresses between spaces ---- */

static const struct {
    const char *name;
    uint64_t window;
} windows[] = {
    {"shared", SHARED_WINDOW}, {"local", LOCAL_WINDOW}, {"param", 0}, {"global", 0}, {"const", 0}};

/* cvta.SPACE d, a: generic address of a; cvta.to.SPACE back. Parameters already have their window.
 */
static bool decode_cvta(struct parser *p, struct parts *parts, struct operand *o)
{
    bool is_to = part_is(parts, 1, "to");
    uint64_t window = 0;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        if (part_is(parts, is_to ? 2 : 1, windows[i].name)) {
            window = windows[i].window;
        }
    }
    uint32_t a = source_slot(p, &o[1], TYPE_u64), d = destination_slot(p, &o[0], TYPE_u64);
    emit_named(p, is_to ? "sub.u64" : "add.u64", d, a, constant_slot(p, window, 8), 0);
    finish_destination(p, &o[0], TYPE_u64, d);
    return true;
}

/* isspacep.SPACE p, a */
static bool decode_isspacep(struct parser *p, struct parts *parts, struct operand *o)
{
    uint32_t a = source_slot(p, &o[1], TYPE_u64), d = destination_slot(p, &o[0], TYPE_pred);
    uint32_t high = new_slot(p, 8);
    emit_named(p, "shr.u64", high, a, constant_slot(p, 40, 4), 0);
    uint64_t number = part_is(parts, 1, "shared")  ? 1
                      : part_is(parts, 1, "local") ? 2
                      : part_is(parts, 1, "param") ? 3
                                                   : 0;
    emit_named(p, number ? "setp.eq.u64" : "setp.gt.u64", d, high,
               constant_slot(p, number ? number : 3, 8), 0);
    return true;
}

/* ---- warp-wide instructions and barriers ---- */

static struct instruction *emit_warp_sync(struct parser *p, run_function *run, uint32_t members)
{
    struct instruction *in = emit(p, run, 1);
    in->kind = KIND_WARP_SYNC;
    in->r[4] = members;
    return in;
}

/* shfl.sync.{up,down,bfly,idx}.b32 d[|p], a, b, c, members */
static bool decode_shfl(struct parser *p, struct parts *parts, struct operand *o, uint32_t n)
{
    if (n < 5) {
        parse_fail(p, "shfl without .sync and a member mask is not known to the emulator");
    }
    uint32_t sources[4];
    for (uint32_t i = 0; i < 4; i++) {
        sources[i] = source_slot(p, &o[i + 1], TYPE_u32);
    }
    uint32_t d = destination_slot(p, &o[0], TYPE_u32);
    struct instruction *in = emit_warp_sync(p, run_shuffle, sources[3]);
    in->r[0] = d;
    memcpy(&in->r[1], sources, 3 * sizeof *sources);
    in->r[5] = o[0].pair;
    in->n_defs = 1;
    in->extra_def = 5;
    in->action = part_is(parts, 2, "up")     ? 0
                 : part_is(parts, 2, "down") ? 1
                 : part_is(parts, 2, "bfly") ? 2
                                             : 3;
    return true;
}

/* vote.sync.{all,any,uni}.pred p, a, members; vote.sync.ballot.b32 d, a, members */
static bool decode_vote(struct parser *p, struct parts *parts, struct operand *o, uint32_t n)
{
    bool is_ballot = part_is(parts, 2, "ballot");
    if (n < 3) {
        parse_fail(p, "vote without .sync and a member mask is not known to the emulator");
    }
    uint32_t a = source_slot(p, &o[1], TYPE_pred), members = source_slot(p, &o[2], TYPE_u32);
    uint32_t d = destination_slot(p, &o[0], is_ballot ? TYPE_u32 : TYPE_pred);
    struct instruction *in = emit_warp_sync(p, run_vote, members);
    in->r[0] = d;
    in->r[1] = a;
    in->action = is_ballot ? 3 : part_is(parts, 2, "all") ? 0 : part_is(parts, 2, "any") ? 1 : 2;
    return true;
}

/* redux.sync.OP.TYPE d, a, members; match.any.sync.b32 d, a, members */
static bool decode_redux(struct parser *p, struct parts *parts, struct operand *o)
{
    static const char *const actions[] = {"add", "min", "max", "and", "or", "xor"};
    bool is_match = part_is(parts, 0, "match");
    uint32_t a = source_slot(p, &o[1], TYPE_u32), members = source_slot(p, &o[2], TYPE_u32);
    uint32_t d = destination_slot(p, &o[0], TYPE_u32);
    if (is_match && (!part_is(parts, 1, "any") || !has_part(parts, "b32"))) {
        return false;
    }
    struct instruction *in = emit_warp_sync(p, is_match ? run_match : run_redux, members);
    in->r[0] = d;
    in->r[1] = a;
    in->is_signed = has_part(parts, "s32");
    while (in->action < 6 && !part_is(parts, 2, actions[in->action]) && !is_match) {
        in->action++;
    }
    return in->action < 6;
}

/* bar.sync a[, b]; barrier[.cta].sync[.aligned] a[, b]; bar.red.{popc.u32,and.pred,or.pred} d, a[,
 * b], p */
static bool decode_barrier(struct parser *p, struct parts *parts, struct operand *o, uint32_t n)
{
    if (has_part(parts, "warp")) {
        emit_warp_sync(p, run_warp_barrier, source_slot(p, &o[0], TYPE_u32))->n_defs = 0;
        return true;
    }
    bool is_reduction = has_part(parts, "red"), is_popc = has_part(parts, "popc");
    if (!is_reduction && !has_part(parts, "sync")) {
        return false; /* bar.arrive */
    }
    uint32_t at = is_reduction;
    uint32_t d = is_reduction ? destination_slot(p, &o[0], is_popc ? TYPE_u32 : TYPE_pred) : 0;
    uint32_t a = is_reduction ? source_slot(p, &o[n - 1], TYPE_pred) : 0;
    uint32_t id = source_slot(p, &o[at], TYPE_u32);
    bool has_count = n - at - at > 1;
    uint32_t threads = has_count ? source_slot(p, &o[at + 1], TYPE_u32) : constant_slot(p, 0, 4);
    struct instruction *in = emit(p, NULL, 0);
    in->kind = KIND_BARRIER;
    in->r[0] = id;
    in->r[1] = threads;
    in->r[2] = d;
    in->extra_def = d ? 2 : 0;
    in->r[3] = a;
    in->action = is_popc ? 0 : has_part(parts, "and") ? 1 : 2;
    return true;
}

bool decode_special(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n)
{
    /* hints without an effect here: order and caches are the executor's */
    static const char *const hints[] = {"prefetch",       "prefetchu", "nanosleep",
                                        "griddepcontrol", "discard",   "applypriority"};
    struct parts parts;
    split_mnemonic(mnemonic, &parts);
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        if (part_is(&parts, 0, hints[i])) {
            return true;
        }
    }
    if (part_is(&parts, 0, "mov") && n == 2) {
        return decode_vector_move(p, &parts, o);
    } else if (part_is(&parts, 0, "setp")) {
        decode_setp(p, mnemonic, o, n);
        return true;
    } else if (part_is(&parts, 0, "cvta") && n == 2) {
        return decode_cvta(p, &parts, o);
    } else if (part_is(&parts, 0, "isspacep") && n == 2) {
        return decode_isspacep(p, &parts, o);
    } else if (part_is(&parts, 0, "shfl")) {
        return decode_shfl(p, &parts, o, n);
    } else if (part_is(&parts, 0, "vote")) {
        return decode_vote(p, &parts, o, n);
    } else if ((part_is(&parts, 0, "redux") || part_is(&parts, 0, "match")) && n == 3) {
        return decode_redux(p, &parts, o);
    } else if ((part_is(&parts, 0, "bar") || part_is(&parts, 0, "barrier")) && n) {
        return decode_barrier(p, &parts, o, n);
    } else if (part_is(&parts, 0, "membar") || part_is(&parts, 0, "fence")) {
        emit(p, run_fence, 0);
        return true;
    } else if (part_is(&parts, 0, "activemask") && n == 1) {
        uint32_t d = destination_slot(p, &o[0], TYPE_u32);
        emit(p, run_active_mask, 1)->r[0] = d;
        return true;
    }
    return false;
}

void decode_instruction(struct parser *p, struct token mnemonic)
{
    struct operand o[8];
    uint32_t n = 0;
    while (!accept(p, ";")) {
        if (n == 8) {
            parse_fail(p, "more than 8 operands");
        }
        parse_operand(p, &o[n++]);
        accept(p, ",");
    }
    if (decode_special(p, mnemonic, o, n)) {
        return;
    }
    const struct op_row *row = find_op(mnemonic.text, mnemonic.length);
    if (row && n >= 1) {
        decode_row(p, mnemonic, row, o, n);
    } else if (!decode_memory(p, mnemonic, o, n) && !decode_convert(p, mnemonic, o, n) &&
               !decode_carry(p, mnemonic, o, n)) {
        parse_fail(p, "the emulator does not know the instruction %.*s", (int)mnemonic.length,
                   mnemonic.text);
    }
}
