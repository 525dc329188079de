/* The parser's hands: one token of look-ahead, the messages, and the small parts of the grammar.
 * Every function either uses up what it names or records an error at the token it stopped at.
 * Invariant: p->token is not yet used. */
#include "cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

void advance(struct parser *p)
{
    p->token = lex_next(&p->lexer);
}

/* 'x' for a message: at most 40 bytes, what does not print as '?'. */
static const char *quoted(const struct token *t, char out[48])
{
    size_t n = t->length < 40 ? t->length : 40;
    if (t->kind == TOKEN_END) {
        return "the end of the text";
    }
    out[0] = '\'';
    for (size_t i = 0; i < n; i++) {
        out[i + 1] = t->start[i] < 32 || t->start[i] == 127 ? '?' : t->start[i];
    }
    snprintf(out + n + 1, 7, "%s'", n < t->length ? "..." : "");
    return out;
}

status refuse_at(struct parser *p, const struct token *t, const char *expected)
{
    char found[48];
    const char *name = quoted(t, found);
    if (t->kind == TOKEN_BAD) {
        return fail(p->error, ATOLL_PARSE,
                    "%s:%" PRIu32 ":%" PRIu32 ": found %s, which is %s; expected %s", p->file,
                    t->line, t->column, name, t->text, expected);
    }
    return fail(p->error, ATOLL_PARSE, "%s:%" PRIu32 ":%" PRIu32 ": found %s, expected %s", p->file,
                t->line, t->column, name, expected);
}

status refuse(struct parser *p, const char *expected)
{
    return refuse_at(p, &p->token, expected);
}

/* Turns what the builder refused into an error at t. */
status builder_status(struct parser *p, const struct token *t)
{
    const struct error *e = &p->graph->error;
    return e->code == ATOLL_OK ? ATOLL_OK
                               : fail(p->error, e->code, "%s:%" PRIu32 ":%" PRIu32 ": %.800s",
                                      p->file, t->line, t->column, e->text);
}

bool is_punct(const struct parser *p, char c)
{
    return p->token.kind == TOKEN_PUNCT && *p->token.start == c;
}

bool accept(struct parser *p, char c)
{
    bool is_there = is_punct(p, c);
    if (is_there) {
        advance(p);
    }
    return is_there;
}

status expect(struct parser *p, char c, const char *where)
{
    char what[80];
    snprintf(what, sizeof what, "'%c' %s", c, where);
    return accept(p, c) ? ATOLL_OK : refuse(p, what);
}

static bool is_word_token(const struct parser *p, const char *word)
{
    return p->token.kind == TOKEN_WORD && strcmp(p->token.text, word) == 0;
}

bool accept_word(struct parser *p, const char *word)
{
    bool is_there = is_word_token(p, word);
    if (is_there) {
        advance(p);
    }
    return is_there;
}

status expect_name(struct parser *p, const char *what, const char **out)
{
    if (p->token.kind != TOKEN_WORD && p->token.kind != TOKEN_STRING) {
        return refuse(p, what);
    }
    *out = p->token.text;
    advance(p);
    return ATOLL_OK;
}

status expect_integer(struct parser *p, int64_t low, int64_t high, const char *what, int64_t *out)
{
    if (p->token.kind != TOKEN_NUMBER || !token_integer(&p->token, out) || *out < low ||
        *out > high) {
        return refuse(p, what);
    }
    advance(p);
    return ATOLL_OK;
}

status expect_value(struct parser *p, value *out)
{
    if (p->token.kind != TOKEN_VALUE) {
        return refuse(p, "a value (%name)");
    }
    const struct name_entry *entry = name_find(&p->names, p->token.text);
    if (entry == NULL || entry->number == 0) {
        return refuse(p, "a value defined above; hint: operands stand before their users");
    }
    *out = (value){entry->number};
    advance(p);
    return ATOLL_OK;
}

status expect_new_value(struct parser *p, const char **out)
{
    if (p->token.kind != TOKEN_VALUE) {
        return refuse(p, "a value (%name)");
    }
    if (name_find(&p->names, p->token.text) != NULL) {
        return refuse(p, "a name not yet used; hint: each value is defined once");
    }
    *out = arena_copy_text(&p->graph->arena, p->token.text);
    advance(p);
    return ATOLL_OK;
}

/* ---- types ---- */

