/* Guards: when each kind holds, and the words for one that does not. */
#include "runtime/guard.h"
#include "tests/suite.h"

#include <string.h>

enum { SLOT_DTYPE = FACT_DTYPE, SLOT_DEVICE = FACT_DEVICE, SLOT_DIM = FACT_DIM };

static const struct guard_case {
    const char *name;
    struct guard g;
    int64_t value, other;
    bool holds;
    const char *expects, *found;
} cases[] = {
    {"dtype", {.kind = GUARD_DTYPE, .slot = SLOT_DTYPE, .low = F32}, F32, 0, true, "f32", "f32"},
    {"other dtype",
     {.kind = GUARD_DTYPE, .slot = SLOT_DTYPE, .low = F32},
     BF16,
     0,
     false,
     "f32",
     "bf16"},
    {"device",
     {.kind = GUARD_DEVICE, .slot = SLOT_DEVICE, .low = DEVICE_CPU},
     1,
     0,
     false,
     "cpu",
     "cuda:1"},
    {"rank", {.kind = GUARD_RANK, .slot = FACT_RANK, .low = 2}, 3, 0, false, "2", "3"},
    {"dim", {.kind = GUARD_DIM, .slot = SLOT_DIM, .low = 64}, 64, 0, true, "64", "64"},
    {"range",
     {.kind = GUARD_DIM_RANGE, .slot = SLOT_DIM, .low = 2, .high = INT64_MAX},
     1,
     0,
     false,
     "2 or more",
     "1"},
    {"range below",
     {.kind = GUARD_DIM_RANGE, .slot = SLOT_DIM, .low = 2, .high = 9},
     9,
     0,
     true,
     "2 to 9",
     "9"},
    {"range above",
     {.kind = GUARD_DIM_RANGE, .slot = SLOT_DIM, .low = 2, .high = 9},
     10,
     0,
     false,
     "2 to 9",
     "10"},
    {"divides",
     {.kind = GUARD_DIM_DIVISIBLE, .slot = SLOT_DIM, .low = 4},
     12,
     0,
     true,
     "a multiple of 4",
     "12"},
    {"does not divide",
     {.kind = GUARD_DIM_DIVISIBLE, .slot = SLOT_DIM, .low = 4},
     14,
     0,
     false,
     "a multiple of 4",
     "14"},
    {"same",
     {.kind = GUARD_DIM_SAME, .slot = SLOT_DIM, .n_others = 1, .others = {SLOT_DIM + 1}},
     5,
     5,
     true,
     "another dim (5)",
     "5"},
    {"not the same",
     {.kind = GUARD_DIM_SAME, .slot = SLOT_DIM, .n_others = 1, .others = {SLOT_DIM + 1}},
     5,
     6,
     false,
     "another dim (6)",
     "5"},
    {"size",
     {.kind = GUARD_SIZE,
      .slot = SLOT_DIM,
      .low = 3,
      .high = 2,
      .n_others = 1,
      .others = {SLOT_DIM + 1}},
     9,
     6,
     true,
     "3 * another dim / 2",
     "9"},
    {"another size",
     {.kind = GUARD_SIZE,
      .slot = SLOT_DIM,
      .low = 1,
      .high = 1,
      .n_others = 2,
      .others = {SLOT_DIM + 1, SLOT_DIM + 1}},
     9,
     4,
     false,
     "another dim * another dim",
     "9"},
    {"a product beyond 64 bits",
     {.kind = GUARD_SIZE,
      .slot = SLOT_DIM,
      .low = 4,
      .high = 1,
      .n_others = 2,
      .others = {SLOT_DIM + 1, SLOT_DIM + 1}},
     0,
     INT64_MAX,
     false,
     "4 * another dim * another dim",
     "0"},
};

START_TEST(each_kind)
{
    const struct guard_case *c = &cases[_i];
    int64_t facts[FACTS_A_LEAF] = {0};
    struct guard_set set = {1, FACTS_A_LEAF, &c->g};
    struct arena a = {0};
    facts[SLOT_DIM + 1] = c->other;
    facts[c->g.slot] = c->value;
    ck_assert_msg(guard_holds(&c->g, facts) == c->holds, "%s", c->name);
    ck_assert_int_eq(guards_hold(&set, facts, FACTS_A_LEAF), c->holds);
    ck_assert(!guards_hold(&set, facts, FACTS_A_LEAF - 1)); /* facts of another call */
    ck_assert_str_eq(guard_expects(&set, &c->g, facts, &a), c->expects);
    ck_assert_str_eq(guard_found(&c->g, facts, &a), c->found);
    arena_free(&a);
}
END_TEST

START_TEST(kinds_have_names)
{
    for (uint32_t i = 0; i < N_GUARD_KINDS; i++) {
        ck_assert_uint_eq(guard_kind_named(guard_kinds[i].name), i);
    }
    ck_assert_uint_eq(guard_kind_named("none such"), N_GUARD_KINDS);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, each_kind, 0, (int)ARRAY_LEN(cases));
    tcase_add_test(tc, kinds_have_names);
}

int main(void)
{
    return run_suite("guard", fill);
}
