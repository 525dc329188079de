/* Looking at a session's values behind a step: a copy of what lies in memory, of the host or of the
 * device. */
#include "session_internal.h"

#include <stdlib.h>
#include <string.h>

status session_read(struct session *s, value v, struct tensor *out, struct error *e)
{
    *out = s->tensors[v.id];
    out->data = NULL;
    if (s->p->root[v.id].id == 0) {
        return ATOLL_OK;
    }
    size_t bytes = tensor_bytes(out);
    const void *from = session_address_of(s, v);
    void *to = malloc(bytes + 1);
    if (to == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for a copy of %zu bytes", bytes);
    }
    status code = ATOLL_OK;
    if (s->device != NULL && bytes > 0) {
        code = s->device->backend->download(s->device, to, from, bytes, e);
    } else if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    if (code != ATOLL_OK) {
        free(to);
        return code;
    }
    out->data = to;
    return ATOLL_OK;
}
