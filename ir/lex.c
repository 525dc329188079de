/* Bytes to tokens for ir/parse.c. Takes any bytes: what is no token comes back as TOKEN_BAD with
 * the reason, and nothing is read past `end`. Numbers are kept as text here, since only the parser
 * knows whether an integer or a double is meant. */
#include "lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBER = 120 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word_char(char c)
{
    return is_letter(c) || is_digit(c) || c == '.' || c == '$' || c == '/';
}

bool is_value_name(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (!is_word_char(*p)) {
            return false;
        }
    }
    return *text != '\0';
}

/* inf and nan are numbers wherever they stand. */
static bool is_number_word(const char *text, size_t length)
{
    return length == 3 && (memcmp(text, "inf", 3) == 0 || memcmp(text, "nan", 3) == 0);
}

bool is_word(const char *text)
{
    return is_letter(*text) && is_value_name(text) && !is_number_word(text, strlen(text));
}

static void skip_blank(struct lexer *l)
{
    for (; l->at < l->end; l->at++) {
        if (*l->at == '#') {
            while (l->at < l->end && *l->at != '\n') {
                l->at++;
            }
        }
        if (l->at == l->end || strchr(" \t\r\n", *l->at) == NULL || *l->at == '\0') {
            return;
        }
        if (*l->at == '\n') {
            l->line++;
            l->line_start = l->at + 1;
        }
    }
}

static int hex_digit(char c)
{
    return is_digit(c)              ? c - '0'
           : (c >= 'a' && c <= 'f') ? c - 'a' + 10
           : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                    : -1;
}

/* Reads one escape after the backslash; 0 when there is none of that spelling. */
static char escape(struct lexer *l)
{
    char c = l->at < l->end ? *l->at++ : '\0';
    if (c == 'x' && l->end - l->at >= 2) {
        int high = hex_digit(l->at[0]), low = hex_digit(l->at[1]);
        if (high < 0 || low < 0) {
            return '\0';
        }
        l->at += 2;
        return (char)(unsigned char)(high * 16 + low);
    }
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == '"' || c == '\\' ? c : '\0';
}

/* l->at stands behind the opening quote. */
static const char *read_string(struct lexer *l, const char **problem)
{
    const char *close = l->at;
    while (close < l->end && *close != '"' && *close != '\n') {
        close += *close == '\\' && l->end - close > 1 ? 2 : 1;
    }
    if (close >= l->end || *close != '"') {
        l->at = close < l->end ? close : l->end;
        *problem = "a string without its closing \"";
        return NULL;
    }
    char *out = arena_alloc(l->arena, (size_t)(close - l->at) + 1), *to = out;
    while (l->at < close) {
        char c = *l->at++;
        if (c == '\\') {
            c = escape(l);
        }
        if (c == '\0') {
            l->at = close + 1;
            *problem = "a bad escape or NUL in a string; hint: \\n \\t \\\" \\\\ \\xHH, not \\x00";
            return NULL;
        }
        *to++ = c;
    }
    l->at = close + 1;
    return out;
}

static const char *word_end(const struct lexer *l, const char *from)
{
    while (from < l->end && is_word_char(*from)) {
        from++;
    }
    return from;
}

/* Digits, dots, letters, and signs behind an exponent's letter; strtod judges the rest. */
static const char *number_end(const struct lexer *l)
{
    const char *p = l->at + (*l->at == '-' ? 1 : 0);
    bool is_hex = l->end - p > 1 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X');
    while (p < l->end) {
        bool is_exponent = is_hex ? *p == 'p' || *p == 'P' : *p == 'e' || *p == 'E';
        if (is_exponent && l->end - p > 1 && (p[1] == '-' || p[1] == '+')) {
            p += 2;
        } else if (is_digit(*p) || is_letter(*p) || *p == '.') {
            p++;
        } else {
            break;
        }
    }
    if (p - l->at == 3 && memcmp(l->at, "nan", 3) == 0 && p < l->end && *p == '(') {
        const char *q = p + 1;
        while (q < l->end && (hex_digit(*q) >= 0 || *q == 'x')) {
            q++;
        }
        if (q < l->end && *q == ')') {
            return q + 1;
        }
    }
    return p;
}

