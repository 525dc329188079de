/* Arithmetic of dims and shapes. Symbols in a dim stay sorted, so equality is a comparison of
 * members. */
#include "dim.h"

#include <string.h>

bool dim_equal(struct dim a, struct dim b)
{
    return a.factor == b.factor && memcmp(a.symbols, b.symbols, sizeof a.symbols) == 0;
}

static uint32_t symbol_count(struct dim d)
{
    uint32_t n = 0;
    while (n < MAX_DIM_SYMBOLS && d.symbols[n] != 0) {
        n++;
    }
    return n;
}

bool dim_multiply(struct dim a, struct dim b, struct dim *out)
{
    struct dim r = {0};
    if (__builtin_mul_overflow(a.factor, b.factor, &r.factor)) {
        return false;
    }
    if (r.factor == 0) {
        *out = dim_of(0);
        return true;
    }
    uint32_t na = symbol_count(a), nb = symbol_count(b), i = 0, j = 0;
    if (na + nb > MAX_DIM_SYMBOLS) {
        return false;
    }
    for (uint32_t k = 0; k < na + nb; k++) {
        bool from_a = j == nb || (i < na && a.symbols[i] <= b.symbols[j]);
        r.symbols[k] = from_a ? a.symbols[i++] : b.symbols[j++];
    }
    *out = r;
    return true;
}

bool dim_divide(struct dim a, struct dim b, struct dim *out)
{
    if (b.factor == 0 || a.factor % b.factor != 0) {
        return false;
    }
    struct dim r = {.factor = a.factor / b.factor};
    uint32_t na = symbol_count(a), nb = symbol_count(b), j = 0, k = 0;
    for (uint32_t i = 0; i < na; i++) {
        if (j < nb && a.symbols[i] == b.symbols[j]) {
            j++;
        } else {
            r.symbols[k++] = a.symbols[i];
        }
    }
    *out = r;
    return j == nb;
}

int64_t dim_value(struct dim d, const int64_t *symbol_values)
{
    int64_t n = d.factor;
    for (uint32_t i = 0; i < MAX_DIM_SYMBOLS && d.symbols[i] != 0; i++) {
        int64_t s = symbol_values[d.symbols[i]];
        if (s < 0 || __builtin_mul_overflow(n, s, &n)) {
            return -1;
        }
    }
    return n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
        if (!dim_equal(a->dims[i], b->dims[i])) {
            return false;
        }
    }
    return true;
}

bool shape_count(const struct shape *s, struct dim *out)
{
    struct dim n = dim_of(1);
    for (uint32_t i = 0; i < s->rank; i++) {
        if (!dim_multiply(n, s->dims[i], &n)) {
            return false;
        }
    }
    *out = n;
    return true;
}

int64_t shape_count_value(const struct shape *s, const int64_t *symbol_values)
{
    int64_t n = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < s->rank; i++) {
        int64_t d = dim_value(s->dims[i], symbol_values);
        is_empty = is_empty || d == 0;
        if (d < 0 || (d != 0 && __builtin_mul_overflow(n, d, &n))) {
            return -1;
        }
    }
    return is_empty ? 0 : n;
}

bool shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out)
{
    struct shape r = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (uint32_t i = 0; i < r.rank; i++) {
        uint32_t ia = i + a->rank, ib = i + b->rank; /* index + rank, to stay unsigned */
        struct dim da = ia < r.rank ? dim_of(1) : a->dims[ia - r.rank];
        struct dim db = ib < r.rank ? dim_of(1) : b->dims[ib - r.rank];
        if (dim_is(da, 1)) {
            r.dims[i] = db;
        } else if (dim_is(db, 1) || dim_equal(da, db)) {
            r.dims[i] = da;
        } else {
            return false;
        }
    }
    *out = r;
    return true;
}

void dim_print(struct text *t, struct dim d, const char *const *symbol_names)
{
    if (d.factor != 1 || d.symbols[0] == 0) {
        text_add(t, "%lld", (long long)d.factor);
    }
    for (uint32_t i = 0; i < MAX_DIM_SYMBOLS && d.symbols[i] != 0; i++) {
        text_add(t, "%s%s", d.factor != 1 || i > 0 ? "*" : "", symbol_names[d.symbols[i]]);
    }
}

void shape_print(struct text *t, const struct shape *s, const char *const *symbol_names)
{
    for (uint32_t i = 0; i < s->rank; i++) {
        text_add(t, i > 0 ? "," : "");
        dim_print(t, s->dims[i], symbol_names);
    }
}
