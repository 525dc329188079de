/* A program's memory and its steps. Binding the symbols gives every buffer a size; one arena holds
 * the intermediates, placed first-fit by lifetime, so the peak is known before the first step. A
 * step is a loop over launches with pointers made ready at bind time. */
#include "session_internal.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/eager.h"
#include "runtime/index_check.h"

size_t session_bytes_of(const struct session *s, value v)
{
    const struct node *n = graph_node(s->p->graph, v);
    return (size_t)shape_count_value(&n->shape, s->symbols) * dtype_info[n->dtype].bytes;
}

static void allocate_tables(struct session *s)
{
    const struct program *p = s->p;
    uint32_t n = p->graph->n_nodes;
    s->tensors = ARENA_ARRAY(&s->arena, struct tensor, n);
    s->own = ARENA_ARRAY(&s->arena, void *, n);
    s->own_bytes = ARENA_ARRAY(&s->arena, size_t, n);
    s->pointed = ARENA_ARRAY(&s->arena, void *, n);
    s->offset = ARENA_ARRAY(&s->arena, size_t, n);
    s->flat = ARENA_ARRAY(&s->arena, int64_t, p->n_launches + 1);
    s->scaled = ARENA_ARRAY(&s->arena, struct scaled_product, p->n_launches + 1);
    s->contractions = ARENA_ARRAY(&s->arena, struct contraction, p->n_launches + 1);
    s->snapshots = ARENA_ARRAY(&s->arena, unsigned char *, p->graph->n_outputs + 1);
    s->staging = ARENA_ARRAY(&s->arena, unsigned char *, p->graph->n_updates + 1);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        s->n_pointers += p->launches[i].n_args;
    }
    s->pointers = ARENA_ARRAY(&s->arena, void *, s->n_pointers + 1);
}

static bool create_within(struct session *s)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return false;
    }
    allocate_tables(s);
    arena_recover_end(&r);
    s->cache = contraction_cache_create();
    return s->cache != NULL;
}

struct session *session_create(const struct program *p, struct error *e)
{
    return session_create_on(p, NULL, NULL, e);
}

struct session *session_create_on(const struct program *p, struct device *device,
                                  const struct device_code *code, struct error *e)
{
    struct session *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->p = p;
        s->device = device;
    }
    if (s == NULL || !create_within(s)) {
        session_destroy(s);
        fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    if (device != NULL && remote_create(s, code, e) != ATOLL_OK) {
        session_destroy(s);
        return NULL;
    }
    return s;
}

void session_destroy(struct session *s)
{
    if (s == NULL) {
        return;
    }
    if (s->device != NULL) {
        remote_destroy(s);
    }
    loader_destroy(s->loader);
    for (uint32_t i = 1; s->own != NULL && i < s->p->graph->n_nodes; i++) {
        session_memory_free(s, s->own[i]);
    }
    for (uint32_t i = 0; s->snapshots != NULL && i < s->p->graph->n_outputs; i++) {
        session_memory_free(s, s->snapshots[i]);
    }
    for (uint32_t i = 0; s->staging != NULL && i < s->p->graph->n_updates; i++) {
        session_memory_free(s, s->staging[i]);
    }
    session_memory_free(s, s->memory);
    contraction_cache_destroy(s->cache);
    arena_free(&s->arena);
    free(s);
}

void *session_memory(struct session *s, size_t bytes)
{
    void *m = NULL;
    if (s->device != NULL) {
        return s->device->backend->allocate(s->device, bytes, &m, NULL) == ATOLL_OK ? m : NULL;
    }
    m = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (m != NULL) {
        memset(m, 0, (bytes + 64) / 64 * 64);
    }
    return m;
}

void session_memory_free(struct session *s, void *memory)
{
    if (s->device != NULL) {
        s->device->backend->release(s->device, memory);
    } else {
        free(memory);
    }
}

/* ---- the memory plan ---- */

struct placed {
    size_t begin, end;
    uint32_t first, last;
};

