/* Streams, events, graphs and pinned memory: what is ordered gives right results in every random
 * order, what is not ordered is found, whatever order it happened to run in. */
#include "test_support.h"

#define N     1000
#define BYTES (N * sizeof(float))

struct setting {
    CUmodule m;
    CUfunction copy;
    CUstream a, b;
    CUdeviceptr x, y, z;
    float *pinned;
};

static struct setting begin(void)
{
    struct setting s;
    open_context();
    s.m = module_of_fixture("faults");
    s.copy = function_of(s.m, "copy");
    GOOD(cuStreamCreate(&s.a, 1 /* non-blocking */));
    GOOD(cuStreamCreate(&s.b, 1));
    s.x = device_array(BYTES);
    s.y = device_array(BYTES);
    s.z = device_array(BYTES);
    GOOD(cuMemHostAlloc((void **)&s.pinned, BYTES, 0));
    for (int i = 0; i < N; i++) {
        s.pinned[i] = (float)i;
    }
    return s;
}

static void end(struct setting *s)
{
    cuMemFree_v2(s->x);
    cuMemFree_v2(s->y);
    cuMemFree_v2(s->z);
    cuMemFreeHost(s->pinned);
    close_context();
}

static CUresult copy(const struct setting *s, CUdeviceptr from, CUdeviceptr to, CUstream stream)
{
    int n = N;
    return cuLaunchKernel(s->copy, (N + 127) / 128, 1, 1, 128, 1, 1, 0, stream,
                          (void *[]){&from, &to, &n}, NULL);
}

START_TEST(ordered_by_events)
{
    struct setting s = begin();
    CUevent e, f;
    float out[N];
    GOOD(cuEventCreate(&e, 0));
    GOOD(cuEventCreate(&f, 0));
    for (int round = 0; round < 20; round++) {
        GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
        GOOD(cuEventRecord(e, s.a));
        GOOD(cuStreamWaitEvent(s.b, e, 0));
        GOOD(copy(&s, s.x, s.y, s.b));
        GOOD(cuEventRecord(f, s.b));
        GOOD(cuStreamWaitEvent(s.a, f, 0)); /* before x is overwritten in the next round */
        GOOD(copy(&s, s.y, s.z, s.b));
    }
    GOOD(cuMemcpyDtoHAsync_v2(out, s.z, BYTES, s.b));
    GOOD(cuStreamSynchronize(s.b));
    ck_assert(out[N - 1] == (float)(N - 1) && out[1] == 1.0f);
    float ms;
    GOOD(cuEventElapsedTime_v2(&ms, e, f));
    ck_assert(ms >= 0);
    want_no_findings();
    GOOD(cuEventDestroy_v2(e));
    GOOD(cuEventDestroy_v2(f));
    end(&s);
}
END_TEST

/* The consumer does not wait for the upload: found whichever of the two ran first. */
START_TEST(missing_event_wait)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoD_v2(s.x, s.pinned, BYTES)); /* so that the bytes are written in any case */
    GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
    GOOD(copy(&s, s.x, s.y, s.b));
    GOOD(cuCtxSynchronize());
    ck_assert(has_finding("missing order between streams", "operation"));
    end(&s);
}
END_TEST

/* The next upload does not wait for the kernel that still reads the buffer. */
START_TEST(early_overwrite_on_the_device)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoD_v2(s.x, s.pinned, BYTES));
    GOOD(copy(&s, s.x, s.y, s.b));
    GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
    GOOD(cuCtxSynchronize());
    ck_assert(has_finding("missing order between streams", "operation"));
    end(&s);
}
END_TEST

START_TEST(host_order_counts)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
    GOOD(cuStreamSynchronize(s.a));
    GOOD(copy(&s, s.x, s.y, s.b));
    GOOD(cuCtxSynchronize());
    want_no_findings();
    end(&s);
}
END_TEST

START_TEST(null_stream_orders_blocking_streams)
{
    struct setting s = begin();
    CUstream blocking;
    GOOD(cuStreamCreate(&blocking, 0));
    for (int round = 0; round < 10; round++) {
        GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, blocking));
        GOOD(copy(&s, s.x, s.y, NULL));
        GOOD(copy(&s, s.y, s.z, blocking));
    }
    GOOD(cuCtxSynchronize());
    want_no_findings();
    GOOD(cuStreamDestroy_v2(blocking));
    end(&s);
}
END_TEST

START_TEST(overwritten_pinned_source)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
    s.pinned[17] = 0; /* before the copy is known to be done */
    GOOD(cuStreamSynchronize(s.a));
    ck_assert(has_finding("pinned buffer touched while its copy was pending",
                          "wrote to its source of 4000 bytes"));
    end(&s);
}
END_TEST

START_TEST(pageable_source_may_change)
{
    struct setting s = begin();
    float *source = malloc(BYTES), out[N];
    memcpy(source, s.pinned, BYTES);
    GOOD(cuMemcpyHtoDAsync_v2(s.x, source, BYTES, s.a));
    memset(source, 0, BYTES); /* the driver has taken its copy */
    GOOD(cuMemcpyDtoHAsync_v2(out, s.x, BYTES, s.a));
    ck_assert(memcmp(out, s.pinned, BYTES) == 0); /* into pageable memory: done when it returns */
    want_no_findings();
    free(source);
    end(&s);
}
END_TEST

