/* A graph as Graphviz text. */
#ifndef ATOLL_IR_DOT_H
#define ATOLL_IR_DOT_H

#include "graph.h"

/* Appends a digraph: outline by kind of operation, fill by dtype, a cluster per FP32 island, dashed
 * edges for updates. Scratch memory comes from t's arena. */
void graph_dot(const struct graph *g, struct text *t);

#endif
