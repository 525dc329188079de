/* Composites and training ops of the generator. */
#include <string.h>

#include "generate_maker.h"

static struct attr any_loss_reduction(struct maker *m)
{
    static const char *const names[] = {"mean", "sum", "none"};
    return attr_text("reduction", names[draw_below(m->d, 3)]);
}

static void make_cross_entropy(struct maker *m, enum op op)
{
    value o[3] = {pick_rank(m, WANT_FLOAT, 1), {0}, {0}};
    struct shape rows = node_of(m, o[0])->shape;
    struct dim classes = rows.dims[--rows.rank];
    struct shape c = {.rank = 1, .dims = {classes}};
    int64_t n = dim_value(classes, m->symbols);
    o[1] = new_indices(m, n > 0 ? n : 1, &rows);
    bool is_weighted = draw_chance(m->d, 25);
    if (is_weighted) {
        o[2] = new_leaf(m, OP_buffer, F32, &c);
    }
    struct attr attrs[3] = {any_loss_reduction(m),
                            attr_int("ignore_index", draw_chance(m->d, 30) ? 1 : -100),
                            attr_float("label_smoothing", draw_chance(m->d, 30) ? 0.1 : 0.0)};
    make(m, op, o, is_weighted ? 3 : 2, attrs, op == OP_cross_entropy ? 3 : 2);
}

static void make_norm_layer(struct maker *m, enum op op)
{
    value o[3] = {pick_rank(m, WANT_FLOAT, 1), {0}, {0}};
    struct shape x = node_of(m, o[0])->shape, w = {0};
    w.rank = draw_chance(m->d, 70) ? 1 : 1 + draw_below(m->d, x.rank);
    memcpy(w.dims, &x.dims[x.rank - w.rank], sizeof w.dims[0] * w.rank);
    uint32_t n = 1 + draw_below(m->d, op_info[op].max_operands);
    for (uint32_t i = 1; i < n; i++) {
        o[i] = new_leaf(m, OP_param, m->c->is_trained ? F32 : any_float(m), &w);
    }
    struct attr attrs[2] = {attr_int("axes", w.rank),
                            attr_float("eps", draw_chance(m->d, 50) ? 1e-5 : 0.1)};
    make(m, op, o, n, attrs, 2);
}

/* binary_cross_entropy is an error under most half policies. */
static bool policy_bans(const struct maker *m)
{
    return strcmp(m->c->policy, "none") != 0 && strcmp(m->c->policy, "fp32") != 0;
}

static void make_loss(struct maker *m, enum op op)
{
    if (op == OP_binary_cross_entropy && policy_bans(m)) {
        op = OP_l1_loss;
    }
    value o[3] = {pick(m, WANT_FLOAT), {0}, {0}};
    o[1] = partner(m, o[0], WANT_FLOAT);
    uint32_t n = 2;
    if (op == OP_bce_with_logits && draw_chance(m->d, 30)) {
        o[2] = partner(m, o[0], WANT_FLOAT);
        n = 3;
    }
    struct attr attrs[2] = {any_loss_reduction(m), attr_float("delta", 0.75)};
    make(m, op, o, n, attrs, op == OP_huber_loss ? 2 : 1);
}

static void make_lookup(struct maker *m, enum op op)
{
    struct shape s = any_shape(m, 2);
    int64_t size = 1 + draw_below(m->d, 12);
    value o[2] = {{0}, new_indices(m, size, &s)};
    if (op == OP_one_hot) {
        struct attr attrs[2] = {attr_int("classes", size),
                                attr_dtype("dtype", any_dtype(m, WANT_NUMBER))};
        if (shape_count_value(&s, m->symbols) * size <= m->limit) {
            make(m, op, &o[1], 1, attrs, 2);
        }
        return;
    }
    struct shape w = {.rank = 2, .dims = {dim_of(size), dim_of(1 + draw_below(m->d, 9))}};
    o[0] = new_leaf(m, OP_param, m->c->is_trained ? F32 : any_float(m), &w);
    struct attr padding = attr_int("padding_idx", 0);
    make(m, op, o, 2, &padding, draw_chance(m->d, 40));
}

static void make_activation(struct maker *m, enum op op)
{
    value a = pick_rank(m, WANT_FLOAT, op == OP_softmax || op == OP_log_softmax ? 1 : 0);
    struct attr attrs[2];
    uint32_t n = 0;
    if (op == OP_clamp) {
        a = pick(m, WANT_NUMBER);
        attrs[n++] = attr_float("low", draw_chance(m->d, 70) ? -1.0 : 0.5);
        attrs[n++] = attr_float("high", draw_chance(m->d, 70) ? 2.0 : 6.5);
        n = draw_chance(m->d, 70) ? 2 : 1;
    } else if (op == OP_leaky_relu) {
        attrs[n++] = attr_float("slope", draw_chance(m->d, 50) ? 0.01 : -0.3);
    } else if (op == OP_gelu) {
        attrs[n++] = attr_text("form", draw_chance(m->d, 50) ? "exact" : "tanh");
    } else if (op == OP_softmax || op == OP_log_softmax) {
        uint32_t rank = node_of(m, a)->shape.rank;
        attrs[n++] = attr_int("axis", draw_chance(m->d, 60) ? -1 : (int64_t)draw_below(m->d, rank));
        if (draw_chance(m->d, 20)) {
            attrs[n++] = attr_dtype("dtype", F32);
        }
    }
    make(m, op, &a, 1, attrs, n);
}

