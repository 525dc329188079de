/* On a device (a real one, or the emulator): the planted faults are found inside its kernels, in a
 * first step, in the step that is recorded and in the replay of the recording. */
#include "cuda_suite.h"

#include "tests/faults.h"

static struct device *device;

START_TEST(planted)
{
    const struct fault *f = &faults[_i];
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.train = &train,
                                .device = device,
                                .cache = shared_kernels(),
                                .libnvrtc = getenv("ATOLL_LIBNVRTC"),
                                .keeps_values = true};
    struct runner r;
    struct graph *g = fault_model(f->body);
    const char *optimizer = f->optimizer != NULL ? f->optimizer : "sgd,lr=0";
    ck_assert(train_options_parse(&train, optimizer, NULL, &e) == ATOLL_OK);
    train.skips_nonfinite = true; /* so that, with lr 0, each step starts as the first did */
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    uint32_t n_steps = f->phase == PHASE_UPDATE ? 1 : 3;
    for (uint32_t step = 0; step < n_steps; step++) {
        struct recording rec = {0};
        struct nonfinite found;
        fault_feed(&r, f->x);
        ck_assert_msg(trace_step(&rec, &r, &e) == ATOLL_OK, "%s", e.text);
        nonfinite_find(&rec, &r, &found);
        check_fault(f, &found);
        recording_free(&rec);
    }
    runner_free(&r);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, planted, 0, (int)ARRAY_LEN(faults));
}

int main(void)
{
    return run_on_device("cuda_nonfinite", fill, &device);
}
