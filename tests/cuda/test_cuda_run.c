/* On a device (a real one, or the emulator): every elementwise op, cast, reduction and index op
 * gives the CPU's bits - all inputs for 16-bit and 8-bit types, samples for f32 and integers - and
 * random training graphs give the bits of one op at a time. */
#include "cuda_suite.h"

#include <dlfcn.h>
#include <math.h>

#include "frontend/runner.h"
#include "tests/fuzz/check_case.h"
#include "tests/fuzz/fill.h"

static struct device *device;
/* The emulator's count of its work; NULL on a real device. */
static void (*statistics)(uint64_t *launches, uint64_t *instructions);
enum { MANY = 100000, FEW = 4096 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Every bit pattern in turn for narrow types; for wide ones random bits, and every fourth a modest
 * number. */
static void fill_bits(struct tensor *t, uint64_t seed)
{
    uint64_t state = seed;
    size_t bytes = dtype_info[t->dtype].bytes;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        uint64_t bits = next_random(&state);
        unsigned char *to = (unsigned char *)t->data + (size_t)i * bytes;
        if (t->dtype == BOOL) {
            bits &= 1;
        } else if (bytes <= 2) {
            bits = (uint64_t)i * (seed | 1u);
        } else if (i % 4 == 0 || t->dtype == I64) {
            double modest = ((double)(int64_t)(bits >> 11) * 0x1p-52 - 1.0) * 20.0;
            dtype_store(t->dtype, to, modest);
            continue;
        }
        memcpy(to, &bits, bytes);
    }
}

/* Runs g eagerly on the CPU and fused on the device with the same inputs, and compares every
 * output. */
static void same_bits(struct graph *g, const char *what, uint64_t seed)
{
    struct error e = {0};
    struct runner here, there;
    struct compile_options o = {
        .is_eager = true, .cache = shared_kernels(), .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    ck_assert_msg(g->error.code == ATOLL_OK, "%s: %s", what, g->error.text);
    ck_assert_msg(runner_open(&here, g, &o, 1, &e) == ATOLL_OK, "%s: %s", what, e.text);
    o.is_eager = false;
    o.device = device;
    ck_assert_msg(runner_open(&there, g, &o, 1, &e) == ATOLL_OK, "%s: %s", what, e.text);
    for (uint32_t i = 1; i < runner_graph(&here)->n_nodes; i++) {
        const struct node *n = &runner_graph(&here)->nodes[i];
        if (n->op != OP_input) {
            continue;
        }
        struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
        for (uint32_t a = 0; a < t.rank; a++) {
            t.shape[a] = n->shape.dims[a].factor;
        }
        t.data = malloc(tensor_bytes(&t) + 8);
        fill_bits(&t, seed + i);
        if (n->name[0] == 'k') { /* indices: some negative, some out of range */
            for (int64_t k = 0; k < tensor_count(&t); k++) {
                double index = (double)(k * 7 % 15 - 6);
                dtype_store(t.dtype, (char *)t.data + (size_t)k * dtype_info[t.dtype].bytes, index);
            }
        }
        ck_assert_int_eq(runner_input(&here, n->name, &t, &e), ATOLL_OK);
        ck_assert_int_eq(runner_input(&there, n->name, &t, &e), ATOLL_OK);
        free(t.data);
    }
    ck_assert_msg(runner_step(&here, &e) == ATOLL_OK, "%s: %s", what, e.text);
    ck_assert_msg(runner_step(&there, &e) == ATOLL_OK, "%s: %s", what, e.text);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor a = runner_output(&here, g->outputs[i].name),
                      b = runner_output(&there, g->outputs[i].name);
        int64_t at = first_difference(&a, &b);
        size_t bytes = dtype_info[a.dtype].bytes;
        ck_assert_msg(at < 0, "%s, %s: element %lld is %.17g, expected %.17g", what,
                      g->outputs[i].name, (long long)at,
                      dtype_load(b.dtype, (char *)b.data + (size_t)(at < 0 ? 0 : at) * bytes),
                      dtype_load(a.dtype, (char *)a.data + (size_t)(at < 0 ? 0 : at) * bytes));
    }
    runner_free(&here);
    runner_free(&there);
    graph_destroy(g);
}

/* ---- elementwise ---- */

static const enum dtype TYPES[] = {F32, F16, BF16, F8E4M3, F8E5M2, I64, I32, U8, BOOL};

static bool allows(enum op op, enum dtype t)
{
    enum op_types types = op_info[op].types;
    return types == TYPES_C || types == TYPES_W || types == TYPES_FI ||
           (types == TYPES_F && dtype_is_float(t)) || (types == TYPES_B && t == BOOL);
}

/* Every value of a narrow type, MANY of a wide one; under sanitizers a share, since the point is
 * the host code then. */
