/* Training steps of a model over its data with every value in sight: what the commands that
 * diagnose a run share. */
#ifndef ATOLL_CLI_STEPS_H
#define ATOLL_CLI_STEPS_H

#include "cli.h"
#include "frontend/trace.h"

/* Options that steps_open reads. */
#define STEPS_OPTIONS                                                                              \
    {"data", "FILE", "CSV(.gz), NPY, NPZ or safetensors with x and y"},                            \
        {"policy", "P", "precision policy (default fp32)"},                                        \
        {"optimizer", "TEXT", "adamw, adam, sgd or lion with settings"},                           \
        {"params", "FORM",                                                                         \
         "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},       \
        {"schedule", "TEXT", "learning-rate schedule"},                                            \
        {"clip", "NORM", "clip gradients to this global norm"},                                    \
        {"accumulate", "K", "micro-batches a step"},                                               \
        {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},                            \
        {"shape", "n=64", "fix symbols to numbers"}, {"batch", "N", "rows a step (default 64)"},   \
        {"epochs", "N", "passes over the data (default 1)"},                                       \
        {"steps", "N", "stop after so many steps"},                                                \
        {"device", "D", "cpu, or cuda:N (default cpu)"},                                           \
        {"tf32", NULL, "let f32 matrix products of the device round their operands to TF32"},      \
        {"seed", "N", "seed of parameters and shuffling (default 1)"},                             \
        {"no-shuffle", NULL, "take rows in file order"},                                           \
        {"holdout", "SHARE", "share of rows kept for the test (default 0.2)"},                     \
        {"scale", "X", "factor on the features: a number or A/B"}, READ_OPTION,                    \
        {"label", "COLUMN", "CSV label column"},                                                   \
        {"resume", "FILE", "start from a checkpoint's parameters and state"},                      \
    {                                                                                              \
        "eager", NULL, "one op at a time instead of fused kernels"                                 \
    }

struct steps {
    struct job job;
    struct runner runner;
    struct split split;
    int64_t batch, epochs, max_steps;
    /* the step under way, from 1; its epoch, from 1; its rows of the epoch's order */
    int64_t step, epoch, row, rows;
    struct recording trace; /* of the last step */
};

/* Everything but the steps; steps_close in either case. */
status steps_open(struct steps *s, const struct arguments *a, struct context *c, struct error *e);
/* Each step traced, then looked at; look sets *is_done to stop. */
typedef void steps_look(void *context, struct steps *s, bool *is_done);
status steps_run(struct steps *s, steps_look *look, void *context, struct error *e);
void steps_close(struct steps *s);

#endif
