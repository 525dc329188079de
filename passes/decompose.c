/* Composites, training ops, and reductions and contractions in their general form, to primitives.
 * Runs after train_step and before the second simplify; autodiff opens single composites with it.
 * Needs a typed graph; leaves the primitive form of decompose.h. Invariant: an op's result is
 * rounded once, at the end; everything before is f32 (f64), and each formula is spelled once, in
 * the decompose_*.c files, because its order of operations is the definition of its bits. */
#include "decompose.h"

#include "decompose_rules.h"
#include "ir/compute.h"

static decompose_rule *const rules[N_OPS] = {
    [OP_sum] = decompose_reduction,
    [OP_prod] = decompose_reduction,
    [OP_max] = decompose_reduction,
    [OP_min] = decompose_reduction,
    [OP_any] = decompose_reduction,
    [OP_all] = decompose_reduction,
    [OP_argmax] = decompose_arg,
    [OP_argmin] = decompose_arg,
    [OP_mean] = decompose_mean,
    [OP_norm] = decompose_norm,
    [OP_variance] = decompose_variance,
    [OP_logsumexp] = decompose_logsumexp,
    [OP_matmul] = decompose_contraction,
    [OP_linear] = decompose_contraction,
    [OP_embedding] = decompose_embedding,
    [OP_one_hot] = decompose_one_hot,
    [OP_dropout] = decompose_dropout,
    [OP_clamp] = decompose_clamp,
    [OP_leaky_relu] = decompose_leaky_relu,
    [OP_gelu] = decompose_gelu,
    [OP_silu] = decompose_silu,
    [OP_softplus] = decompose_softplus,
    [OP_log_sigmoid] = decompose_log_sigmoid,
    [OP_softmax] = decompose_softmax,
    [OP_log_softmax] = decompose_log_softmax,
    [OP_layer_norm] = decompose_layer_norm,
    [OP_rms_norm] = decompose_rms_norm,
    [OP_batch_norm] = decompose_batch_norm,
    [OP_normalize] = decompose_normalize,
    [OP_cross_entropy] = decompose_cross_entropy,
    [OP_nll_loss] = decompose_nll_loss,
    [OP_mse_loss] = decompose_mse_loss,
    [OP_l1_loss] = decompose_l1_loss,
    [OP_huber_loss] = decompose_huber_loss,
    [OP_bce_with_logits] = decompose_bce_with_logits,
    [OP_binary_cross_entropy] = decompose_binary_cross_entropy,
    [OP_all_finite] = decompose_all_finite,
    [OP_global_norm] = decompose_global_norm,
    [OP_clip_grad_norm] = decompose_clip_grad_norm,
    [OP_adam_exp_avg] = decompose_adam_exp_avg,
    [OP_adam_exp_avg_sq] = decompose_adam_exp_avg_sq,
    [OP_adam_update] = decompose_adam_update,
    [OP_sgd_momentum] = decompose_sgd_momentum,
    [OP_weight_decay] = decompose_weight_decay,
    [OP_sgd_update] = decompose_sgd_update,
    [OP_scaler_scale] = decompose_scaler_scale,
    [OP_scaler_tracker] = decompose_scaler_tracker,
};

/* ---- what rules share ---- */

struct shape shape_of(const struct scope *s, value v)
{
    return v.id == 0 ? shape_scalar() : graph_node(s->g, v)->shape;
}

uint32_t all_axes(const struct scope *s, value v)
{
    return (1U << shape_of(s, v).rank) - 1U;
}

value as(struct scope *s, value v, enum dtype t)
{
    if (v.id != 0 && node_is_weak(graph_node(s->g, v))) {
        return graph_constant(s->g, node_float(graph_node(s->g, v), "value"), t);
    }
    return graph_cast(s->g, v, t);
}

value up(struct scope *s, uint32_t operand)
{
    return as(s, s->x[operand], s->compute);
}

value drop_to(struct scope *s, value v, const struct shape *shape)
{
    return graph_reshape(s->g, v, shape);
}

value result(struct scope *s, value v)
{
    return as(s, drop_to(s, v, &s->n.shape), s->n.dtype);
}

value reduce_mask(struct scope *s, enum op op, value v, uint32_t mask, enum dtype to)
{
    bool is_sum = op == OP_sum || op == OP_prod;
    if (mask == 0) {
        return is_sum ? as(s, v, to) : v;
    }
    int64_t axes[MAX_RANK];
    for (uint32_t i = shape_of(s, v).rank; i > 0 && mask != 0;) {
        uint32_t n = 0;
        while (i > 0 && (mask >> (i - 1) & 1U) == 0) {
            i--;
        }
        uint32_t end = i;
        while (i > 0 && (mask >> (i - 1) & 1U) != 0) {
            i--;
            mask &= ~(1U << i);
        }
        for (uint32_t axis = i; axis < end; axis++) {
            axes[n++] = axis;
        }
        struct attr attrs[] = {attr_ints("axes", axes, n), attr_bool("keepdims", true),
                               attr_dtype("dtype", to)};
        v = graph_add(s->g, op, &v, 1, attrs, is_sum ? 3 : 2);
    }
    return v;
}

value sum_over(struct scope *s, value v, uint32_t mask)
{
    return reduce_mask(s, OP_sum, v, mask, s->compute);
}

value max_over(struct scope *s, value v, uint32_t mask)
{
    return reduce_mask(s, OP_max, v, mask, s->compute);
}

value count_of(struct scope *s, const struct shape *shape, uint32_t mask)
{
    struct shape of = {0};
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (mask >> i & 1U) {
            of.dims[of.rank++] = shape->dims[i];
        }
    }
    return graph_add(s->g, OP_size, NULL, 0,
                     (struct attr[]){attr_dims("of", &of), attr_dtype("dtype", s->compute)}, 2);
}

