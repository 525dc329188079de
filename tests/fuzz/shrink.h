/* Makes a failing case smaller while it fails. */
#ifndef ATOLL_TESTS_FUZZ_SHRINK_H
#define ATOLL_TESTS_FUZZ_SHRINK_H

#include "check_case.h"

/* Replaces c->graph (and drops training, policy, steps where that keeps the failure); v: the
 * verdict of the result. budget: seconds. */
void shrink_case(struct fuzz_case *c, const struct check_options *o, double budget,
                 struct verdict *v);

#endif
