/* The text form of a graph; ir/parse.h reads it back. */
#ifndef ATOLL_IR_PRINT_H
#define ATOLL_IR_PRINT_H

#include "graph.h"

struct print_options {
    bool locations; /* write  @ "file.c":12  behind each node that has one */
};

/* Appends the graph to t; scratch memory comes from t's arena. o may be NULL. Printing what
 * graph_parse makes of the text gives the same text. */
void graph_print(const struct graph *g, struct text *t, const struct print_options *o);

/* Shortest decimal that reads back to the same bits; inf, -inf, nan, nan(0xBITS), -0. */
void double_print(struct text *t, double number);
/* "text" with escapes. */
void string_print(struct text *t, const char *text);
/* The name every node has in the text, indexed by id and without the %: its own, or vID, with .1,
 * .2, ... behind it where two nodes share one. Allocated in the arena. */
const char **graph_unique_names(const struct graph *g, struct arena *a);

#endif
