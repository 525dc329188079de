/* Lowering a fusion group to a kernel description: which axes collapse, which phases reductions
 * make, what is computed once a row, where values round in strict and relaxed mode. Invariants over
 * random graphs: instructions in SSA order, stores after their instruction is ready, each argument
 * used. */
#include "codegen/kernel.h"
#include "frontend/compile.h"
#include "ir/parse.h"
#include "tests/fuzz/generate.h"

#include "tests/suite.h"

#include <string.h>

struct lowered {
    struct compiled compiled; /* owns the primitive graph */
    struct partition partition;
    struct notes notes;
    struct arena arena;
    struct kernel *kernels; /* by group; n_insts 0: none */
};

static status lower_model(const struct graph *model, bool is_relaxed, struct lowered *out)
{
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    *out = (struct lowered){0};
    status code = compile_graph(model, &o, &out->compiled, &e);
    if (code != ATOLL_OK) {
        return code;
    }
    const struct graph *g = out->compiled.primitive;
    ck_assert_int_eq(fuse(g, NULL, &out->partition, &out->notes, &e), ATOLL_OK);
    out->kernels = ARENA_ARRAY(&out->arena, struct kernel, out->partition.n_groups + 1);
    for (uint32_t i = 0; i < out->partition.n_groups; i++) {
        enum group_kind kind = out->partition.groups[i].kind;
        if (kind == GROUP_ROW || kind == GROUP_COLUMN) {
            ck_assert_msg(kernel_lower(g, &out->partition, i, is_relaxed, &out->arena,
                                       &out->kernels[i], &e) == ATOLL_OK,
                          "%s", e.text);
        }
    }
    return ATOLL_OK;
}

static void lower_text(const char *text, bool is_relaxed, struct lowered *out)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "case", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(lower_model(g, is_relaxed, out), ATOLL_OK);
    graph_destroy(g);
}

static void lowered_free(struct lowered *l)
{
    partition_free(&l->partition);
    arena_free(&l->notes.arena);
    arena_free(&l->arena);
    compiled_free(&l->compiled);
}

static uint32_t count_kind(const struct kernel *k, enum inst_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        n += k->insts[i].kind == kind;
    }
    return n;
}

/* ---- the first kernel of a named graph ---- */

static const struct fact {
    const char *name, *text;
    bool is_flat;
    uint32_t rank, n_axes, phases, loads, stores, reductions;
} facts[] = {
    {"dense axes become one",
     "graph @g(%a: f32[2,3,4] input, %b: f32[2,3,4] input) { %c = add(%a, %b)  return out=%c }",
     true, 1, 1, 1, 2, 1, 0},
    {"symbolic axes too", "graph @g(%a: f32[n,3,4] input) { %c = exp(%a)  return out=%c }", true, 1,
     1, 1, 1, 1, 0},
    {"axes of size 1 go", "graph @g(%a: f32[1,5,1] input) { %c = exp(%a)  return out=%c }", true, 1,
     1, 1, 1, 1, 0},
    {"a scalar has no axis", "graph @g(%a: f32[] input) { %c = exp(%a)  return out=%c }", false, 0,
     0, 1, 1, 1, 0},
    {"a row broadcast keeps its axis apart",
     "graph @g(%a: f32[2,3,4] input, %b: f32[4] input) { %c = add(%a, %b)  return out=%c }", false,
     2, 1, 1, 2, 1, 0},
    {"a column broadcast too",
     "graph @g(%a: f32[2,3,4] input, %b: f32[2,1,1] input) { %c = add(%a, %b)  return out=%c }",
     false, 2, 1, 1, 2, 1, 0},
    {"a middle broadcast keeps three",
     "graph @g(%a: f32[2,3,4] input, %b: f32[2,1,4] input) { %c = add(%a, %b)  return out=%c }",
     false, 3, 1, 1, 2, 1, 0},
    {"a transposed operand keeps both",
     "graph @g(%a: f32[3,4] input, %b: f32[4,3] input) { %t = transpose(%b)  %c = add(%a, %t)  "
     "return out=%c }",
     false, 2, 1, 1, 2, 1, 0},
    {"both transposed alike",
     "graph @g(%a: f32[2,3,4] input) { %t = transpose(%a) {perm=[1,2,0]}  %c = exp(%t)  return "
     "out=%c }",
     false, 2, 1, 1, 1, 1, 0},
    {"a slice of rows stays dense",
     "graph @g(%a: f32[6,4] input) { %s = slice(%a) {axis=0, start=2, stop=5}  %c = exp(%s)  "
     "return out=%c }",
     true, 1, 1, 1, 1, 1, 0},
    {"every second row does not",
     "graph @g(%a: f32[6,4] input) { %s = slice(%a) {axis=0, start=0, stop=6, step=2}  %c = "
     "exp(%s)  return out=%c }",
     false, 2, 1, 1, 1, 1, 0},
    {"a row sum has two phases",
     "graph @g(%a: f32[5,6] input) { %s = sum(%a) {axes=[1]}  return out=%s }", false, 2, 1, 2, 1,
     1, 1},
    {"over two trailing axes, one row",
     "graph @g(%a: f32[5,6,7] input) { %s = sum(%a) {axes=[1,2]}  return out=%s }", false, 2, 1, 2,
     1, 1, 1},
    {"over everything: flat", "graph @g(%a: f32[5,6] input) { %s = sum(%a)  return out=%s }", true,
     1, 1, 2, 1, 1, 1},
    {"softmax: maximum, sum, quotient",
     "graph @g(%a: f32[5,6] input) { %s = softmax(%a)  return out=%s }", false, 2, 1, 3, 1, 1, 2},
    {"two sums side by side share a phase",
     "graph @g(%a: f32[5,6] input) { %b = exp(%a)  %s = sum(%a) {axes=[1], keepdims=true}  %t = "
     "sum(%b) {axes=[1], keepdims=true}  %u = add(%s, %t)  return out=%u }",
     false, 2, 1, 2, 1, 1, 2},
    {"a column sum",
     "graph @g(%a: f32[5,6] input) { %b = exp(%a)  %s = sum(%b) {axes=[0]}  return out=%s }", false,
     2, 1, 2, 1, 1, 1},
    {"one load for two readers",
     "graph @g(%a: f32[5,6] input) { %b = mul(%a, %a)  %c = add(%b, %a)  return out=%c }", true, 1,
     1, 1, 1, 1, 0},
    {"two results, two stores",
     "graph @g(%a: f32[5,6] input) { %b = exp(%a)  %c = tanh(%b)  return b=%b, c=%c }", true, 1, 1,
     1, 1, 2, 0},
};

