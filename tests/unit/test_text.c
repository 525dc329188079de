/* The text form: whatever is built prints, reads back to an equal graph and prints the same; and
 * numbers keep their bits. Every op of the table is tried with operands found by search, so a new
 * row is tested by existing. */
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

#include "ir/dot.h"
#include "ir/graph_hash.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

static void check_round_trip(const struct graph *g)
{
    struct arena a = {0};
    struct text first = {.arena = &a}, second = {.arena = &a};
    struct print_options o = {.locations = true};
    struct error e = {0};
    ck_assert_msg(graph_verify(g, &e) == ATOLL_OK, "%s", e.text);
    graph_print(g, &first, &o);
    struct graph *back = graph_parse(first.data, first.length, "printed", &e);
    ck_assert_msg(back != NULL, "%s\n%s", e.text, first.data);
    graph_print(back, &second, &o);
    ck_assert_str_eq(first.data, second.data);
    ck_assert_msg(graph_hash(g) == graph_hash(back), "hashes differ:\n%s", first.data);
    ck_assert_msg(graph_verify(back, &e) == ATOLL_OK, "%s\n%s", e.text, first.data);
    ck_assert_uint_eq(g->n_outputs, back->n_outputs);
    ck_assert_uint_eq(g->n_updates, back->n_updates);
    graph_destroy(back);
    arena_free(&a);
}

/* ---- every op ---- */

enum { N_POOL = 9 };

static void add_pool(struct graph *g, value pool[N_POOL])
{
    pool[0] = graph_leaf(g, OP_input, "m", F32, (int64_t[]){4, 4}, 2);
    pool[1] = graph_leaf(g, OP_param, "v", F32, (int64_t[]){4}, 1);
    pool[2] = graph_leaf(g, OP_state, "s", F32, NULL, 0);
    pool[3] = graph_leaf(g, OP_input, "index", I64, (int64_t[]){4}, 1);
    pool[4] = graph_leaf(g, OP_input, "index2", I64, (int64_t[]){4, 4}, 2);
    pool[5] = graph_leaf(g, OP_scalar, "seed", I64, NULL, 0);
    pool[6] = graph_leaf(g, OP_buffer, "tracker", I32, NULL, 0);
    pool[7] = graph_leaf(g, OP_input, "mask", BOOL, (int64_t[]){4, 4}, 2);
    pool[8] = graph_leaf(g, OP_input, "flag", BOOL, NULL, 0);
}

static struct attr example(const struct attr *a, int variant)
{
    struct attr out = *a;
    static const int64_t ints[] = {1, 0};
    static const double doubles[] = {0.1, -0.0, 1e300, 5e-324};
    static const char *const texts[] = {"sum", "none", "tanh", "a \"quoted\" \\ \n \x01 text"};
    out.i = a->kind == ATTR_BOOL ? a->i == 0 : (const int64_t[]){1, 2, -1, 4}[variant];
    out.f = doubles[variant];
    out.ints = ints;
    out.n_ints = variant % 2 == 0 ? 1 : 2;
    out.dims = (struct shape){.rank = 2, .dims = {dim_of(4), dim_of(4)}};
    out.dtype = (const enum dtype[]){F32, F16, F8E4M3, F64}[variant];
    out.text = texts[variant];
    return out;
}

/* Sets operands[] from the pool by the digits of `choice`, then tries to add the node. */
static value try_add(struct graph *g, enum op op, const value *pool, uint32_t n, uint32_t choice,
                     const struct attr *attrs, uint32_t n_attrs)
{
    value operands[8];
    for (uint32_t i = 0; i < n; i++) {
        operands[i] = pool[choice % N_POOL];
        choice = i < 2 ? choice / N_POOL : choice;
    }
    g->error = (struct error){0};
    return graph_add(g, op, operands, n, attrs, n_attrs);
}

