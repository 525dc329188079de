/* What FP8 needs to be met at all: operands that f8 products take, and linears of sizes that the
 * recipes accept. */
#include "generate_maker.h"

#include "ir/scaled.h"

/* An operand (rows,k), its scales drawn from its own largest values. */
static void make_operand(struct maker *m, int64_t rows, int64_t k, enum scale_kind kind,
                         enum dtype t, value *out, value *out_inverse)
{
    const struct scale_kind_row *part = &scale_kind_info[kind];
    int64_t deep = part->depth == 0 ? k : part->depth, tall = part->rows == 0 ? rows : part->rows;
    struct shape whole = {.rank = 2, .dims = {dim_of(rows), dim_of(k)}}, scales;
    struct shape cut = {
        .rank = 4, .dims = {dim_of(rows / tall), dim_of(tall), dim_of(k / deep), dim_of(deep)}};
    value x = new_leaf(m, OP_input, any_float(m), &whole);
    value parts = graph_reshape(m->g, x, &cut);
    value amax =
        graph_reduce(m->g, OP_max, graph_op1(m->g, OP_abs, parts), (int64_t[]){1, 3}, 2, true);
    value least =
        graph_op2(m->g, OP_maximum, graph_cast(m->g, amax, F32), graph_number(m->g, 0.01));
    value scale = graph_op2(m->g, OP_div, graph_number(m->g, dtype_info[t].max), least);
    scale = draw_chance(m->d, 50) ? graph_op1(m->g, OP_pow2_floor, scale) : scale;
    *out = graph_add(m->g, OP_quantize, (value[]){parts, scale}, 2,
                     (struct attr[]){attr_dtype("dtype", t)}, 1);
    *out = graph_reshape(m->g, *out, &whole);
    (void)scale_shape(kind, &whole, &scales);
    *out_inverse = graph_reshape(m->g, graph_op1(m->g, OP_reciprocal, scale), &scales);
}

void make_scaled_product(struct maker *m)
{
    static const enum scale_kind kinds[][2] = {
        {SCALE_TENSOR, SCALE_TENSOR}, {SCALE_ROW, SCALE_ROW}, {SCALE_BLOCK, SCALE_TILE},
        {SCALE_BLOCK, SCALE_BLOCK},   {SCALE_MX, SCALE_MX},   {SCALE_TENSOR, SCALE_MX},
        {SCALE_TILE, SCALE_ROW}};
    const enum scale_kind *pair = kinds[draw_below(m->d, 7)];
    bool is_wide = pair[0] == SCALE_BLOCK || pair[0] == SCALE_TILE || pair[1] == SCALE_TILE;
    int64_t k = is_wide ? 128 * (1 + (int64_t)draw_below(m->d, 2)) : 32 * (1 + draw_below(m->d, 3));
    int64_t rows = pair[0] == SCALE_TILE ? 128 : 1 + draw_below(m->d, 20);
    int64_t cols = pair[1] == SCALE_TILE ? 128 : 1 + draw_below(m->d, 20);
    static const enum dtype results[] = {BF16, F16, F32};
    value o[4];
    if (m->c->is_trained) { /* no gradient */
        return;
    }
    bool is_wide_range = draw_chance(m->d, 30);
    make_operand(m, rows, k, pair[0], is_wide_range ? F8E5M2 : F8E4M3, &o[0], &o[2]);
    make_operand(m, cols, k, pair[1], F8E4M3, &o[1], &o[3]);
    struct attr attrs[] = {attr_text("scale_a", scale_kind_info[pair[0]].name),
                           attr_text("scale_b", scale_kind_info[pair[1]].name),
                           attr_dtype("dtype", results[draw_below(m->d, 3)])};
    make(m, OP_scaled_matmul, o, 4, attrs, 3);
}

/* Three linears, the one in the middle for FP8, over rows that may be a symbol. */
void make_fp8_stack(struct maker *m)
{
    static const int64_t sizes[] = {16, 32, 128, 48};
    int64_t in = sizes[draw_below(m->d, 4)];
    struct shape x = {.rank = 2, .dims = {m->dims[draw_below(m->d, 4)], dim_of(in)}};
    if (draw_chance(m->d, 40)) {
        x.dims[0] = dim_of(draw_chance(m->d, 50) ? 128 : 32);
    }
    if (draw_chance(m->d, 30)) {
        x = (struct shape){.rank = 3, .dims = {dim_of(2), x.dims[0], dim_of(in)}};
    }
    value h = new_leaf(m, OP_input, F32, &x);
    for (int i = 0; i < 3; i++) {
        int64_t out = sizes[draw_below(m->d, 4)];
        struct shape w = {.rank = 2, .dims = {dim_of(out), dim_of(in)}};
        struct shape bias = {.rank = 1, .dims = {dim_of(out)}};
        value o[3] = {h, new_leaf(m, OP_param, F32, &w), new_leaf(m, OP_param, F32, &bias)};
        h = make(m, OP_linear, o, draw_chance(m->d, 60) ? 3 : 2, NULL, 0);
        if (h.id == 0) {
            return;
        }
        h = i == 2 ? h : graph_op1(m->g, draw_chance(m->d, 50) ? OP_gelu : OP_relu, h);
        in = out;
    }
    keep(m, h);
}
