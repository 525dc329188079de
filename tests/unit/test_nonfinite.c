/* nonfinite: planted faults of every class, forward, backward and in the update, each found eagerly
 * and inside fused kernels, at the same node and element; and what the search leaves alone. */
#include "tests/faults.h"
#include "tests/small_training.h"

/* The finding of one step. Its texts live in r's graph. */
static void search(struct runner *r, const char *body, double x, const char *optimizer,
                   bool is_eager, struct nonfinite *out)
{
    struct error e = {0};
    struct train_options train = train_options_default();
    struct compile_options o = {.train = &train,
                                .cache = small_kernels(),
                                .is_eager = is_eager,
                                .cc.optimise = "-O0", /* the same bits, made sooner */
                                .keeps_values = true};
    struct recording rec = {0};
    struct graph *g = fault_model(body);
    ck_assert(train_options_parse(&train, optimizer != NULL ? optimizer : "sgd,lr=0.1", NULL, &e) ==
              ATOLL_OK);
    ck_assert_msg(runner_open(r, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    fault_feed(r, x);
    ck_assert_msg(trace_step(&rec, r, &e) == ATOLL_OK, "%s", e.text);
    nonfinite_find(&rec, r, out);
    recording_free(&rec);
    graph_destroy(g);
}

static void find_fault(const struct fault *f, bool is_eager, struct nonfinite *out)
{
    struct runner r;
    search(&r, f->body, f->x, f->optimizer, is_eager, out);
    check_fault(f, out);
    ck_assert_msg(is_eager || out->n_in_kernel >= f->least_in_kernel, "%s: kernel of %u ops",
                  out->text, out->n_in_kernel);
    out->node = out->op = out->model_op = NULL;
    runner_free(&r);
}

START_TEST(planted)
{
    struct nonfinite eager, fused;
    find_fault(&faults[_i], true, &eager);
    find_fault(&faults[_i], false, &fused);
    ck_assert_uint_eq(eager.v.id, fused.v.id);
    ck_assert_int_eq((int)eager.element, (int)fused.element);
    for (uint32_t i = 0; i < eager.n_operands; i++) { /* the same evidence */
        struct operand_stats *a = &eager.operands[i], *b = &fused.operands[i];
        ck_assert_str_eq(a->name, b->name);
        ck_assert(a->zeros == b->zeros && a->nonfinite == b->nonfinite && a->count == b->count);
        ck_assert(memcmp(&a->low, &b->low, sizeof a->low) == 0);
        ck_assert(memcmp(&a->high, &b->high, sizeof a->high) == 0);
    }
}
END_TEST

/* Infinities that a model writes itself are no fault, nor is what becomes finite from them. */
START_TEST(left_alone)
{
    static const char *const bodies[] = {
        MEAN("%k"),
        "  %m = iota() {shape=[4,8], axis=1, dtype=f32}\n  %q = lt(%m, 5)\n"
        "  %a = where(%q, %k, -inf)\n  %z = softmax(%a)\n" MEAN("%z"),
        "  %z = clamp(%k) {low=0}\n" MEAN("%z"),
        "  %q = gt(%k, 0)\n  %a = where(%q, %k, inf)\n  %z = minimum(%a, inf)\n" MEAN("%z"),
    };
    struct runner r;
    struct nonfinite found;
    for (int eager = 0; eager < 2; eager++) {
        search(&r, bodies[_i], 0.5, NULL, eager != 0, &found);
        ck_assert_msg(found.kind == NONFINITE_NONE, "%s", found.text);
        runner_free(&r);
    }
}
END_TEST

START_TEST(named_in_full)
{
    struct runner r;
    struct nonfinite found;
    search(&r, "  %z = exp(%k)\n" MEAN("%z"), 200, NULL, false, &found);
    ck_assert_str_eq(found.text, "forward: %z (exp, fault.graph:4)[0,0] = inf: overflow");
    ck_assert(found.operands[0].here == 200.0 && found.operands[0].low == 200.0);
    ck_assert_str_eq(found.operands[0].name, "%k");
    ck_assert(found.kernel != NULL && found.model_op == NULL);
    runner_free(&r);
    search(&r, "  %m = lt(%k, 0)\n  %a = where(%m, %k, -inf)\n  %z = softmax(%a)\n" MEAN("%z"), 1,
           NULL, false, &found);
    ck_assert_str_eq(found.model_op, "softmax");
    runner_free(&r);
}
END_TEST

/* The traced program is a training step like any other: the same bits as the plain one. */
START_TEST(tracing_changes_nothing)
{
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct error e = {0};
    struct runner plain, traced;
    struct recording rec = {0};
    struct graph *g = small_model(&e);
    ck_assert_msg(runner_open(&plain, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    o.keeps_values = true;
    ck_assert_msg(runner_open(&traced, g, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    for (int step = 0; step < 3; step++) {
        ck_assert_msg(small_feed(&plain, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(small_feed(&traced, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(runner_step(&plain, &e) == ATOLL_OK, "%s", e.text);
        ck_assert_msg(trace_step(&rec, &traced, &e) == ATOLL_OK, "%s", e.text);
    }
    const struct graph *p = runner_graph(&plain);
    uint32_t n_compared = 0;
    for (uint32_t i = 1; i < p->n_nodes; i++) {
        if (p->nodes[i].op == OP_param || p->nodes[i].op == OP_state) {
            struct tensor *a = runner_leaf(&plain, p->nodes[i].name),
                          *b = runner_leaf(&traced, p->nodes[i].name);
            ck_assert_msg(memcmp(a->data, b->data, tensor_bytes(a)) == 0, "%s", p->nodes[i].name);
            n_compared++;
        }
    }
    ck_assert_uint_gt(n_compared, 8);
    for (uint32_t i = 1; i < rec.n; i++) {
        ck_assert_msg(rec.values[i].data != NULL, "node %u has no value", i);
    }
    recording_free(&rec);
    runner_free(&plain);
    runner_free(&traced);
    graph_destroy(g);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, small_start, small_clean);
    tcase_add_loop_test(tc, planted, 0, (int)ARRAY_LEN(faults));
    tcase_add_loop_test(tc, left_alone, 0, 4);
    tcase_add_test(tc, named_in_full);
    tcase_add_test(tc, tracing_changes_nothing);
}

int main(void)
{
    return run_suite("nonfinite", fill);
}
