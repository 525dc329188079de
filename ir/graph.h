/* A graph: nodes in SSA order, owned by an arena. Nodes never change; id 0 is "no value". Operands
 * stand before users, so array order is a schedule and every pass is a loop over
 * nodes 1..n_nodes-1.
 *
 *     struct graph *g = graph_create("name");
 *     value x = graph_leaf(g, OP_input, "x", F32, (int64_t[]){2, 3}, 2);
 *     value y = graph_op1(g, OP_exp, x);
 *     graph_output(g, "y", y);
 *     if (g->error.code) ... g->error.text ...
 *     graph_destroy(g);
 *
 * Builders return a value; a bad call records the error in g->error and gives 0, later calls pass 0
 * on. */
#ifndef ATOLL_IR_GRAPH_H
#define ATOLL_IR_GRAPH_H

#include "op.h"

typedef struct {
    uint32_t id;
} value;

struct location {
    const char *file; /* NULL: unknown */
    uint32_t line;
};

struct node {
    enum op op;
    enum dtype dtype;
    struct shape shape;
    uint32_t n_operands, n_attrs;
    const value *operands;
    const struct attr *attrs; /* all of the schema, in its order, defaults filled in */
    const char *name;         /* for people, unique in the graph among leaves; may be NULL */
    struct location location;
    uint32_t scale;  /* scaled(S): the id of the scale value this node carries; 0: none */
    uint32_t island; /* FP32 island the node is in; 0: none */
};

struct symbol {
    const char *name;
    int64_t low, high; /* guard: low <= value <= high */
};

struct output {
    const char *name;
    value value;
};

/* After the step: state (a state, param or buffer leaf) takes the value of `next`. */
struct update {
    value leaf, next;
};

/* Before a step: every element of the integer value `index` lies in [0, size), or from -size on
 * where it may count from the end, or is `ignored`. */
struct index_check {
    value index;
    struct dim size;
    bool counts_from_end, may_ignore;
    int64_t ignored;
    const char *user; /* who reads it: "embedding %e" */
};

struct graph {
    struct arena arena;
    struct error error; /* first error of the builder */
    const char *name;
    struct node *nodes; /* nodes[0] is unused */
    uint32_t n_nodes, node_capacity;
    struct symbol symbols[MAX_SYMBOLS]; /* symbols[0] unused */
    uint32_t n_symbols;                 /* including the unused one: 1 when there are none */
    struct output *outputs;
    uint32_t n_outputs, output_capacity;
    struct update *updates;
    uint32_t n_updates, update_capacity;
    struct index_check *checks;
    uint32_t n_checks, check_capacity;
    /* what new nodes get: set by a parser, a capture or a pass that rewrites a node */
    const char *origin_name;
    struct location origin;
    uint32_t origin_island;
};

/* Never NULL (leaves by the recovery point when out of memory). The caller destroys it; NULL is
 * accepted there. */
struct graph *graph_create(const char *name);
void graph_destroy(struct graph *g);

static inline const struct node *graph_node(const struct graph *g, value v)
{
    return &g->nodes[v.id];
}
static inline const struct attr *node_attr(const struct node *n, uint32_t i)
{
    return &n->attrs[i];
}
/* By name; NULL when the op has no such attribute. */
const struct attr *node_attr_named(const struct node *n, const char *name);
int64_t node_int(const struct node *n, const char *name);
double node_float(const struct node *n, const char *name);
bool node_bool(const struct node *n, const char *name);
const char *node_text(const struct node *n, const char *name);
enum dtype node_dtype(const struct node *n, const char *name); /* of a dtype attribute */

/* Adds a node. attrs: those given, by name, in any order; the rest take their defaults. Checks
 * arity, attributes, dtypes and shapes; sets dtype, shape and the scaled(S) tag. 0 and g->error on
 * failure. */
value graph_add(struct graph *g, enum op op, const value *operands, uint32_t n_operands,
                const struct attr *attrs, uint32_t n_attrs);
