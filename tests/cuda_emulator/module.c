/* The module level of PTX: directives, variables, headers of kernels and functions. Bodies are
 * decoded after the whole text was seen, functions again at each call (statement.c). Variables of
 * .global and .const become device memory. Invariant: all memory of a module hangs on it, and is
 * freed by module_unload or when the parse fails. */
#include "parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_memory.h"

struct block_of_memory {
    struct block_of_memory *next;
    max_align_t data[];
};

void *module_alloc(struct module *m, size_t bytes)
{
    struct block_of_memory *b = calloc(1, sizeof *b + bytes);
    if (!b) {
        fputs("CUDA emulator: the host has no memory for a module\n", stderr);
        abort();
    }
    b->next = m->memory;
    m->memory = b;
    return b->data;
}

void module_release_memory(struct module *m)
{
    while (m->memory) {
        struct block_of_memory *next = m->memory->next;
        free(m->memory);
        m->memory = next;
    }
}

void *module_grow(struct module *m, void *array, uint32_t n, uint32_t *room, size_t item)
{
    if (n < *room) {
        return array;
    }
    uint32_t bigger = *room ? 2 * *room : 32;
    void *copy = module_alloc(m, bigger * item);
    if (n) {
        memcpy(copy, array, n * item);
    }
    *room = bigger;
    return copy;
}

static char *copy_name(struct module *m, struct token t)
{
    char *name = module_alloc(m, t.length + 1);
    memcpy(name, t.text, t.length);
    return name;
}

static void skip_statement(struct parser *p)
{
    while (!token_is(p, ";") && p->token.kind != TOKEN_END) {
        next_token(p);
    }
    accept(p, ";");
}

/* Values of an initialiser, flat or nested, into bytes of the variable. */
static void parse_initializer(struct parser *p, uint8_t *data, uint64_t size, uint32_t item,
                              uint64_t *at)
{
    if (accept(p, "{")) {
        while (!accept(p, "}")) {
            parse_initializer(p, data, size, item, at);
            accept(p, ",");
        }
        return;
    }
    uint64_t value;
    if (p->token.kind == TOKEN_WORD) {
        struct token name = take_word(p);
        bool is_generic = text_is(name.text, name.length, "generic") && accept(p, "(");
        name = is_generic ? take_word(p) : name;
        struct symbol *s = find_symbol(p, name.text, name.length);
        if (!s || s->kind != SYMBOL_VARIABLE) {
            parse_fail(p, "the initialiser names \"%.*s\", no variable above", (int)name.length,
                       name.text);
        }
        if (is_generic) {
            expect(p, ")");
        }
        value = s->address + (accept(p, "+") ? take_integer(p) : 0);
    } else {
        value = take_integer(p);
    }
    if (*at + item > size) {
        parse_fail(p, "the initialiser is longer than its variable of %llu bytes",
                   (unsigned long long)size);
    }
    memcpy(data + *at, &value, item);
    *at += item;
}

static void add_global(struct parser *p, struct symbol *s, struct token name)
{
    struct module *m = p->module;
    uint8_t *data = module_alloc(m, s->size + 1);
    uint64_t at = 0;
    enum ptx_type type = (enum ptx_type)s->bytes;
    if (accept(p, "=")) {
        parse_initializer(p, data, s->size, type_info[type].bytes, &at);
    }
    uint64_t address = device_allocate(s->size, "variable of a module", true, false);
    if (!address) {
        parse_fail(p, "no device memory for a variable of %llu bytes", (unsigned long long)s->size);
    }
    memcpy(device_memory.storage + (address - device_memory.base), data, s->size);
    memset(device_memory.state + (address - device_memory.base), BYTE_READY, s->size);
    s->address = address;
    m->globals = module_grow(m, m->globals, m->n_globals, &m->globals_room, sizeof *m->globals);
    m->globals[m->n_globals++] = (struct global_variable){copy_name(m, name), address, s->size};
}

/* Gives a .shared or .local variable its place in the kernel being decoded. */
static void place(uint32_t *total, struct symbol *s, uint64_t align)
{
    s->address = (*total + align - 1) / align * align;
    *total = (uint32_t)(s->address + s->size);
}

void symbol_place(struct parser *p, struct symbol *s)
{
    if (s->space == SPACE_SHARED && s->address == ~(uint64_t)0 && !s->is_dynamic_shared) {
        place(&p->kernel->shared_bytes, s, 16);
    }
}

