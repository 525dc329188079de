/* What the host sees of a session on a device: copies in pinned memory of leaves and outputs,
 * brought down when somebody asks. Of an input the loader still has what it sent. */
#include "session_device.h"

#include <string.h>

static status bring_down(struct session *s, struct mirror *m, const void *from, size_t bytes,
                         struct error *e)
{
    if (m->is_device_newer && bytes > 0) {
        TRY(s->remote->backend->download(s->device, m->host, from, bytes, e));
    }
    m->is_device_newer = false;
    return ATOLL_OK;
}

void remote_take_from_loader(struct session *s, uint32_t leaf)
{
    struct mirror *m = &s->remote->leaves[leaf];
    size_t bytes = 0;
    const void *taken = m->is_loaded ? loader_taken(s->loader, leaf, &bytes) : NULL;
    if (taken != NULL) {
        memcpy(m->host, taken, bytes < m->capacity ? bytes : m->capacity);
    }
    m->is_loaded = false;
}

struct tensor *remote_leaf(struct session *s, value leaf)
{
    struct device_session *r = s->remote;
    struct mirror *m = &r->leaves[leaf.id];
    r->seen[leaf.id] = s->tensors[leaf.id];
    r->seen[leaf.id].data = m->host;
    (void)r->backend->uploads_wait(s->device, &r->deferred);
    remote_take_from_loader(s, leaf.id);
    (void)bring_down(s, m, s->own[leaf.id], session_bytes_of(s, leaf), &r->deferred);
    m->is_host_newer = true; /* the caller may write */
    return &r->seen[leaf.id];
}

struct tensor *remote_peek(struct session *s, value leaf)
{
    struct device_session *r = s->remote;
    struct tensor *t = &r->peeked[leaf.id];
    (void)bring_down(s, &r->leaves[leaf.id], s->own[leaf.id], session_bytes_of(s, leaf),
                     &r->deferred);
    *t = s->tensors[leaf.id];
    t->data = s->pointed[leaf.id] != NULL ? s->pointed[leaf.id] : r->leaves[leaf.id].host;
    if (r->leaves[leaf.id].is_loaded) {
        size_t bytes;
        union {
            const void *in;
            void *out;
        } taken = {.in = loader_taken(s->loader, leaf.id, &bytes)};
        t->data = taken.out;
    }
    return t;
}

struct tensor remote_output(struct session *s, uint32_t i)
{
    struct device_session *r = s->remote;
    value v = s->p->graph->outputs[i].value;
    struct tensor t = s->tensors[v.id];
    const void *from = s->p->is_snapshot[i] ? s->snapshots[i] : t.data;
    status code = bring_down(s, &r->outputs[i], from, tensor_bytes(&t), &r->deferred);
    t.data = code == ATOLL_OK ? r->outputs[i].host : NULL;
    return t;
}

status session_fetch(struct session *s, value leaf, struct tensor *out, struct error *e)
{
    *out = s->tensors[leaf.id];
    if (s->device != NULL) {
        struct mirror *m = &s->remote->leaves[leaf.id];
        TRY(bring_down(s, m, s->own[leaf.id], session_bytes_of(s, leaf), e));
        remote_take_from_loader(s, leaf.id);
        out->data = m->host;
    }
    return ATOLL_OK;
}
