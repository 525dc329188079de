/* A step whose gradients overflow is skipped whole: no parameter, no moment, no step count, no
 * place in the schedule moves; the scale halves, and the next step is taken. */
#include "lesson.h"

enum { N = 4 };

static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("model");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(1, N));
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(1, N), "ones");
    atoll_value y = atoll_sum(atoll_linear(x, w));
    atoll_output(t, "loss", atoll_mul(y, atoll_number(t, 0.25))); /* gradients are x / 4 */
    return t;
}

int main(void)
{
    float small[N] = {0.25F, 0.5F, -0.25F, 0.125F}, large[N] = {8.0F, 0.5F, -0.25F, 0.125F};
    float before[N];
    atoll_training *m = open_model(model(), (atoll_training_options){.policy = "fp16",
                                                                     .optimizer = "adamw,lr=0.01",
                                                                     .schedule = "step,1,0.5"});
    feed(m, "x", ATOLL_DIMS(1, N), small);
    step(m);
    claim(atoll_training_number(m, "accepted") == 1.0, "gradients times 65536 fit f16: accepted");
    claim(atoll_training_number(m, "lr") == 0.01, "at the schedule's first rate");
    memcpy(before, state(m, "w").data, sizeof before);
    float moment = state_number(m, "opt.m.w"), scale = state_number(m, "scaler.scale");
    int64_t count = *(int64_t *)state(m, "opt.step").data;

    feed(m, "x", ATOLL_DIMS(1, N), large); /* 8 / 4 * 65536 is beyond 65504 */
    step(m);
    claim(atoll_training_number(m, "skipped") == 1.0, "8 / 4 times 65536 does not: skipped");
    claim(memcmp(before, state(m, "w").data, sizeof before) == 0, "no parameter moved");
    claim(state_number(m, "opt.m.w") == moment, "no moment moved");
    claim(*(int64_t *)state(m, "opt.step").data == count, "no step was counted");
    claim(atoll_training_number(m, "first_nonfinite") == 0.0, "the gradient at fault is named");
    claim(state_number(m, "scaler.scale") == scale / 2.0F, "the scale is half of what it was");

    feed(m, "x", ATOLL_DIMS(1, N), small);
    step(m);
    claim(atoll_training_number(m, "accepted") == 2.0, "the next step is taken");
    claim(atoll_training_number(m, "lr") == 0.005, "at the schedule's second rate, not the third");
    atoll_training_close(m);
    return 0;
}
