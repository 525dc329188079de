/* The same kernels, compiled by NVRTC on this machine for several architectures. Skipped where
 * NVRTC is missing. ATOLL_WRITE_FIXTURES=1 writes fixtures/ *.ptx anew. */
#include "test_support.h"

static const char *const arches[] = {"80", "89", "90a", "100a", "120"};

static CUmodule module_of_source(const char *name, const char *arch)
{
    char path[100], reason[300];
    snprintf(path, sizeof path, "kernels/%s.cu", name);
    char *source = read_text(path);
    char *ptx = compile_cuda(source, arch, reason, sizeof reason);
    ck_assert_msg(ptx != NULL, "%s", reason);
    CUmodule m = module_of_text(ptx);
    free(ptx);
    free(source);
    return m;
}

/* The emulated device becomes one of this architecture. */
static void become(const char *arch)
{
    char number[8];
    snprintf(number, sizeof number, "%d", atoi(arch));
    setenv("ATOLL_EMULATOR_ARCH", number, 1);
    open_context();
}

START_TEST(architectures)
{
    char reason[300];
    CUmodule m;
    char *ptx = compile_cuda("extern \"C\" __global__ void f() {}", "90a", reason, sizeof reason);
    ck_assert_msg(ptx != NULL, "%s", reason);
    become("90");
    GOOD(cuModuleLoadData(&m, ptx));
    close_context();
    become("100");
    ck_assert_uint_eq(cuModuleLoadData(&m, ptx), CUDA_ERROR_NO_BINARY_FOR_GPU);
    close_context();
    become("80");
    ck_assert_uint_eq(cuModuleLoadData(&m, ptx), CUDA_ERROR_NO_BINARY_FOR_GPU);
    close_context();
    free(ptx);
}
END_TEST

START_TEST(sums)
{
    become(arches[_i]);
    check_sums(module_of_source("sums", arches[_i]));
    close_context();
}
END_TEST

START_TEST(scalars)
{
    become(arches[_i]);
    check_scalars(module_of_source("scalars", arches[_i]));
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, architectures);
    tcase_add_loop_test(tc, sums, 0, 5);
    tcase_add_loop_test(tc, scalars, 0, 5);
}

static int write_fixtures(void)
{
    static const char *const names[] = {"sums", "scalars", "faults"};
    char path[600], reason[300];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "kernels/%s.cu", names[i]);
        char *source = read_text(path), *ptx = compile_cuda(source, "80", reason, sizeof reason);
        snprintf(path, sizeof path, "%s/tests/cuda_emulator/fixtures/%s.ptx", ATOLL_SOURCE_DIR,
                 names[i]);
        FILE *file = ptx ? fopen(path, "w") : NULL;
        if (!file) {
            fprintf(stderr, "cannot write %s\n", path);
            return EXIT_FAILURE;
        }
        fputs(ptx, file);
        fclose(file);
        free(source);
        free(ptx);
    }
    return EXIT_SUCCESS;
}

int main(void)
{
    char reason[300];
    char *ptx = compile_cuda("", "80", reason, sizeof reason);
    if (!ptx) {
        printf("skipped: %s\n", reason);
        return 77;
    }
    free(ptx);
    return getenv("ATOLL_WRITE_FIXTURES") ? write_fixtures() : run_suite("emulator_nvrtc", fill);
}
