/* A plan whose code its device does not run, compiled again for that device from the plan's graph.
 * The public opening of plans on devices (atoll/plan.h) and runners use it. */
#ifndef ATOLL_FRONTEND_PLAN_AGAIN_H
#define ATOLL_FRONTEND_PLAN_AGAIN_H

#include "frontend/compile.h"
#include "runtime/plan.h"

enum { NOTICE_BYTES = sizeof(((struct plan_substitute *)0)->notice) };

/* o: device, NVRTC, cache, log; why: what the device said. Kernels that the driver still refuses
 * are split into their ops. notice: what was done and why, also logged (kernels). compiled_free out
 * in either case. Without NVRTC why's code, with both reasons. */
status plan_again(const struct plan_file *file, const struct compile_options *o,
                  const struct error *why, struct compiled *out, char notice[NOTICE_BYTES],
                  struct error *e);

#endif
