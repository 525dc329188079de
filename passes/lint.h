/* Lint: precision diagnostics. The rules are rows of lint.def; what they find is data.
 *
 *     struct findings f = {0};
 *     TRY(lint_model(model, &options, &f, e));
 *     for (uint32_t i = 0; i < f.n; i++) ... f.items[i].code, .label, .what, .hint ...
 *     arena_free(&f.arena);
 */
#ifndef ATOLL_PASSES_LINT_H
#define ATOLL_PASSES_LINT_H

#include "passes/pass.h"

struct finding {
    const char *code;         /* "L001" */
    const char *node;         /* name of the node it is about, or "" */
    const char *label;        /* "%y = where"; the graph's name for rules about all of it */
    struct location location; /* file NULL: not known */
    const char *what, *hint;
};

/* Zero-initialise; arena_free(&f.arena) when done. */
struct findings {
    struct arena arena;
    struct finding *items;
    uint32_t n, capacity;
};

/* The rules there are: code, what it finds, hint of the i-th; false behind the last. */
bool lint_rule_at(uint32_t i, struct finding *out);
/* Every rule over a typed graph, in the order of nodes. Rules about training look at o->train;
 * without it they say nothing. */
void lint_graph(const struct graph *g, const struct pass_options *o, struct findings *out);
/* A model as it was captured: brought to its policy's dtypes, then lint_graph. What autocast or the
 * verifier would refuse is a finding here, not an error. */
status lint_model(const struct graph *model, const struct pass_options *o, struct findings *out,
                  struct error *e);

#endif
