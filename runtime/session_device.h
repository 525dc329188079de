/* What a session on a device has beside its own: shared by session_device.c (steps) and
 * session_host.c (what the host sees). */
#ifndef ATOLL_RUNTIME_SESSION_DEVICE_H
#define ATOLL_RUNTIME_SESSION_DEVICE_H

#include "session_internal.h"

struct mirror {
    void *host;
    size_t capacity;
    bool is_host_newer, is_device_newer;
    bool is_loaded; /* input: its contents came from the loader, which has them for the host */
};

struct device_session {
    const struct backend *backend;
    void *loaded;
    void **functions;       /* all launches' stages, one after another */
    struct mirror *leaves;  /* by node id */
    struct mirror *outputs; /* by output */
    struct tensor *seen;    /* by node id: leaves as the host sees them */
    struct tensor *peeked;  /* the same, for a look at them */
    void **many;            /* by launch: the kernel for its call of many tensors, or NULL */
    void *tables, *host_tables;
    size_t table_bytes;
    void *work; /* chunk results of flat reductions */
    size_t work_bytes;
    void **parameters; /* of one launch */
    void *recording;
    uint32_t steps;        /* since the last bind */
    struct error deferred; /* of a call that has no error to fill */
};

/* session_host.c: the mirror of an input gets what the loader holds of it for the host. */
void remote_take_from_loader(struct session *s, uint32_t leaf);

#endif
