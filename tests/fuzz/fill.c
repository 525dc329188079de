/* Numbers for the leaves of a case. The same leaf name, step and seed give the same bits; leaves
 * whose names say "indices below N" get mostly valid ones. */
#include "fill.h"

#include <stdlib.h>
#include <string.h>

enum { STYLE_PLAIN, STYLE_WHOLE, STYLE_MIXED, STYLE_SPECIAL, STYLE_BITS, STYLE_TINY };

static double special(struct draw *d, enum dtype t)
{
    const struct dtype_row *row = &dtype_info[t];
    double sign = draw_chance(d, 50) ? -1.0 : 1.0;
    switch (draw_below(d, 9)) {
    case 0:
        return sign * (double)__builtin_inf();
    case 1:
        return (double)__builtin_nan("");
    case 2:
        return sign * row->max;
    case 3:
        return sign * row->smallest_normal;
    case 4:
        return sign * row->smallest_normal * 0.375;
    case 5:
        return sign * 0.0;
    case 6:
        return sign * row->smallest_normal * row->epsilon;
    case 7:
        return sign * (1.0 + row->epsilon);
    default:
        return sign;
    }
}

static double plain(struct draw *d)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < 4; i++) {
        sum += (double)(draw_u64(d) >> 40) / 16777216.0;
    }
    return (sum - 2.0) * 1.7;
}

static void fill_float(struct draw *d, uint32_t style, enum dtype t, void *to)
{
    if (style == STYLE_MIXED && draw_chance(d, 92)) {
        style = STYLE_PLAIN;
    }
    if (style == STYLE_BITS) {
        uint64_t bits = draw_u64(d);
        memcpy(to, &bits, dtype_info[t].bytes);
        return;
    }
    double x = style == STYLE_PLAIN   ? plain(d)
               : style == STYLE_WHOLE ? (double)draw_below(d, 9) - 4.0
               : style == STYLE_TINY  ? plain(d) * dtype_info[t].smallest_normal * 2.0
                                      : special(d, t);
    dtype_store(t, to, x);
}

static int64_t whole(struct draw *d, uint32_t style, int64_t limit)
{
    if (limit >= 0) {
        return draw_chance(d, 94) ? (int64_t)draw_below(d, (uint32_t)limit)
                                  : (int64_t)draw_below(d, 2 * (uint32_t)limit + 4) - limit - 2;
    }
    if (style >= STYLE_MIXED && draw_chance(d, 20)) {
        return (int64_t)draw_u64(d);
    }
    return (int64_t)draw_below(d, 11) - 5;
}

void fill_tensor(const struct fuzz_case *c, const char *name, uint64_t step, struct tensor *t)
{
    struct draw d = {hash_text(name, c->data * 1000 + step)};
    const char *mark = name[0] == 'i' ? strchr(name, '_') : NULL;
    int64_t limit = mark != NULL ? strtoll(mark + 1, NULL, 10) : -1;
    size_t bytes = dtype_info[t->dtype].bytes;
    unsigned char *to = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++, to += bytes) {
        if (dtype_is_float(t->dtype)) {
            fill_float(&d, c->style, t->dtype, to);
        } else if (t->dtype == BOOL) {
            *to = (unsigned char)draw_below(&d, 2);
        } else {
            int64_t x = whole(&d, c->style, limit);
            memcpy(to, &x, bytes);
        }
    }
}

int64_t first_difference(const struct tensor *a, const struct tensor *b)
{
    size_t bytes = dtype_info[a->dtype].bytes;
    if (tensor_bytes(a) != tensor_bytes(b)) {
        return 0;
    }
    if (tensor_bytes(a) == 0 || memcmp(a->data, b->data, tensor_bytes(a)) == 0) {
        return -1;
    }
    const unsigned char *x = a->data, *y = b->data;
    for (int64_t i = 0; i < tensor_count(a); i++, x += bytes, y += bytes) {
        if (memcmp(x, y, bytes) == 0) {
            continue;
        }
        double u = dtype_load(a->dtype, x), v = dtype_load(b->dtype, y);
        if (!dtype_is_float(a->dtype) || u == u || v == v) {
            return i;
        }
    }
    return -1;
}
