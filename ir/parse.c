/* Recursive descent without recursion: graph @name(leaves) where ranges { nodes updates return }.
 * Nodes go through graph_add, so a parsed graph is as well typed as one built by calls. The first
 * problem ends the parse; its message carries file, line and column. */
#include "parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "infer.h"
#include "lex.h"
#include "name_table.h"

enum { MAX_TEXT = 1 << 30 };

struct parser {
    struct lexer lexer;
    struct token token; /* the one not yet used */
    const char *file;
    struct error *error;
    struct graph *graph;
    struct arena scratch;
    struct name_table names; /* -> id of the value */
};

/* What may stand behind a node. */
struct marks {
    bool has_type, has_scale;
    enum dtype dtype;
    struct shape shape;
    uint32_t scale, island;
    struct location location;
    struct token type_token, scale_token;
};

/* ---- tokens ---- */

static void next(struct parser *p)
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

static status refuse_at(struct parser *p, const struct token *t, const char *expected)
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

static status refuse(struct parser *p, const char *expected)
{
    return refuse_at(p, &p->token, expected);
}

/* Turns what the builder refused into an error at t. */
static status builder_status(struct parser *p, const struct token *t)
{
    const struct error *e = &p->graph->error;
    return e->code == ATOLL_OK ? ATOLL_OK
                               : fail(p->error, e->code, "%s:%" PRIu32 ":%" PRIu32 ": %.800s",
                                      p->file, t->line, t->column, e->text);
}

static bool is_punct(const struct parser *p, char c)
{
    return p->token.kind == TOKEN_PUNCT && *p->token.start == c;
}

static bool accept(struct parser *p, char c)
{
    bool is_there = is_punct(p, c);
    if (is_there) {
        next(p);
    }
    return is_there;
}

static status expect(struct parser *p, char c, const char *where)
{
    char what[80];
    snprintf(what, sizeof what, "'%c' %s", c, where);
    return accept(p, c) ? ATOLL_OK : refuse(p, what);
}

static bool is_word_token(const struct parser *p, const char *word)
{
    return p->token.kind == TOKEN_WORD && strcmp(p->token.text, word) == 0;
}

static bool accept_word(struct parser *p, const char *word)
{
    bool is_there = is_word_token(p, word);
    if (is_there) {
        next(p);
    }
    return is_there;
}

/* A word, or any text in quotes. */
static status expect_name(struct parser *p, const char *what, const char **out)
{
    if (p->token.kind != TOKEN_WORD && p->token.kind != TOKEN_STRING) {
        return refuse(p, what);
    }
    *out = p->token.text;
    next(p);
    return ATOLL_OK;
}

static status expect_integer(struct parser *p, int64_t low, int64_t high, const char *what,
                             int64_t *out)
{
    if (p->token.kind != TOKEN_NUMBER || !token_integer(&p->token, out) || *out < low ||
        *out > high) {
        return refuse(p, what);
    }
    next(p);
    return ATOLL_OK;
}

/* %name of a value that stands above. */
static status expect_value(struct parser *p, value *out)
{
    if (p->token.kind != TOKEN_VALUE) {
        return refuse(p, "a value (%name)");
    }
    const struct name_entry *entry = name_find(&p->names, p->token.text);
    if (entry == NULL || entry->number == 0) {
        return refuse(p, "a value defined above; hint: operands stand before their users");
    }
    *out = (value){entry->number};
    next(p);
    return ATOLL_OK;
}

/* %name of a value that is about to be defined; *entry_name is kept by the table. */
static status expect_new_value(struct parser *p, const char **out)
{
    if (p->token.kind != TOKEN_VALUE) {
        return refuse(p, "a value (%name)");
    }
    if (name_find(&p->names, p->token.text) != NULL) {
        return refuse(p, "a name not yet used; hint: each value is defined once");
    }
    *out = arena_copy_text(&p->graph->arena, p->token.text);
    next(p);
    return ATOLL_OK;
}

/* ---- types ---- */

