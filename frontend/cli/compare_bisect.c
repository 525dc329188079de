/* compare --bisect: brings an eager runner to the step at which the runs part, then lets the
 * bisection repeat that one step. */
#include "compare_bisect.h"

struct batch {
    struct tensor x, y;
};

static status feed(void *context, struct runner *r, struct error *e)
{
    const struct batch *b = context;
    return batch_feed(r, &b->x, &b->y, e);
}

/* Batch number `step` (from 1) of the epochs in order, as the training loop takes them. */
static void take_batch(struct split *split, int64_t batch, int64_t step, struct batch *out)
{
    int64_t an_epoch = (split->n_train + batch - 1) / batch;
    int64_t row = (step - 1) % an_epoch * batch, left = split->n_train - row;
    split_epoch(split, (step - 1) / an_epoch);
    split_batch(split, row, left < batch ? left : batch, &out->x, &out->y);
}

status compare_bisect_fusion(struct job *j, struct split *split, int64_t batch, int64_t step,
                             struct bisect *out, struct error *e)
{
    struct runner before = {0};
    struct batch b;
    struct compile_options o = j->compile;
    o.is_eager = true;
    o.dump = NULL;
    status code = of_model(runner_open(&before, j->model, &o, j->seed, e), e);
    for (int64_t i = 1; i < step && code == ATOLL_OK; i++) {
        take_batch(split, batch, i, &b);
        code = feed(&b, &before, e);
        code = code == ATOLL_OK ? runner_step(&before, e) : code;
    }
    take_batch(split, batch, step, &b);
    code = code == ATOLL_OK
               ? bisect_fusion(j->model, &j->compile, j->seed, &before, feed, &b, out, e)
               : code;
    runner_free(&before);
    return code;
}

status compare_bisect_policy(struct job *j, struct split *split, int64_t batch, double tolerance,
                             struct bisect *out, struct error *e)
{
    struct batch b;
    take_batch(split, batch, 1, &b);
    return bisect_policy(j->model, &j->compile, j->seed, &b.x, &b.y, tolerance, out, e);
}
