/* Policies: which dtype each op runs in, as data. A policy is a low dtype, a behaviour (a class for
 * every op) and overrides, by op and by node name; autocast.c applies it. */
#ifndef ATOLL_PASSES_POLICY_H
#define ATOLL_PASSES_POLICY_H

#include "fp8.h"
#include "ir/graph.h"

/* Whose table of classes: Atoll's own, one for every device; or PyTorch 2.9's autocast lists, as
 * they are. */
enum policy_behaviour { POLICY_ATOLL, POLICY_TORCH_CUDA, POLICY_TORCH_CPU };

struct policy_op {
    enum op op;
    enum amp_class class;
};

/* Nodes whose name matches run in a dtype, or by a class when dtype is DTYPE_NONE. */
struct policy_node {
    const char *pattern; /* with * and ? */
    enum dtype dtype;    /* f16, bf16 or f32 */
    enum amp_class class;
};

struct policy {
    const char *name;
    enum dtype low; /* F16 or BF16; DTYPE_NONE: nothing is lowered */
    enum policy_behaviour behaviour;
    const struct policy_op *ops; /* the last row that names an op wins */
    uint32_t n_ops;
    const struct policy_node *nodes; /* the last row that matches wins */
    uint32_t n_nodes;
    struct fp8_options fp8; /* fp8.recipe NULL: no FP8 */
};

/* "fp32", "bf16", "fp16", the half ones with "@torch-cuda" or "@torch-cpu", and "fp8-RECIPE": bf16
 * with a recipe of fp8.def. NULL when there is none of that name; policy_named says why. */
const struct policy *policy_builtin(const char *name);
/* USAGE with the names there are. */
status policy_named(const char *name, const struct policy **out, struct error *e);

/* Reads a policy file over `base` (NULL: fp32); out lives as long as the arena. Lines:
 *     base bf16                     a builtin to start from; before any override
 *     op softmax fp32               class of an op: inherit lower fp32 fp32_out promote banned
 *     node "block*.attn.*" f32      dtype (f16 bf16 f32) or class of the nodes of that name
 *     fp8 "block*" on               linears that a recipe takes in, first and last too, or leaves
 * out fp8_set least 256             also: margin 0, history 1024, amax max, counts off # comment
 * Later lines win over earlier ones, nodes over ops. */
status policy_load(struct arena *a, const char *text, size_t length, const char *file,
                   const struct policy *base, struct policy *out, struct error *e);

/* The class an op has under the policy, node overrides left out. */
enum amp_class policy_class(const struct policy *p, enum op op);
/* The override that names this node; NULL when none does. */
const struct policy_node *policy_override(const struct policy *p, const struct node *n);
const char *amp_class_name(enum amp_class class);

/* Equal for policies that decide alike; the name is not part of it. */
uint64_t policy_hash(const struct policy *p);

/* Why an op is kept in f32 or gives f32; never NULL. */
const char *precision_reason(enum op op);

#endif
