/* The Driver API as a program meets it where nothing is wrong and where calls are: handles, limits,
 * the sticky error, memory and pool figures, host functions, several host threads. */
#include "test_support.h"

#include <pthread.h>

START_TEST(before_init_and_context)
{
    CUdeviceptr p;
    int n;
    ck_assert_uint_eq(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    GOOD(cuInit(0));
    ck_assert_uint_eq(cuMemAlloc_v2(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    GOOD(cuDeviceGetCount(&n));
    ck_assert_int_eq(n, 1);
    ck_assert_uint_eq(cuDeviceGet(&n, 1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(own_context)
{
    CUcontext c, now;
    CUdeviceptr p;
    GOOD(cuInit(0));
    GOOD(cuCtxCreate_v4(&c, NULL, 0, 0));
    GOOD(cuCtxGetCurrent(&now));
    ck_assert_ptr_eq(now, c);
    GOOD(cuMemAlloc_v2(&p, 100));
    GOOD(cuMemFree_v2(p));
    GOOD(cuCtxDestroy_v2(c));
    ck_assert_uint_eq(cuMemAlloc_v2(&p, 100), CUDA_ERROR_INVALID_CONTEXT);
    want_no_findings();
}
END_TEST

START_TEST(memory_is_finite)
{
    size_t room, total, less;
    CUdeviceptr p;
    open_context();
    GOOD(cuMemGetInfo_v2(&room, &total));
    ck_assert_uint_eq(total, (size_t)2 << 20);
    ck_assert_uint_eq(cuMemAlloc_v2(&p, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    p = device_array(1 << 20);
    GOOD(cuMemGetInfo_v2(&less, &total));
    ck_assert_uint_eq(room - less, 1 << 20);
    GOOD(cuMemFree_v2(p));
    ck_assert_uint_eq(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    ck_assert(has_finding("use after free", "it is freed already"));
    for (int i = 0; i < 100;
         i++) { /* more than there are addresses: freed ones come again, as new */
        p = device_array(512 << 10);
        uint32_t word;
        GOOD(cuMemcpyDtoH_v2(&word, p + (256 << 10), sizeof word));
        ck_assert(has_finding("uninitialized read", "that nothing wrote"));
        atoll_emulator_forget_findings();
        GOOD(cuMemsetD32_v2(p, 1, 128 << 10));
        GOOD(cuCtxSynchronize());
        GOOD(cuMemFree_v2(p));
    }
    want_no_findings();
    close_context();
}
END_TEST

START_TEST(pool_figures)
{
    CUmemoryPool pool;
    CUstream s;
    CUdeviceptr p;
    uint64_t used, high;
    open_context();
    GOOD(cuStreamCreate(&s, 1));
    GOOD(cuDeviceGetDefaultMemPool(&pool, 0));
    GOOD(cuMemAllocAsync(&p, 5000, s));
    GOOD(cuMemPoolGetAttribute(pool, 7 /* used */, &used));
    ck_assert_uint_eq(used, 5000);
    GOOD(cuMemFreeAsync(p, s));
    GOOD(cuStreamSynchronize(s));
    GOOD(cuMemPoolGetAttribute(pool, 7, &used));
    GOOD(cuMemPoolGetAttribute(pool, 8 /* high */, &high));
    ck_assert(used == 0 && high == 5000);
    GOOD(cuStreamDestroy_v2(s));
    ck_assert_uint_eq(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    want_no_findings();
    close_context();
}
END_TEST

START_TEST(sticky_error)
{
    int n = 4000;
    open_context();
    CUmodule m = module_of_fixture("faults");
    CUdeviceptr x = device_array(16), y;
    GOOD(cuLaunchKernel(function_of(m, "out_of_bounds"), 1, 1, 1, 128, 1, 1, 0, NULL,
                        (void *[]){&x, &n}, NULL));
    ck_assert_uint_eq(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(cuMemAlloc_v2(&y, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    const char *text;
    GOOD(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    close_context();
    open_context(); /* a new life */
    y = device_array(4);
    GOOD(cuMemFree_v2(y));
    close_context();
}
END_TEST

START_TEST(functions_and_globals)
{
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".global .align 4 .u32 table[4] = {1, 2, 3, 4};\n.const .align 8 "
                              ".f64 half = 0d3FE0000000000000;\n"
                              ".visible .entry f(.param .u32 a, .param .u64 b)\n.maxntid 64, 1, 1\n"
                              "{\n.shared .align 16 .b8 s[100];\nret;\n}\n";
    CUdeviceptr address;
    size_t bytes;
    uint32_t values[4];
    int n;
    CUfunction missing;
    open_context();
    CUmodule m = module_of_text(ptx);
    CUfunction f = function_of(m, "f");
    GOOD(cuModuleGetGlobal_v2(&address, &bytes, m, "table"));
    ck_assert_uint_eq(bytes, sizeof values);
    GOOD(cuMemcpyDtoH_v2(values, address, bytes));
    ck_assert_uint_eq(values[3], 4);
    ck_assert_uint_eq(cuModuleGetFunction(&missing, m, "g"), CUDA_ERROR_NOT_FOUND);
    GOOD(cuFuncGetAttribute(&n, 0 /* most threads */, f));
    ck_assert_int_eq(n, 64);
    GOOD(cuFuncGetAttribute(&n, 1 /* shared bytes */, f));
    ck_assert_int_eq(n, 112);
    GOOD(cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, 64, 100000));
    ck_assert_int_eq(n, 2);
    ck_assert_uint_eq(cuFuncSetAttribute(f, 8, 300000), CUDA_ERROR_INVALID_VALUE);
    want_no_findings();
    GOOD(cuModuleUnload(m));
    ck_assert_uint_eq(cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    close_context();
}
END_TEST

START_TEST(address_of_calls)
{
    void *by_name, *versioned, *none;
    GOOD(cuGetProcAddress_v2("cuMemAlloc", &by_name, 13000, 0, NULL));
    GOOD(cuGetProcAddress_v2("cuMemAlloc_v2", &versioned, 13000, 0, NULL));
    ck_assert(by_name && by_name == versioned);
    ck_assert_uint_eq(cuGetProcAddress_v2("cuNothing", &none, 13000, 0, NULL),
                      CUDA_ERROR_NOT_FOUND);
}
END_TEST

static void count(void *data)
{
    ++*(int *)data;
}

START_TEST(host_function)
{
    int calls = 0;
    CUstream s;
    CUevent e;
    open_context();
    GOOD(cuStreamCreate(&s, 1));
    GOOD(cuEventCreate(&e, 2));
    GOOD(cuEventQuery(e)); /* never recorded: done */
    GOOD(cuLaunchHostFunc(s, count, &calls));
    ck_assert_int_eq(calls, 0); /* nothing runs before somebody waits */
    GOOD(cuEventRecord(e, s));
    while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) {
    }
    ck_assert_int_eq(calls, 1);
    GOOD(cuLaunchHostFunc(s, count, &calls));
    GOOD(cuEventSynchronize(e)); /* was recorded before the second call */
    GOOD(cuStreamSynchronize(s));
    ck_assert_int_eq(calls, 2);
    close_context();
}
END_TEST

struct job {
    CUmodule m;
    CUcontext context;
    int number, is_good;
};

static void *work(void *data)
{
    struct job *j = data;
    enum { N = 4096 };
    float in[N], out[N];
    int n = N;
    CUstream s;
    CUdeviceptr x, y;
    CUfunction f;
    for (int i = 0; i < N; i++) {
        in[i] = (float)(i + j->number);
    }
    j->is_good = !cuCtxSetCurrent(j->context) && !cuStreamCreate(&s, 1) &&
                 !cuMemAlloc_v2(&x, sizeof in) && !cuMemAlloc_v2(&y, sizeof in) &&
                 !cuModuleGetFunction(&f, j->m, "copy");
    for (int round = 0; round < 20 && j->is_good; round++) {
        memset(out, 0, sizeof out);
        j->is_good =
            !cuMemcpyHtoDAsync_v2(x, in, sizeof in, s) &&
            !cuLaunchKernel(f, N / 64, 1, 1, 64, 1, 1, 0, s, (void *[]){&x, &y, &n}, NULL) &&
            !cuMemcpyDtoHAsync_v2(out, y, sizeof out, s) && !cuStreamSynchronize(s) &&
            memcmp(in, out, sizeof in) == 0;
    }
    j->is_good = j->is_good && !cuMemFree_v2(x) && !cuMemFree_v2(y) && !cuStreamDestroy_v2(s);
    return NULL;
}

START_TEST(host_threads)
{
    pthread_t threads[4];
    struct job jobs[4];
    CUcontext context;
    open_context();
    GOOD(cuCtxGetCurrent(&context));
    CUmodule m = module_of_fixture("faults");
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){m, context, i, 0};
        ck_assert(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert(jobs[i].is_good);
    }
    want_no_findings();
    close_context();
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, before_init_and_context);
    tcase_add_test(tc, own_context);
    tcase_add_test(tc, memory_is_finite);
    tcase_add_test(tc, pool_figures);
    tcase_add_test(tc, sticky_error);
    tcase_add_test(tc, functions_and_globals);
    tcase_add_test(tc, address_of_calls);
    tcase_add_test(tc, host_function);
    tcase_add_test(tc, host_threads);
}

int main(void)
{
    setenv("ATOLL_EMULATOR_MEMORY", "2", 1);
    return run_suite("emulator_api", fill);
}
