/* Graph to text. The printed form depends only on what the parser restores: leaves come first, dims
 * spell their symbols by name, defaults are left out, names are made unique. That is why printing a
 * parsed text gives the text again. */
#include "print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lex.h"
#include "name_table.h"

enum { COLUMNS = 100 };

struct printer {
    const struct graph *g;
    struct text *t;
    bool locations;
    const char **names;
    bool *is_literal; /* weak numbers that stand where they are used, not on a line of their own */
    struct attr *schemas[N_OPS]; /* NULL until an op is met */
    uint32_t required[N_OPS];
};

static bool is_leaf(const struct node *n)
{
    return n->op >= OP_input && n->op <= OP_scalar;
}

/* ---- scalars, strings, names ---- */

void double_print(struct text *t, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (number != number) {
        bool is_plain = bits == UINT64_C(0x7ff8) << 48;
        if (is_plain) {
            text_add(t, "nan");
        } else {
            text_add(t, "nan(0x%" PRIx64 ")", bits);
        }
        return;
    }
    char out[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, sizeof out, "%.*g", digits, number);
        double back = strtod(out, NULL);
        if (memcmp(&back, &number, sizeof number) == 0) {
            break;
        }
    }
    text_add(t, "%s", out);
}

void string_print(struct text *t, const char *text)
{
    text_append(t, "\"", 1);
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            text_add(t, "\\%c", c);
        } else if (c == '\n' || c == '\t') {
            text_add(t, c == '\n' ? "\\n" : "\\t");
        } else if (c < 32 || c == 127) {
            text_add(t, "\\x%02x", c);
        } else {
            text_append(t, p, 1);
        }
    }
    text_append(t, "\"", 1);
}

static void print_word(struct text *t, const char *word)
{
    if (is_word(word)) {
        text_add(t, "%s", word);
    } else {
        string_print(t, word);
    }
}

static void print_value_name(struct text *t, const char *name)
{
    text_append(t, "%", 1);
    if (is_value_name(name)) {
        text_add(t, "%s", name);
    } else {
        string_print(t, name);
    }
}

/* Words joined by colons, as in grad:w1, need no quotes. */
static void print_output_name(struct text *t, const char *name)
{
    const char *part = name;
    bool is_plain = true;
    for (const char *colon; is_plain && (colon = strchr(part, ':')) != NULL; part = colon + 1) {
        is_plain = is_word(arena_text(t->arena, "%.*s", (int)(colon - part), part));
    }
    if (is_plain && is_word(part)) {
        text_add(t, "%s", name);
    } else {
        string_print(t, name);
    }
}

static const char *unique_name(struct name_table *taken, const struct node *n, uint32_t id)
{
    struct arena *a = taken->arena;
    const char *base =
        n->name != NULL && n->name[0] != '\0' ? n->name : arena_text(a, "v%" PRIu32, id);
    const char *name = base;
    while (name_find(taken, name) != NULL) { /* the entry counts the suffixes given out so far */
        name = arena_text(a, "%s.%" PRIu32, base, ++name_find(taken, base)->number);
    }
    name_add(taken, name);
    return name;
}

/* A weak number is written where it is used, unless something other than an operand names it. */
static bool *find_literals(const struct graph *g, struct arena *a)
{
    bool *is_literal = ARENA_ARRAY(a, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        is_literal[i] = n->op == OP_constant && n->dtype == F32 && node_bool(n, "weak");
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        is_literal[g->nodes[i].scale] = false;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        is_literal[g->outputs[i].value.id] = false;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        is_literal[g->updates[i].next.id] = false;
    }
    return is_literal;
}

/* Leaves keep their names, since callers find them by it. Numbers that no line defines come last:
 * reading the text back makes them anew under other ids, which must not push anyone aside. */
const char **graph_unique_names(const struct graph *g, struct arena *a)
{
    struct name_table taken = {.arena = a};
    const char **names = ARENA_ARRAY(a, const char *, g->n_nodes);
    const bool *is_literal = find_literals(g, a);
    for (int turn = 0; turn < 3; turn++) {
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            if ((is_leaf(&g->nodes[i]) ? 0 : is_literal[i] ? 2 : 1) == turn) {
                names[i] = unique_name(&taken, &g->nodes[i], i);
            }
        }
    }
    return names;
}

/* ---- types and attributes ---- */

