/* Clipping a gradient that is still scaled bounds the wrong thing: with a scale of 1024 the step is
 * 1024 times too short. Here that does not compile: a value knows that it is scaled. */
#include "lesson.h"

enum { SCALE = 1024 };

/* The gradient of sum(p g) is g: scaled by S, clipped to norm 1, unscaled, in this order or the
 * right one. is_typed: scaled as a loss is; else by a bare product, which hides it. */
static atoll_trace *clipped(bool is_right, bool is_typed)
{
    atoll_trace *t = atoll_trace_create("clipped");
    atoll_value g = atoll_input(t, "g", ATOLL_F32, ATOLL_DIMS(2));
    atoll_value s = atoll_state(t, "scale", ATOLL_F32, ATOLL_SCALAR, "1024");
    atoll_value r = atoll_reciprocal(s), one = atoll_number(t, 1.0);
    atoll_value scaled = is_typed ? atoll_scale_loss(g, s) : atoll_mul(g, s);
    atoll_value v = scaled;
    if (is_right) {
        v = is_typed ? atoll_unscale(v, r) : atoll_mul(v, r);
    }
    atoll_value norm = atoll_norm(v, .axes = {0});
    v = atoll_clip_grad_norm(v, norm, one);
    if (!is_right) {
        v = is_typed ? atoll_unscale(v, r) : atoll_mul(v, r);
    }
    atoll_output(t, "length", atoll_norm(v));
    return t;
}

static double length_of(bool is_right, bool is_typed)
{
    float g[2] = {30.0F, 40.0F}; /* of length 50 */
    atoll_training *m =
        open_model(clipped(is_right, is_typed), (atoll_training_options){.is_forward = 1});
    feed(m, "g", ATOLL_DIMS(2), g);
    step(m);
    double length = atoll_training_number(m, "length");
    atoll_training_close(m);
    return length;
}

int main(void)
{
    atoll_error error = {0};
    atoll_training *m = NULL;
    atoll_training_options forward = {.is_forward = 1};
    atoll_trace *wrong = clipped(false, true);
    atoll_status code = atoll_training_open(wrong, &forward, &m, &error);
    printf("refused: %s\n", error.text);
    claim(code == ATOLL_VERIFY && m == NULL, "the wrong order does not compile");
    claim(strstr(error.text, "V023") != NULL, "by rule V023: clipping takes unscaled gradients");
    atoll_trace_destroy(wrong);

    double right = length_of(true, true), hidden = length_of(false, false);
    printf("length of the clipped gradient: %g in the right order, %g in the wrong one\n", right,
           hidden);
    claim(fabs(right - 1.0) < 1e-5, "unscaled first, the clipped gradient has length 1");
    claim(fabs(right / hidden - SCALE) < 0.1, "clipped first, it is 1024 times too short");
    return 0;
}
