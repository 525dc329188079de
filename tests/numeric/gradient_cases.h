/* What the gradient test needs to know about each op: operand types and ranges, attributes. Spec of
 * an operand: a letter, its shape, @low:high. f differentiated, x float but constant, i integer,
 * b bool, s seed. */
#ifndef ATOLL_TESTS_GRADIENT_CASES_H
#define ATOLL_TESTS_GRADIENT_CASES_H

#include <math.h>

#include "ir/graph.h"

struct gradient_case {
    enum op op;
    const char *operands;
    struct attr attrs[4];
};

#define INT(n, v)                                                                                  \
    {                                                                                              \
        .name = n, .kind = ATTR_INT, .i = v, .text = ""                                            \
    }
#define REAL(n, v)                                                                                 \
    {                                                                                              \
        .name = n, .kind = ATTR_FLOAT, .f = v, .text = ""                                          \
    }
#define FLAG(n)                                                                                    \
    {                                                                                              \
        .name = n, .kind = ATTR_BOOL, .i = 1, .text = ""                                           \
    }
#define WORD(n, v)                                                                                 \
    {                                                                                              \
        .name = n, .kind = ATTR_TEXT, .text = v                                                    \
    }
#define TYPE(n, v)                                                                                 \
    {                                                                                              \
        .name = n, .kind = ATTR_DTYPE, .dtype = v, .text = ""                                      \
    }
#define LIST(n, count, ...)                                                                        \
    {                                                                                              \
        .name = n, .kind = ATTR_INTS, .ints = (const int64_t[]){__VA_ARGS__}, .n_ints = count,     \
        .text = ""                                                                                 \
    }
#define DIMS2(n, a, b)                                                                             \
    {                                                                                              \
        .name = n, .kind = ATTR_DIMS, .dims = {2, {{.factor = a}, {.factor = b}}}, .text = ""      \
    }
#define DIMS3(n, a, b, c)                                                                          \
    {                                                                                              \
        .name = n, .kind = ATTR_DIMS, .dims = {3, {{.factor = a}, {.factor = b}, {.factor = c}}},  \
        .text = ""                                                                                 \
    }

