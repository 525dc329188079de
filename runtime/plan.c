/* The public plan API over plan files and sessions. Holds no global state; every failure is one
 * line in the caller's record. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/kept.h"
#include "runtime/lend.h"

struct atoll_plan {
    struct plan_file file;
    struct device *device; /* NULL: the CPU */
    struct session *session;
    struct plan_substitute substitute; /* whose session it is when the file's code is refused */
    int64_t symbols[MAX_SYMBOLS];
    bool is_known[MAX_SYMBOLS]; /* by symbol: an input gave it a size */
    int64_t next[MAX_SYMBOLS];  /* of the next step, where something was prefetched for it */
    bool has_next;
    bool *is_bound; /* by node id */
    value *kept;    /* params, buffers, state */
    uint32_t n_kept;
    int64_t steps; /* done so far, checkpoints included */
    struct arena arena;
};

/* Over the plan's own code, or over what again makes where the device refuses that. */
static status open_session(atoll_plan *p, plan_compile_again *again, void *context, struct error *e)
{
    struct error why = {0};
    p->session = session_create_on(&p->file.program, p->device, &p->file.cuda, &why);
    if (p->session != NULL) {
        return ATOLL_OK;
    }
    if (again == NULL || !plan_is_refused(p->device, why.code)) {
        return fail(e, why.code, "%s", why.text);
    }
    TRY(again(context, &p->file, p->device, &why, &p->substitute, e));
    p->session = p->substitute.session;
    return ATOLL_OK;
}

static status start(atoll_plan *p, plan_compile_again *again, void *context, struct error *e)
{
    struct recovery r;
    const struct graph *g = p->file.graph;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    p->is_bound = ARENA_ARRAY(&p->arena, bool, g->n_nodes);
    p->kept = ARENA_ARRAY(&p->arena, value, g->n_nodes);
    arena_recover_end(&r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op == OP_param || g->nodes[i].op == OP_buffer ||
            g->nodes[i].op == OP_state) {
            p->kept[p->n_kept++] = (value){i};
        }
    }
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        p->symbols[i] = g->symbols[i].low;
    }
    TRY(open_session(p, again, context, e));
    TRY(session_bind(p->session, p->symbols, e));
    const unsigned char *from = p->file.state;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (plan_keeps(&g->nodes[i])) {
            struct tensor *t = session_leaf(p->session, (value){i});
            memcpy(t->data, from, tensor_bytes(t));
            from += tensor_bytes(t);
        }
    }
    return ATOLL_OK;
}

static status open_device(atoll_plan *p, const atoll_place *place, struct error *e)
{
    struct device_options o = {0};
    if (place == NULL || place->device == NULL) {
        return ATOLL_OK;
    }
    o.libcuda = place->libcuda;
    o.libcublaslt = place->libcublaslt;
    o.allows_tf32 = place->allows_tf32 != 0;
    return device_open(place->device, &o, &p->device, e);
}

atoll_status atoll_plan_open(const char *path, atoll_plan **out, atoll_error *error)
{
    return plan_open_with(path, NULL, NULL, NULL, out, error);
}

atoll_status plan_open_with(const char *path, const atoll_place *place, plan_compile_again *again,
                            void *context, atoll_plan **out, atoll_error *error)
{
    struct error e = {0};
    atoll_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p == NULL) {
        fail(&e, ATOLL_OUT_OF_MEMORY, "%s: out of memory", path);
        return lend_error(&e, error);
    }
    if (plan_read(path, true, &p->file, &e) != ATOLL_OK) {
        free(p);
        return lend_error(&e, error);
    }
    if (open_device(p, place, &e) != ATOLL_OK || start(p, again, context, &e) != ATOLL_OK) {
        atoll_plan_close(p);
        return lend_error(&e, error);
    }
    *out = p;
    return ATOLL_OK;
}

void atoll_plan_close(atoll_plan *plan)
{
    if (plan != NULL) {
        session_destroy(plan->session);
        if (plan->substitute.drop != NULL) {
            plan->substitute.drop(plan->substitute.kept);
        }
        device_close(plan->device);
        plan_file_close(&plan->file);
        arena_free(&plan->arena);
        free(plan);
    }
}

const char *atoll_plan_notice(const atoll_plan *plan)
{
    return plan->substitute.notice[0] != '\0' ? plan->substitute.notice : NULL;
}

/* ---- inputs and steps ---- */

