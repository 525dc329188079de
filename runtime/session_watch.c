/* Showing what launches on a device wrote, one call after another, to somebody who watches a step:
 * slow, each value comes down by itself. */
#include "session_internal.h"

status remote_show(struct session *s, uint32_t first, uint32_t n, struct error *e)
{
    const struct backend *backend = s->device->backend;
    status code = ATOLL_OK;
    for (uint32_t i = first; i < first + n; i++) {
        const struct launch *l = &s->p->launches[i];
        for (uint32_t a = l->n_reads; a < l->n_args && code == ATOLL_OK; a++) {
            struct tensor t = s->tensors[l->args[a].id];
            size_t bytes = tensor_bytes(&t);
            void *host = NULL;
            TRY(backend->allocate_host(s->device, bytes + 64, &host, e));
            code = bytes > 0 ? backend->download(s->device, host, t.data, bytes, e) : ATOLL_OK;
            t.data = host;
            if (code == ATOLL_OK) {
                s->watcher(s->watcher_context, i, l->args[a], &t);
            }
            backend->release_host(s->device, host);
        }
    }
    return code;
}
