/* Who made an element that is not finite. For each kind of op, the operand elements that it was
 * made of: the one it is broadcast from, a reduced row, a row and a column of a product. An
 * infinity is made from finite elements only; a NaN from any but NaN. */
#include "nonfinite.h"

#include <math.h>

static double load(const struct tensor *t, int64_t i)
{
    return dtype_load(t->dtype,
                      (const unsigned char *)t->data + (size_t)i * dtype_info[t->dtype].bytes);
}

/* What the operands hold, as far as it says where a result comes from. */
struct seen {
    bool nan, infinite;
};

static void look(struct seen *s, const struct tensor *t, int64_t i)
{
    double x = dtype_is_float(t->dtype) ? load(t, i) : 0.0;
    s->nan = s->nan || isnan(x);
    s->infinite = s->infinite || isinf(x);
}

static void look_all(struct seen *s, const struct tensor *t)
{
    for (int64_t i = 0; i < tensor_count(t); i++) {
        look(s, t, i);
    }
}

static void indices(const struct tensor *t, int64_t e, int64_t out[MAX_RANK])
{
    for (uint32_t i = t->rank; i-- > 0;) {
        out[i] = t->shape[i] > 0 ? e % t->shape[i] : 0;
        e /= t->shape[i] > 0 ? t->shape[i] : 1;
    }
}

/* The element of t at index[0..rank), aligned from the last axis, axes of size 1 broadcast. */
static int64_t broadcast(const struct tensor *t, const int64_t *index, uint32_t rank)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        at = at * t->shape[i] + (t->shape[i] == 1 ? 0 : index[rank - t->rank + i]);
    }
    return at;
}

int64_t origin_element(const struct origin *o, value v, uint32_t k, int64_t e)
{
    const struct node *n = graph_node(o->graph, v);
    int64_t index[MAX_RANK];
    if (op_info[n->op].kind != ELEMENTWISE) {
        return -1;
    }
    indices(&o->values[v.id], e, index);
    return broadcast(&o->values[n->operands[k].id], index, o->values[v.id].rank);
}

/* The elements that a reduction folds into e. */
static void look_row(const struct origin *o, value v, int64_t e, struct seen *s)
{
    const struct node *n = graph_node(o->graph, v);
    const struct tensor *a = &o->values[n->operands[0].id];
    uint32_t mask = node_axes(n, a->rank), kept = 0;
    int64_t index[MAX_RANK] = {0}, at[MAX_RANK] = {0}, folded = 1;
    indices(&o->values[v.id], e, index);
    bool keeps = o->values[v.id].rank == a->rank;
    for (uint32_t i = 0; i < a->rank; i++) {
        bool is_folded = (mask >> i & 1U) != 0;
        folded *= is_folded ? a->shape[i] : 1;
        at[i] = is_folded ? 0 : index[keeps ? i : kept++];
    }
    for (int64_t f = 0; f < folded; f++) {
        int64_t rest = f;
        for (uint32_t i = a->rank; i-- > 0;) {
            if ((mask >> i & 1U) != 0) {
                at[i] = rest % a->shape[i];
                rest /= a->shape[i];
            }
        }
        look(s, a, broadcast(a, at, a->rank));
    }
}

/* Row i of a matrix (or column, when turned) in the batch that index says. */
static void look_line(struct seen *s, const struct tensor *t, const int64_t *index, uint32_t rank,
                      int64_t line, bool is_row)
{
    int64_t rows = t->shape[t->rank - 2], columns = t->shape[t->rank - 1], base = 0;
    for (uint32_t i = 0; i + 2 < t->rank; i++) { /* batch axes, aligned from the last one */
        base = base * t->shape[i] + (t->shape[i] == 1 ? 0 : index[rank - t->rank + i]);
    }
    base *= rows * columns;
    for (int64_t k = 0; k < (is_row ? columns : rows); k++) {
        look(s, t, base + (is_row ? line * columns + k : k * columns + line));
    }
}

static void look_product(const struct origin *o, value v, int64_t e, struct seen *s)
{
    const struct node *n = graph_node(o->graph, v);
    const struct tensor *a = &o->values[n->operands[0].id], *b = &o->values[n->operands[1].id];
    const struct tensor *y = &o->values[v.id];
    int64_t index[MAX_RANK];
    indices(y, e, index);
    int64_t column = y->rank > 0 ? index[y->rank - 1] : 0;
    if (n->op == OP_matmul) {
        look_line(s, a, index, y->rank, index[y->rank - 2], !node_bool(n, "transpose_a"));
        look_line(s, b, index, y->rank, column, node_bool(n, "transpose_b"));
        return;
    }
    int64_t inner = b->shape[1], row = y->shape[y->rank - 1] > 0 ? e / y->shape[y->rank - 1] : 0;
    for (int64_t k = 0; k < inner; k++) {
        look(s, a, row * inner + k);
        look(s, b, column * inner + k);
    }
    for (uint32_t k = 2; k < n->n_operands; k++) { /* a bias; or scales, of which any may count */
        if (n->op == OP_linear) {
            look(s, &o->values[n->operands[k].id], column);
        } else {
            look_all(s, &o->values[n->operands[k].id]);
        }
    }
}

static void look_operands(const struct origin *o, value v, int64_t e, struct seen *s)
{
    const struct node *n = graph_node(o->graph, v);
    switch (op_info[n->op].kind) {
    case ELEMENTWISE:
        for (uint32_t k = 0; k < n->n_operands; k++) {
            look(s, &o->values[n->operands[k].id], origin_element(o, v, k, e));
        }
        break;
    case REDUCTION:
        look_row(o, v, e, s);
        break;
    case CONTRACTION:
        look_product(o, v, e, s);
        break;
    default:
        for (uint32_t k = 0; k < n->n_operands; k++) {
            look_all(s, &o->values[n->operands[k].id]);
        }
        break;
    }
}

bool origin_is_here(const struct origin *o, value v, int64_t e)
{
    const struct node *n = graph_node(o->graph, v);
    struct seen s = {false, false};
    double made = load(&o->values[v.id], e);
    bool moves =
        op_info[n->op].kind == VIEW || n->op == OP_concat || n->op == OP_pad || n->op == OP_where;
    if (op_info[n->op].kind == LEAF || moves) {
        return false; /* a number of the model, or an element that lay elsewhere */
    }
    look_operands(o, v, e, &s);
    return isnan(made) ? !s.nan : !s.nan && !s.infinite;
}
