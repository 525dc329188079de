/* Holds a graph against ops.def and the rules in verify.def; runs after every pass in tests and
 * debug builds. Structure is checked before anything looks through an operand, so a later check may
 * rely on the earlier ones. The builder's own inference is run again on a copy of each node. */
#include "verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "infer.h"
#include "name_table.h"
#include "scaled.h"

const struct verify_row verify_info[N_VERIFY_CODES] = {
#define X(code, text) {#code, text},
#include "verify.def"
#undef X
};

struct checker {
    const struct graph *g;
    struct error *error;
    struct arena scratch;
    struct attr *schemas[N_OPS]; /* NULL until an op is met */
    uint32_t n_schema[N_OPS];
};

/* "%h = linear at model.c:12" */
static const char *node_label(struct checker *c, uint32_t id)
{
    const struct node *n = &c->g->nodes[id];
    struct text t = {.arena = &c->scratch};
    text_add(&t, "%s", graph_name(c->g, (value){id}, &c->scratch));
    if (n->op > OP_NONE && n->op < N_OPS) {
        text_add(&t, " = %s", op_info[n->op].name);
    }
    if (n->location.file != NULL) {
        text_add(&t, " at %s:%" PRIu32, n->location.file, n->location.line);
    }
    return t.data;
}

/* Node 0 stands for the graph itself. */
static status __attribute__((format(printf, 4, 5)))
broken(struct checker *c, enum verify_code code, uint32_t id, const char *format, ...)
{
    char what[700];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail(c->error, ATOLL_VERIFY, "graph @%.60s: %s (%s): %.200s%s%s", c->g->name,
                verify_info[code].code, verify_info[code].rule, id == 0 ? "" : node_label(c, id),
                id == 0 ? "" : ": ", what);
}

static const char *name_of(struct checker *c, uint32_t id)
{
    return graph_name(c->g, (value){id}, &c->scratch);
}

/* ---- structure ---- */

static bool is_declared(const struct graph *g, const struct shape *s)
{
    if (s->rank > MAX_RANK) {
        return false;
    }
    for (uint32_t i = 0; i < s->rank; i++) {
        for (uint32_t k = 0; k < MAX_DIM_SYMBOLS; k++) {
            if (s->dims[i].symbols[k] >= g->n_symbols) {
                return false;
            }
        }
    }
    return true;
}

static status check_operands(struct checker *c, uint32_t id)
{
    const struct node *n = &c->g->nodes[id];
    if (n->op <= OP_NONE || n->op >= N_OPS) {
        return broken(c, V001, id, "found operation number %d, expected 1 to %d", (int)n->op,
                      N_OPS - 1);
    }
    const struct op_row *row = &op_info[n->op];
    if (n->n_operands < row->min_operands || n->n_operands > row->max_operands) {
        return broken(c, V003, id, "found %" PRIu32 " operands, expected %d to %d", n->n_operands,
                      row->min_operands, row->max_operands);
    }
    for (uint32_t i = 0; i < n->n_operands; i++) {
        uint32_t operand = n->operands[i].id;
        if (operand == 0 || operand >= id) {
            return broken(c, V002, id,
                          "found value number %" PRIu32 " as operand %" PRIu32
                          ", expected 1 to %" PRIu32
                          "; hint: add nodes in the order in which they are needed",
                          operand, i, id - 1);
        }
    }
    return ATOLL_OK;
}

static status check_attrs(struct checker *c, uint32_t id)
{
    const struct node *n = &c->g->nodes[id];
    uint32_t required;
    if (c->schemas[n->op] == NULL) {
        c->schemas[n->op] = ARENA_ARRAY(&c->scratch, struct attr, MAX_ATTRS);
        c->n_schema[n->op] = op_schema(n->op, &c->scratch, c->schemas[n->op], &required);
    }
    const struct attr *schema = c->schemas[n->op];
    bool fits = n->n_attrs == c->n_schema[n->op];
    for (uint32_t i = 0; fits && i < n->n_attrs; i++) {
        fits = n->attrs[i].kind == schema[i].kind && n->attrs[i].name != NULL &&
               strcmp(n->attrs[i].name, schema[i].name) == 0 && n->attrs[i].text != NULL;
    }
    if (!fits) {
        return broken(
            c, V004, id,
            "found %" PRIu32 " attributes, expected: %s; hint: add the node with graph_add",
            n->n_attrs,
            n->op < N_OPS && op_info[n->op].attrs[0] != '\0' ? op_info[n->op].attrs : "none");
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (n->attrs[i].kind == ATTR_DIMS && !is_declared(c->g, &n->attrs[i].dims)) {
            return broken(c, V005, id,
                          "found an undeclared symbol or over 8 dims in attribute %s, expected "
                          "symbols from graph_symbol",
                          n->attrs[i].name);
        }
    }
    return is_declared(c->g, &n->shape)
               ? ATOLL_OK
               : broken(c, V005, id,
                        "found an undeclared symbol or over 8 dims in its shape, expected symbols "
                        "from graph_symbol");
}

