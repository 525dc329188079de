/* Fusion: which nodes share a kernel. Named graphs for the promises (a softmax is one kernel,
 * forward and backward), random training graphs for the invariants: each node once, what a group
 * reads stands before it, a value lies in memory when somebody outside its kernel reads it. */
#include "tests/suite.h"

#include <string.h>

#include "frontend/compile.h"
#include "ir/parse.h"
#include "tests/fuzz/generate.h"

struct fused {
    struct compiled compiled; /* owns the primitive graph */
    struct partition partition;
    struct notes notes;
};

static void fuse_model(const struct graph *model, bool is_backward, struct fused *out)
{
    struct error e = {0};
    struct compile_options o = {.wants_gradients = is_backward, .is_eager = true};
    *out = (struct fused){0};
    ck_assert_msg(compile_graph(model, &o, &out->compiled, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(fuse(out->compiled.primitive, NULL, &out->partition, &out->notes, &e),
                     ATOLL_OK);
}

static void fuse_text(const char *text, bool is_backward, struct fused *out)
{
    struct error e = {0};
    struct graph *g = graph_parse(text, strlen(text), "case", &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    fuse_model(g, is_backward, out);
    graph_destroy(g);
}

static void fused_free(struct fused *f)
{
    partition_free(&f->partition);
    arena_free(&f->notes.arena);
    compiled_free(&f->compiled);
}

/* ---- invariants ---- */

/* What `reader` reads of v in memory or in other groups: calls down through views to grouped
 * values. */
static void check_before(const struct fused *f, uint32_t reader, value v)
{
    const struct node *n = graph_node(f->compiled.primitive, v);
    uint32_t in = f->partition.group_of[v.id];
    if (in != 0) {
        ck_assert_msg(in <= reader, "group %u reads node %u of the later group %u", reader, v.id,
                      in);
        return;
    }
    for (uint32_t k = 0; k < n->n_operands; k++) {
        check_before(f, reader, n->operands[k]);
    }
}

static void check_order(const struct fused *f)
{
    for (uint32_t i = 0; i < f->partition.n_groups; i++) {
        const struct group *group = &f->partition.groups[i];
        for (uint32_t m = 0; m < group->n_members; m++) {
            const struct node *n = graph_node(f->compiled.primitive, group->members[m]);
            for (uint32_t k = 0; k < n->n_operands; k++) {
                check_before(f, i + 1, n->operands[k]);
            }
        }
    }
}

static void check_once(const struct fused *f)
{
    const struct graph *g = f->compiled.primitive;
    struct arena a = {0};
    uint32_t *seen = ARENA_ARRAY(&a, uint32_t, g->n_nodes);
    for (uint32_t i = 0; i < f->partition.n_groups; i++) {
        const struct group *group = &f->partition.groups[i];
        ck_assert_uint_gt(group->n_members, 0);
        for (uint32_t m = 0; m < group->n_members; m++) {
            seen[group->members[m].id]++;
            ck_assert_uint_eq(f->partition.group_of[group->members[m].id], i + 1);
            ck_assert(m == 0 || group->members[m - 1].id < group->members[m].id);
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        bool may_be_none = node_is_inline(n) || op_info[n->op].kind == VIEW;
        ck_assert_msg(seen[i] <= 1, "node %u stands in %u groups", i, seen[i]);
        ck_assert_msg(!node_is_leaf(n) || seen[i] == 0, "leaf %u is in a group", i);
        ck_assert_msg(node_is_leaf(n) || may_be_none || seen[i] == 1, "node %u (%s) in no group", i,
                      op_info[n->op].name);
    }
    arena_free(&a);
}

/* The grouped value under the views of v; 0: a leaf or a number. */
static value under_views(const struct fused *f, value v)
{
    const struct graph *g = f->compiled.primitive;
    while (f->partition.group_of[v.id] == 0 && op_info[graph_node(g, v)->op].kind == VIEW) {
        v = graph_node(g, v)->operands[0];
    }
    return f->partition.group_of[v.id] != 0 ? v : (value){0};
}

static bool is_asked_for(const struct graph *g, const struct fused *f, value v)
{
    bool is = false;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        is = is || under_views(f, g->outputs[i].value).id == v.id;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        is = is || under_views(f, g->updates[i].next).id == v.id;
    }
    return is;
}

/* Read outside its group: must be stored. Read by nobody but direct members: must not. */
static void check_stored(const struct fused *f)
{
    const struct graph *g = f->compiled.primitive;
    struct arena a = {0};
    bool *outside = ARENA_ARRAY(&a, bool, g->n_nodes), *viewed = ARENA_ARRAY(&a, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        uint32_t reader = f->partition.group_of[i];
        for (uint32_t k = 0; reader != 0 && k < g->nodes[i].n_operands; k++) {
            value from = under_views(f, g->nodes[i].operands[k]);
            if (from.id != 0) {
                outside[from.id] = outside[from.id] || f->partition.group_of[from.id] != reader;
                viewed[from.id] = viewed[from.id] || from.id != g->nodes[i].operands[k].id;
            }
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (f->partition.group_of[i] == 0) {
            continue;
        }
        bool needs = outside[i] || is_asked_for(g, f, (value){i});
        ck_assert_msg(!needs || f->partition.is_stored[i], "node %u is read but not stored", i);
        ck_assert_msg(needs || viewed[i] || !f->partition.is_stored[i],
                      "node %u (%s) is stored for nobody", i, op_info[g->nodes[i].op].name);
    }
    arena_free(&a);
}

static void check_invariants(const struct fused *f)
{
    check_once(f);
    check_order(f);
    check_stored(f);
}

/* ---- promises ---- */

static uint32_t count_kind(const struct fused *f, enum group_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->partition.n_groups; i++) {
        n += f->partition.groups[i].kind == kind;
    }
    return n;
}

enum { ANY = 99 };

static const struct fact {
    const char *name, *text;
    bool is_backward;
    uint32_t rows, columns, contractions, singles;
} facts[] = {
    {"chain",
     "graph @g(%a: f32[8,9] input, %b: f32[9] input) { %c = add(%a, %b) : f32[8,9]  %d = tanh(%c) "
     ": f32[8,9]  %e = mul(%d, %a) : f32[8,9]  return out=%e }",
     false, 1, 0, 0, 0},
    {"softmax", "graph @g(%x: f32[8,9] input) { %y = softmax(%x) : f32[8,9]  return out=%y }",
     false, 1, 0, 0, 0},
    {"log_softmax",
     "graph @g(%x: bf16[8,9] input) { %y = log_softmax(%x) : bf16[8,9]  return out=%y }", false, 1,
     0, 0, 0},
    {"layer_norm",
     "graph @g(%x: f32[8,9] input, %w: f32[9] param, %b: f32[9] param) { %y = layer_norm(%x, %w, "
     "%b) : f32[8,9]  return out=%y }",
     false, 1, 0, 0, 0},
    {"rms_norm",
     "graph @g(%x: f32[8,9] input, %w: f32[9] param) { %y = rms_norm(%x, %w) : f32[8,9]  return "
     "out=%y }",
     false, 1, 0, 0, 0},
    {"cross_entropy of each row",
     "graph @g(%x: f32[8,9] input, %t: i64[8] input) { %y = cross_entropy(%x, %t) "
     "{reduction=\"none\"} : f32[8]  return out=%y }",
     false, 1, 0, 0, 0},
    {"column sum takes in its own chain",
     "graph @g(%x: f32[8,9] input) { %a = exp(%x) : f32[8,9]  %b = mul(%a, %x) : f32[8,9]  %s = "
     "sum(%b) {axes=[0]} : f32[9]  return out=%s }",
     false, 0, 1, 0, 0},
    {"column sum of a chain that others read",
     "graph @g(%x: f32[8,9] input) { %a = exp(%x) : f32[8,9]  %s = sum(%a) {axes=[0]} : f32[9]  "
     "return out=%s, chain=%a }",
     false, 1, 1, 0, 0},
    {"views fold into loads",
     "graph @g(%x: f32[8,9] input, %r: f32[1,8] input) { %t = transpose(%x) : f32[9,8]  %s = "
     "slice(%t) {axis=0, start=1, stop=5} : f32[4,8]  %w = expand(%r) {shape=[4,8]} : f32[4,8]  %y "
     "= add(%s, %w) : f32[4,8]  return out=%y }",
     false, 1, 0, 0, 0},
    {"a view that is an output is a kernel",
     "graph @g(%x: f32[8,9] input) { %t = transpose(%x) : f32[9,8]  return out=%t }", false, 1, 0,
     0, 0},
    {"diamond through a product",
     "graph @g(%x: f32[8,8] input) { %a = exp(%x) : f32[8,8]  %m = matmul(%a, %a) : f32[8,8]  %y = "
     "add(%a, %m) : f32[8,8]  return out=%y }",
     false, 2, 0, 1, 0},
    {"two readers of one product",
     "graph @g(%x: f32[8,8] input) { %m = matmul(%x, %x) : f32[8,8]  %a = exp(%m) : f32[8,8]  %b = "
     "tanh(%m) : f32[8,8]  return a=%a, b=%b }",
     false, 1, 0, 1, 0},
    {"index op alone",
     "graph @g(%x: f32[8,9] input, %i: i64[3] input) { %a = exp(%x) : f32[8,9]  %y = take(%a, %i) "
     ": f32[3,9]  return out=%y }",
     false, 1, 0, 0, 1},
};

START_TEST(promise)
{
    const struct fact *fact = &facts[_i];
    struct fused f;
    fuse_text(fact->text, fact->is_backward, &f);
    check_invariants(&f);
    const uint32_t found[] = {count_kind(&f, GROUP_ROW), count_kind(&f, GROUP_COLUMN),
                              count_kind(&f, GROUP_CONTRACTION), count_kind(&f, GROUP_SINGLE)};
    const uint32_t expected[] = {fact->rows, fact->columns, fact->contractions, fact->singles};
    for (uint32_t i = 0; i < ARRAY_LEN(found); i++) {
        ck_assert_msg(found[i] == expected[i] || expected[i] == ANY,
                      "%s: kind %u: %u groups, expected %u", fact->name, i, found[i], expected[i]);
    }
    fused_free(&f);
}
END_TEST

/* The row groups over the whole [8,9] domain that hold a row reduction or read one: forward and
 * backward of a norm or a softmax. */
static const struct backward {
    const char *name, *text;
    uint32_t most_rows;
} backwards[] = {
    {"softmax",
     "graph @g(%x: f32[8,9] param, %c: f32[8,9] input) { %y = softmax(%x) : f32[8,9]  %z = mul(%y, "
     "%c) : f32[8,9]  %l = sum(%z) : f32[]  return loss=%l }",
     2},
    {"log_softmax",
     "graph @g(%x: f32[8,9] param, %c: f32[8,9] input) { %y = log_softmax(%x) : f32[8,9]  %z = "
     "mul(%y, %c) : f32[8,9]  %l = sum(%z) : f32[]  return loss=%l }",
     2},
    {"layer_norm",
     "graph @g(%x: f32[8,9] param, %w: f32[9] param, %b: f32[9] param, %c: f32[8,9] input) { %y = "
     "layer_norm(%x, %w, %b) : f32[8,9]  %z = mul(%y, %c) : f32[8,9]  %l = sum(%z) : f32[]  return "
     "loss=%l }",
     2},
    {"rms_norm",
     "graph @g(%x: f32[8,9] param, %w: f32[9] param, %c: f32[8,9] input) { %y = rms_norm(%x, %w) : "
     "f32[8,9]  %z = mul(%y, %c) : f32[8,9]  %l = sum(%z) : f32[]  return loss=%l }",
     2},
};

START_TEST(backward_promise)
{
    const struct backward *b = &backwards[_i];
    struct fused f;
    uint32_t rows = 0;
    fuse_text(b->text, true, &f);
    check_invariants(&f);
    for (uint32_t i = 0; i < f.partition.n_groups; i++) {
        const struct group *g = &f.partition.groups[i];
        rows += g->kind == GROUP_ROW && g->domain.rank == 2 && dim_is(g->domain.dims[0], 8) &&
                dim_is(g->domain.dims[1], 9);
    }
    ck_assert_msg(rows <= b->most_rows, "%s: %u row groups forward and backward, at most %u",
                  b->name, rows, b->most_rows);
    fused_free(&f);
}
END_TEST

/* Fusion off: every node that computes is a group of its own. */
START_TEST(off)
{
    struct fused f;
    struct partition alone;
    struct notes notes = {0};
    struct error e = {0};
    fuse_text(facts[1].text, false, &f);
    ck_assert_int_eq(
        fuse(f.compiled.primitive, &(struct fuse_options){.is_off = true}, &alone, &notes, &e),
        ATOLL_OK);
    for (uint32_t i = 0; i < alone.n_groups; i++) {
        ck_assert_uint_eq(alone.groups[i].n_members, 1);
    }
    ck_assert_uint_gt(alone.n_groups, f.partition.n_groups);
    partition_free(&alone);
    arena_free(&notes.arena);
    fused_free(&f);
}
END_TEST

START_TEST(random_graphs)
{
    struct fuzz_case c = {0};
    struct fused f = {0};
    generate_case(20261129, (uint64_t)_i, &c);
    struct error e = {0};
    struct compile_options o = {.is_eager = true};
    if (compile_graph(c.graph, &o, &f.compiled, &e) == ATOLL_OK) {
        ck_assert_int_eq(fuse(f.compiled.primitive, NULL, &f.partition, &f.notes, &e), ATOLL_OK);
        check_invariants(&f);
    }
    fused_free(&f);
    graph_destroy(c.graph);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_loop_test(tc, promise, 0, ARRAY_LEN(facts));
    tcase_add_loop_test(tc, backward_promise, 0, ARRAY_LEN(backwards));
    tcase_add_test(tc, off);
    tcase_add_loop_test(tc, random_graphs, 0, 300);
}

int main(void)
{
    return run_suite("fuse", fill);
}
