/* Shared by the files of type inference. */
#ifndef ATOLL_IR_INFER_INTERNAL_H
#define ATOLL_IR_INFER_INTERNAL_H

#include "infer.h"

static inline const struct node *operand(const struct graph *g, const struct node *n, uint32_t i)
{
    return graph_node(g, n->operands[i]);
}

/* Records "OP(types): what" with the location when it is known; returns code. */
status infer_refuse(struct graph *g, const struct node *n, status code, const char *what);
/* A negative axis counts from the end; the attribute's own value stays as written. */
status infer_axis(struct graph *g, const struct node *n, int64_t axis, uint32_t rank,
                  uint32_t *out);

#endif