/* 64, n, 2*n*m; -1 alone where a reshape infers the size. */
static status parse_dim(struct parser *p, bool may_infer, struct dim *out)
{
    *out = dim_of(1);
    if (may_infer && p->token.kind == TOKEN_NUMBER && strcmp(p->token.text, "-1") == 0) {
        *out = dim_of(-1);
        next(p);
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
            const char *name;
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

static status parse_shape(struct parser *p, bool may_infer, struct shape *out)
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

static status parse_dtype(struct parser *p, enum dtype *out)
{
    *out = p->token.kind == TOKEN_WORD ? dtype_named(p->token.text, p->token.length) : DTYPE_NONE;
    if (*out == DTYPE_NONE) {
        return refuse(p, "a dtype: bool u8 i32 i64 f8e4m3 f8e5m2 f16 bf16 f32 f64");
    }
    next(p);
    return ATOLL_OK;
}

static status parse_type(struct parser *p, struct marks *m)
{
    m->has_type = true;
    m->type_token = p->token;
    TRY(parse_dtype(p, &m->dtype));
    return parse_shape(p, false, &m->shape);
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
        next(p);
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
        next(p);
        return ATOLL_OK;
    }
    return ATOLL_INTERNAL;
}

/* {axis=-1, keepdims=true}; attributes before `first` in the schema are not written here. */
static status parse_attrs(struct parser *p, enum op op, uint32_t first, struct attr *out,
                          uint32_t *n_out)
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
        next(p);
        TRY(expect(p, '=', "after an attribute's name"));
        struct attr *a = &out[(*n_out)++];
        *a = (struct attr){.name = schema[at].name, .kind = schema[at].kind, .text = ""};
        TRY(parse_attr_value(p, op, a));
    } while (accept(p, ','));
    return expect(p, '}', "or ',' after an attribute");
}

/* ---- nodes ---- */

static status parse_location(struct parser *p, struct location *out)
{
    int64_t line;
    if (p->token.kind != TOKEN_STRING) {
        return refuse(p, "a file name in quotes");
    }
    out->file = arena_copy_text(&p->graph->arena, p->token.text);
    next(p);
    TRY(expect(p, ':', "between file and line"));
    TRY(expect_integer(p, 0, UINT32_MAX, "a line number", &line));
    out->line = (uint32_t)line;
    return ATOLL_OK;
}

/* scaled(%s) island 3 @ "file.c":12, each optional, in this order. */
static status parse_marks(struct parser *p, struct marks *m)
{
    if (accept_word(p, "scaled")) {
        value scale;
        m->has_scale = true;
        TRY(expect(p, '(', "after scaled"));
        m->scale_token = p->token;
        TRY(expect_value(p, &scale));
        TRY(expect(p, ')', "after the scale"));
        m->scale = scale.id;
    }
    if (accept_word(p, "island")) {
        int64_t island;
        TRY(expect_integer(p, 1, UINT32_MAX, "the number of an island, 1 or more", &island));
        m->island = (uint32_t)island;
    }
    return accept(p, '@') ? parse_location(p, &m->location) : ATOLL_OK;
}

/* Adds the node under its name, then holds what was written against what was inferred. */
static status add_node(struct parser *p, const struct token *at, const char *name, enum op op,
                       const value *operands, uint32_t n_operands, const struct attr *attrs,
                       uint32_t n_attrs, const struct marks *m)
{
    struct graph *g = p->graph;
    g->origin_name = name;
    g->origin = m->location;
    g->origin_island = m->island;
    value v = graph_add(g, op, operands, n_operands, attrs, n_attrs);
    TRY(builder_status(p, at));
    name_add(&p->names, name)->number = v.id;
    const struct node *n = graph_node(g, v);
    if (m->has_type && (n->dtype != m->dtype || !shape_equal(&n->shape, &m->shape))) {
        struct node written = {.dtype = m->dtype, .shape = m->shape};
        return fail(p->error, ATOLL_PARSE,
                    "%s:%" PRIu32 ":%" PRIu32 ": found type %s, expected %s, which %s gives for "
                    "these operands; hint: correct the type or leave it out",
                    p->file, m->type_token.line, m->type_token.column,
                    type_text(g, &written, &p->scratch), type_text(g, n, &p->scratch),
                    op_info[op].name);
    }
    if (m->has_scale && n->scale != m->scale) {
        return refuse_at(p, &m->scale_token,
                         n->scale == 0 ? "no scaled(): nothing here carries a loss scale"
                                       : arena_text(&p->scratch, "scaled(%s)",
                                                    graph_name(g, (value){n->scale}, &p->scratch)));
    }
    return ATOLL_OK;
}

