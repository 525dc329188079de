/* The optimizers of a training step, as nodes over its gradients. Used by train_step.c. Invariant:
 * every update goes through step_keep, so that an unaccepted step changes nothing; rates and betas
 * are f64 scalars, what is done to each element is f32. */
#include "train_parts.h"

static value decayed(struct step *s, value what, value p, value by, bool is_decoupled)
{
    return graph_add(s->g, OP_weight_decay, (value[]){what, p, by}, 3,
                     (struct attr[]){attr_bool("decoupled", is_decoupled)}, 1);
}

/* The powers of beta are running products in f64: bias corrections need no f64 pow. */
static void adam(struct step *s)
{
    bool is_decoupled = s->o->optimizer == OPTIMIZER_ADAMW;
    value beta1 = step_scalar(s, OP_scalar, "beta1", F64, s->o->beta1);
    value beta2 = step_scalar(s, OP_scalar, "beta2", F64, s->o->beta2);
    value eps = step_scalar(s, OP_scalar, "eps", F64, s->o->eps), decay = {0};
    value old1 = step_scalar(s, OP_state, "opt.beta1_power", F64, 1.0);
    value old2 = step_scalar(s, OP_state, "opt.beta2_power", F64, 1.0);
    value power1 = op2(s, OP_mul, old1, beta1), power2 = op2(s, OP_mul, old2, beta2);
    if (s->o->weight_decay != 0.0) {
        decay = step_scalar(s, OP_scalar, "weight_decay", F64, s->o->weight_decay);
    }
    value shrink = decay.id != 0 && is_decoupled ? op2(s, OP_mul, s->rate, decay) : (value){0};
    for (uint32_t i = 0; i < s->n; i++) {
        value p = step_wide(s, i), g = s->grads[i];
        if (shrink.id != 0) {
            p = decayed(s, p, p, shrink, true);
        } else if (decay.id != 0) {
            g = decayed(s, g, p, decay, false);
        }
        value old_m = step_moment(s, i, "opt.m"), old_v = step_moment(s, i, "opt.v");
        value m = graph_op3(s->g, OP_adam_exp_avg, old_m, g, beta1);
        value v = graph_op3(s->g, OP_adam_exp_avg_sq, old_v, g, beta2);
        value next = graph_add(s->g, OP_adam_update,
                               (value[]){p, m, v, s->rate, power1, power2, eps}, 7, NULL, 0);
        step_keep(s, old_m, m);
        step_keep(s, old_v, v);
        step_keep_param(s, i, next);
    }
    step_keep(s, old1, power1);
    step_keep(s, old2, power2);
}

/* g + mu buf, mu rounded to the buffer's dtype first */
static value look_ahead(struct step *s, value g, value mu, value buf)
{
    if (buf.id == 0) {
        return buf;
    }
    value narrow = graph_cast(s->g, mu, graph_node(s->g, buf)->dtype);
    return op2(s, OP_add, g, op2(s, OP_mul, narrow, buf));
}

static void sgd(struct step *s)
{
    value decay = {0}, mu = {0}, is_first = {0};
    if (s->o->weight_decay != 0.0) {
        decay = step_scalar(s, OP_scalar, "weight_decay", F64, s->o->weight_decay);
    }
    if (s->o->momentum != 0.0) {
        mu = step_scalar(s, OP_scalar, "momentum", F64, s->o->momentum);
        is_first = op2(s, OP_eq, s->count, number(s, 0.0));
    }
    for (uint32_t i = 0; i < s->n; i++) {
        value p = step_wide(s, i), g = s->grads[i];
        if (decay.id != 0) {
            g = decayed(s, g, p, decay, false);
        }
        if (mu.id != 0) {
            value old = step_moment(s, i, "opt.momentum");
            value buf = graph_add(s->g, OP_sgd_momentum, (value[]){old, g, mu, is_first}, 4,
                                  (struct attr[]){attr_float("dampening", s->o->dampening)}, 1);
            step_keep(s, old, buf);
            g = s->o->is_nesterov ? look_ahead(s, g, mu, buf) : buf;
        }
        step_keep_param(s, i, graph_op3(s->g, OP_sgd_update, p, g, s->rate));
    }
}

/* p (1 - lr c) - lr sign(m + (1-b1)(g-m)), then m + (1-b2)(g-m): the sign looks further towards the
 * new gradient than the moment goes (Chen and others, "Symbolic discovery of optimization
 * algorithms", 2023). */
static void lion(struct step *s)
{
    value beta1 = step_scalar(s, OP_scalar, "beta1", F64, s->o->beta1);
    value beta2 = step_scalar(s, OP_scalar, "beta2", F64, s->o->beta2), shrink = {0};
    if (s->o->weight_decay != 0.0) {
        value decay = step_scalar(s, OP_scalar, "weight_decay", F64, s->o->weight_decay);
        shrink = op2(s, OP_mul, s->rate, decay);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        value p = step_wide(s, i), g = s->grads[i], old = step_moment(s, i, "opt.m");
        p = shrink.id != 0 ? decayed(s, p, p, shrink, true) : p;
        value way = graph_op1(s->g, OP_sign, graph_op3(s->g, OP_adam_exp_avg, old, g, beta1));
        step_keep(s, old, graph_op3(s->g, OP_adam_exp_avg, old, g, beta2));
        step_keep_param(s, i, graph_op3(s->g, OP_sgd_update, p, way, s->rate));
    }
}

void step_optimize(struct step *s)
{
    void (*const kinds[])(struct step *) = {[OPTIMIZER_ADAMW] = adam,
                                            [OPTIMIZER_ADAM] = adam,
                                            [OPTIMIZER_SGD] = sgd,
                                            [OPTIMIZER_LION] = lion};
    for (uint32_t i = 0; s->o->is_maximize && i < s->n; i++) {
        s->grads[i] = graph_op1(s->g, OP_neg, s->grads[i]);
    }
    kinds[s->o->optimizer](s);
    step_keep(s, s->count, op2(s, OP_add, s->count, number(s, 1.0)));
}
