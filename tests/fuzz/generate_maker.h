/* What the generator's files share: the graph under way and the values to draw operands from. */
#ifndef ATOLL_TESTS_FUZZ_GENERATE_MAKER_H
#define ATOLL_TESTS_FUZZ_GENERATE_MAKER_H

#include "generate.h"

enum { MAX_POOL = 400 };
enum { WANT_FLOAT = 1, WANT_INT = 2, WANT_BOOL = 4, WANT_NUMBER = 3, WANT_ANY = 7 };

struct maker {
    struct fuzz_case *c;
    struct graph *g;
    struct draw *d;
    value pool[MAX_POOL];
    uint32_t n_pool, n_leaves;
    struct dim dims[4];
    int64_t symbols[MAX_SYMBOLS]; /* the largest size each is bound to */
    int64_t limit;                /* elements a value may have */
};

/* A failed builder call is forgotten; else v joins the pool unless it is too large. */
value keep(struct maker *m, value v);
/* graph_add, kept. */
value make(struct maker *m, enum op op, const value *operands, uint32_t n, const struct attr *attrs,
           uint32_t n_attrs);
value new_leaf(struct maker *m, enum op op, enum dtype t, const struct shape *s);
/* Integers meant as indices below limit: its name says so to the data. */
value new_indices(struct maker *m, int64_t limit, const struct shape *s);
enum dtype any_float(struct maker *m);
enum dtype any_dtype(struct maker *m, unsigned want);
struct shape any_shape(struct maker *m, uint32_t max_rank);
/* A value of the pool, or a new leaf, of one of the classes wanted. */
value pick(struct maker *m, unsigned want);
value pick_rank(struct maker *m, unsigned want, uint32_t min_rank);
/* Something a broadcasts with. */
value partner(struct maker *m, value a, unsigned want);
const struct node *node_of(const struct maker *m, value v);

void make_elementwise(struct maker *m, enum op op);
void make_reduction(struct maker *m, enum op op);
void make_contraction(struct maker *m, enum op op);
void make_view(struct maker *m, enum op op);
void make_index(struct maker *m, enum op op);
void make_random(struct maker *m, enum op op);
void make_composite(struct maker *m, enum op op);
void make_training(struct maker *m, enum op op);
/* generate_fp8.c: a product of two new f8 operands; a stack of linears that FP8 policies take in.
 */
void make_scaled_product(struct maker *m);
void make_fp8_stack(struct maker *m);
/* Several nodes in a shape that fusion cares about. */
void make_pattern(struct maker *m);

#endif