/* First fit by lifetime, in order of first use: the lowest gap between buffers alive at the same
 * time. */
static size_t place(struct placed *placed, uint32_t n, size_t bytes, uint32_t first, uint32_t last)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n; i++) {
            bool alive = placed[i].first <= last && first <= placed[i].last;
            if (alive && at < placed[i].end && placed[i].begin < at + bytes) {
                at = placed[i].end;
                moved = true;
            }
        }
    }
    return at;
}

static void plan_memory(struct session *s)
{
    const struct program *p = s->p;
    struct arena scratch = SCRATCH_ARENA;
    struct placed *placed = ARENA_ARRAY(&scratch, struct placed, p->graph->n_nodes);
    uint32_t n = 0;
    s->peak_bytes = 0;
    for (uint32_t launch = 0; launch <= p->n_launches; launch++) {
        for (uint32_t i = 1; i < p->graph->n_nodes; i++) {
            if (p->root[i].id != i || node_is_leaf(&p->graph->nodes[i]) ||
                p->first_use[i] != launch) {
                continue;
            }
            size_t bytes = (session_bytes_of(s, (value){i}) + 127) / 64 * 64;
            s->offset[i] = place(placed, n, bytes, launch, p->last_use[i]);
            placed[n++] =
                (struct placed){s->offset[i], s->offset[i] + bytes, launch, p->last_use[i]};
            s->peak_bytes = placed[n - 1].end > s->peak_bytes ? placed[n - 1].end : s->peak_bytes;
        }
    }
    arena_free(&scratch);
}

static status plan_within(struct session *s, struct error *e)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    plan_memory(s);
    arena_recover_end(&r);
    return ATOLL_OK;
}

static status size_leaves(struct session *s, struct error *e)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        struct tensor *t = &s->tensors[i];
        t->dtype = n->dtype;
        t->rank = n->shape.rank;
        for (uint32_t d = 0; d < n->shape.rank; d++) {
            t->shape[d] = dim_value(n->shape.dims[d], s->symbols);
        }
        if (!node_is_leaf(n)) {
            continue;
        }
        int64_t count = shape_count_value(&n->shape, s->symbols);
        if (count < 0) {
            return fail(
                e, ATOLL_SHAPE,
                "%%%s: a symbol of its shape has no size; hint: bind every symbol to a number >= 0",
                n->name);
        }
        size_t bytes = session_bytes_of(s, (value){i});
        if (s->own[i] == NULL || s->own_bytes[i] < bytes) {
            session_memory_free(s, s->own[i]);
            s->own[i] = session_memory(s, bytes);
            s->own_bytes[i] = bytes;
        }
        if (s->own[i] == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "%%%s: no memory for %zu bytes", n->name, bytes);
        }
    }
    return ATOLL_OK;
}

void *session_address_of(const struct session *s, value v)
{
    value r = s->p->root[v.id];
    if (node_is_leaf(graph_node(s->p->graph, r))) {
        bool is_pointed = s->pointed[r.id] != NULL && s->device == NULL;
        return is_pointed ? s->pointed[r.id] : s->own[r.id];
    }
    return s->memory + s->offset[r.id];
}

void session_refresh(struct session *s)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < s->p->graph->n_nodes; i++) {
        if (s->p->root[i].id != 0) {
            s->tensors[i].data = session_address_of(s, (value){i});
        }
    }
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        for (uint32_t a = 0; a < s->p->launches[i].n_args; a++) {
            s->pointers[at++] = s->tensors[s->p->launches[i].args[a].id].data;
        }
    }
    s->is_dirty = false;
}

static struct shape static_shape(const struct tensor *t)
{
    struct shape shape = {.rank = t->rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        shape.dims[i] = dim_of(t->shape[i]);
    }
    return shape;
}

