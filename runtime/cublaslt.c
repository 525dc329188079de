/* cuBLASLt: descriptors from a contraction, heuristics kept by shape, the call. Matrices here are
 * row-major, there column-major: C^T = B^T A^T, so the operands change places and nothing is
 * copied. The rules the library would refuse with a bare number are checked first, in words. */
#include "cublaslt_internal.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static status find_call(struct cublaslt *b, const char *name, void *to, const char *path,
                        struct error *e)
{
    void *address = dlsym(b->library, name);
    if (address == NULL) {
        return fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: %s has no %s; hint: CUDA 12 or 13 is needed",
                    path, name);
    }
    memcpy(to, &address, sizeof address);
    return ATOLL_OK;
}

static status find_calls(struct cublaslt *b, const char *path, struct error *e)
{
#define X(name, args) TRY(find_call(b, #name, &b->name, path, e));
    LT_CALLS(X)
#undef X
    return find_call(b, "cublasLtGetVersion", &b->cublasLtGetVersion, path, e);
}

status lt_check(int code, const char *call, const char *what, struct error *e)
{
    return code == 0 ? ATOLL_OK
                     : fail(e, code == 3 ? ATOLL_OUT_OF_MEMORY : ATOLL_DEVICE,
                            "%s (%s): cuBLAS status %d%s", call, what, code,
                            code == 15  ? ", not supported"
                            : code == 7 ? ", invalid value"
                                        : "");
}

status cublaslt_open(const char *path, struct device *d, bool allows_tf32, struct cublaslt **out,
                     struct error *e)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    struct cublaslt *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    b->device = d;
    b->allows_tf32 = allows_tf32;
    for (uint32_t i = 0; i < ARRAY_LEN(names) && b->library == NULL; i++) {
        b->library = dlopen(path != NULL ? path : names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (b->library == NULL) {
        const char *why = dlerror();
        free(b);
        return fail(e, ATOLL_NOT_FOUND,
                    "cuBLASLt: %s cannot be opened (%s); hint: install CUDA's cublas package, or "
                    "set ATOLL_LIBCUBLASLT to the library's path",
                    path != NULL ? path : names[0], why != NULL ? why : "no reason given");
    }
    status code = find_calls(b, path != NULL ? path : names[0], e);
    code = code == ATOLL_OK ? lt_check(b->cublasLtCreate(&b->handle), "cublasLtCreate", d->name, e)
                            : code;
    code = code == ATOLL_OK ? d->backend->allocate(d, WORKSPACE_BYTES, &b->workspace, e) : code;
    if (code != ATOLL_OK) {
        cublaslt_close(b);
        return code;
    }
    *out = b;
    return ATOLL_OK;
}

void lt_free_plan(struct cublaslt *b, struct lt_plan *p)
{
    void *layouts[] = {p->a, p->b, p->d};
    for (uint32_t i = 0; i < ARRAY_LEN(layouts); i++) {
        if (layouts[i] != NULL) {
            (void)b->cublasLtMatrixLayoutDestroy(layouts[i]);
        }
    }
    if (p->desc != NULL) {
        (void)b->cublasLtMatmulDescDestroy(p->desc);
    }
}

void cublaslt_close(struct cublaslt *b)
{
    if (b == NULL) {
        return;
    }
    for (uint32_t i = 0; i < b->n_plans; i++) {
        lt_free_plan(b, &b->plans[i]);
    }
    if (b->handle != NULL) {
        (void)b->cublasLtDestroy(b->handle);
    }
    b->device->backend->release(b->device, b->workspace);
    dlclose(b->library);
    free(b->plans);
    free(b->recalled);
    free(b->told);
    free(b);
}

/* ---- rules ---- */

static bool is_f8(enum dtype t)
{
    return t == F8E4M3 || t == F8E5M2;
}

int lt_type_of(enum dtype t)
{
    switch ((int)t) {
    case F32:
        return 0;
    case F64:
        return 1;
    case F16:
        return 2;
    case BF16:
        return 14;
    case F8E4M3:
        return 28;
    case F8E5M2:
        return 29;
    default:
        return -1;
    }
}

status cublaslt_check(const struct contraction *c, int arch, struct error *e)
{
    const char *ab = dtype_info[c->ab].name, *to = dtype_info[c->c].name;
    if (lt_type_of(c->ab) < 0 || lt_type_of(c->c) < 0) {
        return fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: no product of %s giving %s", ab, to);
    }
    if ((c->ab == F64) != (c->c == F64)) {
        return fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: %s operands cannot give %s", ab, to);
    }
    if (!is_f8(c->ab)) {
        bool is_pair = c->c == c->ab || c->c == F32;
        return is_pair ? ATOLL_OK
                       : fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: %s operands give %s or f32, not %s",
                              ab, ab, to);
    }
    if (arch < 89) {
        return fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: %s needs sm_89 or newer, found sm_%d", ab,
                    arch);
    }
    if (c->ab == F8E5M2) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8e5m2 times f8e5m2 has no kernel; hint: make one operand f8e4m3");
    }
    if (arch / 10 != 10 && (c->transpose_a || !c->transpose_b)) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8 on sm_%d wants a (M,K) and b transposed (N,K); found%s%s; hint: "
                    "transpose before the cast",
                    arch, c->transpose_a ? " a (K,M)" : "", c->transpose_b ? "" : " b (K,N)");
    }
    if (c->k % 16 != 0 || c->n * dtype_info[c->c].bytes % 16 != 0) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8 wants K a multiple of 16 and rows of %s of 16 bytes; found K = "
                    "%lld, N = %lld; hint: pad them",
                    to, (long long)c->k, (long long)c->n);
    }
    return ATOLL_OK;
}

