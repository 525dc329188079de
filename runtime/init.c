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

static status init_values(struct tensor *out, const char *name, const char *init, uint64_t seed,
                          uint64_t stream, struct error *e)
{
    char *end;
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
                    name, init);
    }
    if (is_uniform || is_normal) {
        draw(out, seed, stream, number, is_normal);
    } else {
        fill(out, number);
    }
    return ATOLL_OK;
}

/* A part of an f32 tensor that is kept in three: its bf16, or a byte of the rest. */
static const char *const part_names[] = {"high:", "byte0:", "byte1:"};

static float part_of(float whole, size_t part)
{
    uint32_t rest = (uint32_t)(int32_t)rest_bf16(whole);
    return part == 0 ? high_bf16(whole) : (float)(int32_t)(part == 1 ? rest & 255U : rest >> 8);
}

/* "STREAM:TEXT" behind a part's name: the tensor that TEXT gives with that stream, taken apart. */
static status init_part(struct tensor *out, const char *name, const char *init, uint64_t seed,
                        size_t part, struct error *e)
{
    struct tensor whole = *out;
    char *text;
    uint64_t stream = strtoull(init, &text, 10);
    whole.dtype = F32;
    whole.data = malloc(tensor_bytes(&whole) + 1);
    if (whole.data == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = *text == ':' ? init_values(&whole, name, text + 1, seed, stream, e)
                               : fail(e, ATOLL_USAGE, "%%%s: init: expected STREAM:TEXT behind %s",
                                      name, part_names[part]);
    const float *from = whole.data;
    for (int64_t i = 0; i < tensor_count(out) && code == ATOLL_OK; i++) {
        dtype_store(out->dtype, (char *)out->data + (size_t)i * dtype_info[out->dtype].bytes,
                    (double)part_of(from[i], part));
    }
    free(whole.data);
    return code;
}

status init_leaf(const struct node *n, uint64_t seed, struct tensor *out, struct error *e)
{
    const char *init = node_text(n, "init");
    uint64_t stream = hash_text(n->name != NULL ? n->name : "", 7);
    bool is_weight = n->op == OP_param && out->rank >= 2;
    if (init[0] == '\0') {
        init = is_weight ? "linear" : "zeros";
    }
    for (size_t i = 0; i < ARRAY_LEN(part_names); i++) {
        size_t length = strlen(part_names[i]);
        if (strncmp(init, part_names[i], length) == 0) {
            return init_part(out, n->name, init + length, seed, i, e);
        }
    }
    return init_values(out, n->name, init, seed, stream, e);
}
