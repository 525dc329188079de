/* nonfinite: the first node of a step, in the order of computation, that made a NaN or an infinity:
 * from finite operands, or a NaN from infinite ones.
 *
 *     struct recording rec = {0};
 *     TRY(trace_step(&rec, &runner, e));
 *     struct nonfinite found;
 *     nonfinite_find(&rec, &runner, &found);
 *     if (found.kind != NONFINITE_NONE) puts(found.text);
 */
#ifndef ATOLL_FRONTEND_NONFINITE_H
#define ATOLL_FRONTEND_NONFINITE_H

#include "frontend/trace.h"

enum nonfinite_kind {
    NONFINITE_NONE,
    NONFINITE_GIVEN,    /* a leaf that held it before the step */
    NONFINITE_OVERFLOW, /* beyond the range of the result's dtype, or of partial sums */
    NONFINITE_INVALID,  /* 0/0, inf - inf, the root of a negative number, an index out of range */
    NONFINITE_DIVISION  /* by zero, and the log of 0 */
};
extern const char *const nonfinite_kind_name[]; /* "overflow", ... */

enum step_phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE };
extern const char *const step_phase_name[]; /* "forward", "backward", "update" */

struct operand_stats {
    char name[64];
    enum dtype dtype;
    double here;      /* the element that the result's was made of; NaN where many were */
    bool has_here;    /* one element was */
    double low, high; /* over finite elements */
    int64_t count, zeros, nonfinite;
};

enum { MAX_OPERAND_STATS = 4 };
struct nonfinite {
    enum nonfinite_kind kind;
    enum step_phase phase;
    value v;
    const char *node, *op; /* name (or ""), op of the primitive; they live as long as the graph */
    const char *model_op;  /* op of the model's node of that name, NULL where there is none */
    struct location location;
    bool is_scaled; /* a gradient that carries the loss scale */
    int64_t element;
    double number;        /* what it made */
    const char *kernel;   /* fused: the kernel it is inside of; NULL: none */
    uint32_t n_in_kernel; /* ops of that kernel */
    uint32_t n_operands;  /* described, at most MAX_OPERAND_STATS */
    struct operand_stats operands[MAX_OPERAND_STATS];
    char text[700]; /* "forward: %z (exp, model.graph:7)[0,3] = inf: overflow" */
};

/* rec: a trace of a step of r. An overflow that is_scaled is what a loss scaler expects and answers
 * with a smaller scale; what follows it in the step is its consequence. */
void nonfinite_find(const struct recording *rec, const struct runner *r, struct nonfinite *out);

/* nonfinite_origin.c: whether element e of v, which is not finite, was made by v itself. */
struct origin {
    const struct graph *graph;
    const struct tensor *values; /* by node id */
};
bool origin_is_here(const struct origin *o, value v, int64_t e);
/* The element of operand k of an elementwise v that element e is made of; -1: many are. */
int64_t origin_element(const struct origin *o, value v, uint32_t k, int64_t e);

#endif