/* A copy of a node of another graph with the same symbols, over new operands: type inferred afresh.
 */
value graph_copy(struct graph *g, const struct node *n, const value *operands);

/* Leaves. dims: static sizes, or graph_symbol dims through graph_leaf_shape. */
value graph_leaf(struct graph *g, enum op op, const char *name, enum dtype t, const int64_t *dims,
                 uint32_t rank);
value graph_leaf_shape(struct graph *g, enum op op, const char *name, enum dtype t,
                       const struct shape *shape);
/* The id of a symbol, declared on first sight with range [0, INT64_MAX]; 0 (and an error) when
 * there are too many. */
uint8_t graph_symbol(struct graph *g, const char *name);

value graph_op1(struct graph *g, enum op op, value a);
value graph_op2(struct graph *g, enum op op, value a, value b);
value graph_op3(struct graph *g, enum op op, value a, value b, value c);
/* A number. graph_number is weak: it takes part at compute precision and does not promote the
 * result. */
value graph_number(struct graph *g, double number);
value graph_constant(struct graph *g, double number, enum dtype t);
value graph_size(struct graph *g, struct dim of, enum dtype t);
value graph_cast(struct graph *g, value v, enum dtype t); /* v itself when it has that dtype */
value graph_reshape(struct graph *g, value v, const struct shape *shape); /* v itself when equal */
value graph_expand(struct graph *g, value v, const struct shape *shape);  /* v itself when equal */
value graph_reduce(struct graph *g, enum op op, value v, const int64_t *axes, uint32_t n_axes,
                   bool keepdims);
value graph_transpose(struct graph *g, value v, const int64_t *perm, uint32_t n);
value graph_matmul(struct graph *g, value a, value b, bool transpose_a, bool transpose_b);

struct attr attr_int(const char *name, int64_t i);
struct attr attr_float(const char *name, double f);
struct attr attr_bool(const char *name, bool b);
struct attr attr_dtype(const char *name, enum dtype t);
struct attr attr_text(const char *name, const char *text);
struct attr attr_ints(const char *name, const int64_t *ints, uint32_t n);
struct attr attr_dims(const char *name, const struct shape *dims);

void graph_output(struct graph *g, const char *name, value v);
void graph_update(struct graph *g, value leaf, value next);
/* A check that is there already is not added again. */
void graph_check(struct graph *g, const struct index_check *c);
/* The leaf of that name; 0 when there is none. */
value graph_find(const struct graph *g, const char *name);
/* Name of a node for a message: its own, or "%12". Allocated in the arena. */
const char *graph_name(const struct graph *g, value v, struct arena *a);
/* "f32[n,64]" for a message. */
const char *graph_type(const struct graph *g, value v, struct arena *a);
/* SHAPE when a symbol's value is outside its range; so is -1, not bound yet. */
status graph_check_symbols(const struct graph *g, const int64_t *symbol_values, struct error *e);
/* Replaces symbol by a number everywhere: a new graph. */
struct graph *graph_bind(const struct graph *g, const int64_t *symbol_values, struct error *e);
/* Starts a pass's output: same name and symbols, no nodes. */
struct graph *graph_like(const struct graph *g);
/* The same for a graph of the present frame only: running out of memory frees it. graph_keep gives
 * it to an owner instead and returns it. */
struct graph *graph_temporary(const struct graph *g);
struct graph *graph_keep(struct graph *g);
/* Copies outputs, updates and checks through map[old id]; an output whose map entry is 0 is an
 * error of the pass, a check of what nobody reads any more goes. */
void graph_finish(struct graph *out, const struct graph *in, const value *map);

/* The scaled(S) tag a node gets from its operands: it flows to every float result; unscale ends it,
 * scale_loss starts it. 0: none. */
uint32_t node_scale(const struct graph *g, const struct node *n);
/* Axes of a reduction, normalised: negative resolved, empty = all; returns a bit mask. */
uint32_t node_axes(const struct node *n, uint32_t operand_rank);

#endif
