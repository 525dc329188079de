/* Kernels from committed PTX (fixtures/, made by NVRTC for compute_80), so that the emulator is
 * tested where no CUDA toolkit is. */
#include "test_support.h"

START_TEST(sums)
{
    open_context();
    CUmodule m = module_of_fixture("sums");
    check_sums(m);
    close_context();
}
END_TEST

START_TEST(scalars)
{
    open_context();
    CUmodule m = module_of_fixture("scalars");
    check_scalars(m);
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, sums);
    tcase_add_test(tc, scalars);
}

int main(void)
{
    return run_suite("emulator_kernels", fill);
}
