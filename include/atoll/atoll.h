/* A model as C calls. A trace records them; what it records is trained (train.h) or called
 * (compile.h). Each call remembers its line of your file, so a mistake is reported there.
 *
 *     atoll_trace *t = atoll_trace_create("regression");
 *     int64_t n = atoll_symbol(t, "n");
 *     atoll_value x = atoll_input(t, "x", ATOLL_F32, ATOLL_DIMS(n, 8));
 *     atoll_value y = atoll_input(t, "y", ATOLL_F32, ATOLL_DIMS(n, 1));
 *     atoll_value w = atoll_param(t, "w", ATOLL_F32, ATOLL_DIMS(1, 8), NULL);
 *     atoll_value b = atoll_param(t, "b", ATOLL_F32, ATOLL_DIMS(1), NULL);
 *     atoll_output(t, "loss", atoll_mse_loss(atoll_linear(x, w, b), y));
 *     atoll_error error = {0};
 *     if (atoll_trace_error(t, &error) != ATOLL_OK) { puts(error.text); }
 *     atoll_trace_destroy(t);
 *
 * Nothing needs checking on the way: a bad call records the error (the first one stays) and gives
 * a value that later calls pass on. A trace and its values belong to the thread that created it.
 * The ops are in ops.h, layers made of them in layers.h. */
#ifndef ATOLL_ATOLL_H
#define ATOLL_ATOLL_H

#include "atoll/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A value of a trace, by value. {0, 0} is none. */
typedef struct atoll_value {
    uint32_t trace, id;
} atoll_value;

/* A line of your program. */
typedef struct atoll_site {
    const char *file; /* must outlive the trace, as __FILE__ does */
    uint32_t line;
} atoll_site;
#ifndef __cplusplus
#define ATOLL_HERE ((atoll_site){__FILE__, __LINE__})
#endif

/* ---- traces ---- */

typedef struct atoll_trace atoll_trace;
/* Yours to destroy; NULL when the host has no memory. name (NULL: "model") is copied. */
atoll_trace *atoll_trace_create(const char *name);
/* Its values are stale from here on: using one is an error where it is used. NULL is accepted. */
void atoll_trace_destroy(atoll_trace *t);
/* The first mistake: its status, and its line in *error. OK when there is none; OUT_OF_MEMORY when
 * the host had none left. */
atoll_status atoll_trace_error(atoll_trace *t, atoll_error *error);
/* The model as text (docs/graph.md), lent until the next call on the trace; NULL after an error. */
const char *atoll_trace_text(atoll_trace *t);

/* ---- leaves: what a model is given ---- */

/* A size that is not known yet, to stand among the dims of inputs: ATOLL_DIMS(n, 64). */
#define atoll_symbol(...) atoll_symbol_at(ATOLL_HERE, __VA_ARGS__)
int64_t atoll_symbol_at(atoll_site site, atoll_trace *t, const char *name);

/* A tensor given to each call. */
#define atoll_input(...) atoll_input_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_input_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape);
/* A trainable tensor. init: "zeros", "ones", a number, "uniform:BOUND", "normal:STD", "linear"
 * (uniform within 1 / sqrt(last size)); NULL: linear for rank 2 and more, else zeros. The numbers
 * depend on the seed of the run and the name alone. */
#define atoll_param(...) atoll_param_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_param_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape, const char *init);
/* A tensor kept with the model, not trained: changed by atoll_update only. */
#define atoll_buffer(...) atoll_buffer_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_buffer_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                            atoll_dims shape, const char *init);
/* A tensor carried from step to step. In training an i64 scalar that nothing updates is a seed and
 * moves by one each step. */
#define atoll_state(...) atoll_state_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_state_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape, const char *init);
/* A number that may change with every call without a recompile, such as a learning rate. */
#define atoll_scalar(...) atoll_scalar_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_scalar_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                            double number);
/* A number that is part of the model. It takes part at the precision of what it meets:
 * atoll_mul(x, atoll_number(t, 0.5)) has x's dtype. */
#define atoll_number(...) atoll_number_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_number_at(atoll_site site, atoll_trace *t, double number);

/* ---- results ---- */

/* Names what the model returns; training looks for "loss". */
#define atoll_output(...) atoll_output_at(ATOLL_HERE, __VA_ARGS__)
void atoll_output_at(atoll_site site, atoll_trace *t, const char *name, atoll_value v);
/* After the step the leaf (param, buffer or state) takes the value of next, of the same type. */
#define atoll_update(...) atoll_update_at(ATOLL_HERE, __VA_ARGS__)
void atoll_update_at(atoll_site site, atoll_value leaf, atoll_value next);

/* ---- names and facts ---- */

/* Names a value that an op gave, for messages, policies and reports; returns it. */
#define atoll_name(...) atoll_name_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_name_at(atoll_site site, atoll_value v, const char *name);
/* Between begin and end, names of leaves and values get "scope." in front; scopes nest. */
#define atoll_scope_begin(...) atoll_scope_begin_at(ATOLL_HERE, __VA_ARGS__)
void atoll_scope_begin_at(atoll_site site, atoll_trace *t, const char *name);
#define atoll_scope_end(...) atoll_scope_end_at(ATOLL_HERE, __VA_ARGS__)
void atoll_scope_end_at(atoll_site site, atoll_trace *t);

/* Of a value: its dtype, rank and sizes. Of no value, or after an error: ATOLL_NO_DTYPE, 0 and 0.
 * axis counts from the end when negative. A symbol's size is what atoll_symbol gave. */
atoll_dtype atoll_dtype_of(atoll_value v);
uint32_t atoll_rank(atoll_value v);
#define atoll_size_of(...) atoll_size_of_at(ATOLL_HERE, __VA_ARGS__)
int64_t atoll_size_of_at(atoll_site site, atoll_value v, int axis);

/* ---- what ops.h is made of ---- */

enum atoll_attr_kind {
    ATOLL_ATTR_INT,
    ATOLL_ATTR_FLOAT,
    ATOLL_ATTR_BOOL,
    ATOLL_ATTR_INTS,
    ATOLL_ATTR_DIMS,
    ATOLL_ATTR_DTYPE,
    ATOLL_ATTR_TEXT
};
/* One attribute; kind says which member counts. */
typedef struct atoll_attr {
    enum atoll_attr_kind kind;
    union {
        int64_t i; /* int, bool, dtype */
        double f;
        const atoll_dims *dims; /* ints, dims */
        const char *text;
    } is;
} atoll_attr;
/* An op by its number, with all its attributes in the table's order. t may be NULL when there are
 * operands; operands behind the last that is not {0, 0} are left out. */
atoll_value atoll_op(atoll_site site, atoll_trace *t, uint32_t op, const atoll_value *operands,
                     uint32_t n_operands, const atoll_attr *attrs, uint32_t n_attrs);

#ifdef __cplusplus
}
#endif

#ifndef __cplusplus
#include "atoll/ops.h"
#endif

#endif
