/* The conversion contract: a tensor gives a new one, or itself when nothing changes; a module
 * converts parameters and buffers in place and gives itself; integers and bool stay under a
 * floating cast; values are those of the op. */
#include "atoll/tensor.h"

#include "tests/suite.h"

#include <math.h>
#include <string.h>

#include "ir/dtype.h"

static const double numbers[] = {0.0,     -0.0,  1.0,   -1.5,    0.1,   65504.0,
                                 65520.0, 448.0, 1e6,   -3.4e38, 1e-40, 5e-324,
                                 255.0,   300.0, 7e-46, 2.5,     1e300, 2147483648.0};

static atoll_tensor *made(atoll_dtype dtype)
{
    unsigned char bytes[ARRAY_LEN(numbers) * 8];
    atoll_error error = {0};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        dtype_store((enum dtype)dtype, bytes + i * atoll_dtype_bytes(dtype), numbers[i]);
    }
    atoll_tensor *t =
        atoll_tensor_create(dtype, ATOLL_DIMS((int64_t)ARRAY_LEN(numbers)), bytes, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    return t;
}

/* Integers wrap where they go into narrower ones. */
static double wrapped(atoll_dtype to, double number)
{
    int64_t whole = (int64_t)number;
    return to == ATOLL_U8    ? (double)(uint8_t)whole
           : to == ATOLL_I32 ? (double)(int32_t)(uint32_t)whole
                             : number;
}

/* Every dtype to every dtype, against the double conversions of ir/. */
START_TEST(cast_is_the_op)
{
    atoll_dtype from = (atoll_dtype)_i;
    atoll_tensor *t = made(from);
    for (int to = ATOLL_BOOL; to <= ATOLL_F64; to++) {
        atoll_error error = {0};
        atoll_tensor *u = atoll_tensor_cast(t, (atoll_dtype)to, &error);
        ck_assert_msg(u != NULL, "%s", error.text);
        ck_assert_int_eq(atoll_tensor_dtype(u), to);
        ck_assert_int_eq(u == t, to == (int)from);
        for (int64_t i = 0; i < atoll_tensor_count(t); i++) {
            unsigned char want[8];
            double number = atoll_tensor_number(t, i);
            bool is_whole = !dtype_is_float((enum dtype)from);
            if (is_whole && fabs(number) > 9e18 && to != ATOLL_F64) {
                continue; /* the ends of i64, which a double cannot tell from what lies beyond */
            }
            number = is_whole && to != ATOLL_F64 ? wrapped((atoll_dtype)to, number) : number;
            dtype_store((enum dtype)to, want, number);
            double expected = dtype_load((enum dtype)to, want), got = atoll_tensor_number(u, i);
            ck_assert_msg(expected == got || (isnan(expected) && isnan(got)),
                          "%s to %s, element %d: %.17g, expected %.17g", atoll_dtype_name(from),
                          atoll_dtype_name((atoll_dtype)to), (int)i, got, expected);
        }
        atoll_tensor_release(u);
    }
    atoll_tensor_release(t);
}
END_TEST

START_TEST(a_new_tensor_or_itself)
{
    float data[2500]; /* over two blocks of the converter */
    for (int i = 0; i < 2500; i++) {
        data[i] = (float)i;
    }
    atoll_error error = {0};
    atoll_tensor *t = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(50, 50), data, &error);
    atoll_tensor *same = atoll_tensor_to(t, ATOLL_F32, &error);
    atoll_tensor *half = atoll_tensor_to(t, ATOLL_BF16, &error);
    ck_assert_ptr_eq(same, t);
    ck_assert_ptr_ne(half, t);
    ck_assert_int_eq(atoll_tensor_dtype(t), ATOLL_F32);
    ck_assert_double_eq(atoll_tensor_number(t, 2499), 2499.0);
    ck_assert_double_eq(atoll_tensor_number(half, 2499), 2496.0);
    ck_assert(isnan(atoll_tensor_number(t, 2500)) && isnan(atoll_tensor_number(t, -1)));
    atoll_tensor_release(t);
    ck_assert_double_eq(atoll_tensor_number(same, 7), 7.0); /* an owner is left */
    atoll_view v = atoll_tensor_view(half, "h");
    ck_assert_str_eq(v.dtype, "bf16");
    ck_assert_uint_eq(v.rank, 2);
    ck_assert_uint_eq(v.bytes, 5000);
    atoll_tensor_release(same);
    atoll_tensor_release(half);
}
END_TEST

START_TEST(integers_stay)
{
    static const atoll_dtype whole[] = {ATOLL_BOOL, ATOLL_U8, ATOLL_I32, ATOLL_I64};
    static const atoll_dtype floating[] = {ATOLL_F8E4M3, ATOLL_F8E5M2, ATOLL_F16,
                                           ATOLL_BF16,   ATOLL_F32,    ATOLL_F64};
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        atoll_tensor *t = made(whole[i]);
        for (size_t k = 0; k < ARRAY_LEN(floating); k++) {
            atoll_tensor *u = atoll_tensor_to(t, floating[k], NULL);
            ck_assert_ptr_eq(u, t);
            atoll_tensor_release(u);
        }
        atoll_tensor_release(t);
    }
}
END_TEST

