/* Misuse of the capture API: each mistake is an error at its line, the first one stays, what
 * follows passes it on; and memory may run out anywhere while a model is recorded. */
#include "tests/suite.h"

#include <stdio.h>

#include "tests/capture_record.h"

/* What a mistake has at hand. */
struct tools {
    atoll_trace *t, *other;
    atoll_value x, y, w, mask, foreign, stale; /* f32[4,3], i64[4], f32[3], bool[4] */
};

/* A mistake: makes it, and says on which line it stands. */
#define MISTAKE(name, ...)                                                                         \
    static uint32_t name(struct tools *k)                                                          \
    {                                                                                              \
        atoll_trace *t = k->t;                                                                     \
        (void)t;                                                                                   \
        (void)__VA_ARGS__;                                                                         \
        return __LINE__;                                                                           \
    }
#define MISTAKEN(name, ...)                                                                        \
    static uint32_t name(struct tools *k)                                                          \
    {                                                                                              \
        atoll_trace *t = k->t;                                                                     \
        (void)t;                                                                                   \
        __VA_ARGS__;                                                                               \
        return __LINE__;                                                                           \
    }

MISTAKE(foreign_handle, atoll_add(k->x, k->foreign))
MISTAKE(stale_handle, atoll_mul(k->x, k->stale))
MISTAKE(zero_handle, atoll_add(k->x, (atoll_value){0, 0}))
MISTAKE(no_such_value, atoll_exp((atoll_value){k->x.trace, 1000}))
MISTAKE(float_as_bool, atoll_and(k->x, k->x))
MISTAKE(bool_arithmetic, atoll_add(k->mask, k->mask))
MISTAKE(rank_mismatch, atoll_matmul(k->w, k->x))
MISTAKE(no_broadcast, atoll_add(k->x, k->y))
MISTAKE(axis_outside, atoll_softmax(k->x, .axis = 2))
MISTAKE(element_count, atoll_reshape(k->x, ATOLL_DIMS(5, 2)))
MISTAKE(unknown_text, atoll_mse_loss(k->x, k->x, .reduction = "most"))
MISTAKE(null_text, atoll_gelu(k->x, .form = NULL))
MISTAKE(no_dtype, atoll_cast(k->x, (atoll_dtype)77))
MISTAKE(nine_dims, atoll_reshape(k->x, (atoll_dims){.n = 9}))
MISTAKE(no_operands, atoll_concat(&k->x, 0))
MISTAKE(null_name, atoll_input(t, NULL, ATOLL_F32, ATOLL_SCALAR))
MISTAKE(empty_name, atoll_param(t, "", ATOLL_F32, ATOLL_SCALAR, NULL))
MISTAKE(name_twice, atoll_buffer(t, "x", ATOLL_F32, ATOLL_SCALAR, NULL))
MISTAKE(bad_dtype, atoll_state(t, "s", ATOLL_NO_DTYPE, ATOLL_SCALAR, NULL))
MISTAKE(negative_size, atoll_input(t, "z", ATOLL_F32, ATOLL_DIMS(4, -2)))
MISTAKE(foreign_symbol, atoll_input(t, "z", ATOLL_F32, ATOLL_DIMS(INT64_MIN + 9)))
MISTAKE(null_symbol, atoll_symbol(t, NULL))
MISTAKE(name_of_a_leaf, atoll_name(k->x, "renamed"))
MISTAKE(value_without_name, atoll_name(atoll_exp(k->x), NULL))
MISTAKE(size_of_no_axis, atoll_size_of(k->x, 2))
MISTAKE(leaf_by_number, atoll_op(ATOLL_HERE, t, OP_input, NULL, 0, NULL, 0))
MISTAKEN(output_without_name, atoll_output(t, NULL, k->x))
MISTAKEN(output_of_another, atoll_output(t, "o", k->foreign))
MISTAKEN(output_twice, atoll_output(t, "x", k->x), atoll_output(t, "x", k->x))
MISTAKEN(update_of_an_input, atoll_update(k->x, k->x))
MISTAKEN(update_of_a_value, atoll_update(atoll_exp(k->w), k->w))
MISTAKEN(update_of_another_type, atoll_update(k->w, k->x))
MISTAKEN(update_twice, atoll_update(k->w, k->w), atoll_update(k->w, k->w))
MISTAKEN(scope_without_begin, atoll_scope_end(t))
MISTAKEN(scope_without_name, atoll_scope_begin(t, NULL))

