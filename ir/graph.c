/* Nodes and the builder. graph_add is the only way a node comes to be: it fills in attribute
 * defaults, infers the type from the op's row and carries the scaled(S) tag, so that a graph in
 * memory is always well typed. */
#include "graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "infer.h"

/* The graph lies in its own arena, which is scratch until the graph is whole. */
static struct graph *create(const char *name, const struct graph *like)
{
    struct arena arena = SCRATCH_ARENA;
    struct graph *g = ARENA_NEW(&arena, struct graph);
    g->name = arena_copy_text(&arena, name);
    g->n_nodes = 1;
    g->n_symbols = like != NULL ? like->n_symbols : 1;
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        g->symbols[i] = like->symbols[i];
        g->symbols[i].name = arena_copy_text(&arena, like->symbols[i].name);
    }
    g->nodes = arena_grow(&arena, NULL, 0, &g->node_capacity, sizeof *g->nodes);
    arena_keep(&arena);
    g->arena = arena;
    return g;
}

struct graph *graph_create(const char *name)
{
    return create(name, NULL);
}

struct graph *graph_like(const struct graph *g)
{
    return create(g->name, g);
}

struct graph *graph_temporary(const struct graph *g)
{
    struct graph *out = graph_like(g);
    arena_hold(&out->arena);
    return out;
}

struct graph *graph_keep(struct graph *g)
{
    arena_keep(&g->arena);
    return g;
}

void graph_destroy(struct graph *g)
{
    if (g != NULL) {
        arena_free(&g->arena);
    }
}

void graph_finish(struct graph *out, const struct graph *in, const value *map)
{
    for (uint32_t i = 0; i < in->n_outputs; i++) {
        graph_output(out, in->outputs[i].name, map[in->outputs[i].value.id]);
    }
    for (uint32_t i = 0; i < in->n_updates; i++) {
        graph_update(out, map[in->updates[i].leaf.id], map[in->updates[i].next.id]);
    }
    for (uint32_t i = 0; i < in->n_checks; i++) {
        struct index_check c = in->checks[i];
        c.index = map[c.index.id];
        if (c.index.id != 0) {
            graph_check(out, &c);
        }
    }
}

uint8_t graph_symbol(struct graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        if (strcmp(g->symbols[i].name, name) == 0) {
            return (uint8_t)i;
        }
    }
    if (g->n_symbols == MAX_SYMBOLS) {
        fail(&g->error, ATOLL_SHAPE,
             "graph @%s: more than %d symbols at '%s'; hint: bind some to numbers", g->name,
             MAX_SYMBOLS - 1, name);
        return 0;
    }
    g->symbols[g->n_symbols] =
        (struct symbol){.name = arena_copy_text(&g->arena, name), .low = 0, .high = INT64_MAX};
    return (uint8_t)g->n_symbols++;
}

/* ---- attributes ---- */

const struct attr *node_attr_named(const struct node *n, const char *name)
{
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) {
            return &n->attrs[i];
        }
    }
    return NULL;
}

int64_t node_int(const struct node *n, const char *name)
{
    const struct attr *a = node_attr_named(n, name);
    return a != NULL ? a->i : 0;
}

double node_float(const struct node *n, const char *name)
{
    const struct attr *a = node_attr_named(n, name);
    return a != NULL ? a->f : 0.0;
}

bool node_bool(const struct node *n, const char *name)
{
    return node_int(n, name) != 0;
}

const char *node_text(const struct node *n, const char *name)
{
    const struct attr *a = node_attr_named(n, name);
    return a != NULL ? a->text : "";
}

enum dtype node_dtype(const struct node *n, const char *name)
{
    const struct attr *a = node_attr_named(n, name);
    return a != NULL ? a->dtype : DTYPE_NONE;
}

struct attr attr_int(const char *name, int64_t i)
{
    return (struct attr){.name = name, .kind = ATTR_INT, .i = i, .text = ""};
}
struct attr attr_float(const char *name, double f)
{
    return (struct attr){.name = name, .kind = ATTR_FLOAT, .f = f, .text = ""};
}
struct attr attr_bool(const char *name, bool b)
{
    return (struct attr){.name = name, .kind = ATTR_BOOL, .i = b, .text = ""};
}
struct attr attr_dtype(const char *name, enum dtype t)
{
    return (struct attr){.name = name, .kind = ATTR_DTYPE, .dtype = t, .text = ""};
}
struct attr attr_text(const char *name, const char *text)
{
    return (struct attr){.name = name, .kind = ATTR_TEXT, .text = text};
}
struct attr attr_ints(const char *name, const int64_t *ints, uint32_t n)
{
    return (struct attr){.name = name, .kind = ATTR_INTS, .ints = ints, .n_ints = n, .text = ""};
}
struct attr attr_dims(const char *name, const struct shape *dims)
{
    return (struct attr){.name = name, .kind = ATTR_DIMS, .dims = *dims, .text = ""};
}

