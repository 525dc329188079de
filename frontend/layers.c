/* Layers over the capture API: each opens a scope of its name, makes its parameters, records its
 * ops at the line of the user's call. First values as PyTorch's modules have them. */
#include "atoll/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/capture.h"

/* ---- what layers share ---- */

/* The scope of a layer is open from begin to end; its trace, or NULL and an error. */
static struct atoll_trace *begin(atoll_site site, const char *layer, atoll_value x,
                                 const char *name)
{
    struct atoll_trace *t = capture_of(site, x, layer);
    if (t == NULL || t->error.code != ATOLL_OK) {
        return NULL;
    }
    if (name == NULL || name[0] == '\0') {
        capture_fail(t, site, ATOLL_USAGE, "%s: the name is %s, expected a text", layer,
                     name == NULL ? "NULL" : "empty");
        return NULL;
    }
    atoll_scope_begin_at(site, t, name);
    return t->error.code == ATOLL_OK ? t : NULL;
}

static atoll_value end(atoll_site site, struct atoll_trace *t, atoll_value v)
{
    atoll_scope_end_at(site, t);
    return v;
}

static atoll_value nothing(atoll_value x)
{
    return (atoll_value){x.trace, 0};
}

/* A size that shapes a parameter: a number; 0 and an error otherwise. */
static int64_t fixed_size(atoll_site site, struct atoll_trace *t, const char *layer, atoll_value x,
                          int axis)
{
    int64_t size = atoll_size_of_at(site, x, axis);
    if (t->error.code == ATOLL_OK && size < 1) {
        capture_fail(t, site, ATOLL_SHAPE,
                     "%s: size %d of x is %s, expected a number above 0: parameters have it", layer,
                     axis, size_is_symbol(size) ? "a symbol" : "0");
    }
    return t->error.code == ATOLL_OK ? size : 0;
}

static bool is_positive(atoll_site site, struct atoll_trace *t, const char *layer, const char *what,
                        int64_t n)
{
    if (n < 1) {
        capture_fail(t, site, ATOLL_USAGE, "%s: %s is %lld, expected 1 or more", layer, what,
                     (long long)n);
    }
    return n >= 1;
}

static atoll_value weight(atoll_site site, struct atoll_trace *t, const char *name,
                          atoll_dims shape, const char *init)
{
    return atoll_param_at(site, t, name, ATOLL_F32, shape, init);
}

/* "uniform:BOUND" */
static const char *uniform(char text[48], double bound)
{
    snprintf(text, 48, "uniform:%.17g", bound);
    return text;
}

/* ---- linear, embedding, norms, dropout ---- */

atoll_value atoll_linear_layer_call(atoll_linear_layer_args s)
{
    static const char layer[] = "atoll_linear_layer";
    char init[48];
    struct atoll_trace *t = begin(s.site, layer, s.x, s.name);
    int64_t k = t != NULL ? fixed_size(s.site, t, layer, s.x, -1) : 0;
    if (k == 0 || !is_positive(s.site, t, layer, "n_out", s.n_out)) {
        return nothing(s.x);
    }
    atoll_value w = weight(s.site, t, "weight", ATOLL_DIMS(s.n_out, k), "linear"), b = {0};
    if (s.has_bias) {
        b = weight(s.site, t, "bias", ATOLL_DIMS(s.n_out), uniform(init, 1.0 / sqrt((double)k)));
    }
    return end(s.site, t, atoll_linear(s.x, w, b, .site = s.site));
}

atoll_value atoll_embedding_layer_call(atoll_embedding_layer_args s)
{
    static const char layer[] = "atoll_embedding_layer";
    struct atoll_trace *t = begin(s.site, layer, s.indices, s.name);
    if (t == NULL || !is_positive(s.site, t, layer, "n_rows", s.n_rows) ||
        !is_positive(s.site, t, layer, "width", s.width)) {
        return nothing(s.indices);
    }
    atoll_value w = weight(s.site, t, "weight", ATOLL_DIMS(s.n_rows, s.width), "normal:1");
    return end(s.site, t,
               atoll_embedding(w, s.indices, .padding_idx = s.padding_idx, .site = s.site));
}

