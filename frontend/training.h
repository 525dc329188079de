/* What the public calls on a training share: atoll/train.h (training.c) and atoll/debug.h
 * (debug.c). */
#ifndef ATOLL_FRONTEND_TRAINING_H
#define ATOLL_FRONTEND_TRAINING_H

#include "atoll/train.h"
#include "frontend/context.h"
#include "frontend/nonfinite.h"
#include "frontend/ranges.h"
#include "frontend/runner.h"

struct atoll_training {
    struct context context;
    struct train_options train;
    struct compile_options compile;
    struct runner runner;
    struct arena arena; /* of the options */
    bool *is_fed;       /* by node id */
    int64_t steps;
    bool has_stepped;
    char notice[1100]; /* "": none */
    struct {
        struct recording trace; /* of the last step that was recorded; n 0: none */
        struct ranges ranges;   /* over all of them */
        struct nonfinite found;
    } debug;
};

/* Runs one call from a recovery point of its own; an error record that holds a failure, and a
 * training that is NULL, are left as they are. */
typedef status training_call(atoll_training *t, void *what, struct error *e);
atoll_status training_guarded(atoll_training *t, training_call *call, void *what,
                              atoll_error *error);
/* USAGE when an input never was fed. */
status training_is_fed(const atoll_training *t, struct error *e);

#endif
