/* The loop over batches of train, with a trace of each step. */
#include "steps.h"

status steps_open(struct steps *s, const struct arguments *a, struct context *c, struct error *e)
{
    const char *from = argument(a, "resume", NULL);
    int64_t seed, begun;
    TRY(argument_whole(a, "batch", 64, 1, 1000000000, &s->batch, e));
    TRY(argument_whole(a, "epochs", 1, 1, 1000000000, &s->epochs, e));
    TRY(argument_whole(a, "steps", INT64_MAX, 1, MAX_SEED, &s->max_steps, e));
    TRY(argument_whole(a, "seed", 1, 0, MAX_SEED, &seed, e));
    TRY(split_open(&s->split, a, (uint64_t)seed, e));
    TRY(job_open_lines(&s->job, a->positional[0], a, c, e));
    TRY(job_policy(&s->job, argument(a, "policy", "fp32"), a, e));
    s->job.compile.is_eager = argument_flag(a, "eager");
    s->job.compile.keeps_values = true;
    TRY(of_model(runner_open(&s->runner, s->job.model, &s->job.compile, s->job.seed, e), e));
    TRY(split_check(&s->split, runner_graph(&s->runner), e));
    TRY(split_check_rows(&s->split, &s->job, s->batch, s->epochs, s->max_steps, e));
    return from != NULL ? runner_load(&s->runner, from, &begun, e) : ATOLL_OK;
}

static status one_step(struct steps *s, struct error *e)
{
    struct tensor x, y;
    split_batch(&s->split, s->row, s->rows, &x, &y);
    TRY(batch_feed(&s->runner, &x, &y, e));
    recording_free(&s->trace);
    return trace_step(&s->trace, &s->runner, e);
}

status steps_run(struct steps *s, steps_look *look, void *context, struct error *e)
{
    bool is_done = false;
    for (s->epoch = 1; s->epoch <= s->epochs; s->epoch++) {
        split_epoch(&s->split, s->epoch - 1);
        for (s->row = 0; s->row < s->split.n_train; s->row += s->batch) {
            int64_t left = s->split.n_train - s->row;
            s->rows = left < s->batch ? left : s->batch;
            s->step++;
            TRY(one_step(s, e));
            look(context, s, &is_done);
            if (is_done || s->step == s->max_steps) {
                return ATOLL_OK;
            }
        }
    }
    return ATOLL_OK;
}

void steps_close(struct steps *s)
{
    recording_free(&s->trace);
    runner_free(&s->runner);
    split_close(&s->split);
    job_close(&s->job);
}
