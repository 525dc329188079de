/* A trace: one step of a runner with every value it computed, eager or fused, on any device. A
 * fused runner shows them when it was compiled with keeps_values; what a kernel still keeps to
 * itself is computed from its recorded operands, that one op alone. */
#ifndef ATOLL_FRONTEND_TRACE_H
#define ATOLL_FRONTEND_TRACE_H

#include "frontend/parting.h"

/* Steps r. rec: every value by node id, leaves as they were before the step; recording_free it. */
status trace_step(struct recording *rec, struct runner *r, struct error *e);

#endif
