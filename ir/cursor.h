/* Inside the parser: the cursor over tokens, and the parts that have no order among themselves:
 * names, sizes, types, attributes. Used by ir/parse.c alone. */
#ifndef ATOLL_IR_CURSOR_H
#define ATOLL_IR_CURSOR_H

#include "graph.h"
#include "lex.h"
#include "name_table.h"

struct parser {
    struct lexer lexer;
    struct token token; /* the one not yet used */
    const char *file;
    struct error *error;
    struct graph *graph;
    struct arena scratch;
    struct name_table names; /* -> id of the value */
    bool keeps_lines;        /* nodes get their line of the text */
    const char *own_file;    /* file, in the graph's arena; NULL unless it keeps lines */
};

/* Moves on to the next token. */
void advance(struct parser *p);
/* "FILE:line:column: found 'x', expected ..." at the current token, or at t. */
status refuse(struct parser *p, const char *expected);
status refuse_at(struct parser *p, const struct token *t, const char *expected);
/* What the graph's builder refused, as an error at t. */
status builder_status(struct parser *p, const struct token *t);

bool is_punct(const struct parser *p, char c);
/* Use up the token when it is that sign or word. */
bool accept(struct parser *p, char c);
bool accept_word(struct parser *p, const char *word);
status expect(struct parser *p, char c, const char *where);
/* A word, or any text in quotes. */
status expect_name(struct parser *p, const char *what, const char **out);
status expect_integer(struct parser *p, int64_t low, int64_t high, const char *what, int64_t *out);
/* %name of a value that stands above. */
status expect_value(struct parser *p, value *out);
/* %name of a value that is about to be defined; a copy in the graph's arena. */
status expect_new_value(struct parser *p, const char **out);

status parse_dtype(struct parser *p, enum dtype *out);
/* [64,n,2*n*m]; -1 alone where a reshape infers the size. */
status parse_shape(struct parser *p, bool may_infer, struct shape *out);
/* {axis=-1, keepdims=true} or nothing; attributes before `first` in the schema are not written
 * here. Adds to out[*n_out]. */
status parse_attrs(struct parser *p, enum op op, uint32_t first, struct attr *out, uint32_t *n_out);

#endif