static uint32_t required_attrs(enum op op, struct arena *a, struct attr out[MAX_ATTRS])
{
    struct attr schema[MAX_ATTRS];
    uint32_t required, n = op_schema(op, a, schema, &required), n_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (required >> i & 1U) {
            out[n_out++] = example(&schema[i], 0);
            out[n_out - 1].i = 4; /* one_hot's classes */
        }
    }
    return n_out;
}

START_TEST(every_op_round_trips)
{
    enum op op = (enum op)_i;
    struct arena a = {0};
    struct attr attrs[MAX_ATTRS], schema[MAX_ATTRS];
    uint32_t n_attrs = required_attrs(op, &a, attrs), required;
    uint32_t n_schema = op_schema(op, &a, schema, &required), n_fitting = 0;
    const struct op_row *row = &op_info[op];
    struct graph *g = graph_create("all");
    value pool[N_POOL];
    add_pool(g, pool);
    uint32_t most = row->max_operands == VARIADIC ? 3 : row->max_operands;
    for (uint32_t n = row->min_operands; op > OP_scalar && n <= most; n++) {
        uint32_t n_choices = n == 0 ? 1 : n == 1 ? 9 : n == 2 ? 81 : 729;
        for (uint32_t c = 0, tried = 0; c < n_choices && tried < 3; c++) {
            value v = try_add(g, op, pool, n, c, attrs, n_attrs);
            if (v.id == 0) {
                continue;
            }
            n_fitting++;
            tried++;
            graph_output(g, row->name, v);
            g->outputs[g->n_outputs - 1].name =
                arena_text(&g->arena, "%s:%u", row->name, g->n_outputs);
            for (uint32_t k = 0; k < 4 * n_schema; k++) { /* each attribute, off its default */
                struct attr more[MAX_ATTRS + 1];
                memcpy(more, attrs, sizeof attrs);
                more[n_attrs] = example(&schema[k / 4], (int)(k % 4));
                v = try_add(g, op, pool, n, c, more, n_attrs + 1);
                if (v.id != 0) {
                    graph_output(g, arena_text(&a, "%s.%u", row->name, g->n_nodes), v);
                }
            }
        }
    }
    g->error = (struct error){0};
    /* golden/fp8_product.graph has its four operands */
    bool is_elsewhere = op <= OP_scalar || op == OP_scaled_matmul;
    ck_assert_msg(n_fitting > 0 || is_elsewhere, "%s: no operands fit", row->name);
    if (is_elsewhere) {
        graph_output(g, "leaf", pool[0]);
    }
    /* scaled(S) on operands of optimizers is right to be refused, so tags stay out of this test */
    check_round_trip(g);
    graph_destroy(g);
    arena_free(&a);
}
END_TEST

