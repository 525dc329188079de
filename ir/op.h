/* The op table as data: op_info[op] is one row of ops.def. */
#ifndef ATOLL_IR_OP_H
#define ATOLL_IR_OP_H

#include "dim.h"
#include "dtype.h"

enum op {
    OP_NONE,
#define OP(name, ...) OP_##name,
#include "ops.def"
#undef OP
    N_OPS
};

enum op_kind {
    LEAF,
    ELEMENTWISE,
    REDUCTION,
    CONTRACTION,
    VIEW,
    INDEX,
    RANDOM,
    COMPOSITE,
    TRAINING
};
enum op_types { TYPES_F, TYPES_FI, TYPES_C, TYPES_B, TYPES_W, TYPES_ANY, TYPES_X };
enum amp_class { AMP_INHERIT, AMP_LOWER, AMP_FP32, AMP_FP32_OUT, AMP_PROMOTE, AMP_BANNED };

enum { MAX_ATTRS = 8, VARIADIC = 255 };

enum attr_kind { ATTR_INT, ATTR_FLOAT, ATTR_BOOL, ATTR_INTS, ATTR_DIMS, ATTR_DTYPE, ATTR_TEXT };
extern const char *const attr_kind_name[7]; /* "int", "float", ... as ops.def spells them */

struct attr {
    const char *name;
    enum attr_kind kind;
    uint32_t n_ints;     /* ATTR_INTS */
    int64_t i;           /* ATTR_INT, ATTR_BOOL */
    double f;            /* ATTR_FLOAT */
    const int64_t *ints; /* ATTR_INTS */
    struct shape dims;   /* ATTR_DIMS; a factor of -1 is "infer" in reshape */
    enum dtype dtype;    /* ATTR_DTYPE; DTYPE_NONE: not given */
    const char *text;    /* ATTR_TEXT, never NULL */
};

struct graph;
struct node;
/* A shape rule: checks operands, sets shape (and dtype where types is X) of a node whose op,
 * operands and attributes are set; records what is wrong in the graph's error. */
typedef status infer_fn(struct graph *g, struct node *n);
#define OP(name, min, max, kind, types, shape, ...) infer_fn infer_##shape;
#include "ops.def"
#undef OP

struct op_row {
    const char *name;
    uint8_t min_operands, max_operands; /* VARIADIC: as many as a node may have */
    enum op_kind kind;
    enum op_types types;
    infer_fn *infer;
    enum amp_class cuda, cpu;
    const char *attrs;   /* schema text */
    const char *meaning; /* "0" where decompose or a library defines it */
    const char *doc;
};
extern const struct op_row op_info[N_OPS];

/* Does the meaning call a function of the prelude (EXP, SQRT, ...) or divide? Such an op costs many
 * cheap ones. */
bool op_is_function(enum op op);

/* OP_NONE when unknown. */
enum op op_named(const char *name, size_t length);

/* The same value; the names are not looked at. Floats by their bits. */
bool attr_equal(const struct attr *a, const struct attr *b);

/* The schema of an op, parsed: names, kinds and defaults in the table's order. Returns the count;
 * `required` bit i is set when attribute i has no default. Texts are allocated in the arena. */
uint32_t op_schema(enum op op, struct arena *a, struct attr out[MAX_ATTRS], uint32_t *required);

#endif
