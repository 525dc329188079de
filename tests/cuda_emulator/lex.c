/* PTX text to tokens, and the helpers every part of the parser shares. A word holds letters,
 * digits, '_', '$', '%' and '.', so "add.rn.f32", "%tid.x", ".reg" and "$L__BB0_2" are one token
 * each. Invariant: p->token is the next token not yet taken. */
#include "parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void parse_fail(struct parser *p, const char *format, ...)
{
    int n = snprintf(p->error, sizeof p->error,
                     "ptx line %u: ", p->statement_line ? p->statement_line : p->token.line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->error + n, sizeof p->error - (size_t)n, format, arguments);
    va_end(arguments);
    longjmp(p->failed, 1);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(struct parser *p)
{
    for (;;) {
        if (*p->at == '\n') {
            p->line++;
            p->at++;
        } else if (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') {
            p->at++;
        } else if (p->at[0] == '/' && p->at[1] == '/') {
            p->at += strcspn(p->at, "\n");
        } else if (p->at[0] == '/' && p->at[1] == '*') {
            for (p->at += 2; *p->at && !(p->at[0] == '*' && p->at[1] == '/'); p->at++) {
                p->line += *p->at == '\n';
            }
            p->at += *p->at ? 2 : 0;
        } else {
            return;
        }
    }
}

/* 0f3F800000, 0d3FF0000000000000, 12, 0x1fU, 017, 1.5 */
static void lex_number(struct parser *p, struct token *t)
{
    char *end;
    t->kind = TOKEN_NUMBER;
    bool is_bits = p->at[0] == '0' && strchr("fFdD", p->at[1]) && p->at[1];
    if (is_bits) {
        t->float_bytes = p->at[1] == 'f' || p->at[1] == 'F' ? 4 : 8;
        t->value = strtoull(p->at + 2, &end, 16);
    } else {
        t->value = strtoull(p->at, &end, 0);
        if (*end == '.' && is_digit(end[1])) {
            double d = strtod(p->at, &end);
            memcpy(&t->value, &d, sizeof d);
            t->float_bytes = 8;
        }
        end += *end == 'U';
    }
    t->length = (uint32_t)(end - p->at);
    p->at = end;
}

void next_token(struct parser *p)
{
    skip_blanks(p);
    struct token *t = &p->token;
    *t = (struct token){.text = p->at, .line = p->line};
    char c = *p->at;
    if (!c) {
        t->kind = TOKEN_END;
    } else if (is_digit(c)) {
        lex_number(p, t);
    } else if (is_word(c)) {
        t->kind = TOKEN_WORD;
        while (is_word(*p->at)) {
            p->at++;
        }
        t->length = (uint32_t)(p->at - t->text);
    } else if (c == '"') {
        t->kind = TOKEN_STRING;
        p->at++;
        size_t n = strcspn(p->at, "\"\n");
        p->at += n + (p->at[n] == '"');
        t->length = (uint32_t)(p->at - t->text);
    } else {
        t->kind = TOKEN_PUNCTUATION;
        t->length = 1;
        p->at++;
    }
}

bool text_is(const char *text, uint32_t length, const char *other)
{
    return strlen(other) == length && memcmp(text, other, length) == 0;
}

bool token_is(const struct parser *p, const char *text)
{
    return (p->token.kind == TOKEN_WORD || p->token.kind == TOKEN_PUNCTUATION) &&
           text_is(p->token.text, p->token.length, text);
}

bool accept(struct parser *p, const char *text)
{
    bool is_there = token_is(p, text);
    if (is_there) {
        next_token(p);
    }
    return is_there;
}

void expect(struct parser *p, const char *text)
{
    if (!accept(p, text)) {
        parse_fail(p, "found \"%.*s\", expected \"%s\"", (int)p->token.length, p->token.text, text);
    }
}

struct token take_word(struct parser *p)
{
    struct token t = p->token;
    if (t.kind != TOKEN_WORD) {
        parse_fail(p, "found \"%.*s\", expected a name", (int)t.length, t.text);
    }
    next_token(p);
    return t;
}

uint64_t take_integer(struct parser *p)
{
    bool is_negative = accept(p, "-");
    struct token t = p->token;
    if (t.kind != TOKEN_NUMBER) {
        parse_fail(p, "found \"%.*s\", expected a number", (int)t.length, t.text);
    }
    next_token(p);
    return is_negative ? 0 - t.value : t.value;
}

const struct type_row type_info[N_TYPES] = {
    {0},
#define X(id, name, bytes, lane, is_signed, is_float) {name, bytes, lane, is_signed, is_float},
#include "types.def"
#undef X
};

enum ptx_type type_named(const char *text, uint32_t length)
{
    for (int t = 1; t < N_TYPES; t++) {
        if (text_is(text, length, type_info[t].name)) {
            return (enum ptx_type)t;
        }
    }
    return TYPE_NONE;
}

void split_mnemonic(struct token mnemonic, struct parts *parts)
{
    *parts = (struct parts){0};
    const char *at = mnemonic.text, *end = at + mnemonic.length;
    while (at < end && parts->n < 12) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        const char *stop = dot ? dot : end;
        if (stop > at) {
            parts->text[parts->n] = at;
            parts->length[parts->n++] = (uint32_t)(stop - at);
        }
        at = stop + 1;
    }
}

bool part_is(const struct parts *parts, uint32_t i, const char *text)
{
    return i < parts->n && text_is(parts->text[i], parts->length[i], text);
}

bool has_part(const struct parts *parts, const char *text)
{
    for (uint32_t i = 1; i < parts->n; i++) {
        if (part_is(parts, i, text)) {
            return true;
        }
    }
    return false;
}