static int64_t samples_of(enum dtype t)
{
    int64_t n = dtype_info[t].bytes == 1 ? 256 : dtype_info[t].bytes == 2 ? 65536 : MANY;
    return n > FEW && is_sanitized() ? FEW : n;
}

START_TEST(elementwise)
{
    enum dtype t = TYPES[_i];
    int64_t n = samples_of(t);
    struct graph *g = graph_create("ops");
    value x[3], condition = graph_leaf(g, OP_input, "c", BOOL, (int64_t[]){n}, 1);
    for (int i = 0; i < 3; i++) {
        x[i] = graph_leaf(g, OP_input, (const char *[]){"x", "y", "z"}[i], t, (int64_t[]){n}, 1);
    }
    uint32_t n_ops = 0;
    for (int op = 1; op < N_OPS; op++) {
        bool is_own = op == OP_cast || op == OP_scale_loss || op == OP_unscale;
        bool is_float_only = (op == OP_is_finite || op == OP_is_nan) && !dtype_is_float(t);
        if (op_info[op].kind != ELEMENTWISE || is_own || is_float_only || !allows((enum op)op, t) ||
            (t == BOOL && op_info[op].types == TYPES_FI)) {
            continue;
        }
        value operands[3] = {x[0], x[1], x[2]};
        if (op == OP_where) {
            operands[0] = condition;
        }
        value v = graph_add(g, (enum op)op, operands, op_info[op].min_operands, NULL, 0);
        graph_output(g, op_info[op].name, v);
        n_ops++;
    }
    ck_assert_uint_gt(n_ops, 5);
    same_bits(g, dtype_info[t].name, 7);
}
END_TEST

static value cast_to(struct graph *g, value x, enum dtype to, bool saturate)
{
    struct attr attrs[] = {{.name = "dtype", .kind = ATTR_DTYPE, .dtype = to},
                           {.name = "saturate", .kind = ATTR_BOOL, .i = saturate}};
    return graph_add(g, OP_cast, &x, 1, attrs, saturate ? 2 : 1);
}

START_TEST(casts)
{
    static const enum dtype all[] = {BOOL, U8, I32, I64, F16, BF16, F32, F8E4M3, F8E5M2, F64};
    enum dtype from = all[_i];
    int64_t n = samples_of(from);
    struct graph *g = graph_create("casts");
    value x = graph_leaf(g, OP_input, "x", from, (int64_t[]){n}, 1);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        graph_output(g, dtype_info[all[i]].name, cast_to(g, x, all[i], false));
    }
    if (dtype_is_float(from)) {
        graph_output(g, "f8e4m3 saturated", cast_to(g, x, F8E4M3, true));
        graph_output(g, "f8e5m2 saturated", cast_to(g, x, F8E5M2, true));
    }
    same_bits(g, dtype_info[from].name, 3);
}
END_TEST

/* ---- reductions ---- */

static const struct {
    int64_t shape[3];
    int64_t axis; /* 3: all */
} reductions[] = {
    {{1, 1, 7}, 2},    {{3, 5, 1}, 2},     {{2, 3, 10}, 2},    {{1, 9, 33}, 2},
    {{1, 3, 64}, 2},   {{5, 1, 100}, 2},   {{1, 2, 128}, 2},   {{1, 3, 1000}, 2},
    {{1, 2, 4100}, 2}, {{1, 1, 16384}, 2}, {{1, 2, 16389}, 2}, {{1, 1, 40000}, 3},
    {{1, 1, 5000}, 3}, {{7, 13, 11}, 3},   {{2, 64, 10}, 1},   {{1, 128, 3}, 1},
    {{3, 129, 5}, 1},  {{1, 2500, 33}, 1}, {{40, 3, 70}, 0},   {{1, 17000, 1}, 1},
};

static value reduce(struct graph *g, enum op op, value x, int64_t axis)
{
    int64_t axes[] = {axis};
    struct attr attrs[] = {
        {.name = "axes", .kind = ATTR_INTS, .ints = axes, .n_ints = axis == 3 ? 0 : 1}};
    return graph_add(g, op, &x, 1, attrs, axis == 3 ? 0 : 1);
}