START_TEST(pinned_result_read_early)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoD_v2(s.x, s.pinned, BYTES));
    GOOD(cuMemcpyDtoHAsync_v2(s.pinned, s.x, BYTES, s.a));
    ck_assert(s.pinned[5] != 5.0f); /* garbage until the copy is done */
    GOOD(cuStreamSynchronize(s.a));
    ck_assert(s.pinned[5] == 5.0f);
    want_no_findings();
    end(&s);
}
END_TEST

START_TEST(stream_ordered_memory)
{
    struct setting s = begin();
    CUdeviceptr t;
    float out[N];
    GOOD(cuMemAllocAsync(&t, BYTES, s.a));
    GOOD(cuMemcpyHtoDAsync_v2(t, s.pinned, BYTES, s.a));
    GOOD(copy(&s, t, s.y, s.a));
    GOOD(cuMemFreeAsync(t, s.a));
    GOOD(cuMemcpyDtoHAsync_v2(out, s.y, BYTES, s.a));
    ck_assert(out[N - 1] == (float)(N - 1));
    want_no_findings();
    GOOD(copy(&s, t, s.y, s.a));
    ck_assert_uint_eq(cuStreamSynchronize(s.a), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert(has_finding("use after free", "(cuMemAllocAsync)"));
    end(&s);
}
END_TEST

START_TEST(free_with_work_pending)
{
    struct setting s = begin();
    GOOD(cuMemcpyHtoD_v2(s.x, s.pinned, BYTES));
    GOOD(copy(&s, s.x, s.y, s.a));
    GOOD(cuMemFree_v2(s.x));
    ck_assert_uint_eq(cuStreamSynchronize(s.a), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert(has_finding("use after free", "kernel copy"));
    s.x = 0;
    end(&s);
}
END_TEST

START_TEST(copies_are_checked)
{
    struct setting s = begin();
    float out[N];
    ck_assert_uint_eq(cuMemcpyHtoD_v2(s.x + 8, s.pinned, BYTES), CUDA_ERROR_INVALID_VALUE);
    ck_assert(has_finding("out of bounds", "cuMemcpyHtoD of 4000 bytes"));
    GOOD(cuMemcpyDtoH_v2(out, s.x, BYTES));
    ck_assert(has_finding("uninitialized read", "cuMemcpyDtoH (operation"));
    end(&s);
}
END_TEST

/* Two streams in one graph, replayed; in any order that the graph allows the result is the same. */
START_TEST(graph)
{
    struct setting s = begin();
    CUgraph g;
    CUgraphExec exec;
    CUevent fork, join;
    float out[N];
    GOOD(cuEventCreate(&fork, 2));
    GOOD(cuEventCreate(&join, 2));
    GOOD(cuStreamBeginCapture_v2(s.a, 0));
    GOOD(cuMemcpyHtoDAsync_v2(s.x, s.pinned, BYTES, s.a));
    GOOD(cuEventRecord(fork, s.a));
    GOOD(cuStreamWaitEvent(s.b, fork, 0));
    GOOD(copy(&s, s.x, s.y, s.b));
    GOOD(copy(&s, s.x, s.z, s.a));
    GOOD(cuEventRecord(join, s.b));
    GOOD(cuStreamWaitEvent(s.a, join, 0));
    GOOD(copy(&s, s.y, s.x, s.a));
    ck_assert_uint_eq(cuStreamSynchronize(s.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GOOD(cuStreamEndCapture(s.a, &g));
    size_t n;
    GOOD(cuGraphGetNodes(g, NULL, &n));
    ck_assert_uint_eq(n, 4);
    GOOD(cuGraphInstantiateWithFlags(&exec, g, 0));
    GOOD(cuGraphDestroy(g));
    for (int round = 0; round < 20; round++) {
        GOOD(cuGraphLaunch(exec, s.a));
    }
    GOOD(cuMemcpyDtoHAsync_v2(out, s.z, BYTES, s.a));
    ck_assert(memcmp(out, s.pinned, BYTES) == 0);
    want_no_findings();
    GOOD(cuGraphExecDestroy(exec));
    end(&s);
}
END_TEST

START_TEST(unjoined_capture)
{
    struct setting s = begin();
    CUgraph g;
    CUevent fork;
    GOOD(cuEventCreate(&fork, 2));
    GOOD(cuStreamBeginCapture_v2(s.a, 0));
    GOOD(cuEventRecord(fork, s.a));
    GOOD(cuStreamWaitEvent(s.b, fork, 0));
    GOOD(copy(&s, s.x, s.y, s.b));
    ck_assert_uint_eq(cuStreamEndCapture(s.a, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    end(&s);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, ordered_by_events);
    tcase_add_test(tc, missing_event_wait);
    tcase_add_test(tc, early_overwrite_on_the_device);
    tcase_add_test(tc, host_order_counts);
    tcase_add_test(tc, null_stream_orders_blocking_streams);
    tcase_add_test(tc, overwritten_pinned_source);
    tcase_add_test(tc, pageable_source_may_change);
    tcase_add_test(tc, pinned_result_read_early);
    tcase_add_test(tc, stream_ordered_memory);
    tcase_add_test(tc, free_with_work_pending);
    tcase_add_test(tc, copies_are_checked);
    tcase_add_test(tc, graph);
    tcase_add_test(tc, unjoined_capture);
}

int main(void)
{
    return run_suite("emulator_streams", fill);
}
