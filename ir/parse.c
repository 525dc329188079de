/* Recursive descent without recursion: graph @name(leaves) where ranges { nodes checks updates
 * return }. Nodes go through graph_add, so a parsed graph is as well typed as one built by calls.
 * The first problem ends the parse; its message carries file, line and column. */
#include "parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "infer.h"

enum { MAX_TEXT = 1 << 30 };

/* What may stand behind a node. */
struct marks {
    bool has_type, has_scale;
    enum dtype dtype;
    struct shape shape;
    uint32_t scale, island;
    struct location location;
    struct token type_token, scale_token;
};

/* ---- nodes ---- */

static status parse_type(struct parser *p, struct marks *m)
{
    m->has_type = true;
    m->type_token = p->token;
    TRY(parse_dtype(p, &m->dtype));
    return parse_shape(p, false, &m->shape);
}

static status parse_location(struct parser *p, struct location *out)
{
    int64_t line;
    if (p->token.kind != TOKEN_STRING) {
        return refuse(p, "a file name in quotes");
    }
    out->file = arena_copy_text(&p->graph->arena, p->token.text);
    advance(p);
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
    if (p->own_file != NULL && m->location.file == NULL) {
        g->origin = (struct location){p->own_file, at->line};
    }
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
    advance(p);
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
        if (p->token.kind != TOKEN_NUMBER && p->token.kind != TOKEN_VALUE) {
            return refuse(p, "a value (%name) or a number");
        }
        TRY(p->token.kind == TOKEN_NUMBER ? add_literal(p, to) : expect_value(p, to));
        ++*n;
    } while (accept(p, ','));
    return expect(p, ')', "or ',' after an operand");
}

/* Edits (insert, delete, replace a letter) that turn a into b, both shorter than 24 letters. */
static uint32_t edits(const char *a, const char *b)
{
    uint32_t row[24];
    uint32_t n = (uint32_t)strlen(b);
    for (uint32_t k = 0; k <= n; k++) {
        row[k] = k;
    }
    for (uint32_t i = 0; a[i] != '\0'; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t replace = diagonal + (a[i] != b[k]);
            uint32_t shift = (row[k] < row[k + 1] ? row[k] : row[k + 1]) + 1;
            diagonal = row[k + 1];
            row[k + 1] = replace < shift ? replace : shift;
        }
    }
    return row[n];
}

/* Names the operation that was probably meant: at most two letters away. */
static status refuse_operation(struct parser *p)
{
    const char *closest = NULL;
    uint32_t least = 3;
    for (int op = OP_scalar + 1; p->token.kind == TOKEN_WORD && op < N_OPS; op++) {
        const char *name = op_info[op].name;
        if (p->token.length < 24 && strlen(name) < 24 && edits(p->token.text, name) < least) {
            least = edits(p->token.text, name);
            closest = name;
        }
    }
    char what[80];
    if (closest == NULL) {
        return refuse(p, "the name of an operation");
    }
    snprintf(what, sizeof what, "the name of an operation; hint: did you mean %s?", closest);
    return refuse(p, what);
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
        return refuse_operation(p);
    }
    if (op <= OP_scalar) {
        return refuse(p, "an operation; hint: leaves are parameters of the graph");
    }
    advance(p);
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
    advance(p);
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
            advance(p);
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
    advance(p);
    TRY(expect_value(p, &next_value));
    for (uint32_t i = 0; i < p->graph->n_updates; i++) {
        if (p->graph->updates[i].leaf.id == leaf.id) {
            return refuse_at(p, &at, "a leaf not yet updated; hint: one update a leaf");
        }
    }
    graph_update(p->graph, leaf, next_value);
    return builder_status(p, &at);
}

/* check %i in [n] from_end or -100 for "embedding %e" */
static status parse_check(struct parser *p)
{
    struct token at = p->token;
    struct index_check c = {0};
    struct shape size;
    TRY(expect_value(p, &c.index));
    if (!accept_word(p, "in")) {
        return refuse(p, "'in' and the size of the axis, such as [10]");
    }
    struct token size_at = p->token;
    TRY(parse_shape(p, false, &size));
    if (size.rank != 1) {
        return refuse_at(p, &size_at, "one size, such as [10]");
    }
    c.size = size.dims[0];
    c.counts_from_end = accept_word(p, "from_end");
    c.may_ignore = accept_word(p, "or");
    if (c.may_ignore) {
        TRY(expect_integer(p, INT64_MIN, INT64_MAX, "the index that is ignored", &c.ignored));
    }
    if (!accept_word(p, "for")) {
        return refuse(p, "'for' and who reads the index, in quotes");
    }
    TRY(expect_name(p, "who reads the index, in quotes", &c.user));
    graph_check(p->graph, &c);
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
    p->own_file = p->keeps_lines ? arena_copy_text(&p->graph->arena, p->file) : NULL;
    advance(p);
    TRY(parse_head(p));
    while (!accept_word(p, "return")) {
        if (accept_word(p, "update")) {
            TRY(parse_update(p));
        } else if (accept_word(p, "check")) {
            TRY(parse_check(p));
        } else if (p->token.kind == TOKEN_VALUE) {
            TRY(parse_node(p));
        } else {
            return refuse(p, "%name = operation(...), check, update or return");
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

static struct graph *parse(const char *text, size_t size, const char *file, bool keeps_lines,
                           struct error *e)
{
    struct error own = {0};
    struct parser p = {
        .file = file != NULL ? file : "graph", .keeps_lines = keeps_lines, .error = &own};
    if (size > MAX_TEXT) {
        fail(e, ATOLL_PARSE, "%s: found %zu bytes, expected at most %d", p.file, size, MAX_TEXT);
        return NULL;
    }
    p.names.arena = p.lexer.arena = &p.scratch;
    p.lexer.at = p.lexer.line_start = size != 0 ? text : "";
    p.lexer.end = p.lexer.at + size;
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

struct graph *graph_parse(const char *text, size_t size, const char *file, struct error *e)
{
    return parse(text, size, file, false, e);
}

struct graph *graph_parse_lines(const char *text, size_t size, const char *file, struct error *e)
{
    return parse(text, size, file, true, e);
}
