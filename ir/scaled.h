/* Products of f8 operands with scales: how an operand (R,K), K the contraction axis, is cut into
 * parts that share a scale. A scale tensor is f32 of rank 2: one element a part, and holds the
 * reciprocal of what the values were multiplied by when they were quantised. */
#ifndef ATOLL_IR_SCALED_H
#define ATOLL_IR_SCALED_H

#include "graph.h"

enum scale_kind {
    SCALE_TENSOR,
    SCALE_ROW,
    SCALE_BLOCK,
    SCALE_TILE,
    SCALE_MX,
    /* As cuBLASLt reads them (passes/fp8_paths.c lays them so): */
    SCALE_BLOCK_T,  /* (K/128,R): those of BLOCK, transposed */
    SCALE_TILE_4,   /* (R/128,K/128) of TILE, rows filled up with zeros to a multiple of 4 */
    SCALE_MX_TILED, /* MX as E8M0 bytes, filled up with zeros to (128i,4j), a tile of 128x4 after
                       another, in one the byte of (r,c) at r%32*16 + r/32*4 + c */
    N_SCALE_KINDS
};

struct scale_kind_row {
    const char *name;
    int64_t rows, depth;   /* of a part: along R and along K; 0: all of it */
    const char *text;      /* for notes */
    enum scale_kind plain; /* that of the scales themselves, however they lie; R,K in order */
    enum dtype dtype;      /* of the scale tensor: f32, or u8 that stands for 2^(u8-127) */
};
extern const struct scale_kind_row scale_kind_info[N_SCALE_KINDS];

/* False when there is none of that name. */
bool scale_kind_named(const char *name, enum scale_kind *out);
/* Of operand 0 (a) or 1 (b) of a scaled_matmul. */
enum scale_kind node_scale_kind(const struct node *n, uint32_t operand);
/* The shape of the scales of an operand (R,K); false when a size is no multiple of its part's, or
 * when it would have to be filled up and is a symbol. */
bool scale_shape(enum scale_kind kind, const struct shape *operand, struct shape *out);
/* Where in its scale tensor the part at (r,p) of an operand's grid of parts lies, r along R and p
 * along K; size: (R,K). */
int64_t scale_index(enum scale_kind kind, const int64_t size[2], int64_t r, int64_t p);
/* How cuBLASLt wants scales of a kind; the kind itself where that is how they are. */
enum scale_kind scale_laid_out(enum scale_kind kind);
/* NULL, or what cuBLASLt lacks for a product with scales of these kinds on an architecture (90 for
 * sm_90): such a product is written out in f32 instead (passes/fp8_paths.c). */
const char *scaled_lack(enum scale_kind a, enum scale_kind b, int arch);
/* The quantize node an f8 value comes from, seen through views and zeros filled in, f8 leaves left
 * out; 0: none. */
value scaled_source(const struct graph *g, value v);
/* The f32 value that a scale tensor holds, however it lies: behind views, zeros filled in, and the
 * bytes of E8M0. */
value scaled_inverse(const struct graph *g, value v);
/* The value behind reshapes, expands, transposes and slices. */
value behind_views(const struct graph *g, value v);

#endif
