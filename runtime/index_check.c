/* Index checks at run time. An index that is a leaf, reshaped or not, is scanned where it lies; one
 * that a few integer operations make of leaves (a slice of the tokens, an offset) is computed by
 * the eager executor first. Invariant: eager and fused ask here, before their first node, so they
 * accept the same data, and a refused step has changed nothing. */
#include "index_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/eager.h"

enum { MAX_CLOSURE = 32 };

/* What an index is made of, operands first. */
struct closure {
    const struct graph *g;
    const int64_t *symbols;
    uint32_t ids[MAX_CLOSURE];
    struct tensor tensors[MAX_CLOSURE];
    bool is_owned[MAX_CLOSURE];
    uint32_t n;
    const char *leaf; /* name of the last leaf met */
};

static bool is_lent(const struct node *n)
{
    return n->op >= OP_input && n->op <= OP_scalar;
}

/* NULL: not bound, or not as the graph has it; the executor says so when it comes to that leaf. */
static const struct tensor *lend(const struct graph *g, value v, index_leaf *leaf, void *context)
{
    const struct tensor *t = leaf(context, v);
    bool fits = t != NULL && t->dtype == graph_node(g, v)->dtype &&
                (t->data != NULL || tensor_count(t) == 0);
    return fits ? t : NULL;
}

static uint32_t find(const struct closure *c, uint32_t id)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->ids[i] == id) {
            return i;
        }
    }
    return MAX_CLOSURE;
}

/* false: not made of integer leaves by a few integer operations. */
static bool collect(struct closure *c, value v, uint32_t depth)
{
    const struct node *n = graph_node(c->g, v);
    bool is_number = n->op == OP_constant;
    if (find(c, v.id) < MAX_CLOSURE) {
        return true;
    }
    if (depth > MAX_CLOSURE || (dtype_is_float(n->dtype) && !is_number)) {
        return false;
    }
    for (uint32_t k = 0; k < n->n_operands; k++) {
        if (!collect(c, n->operands[k], depth + 1)) {
            return false;
        }
    }
    if (c->n == MAX_CLOSURE) {
        return false;
    }
    c->leaf = is_lent(n) ? n->name : c->leaf;
    c->ids[c->n++] = v.id;
    return true;
}

static bool lend_all(struct closure *c, index_leaf *leaf, void *context)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (is_lent(&c->g->nodes[c->ids[i]])) {
            const struct tensor *t = lend(c->g, (value){c->ids[i]}, leaf, context);
            if (t == NULL) {
                return false;
            }
            c->tensors[i] = *t;
        }
    }
    return true;
}

static status compute(struct closure *c, uint32_t at, struct error *e)
{
    value v = {c->ids[at]};
    const struct node *n = graph_node(c->g, v);
    struct tensor *t = &c->tensors[at], operands[VARIADIC];
    if (is_lent(n)) {
        return ATOLL_OK;
    }
    *t = (struct tensor){.dtype = n->dtype, .rank = n->shape.rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        t->shape[i] = dim_value(n->shape.dims[i], c->symbols);
    }
    t->data = malloc(tensor_bytes(t) + 64);
    c->is_owned[at] = true;
    if (t->data == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory for an index check");
    }
    for (uint32_t k = 0; k < n->n_operands; k++) {
        operands[k] = c->tensors[find(c, n->operands[k].id)];
    }
    return eager_node(c->g, v, operands, t, c->symbols, NULL, e);
}

/* ---- looking ---- */

static int64_t element(const struct tensor *t, int64_t i)
{
    switch ((int)t->dtype) {
    case I64:
        return ((const int64_t *)t->data)[i];
    case I32:
        return ((const int32_t *)t->data)[i];
    default:
        return ((const unsigned char *)t->data)[i];
    }
}

static void position_text(const struct tensor *t, int64_t i, char *out, size_t size)
{
    int64_t at[MAX_RANK] = {0};
    size_t length = 0;
    for (uint32_t d = t->rank; d-- > 0;) {
        at[d] = i % t->shape[d];
        i /= t->shape[d];
    }
    out[0] = '\0';
    for (uint32_t d = 0; d < t->rank && length < size; d++) {
        length +=
            (size_t)snprintf(out + length, size - length, "%s%" PRId64, d > 0 ? "," : "", at[d]);
    }
}

/* what: "" for a leaf, " (made of %x)" for an index the graph computes. */
static status scan(const struct index_check *k, const struct tensor *t, const char *name,
                   const char *what, const int64_t *symbols, struct error *e)
{
    int64_t size = dim_value(k->size, symbols), low = k->counts_from_end ? -size : 0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        int64_t x = element(t, i);
        if ((x >= low && x < size) || (k->may_ignore && x == k->ignored)) {
            continue;
        }
        char position[200], ignored[64] = "";
        position_text(t, i, position, sizeof position);
        if (k->may_ignore) {
            snprintf(ignored, sizeof ignored, ", or %" PRId64 " to be ignored", k->ignored);
        }
        return fail(e, ATOLL_DATA,
                    "%s: index %" PRId64 " at [%s] of %%%s%s is outside [%" PRId64 ",%" PRId64
                    ")%s; nothing was run",
                    k->user, x, position, name, what, low, size, ignored);
    }
    return ATOLL_OK;
}

static status run_check(const struct graph *g, const struct index_check *k, const int64_t *symbols,
                        index_leaf *leaf, void *context, struct error *e)
{
    value v = k->index;
    while (graph_node(g, v)->op == OP_reshape) {
        v = graph_node(g, v)->operands[0];
    }
    const struct node *n = graph_node(g, v);
    if (is_lent(n)) {
        const struct tensor *t = lend(g, v, leaf, context);
        return t == NULL ? ATOLL_OK : scan(k, t, n->name, "", symbols, e);
    }
    struct closure c = {.g = g, .symbols = symbols};
    if (!collect(&c, v, 0) || !lend_all(&c, leaf, context)) {
        return ATOLL_OK;
    }
    status code = ATOLL_OK;
    for (uint32_t i = 0; i < c.n && code == ATOLL_OK; i++) {
        code = compute(&c, i, e);
    }
    if (code == ATOLL_OK) {
        char name[100], what[140];
        snprintf(name, sizeof name, "%s", n->name != NULL ? n->name : op_info[n->op].name);
        snprintf(what, sizeof what, " (made of %%%s)", c.leaf != NULL ? c.leaf : "constants");
        code = scan(k, &c.tensors[c.n - 1], name, what, symbols, e);
    }
    for (uint32_t i = 0; i < c.n; i++) {
        if (c.is_owned[i]) {
            free(c.tensors[i].data);
        }
    }
    return code;
}

status index_checks_run(const struct graph *g, const int64_t *symbols, index_leaf *leaf,
                        void *context, struct error *e)
{
    for (uint32_t i = 0; i < g->n_checks; i++) {
        TRY(run_check(g, &g->checks[i], symbols, leaf, context, e));
    }
    return ATOLL_OK;
}