/* ---- plans ---- */

status lt_layout(struct cublaslt *b, void **out, enum dtype t, int64_t rows, int64_t cols,
                 int64_t batch, int64_t stride, struct error *e)
{
    int32_t count = (int32_t)batch;
    TRY(lt_check(
        b->cublasLtMatrixLayoutCreate(out, lt_type_of(t), (uint64_t)rows, (uint64_t)cols, rows),
        "cublasLtMatrixLayoutCreate", dtype_info[t].name, e));
    if (batch > 1) {
        TRY(lt_check(b->cublasLtMatrixLayoutSetAttribute(*out, LAYOUT_BATCH, &count, sizeof count),
                     "cublasLtMatrixLayoutSetAttribute", "batch", e));
        TRY(lt_check(
            b->cublasLtMatrixLayoutSetAttribute(*out, LAYOUT_STRIDE, &stride, sizeof stride),
            "cublasLtMatrixLayoutSetAttribute", "stride", e));
    }
    return ATOLL_OK;
}

static int compute_of(const struct cublaslt *b, const struct contraction *c)
{
    return c->c == F64 ? COMPUTE_64F : c->ab == F32 && b->allows_tf32 ? COMPUTE_TF32 : COMPUTE_32F;
}

static status set_desc(struct cublaslt *b, struct lt_plan *p, struct error *e)
{
    const struct contraction *c = &p->c;
    int compute = compute_of(b, c);
    int32_t first = c->transpose_b, second = c->transpose_a, type = lt_type_of(c->c);
    int32_t epilogue = EPILOGUE_BIAS;
    TRY(lt_check(b->cublasLtMatmulDescCreate(&p->desc, compute, c->c == F64 ? 1 : 0),
                 "cublasLtMatmulDescCreate", dtype_info[c->ab].name, e));
    TRY(lt_check(b->cublasLtMatmulDescSetAttribute(p->desc, DESC_TRANSA, &first, sizeof first),
                 "cublasLtMatmulDescSetAttribute", "transpose", e));
    TRY(lt_check(b->cublasLtMatmulDescSetAttribute(p->desc, DESC_TRANSB, &second, sizeof second),
                 "cublasLtMatmulDescSetAttribute", "transpose", e));
    if (c->has_bias) {
        TRY(lt_check(
            b->cublasLtMatmulDescSetAttribute(p->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue),
            "cublasLtMatmulDescSetAttribute", "epilogue", e));
        TRY(lt_check(b->cublasLtMatmulDescSetAttribute(p->desc, DESC_BIAS_TYPE, &type, sizeof type),
                     "cublasLtMatmulDescSetAttribute", "bias type", e));
    }
    return ATOLL_OK;
}

static status set_layouts(struct cublaslt *b, struct lt_plan *p, struct error *e)
{
    const struct contraction *c = &p->c;
    uint32_t last = c->n_batch - 1;
    int64_t batch = c->n_batch > 0 ? c->batch[last] : 1;
    int64_t stride_a = c->n_batch > 0 ? c->batch_stride_a[last] : 0;
    int64_t stride_b = c->n_batch > 0 ? c->batch_stride_b[last] : 0;
    TRY(lt_layout(b, &p->a, c->ab, c->transpose_b ? c->k : c->n, c->transpose_b ? c->n : c->k,
                  batch, stride_b, e));
    TRY(lt_layout(b, &p->b, c->ab, c->transpose_a ? c->m : c->k, c->transpose_a ? c->k : c->m,
                  batch, stride_a, e));
    return lt_layout(b, &p->d, c->c, c->n, c->m, batch, c->m * c->n, e);
}

