/* What the f8 ops have of their own in ir/: how scales lie over an operand, the types of quantize
 * and scaled_matmul, and the oracle of the product. */
#include "scaled.h"

#include <math.h>
#include <string.h>

#include "eval_internal.h"
#include "infer.h"

const struct scale_kind_row scale_kind_info[N_SCALE_KINDS] = {
    [SCALE_TENSOR] = {"tensor", 0, 0, "one scale a tensor", SCALE_TENSOR, F32},
    [SCALE_ROW] = {"row", 1, 0, "one scale a row", SCALE_ROW, F32},
    [SCALE_BLOCK] = {"block", 1, 128, "one scale for 1x128", SCALE_BLOCK, F32},
    [SCALE_TILE] = {"tile", 128, 128, "one scale for 128x128", SCALE_TILE, F32},
    [SCALE_MX] = {"mx", 1, 32, "one E8M0 scale for 1x32", SCALE_MX, F32},
    [SCALE_BLOCK_T] = {"block_t", 1, 128, "one scale for 1x128", SCALE_BLOCK, F32},
    [SCALE_TILE_4] = {"tile_4", 128, 128, "one scale for 128x128", SCALE_TILE, F32},
    [SCALE_MX_TILED] = {"mx_tiled", 1, 32, "one E8M0 scale for 1x32", SCALE_MX, U8},
};

bool scale_kind_named(const char *name, enum scale_kind *out)
{
    for (int i = 0; i < N_SCALE_KINDS; i++) {
        if (strcmp(scale_kind_info[i].name, name) == 0) {
            *out = (enum scale_kind)i;
            return true;
        }
    }
    return false;
}

enum scale_kind node_scale_kind(const struct node *n, uint32_t operand)
{
    enum scale_kind kind = SCALE_TENSOR;
    (void)scale_kind_named(node_text(n, operand == 0 ? "scale_a" : "scale_b"), &kind);
    return kind;
}

/* size / part, where the division leaves nothing. */
static bool parts_of(struct dim size, int64_t part, struct dim *out)
{
    *out = size;
    if (part == 0) {
        *out = dim_of(1);
        return true;
    }
    out->factor /= part;
    return size.factor % part == 0;
}

/* d up to the next multiple of part. */
static bool filled_up(struct dim *d, int64_t part)
{
    if (d->factor % part == 0) {
        return true;
    }
    bool is_number = dim_is_static(*d);
    d->factor = (d->factor + part - 1) / part * part;
    return is_number;
}

bool scale_shape(enum scale_kind kind, const struct shape *operand, struct shape *out)
{
    const struct scale_kind_row *row = &scale_kind_info[kind];
    *out = (struct shape){.rank = 2};
    bool fits = parts_of(operand->dims[0], row->rows, &out->dims[0]);
    fits = parts_of(operand->dims[1], row->depth, &out->dims[1]) && fits;
    if (kind == SCALE_BLOCK_T) {
        struct dim rows = out->dims[0];
        out->dims[0] = out->dims[1];
        out->dims[1] = rows;
    }
    bool is_filled = kind == SCALE_TILE_4 || kind == SCALE_MX_TILED;
    fits = fits && (!is_filled || filled_up(&out->dims[1], 4));
    return fits && (kind != SCALE_MX_TILED || filled_up(&out->dims[0], 128));
}

static int64_t up_to(int64_t n, int64_t part)
{
    return (n + part - 1) / part * part;
}

