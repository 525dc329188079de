/* Bodies of kernels: scopes, labels, control flow, and calls, which are expanded in place by
 * reading the function's text again with its parameters bound to the caller's. Below: module.c
 * found the bodies; above: decode*.c turns one instruction into code. Invariant: inside one
 * expansion labels are its own, and `ret` of an expanded function leads behind its last
 * instruction. */
#include "parser.h"

#include <string.h>

#define MAX_DEPTH        64 /* of calls; recursion ends here with an error */
#define MAX_INSTRUCTIONS 4000000u

struct symbol *find_symbol(struct parser *p, const char *name, uint32_t length)
{
    for (uint32_t i = p->n_symbols; i-- > 0;) {
        struct symbol *s = &p->symbols[i];
        if (s->length == length && memcmp(s->name, name, length) == 0 &&
            !(s->kind == SYMBOL_REGISTERS && s->count)) {
            return s;
        }
    }
    return NULL;
}

uint32_t find_register(struct parser *p, const char *name, uint32_t length, uint8_t *bytes)
{
    uint32_t stem = length, number = 0;
    while (stem > 1 && name[stem - 1] >= '0' && name[stem - 1] <= '9') {
        stem--;
    }
    for (uint32_t i = stem; i < length; i++) {
        number = number * 10 + (uint32_t)(name[i] - '0');
    }
    for (uint32_t i = p->n_symbols; i-- > 0;) {
        const struct symbol *s = &p->symbols[i];
        if (s->kind != SYMBOL_REGISTERS) {
            continue;
        }
        *bytes = s->bytes;
        if (s->count == 0 && s->length == length && memcmp(s->name, name, length) == 0) {
            return s->slot;
        }
        if (number < s->count && stem < length && s->length == stem &&
            memcmp(s->name, name, stem) == 0) {
            return s->slot + number * LANES * s->bytes;
        }
    }
    return 0;
}

struct symbol *add_symbol(struct parser *p, struct token name, enum symbol_kind kind)
{
    p->symbols =
        module_grow(p->module, p->symbols, p->n_symbols, &p->symbols_room, sizeof *p->symbols);
    struct symbol *s = &p->symbols[p->n_symbols++];
    *s = (struct symbol){.name = name.text, .length = name.length, .kind = kind};
    return s;
}

static void add_label(struct parser *p, struct token name)
{
    p->labels = module_grow(p->module, p->labels, p->n_labels, &p->labels_room, sizeof *p->labels);
    p->labels[p->n_labels++] = (struct label){name.text, name.length, p->kernel->n_code};
}

static void resolve_labels(struct parser *p)
{
    for (uint32_t i = p->first_fixup; i < p->n_fixups; i++) {
        const struct fixup *f = &p->fixups[i];
        uint32_t at = p->first_label;
        while (at < p->n_labels && !(p->labels[at].length == f->length &&
                                     memcmp(p->labels[at].name, f->name, f->length) == 0)) {
            at++;
        }
        if (at == p->n_labels) {
            p->statement_line = f->line;
            parse_fail(p, "there is no label %.*s", (int)f->length, f->name);
        }
        p->kernel->code[f->instruction].target = p->labels[at].position;
    }
    for (uint32_t i = p->first_return; i < p->n_returns; i++) {
        p->kernel->code[p->returns[i]].target = p->kernel->n_code;
    }
    p->n_fixups = p->first_fixup;
    p->n_labels = p->first_label;
    p->n_returns = p->first_return;
}

static void emit_branch(struct parser *p, struct token label)
{
    struct instruction *in = emit(p, NULL, 0);
    in->kind = KIND_BRANCH;
    p->fixups = module_grow(p->module, p->fixups, p->n_fixups, &p->fixups_room, sizeof *p->fixups);
    p->fixups[p->n_fixups++] =
        (struct fixup){p->kernel->n_code - 1, p->statement_line, label.text, label.length};
}

static void emit_return(struct parser *p)
{
    struct instruction *in = emit(p, NULL, 0);
    if (p->depth == 0) {
        in->kind = KIND_EXIT;
        return;
    }
    in->kind = KIND_BRANCH;
    p->returns =
        module_grow(p->module, p->returns, p->n_returns, &p->returns_room, sizeof *p->returns);
    p->returns[p->n_returns++] = p->kernel->n_code - 1;
}