static status set_attr(struct graph *g, const struct node *n, struct attr *to,
                       const struct attr *from)
{
    bool is_number = to->kind == ATTR_FLOAT && from->kind == ATTR_INT;
    bool is_bool = to->kind == ATTR_BOOL && from->kind == ATTR_INT;
    bool is_empty_ints = to->kind == ATTR_DIMS && from->kind == ATTR_INTS && from->n_ints == 0;
    if (to->kind != from->kind && !is_number && !is_bool && !is_empty_ints) {
        return fail(&g->error, ATOLL_USAGE, "%s: attribute %s is %s, found %s", op_info[n->op].name,
                    to->name, attr_kind_name[to->kind], attr_kind_name[from->kind]);
    }
    const char *name = to->name;
    enum attr_kind kind = to->kind;
    *to = *from;
    to->name = name;
    to->kind = kind;
    if (is_number) {
        to->f = (double)from->i;
    }
    if (kind == ATTR_INTS) {
        to->ints = arena_copy(&g->arena, from->ints, from->n_ints * sizeof *from->ints);
    }
    to->text = from->text == NULL ? "" : arena_copy_text(&g->arena, from->text);
    return ATOLL_OK;
}

static status fill_attrs(struct graph *g, struct node *n, const struct attr *attrs,
                         uint32_t n_attrs)
{
    struct attr all[MAX_ATTRS];
    uint32_t required;
    uint32_t count = op_schema(n->op, &g->arena, all, &required);
    for (uint32_t i = 0; i < n_attrs; i++) {
        uint32_t at = 0;
        while (at < count && strcmp(all[at].name, attrs[i].name) != 0) {
            at++;
        }
        if (at == count) {
            return fail(&g->error, ATOLL_USAGE, "%s: no attribute '%s'; it has: %s",
                        op_info[n->op].name, attrs[i].name,
                        count == 0 ? "none" : op_info[n->op].attrs);
        }
        TRY(set_attr(g, n, &all[at], &attrs[i]));
        required &= ~(1U << at);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (required >> i & 1U) {
            return fail(&g->error, ATOLL_USAGE, "%s: attribute '%s' (%s) is missing",
                        op_info[n->op].name, all[i].name, attr_kind_name[all[i].kind]);
        }
    }
    n->n_attrs = count;
    n->attrs = arena_copy(&g->arena, all, count * sizeof *all);
    return ATOLL_OK;
}

/* ---- adding nodes ---- */

uint32_t node_scale(const struct graph *g, const struct node *n)
{
    if (n->op == OP_unscale || !dtype_is_float(n->dtype)) {
        return 0;
    }
    if (n->op == OP_scale_loss) {
        return n->operands[1].id;
    }
    for (uint32_t i = 0; i < n->n_operands; i++) {
        if (graph_node(g, n->operands[i])->scale != 0) {
            return graph_node(g, n->operands[i])->scale;
        }
    }
    return 0;
}

value graph_add(struct graph *g, enum op op, const value *operands, uint32_t n_operands,
                const struct attr *attrs, uint32_t n_attrs)
{
    const struct op_row *row = &op_info[op];
    if (g->error.code != ATOLL_OK) {
        return (value){0};
    }
    if (n_operands < row->min_operands || n_operands > row->max_operands) {
        fail(&g->error, ATOLL_USAGE, "%s: %" PRIu32 " operands, expected %d to %d", row->name,
             n_operands, row->min_operands, row->max_operands);
        return (value){0};
    }
    for (uint32_t i = 0; i < n_operands; i++) {
        if (operands[i].id == 0 || operands[i].id >= g->n_nodes) {
            fail(&g->error, ATOLL_USAGE, "%s: operand %" PRIu32 " is not a value of graph @%s",
                 row->name, i, g->name);
            return (value){0};
        }
    }
    struct node n = {.op = op,
                     .n_operands = n_operands,
                     .operands = arena_copy(&g->arena, operands, n_operands * sizeof *operands),
                     .name = g->origin_name,
                     .location = g->origin,
                     .island = g->origin_island};
    if (fill_attrs(g, &n, attrs, n_attrs) != ATOLL_OK || infer_node(g, &n) != ATOLL_OK) {
        return (value){0};
    }
    n.scale = node_scale(g, &n);
    g->nodes = arena_grow(&g->arena, g->nodes, g->n_nodes, &g->node_capacity, sizeof *g->nodes);
    g->nodes[g->n_nodes] = n;
    return (value){g->n_nodes++};
}

