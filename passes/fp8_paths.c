/* Scaled products that a target's library cannot do, written out: f8 values widen to f32 exactly,
 * the product is one of f32, scales apply around it. Runs behind fp8, for CUDA targets only: the
 * CPU does every kind. Needs a typed graph; leaves scaled_matmul where every target has it, scales
 * of blocks laid out as cuBLASLt reads them (ir/scaled.h), else
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

/* ---- scales as a library reads them ---- */

static value fill_up(struct graph *g, value v, int64_t axis, int64_t part)
{
    int64_t size = graph_node(g, v)->shape.dims[axis].factor, more = (part - size % part) % part;
    struct attr attrs[] = {attr_int("axis", axis), attr_int("high", more)};
    return more == 0 ? v : graph_add(g, OP_pad, &v, 1, attrs, 2);
}

/* (128i,4j) as tiles of 128x4, in each the rows r%32, their r/32, then the 4. */
static value tiled(struct graph *g, value v)
{
    struct shape whole = graph_node(g, v)->shape, cut = {.rank = 5};
    cut.dims[0] = whole.dims[0];
    cut.dims[0].factor /= 128;
    cut.dims[1] = dim_of(4);
    cut.dims[2] = dim_of(32);
    cut.dims[3] = whole.dims[1];
    cut.dims[3].factor /= 4;
    cut.dims[4] = dim_of(4);
    v = graph_transpose(g, graph_reshape(g, v, &cut), (int64_t[]){0, 3, 2, 1, 4}, 5);
    return graph_reshape(g, v, &whole);
}

static value lay_out(struct graph *g, value scales, enum scale_kind kind)
{
    switch ((int)kind) {
    case SCALE_BLOCK:
        return graph_transpose(g, scales, (int64_t[]){1, 0}, 2);
    case SCALE_TILE:
        return fill_up(g, scales, 1, 4);
    case SCALE_MX:
        scales = fill_up(g, fill_up(g, scales, 0, 128), 1, 4);
        return tiled(g, graph_cast(g, graph_op1(g, OP_e8m0, scales), U8));
    default:
        return scales;
    }
}

/* The product as it is, its scales laid out. */
static value keep(struct graph *g, const struct node *n, const value *x)
{
    enum scale_kind kinds[2] = {node_scale_kind(n, 0), node_scale_kind(n, 1)};
    const char *name = g->origin_name;
    g->origin_name = name != NULL ? arena_text(&g->arena, "%s.scales", name) : NULL;
    value all[4] = {x[0], x[1], lay_out(g, x[2], kinds[0]), lay_out(g, x[3], kinds[1])};
    g->origin_name = name;
    return graph_add(
        g, OP_scaled_matmul, all, 4,
        (struct attr[]){attr_text("scale_a", scale_kind_info[scale_laid_out(kinds[0])].name),
                        attr_text("scale_b", scale_kind_info[scale_laid_out(kinds[1])].name),
                        attr_dtype("dtype", n->dtype)},
        3);
}

/* ---- which products ---- */

struct paths {
    const struct pass_options *o;
    struct notes *notes;
};

/* What the layout of block scales asks of the sizes, or NULL. */
static const char *size_lack(const struct graph *in, const struct node *n)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct shape *s = &graph_node(in, n->operands[i])->shape;
        enum scale_kind kind = node_scale_kind(n, i);
        struct shape laid;
        bool is_cut = kind == SCALE_BLOCK || kind == SCALE_TILE;
        if (is_cut && s->dims[0].factor % 4 != 0) {
            return "with scales of blocks, rows of both operands are a multiple of 4";
        }
        if (!scale_shape(scale_laid_out(kind), s, &laid)) {
            return "a size is a symbol, and its scales are filled up to a number of them";
        }
    }
    return NULL;
}

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
        if (k.factor % 16 != 0) {
            return dim_is_static(k) ? "it sums over a size that is no multiple of 16"
                                    : "it sums over a symbol, which need not be a multiple of 16";
        }
        if (n->shape.dims[1].factor * dtype_info[n->dtype].bytes % 16 != 0) {
            return "rows of its result are no multiple of 16 bytes";
        }
        lack = size_lack(in, n);
        if (lack != NULL) {
            return lack;
        }
    }
    return NULL;
}

static value rule(struct graph *out, const struct graph *in, value v, const value *operands,
                  void *context)
{
    const struct paths *p = context;
    const struct node *n = graph_node(in, v);
    const char *arch = "", *why;
    if (n->op != OP_scaled_matmul) {
        return (value){0};
    }
    why = why_written_out(in, n, p->o, &arch);
    if (why == NULL) {
        return scale_kind_info[node_scale_kind(n, 0)].depth != 0 ? keep(out, n, operands)
                                                                 : (value){0};
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
