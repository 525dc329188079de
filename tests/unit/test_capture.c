/* The capture API: a model by calls is the model by text, every wrapper of ops.h records what its
 * row says, and the hash of a trace knows what it should and nothing else. */
#include "tests/suite.h"

#include <stdio.h>

#include "ir/graph_hash.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/capture_record.h"
#include "tests/fuzz/generate.h"

/* ---- the digits, by calls and by text ---- */

static atoll_value dense(atoll_trace *t, atoll_value x, int layer, int64_t n_in, int64_t n_out)
{
    char w[16], b[16];
    snprintf(w, sizeof w, "w%d", layer);
    snprintf(b, sizeof b, "b%d", layer);
    atoll_value weight = atoll_param(t, w, ATOLL_F32, ATOLL_DIMS(n_out, n_in), NULL);
    return atoll_linear(x, weight, atoll_param(t, b, ATOLL_F32, ATOLL_DIMS(n_out), NULL));
}

static atoll_trace *digits(void)
{
    atoll_trace *t = atoll_trace_create("digits");
    int64_t n = atoll_symbol(t, "n");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, 64));
    atoll_value y = atoll_input(t, "y", ATOLL_I64, ATOLL_DIMS(n));
    atoll_value h = atoll_relu(dense(t, atoll_gelu(dense(t, x, 1, 64, 128)), 2, 128, 128));
    atoll_value logits = dense(t, h, 3, 128, 10);
    atoll_output(t, "loss", atoll_cross_entropy(logits, y));
    atoll_output(t, "logits", logits);
    return t;
}

START_TEST(calls_are_the_text)
{
    struct error e = {0};
    char text[4096];
    FILE *f = fopen(ATOLL_SOURCE_DIR "/examples/digits.graph", "r");
    ck_assert_ptr_nonnull(f);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    struct graph *parsed = graph_parse(text, size, "digits.graph", &e);
    ck_assert_msg(parsed != NULL, "%s", e.text);
    atoll_trace *t = digits();
    atoll_error error = {0};
    ck_assert_msg(atoll_trace_error(t, &error) == ATOLL_OK, "%s", error.text);
    struct graph *again = graph_parse(atoll_trace_text(t), strlen(atoll_trace_text(t)), "t", &e);
    ck_assert_msg(again != NULL, "%s", e.text);
    ck_assert_uint_eq(graph_hash(again), graph_hash(parsed));
    const struct graph *g = capture_graph(t);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        ck_assert_str_eq(g->nodes[i].location.file, __FILE__);
        ck_assert_uint_gt(g->nodes[i].location.line, 0);
    }
    graph_destroy(parsed);
    graph_destroy(again);
    atoll_trace_destroy(t);
}
END_TEST

/* Any graph that the fuzzer draws, recorded call by call, is that graph; a lazy trace's too. */
START_TEST(recorded_graphs_are_the_same)
{
    for (uint64_t number = 0; number < 60; number++) {
        struct fuzz_case c;
        struct error e = {0};
        atoll_error error = {0};
        int64_t sizes[MAX_SYMBOLS];
        generate_case(11, number, &c);
        for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
            sizes[i] = 3;
        }
        struct graph *g = graph_bind(c.graph, sizes, &e);
        ck_assert_msg(g != NULL, "%s", e.text);
        atoll_trace *t = atoll_trace_create(g->name), *lazy = atoll_trace_create(g->name);
        lazy->is_lazy = true;
        record_graph(t, g);
        record_graph(lazy, g);
        ck_assert_ptr_null(lazy->graph);
        ck_assert_msg(atoll_trace_error(t, &error) == ATOLL_OK, "%s", error.text);
        ck_assert_msg(atoll_trace_error(lazy, &error) == ATOLL_OK, "%s", error.text);
        struct arena arena = {0};
        struct text text = {.arena = &arena};
        graph_print(g, &text, NULL);
        ck_assert_str_eq(atoll_trace_text(t), text.data);
        ck_assert_str_eq(atoll_trace_text(lazy), text.data);
        arena_free(&arena);
        ck_assert_uint_eq(t->hash, lazy->hash);
        atoll_trace_destroy(t);
        atoll_trace_destroy(lazy);
        graph_destroy(g);
        graph_destroy(c.graph);
    }
}
END_TEST

/* ---- the wrappers ---- */

struct pair {
    atoll_trace *by_name, *by_table;
    struct arena arena;
    uint32_t n_ops;
};

