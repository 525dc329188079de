/* Plans of a compiled function: built by the conductor from a segment's graph, run over memory that
 * others own: arguments where they lie, stored tensors where they stay. Each thread that runs a
 * plan has a session (or eager outputs) of its own, kept for the next run. On a device one run
 * follows another; a session copies in what it is pointed to, stored tensors where they are another
 * version than the one there, and what the run changed of them is copied back once all of it is
 * there. Invariant: a plan that writes what is stored runs alone. */
#include "compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/eager.h"
#include "runtime/file.h"

/* A leaf of a plan's graph and where its memory is. */
struct bound {
    value leaf;
    uint32_t ordinal;      /* among the leaves of the segment's graph */
    struct stored *stored; /* NULL: of the call, by ordinal */
    bool is_updated;       /* a run changes it: it is stored */
};

struct plan_seat {
    struct session *session;         /* fused */
    struct tensor *leaves, *outputs; /* eager: by node, by output; outputs own their memory */
    size_t *room;                    /* eager: of outputs */
    uint64_t *versions; /* on a device, by node: of stored leaves, as they are there; 0: unknown */
    struct contraction_cache *cache;
    struct plan_seat *next;
};

struct plan {
    struct atoll_compiled *f;
    struct compiled compiled;
    struct device *device;        /* NULL: the CPU */
    bool is_eager, reads, writes; /* what is stored */
    struct bound *bound;
    uint32_t n_bound;
    pthread_mutex_t lock;
    struct plan_seat *idle;
};

/* ---- building ---- */

