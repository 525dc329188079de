/* Tokens of the graph text form. */
#ifndef ATOLL_IR_LEX_H
#define ATOLL_IR_LEX_H

#include "base.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,   /* f32, axis, return, loss */
    TOKEN_VALUE,  /* %name or %"any text"; text is the name */
    TOKEN_NUMBER, /* 12, -1.5e-3, 0x1p-24, -inf, nan, nan(0x7ff8000000000001) */
    TOKEN_STRING, /* "..." ; text is decoded */
    TOKEN_ARROW,  /* <- */
    TOKEN_PUNCT,  /* one of ( ) { } [ ] , : = * @ */
    TOKEN_BAD     /* text says what is wrong with it */
};

struct token {
    enum token_kind kind;
    const char *start; /* as written */
    size_t length;
    const char *text; /* see the kinds; a copy in the lexer's arena */
    uint32_t line, column;
};

struct lexer {
    struct arena *arena;
    const char *at, *end, *line_start;
    uint32_t line;
};

/* The next token; TOKEN_END at the end, again and again. */
struct token lex_next(struct lexer *l);
/* Exact readings of a TOKEN_NUMBER; false when it is not an integer, or out of range. */
bool token_integer(const struct token *t, int64_t *out);
bool token_double(const struct token *t, double *out);
/* Whether text may stand as a word (first: no digit in front) or after % without quotes. */
bool is_word(const char *text);
bool is_value_name(const char *text);

#endif