/* What a wrapper recorded is the op with the table's defaults, required attributes zero. */
static void check_wrapper(struct pair *p, atoll_value v, enum op op, uint32_t n_operands)
{
    static const atoll_dims none = {0};
    struct attr schema[MAX_ATTRS];
    atoll_attr attrs[MAX_ATTRS];
    uint32_t required, n = op_schema(op, &p->arena, schema, &required);
    atoll_value x = {p->by_table->number, 1}, operands[] = {x, x, x, x, x, x, x};
    for (uint32_t i = 0; i < n; i++) {
        attrs[i] = (atoll_attr){(enum atoll_attr_kind)schema[i].kind, {.i = schema[i].i}};
        switch (schema[i].kind) {
        case ATTR_FLOAT:
            attrs[i].is.f = schema[i].f;
            break;
        case ATTR_DTYPE:
            attrs[i].is.i = (int64_t)schema[i].dtype;
            break;
        case ATTR_TEXT:
            attrs[i].is.text = schema[i].text;
            break;
        case ATTR_INTS:
        case ATTR_DIMS:
            attrs[i].is.dims = &none;
            break;
        case ATTR_INT:
        case ATTR_BOOL:
            break;
        }
    }
    ck_assert_msg(v.id != 0, "%s: %s", op_info[op].name, p->by_name->error.text);
    (void)atoll_op(ATOLL_HERE, NULL, op, operands, n_operands, attrs, n);
    if (n_operands == 0) { /* belongs to no operand's trace */
        (void)atoll_op(ATOLL_HERE, p->by_table, op, operands, 0, attrs, n);
    }
    ck_assert_msg(p->by_name->hash == p->by_table->hash, "atoll_%s", op_info[op].name);
    p->n_ops++;
}

#define SAME_1_1(name)   check_wrapper(&p, atoll_##name(x), OP_##name, 1);
#define SAME_1_2(name)   check_wrapper(&p, atoll_##name(x), OP_##name, 1);
#define SAME_1_3(name)   check_wrapper(&p, atoll_##name(x), OP_##name, 1);
#define SAME_2_2(name)   check_wrapper(&p, atoll_##name(x, x), OP_##name, 2);
#define SAME_2_3(name)   check_wrapper(&p, atoll_##name(x, x), OP_##name, 2);
#define SAME_3_3(name)   check_wrapper(&p, atoll_##name(x, x, x), OP_##name, 3);
#define SAME_4_4(name)   check_wrapper(&p, atoll_##name(x, x, x, x), OP_##name, 4);
#define SAME_7_7(name)   check_wrapper(&p, atoll_##name(x, x, x, x, x, x, x), OP_##name, 7);
#define SAME_0_255(name) check_wrapper(&p, atoll_##name(&x, 1), OP_##name, 1);
#define SAME_1_255(name) check_wrapper(&p, atoll_##name(&x, 1), OP_##name, 1);
#define KIND_LEAF(name, min, max)
#define KIND_ELEMENTWISE(name, min, max) SAME_##min##_##max(name)
#define KIND_REDUCTION(name, min, max)   SAME_##min##_##max(name)
#define KIND_CONTRACTION(name, min, max) SAME_##min##_##max(name)
#define KIND_VIEW(name, min, max)        SAME_##min##_##max(name)
#define KIND_INDEX(name, min, max)       SAME_##min##_##max(name)
#define KIND_RANDOM(name, min, max)      SAME_##min##_##max(name)
#define KIND_COMPOSITE(name, min, max)   SAME_##min##_##max(name)
#define KIND_TRAINING(name, min, max)    SAME_##min##_##max(name)
#define OP(name, min, max, kind, ...)    KIND_##kind(name, min, max)

START_TEST(wrappers_have_the_tables_defaults)
{
    struct pair p = {.by_name = atoll_trace_create("t"), .by_table = atoll_trace_create("t")};
    p.by_name->is_lazy = p.by_table->is_lazy = true;
    atoll_value x = atoll_input(p.by_name, "x", ATOLL_F32, ATOLL_DIMS(2, 2));
    (void)atoll_input(p.by_table, "x", ATOLL_F32, ATOLL_DIMS(2, 2));
#include "ir/ops.def"
    ck_assert_uint_eq(p.n_ops, N_OPS - OP_iota - 1);
    atoll_trace_destroy(p.by_name);
    atoll_trace_destroy(p.by_table);
    arena_free(&p.arena);
}
END_TEST
#undef OP

START_TEST(attributes_are_by_name)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(2, 6));
    atoll_value values[] = {x, x};
    (void)atoll_softmax(x, .axis = 0);
    (void)atoll_sum(x, .axes = ATOLL_AXES(0, -1), .keepdims = true);
    (void)atoll_reshape(x, ATOLL_DIMS(3, -1));
    (void)atoll_cast(x, ATOLL_BF16);
    (void)atoll_concat(values, 2, .axis = 1);
    (void)atoll_mse_loss(x, x, .reduction = "sum");
    (void)atoll_iota(t, ATOLL_DIMS(2, 3), .axis = 1);
    (void)atoll_constant(t, 2.5, .dtype = ATOLL_F16);
    (void)atoll_mul(x, atoll_number(t, 0.5));
    atoll_output(t, "y", atoll_name(atoll_clamp(x, .low = 0.0), "y"));
    const struct graph *g = capture_graph(t);
    ck_assert_msg(g != NULL, "%s", t->error.text);
    ck_assert_int_eq(node_int(&g->nodes[2], "axis"), 0);
    ck_assert_uint_eq(g->nodes[3].shape.rank, 2);
    ck_assert_int_eq(g->nodes[4].shape.dims[1].factor, 4);
    ck_assert_int_eq(g->nodes[5].dtype, BF16);
    ck_assert_int_eq(g->nodes[6].shape.dims[1].factor, 12);
    ck_assert_str_eq(node_text(&g->nodes[7], "reduction"), "sum");
    ck_assert_int_eq(g->nodes[8].shape.dims[1].factor, 3);
    ck_assert_int_eq(g->nodes[9].dtype, F16);
    ck_assert_int_eq(g->nodes[11].dtype, F32); /* a number takes no part in promotion */
    ck_assert_str_eq(g->nodes[12].name, "y");
    atoll_trace_destroy(t);
}
END_TEST

