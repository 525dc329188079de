/* Trains from a compiled plan: no compiler, no Python, one library. FEATURES is f32 [rows,
 * columns], LABELS i64 [rows]; rows are taken in order, BATCH at a time; the last batch may be
 * smaller. step_plan PLAN FEATURES.npy LABELS.npy BATCH STEPS CHECKPOINT.safetensors */
#include <stdio.h>
#include <stdlib.h>

#include "atoll/plan.h"
#include "npy.h"

int main(int argc, char **argv)
{
    atoll_error error = {0};
    atoll_plan *plan = NULL;
    int64_t size[2], labels[2];
    if (argc != 7) {
        fprintf(stderr, "usage: step_plan PLAN FEATURES.npy LABELS.npy BATCH STEPS CHECKPOINT\n");
        return 2;
    }
    float *x = read_npy(argv[2], sizeof(float), size);
    int64_t *y = read_npy(argv[3], sizeof(int64_t), labels);
    int64_t batch = strtoll(argv[4], NULL, 10), steps = 0;
    if (atoll_plan_open(argv[1], &plan, &error) == ATOLL_OK && x != NULL && y != NULL &&
        batch > 0) {
        steps = strtoll(argv[5], NULL, 10);
    }
    for (int64_t step = 0, row = 0; step < steps && error.code == ATOLL_OK;
         step++, row = row < size[0] ? row : 0) {
        int64_t n = size[0] - row < batch ? size[0] - row : batch;
        atoll_plan_bind(plan, "x", x + row * size[1], (int64_t[]){n, size[1]}, 2, &error);
        atoll_plan_bind(plan, "y", y + row, &n, 1, &error);
        atoll_plan_step(plan, &error);
        row += n;
        if (step % 100 == 0 || step + 1 == steps) {
            printf("step %lld  loss %.6f\n", (long long)step, atoll_plan_number(plan, "loss"));
        }
    }
    if (steps > 0 && error.code == ATOLL_OK && atoll_plan_save(plan, argv[6], &error) == ATOLL_OK) {
        printf("wrote %s\n", argv[6]);
    } else {
        fprintf(stderr, "step_plan: %s\n", error.code != ATOLL_OK ? error.text : "nothing to do");
    }
    atoll_plan_close(plan);
    free(x);
    free(y);
    return error.code != ATOLL_OK || steps == 0 ? 3 : 0;
}
