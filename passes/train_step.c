/* The whole training step as one graph. Needs: a typed graph with a scalar loss, no update of a
 * parameter. Leaves: the same outputs, plus backward, unscale, finite check, clipping, optimizer,
 * schedule and scaler as nodes and updates; nothing is decided on the host.
 * Invariant: an update either belongs to every step (scaler, counters, seeds, accumulation) or goes
 * through step_keep(), so that an unaccepted step changes no parameter, optimizer state, step count
 * or schedule position. */
#include "train_parts.h"

#include <inttypes.h>
#include <string.h>

#include "autodiff.h"
#include "ir/print.h"
#include "policy.h"

enum { MAX_TOGETHER = 200 }; /* operands of one global_norm */

/* ---- small things ---- */

static value where(struct step *s, value mask, value a, value b)
{
    return graph_op3(s->g, OP_where, mask, a, b);
}

static value leaf(struct step *s, enum op op, const char *name, enum dtype t,
                  const struct shape *shape, const char *init)
{
    if (graph_find(s->g, name).id != 0) {
        fail(&s->g->error, ATOLL_USAGE,
             "train_step: the graph has a value named %%%s already; hint: rename it", name);
        return (value){0};
    }
    s->g->origin_name = arena_copy_text(&s->g->arena, name);
    value v = graph_add(
        s->g, op, NULL, 0,
        (struct attr[]){attr_dims("shape", shape), attr_dtype("dtype", t), attr_text("init", init)},
        3);
    s->g->origin_name = NULL;
    return v;
}

value step_scalar(struct step *s, enum op op, const char *name, enum dtype t, double init)
{
    struct shape none = shape_scalar();
    struct text text = {.arena = s->scratch};
    double_print(&text, init);
    return leaf(s, op, name, t, &none, text.data);
}

static const char *param_name(struct step *s, uint32_t i)
{
    const char *name = graph_node(s->g, s->params[i])->name;
    return name != NULL ? name : arena_text(s->scratch, "v%" PRIu32, s->params[i].id);
}

/* A state tensor beside parameter i: "opt.m.NAME". Moments of low-precision parameters are f32. */
value step_moment(struct step *s, uint32_t i, const char *prefix)
{
    const struct node *p = graph_node(s->g, s->params[i]);
    struct shape shape = p->shape;
    enum dtype t = dtype_is_low(p->dtype) ? F32 : p->dtype;
    return leaf(s, OP_state, arena_text(s->scratch, "%s.%s", prefix, param_name(s, i)), t, &shape,
                "zeros");
}

/* old <- fresh, when the step is accepted. */
void step_keep(struct step *s, value old, value fresh)
{
    if (old.id == 0 || fresh.id == 0) {
        return; /* the error is recorded */
    }
    fresh = graph_cast(s->g, fresh, graph_node(s->g, old)->dtype);
    graph_update(s->g, old, s->accept.id == 0 ? fresh : where(s, s->accept, fresh, old));
}

static value logical_and(struct step *s, value a, value b)
{
    return a.id == 0 ? b : b.id == 0 ? a : op2(s, OP_and, a, b);
}

/* ---- gradients ---- */

static status find_params(struct step *s)
{
    s->params = ARENA_ARRAY(s->scratch, value, s->g->n_nodes);
    s->grads = ARENA_ARRAY(s->scratch, value, s->g->n_nodes);
    s->places = ARENA_ARRAY(s->scratch, uint32_t, s->g->n_nodes);
    for (uint32_t i = 1; i < s->g->n_nodes; i++) {
        const struct node *n = &s->g->nodes[i];
        if (n->op != OP_param) {
            continue;
        }
        s->params[s->n] = (value){i};
        bool is_safe = !dtype_is_low(n->dtype) || step_stored(s, s->n) != NULL;
        if (!is_safe && !s->o->allows_low_params) {
            return fail(&s->g->error, ATOLL_DTYPE,
                        "train_step: parameter %%%s is %s, whose updates below half an ulp vanish; "
                        "expected f32; hint: keep f32 parameters and let autocast lower them, or "
                        "say how bf16 ones are kept (params: bf16-stochastic, bf16-remainder)",
                        n->name, dtype_info[n->dtype].name);
        }
        s->n++;
    }
    return s->n > 0 ? ATOLL_OK
                    : fail(&s->g->error, ATOLL_USAGE,
                           "train_step: graph @%s has no param; hint: mark what is trained `param`",
                           s->g->name);
}

