/* Definitions of the losses. Used by decompose.c through its table. A class loss makes one value a
 * row, then one sum over the rows; the target's log-probability is picked by a masked row sum, not
 * a gather, so that one row kernel holds logits to loss. Invariant: an ignored row gives exactly 0,
 * whatever its logits hold; a target
 * that names no class gives NaN. */
#include <math.h>
#include <string.h>

#include "decompose_rules.h"

static bool reduction_is(const struct scope *s, const char *what)
{
    return strcmp(node_text(&s->n, "reduction"), what) == 0;
}

/* ---- class losses ---- */

struct rows {
    uint32_t mask;  /* the class axis */
    value is_class; /* (..,C): the target's column */
    value is_kept;  /* (..,1): not ignored */
    value miss;     /* (..,1): 0; NaN where the target names no class */
    value weight;   /* (..,1): the target's class weight; 0: none given */
};

static struct rows rows_of(struct scope *s)
{
    struct shape z = shape_of(s, s->x[0]), column = z, line = z;
    uint32_t last = z.rank - 1;
    column.dims[last] = dim_of(1);
    for (uint32_t i = 0; i < last; i++) {
        line.dims[i] = dim_of(1);
    }
    struct rows r = {.mask = 1U << last};
    value y = drop_to(s, s->x[1], &column);
    value index = graph_add(s->g, OP_iota, NULL, 0,
                            (struct attr[]){attr_dims("shape", &line), attr_int("axis", last)}, 2);
    r.is_class = op2(s, OP_eq, index, y);
    r.is_kept = op2(s, OP_ne, y, number(s, (double)node_int(&s->n, "ignore_index")));
    value n = graph_size(s->g, z.dims[last], I64);
    value is_class = op2(s, OP_and, op2(s, OP_ge, y, number(s, 0.0)), op2(s, OP_lt, y, n));
    r.miss = where(s, is_class, number(s, 0.0), graph_constant(s->g, (double)NAN, s->compute));
    if (s->n.n_operands == 3) {
        r.weight = sum_over(s, where(s, r.is_class, up(s, 2), number(s, 0.0)), r.mask);
    }
    return r;
}

/* -w_y lp_y */
static value row_loss(struct scope *s, const struct rows *r, value lp)
{
    value pick = sum_over(s, where(s, r->is_class, lp, r->miss), r->mask);
    value loss = op1(s, OP_neg, pick);
    return r->weight.id != 0 ? mul(s, r->weight, loss) : loss;
}

/* none: the rows; sum: their sum; mean: the sum over the sum of kept rows' weights. */
static value reduce_rows(struct scope *s, const struct rows *r, value loss)
{
    value zero = number(s, 0.0);
    loss = where(s, r->is_kept, loss, zero);
    if (reduction_is(s, "none")) {
        return result(s, loss);
    }
    uint32_t all = all_axes(s, loss);
    value total = sum_over(s, loss, all);
    if (reduction_is(s, "sum")) {
        return result(s, total);
    }
    value counted = r->weight.id != 0 ? where(s, r->is_kept, r->weight, zero)
                                      : graph_cast(s->g, r->is_kept, s->compute);
    return result(s, over(s, total, sum_over(s, counted, all)));
}

value decompose_nll_loss(struct scope *s)
{
    struct rows r = rows_of(s);
    return reduce_rows(s, &r, row_loss(s, &r, up(s, 0)));
}

/* lp = log_softmax(z); (1-s) (-w_y lp_y) + (s/C) (-sum_c w_c lp_c) */
value decompose_cross_entropy(struct scope *s)
{
    struct rows r = rows_of(s);
    double smoothing = node_float(&s->n, "label_smoothing");
    value z = up(s, 0), d = sub(s, z, max_over(s, z, r.mask));
    value lp = sub(s, d, op1(s, OP_log, sum_over(s, op1(s, OP_exp, d), r.mask)));
    value loss = row_loss(s, &r, lp);
    if (smoothing != 0.0) {
        struct shape shape = shape_of(s, s->x[0]);
        value share = over(s, number(s, smoothing), count_of(s, &shape, r.mask));
        value each = s->n.n_operands == 3 ? mul(s, up(s, 2), lp) : lp;
        value spread = op1(s, OP_neg, sum_over(s, each, r.mask));
        loss = add(s, mul(s, loss, number(s, 1.0 - smoothing)), mul(s, spread, share));
    }
    return reduce_rows(s, &r, loss);
}

/* ---- losses of two broadcast operands ---- */

static value reduce_elements(struct scope *s, value loss)
{
    if (reduction_is(s, "none")) {
        return result(s, loss);
    }
    struct shape shape = shape_of(s, loss);
    uint32_t all = all_axes(s, loss);
    value total = sum_over(s, loss, all);
    return result(s, reduction_is(s, "sum") ? total : over(s, total, count_of(s, &shape, all)));
}

value decompose_mse_loss(struct scope *s)
{
    value d = sub(s, up(s, 0), up(s, 1));
    return reduce_elements(s, mul(s, d, d));
}

value decompose_l1_loss(struct scope *s)
{
    return reduce_elements(s, op1(s, OP_abs, sub(s, up(s, 0), up(s, 1))));
}

/* d^2/2 where |d| < delta, else delta (|d| - delta/2) */
value decompose_huber_loss(struct scope *s)
{
    double delta = node_float(&s->n, "delta");
    value d = sub(s, up(s, 0), up(s, 1)), size = op1(s, OP_abs, d);
    value near = mul(s, mul(s, d, d), number(s, 0.5));
    value far = mul(s, sub(s, size, number(s, 0.5 * delta)), number(s, delta));
    return reduce_elements(s, where(s, op2(s, OP_lt, size, number(s, delta)), near, far));
}

/* max(x,0) - x t + log1p(e^-|x|); with a positive weight c:
 * (1-t) x + (1 + (c-1) t) (max(-x,0) + log1p(e^-|x|)) */
value decompose_bce_with_logits(struct scope *s)
{
    value x = up(s, 0), t = up(s, 1), one = number(s, 1.0);
    value tail = op1(s, OP_log1p, op1(s, OP_exp, op1(s, OP_neg, op1(s, OP_abs, x))));
    if (s->n.n_operands == 2) {
        value hinge = sub(s, op1(s, OP_relu, x), mul(s, x, t));
        return reduce_elements(s, add(s, hinge, tail));
    }
    value l = add(s, mul(s, sub(s, up(s, 2), one), t), one);
    value plus = add(s, op1(s, OP_relu, op1(s, OP_neg, x)), tail);
    return reduce_elements(s, add(s, mul(s, sub(s, one, t), x), mul(s, l, plus)));
}

/* (t-1) max(log1p(-x), -100) - t max(log x, -100) */
value decompose_binary_cross_entropy(struct scope *s)
{
    value x = up(s, 0), t = up(s, 1), low = number(s, -100.0);
    value yes = op2(s, OP_maximum, op1(s, OP_log, x), low);
    value no = op2(s, OP_maximum, op1(s, OP_log1p, op1(s, OP_neg, x)), low);
    value loss = sub(s, mul(s, sub(s, t, number(s, 1.0)), no), mul(s, t, yes));
    return reduce_elements(s, loss);
}
