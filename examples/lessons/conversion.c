/* Converting: a tensor gives a new one, or itself when nothing changes; a module converts its
 * parameters and buffers in place; integers and masks stay what they are. */
#include "atoll/tensor.h"
#include "lesson.h"

int main(void)
{
    atoll_error error = {0};
    float numbers[] = {1.0F, 0.1F, 300.0F};
    int64_t count[] = {123456789};
    atoll_tensor *w = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(3), numbers, &error);
    atoll_tensor *mean = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(3), NULL, &error);
    atoll_tensor *steps = atoll_tensor_create(ATOLL_I64, ATOLL_DIMS(1), count, &error);

    atoll_tensor *same = atoll_tensor_to(w, ATOLL_F32, &error);
    atoll_tensor *half = atoll_tensor_to(w, ATOLL_F16, &error);
    claim(same == w, "to the dtype it has: the same tensor, nothing is copied");
    claim(half != w && atoll_tensor_dtype(w) == ATOLL_F32, "to another: a new one, the old stays");
    claim(atoll_tensor_number(half, 1) == 0x1.998p-4, "0.1 is rounded once, to the nearest f16");

    atoll_module *m = atoll_module_create(&error);
    atoll_module_add(m, "weight", ATOLL_MODULE_PARAM, w, &error);
    atoll_module_add(m, "running_mean", ATOLL_MODULE_BUFFER, mean, &error);
    atoll_module_add(m, "steps", ATOLL_MODULE_BUFFER, steps, &error);
    claim(atoll_module_to(m, ATOLL_BF16, &error) == m, "a module gives itself");
    check(&error);
    claim(atoll_tensor_dtype(atoll_module_get(m, "weight")) == ATOLL_BF16 &&
              atoll_tensor_dtype(atoll_module_get(m, "running_mean")) == ATOLL_BF16,
          "its parameters and its buffers are converted");
    claim(atoll_module_get(m, "steps") == steps, "an integer buffer stays: the same tensor");
    atoll_tensor *as_bf16 = atoll_tensor_cast(steps, ATOLL_BF16, &error);
    claim(atoll_tensor_number(as_bf16, 0) == 123207680.0,
          "or else the counter 123456789 would be 123207680");

    atoll_tensor *const all[] = {w, mean, steps, same, half, as_bf16};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        atoll_tensor_release(all[i]);
    }
    atoll_module_destroy(m);
    return 0;
}
