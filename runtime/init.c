/* First values of leaves. Random numbers are Philox over (seed, hash of the name, index), rounded
 * once to the leaf's dtype. */
#include "init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

static void fill(struct tensor *t, double number)
{
    size_t bytes = dtype_info[t->dtype].bytes;
    unsigned char *p = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        dtype_store(t->dtype, p + (size_t)i * bytes, number);
    }
}

static void draw(struct tensor *t, uint64_t seed, uint64_t stream, double scale, bool is_normal)
{
    size_t bytes = dtype_info[t->dtype].bytes;
    unsigned char *p = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        uint64_t at = (uint64_t)i;
        float v = is_normal ? normal_f32(random_u32(seed, stream, 2 * at),
                                         random_u32(seed, stream, 2 * at + 1))
                            : 2.0f * uniform_f32(random_u32(seed, stream, at)) - 1.0f;
        dtype_store(t->dtype, p + (size_t)i * bytes, (double)v * scale);
    }
}

status init_leaf(const struct node *n, uint64_t seed, struct tensor *out, struct error *e)
{
    const char *init = node_text(n, "init");
    uint64_t stream = hash_text(n->name != NULL ? n->name : "", 7);
    bool is_weight = n->op == OP_param && out->rank >= 2;
    char *end;
    if (init[0] == '\0') {
        init = is_weight ? "linear" : "zeros";
    }
    if (strcmp(init, "zeros") == 0 || strcmp(init, "ones") == 0) {
        fill(out, init[0] == 'o' ? 1.0 : 0.0);
        return ATOLL_OK;
    }
    if (strcmp(init, "linear") == 0) {
        int64_t fan_in = out->rank > 0 ? out->shape[out->rank - 1] : 1;
        draw(out, seed, stream, fan_in > 0 ? 1.0 / sqrt((double)fan_in) : 0.0, false);
        return ATOLL_OK;
    }
    bool is_uniform = strncmp(init, "uniform:", 8) == 0,
         is_normal = strncmp(init, "normal:", 7) == 0;
    const char *text = is_uniform ? init + 8 : is_normal ? init + 7 : init;
    double number = strtod(text, &end);
    if (end == text || *end != '\0') {
        return fail(e, ATOLL_USAGE,
                    "%%%s: init \"%s\": expected zeros, ones, a number, uniform:BOUND, normal:STD "
                    "or linear",
                    n->name, init);
    }
    if (is_uniform || is_normal) {
        draw(out, seed, stream, number, is_normal);
    } else {
        fill(out, number);
    }
    return ATOLL_OK;
}