/* ---- jump tables ---- */

static void parse_table(struct parser *p, struct token name)
{
    uint32_t room = 0;
    struct jump_table t = {.name = name};
    do {
        t.targets = module_grow(p->module, t.targets, t.n, &room, sizeof *t.targets);
        t.targets[t.n++] = take_word(p);
    } while (accept(p, ","));
    expect(p, ";");
    p->tables = module_grow(p->module, p->tables, p->n_tables, &p->tables_room, sizeof t);
    p->tables[p->n_tables++] = t;
}

/* brx.idx index, table; becomes a comparison and a branch for each entry. */
static void parse_indexed_branch(struct parser *p)
{
    struct operand index;
    parse_operand(p, &index);
    expect(p, ",");
    struct token name = take_word(p);
    const struct jump_table *t = NULL;
    for (uint32_t i = p->n_tables; i-- > 0 && !t;) {
        bool is_same = p->tables[i].name.length == name.length &&
                       memcmp(p->tables[i].name.text, name.text, name.length) == 0;
        t = is_same ? &p->tables[i] : NULL;
    }
    if (!t || p->guard) {
        parse_fail(p, "brx.idx wants a .branchtargets list above it, and no predicate");
    }
    uint32_t slot = source_slot(p, &index, TYPE_u32), is_equal = new_slot(p, 4);
    for (uint32_t i = 0; i < t->n; i++) {
        struct instruction *in = emit(p, find_op("setp.eq.u32", 11)->run, 1);
        in->r[0] = is_equal;
        in->r[1] = slot;
        uint32_t entry = constant_slot(p, i, 4);
        p->kernel->code[p->kernel->n_code - 1].r[2] = entry;
        p->guard = is_equal;
        emit_branch(p, t->targets[i]);
        p->guard = 0;
    }
    emit(p, NULL, 0)->kind = KIND_TRAP; /* an index beyond the table */
    expect(p, ";");
}

/* ---- calls ---- */

#define MAX_ARGUMENTS 64
struct arguments {
    uint32_t n;
    struct symbol list[MAX_ARGUMENTS];
};

/* ( name, name ) of a call: .param variables of the caller */
static void parse_arguments(struct parser *p, struct arguments *a)
{
    expect(p, "(");
    while (!accept(p, ")")) {
        struct token t = take_word(p);
        struct symbol *s = find_symbol(p, t.text, t.length);
        if (!s || s->kind != SYMBOL_VARIABLE || a->n == MAX_ARGUMENTS) {
            parse_fail(p, "the argument %.*s is no .param variable", (int)t.length, t.text);
        }
        a->list[a->n++] = *s;
        accept(p, ",");
    }
}

/* ( .param .b32 name, .param .align 8 .b8 name[16] ) of a header. bound: the caller's variables,
 * NULL: they are the kernel's own parameters and lie in its bank. */
static void parse_parameters(struct parser *p, const struct arguments *bound)
{
    struct kernel *k = p->kernel;
    uint32_t n = 0;
    expect(p, "(");
    while (!accept(p, ")")) {
        uint32_t align = 1;
        enum ptx_type type = TYPE_NONE;
        while (p->token.kind == TOKEN_WORD && p->token.text[0] == '.') {
            struct token t = take_word(p);
            if (text_is(t.text, t.length, ".align")) {
                uint32_t value = (uint32_t)take_integer(p);
                align = type == TYPE_NONE ? value : align; /* behind .ptr: of what it points to */
            } else if (type_named(t.text + 1, t.length - 1) != TYPE_NONE) {
                type = type_named(t.text + 1, t.length - 1);
            }
        }
        struct symbol *s = add_symbol(p, take_word(p), SYMBOL_VARIABLE);
        s->size = type_info[type].bytes;
        align = align > type_info[type].bytes ? align : type_info[type].bytes;
        while (accept(p, "[")) {
            s->size *= token_is(p, "]") ? 1 : take_integer(p);
            expect(p, "]");
        }
        if (bound) {
            if (n == bound->n) {
                parse_fail(p, "the call gives %u arguments, the function takes more", n);
            }
            s->space = SPACE_LOCAL;
            s->address = bound->list[n].address;
            s->slot = bound->list[n].slot;
            s->bytes = bound->list[n].bytes;
        } else {
            k->parameter_bytes = (k->parameter_bytes + align - 1) / align * align;
            s->space = SPACE_PARAM;
            s->is_parameter = true;
            s->address = k->parameter_bytes;
            k->parameters = module_grow(p->module, k->parameters, k->n_parameters,
                                        &k->parameters_room, sizeof *k->parameters);
            k->parameters[k->n_parameters++] =
                (struct parameter){k->parameter_bytes, (uint32_t)s->size};
            k->parameter_bytes += (uint32_t)s->size;
        }
        n++;
        accept(p, ",");
    }
}