/* ---- random graphs ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = hash_u64(*seed, 1);
    return (uint32_t)(*seed >> 33) % n;
}

static void add_random_node(struct graph *g, uint64_t *seed)
{
    static const char *const names[] = {"h", "h.1", "x/y", "odd name", "v12", "0", "", "a\"b"};
    struct arena a = {0};
    struct attr attrs[MAX_ATTRS];
    value operands[3];
    enum op op = (enum op)(OP_constant + draw(seed, N_OPS - OP_constant));
    uint32_t n_attrs = required_attrs(op, &a, attrs);
    uint32_t n = op_info[op].min_operands + draw(seed, 2);
    for (uint32_t i = 0; i < 3; i++) {
        operands[i].id = 1 + draw(seed, g->n_nodes - 1);
        if (n > 1 && draw(seed, 8) == 0) {
            operands[i] = graph_number(g, (double)draw(seed, 100) / 7.0 - 3.0);
        }
    }
    g->origin_name = draw(seed, 3) == 0 ? NULL : names[draw(seed, ARRAY_LEN(names))];
    g->origin = (struct location){draw(seed, 2) ? "dir/a \"b\".c" : NULL, draw(seed, 1000)};
    if (n <= 3 && op != OP_scale_loss) {
        (void)graph_add(g, op, operands, n, attrs, n_attrs);
    }
    g->error = (struct error){0};
    g->origin_name = NULL;
    g->origin = (struct location){0};
    arena_free(&a);
}

START_TEST(random_graphs_round_trip)
{
    uint64_t seed = (uint64_t)_i;
    struct graph *g = graph_create(_i % 2 == 0 ? "random" : "a name in \"quotes\"");
    /* the other order than in the text: ids of symbols differ after reading */
    uint8_t m = graph_symbol(g, "m"), n = graph_symbol(g, "n");
    struct shape first = {.rank = 2, .dims = {dim_symbol(n), dim_of(4)}};
    struct shape second = {.rank = 1, .dims = {{.factor = 6, .symbols = {m, n}}}};
    graph_leaf_shape(g, OP_input, "a", F32, &first);
    graph_leaf_shape(g, OP_input, "odd \\ name", BF16, &second);
    g->symbols[m].low = 2;
    g->symbols[n].high = 64;
    value pool[N_POOL];
    add_pool(g, pool);
    for (int i = 0; i < 60; i++) {
        add_random_node(g, &seed);
    }
    for (uint32_t i = 0; i < 4; i++) {
        value v = {1 + draw(&seed, g->n_nodes - 1)};
        graph_output(g, (const char *[]){"loss", "grad:w", "grad:0.w", "7 \"x\""}[i], v);
    }
    for (uint32_t i = g->n_nodes - 1; i > 0 && g->n_updates == 0; i--) {
        if (g->nodes[i].dtype == F32 && g->nodes[i].shape.rank == 0) {
            graph_update(g, graph_find(g, "s"), (value){i});
        }
    }
    check_round_trip(g);
    struct arena a = {0};
    struct text dot = {.arena = &a};
    graph_dot(g, &dot);
    ck_assert_int_eq(strncmp(dot.data, "digraph \"", 9), 0);
    arena_free(&a);
    graph_destroy(g);
}
END_TEST

/* ---- numbers ---- */

static const uint64_t number_bits[] = {
    0x0,
    0x8000000000000000,
    0x1,
    0x7ff0000000000000,
    0xfff0000000000000,
    0x7ff8000000000000,
    0xfff8000000000000,
    0x7ff8000000000001,
    0x7ff0000000000001,
    0x3fb999999999999a,
    0x7fefffffffffffff,
    0x0010000000000000,
    0x3ff0000000000001,
    0x4340000000000001,
    0xc008000000000000,
    0x3ee4f8b588e368f1,
};

START_TEST(numbers_keep_their_bits)
{
    for (int variant = 0; variant < 2; variant++) {
        struct arena a = {0};
        struct text t = {.arena = &a};
        double number;
        struct error e = {0};
        memcpy(&number, &number_bits[_i], sizeof number);
        text_add(&t, "graph @g(%%x: f32[] input) { %%c = constant() {value=");
        double_print(&t, number);
        text_add(&t, "} %%m = mul(%%x, ");
        double_print(&t, number);
        text_add(&t, ") return c=%%c, m=%%m }");
        struct graph *g = graph_parse(t.data, t.length, "number", &e);
        ck_assert_msg(g != NULL, "%s: %s", e.text, t.data);
        for (uint32_t i = 2; i < 4; i++) {
            uint64_t bits;
            double read = node_float(&g->nodes[i], "value");
            memcpy(&bits, &read, sizeof bits);
            ck_assert_uint_eq(bits, number_bits[_i]);
        }
        check_round_trip(g);
        graph_destroy(g);
        arena_free(&a);
    }
}
END_TEST

/* ---- the hash ---- */

static uint64_t hash_of(const char *text)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "hash", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    uint64_t h = graph_hash(g);
    graph_destroy(g);
    return h;
}

static const char *const base_graph =
    "graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%a, 2) "
    "update %s <- %s return y=%b }";