static status prepare_launches(struct session *s, struct error *e)
{
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        const struct launch *l = &s->p->launches[i];
        s->flat[i] = l->kind == LAUNCH_KERNEL ? dim_value(l->flat, s->symbols) : 0;
        if (l->kind == LAUNCH_CONTRACTION && session_is_scaled(s, l)) {
            const struct tensor *a = &s->tensors[l->args[0].id], *b = &s->tensors[l->args[1].id];
            scaled_product_of(graph_node(s->p->graph, l->node), a->dtype, b->dtype, a->shape,
                              b->shape, &s->scaled[i]);
        } else if (l->kind == LAUNCH_CONTRACTION) {
            struct shape a = static_shape(&s->tensors[l->args[0].id]),
                         b = static_shape(&s->tensors[l->args[1].id]);
            TRY(contraction_of(graph_node(s->p->graph, l->node), &a, &b, &s->contractions[i], e));
            s->contractions[i].ab = graph_node(s->p->graph, l->args[0])->dtype;
        }
    }
    return ATOLL_OK;
}

static status allocate_copies(struct session *s, struct error *e)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (s->p->is_snapshot[i]) {
            session_memory_free(s, s->snapshots[i]);
            s->snapshots[i] = session_memory(s, session_bytes_of(s, g->outputs[i].value));
            if (s->snapshots[i] == NULL) {
                return fail(e, ATOLL_OUT_OF_MEMORY, "output %s: no memory", g->outputs[i].name);
            }
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        value from = s->p->root[g->updates[i].next.id];
        if (!s->p->is_in_place[i] && node_is_leaf(graph_node(g, from))) {
            session_memory_free(s, s->staging[i]);
            s->staging[i] = session_memory(s, session_bytes_of(s, from));
            if (s->staging[i] == NULL) {
                return fail(e, ATOLL_OUT_OF_MEMORY, "update %u: no memory", i);
            }
        }
    }
    return ATOLL_OK;
}

status session_bind(struct session *s, const int64_t *symbol_values, struct error *e)
{
    bool same = s->is_bound;
    TRY(graph_check_symbols(s->p->graph, symbol_values, e));
    for (uint32_t i = 1; i < s->p->graph->n_symbols; i++) {
        same = same && s->symbols[i] == symbol_values[i];
    }
    if (same) {
        return ATOLL_OK;
    }
    if (s->device != NULL) { /* memory may move */
        TRY(s->device->backend->wait(s->device, e));
    }
    s->is_bound = false;
    memcpy(s->symbols, symbol_values, s->p->graph->n_symbols * sizeof *symbol_values);
    TRY(size_leaves(s, e));
    TRY(plan_within(s, e));
    if (s->peak_bytes > s->memory_bytes || s->memory == NULL) {
        session_memory_free(s, s->memory);
        s->memory = session_memory(s, s->peak_bytes);
        s->memory_bytes = s->peak_bytes;
        if (s->memory == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for an arena of %zu bytes",
                        s->peak_bytes);
        }
    }
    TRY(allocate_copies(s, e));
    TRY(prepare_launches(s, e));
    session_refresh(s);
    if (s->device != NULL) {
        TRY(remote_bind(s, e));
    }
    s->is_bound = true;
    return ATOLL_OK;
}

struct tensor *session_leaf(struct session *s, value leaf)
{
    if (s->is_dirty) {
        session_refresh(s);
    }
    return s->device != NULL ? remote_leaf(s, leaf) : &s->tensors[leaf.id];
}

void session_point(struct session *s, value leaf, void *data)
{
    if (s->pointed[leaf.id] != data) {
        s->pointed[leaf.id] = data;
        s->is_dirty = true;
    }
}

/* ---- a step ---- */

