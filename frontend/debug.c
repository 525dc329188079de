/* The public diagnostics over a training: a recorded step, what it says of infinities and ranges,
 * and two trainings held against each other. Invariant: a recorded step gives the bits of a step
 * that is not. */
#include "atoll/debug.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/compare.h"
#include "frontend/training.h"
#include "runtime/kept.h"
#include "runtime/lend.h"

_Static_assert(ATOLL_NONFINITE_DIVISION == (int)NONFINITE_DIVISION, "kinds go by number");
_Static_assert(ATOLL_N_NARROW == (int)N_NARROW, "narrow dtypes go by number");

/* ---- steps ---- */

static status record(atoll_training *t, void *what, struct error *e)
{
    (void)what;
    TRY(training_is_fed(t, e));
    if (!t->compile.is_eager && !t->compile.keeps_values) {
        return fail(e, ATOLL_USAGE,
                    "a fused training keeps no values; hint: open it with keeps_values = 1");
    }
    recording_free(&t->debug.trace);
    t->debug.trace = (struct recording){0};
    TRY(trace_step(&t->debug.trace, &t->runner, e));
    t->steps++;
    t->has_stepped = true;
    nonfinite_find(&t->debug.trace, &t->runner, &t->debug.found);
    return ranges_add(&t->debug.ranges, &t->debug.trace, e);
}

atoll_status atoll_debug_step(atoll_training *t, atoll_error *error)
{
    return training_guarded(t, record, NULL, error);
}

static status has_trace(const atoll_training *t, struct error *e)
{
    return t->debug.trace.n > 0
               ? ATOLL_OK
               : fail(e, ATOLL_USAGE, "no step was recorded; hint: atoll_debug_step");
}

/* ---- nonfinite ---- */

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static status nonfinite(atoll_training *t, void *what, struct error *e)
{
    const struct nonfinite *f = &t->debug.found;
    atoll_nonfinite *out = what;
    TRY(has_trace(t, e));
    if (f->kind == NONFINITE_NONE) {
        return ATOLL_OK;
    }
    out->kind = (atoll_nonfinite_kind)f->kind;
    out->phase = step_phase_name[f->phase];
    out->node = or_empty(f->node);
    out->op = or_empty(f->op);
    out->of = f->model_op != NULL ? f->model_op : out->op;
    out->file = or_empty(f->location.file);
    out->line = f->location.line;
    out->element = f->element;
    out->number = f->number;
    out->is_scaled = f->is_scaled;
    out->kernel = or_empty(f->kernel);
    memcpy(out->text, f->text, sizeof out->text);
    return ATOLL_OK;
}

atoll_status atoll_debug_nonfinite(atoll_training *t, atoll_nonfinite *out, atoll_error *error)
{
    _Static_assert(sizeof out->text == sizeof((struct nonfinite *)0)->text, "one line");
    *out = (atoll_nonfinite){.phase = "", .node = "", .op = "", .of = "", .file = "", .kernel = ""};
    return training_guarded(t, nonfinite, out, error);
}

/* ---- values by name ---- */

struct wanted {
    const char *name;
    void *out;
};

/* The last node of that name whose value was recorded; a float, where wanted. */
static status find(const atoll_training *t, const char *name, bool wants_float, uint32_t *out,
                   struct error *e)
{
    const struct graph *g = runner_graph(&t->runner);
    TRY(has_trace(t, e));
    for (uint32_t i = t->debug.trace.n; i-- > 1;) {
        const struct node *n = &g->nodes[i];
        bool is_it = n->name != NULL && strcmp(n->name, name) == 0;
        bool is_there =
            wants_float ? t->debug.ranges.items[i].n > 0 : t->debug.trace.values[i].data != NULL;
        if (is_it && is_there) {
            *out = i;
            return ATOLL_OK;
        }
    }
    return fail(e, ATOLL_NOT_FOUND, "no %s named %%%s was computed; hint: atoll_name gives names",
                wants_float ? "float" : "value", name);
}

static status range(atoll_training *t, void *what, struct error *e)
{
    const struct wanted *w = what;
    atoll_range *out = w->out;
    uint32_t id;
    TRY(find(t, w->name, true, &id, e));
    const struct range *r = &t->debug.ranges.items[id];
    *out = (atoll_range){.elements = r->n,
                         .zeros = r->zeros,
                         .nonfinite = r->nonfinite,
                         .amax = r->amax,
                         .min_nonzero = r->min_nonzero};
    for (int i = 0; i < ATOLL_N_NARROW; i++) {
        out->underflow[i] = (double)r->underflow[i] / (double)r->n;
        out->saturate[i] = (double)r->saturate[i] / (double)r->n;
    }
    return ATOLL_OK;
}

atoll_status atoll_debug_range(atoll_training *t, const char *name, atoll_range *out,
                               atoll_error *error)
{
    *out = (atoll_range){0};
    return training_guarded(t, range, &(struct wanted){name, out}, error);
}

