/* A session on a device. Leaves live there; the host sees copies in pinned memory, brought up to
 * date in either direction when somebody asks: what the host may have written goes up before the
 * next step, what a step changed comes down when read. From the second step at one size on, the
 * launches are a recording. */
#include "session_device.h"

#include <stdlib.h>
#include <string.h>

static uint32_t count_stages(const struct program *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        n += p->launches[i].cuda.n_stages;
    }
    return n;
}

/* A call of several tensors is one launch when they share the kernel here, as they do on the CPU.
 */
static bool is_one_call(const struct program *p, uint32_t head)
{
    bool is_one = p->launches[head].count > 1 && p->launches[head].cuda.many != NULL;
    for (uint32_t i = 1; is_one && i < p->launches[head].count; i++) {
        const char *other = p->launches[head + i].cuda.many;
        is_one = other != NULL && strcmp(other, p->launches[head].cuda.many) == 0;
    }
    return is_one;
}

static status find_functions(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        const struct launch *l = &s->p->launches[i];
        if (l->kind != LAUNCH_CONTRACTION && l->cuda.n_stages == 0) {
            return fail(e, ATOLL_UNSUPPORTED,
                        "launch %u (%s) has no kernel for %s; hint: compile with --target cuda:%s",
                        i, op_info[graph_node(s->p->graph, l->node)->op].name, s->device->name,
                        s->device->arch);
        }
        for (uint32_t k = 0; k < l->cuda.n_stages; k++) {
            TRY(r->backend->find(s->device, r->loaded, l->cuda.stages[k].symbol,
                                 &r->functions[at++], e));
        }
        if (is_one_call(s->p, i)) {
            TRY(r->backend->find(s->device, r->loaded, l->cuda.many, &r->many[i], e));
        }
    }
    return ATOLL_OK;
}

status remote_create(struct session *s, const struct device_code *code, struct error *e)
{
    struct device_session *r = calloc(1, sizeof *r);
    uint32_t n = s->p->graph->n_nodes, most = 0;
    if (r == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    s->remote = r;
    r->backend = s->device->backend;
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        most = s->p->launches[i].n_args > most ? s->p->launches[i].n_args : most;
    }
    r->functions = calloc(count_stages(s->p) + 1, sizeof *r->functions);
    r->many = calloc(s->p->n_launches + 1, sizeof *r->many);
    r->leaves = calloc(n, sizeof *r->leaves);
    r->seen = calloc(n, sizeof *r->seen);
    r->peeked = calloc(n, sizeof *r->peeked);
    r->outputs = calloc(s->p->graph->n_outputs + 1, sizeof *r->outputs);
    r->parameters = calloc(most + 3, sizeof *r->parameters);
    if (r->functions == NULL || r->many == NULL || r->leaves == NULL || r->seen == NULL ||
        r->peeked == NULL || r->outputs == NULL || r->parameters == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    TRY(r->backend->recall(s->device, code->choices, code->n_choices, e));
    TRY(r->backend->load(s->device, code, &r->loaded, e));
    return find_functions(s, e);
}

static void forget_recording(struct session *s)
{
    s->remote->backend->record_free(s->device, s->remote->recording);
    s->remote->recording = NULL;
    s->remote->steps = 0;
}

void remote_destroy(struct session *s)
{
    struct device_session *r = s->remote;
    if (r == NULL) {
        return;
    }
    (void)r->backend->wait(s->device, NULL);
    forget_recording(s);
    for (uint32_t i = 1; r->leaves != NULL && i < s->p->graph->n_nodes; i++) {
        r->backend->release_host(s->device, r->leaves[i].host);
    }
    for (uint32_t i = 0; r->outputs != NULL && i < s->p->graph->n_outputs; i++) {
        r->backend->release_host(s->device, r->outputs[i].host);
    }
    r->backend->release(s->device, r->work);
    r->backend->release(s->device, r->tables);
    r->backend->release_host(s->device, r->host_tables);
    r->backend->unload(s->device, r->loaded);
    free(r->functions);
    free(r->many);
    free(r->leaves);
    free(r->seen);
    free(r->peeked);
    free(r->outputs);
    free(r->parameters);
    free(r);
    s->remote = NULL;
}

/* ---- sizes ---- */

/* Grows a mirror; contents stay. */
static status fit_mirror(struct session *s, struct mirror *m, size_t bytes, struct error *e)
{
    if (m->host != NULL && m->capacity >= bytes) {
        return ATOLL_OK;
    }
    void *fresh = NULL;
    TRY(s->remote->backend->allocate_host(s->device, bytes + 64, &fresh, e));
    memset(fresh, 0, bytes + 64);
    if (m->host != NULL && m->capacity > 0) {
        memcpy(fresh, m->host, m->capacity);
    }
    s->remote->backend->release_host(s->device, m->host);
    m->host = fresh;
    m->capacity = bytes;
    return ATOLL_OK;
}

static size_t work_of(const struct session *s, uint32_t launch)
{
    uint64_t chunks = ((uint64_t)s->flat[launch] + 16383) / 16384;
    return 8 * (size_t)s->p->launches[launch].cuda.n_sums * (size_t)(chunks + 1);
}

/* ---- tables of calls of many tensors ---- */

static uint64_t blocks_of(const struct session *s, uint32_t launch)
{
    uint64_t per_block = (uint64_t)s->p->launches[launch].cuda.stages[0].per_block,
             blocks = ((uint64_t)s->flat[launch] + per_block - 1) / per_block;
    return blocks > 0 ? blocks : 1;
}

static size_t rows_bytes(const struct launch *head)
{
    return (size_t)head->count * (head->n_args + 2) * sizeof(uint64_t);
}

/* Writes a row for each tensor of the call; args are the head's. Returns the blocks of all. */
static uint64_t write_rows(const struct session *s, uint32_t head, void *const *args, uint64_t *row)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < s->p->launches[head].count; i++) {
        uint32_t n_args = s->p->launches[head + i].n_args;
        *row++ = (uint64_t)s->flat[head + i];
        *row++ = first;
        for (uint32_t a = 0; a < n_args; a++) {
            *row++ = (uint64_t)(uintptr_t)*args++;
        }
        first += blocks_of(s, head + i);
    }
    return first;
}

