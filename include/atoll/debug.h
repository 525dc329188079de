/* Finding precision faults in a training: which op made this NaN, what would its values lose in a
 * narrower dtype, how far apart are two runs. The same as `atoll nonfinite`, `ranges` and `compare`
 * (docs/diagnose.md).
 *
 *     atoll_training_options options = {.policy = "fp16", .keeps_values = 1};
 *     atoll_training_open(trace, &options, &training, &error);
 *     atoll_training_feed(training, &x, &error);
 *     while (atoll_debug_step(training, &error) == ATOLL_OK) {
 *         atoll_nonfinite found;
 *         if (atoll_debug_nonfinite(training, &found, &error) == ATOLL_OK && found.kind != 0) {
 *             puts(found.text);          // "forward: %e (exp, model.c:12)[0,3] = inf: overflow"
 *             break;
 *         }
 *     }
 *     atoll_range range;
 *     atoll_debug_range(training, "h1", &range, &error);
 *     printf("%g of h1 would be 0 in f8e4m3\n", range.underflow[ATOLL_NARROW_F8E4M3]);
 *
 * A fused training has to be opened with keeps_values; an eager one shows its values anyway. The
 * error record may be checked at the end: a call whose record holds a failure does nothing. */
#ifndef ATOLL_DEBUG_H
#define ATOLL_DEBUG_H

#include "atoll/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* atoll_training_step, and every value that it computes is recorded: the bits are the same. Copies
 * all of them to the host, so a step takes as much memory as its values have. USAGE: an input was
 * never fed, or the training is fused and was opened without keeps_values; OUT_OF_MEMORY, DEVICE,
 * DATA as for a step. */
atoll_status atoll_debug_step(atoll_training *training, atoll_error *error);

/* ---- nonfinite ---- */

typedef enum atoll_nonfinite_kind {
    ATOLL_ALL_FINITE = 0,
    ATOLL_NONFINITE_GIVEN,    /* an input, parameter or state that held it before the step */
    ATOLL_NONFINITE_OVERFLOW, /* beyond the result's dtype, or beyond f32 in partial sums */
    ATOLL_NONFINITE_INVALID,  /* 0/0, inf - inf, the root of a negative number, ... */
    ATOLL_NONFINITE_DIVISION  /* by zero, and the log of 0 */
} atoll_nonfinite_kind;

/* The first node, in the order of computation, that made a NaN or an infinity itself. */
typedef struct atoll_nonfinite {
    atoll_nonfinite_kind kind;
    const char *phase; /* "forward", "backward" or "update" */
    const char *node;  /* its name, "" where it has none */
    const char *op;    /* of the primitive */
    const char *of;    /* the op of the model that it is a part of, or its own */
    const char *file;  /* "" where it is of no line of the model */
    uint32_t line;
    int64_t element;    /* row-major */
    double number;      /* what it made: NaN, an infinity */
    int is_scaled;      /* a gradient under the loss scale, whose overflow the scaler answers */
    const char *kernel; /* fused: the kernel that it is inside of; "": none */
    char text[700];     /* one line of it all */
} atoll_nonfinite;

/* Of the last atoll_debug_step. Texts are lent until the next one or the close. USAGE when there
 * was none. */
atoll_status atoll_debug_nonfinite(atoll_training *training, atoll_nonfinite *out,
                                   atoll_error *error);

/* ---- ranges ---- */

enum {
    ATOLL_NARROW_F16,
    ATOLL_NARROW_BF16,
    ATOLL_NARROW_F8E4M3,
    ATOLL_NARROW_F8E5M2,
    ATOLL_N_NARROW
};

/* Of one value, over all its elements in all recorded steps. Parts are of 1. */
typedef struct atoll_range {
    uint64_t elements, zeros, nonfinite;
    double amax, min_nonzero;         /* of finite elements; 0: there were none */
    double underflow[ATOLL_N_NARROW]; /* by dtype: the part that the cast would make 0, ... */
    double saturate[ATOLL_N_NARROW];  /* ... and the part beyond its largest number */
} atoll_range;

/* By the name of a value, parameter, gradient ("h1.grad") or state ("opt.v.w1"); a name that
 * several nodes bear is the last one's. NOT_FOUND: no float of that name was computed. */
atoll_status atoll_debug_range(atoll_training *training, const char *name, atoll_range *out,
                               atoll_error *error);
/* Forgets what was gathered: the next step is the first. */
void atoll_debug_forget(atoll_training *training);

/* The value of that name in the last atoll_debug_step, lent until the next one or the close; leaves
 * are as they were before the step. NOT_FOUND. */
atoll_status atoll_debug_value(atoll_training *training, const char *name, atoll_view *out,
                               atoll_error *error);

/* ---- compare ---- */

/* Bits of two trainings of one model: every output of the last step, and every parameter, buffer
 * and state. A NaN equals any NaN, -0 and +0 differ. */
typedef struct atoll_bits {
    uint64_t compared, different; /* elements */
    char first[512];              /* "w1[3]: 0.5 and 0.25", or "" */
} atoll_bits;
/* SHAPE or NOT_FOUND when they have not the same outputs and leaves; USAGE before a step. */
atoll_status atoll_debug_compare(atoll_training *a, atoll_training *b, atoll_bits *out,
                                 atoll_error *error);

/* How far an output of the last step, or a parameter or state, is from that of another training:
 * say under a policy from under fp32. */
typedef struct atoll_distance {
    uint64_t elements, nonfinite; /* nonfinite here: left out of the rest */
    double max_abs, relative_l2, cosine;
    double max_ulp; /* in units of the last place of the dtype here */
} atoll_distance;
/* NOT_FOUND, SHAPE, USAGE. */
atoll_status atoll_debug_distance(atoll_training *from, atoll_training *reference, const char *name,
                                  atoll_distance *out, atoll_error *error);

#ifdef __cplusplus
}
#endif

#endif
