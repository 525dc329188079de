/* A model stepped through the engine: each call names the sizes of its symbols and gets a runner
 * whose plan holds for them; parameters and state go from runner to runner. */
#ifndef ATOLL_CLI_STEPPER_H
#define ATOLL_CLI_STEPPER_H

#include "cli.h"
#include "frontend/callable.h"

struct stepper {
    struct arena arena;
    const struct graph *model; /* lent; its symbols are what a call sets */
    struct compile_options compile;
    uint64_t seed;
    struct key key;
    struct callable *callable;
    struct runner *current; /* holds the state; NULL before the first call */
    struct called called;   /* of it */
    struct runner *eager;   /* for calls without a plan; NULL: none yet */
};

/* model and what job points to outlive it. path: the model's file, for lines of its values; text:
 * what it holds. NULL: unknown. */
status stepper_open(struct stepper *s, const char *path, const char *text, struct graph *model,
                    const struct job *job, const struct callable_options *o, struct error *e);
void stepper_close(struct stepper *s);
/* A runner bound to these sizes, by symbol of the model; valid until the next call. */
status stepper_call(struct stepper *s, const int64_t *sizes, struct runner **out, struct error *e);

#endif
