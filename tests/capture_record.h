/* A graph recorded again through the capture API, call by call: what tests and benches of traces
 * start from. */
#ifndef ATOLL_TESTS_CAPTURE_RECORD_H
#define ATOLL_TESTS_CAPTURE_RECORD_H

#include <string.h>

#include "frontend/capture.h"

static inline atoll_dims record_dims(const struct shape *s)
{
    atoll_dims d = {.n = s->rank};
    for (uint32_t i = 0; i < s->rank; i++) {
        d.at[i] = s->dims[i].factor;
    }
    return d;
}

static inline atoll_value record_leaf(struct atoll_trace *t, const struct node *n, atoll_site site)
{
    atoll_dims d = record_dims(&n->shape);
    atoll_dtype dtype = (atoll_dtype)n->dtype;
    const char *init = n->op != OP_input ? node_text(n, "init") : NULL;
    switch ((int)n->op) {
    case OP_input:
        return atoll_input_at(site, t, n->name, dtype, d);
    case OP_param:
        return atoll_param_at(site, t, n->name, dtype, d, init);
    case OP_buffer:
        return atoll_buffer_at(site, t, n->name, dtype, d, init);
    case OP_state:
        return atoll_state_at(site, t, n->name, dtype, d, init);
    default:
        return tape_add_leaf(t, site, &(struct tape_leaf){n->op, n->name, dtype, &d, init});
    }
}

static inline atoll_value record_op(struct atoll_trace *t, const struct node *n, atoll_site site)
{
    atoll_value operands[VARIADIC];
    atoll_attr attrs[MAX_ATTRS];
    atoll_dims dims[MAX_ATTRS];
    for (uint32_t i = 0; i < n->n_operands; i++) {
        operands[i] = (atoll_value){t->number, n->operands[i].id};
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        const struct attr *a = &n->attrs[i];
        attrs[i] = (atoll_attr){(enum atoll_attr_kind)a->kind, {.i = a->i}};
        dims[i] = record_dims(&a->dims);
        if (a->kind == ATTR_INTS) {
            dims[i].n = a->n_ints;
            memcpy(dims[i].at, a->ints, a->n_ints * sizeof *a->ints);
        }
        if (a->kind == ATTR_INTS || a->kind == ATTR_DIMS) {
            attrs[i].is.dims = &dims[i];
        } else if (a->kind == ATTR_FLOAT) {
            attrs[i].is.f = a->f;
        } else if (a->kind == ATTR_DTYPE) {
            attrs[i].is.i = (int64_t)a->dtype;
        } else if (a->kind == ATTR_TEXT) {
            attrs[i].is.text = a->text;
        }
    }
    atoll_value v = atoll_op(site, t, n->op, operands, n->n_operands, attrs, n->n_attrs);
    return n->name != NULL ? atoll_name_at(site, v, n->name) : v;
}

/* Every node, output and update of a graph whose sizes are numbers; the values keep their ids. */
static inline void record_graph(struct atoll_trace *t, const struct graph *g)
{
    const atoll_site site = {"recorded.c", 1};
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        bool is_leaf = n->op >= OP_input && n->op <= OP_scalar;
        (void)(is_leaf ? record_leaf(t, n, site) : record_op(t, n, site));
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        atoll_output_at(site, t, g->outputs[i].name,
                        (atoll_value){t->number, g->outputs[i].value.id});
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        atoll_update_at(site, (atoll_value){t->number, g->updates[i].leaf.id},
                        (atoll_value){t->number, g->updates[i].next.id});
    }
}

#endif
