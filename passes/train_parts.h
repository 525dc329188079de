/* What train_step.c and train_optimizers.c share: the step under construction. */
#ifndef ATOLL_PASSES_TRAIN_PARTS_H
#define ATOLL_PASSES_TRAIN_PARTS_H

#include "train_step.h"

struct step {
    const struct train_options *o;
    struct graph *g;
    struct notes *notes;
    struct arena *scratch;
    value *params, *grads; /* those the loss depends on */
    uint32_t *places;      /* where each stands among all parameters */
    uint32_t n;
    value scale, is_last, is_finite, accept; /* 0: no scaler, no accumulation, no test, always */
    value first_nonfinite, norm, bound;
    value loss, terms, n_terms; /* terms: output loss_count; n_terms: those of the window */
    bool is_fp8;                /* nonfinite gradients always skip the step */
    value count, rate;          /* accepted steps so far, learning rate of this step */
};

/* A scalar leaf with its first value. */
value step_scalar(struct step *s, enum op op, const char *name, enum dtype t, double init);
/* A state tensor beside parameter i: "opt.m.NAME". Moments of low-precision parameters are f32. */
value step_moment(struct step *s, uint32_t i, const char *prefix);
/* old <- fresh, when the step is accepted. */
void step_keep(struct step *s, value old, value fresh);
/* Updates parameters, moments and the step count from s->grads at s->rate. */
void step_optimize(struct step *s);

static inline value op2(struct step *s, enum op op, value a, value b)
{
    return graph_op2(s->g, op, a, b);
}
static inline value number(struct step *s, double x)
{
    return graph_number(s->g, x);
}

#endif
