/* The same kernels, compiled by NVRTC on this machine for several architectures. Skipped where
 * NVRTC is missing. ATOLL_WRITE_FIXTURES=1 writes fixtures/ *.ptx anew. */
#include "test_support.h"

static const char *const arches[] = {"80", "89", "90a"};

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

START_TEST(sums)
{
    open_context();
    check_sums(module_of_source("sums", arches[_i]));
    close_context();
}
END_TEST

START_TEST(scalars)
{
    open_context();
    check_scalars(module_of_source("scalars", arches[_i]));
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, sums, 0, 3);
    tcase_add_loop_test(tc, scalars, 0, 3);
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
