/* Type inference: dtype from the op's `types` column, shape from its shape rule. */
#ifndef ATOLL_IR_INFER_H
#define ATOLL_IR_INFER_H

#include "graph.h"

/* Sets dtype and shape of a node whose op, operands and attributes are set. */
status infer_node(struct graph *g, struct node *n);
/* "f32[n,64]" */
const char *type_text(const struct graph *g, const struct node *n, struct arena *a);

#endif