/* One variable: .space [.align N] [.v4] .type name [N][M]... [= ...] */
static void parse_variable(struct parser *p, uint8_t space, bool is_extern)
{
    uint64_t align = 1, vector = 1;
    enum ptx_type type = TYPE_NONE;
    while (p->token.kind == TOKEN_WORD && p->token.text[0] == '.') {
        struct token t = take_word(p);
        if (text_is(t.text, t.length, ".align")) {
            align = take_integer(p);
        } else if (t.length == 3 && t.text[1] == 'v') {
            vector = (uint64_t)(t.text[2] - '0');
        } else if (type_named(t.text + 1, t.length - 1) != TYPE_NONE) {
            type = type_named(t.text + 1, t.length - 1);
        }
    }
    do {
        struct token name = take_word(p);
        uint64_t size = type_info[type].bytes * vector;
        bool is_open = false, is_array = token_is(p, "[");
        while (accept(p, "[")) {
            is_open = token_is(p, "]");
            size *= is_open ? 1 : take_integer(p);
            expect(p, "]");
        }
        align = align > type_info[type].bytes ? align : type_info[type].bytes;
        struct symbol *s = add_symbol(p, name, SYMBOL_VARIABLE);
        s->space = space;
        s->bytes = (uint8_t)type;
        s->size = size;
        s->is_dynamic_shared = space == SPACE_SHARED && (is_extern || is_open);
        if (space == SPACE_GLOBAL || space == SPACE_CONST) {
            add_global(p, s, name);
        } else if (space == SPACE_SHARED) {
            s->address = ~(uint64_t)0;
            if (p->kernel && !s->is_dynamic_shared) {
                place(&p->kernel->shared_bytes, s, align);
            }
        } else if (p->kernel && space == SPACE_PARAM &&
                   !is_array) { /* of a call: a register serves */
            s->space = SPACE_LOCAL;
            s->slot = new_slot(p, type_info[type].lane);
        } else if (p->kernel) { /* .local, and an array given to a call: memory of the thread */
            s->space = SPACE_LOCAL;
            place(&p->kernel->local_bytes, s, align > 8 ? align : 8);
        }
    } while (accept(p, ","));
    expect(p, ";");
}

/* .reg .b32 %r<9>, %x; */
static void parse_registers(struct parser *p)
{
    struct token type_word = take_word(p);
    enum ptx_type type = type_named(type_word.text + 1, type_word.length - 1);
    if (type == TYPE_NONE) {
        parse_fail(p, "register type %.*s is not known to the emulator", (int)type_word.length,
                   type_word.text);
    }
    do {
        struct symbol *s = add_symbol(p, take_word(p), SYMBOL_REGISTERS);
        s->bytes = type_info[type].lane;
        if (accept(p, "<")) {
            s->count = (uint32_t)take_integer(p);
            expect(p, ">");
        }
        uint32_t n = s->count ? s->count : 1;
        s->slot = new_slots(p, n, s->bytes);
        p->kernel->n_registers += n;
    } while (accept(p, ","));
    expect(p, ";");
}

bool parse_declaration(struct parser *p)
{
    static const struct {
        const char *word;
        uint8_t space;
    } spaces[] = {{".shared", SPACE_SHARED},
                  {".local", SPACE_LOCAL},
                  {".param", SPACE_PARAM},
                  {".global", SPACE_GLOBAL},
                  {".const", SPACE_CONST}};
    if (p->kernel && accept(p, ".reg")) {
        parse_registers(p);
        return true;
    }
    bool is_extern = accept(p, ".extern");
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        if (accept(p, spaces[i].word)) {
            parse_variable(p, spaces[i].space, is_extern);
            return true;
        }
    }
    return false;
}

/* ( .param .u64 .ptr .align 1 name [, ...] ): only sizes matter here; decode_kernel reads names. */
static void skip_parentheses(struct parser *p)
{
    for (int depth = 0; p->token.kind != TOKEN_END; next_token(p)) {
        depth += token_is(p, "(") - token_is(p, ")");
        if (depth == 0) {
            next_token(p);
            return;
        }
    }
}

static void skip_braces(struct parser *p)
{
    int depth = 0;
    do {
        depth += token_is(p, "{") - token_is(p, "}");
        next_token(p);
    } while (depth && p->token.kind != TOKEN_END);
}