static const struct {
    const char *text;
    bool is_same;
} hash_cases[] = {
    {"graph @other(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %dead = log(%x) %q = "
     "exp(%x) @ \"f.c\":1 %w = mul(%q, 2.0) update %s <- %s return y=%w }",
     true},
    {"graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,9] { %a = exp(%x) %b = mul(%a, "
     "2) update %s <- %s return y=%b }",
     false},
    {"graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%a, "
     "3) update %s <- %s return y=%b }",
     false},
    {"graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%x, "
     "2) update %s <- %s return y=%b }",
     false},
    {"graph @g(%z: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%z) %b = mul(%a, "
     "2) update %s <- %s return y=%b }",
     false},
    {"graph @g(%x: bf16[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%a, "
     "2) update %s <- %s return y=%b }",
     false},
    {"graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%a, "
     "2) return y=%b }",
     false},
    {"graph @g(%x: f32[n,4] input, %s: f32[] state) where n in [2,8] { %a = exp(%x) %b = mul(%a, "
     "2) update %s <- %s return y=%a }",
     false},
};

START_TEST(hash_tells_graphs_apart)
{
    uint64_t base = hash_of(base_graph), other = hash_of(hash_cases[_i].text);
    ck_assert_int_eq(base == other, hash_cases[_i].is_same);
    ck_assert_uint_eq(base, hash_of(base_graph));
}
END_TEST

/* ---- broken input ---- */

START_TEST(every_prefix_and_every_byte_is_safe)
{
    size_t size = strlen(base_graph);
    char *copy = malloc(size + 1);
    memcpy(copy, base_graph, size + 1);
    for (size_t i = 0; i < size; i++) {
        struct error e = {0};
        char *prefix = malloc(i + 1); /* exactly as long, so that a read past its end is seen */
        memcpy(prefix, base_graph, i);
        struct graph *g = graph_parse(prefix, i, "prefix", &e);
        ck_assert_msg(g == NULL && strncmp(e.text, "prefix:", 7) == 0, "%s", e.text);
        free(prefix);
        for (int c = 0; c < 256; c += 5) {
            struct error bad = {0};
            copy[i] = (char)c;
            graph_destroy(graph_parse(copy, size, "byte", &bad));
        }
        copy[i] = base_graph[i];
    }
    free(copy);
}
END_TEST

/* Fails each block the parser asks for, once; run under a leak checker this finds what is lost. */
START_TEST(out_of_memory_is_a_status)
{
    struct arena a = {0};
    struct text t = {.arena = &a};
    struct graph *g = NULL;
    text_add(&t, "graph @long(%%v0: f32[4] input) {\n");
    for (int i = 0; i < 300; i++) {
        text_add(&t, "%%v%d = mul(%%v%d, 1.5)\n", i + 1, i);
    }
    text_add(&t, "return y=%%v300 }");
    for (uint64_t n = 1; g == NULL; n++) {
        struct error e = {0};
        arena_fail_after(n);
        g = graph_parse(t.data, t.length, "memory", &e);
        arena_fail_after(0);
        ck_assert_msg(g != NULL ? n > 2 : e.code == ATOLL_OUT_OF_MEMORY, "%s", e.text);
    }
    graph_destroy(g);
    arena_free(&a);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, every_op_round_trips, 1, N_OPS);
    tcase_add_loop_test(tc, random_graphs_round_trip, 0, 200);
    tcase_add_loop_test(tc, numbers_keep_their_bits, 0, (int)ARRAY_LEN(number_bits));
    tcase_add_loop_test(tc, hash_tells_graphs_apart, 0, (int)ARRAY_LEN(hash_cases));
    tcase_add_test(tc, every_prefix_and_every_byte_is_safe);
    tcase_add_test(tc, out_of_memory_is_a_status);
}

int main(void)
{
    return run_suite("text", fill);
}
