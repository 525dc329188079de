/* A graph's identity: what a cache of plans is keyed by. */
#ifndef ATOLL_IR_GRAPH_HASH_H
#define ATOLL_IR_GRAPH_HASH_H

#include "graph.h"

/* Of operations, attributes, types, wiring, islands, leaf and output names, updates and symbol
 * ranges; the same in every process. Not of the graph's and inner nodes' names, locations, and
 * nodes that nothing needs. A weak number counts by its value, shared or not. */
uint64_t graph_hash(const struct graph *g);

#endif
