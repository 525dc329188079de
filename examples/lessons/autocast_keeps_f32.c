/* A bf16 policy lowers what is computed, not what is kept: parameters are f32 and get f32
 * gradients. With beta1 = 0 Adam's first moment is the gradient itself, so it can be looked at. */
#include "lesson.h"

static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("model");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(2, 4));
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(3, 4), "normal:0.5");
    atoll_value y = atoll_linear(x, w);
    atoll_output(t, "loss", atoll_sum(atoll_mul(y, y)));
    atoll_output(t, "y", y);
    return t;
}

/* Numbers of an f32 tensor that bf16 could not hold. */
static int beyond_bf16(atoll_view v)
{
    int n = 0;
    for (size_t i = 0; i < v.bytes / 4; i++) {
        uint32_t bits;
        memcpy(&bits, (char *)v.data + 4 * i, sizeof bits);
        n += (bits & 0xffffU) != 0;
    }
    return n;
}

int main(void)
{
    float x[8] = {0.1F, -0.2F, 0.3F, 0.7F, 1.1F, 0.9F, -0.4F, 0.6F};
    atoll_error error = {0};
    atoll_view y;
    atoll_training *m = open_model(
        model(), (atoll_training_options){.policy = "bf16", .optimizer = "adam,beta1=0,lr=1e-3"});
    feed(m, "x", ATOLL_DIMS(2, 4), x);
    step(m);
    atoll_training_output(m, "y", &y, &error);
    check(&error);
    claim(strcmp(y.dtype, "bf16") == 0, "the product is bf16");
    claim(strcmp(state(m, "w").dtype, "f32") == 0, "the parameter is f32");
    claim(strcmp(state(m, "opt.m.w").dtype, "f32") == 0, "so is its gradient, and its moments");
    step(m);
    claim(beyond_bf16(state(m, "w")) > 6, "and the updates it takes are below bf16's steps");
    atoll_training_close(m);
    return 0;
}
