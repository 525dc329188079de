/* Matrix products by oneDNN (2.x or 3.x), prepared once a descriptor. Absent builds leave this out.
 */
#ifndef ATOLL_RUNTIME_ONEDNN_H
#define ATOLL_RUNTIME_ONEDNN_H

#include "contraction.h"

struct onednn;
/* OUT_OF_MEMORY, or UNSUPPORTED when there is no engine: *out is NULL then. */
status onednn_create(struct onednn **out);
void onednn_destroy(struct onednn *o);
/* Whether this CPU multiplies these dtypes as they are stored. */
bool onednn_has(struct onednn *o, enum dtype ab, enum dtype c);
/* Nonzero sizes only. */
status onednn_run(struct onednn *o, const struct contraction *c, const void *a, const void *b,
                  const void *bias, void *out, struct error *e);

#ifdef ATOLL_HAVE_ONEDNN
#include <dnnl.h>
#define ONEDNN_TEXT_(x) #x
#define ONEDNN_TEXT(x)  ONEDNN_TEXT_(x)
#define ONEDNN_VERSION_TEXT                                                                        \
    ONEDNN_TEXT(DNNL_VERSION_MAJOR)                                                                \
    "." ONEDNN_TEXT(DNNL_VERSION_MINOR) "." ONEDNN_TEXT(DNNL_VERSION_PATCH)
#endif

#endif
