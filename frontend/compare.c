/* Two kinds of difference, kept apart: fusion error (fused against eager, nothing in strict mode)
 * and precision error (a policy's eager run against the f64 oracle of the original graph). */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

void compare_tensors(struct bit_count *count, const char *name, const struct tensor *a,
                     const struct tensor *b)
{
    size_t size = dtype_info[a->dtype].bytes;
    int64_t n = tensor_count(a);
    const unsigned char *p = a->data, *q = b->data;
    count->compared += (uint64_t)n;
    if (n == 0 || memcmp(p, q, (size_t)n * size) == 0) {
        return;
    }
    for (int64_t i = 0; i < n; i++, p += size, q += size) {
        bool both_nan = dtype_is_float(a->dtype) && isnan(dtype_load(a->dtype, p)) &&
                        isnan(dtype_load(b->dtype, q));
        if (memcmp(p, q, size) == 0 || both_nan) {
            continue;
        }
        if (count->different++ == 0) {
            count->first_index = i;
            snprintf(count->first, sizeof count->first, "%.60s[%lld]: %.9g and %.9g", name,
                     (long long)i, dtype_load(a->dtype, p), dtype_load(b->dtype, q));
        }
    }
}

void compare_runners(struct bit_count *count, struct runner *a, struct runner *b, bool with_leaves)
{
    const struct graph *g = runner_graph(a);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor u = runner_output(a, g->outputs[i].name),
                      v = runner_output(b, g->outputs[i].name);
        compare_tensors(count, g->outputs[i].name, &u, &v);
    }
    for (uint32_t i = 1; with_leaves && i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->op == OP_param || n->op == OP_buffer || n->op == OP_state) {
            compare_tensors(count, n->name, runner_leaf(a, n->name), runner_leaf(b, n->name));
        }
    }
}

struct closeness compare_to_reference(const struct tensor *t, const double *reference)
{
    struct closeness c = {.n = (uint64_t)tensor_count(t)};
    double error = 0.0, norm = 0.0, own = 0.0, dot = 0.0;
    const struct dtype_row *row = &dtype_info[t->dtype];
    for (uint64_t i = 0; i < c.n; i++) {
        double v = dtype_load(t->dtype, (const unsigned char *)t->data + i * row->bytes),
               r = reference[i], d = fabs(v - r);
        if (!isfinite(v) || !isfinite(r)) {
            c.nonfinite += isfinite(v) ? 0U : 1U;
            continue;
        }
        double magnitude = fmax(fabs(r), row->smallest_normal),
               ulp = ldexp(row->epsilon, ilogb(magnitude));
        c.max_abs = fmax(c.max_abs, d);
        c.max_ulp = ulp > 0.0 ? fmax(c.max_ulp, d / ulp) : c.max_ulp;
        error += d * d;
        norm += r * r;
        own += v * v;
        dot += v * r;
    }
    c.relative_l2 = norm > 0.0 ? sqrt(error / norm) : sqrt(error);
    c.cosine = norm > 0.0 && own > 0.0 ? dot / sqrt(norm * own) : 1.0;
    return c;
}

/* ---- the oracle on the same leaves ---- */

static double *widen(struct arena *a, const struct tensor *t)
{
    double *out = ARENA_ARRAY(a, double, tensor_count(t) + 1);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        out[i] = dtype_load(t->dtype, (const unsigned char *)t->data +
                                          (size_t)i * dtype_info[t->dtype].bytes);
    }
    return out;
}

static status run_oracle(struct runner *reference, struct eval *oracle, struct error *e)
{
    const struct graph *g = runner_graph(reference);
    eval_begin(oracle, g, reference->symbols);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (node_is_leaf(&g->nodes[i])) {
            const struct tensor *t = runner_leaf(reference, g->nodes[i].name);
            oracle->values[i] = widen(&oracle->arena, t);
        }
    }
    return eval_run(oracle, e);
}

static status set_batch(struct runner *r, const struct tensor *x, const struct tensor *y,
                        struct error *e)
{
    TRY(runner_input(r, "x", x, e));
    return y->data != NULL && graph_find(runner_graph(r), "y").id != 0 ? runner_input(r, "y", y, e)
                                                                       : ATOLL_OK;
}

static status compare_opened(struct runner *policy, struct runner *reference,
                             const struct tensor *x, const struct tensor *y,
                             closeness_report *report, void *context, double tolerance,
                             struct parting *parting, struct error *e)
{
    struct eval oracle = {0};
    struct recording rec = {0};
    const struct graph *g = runner_graph(reference);
    TRY(set_batch(policy, x, y, e));
    TRY(set_batch(reference, x, y, e));
    status code = recording_step(&rec, policy, e);
    code = code == ATOLL_OK ? run_oracle(reference, &oracle, e) : code;
    if (code == ATOLL_OK && parting != NULL) {
        parting_from_reference(&rec, runner_graph(policy), &oracle, tolerance, parting);
    }
    for (uint32_t i = 0; code == ATOLL_OK && i < g->n_outputs; i++) {
        struct tensor t = runner_output(policy, g->outputs[i].name);
        if (t.data != NULL && dtype_is_float(t.dtype)) {
            struct closeness c = compare_to_reference(&t, oracle.values[g->outputs[i].value.id]);
            report(context, g->outputs[i].name, &c);
        }
    }
    eval_end(&oracle);
    recording_free(&rec);
    return code;
}

status compare_precision(const struct graph *model, const struct compile_options *o, uint64_t seed,
                         const struct tensor *x, const struct tensor *y, closeness_report *report,
                         void *context, double tolerance, struct parting *parting, struct error *e)
{
    struct runner policy = {0}, reference = {0};
    struct compile_options options = *o;
    options.train = NULL;
    options.wants_gradients = true;
    options.is_eager = true;
    options.dump = NULL;
    status code = runner_open(&policy, model, &options, seed, e);
    options.policy = NULL;
    options.device = NULL;
    code = code == ATOLL_OK ? runner_open(&reference, model, &options, seed, e) : code;
    code = code == ATOLL_OK
               ? compare_opened(&policy, &reference, x, y, report, context, tolerance, parting, e)
               : code;
    runner_free(&policy);
    runner_free(&reference);
    return code;
}
