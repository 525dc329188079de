/* Opening a plan when somebody is at hand who can compile: runtime/ itself has no compiler. */
#ifndef ATOLL_RUNTIME_PLAN_H
#define ATOLL_RUNTIME_PLAN_H

#include "atoll/plan.h"
#include "runtime/plan_file.h"

/* What stands in for code of a plan that its device does not run. */
struct plan_substitute {
    struct session *session; /* over a graph equal to the plan's: the same node ids */
    void *kept;              /* what the session needs; given to drop after it */
    void (*drop)(void *kept);
    char notice[1000]; /* one line: what was done, and why */
};

/* Makes one for the plan of this file; why: what the device said of the plan's own code. On failure
 * out holds nothing, and e says why and what is missing. */
typedef status plan_compile_again(void *context, const struct plan_file *file,
                                  struct device *device, const struct error *why,
                                  struct plan_substitute *out, struct error *e);

/* Whether compiling for the device can help: it refused the code, or there is none for it. */
static inline bool plan_is_refused(const struct device *device, status code)
{
    return device != NULL && (code == ATOLL_DEVICE || code == ATOLL_UNSUPPORTED);
}

/* atoll_plan_open_on; again NULL: nobody compiles. */
atoll_status plan_open_with(const char *path, const atoll_place *place, plan_compile_again *again,
                            void *context, atoll_plan **out, atoll_error *error);

#endif
