/* What a training step does: optimizer, schedule, clipping, loss scaling, accumulation.
 *
 *     struct train_options o = train_options_default();
 *     TRY(train_options_parse(&o, "adamw,lr=1e-3,beta1=0.9", "warmup,10+cosine,100", e));
 *     o.max_norm = 1.0;
 *     struct pass_options p = {.train = &o};
 *     TRY(train_step_pass(in, out, &p, notes));
 */
#ifndef ATOLL_PASSES_TRAIN_STEP_H
#define ATOLL_PASSES_TRAIN_STEP_H

#include "pass.h"

enum optimizer_kind { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD, OPTIMIZER_LION };
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

/* Learning rate by accepted steps k, in closed form: warm-up rises linearly from start to end times
 * lr over `warmup` steps; what follows counts its own steps from there. */
struct schedule {
    enum schedule_kind kind;
    int64_t step_size; /* STEP: lr gamma^floor(k / step_size) */
    double gamma;
    int64_t t_max; /* COSINE: eta_min + (lr - eta_min)(1 + cos(pi k / t_max)) / 2 */
    double eta_min;
    int64_t warmup; /* 0: none */
    double warmup_start, warmup_end;
};

/* Dynamic loss scaling: double after `interval` finite steps, halve after an overflow. */
struct scaler {
    bool is_enabled;
    double init, growth, backoff, floor, ceiling;
    int64_t interval;
};

/* How a parameter is kept between steps. bf16 alone would lose every update below half an ulp, 2^-9
 * of a weight. */
enum param_form {
    PARAM_F32,             /* as the model has it */
    PARAM_BF16_STOCHASTIC, /* bf16; each update is rounded up or down at random, right on average */
    PARAM_BF16_REMAINDER   /* bf16 and the other 16 bits of the f32: the f32 run, bit for bit */
};

/* Parameters whose name matches (* and ?); the last rule that matches wins. */
struct param_rule {
    const char *pattern;
    enum param_form form;
};

struct train_options {
    enum optimizer_kind optimizer;
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening;
    bool is_nesterov, is_maximize;
    struct schedule schedule;
    double max_norm; /* 0: no clipping */
    struct scaler scaler;
    int64_t accumulate;     /* micro-batches a step; 1: none. Their mean losses count alike; a model
                             * whose     loss is a sum says of how many terms by an output loss_count */
    bool skips_nonfinite;   /* without a scaler too */
    bool allows_low_params; /* f16 or bf16 parameters, rounded to nearest at each update */
    const struct param_rule *param_rules; /* lent; none: all as the model has them */
    uint32_t n_param_rules;
    int64_t rounding_seed; /* of bf16-stochastic; 0 to 2^31 */
};

/* AdamW, lr 1e-3, betas 0.9 0.999, eps 1e-8, weight decay 1e-2; no schedule, clip or scaler;
 * scaler 65536, 2, 0.5, 2000. */
struct train_options train_options_default(void);
/* optimizer: "adamw,lr=1e-3", "adam,beta1=0.8", "sgd,lr=0.1,momentum=0.9,nesterov", "lion,lr=1e-4";
 * schedule: "none", "step,50,0.5", "cosine,100,eta_min=1e-5", "warmup,10",
 * "warmup,10,start=0.1+step,50". A form sets all that it could name, the rest of it to its default;
 * NULL or "" leaves it as it is.
 */
status train_options_parse(struct train_options *o, const char *optimizer, const char *schedule,
                           struct error *e);
/* "bf16-remainder" for all parameters, or PATTERN=FORM, comma-separated:
 * "*=bf16-stochastic,b?=f32". Rules are allocated in `keep`. NULL or "": none. */
status train_params_parse(struct train_options *o, const char *text, struct arena *keep,
                          struct error *e);
/* How the parameter of that name is kept. */
enum param_form train_param_form(const struct train_options *o, const char *name);
/* The learning rate, f64, after k accepted steps (f64). */
value train_schedule(struct graph *g, const struct schedule *c, value base, value k);
status train_options_check(const struct train_options *o, struct error *e);

#endif