static status check_type(struct checker *c, uint32_t id)
{
    struct graph shell = *c->g; /* inference writes its refusal into the graph it is given */
    shell.arena = (struct arena)SCRATCH_ARENA;
    shell.error = (struct error){0};
    struct node n = c->g->nodes[id];
    n.dtype = DTYPE_NONE;
    n.shape = shape_scalar();
    status code = infer_node(&shell, &n);
    arena_free(&shell.arena);
    if (code != ATOLL_OK) {
        return broken(c, V006, id, "%.600s", shell.error.text);
    }
    const struct node *stored = &c->g->nodes[id];
    if (stored->dtype >= N_DTYPES || n.dtype != stored->dtype ||
        !shape_equal(&n.shape, &stored->shape)) {
        return broken(
            c, V007, id, "found %s, expected %s; hint: a pass adds nodes, it does not edit them",
            stored->dtype < N_DTYPES ? graph_type(c->g, (value){id}, &c->scratch) : "no dtype",
            type_text(c->g, &n, &c->scratch));
    }
    return ATOLL_OK;
}

static status check_leaf_names(struct checker *c)
{
    struct name_table names = {.arena = &c->scratch};
    for (uint32_t i = 1; i < c->g->n_nodes; i++) {
        const struct node *n = &c->g->nodes[i];
        if (n->op > OP_scalar) {
            continue;
        }
        if (n->name == NULL || n->name[0] == '\0') {
            return broken(c, V008, i, "found no name, expected one: callers bind leaves by name");
        }
        struct name_entry *entry = name_add(&names, n->name);
        if (entry->number != 0) {
            return broken(c, V008, i, "found a second leaf of this name, expected another name");
        }
        entry->number = i;
    }
    return ATOLL_OK;
}

static status check_symbols(struct checker *c)
{
    for (uint32_t i = 1; i < c->g->n_symbols; i++) {
        const struct symbol *s = &c->g->symbols[i];
        if (s->low < 0 || s->low > s->high) {
            return broken(c, V013, 0,
                          "symbol %s: found [%" PRId64 ",%" PRId64 "], expected 0 <= low <= high",
                          s->name, s->low, s->high);
        }
    }
    return ATOLL_OK;
}

static bool is_value(const struct graph *g, value v)
{
    return v.id != 0 && v.id < g->n_nodes;
}

static status check_outputs(struct checker *c)
{
    struct name_table names = {.arena = &c->scratch};
    for (uint32_t i = 0; i < c->g->n_outputs; i++) {
        const struct output *o = &c->g->outputs[i];
        if (!is_value(c->g, o->value)) {
            return broken(c, V009, 0,
                          "output %s: found value number %" PRIu32 ", expected 1 to %" PRIu32,
                          o->name, o->value.id, c->g->n_nodes - 1);
        }
        struct name_entry *entry = name_add(&names, o->name);
        if (entry->number++ != 0) {
            return broken(c, V009, o->value.id,
                          "found a second output named %s, expected another name", o->name);
        }
    }
    return ATOLL_OK;
}