static status run_launch(struct session *s, uint32_t i, void *const *args, struct error *e)
{
    const struct launch *l = &s->p->launches[i];
    if (l->kind == LAUNCH_KERNEL && l->fn == NULL) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "kernel %s has no code for the CPU; hint: compile with --target cpu",
                    l->symbol);
    }
    if (l->kind == LAUNCH_KERNEL) {
        if (l->count > 0) {
            l->fn(args, s->symbols, &s->flat[i], l->count);
        }
        return ATOLL_OK;
    }
    if (l->kind == LAUNCH_CONTRACTION && session_is_scaled(s, l)) {
        const void *operands[4] = {args[0], args[1], args[2], args[3]};
        return scaled_run(s->cache, &s->scaled[i], operands, args[l->n_reads], e);
    }
    if (l->kind == LAUNCH_CONTRACTION) {
        return contraction_run(s->cache, &s->contractions[i], args[0], args[1],
                               s->contractions[i].has_bias ? args[2] : NULL, args[l->n_reads], e);
    }
    struct tensor operands[VARIADIC];
    for (uint32_t k = 0; k < l->n_reads; k++) {
        operands[k] = s->tensors[l->args[k].id];
    }
    struct tensor result = s->tensors[l->node.id];
    return eager_node(s->p->graph, l->node, operands, &result, s->symbols, s->cache, e);
}

void session_watch(struct session *s, session_watcher *watcher, void *context)
{
    s->watcher = watcher;
    s->watcher_context = context;
}

static void show_launch(const struct session *s, uint32_t i)
{
    uint32_t end = i + s->p->launches[i].count;
    for (; i < end; i++) {
        const struct launch *l = &s->p->launches[i];
        for (uint32_t a = l->n_reads; a < l->n_args; a++) {
            s->watcher(s->watcher_context, i, l->args[a], &s->tensors[l->args[a].id]);
        }
    }
}

static void copy_updates(struct session *s)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (s->staging[i] != NULL) {
            memcpy(s->staging[i], session_address_of(s, g->updates[i].next),
                   session_bytes_of(s, g->updates[i].next));
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (!s->p->is_in_place[i]) {
            const void *from =
                s->staging[i] != NULL ? s->staging[i] : session_address_of(s, g->updates[i].next);
            memcpy(session_address_of(s, g->updates[i].leaf), from,
                   session_bytes_of(s, g->updates[i].next));
        }
    }
}

static struct tensor *lend_leaf(void *context, value leaf)
{
    struct session *s = context;
    return s->device != NULL ? remote_peek(s, leaf) : session_leaf(s, leaf);
}

status session_step(struct session *s, struct error *e)
{
    const struct program *p = s->p;
    if (!s->is_bound) {
        return fail(e, ATOLL_USAGE, "step before the symbols are bound");
    }
    if (s->is_dirty) {
        session_refresh(s);
    }
    if (s->device != NULL) {
        TRY(remote_put_inputs(s, e));
    }
    TRY(session_take(s, e));
    TRY(index_checks_run(p->graph, s->symbols, lend_leaf, s, e));
    if (s->device != NULL) {
        return remote_step(s, e);
    }
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        if (p->is_snapshot[i]) {
            memcpy(s->snapshots[i], session_address_of(s, p->graph->outputs[i].value),
                   session_bytes_of(s, p->graph->outputs[i].value));
        }
    }
    void *const *args = s->pointers;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        TRY(run_launch(s, i, args, e));
        if (s->watcher != NULL) {
            show_launch(s, i);
        }
        args += p->launches[i].n_args;
    }
    copy_updates(s);
    return ATOLL_OK;
}

struct tensor session_output(struct session *s, uint32_t i)
{
    struct tensor t = s->tensors[s->p->graph->outputs[i].value.id];
    if (s->device != NULL) {
        return remote_output(s, i);
    }
    if (s->p->is_snapshot[i]) {
        t.data = s->snapshots[i];
    }
    return t;
}

size_t session_peak_bytes(const struct session *s)
{
    return s->peak_bytes;
}

size_t session_leaf_bytes(const struct session *s)
{
    size_t total = 0;
    for (uint32_t i = 1; i < s->p->graph->n_nodes; i++) {
        total += s->own[i] != NULL ? s->own_bytes[i] : 0;
    }
    return total;
}