/* A number in place of an operand: a weak constant without a name. */
static status add_literal(struct parser *p, value *out)
{
    double number;
    struct graph *g = p->graph;
    (void)token_double(&p->token, &number); /* the lexer has read it once already */
    g->origin_name = NULL;
    g->origin = (struct location){0};
    g->origin_island = 0;
    *out = graph_number(g, number);
    TRY(builder_status(p, &p->token));
    next(p);
    return ATOLL_OK;
}

static status parse_operands(struct parser *p, value **operands, uint32_t *n)
{
    uint32_t capacity = 0;
    TRY(expect(p, '(', "before the operands"));
    if (accept(p, ')')) {
        return ATOLL_OK;
    }
    do {
        *operands = arena_grow(&p->scratch, *operands, *n, &capacity, sizeof **operands);
        value *to = &(*operands)[*n];
        TRY(p->token.kind == TOKEN_NUMBER ? add_literal(p, to) : expect_value(p, to));
        ++*n;
    } while (accept(p, ','));
    return expect(p, ')', "or ',' after an operand");
}

/* %h = linear(%x, %w, 2.5) {attrs} : type marks */
static status parse_node(struct parser *p)
{
    const char *name;
    struct attr attrs[MAX_ATTRS];
    struct marks m = {0};
    value *operands = NULL;
    uint32_t n_operands = 0, n_attrs = 0;
    TRY(expect_new_value(p, &name));
    TRY(expect(p, '=', "after the value's name"));
    struct token at = p->token;
    enum op op = at.kind == TOKEN_WORD ? op_named(at.text, at.length) : OP_NONE;
    if (op == OP_NONE) {
        return refuse(p, "the name of an operation");
    }
    if (op <= OP_scalar) {
        return refuse(p, "an operation; hint: leaves are parameters of the graph");
    }
    next(p);
    TRY(parse_operands(p, &operands, &n_operands));
    TRY(parse_attrs(p, op, 0, attrs, &n_attrs));
    if (accept(p, ':')) {
        TRY(parse_type(p, &m));
    }
    TRY(parse_marks(p, &m));
    return add_node(p, &at, name, op, operands, n_operands, attrs, n_attrs, &m);
}

/* %w: f32[128,64] param {init="..."} */
static status parse_leaf(struct parser *p)
{
    const char *name;
    struct attr attrs[MAX_ATTRS];
    struct marks m = {0};
    uint32_t n_attrs = 2;
    TRY(expect_new_value(p, &name));
    TRY(expect(p, ':', "before the type"));
    TRY(parse_type(p, &m));
    struct token at = p->token;
    enum op op = at.kind == TOKEN_WORD ? op_named(at.text, at.length) : OP_NONE;
    if (op == OP_NONE || op > OP_scalar) {
        return refuse(p, "input, param, buffer, state or scalar");
    }
    next(p);
    attrs[0] = attr_dims("shape", &m.shape);
    attrs[1] = attr_dtype("dtype", m.dtype);
    TRY(parse_attrs(p, op, 2, attrs, &n_attrs));
    TRY(parse_marks(p, &m));
    return add_node(p, &at, name, op, NULL, 0, attrs, n_attrs, &m);
}

/* ---- the graph ---- */

/* where n in [2,64], m in [1,inf] */
static status parse_ranges(struct parser *p)
{
    do {
        struct token at = p->token;
        const char *name;
        int64_t low, high = INT64_MAX;
        TRY(expect_name(p, "a symbol", &name));
        uint8_t symbol = graph_symbol(p->graph, name);
        TRY(builder_status(p, &at));
        if (!accept_word(p, "in")) {
            return refuse(p, "'in' and a range such as [2,64]");
        }
        TRY(expect(p, '[', "before a range"));
        TRY(expect_integer(p, 0, INT64_MAX, "the smallest size, 0 or more", &low));
        TRY(expect(p, ',', "inside a range"));
        if (p->token.kind == TOKEN_NUMBER && strcmp(p->token.text, "inf") == 0) {
            next(p);
        } else {
            TRY(expect_integer(p, low, INT64_MAX,
                               "the largest size, not below the smallest, or inf", &high));
        }
        TRY(expect(p, ']', "after a range"));
        p->graph->symbols[symbol].low = low;
        p->graph->symbols[symbol].high = high;
    } while (accept(p, ','));
    return ATOLL_OK;
}