static const struct gradient_case gradient_cases[] = {
    {OP_add, "f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_sub, "f2,3@-2:2 f2,1@-2:2", {{0}}},
    {OP_mul, "f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_mul, "f1@-2:2 f2,2,3@-2:2", {{0}}},
    {OP_div, "f2,3@-2:2 f2,1@0.5:2", {{0}}},
    {OP_neg, "f3@-2:2", {{0}}},
    {OP_abs, "f5@0.1:2", {{0}}},
    {OP_abs, "f5@-2:-0.1", {{0}}},
    {OP_minimum, "f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_maximum, "f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_exp, "f4@-2:2", {{0}}},
    {OP_expm1, "f4@-2:2", {{0}}},
    {OP_log, "f4@0.2:3", {{0}}},
    {OP_log1p, "f4@-0.5:3", {{0}}},
    {OP_sqrt, "f4@0.2:3", {{0}}},
    {OP_rsqrt, "f4@0.2:3", {{0}}},
    {OP_reciprocal, "f4@0.2:3", {{0}}},
    {OP_pow, "f2,3@0.3:2 f3@-2:2", {{0}}},
    {OP_tanh, "f4@-2:2", {{0}}},
    {OP_erf, "f4@-2:2", {{0}}},
    {OP_sigmoid, "f4@-4:4", {{0}}},
    {OP_sin, "f4@-4:4", {{0}}},
    {OP_cos, "f4@-4:4", {{0}}},
    {OP_floor, "f4@0.1:0.9", {{0}}},
    {OP_pow2_floor, "f4@0.6:0.9", {{0}}},
    {OP_pow2_ceil, "f4@0.6:0.9", {{0}}},
    {OP_ceil, "f4@0.1:0.9", {{0}}},
    {OP_pow2_floor, "f4@0.6:0.9", {{0}}},
    {OP_pow2_ceil, "f4@0.6:0.9", {{0}}},
    {OP_round, "f4@0.1:0.4", {{0}}},
    {OP_sign, "f4@0.1:0.9", {{0}}},
    {OP_relu, "f6@0.1:2", {{0}}},
    {OP_relu, "f6@-2:-0.1", {{0}}},
    {OP_where, "b2,3 f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_cast, "f2,3@-2:2", {TYPE("dtype", BF16)}},
    {OP_scale_loss, "f@-2:2 x@3:4", {{0}}},
    {OP_sum, "f2,3,4@-2:2", {LIST("axes", 2, 0, -1)}},
    {OP_sum, "f2,3@-2:2", {FLAG("keepdims"), LIST("axes", 1, 1)}},
    {OP_sum, "f2,3@-2:2", {{0}}},
    {OP_prod, "f2,3@-2:2", {LIST("axes", 1, 1)}},
    {OP_prod, "f2,2@-2:2", {{0}}},
    {OP_max, "f2,3@-2:2", {LIST("axes", 1, 1)}},
    {OP_min, "f2,3@-2:2", {LIST("axes", 1, 0), FLAG("keepdims")}},
    {OP_mean, "f2,3,2@-2:2", {LIST("axes", 2, 0, 2)}},
    {OP_mean, "f2,3@-2:2", {{0}}},
    {OP_norm, "f2,3@-2:2", {LIST("axes", 1, 1)}},
    {OP_norm, "f2,3@0.1:2", {REAL("p", 1)}},
    {OP_norm, "f2,3@0.1:2", {REAL("p", 3), LIST("axes", 1, 0)}},
    {OP_norm, "f2,3@-2:2", {REAL("p", (double)INFINITY), LIST("axes", 1, 1)}},
    {OP_norm, "f2,3@0.1:2", {REAL("p", -(double)INFINITY), LIST("axes", 1, 1)}},
    {OP_norm, "f2,3@0.1:2", {REAL("p", 0)}},
    {OP_logsumexp, "f2,3@-2:2", {LIST("axes", 1, 1)}},
    {OP_logsumexp, "f2,3@-2:2", {{0}}},
    {OP_matmul, "f2,3@-2:2 f3,4@-2:2", {{0}}},
    {OP_matmul, "f3,2@-2:2 f3,4@-2:2", {FLAG("transpose_a")}},
    {OP_matmul, "f2,3@-2:2 f4,3@-2:2", {FLAG("transpose_b")}},
    {OP_matmul, "f3,2@-2:2 f4,3@-2:2", {FLAG("transpose_a"), FLAG("transpose_b")}},
    {OP_matmul, "f2,1,2,3@-2:2 f2,3,2@-2:2", {{0}}},
    {OP_matmul, "f2,3,2@-2:2 f2,3@-2:2", {FLAG("transpose_a"), FLAG("transpose_b")}},
    {OP_linear, "f2,3@-2:2 f4,3@-2:2 f4@-2:2", {{0}}},
    {OP_linear, "f2,2,3@-2:2 f4,3@-2:2", {{0}}},
    {OP_reshape, "f2,6@-2:2", {DIMS3("shape", 3, 2, 2)}},
    {OP_transpose, "f2,3,4@-2:2", {LIST("perm", 3, 1, 2, 0)}},
    {OP_transpose, "f2,3@-2:2", {{0}}},
    {OP_expand, "f3,1@-2:2", {DIMS3("shape", 2, 3, 4)}},
    {OP_slice, "f2,7@-2:2", {INT("axis", 1), INT("start", 1), INT("stop", -1), INT("step", 2)}},
    {OP_slice, "f5@-2:2", {INT("start", -3)}},
    {OP_concat, "f2,3@-2:2 f2,1@-2:2 f2,2@-2:2", {INT("axis", -1)}},
    {OP_pad, "f2,3@-2:2", {INT("axis", 1), INT("low", 2), INT("high", 1), INT("step", 3)}},
    {OP_take, "f4,3@-2:2 i2,3@0:3", {{0}}},
    {OP_take, "f2,4@-2:2 i5@0:3", {INT("axis", 1)}},
    {OP_index_add, "f4,3@-2:2 i5@0:3 f5,3@-2:2", {{0}}},
    {OP_index_add, "f2,4,2@-2:2 i5@0:5 f2,5,2@-2:2", {INT("axis", 1)}},
    {OP_gather, "f3,4@-2:2 i3,2@0:3", {INT("axis", 1)}},
    {OP_scatter_add, "f3,4@-2:2 i3,2@0:5 f3,2@-2:2", {INT("axis", 1)}},
    {OP_embedding, "f4,3@-2:2 i2,3@0:3", {{0}}},
    {OP_embedding, "f4,3@-2:2 i6@0:1", {INT("padding_idx", -7)}},
    {OP_dropout, "f4,5@-2:2 s", {REAL("p", 0.3), INT("stream", 3)}},
    {OP_clamp, "f12@-2:2", {REAL("low", -0.7), REAL("high", 0.9)}},
    {OP_leaky_relu, "f9@-2:2", {{0}}},
    {OP_gelu, "f7@-4:4", {{0}}},
    {OP_gelu, "f7@-4:4", {WORD("form", "tanh")}},
    {OP_silu, "f7@-4:4", {{0}}},
    {OP_softplus, "f7@-4:4", {{0}}},
    {OP_atan, "f6@-3:3", {{0}}},
    {OP_atan2, "f2,3@0.3:2 f3@-2:2", {{0}}},
    {OP_log_sigmoid, "f7@-4:4", {{0}}},
    {OP_variance, "f3,5@-2:2", {LIST("axes", 1, 1)}},
    {OP_batch_norm, "f4,3@-2:2 f3@-2:2 f3@-2:2", {{0}}},
    {OP_normalize, "f3,4@0.2:2", {{0}}},
    {OP_normalize, "f3,4@0.2:2", {REAL("p", 1)}},
    {OP_softmax, "f2,4@-2:2", {{0}}},
    {OP_softmax, "f2,4@-2:2", {FLAG("masked")}},
    {OP_softmax, "f3,2@-2:2", {INT("axis", 0)}},
    {OP_log_softmax, "f2,4@-2:2", {{0}}},
    {OP_layer_norm, "f3,5@-2:2 f5@-2:2 f5@-2:2", {{0}}},
    {OP_layer_norm, "f2,3,2@-2:2", {INT("axes", 2), REAL("eps", 0.1)}},
    {OP_rms_norm, "f3,5@-2:2 f5@-2:2", {{0}}},
    {OP_rms_norm, "f2,3,2@-2:2", {INT("axes", 2), REAL("eps", 0.1)}},
    {OP_cross_entropy, "f4,3@-2:2 i4@0:2", {{0}}},
    {OP_cross_entropy, "f4,3@-2:2 i4@0:2 x3@0.5:2", {INT("ignore_index", 1)}},
    {OP_cross_entropy,
     "f4,3@-2:2 i4@0:2 x3@0.5:2",
     {REAL("label_smoothing", 0.2), WORD("reduction", "sum")}},
    {OP_cross_entropy,
     "f2,2,3@-2:2 i2,2@0:2",
     {REAL("label_smoothing", 0.1), WORD("reduction", "none")}},
    {OP_cross_entropy, "f4,3@-2:2 i4@0:2 f3@0.5:2", {{0}}},
    {OP_cross_entropy,
     "f4,3@-2:2 i4@0:2 f3@0.5:2",
     {REAL("label_smoothing", 0.2), INT("ignore_index", 1)}},
    {OP_cross_entropy,
     "x4,3@-2:2 i4@0:2 f3@0.5:2",
     {REAL("label_smoothing", 0.2), WORD("reduction", "sum")}},
    {OP_cross_entropy, "f2,2,3@-2:2 i2,2@0:2 f3@0.5:2", {WORD("reduction", "none")}},
    {OP_nll_loss, "f4,3@-2:2 i4@0:2 f3@0.5:2", {{0}}},
    {OP_nll_loss, "f4,3@-2:2 i4@0:2 f3@0.5:2", {INT("ignore_index", 0), WORD("reduction", "none")}},
    {OP_nll_loss, "f4,3@-2:2 i4@0:2", {{0}}},
    {OP_nll_loss, "f4,3@-2:2 i4@0:2 x3@0.5:2", {INT("ignore_index", 0), WORD("reduction", "none")}},
    {OP_mse_loss, "f2,3@-2:2 f3@-2:2", {{0}}},
    {OP_mse_loss, "f2,3@-2:2 f2,3@-2:2", {WORD("reduction", "none")}},
    {OP_l1_loss, "f2,3@-2:2 f2,3@-2:2", {{0}}},
    {OP_huber_loss, "f2,3@-2:2 f3@-2:2", {REAL("delta", 0.7)}},
    {OP_huber_loss, "f2,3@-2:2 f2,3@-2:2", {WORD("reduction", "sum")}},
    {OP_bce_with_logits, "f2,3@-2:2 f2,3@0.1:0.9", {{0}}},
    {OP_bce_with_logits, "f2,3@-2:2 f3@0.1:0.9 f3@0.5:2", {WORD("reduction", "none")}},
    {OP_binary_cross_entropy, "f2,3@0.1:0.9 f2,3@0.1:0.9", {{0}}},
};

/* No elements, or one, along some axis: must build, run and keep shapes. */
static const struct gradient_case empty_cases[] = {
    {OP_mul, "f0,3 f3", {{0}}},
    {OP_sum, "f0,3", {LIST("axes", 1, 0)}},
    {OP_prod, "f0,3", {LIST("axes", 1, 0)}},
    {OP_max, "f3,0", {LIST("axes", 1, 1)}},
    {OP_mean, "f0,3", {{0}}},
    {OP_norm, "f0", {{0}}},
    {OP_logsumexp, "f2,0", {LIST("axes", 1, 1)}},
    {OP_softmax, "f2,0", {{0}}},
    {OP_softmax, "f1,1", {{0}}},
    {OP_layer_norm, "f0,3 f3 f3", {{0}}},
    {OP_layer_norm, "f3,1 f1 f1", {{0}}},
    {OP_rms_norm, "f0,3 f3", {{0}}},
    {OP_matmul, "f0,3 f3,2", {{0}}},
    {OP_matmul, "f2,0 f0,3", {{0}}},
    {OP_linear, "f0,3 f2,3 f2", {{0}}},
    {OP_linear, "f3 f2,3 f2", {{0}}},
    {OP_reshape, "f0,3", {DIMS2("shape", 3, 0)}},
    {OP_transpose, "f0,3", {{0}}},
    {OP_expand, "f1,3", {DIMS2("shape", 0, 3)}},
    {OP_slice, "f4,2", {INT("start", 3), INT("stop", 1)}},
    {OP_concat, "f0,2 f3,2", {{0}}},
    {OP_pad, "f0,2", {INT("low", 1), INT("high", 2), INT("step", 2)}},
    {OP_take, "f3,2 i0", {{0}}},
    {OP_index_add, "f3,2 i0 f0,2", {{0}}},
    {OP_gather, "f3,2 i3,0", {{0}}},
    {OP_embedding, "f3,2 i0", {INT("padding_idx", 0)}},
    {OP_dropout, "f0,2 s", {{0}}},
    {OP_cross_entropy, "f0,3 i0", {{0}}},
    {OP_cross_entropy, "f2,1 i2@0:0", {REAL("label_smoothing", 0.5)}},
    {OP_mse_loss, "f0,3 f3", {{0}}},
    {OP_huber_loss, "f0,3 f0,3", {{0}}},
};

/* Points where the formula alone would be wrong: y = op(operands), loss = sum(y). values: all
 * operands one after another; expected: the gradients of the f operands likewise. */
struct edge_case {
    enum op op;
    const char *operands;
    struct attr attrs[4];
    double values[12], expected[12];
};

#define INF  ((double)INFINITY)
#define NANS ((double)NAN)

static const struct edge_case edge_cases[] = {
    {OP_softplus, "f3", {{0}}, {0, 1000, -1000}, {0.5, 1, 0}},
    {OP_gelu, "f4", {{0}}, {INF, -INF, 1e30, -1e30}, {1, 0, 1, 0}},
    {OP_gelu, "f4", {WORD("form", "tanh")}, {INF, -INF, 1e30, -1e30}, {1, 0, 1, 0}},
    {OP_clamp, "f5", {REAL("low", -1), REAL("high", 2)}, {-1, 2, -1.5, 2.5, NANS}, {1, 1, 0, 0, 0}},
    {OP_huber_loss, "f3 x3", {WORD("reduction", "sum")}, {1, -1, 0, 0, 0, 0}, {1, -1, 0}},
    {OP_max, "f4", {{0}}, {3, 1, 3, 2}, {0.5, 0, 0.5, 0}},
    {OP_min, "f4", {{0}}, {1, 1, 1, 1}, {0.25, 0.25, 0.25, 0.25}},
    {OP_maximum, "f2 f2", {{0}}, {1, 2, 1, 0}, {0.5, 1, 0.5, 0}},
    {OP_minimum, "f2 f2", {{0}}, {1, 2, 1, 0}, {0.5, 0, 0.5, 1}},
    {OP_abs, "f2", {{0}}, {0, -3}, {0, -1}},
    {OP_sign, "f2", {{0}}, {0, -3}, {0, 0}},
    {OP_sqrt, "f1", {{0}}, {0}, {INF}},
    {OP_norm, "f2", {{0}}, {0, 0}, {0, 0}},
    {OP_norm, "f2", {REAL("p", 1)}, {0, -2}, {0, -1}},
    {OP_norm, "f3", {REAL("p", INF)}, {-2, 2, 1}, {-0.5, 0.5, 0}},
    {OP_relu, "f3", {{0}}, {0, 1, -1}, {0, 1, 0}},
    {OP_pow, "f3 x3", {{0}}, {0, 2, 0, 0, 0, 2}, {0, 0, 0}},
    {OP_pow, "x3 f3", {{0}}, {0, 0, 2, 0, 2, 0}, {0, 0, 0.6931471805599453}},
    {OP_prod, "f3", {{0}}, {0, 2, 3}, {6, 0, 0}},
    {OP_prod, "f3", {{0}}, {0, 0, 3}, {0, 0, 0}},
    {OP_bce_with_logits,
     "f3 x3",
     {WORD("reduction", "sum")},
     {1000, -1000, 0, 0, 1, 0.5},
     {1, -1, 0}},
    {OP_binary_cross_entropy, "f2 x2", {WORD("reduction", "sum")}, {0, 1, 0, 1}, {0, 0}},
    {OP_where, "b2 f2 f2", {{0}}, {1, 0, 5, 6, INF, NANS}, {1, 0, 0, 1}},
    {OP_logsumexp, "f2", {{0}}, {1000, 1000}, {0.5, 0.5}},
    {OP_cross_entropy, "f2,2 i2", {{0}}, {NANS, INF, 0, 0, -100, 1}, {0, 0, 0.5, -0.5}},
    {OP_cross_entropy, "f1,2 i1", {{0}}, {1, 2, -100}, {0, 0}},
    {OP_nll_loss, "f1,2 i1 f2", {{0}}, {-1, -2, -100, 1, 1}, {0, 0, 0, 0}},
    {OP_nll_loss, "x1,2 i1 f2", {WORD("reduction", "sum")}, {-INF, -2, 1, 1, 1}, {0, 2}},
    {OP_embedding, "f3,1 i4", {INT("padding_idx", 1)}, {5, 6, 7, 1, 0, 1, 2}, {1, 0, 1}},
    {OP_slice, "f3", {INT("start", 1), INT("stop", 2)}, {1, 2, 3}, {0, 1, 0}},
};

#endif
