/* One infinity in a gradient spoils a norm, a clip and every parameter. The step says which
 * gradient was the first, and without a finite norm it changes nothing. */
#include "lesson.h"

/* Gradients of a, b, c: x, 1 / (2 sqrt(b)), x. At b = 0 the second is infinite. */
static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("model");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(3));
    atoll_value a = atoll_param(t, "a", ATOLL_F32, ATOLL_DIMS(3), "ones");
    atoll_value b = atoll_param(t, "b", ATOLL_F32, ATOLL_DIMS(3), "ones");
    atoll_value c = atoll_param(t, "c", ATOLL_F32, ATOLL_DIMS(3), "ones");
    atoll_value sum = atoll_add(atoll_mul(a, x), atoll_add(atoll_sqrt(b), atoll_mul(c, x)));
    atoll_output(t, "loss", atoll_sum(sum));
    return t;
}

int main(void)
{
    float x[3] = {1.0F, 2.0F, 3.0F};
    atoll_training *m =
        open_model(model(), (atoll_training_options){.optimizer = "sgd,lr=0.1", .clip = 1.0});
    feed(m, "x", ATOLL_DIMS(3), x);
    step(m);
    claim(atoll_training_number(m, "first_nonfinite") == -1.0, "all gradients are finite: -1");
    float a = state_number(m, "a");
    ((float *)state(m, "b").data)[2] = 0.0F;
    step(m);
    claim(isfinite(atoll_training_number(m, "loss")), "the loss of the bad step looks good");
    claim(isinf(atoll_training_number(m, "grad_norm")), "its gradient norm is infinite");
    claim(atoll_training_number(m, "first_nonfinite") == 1.0, "parameter 1, b, was the first");
    claim(state_number(m, "a") == a && atoll_training_number(m, "skipped") == 1.0,
          "and no parameter moved");
    atoll_training_close(m);
    return 0;
}