/* Gradients of the scaled loss; parameters it does not reach drop out, as in an optimizer that sees
 * no gradient. */
static status differentiate(struct step *s, value loss)
{
    s->loss = loss;
    if (s->o->accumulate > 1 && s->terms.id == 0) {
        loss = op2(s, OP_div, loss, number(s, (double)s->o->accumulate));
    }
    if (s->o->scaler.is_enabled) {
        s->scale = step_scalar(s, OP_state, "scaler.scale", F32, s->o->scaler.init);
        loss = op2(s, OP_scale_loss, loss, s->scale);
    }
    if (s->g->error.code != ATOLL_OK) {
        return s->g->error.code;
    }
    value *read = ARENA_ARRAY(s->scratch, value, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct stored_param *p = step_stored(s, i);
        read[i] = p != NULL ? p->read : s->params[i];
    }
    TRY(autodiff_backward(s->g, loss, read, s->n, s->grads));
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->grads[i].id == 0) {
            note_add(s->notes, "train_step", param_name(s, i),
                     "the loss does not depend on it: it is not updated");
            continue;
        }
        s->params[n] = s->params[i];
        s->places[n] = i;
        s->grads[n++] = s->grads[i];
    }
    s->n = n;
    return n > 0 ? ATOLL_OK
                 : fail(&s->g->error, ATOLL_USAGE,
                        "train_step: the loss of @%s depends on no parameter", s->g->name);
}

/* acc <- acc + g at each micro-batch, still scaled; the sum goes on at the last, where acc starts
 * again. */
static void accumulate(struct step *s)
{
    if (s->o->accumulate <= 1) {
        return;
    }
    value count = step_scalar(s, OP_state, "acc.count", I64, 0.0);
    value next = op2(s, OP_add, count, number(s, 1.0));
    value window = number(s, (double)s->o->accumulate);
    s->g->origin_name = s->is_fp8 ? "step.last" : NULL; /* as step.finite below */
    s->is_last = op2(s, OP_ge, next, window);
    s->g->origin_name = NULL;
    graph_update(s->g, count, where(s, s->is_last, number(s, 0.0), next));
    for (uint32_t i = 0; i < s->n; i++) {
        value acc = step_moment(s, i, "acc");
        s->grads[i] = op2(s, OP_add, acc, s->grads[i]);
        graph_update(s->g, acc, where(s, s->is_last, number(s, 0.0), s->grads[i]));
    }
}

/* now, and what the window's earlier micro-batches gave */
static value window_sum(struct step *s, const char *name, value now)
{
    now = graph_cast(s->g, now, F32);
    if (s->is_last.id == 0) {
        return now;
    }
    value acc = step_scalar(s, OP_state, name, F32, 0.0);
    value sum = op2(s, OP_add, acc, now);
    graph_update(s->g, acc, where(s, s->is_last, number(s, 0.0), sum));
    return sum;
}

/* Where the model says how many terms its loss sums (output loss_count), gradients and mean_loss
 * are means over all terms of the window, however unevenly its micro-batches share them. */
static void divide_by_terms(struct step *s)
{
    if (s->terms.id == 0) {
        return;
    }
    s->n_terms = window_sum(s, "acc.terms", s->terms);
    value sum = window_sum(s, "acc.loss", s->loss);
    graph_output(s->g, "mean_loss", op2(s, OP_div, sum, s->n_terms));
    for (uint32_t i = 0; i < s->n; i++) {
        s->grads[i] = op2(s, OP_div, s->grads[i], s->n_terms);
    }
}

/* g <- g r, r = f32(1/f64(S)), and which gradient is not finite. One test after the product covers
 * the one before it: r is above 0, so what is infinite or NaN stays so; and it sees what a small S
 * makes overflow, which a test before the product cannot. */
static void unscale_and_test(struct step *s)
{
    value r = {0};
    if (s->scale.id != 0) {
        value wide = graph_cast(s->g, s->scale, F64);
        r = graph_cast(s->g, op2(s, OP_div, graph_constant(s->g, 1.0, F64), wide), F32);
    }
    s->first_nonfinite = graph_constant(s->g, -1.0, I32);
    for (uint32_t i = s->n; i-- > 0;) {
        s->grads[i] = r.id != 0 ? op2(s, OP_unscale, s->grads[i], r) : s->grads[i];
        value good = graph_add(s->g, OP_all_finite, &s->grads[i], 1, NULL, 0);
        value index = graph_constant(s->g, (double)s->places[i], I32);
        s->first_nonfinite = where(s, good, s->first_nonfinite, index);
    }
    if (s->scale.id != 0 || s->o->skips_nonfinite || s->is_fp8) {
        value zero = number(s, 0.0);
        s->g->origin_name = s->is_fp8 ? "step.finite" : NULL; /* what the fp8 pass adds to */
        s->is_finite = op2(s, OP_lt, s->first_nonfinite, zero);
        s->g->origin_name = NULL;
    }
}

