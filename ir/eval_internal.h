/* Shared by the files of the oracle. */
#ifndef ATOLL_IR_EVAL_INTERNAL_H
#define ATOLL_IR_EVAL_INTERNAL_H

#include "eval.h"

struct dense {
    uint32_t rank;
    int64_t size[MAX_RANK], count;
};
struct dense eval_dense(const struct eval *e, value v);

/* x as a value of dtype t: whole and wrapped for integers, rounded for floats when e->rounds. */
double eval_rounded(const struct eval *e, enum dtype t, double x);
/* An elementwise op or a reduction's combination, from its meaning in ops.def. */
double eval_scalar(enum op op, double a, double b, double c);
double eval_scalar_i64(enum op op, double a, double b);                       /* all but where */
void eval_scaled(struct eval *e, value v, const struct node *n, double *out); /* scaled.c */
void eval_random(const struct eval *e, const struct node *n, int64_t count, double *out);

#endif
