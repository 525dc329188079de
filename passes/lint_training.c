/* Lint: the training step's own mistakes, from its options and the graph it will be built on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/lint_internal.h"
#include "passes/train_step.h"

/* The loss as the training step finds it; 0: none. */
static value loss_of(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, "loss") == 0) {
            return g->outputs[i].value;
        }
    }
    return (value){0};
}

void lint_no_scaler(struct lint *l, uint32_t id)
{
    (void)id;
    if (l->o->train == NULL || l->o->train->scaler.is_enabled) {
        return;
    }
    for (uint32_t i = 1; i < l->g->n_nodes; i++) {
        const struct node *n = &l->g->nodes[i];
        if (n->dtype == F16 && l->is_trained[i] && n->op != OP_param && n->op != OP_cast) {
            lint_found(l, i,
                       "its gradient is f16 and the loss is not scaled: what is below %.1e "
                       "becomes 0",
                       dtype_info[F16].smallest_normal * dtype_info[F16].epsilon);
            return;
        }
    }
}

static bool wants_unscaled(enum op op)
{
    return op == OP_clip_grad_norm || op == OP_global_norm || op == OP_adam_exp_avg ||
           op == OP_adam_exp_avg_sq || op == OP_adam_update || op == OP_sgd_momentum ||
           op == OP_sgd_update || op == OP_weight_decay;
}

static void scaled_operand(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    for (uint32_t k = 0; wants_unscaled(n->op) && k < n->n_operands; k++) {
        uint32_t scale = lint_node(l, n->operands[k])->scale;
        if (scale != 0) {
            lint_found(l, id, "%s still carries the loss scale %s",
                       graph_name(l->g, n->operands[k], &l->scratch),
                       graph_name(l->g, (value){scale}, &l->scratch));
            return;
        }
    }
}

void lint_scaled_use(struct lint *l, uint32_t id)
{
    (void)id;
    for (uint32_t i = 1; i < l->g->n_nodes; i++) {
        scaled_operand(l, i);
    }
    for (uint32_t i = 0; i < l->g->n_updates; i++) {
        const struct update *u = &l->g->updates[i];
        uint32_t scale = lint_node(l, u->next)->scale;
        if (lint_node(l, u->leaf)->op == OP_param && scale != 0) {
            lint_found(l, u->next.id,
                       "%s is updated with a value that still carries the loss "
                       "scale %s",
                       graph_name(l->g, u->leaf, &l->scratch),
                       graph_name(l->g, (value){scale}, &l->scratch));
        }
    }
}

/* A typical |element| of a parameter, from its init text; 0: cannot say. */
static double typical(const struct node *n)
{
    const char *init = node_text(n, "init");
    char *end;
    double number = strtod(init, &end);
    if (strncmp(init, "normal:", 7) == 0) {
        return fabs(atof(init + 7));
    }
    if (strncmp(init, "uniform:", 8) == 0) {
        return fabs(atof(init + 8)) / 2.0;
    }
    if (strcmp(init, "ones") == 0) {
        return 1.0;
    }
    if (end != init && *end == '\0') {
        return fabs(number);
    }
    bool is_linear = strcmp(init, "linear") == 0 || (init[0] == '\0' && n->shape.rank >= 2);
    struct dim last = is_linear && n->shape.rank > 0 ? n->shape.dims[n->shape.rank - 1] : dim_of(0);
    return dim_is_static(last) && last.factor > 0 ? 0.5 / sqrt((double)last.factor) : 0.0;
}

/* A typical step: Adam and Lion move an element by about lr, SGD by lr times a gradient, which is
 * taken as a tenth of the parameter. */
static double typical_step(const struct train_options *o, double magnitude)
{
    return o->optimizer == OPTIMIZER_SGD ? o->lr * magnitude / 10.0 : o->lr;
}

void lint_updates_vanish(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_param || !dtype_is_low(n->dtype) || l->o->train == NULL) {
        return;
    }
    double magnitude = typical(n);
    bool is_kept_whole = train_param_form(l->o->train, n->name) != PARAM_F32;
    if (magnitude <= 0.0 || is_kept_whole) {
        return;
    }
    double half_ulp = ldexp(dtype_info[n->dtype].epsilon, ilogb(magnitude)) / 2.0;
    double step = typical_step(l->o->train, magnitude);
    if (step < half_ulp) {
        lint_found(l, id,
                   "at %.2g a %s parameter moves in steps of %.2g; lr %g changes it by about %.2g, "
                   "less than half of that, which rounds away",
                   magnitude, dtype_info[n->dtype].name, 2.0 * half_ulp, l->o->train->lr, step);
    }
}

void lint_optimizer_epsilon(struct lint *l, uint32_t id)
{
    const struct train_options *o = l->o->train;
    bool has_eps = o != NULL && (o->optimizer == OPTIMIZER_ADAM || o->optimizer == OPTIMIZER_ADAMW);
    if (has_eps && !(o->eps >= dtype_info[F32].smallest_normal)) {
        lint_found(l, id,
                   "eps=%g: an element whose gradient has always been 0 (a dead unit, an unused "
                   "embedding row) divides 0 by 0",
                   o->eps);
    }
}

void lint_low_loss(struct lint *l, uint32_t id)
{
    (void)id;
    value loss = loss_of(l->g);
    if (loss.id != 0 && dtype_is_low(lint_node(l, loss)->dtype)) {
        const struct dtype_row *row = &dtype_info[lint_node(l, loss)->dtype];
        lint_found(l, loss.id, "the loss is %s: it shows changes of %g of itself only%s", row->name,
                   row->epsilon,
                   row->max < 65536.0 ? ", and times the loss scale it is infinite" : "");
    }
}
