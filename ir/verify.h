/* The rules of a graph, checked from outside the builder: what passes, files and hands may break.
 */
#ifndef ATOLL_IR_VERIFY_H
#define ATOLL_IR_VERIFY_H

#include "graph.h"

enum verify_code {
#define X(code, text) code,
#include "verify.def"
#undef X
    N_VERIFY_CODES
};
struct verify_row {
    const char *code, *rule;
};
extern const struct verify_row verify_info[N_VERIFY_CODES];

/* ATOLL_OK, or ATOLL_VERIFY with the first broken rule in e->text: its code and text, the node and
 * where it comes from, what was found, what was expected, the fix. Safe on any graph whose arrays
 * have the lengths it states. */
status graph_verify(const struct graph *g, struct error *e);

#endif