static status check_updates(struct checker *c)
{
    const struct graph *g = c->g;
    bool *is_updated = ARENA_ARRAY(&c->scratch, bool, g->n_nodes);
    for (uint32_t i = 0; i < g->n_updates; i++) {
        const struct update *u = &g->updates[i];
        if (!is_value(g, u->leaf) || !is_value(g, u->next)) {
            return broken(c, V010, 0,
                          "update %" PRIu32 ": found values number %" PRIu32 " and %" PRIu32
                          ", expected 1 to %" PRIu32,
                          i, u->leaf.id, u->next.id, g->n_nodes - 1);
        }
        const struct node *leaf = graph_node(g, u->leaf), *next = graph_node(g, u->next);
        if (leaf->op != OP_state && leaf->op != OP_param && leaf->op != OP_buffer) {
            return broken(c, V010, u->leaf.id,
                          "found an update of this, expected a state, param or buffer");
        }
        if (is_updated[u->leaf.id]) {
            return broken(c, V011, u->leaf.id, "found a second update, by %s, expected one",
                          name_of(c, u->next.id));
        }
        is_updated[u->leaf.id] = true;
        if (leaf->dtype != next->dtype || !shape_equal(&leaf->shape, &next->shape)) {
            return broken(c, V012, u->leaf.id,
                          "found %s of type %s, expected %s; hint: cast the new value",
                          name_of(c, u->next.id), graph_type(g, u->next, &c->scratch),
                          graph_type(g, u->leaf, &c->scratch));
        }
    }
    return ATOLL_OK;
}

static status check_index_checks(struct checker *c)
{
    const struct graph *g = c->g;
    for (uint32_t i = 0; i < g->n_checks; i++) {
        const struct index_check *k = &g->checks[i];
        struct shape size = {.rank = 1, .dims = {k->size}};
        bool is_good = is_value(g, k->index) && k->user != NULL && is_declared(g, &size);
        if (!is_good || dtype_info[graph_node(g, k->index)->dtype].class != CLASS_I) {
            return broken(c, V015, is_value(g, k->index) ? k->index.id : 0,
                          "index check %" PRIu32 ": found no integers, no size or no user", i);
        }
    }
    return ATOLL_OK;
}

/* ---- precision ---- */

static status check_island(struct checker *c, uint32_t id)
{
    const struct node *n = &c->g->nodes[id];
    bool is_boundary = n->op == OP_cast || n->op == OP_constant; /* or a cast of a number, folded */
    if (n->island == 0 || !dtype_is_low(n->dtype) || is_boundary) {
        return ATOLL_OK;
    }
    return broken(
        c, V014, id,
        "found %s in island %" PRIu32
        ", expected f32 or wider; hint: cast its operands to f32, and cast back behind it",
        graph_type(c->g, (value){id}, &c->scratch), n->island);
}

/* ", scaled by %s in %l = scale_loss at loss.c:3": follows the tag up to the node that began it. */
static const char *scale_origin(struct checker *c, uint32_t id)
{
    const char *by = name_of(c, c->g->nodes[id].scale);
    while (c->g->nodes[id].op != OP_scale_loss) {
        const struct node *n = &c->g->nodes[id];
        uint32_t from = 0;
        for (uint32_t i = 0; i < n->n_operands && from == 0; i++) {
            from = c->g->nodes[n->operands[i].id].scale == n->scale ? n->operands[i].id : 0;
        }
        if (from == 0) {
            return arena_text(&c->scratch, "scaled by %s", by);
        }
        id = from; /* smaller than before, so this ends */
    }
    return arena_text(&c->scratch, "scaled by %s in %.200s", by, node_label(c, id));
}

/* The scale an f8 operand was multiplied by, and the one the product undoes, are one value. */
static status check_scaled_product(struct checker *c, uint32_t id)
{
    const struct graph *g = c->g;
    const struct node *n = &g->nodes[id];
    for (uint32_t i = 0; n->op == OP_scaled_matmul && i < 2; i++) {
        value from = scaled_source(g, n->operands[i]);
        value inverse = scaled_inverse(g, n->operands[2 + i]);
        if (from.id == 0) {
            return broken(c, V016, id,
                          "found operand %s without a quantize behind it, expected one; hint: "
                          "quantize(x, scale)",
                          name_of(c, n->operands[i].id));
        }
        value scale = behind_views(g, graph_node(g, from)->operands[1]);
        const struct node *r = graph_node(g, inverse);
        if (r->op != OP_reciprocal || behind_views(g, r->operands[0]).id != scale.id) {
            return broken(c, V016, id,
                          "found scale %s for operand %s, expected the reciprocal of %s, by which "
                          "it was quantized",
                          name_of(c, n->operands[2 + i].id), name_of(c, n->operands[i].id),
                          name_of(c, scale.id));
        }
    }
    return ATOLL_OK;
}

