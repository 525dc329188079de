/* The search through a trace: leaves first, then nodes in graph order, each element that is not
 * finite traced to the elements it was made of. What is found is described: phase, class, the
 * operands' ranges, the kernel around it. */
#include "nonfinite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const nonfinite_kind_name[] = {"none", "given", "overflow", "invalid",
                                           "division by zero"};
const char *const step_phase_name[] = {"forward", "backward", "update"};

static double load(const struct tensor *t, int64_t i)
{
    return dtype_load(t->dtype,
                      (const unsigned char *)t->data + (size_t)i * dtype_info[t->dtype].bytes);
}

/* The first element from `from` on that is not finite; -1: none. */
static int64_t first_bad(const struct tensor *t, int64_t from)
{
    int64_t n = dtype_is_float(t->dtype) ? tensor_count(t) : 0;
    for (int64_t i = from; i < n; i++) {
        if (!isfinite(load(t, i))) {
            return i;
        }
    }
    return -1;
}

/* ---- which class ---- */

/* A pole: an infinity that is exact. */
static bool is_pole(enum op op, double a, double b)
{
    switch ((int)op) {
    case OP_div:
        return b == 0.0;
    case OP_reciprocal:
    case OP_rsqrt:
    case OP_log:
        return a == 0.0;
    case OP_log1p:
        return a == -1.0;
    case OP_pow:
        return a == 0.0 && b < 0.0;
    default:
        return false;
    }
}

static enum nonfinite_kind kind_of(const struct origin *o, value v, int64_t e)
{
    const struct node *n = graph_node(o->graph, v);
    enum op_kind kind = op_info[n->op].kind;
    double operands[2] = {1.0, 1.0};
    for (uint32_t k = 0; kind == ELEMENTWISE && k < n->n_operands && k < 2; k++) {
        const struct tensor *t = &o->values[n->operands[k].id];
        operands[k] = load(t, origin_element(o, v, k, e));
    }
    if (!isnan(load(&o->values[v.id], e))) {
        return is_pole(n->op, operands[0], operands[1]) ? NONFINITE_DIVISION : NONFINITE_OVERFLOW;
    }
    bool is_cast = n->op == OP_cast; /* f8e4m3 has no infinity */
    bool is_sum = kind == CONTRACTION || (kind == REDUCTION && n->op != OP_prod);
    if (is_cast) {
        return NONFINITE_OVERFLOW;
    }
    for (uint32_t k = 0; is_sum && k < n->n_operands; k++) { /* inf - inf of its own partial sums */
        is_sum = first_bad(&o->values[n->operands[k].id], 0) < 0;
    }
    return is_sum ? NONFINITE_OVERFLOW : NONFINITE_INVALID;
}

/* ---- where in the step ---- */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = name != NULL ? strlen(name) : 0, m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Whether output `loss` (or the first) depends on v. */
static bool feeds_loss(const struct graph *g, value v)
{
    struct arena scratch = SCRATCH_ARENA;
    bool *depends = ARENA_ARRAY(&scratch, bool, g->n_nodes);
    uint32_t loss = g->n_outputs > 0 ? g->outputs[0].value.id : 0;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        loss = strcmp(g->outputs[i].name, "loss") == 0 ? g->outputs[i].value.id : loss;
    }
    depends[v.id] = true;
    for (uint32_t i = v.id + 1; i <= loss; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_operands; k++) {
            depends[i] = depends[i] || depends[g->nodes[i].operands[k].id];
        }
    }
    bool feeds = loss != 0 && depends[loss];
    arena_free(&scratch);
    return feeds;
}

static enum step_phase phase_of(const struct graph *g, value v)
{
    const char *name = graph_node(g, v)->name;
    if (feeds_loss(g, v)) {
        return PHASE_FORWARD;
    }
    if (has_suffix(name, ".grad") || graph_node(g, v)->scale != 0) {
        return PHASE_BACKWARD;
    }
    return name != NULL ? PHASE_FORWARD : PHASE_UPDATE;
}

/* The op that a person wrote under the node's name. */
static const char *model_op(const struct runner *r, const struct node *n)
{
    const struct graph *g = r->compiled.step;
    for (uint32_t i = 1; g != NULL && n->name != NULL && i < g->n_nodes; i++) {
        if (g->nodes[i].name != NULL && strcmp(g->nodes[i].name, n->name) == 0 &&
            g->nodes[i].op != n->op && op_info[g->nodes[i].op].kind == COMPOSITE) {
            return op_info[g->nodes[i].op].name;
        }
    }
    return NULL;
}

