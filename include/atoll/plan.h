/* Stepping a compiled plan from plain C: no compiler, no Python.
 *
 *     atoll_error error = {0};
 *     atoll_plan *plan = NULL;
 *     if (atoll_plan_open("step.plan", &plan, &error) != ATOLL_OK) { puts(error.text); return 1; }
 *     float x[64 * 64]; int64_t y[64];
 *     atoll_plan_bind(plan, "x", x, (int64_t[]){64, 64}, 2, &error);
 *     atoll_plan_bind(plan, "y", y, (int64_t[]){64}, 1, &error);
 *     for (int i = 0; i < 100; i++) { fill x and y; atoll_plan_step(plan, &error); }
 *     printf("%g\n", atoll_plan_number(plan, "loss"));
 *     atoll_plan_close(plan);
 *
 * A plan holds native code: opening one runs it with your rights, so open only plans you trust.
 * `atoll inspect` reads a plan without running any of it. A plan and what it lends belong to one
 * thread at a time; different plans are independent. */
#ifndef ATOLL_PLAN_H
#define ATOLL_PLAN_H

#include "atoll/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct atoll_plan atoll_plan;

/* Reads, checks and loads a plan; *out is yours to close. NOT_FOUND, IO; FORMAT (no plan,
 * truncated), VERSION (made by another format version), CHECKSUM (damaged), UNSUPPORTED (made for
 * another processor), OUT_OF_MEMORY. */
atoll_status atoll_plan_open(const char *path, atoll_plan **out, atoll_error *error);
/* Where a plan runs. device: "cpu", "cuda" or "cuda:N"; paths of the CUDA driver, of cuBLASLt and
 * of NVRTC, NULL for the ones the loader finds. Zero-initialise. */
typedef struct atoll_place {
    const char *device;
    const char *libcuda, *libcublaslt;
    const char *libnvrtc; /* looked for only where the plan's own code does not run */
    int allows_tf32;      /* 1: f32 matrix products may round their operands to TF32 */
} atoll_place;
/* The same on a device. Inputs are copied at each step; outputs and state come back when asked for.
 * Where the plan has no code for the device, or its driver refuses that code, NVRTC compiles the
 * plan's graph again for it; a kernel that the driver still refuses runs one op at a time.
 * atoll_plan_notice then says why. Without NVRTC that is an error: UNSUPPORTED (no code for its
 * architecture), DEVICE (refused). NOT_FOUND: no driver, no such device. The environment counts as
 * on the command line (docs/cli.md) for that compilation alone. */
atoll_status atoll_plan_open_on(const char *path, const atoll_place *place, atoll_plan **out,
                                atoll_error *error);
/* One line about what went another way than the plan says; NULL: nothing did. Lent until the close.
 */
const char *atoll_plan_notice(const atoll_plan *plan);
/* NULL is accepted. */
void atoll_plan_close(atoll_plan *plan);

/* Makes `data` the memory of an input for the next steps: it stays yours and must stay valid. Its
 * dtype is the input's; shape must fit the plan's (symbolic sizes take their value from it).
 * NOT_FOUND (the names there are), SHAPE, OUT_OF_MEMORY. */
atoll_status atoll_plan_bind(atoll_plan *plan, const char *name, const void *data,
                             const int64_t *shape, uint32_t rank, atoll_error *error);
/* Copies an input of the next step: `data` is yours again when it returns, and on a device it
 * travels while the last step still runs. Call it between a step and the first look at what it
 * gave; outputs stay as they are. The next step takes it, and so do later ones until the input is
 * bound or prefetched again. NOT_FOUND, SHAPE, OUT_OF_MEMORY, DEVICE. */
atoll_status atoll_plan_prefetch(atoll_plan *plan, const char *name, const void *data,
                                 const int64_t *shape, uint32_t rank, atoll_error *error);
/* Sets a scalar (learning rate, ...) for the next steps; no recompile. NOT_FOUND. */
atoll_status atoll_plan_set(atoll_plan *plan, const char *name, double number, atoll_error *error);
/* Runs one step: outputs are new, parameters and state updated in place. USAGE when an input is not
 * bound. */
atoll_status atoll_plan_step(atoll_plan *plan, atoll_error *error);

/* An output of the last step; valid until the next step or bind. NOT_FOUND. */
atoll_status atoll_plan_output(atoll_plan *plan, const char *name, atoll_view *out,
                               atoll_error *error);
/* The first element of an output as a number; NaN when there is no such output. */
double atoll_plan_number(atoll_plan *plan, const char *name);
/* Parameters, buffers and state by name or by index (0 .. count-1), to read or to write between
 * steps; on a device ask again after each step. NOT_FOUND. */
atoll_status atoll_plan_state(atoll_plan *plan, const char *name, atoll_view *out,
                              atoll_error *error);
uint32_t atoll_plan_state_count(const atoll_plan *plan);
atoll_status atoll_plan_state_at(atoll_plan *plan, uint32_t index, atoll_view *out,
                                 atoll_error *error);

/* Checkpoints: every parameter, buffer and state as safetensors, written atomically; loading one
 * and going on gives the bits of never having stopped. Loading: DATA when a tensor is missing or of
 * another type; nothing is changed then. */
atoll_status atoll_plan_save(atoll_plan *plan, const char *path, atoll_error *error);
atoll_status atoll_plan_load(atoll_plan *plan, const char *path, atoll_error *error);

/* Bytes of intermediates alive at once, known when the sizes are bound, and of inputs, parameters
 * and state. */
size_t atoll_plan_peak_bytes(const atoll_plan *plan);
size_t atoll_plan_state_bytes(const atoll_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
