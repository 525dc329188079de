/* What you feed is copied to pinned memory before the call returns, and travels while the step
 * before still runs: your own buffer is free at once, and writing to it changes nothing. */
#include "lesson.h"

enum { N = 64, STEPS = 6 };

static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("model");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(N));
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(N), "ones");
    atoll_value d = atoll_sub(atoll_mul(x, w), atoll_number(t, 3.0));
    atoll_output(t, "loss", atoll_sum(atoll_mul(d, d)));
    return t;
}

static void fill(float x[N], int which)
{
    for (int i = 0; i < N; i++) {
        x[i] = 0.01F * (float)((i * 7 + which * 3) % 23);
    }
}

/* Steps over batches; after each feed the buffer is overwritten, or a buffer of its own is kept. */
static void train(atoll_training *m, bool overwrites, float w[N])
{
    float kept[STEPS][N], one[N];
    for (int i = 0; i < STEPS; i++) {
        float *x = overwrites ? one : kept[i];
        fill(x, i);
        feed(m, "x", ATOLL_DIMS(N), x);
        if (overwrites) {
            for (int k = 0; k < N; k++) {
                x[k] = NAN;
            }
        }
        step(m); /* returns with the work under way; the next feed does not wait for it */
    }
    memcpy(w, state(m, "w").data, N * sizeof *w); /* reading waits */
}

int main(void)
{
    float a[N], b[N];
    atoll_error error = {0};
    atoll_training *m = NULL;
    atoll_training_options options = {.device = "cuda", .optimizer = "sgd,lr=0.01"};
    atoll_trace *t = model();
    if (atoll_training_open(t, &options, &m, &error) != ATOLL_OK) {
        printf("skipped: needs a CUDA device: %s\n", error.text);
        atoll_trace_destroy(t);
        return 77;
    }
    atoll_trace_destroy(t);
    train(m, false, a);
    atoll_training_close(m);
    m = open_model(model(), options);
    train(m, true, b);
    atoll_training_close(m);
    claim(memcmp(a, b, sizeof a) == 0, "buffers overwritten at once, the same bits");
    options.device = "cpu";
    m = open_model(model(), options);
    train(m, false, a);
    atoll_training_close(m);
    claim(memcmp(a, b, sizeof a) == 0, "and those of the CPU: no product of matrices is in it");
    return 0;
}
