/* Text form -> graph; ir/print.h writes it. */
#ifndef ATOLL_IR_PARSE_H
#define ATOLL_IR_PARSE_H

#include "graph.h"

/* Any bytes are safe. NULL on failure, with e->text = "FILE:line:column: found 'x', expected y;
 * hint"; file is a name for messages only. The caller destroys the graph. */
struct graph *graph_parse(const char *text, size_t size, const char *file, struct error *e);

#endif