/* ---- the description ---- */

static void describe_operand(const struct origin *o, value v, uint32_t k, int64_t e,
                             struct operand_stats *s)
{
    value operand = graph_node(o->graph, v)->operands[k];
    const struct node *n = graph_node(o->graph, operand);
    const struct tensor *t = &o->values[operand.id];
    *s = (struct operand_stats){.dtype = n->dtype,
                                .low = (double)INFINITY,
                                .high = -(double)INFINITY,
                                .count = tensor_count(t),
                                .here = (double)NAN};
    snprintf(s->name, sizeof s->name, "%s%.60s", n->name != NULL ? "%" : "",
             n->name != NULL ? n->name : op_info[n->op].name);
    int64_t at = origin_element(o, v, k, e);
    s->has_here = at >= 0;
    s->here = at >= 0 ? load(t, at) : s->here;
    for (int64_t i = 0; i < s->count; i++) {
        double x = load(t, i);
        s->zeros += x == 0.0;
        s->nonfinite += !isfinite(x);
        s->low = isfinite(x) && x < s->low ? x : s->low;
        s->high = isfinite(x) && x > s->high ? x : s->high;
    }
}

static void describe_kernel(const struct runner *r, struct nonfinite *out)
{
    const struct compiled *c = &r->compiled;
    uint32_t in = c->partition.group_of != NULL ? c->partition.group_of[out->v.id] : 0;
    if (in != 0 && c->symbols != NULL && c->symbols[in - 1] != NULL) {
        out->kernel = c->symbols[in - 1];
        out->n_in_kernel = c->partition.groups[in - 1].n_members;
    }
}

static void describe(const struct origin *o, const struct runner *r, struct nonfinite *out)
{
    const struct node *n = graph_node(o->graph, out->v);
    struct parting place;
    out->phase = phase_of(o->graph, out->v);
    out->node = n->name != NULL ? n->name : "";
    out->op = op_info[n->op].name;
    out->location = n->location;
    out->is_scaled = n->scale != 0;
    out->number = load(&o->values[out->v.id], out->element);
    out->model_op = model_op(r, n);
    bool is_leaf = out->kind == NONFINITE_GIVEN;
    for (uint32_t k = 0; !is_leaf && k < n->n_operands && k < MAX_OPERAND_STATS; k++) {
        describe_operand(o, out->v, k, out->element, &out->operands[out->n_operands++]);
    }
    describe_kernel(r, out);
    parting_describe(&place, o->graph, out->v, &o->values[out->v.id], out->element);
    snprintf(out->text, sizeof out->text, "%s: %s = %s: %s", step_phase_name[out->phase],
             place.text,
             isnan(out->number)  ? "NaN"
             : out->number > 0.0 ? "inf"
                                 : "-inf",
             is_leaf ? "given to the step so" : nonfinite_kind_name[out->kind]);
}

static bool find_leaf(const struct origin *o, struct nonfinite *out)
{
    for (uint32_t i = 1; i < o->graph->n_nodes; i++) {
        int64_t e = node_is_leaf(&o->graph->nodes[i]) ? first_bad(&o->values[i], 0) : -1;
        if (e >= 0) {
            *out = (struct nonfinite){.kind = NONFINITE_GIVEN, .v = {i}, .element = e};
            return true;
        }
    }
    return false;
}

static bool find_node(const struct origin *o, struct nonfinite *out)
{
    for (uint32_t i = 1; i < o->graph->n_nodes; i++) {
        if (node_is_leaf(&o->graph->nodes[i])) {
            continue;
        }
        for (int64_t e = first_bad(&o->values[i], 0); e >= 0; e = first_bad(&o->values[i], e + 1)) {
            if (origin_is_here(o, (value){i}, e)) {
                *out =
                    (struct nonfinite){.kind = kind_of(o, (value){i}, e), .v = {i}, .element = e};
                return true;
            }
        }
    }
    return false;
}

void nonfinite_find(const struct recording *rec, const struct runner *r, struct nonfinite *out)
{
    const struct origin o = {runner_graph(r), rec->values};
    *out = (struct nonfinite){.kind = NONFINITE_NONE};
    if (find_leaf(&o, out) || find_node(&o, out)) {
        describe(&o, r, out);
    }
}