value graph_copy(struct graph *g, const struct node *n, const value *operands)
{
    const char *name = g->origin_name;
    struct location origin = g->origin;
    uint32_t island = g->origin_island;
    g->origin_name = arena_copy_text(&g->arena, n->name);
    g->origin = n->location;
    g->origin.file = arena_copy_text(&g->arena, n->location.file);
    g->origin_island = n->island;
    value v = graph_add(g, n->op, operands, n->n_operands, n->attrs, n->n_attrs);
    g->origin_name = name;
    g->origin = origin;
    g->origin_island = island;
    return v;
}

value graph_leaf_shape(struct graph *g, enum op op, const char *name, enum dtype t,
                       const struct shape *shape)
{
    if (name != NULL && graph_find(g, name).id != 0) {
        fail(&g->error, ATOLL_USAGE, "graph @%s: a value named %%%s exists already", g->name, name);
        return (value){0};
    }
    const char *outer = g->origin_name;
    g->origin_name = arena_copy_text(&g->arena, name);
    value v = graph_add(g, op, NULL, 0,
                        (struct attr[]){attr_dims("shape", shape), attr_dtype("dtype", t)}, 2);
    g->origin_name = outer;
    return v;
}

value graph_leaf(struct graph *g, enum op op, const char *name, enum dtype t, const int64_t *dims,
                 uint32_t rank)
{
    struct shape shape = {.rank = rank};
    for (uint32_t i = 0; i < rank && i < MAX_RANK; i++) {
        shape.dims[i] = dim_of(dims[i]);
    }
    return graph_leaf_shape(g, op, name, t, &shape);
}

value graph_op1(struct graph *g, enum op op, value a)
{
    return graph_add(g, op, (value[]){a}, 1, NULL, 0);
}
value graph_op2(struct graph *g, enum op op, value a, value b)
{
    return graph_add(g, op, (value[]){a, b}, 2, NULL, 0);
}
value graph_op3(struct graph *g, enum op op, value a, value b, value c)
{
    return graph_add(g, op, (value[]){a, b, c}, 3, NULL, 0);
}

value graph_number(struct graph *g, double number)
{
    return graph_add(g, OP_constant, NULL, 0,
                     (struct attr[]){attr_float("value", number), attr_bool("weak", true)}, 2);
}

value graph_constant(struct graph *g, double number, enum dtype t)
{
    return graph_add(g, OP_constant, NULL, 0,
                     (struct attr[]){attr_float("value", number), attr_dtype("dtype", t)}, 2);
}

value graph_size(struct graph *g, struct dim of, enum dtype t)
{
    struct shape s = {.rank = 1, .dims = {of}};
    return graph_add(g, OP_size, NULL, 0,
                     (struct attr[]){attr_dims("of", &s), attr_dtype("dtype", t)}, 2);
}

value graph_cast(struct graph *g, value v, enum dtype t)
{
    if (v.id != 0 && graph_node(g, v)->dtype == t) {
        return v;
    }
    return graph_add(g, OP_cast, &v, 1, (struct attr[]){attr_dtype("dtype", t)}, 1);
}

value graph_reshape(struct graph *g, value v, const struct shape *shape)
{
    if (v.id != 0 && shape_equal(&graph_node(g, v)->shape, shape)) {
        return v;
    }
    return graph_add(g, OP_reshape, &v, 1, (struct attr[]){attr_dims("shape", shape)}, 1);
}

value graph_expand(struct graph *g, value v, const struct shape *shape)
{
    if (v.id != 0 && shape_equal(&graph_node(g, v)->shape, shape)) {
        return v;
    }
    return graph_add(g, OP_expand, &v, 1, (struct attr[]){attr_dims("shape", shape)}, 1);
}

value graph_reduce(struct graph *g, enum op op, value v, const int64_t *axes, uint32_t n_axes,
                   bool keepdims)
{
    return graph_add(
        g, op, &v, 1,
        (struct attr[]){attr_ints("axes", axes, n_axes), attr_bool("keepdims", keepdims)}, 2);
}

value graph_transpose(struct graph *g, value v, const int64_t *perm, uint32_t n)
{
    return graph_add(g, OP_transpose, &v, 1, (struct attr[]){attr_ints("perm", perm, n)}, 1);
}

