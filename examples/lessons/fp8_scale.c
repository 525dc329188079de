/* FP8 needs a scale: small numbers vanish, large ones saturate. The scale that takes the largest
 * magnitude to the largest number of the format, 448, keeps most. */
#include "lesson.h"

enum { N = 256 };

/* x times scale to f8e4m3, saturating, and back. */
static atoll_trace *quantized(void)
{
    atoll_trace *t = atoll_trace_create("quantized");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(N));
    atoll_value scale = atoll_scalar(t, "scale", ATOLL_F32, 1.0);
    atoll_value q = atoll_cast(atoll_mul(x, scale), ATOLL_F8E4M3, .saturate = true);
    atoll_value back = atoll_div(atoll_cast(q, ATOLL_F32), scale);
    atoll_value error = atoll_div(atoll_norm(atoll_sub(back, x)), atoll_norm(x));
    atoll_value zero = atoll_eq(q, atoll_number(t, 0.0));
    atoll_value top = atoll_eq(atoll_abs(q), atoll_number(t, 448.0));
    atoll_output(t, "error", error);
    atoll_output(t, "zeros", atoll_sum(atoll_cast(zero, ATOLL_F32)));
    atoll_output(t, "at_top", atoll_sum(atoll_cast(top, ATOLL_F32)));
    return t;
}

struct loss {
    double error, zeros, at_top;
};

static struct loss at(atoll_training *m, double scale)
{
    atoll_error error = {0};
    atoll_training_set(m, "scale", scale, &error);
    check(&error);
    step(m);
    struct loss l = {atoll_training_number(m, "error"), atoll_training_number(m, "zeros"),
                     atoll_training_number(m, "at_top")};
    printf("scale %-10g relative error %-10.4g zeros %-4g at 448 %g\n", scale, l.error, l.zeros,
           l.at_top);
    return l;
}

int main(void)
{
    float x[N];
    for (int i = 0; i < N; i++) { /* magnitudes from 1e-5 to 9e-4, both signs */
        x[i] = (float)(1e-5 * pow(90.0, i / (N - 1.0)) * (i % 2 == 0 ? 1.0 : -1.0));
    }
    atoll_training *m = open_model(quantized(), (atoll_training_options){.is_forward = 1});
    feed(m, "x", ATOLL_DIMS(N), x);
    struct loss none = at(m, 1.0), fits = at(m, 448.0 / 9e-4), too_much = at(m, 10 * 448.0 / 9e-4);
    claim(none.zeros == N, "without a scale every number is 0");
    claim(fits.zeros == 0.0 && fits.error < 0.04,
          "with 448 / amax none is, and the error is that of 3 bits");
    claim(too_much.at_top > 120.0 && too_much.error > 0.5,
          "a scale 10 times larger saturates half of them, and nothing says so");
    atoll_training_close(m);
    return 0;
}