/* Moves the lexer to a header kept by module.c and binds its parameters, up to and with its '{'. */
static void enter_function(struct parser *p, const struct kernel *f,
                           const struct arguments *results, const struct arguments *arguments)
{
    p->at = f->body;
    p->line = f->body_line;
    next_token(p);
    if (f->is_function && token_is(p, "(")) {
        parse_parameters(p, results);
    }
    take_word(p);
    if (token_is(p, "(")) {
        parse_parameters(p, arguments);
    }
    while (!accept(p, "{")) {
        if (p->token.kind == TOKEN_END) {
            parse_fail(p, "the text ends in the header of %s", f->name);
        }
        next_token(p);
    }
}

static const struct kernel *find_function(const struct parser *p, struct token name)
{
    for (uint32_t i = 0; i < p->module->n_kernels; i++) {
        const struct kernel *k = &p->module->kernels[i];
        if (k->is_function && text_is(name.text, name.length, k->name)) {
            return k;
        }
    }
    return NULL;
}

static void expand(struct parser *p, const struct kernel *f, const struct arguments *results,
                   const struct arguments *arguments)
{
    struct parser saved = {.at = p->at, .line = p->line, .token = p->token};
    uint32_t n_symbols = p->n_symbols, first_label = p->first_label;
    uint32_t first_fixup = p->first_fixup, first_return = p->first_return;
    uint32_t line = p->statement_line;
    p->first_label = p->n_labels;
    p->first_fixup = p->n_fixups;
    p->first_return = p->n_returns;
    if (++p->depth > MAX_DEPTH) {
        parse_fail(p, "calls are nested more than %d deep: the emulator has no recursion",
                   MAX_DEPTH);
    }
    enter_function(p, f, results, arguments);
    parse_body(p);
    resolve_labels(p);
    p->depth--;
    p->at = saved.at;
    p->line = saved.line;
    p->token = saved.token;
    p->n_symbols = n_symbols;
    p->first_label = first_label;
    p->first_fixup = first_fixup;
    p->first_return = first_return;
    p->statement_line = line;
}

/* call.uni (results), name, (arguments); */
static void parse_call(struct parser *p)
{
    struct arguments results = {0}, arguments = {0};
    if (token_is(p, "(")) {
        parse_arguments(p, &results);
        expect(p, ",");
    }
    struct token name = take_word(p);
    if (accept(p, ",") && token_is(p, "(")) {
        parse_arguments(p, &arguments);
    }
    expect(p, ";");
    const struct kernel *f = find_function(p, name);
    if (!f) {
        parse_fail(p, "call of %.*s: the emulator knows calls of functions of the same module only",
                   (int)name.length, name.text);
    }
    uint32_t guard = p->guard, skip = 0;
    if (guard) {
        p->is_guard_negated = !p->is_guard_negated;
        emit(p, NULL, 0)->kind = KIND_BRANCH;
        skip = p->kernel->n_code - 1;
    }
    expand(p, f, &results, &arguments);
    if (guard) {
        p->kernel->code[skip].target = p->kernel->n_code;
    }
}

/* ---- statements ---- */