static const struct mistake {
    const char *name;
    uint32_t (*make)(struct tools *k);
    atoll_status status;
    const char *says;
} mistakes[] = {
#define ROW(name, status, says)                                                                    \
    {                                                                                              \
#name, name, ATOLL_##status, says                                                          \
    }
    ROW(foreign_handle, USAGE, "operand b: found a value of trace @other, expected one of trace"),
    ROW(stale_handle, USAGE, "a trace that is finished"),
    ROW(zero_handle, USAGE, "operand b: found no value (a zero handle)"),
    ROW(no_such_value, USAGE, "found value 1000, the trace has 4"),
    ROW(float_as_bool, DTYPE, "and(f32[4,3], f32[4,3]): expected bool operands"),
    ROW(bool_arithmetic, DTYPE, "arithmetic on bool"),
    ROW(rank_mismatch, SHAPE, "matmul(f32[3], f32[4,3])"),
    ROW(no_broadcast, SHAPE, "add(f32[4,3], i64[4]): shapes do not broadcast"),
    ROW(axis_outside, SHAPE, "axis 2 of rank 2, expected -2 to 1"),
    ROW(element_count, SHAPE, "element counts differ"),
    ROW(unknown_text, USAGE, "reduction must be none, mean or sum"),
    ROW(null_text, USAGE, "atoll_gelu: found NULL, expected a text"),
    ROW(no_dtype, DTYPE, "found dtype 77"),
    ROW(nine_dims, SHAPE, "found 9 dims, expected up to 8"),
    ROW(no_operands, USAGE, "concat: found 0 operands, expected 1 or more"),
    ROW(null_name, USAGE, "atoll_input: the name is NULL"),
    ROW(empty_name, USAGE, "atoll_param: the name is empty"),
    ROW(name_twice, USAGE, "there is a leaf \"x\" already"),
    ROW(bad_dtype, DTYPE, "found dtype 0"),
    ROW(negative_size, SHAPE, "size 1 is -2"),
    ROW(foreign_symbol, SHAPE, "or one that atoll_symbol gave"),
    ROW(null_symbol, USAGE, "atoll_symbol: the name is NULL"),
    ROW(name_of_a_leaf, USAGE, "\"x\" is a leaf and keeps its name"),
    ROW(value_without_name, USAGE, "atoll_name: the name is NULL"),
    ROW(size_of_no_axis, SHAPE, "axis 2 of rank 2, expected -2 to 1"),
    ROW(leaf_by_number, USAGE, "expected one of the table"),
    ROW(output_without_name, USAGE, "atoll_output: the name is NULL"),
    ROW(output_of_another, USAGE, "found a value of trace @other, expected one of @model"),
    ROW(output_twice, USAGE, "there is an output \"x\" already, from "),
    ROW(update_of_an_input, USAGE, "found input as what to change"),
    ROW(update_of_a_value, USAGE, "found a computed value as what to change"),
    ROW(update_of_another_type, SHAPE, "it is f32[3], the new value is f32[4,3]"),
    ROW(update_twice, USAGE, "\"w\" is updated already"),
    ROW(scope_without_begin, USAGE, "no scope is open"),
    ROW(scope_without_name, USAGE, "atoll_scope_begin: the name is NULL"),
#undef ROW
};

static void open_tools(struct tools *k, bool is_lazy)
{
    atoll_trace *gone = atoll_trace_create("gone");
    k->stale = atoll_input(gone, "x", ATOLL_F32, ATOLL_SCALAR);
    atoll_trace_destroy(gone);
    k->other = atoll_trace_create("other");
    k->foreign = atoll_input(k->other, "x", ATOLL_F32, ATOLL_SCALAR);
    k->t = atoll_trace_create(NULL);
    k->t->is_lazy = is_lazy;
    k->x = atoll_input(k->t, "x", ATOLL_F32, ATOLL_DIMS(4, 3));
    k->y = atoll_input(k->t, "y", ATOLL_I64, ATOLL_DIMS(4));
    k->w = atoll_param(k->t, "w", ATOLL_F32, ATOLL_DIMS(3), NULL);
    k->mask = atoll_input(k->t, "mask", ATOLL_BOOL, ATOLL_DIMS(4));
}