atoll_value atoll_norm_layer_call(atoll_norm_layer_args s)
{
    const char *layer = s.is_rms ? "atoll_rms_norm_layer" : "atoll_layer_norm_layer";
    struct atoll_trace *t = begin(s.site, layer, s.x, s.name);
    int64_t k = t != NULL ? fixed_size(s.site, t, layer, s.x, -1) : 0;
    if (k == 0) {
        return nothing(s.x);
    }
    atoll_value w = weight(s.site, t, "weight", ATOLL_DIMS(k), "ones"), b = {0};
    if (s.is_rms) {
        return end(s.site, t, atoll_rms_norm(s.x, w, .eps = s.eps, .site = s.site));
    }
    if (s.has_bias) {
        b = weight(s.site, t, "bias", ATOLL_DIMS(k), "zeros");
    }
    return end(s.site, t, atoll_layer_norm(s.x, w, b, .eps = s.eps, .site = s.site));
}

/* Layers share no stream: it is the hash of the whole name, so that no order of calls matters. */
atoll_value atoll_dropout_layer_call(atoll_dropout_layer_args s)
{
    struct atoll_trace *t = begin(s.site, "atoll_dropout_layer", s.x, s.name);
    if (t == NULL) {
        return nothing(s.x);
    }
    if (s.is_off) {
        return end(s.site, t, s.x);
    }
    int64_t stream = (int64_t)(hash_text(t->scope, 0) >> 33);
    atoll_value seed = atoll_state_at(s.site, t, "seed", ATOLL_I64, ATOLL_SCALAR, "0");
    return end(s.site, t, atoll_dropout(s.x, seed, .p = s.p, .stream = stream, .site = s.site));
}

/* ---- blocks ---- */

static atoll_value activate(atoll_site site, struct atoll_trace *t, const char *name, atoll_value x)
{
    if (name != NULL && strcmp(name, "gelu") == 0) {
        return atoll_gelu(x, .site = site);
    }
    if (name != NULL && strcmp(name, "gelu_tanh") == 0) {
        return atoll_gelu(x, .form = "tanh", .site = site);
    }
    static const struct {
        const char *name;
        uint32_t op;
    } plain[] = {{"relu", OP_relu}, {"silu", OP_silu}, {"tanh", OP_tanh}, {"sigmoid", OP_sigmoid}};
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(plain); i++) {
        if (strcmp(name, plain[i].name) == 0) {
            return atoll_op(site, t, plain[i].op, &x, 1, NULL, 0);
        }
    }
    capture_fail(t, site, ATOLL_USAGE,
                 "activation '%s': expected gelu, gelu_tanh, relu, silu, tanh or sigmoid",
                 name != NULL ? name : "NULL");
    return nothing(x);
}

atoll_value atoll_mlp_layer_call(atoll_mlp_layer_args s)
{
    struct atoll_trace *t = begin(s.site, "atoll_mlp_layer", s.x, s.name);
    if (t == NULL) {
        return nothing(s.x);
    }
    atoll_value h =
        atoll_linear_layer(s.x, "fc1", s.n_hidden, .has_bias = s.has_bias, .site = s.site);
    h = activate(s.site, t, s.activation, h);
    h = atoll_linear_layer(h, "fc2", s.n_out, .has_bias = s.has_bias, .site = s.site);
    return end(s.site, t, h);
}

/* One of query, key and value: (B,T,3C) -> (B,H,T,C/H). The batch may be a symbol: -1. */
static atoll_value head(const atoll_attention_layer_args *s, atoll_value qkv, int64_t which,
                        int64_t width, int64_t length)
{
    atoll_value v = atoll_slice(qkv, .axis = 2, .start = which * width, .stop = (which + 1) * width,
                                .site = s->site);
    v = atoll_reshape(v, ATOLL_DIMS(-1, length, s->n_heads, width / s->n_heads), .site = s->site);
    return atoll_transpose(v, .perm = ATOLL_AXES(0, 2, 1, 3), .site = s->site);
}

/* Scores (B,H,T,T) with -inf where the key lies behind the query. */
static atoll_value mask_future(atoll_site site, struct atoll_trace *t, atoll_value scores,
                               int64_t length)
{
    atoll_value query = atoll_iota(t, ATOLL_DIMS(length, length), .axis = 0, .site = site);
    atoll_value key = atoll_iota(t, ATOLL_DIMS(length, length), .axis = 1, .site = site);
    atoll_value is_seen = atoll_le(key, query, .site = site);
    return atoll_where(is_seen, scores, atoll_number_at(site, t, -(double)INFINITY), .site = site);
}

