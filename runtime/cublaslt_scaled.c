/* f8 products with scales by cuBLASLt: scale pointers of one factor a tensor, of one a row of
 * either operand, or of blocks (128 or 32 along k, 128x128), which lie as the library reads them
 * (ir/scaled.h). Our C = A B^T is its D^T = B A^T, so our b is its A, transposed as it lies, and
 * our a its B: the one layout (TN) that every processor with f8 has. Accumulation is the accurate
 * one (FAST_ACCUM off). */
#include "cublaslt_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status cublaslt_check_scaled(const struct scaled_product *p, int arch, struct error *e)
{
    const char *lack = scaled_lack(p->scale_a, p->scale_b, arch);
    if (lack != NULL) {
        return fail(e, ATOLL_UNSUPPORTED, "cuBLASLt: f8 product on sm_%d: %s", arch, lack);
    }
    if (p->a == F8E5M2 && p->b == F8E5M2) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8e5m2 times f8e5m2 has no kernel; hint: make one operand f8e4m3");
    }
    if (p->k % 16 != 0) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8 wants K a multiple of 16, found %lld; hint: pad it, or give the "
                    "symbol behind it a number when compiling (--shape)",
                    (long long)p->k);
    }
    if (p->n * dtype_info[p->c].bytes % 16 != 0) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8 wants rows of the %s result of 16 bytes, found N = %lld; hint: "
                    "pad it",
                    dtype_info[p->c].name, (long long)p->n);
    }
    for (int i = 0; i < 2; i++) {
        enum scale_kind kind = i == 0 ? p->scale_a : p->scale_b;
        if (scale_laid_out(kind) != kind) {
            return fail(e, ATOLL_UNSUPPORTED,
                        "cuBLASLt: %s scales are read as %s, found them as they are computed",
                        scale_kind_info[kind].name, scale_kind_info[scale_laid_out(kind)].name);
        }
    }
    bool is_cut = p->scale_a == SCALE_BLOCK_T || p->scale_b == SCALE_BLOCK_T;
    if (is_cut && (p->m % 4 != 0 || p->n % 4 != 0)) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: scales of blocks want M and N multiples of 4, found M = %lld, N = "
                    "%lld; hint: pad them",
                    (long long)p->m, (long long)p->n);
    }
    return ATOLL_OK;
}

static int32_t mode_of(enum scale_kind kind)
{
    switch ((int)kind) {
    case SCALE_ROW:
        return SCALE_MODE_OUTER;
    case SCALE_BLOCK_T:
        return SCALE_MODE_VEC128;
    case SCALE_TILE_4:
        return SCALE_MODE_BLK128;
    case SCALE_MX_TILED:
        return SCALE_MODE_VEC32;
    default:
        return SCALE_MODE_SCALAR;
    }
}

static status describe(struct cublaslt *b, struct lt_plan *plan, struct error *e)
{
    const struct scaled_product *p = &plan->p;
    int32_t yes = 1, no = 0, mode_a = mode_of(p->scale_b), mode_b = mode_of(p->scale_a);
    TRY(lt_check(b->cublasLtMatmulDescCreate(&plan->desc, COMPUTE_32F, 0),
                 "cublasLtMatmulDescCreate", "f8", e));
    TRY(lt_set(b, plan->desc, DESC_TRANSA, &yes, sizeof yes, "transpose", e));
    TRY(lt_set(b, plan->desc, DESC_TRANSB, &no, sizeof no, "transpose", e));
    TRY(lt_set(b, plan->desc, DESC_SCALE_MODE_A, &mode_a, sizeof mode_a, "scale mode", e));
    TRY(lt_set(b, plan->desc, DESC_SCALE_MODE_B, &mode_b, sizeof mode_b, "scale mode", e));
    TRY(lt_layout(b, &plan->a, p->b, p->k, p->n, 1, 0, e));
    TRY(lt_layout(b, &plan->b, p->a, p->k, p->m, 1, 0, e));
    return lt_layout(b, &plan->d, p->c, p->n, p->m, 1, 0, e);
}

