/* Learning-rate schedules as nodes. Used by train_step.c. Closed forms of k, the accepted steps so
 * far, so that a resumed or skipped step needs no state of its own: f64, but for pow and cos, which
 * are f32. Invariant: at k = 0 without warm-up the rate is the base, exactly. */
#include "train_step.h"

struct scope {
    struct graph *g;
    const struct schedule *c;
};

static value op2(struct scope *s, enum op op, value a, value b)
{
    return graph_op2(s->g, op, a, b);
}

static value where(struct scope *s, value mask, value a, value b)
{
    return graph_op3(s->g, OP_where, mask, a, b);
}

static value real(struct scope *s, double x)
{
    return graph_constant(s->g, x, F64);
}

/* The square of a function of an f64 angle, taken in f32. */
static value squared(struct scope *s, enum op op, value angle)
{
    value narrow = graph_op1(s->g, op, graph_cast(s->g, angle, F32));
    value wide = graph_cast(s->g, narrow, F64);
    return op2(s, OP_mul, wide, wide);
}

/* (1 + cos(pi k/T))/2 = cos^2(a) = sin^2(pi/2 - a), a = pi k/2T, with k folded into [0, T] and the
 * smaller angle of the two: exactly 1 at 0 and 0 at T, no digits lost on the way. */
static value cosine_factor(struct scope *s, value k)
{
    double t = (double)s->c->t_max, unit = 3.141592653589793 / (2.0 * t);
    value whole = graph_op1(s->g, OP_floor, op2(s, OP_div, k, real(s, 2.0 * t)));
    value rest = op2(s, OP_sub, k, op2(s, OP_mul, whole, real(s, 2.0 * t)));
    value folded = op2(s, OP_minimum, rest, op2(s, OP_sub, real(s, 2.0 * t), rest));
    value left = op2(s, OP_sub, real(s, t), folded);
    value high = squared(s, OP_cos, op2(s, OP_mul, folded, real(s, unit)));
    value low = squared(s, OP_sin, op2(s, OP_mul, left, real(s, unit)));
    return where(s, op2(s, OP_lt, folded, left), high, low);
}

static value after_warmup(struct scope *s, value base, value k)
{
    const struct schedule *c = s->c;
    if (c->kind == SCHEDULE_STEP) {
        value times = graph_op1(s->g, OP_floor, op2(s, OP_div, k, real(s, (double)c->step_size)));
        value power =
            op2(s, OP_pow, graph_constant(s->g, c->gamma, F32), graph_cast(s->g, times, F32));
        return op2(s, OP_mul, base, graph_cast(s->g, power, F64));
    }
    if (c->kind == SCHEDULE_COSINE) {
        value low = real(s, c->eta_min), range = op2(s, OP_sub, base, low);
        return op2(s, OP_add, low, op2(s, OP_mul, range, cosine_factor(s, k)));
    }
    return base;
}

value train_schedule(struct graph *g, const struct schedule *c, value base, value k)
{
    struct scope scope = {.g = g, .c = c}, *s = &scope;
    if (c->warmup == 0) {
        return after_warmup(s, base, k);
    }
    value total = real(s, (double)c->warmup);
    value part = op2(s, OP_div, op2(s, OP_minimum, k, total), total);
    value rise = op2(s, OP_mul, part, real(s, c->warmup_end - c->warmup_start));
    value factor = op2(s, OP_add, rise, real(s, c->warmup_start));
    value warm = op2(s, OP_mul, base, factor);
    if (c->kind == SCHEDULE_CONSTANT) {
        return warm;
    }
    value late = op2(s, OP_maximum, op2(s, OP_sub, k, total), real(s, 0.0));
    value main = after_warmup(s, base, late);
    return where(s, op2(s, OP_lt, k, total), warm, main);
}