static status upload_tables(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    size_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        bytes += r->many[i] != NULL ? rows_bytes(&s->p->launches[i]) : 0;
    }
    if (bytes == 0) {
        return ATOLL_OK;
    }
    if (r->table_bytes < bytes) { /* once: the number of rows does not depend on sizes */
        TRY(r->backend->allocate(s->device, bytes, &r->tables, e));
        TRY(r->backend->allocate_host(s->device, bytes, &r->host_tables, e));
        r->table_bytes = bytes;
    }
    void *const *args = s->pointers;
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        if (r->many[i] != NULL) {
            (void)write_rows(s, i, args, (uint64_t *)(void *)((char *)r->host_tables + at));
            at += rows_bytes(&s->p->launches[i]);
        }
        args += s->p->launches[i].n_args;
    }
    TRY(r->backend->uploads_begin(s->device, e));
    TRY(r->backend->upload(s->device, r->tables, r->host_tables, bytes, e));
    return r->backend->uploads_end(s->device, e);
}

status remote_bind(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    const struct graph *g = s->p->graph;
    size_t work = 8;
    forget_recording(s);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!node_is_leaf(&g->nodes[i])) {
            continue;
        }
        size_t bytes = session_bytes_of(s, (value){i});
        bool has_moved = r->leaves[i].host == NULL || r->leaves[i].capacity < bytes;
        TRY(fit_mirror(s, &r->leaves[i], bytes, e));
        if (r->leaves[i].is_loaded) { /* what the loader holds may have another size */
            remote_take_from_loader(s, i);
            has_moved = true;
        }
        r->leaves[i].is_host_newer = r->leaves[i].is_host_newer || has_moved;
        r->seen[i] = s->tensors[i];
        r->seen[i].data = r->leaves[i].host;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        TRY(fit_mirror(s, &r->outputs[i], session_bytes_of(s, g->outputs[i].value), e));
        r->outputs[i].is_device_newer = false;
    }
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        work = work_of(s, i) > work ? work_of(s, i) : work;
    }
    if (work > r->work_bytes) {
        r->backend->release(s->device, r->work);
        r->work = NULL;
        r->work_bytes = 0;
        TRY(r->backend->allocate(s->device, work, &r->work, e));
        r->work_bytes = work;
    }
    return upload_tables(s, e);
}

