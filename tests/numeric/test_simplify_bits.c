/* simplify keeps every bit: random graphs of arithmetic with awkward numbers, casts and views run
 * eagerly as drawn and simplified, over leaves that hold zeros of both signs, subnormals,
 * infinities and NaN. Both executors see only what simplify leaves, so nothing else would tell. */
#include "passes/pass.h"
#include "runtime/eager.h"

#include "tests/suite.h"

#include <math.h>
#include <string.h>

enum { N_GRAPHS = 1000, N_DRAWN = 40, N_ELEMENTS = 12, MAX_POOL = 64 };

struct draw {
    uint64_t state;
    struct graph *g;
    value pool[MAX_POOL];
    uint32_t n;
};

static uint32_t below(struct draw *d, uint32_t n)
{
    d->state = hash_u64(d->state, 1);
    return (uint32_t)((d->state >> 20) % n);
}

static const double awkward[] = {1.0,     -0.0,    0.0,  -1.0, 2.0,       0.1,  1e-40,
                                 65504.0, 65536.0, 3e38, 1e-7, 0.0078125, -3.5, (double)INFINITY,
                                 256.0,   0x1p-24};

static value draw_constant(struct draw *d)
{
    static const enum dtype types[] = {F32, F16, BF16, F64, I32, I64, F8E4M3, F8E5M2};
    double v = awkward[below(d, ARRAY_LEN(awkward))];
    enum dtype t = types[below(d, ARRAY_LEN(types))];
    if (!dtype_is_float(t)) {
        v = (double)(int)below(d, 7) - 3.0;
    }
    return below(d, 2) == 0 ? graph_number(d->g, v) : graph_constant(d->g, v, t);
}

static value pick(struct draw *d)
{
    return d->pool[below(d, d->n)];
}

static value draw_view(struct draw *d, value v)
{
    const struct shape *s = &graph_node(d->g, v)->shape;
    struct shape flat = {.rank = 1, .dims = {dim_of(N_ELEMENTS)}};
    struct shape table = {.rank = 2, .dims = {dim_of(4), dim_of(3)}};
    struct attr same = attr_dims("shape", s);
    if (s->rank == 0) {
        return graph_expand(d->g, v, &flat);
    }
    switch (below(d, 5)) {
    case 0:
        return graph_reshape(d->g, v, s->rank == 1 ? &table : &flat);
    case 1:
        return graph_transpose(d->g, v, NULL, 0);
    case 2:
        return graph_add(d->g, OP_slice, &v, 1, NULL, 0);
    case 3:
        return graph_add(d->g, OP_expand, &v, 1, &same, 1);
    default:
        return graph_add(d->g, OP_reshape, &v, 1, &same, 1);
    }
}

static value draw_cast(struct draw *d, value v)
{
    enum dtype t = (enum dtype)(1U + below(d, N_DTYPES - 1));
    struct attr attrs[] = {attr_dtype("dtype", t), attr_bool("saturate", below(d, 4) == 0)};
    return graph_add(d->g, OP_cast, &v, 1, attrs, 2);
}

static bool is_bool(const struct draw *d, value v)
{
    return graph_node(d->g, v)->dtype == BOOL;
}

static value draw_arithmetic(struct draw *d)
{
    static const enum op binary[] = {OP_add,     OP_sub,     OP_mul, OP_div, OP_mul, OP_add,
                                     OP_minimum, OP_maximum, OP_eq,  OP_lt,  OP_ge,  OP_ne};
    static const enum op unary[] = {OP_neg,   OP_abs,  OP_sqrt, OP_reciprocal,
                                    OP_floor, OP_ceil, OP_relu, OP_is_nan};
    value a = below(d, 3) == 0 ? draw_constant(d) : pick(d);
    value b = below(d, 2) == 0 ? draw_constant(d) : pick(d);
    struct shape ignored;
    if (is_bool(d, a) || is_bool(d, b) ||
        !shape_broadcast(&graph_node(d->g, a)->shape, &graph_node(d->g, b)->shape, &ignored)) {
        return draw_constant(d);
    }
    if (below(d, 4) == 0) {
        return graph_op1(d->g, unary[below(d, ARRAY_LEN(unary))], a);
    }
    return graph_op2(d->g, binary[below(d, ARRAY_LEN(binary))], a, b);
}

static struct graph *draw_graph(uint64_t seed)
{
    struct draw d = {.state = hash_u64(seed, 7), .g = graph_create("drawn")};
    for (int t = 1; t < N_DTYPES; t++) {
        d.pool[d.n++] = graph_leaf(d.g, OP_input, dtype_info[t].name, (enum dtype)t,
                                   (int64_t[]){N_ELEMENTS}, 1);
    }
    for (uint32_t i = 0; i < N_DRAWN; i++) {
        uint32_t kind = below(&d, 4);
        value v = kind == 0   ? draw_cast(&d, pick(&d))
                  : kind == 1 ? draw_view(&d, pick(&d))
                              : draw_arithmetic(&d);
        ck_assert_msg(v.id != 0, "seed %u: %s", (unsigned)seed, d.g->error.text);
        d.pool[d.n++] = v;
    }
    for (uint32_t i = 0; i < d.n; i++) {
        graph_output(d.g, "y", d.pool[i]);
    }
    return d.g;
}

