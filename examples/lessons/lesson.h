/* What the lessons share: a claim is printed and must hold, a failing call ends the program with
 * its line. */
#ifndef ATOLL_LESSON_H
#define ATOLL_LESSON_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/train.h"

static inline void claim(bool holds, const char *text)
{
    printf("%s  %s\n", holds ? "holds" : "FAILS", text);
    if (!holds) {
        exit(1);
    }
}

static inline void check(const atoll_error *error)
{
    if (error->code != ATOLL_OK) {
        fprintf(stderr, "%s\n", error->text);
        exit(1);
    }
}

/* The model is handed over. */
static inline atoll_training *open_model(atoll_trace *model, atoll_training_options options)
{
    atoll_error error = {0};
    atoll_training *t = NULL;
    atoll_training_open(model, &options, &t, &error);
    check(&error);
    atoll_trace_destroy(model);
    return t;
}

static inline void feed(atoll_training *t, const char *name, atoll_dims shape, float *data)
{
    atoll_error error = {0};
    atoll_view v = atoll_view_of(name, ATOLL_F32, shape, data);
    atoll_training_feed(t, &v, &error);
    check(&error);
}

static inline void step(atoll_training *t)
{
    atoll_error error = {0};
    atoll_training_step(t, &error);
    check(&error);
}

static inline atoll_view state(atoll_training *t, const char *name)
{
    atoll_error error = {0};
    atoll_view v;
    atoll_training_state(t, name, &v, &error);
    check(&error);
    return v;
}

/* The first number of an f32 state. */
static inline float state_number(atoll_training *t, const char *name)
{
    float number;
    memcpy(&number, state(t, name).data, sizeof number);
    return number;
}

#endif