int64_t scale_index(enum scale_kind kind, const int64_t size[2], int64_t r, int64_t p)
{
    const struct scale_kind_row *row = &scale_kind_info[kind];
    int64_t columns = row->depth == 0 ? 1 : size[1] / row->depth;
    switch ((int)kind) {
    case SCALE_BLOCK_T:
        return p * size[0] + r;
    case SCALE_TILE_4:
        return r * up_to(columns, 4) + p;
    case SCALE_MX_TILED:
        return (r / 128 * up_to(columns, 4) / 4 + p / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 +
               p % 4;
    default:
        return r * columns + p;
    }
}

enum scale_kind scale_laid_out(enum scale_kind kind)
{
    return kind == SCALE_BLOCK  ? SCALE_BLOCK_T
           : kind == SCALE_TILE ? SCALE_TILE_4
           : kind == SCALE_MX   ? SCALE_MX_TILED
                                : kind;
}

const char *scaled_lack(enum scale_kind a, enum scale_kind b, int arch)
{
    a = scale_kind_info[a].plain;
    b = scale_kind_info[b].plain;
    bool is_cut_a = a == SCALE_BLOCK || a == SCALE_TILE;
    bool is_cut_b = b == SCALE_BLOCK || b == SCALE_TILE;
    if (arch < 89) {
        return "f8 needs sm_89 or newer";
    }
    if (a == SCALE_TENSOR && b == SCALE_TENSOR) {
        return NULL;
    }
    if (a == SCALE_ROW && b == SCALE_ROW) {
        return arch / 10 == 9 ? NULL : "scales a row are there on sm_90 only";
    }
    if (a == SCALE_MX && b == SCALE_MX) {
        return arch >= 100 ? NULL : "E8M0 scales are there from sm_100 on";
    }
    if (!is_cut_a || !is_cut_b) {
        return "no scale pointers for two such kinds";
    }
    if (a == SCALE_TILE && b == SCALE_TILE) {
        return "one operand of 1x128 parts is needed, both have 128x128";
    }
    return arch / 10 == 9 ? NULL : "scales of blocks are there on sm_90 only";
}

value behind_views(const struct graph *g, value v)
{
    while (op_info[graph_node(g, v)->op].kind == VIEW) {
        v = graph_node(g, v)->operands[0];
    }
    return v;
}

value scaled_source(const struct graph *g, value v)
{
    v = behind_views(g, v);
    while (graph_node(g, v)->op == OP_pad) { /* zeros are zeros in every scale */
        v = behind_views(g, graph_node(g, v)->operands[0]);
    }
    return graph_node(g, v)->op == OP_quantize ? v : (value){0};
}

/* Also through what lays scales out for a library. */
value scaled_inverse(const struct graph *g, value v)
{
    for (;;) {
        v = behind_views(g, v);
        const struct node *n = graph_node(g, v);
        bool is_laid_out =
            n->op == OP_pad || n->op == OP_e8m0 || (n->op == OP_cast && n->dtype == U8);
        if (!is_laid_out) {
            return v;
        }
        v = n->operands[0];
    }
}

/* ---- types ---- */

static bool is_f8(enum dtype t)
{
    return t == F8E4M3 || t == F8E5M2;
}

static status refuse(struct graph *g, const struct node *n, status code, const char *what)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    for (uint32_t i = 0; i < n->n_operands; i++) {
        text_add(&t, "%s%s", i > 0 ? ", " : "",
                 type_text(g, graph_node(g, n->operands[i]), &scratch));
    }
    fail(&g->error, code, "%s%s%s%s(%s): %s", n->name != NULL ? "%" : "",
         n->name != NULL ? n->name : "", n->name != NULL ? ": " : "", op_info[n->op].name, t.data,
         what);
    arena_free(&scratch);
    return code;
}

status infer_quantize(struct graph *g, struct node *n)
{
    TRY(infer_broadcast(g, n));
    n->dtype = node_dtype(n, "dtype");
    if (!is_f8(n->dtype)) {
        return refuse(g, n, ATOLL_DTYPE, "expected dtype f8e4m3 or f8e5m2");
    }
    return shape_equal(&n->shape, &graph_node(g, n->operands[0])->shape)
               ? ATOLL_OK
               : refuse(g, n, ATOLL_SHAPE, "expected scales that broadcast to the values");
}

