/* Decision by decision: the policy decides for the first k ops of the model and all behind them run
 * in f32; the least k at which the worst output or gradient is too far from the f64 reference names
 * the op. Then passes: whether leaving one out brings it back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bisect.h"

struct decisions {
    const struct graph *model;
    struct compile_options options;
    uint64_t seed;
    const struct tensor *x, *y;
    struct policy policy;     /* with the lines below */
    struct policy_node *rows; /* the policy's own, then one a held node */
    const uint32_t *ops;      /* the model's named ops, by id, in order */
    uint32_t n_ops;
    struct arena arena;
    struct bisect *out;
    double worst;
    char worst_name[64];
};

static void on_value(void *context, const char *name, const struct closeness *c)
{
    struct decisions *d = context;
    double error = c->nonfinite > 0 ? (double)INFINITY : c->relative_l2;
    if (error >= d->worst) {
        d->worst = error;
        snprintf(d->worst_name, sizeof d->worst_name, "%.60s", name);
    }
}

static status measure(struct decisions *d, const char *disabled, double *out, struct error *e)
{
    struct compile_options o = d->options;
    o.policy = &d->policy;
    o.disabled = disabled != NULL ? disabled : o.disabled;
    d->worst = 0.0;
    d->out->tries++;
    TRY(compare_precision(d->model, &o, d->seed, d->x, d->y, on_value, d, 0.0, NULL, e));
    *out = d->worst;
    return ATOLL_OK;
}

/* Ops [from, to) held in f32. */
static void hold(struct decisions *d, uint32_t from, uint32_t to)
{
    uint32_t n = d->options.policy->n_nodes;
    for (uint32_t i = from; i < to; i++) {
        const char *name = graph_node(d->model, (value){d->ops[i]})->name;
        d->rows[n++] = (struct policy_node){name, F32, AMP_FP32};
    }
    d->policy.n_nodes = n;
}

static status measure_first(struct decisions *d, uint32_t k, double *out, struct error *e)
{
    hold(d, k, d->n_ops);
    return measure(d, NULL, out, e);
}

static void list_named_ops(struct decisions *d)
{
    const struct graph *g = d->model;
    uint32_t *ops = ARENA_ARRAY(&d->arena, uint32_t, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (op_info[n->op].kind != LEAF && n->op != OP_cast && n->name != NULL &&
            strpbrk(n->name, "*?") == NULL && dtype_is_float(n->dtype) && n->dtype != F64) {
            ops[d->n_ops++] = i;
        }
    }
    d->ops = ops;
    d->rows = ARENA_ARRAY(&d->arena, struct policy_node, d->options.policy->n_nodes + d->n_ops + 1);
    for (uint32_t i = 0; i < d->options.policy->n_nodes; i++) {
        d->rows[i] = d->options.policy->nodes[i];
    }
    d->policy = *d->options.policy;
    d->policy.nodes = d->rows;
}

/* The passes without which the error is within tolerance, as a sentence; "" when there are none. */
static status find_passes(struct decisions *d, double tolerance, struct text *t, struct error *e)
{
    static const char *const passes[] = {"simplify", "islands"};
    hold(d, 0, 0);
    for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
        double error;
        TRY(measure(d, passes[i], &error, e));
        if (error <= tolerance) {
            text_add(t, "; without pass %s the worst is %.3g", passes[i], error);
        }
    }
    return ATOLL_OK;
}

static status describe(struct decisions *d, double tolerance, uint32_t k, struct error *e)
{
    struct bisect *out = d->out;
    const struct node *n = graph_node(d->model, (value){d->ops[k - 1]});
    struct text passes = {.arena = &d->arena};
    char place[200] = "", worst[64];
    TRY(measure_first(d, k, &out->with_it, e));
    snprintf(worst, sizeof worst, "%s", d->worst_name);
    hold(d, k - 1, k);
    TRY(measure(d, NULL, &out->alone, e));
    TRY(find_passes(d, tolerance, &passes, e));
    if (n->location.file != NULL) {
        snprintf(place, sizeof place, ", %.120s:%u", n->location.file, (unsigned)n->location.line);
    }
    snprintf(out->node, sizeof out->node, "%.90s", n->name);
    out->kind = BISECT_POLICY;
    snprintf(out->text, sizeof out->text,
             "policy decision for %%%s (%s%s): with the ops before it as the policy says and the "
             "rest f32 the worst relative L2 is %.3g, with its own dtype too %.3g (%s), over %.3g; "
             "the whole policy with this node alone in f32: %.3g%s; hint: node \"%s\" f32",
             out->node, op_info[n->op].name, place, out->without, out->with_it, worst, tolerance,
             out->alone, passes.data != NULL ? passes.data : "", out->node);
    return ATOLL_OK;
}

static status search(struct decisions *d, double tolerance, struct error *e)
{
    struct bisect *out = d->out;
    uint32_t low = 0, high = d->n_ops;
    double whole;
    list_named_ops(d);
    high = d->n_ops;
    TRY(measure_first(d, high, &whole, e));
    if (whole <= tolerance) {
        snprintf(out->text, sizeof out->text,
                 "every output and gradient is within relative L2 %.3g of the reference, the worst "
                 "%.3g (%s)",
                 tolerance, whole, d->worst_name);
        return ATOLL_OK;
    }
    TRY(measure_first(d, 0, &out->without, e));
    if (out->without > tolerance) {
        snprintf(out->text, sizeof out->text,
                 "no policy decision: with every named op in f32 the worst relative L2 is %.3g "
                 "(%s), over %.3g",
                 out->without, d->worst_name, tolerance);
        return ATOLL_OK;
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        double error;
        TRY(measure_first(d, middle, &error, e));
        if (error > tolerance) {
            high = middle;
        } else {
            low = middle;
            out->without = error;
        }
    }
    return describe(d, tolerance, high, e);
}

status bisect_policy(const struct graph *model, const struct compile_options *o, uint64_t seed,
                     const struct tensor *x, const struct tensor *y, double tolerance,
                     struct bisect *out, struct error *e)
{
    struct decisions d = {.arena = SCRATCH_ARENA,
                          .model = model,
                          .options = *o,
                          .seed = seed,
                          .x = x,
                          .y = y,
                          .out = out};
    *out = (struct bisect){.kind = BISECT_NONE};
    if (o->policy == NULL) {
        snprintf(out->text, sizeof out->text, "there is no policy");
        return ATOLL_OK;
    }
    status code = search(&d, tolerance, e);
    arena_free(&d.arena);
    return code;
}