/* 64, n, 2*n*m; -1 alone where a reshape infers the size. */
static status parse_dim(struct parser *p, bool may_infer, struct dim *out)
{
    *out = dim_of(1);
    if (may_infer && p->token.kind == TOKEN_NUMBER && strcmp(p->token.text, "-1") == 0) {
        *out = dim_of(-1);
        advance(p);
        return ATOLL_OK;
    }
    do {
        struct token at = p->token;
        struct dim factor;
        if (at.kind == TOKEN_NUMBER) {
            int64_t n;
            TRY(expect_integer(p, 0, INT64_MAX, "a size: an integer >= 0 or a symbol", &n));
            factor = dim_of(n);
        } else {
            const char *name = NULL;
            TRY(expect_name(p, "a size: an integer >= 0 or a symbol", &name));
            uint8_t symbol = graph_symbol(p->graph, name);
            TRY(builder_status(p, &at));
            factor = dim_symbol(symbol);
        }
        if (!dim_multiply(*out, factor, out)) {
            return refuse_at(p, &at, "a product of at most 4 symbols that fits in 64 bits");
        }
    } while (accept(p, '*'));
    return ATOLL_OK;
}

status parse_shape(struct parser *p, bool may_infer, struct shape *out)
{
    *out = shape_scalar();
    TRY(expect(p, '[', "before the sizes"));
    if (accept(p, ']')) {
        return ATOLL_OK;
    }
    do {
        if (out->rank == MAX_RANK) {
            return refuse(p, "at most 8 dims");
        }
        TRY(parse_dim(p, may_infer, &out->dims[out->rank]));
        out->rank++;
    } while (accept(p, ','));
    return expect(p, ']', "or ',' after a size");
}

status parse_dtype(struct parser *p, enum dtype *out)
{
    *out = p->token.kind == TOKEN_WORD ? dtype_named(p->token.text, p->token.length) : DTYPE_NONE;
    if (*out == DTYPE_NONE) {
        return refuse(p, "a dtype: bool u8 i32 i64 f8e4m3 f8e5m2 f16 bf16 f32 f64");
    }
    advance(p);
    return ATOLL_OK;
}

/* ---- attributes ---- */

static status parse_ints(struct parser *p, struct attr *a)
{
    int64_t *ints = NULL;
    uint32_t capacity = 0;
    TRY(expect(p, '[', "before the integers"));
    if (accept(p, ']')) {
        return ATOLL_OK;
    }
    do {
        ints = arena_grow(&p->scratch, ints, a->n_ints, &capacity, sizeof *ints);
        TRY(expect_integer(p, INT64_MIN, INT64_MAX, "an integer", &ints[a->n_ints]));
        a->n_ints++;
    } while (accept(p, ','));
    a->ints = ints;
    return expect(p, ']', "or ',' after an integer");
}

static status parse_attr_value(struct parser *p, enum op op, struct attr *a)
{
    char what[96];
    snprintf(what, sizeof what, "%s: attribute %s of %s", attr_kind_name[a->kind], a->name,
             op_info[op].name);
    switch (a->kind) {
    case ATTR_INT:
        return expect_integer(p, INT64_MIN, INT64_MAX, what, &a->i);
    case ATTR_BOOL:
        a->i = accept_word(p, "true");
        if (a->i != 0 || accept_word(p, "false")) {
            return ATOLL_OK;
        }
        return refuse(p, "true or false");
    case ATTR_FLOAT:
        if (p->token.kind != TOKEN_NUMBER || !token_double(&p->token, &a->f)) {
            return refuse(p, what);
        }
        advance(p);
        return ATOLL_OK;
    case ATTR_INTS:
        return parse_ints(p, a);
    case ATTR_DIMS:
        return parse_shape(p, op == OP_reshape, &a->dims);
    case ATTR_DTYPE:
        return parse_dtype(p, &a->dtype);
    case ATTR_TEXT:
        if (p->token.kind != TOKEN_STRING) {
            return refuse(p, what);
        }
        a->text = p->token.text;
        advance(p);
        return ATOLL_OK;
    }
    return ATOLL_INTERNAL;
}

status parse_attrs(struct parser *p, enum op op, uint32_t first, struct attr *out, uint32_t *n_out)
{
    struct attr schema[MAX_ATTRS];
    uint32_t required, n = op_schema(op, &p->scratch, schema, &required), seen = 0;
    if (!accept(p, '{') || accept(p, '}')) {
        return ATOLL_OK;
    }
    do {
        uint32_t at = first;
        while (p->token.kind == TOKEN_WORD && at < n &&
               strcmp(schema[at].name, p->token.text) != 0) {
            at++;
        }
        if (p->token.kind != TOKEN_WORD || at >= n || (seen >> at & 1U) != 0) {
            char what[400];
            snprintf(what, sizeof what, "an attribute of %s not given yet; it has: %s",
                     op_info[op].name, n == 0 ? "none" : op_info[op].attrs);
            return refuse(p, what);
        }
        seen |= 1U << at;
        advance(p);
        TRY(expect(p, '=', "after an attribute's name"));
        struct attr *a = &out[(*n_out)++];
        *a = (struct attr){.name = schema[at].name, .kind = schema[at].kind, .text = ""};
        TRY(parse_attr_value(p, op, a));
    } while (accept(p, ','));
    return expect(p, '}', "or ',' after an attribute");
}