/* The pointers are part of the descriptor: set for the query, which looks at them, and each call.
 */
static status point(struct cublaslt *b, struct lt_plan *plan, const void *const operands[4],
                    struct error *e)
{
    TRY(lt_set(b, plan->desc, DESC_SCALE_POINTER_A, &operands[3], sizeof operands[3], "scale", e));
    return lt_set(b, plan->desc, DESC_SCALE_POINTER_B, &operands[2], sizeof operands[2], "scale",
                  e);
}

static bool same_product(const struct scaled_product *a, const struct scaled_product *b)
{
    return a->a == b->a && a->b == b->b && a->c == b->c && a->scale_a == b->scale_a &&
           a->scale_b == b->scale_b && a->m == b->m && a->n == b->n && a->k == b->k;
}

static status plan_for(struct cublaslt *b, const struct scaled_product *p,
                       const void *const operands[4], struct lt_plan **out, struct error *e)
{
    for (uint32_t i = 0; i < b->n_plans; i++) {
        if (b->plans[i].alignment == 16 && same_product(&b->plans[i].p, p)) {
            *out = &b->plans[i];
            return point(b, *out, operands, e);
        }
    }
    TRY(cublaslt_check_scaled(p, lt_arch(b), e));
    TRY(lt_new_plan(b, out, e));
    struct lt_plan *plan = *out;
    plan->p = *p;
    plan->alignment = 16;
    snprintf(plan->what, sizeof plan->what,
             "%s times %s to %s, M %lld N %lld K %lld, scales %s and %s", dtype_info[p->a].name,
             dtype_info[p->b].name, dtype_info[p->c].name, (long long)p->m, (long long)p->n,
             (long long)p->k, scale_kind_info[p->scale_a].name, scale_kind_info[p->scale_b].name);
    status code = describe(b, plan, e);
    code = code == ATOLL_OK ? point(b, plan, operands, e) : code;
    code = code == ATOLL_OK ? lt_ask(b, plan, e) : code;
    if (code != ATOLL_OK) {
        lt_free_plan(b, plan);
        return code;
    }
    b->n_plans++;
    return ATOLL_OK;
}

status cublaslt_run_scaled(struct cublaslt *b, const struct scaled_product *p,
                           const void *const operands[4], void *out, CUstream stream,
                           struct error *e)
{
    static const float one = 1.0F, zero = 0.0F;
    struct lt_plan *plan = NULL;
    struct cuda_device *d = (struct cuda_device *)b->device;
    if (p->m == 0 || p->n == 0) {
        return ATOLL_OK;
    }
    if (p->k == 0) {
        CUDA(d, cuMemsetD8Async, "empty product", e, (CUdeviceptr)(uintptr_t)out, 0,
             (size_t)(p->m * p->n) * dtype_info[p->c].bytes, stream);
        return ATOLL_OK;
    }
    uintptr_t all = (uintptr_t)operands[0] | (uintptr_t)operands[1] | (uintptr_t)out;
    if (scale_kind_info[p->scale_a].depth != 0) {
        all |= (uintptr_t)operands[2] | (uintptr_t)operands[3];
    }
    if (all % 16 != 0) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "cuBLASLt: f8 operands, scales of their blocks and their product begin at "
                    "multiples of 16 bytes; found "
                    "one that does not");
    }
    TRY(plan_for(b, p, operands, &plan, e));
    return lt_check(b->cublasLtMatmul(b->handle, plan->desc, &one, operands[1], plan->a,
                                      operands[0], plan->b, &zero, out, plan->d, out, plan->d,
                                      plan->heuristic.algo, b->workspace, WORKSPACE_BYTES, stream),
                    "cublasLtMatmul", "f8 with scales", e);
}
