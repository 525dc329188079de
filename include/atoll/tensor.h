/* Tensors and modules in host memory, and what converting them does.
 *
 *     atoll_tensor *w = atoll_tensor_create(ATOLL_F32, ATOLL_DIMS(2, 3), numbers, &error);
 *     atoll_tensor *half = atoll_tensor_to(w, ATOLL_F16, &error);    a new tensor; w is as it was
 *     atoll_tensor *same = atoll_tensor_to(w, ATOLL_F32, &error);    nothing changes: w itself
 *
 *     atoll_module *m = atoll_module_create(&error);
 *     atoll_module_add(m, "weight", ATOLL_MODULE_PARAM, w, &error);
 *     atoll_module_add(m, "steps", ATOLL_MODULE_BUFFER, counter, &error);    i64
 *     atoll_module_to(m, ATOLL_BF16, &error);    m itself; weight is bf16 now, steps i64 as before
 *
 * The contract:
 *   a tensor   gives a new tensor, or the same one when nothing changes
 *   a module   converts what is registered, parameters and buffers, in place, and gives itself
 *   integers   and bool keep their dtype: a floating cast never turns a counter, an index or a mask
 *              into floats (an explicit cast of one tensor is atoll_tensor_cast)
 *   rounding   once, to nearest, ties to even; what is beyond the range becomes infinite (NaN in
 *              f8e4m3, which has no infinity)
 *
 * Tensors are counted: each one that a call gives you is yours to release, also when it is the same
 * as one you have. They belong to one thread at a time. A training or plan takes one through
 * atoll_tensor_view. Every `error` argument may be NULL; a call whose record holds a failure does
 * nothing. */
#ifndef ATOLL_TENSOR_H
#define ATOLL_TENSOR_H

#include "atoll/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors ---- */

typedef struct atoll_tensor atoll_tensor;

/* A dense row-major tensor, its elements copied from data (NULL: zeros). NULL on failure: SHAPE (a
 * size below 0, more than 8, or too many bytes), DTYPE (no dtype), OUT_OF_MEMORY. */
atoll_tensor *atoll_tensor_create(atoll_dtype dtype, atoll_dims shape, const void *data,
                                  atoll_error *error);
/* One owner more; returns t. */
atoll_tensor *atoll_tensor_retain(atoll_tensor *t);
/* One owner less; the last one frees it. NULL is accepted. */
void atoll_tensor_release(atoll_tensor *t);

/* To a floating dtype. t itself, retained, when it has that dtype or is of integers or bool; else a
 * new tensor. NULL on failure: DTYPE (not a floating dtype), OUT_OF_MEMORY. */
atoll_tensor *atoll_tensor_to(atoll_tensor *t, atoll_dtype dtype, atoll_error *error);
/* To any dtype, integers too, as the op `cast` does: floats to integers by cutting off, beyond
 * their range at its end, NaN to 0; integers to narrower ones wrap; to bool: not 0. t itself,
 * retained, when it has that dtype. */
atoll_tensor *atoll_tensor_cast(atoll_tensor *t, atoll_dtype dtype, atoll_error *error);

atoll_dtype atoll_tensor_dtype(const atoll_tensor *t);
int64_t atoll_tensor_count(const atoll_tensor *t);
/* Its memory, to read, to write, or to feed; valid until the tensor's last release. name is lent by
 * you. */
atoll_view atoll_tensor_view(atoll_tensor *t, const char *name);
/* Element `index` in row-major order as a number; NaN outside. */
double atoll_tensor_number(const atoll_tensor *t, int64_t index);

/* ---- modules ---- */

typedef struct atoll_module atoll_module;
typedef enum atoll_module_kind { ATOLL_MODULE_PARAM, ATOLL_MODULE_BUFFER } atoll_module_kind;

/* Empty. NULL on failure: OUT_OF_MEMORY. */
atoll_module *atoll_module_create(atoll_error *error);
/* Releases its tensors. NULL is accepted. */
void atoll_module_destroy(atoll_module *m);
/* Registers a tensor, which the module retains, under a name that is copied. USAGE (the name is
 * taken or empty; a parameter that is not floating), OUT_OF_MEMORY. */
atoll_status atoll_module_add(atoll_module *m, const char *name, atoll_module_kind kind,
                              atoll_tensor *t, atoll_error *error);
/* Converts every registered parameter and buffer that is floating, and returns m. On failure
 * (DTYPE, OUT_OF_MEMORY) NULL, and the module is as it was. Tensors you hold stay as they are: the
 * module has others from here on. */
atoll_module *atoll_module_to(atoll_module *m, atoll_dtype dtype, atoll_error *error);
/* Lent until the module converts it or goes; NULL when there is none of that name. */
atoll_tensor *atoll_module_get(const atoll_module *m, const char *name);
/* By index from 0, in the order they were registered; NULL behind the last. name and kind may be
 * NULL. */
atoll_tensor *atoll_module_at(const atoll_module *m, uint32_t index, const char **name,
                              atoll_module_kind *kind);
uint32_t atoll_module_count(const atoll_module *m);

#ifdef __cplusplus
}
#endif

#endif