status lt_ask(struct cublaslt *b, struct lt_plan *p, struct error *e)
{
    if (lt_recall(b, p)) {
        return ATOLL_OK;
    }
    void *preference = NULL;
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t reduction = REDUCTION_COMPUTE_TYPE;
    int found = 0;
    TRY(lt_check(b->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate",
                 "", e));
    int code = b->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &workspace,
                                                       sizeof workspace);
    code |= b->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_REDUCTION, &reduction,
                                                    sizeof reduction);
    for (int i = 0; i < 4; i++) {
        code |= b->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGNMENT_A + i,
                                                        &p->alignment, sizeof p->alignment);
    }
    if (code == 0) {
        code = b->cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->d, p->d,
                                                 preference, 1, &p->heuristic, &found);
    }
    (void)b->cublasLtMatmulPreferenceDestroy(preference);
    TRY(lt_check(code, "cublasLtMatmulAlgoGetHeuristic", p->what, e));
    return found > 0 ? ATOLL_OK
                     : fail(e, ATOLL_UNSUPPORTED, "cuBLASLt has no algorithm for %s", p->what);
}

int lt_arch(const struct cublaslt *b)
{
    return atoi(b->device->arch + 3);
}

status lt_new_plan(struct cublaslt *b, struct lt_plan **out, struct error *e)
{
    if (b->n_plans == b->capacity) {
        uint32_t capacity = 2 * b->capacity + 32;
        struct lt_plan *more = realloc(b->plans, capacity * sizeof *more);
        if (more == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        }
        b->plans = more;
        b->capacity = capacity;
    }
    *out = &b->plans[b->n_plans];
    memset(*out, 0, sizeof **out);
    return ATOLL_OK;
}

status lt_set(struct cublaslt *b, void *desc, int attribute, const void *from, size_t size,
              const char *what, struct error *e)
{
    return lt_check(b->cublasLtMatmulDescSetAttribute(desc, attribute, from, size),
                    "cublasLtMatmulDescSetAttribute", what, e);
}

static void describe(const struct cublaslt *b, struct lt_plan *p)
{
    const struct contraction *c = &p->c;
    uint32_t last = c->n_batch > 0 ? c->n_batch - 1 : 0;
    int at = snprintf(p->what, sizeof p->what,
                      "%s to %s, M %" PRId64 " N %" PRId64 " K %" PRId64 "%s%s%s",
                      dtype_info[c->ab].name, dtype_info[c->c].name, c->m, c->n, c->k,
                      c->transpose_a ? ", a (K,M)" : "", c->transpose_b ? ", b (N,K)" : "",
                      c->has_bias ? ", bias" : "");
    if (c->n_batch > 0) {
        at += snprintf(p->what + at, sizeof p->what - (size_t)at,
                       ", batch %" PRId64 " by %" PRId64 ", %" PRId64, c->batch[last],
                       c->batch_stride_a[last], c->batch_stride_b[last]);
    }
    (void)snprintf(p->what + at, sizeof p->what - (size_t)at, "%s, %u-byte aligned",
                   compute_of(b, c) == COMPUTE_TF32 ? ", TF32" : "", p->alignment);
}

static status plan_for(struct cublaslt *b, const struct contraction *c, uint32_t alignment,
                       struct lt_plan **out, struct error *e)
{
    for (uint32_t i = 0; i < b->n_plans; i++) {
        if (memcmp(&b->plans[i].c, c, sizeof *c) == 0 && b->plans[i].alignment == alignment) {
            *out = &b->plans[i];
            return ATOLL_OK;
        }
    }
    struct lt_plan *p = NULL;
    TRY(cublaslt_check(c, lt_arch(b), e));
    TRY(lt_new_plan(b, &p, e));
    p->c = *c;
    p->alignment = alignment;
    describe(b, p);
    status code = set_desc(b, p, e);
    code = code == ATOLL_OK ? set_layouts(b, p, e) : code;
    code = code == ATOLL_OK ? lt_ask(b, p, e) : code;
    if (code != ATOLL_OK) {
        lt_free_plan(b, p);
        return code;
    }
    b->n_plans++;
    *out = p;
    return ATOLL_OK;
}

/* ---- running ---- */