static status wrong_shape(const atoll_plan *p, value v, const int64_t *shape, uint32_t rank,
                          struct error *e)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_SHAPE, "input %%%s: another shape; and no memory left to say which",
                    graph_node(p->file.graph, v)->name);
    }
    struct arena scratch = SCRATCH_ARENA;
    struct text found = {.arena = &scratch};
    for (uint32_t i = 0; i < rank; i++) {
        text_add(&found, "%s%lld", i > 0 ? "," : "", (long long)shape[i]);
    }
    fail(e, ATOLL_SHAPE,
         "input %%%s is %s, found (%s); hint: compile the plan for this size or leave it symbolic",
         graph_node(p->file.graph, v)->name, graph_type(p->file.graph, v, &scratch),
         found.data != NULL ? found.data : "");
    arena_free(&scratch);
    arena_recover_end(&r);
    return ATOLL_SHAPE;
}

/* The input of this name, and the sizes that the shape gives to its symbols. */
static status match(const atoll_plan *p, const char *name, const int64_t *shape, uint32_t rank,
                    int64_t symbols[MAX_SYMBOLS], bool is_known[MAX_SYMBOLS], value *out,
                    struct error *e)
{
    const struct graph *g = p->file.graph;
    value v = *out = graph_find(g, name);
    const struct node *n = graph_node(g, v);
    if (v.id == 0 || n->op != OP_input) {
        return lend_missing("the plan", g, LENT_INPUT, name, e);
    }
    if (rank != n->shape.rank) {
        return wrong_shape(p, v, shape, rank, e);
    }
    for (uint32_t i = 0; i < rank; i++) {
        struct dim d = n->shape.dims[i];
        if (shape[i] < 0 ||
            (!dim_is_static(d) && (d.symbols[1] != 0 || shape[i] % d.factor != 0))) {
            return wrong_shape(p, v, shape, rank, e);
        }
        if (!dim_is_static(d)) {
            symbols[d.symbols[0]] = shape[i] / d.factor;
            is_known[d.symbols[0]] = true;
        }
        if (dim_value(d, symbols) != shape[i]) {
            return wrong_shape(p, v, shape, rank, e);
        }
    }
    return ATOLL_OK;
}

static status bind(atoll_plan *p, const char *name, const void *data, const int64_t *shape,
                   uint32_t rank, struct error *e)
{
    int64_t symbols[MAX_SYMBOLS];
    bool is_known[MAX_SYMBOLS];
    value v;
    memcpy(symbols, p->has_next ? p->next : p->symbols, sizeof symbols);
    memcpy(is_known, p->is_known, sizeof is_known);
    TRY(match(p, name, shape, rank, symbols, is_known, &v, e));
    TRY(session_bind(p->session, symbols, e));
    memcpy(p->symbols, symbols, sizeof symbols);
    memcpy(p->next, symbols, sizeof symbols);
    memcpy(p->is_known, is_known, sizeof is_known);
    union {
        const void *in;
        void *out;
    } memory = {.in = data};
    session_forget(p->session, v);
    session_point(p->session, v, memory.out);
    p->is_bound[v.id] = true;
    return ATOLL_OK;
}

static status prefetch(atoll_plan *p, const char *name, const void *data, const int64_t *shape,
                       uint32_t rank, struct error *e)
{
    struct tensor t = {.rank = rank};
    int64_t symbols[MAX_SYMBOLS];
    bool is_known[MAX_SYMBOLS];
    union {
        const void *in;
        void *out;
    } memory = {.in = data};
    value v;
    memcpy(symbols, p->has_next ? p->next : p->symbols, sizeof symbols);
    memcpy(is_known, p->is_known, sizeof is_known);
    TRY(match(p, name, shape, rank, symbols, is_known, &v, e));
    t.dtype = graph_node(p->file.graph, v)->dtype;
    t.data = memory.out;
    memcpy(t.shape, shape, rank * sizeof *shape);
    TRY(session_prefetch(p->session, v, &t, e));
    memcpy(p->next, symbols, sizeof symbols);
    memcpy(p->is_known, is_known, sizeof is_known);
    p->has_next = true;
    p->is_bound[v.id] = true;
    return ATOLL_OK;
}

atoll_status atoll_plan_prefetch(atoll_plan *plan, const char *name, const void *data,
                                 const int64_t *shape, uint32_t rank, atoll_error *error)
{
    struct error e = {0};
    (void)prefetch(plan, name, data, shape, rank, &e);
    return lend_error(&e, error);
}

atoll_status atoll_plan_bind(atoll_plan *plan, const char *name, const void *data,
                             const int64_t *shape, uint32_t rank, atoll_error *error)
{
    struct error e = {0};
    (void)bind(plan, name, data, shape, rank, &e);
    return lend_error(&e, error);
}