/* ---- a step ---- */

status remote_put_inputs(struct session *s, struct error *e)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct mirror *m = &s->remote->leaves[i];
        bool is_wanted = m->is_host_newer || s->pointed[i] != NULL;
        bool is_put = s->loader != NULL && loader_holds(s->loader, i);
        if (g->nodes[i].op == OP_input && is_wanted && !is_put) {
            const void *data = s->pointed[i] != NULL ? s->pointed[i] : m->host;
            TRY(session_put(s, (value){i}, data, session_bytes_of(s, (value){i}), e));
        }
    }
    return ATOLL_OK;
}

void remote_taken(struct session *s, value leaf)
{
    struct mirror *m = &s->remote->leaves[leaf.id];
    m->is_host_newer = m->is_device_newer = false;
    m->is_loaded = true;
}

/* What the host may have changed of leaves that are no inputs. */
static status upload_leaves(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    const struct graph *g = s->p->graph;
    bool is_begun = false;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct mirror *m = &r->leaves[i];
        bool is_mine = node_is_leaf(&g->nodes[i]) && g->nodes[i].op != OP_input;
        size_t bytes = is_mine ? session_bytes_of(s, (value){i}) : 0;
        if (bytes == 0 || (!m->is_host_newer && s->pointed[i] == NULL)) {
            continue;
        }
        if (s->pointed[i] != NULL) {
            TRY(r->backend->uploads_wait(s->device, e));
            memcpy(m->host, s->pointed[i], bytes);
        }
        if (!is_begun) {
            TRY(r->backend->uploads_begin(s->device, e));
            is_begun = true;
        }
        TRY(r->backend->upload(s->device, s->own[i], m->host, bytes, e));
        m->is_host_newer = false;
    }
    return is_begun ? r->backend->uploads_end(s->device, e) : ATOLL_OK;
}

static status launch_stages(struct session *s, const struct launch *l, uint32_t first,
                            void *const *args, int64_t flat, struct error *e)
{
    struct device_session *r = s->remote;
    int64_t length = flat;
    for (uint32_t a = 0; a < l->n_args; a++) {
        r->parameters[a] = (void *)(uintptr_t)&args[a];
    }
    r->parameters[l->n_args] = s->symbols;
    r->parameters[l->n_args + 1] = &length;
    r->parameters[l->n_args + 2] = &r->work;
    for (uint32_t k = 0; k < l->cuda.n_stages; k++) {
        const struct cuda_stage *stage = &l->cuda.stages[k];
        uint64_t items = 1;
        for (uint32_t i = 0; i < stage->n_items; i++) {
            items *= (uint64_t)dim_value(stage->items[i], s->symbols);
        }
        uint64_t per_block = (uint64_t)stage->per_block,
                 blocks = (items + per_block - 1) / per_block;
        struct device_launch launch = {.function = r->functions[first + k],
                                       .symbol = stage->symbol,
                                       .blocks = blocks > 0 ? blocks : 1,
                                       .block_x = stage->block_x,
                                       .block_y = stage->block_y,
                                       .parameters = r->parameters};
        TRY(r->backend->launch(s->device, &launch, e));
    }
    return ATOLL_OK;
}

static status launch_many(struct session *s, uint32_t head, size_t at, struct error *e)
{
    struct device_session *r = s->remote;
    const struct launch *l = &s->p->launches[head];
    int64_t count = l->count, blocks = 0;
    const char *table = (const char *)r->tables + at;
    for (uint32_t i = 0; i < l->count; i++) {
        blocks += (int64_t)blocks_of(s, head + i);
    }
    void *parameters[] = {&table, &count, &blocks, s->symbols};
    struct device_launch launch = {.function = r->many[head],
                                   .symbol = l->cuda.many,
                                   .blocks = (uint64_t)blocks,
                                   .block_x = l->cuda.stages[0].block_x,
                                   .block_y = 1,
                                   .parameters = parameters};
    return r->backend->launch(s->device, &launch, e);
}