void make_composite(struct maker *m, enum op op)
{
    if (op == OP_mean || op == OP_norm || op == OP_logsumexp) {
        make_reduction(m, op);
    } else if (op == OP_embedding || op == OP_one_hot) {
        make_lookup(m, op);
    } else if (op == OP_cross_entropy || op == OP_nll_loss) {
        make_cross_entropy(m, op);
    } else if (op == OP_layer_norm || op == OP_rms_norm) {
        make_norm_layer(m, op);
    } else if (op == OP_dropout) {
        struct shape scalar = shape_scalar();
        value o[2] = {pick(m, WANT_FLOAT), new_leaf(m, OP_state, I64, &scalar)};
        struct attr attrs[2] = {attr_float("p", draw_chance(m->d, 80) ? 0.3 : draw_below(m->d, 2)),
                                attr_bool("training", draw_chance(m->d, 80))};
        make(m, op, o, 2, attrs, 2);
    } else if (op_info[op].min_operands == 2) {
        make_loss(m, op);
    } else {
        make_activation(m, op);
    }
}

/* ---- training ops, used by hand ---- */

static value coefficient(struct maker *m, double number)
{
    struct shape scalar = shape_scalar();
    return draw_chance(m->d, 50) ? graph_number(m->g, number)
                                 : new_leaf(m, OP_scalar, F32, &scalar);
}

static void make_optimizer(struct maker *m, enum op op)
{
    value g = pick(m, WANT_FLOAT);
    struct shape s = node_of(m, g)->shape, scalar = shape_scalar();
    value o[7] = {new_leaf(m, op == OP_adam_update ? OP_param : OP_state, F32, &s), g};
    uint32_t n = op_info[op].min_operands;
    for (uint32_t i = 2; i < n; i++) {
        o[i] = coefficient(m, 0.25 + 0.125 * (double)i);
    }
    if (op == OP_adam_update) {
        o[2] = graph_op1(m->g, OP_abs, pick(m, WANT_FLOAT));
        o[2] = shape_equal(&node_of(m, o[2])->shape, &s) ? o[2] : graph_op1(m->g, OP_abs, g);
    } else if (op == OP_sgd_momentum) {
        o[3] = new_leaf(m, OP_state, BOOL, &scalar);
    }
    struct attr attr = op == OP_sgd_momentum
                           ? attr_float("dampening", draw_chance(m->d, 50) ? 0.1 : 0)
                           : attr_bool("decoupled", draw_chance(m->d, 50));
    bool has_attr = op == OP_sgd_momentum || op == OP_weight_decay;
    value y = make(m, op, o, n, &attr, has_attr);
    if (y.id != 0 && draw_chance(m->d, 70) && node_of(m, o[0])->op != OP_input) {
        graph_update(m->g, o[0], y);
    }
}

void make_training(struct maker *m, enum op op)
{
    struct shape scalar = shape_scalar();
    value o[3] = {pick(m, WANT_FLOAT), pick(m, WANT_FLOAT), pick(m, WANT_FLOAT)};
    if (op == OP_all_finite) {
        make(m, op, o, 1 + draw_below(m->d, 3), NULL, 0);
    } else if (op == OP_global_norm || op == OP_clip_grad_norm) {
        static const double powers[] = {2, 1, 3, (double)__builtin_inff()};
        struct attr p = attr_float("p", powers[draw_chance(m->d, 60) ? 0 : draw_below(m->d, 4)]);
        value norm = make(m, OP_global_norm, o, draw_below(m->d, 4), &p, 1);
        if (op == OP_clip_grad_norm) {
            make(m, op, (value[]){o[0], norm, coefficient(m, 1.0)}, 3, NULL, 0);
        }
    } else if (op == OP_scaler_scale || op == OP_scaler_tracker) {
        value s[3] = {new_leaf(m, OP_state, F32, &scalar), new_leaf(m, OP_state, I32, &scalar),
                      make(m, OP_all_finite, o, 1, NULL, 0)};
        struct attr interval = attr_int("interval", 2);
        value y = make(m, op, s, 3, &interval, 1);
        if (y.id != 0) {
            graph_update(m->g, s[op == OP_scaler_scale ? 0 : 1], y);
        }
    } else {
        make_optimizer(m, op);
    }
}