static status parse_update(struct parser *p)
{
    struct token at = p->token;
    value leaf, next_value;
    TRY(expect_value(p, &leaf));
    enum op op = graph_node(p->graph, leaf)->op;
    if (op != OP_state && op != OP_param && op != OP_buffer) {
        return refuse_at(p, &at, "a state, param or buffer to update");
    }
    if (p->token.kind != TOKEN_ARROW) {
        return refuse(p, "'<-' and the new value");
    }
    next(p);
    TRY(expect_value(p, &next_value));
    for (uint32_t i = 0; i < p->graph->n_updates; i++) {
        if (p->graph->updates[i].leaf.id == leaf.id) {
            return refuse_at(p, &at, "a leaf not yet updated; hint: one update a leaf");
        }
    }
    graph_update(p->graph, leaf, next_value);
    return builder_status(p, &at);
}

/* loss=%loss, grad:w1=%g, "any text"=%v */
static status parse_outputs(struct parser *p)
{
    if (is_punct(p, '}')) {
        return p->graph->n_updates != 0
                   ? ATOLL_OK
                   : refuse(p, "name=%value; hint: a graph without updates returns something");
    }
    do {
        const char *name, *more;
        value v;
        TRY(expect_name(p, "the name of an output", &name));
        while (accept(p, ':')) {
            TRY(expect_name(p, "the rest of an output's name", &more));
            name = arena_text(&p->scratch, "%s:%s", name, more);
        }
        TRY(expect(p, '=', "after an output's name"));
        TRY(expect_value(p, &v));
        graph_output(p->graph, name, v);
    } while (accept(p, ','));
    return ATOLL_OK;
}

static status parse_head(struct parser *p)
{
    const char *name;
    if (!accept_word(p, "graph")) {
        return refuse(p, "'graph'");
    }
    TRY(expect(p, '@', "before the graph's name"));
    TRY(expect_name(p, "the graph's name", &name));
    p->graph->name = arena_copy_text(&p->graph->arena, name);
    TRY(expect(p, '(', "before the parameters"));
    if (!accept(p, ')')) {
        do {
            TRY(parse_leaf(p));
        } while (accept(p, ','));
        TRY(expect(p, ')', "or ',' after a parameter"));
    }
    if (accept_word(p, "where")) {
        TRY(parse_ranges(p));
    }
    return expect(p, '{', "before the nodes");
}

static status parse_graph(struct parser *p)
{
    p->graph = graph_create("");
    next(p);
    TRY(parse_head(p));
    while (!accept_word(p, "return")) {
        if (accept_word(p, "update")) {
            TRY(parse_update(p));
        } else if (p->token.kind == TOKEN_VALUE) {
            TRY(parse_node(p));
        } else {
            return refuse(p, "%name = operation(...), update or return");
        }
    }
    TRY(parse_outputs(p));
    TRY(expect(p, '}', "after the outputs"));
    if (p->token.kind != TOKEN_END) {
        return refuse(p, "the end of the text");
    }
    p->graph->origin_name = NULL;
    p->graph->origin = (struct location){0};
    p->graph->origin_island = 0;
    return ATOLL_OK;
}

/* Own recovery point: on host out-of-memory the graph is freed here, since no caller has it yet. */
static status parse_guarded(struct parser *p)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(p->error, ATOLL_OUT_OF_MEMORY, "%s: no memory left while reading the graph",
                    p->file);
    }
    status code = parse_graph(p);
    arena_recover_end(&r);
    return code;
}

struct graph *graph_parse(const char *text, size_t size, const char *file, struct error *e)
{
    struct error own = {0};
    struct parser p = {.file = file, .error = &own};
    if (size > MAX_TEXT) {
        fail(e, ATOLL_PARSE, "%s: found %zu bytes, expected at most %d", file, size, MAX_TEXT);
        return NULL;
    }
    p.names.arena = p.lexer.arena = &p.scratch;
    p.lexer.at = p.lexer.line_start = text;
    p.lexer.end = text + size;
    p.lexer.line = 1;
    status code = parse_guarded(&p);
    arena_free(&p.scratch);
    if (code != ATOLL_OK) {
        fail(e, code, "%s", own.text);
        graph_destroy(p.graph);
        return NULL;
    }
    return p.graph;
}