static uint32_t ordinal_of(const struct trace *t, const char *name)
{
    uint32_t i = 0;
    while (i < t->n_leaves && strcmp(t->leaves[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* Where each leaf's memory is. A scalar that the function records is of the call; those that the
 * training step brings are stored. */
static status bind_leaves(struct plan *p, const struct trace *t, const int64_t *symbols,
                          struct error *e)
{
    const struct graph *g = p->compiled.primitive;
    p->bound = calloc(g->n_nodes, sizeof *p->bound);
    if (p->bound == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for a plan");
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (!node_is_leaf(n)) {
            continue;
        }
        struct bound *b = &p->bound[p->n_bound++];
        *b = (struct bound){.leaf = {i}, .ordinal = ordinal_of(t, n->name)};
        bool is_of_call = n->op == OP_input || (n->op == OP_scalar && b->ordinal < t->n_leaves);
        if (!is_of_call) {
            TRY(store_find(p->f, n, symbols, &b->stored, e));
            p->reads = true;
        }
        for (uint32_t u = 0; u < g->n_updates; u++) {
            b->is_updated = b->is_updated || (b->stored != NULL && g->updates[u].leaf.id == i);
        }
    }
    p->writes = g->n_updates > 0;
    return ATOLL_OK;
}

static void plan_free(struct plan *p);
static struct plan_seat *seat_new(const struct plan *p, struct error *e);

static void enter_device(const struct plan *p)
{
    if (p->device != NULL) {
        pthread_mutex_lock(&p->f->on_device);
    }
}

static void leave_device(const struct plan *p)
{
    if (p->device != NULL) {
        pthread_mutex_unlock(&p->f->on_device);
    }
}

/* For a device, with a first seat: it loads the kernels. Those that the driver refuses are split
 * into their ops, all compiled once more. */
static status compile_there(struct plan *p, const struct compile_options *o, const struct graph *g,
                            struct error *e)
{
    struct error first = {0};
    const char *arch[1];
    struct compile_options there = compile_options_there(o, arch);
    p->device = o->device;
    TRY(compile_graph(g, &there, &p->compiled, e));
    enter_device(p);
    p->idle = seat_new(p, &first);
    status code = first.code;
    if (code == ATOLL_DEVICE && !there.is_unfused) {
        there.tries_loading = true;
        compiled_free(&p->compiled);
        code = compile_graph(g, &there, &p->compiled, e);
        p->idle = code == ATOLL_OK ? seat_new(p, e) : NULL;
        code = p->idle != NULL ? ATOLL_OK : e->code;
    } else if (code != ATOLL_OK) {
        fail(e, code, "%s", first.text);
    }
    leave_device(p);
    return code;
}

/* Compiles; where there is no compiler the plan runs op by op, and that is said once. */
static status compile_plan(struct plan *p, const struct compile_options *o,
                           const struct build_request *r, struct error *e)
{
    struct error first = {0};
    if (o->device != NULL) {
        return compile_there(p, o, r->graph, e);
    }
    status code = compile_graph(r->graph, o, &p->compiled, &first);
    if (code == ATOLL_COMPILER && !o->is_eager) {
        struct compile_options eagerly = *o;
        char text[1100];
        snprintf(text, sizeof text, "%s: running op by op instead, with the same bits: %s",
                 p->f->name, first.text);
        p->f->warn(p->f->warn_context, text);
        eagerly.is_eager = p->is_eager = true;
        compiled_free(&p->compiled);
        return compile_graph(r->graph, &eagerly, &p->compiled, e);
    }
    p->is_eager = o->is_eager;
    return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", first.text);
}

static struct plan *plan_new(struct atoll_compiled *f, struct error *e)
{
    struct plan *p = calloc(1, sizeof *p);
    if (p == NULL || pthread_mutex_init(&p->lock, NULL) != 0) {
        free(p);
        fail(e, ATOLL_OUT_OF_MEMORY, "no memory for a plan");
        return NULL;
    }
    p->f = f;
    return p;
}

status plan_build(void *context, const struct build_request *r, void **plan,
                  struct build_report *report, struct error *e)
{
    struct atoll_compiled *f = context;
    struct plan *p = plan_new(f, e);
    if (p == NULL) {
        return ATOLL_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&f->building);
    status code = compile_plan(p, &way_of(r->trace)->options, r, e);
    pthread_mutex_unlock(&f->building);
    if (code == ATOLL_OK) {
        build_report_of(report, &p->compiled);
        code = bind_leaves(p, r->trace, r->symbols, e);
    }
    if (code != ATOLL_OK) {
        plan_free(p);
        return code;
    }
    *plan = p;
    return ATOLL_OK;
}

/* ---- seats ---- */

static void seat_free(const struct plan *p, struct plan_seat *s)
{
    if (s == NULL) {
        return;
    }
    session_destroy(s->session);
    contraction_cache_destroy(s->cache);
    for (uint32_t i = 0; s->outputs != NULL && i < p->compiled.primitive->n_outputs; i++) {
        free(s->outputs[i].data);
    }
    free(s->leaves);
    free(s->outputs);
    free(s->room);
    free(s->versions);
    free(s);
}

static struct plan_seat *seat_new(const struct plan *p, struct error *e)
{
    struct plan_seat *s = calloc(1, sizeof *s);
    const struct graph *g = p->compiled.primitive;
    if (s == NULL) {
        fail(e, ATOLL_OUT_OF_MEMORY, "no memory to run a plan");
        return NULL;
    }
    if (!p->is_eager) {
        struct device_code code;
        struct device_image *images = cuda_code_images(&p->compiled.cuda, &code);
        s->session = session_create_on(&p->compiled.program, p->device, &code, e);
        s->versions = calloc(g->n_nodes, sizeof *s->versions);
        free(images);
    } else {
        s->leaves = calloc(g->n_nodes, sizeof *s->leaves);
        s->outputs = calloc(g->n_outputs + 1, sizeof *s->outputs);
        s->room = calloc(g->n_outputs + 1, sizeof *s->room);
        s->cache = contraction_cache_create();
    }
    bool is_whole =
        p->is_eager ? s->leaves != NULL && s->outputs != NULL && s->room != NULL && s->cache != NULL
                    : s->session != NULL && s->versions != NULL;
    if (!is_whole) {
        seat_free(p, s);
        fail(e, ATOLL_OUT_OF_MEMORY, "no memory to run a plan");
        return NULL;
    }
    return s;
}

static struct plan_seat *take_seat(struct plan *p, struct error *e)
{
    pthread_mutex_lock(&p->lock);
    struct plan_seat *s = p->idle;
    if (s != NULL) {
        p->idle = s->next;
    }
    pthread_mutex_unlock(&p->lock);
    return s != NULL ? s : seat_new(p, e);
}

static void give_seat(struct plan *p, struct plan_seat *s)
{
    pthread_mutex_lock(&p->lock);
    s->next = p->idle;
    p->idle = s;
    pthread_mutex_unlock(&p->lock);
}

static void plan_free(struct plan *p)
{
    enter_device(p);
    while (p->idle != NULL) {
        struct plan_seat *s = p->idle;
        p->idle = s->next;
        seat_free(p, s);
    }
    leave_device(p);
    compiled_free(&p->compiled);
    pthread_mutex_destroy(&p->lock);
    free(p->bound);
    free(p);
}

void plan_drop(void *context, void *plan)
{
    (void)context;
    plan_free(plan);
}

/* ---- running ---- */

static void *memory_of(const struct bound *b, const void *const *ordered)
{
    union {
        const void *in;
        void *out;
    } memory = {.in = b->stored != NULL ? b->stored->tensor.data : ordered[b->ordinal]};
    return memory.out;
}

/* What a run on a device changed of what is stored: copied when all of it has come down. */
static status bring_back(struct plan *p, struct session *s, struct error *e)
{
    struct tensor from;
    for (uint32_t i = 0; i < p->n_bound; i++) {
        if (p->bound[i].is_updated) {
            TRY(session_fetch(s, p->bound[i].leaf, &from, e));
        }
    }
    for (uint32_t i = 0; i < p->n_bound; i++) {
        if (p->bound[i].is_updated) {
            TRY(session_fetch(s, p->bound[i].leaf, &from, e)); /* there by now */
            memcpy(p->bound[i].stored->tensor.data, from.data, tensor_bytes(&from));
        }
    }
    return ATOLL_OK;
}

/* Points the leaves to their memory, but for stored ones that the seat's device has as they are. */
static void point_leaves(struct plan *p, struct plan_seat *s, const void *const *ordered)
{
    for (uint32_t i = 0; i < p->n_bound; i++) {
        const struct bound *b = &p->bound[i];
        bool is_there = p->device != NULL && b->stored != NULL && !b->stored->is_lent &&
                        s->versions[i] == b->stored->version;
        session_point(s->session, b->leaf, is_there ? NULL : memory_of(b, ordered));
        if (p->device != NULL) {
            s->versions[i] = 0; /* until the run has come to its end */
        }
    }
}

static void note_changes(struct plan *p, struct plan_seat *s, bool is_done)
{
    for (uint32_t i = 0; i < p->n_bound; i++) {
        struct stored *to = p->bound[i].stored;
        if (p->bound[i].is_updated) {
            to->version++;
        }
        if (is_done && p->device != NULL && to != NULL) {
            s->versions[i] = to->version;
        }
    }
}

static status run_fused(struct plan *p, struct plan_seat *s, const int64_t *symbols,
                        const void *const *ordered, take_output *take, void *context,
                        struct error *e)
{
    const struct graph *g = p->compiled.primitive;
    TRY(session_bind(s->session, symbols, e));
    point_leaves(p, s, ordered);
    TRY(session_step(s->session, e));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor t = session_output(s->session, i);
        TRY(session_outcome(s->session, e));
        TRY(take(context, g->outputs[i].name, i, &t, e));
    }
    return p->device != NULL ? bring_back(p, s->session, e) : ATOLL_OK;
}

static status shape_of(const struct graph *g, value v, const int64_t *symbols, struct tensor *t,
                       struct error *e)
{
    const struct node *n = graph_node(g, v);
    t->dtype = n->dtype;
    t->rank = n->shape.rank;
    for (uint32_t i = 0; i < t->rank; i++) {
        t->shape[i] = dim_value(n->shape.dims[i], symbols);
        if (t->shape[i] < 0) {
            return fail(e, ATOLL_SHAPE, "a size of an output has no value");
        }
    }
    return ATOLL_OK;
}

static struct tensor *lend_leaf(void *context, value v)
{
    return &((struct plan_seat *)context)->leaves[v.id];
}

static status run_eager(struct plan *p, struct plan_seat *s, const int64_t *symbols,
                        const void *const *ordered, take_output *take, void *context,
                        struct error *e)
{
    const struct graph *g = p->compiled.primitive;
    for (uint32_t i = 0; i < p->n_bound; i++) {
        struct tensor *t = &s->leaves[p->bound[i].leaf.id];
        TRY(shape_of(g, p->bound[i].leaf, symbols, t, e));
        t->data = memory_of(&p->bound[i], ordered);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        struct tensor *t = &s->outputs[i];
        TRY(shape_of(g, g->outputs[i].value, symbols, t, e));
        size_t bytes = tensor_bytes(t);
        if (t->data == NULL || s->room[i] < bytes) {
            free(t->data);
            t->data = malloc(bytes + 64);
            s->room[i] = t->data != NULL ? bytes : 0;
        }
        if (t->data == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "output %s: no memory", g->outputs[i].name);
        }
    }
    struct eager_run run = {.graph = g,
                            .symbols = symbols,
                            .leaf = lend_leaf,
                            .context = s,
                            .outputs = s->outputs,
                            .cache = s->cache};
    TRY(eager_run(&run, e));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        TRY(take(context, g->outputs[i].name, i, &s->outputs[i], e));
    }
    return ATOLL_OK;
}

struct sitting {
    struct plan *p;
    struct plan_seat *s;
    const int64_t *symbols;
    const void *const *ordered;
    take_output *take;
    void *context;
    struct error *e;
};

static status run_body(void *context)
{
    const struct sitting *r = context;
    return r->p->is_eager
               ? run_eager(r->p, r->s, r->symbols, r->ordered, r->take, r->context, r->e)
               : run_fused(r->p, r->s, r->symbols, r->ordered, r->take, r->context, r->e);
}

status plan_run(struct plan *p, const int64_t *symbols, const void *const *ordered,
                take_output *take, void *context, struct error *e)
{
    enter_device(p);
    struct plan_seat *s = take_seat(p, e);
    if (s == NULL) {
        leave_device(p);
        return e != NULL && e->code != ATOLL_OK ? e->code : ATOLL_OUT_OF_MEMORY;
    }
    if (p->writes) {
        pthread_rwlock_wrlock(&p->f->in_store);
    } else if (p->reads) {
        pthread_rwlock_rdlock(&p->f->in_store);
    }
    struct sitting run = {p, s, symbols, ordered, take, context, e};
    status code = run_recoverable(run_body, &run, e);
    note_changes(p, s, code == ATOLL_OK);
    if (p->writes || p->reads) {
        pthread_rwlock_unlock(&p->f->in_store);
    }
    give_seat(p, s);
    leave_device(p);
    return code;
}

status plan_run_eagerly(struct atoll_compiled *f, const struct trace *t, const void *const *ordered,
                        take_output *take, void *context, struct error *e)
{
    const int64_t none[MAX_SYMBOLS] = {0};
    struct compile_options o = way_of(t)->options;
    struct plan *p = plan_new(f, e);
    if (p == NULL) {
        return ATOLL_OUT_OF_MEMORY;
    }
    o.is_eager = true;
    p->is_eager = o.device == NULL; /* there: a kernel an op */
    pthread_mutex_lock(&f->building);
    status code = o.device != NULL ? compile_there(p, &o, t->graph, e)
                                   : compile_graph(t->graph, &o, &p->compiled, e);
    pthread_mutex_unlock(&f->building);
    code = code == ATOLL_OK ? bind_leaves(p, t, none, e) : code;
    code = code == ATOLL_OK ? plan_run(p, none, ordered, take, context, e) : code;
    plan_free(p);
    return code;
}