static void read_number(struct lexer *l, struct token *t)
{
    const char *end = number_end(l);
    double value;
    t->text =
        arena_text(l->arena, "%.*s", end - l->at > MAX_NUMBER ? 0 : (int)(end - l->at), l->at);
    t->kind = TOKEN_NUMBER;
    l->at = end;
    if (!token_double(t, &value)) {
        t->kind = TOKEN_BAD;
        t->text = "a number that does not read as one, or is out of range";
    }
}

bool token_integer(const struct token *t, int64_t *out)
{
    const char *p = t->text;
    bool is_negative = *p == '-';
    int64_t n = 0;
    p += is_negative ? 1 : 0;
    if (*p == '\0') {
        return false;
    }
    for (; *p != '\0'; p++) {
        if (!is_digit(*p) || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_sub_overflow(n, *p - '0', &n)) { /* negative, so that INT64_MIN fits */
            return false;
        }
    }
    return is_negative ? (*out = n, true) : !__builtin_sub_overflow((int64_t)0, n, out);
}

bool token_double(const struct token *t, double *out)
{
    if (strncmp(t->text, "nan(", 4) == 0) {
        char *end;
        uint64_t bits = strtoull(t->text + 4, &end, 16);
        memcpy(out, &bits, sizeof bits);
        return end[0] == ')' && *out != *out;
    }
    if (strcmp(t->text, "nan") == 0) {
        uint64_t bits = UINT64_C(0x7ff8) << 48;
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    const char *digits = t->text + (t->text[0] == '-' ? 1 : 0);
    if (strcmp(digits, "inf") != 0 && !is_digit(*digits)) {
        return false;
    }
    char *end;
    *out = strtod(t->text, &end);
    bool is_overflow =
        is_digit(*digits) && (*out > 1.7976931348623157e308 || *out < -1.7976931348623157e308);
    return end != t->text && *end == '\0' && !is_overflow;
}

static void read_value_name(struct lexer *l, struct token *t)
{
    const char *problem = "a % without a name behind it";
    l->at++;
    if (l->at < l->end && *l->at == '"') {
        l->at++;
        t->text = read_string(l, &problem);
    } else {
        const char *end = word_end(l, l->at);
        t->text = end == l->at ? NULL : arena_text(l->arena, "%.*s", (int)(end - l->at), l->at);
        l->at = end;
    }
    t->kind = t->text != NULL && *t->text != '\0' ? TOKEN_VALUE : TOKEN_BAD;
    t->text = t->kind == TOKEN_VALUE ? t->text : problem;
}

static void read_token(struct lexer *l, struct token *t)
{
    char c = *l->at;
    if (c == '%') {
        read_value_name(l, t);
    } else if (c == '"') {
        const char *problem = NULL;
        l->at++;
        t->text = read_string(l, &problem);
        t->kind = problem == NULL ? TOKEN_STRING : TOKEN_BAD;
        t->text = problem == NULL ? t->text : problem;
    } else if (is_letter(c)) {
        const char *end = word_end(l, l->at);
        if (is_number_word(l->at, (size_t)(end - l->at))) {
            read_number(l, t);
            return;
        }
        t->kind = TOKEN_WORD;
        t->text = arena_text(l->arena, "%.*s", (int)(end - l->at), l->at);
        l->at = end;
    } else if (is_digit(c) || c == '-') {
        read_number(l, t);
    } else if (c == '<' && l->end - l->at > 1 && l->at[1] == '-') {
        t->kind = TOKEN_ARROW;
        l->at += 2;
    } else if (c != '\0' && strchr("(){}[],:=*@", c) != NULL) {
        t->kind = TOKEN_PUNCT;
        l->at++;
    } else {
        t->kind = TOKEN_BAD;
        t->text = "a byte that no word, number or sign begins with";
        l->at++;
    }
}

struct token lex_next(struct lexer *l)
{
    skip_blank(l);
    struct token t = {.kind = TOKEN_END,
                      .start = l->at,
                      .text = "",
                      .line = l->line,
                      .column = (uint32_t)(l->at - l->line_start) + 1};
    if (l->at < l->end) {
        read_token(l, &t);
    }
    t.length = (size_t)(l->at - t.start);
    return t;
}