START_TEST(a_module_converts_in_place)
{
    atoll_error error = {0};
    atoll_module *m = atoll_module_create(&error);
    atoll_tensor *w = made(ATOLL_F32), *mean = made(ATOLL_F32), *steps = made(ATOLL_I64),
                 *mask = made(ATOLL_BOOL);
    atoll_module_add(m, "w", ATOLL_MODULE_PARAM, w, &error);
    atoll_module_add(m, "mean", ATOLL_MODULE_BUFFER, mean, &error);
    atoll_module_add(m, "steps", ATOLL_MODULE_BUFFER, steps, &error);
    atoll_module_add(m, "mask", ATOLL_MODULE_BUFFER, mask, &error);
    ck_assert_ptr_eq(atoll_module_to(m, ATOLL_F32, &error), m);
    ck_assert_ptr_eq(atoll_module_get(m, "w"), w); /* nothing changed */
    ck_assert_ptr_eq(atoll_module_to(m, ATOLL_BF16, &error), m);
    ck_assert_msg(error.code == ATOLL_OK, "%s", error.text);
    ck_assert_int_eq(atoll_tensor_dtype(atoll_module_get(m, "w")), ATOLL_BF16);
    ck_assert_int_eq(atoll_tensor_dtype(atoll_module_get(m, "mean")), ATOLL_BF16);
    ck_assert_ptr_eq(atoll_module_get(m, "steps"), steps);
    ck_assert_ptr_eq(atoll_module_get(m, "mask"), mask);
    ck_assert_int_eq(atoll_tensor_dtype(w), ATOLL_F32); /* the one we hold */
    const char *name = NULL;
    atoll_module_kind kind = ATOLL_MODULE_PARAM;
    ck_assert_ptr_eq(atoll_module_at(m, 2, &name, &kind), steps);
    ck_assert_str_eq(name, "steps");
    ck_assert_int_eq(kind, ATOLL_MODULE_BUFFER);
    ck_assert_ptr_null(atoll_module_at(m, 4, NULL, NULL));
    ck_assert_uint_eq(atoll_module_count(m), 4);
    ck_assert_ptr_null(atoll_module_to(m, ATOLL_I32, &error));
    ck_assert_int_eq(error.code, ATOLL_DTYPE);
    ck_assert_int_eq(atoll_tensor_dtype(atoll_module_get(m, "w")), ATOLL_BF16);
    atoll_module_destroy(m);
    ck_assert_double_eq(atoll_tensor_number(steps, 2), 1.0); /* still ours */
    atoll_tensor *const all[] = {w, mean, steps, mask};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        atoll_tensor_release(all[i]);
    }
}
END_TEST

/* ---- what is refused ---- */

static void refused(const void *result, atoll_error *error, atoll_status code, const char *says)
{
    ck_assert_ptr_null(result);
    ck_assert_int_eq(error->code, code);
    ck_assert_msg(strstr(error->text, says) != NULL, "'%s' not in: %s", says, error->text);
    *error = (atoll_error){0};
}

START_TEST(mistakes_are_named)
{
    atoll_error e = {0};
    atoll_tensor *t = made(ATOLL_F32), *whole = made(ATOLL_I64);
    refused(atoll_tensor_create((atoll_dtype)77, ATOLL_SCALAR, NULL, &e), &e, ATOLL_DTYPE,
            "77 is no dtype");
    refused(atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(2, -1), NULL, &e), &e, ATOLL_SHAPE,
            "0 or more each");
    refused(atoll_tensor_create(ATOLL_F64, ATOLL_DIMS(INT64_MAX, INT64_MAX), NULL, &e), &e,
            ATOLL_SHAPE, "fewer bytes");
    refused(atoll_tensor_to(t, ATOLL_I32, &e), &e, ATOLL_DTYPE, "atoll_tensor_cast");
    refused(atoll_tensor_cast(t, ATOLL_NO_DTYPE, &e), &e, ATOLL_DTYPE, "0 is no dtype");
    atoll_module *m = atoll_module_create(&e);
    ck_assert_int_eq(atoll_module_add(m, "n", ATOLL_MODULE_PARAM, whole, &e), ATOLL_USAGE);
    refused(NULL, &e, ATOLL_USAGE, "parameter 'n' is i64");
    ck_assert_int_eq(atoll_module_add(m, "t", ATOLL_MODULE_PARAM, t, &e), ATOLL_OK);
    ck_assert_int_eq(atoll_module_add(m, "t", ATOLL_MODULE_BUFFER, t, &e), ATOLL_USAGE);
    ck_assert_ptr_null(atoll_module_to(m, ATOLL_F16, &e)); /* the record holds a failure */
    ck_assert_int_eq(atoll_tensor_dtype(atoll_module_get(m, "t")), ATOLL_F32);
    ck_assert_ptr_null(atoll_tensor_to(t, ATOLL_F16, &e));
    refused(NULL, &e, ATOLL_USAGE, "'t' is taken");
    ck_assert_ptr_null(atoll_module_get(m, "u"));
    atoll_tensor *empty = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(0, 3), NULL, &e);
    atoll_tensor *half = atoll_tensor_to(empty, ATOLL_F16, &e);
    ck_assert_int_eq(atoll_tensor_count(half), 0);
    atoll_tensor_release(empty);
    atoll_tensor_release(half);
    atoll_module_destroy(m);
    atoll_module_destroy(NULL);
    atoll_tensor_release(NULL);
    atoll_tensor_release(t);
    atoll_tensor_release(whole);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, cast_is_the_op, ATOLL_BOOL, ATOLL_F64 + 1);
    tcase_add_test(tc, a_new_tensor_or_itself);
    tcase_add_test(tc, integers_stay);
    tcase_add_test(tc, a_module_converts_in_place);
    tcase_add_test(tc, mistakes_are_named);
}

int main(void)
{
    return run_suite("tensor", fill);
}