static status copy(struct session *s, void *to, const void *from, size_t bytes, struct error *e)
{
    return bytes == 0 ? ATOLL_OK : s->remote->backend->copy(s->device, to, from, bytes, e);
}

static status copy_updates(struct session *s, struct error *e)
{
    const struct graph *g = s->p->graph;
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (s->staging[i] != NULL) {
            TRY(copy(s, s->staging[i], session_address_of(s, g->updates[i].next),
                     session_bytes_of(s, g->updates[i].next), e));
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        const void *from =
            s->staging[i] != NULL ? s->staging[i] : session_address_of(s, g->updates[i].next);
        if (!s->p->is_in_place[i]) {
            TRY(copy(s, session_address_of(s, g->updates[i].leaf), from,
                     session_bytes_of(s, g->updates[i].next), e));
        }
    }
    return ATOLL_OK;
}

static status run_all(struct session *s, struct error *e)
{
    const struct program *p = s->p;
    void *const *args = s->pointers;
    uint32_t first = 0, in_call = 0; /* in_call: launches that the last launch_many ran too */
    size_t table = 0;
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        if (p->is_snapshot[i]) {
            value v = p->graph->outputs[i].value;
            TRY(copy(s, s->snapshots[i], session_address_of(s, v), session_bytes_of(s, v), e));
        }
    }
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        if (l->kind == LAUNCH_CONTRACTION && session_is_scaled(s, l)) {
            const void *operands[4] = {args[0], args[1], args[2], args[3]};
            TRY(s->remote->backend->contract_scaled(s->device, &s->scaled[i], operands,
                                                    args[l->n_reads], e));
        } else if (l->kind == LAUNCH_CONTRACTION) {
            TRY(s->remote->backend->contract(s->device, &s->contractions[i], args[0], args[1],
                                             s->contractions[i].has_bias ? args[2] : NULL,
                                             args[l->n_reads], e));
        } else if (s->remote->many[i] != NULL) {
            TRY(launch_many(s, i, table, e));
            table += rows_bytes(l);
            in_call = l->count;
        } else if (in_call == 0) {
            TRY(launch_stages(s, l, first, args, s->flat[i], e));
        }
        if (s->watcher != NULL) { /* of one call of many tensors at its head */
            TRY(remote_show(s, i, s->remote->many[i] != NULL ? l->count : in_call == 0, e));
        }
        in_call -= in_call > 0;
        first += l->cuda.n_stages;
        args += l->n_args;
    }
    return copy_updates(s, e);
}

/* The second step at the same sizes is recorded: by then every library has what it needs. */
static status run_or_replay(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    if (s->watcher != NULL) {
        return run_all(s, e);
    }
    if (r->recording == NULL && r->steps == 1) {
        TRY(r->backend->record_begin(s->device, e));
        status code = run_all(s, e);
        status end = r->backend->record_end(s->device, &r->recording, e);
        TRY(code);
        TRY(end);
    }
    return r->recording != NULL ? r->backend->replay(s->device, r->recording, e) : run_all(s, e);
}

status session_outcome(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    if (r == NULL || r->deferred.code == ATOLL_OK) {
        return ATOLL_OK;
    }
    status code = fail(e, r->deferred.code, "%s", r->deferred.text);
    r->deferred = (struct error){0};
    return code;
}

status remote_step(struct session *s, struct error *e)
{
    struct device_session *r = s->remote;
    const struct graph *g = s->p->graph;
    TRY(session_outcome(s, e));
    TRY(upload_leaves(s, e));
    TRY(run_or_replay(s, e));
    r->steps++;
    for (uint32_t i = 0; i < g->n_updates; i++) {
        r->leaves[g->updates[i].leaf.id].is_device_newer = true;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        r->outputs[i].is_device_newer = true;
    }
    return ATOLL_OK;
}