/* .entry name(params) directives { body }  or  .func [(ret)] name(params) { body } or ; */
static void parse_function(struct parser *p, bool is_function)
{
    struct module *m = p->module;
    struct kernel k = {.module = m, .is_function = is_function, .shared_granule = GRANULE};
    k.body = p->token.text;
    k.body_line = p->token.line;
    if (is_function && token_is(p, "(")) {
        skip_parentheses(p);
    }
    struct token name = take_word(p);
    k.name = copy_name(m, name);
    if (token_is(p, "(")) {
        skip_parentheses(p);
    }
    while (!token_is(p, "{") && !token_is(p, ";") && p->token.kind != TOKEN_END) {
        struct token t = take_word(p);
        bool is_required = text_is(t.text, t.length, ".reqntid");
        if (is_required || text_is(t.text, t.length, ".maxntid")) {
            k.max_threads = 1;
            for (int i = 0; i < 3; i++) {
                uint32_t n = i == 0 || accept(p, ",") ? (uint32_t)take_integer(p) : 1;
                k.max_threads *= n;
                k.required[i] = is_required ? n : 0;
            }
        } else if (p->token.kind == TOKEN_NUMBER) {
            take_integer(p); /* .minnctapersm N and the like */
        }
    }
    struct symbol *s = find_symbol(p, name.text, name.length);
    if (accept(p, ";")) {
        return; /* a declaration: the definition follows */
    }
    if (s) {
        parse_fail(p, "%s is defined twice", k.name);
    }
    skip_braces(p);
    m->kernels = module_grow(m, m->kernels, m->n_kernels, &m->kernels_room, sizeof k);
    m->kernels[m->n_kernels++] = k;
}

static void parse_module(struct parser *p)
{
    next_token(p);
    if (!token_is(p, ".version")) {
        parse_fail(p, "found \"%.*s\", expected .version: this is no PTX", (int)p->token.length,
                   p->token.text);
    }
    while (p->token.kind != TOKEN_END) {
        if (accept(p, ".version")) {
            next_token(p);
        } else if (accept(p, ".target")) {
            struct token t = take_word(p);
            char *end = NULL;
            p->module->target = t.length > 3 ? (unsigned)strtoul(t.text + 3, &end, 10) : 0;
            p->module->is_specific = end && *end == 'a';
            while (accept(p, ",")) {
                take_word(p);
            }
        } else if (accept(p, ".address_size")) {
            if (take_integer(p) != 64) {
                parse_fail(p, "found an address size other than 64");
            }
        } else if (accept(p, ".visible") || accept(p, ".weak") || accept(p, ".common") ||
                   accept(p, ";")) {
            continue;
        } else if (accept(p, ".entry")) {
            parse_function(p, false);
        } else if (accept(p, ".func")) {
            parse_function(p, true);
        } else if (accept(p, ".file")) {
            while (p->token.kind == TOKEN_NUMBER || p->token.kind == TOKEN_STRING ||
                   token_is(p, ",")) {
                next_token(p);
            }
        } else if (accept(p, ".section")) {
            next_token(p);
            skip_braces(p);
        } else if (token_is(p, ".pragma") || token_is(p, ".alias")) {
            skip_statement(p);
        } else if (!parse_declaration(p)) {
            parse_fail(p, "found \"%.*s\", expected a directive of the module",
                       (int)p->token.length, p->token.text);
        }
    }
}

/* The one place where a syntax error comes out. */
static bool parse_all(struct parser *p)
{
    if (setjmp(p->failed)) {
        return false;
    }
    parse_module(p);
    for (uint32_t i = 0; i < p->module->n_kernels; i++) {
        if (!p->module->kernels[i].is_function) {
            decode_kernel(p, &p->module->kernels[i]);
        }
    }
    return true;
}

struct module *module_load(const char *text, char *error, size_t error_size)
{
    struct module *m = calloc(1, sizeof *m);
    struct parser *p = calloc(1, sizeof *p);
    if (!m || !p) {
        free(m);
        free(p);
        snprintf(error, error_size, "the host has no memory for a module");
        return NULL;
    }
    m->text = module_alloc(m, strlen(text) + 1);
    memcpy(m->text, text, strlen(text));
    p->module = m;
    p->at = m->text;
    p->line = 1;
    bool is_good = parse_all(p);
    if (!is_good) {
        snprintf(error, error_size, "%s", p->error);
        module_unload(m);
    }
    free(p);
    return is_good ? m : NULL;
}

void module_unload(struct module *m)
{
    for (uint32_t i = 0; i < m->n_globals; i++) {
        device_free(m->globals[i].address);
    }
    module_release_memory(m);
    free(m);
}

struct kernel *module_kernel(struct module *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_kernels; i++) {
        if (!m->kernels[i].is_function && strcmp(m->kernels[i].name, name) == 0) {
            return &m->kernels[i];
        }
    }
    return NULL;
}
