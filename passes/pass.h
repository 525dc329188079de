/* passes/: graph -> graph, one pass one file. A pass takes a graph and options and builds a new
 * graph; it never changes its input, has no statics and never prints: what it decided goes to the
 * notes, each with a reason. */
#ifndef ATOLL_PASSES_PASS_H
#define ATOLL_PASSES_PASS_H

#include "ir/graph.h"

/* What a pass has to say: an island's reason, a cast it hoisted, why two ops were not fused. */
struct note {
    const char *pass;
    const char *node; /* name of the node it is about, or "" */
    const char *text;
};

struct notes {
    struct arena arena;
    struct note *items;
    uint32_t n, capacity;
};
void note_add(struct notes *notes, const char *pass, const char *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

struct policy;        /* passes/policy.h */
struct train_options; /* passes/train_step.h */

struct pass_options {
    const struct policy *policy;       /* NULL: fp32 */
    const struct train_options *train; /* NULL: no training step */
    bool is_relaxed;                   /* rounding mode relaxed; default strict */
    const char *const *cuda_archs;     /* "sm_90a", ...: CUDA targets */
    uint32_t n_cuda_archs;
    const char *gradients; /* autodiff: of these leaves, comma-separated; NULL: every param */
};

/* out comes from graph_like(in), empty. On failure out->error (and the status) says why. */
typedef status pass_fn(const struct graph *in, struct graph *out, const struct pass_options *o,
                       struct notes *notes);

/* The one sweep all rewrites share: visits nodes in order; rule returns the value that stands for n
 * in `out`, or 0 for "copy as is". n's operands are still ids of `in`; operands[] are theirs in
 * out. While the rule runs, nodes it adds carry n's name, location and island. Nodes nothing needs
 * are dropped (outputs, updates and what they need stay; input, param, buffer, state and scalar
 * leaves always stay). map_out, when not NULL, receives in->n_nodes entries: old id -> new value.
 */
typedef value rewrite_rule(struct graph *out, const struct graph *in, value v,
                           const value *operands, void *context);
status rewrite(const struct graph *in, struct graph *out, rewrite_rule *rule, void *context,
               value *map_out);

/* The passes. */
pass_fn simplify_pass, index_checks_pass, autocast_pass, islands_pass, lint_pass, autodiff_pass,
    train_step_pass, fp8_pass, fp8_paths_pass, decompose_pass, cut_pass, recompute_pass;

/* decompose.c, for autodiff too: n over operands in out as primitives (f32 inside, one rounding at
 * the end), or 0 when n is a primitive already. */
value decompose_node(struct graph *out, const struct graph *in, value v, const value *operands);

#endif
