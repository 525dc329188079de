/* Range and resolution, found by trying: the largest number, the step behind 1, the smallest
 * number above 0. bf16 has f32's range and 3 digits less than f16; f16 ends at 65504. */
#include "atoll/tensor.h"
#include "lesson.h"

/* What a number becomes in a dtype. */
static double in(atoll_dtype dtype, double number)
{
    atoll_error error = {0};
    atoll_tensor *wide = atoll_tensor_create(ATOLL_F64, ATOLL_DIMS(1), &number, &error);
    atoll_tensor *narrow = atoll_tensor_to(wide, dtype, &error);
    check(&error);
    double result = atoll_tensor_number(narrow, 0);
    atoll_tensor_release(wide);
    atoll_tensor_release(narrow);
    return result;
}

/* The least power of two that can be added to 1. */
static double epsilon_of(atoll_dtype dtype)
{
    double step = 1.0;
    while (in(dtype, 1.0 + step / 2.0) == 1.0 + step / 2.0) {
        step /= 2.0;
    }
    return step;
}

static double smallest_of(atoll_dtype dtype)
{
    double x = 1.0;
    while (in(dtype, x / 2.0) != 0.0) {
        x /= 2.0;
    }
    return x;
}

/* From the largest power of two down the mantissa. */
static double largest_of(atoll_dtype dtype)
{
    double x = 1.0, step;
    while (isfinite(2.0 * x) && in(dtype, 2.0 * x) == 2.0 * x) {
        x *= 2.0;
    }
    for (step = x / 2.0; x + step != x; step /= 2.0) {
        double more = x + step;
        x = isfinite(more) && in(dtype, more) == more ? more : x;
    }
    return x;
}

int main(void)
{
    static const struct {
        atoll_dtype dtype;
        double largest, epsilon, smallest;
    } rows[] = {
        {ATOLL_F8E4M3, 448.0, 0x1p-3, 0x1p-9},          {ATOLL_F8E5M2, 57344.0, 0x1p-2, 0x1p-16},
        {ATOLL_F16, 65504.0, 0x1p-10, 0x1p-24},         {ATOLL_BF16, 0x1.fep127, 0x1p-7, 0x1p-133},
        {ATOLL_F32, 0x1.fffffep127, 0x1p-23, 0x1p-149},
    };
    printf("%-8s %12s %12s %12s\n", "dtype", "largest", "epsilon", "smallest");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double largest = largest_of(rows[i].dtype), epsilon = epsilon_of(rows[i].dtype),
               smallest = smallest_of(rows[i].dtype);
        printf("%-8s %12.5g %12.5g %12.5g\n", atoll_dtype_name(rows[i].dtype), largest, epsilon,
               smallest);
        claim(largest == rows[i].largest && epsilon == rows[i].epsilon &&
                  smallest == rows[i].smallest,
              "as the format says");
    }
    claim(in(ATOLL_F16, 65519.0) == 65504.0 && isinf(in(ATOLL_F16, 65520.0)),
          "f16: 65519 rounds to 65504, 65520 to infinity");
    claim(in(ATOLL_BF16, 256.0) == 256.0 && in(ATOLL_BF16, 257.0) == 256.0,
          "bf16: 257 is 256: integers beyond 256 have gaps");
    claim(isnan(in(ATOLL_F8E4M3, 465.0)) && in(ATOLL_F8E4M3, 464.0) == 448.0,
          "f8e4m3 has no infinity: from 464 on it is NaN");
    return 0;
}
