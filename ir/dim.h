/* Dims: an integer, or an integer times symbols (after a reshape). Shapes: up to 8 dims, by value.
 */
#ifndef ATOLL_IR_DIM_H
#define ATOLL_IR_DIM_H

#include "base.h"

enum { MAX_RANK = 8, MAX_DIM_SYMBOLS = 4, MAX_SYMBOLS = 32 };

/* factor * symbol * symbol * ...; symbols are ids from 1, ascending, 0 is none. A static dim has
 * none. */
struct dim {
    int64_t factor;
    uint8_t symbols[MAX_DIM_SYMBOLS];
};

struct shape {
    uint32_t rank;
    struct dim dims[MAX_RANK];
};

static inline struct dim dim_of(int64_t n)
{
    return (struct dim){.factor = n};
}
static inline struct dim dim_symbol(uint8_t symbol)
{
    return (struct dim){.factor = 1, .symbols = {symbol}};
}
static inline bool dim_is_static(struct dim d)
{
    return d.symbols[0] == 0;
}
static inline bool dim_is(struct dim d, int64_t n)
{
    return d.symbols[0] == 0 && d.factor == n;
}
bool dim_equal(struct dim a, struct dim b);
/* false when the product has more than 4 symbols or overflows. */
bool dim_multiply(struct dim a, struct dim b, struct dim *out);
/* a / b when that is exact for every value of the symbols. */
bool dim_divide(struct dim a, struct dim b, struct dim *out);
/* The value, given one for each symbol (values[id]); symbols not bound hold -1 and give -1. */
int64_t dim_value(struct dim d, const int64_t *symbol_values);

static inline struct shape shape_scalar(void)
{
    return (struct shape){0};
}
bool shape_equal(const struct shape *a, const struct shape *b);
/* Product of the dims; false when it cannot be expressed. */
bool shape_count(const struct shape *s, struct dim *out);
int64_t shape_count_value(const struct shape *s, const int64_t *symbol_values);
/* NumPy broadcasting; false when they do not fit. A symbol meets only itself or 1. */
bool shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out);
/* "n,64" ; symbol_names[id]. */
void shape_print(struct text *t, const struct shape *s, const char *const *symbol_names);
void dim_print(struct text *t, struct dim d, const char *const *symbol_names);

#endif
