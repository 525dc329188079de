/* Scaled products that a target's library cannot do, written out: f8 values widen to f32 exactly,
 * the product is one of f32, scales apply around it. Runs behind fp8, for CUDA targets only: the
 * CPU does every kind. Needs a typed graph; leaves scaled_matmul where every target has it, else
 *   tensor, row      round((a b^T) s t)             as the CPU does
 *   block, tile, mx  round((a s) (b t)^T)           exact factors where s and t are powers of two
 * Invariant: nothing is lost before the product but what a scale that is no power of two rounds. */
#include "fp8.h"

#include <stdlib.h>

static value widened(struct graph *g, value v)
{
    return graph_cast(g, v, F32);
}

/* v (R,K) times its scales, each over its part. */
static value times_parts(struct graph *g, value v, value scales, enum scale_kind kind)
{
    const struct scale_kind_row *part = &scale_kind_info[kind];
    struct shape whole = graph_node(g, v)->shape, cut = {.rank = 4}, spread;
    v = widened(g, v);
    if (part->depth == 0) { /* (1,1) or (R,1) */
        return graph_op2(g, OP_mul, v, scales);
    }
    int64_t parts[2] = {part->rows, part->depth};
    for (uint32_t i = 0; i < 2; i++) {
        cut.dims[2 * i] = whole.dims[i];
        cut.dims[2 * i].factor /= parts[i];
        cut.dims[2 * i + 1] = dim_of(parts[i]);
    }
    spread = cut;
    spread.dims[1] = spread.dims[3] = dim_of(1);
    value y = graph_op2(g, OP_mul, graph_reshape(g, v, &cut), graph_reshape(g, scales, &spread));
    return graph_reshape(g, y, &whole);
}

static value write_out(struct graph *g, const struct node *n, const value *x)
{
    enum scale_kind a = node_scale_kind(n, 0), b = node_scale_kind(n, 1);
    bool has_parts = scale_kind_info[a].depth != 0 || scale_kind_info[b].depth != 0;
    value y;
    if (has_parts) {
        y = graph_matmul(g, times_parts(g, x[0], x[2], a), times_parts(g, x[1], x[3], b), false,
                         true);
    } else {
        y = graph_matmul(g, widened(g, x[0]), widened(g, x[1]), false, true);
        y = graph_op2(g, OP_mul, y, x[2]);
        y = graph_op2(g, OP_mul, y, graph_transpose(g, x[3], (int64_t[]){1, 0}, 2));
    }
    return graph_cast(g, y, n->dtype);
}

struct paths {
    const struct pass_options *o;
    struct notes *notes;
};

/* NULL, or why some target cannot do the product as it is. */
static const char *why_written_out(const struct graph *in, const struct node *n,
                                   const struct pass_options *o, const char **arch)
{
    struct dim k = graph_node(in, n->operands[0])->shape.dims[1];
    for (uint32_t i = 0; i < o->n_cuda_archs; i++) {
        const char *lack =
            scaled_lack(node_scale_kind(n, 0), node_scale_kind(n, 1), atoi(o->cuda_archs[i] + 3));
        *arch = o->cuda_archs[i];
        if (lack != NULL) {
            return lack;
        }
        if (!dim_is_static(k) || k.factor % 16 != 0) {
            return dim_is_static(k) ? "it sums over a size that is no multiple of 16"
                                    : "it sums over a symbol, which need not be a multiple of 16";
        }
        if (n->shape.dims[1].factor * dtype_info[n->dtype].bytes % 16 != 0) {
            return "rows of its result are no multiple of 16 bytes";
        }
    }
    return NULL;
}

static value rule(struct graph *out, const struct graph *in, value v, const value *operands,
                  void *context)
{
    const struct paths *p = context;
    const struct node *n = graph_node(in, v);
    const char *arch = "",
               *why = n->op == OP_scaled_matmul ? why_written_out(in, n, p->o, &arch) : NULL;
    if (why == NULL) {
        return (value){0};
    }
    note_add(p->notes, "fp8", n->name != NULL ? n->name : "",
             "f8 product written out in f32 for %s: %s", arch, why);
    return write_out(out, n, operands);
}

status fp8_paths_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                      struct notes *notes)
{
    struct paths p = {o, notes};
    return rewrite(in, out, rule, &p, NULL);
}