static void print_dim(struct printer *p, struct dim d)
{
    const char *names[MAX_DIM_SYMBOLS];
    uint32_t n = 0;
    for (; n < MAX_DIM_SYMBOLS && d.symbols[n] != 0; n++) {
        const char *name = p->g->symbols[d.symbols[n]].name;
        uint32_t at = n;
        for (; at > 0 && strcmp(names[at - 1], name) > 0; at--) {
            names[at] = names[at - 1];
        }
        names[at] = name;
    }
    if (n == 0 || d.factor != 1) {
        text_add(p->t, "%" PRId64, d.factor);
    }
    for (uint32_t i = 0; i < n; i++) {
        text_add(p->t, i > 0 || d.factor != 1 ? "*" : "");
        print_word(p->t, names[i]);
    }
}

static void print_shape(struct printer *p, const struct shape *s)
{
    text_add(p->t, "[");
    for (uint32_t i = 0; i < s->rank; i++) {
        text_add(p->t, i > 0 ? "," : "");
        print_dim(p, s->dims[i]);
    }
    text_add(p->t, "]");
}

static void print_type(struct printer *p, const struct node *n)
{
    text_add(p->t, ": %s", dtype_info[n->dtype].name);
    print_shape(p, &n->shape);
}

static void print_attr(struct printer *p, const struct attr *a)
{
    text_add(p->t, "%s=", a->name);
    switch (a->kind) {
    case ATTR_INT:
        text_add(p->t, "%" PRId64, a->i);
        break;
    case ATTR_BOOL:
        text_add(p->t, a->i != 0 ? "true" : "false");
        break;
    case ATTR_FLOAT:
        double_print(p->t, a->f);
        break;
    case ATTR_INTS:
        text_add(p->t, "[");
        for (uint32_t i = 0; i < a->n_ints; i++) {
            text_add(p->t, "%s%" PRId64, i > 0 ? "," : "", a->ints[i]);
        }
        text_add(p->t, "]");
        break;
    case ATTR_DIMS:
        print_shape(p, &a->dims);
        break;
    case ATTR_DTYPE:
        text_add(p->t, "%s", dtype_info[a->dtype].name);
        break;
    case ATTR_TEXT:
        string_print(p->t, a->text);
        break;
    }
}

/* Those that differ from the schema's defaults; a leaf's shape and dtype are its type already. */
static void print_attrs(struct printer *p, const struct node *n)
{
    if (p->schemas[n->op] == NULL) {
        p->schemas[n->op] = ARENA_ARRAY(p->t->arena, struct attr, MAX_ATTRS);
        op_schema(n->op, p->t->arena, p->schemas[n->op], &p->required[n->op]);
    }
    uint32_t printed = 0;
    for (uint32_t i = is_leaf(n) ? 2 : 0; i < n->n_attrs; i++) {
        const struct attr *standard = &p->schemas[n->op][i];
        bool is_required = (p->required[n->op] >> i & 1U) != 0;
        if (is_required || !attr_equal(standard, &n->attrs[i])) {
            text_add(p->t, printed++ == 0 ? " {" : ", ");
            print_attr(p, &n->attrs[i]);
        }
    }
    text_add(p->t, printed == 0 ? "" : "}");
}

/* ---- lines ---- */

static void print_marks(struct printer *p, uint32_t id)
{
    const struct node *n = &p->g->nodes[id];
    if (n->scale != 0) {
        text_add(p->t, " scaled(");
        print_value_name(p->t, p->names[n->scale]);
        text_add(p->t, ")");
    }
    if (n->island != 0) {
        text_add(p->t, " island %" PRIu32, n->island);
    }
    if (p->locations && n->location.file != NULL) {
        text_add(p->t, " @ ");
        string_print(p->t, n->location.file);
        text_add(p->t, ":%" PRIu32, n->location.line);
    }
}

static void print_leaf(struct printer *p, uint32_t id)
{
    const struct node *n = &p->g->nodes[id];
    print_value_name(p->t, p->names[id]);
    print_type(p, n);
    text_add(p->t, " %s", op_info[n->op].name);
    print_attrs(p, n);
    print_marks(p, id);
}

