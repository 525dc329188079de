/* Training a captured model: the whole step (loss scaling, backward, clipping, optimizer, schedule)
 * is one graph, compiled once; a step makes no decision on the host. The bits are those of
 * `atoll train` with the same settings, eager and fused alike.
 *
 *     atoll_training *training = NULL;
 *     atoll_training_options options = {.policy = "bf16", .optimizer = "adamw,lr=1e-3", .seed = 1};
 *     atoll_training_open(trace, &options, &training, &error);
 *     for each batch of n rows {
 *         atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(n, 64), pixels);
 *         atoll_view y = atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(n), labels);
 *         atoll_training_feed(training, &x, &error);
 *         atoll_training_feed(training, &y, &error);
 *         atoll_training_step(training, &error);
 *     }
 *     printf("%g\n", atoll_training_number(training, "loss"));
 *     atoll_training_save(training, "end.safetensors", &error);
 *     atoll_training_close(training);
 *
 * The error record may be checked at the end: a call whose record holds a failure does nothing.
 * The environment variables of the command line hold here (docs/cli.md): ATOLL_CACHE, ATOLL_CC, ...
 * A training and what it lends belong to one thread at a time; different ones are independent. */
#ifndef ATOLL_TRAIN_H
#define ATOLL_TRAIN_H

#include "atoll/atoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise; what is left out has the default of `atoll train`. docs/training.md says what
 * the texts may be. */
typedef struct atoll_training_options {
    const char *policy;    /* "fp32", "bf16", "fp16", ... (docs/precision.md) */
    const char *optimizer; /* "adamw,lr=1e-3" */
    const char *schedule;  /* "step,50,0.5" */
    const char *params;    /* how they are kept: "f32", "bf16-stochastic", "bf16-remainder", or by
                              name: "*=bf16-stochastic,b?=f32" */
    double clip;           /* global norm of the gradients; 0: no clipping */
    int64_t accumulate;    /* micro-batches a step; 0: 1 */
    const char *scaler;    /* "auto" (on for fp16), "on", "off" */
    const char *device;    /* "cpu", "cuda:N" */
    uint64_t seed;         /* of the first values; `atoll train` takes 1 where none is given */
    int is_eager;          /* one op at a time: the same bits, no compiler */
    int is_relaxed;        /* rounding: values stay wide inside a kernel (docs/numerics.md) */
    int allows_tf32;
    int is_forward; /* no training step: the model's outputs alone, for evaluation */
} atoll_training_options;

typedef struct atoll_training atoll_training;

/* Builds and compiles the step of a model with an output "loss" (a scalar; any outputs with
 * is_forward). The trace stays yours and may go. Where there is no compiler it runs eagerly, and
 * atoll_training_notice says so. Statuses: the trace's first error; USAGE (an option), VERIFY,
 * DTYPE, ... (the model cannot be trained), OUT_OF_MEMORY, DEVICE. */
atoll_status atoll_training_open(atoll_trace *trace, const atoll_training_options *options,
                                 atoll_training **out, atoll_error *error);
/* NULL is accepted. */
void atoll_training_close(atoll_training *training);
/* One line about what went another way than asked; NULL: nothing did. Lent until the close. */
const char *atoll_training_notice(const atoll_training *training);

/* Copies an input's data; symbolic sizes take their value from its shape. NOT_FOUND (the names
 * there are), SHAPE. */
atoll_status atoll_training_feed(atoll_training *training, const atoll_view *input,
                                 atoll_error *error);
/* The same for the next step: on a device the data travels while the last step still runs. Call it
 * between a step and the first look at what it gave; outputs stay as they are. The next step takes
 * it. NOT_FOUND, SHAPE, OUT_OF_MEMORY, DEVICE. */
atoll_status atoll_training_prefetch(atoll_training *training, const atoll_view *input,
                                     atoll_error *error);
/* Sets a scalar (lr, beta1, ...) for the next steps; no recompile. NOT_FOUND. */
atoll_status atoll_training_set(atoll_training *training, const char *name, double number,
                                atoll_error *error);
/* One step on what was fed. USAGE when an input never was; DATA when an index lies outside. */
atoll_status atoll_training_step(atoll_training *training, atoll_error *error);

/* An output of the last step, lent until the next call that feeds or steps. Beside the model's own
 * there are accepted, skipped, and more (docs/training.md). NOT_FOUND. */
atoll_status atoll_training_output(atoll_training *training, const char *name, atoll_view *out,
                                   atoll_error *error);
/* Its first element; NaN when there is none. */
double atoll_training_number(atoll_training *training, const char *name);
/* Parameters, buffers and state (opt.m.NAME, ...) to read or to write between steps: by name, or by
 * index from 0. NOT_FOUND. */
atoll_status atoll_training_state(atoll_training *training, const char *name, atoll_view *out,
                                  atoll_error *error);
uint32_t atoll_training_state_count(const atoll_training *training);
atoll_status atoll_training_state_at(atoll_training *training, uint32_t index, atoll_view *out,
                                     atoll_error *error);
/* Copies every parameter, buffer and state that both have: a model to evaluate takes those of the
 * one in training. */
void atoll_training_copy(atoll_training *to, atoll_training *from);

/* Checkpoints, as atoll_plan_save and `atoll train --save` write them: going on from one gives the
 * bits of never having stopped. */
atoll_status atoll_training_save(atoll_training *training, const char *path, atoll_error *error);
atoll_status atoll_training_load(atoll_training *training, const char *path, atoll_error *error);
/* Steps done, those before a checkpoint included. */
int64_t atoll_training_steps(const atoll_training *training);
/* Most bytes of intermediates alive at once, so far. */
size_t atoll_training_peak_bytes(const atoll_training *training);

#ifdef __cplusplus
}
#endif

#endif
