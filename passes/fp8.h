/* FP8: the recipes as data, and what the files of the pass share. */
#ifndef ATOLL_PASSES_FP8_H
#define ATOLL_PASSES_FP8_H

#include "ir/scaled.h"
#include "pass.h"

enum fp8_gemm { FP8_FORWARD, FP8_INPUT_GRADIENT, FP8_WEIGHT_GRADIENT, N_FP8_GEMMS };
enum fp8_scales { FP8_EXACT, FP8_POW2, FP8_E8M0 };

struct fp8_recipe {
    const char *name;
    enum dtype forward, gradient; /* of x and w, and of dy */
    struct {
        bool is_high; /* stays in the low dtype */
        enum scale_kind a, b;
    } gemms[N_FP8_GEMMS];
    enum fp8_scales scales;
    uint32_t history;
};

enum {
#define FP8(name, ...) FP8_RECIPE_##name,
#include "fp8.def"
#undef FP8
    N_FP8_RECIPES
};
extern const struct fp8_recipe fp8_recipes[N_FP8_RECIPES];

/* Which linears, beside the rules that always hold. The last pattern that matches decides. */
struct fp8_layer {
    const char *pattern;
    bool is_on;
};
struct fp8_options {
    const struct fp8_recipe *recipe; /* NULL: no FP8 */
    const struct fp8_layer *layers;
    uint32_t n_layers;
    int64_t least;       /* smallest in and out size that is worth it; 0: any */
    int64_t margin;      /* delayed: scales 2^margin smaller */
    int64_t history;     /* delayed: steps; 0: the recipe's */
    bool is_most_recent; /* delayed: the last amax, not the largest */
    bool wants_counts;   /* outputs fp8.saturated:NAME and fp8.underflowed:NAME */
};

/* ---- fp8_scale.c ---- */

/* A tensor ready for a scaled product: f8 (R,K), K the axis it sums over, and its scales. */
struct fp8_operand {
    value data, inverse;
};

/* How a tensor is seen while it is quantised: its shape then, and the axes that share a scale. */
struct fp8_cut {
    struct shape shape;
    int64_t axes[MAX_RANK];
    uint32_t n_axes;
};

/* One quantisation: products that need the same share it. */
struct fp8_made {
    value x;
    bool is_transposed; /* the axis matters to where the scales lie */
    enum scale_kind kind;
    enum dtype dtype;
    const char *name; /* delayed scaling: a history is one tensor's of one layer */
    struct fp8_cut cut;
    value data, inverse;
};

struct fp8_count {
    const char *name;
    value saturated, underflowed;
};

struct fp8_builder {
    struct graph *g;
    const struct fp8_options *o;
    struct arena *arena;
    struct fp8_made *made;
    uint32_t n_made, capacity;
    struct fp8_count *counts;
    uint32_t n_counts, count_capacity;
    value place;       /* delayed: the ring's position, i64 state */
    value is_finite;   /* of every amax so far; 0: none */
    bool tests_finite; /* somebody reads is_finite */
    bool is_training;  /* histories go on */
};

/* x (..,C) as an operand: of (rows, C), or of its transpose (C, rows) where the product sums over
 * the rows. name: what the nodes are called, "h2.x". x must be one that fp8_misfit has nothing
 * against. */
struct fp8_operand fp8_quantize(struct fp8_builder *b, value x, bool is_transposed,
                                enum scale_kind kind, enum dtype t, const char *name);
/* NULL, or why parts of this kind do not lie over x; fills_rows: rows in a number that is no
 * multiple will be filled up (fp8_fill). */
const char *fp8_misfit(const struct graph *g, value x, bool is_transposed, enum scale_kind kind,
                       bool fills_rows, struct arena *a);
/* x (..,C) as (R,C) with zeros behind it along an axis, up to the next multiple of part; x itself
 * where the size is one already, or a symbol. Zeros change no amax and no sum. */
value fp8_fill(struct graph *g, value x, int64_t axis, int64_t part, const char *name);

#endif
