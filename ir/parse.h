/* Text form -> graph; ir/print.h writes it. */
#ifndef ATOLL_IR_PARSE_H
#define ATOLL_IR_PARSE_H

#include "graph.h"

/* Any bytes are safe. NULL on failure, with e->text = "FILE:line:column: found 'x', expected y;
 * hint"; file is a name for messages only. The caller destroys the graph. */
struct graph *graph_parse(const char *text, size_t size, const char *file, struct error *e);
/* The same, and every node without a location of its own gets its line of the text: for messages
 * about a model that a person wrote as text. */
struct graph *graph_parse_lines(const char *text, size_t size, const char *file, struct error *e);

#endif
