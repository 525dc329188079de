/* The declarations made by hand, held against the toolkit's headers where they are there: every
 * Driver API call of cuda_api.def has the prototype that cuda.h gives it, and the numbers used are
 * cuda.h's. The rules of cuBLASLt that are checked before a call, and what a missing library says.
 */
#if defined(__has_include)
#if __has_include(<cuda.h>)
#define ATOLL_REAL_CUDA_H 1
#endif
#endif

#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/cublaslt.h"
#include "runtime/cuda_api.h"

#ifdef ATOLL_REAL_CUDA_H
/* A row whose arguments differ from the header's does not compile. */
#define X(name, symbol, args, names)                                                               \
    typedef CUresult(*type_of_##name) args;                                                        \
    static __attribute__((unused)) const char                                                      \
        check_##name[__builtin_types_compatible_p(type_of_##name, __typeof__(&name)) ? 1 : -1];
#include "runtime/cuda_api.def"
#undef X

/* The symbol is what the header's macro makes of the name. */
#define SPELL(x)                     #x
#define X(name, symbol, args, names) {#symbol, SPELL(name)},
static const char *const symbols[][2] = {
#include "runtime/cuda_api.def"
};
#undef X

START_TEST(symbols_are_the_headers)
{
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        ck_assert_str_eq(symbols[i][0], symbols[i][1]);
    }
}
END_TEST

START_TEST(numbers_are_the_headers)
{
    static const int pairs[][2] = {
        {ATOLL_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY},
        {ATOLL_CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND},
        {ATOLL_CUDA_NON_BLOCKING, CU_STREAM_NON_BLOCKING},
        {ATOLL_CUDA_NO_TIMING, CU_EVENT_DISABLE_TIMING},
        {ATOLL_CUDA_CAPTURE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
        {ATOLL_CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER},
        {ATOLL_CUDA_JIT_ERROR_SIZE, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES},
        {ATOLL_CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
        {ATOLL_CUDA_THREADS_OF_ONE, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
        {ATOLL_CUDA_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
        {ATOLL_CUDA_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        ck_assert_int_eq(pairs[i][0], pairs[i][1]);
    }
}
END_TEST
#endif

/* ---- what is missing ---- */

START_TEST(missing_driver)
{
    struct error e = {0};
    struct device *d = NULL;
    struct device_options o = {.libcuda = "/nonexistent/libcuda.so"};
    ck_assert_int_eq(device_open("cuda:0", &o, &d, &e), ATOLL_NOT_FOUND);
    ck_assert_ptr_null(d);
    ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent/libcuda.so"));
    ck_assert_ptr_nonnull(strstr(e.text, "ATOLL_LIBCUDA"));
}
END_TEST

START_TEST(not_a_driver)
{
    struct error e = {0};
    struct device *d = NULL;
    struct device_options o = {.libcuda = "libm.so.6"};
    ck_assert_int_eq(device_open("cuda", &o, &d, &e), ATOLL_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(e.text, "lacks cuInit"));
}
END_TEST

static const char *const BAD_NAMES[] = {"gpu",   "cuda:",   "cuda:x", "cuda:0x",
                                        "cuda0", "cuda:-1", ""};

START_TEST(bad_names)
{
    struct error e = {0};
    struct device *d = NULL;
    struct device_options o = {0};
    ck_assert_int_eq(device_open(BAD_NAMES[_i], &o, &d, &e), ATOLL_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "cuda:N"));
}
END_TEST

START_TEST(cpu_is_no_device)
{
    struct error e = {0};
    struct device_options o = {0};
    struct device *d = (struct device *)&o;
    ck_assert_int_eq(device_open("cpu", &o, &d, &e), ATOLL_OK);
    ck_assert_ptr_null(d);
    device_close(NULL);
}
END_TEST

/* ---- rules of cuBLASLt ---- */

static const struct {
    enum dtype ab, c;
    bool transpose_a, transpose_b;
    int64_t n, k;
    int arch;
    const char *words; /* NULL: allowed */
} rules[] = {
    {F32, F32, false, false, 3, 5, 80, NULL},
    {F64, F64, true, false, 3, 5, 80, NULL},
    {BF16, BF16, false, true, 3, 5, 80, NULL},
    {F16, F32, false, true, 3, 5, 80, NULL},
    {BF16, F16, false, true, 3, 5, 80, "bf16 operands give bf16 or f32, not f16"},
    {F64, F32, false, true, 3, 5, 80, "cannot give f32"},
    {I64, I64, false, false, 3, 5, 80, "no product of i64"},
    {F8E4M3, BF16, false, true, 16, 32, 90, NULL},
    {F8E4M3, F32, false, true, 4, 16, 89, NULL},
    {F8E4M3, BF16, false, true, 16, 32, 80, "needs sm_89"},
    {F8E5M2, BF16, false, true, 16, 32, 90, "f8e5m2 times f8e5m2"},
    {F8E4M3, BF16, false, false, 16, 32, 90, "found b (K,N)"},
    {F8E4M3, BF16, true, true, 16, 32, 120, "found a (K,M)"},
    {F8E4M3, BF16, true, false, 16, 32, 100, NULL},
    {F8E4M3, BF16, false, true, 16, 24, 90, "K = 24"},
    {F8E4M3, BF16, false, true, 12, 32, 90, "N = 12"},
};

START_TEST(rules_in_words)
{
    struct error e = {0};
    struct contraction c = {.ab = rules[_i].ab,
                            .c = rules[_i].c,
                            .transpose_a = rules[_i].transpose_a,
                            .transpose_b = rules[_i].transpose_b,
                            .m = 64,
                            .n = rules[_i].n,
                            .k = rules[_i].k};
    status code = cublaslt_check(&c, rules[_i].arch, &e);
    ck_assert_int_eq(code, rules[_i].words == NULL ? ATOLL_OK : ATOLL_UNSUPPORTED);
    ck_assert_msg(rules[_i].words == NULL || strstr(e.text, rules[_i].words) != NULL, "%s", e.text);
}
END_TEST

static void fill(TCase *tc)
{
#ifdef ATOLL_REAL_CUDA_H
    tcase_add_test(tc, symbols_are_the_headers);
    tcase_add_test(tc, numbers_are_the_headers);
#else
    printf("no cuda.h here: declarations are not held against it\n");
#endif
    tcase_add_test(tc, missing_driver);
    tcase_add_test(tc, not_a_driver);
    tcase_add_loop_test(tc, bad_names, 0, (int)ARRAY_LEN(BAD_NAMES));
    tcase_add_test(tc, cpu_is_no_device);
    tcase_add_loop_test(tc, rules_in_words, 0, (int)ARRAY_LEN(rules));
}

int main(void)
{
    return run_suite("cuda_api", fill);
}
