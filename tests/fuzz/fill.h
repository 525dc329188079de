/* Tensors of a case, and what "the same" means. */
#ifndef ATOLL_TESTS_FUZZ_FILL_H
#define ATOLL_TESTS_FUZZ_FILL_H

#include "generate.h"
#include "runtime/tensor.h"

void fill_tensor(const struct fuzz_case *c, const char *name, uint64_t step, struct tensor *t);
/* Index of the first element that differs, -1 when none does. NaN equals NaN whatever its payload;
 * -0 and +0 differ. */
int64_t first_difference(const struct tensor *a, const struct tensor *b);

#endif
