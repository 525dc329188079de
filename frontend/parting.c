/* Two runs of one step side by side. Eager computes every value and is recorded through its probe;
 * fused is watched launch by launch, because its arena reuses memory. Up to the first difference
 * both worked on the same bits, so the launch that shows it made it. */
#include "parting.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/compare.h"

/* ---- recording an eager step ---- */

static void record(void *context, value v, const struct tensor *t)
{
    struct recording *rec = context;
    struct tensor *to = &rec->values[v.id];
    free(to->data);
    *to = *t;
    to->data = malloc(tensor_bytes(t) + 1);
    rec->is_short = rec->is_short || to->data == NULL;
    if (to->data != NULL) {
        memcpy(to->data, t->data, tensor_bytes(t));
    }
}

/* On a device eager is a session of one op a launch. */
static void record_launch(void *context, uint32_t launch, value v, const struct tensor *t)
{
    (void)launch;
    record(context, v, t);
}

status recording_step(struct recording *rec, struct runner *eager, struct error *e)
{
    recording_free(rec);
    rec->n = runner_graph(eager)->n_nodes;
    rec->values = calloc(rec->n, sizeof *rec->values);
    if (rec->values == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory to record %" PRIu32 " values", rec->n);
    }
    eager->probe = record;
    eager->probe_context = rec;
    if (eager->session != NULL) {
        session_watch(eager->session, record_launch, rec);
    }
    status code = runner_step(eager, e);
    eager->probe = NULL;
    if (eager->session != NULL) {
        session_watch(eager->session, NULL, NULL);
    }
    if (code == ATOLL_OK && rec->is_short) {
        code = fail(e, ATOLL_OUT_OF_MEMORY, "no memory to record a step's values");
    }
    return code;
}

void recording_free(struct recording *rec)
{
    for (uint32_t i = 0; i < rec->n && rec->values != NULL; i++) {
        free(rec->values[i].data);
    }
    free(rec->values);
    *rec = (struct recording){0};
}

/* ---- saying where ---- */

void parting_describe(struct parting *out, const struct graph *g, value v, const struct tensor *t,
                      int64_t element)
{
    const struct node *n = graph_node(g, v);
    char name[96], place[160] = "", index[128] = "";
    size_t at = 0;
    int64_t inner = tensor_count(t);
    snprintf(name, sizeof name, "%" PRIu32, v.id);
    if (n->name != NULL) {
        snprintf(name, sizeof name, "%.80s", n->name);
    }
    if (n->location.file != NULL) {
        snprintf(place, sizeof place, ", %.120s:%" PRIu32, n->location.file, n->location.line);
    }
    for (uint32_t i = 0; i < t->rank && at < sizeof index; i++) {
        inner /= t->shape[i] != 0 ? t->shape[i] : 1;
        at += (size_t)snprintf(index + at, sizeof index - at, "%s%" PRId64, i > 0 ? "," : "",
                               element / inner % t->shape[i]);
    }
    int length = snprintf(out->text, sizeof out->text, "%%%s (%s%s)[%s]", name, op_info[n->op].name,
                          place, index);
    assert(length > 0);
    out->is_found = true;
}

/* ---- watching a fused step ---- */

struct watch {
    const struct runner *fused;
    const struct recording *rec;
    struct parting *out;
};

static void look(void *context, uint32_t launch, value v, const struct tensor *t)
{
    struct watch *w = context;
    const struct tensor *expected = &w->rec->values[v.id];
    struct bit_count count = {0};
    if (w->out->is_found || expected->data == NULL || tensor_bytes(expected) != tensor_bytes(t)) {
        return;
    }
    compare_tensors(&count, "", expected, t);
    if (count.different == 0) {
        return;
    }
    const struct launch *l = &w->fused->compiled.program.launches[launch];
    const struct graph *g = runner_graph(w->fused);
    size_t size = dtype_info[t->dtype].bytes, at = (size_t)count.first_index * size;
    parting_describe(w->out, g, v, t, count.first_index);
    size_t used = strlen(w->out->text);
    snprintf(w->out->text + used, sizeof w->out->text - used,
             ": eager %.9g, fused %.9g, in launch %" PRIu32 " (%s)",
             dtype_load(t->dtype, (const unsigned char *)expected->data + at),
             dtype_load(t->dtype, (const unsigned char *)t->data + at), launch,
             l->symbol != NULL ? l->symbol : op_info[graph_node(g, l->node)->op].name);
}

status parting_step(struct runner *eager, struct runner *fused, struct parting *out,
                    struct error *e)
{
    struct recording rec = {0};
    struct watch watch = {.fused = fused, .rec = &rec, .out = out};
    *out = (struct parting){0};
    status code = recording_step(&rec, eager, e);
    if (code == ATOLL_OK) {
        session_watch(fused->session, look, &watch);
        code = session_step(fused->session, e);
        session_watch(fused->session, NULL, NULL);
    }
    recording_free(&rec);
    return code;
}

/* ---- against the reference ---- */

static value last_named(const struct graph *g, const char *name)
{
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) {
        if (g->nodes[i].name != NULL && strcmp(g->nodes[i].name, name) == 0) {
            return (value){i};
        }
    }
    return (value){0};
}

/* A number that is finite in the reference alone is as far as can be. */
static int64_t farthest(const struct tensor *t, const double *reference)
{
    int64_t at = 0;
    double most = -1.0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double d = fabs(dtype_load(t->dtype, (const unsigned char *)t->data +
                                                 (size_t)i * dtype_info[t->dtype].bytes) -
                        reference[i]);
        d = isnan(d) ? (double)INFINITY : d;
        if (d > most) {
            most = d;
            at = i;
        }
    }
    return at;
}

void parting_from_reference(const struct recording *rec, const struct graph *g,
                            const struct eval *oracle, double tolerance, struct parting *out)
{
    const struct graph *from = oracle->graph;
    *out = (struct parting){0};
    for (uint32_t i = 1; i < from->n_nodes && !out->is_found; i++) {
        const struct node *n = &from->nodes[i];
        if (n->name == NULL || node_is_leaf(n) || last_named(from, n->name).id != i) {
            continue;
        }
        value v = last_named(g, n->name);
        const struct tensor *t = &rec->values[v.id];
        if (v.id == 0 || t->data == NULL || !dtype_is_float(t->dtype) ||
            oracle->values[i] == NULL || tensor_count(t) != eval_count(oracle, (value){i})) {
            continue;
        }
        struct closeness c = compare_to_reference(t, oracle->values[i]);
        if (c.relative_l2 <= tolerance && c.nonfinite == 0) {
            continue;
        }
        int64_t at = farthest(t, oracle->values[i]);
        parting_describe(out, g, v, t, at);
        size_t used = strlen(out->text);
        snprintf(out->text + used, sizeof out->text - used,
                 ": %.9g, reference %.9g; relative L2 of the tensor %.3g",
                 dtype_load(t->dtype, (const unsigned char *)t->data +
                                          (size_t)at * dtype_info[t->dtype].bytes),
                 oracle->values[i][at], c.relative_l2);
    }
}
