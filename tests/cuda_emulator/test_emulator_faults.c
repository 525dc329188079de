/* Each fault of kernels/faults.cu is found, under its name, at its kernel and line, and the sound
 * variant beside it is not: one test a fault. Faults of streams and host memory:
 * test_emulator_streams.c. */
#include "test_support.h"

#include <sys/wait.h>
#include <unistd.h>

/* A module of the faults and an array of 128 floats, all written. */
struct setting {
    CUmodule m;
    CUdeviceptr x;
};

static struct setting begin(void)
{
    open_context();
    struct setting s = {.m = module_of_fixture("faults"), .x = device_array(128 * sizeof(float))};
    GOOD(cuMemsetD32_v2(s.x, 0x3f800000, 128));
    return s;
}

static CUresult run(const struct setting *s, const char *kernel, unsigned block)
{
    return launch(function_of(s->m, kernel), 1, block, 0, (void *[]){(void *)&s->x});
}

static void end(const struct setting *s)
{
    cuMemFree_v2(s->x); /* refused after a fatal finding */
    close_context();
}

START_TEST(out_of_bounds)
{
    struct setting s = begin();
    int n = 100, all = 128;
    GOOD(launch(function_of(s.m, "out_of_bounds"), 1, 128, 0,
                (void *[]){&s.x, &n})); /* inside: x has 128 */
    want_no_findings();
    CUresult r = launch(function_of(s.m, "out_of_bounds"), 2, 128, 0, (void *[]){&s.x, &all});
    ck_assert_uint_eq(r, CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert(has_finding("out of bounds", "kernel out_of_bounds, ptx line"));
    ck_assert(has_finding("out of bounds", "block (1,0,0), thread (0,0,0)"));
    ck_assert(has_finding("out of bounds", "0 bytes behind the 512 bytes of allocation"));
    end(&s);
}
END_TEST

START_TEST(misaligned)
{
    struct setting s = begin();
    ck_assert_uint_eq(run(&s, "misaligned", 4), CUDA_ERROR_MISALIGNED_ADDRESS);
    ck_assert(has_finding("misaligned access", "writes 16 bytes"));
    ck_assert(has_finding("misaligned access", "thread (0,0,0)"));
    end(&s);
}
END_TEST

START_TEST(missing_barrier)
{
    struct setting s = begin();
    GOOD(run(&s, "missing_barrier", 64));
    ck_assert(has_finding("shared memory race", "kernel missing_barrier"));
    end(&s);
}
END_TEST

START_TEST(write_after_read)
{
    struct setting s = begin();
    GOOD(run(&s, "write_after_read", 64));
    ck_assert(has_finding("shared memory race", "writes what another thread read"));
    end(&s);
}
END_TEST

START_TEST(divergent_barrier)
{
    struct setting s = begin();
    GOOD(run(&s, "divergent_barrier", 64));
    ck_assert(has_finding("barrier", "kernel divergent_barrier"));
    ck_assert(has_finding("barrier", "divergent"));
    end(&s);
}
END_TEST

START_TEST(left_barrier)
{
    struct setting s = begin();
    int n = 40, all = 64;
    GOOD(launch(function_of(s.m, "left_barrier"), 1, 64, 0, (void *[]){&s.x, &all}));
    want_no_findings();
    GOOD(launch(function_of(s.m, "left_barrier"), 1, 64, 0, (void *[]){&s.x, &n}));
    ck_assert(has_finding("barrier", "40 of 64 threads come to barrier 0, the others have ended"));
    end(&s);
}
END_TEST

START_TEST(uninitialized_shared)
{
    struct setting s = begin();
    GOOD(run(&s, "uninitialized_shared", 63));
    want_no_findings();
    GOOD(run(&s, "uninitialized_shared", 64));
    ck_assert(has_finding("uninitialized read", "shared address 252"));
    ck_assert(has_finding("uninitialized read", "thread (63,0,0)"));
    end(&s);
}
END_TEST

START_TEST(uninitialized_global)
{
    struct setting s = begin();
    CUdeviceptr y = device_array(128 * sizeof(float)), z = device_array(128 * sizeof(float));
    int n = 128;
    GOOD(cuMemsetD32_v2(y, 0, 127));
    GOOD(launch(function_of(s.m, "copy"), 1, 128, 0, (void *[]){&y, &z, &n}));
    ck_assert(has_finding("uninitialized read", "kernel copy"));
    ck_assert(has_finding("uninitialized read", "byte 508 of the 512 bytes"));
    GOOD(cuMemFree_v2(y));
    GOOD(cuMemFree_v2(z));
    end(&s);
}
END_TEST

START_TEST(use_after_free)
{
    struct setting s = begin();
    CUdeviceptr y = device_array(128 * sizeof(float));
    int n = 128;
    GOOD(cuMemFree_v2(y));
    ck_assert_uint_eq(launch(function_of(s.m, "copy"), 1, 128, 0, (void *[]){&s.x, &y, &n}),
                      CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert(has_finding("use after free", "byte 0 of the 512 bytes of freed allocation"));
    end(&s);
}
END_TEST

/* Of a large allocation the pages are given back, and it is known all the same. */
START_TEST(use_after_free_of_much)
{
    struct setting s = begin();
    CUdeviceptr y = device_array(1 << 20);
    int n = 128;
    GOOD(cuMemFree_v2(y));
    y += 1 << 19;
    ck_assert_uint_eq(launch(function_of(s.m, "copy"), 1, 128, 0, (void *[]){&s.x, &y, &n}),
                      CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert(
        has_finding("use after free", "byte 524288 of the 1048576 bytes of freed allocation"));
    end(&s);
}
END_TEST

START_TEST(race_between_blocks)
{
    struct setting s = begin();
    int n = 128;
    GOOD(launch(function_of(s.m, "race_between_blocks"), 4, 32, 0, (void *[]){&s.x, &n}));
    ck_assert(has_finding("global memory race", "kernel race_between_blocks"));
    end(&s);
}
END_TEST

static const struct {
    const char *kernel;
    int sound, racing; /* the argument */
    const char *words;
} races[] = {
    {"race_of_threads", 1, 0, "the block wrote at"},
    {"one_place", 1, 0, "writes what another thread of the block wrote at"},
    {"read_by_all", 1, 0, "without a barrier between (thread "},
};

/* Threads of one block in global memory: fine with a barrier or at places of their own; else named
 * with kernel, line, threads and address. */
START_TEST(race_of_threads)
{
    struct setting s = begin();
    char kernel[60];
    int sound = races[_i].sound, racing = races[_i].racing;
    CUfunction f = function_of(s.m, races[_i].kernel);
    snprintf(kernel, sizeof kernel, "kernel %s", races[_i].kernel);
    GOOD(launch(f, 1, 64, 0, (void *[]){&s.x, &sound}));
    want_no_findings();
    GOOD(launch(f, 1, 64, 0, (void *[]){&s.x, &racing}));
    ck_assert(has_finding("global memory race", kernel));
    ck_assert(has_finding("global memory race", races[_i].words));
    ck_assert(has_finding("global memory race", ", ptx line "));
    ck_assert(has_finding("global memory race", " 0x2000"));
    end(&s);
}
END_TEST

START_TEST(read_by_another_block)
{
    struct setting s = begin();
    int n = 128, own = 32;
    GOOD(launch(function_of(s.m, "read_by_another_block"), 1, 32, 0, (void *[]){&s.x, &own}));
    want_no_findings();
    GOOD(launch(function_of(s.m, "read_by_another_block"), 4, 32, 0, (void *[]){&s.x, &n}));
    ck_assert(has_finding("global memory race", "kernel read_by_another_block"));
    end(&s);
}
END_TEST

START_TEST(diverged_shuffle)
{
    struct setting s = begin();
    GOOD(run(&s, "diverged_shuffle", 32));
    ck_assert(has_finding("warp synchronization",
                          "lanes 0xffff0000 of the member mask 0xffffffff do not come"));
    end(&s);
}
END_TEST

START_TEST(endless)
{
    struct setting s = begin();
    GOOD(cuMemsetD32_v2(s.x, 0, 128));
    ck_assert_uint_eq(run(&s, "endless", 1), CUDA_ERROR_LAUNCH_TIMEOUT);
    ck_assert(has_finding("kernel does not end", "kernel endless"));
    end(&s);
}
END_TEST

START_TEST(read_only_lie)
{
    struct setting s = begin();
    GOOD(launch(function_of(s.m, "read_only_lie"), 1, 64, 0, (void *[]){&s.x, &s.x}));
    ck_assert(has_finding("global memory race", "reads through the read-only cache"));
    end(&s);
}
END_TEST

START_TEST(leak)
{
    (void)begin();
    void *pinned;
    GOOD(cuMemHostAlloc(&pinned, 100, 0));
    GOOD(cuDevicePrimaryCtxRelease_v2(0));
    ck_assert(has_finding("leak", "512 bytes at 0x"));
    ck_assert(has_finding("leak", "(cuMemAlloc), live at the end of the context"));
    ck_assert(has_finding("leak", "100 bytes of pinned host memory"));
    atoll_emulator_forget_findings();
}
END_TEST

/* A process that ends with findings: its status, and the report it leaves. */
START_TEST(report_at_exit)
{
    char path[] = "/tmp/emulator_report_XXXXXX", text[2000] = "";
    int file = mkstemp(path), status = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("ATOLL_EMULATOR_REPORT", path, 1);
        setenv("ATOLL_EMULATOR_STRICT", "1", 1);
        (void)begin();
        cuDevicePrimaryCtxRelease_v2(0);
        exit(0);
    }
    ck_assert(waitpid(child, &status, 0) == child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 86);
    ck_assert(read(file, text, sizeof text - 1) > 0);
    ck_assert(strstr(text, "CUDA emulator: 1 findings\nleak: 512 bytes"));
    close(file);
    remove(path);
}
END_TEST

START_TEST(launch_limits)
{
    struct setting s = begin();
    CUfunction f = function_of(s.m, "missing_barrier");
    ck_assert_uint_eq(launch(f, 1, 1025, 0, (void *[]){&s.x}), CUDA_ERROR_INVALID_VALUE);
    ck_assert(has_finding("misuse of the Driver API", "more than 1024 threads"));
    ck_assert_uint_eq(launch(f, 1, 64, 49152, (void *[]){&s.x}), CUDA_ERROR_INVALID_VALUE);
    GOOD(cuFuncSetAttribute(f, 8, 60000));
    GOOD(launch(f, 1, 1, 60000, (void *[]){&s.x}));
    end(&s);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, out_of_bounds);
    tcase_add_test(tc, misaligned);
    tcase_add_test(tc, missing_barrier);
    tcase_add_test(tc, write_after_read);
    tcase_add_test(tc, divergent_barrier);
    tcase_add_test(tc, left_barrier);
    tcase_add_test(tc, uninitialized_shared);
    tcase_add_test(tc, uninitialized_global);
    tcase_add_test(tc, use_after_free);
    tcase_add_test(tc, use_after_free_of_much);
    tcase_add_test(tc, race_between_blocks);
    tcase_add_loop_test(tc, race_of_threads, 0, 3);
    tcase_add_test(tc, read_by_another_block);
    tcase_add_test(tc, diverged_shuffle);
    tcase_add_test(tc, endless);
    tcase_add_test(tc, read_only_lie);
    tcase_add_test(tc, leak);
    tcase_add_test(tc, report_at_exit);
    tcase_add_test(tc, launch_limits);
}

int main(void)
{
    setenv("ATOLL_EMULATOR_STEPS", "1000000", 1);
    return run_suite("emulator_faults", fill);
}
