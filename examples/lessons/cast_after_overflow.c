/* A cast behind an overflow comes too late: infinity is infinity in f32 too. The cast belongs
 * before the op. */
#include "lesson.h"

int main(void)
{
    float x[1] = {300.0F};
    atoll_trace *t = atoll_trace_create("square");
    atoll_value half = atoll_cast(atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(1)), ATOLL_F16);
    atoll_value wide = atoll_cast(half, ATOLL_F32);
    atoll_output(t, "after", atoll_cast(atoll_mul(half, half), ATOLL_F32));
    atoll_output(t, "before", atoll_mul(wide, wide));
    atoll_training *m = open_model(t, (atoll_training_options){.is_forward = 1});
    feed(m, "x", ATOLL_DIMS(1), x);
    step(m);
    claim(isinf(atoll_training_number(m, "after")), "300 * 300 in f16, then cast: infinite");
    claim(atoll_training_number(m, "before") == 90000.0, "cast first: 90000");
    atoll_training_close(m);
    return 0;
}