START_TEST(reduction)
{
    static const enum op ops[] = {OP_sum, OP_prod, OP_max, OP_min};
    static const enum dtype types[] = {F32, BF16, I64};
    struct graph *g = graph_create("reductions");
    char what[64];
    snprintf(what, sizeof what, "[%d,%d,%d] axis %d", (int)reductions[_i].shape[0],
             (int)reductions[_i].shape[1], (int)reductions[_i].shape[2], (int)reductions[_i].axis);
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        char *name = arena_text(&g->arena, "x%s", dtype_info[types[t]].name);
        value x = graph_leaf(g, OP_input, name, types[t], reductions[_i].shape, 3);
        value modest = types[t] == I64 ? x : graph_op1(g, OP_sin, x);
        for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
            value v = reduce(g, ops[k], modest, reductions[_i].axis);
            char *out = arena_text(&g->arena, "%s_%s", op_info[ops[k]].name, name);
            graph_output(g, out, v);
        }
        if (types[t] == F32 && reductions[_i].axis == 2) {
            graph_output(g, "softmax", graph_op1(g, OP_softmax, modest));
            graph_output(g, "layer_norm", graph_op1(g, OP_layer_norm, modest));
            graph_output(g, "log_softmax", graph_op1(g, OP_log_softmax, modest));
            graph_output(g, "argmax", graph_op1(g, OP_argmax, x));
            graph_output(g, "argmin", graph_op1(g, OP_argmin, x));
        }
    }
    same_bits(g, what, 11);
}
END_TEST

/* ---- index ops, random ---- */

START_TEST(indices)
{
    struct graph *g = graph_create("indices");
    static const enum dtype types[] = {F32, BF16, I64};
    /* from floats: an index that a leaf holds is held against its range before a step */
    value rows = cast_to(g, graph_leaf(g, OP_input, "k", F32, (int64_t[]){6}, 1), I64, false);
    value same = cast_to(g, graph_leaf(g, OP_input, "k2", F32, (int64_t[]){4, 5}, 2), I64, false);
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        const char *n = dtype_info[types[t]].name;
        char *name = arena_text(&g->arena, "x%s", n);
        value x = graph_leaf(g, OP_input, name, types[t], (int64_t[]){9, 5}, 2);
        value y = graph_leaf(g, OP_input, arena_text(&g->arena, "y%s", n), types[t],
                             (int64_t[]){6, 5}, 2);
        value z = graph_leaf(g, OP_input, arena_text(&g->arena, "z%s", n), types[t],
                             (int64_t[]){4, 5}, 2);
        struct attr axis = {.name = "axis", .kind = ATTR_INT, .i = 0};
        struct attr pad[] = {axis,
                             {.name = "low", .kind = ATTR_INT, .i = 2},
                             {.name = "high", .kind = ATTR_INT, .i = 1},
                             {.name = "step", .kind = ATTR_INT, .i = 3},
                             {.name = "value", .kind = ATTR_FLOAT, .f = 1.5}};
        pad[4].f = types[t] == I64 ? 7.0 : 1.5;
        graph_output(g, arena_text(&g->arena, "take %s", n),
                     graph_add(g, OP_take, (value[]){x, rows}, 2, &axis, 1));
        graph_output(g, arena_text(&g->arena, "gather %s", n),
                     graph_add(g, OP_gather, (value[]){x, same}, 2, &axis, 1));
        graph_output(g, arena_text(&g->arena, "index_add %s", n),
                     graph_add(g, OP_index_add, (value[]){x, rows, y}, 3, &axis, 1));
        graph_output(g, arena_text(&g->arena, "scatter_add %s", n),
                     graph_add(g, OP_scatter_add, (value[]){x, same, z}, 3, &axis, 1));
        graph_output(g, arena_text(&g->arena, "concat %s", n),
                     graph_add(g, OP_concat, (value[]){x, y, z}, 3, &axis, 1));
        graph_output(g, arena_text(&g->arena, "pad %s", n),
                     graph_add(g, OP_pad, (value[]){x}, 1, pad, 5));
    }
    same_bits(g, "index ops", 5);
}
END_TEST

/* Many positions an index, in slices narrower and wider than a block, around an inner axis; some
 * indices out of range. The sums show their order in the last bits. */
START_TEST(adds_in_order)
{
    static const enum dtype types[] = {F32, BF16, I64};
    static const int64_t inner[] = {1, 5, 300}, positions[][2] = {{1, 1}, {5, 51}, {7, 100}};
    struct graph *g = graph_create("adds");
    struct attr axis = {.name = "axis", .kind = ATTR_INT, .i = 1};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t m = 0; m < ARRAY_LEN(positions); m++) {
            char *name = arena_text(&g->arena, "%s%d", dtype_info[types[t]].name, (int)m);
            const int64_t *p = positions[m];
            value x = graph_leaf(g, OP_input, arena_text(&g->arena, "x%s", name), types[t],
                                 (int64_t[]){2, 9, inner[_i]}, 3);
            value y = graph_leaf(g, OP_input, arena_text(&g->arena, "y%s", name), types[t],
                                 (int64_t[]){2, p[0], p[1], inner[_i]}, 4);
            value k = graph_leaf(g, OP_input, arena_text(&g->arena, "k%s", name), F32, p, 2);
            x = types[t] == I64 ? x : graph_op1(g, OP_sin, x);
            y = types[t] == I64 ? y : graph_op1(g, OP_sin, y);
            k = cast_to(g, k, I64, false);
            graph_output(g, name, graph_add(g, OP_index_add, (value[]){x, k, y}, 3, &axis, 1));
        }
    }
    same_bits(g, "adds by index", 9);
}
END_TEST