START_TEST(description)
{
    const struct fact *fact = &facts[_i];
    struct lowered l;
    lower_text(fact->text, false, &l);
    ck_assert_uint_ge(l.partition.n_groups, 1);
    const struct kernel *k = &l.kernels[0];
    const struct {
        const char *name;
        uint32_t found, expected;
    } numbers[] = {{"groups", l.partition.n_groups, 1},
                   {"flat", k->is_flat, fact->is_flat},
                   {"axes", k->rank, fact->rank},
                   {"inner axes", k->n_axes, fact->n_axes},
                   {"phases", k->n_phases, fact->phases},
                   {"loads", count_kind(k, INST_LOAD), fact->loads},
                   {"stores", k->n_stores, fact->stores},
                   {"reductions", count_kind(k, INST_REDUCE), fact->reductions}};
    for (uint32_t i = 0; i < ARRAY_LEN(numbers); i++) {
        ck_assert_msg(numbers[i].found == numbers[i].expected, "%s: %s: %u, expected %u",
                      fact->name, numbers[i].name, numbers[i].found, numbers[i].expected);
    }
    lowered_free(&l);
}
END_TEST

/* ---- once a row ---- */

/* The instruction of an op; the last one when there are several. */
static const struct inst *inst_of(const struct kernel *k, enum op op)
{
    const struct inst *found = NULL;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (k->insts[i].kind != INST_LOAD && k->insts[i].op == op) {
            found = &k->insts[i];
        }
    }
    ck_assert_msg(found != NULL, "no %s in the kernel", op_info[op].name);
    return found;
}

START_TEST(row_level)
{
    struct lowered l;
    lower_text("graph @g(%a: f32[5,6] input, %w: f32[6] input) { %b = exp(%a)  %s = sum(%b) "
               "{axes=[1], keepdims=true}  %r = sqrt(%s)  %q = div(%b, %r)  %y = mul(%q, %w)  "
               "return out=%y, root=%r }",
               false, &l);
    const struct kernel *k = &l.kernels[0];
    ck_assert_uint_eq(l.partition.n_groups, 1);
    ck_assert(!inst_of(k, OP_exp)->is_row);
    ck_assert(inst_of(k, OP_sum)->is_row);
    ck_assert(inst_of(k, OP_sqrt)->is_row);
    ck_assert(!inst_of(k, OP_div)->is_row);
    ck_assert(!inst_of(k, OP_mul)->is_row);
    ck_assert_uint_eq(inst_of(k, OP_exp)->ready, 0);
    ck_assert_uint_eq(inst_of(k, OP_sum)->ready, 0);
    ck_assert_uint_eq(inst_of(k, OP_sqrt)->ready, 1);
    ck_assert_uint_eq(inst_of(k, OP_div)->ready, 1);
    for (uint32_t i = 0; i < k->n_stores; i++) {
        bool is_root = k->insts[k->stores[i].inst].op == OP_sqrt;
        ck_assert_int_eq(k->stores[i].is_row, is_root);
        ck_assert_uint_eq(k->stores[i].phase, 1);
    }
    lowered_free(&l);
}
END_TEST

/* ---- rounding ---- */