static void parse_guard(struct parser *p)
{
    p->guard = 0;
    p->is_guard_negated = false;
    if (accept(p, "@")) {
        p->is_guard_negated = accept(p, "!");
        struct token t = take_word(p);
        uint8_t bytes;
        p->guard = find_register(p, t.text, t.length, &bytes);
        if (!p->guard) {
            parse_fail(p, "the predicate %.*s is not declared", (int)t.length, t.text);
        }
    }
}

static void parse_instruction(struct parser *p)
{
    p->statement_line = p->token.line;
    parse_guard(p);
    struct token name = take_word(p);
    struct parts parts;
    split_mnemonic(name, &parts);
    if (part_is(&parts, 0, "bra")) {
        emit_branch(p, take_word(p));
        expect(p, ";");
    } else if (part_is(&parts, 0, "brx")) {
        parse_indexed_branch(p);
    } else if (part_is(&parts, 0, "call")) {
        parse_call(p);
    } else if (part_is(&parts, 0, "ret")) {
        emit_return(p);
        expect(p, ";");
    } else if (part_is(&parts, 0, "exit")) {
        emit(p, NULL, 0)->kind = KIND_EXIT;
        expect(p, ";");
    } else if (part_is(&parts, 0, "trap") || part_is(&parts, 0, "brkpt")) {
        emit(p, NULL, 0)->kind = KIND_TRAP;
        expect(p, ";");
    } else {
        decode_instruction(p, name);
    }
    p->statement_line = 0;
    if (p->kernel->n_code > MAX_INSTRUCTIONS) {
        parse_fail(p, "%s is longer than %u instructions", p->kernel->name, MAX_INSTRUCTIONS);
    }
}

/* .loc 1 5 3[, function_name $L, inlined_at 1 2 3] ends with its line. */
static void skip_line(struct parser *p)
{
    uint32_t line = p->token.line;
    while (p->token.line == line && p->token.kind != TOKEN_END) {
        next_token(p);
    }
}

void parse_body(struct parser *p)
{
    uint32_t scopes[64], depth = 0;
    scopes[depth++] = p->n_symbols;
    while (depth) {
        if (p->token.kind == TOKEN_END || depth == 64) {
            parse_fail(p, "the body does not end");
        } else if (accept(p, "{")) {
            scopes[depth++] = p->n_symbols;
        } else if (token_is(p, "}")) {
            p->n_symbols = scopes[--depth];
            if (depth) {
                next_token(p);
            }
        } else if (accept(p, ";")) {
            continue;
        } else if (token_is(p, ".loc")) {
            skip_line(p);
        } else if (token_is(p, ".pragma")) {
            skip_line(p);
        } else if (parse_declaration(p)) {
            continue;
        } else if (token_is(p, "@")) {
            parse_instruction(p);
        } else {
            const char *rest = p->at;
            while (*rest == ' ' || *rest == '\t') {
                rest++;
            }
            if (p->token.kind == TOKEN_WORD && *rest == ':') {
                struct token name = take_word(p);
                expect(p, ":");
                if (accept(p, ".branchtargets")) {
                    parse_table(p, name);
                } else {
                    add_label(p, name);
                }
            } else {
                parse_instruction(p);
            }
        }
    }
}

void decode_kernel(struct parser *p, struct kernel *k)
{
    uint32_t n_symbols = p->n_symbols;
    p->kernel = k;
    p->guard = 0;
    new_slot(p, 8); /* slot 0 means none; it holds zeros */
    for (uint32_t i = 0; i < p->n_symbols; i++) {
        if (p->symbols[i].space == SPACE_SHARED) {
            p->symbols[i].address = ~(uint64_t)0;
        }
    }
    enter_function(p, k, NULL, NULL);
    parse_body(p);
    p->guard = 0;
    emit(p, NULL, 0)->kind = KIND_EXIT;
    resolve_labels(p);
    pack_registers(k);
    k->shared_bytes = (k->shared_bytes + 15) / 16 * 16;
    for (uint32_t i = 0; i < k->n_constants; i++) {
        k->constants[i].value += k->constants[i].is_dynamic_shared ? k->shared_bytes : 0;
    }
    k->local_bytes = (k->local_bytes + 15) / 16 * 16;
    k->is_decoded = true;
    p->kernel = NULL;
    p->n_symbols = n_symbols;
}
