/* A bf16 parameter loses each update below half the way to its neighbour. Rounded at random, the
 * updates are right on average; with the other 16 bits kept, none is lost at all. */
#include "lesson.h"

enum { N = 4096, STEPS = 64 };

/* Every gradient is 1: each step takes lr from each parameter. */
static atoll_trace *model(void)
{
    atoll_trace *t = atoll_trace_create("model");
    atoll_value p = atoll_param(t, "p", ATOLL_F32, ATOLL_DIMS(N), "ones");
    atoll_output(t, "loss", atoll_sum(p));
    return t;
}

static double mean_of(atoll_training *m)
{
    atoll_view p = state(m, "p");
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        uint16_t half;
        float number;
        memcpy(&half, (char *)p.data + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&number, &bits, sizeof number);
        sum += (double)number;
    }
    return sum / N;
}

int main(void)
{
    double found[2], wanted = 1.0 - STEPS * 0x1p-12;
    const char *const forms[] = {"bf16-stochastic", "bf16-remainder"};
    for (int k = 0; k < 2; k++) {
        atoll_training *m =
            open_model(model(), (atoll_training_options){.params = forms[k],
                                                         .optimizer = "sgd,lr=0.000244140625"});
        for (int i = 0; i < STEPS; i++) {
            step(m);
        }
        claim(strcmp(state(m, "p").dtype, "bf16") == 0, forms[k]);
        found[k] = mean_of(m);
        atoll_training_close(m);
    }
    printf("64 steps of 2^-12 from 1: %.6f wanted, %.6f at random, %.6f with remainder\n", wanted,
           found[0], found[1]);
    claim(0x1p-12 < 0x1p-9, "each update is an eighth of what nearest would need to move 1");
    claim(fabs(found[0] - wanted) < 0.0006, "at random: right on average");
    claim(found[1] == wanted, "with the remainder: exact");
    return 0;
}