/* In a trace that builds its graph at once, and in one that builds it when it is asked for. */
static void check_mistake(const struct mistake *m, bool is_lazy)
{
    struct tools k;
    atoll_error error = {0}, again = {0};
    char where[256];
    open_tools(&k, is_lazy);
    uint32_t line = m->make(&k);
    snprintf(where, sizeof where, "%s:%u: ", __FILE__, line);
    /* what follows passes the failure on, and the first error stays */
    atoll_value after = atoll_exp(atoll_matmul(k.y, k.foreign));
    if (!is_lazy) {
        ck_assert_uint_eq(atoll_add(k.x, k.x).id, 0);
    }
    ck_assert_int_eq(atoll_trace_error(k.t, &error), m->status);
    ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s: expected %sin front of: %s",
                  m->name, where, error.text);
    ck_assert_msg(strstr(error.text, m->says) != NULL, "%s: %s", m->name, error.text);
    ck_assert_ptr_null(atoll_trace_text(k.t));
    ck_assert_int_eq(atoll_trace_error(k.t, &again), m->status);
    ck_assert_str_eq(again.text, error.text);
    (void)after;
    atoll_trace_destroy(k.t);
    atoll_trace_destroy(k.other);
}

START_TEST(mistakes_are_told_at_their_line)
{
    check_mistake(&mistakes[_i], false);
}
END_TEST

START_TEST(lazy_traces_tell_the_same)
{
    check_mistake(&mistakes[_i], true);
}
END_TEST

START_TEST(nobody_to_tell)
{
    atoll_trace *t = atoll_trace_create("t");
    atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_SCALAR);
    atoll_error error = {0};
    atoll_trace_destroy(t);
    ck_assert_uint_eq(atoll_exp(x).id, 0);
    ck_assert_uint_eq(atoll_input(NULL, "x", ATOLL_F32, ATOLL_SCALAR).id, 0);
    ck_assert_int_eq(atoll_symbol(NULL, "n"), 0);
    ck_assert_int_eq(atoll_trace_error(NULL, &error), ATOLL_OUT_OF_MEMORY);
    ck_assert_ptr_null(atoll_trace_text(NULL));
    atoll_trace_destroy(NULL);
}
END_TEST

START_TEST(too_much_is_refused)
{
    atoll_trace *t = atoll_trace_create("t");
    char name[600];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)atoll_input(t, name, ATOLL_F32, ATOLL_SCALAR);
    ck_assert_ptr_nonnull(strstr(t->error.text, "the name of a leaf has 599 bytes"));
    atoll_trace_destroy(t);
    t = atoll_trace_create("t");
    for (int i = 0; i < MAX_SYMBOLS; i++) {
        snprintf(name, sizeof name, "n%d", i);
        (void)atoll_symbol(t, name);
    }
    ck_assert_ptr_nonnull(strstr(t->error.text, "up to 31 symbols"));
    atoll_trace_destroy(t);
    t = atoll_trace_create("t");
    for (int i = 0; i < 20; i++) {
        atoll_scope_begin(t, "deep");
    }
    ck_assert_ptr_nonnull(strstr(t->error.text, "up to 16 scopes"));
    atoll_trace_destroy(t);
}
END_TEST

/* Every block of the graph's arena may be refused. */
START_TEST(memory_may_run_out)
{
    uint64_t n = 1;
    for (bool has_failed = true; has_failed; n++) {
        atoll_trace *t = atoll_trace_create("t");
        atoll_error error = {0};
        arena_fail_after(n);
        atoll_value v = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(4, 3));
        for (int i = 0; i < 300; i++) {
            v = atoll_name(atoll_softmax(v), "h");
        }
        atoll_output(t, "y", v);
        has_failed = atoll_trace_error(t, &error) != ATOLL_OK;
        arena_fail_after(0);
        ck_assert_int_eq(error.code, has_failed ? ATOLL_OUT_OF_MEMORY : ATOLL_OK);
        ck_assert_uint_eq(v.id, has_failed ? 0 : 301);
        atoll_trace_destroy(t);
    }
    ck_assert_uint_gt(n, 8);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, mistakes_are_told_at_their_line, 0, ARRAY_LEN(mistakes));
    tcase_add_loop_test(tc, lazy_traces_tell_the_same, 0, ARRAY_LEN(mistakes));
    tcase_add_test(tc, nobody_to_tell);
    tcase_add_test(tc, too_much_is_refused);
    tcase_add_test(tc, memory_may_run_out);
}

int main(void)
{
    return run_suite("capture errors", fill);
}
