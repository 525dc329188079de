/* compare --bisect. */
#ifndef ATOLL_CLI_COMPARE_BISECT_H
#define ATOLL_CLI_COMPARE_BISECT_H

#include "cli.h"
#include "frontend/bisect.h"

/* The fusion that makes step number `step` (from 1) differ: the steps before it are run eagerly, on
 * the batches of compare. */
status compare_bisect_fusion(struct job *j, struct split *split, int64_t batch, int64_t step,
                             struct bisect *out, struct error *e);
/* The policy decision that parts the first batch from the reference. */
status compare_bisect_policy(struct job *j, struct split *split, int64_t batch, double tolerance,
                             struct bisect *out, struct error *e);

#endif