void atoll_debug_forget(atoll_training *t)
{
    ranges_free(&t->debug.ranges);
    recording_free(&t->debug.trace);
    memset(&t->debug, 0, sizeof t->debug);
}

static status lend_value(atoll_training *t, void *what, struct error *e)
{
    const struct wanted *w = what;
    uint32_t id;
    TRY(find(t, w->name, false, &id, e));
    lend_view(runner_graph(&t->runner)->nodes[id].name, &t->debug.trace.values[id], w->out);
    return ATOLL_OK;
}

atoll_status atoll_debug_value(atoll_training *t, const char *name, atoll_view *out,
                               atoll_error *error)
{
    *out = (atoll_view){0};
    return training_guarded(t, lend_value, &(struct wanted){name, out}, error);
}

/* ---- two trainings ---- */

struct pair {
    atoll_training *other;
    const char *name;
    void *out;
};

/* An output of the last step, or a kept leaf; false: none of that name. */
static bool kept_or_output(atoll_training *t, const char *name, struct tensor *out)
{
    const struct graph *g = runner_graph(&t->runner);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            *out = runner_output(&t->runner, name);
            return true;
        }
    }
    value leaf = graph_find(g, name);
    if (leaf.id == 0 || !leaf_is_kept(graph_node(g, leaf))) {
        return false;
    }
    *out = *runner_leaf(&t->runner, name);
    return true;
}

static status both(atoll_training *a, atoll_training *b, const char *name, bool same_dtype,
                   struct tensor out[2], struct error *e)
{
    atoll_training *const all[] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!kept_or_output(all[i], name, &out[i])) {
            return fail(e, ATOLL_NOT_FOUND, "the %s training has no output or state '%s'",
                        i == 0 ? "first" : "second", name);
        }
    }
    bool is_same = out[0].rank == out[1].rank &&
                   memcmp(out[0].shape, out[1].shape, out[0].rank * sizeof *out[0].shape) == 0;
    return is_same && (!same_dtype || out[0].dtype == out[1].dtype)
               ? ATOLL_OK
               : fail(e, ATOLL_SHAPE, "'%s' is not of one shape%s in both trainings", name,
                      same_dtype ? " and dtype" : "");
}

static status stepped(const atoll_training *a, const atoll_training *b, struct error *e)
{
    return a->has_stepped && b != NULL && b->has_stepped
               ? ATOLL_OK
               : fail(e, ATOLL_USAGE, "no step ran yet in one of the trainings");
}

static status compare_name(atoll_training *a, const struct pair *p, const char *name,
                           struct bit_count *count, struct error *e)
{
    struct tensor x[2];
    TRY(both(a, p->other, name, true, x, e));
    compare_tensors(count, name, &x[0], &x[1]);
    return ATOLL_OK;
}

static status compare(atoll_training *a, void *what, struct error *e)
{
    const struct pair *p = what;
    const struct graph *g = runner_graph(&a->runner);
    struct bit_count count = {0};
    atoll_bits *out = p->out;
    TRY(stepped(a, p->other, e));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        TRY(compare_name(a, p, g->outputs[i].name, &count, e));
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (leaf_is_kept(&g->nodes[i])) {
            TRY(compare_name(a, p, g->nodes[i].name, &count, e));
        }
    }
    out->compared = count.compared;
    out->different = count.different;
    snprintf(out->first, sizeof out->first, "%s", count.first);
    return ATOLL_OK;
}

atoll_status atoll_debug_compare(atoll_training *a, atoll_training *b, atoll_bits *out,
                                 atoll_error *error)
{
    *out = (atoll_bits){0};
    return training_guarded(a, compare, &(struct pair){b, NULL, out}, error);
}

static status distance(atoll_training *a, void *what, struct error *e)
{
    const struct pair *p = what;
    atoll_distance *out = p->out;
    struct arena scratch = SCRATCH_ARENA;
    struct tensor x[2];
    TRY(stepped(a, p->other, e));
    TRY(both(a, p->other, p->name, false, x, e));
    int64_t n = tensor_count(&x[1]);
    double *reference = ARENA_ARRAY(&scratch, double, n + 1);
    for (int64_t i = 0; i < n; i++) {
        const char *from = (const char *)x[1].data + (size_t)i * dtype_info[x[1].dtype].bytes;
        reference[i] = dtype_load(x[1].dtype, from);
    }
    struct closeness c = compare_to_reference(&x[0], reference);
    *out = (atoll_distance){c.n, c.nonfinite, c.max_abs, c.relative_l2, c.cosine, c.max_ulp};
    arena_free(&scratch);
    return ATOLL_OK;
}

atoll_status atoll_debug_distance(atoll_training *from, atoll_training *reference, const char *name,
                                  atoll_distance *out, atoll_error *error)
{
    *out = (atoll_distance){0};
    return training_guarded(from, distance, &(struct pair){reference, name, out}, error);
}