static const char *const half_chain =
    "graph @g(%a: bf16[5,6] input, %b: bf16[5,6] input) { %c = add(%a, %b) : bf16[5,6]  %d = "
    "tanh(%c) : bf16[5,6]  %q = cast(%d) {dtype=f8e4m3}  %u = cast(%q) {dtype=bf16}  %y = mul(%u, "
    "%d) : bf16[5,6]  return out=%y }";

START_TEST(strict_rounds_every_value)
{
    struct lowered l;
    lower_text(half_chain, false, &l);
    const struct kernel *k = &l.kernels[0];
    for (uint32_t i = 0; i < k->n_insts; i++) {
        bool is_f8 = k->insts[i].kind == INST_OP && k->insts[i].dtype == F8E4M3;
        ck_assert(is_f8 || k->insts[i].dtype == BF16);
        ck_assert_int_eq(k->insts[i].compute, F32);
    }
    lowered_free(&l);
}
END_TEST

START_TEST(relaxed_rounds_when_stored)
{
    struct lowered l;
    uint32_t n_f8 = 0;
    lower_text(half_chain, true, &l);
    const struct kernel *k = &l.kernels[0];
    for (uint32_t i = 0; i < k->n_insts; i++) {
        bool is_f8 = k->insts[i].kind == INST_OP && k->insts[i].dtype == F8E4M3;
        n_f8 += is_f8;
        ck_assert(is_f8 || k->insts[i].dtype == (k->insts[i].kind == INST_LOAD ? BF16 : F32));
    }
    ck_assert_uint_eq(n_f8, 1); /* a cast to f8 is a quantisation: it rounds */
    ck_assert_uint_eq(k->n_stores, 1);
    ck_assert_int_eq(k->args[k->stores[0].arg].dtype, BF16);
    lowered_free(&l);
}
END_TEST

/* f32, f64 and integers have no narrower rounding to drop. */
START_TEST(relaxed_leaves_wide_types)
{
    static const char *const text =
        "graph @g(%a: f32[6] input, %b: f64[6] input, %i: i64[6] input) { %x = add(%a, %a)  %y = "
        "mul(%b, %b)  %j = add(%i, %i)  return x=%x, y=%y, j=%j }";
    struct lowered strict, relaxed;
    lower_text(text, false, &strict);
    lower_text(text, true, &relaxed);
    for (uint32_t i = 0; i < strict.partition.n_groups; i++) {
        const struct kernel *a = &strict.kernels[i], *b = &relaxed.kernels[i];
        ck_assert_uint_eq(a->n_insts, b->n_insts);
        for (uint32_t k = 0; k < a->n_insts; k++) {
            ck_assert_int_eq(a->insts[k].dtype, b->insts[k].dtype);
        }
    }
    lowered_free(&strict);
    lowered_free(&relaxed);
}
END_TEST

/* ---- invariants ---- */

static void check_kernel(const struct kernel *k)
{
    bool used[1024] = {false};
    ck_assert_uint_le(k->n_args, ARRAY_LEN(used));
    ck_assert_uint_le(k->first_axis + k->n_axes, k->rank);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        ck_assert_uint_lt(inst->ready, k->n_phases);
        for (uint32_t o = 0; o < inst->n_operands; o++) {
            const struct inst *from = &k->insts[inst->operands[o]];
            ck_assert_uint_lt(inst->operands[o], i);
            ck_assert_uint_ge(inst->ready, from->ready + (from->kind == INST_REDUCE));
            ck_assert(!inst->is_row || from->is_row || inst->kind == INST_REDUCE);
        }
        if (inst->kind == INST_LOAD) {
            ck_assert(!k->args[inst->arg].is_written);
            used[inst->arg] = true;
        }
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        const struct store *s = &k->stores[i];
        ck_assert_uint_lt(s->inst, k->n_insts);
        ck_assert_uint_lt(s->phase, k->n_phases);
        ck_assert_uint_ge(s->phase, k->insts[s->inst].ready);
        ck_assert(k->args[s->arg].is_written);
        used[s->arg] = true;
    }
    for (uint32_t i = 0; i < k->n_args; i++) {
        ck_assert_msg(used[i], "argument %u is never used", i);
    }
}

START_TEST(random_graphs)
{
    struct fuzz_case c = {0};
    struct lowered l = {0};
    generate_case(20261130, (uint64_t)_i, &c);
    if (lower_model(c.graph, _i % 2 == 1, &l) == ATOLL_OK) {
        for (uint32_t i = 0; i < l.partition.n_groups; i++) {
            check_kernel(&l.kernels[i]);
        }
    }
    lowered_free(&l);
    graph_destroy(c.graph);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, description, 0, ARRAY_LEN(facts));
    tcase_add_test(tc, row_level);
    tcase_add_test(tc, strict_rounds_every_value);
    tcase_add_test(tc, relaxed_rounds_when_stored);
    tcase_add_test(tc, relaxed_leaves_wide_types);
    tcase_add_loop_test(tc, random_graphs, 0, 200);
}

int main(void)
{
    return run_suite("lower", fill);
}