static bool needs_unscaled(enum op op)
{
    switch ((int)op) {
    case OP_clip_grad_norm:
    case OP_global_norm:
    case OP_adam_exp_avg:
    case OP_adam_exp_avg_sq:
    case OP_adam_update:
    case OP_sgd_momentum:
    case OP_sgd_update:
    case OP_weight_decay:
        return true;
    default:
        return false;
    }
}

static status check_scale(struct checker *c, uint32_t id)
{
    const struct graph *g = c->g;
    const struct node *n = &g->nodes[id];
    uint32_t first = 0;
    for (uint32_t i = 0; i < n->n_operands; i++) {
        uint32_t operand = n->operands[i].id, scale = g->nodes[operand].scale;
        if (scale == 0) {
            continue;
        }
        if (needs_unscaled(n->op)) {
            return broken(c, V023, id,
                          "found operand %s %s, expected an unscaled gradient; hint: unscale the "
                          "gradient first",
                          name_of(c, operand), scale_origin(c, operand));
        }
        if (n->op == OP_scale_loss) {
            return broken(c, V021, id,
                          "found operand %s already %s, expected an unscaled loss; hint: drop one "
                          "scale_loss",
                          name_of(c, operand), scale_origin(c, operand));
        }
        if (first != 0 && g->nodes[first].scale != scale) {
            return broken(c, V022, id,
                          "found operands %s %s and %s %s, expected one scale; hint: unscale both "
                          "first",
                          name_of(c, first), scale_origin(c, first), name_of(c, operand),
                          scale_origin(c, operand));
        }
        first = operand;
    }
    uint32_t expected = node_scale(g, n);
    if (n->scale != expected) {
        return broken(c, V020, id, "found tag %s, expected %s; hint: add the node with graph_add",
                      n->scale == 0           ? "none"
                      : n->scale < g->n_nodes ? name_of(c, n->scale)
                                              : "no value",
                      expected == 0 ? "none" : name_of(c, expected));
    }
    return ATOLL_OK;
}

static status check_scaled_ends(struct checker *c)
{
    const struct graph *g = c->g;
    for (uint32_t i = 0; i < g->n_updates; i++) {
        const struct update *u = &g->updates[i];
        if (graph_node(g, u->leaf)->op == OP_param && graph_node(g, u->next)->scale != 0) {
            return broken(c, V024, u->leaf.id,
                          "found new value %s %s, expected an unscaled one; hint: unscale the "
                          "gradient first",
                          name_of(c, u->next.id), scale_origin(c, u->next.id));
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct output *o = &g->outputs[i];
        if (strncmp(o->name, "grad:", 5) == 0 && graph_node(g, o->value)->scale != 0) {
            return broken(c, V025, o->value.id,
                          "found output %s %s, expected an unscaled gradient; hint: unscale the "
                          "gradient first",
                          o->name, scale_origin(c, o->value.id));
        }
    }
    return ATOLL_OK;
}

static status check_graph(struct checker *c)
{
    TRY(check_symbols(c));
    for (uint32_t i = 1; i < c->g->n_nodes; i++) {
        TRY(check_operands(c, i));
        TRY(check_attrs(c, i));
        TRY(check_type(c, i));
        TRY(check_island(c, i));
        TRY(check_scaled_product(c, i));
        TRY(check_scale(c, i));
    }
    TRY(check_leaf_names(c));
    TRY(check_outputs(c));
    TRY(check_updates(c));
    TRY(check_index_checks(c));
    return check_scaled_ends(c);
}

static status check_guarded(struct checker *c)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(c->error, ATOLL_OUT_OF_MEMORY, "no memory left while verifying a graph");
    }
    status code = check_graph(c);
    arena_recover_end(&r);
    return code;
}

status graph_verify(const struct graph *g, struct error *e)
{
    struct checker c = {.g = g, .error = e};
    status code = check_guarded(&c);
    arena_free(&c.scratch);
    return code;
}
