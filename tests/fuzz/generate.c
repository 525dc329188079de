/* The generator: leaves, dims and the choice of operations; generate_ops.c and generate_layers.c
 * make the nodes. A call that the builder refuses is forgotten, so an op may be tried with whatever
 * operands were drawn. */
#include "generate_maker.h"

#include <stdio.h>
#include <string.h>

uint64_t draw_u64(struct draw *d)
{
    uint64_t z = (d->state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint32_t draw_below(struct draw *d, uint32_t n)
{
    return n == 0 ? 0 : (uint32_t)(draw_u64(d) >> 32) % n;
}

bool draw_chance(struct draw *d, uint32_t percent)
{
    return draw_below(d, 100) < percent;
}

const struct node *node_of(const struct maker *m, value v)
{
    return graph_node(m->g, v);
}

value keep(struct maker *m, value v)
{
    if (v.id == 0) {
        m->g->error = (struct error){0};
        return v;
    }
    const struct node *n = node_of(m, v);
    int64_t count = shape_count_value(&n->shape, m->symbols);
    if (count >= 0 && count <= m->limit && n->scale == 0 && m->n_pool < MAX_POOL) {
        m->pool[m->n_pool++] = v;
    }
    return v;
}

/* Some that the text form must quote or keep apart from its own numbering. */
static const char *any_name(struct maker *m)
{
    static const char *const odd[] = {"a b", "\"", "v3", "x.1", "h", "update", "1e5", "\\n"};
    return draw_chance(m->d, 90) ? arena_text(&m->g->arena, "h%u", m->g->n_nodes)
                                 : odd[draw_below(m->d, ARRAY_LEN(odd))];
}

value make(struct maker *m, enum op op, const value *operands, uint32_t n, const struct attr *attrs,
           uint32_t n_attrs)
{
    for (uint32_t i = 0; i < n; i++) {
        if (operands[i].id == 0) {
            return (value){0};
        }
    }
    m->g->origin_name = draw_chance(m->d, 20) ? any_name(m) : NULL;
    value v = keep(m, graph_add(m->g, op, operands, n, attrs, n_attrs));
    m->g->origin_name = NULL;
    return v;
}

/* ---- leaves ---- */

static bool has_symbols(const struct shape *s)
{
    for (uint32_t i = 0; i < s->rank; i++) {
        if (!dim_is_static(s->dims[i])) {
            return true;
        }
    }
    return false;
}

value new_leaf(struct maker *m, enum op op, enum dtype t, const struct shape *s)
{
    char name[32];
    if (has_symbols(s) && op != OP_input) {
        op = OP_input;
    }
    if (op == OP_param && (!dtype_is_float(t) || (m->c->is_trained && t != F32))) {
        op = OP_buffer;
    }
    snprintf(name, sizeof name, "%c%u", "xpbsc"[op - OP_input], ++m->n_leaves);
    return keep(m, graph_leaf_shape(m->g, op, name, t, s));
}

value new_indices(struct maker *m, int64_t limit, const struct shape *s)
{
    char name[48];
    snprintf(name, sizeof name, "i%u_%lld", ++m->n_leaves, (long long)limit);
    return keep(m, graph_leaf_shape(m->g, OP_input, name, draw_chance(m->d, 70) ? I64 : I32, s));
}

enum dtype any_float(struct maker *m)
{
    static const enum dtype table[] = {F32,  F32,  F32, F32,    F32, F32,  F32, F16, F16,    BF16,
                                       BF16, BF16, F64, F8E4M3, F32, BF16, F16, F32, F8E5M2, F32};
    return table[draw_below(m->d, ARRAY_LEN(table))];
}

enum dtype any_dtype(struct maker *m, unsigned want)
{
    static const enum dtype ints[] = {I64, I32, U8, I32};
    for (;;) {
        uint32_t r = draw_below(m->d, 10);
        if (r < 7 && (want & WANT_FLOAT)) {
            return any_float(m);
        }
        if (r >= 7 && r < 9 && (want & WANT_INT)) {
            return ints[draw_below(m->d, ARRAY_LEN(ints))];
        }
        if (r == 9 && (want & WANT_BOOL)) {
            return BOOL;
        }
    }
}

struct shape any_shape(struct maker *m, uint32_t max_rank)
{
    struct shape s = {.rank = draw_below(m->d, max_rank + 1)};
    if (s.rank < 2 && max_rank >= 2 && draw_chance(m->d, 70)) {
        s.rank = 2;
    }
    for (uint32_t i = 0; i < s.rank; i++) {
        s.dims[i] = draw_chance(m->d, 12) ? dim_of(1) : m->dims[draw_below(m->d, 4)];
    }
    while (s.rank > 0 && shape_count_value(&s, m->symbols) > m->limit) {
        memmove(&s.dims[0], &s.dims[1], sizeof s.dims[0] * --s.rank);
    }
    return s;
}

/* ---- operands ---- */

static bool is_wanted(const struct maker *m, value v, unsigned want)
{
    switch (dtype_info[node_of(m, v)->dtype].class) {
    case CLASS_F:
        return (want & WANT_FLOAT) != 0;
    case CLASS_I:
        return (want & WANT_INT) != 0;
    case CLASS_B:
        break;
    }
    return (want & WANT_BOOL) != 0;
}

static enum op any_leaf_op(struct maker *m)
{
    static const enum op table[] = {OP_input, OP_input, OP_input, OP_param, OP_buffer, OP_state};
    return table[draw_below(m->d, ARRAY_LEN(table))];
}

value pick_rank(struct maker *m, unsigned want, uint32_t min_rank)
{
    for (uint32_t i = 0; i < 24 && m->n_pool > 0; i++) {
        uint32_t span = draw_chance(m->d, 50) && m->n_pool > 6 ? 6 : m->n_pool;
        value v = m->pool[m->n_pool - 1 - draw_below(m->d, span)];
        if (is_wanted(m, v, want) && node_of(m, v)->shape.rank >= min_rank) {
            return v;
        }
    }
    struct shape s = any_shape(m, 3);
    while (s.rank < min_rank) {
        s.dims[s.rank++] = dim_of(1 + draw_below(m->d, 4));
    }
    return new_leaf(m, any_leaf_op(m), any_dtype(m, want), &s);
}

value pick(struct maker *m, unsigned want)
{
    return pick_rank(m, want, 0);
}

static value number(struct maker *m, unsigned want)
{
    static const double table[] = {0.0,     1.0,     -1.0, 0.5,    2.0,          3.0,       -0.0,
                                   1e-5,    65504.0, 1e30, 1e-8,   1e-45,        0.1,       -7.0,
                                   1e5,     0.25,    -2.5, 448.0,  3.4028234e38, 1.0 / 3.0, 10.0,
                                   57344.0, 6e-8,    1e40, -1e-30, 100.0};
    double v = table[draw_below(m->d, ARRAY_LEN(table))];
    if (draw_chance(m->d, 4)) {
        v = draw_chance(m->d, 50) ? (double)__builtin_inf() : (double)__builtin_nan("");
    }
    if (!(want & WANT_FLOAT)) {
        v = (double)draw_below(m->d, 9) - 4.0;
    }
    if (draw_chance(m->d, 25)) {
        return graph_constant(m->g, v, any_dtype(m, want));
    }
    return graph_number(m->g, v);
}

/* A new leaf whose shape is a's with leading axes dropped and some axes 1. */
static value broadcast_leaf(struct maker *m, value a, unsigned want)
{
    struct shape s = node_of(m, a)->shape;
    uint32_t drop = draw_chance(m->d, 50) ? draw_below(m->d, s.rank + 1) : 0;
    s.rank -= drop;
    for (uint32_t i = 0; i < s.rank && drop < MAX_RANK - i; i++) {
        s.dims[i] = s.dims[i + drop];
    }
    for (uint32_t i = 0; i < s.rank; i++) {
        if (draw_chance(m->d, 25)) {
            s.dims[i] = dim_of(1);
        }
    }
    enum op op = s.rank == 0 && draw_chance(m->d, 50) ? OP_scalar : any_leaf_op(m);
    return new_leaf(m, op, any_dtype(m, want), &s);
}

value partner(struct maker *m, value a, unsigned want)
{
    uint32_t r = draw_below(m->d, 100);
    if (r < 22 && want != WANT_BOOL) {
        return number(m, want);
    }
    if (r < 40) {
        return broadcast_leaf(m, a, want);
    }
    for (uint32_t i = 0; i < 16; i++) {
        value b = pick(m, want);
        struct shape both;
        if (shape_broadcast(&node_of(m, a)->shape, &node_of(m, b)->shape, &both) &&
            shape_count_value(&both, m->symbols) <= m->limit) {
            return b;
        }
    }
    return broadcast_leaf(m, a, want);
}

/* ---- the graph ---- */

static enum op any_of_kind(struct maker *m, enum op_kind kind)
{
    for (;;) {
        enum op op = (enum op)(1 + draw_below(m->d, N_OPS - 1));
        if (op_info[op].kind == kind) {
            return op;
        }
    }
}

static void make_leaf(struct maker *m)
{
    struct shape s = any_shape(m, 3);
    switch (draw_below(m->d, 6)) {
    case 0: {
        struct attr a[3] = {attr_dims("shape", &s), attr_int("axis", draw_below(m->d, s.rank)),
                            attr_dtype("dtype", any_dtype(m, WANT_NUMBER))};
        make(m, OP_iota, NULL, 0, a, 3);
        break;
    }
    case 1: {
        struct shape of = {.rank = 1, .dims = {m->dims[draw_below(m->d, 4)]}};
        struct attr a[2] = {attr_dims("of", &of), attr_dtype("dtype", any_dtype(m, WANT_NUMBER))};
        make(m, OP_size, NULL, 0, a, 2);
        break;
    }
    case 2:
        keep(m, graph_constant(m->g, 1.5, any_dtype(m, WANT_NUMBER)));
        break;
    default:
        new_leaf(m, any_leaf_op(m), any_dtype(m, WANT_ANY), &s);
        break;
    }
}

static void make_node(struct maker *m)
{
    uint32_t r = draw_below(m->d, 100);
    bool is_fp8 = strncmp(m->c->policy, "fp8", 3) == 0;
    if (is_fp8 && draw_chance(m->d, 4)) {
        make_fp8_stack(m);
    } else if (draw_chance(m->d, 14)) {
        make_pattern(m);
    } else if (r < 44) {
        make_elementwise(m, any_of_kind(m, ELEMENTWISE));
    } else if (r < 57) {
        make_reduction(m, any_of_kind(m, REDUCTION));
    } else if (r < 61) {
        make_contraction(m, any_of_kind(m, CONTRACTION));
    } else if (r < 74) {
        make_view(m, any_of_kind(m, VIEW));
    } else if (r < 79) {
        make_index(m, any_of_kind(m, INDEX));
    } else if (r < 81) {
        make_random(m, any_of_kind(m, RANDOM));
    } else if (r < 95) {
        make_composite(m, any_of_kind(m, COMPOSITE));
    } else if (r < 98 && !m->c->is_trained) {
        make_training(m, any_of_kind(m, TRAINING));
    } else {
        make_leaf(m);
    }
}

static void draw_dims(struct maker *m, bool is_big)
{
    static const int64_t sizes[] = {2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 33, 64, 100, 128, 129, 1};
    static const int64_t long_sizes[] = {16384, 16385, 20000, 33000, 129, 300, 130, 257};
    for (uint32_t i = 0; i < 4; i++) {
        int64_t n = sizes[draw_below(m->d, ARRAY_LEN(sizes))];
        if (is_big && i < 2) {
            n = long_sizes[draw_below(m->d, ARRAY_LEN(long_sizes))];
        }
        m->dims[i] = dim_of(draw_chance(m->d, 3) ? 0 : n);
    }
    if (draw_chance(m->d, 45)) {
        m->dims[0] = dim_symbol(graph_symbol(m->g, "n"));
        if (draw_chance(m->d, 25)) {
            m->dims[1] = dim_symbol(graph_symbol(m->g, "m"));
        }
    }
}

static void draw_sizes(struct maker *m, bool is_big)
{
    static const int64_t sizes[] = {5, 64, 1, 2, 0, 3, 17, 130};
    struct fuzz_case *c = m->c;
    int64_t most = 0;
    for (uint32_t i = 0; i < c->n_steps; i++) {
        c->sizes[i] = sizes[draw_below(m->d, ARRAY_LEN(sizes))];
        if (is_big && draw_chance(m->d, 30)) {
            c->sizes[i] = 700;
        }
        most = c->sizes[i] > most ? c->sizes[i] : most;
    }
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        m->symbols[i] = most;
    }
}

static void add_updates(struct maker *m)
{
    uint32_t n = m->g->n_nodes;
    for (uint32_t i = 1; i < n; i++) {
        const struct node *leaf = &m->g->nodes[i];
        bool is_fit = leaf->op == OP_state || leaf->op == OP_buffer ||
                      (leaf->op == OP_param && !m->c->is_trained);
        for (uint32_t k = 0; is_fit && k < m->g->n_updates; k++) {
            is_fit = m->g->updates[k].leaf.id != i;
        }
        for (uint32_t k = 0; is_fit && k < 12; k++) {
            value v = m->pool[draw_below(m->d, m->n_pool)];
            const struct node *next = node_of(m, v);
            if (v.id != i && next->dtype == leaf->dtype &&
                shape_equal(&next->shape, &leaf->shape)) {
                graph_update(m->g, (value){i}, v);
                break;
            }
        }
    }
}

/* Something a parameter reaches, as a number: its mean with a new parameter's. */
static value trained_term(struct maker *m)
{
    value v = pick(m, WANT_FLOAT);
    struct shape s = node_of(m, v)->shape;
    if (draw_chance(m->d, 50)) {
        s = shape_scalar();
    }
    value p = new_leaf(m, OP_param, F32, &s);
    if (node_of(m, p)->op != OP_param) {
        s = shape_scalar();
        p = new_leaf(m, OP_param, F32, &s);
    }
    v = graph_op2(m->g, OP_mul, graph_cast(m->g, v, F32), p);
    return graph_reduce(m->g, OP_mean, v, NULL, 0, false);
}

static void add_outputs(struct maker *m)
{
    uint32_t wanted = 1 + draw_below(m->d, 5);
    char name[16];
    if (m->c->is_trained) {
        value loss = trained_term(m);
        uint32_t n_terms = 1 + draw_below(m->d, 3);
        for (uint32_t i = 0; i < n_terms; i++) {
            value v = pick(m, WANT_FLOAT);
            v = graph_reduce(m->g, draw_chance(m->d, 60) ? OP_mean : OP_sum, v, NULL, 0, false);
            loss = graph_op2(m->g, OP_add, loss, graph_cast(m->g, v, F32));
        }
        graph_output(m->g, "loss", loss);
    }
    for (uint32_t i = 0; i < wanted; i++) {
        value v =
            m->pool[draw_chance(m->d, 60) ? m->n_pool - 1 - draw_below(m->d, m->n_pool / 3 + 1)
                                          : draw_below(m->d, m->n_pool)];
        snprintf(name, sizeof name, "o%u", i);
        graph_output(m->g, name, v);
    }
    if (!m->c->is_trained || draw_chance(m->d, 20)) {
        add_updates(m);
    }
}

static void draw_options(struct fuzz_case *c, struct draw *d)
{
    static const char *const policies[] = {"none",           "none",
                                           "fp32",           "bf16",
                                           "fp16",           "bf16@torch-cuda",
                                           "bf16@torch-cpu", "fp16@torch-cuda",
                                           "fp16@torch-cpu", "fp8-tensorwise",
                                           "fp8-rowwise",    "fp8-rowwise-gw-hp",
                                           "fp8-delayed",    "fp8-blockwise",
                                           "fp8-mxfp8"};
    static const char *const optimizers[] = {"adamw,lr=0.01",
                                             "adam,lr=0.001,weight_decay=0.1",
                                             "sgd,lr=0.1",
                                             "lion,lr=0.01,weight_decay=0.1",
                                             "sgd,lr=0.1,momentum=0.9",
                                             "sgd,lr=0.05,momentum=0.8,nesterov",
                                             "adamw,lr=0.1,beta1=0.8,beta2=0.95"};
    static const char *const schedules[] = {
        "", "", "step,2,0.5", "cosine,10", "warmup,3", "warmup,2,start=0.1+step,2,0.5"};
    snprintf(c->policy, sizeof c->policy, "%s", policies[draw_below(d, ARRAY_LEN(policies))]);
    c->is_trained = draw_chance(d, 35);
    snprintf(c->optimizer, sizeof c->optimizer, "%s",
             optimizers[draw_below(d, ARRAY_LEN(optimizers))]);
    snprintf(c->schedule, sizeof c->schedule, "%s", schedules[draw_below(d, ARRAY_LEN(schedules))]);
    c->clip = draw_chance(d, 40) ? 1.0 : 0.0;
    c->scaler = draw_chance(d, 40) ? (draw_chance(d, 50) ? 65536.0 : 4.0) : 0.0;
    c->accumulate = draw_chance(d, 25) ? 2 + draw_below(d, 2) : 1;
    c->skips = draw_chance(d, 30);
    c->low = draw_chance(d, 10);
    c->data = draw_u64(d) & 0xffffff;
    c->style = draw_below(d, N_DATA_STYLES);
    if (c->is_trained && draw_chance(d, 70)) {
        c->style = draw_below(d, 2);
    }
    c->n_steps = 2 + draw_below(d, 4);
}

/* Each parameter that may be kept as bf16 is in about one of two cases. */
static void draw_forms(struct maker *m)
{
    struct fuzz_case *c = m->c;
    bool is_any = c->is_trained && draw_chance(m->d, 50);
    size_t at = 0;
    for (uint32_t i = 1; is_any && i < m->g->n_nodes; i++) {
        const struct node *n = &m->g->nodes[i];
        bool may = n->op == OP_param && (n->dtype == F32 || n->dtype == BF16);
        if (may && draw_chance(m->d, 70) && at + 40 < sizeof c->params) {
            at += (size_t)snprintf(c->params + at, sizeof c->params - at, "%s%.16s=%s",
                                   at > 0 ? "," : "", n->name,
                                   draw_chance(m->d, 60) ? "bf16-remainder" : "bf16-stochastic");
        }
    }
}

void generate_case(uint64_t seed, uint64_t number, struct fuzz_case *out)
{
    struct draw d = {seed * 0x2545f4914f6cdd1dULL + number * 0x9e3779b97f4a7c15ULL};
    (void)draw_u64(&d);
    *out = (struct fuzz_case){.graph = graph_create("fuzz")};
    struct maker *m = ARENA_NEW(&out->graph->arena, struct maker);
    m->c = out;
    m->g = out->graph;
    m->d = &d;
    bool is_big = draw_chance(&d, 5);
    m->limit = is_big ? 400000 : draw_chance(&d, 15) ? 40000 : 9000;
    draw_options(out, &d);
    draw_dims(m, is_big);
    draw_sizes(m, is_big);
    uint32_t n_leaves = 2 + draw_below(&d, 3);
    for (uint32_t i = 0; i < n_leaves; i++) {
        struct shape s = any_shape(m, 3);
        new_leaf(m, i == 0 ? OP_input : OP_param, any_float(m), &s);
    }
    uint32_t n_nodes = 6 + draw_below(&d, draw_chance(&d, 20) ? 70 : 30);
    for (uint32_t i = 0; i < n_nodes; i++) {
        make_node(m);
    }
    add_outputs(m);
    draw_forms(m);
}