/* k == 0: zeros, or the bias in every row. */
static status fill_empty(struct cublaslt *b, const struct contraction *c, int64_t batches,
                         const void *bias, void *out, CUstream stream, struct error *e)
{
    struct cuda_device *d = (struct cuda_device *)b->device;
    size_t row = (size_t)c->n * dtype_info[c->c].bytes;
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)out;
    if (!c->has_bias) {
        CUDA(d, cuMemsetD8Async, "empty product", e, to, 0, row * (size_t)(c->m * batches), stream);
        return ATOLL_OK;
    }
    for (int64_t i = 0; i < c->m * batches; i++) {
        CUDA(d, cuMemcpyDtoDAsync, "empty product", e, to + (size_t)i * row,
             (CUdeviceptr)(uintptr_t)bias, row, stream);
    }
    return ATOLL_OK;
}

static status call(struct cublaslt *b, struct lt_plan *p, const void *first, const void *second,
                   const void *bias, void *out, CUstream stream, struct error *e)
{
    static const float one = 1.0F, zero = 0.0F;
    static const double one_f64 = 1.0, zero_f64 = 0.0;
    bool is_wide = p->c.c == F64;
    if (p->c.has_bias) {
        TRY(lt_check(
            b->cublasLtMatmulDescSetAttribute(p->desc, DESC_BIAS_POINTER, &bias, sizeof bias),
            "cublasLtMatmulDescSetAttribute", "bias", e));
    }
    return lt_check(
        b->cublasLtMatmul(b->handle, p->desc, is_wide ? (const void *)&one_f64 : (const void *)&one,
                          first, p->a, second, p->b,
                          is_wide ? (const void *)&zero_f64 : (const void *)&zero, out, p->d, out,
                          p->d, p->heuristic.algo, b->workspace, WORKSPACE_BYTES, stream),
        "cublasLtMatmul", dtype_info[p->c.ab].name, e);
}

/* Batches that one call of the library takes, and the calls. */
static void split_batches(const struct contraction *c, int64_t *outer, int64_t *inner)
{
    *outer = 1;
    *inner = c->n_batch > 0 ? c->batch[c->n_batch - 1] : 1;
    for (uint32_t i = 0; i + 1 < c->n_batch; i++) {
        *outer *= c->batch[i];
    }
}

/* The product made ready for operands at these addresses; NULL when there is nothing to multiply.
 */
static status find_plan(struct cublaslt *b, const struct contraction *c, const void *a,
                        const void *bm, const void *bias, const void *out, struct lt_plan **plan,
                        struct error *e)
{
    int64_t outer, inner;
    split_batches(c, &outer, &inner);
    *plan = NULL;
    if (c->m == 0 || c->n == 0 || c->k == 0 || outer * inner == 0) {
        return ATOLL_OK;
    }
    uintptr_t all = (uintptr_t)a | (uintptr_t)bm | (uintptr_t)bias | (uintptr_t)out;
    bool is_aligned = all % 16 == 0 && outer == 1;
    return plan_for(b, c, is_aligned ? 16 : dtype_info[c->ab].bytes, plan, e);
}

status cublaslt_choose(struct cublaslt *b, const struct contraction *c, const void *a,
                       const void *bm, const void *bias, const void *out, struct error *e)
{
    struct lt_plan *p;
    return find_plan(b, c, a, bm, bias, out, &p, e);
}

status cublaslt_run(struct cublaslt *b, const struct contraction *c, const void *a, const void *bm,
                    const void *bias, void *out, CUstream stream, struct error *e)
{
    int64_t outer, inner;
    split_batches(c, &outer, &inner);
    if (c->m == 0 || c->n == 0 || outer * inner == 0) {
        return ATOLL_OK;
    }
    if (c->k == 0) {
        return fill_empty(b, c, outer * inner, bias, out, stream, e);
    }
    uint32_t size = dtype_info[c->ab].bytes, to_size = dtype_info[c->c].bytes;
    struct lt_plan *p;
    TRY(find_plan(b, c, a, bm, bias, out, &p, e));
    for (int64_t o = 0; o < outer; o++) {
        int64_t at_a = 0, at_b = 0, rest = o;
        for (uint32_t i = c->n_batch; i-- > 1;) {
            at_a += rest % c->batch[i - 1] * c->batch_stride_a[i - 1];
            at_b += rest % c->batch[i - 1] * c->batch_stride_b[i - 1];
            rest /= c->batch[i - 1];
        }
        TRY(call(b, p, (const char *)bm + (size_t)at_b * size,
                 (const char *)a + (size_t)at_a * size, bias,
                 (char *)out + (size_t)(o * inner * c->m * c->n) * to_size, stream, e));
    }
    return ATOLL_OK;
}
