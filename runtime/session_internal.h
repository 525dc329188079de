/* What the files of a session share. On a device, own, memory, snapshots and staging are device
 * memory, and people see host copies of leaves and outputs. */
#ifndef ATOLL_RUNTIME_SESSION_INTERNAL_H
#define ATOLL_RUNTIME_SESSION_INTERNAL_H

#include "loader.h"
#include "program.h"
#include "scaled.h"

struct device_session;

struct session {
    const struct program *p;
    struct arena arena;
    int64_t symbols[MAX_SYMBOLS];
    bool is_bound, is_dirty;
    struct tensor *tensors; /* by node id: type and memory of every root and alias */
    void **own;             /* by leaf id: memory owned by the session */
    size_t *own_bytes;
    void **pointed; /* by leaf id: the caller's memory, or NULL */
    size_t *offset; /* by root id */
    unsigned char *memory;
    size_t memory_bytes, peak_bytes;
    void **pointers; /* all launches' arguments, one after another */
    uint32_t n_pointers;
    int64_t *flat;                    /* by launch */
    struct contraction *contractions; /* by launch */
    struct scaled_product *scaled;    /* by launch, of scaled_matmul nodes */
    unsigned char **snapshots;        /* by output */
    unsigned char **staging;          /* by update that copies */
    struct contraction_cache *cache;
    session_watcher *watcher;
    void *watcher_context;
    struct loader *loader;         /* by leaf: inputs of the next step; NULL: none so far */
    struct device *device;         /* NULL: the CPU */
    struct device_session *remote; /* on a device */
};

size_t session_bytes_of(const struct session *s, value v);
/* Memory of a value: of a leaf, or its place in the arena. */
void *session_address_of(const struct session *s, value v);
static inline bool session_is_scaled(const struct session *s, const struct launch *l)
{
    return graph_node(s->p->graph, l->node)->op == OP_scaled_matmul;
}
void session_refresh(struct session *s);
/* Zeroed memory where the session runs; NULL: none left. */
void *session_memory(struct session *s, size_t bytes);
void session_memory_free(struct session *s, void *memory);

/* session_device.c */
status remote_create(struct session *s, const struct device_code *code, struct error *e);
void remote_destroy(struct session *s);
/* After leaves have memory and launches are prepared. */
status remote_bind(struct session *s, struct error *e);
/* What a leaf holds, to look at only. */
struct tensor *remote_peek(struct session *s, value leaf);
struct tensor *remote_leaf(struct session *s, value leaf);
status remote_step(struct session *s, struct error *e);
struct tensor remote_output(struct session *s, uint32_t i);
/* The host puts the inputs it has written, or lent, since the last step. */
status remote_put_inputs(struct session *s, struct error *e);
/* The next contents of an input come from the loader. */
void remote_taken(struct session *s, value leaf);
/* session_prefetch.c */
status session_put(struct session *s, value leaf, const void *data, size_t bytes, struct error *e);
status session_take(struct session *s, struct error *e);
/* session_watch.c: the results of n launches to the watcher. */
status remote_show(struct session *s, uint32_t first, uint32_t n, struct error *e);

#endif
