/* An epsilon that the dtype cannot hold guards nothing: 1e-8 is 0 in f16, and 0 / (0 + 0) is NaN.
 * The island: the same lines in f32, cast back behind. */
#include "lesson.h"

/* x / (|x| + 1e-8), each op in `dtype`. */
static atoll_trace *normalized(atoll_dtype dtype)
{
    atoll_trace *t = atoll_trace_create("normalized");
    atoll_value x = atoll_cast(atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(4)), dtype);
    atoll_value eps = atoll_cast(atoll_scalar(t, "eps", ATOLL_F32, 1e-8), dtype);
    atoll_value y = atoll_div(x, atoll_add(atoll_abs(x), eps));
    atoll_output(t, "eps", eps);
    atoll_output(t, "y", atoll_cast(y, ATOLL_F16));
    return t;
}

static float *run(atoll_training *m, float result[5])
{
    atoll_error error = {0};
    atoll_view y, eps;
    float x[4] = {0.0F, 1.0F, -2.0F, 1e-4F};
    feed(m, "x", ATOLL_DIMS(4), x);
    step(m);
    atoll_training_output(m, "y", &y, &error);
    atoll_training_output(m, "eps", &eps, &error);
    check(&error);
    for (int i = 0; i < 4; i++) { /* f16: NaN, or 1 and its like; only these are looked at */
        uint16_t half;
        memcpy(&half, (char *)y.data + 2 * i, sizeof half);
        result[i] = (half & 0x7fffU) > 0x7c00U ? NAN : (half & 0x8000U) != 0 ? -1.0F : 1.0F;
        result[i] = (half & 0x7fffU) == 0 ? 0.0F : result[i];
    }
    result[4] = (float)atoll_training_number(m, "eps");
    return result;
}

int main(void)
{
    float low[5], island[5];
    atoll_training *m =
        open_model(normalized(ATOLL_F16), (atoll_training_options){.is_forward = 1});
    run(m, low);
    atoll_training_close(m);
    m = open_model(normalized(ATOLL_F32), (atoll_training_options){.is_forward = 1});
    run(m, island);
    atoll_training_close(m);
    claim(low[4] == 0.0F, "in f16 the epsilon 1e-8 is 0");
    claim(isnan(low[0]), "so where x is 0 it guards nothing: 0 / 0 is NaN");
    claim(low[1] == 1.0F && low[2] == -1.0F, "and nobody sees it elsewhere");
    claim(island[4] > 0.0F && island[0] == 0.0F, "on an island of f32 it is there: 0, as meant");
    claim(island[1] == low[1] && island[2] == low[2], "with the same values elsewhere");
    return 0;
}
