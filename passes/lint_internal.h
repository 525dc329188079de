/* What the rules of lint share: the graph with facts about it, and looking through casts and views.
 */
#ifndef ATOLL_PASSES_LINT_INTERNAL_H
#define ATOLL_PASSES_LINT_INTERNAL_H

#include "passes/lint.h"

struct lint_rule;
struct lint {
    const struct graph *g;
    const struct pass_options *o;
    struct findings *out;
    const struct lint_rule *rule; /* the one that runs */
    const bool *is_trained;       /* by node id: a float that depends on a parameter */
    struct arena scratch;
};

/* id: the node; 0 for rules about the whole graph. */
typedef void lint_fn(struct lint *l, uint32_t id);
#define X(code, scope, rule, what, hint) lint_fn lint_##rule;
#include "passes/lint.def"
#undef X

/* One finding of the running rule. */
void lint_found(struct lint *l, uint32_t id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline const struct node *lint_node(const struct lint *l, value v)
{
    return &l->g->nodes[v.id];
}
/* v under casts, reshapes and expands. */
value lint_peel(const struct lint *l, value v);
/* Operand k of n, peeled. */
const struct node *lint_operand(const struct lint *l, const struct node *n, uint32_t k);
bool lint_is_same(const struct lint *l, value a, value b);
/* A constant, through casts and views. */
bool lint_number(const struct lint *l, value v, double *out);
/* The operand of n that is not the number, when the other one is; 0: none is. */
value lint_beside_number(const struct lint *l, const struct node *n, double *number);
/* n is x * x or x^2: gives x. */
bool lint_is_square(const struct lint *l, const struct node *n, value *out);
/* n is a sum or mean of squares, a variance, or a norm (is_root: also the root of such a sum). */
bool lint_is_spread(const struct lint *l, const struct node *n, bool is_root);
/* Whether every use of id satisfies test, and there is one; outputs and updates count as other
 * uses. */
typedef bool lint_use(const struct lint *l, const struct node *user);
bool lint_all_uses(const struct lint *l, uint32_t id, lint_use *test);
/* Elements that a reduction folds into one; -1: depends on a symbol. */
int64_t lint_folded(const struct lint *l, const struct node *n);

#endif