/* graph @name(%x: f32[n,64] input, ...) where n in [2,64] { , broken between parameters. */
static void print_head(struct printer *p)
{
    struct text *t = p->t, leaf = {.arena = t->arena};
    size_t line = t->length;
    uint32_t n_leaves = 0;
    text_add(t, "graph @");
    print_word(t, p->g->name);
    text_add(t, "(");
    for (uint32_t i = 1; i < p->g->n_nodes; i++) {
        if (!is_leaf(&p->g->nodes[i])) {
            continue;
        }
        leaf.length = 0;
        p->t = &leaf;
        print_leaf(p, i);
        p->t = t;
        text_add(t, n_leaves == 0 ? "" : ",");
        if (n_leaves > 0 && t->length - line + 1 + leaf.length > COLUMNS) {
            text_add(t, "\n");
            line = t->length;
            text_add(t, "     ");
        }
        text_add(t, "%s%s", n_leaves++ == 0 ? "" : " ", leaf.data);
    }
    text_add(t, ")");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct symbol *const *)a)->name,
                  (*(const struct symbol *const *)b)->name);
}

static void print_symbols(struct printer *p)
{
    const struct symbol *sorted[MAX_SYMBOLS];
    uint32_t n = 0;
    for (uint32_t i = 1; i < p->g->n_symbols; i++) {
        const struct symbol *s = &p->g->symbols[i];
        if (s->low != 0 || s->high != INT64_MAX) {
            sorted[n++] = s;
        }
    }
    qsort(sorted, n, sizeof *sorted, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        text_add(p->t, i == 0 ? " where " : ", ");
        print_word(p->t, sorted[i]->name);
        text_add(p->t, " in [%" PRId64 ",", sorted[i]->low);
        if (sorted[i]->high == INT64_MAX) {
            text_add(p->t, "inf]");
        } else {
            text_add(p->t, "%" PRId64 "]", sorted[i]->high);
        }
    }
}

static void print_node(struct printer *p, uint32_t id)
{
    const struct node *n = &p->g->nodes[id];
    text_add(p->t, "  ");
    print_value_name(p->t, p->names[id]);
    text_add(p->t, " = %s(", op_info[n->op].name);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        uint32_t operand = n->operands[i].id;
        text_add(p->t, i > 0 ? ", " : "");
        if (p->is_literal[operand]) {
            double_print(p->t, node_float(&p->g->nodes[operand], "value"));
        } else {
            print_value_name(p->t, p->names[operand]);
        }
    }
    text_add(p->t, ")");
    print_attrs(p, n);
    text_add(p->t, " ");
    print_type(p, n);
    print_marks(p, id);
    text_add(p->t, "\n");
}

/* check %i in [n] from_end or -100 for "embedding %e" */
static void print_check(struct printer *p, const struct index_check *c)
{
    struct shape size = {.rank = 1, .dims = {c->size}};
    text_add(p->t, "  check ");
    print_value_name(p->t, p->names[c->index.id]);
    text_add(p->t, " in ");
    print_shape(p, &size);
    text_add(p->t, c->counts_from_end ? " from_end" : "");
    if (c->may_ignore) {
        text_add(p->t, " or %" PRId64, c->ignored);
    }
    text_add(p->t, " for ");
    string_print(p->t, c->user);
    text_add(p->t, "\n");
}

static void print_end(struct printer *p)
{
    const struct graph *g = p->g;
    for (uint32_t i = 0; i < g->n_checks; i++) {
        print_check(p, &g->checks[i]);
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        text_add(p->t, "  update ");
        print_value_name(p->t, p->names[g->updates[i].leaf.id]);
        text_add(p->t, " <- ");
        print_value_name(p->t, p->names[g->updates[i].next.id]);
        text_add(p->t, "\n");
    }
    text_add(p->t, "  return");
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        text_add(p->t, i == 0 ? " " : ", ");
        print_output_name(p->t, g->outputs[i].name);
        text_add(p->t, "=");
        print_value_name(p->t, p->names[g->outputs[i].value.id]);
    }
    text_add(p->t, "\n}\n");
}

void graph_print(const struct graph *g, struct text *t, const struct print_options *o)
{
    struct printer p = {.g = g,
                        .t = t,
                        .locations = o != NULL && o->locations,
                        .names = graph_unique_names(g, t->arena),
                        .is_literal = find_literals(g, t->arena)};
    print_head(&p);
    print_symbols(&p);
    text_add(t, " {\n");
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!is_leaf(&g->nodes[i]) && !p.is_literal[i]) {
            print_node(&p, i);
        }
    }
    print_end(&p);
}
