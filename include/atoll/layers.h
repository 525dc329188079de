/* Layers: parameters with PyTorch's names and first values, and the ops over them.
 *
 *     atoll_value h = atoll_embedding_layer(tokens, "embed", 256, 64);
 *     h = atoll_block_layer(h, "block1", 4, 256, .is_causal = true);
 *     h = atoll_layer_norm_layer(h, "norm");
 *     atoll_value logits = atoll_linear_layer(h, "head", 256, .has_bias = false);
 *
 * The layer's name and a dot stand before the names of its parameters ("head.weight"), open scopes
 * (atoll_scope_begin) before that. Parameters are f32; policies lower them. What a layer records
 * has the line of its call. Sizes that make a parameter's shape must be numbers, others may be
 * symbols. */
#ifndef ATOLL_LAYERS_H
#define ATOLL_LAYERS_H

#include <stdbool.h>

#include "atoll/atoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* x (..,K) -> (..,n_out). weight (n_out,K) and bias (n_out), uniform within 1 / sqrt(K). */
typedef struct {
    atoll_site site;
    bool has_bias;
    atoll_value x;
    const char *name;
    int64_t n_out;
} atoll_linear_layer_args;
atoll_value atoll_linear_layer_call(atoll_linear_layer_args s);
#define atoll_linear_layer(...) atoll_linear_layer_call((atoll_linear_layer_args){ \
    .site = {__FILE__, __LINE__}, .has_bias = true, __VA_ARGS__})

/* i64 or i32 indices (..) -> (..,width). weight (n_rows,width), standard normal. The row
 * padding_idx gets no gradient; left out: there is none. */
typedef struct {
    atoll_site site;
    int64_t padding_idx;
    atoll_value indices;
    const char *name;
    int64_t n_rows, width;
} atoll_embedding_layer_args;
atoll_value atoll_embedding_layer_call(atoll_embedding_layer_args s);
#define atoll_embedding_layer(...) atoll_embedding_layer_call((atoll_embedding_layer_args){ \
    .site = {__FILE__, __LINE__}, .padding_idx = -INT64_MAX, __VA_ARGS__})

/* Over the last axis; the same shape. weight (K), ones; a layer norm has bias (K), zeros. */
typedef struct {
    atoll_site site;
    bool is_rms, has_bias;
    double eps;
    atoll_value x;
    const char *name;
} atoll_norm_layer_args;
atoll_value atoll_norm_layer_call(atoll_norm_layer_args s);
#define atoll_layer_norm_layer(...) atoll_norm_layer_call((atoll_norm_layer_args){ \
    .site = {__FILE__, __LINE__}, .has_bias = true, .eps = 1e-5, __VA_ARGS__})
#define atoll_rms_norm_layer(...) atoll_norm_layer_call((atoll_norm_layer_args){ \
    .site = {__FILE__, __LINE__}, .is_rms = true, .eps = 1.1920928955078125e-07, __VA_ARGS__})

/* Each element is 0 with probability p, else divided by 1 - p. The state seed (i64) moves by one
 * each training step; every layer draws numbers of its own. is_off: x itself, for evaluation. */
typedef struct {
    atoll_site site;
    bool is_off;
    atoll_value x;
    const char *name;
    double p;
} atoll_dropout_layer_args;
atoll_value atoll_dropout_layer_call(atoll_dropout_layer_args s);
#define atoll_dropout_layer(...) atoll_dropout_layer_call((atoll_dropout_layer_args){ \
    .site = {__FILE__, __LINE__}, .is_off = false, __VA_ARGS__})

/* x (..,K) -> (..,n_out): linear to n_hidden (fc1), activation, linear (fc2). activation: "gelu",
 * "gelu_tanh", "relu", "silu", "tanh", "sigmoid". */
typedef struct {
    atoll_site site;
    bool has_bias;
    const char *activation;
    atoll_value x;
    const char *name;
    int64_t n_hidden, n_out;
} atoll_mlp_layer_args;
atoll_value atoll_mlp_layer_call(atoll_mlp_layer_args s);
#define atoll_mlp_layer(...) atoll_mlp_layer_call((atoll_mlp_layer_args){ \
    .site = {__FILE__, __LINE__}, .has_bias = true, .activation = "gelu", __VA_ARGS__})

/* Self-attention of x (B,T,C) -> (B,T,C) with n_heads heads of C / n_heads: in_proj.weight (3C,C)
 * for query, key and value, Xavier uniform, out_proj.weight (C,C) as a linear's, biases zeros.
 * is_causal: position i sees positions up to i; T must then be a number. */
typedef struct {
    atoll_site site;
    bool is_causal, has_bias;
    atoll_value x;
    const char *name;
    int64_t n_heads;
} atoll_attention_layer_args;
atoll_value atoll_attention_layer_call(atoll_attention_layer_args s);
#define atoll_attention_layer(...) atoll_attention_layer_call((atoll_attention_layer_args){ \
    .site = {__FILE__, __LINE__}, .has_bias = true, __VA_ARGS__})

/* A transformer block, x (B,T,C) -> (B,T,C): x + attention(norm1(x)), then that + mlp(norm2(that))
 * with n_hidden in between; parameters attn.*, mlp.*, norm1.*, norm2.*. */
typedef struct {
    atoll_site site;
    bool is_causal, is_rms, has_bias;
    const char *activation;
    atoll_value x;
    const char *name;
    int64_t n_heads, n_hidden;
} atoll_block_layer_args;
atoll_value atoll_block_layer_call(atoll_block_layer_args s);
#define atoll_block_layer(...) atoll_block_layer_call((atoll_block_layer_args){ \
    .site = {__FILE__, __LINE__}, .has_bias = true, .activation = "gelu", __VA_ARGS__})

/* clang-format on */

#ifdef __cplusplus
}
#endif

#endif