value graph_matmul(struct graph *g, value a, value b, bool transpose_a, bool transpose_b)
{
    return graph_add(g, OP_matmul, (value[]){a, b}, 2,
                     (struct attr[]){attr_bool("transpose_a", transpose_a),
                                     attr_bool("transpose_b", transpose_b)},
                     2);
}

void graph_output(struct graph *g, const char *name, value v)
{
    if (v.id == 0) {
        fail(&g->error, ATOLL_USAGE, "graph @%s: output '%s' is no value", g->name, name);
        return;
    }
    g->outputs =
        arena_grow(&g->arena, g->outputs, g->n_outputs, &g->output_capacity, sizeof *g->outputs);
    g->outputs[g->n_outputs++] =
        (struct output){.name = arena_copy_text(&g->arena, name), .value = v};
}

void graph_update(struct graph *g, value leaf, value next)
{
    if (leaf.id == 0 || next.id == 0) {
        fail(&g->error, ATOLL_USAGE, "graph @%s: an update lacks its state or its value", g->name);
        return;
    }
    const struct node *l = graph_node(g, leaf), *n = graph_node(g, next);
    if (l->dtype != n->dtype || !shape_equal(&l->shape, &n->shape)) {
        struct arena scratch = SCRATCH_ARENA;
        fail(&g->error, ATOLL_SHAPE, "update of %s: it is %s, the new value is %s",
             graph_name(g, leaf, &scratch), graph_type(g, leaf, &scratch),
             graph_type(g, next, &scratch));
        arena_free(&scratch);
        return;
    }
    g->updates =
        arena_grow(&g->arena, g->updates, g->n_updates, &g->update_capacity, sizeof *g->updates);
    g->updates[g->n_updates++] = (struct update){leaf, next};
}

value graph_find(const struct graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (op_info[n->op].kind == LEAF && n->name != NULL && strcmp(n->name, name) == 0 &&
            n->op <= OP_scalar) {
            return (value){i};
        }
    }
    return (value){0};
}

const char *graph_name(const struct graph *g, value v, struct arena *a)
{
    const char *name = graph_node(g, v)->name;
    return name != NULL ? arena_text(a, "%%%s", name) : arena_text(a, "%%%" PRIu32, v.id);
}

const char *graph_type(const struct graph *g, value v, struct arena *a)
{
    const struct node *n = graph_node(g, v);
    return type_text(g, n, a);
}

struct graph *graph_bind(const struct graph *g, const int64_t *symbol_values, struct error *e)
{
    struct graph *out = graph_temporary(g);
    value *map = ARENA_ARRAY(&out->arena, value, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct node n = g->nodes[i];
        value operands[VARIADIC];
        for (uint32_t k = 0; k < n.n_operands; k++) {
            operands[k] = map[n.operands[k].id];
        }
        struct attr attrs[MAX_ATTRS];
        for (uint32_t k = 0; k < n.n_attrs; k++) {
            attrs[k] = n.attrs[k];
            for (uint32_t d = 0; attrs[k].kind == ATTR_DIMS && d < attrs[k].dims.rank; d++) {
                int64_t bound = dim_value(attrs[k].dims.dims[d], symbol_values);
                if (bound >= 0) {
                    attrs[k].dims.dims[d] = dim_of(bound);
                }
            }
        }
        n.attrs = attrs;
        map[i] = graph_copy(out, &n, operands);
    }
    graph_finish(out, g, map);
    for (uint32_t i = 0; i < out->n_checks; i++) {
        int64_t bound = dim_value(out->checks[i].size, symbol_values);
        out->checks[i].size = bound >= 0 ? dim_of(bound) : out->checks[i].size;
    }
    if (out->error.code != ATOLL_OK) {
        fail(e, out->error.code, "%s", out->error.text);
        graph_destroy(out);
        return NULL;
    }
    return graph_keep(out);
}

uint32_t node_axes(const struct node *n, uint32_t operand_rank)
{
    const struct attr *axes = node_attr_named(n, "axes");
    if (axes == NULL || axes->kind != ATTR_INTS) {
        int64_t axis = node_int(n, "axis");
        return operand_rank == 0 ? 0 : 1U << (axis < 0 ? axis + operand_rank : axis);
    }
    if (axes->n_ints == 0) {
        return (1U << operand_rank) - 1U;
    }
    uint32_t mask = 0;
    for (uint32_t i = 0; i < axes->n_ints; i++) {
        int64_t axis = axes->ints[i];
        mask |= 1U << (axis < 0 ? axis + operand_rank : axis);
    }
    return mask;
}