/* ---- running ---- */

struct leaves {
    const struct graph *g;
    struct tensor tensors[N_DTYPES];
    uint64_t data[N_DTYPES][N_ELEMENTS];
};

static struct tensor *lend_leaf(void *context, value v)
{
    struct leaves *l = context;
    return &l->tensors[graph_node(l->g, v)->dtype];
}

static void fill_leaves(struct leaves *l)
{
    static const double values[N_ELEMENTS] = {0.0,
                                              -0.0,
                                              1.0,
                                              -2.5,
                                              1e-41,
                                              65504.0,
                                              -3e38,
                                              0.1,
                                              -7.0,
                                              (double)INFINITY,
                                              -(double)INFINITY,
                                              (double)NAN};
    for (int t = 1; t < N_DTYPES; t++) {
        l->tensors[t] = (struct tensor){
            .dtype = (enum dtype)t, .rank = 1, .shape = {N_ELEMENTS}, .data = l->data[t]};
        for (uint32_t i = 0; i < N_ELEMENTS; i++) {
            dtype_store((enum dtype)t, (char *)l->data[t] + i * dtype_info[t].bytes, values[i]);
        }
    }
}

/* Outputs of g, in the arena. */
static struct tensor *run(const struct graph *g, struct leaves *l, struct arena *a)
{
    struct tensor *outputs = ARENA_ARRAY(a, struct tensor, g->n_outputs);
    struct error e = {0};
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct node *n = graph_node(g, g->outputs[i].value);
        outputs[i] = (struct tensor){.dtype = n->dtype, .rank = n->shape.rank};
        for (uint32_t k = 0; k < n->shape.rank; k++) {
            outputs[i].shape[k] = n->shape.dims[k].factor;
        }
        outputs[i].data = arena_alloc(a, tensor_bytes(&outputs[i]));
    }
    l->g = g;
    struct eager_run r = {.graph = g,
                          .symbols = (int64_t[MAX_SYMBOLS]){0},
                          .leaf = lend_leaf,
                          .context = l,
                          .outputs = outputs,
                          .cache = contraction_cache_create()};
    ck_assert_msg(eager_run(&r, &e) == ATOLL_OK, "%s", e.text);
    contraction_cache_destroy(r.cache);
    return outputs;
}

static bool same_element(enum dtype t, const void *a, const void *b)
{
    bool is_nan = dtype_is_float(t) && isnan(dtype_load(t, a)) && isnan(dtype_load(t, b));
    return is_nan || memcmp(a, b, dtype_info[t].bytes) == 0;
}

static uint64_t compare(const struct tensor *a, const struct tensor *b, uint64_t seed, uint32_t at)
{
    ck_assert_msg(a->dtype == b->dtype, "seed %u, value %u: %s became %s", (unsigned)seed,
                  (unsigned)at, dtype_info[a->dtype].name, dtype_info[b->dtype].name);
    ck_assert_int_eq(tensor_count(a), tensor_count(b));
    size_t bytes = dtype_info[a->dtype].bytes;
    for (int64_t i = 0; i < tensor_count(a); i++) {
        const char *x = (const char *)a->data + (size_t)i * bytes;
        const char *y = (const char *)b->data + (size_t)i * bytes;
        ck_assert_msg(same_element(a->dtype, x, y), "seed %u, value %u [%d] %s: %g became %g",
                      (unsigned)seed, (unsigned)at, (int)i, dtype_info[a->dtype].name,
                      dtype_load(a->dtype, x), dtype_load(a->dtype, y));
    }
    return (uint64_t)tensor_count(a);
}

START_TEST(every_bit_stays)
{
    uint64_t compared = 0, dropped = 0;
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        struct arena a = {0};
        struct leaves *l = ARENA_NEW(&a, struct leaves);
        struct graph *g = draw_graph(seed), *out = graph_like(g);
        fill_leaves(l);
        ck_assert_int_eq(simplify_pass(g, out, &(struct pass_options){0}, NULL), ATOLL_OK);
        dropped += g->n_nodes - out->n_nodes;
        const struct tensor *before = run(g, l, &a), *after = run(out, l, &a);
        for (uint32_t i = 0; i < g->n_outputs; i++) {
            compared += compare(&before[i], &after[i], seed, i);
        }
        graph_destroy(out);
        graph_destroy(g);
        arena_free(&a);
    }
    ck_assert_uint_ge(compared, 100000);
    ck_assert_uint_ge(dropped, N_GRAPHS); /* the rules did fire */
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, every_bit_stays);
}

int main(void)
{
    return run_suite("simplify_bits", fill);
}
