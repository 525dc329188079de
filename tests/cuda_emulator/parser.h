/* The parser's inside: tokens, scopes of symbols, and emission of instructions. module.c reads the
 * module level, statement.c a body, decode*.c one instruction. A syntax error leaves by longjmp to
 * module_load, which owns nothing but the module's memory meanwhile. */
#ifndef ATOLL_EMULATOR_PARSER_H
#define ATOLL_EMULATOR_PARSER_H

#include <setjmp.h>

#include "ptx.h"

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_PUNCTUATION };

struct token {
    enum token_kind kind;
    const char *text;
    uint32_t length, line;
    uint64_t value;      /* NUMBER: integer, or the bits of 0f, 0d */
    uint8_t float_bytes; /* NUMBER: 4 for 0f, 8 for 0d and decimals with a point, 0 for integers */
};

enum symbol_kind { SYMBOL_REGISTERS, SYMBOL_VARIABLE, SYMBOL_FUNCTION };

struct symbol {
    const char *name;
    uint32_t length;
    enum symbol_kind kind;
    uint32_t slot,
        count;         /* registers: first slot; count 0: a single one, no number behind its name */
    uint8_t bytes;     /* registers: of a lane, 4 or 8 */
    uint8_t space;     /* variables */
    bool is_parameter; /* of the kernel: lies in the parameter bank */
    bool is_dynamic_shared;
    uint64_t address,
        size; /* address inside its space; ~0: .shared of the module, not yet placed */
    struct kernel *function;
};

struct label {
    const char *name;
    uint32_t length, position;
};
struct fixup {
    uint32_t instruction, line;
    const char *name;
    uint32_t length;
};

struct jump_table { /* name: .branchtargets L1, L2; */
    struct token name;
    struct token *targets;
    uint32_t n;
};

struct parser {
    struct module *module;
    const char *at;
    uint32_t line;
    struct token token;
    jmp_buf failed;
    char error[400];

    struct symbol *symbols; /* innermost scope last */
    uint32_t n_symbols, symbols_room;
    struct label *labels; /* of the function being expanded, from first_label */
    uint32_t n_labels, labels_room, first_label;
    struct fixup *fixups;
    uint32_t n_fixups, fixups_room, first_fixup;

    struct jump_table *tables;
    uint32_t n_tables, tables_room;

    struct kernel *kernel; /* being decoded */
    uint32_t depth;        /* of calls being expanded; 0: the kernel itself */
    uint32_t first_return, n_returns, returns_room;
    uint32_t *returns; /* branches of `ret` that lead to the end of the function */
    uint32_t guard;    /* of the instruction being decoded */
    bool is_guard_negated;
    uint32_t statement_line;
};

_Noreturn void parse_fail(struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void next_token(struct parser *p);
bool token_is(const struct parser *p, const char *text);
bool accept(struct parser *p, const char *text);
void expect(struct parser *p, const char *text);
struct token take_word(struct parser *p);
uint64_t take_integer(struct parser *p);
bool text_is(const char *text, uint32_t length, const char *other);

struct symbol *find_symbol(struct parser *p, const char *name, uint32_t length);
struct symbol *add_symbol(struct parser *p, struct token name, enum symbol_kind kind);
/* Slot of a register name; 0 when it is none. bytes: of a lane. */
uint32_t find_register(struct parser *p, const char *name, uint32_t length, uint8_t *bytes);

/* Types of PTX: bytes in memory and the bytes of a register that holds one. */
enum ptx_type {
    TYPE_NONE,
#define X(id, name, bytes, lane, is_signed, is_float) TYPE_##id,
#include "types.def"
#undef X
    N_TYPES
};
struct type_row {
    const char *name;
    uint8_t bytes, lane, is_signed, is_float;
};
extern const struct type_row type_info[N_TYPES];
enum ptx_type type_named(const char *text, uint32_t length);

/* module.c: .reg, .shared, .local, .param, .global, .const at module level or in a body. */
bool parse_declaration(struct parser *p);
/* statement.c: the body behind '{' up to and with its '}'. */
void parse_body(struct parser *p);
void decode_kernel(struct parser *p, struct kernel *k);

/* ---- operands and emission (operands.c) ---- */

enum operand_kind {
    OPERAND_REGISTER,
    OPERAND_NUMBER,
    OPERAND_ADDRESS,
    OPERAND_SYMBOL,
    OPERAND_VECTOR,
    OPERAND_SINK
};
struct operand {
    enum operand_kind kind;
    bool is_negated; /* !%p */
    uint32_t slot;   /* register; of ADDRESS: base register or 0 */
    uint8_t bytes;   /* of the register's lane */
    struct token number;
    struct token name;
    struct symbol *symbol; /* SYMBOL; of ADDRESS: base, or NULL */
    int64_t displacement;
    uint32_t pair; /* second register of a|b; 0: none */
    uint32_t n_elements;
    uint32_t elements[8];
    uint8_t element_bytes[8];
};

void parse_operand(struct parser *p, struct operand *o);
uint32_t new_slots(struct parser *p, uint32_t n, uint32_t lane_bytes); /* side by side: the first */
uint32_t new_slot(struct parser *p, uint32_t lane_bytes);
uint32_t constant_slot(struct parser *p, uint64_t value, uint8_t lane_bytes);
struct instruction *emit(struct parser *p, run_function *run, uint8_t n_defs);
/* The slot that holds the operand as `type`: a constant, the register, or a narrowed or widened
 * copy. */
uint32_t source_slot(struct parser *p, const struct operand *o, enum ptx_type type);
/* Destination: a register of another width is written through a temporary: call finish_destination
 * with what destination_slot gave, after the instruction is emitted. */
uint32_t destination_slot(struct parser *p, const struct operand *o, enum ptx_type type);
void finish_destination(struct parser *p, const struct operand *o, enum ptx_type type,
                        uint32_t slot);
void emit_move(struct parser *p, uint32_t to, uint8_t to_bytes, uint32_t from, uint8_t from_bytes,
               bool is_signed);
void symbol_place(struct parser *p, struct symbol *s);
uint64_t symbol_address(const struct symbol *s);

/* ---- instructions ---- */

/* A row of the tables in ops_*.def: every name of PTX that it implements, apart by blanks. */
struct op_row {
    const char *names;
    run_function *run;
    uint8_t d, a, b, c; /* enum ptx_type */
};
const struct op_row *find_op(const char *name, uint32_t length);

void decode_instruction(struct parser *p, struct token mnemonic);
/* Each returns false when the mnemonic is not its business. */
bool decode_special(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n);
bool decode_memory(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n);
bool decode_carry(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n);
bool decode_convert(struct parser *p, struct token mnemonic, struct operand *o, uint32_t n);

/* The parts of a mnemonic between its dots. */
struct parts {
    uint32_t n;
    const char *text[12];
    uint32_t length[12];
};
void split_mnemonic(struct token mnemonic, struct parts *parts);
bool part_is(const struct parts *parts, uint32_t i, const char *text);
bool has_part(const struct parts *parts, const char *text);

#endif