status infer_scaled_matmul(struct graph *g, struct node *n)
{
    const struct node *x[4];
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = graph_node(g, n->operands[i]);
        if (x[i]->shape.rank != 2 || (i < 2 && !is_f8(x[i]->dtype))) {
            return refuse(g, n, ATOLL_DTYPE,
                          "expected f8 (M,K) and (N,K), then their f32 scales, all of rank 2");
        }
    }
    if (x[0]->dtype == F8E5M2 && x[1]->dtype == F8E5M2) {
        return refuse(g, n, ATOLL_DTYPE,
                      "no processor multiplies f8e5m2 by f8e5m2; hint: make one f8e4m3");
    }
    if (!dim_equal(x[0]->shape.dims[1], x[1]->shape.dims[1])) {
        return refuse(g, n, ATOLL_SHAPE, "inner sizes differ: expected (M,K) and (N,K)");
    }
    n->dtype = node_dtype(n, "dtype");
    if (n->dtype != F32 && n->dtype != BF16 && n->dtype != F16) {
        return refuse(g, n, ATOLL_DTYPE, "expected dtype bf16, f16 or f32");
    }
    for (uint32_t i = 0; i < 2; i++) {
        enum scale_kind kind;
        struct shape want;
        if (!scale_kind_named(node_text(n, i == 0 ? "scale_a" : "scale_b"), &kind)) {
            return refuse(
                g, n, ATOLL_USAGE,
                "expected scale_a and scale_b tensor, row, block, tile or mx, or laid out "
                "as block_t, tile_4 or mx_tiled");
        }
        if (x[2 + i]->dtype != scale_kind_info[kind].dtype) {
            return refuse(g, n, ATOLL_DTYPE,
                          "expected f32 scales (mx_tiled: the u8 of E8M0, 2^(u8-127))");
        }
        if (!scale_shape(kind, &x[i]->shape, &want) || !shape_equal(&want, &x[2 + i]->shape)) {
            return refuse(g, n, ATOLL_SHAPE,
                          "the scales do not lie over their operand: expected tensor (1,1), row "
                          "(R,1), block (R,K/128), tile (R/128,K/128), mx (R,K/32); block_t "
                          "(K/128,R), tile_4 and mx_tiled filled up to multiples of 4 and (128,4)");
        }
    }
    n->shape = x[0]->shape;
    n->shape.dims[1] = x[1]->shape.dims[0];
    return ATOLL_OK;
}

/* ---- the oracle ---- */

/* The factor of the element at (row, k) of an operand of that size. */
static double scale_at(const double *scales, enum scale_kind kind, const int64_t size[2],
                       int64_t row, int64_t k)
{
    const struct scale_kind_row *part = &scale_kind_info[kind];
    double s = scales[scale_index(kind, size, part->rows == 0 ? 0 : row / part->rows,
                                  part->depth == 0 ? 0 : k / part->depth)];
    return part->dtype != U8 ? s : s == 255.0 ? (double)NAN : ldexp(1.0, (int)s - 127);
}

void eval_scaled(struct eval *e, value v, const struct node *n, double *out)
{
    const double *x[4];
    struct dense a = eval_dense(e, n->operands[0]), b = eval_dense(e, n->operands[1]);
    struct dense d = eval_dense(e, v);
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = e->values[n->operands[i].id];
    }
    int64_t depth = a.size[1];
    for (int64_t i = 0; i < d.count; i++) {
        int64_t row = i / d.size[1], col = i % d.size[1];
        double y = 0.0;
        for (int64_t k = 0; k < depth; k++) {
            y += x[0][row * depth + k] * scale_at(x[2], node_scale_kind(n, 0), a.size, row, k) *
                 (x[1][col * depth + k] * scale_at(x[3], node_scale_kind(n, 1), b.size, col, k));
        }
        out[i] = eval_rounded(e, n->dtype, y);
    }
}