atoll_status atoll_plan_set(atoll_plan *plan, const char *name, double number, atoll_error *error)
{
    struct error e = {0};
    value v = graph_find(plan->file.graph, name);
    if (v.id == 0 || graph_node(plan->file.graph, v)->op != OP_scalar) {
        lend_missing("the plan", plan->file.graph, LENT_SCALAR, name, &e);
        return lend_error(&e, error);
    }
    struct tensor *t = session_leaf(plan->session, v);
    dtype_store(t->dtype, t->data, number);
    return ATOLL_OK;
}

static status check_bound(const atoll_plan *p, struct error *e)
{
    const struct graph *g = p->file.graph;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (g->nodes[i].op == OP_input && !p->is_bound[i]) {
            return fail(e, ATOLL_USAGE,
                        "input %%%s is not bound; hint: atoll_plan_bind it before the step",
                        g->nodes[i].name);
        }
    }
    return ATOLL_OK;
}

/* The sizes of what was prefetched. */
static status bind_next(atoll_plan *p, struct error *e)
{
    if (p->has_next) {
        TRY(session_bind(p->session, p->next, e));
        memcpy(p->symbols, p->next, sizeof p->symbols);
        p->has_next = false;
    }
    return ATOLL_OK;
}

atoll_status atoll_plan_step(atoll_plan *plan, atoll_error *error)
{
    struct error e = {0};
    if (check_bound(plan, &e) == ATOLL_OK && bind_next(plan, &e) == ATOLL_OK) {
        plan->steps += session_step(plan->session, &e) == ATOLL_OK;
    }
    return lend_error(&e, error);
}

/* ---- outputs and state ---- */

atoll_status atoll_plan_output(atoll_plan *plan, const char *name, atoll_view *out,
                               atoll_error *error)
{
    struct error e = {0};
    const struct graph *g = plan->file.graph;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            struct tensor t = session_output(plan->session, i);
            lend_view(g->outputs[i].name, &t, out);
            return ATOLL_OK;
        }
    }
    lend_missing("the plan", g, LENT_OUTPUT, name, &e);
    return lend_error(&e, error);
}

double atoll_plan_number(atoll_plan *plan, const char *name)
{
    atoll_view v;
    if (atoll_plan_output(plan, name, &v, NULL) != ATOLL_OK || v.bytes < v.element_bytes) {
        return (double)__builtin_nan("");
    }
    return dtype_load(dtype_named(v.dtype, strlen(v.dtype)), v.data);
}

uint32_t atoll_plan_state_count(const atoll_plan *plan)
{
    return plan->n_kept;
}

atoll_status atoll_plan_state_at(atoll_plan *plan, uint32_t index, atoll_view *out,
                                 atoll_error *error)
{
    struct error e = {0};
    if (index >= plan->n_kept) {
        fail(&e, ATOLL_NOT_FOUND, "state %u of %u", index, plan->n_kept);
        return lend_error(&e, error);
    }
    value v = plan->kept[index];
    lend_view(graph_node(plan->file.graph, v)->name, session_leaf(plan->session, v), out);
    return ATOLL_OK;
}

atoll_status atoll_plan_state(atoll_plan *plan, const char *name, atoll_view *out,
                              atoll_error *error)
{
    struct error e = {0};
    for (uint32_t i = 0; i < plan->n_kept; i++) {
        if (strcmp(graph_node(plan->file.graph, plan->kept[i])->name, name) == 0) {
            return atoll_plan_state_at(plan, i, out, error);
        }
    }
    lend_missing("the plan", plan->file.graph, LENT_STATE, name, &e);
    return lend_error(&e, error);
}

size_t atoll_plan_peak_bytes(const atoll_plan *plan)
{
    return session_peak_bytes(plan->session);
}

size_t atoll_plan_state_bytes(const atoll_plan *plan)
{
    return session_leaf_bytes(plan->session);
}

/* ---- checkpoints ---- */

static struct tensor *lend(void *context, value leaf)
{
    return session_leaf(((atoll_plan *)context)->session, leaf);
}

atoll_status atoll_plan_save(atoll_plan *plan, const char *path, atoll_error *error)
{
    struct error e = {0};
    (void)kept_save(path, plan->file.graph, lend, plan, plan->steps, &e);
    return lend_error(&e, error);
}

atoll_status atoll_plan_load(atoll_plan *plan, const char *path, atoll_error *error)
{
    struct error e = {0};
    (void)kept_load(path, plan->file.graph, lend, plan, &plan->steps, &e);
    return lend_error(&e, error);
}
