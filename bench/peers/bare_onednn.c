/* The same bf16 linear by oneDNN alone: one matmul primitive with bias over the layouts that Atoll
 * holds, made once and executed again and again. What a linear of ours is measured against. */
#include "bench/peers/bare_onednn.h"

#ifdef ATOLL_HAVE_ONEDNN

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { N_PARTS = 4 };

struct bare_linear {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[N_PARTS];
    void *data[N_PARTS];
};

static unsigned make_primitive(struct bare_linear *b, const dnnl_dims_t dims[N_PARTS],
                               const dnnl_dims_t strides[N_PARTS])
{
    dnnl_primitive_desc_t made = NULL;
    unsigned bad = 0;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t d[N_PARTS] = {0};
    for (int i = 0; i < N_PARTS; i++) {
        bad |= dnnl_memory_desc_create_with_strides(&d[i], 2, dims[i], dnnl_bf16, strides[i]);
    }
    bad |= dnnl_matmul_primitive_desc_create(&made, b->engine, d[0], d[1], d[2], d[3], NULL);
    for (int i = 0; bad == 0 && i < N_PARTS; i++) {
        bad |= dnnl_memory_create(&b->memories[i], d[i], b->engine, b->data[i]);
    }
    for (int i = 0; i < N_PARTS; i++) {
        dnnl_memory_desc_destroy(d[i]);
    }
#else
    dnnl_memory_desc_t d[N_PARTS];
    dnnl_matmul_desc_t matmul;
    for (int i = 0; i < N_PARTS; i++) {
        bad |= dnnl_memory_desc_init_by_strides(&d[i], 2, dims[i], dnnl_bf16, strides[i]);
    }
    bad |= dnnl_matmul_desc_init(&matmul, &d[0], &d[1], &d[2], &d[3]);
    bad |= dnnl_primitive_desc_create(&made, &matmul, NULL, b->engine, NULL);
    for (int i = 0; bad == 0 && i < N_PARTS; i++) {
        bad |= dnnl_memory_create(&b->memories[i], &d[i], b->engine, b->data[i]);
    }
#endif
    bad |= dnnl_primitive_create(&b->primitive, made);
    dnnl_primitive_desc_destroy(made);
    return bad;
}

struct bare_linear *bare_linear_create(int64_t m, int64_t k, int64_t n)
{
    const dnnl_dims_t dims[N_PARTS] = {{m, k}, {k, n}, {1, n}, {m, n}};
    const dnnl_dims_t strides[N_PARTS] = {{k, 1}, {1, k}, {n, 1}, {n, 1}};
    struct bare_linear *b = calloc(1, sizeof *b);
    if (b == NULL || dnnl_engine_create(&b->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags) != dnnl_success) {
        free(b);
        return NULL;
    }
    for (int i = 0; i < N_PARTS; i++) {
        size_t bytes = (size_t)(dims[i][0] * dims[i][1]) * 2;
        b->data[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (b->data[i] != NULL) {
            memset(b->data[i], 0, bytes);
        }
    }
    if (make_primitive(b, dims, strides) != 0) {
        bare_linear_destroy(b);
        return NULL;
    }
    return b;
}

void bare_linear_run(struct bare_linear *b)
{
    dnnl_exec_arg_t args[N_PARTS] = {{DNNL_ARG_SRC, b->memories[0]},
                                     {DNNL_ARG_WEIGHTS, b->memories[1]},
                                     {DNNL_ARG_BIAS, b->memories[2]},
                                     {DNNL_ARG_DST, b->memories[3]}};
    dnnl_primitive_execute(b->primitive, b->stream, N_PARTS, args);
    dnnl_stream_wait(b->stream);
}

void bare_linear_destroy(struct bare_linear *b)
{
    for (int i = 0; i < N_PARTS; i++) {
        dnnl_memory_destroy(b->memories[i]);
        free(b->data[i]);
    }
    dnnl_primitive_destroy(b->primitive);
    dnnl_stream_destroy(b->stream);
    dnnl_engine_destroy(b->engine);
    free(b);
}

#else

struct bare_linear *bare_linear_create(int64_t m, int64_t k, int64_t n)
{
    (void)m;
    (void)k;
    (void)n;
    return NULL;
}
void bare_linear_run(struct bare_linear *b)
{
    (void)b;
}
void bare_linear_destroy(struct bare_linear *b)
{
    (void)b;
}

#endif