static atoll_value attend(const atoll_attention_layer_args *s, struct atoll_trace *t, int64_t width)
{
    char init[48];
    int64_t length = atoll_size_of_at(s->site, s->x, 1);
    /* Xavier: fan in C, fan out 3C */
    atoll_value w = weight(s->site, t, "in_proj.weight", ATOLL_DIMS(3 * width, width),
                           uniform(init, sqrt(6.0 / (4.0 * (double)width))));
    atoll_value out_w = weight(s->site, t, "out_proj.weight", ATOLL_DIMS(width, width), "linear");
    atoll_value b = {0}, out_b = {0};
    if (s->has_bias) {
        b = weight(s->site, t, "in_proj.bias", ATOLL_DIMS(3 * width), "zeros");
        out_b = weight(s->site, t, "out_proj.bias", ATOLL_DIMS(width), "zeros");
    }
    atoll_value qkv = atoll_linear(s->x, w, b, .site = s->site);
    atoll_value q = head(s, qkv, 0, width, length), k = head(s, qkv, 1, width, length),
                v = head(s, qkv, 2, width, length);
    double scale = 1.0 / sqrt((double)(width / s->n_heads));
    atoll_value scores = atoll_mul(atoll_matmul(q, k, .transpose_b = true, .site = s->site),
                                   atoll_number_at(s->site, t, scale), .site = s->site);
    if (s->is_causal) {
        scores = mask_future(s->site, t, scores, length);
    }
    atoll_value h = atoll_matmul(atoll_softmax(scores, .site = s->site), v, .site = s->site);
    h = atoll_transpose(h, .perm = ATOLL_AXES(0, 2, 1, 3), .site = s->site);
    h = atoll_reshape(h, ATOLL_DIMS(-1, length, width), .site = s->site);
    return atoll_linear(h, out_w, out_b, .site = s->site);
}

atoll_value atoll_attention_layer_call(atoll_attention_layer_args s)
{
    static const char layer[] = "atoll_attention_layer";
    struct atoll_trace *t = begin(s.site, layer, s.x, s.name);
    int64_t width = t != NULL ? fixed_size(s.site, t, layer, s.x, -1) : 0;
    if (width == 0 || !is_positive(s.site, t, layer, "n_heads", s.n_heads)) {
        return nothing(s.x);
    }
    if (atoll_rank(s.x) != 3) {
        capture_fail(t, s.site, ATOLL_SHAPE, "%s: x has rank %u, expected 3: (B,T,C)", layer,
                     atoll_rank(s.x));
        return nothing(s.x);
    }
    if (width % s.n_heads != 0) {
        capture_fail(t, s.site, ATOLL_SHAPE, "%s: %lld channels over %lld heads is not whole",
                     layer, (long long)width, (long long)s.n_heads);
        return nothing(s.x);
    }
    return end(s.site, t, attend(&s, t, width));
}

atoll_value atoll_block_layer_call(atoll_block_layer_args s)
{
    static const char layer[] = "atoll_block_layer";
    struct atoll_trace *t = begin(s.site, layer, s.x, s.name);
    int64_t width = t != NULL ? fixed_size(s.site, t, layer, s.x, -1) : 0;
    if (width == 0) {
        return nothing(s.x);
    }
    atoll_norm_layer_args norm = {.site = s.site,
                                  .is_rms = s.is_rms,
                                  .has_bias = true,
                                  .eps = s.is_rms ? 1.1920928955078125e-07 : 1e-5};
    norm.x = s.x;
    norm.name = "norm1";
    atoll_value h =
        atoll_attention_layer(atoll_norm_layer_call(norm), "attn", s.n_heads,
                              .is_causal = s.is_causal, .has_bias = s.has_bias, .site = s.site);
    h = atoll_add(s.x, h, .site = s.site);
    norm.x = h;
    norm.name = "norm2";
    atoll_value m =
        atoll_mlp_layer(atoll_norm_layer_call(norm), "mlp", s.n_hidden, width,
                        .has_bias = s.has_bias, .activation = s.activation, .site = s.site);
    return end(s.site, t, atoll_add(h, m, .site = s.site));
}
