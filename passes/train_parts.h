/* What train_step.c and train_optimizers.c share: the step under construction. */
#ifndef ATOLL_PASSES_TRAIN_PARTS_H
#define ATOLL_PASSES_TRAIN_PARTS_H

#include "train_step.h"

/* A parameter that is kept as bf16. */
struct stored_param {
    enum param_form form;
    value leaf;    /* the bf16 param */
    bool is_whole; /* the model has it as f32; else as bf16, and it starts without a remainder */
    value read;    /* what the loss reads: its f32 value, or the leaf where the model has bf16 */
    value rest[2]; /* u8 states of the remainder, low byte first */
};
struct stored_params {
    struct stored_param *items;
    uint32_t n;
};

struct step {
    const struct train_options *o;
    struct graph *g;
    struct notes *notes;
    struct arena *scratch;
    value *params, *grads; /* those the loss depends on */
    uint32_t *places;      /* where each stands among all parameters */
    uint32_t n;
    struct stored_params *stored;
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
/* in -> out with the params that options keep as bf16 taken apart; list says which, in values of
 * out, and train_map_params in those of a copy. */
status train_store_params(const struct graph *in, struct graph *out, const struct train_options *o,
                          struct notes *notes, struct stored_params *list);
void train_map_params(struct stored_params *list, const value *map);
/* How parameter i is kept; NULL: as it is. */
struct stored_param *step_stored(const struct step *s, uint32_t i);
/* Parameter i as the optimizer takes it: f32 where it is kept as bf16. */
value step_wide(struct step *s, uint32_t i);
/* Parameter i <- fresh in the form it is kept in, when the step is accepted. */
void step_keep_param(struct step *s, uint32_t i, value fresh);
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