static value global_norm(struct step *s, const value *of, uint32_t n)
{
    if (n <= MAX_TOGETHER) {
        return graph_add(s->g, OP_global_norm, of, n, NULL, 0);
    }
    value *parts = ARENA_ARRAY(s->scratch, value, n / MAX_TOGETHER + 1);
    uint32_t n_parts = 0;
    for (uint32_t i = 0; i < n; i += MAX_TOGETHER) {
        uint32_t some = n - i < MAX_TOGETHER ? n - i : MAX_TOGETHER;
        parts[n_parts++] = graph_add(s->g, OP_global_norm, &of[i], some, NULL, 0);
    }
    return global_norm(s, parts, n_parts);
}

/* A norm that is not finite leaves no gradient to clip by it, and a bound set below zero between
 * steps would turn every gradient round: the step is skipped. */
static void clip(struct step *s)
{
    s->norm = global_norm(s, s->grads, s->n);
    if (s->o->max_norm > 0.0) {
        s->bound = step_scalar(s, OP_scalar, "max_norm", F32, s->o->max_norm);
        for (uint32_t i = 0; i < s->n; i++) {
            s->grads[i] = graph_op3(s->g, OP_clip_grad_norm, s->grads[i], s->norm, s->bound);
        }
    }
}

static void decide(struct step *s)
{
    s->accept = s->is_finite;
    if (s->o->max_norm > 0.0) {
        s->accept = logical_and(s, s->accept, graph_op1(s->g, OP_is_finite, s->norm));
        s->accept = logical_and(s, s->accept, op2(s, OP_ge, s->bound, number(s, 0.0)));
    }
    if (s->n_terms.id != 0) { /* nothing to learn from */
        s->accept = logical_and(s, s->accept, op2(s, OP_gt, s->n_terms, number(s, 0.0)));
    }
    s->accept = logical_and(s, s->is_last, s->accept);
}

/* ---- schedule ---- */

static void schedule(struct step *s)
{
    s->count = step_scalar(s, OP_state, "opt.step", I64, 0.0);
    value base = step_scalar(s, OP_scalar, "lr", F64, s->o->lr);
    s->rate = train_schedule(s->g, &s->o->schedule, base, graph_cast(s->g, s->count, F64));
}

/* ---- what every step changes ---- */

/* Counts a window: skipped only where it ends unaccepted. */
static void count_steps(struct step *s)
{
    value accepted = step_scalar(s, OP_state, "accepted", I64, 0.0);
    value skipped = step_scalar(s, OP_state, "skipped", I64, 0.0), more = accepted, less = skipped;
    value one = number(s, 1.0);
    if (s->accept.id == 0) {
        more = op2(s, OP_add, accepted, one);
    } else {
        value is_skip = logical_and(s, s->is_last, graph_op1(s->g, OP_not, s->accept));
        more = where(s, s->accept, op2(s, OP_add, accepted, one), accepted);
        less = where(s, is_skip, op2(s, OP_add, skipped, one), skipped);
    }
    graph_update(s->g, accepted, more);
    graph_update(s->g, skipped, less);
    graph_output(s->g, "accepted", more);
    graph_output(s->g, "skipped", less);
}

static void update_scaler(struct step *s)
{
    const struct scaler *c = &s->o->scaler;
    value tracker = step_scalar(s, OP_state, "scaler.tracker", I32, 0.0);
    value overflow = graph_op1(s->g, OP_not, s->is_finite);
    value in[] = {s->scale, tracker, overflow};
    value scale = graph_add(
        s->g, OP_scaler_scale, in, 3,
        (struct attr[]){attr_float("growth", c->growth), attr_float("backoff", c->backoff),
                        attr_int("interval", c->interval), attr_float("floor", c->floor),
                        attr_float("ceiling", c->ceiling)},
        5);
    value next = graph_add(
        s->g, OP_scaler_tracker, in, 3,
        (struct attr[]){attr_float("growth", c->growth), attr_int("interval", c->interval)}, 2);
    if (s->is_last.id != 0) { /* the scale is constant within a window */
        scale = where(s, s->is_last, scale, s->scale);
        next = where(s, s->is_last, next, tracker);
    }
    graph_update(s->g, s->scale, scale);
    graph_update(s->g, tracker, next);
}

