/* Trains the digits model, built by calls, for some epochs of 64 rows in file order, the last
 * batch of an epoch with what is left. The checkpoint has the bytes of
 * atoll train examples/digits.graph --no-shuffle --holdout 0 with the same settings.
 *     atoll data examples/data/digits.csv.gz --scale 1/16 --npy digits
 *     training_loop digits_x.npy digits_y.npy bf16 3 end.safetensors [eager] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/train.h"
#include "npy.h"

enum { BATCH = 64, PIXELS = 64, HIDDEN = 128, CLASSES = 10 };

static atoll_value dense(atoll_trace *t, atoll_value x, const char *weight, const char *bias,
                         int64_t n_in, int64_t n_out)
{
    atoll_value w = atoll_param(t, weight, ATOLL_F32, ATOLL_DIMS(n_out, n_in), NULL);
    atoll_value b = atoll_param(t, bias, ATOLL_F32, ATOLL_DIMS(n_out), NULL);
    return atoll_linear(x, w, b);
}

static atoll_trace *build_model(void)
{
    atoll_trace *t = atoll_trace_create("digits");
    int64_t n = atoll_symbol(t, "n");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, PIXELS));
    atoll_value y = atoll_input(t, "y", ATOLL_I64, ATOLL_DIMS(n));
    atoll_value h = atoll_gelu(dense(t, x, "w1", "b1", PIXELS, HIDDEN));
    h = atoll_relu(dense(t, h, "w2", "b2", HIDDEN, HIDDEN));
    atoll_value logits = dense(t, h, "w3", "b3", HIDDEN, CLASSES);
    atoll_output(t, "loss", atoll_cross_entropy(logits, y));
    atoll_output(t, "right", atoll_mean(atoll_cast(atoll_eq(atoll_argmax(logits), y), ATOLL_F32)));
    return t;
}

struct data {
    float *x;
    int64_t *y, rows;
};

static void run_epoch(atoll_training *training, const struct data *d, atoll_error *error)
{
    for (int64_t row = 0; row < d->rows && error->code == ATOLL_OK; row += BATCH) {
        int64_t n = d->rows - row < BATCH ? d->rows - row : BATCH;
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(n, PIXELS), d->x + row * PIXELS);
        atoll_view y = atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(n), d->y + row);
        atoll_training_feed(training, &x, error);
        atoll_training_feed(training, &y, error);
        atoll_training_step(training, error);
    }
}

/* The share of rows that the trained model gets right, by a model without a training step. */
static double evaluate(atoll_trace *model, atoll_training *trained, const struct data *d,
                       const char *policy, atoll_error *error)
{
    atoll_training *forward = NULL;
    atoll_training_options options = {.policy = policy, .is_forward = 1, .is_eager = 1};
    double right = 0.0;
    if (atoll_training_open(model, &options, &forward, error) == ATOLL_OK) {
        struct data all = *d;
        atoll_view x = atoll_view_of("x", ATOLL_F32, ATOLL_DIMS(all.rows, PIXELS), all.x);
        atoll_view y = atoll_view_of("y", ATOLL_I64, ATOLL_DIMS(all.rows), all.y);
        atoll_training_copy(forward, trained);
        atoll_training_feed(forward, &x, error);
        atoll_training_feed(forward, &y, error);
        atoll_training_step(forward, error);
        right = atoll_training_number(forward, "right");
    }
    atoll_training_close(forward);
    return right;
}

static void train(const struct data *d, char **argv, int is_eager, atoll_error *error)
{
    atoll_trace *model = build_model();
    atoll_training *training = NULL;
    atoll_training_options options = {.policy = argv[3], .seed = 1, .is_eager = is_eager};
    long epochs = strtol(argv[4], NULL, 10);
    if (atoll_training_open(model, &options, &training, error) == ATOLL_OK) {
        if (atoll_training_notice(training) != NULL) {
            fprintf(stderr, "training_loop: %s\n", atoll_training_notice(training));
        }
        for (long epoch = 0; epoch < epochs && error->code == ATOLL_OK; epoch++) {
            run_epoch(training, d, error);
            printf("epoch %ld  step %lld  loss %.6f\n", epoch + 1,
                   (long long)atoll_training_steps(training),
                   atoll_training_number(training, "loss"));
        }
        atoll_training_save(training, argv[5], error);
        printf("right %.4f\n", evaluate(model, training, d, argv[3], error));
    }
    atoll_training_close(training);
    atoll_trace_destroy(model);
}

int main(int argc, char **argv)
{
    atoll_error error = {0};
    int64_t size[2] = {0}, labels[2] = {0};
    if (argc < 6) {
        fprintf(stderr, "usage: training_loop FEATURES.npy LABELS.npy POLICY EPOCHS CHECKPOINT "
                        "[eager]\n");
        return 2;
    }
    struct data d = {.x = read_npy(argv[1], sizeof(float), size),
                     .y = read_npy(argv[2], sizeof(int64_t), labels)};
    d.rows = size[0];
    if (d.x == NULL || d.y == NULL || size[1] != PIXELS || labels[0] != d.rows) {
        fprintf(stderr, "training_loop: expected features [rows, %d] and as many labels\n", PIXELS);
        error.code = ATOLL_DATA;
    } else {
        train(&d, argv, argc > 6 && strcmp(argv[6], "eager") == 0, &error);
        fprintf(stderr, error.code != ATOLL_OK ? "training_loop: %s\n" : "%s", error.text);
    }
    free(d.x);
    free(d.y);
    return error.code != ATOLL_OK ? 3 : 0;
}