/* ---- reductions and contractions in their general form ---- */

static enum dtype accumulate_dtype(const struct scope *s)
{
    return dtype_compute(dtype_promote(graph_node(s->g, s->x[0])->dtype, s->n.dtype));
}

static bool is_one_group(uint32_t mask)
{
    while (mask != 0 && (mask & 1U) == 0) {
        mask >>= 1;
    }
    return mask != 0 && (mask & (mask + 1U)) == 0;
}

/* What a reduction lacks to be a primitive; NULL: nothing. */
static const char *reduction_lacks(const struct node *n, const struct node *operand)
{
    bool is_sum = n->op == OP_sum || n->op == OP_prod;
    if (!node_bool(n, "keepdims")) {
        return "keepdims=1";
    }
    if (!is_one_group(node_axes(n, operand->shape.rank))) {
        return "one contiguous group of axes";
    }
    if (is_sum && n->dtype != dtype_compute(dtype_promote(operand->dtype, n->dtype))) {
        return "its accumulate dtype (f32, f64 or i64) as the result";
    }
    return NULL;
}

value decompose_reduction(struct scope *s)
{
    if (reduction_lacks(&s->n, graph_node(s->g, s->x[0])) == NULL) {
        return (value){0};
    }
    uint32_t mask = node_axes(&s->n, shape_of(s, s->x[0]).rank);
    return result(s, reduce_mask(s, s->n.op, s->x[0], mask, accumulate_dtype(s)));
}

value decompose_arg(struct scope *s)
{
    if (node_bool(&s->n, "keepdims")) {
        return (value){0};
    }
    struct attr attrs[] = {attr_int("axis", node_int(&s->n, "axis")), attr_bool("keepdims", true)};
    return result(s, graph_add(s->g, s->n.op, s->x, 1, attrs, 2));
}

static bool is_contraction_dtype(enum dtype t)
{
    return dtype_is_float(t) && dtype_info[t].bytes > 1;
}

/* Operands to the result's dtype, which holds each of them exactly; f8 and integers go to f32. */
value decompose_contraction(struct scope *s)
{
    enum dtype t = s->n.dtype;
    bool is_same = true;
    for (uint32_t i = 0; i < s->n.n_operands; i++) {
        enum dtype operand = graph_node(s->g, s->x[i])->dtype;
        is_same = is_same && operand == s->n.dtype;
        if (!dtype_is_float(operand) && t != F64) {
            t = F32;
        }
    }
    t = is_contraction_dtype(t) ? t : F32;
    if (is_same && t == s->n.dtype) {
        return (value){0};
    }
    value operands[3];
    for (uint32_t i = 0; i < s->n.n_operands; i++) {
        operands[i] = as(s, s->x[i], t);
    }
    return result(s, graph_add(s->g, s->n.op, operands, s->n.n_operands, s->n.attrs, s->n.n_attrs));
}

/* ---- the pass ---- */

value decompose_node(struct graph *out, const struct graph *in, value v, const value *operands)
{
    struct scope s = {.g = out, .n = *graph_node(in, v), .x = operands, .compute = F32};
    enum op_kind kind = op_info[s.n.op].kind;
    if (rules[s.n.op] == NULL) {
        if (kind == COMPOSITE || kind == TRAINING) {
            fail(&out->error, ATOLL_INTERNAL, "decompose: no rule for %s", op_info[s.n.op].name);
        }
        return (value){0};
    }
    for (uint32_t i = 0; i < s.n.n_operands; i++) {
        if (operands[i].id == 0) {
            return (value){0}; /* the error is recorded */
        }
        if (graph_node(out, operands[i])->dtype == F64) {
            s.compute = F64;
        }
    }
    if (s.n.dtype == F64) {
        s.compute = F64;
    }
    return rules[s.n.op](&s);
}

static value apply(struct graph *out, const struct graph *in, value v, const value *operands,
                   void *context)
{
    (void)context;
    return decompose_node(out, in, v, operands);
}

status decompose_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                      struct notes *notes)
{
    (void)o;
    (void)notes;
    return rewrite(in, out, apply, NULL, NULL);
}

/* ---- the verifier of the form ---- */

static const char *node_lacks(const struct graph *g, const struct node *n)
{
    enum op_kind kind = op_info[n->op].kind;
    if (kind == COMPOSITE || kind == TRAINING) {
        return "primitives in its place";
    }
    if (n->op == OP_argmax || n->op == OP_argmin) {
        return node_bool(n, "keepdims") ? NULL : "keepdims=1";
    }
    if (kind == REDUCTION) {
        return reduction_lacks(n, graph_node(g, n->operands[0]));
    }
    bool is_product = kind == CONTRACTION && n->op != OP_scaled_matmul;
    for (uint32_t i = 0; is_product && i < n->n_operands; i++) {
        if (graph_node(g, n->operands[i])->dtype != n->dtype || !is_contraction_dtype(n->dtype)) {
            return "one float dtype, f16 or wider, of operands and result";
        }
    }
    return NULL;
}

status primitive_verify(const struct graph *g, struct error *e)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const char *lacks = node_lacks(g, &g->nodes[i]);
        if (lacks != NULL) {
            struct arena scratch = SCRATCH_ARENA;
            value v = {i};
            fail(e, ATOLL_INTERNAL, "%s = %s: %s: not in primitive form, expected %s",
                 graph_name(g, v, &scratch), op_info[g->nodes[i].op].name,
                 graph_type(g, v, &scratch), lacks);
            arena_free(&scratch);
            return ATOLL_INTERNAL;
        }
    }
    return ATOLL_OK;
}