/* i64 state scalars that the model reads and never updates are seeds: the next step draws other
 * numbers. */
static void advance_seeds(struct step *s, uint32_t n_model_nodes)
{
    for (uint32_t i = 1; i < n_model_nodes; i++) {
        const struct node *n = &s->g->nodes[i];
        bool is_seed = n->op == OP_state && n->dtype == I64 && n->shape.rank == 0;
        for (uint32_t k = 0; k < s->g->n_updates; k++) {
            is_seed = is_seed && s->g->updates[k].leaf.id != i;
        }
        if (is_seed) {
            graph_update(s->g, (value){i}, op2(s, OP_add, (value){i}, number(s, 1.0)));
        }
    }
}

static status build(struct step *s, value loss)
{
    uint32_t n_model_nodes = s->g->n_nodes;
    TRY(find_params(s));
    advance_seeds(s, n_model_nodes);
    TRY(differentiate(s, loss));
    accumulate(s);
    divide_by_terms(s);
    unscale_and_test(s);
    clip(s);
    decide(s);
    schedule(s);
    step_optimize(s);
    graph_output(s->g, "lr", s->rate);
    count_steps(s);
    graph_output(s->g, "scale", s->scale.id != 0 ? s->scale : graph_constant(s->g, 1.0, F32));
    graph_output(s->g, "grad_norm", s->norm);
    graph_output(s->g, "first_nonfinite", s->first_nonfinite);
    if (s->scale.id != 0) {
        update_scaler(s);
    }
    return s->g->error.code;
}

/* The output loss_count, or 0. */
static status find_terms(const struct graph *in, const value *map, struct step *s)
{
    for (uint32_t i = 0; i < in->n_outputs; i++) {
        const struct node *n = graph_node(in, in->outputs[i].value);
        if (strcmp(in->outputs[i].name, "loss_count") != 0) {
            continue;
        }
        if (n->shape.rank != 0 || n->dtype == BOOL) {
            return fail(
                &s->g->error, ATOLL_SHAPE,
                "train_step: output loss_count of @%s is no number; expected how many terms "
                "the loss sums, as a scalar",
                in->name);
        }
        s->terms = map[in->outputs[i].value.id];
    }
    return ATOLL_OK;
}

static bool has_step(const struct graph *in)
{
    for (uint32_t i = 0; i < in->n_updates; i++) {
        if (graph_node(in, in->updates[i].leaf)->op == OP_param) {
            return true;
        }
    }
    return false;
}

/* in -> kept, its parameters in the form they are kept in -> full, with the step behind it. */
static status add_step(const struct graph *in, struct graph *kept, struct step *s)
{
    value loss;
    status code = train_store_params(in, kept, s->o, s->notes, s->stored);
    code = code == ATOLL_OK ? autodiff_loss(kept, &kept->error, &loss) : code;
    if (code != ATOLL_OK) {
        return fail(&s->g->error, code, "%s", kept->error.text);
    }
    value *map = ARENA_ARRAY(s->scratch, value, kept->n_nodes);
    TRY(autodiff_forward(kept, s->g, NULL, map));
    train_map_params(s->stored, map);
    TRY(find_terms(kept, map, s));
    return build(s, map[loss.id]);
}

status train_step_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                       struct notes *notes)
{
    if (o == NULL || o->train == NULL || has_step(in)) {
        note_add(notes, "train_step", "",
                 has_step(in) ? "the graph updates its parameters itself: left as it is"
                              : "no training options: left as it is");
        return rewrite(in, out, NULL, NULL, NULL);
    }
    TRY(train_options_check(o->train, &out->error));
    struct arena scratch = SCRATCH_ARENA;
    struct graph *kept = graph_temporary(in), *full = graph_temporary(in);
    struct stored_params stored = {0};
    struct step s = {.o = o->train,
                     .g = full,
                     .notes = notes,
                     .scratch = &scratch,
                     .stored = &stored,
                     .is_fp8 = o->policy != NULL && o->policy->fp8.recipe != NULL};
    status code = add_step(in, kept, &s);
    code = code == ATOLL_OK ? rewrite(full, out, NULL, NULL, NULL)
                            : fail(&out->error, code, "%s", full->error.text);
    graph_destroy(full);
    graph_destroy(kept);
    arena_free(&scratch);
    return code;
}