/* ---- facts ---- */

START_TEST(values_know_their_type)
{
    for (int lazy = 0; lazy < 2; lazy++) {
        atoll_trace *t = atoll_trace_create("t");
        t->is_lazy = lazy == 1;
        int64_t n = atoll_symbol(t, "n");
        ck_assert_int_eq(atoll_symbol(t, "n"), n);
        ck_assert_int_ne(atoll_symbol(t, "m"), n);
        atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, 4));
        atoll_value y = atoll_cast(atoll_transpose(x), ATOLL_F16);
        ck_assert_uint_eq(atoll_rank(x), 2);
        ck_assert_int_eq(atoll_size_of(x, 0), n);
        ck_assert_int_eq(atoll_size_of(x, -1), 4);
        ck_assert_int_eq(atoll_dtype_of(x), ATOLL_F32);
        ck_assert_uint_eq(atoll_rank(y), 2);
        ck_assert_int_eq(atoll_size_of(y, 0), 4);
        ck_assert_int_eq(atoll_size_of(y, 1), n);
        ck_assert_int_eq(atoll_dtype_of(y), ATOLL_F16);
        atoll_trace_destroy(t);
    }
}
END_TEST

START_TEST(scopes_stand_before_names)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_scope_begin(t, "block");
    atoll_scope_begin(t, "fc");
    atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(3), "ones");
    atoll_scope_end(t);
    atoll_value h = atoll_name(atoll_exp(w), "h");
    atoll_scope_end(t);
    (void)atoll_param(t, "w", ATOLL_F32, ATOLL_SCALAR, NULL);
    const struct graph *g = capture_graph(t);
    ck_assert_msg(g != NULL, "%s", t->error.text);
    ck_assert_str_eq(g->nodes[w.id].name, "block.fc.w");
    ck_assert_str_eq(node_text(&g->nodes[w.id], "init"), "ones");
    ck_assert_str_eq(g->nodes[h.id].name, "block.h");
    ck_assert_str_eq(g->nodes[3].name, "w");
    atoll_trace_destroy(t);
}
END_TEST

/* ---- the hash ---- */

/* One trace with everything that can be changed, by number. */
static uint64_t variant(int which)
{
    atoll_trace *t = atoll_trace_create(which == 1 ? "other" : "t");
    t->is_lazy = true;
    int64_t rows = which == 2 ? 5 : 4;
    atoll_value x = atoll_input(t, which == 10 ? "z" : "x", which == 3 ? ATOLL_BF16 : ATOLL_F32,
                                ATOLL_DIMS(rows, 2));
    atoll_value w = which == 11 ? atoll_buffer(t, "w", ATOLL_F32, ATOLL_DIMS(2), NULL)
                                : atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(2), NULL);
    atoll_value y = atoll_mul(x, atoll_number(t, which == 12 ? 0.25 : 0.5));
    y = which == 13 ? atoll_sub(y, w) : which == 14 ? atoll_add(w, y) : atoll_add(y, w);
    y = atoll_softmax(y, .axis = which == 15 ? 0 : -1);
    y = atoll_reshape(y, ATOLL_DIMS(which == 4 ? -1 : 2 * rows));
    y = which == 16 ? atoll_gelu(y, .form = "tanh") : atoll_gelu(y);
    if (which == 5) {
        y = atoll_name(y, "y");
    }
    atoll_output(t, which == 17 ? "out" : "y", which == 18 ? w : y);
    if (which == 19) {
        atoll_update(w, w);
    }
    if (which == 20) {
        (void)atoll_reshape(y, ATOLL_DIMS(2 * rows));
    }
    ck_assert_msg(t->error.code == ATOLL_OK, "%s", t->error.text);
    uint64_t hash = t->hash;
    atoll_trace_destroy(t);
    return hash;
}

/* Sizes, dtypes of leaves (they are facts of their own), names of values and lines are not in it.
 */
START_TEST(hash_is_of_the_content)
{
    uint64_t first = variant(0);
    for (int same = 1; same <= 5; same++) {
        ck_assert_msg(variant(same) == first, "variant %d", same);
    }
    for (int other = 10; other <= 20; other++) {
        ck_assert_msg(variant(other) != first, "variant %d", other);
    }
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_test(tc, calls_are_the_text);
    tcase_add_test(tc, recorded_graphs_are_the_same);
    tcase_add_test(tc, wrappers_have_the_tables_defaults);
    tcase_add_test(tc, attributes_are_by_name);
    tcase_add_test(tc, values_know_their_type);
    tcase_add_test(tc, scopes_stand_before_names);
    tcase_add_test(tc, hash_is_of_the_content);
}

int main(void)
{
    return run_suite("capture", fill);
}