/* Thread instructions of one step of index_add over m positions of 40 indices, inner elements each,
 * as the emulator counts them. */
static double cost_of_adds(int64_t m, int64_t inner)
{
    struct error e = {0};
    struct runner r;
    struct compile_options o = {
        .device = device, .cache = shared_kernels(), .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    struct graph *g = graph_create("cost");
    value x = graph_leaf(g, OP_buffer, "x", F32, (int64_t[]){40, inner}, 2);
    value y = graph_leaf(g, OP_buffer, "y", F32, (int64_t[]){m, inner}, 2);
    value k = graph_leaf(g, OP_buffer, "k", I64, &m, 1);
    struct attr axis = {.name = "axis", .kind = ATTR_INT, .i = 0};
    uint64_t before, after, launches;
    graph_output(g, "sum", graph_add(g, OP_index_add, (value[]){x, k, y}, 3, &axis, 1));
    ck_assert_msg(runner_open(&r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (int64_t i = 0; i < m; i++) {
        ((int64_t *)runner_leaf(&r, "k")->data)[i] = i * 7 % 40;
    }
    statistics(&launches, &before);
    ck_assert_msg(runner_step(&r, &e) == ATOLL_OK, "%s", e.text);
    (void)runner_number(&r, "sum");
    statistics(&launches, &after);
    runner_free(&r);
    graph_destroy(g);
    return (double)(after - before);
}

/* An element of a source costs the same however many positions there are, and the search for equal
 * indices does not grow with the size of a slice. */
START_TEST(cost_of_adds_is_that_of_the_sources)
{
    double narrow = cost_of_adds(600, 8), wide = cost_of_adds(600, 256),
           more = cost_of_adds(1200, 256);
    printf("index_add: %.3g thread instructions for 600 x 8, %.3g for 600 x 256, %.3g for 1200 x "
           "256\n",
           narrow, wide, more);
    ck_assert_double_lt((wide - narrow) / (600.0 * 248.0), 100.0);
    ck_assert_double_lt(more / wide, 4.0); /* comparing positions is the square of them */
}
END_TEST

START_TEST(random_numbers)
{
    struct graph *g = graph_create("random");
    value seed = graph_leaf(g, OP_input, "kseed", I64, NULL, 0);
    struct attr shape = {.name = "shape", .kind = ATTR_DIMS, .dims = {1, {dim_of(5003)}}};
    graph_output(g, "uniform", graph_add(g, OP_uniform, &seed, 1, &shape, 1));
    graph_output(g, "normal", graph_add(g, OP_normal, &seed, 1, &shape, 1));
    same_bits(g, "random", 5);
}
END_TEST

/* ---- whole graphs ---- */

START_TEST(random_graphs)
{
    const char *wanted = getenv("ATOLL_CUDA_GRAPHS");
    uint64_t n = wanted != NULL ? strtoull(wanted, NULL, 10) : 6, values = 0;
    struct check_options o = {.threads = {1},
                              .n_threads = 1,
                              .device = device,
                              .cache = shared_kernels(),
                              .libnvrtc = getenv("ATOLL_LIBNVRTC")};
    uint32_t same = 0, refused = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct fuzz_case c;
        struct verdict v;
        generate_case(31, i, &c);
        check_case(&c, &o, &v);
        ck_assert_msg(v.kind != VERDICT_DIFFERENT, "case %d: %s", (int)i, v.text);
        same += v.kind == VERDICT_SAME;
        refused += v.kind == VERDICT_REFUSED;
        values += v.n_values;
        graph_destroy(c.graph);
    }
    printf("random graphs on the device: %u of %d the same bits (%lld values), %u refused\n", same,
           (int)n, (long long)values, refused);
    ck_assert_uint_gt(same, n / 2);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, elementwise, 0, (int)ARRAY_LEN(TYPES));
    tcase_add_loop_test(tc, casts, 0, 10);
    tcase_add_loop_test(tc, reduction, 0, (int)ARRAY_LEN(reductions));
    tcase_add_test(tc, indices);
    tcase_add_loop_test(tc, adds_in_order, 0, 3);
    if (statistics != NULL) {
        tcase_add_test(tc, cost_of_adds_is_that_of_the_sources);
    }
    tcase_add_test(tc, random_numbers);
    tcase_add_test(tc, random_graphs);
}

int main(void)
{
    const char *driver = getenv("ATOLL_LIBCUDA");
    void *library = driver != NULL ? dlopen(driver, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = library != NULL ? dlsym(library, "atoll_emulator_statistics") : NULL;
    memcpy(&statistics, &address, sizeof statistics);
    return run_on_device("cuda_run", fill, &device);
}
