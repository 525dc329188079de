/* One model, one way to run it. Eager keeps its own leaf tensors and walks the primitive graph;
 * fused steps a session. Both are initialised from the same texts and seed, so they start from the
 * same bits. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/prelude/convert.h"
#include "frontend/parting.h"
#include "frontend/plan_again.h"
#include "runtime/eager.h"
#include "runtime/init.h"
#include "runtime/kept.h"
#include "runtime/loader.h"

static bool is_kept(const struct node *n)
{
    return n->op == OP_param || n->op == OP_buffer || n->op == OP_state || n->op == OP_scalar;
}

static bool has_symbols(const struct shape *s)
{
    for (uint32_t i = 0; i < s->rank; i++) {
        if (!dim_is_static(s->dims[i])) {
            return true;
        }
    }
    return false;
}

/* Grows the memory of an eager tensor to what its node needs at the present symbols. */
static status fit(struct runner *r, value v, struct tensor *t, size_t *capacity, struct error *e)
{
    const struct node *n = graph_node(runner_graph(r), v);
    t->dtype = n->dtype;
    t->rank = n->shape.rank;
    for (uint32_t i = 0; i < t->rank; i++) {
        t->shape[i] = dim_value(n->shape.dims[i], r->symbols);
        if (t->shape[i] < 0) {
            return fail(e, ATOLL_SHAPE, "%%%s: a symbol of its shape has no size yet",
                        n->name != NULL ? n->name : "?");
        }
    }
    size_t bytes = tensor_bytes(t);
    if (t->data != NULL && *capacity >= bytes) {
        return ATOLL_OK;
    }
    free(t->data);
    t->data = calloc(1, bytes + 64);
    *capacity = bytes;
    return t->data != NULL
               ? ATOLL_OK
               : fail(e, ATOLL_OUT_OF_MEMORY, "no memory for a tensor of %zu bytes", bytes);
}

static status init_leaves(struct runner *r, uint64_t seed, struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (is_kept(&g->nodes[i]) && !has_symbols(&g->nodes[i].shape)) {
            struct tensor *t = r->is_eager ? &r->leaves[i] : session_leaf(r->session, (value){i});
            if (r->is_eager) {
                TRY(fit(r, (value){i}, t, &r->leaf_capacity[i], e));
            }
            TRY(init_leaf(&g->nodes[i], seed, t, e));
        }
    }
    return ATOLL_OK;
}

/* Graph, program and code are those of a plan file. */
static bool is_of_file(const struct runner *r)
{
    return r->file.graph != NULL && !r->is_again;
}

status runner_from(struct runner *r, uint64_t seed, struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        r->symbols[i] = g->symbols[i].low;
    }
    if (r->is_eager) {
        r->leaves = calloc(g->n_nodes, sizeof *r->leaves);
        r->leaf_capacity = calloc(g->n_nodes, sizeof *r->leaf_capacity);
        r->outputs = calloc(g->n_outputs + 1, sizeof *r->outputs);
        r->output_capacity = calloc(g->n_outputs + 1, sizeof *r->output_capacity);
        r->cache = contraction_cache_create();
        if (r->leaves == NULL || r->leaf_capacity == NULL || r->outputs == NULL ||
            r->output_capacity == NULL || r->cache == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        }
    } else {
        struct device_code code;
        struct device_image *images = cuda_code_images(&r->compiled.cuda, &code);
        r->session = session_create_on(&r->compiled.program, r->device,
                                       is_of_file(r) ? &r->file.cuda : &code, e);
        free(images);
        if (r->session == NULL) {
            return e->code;
        }
        TRY(runner_bind(r, r->symbols, e));
    }
    return init_leaves(r, seed, e);
}

/* ---- each launch against eager ---- */

/* The eager side's tensors. */
static void release(struct runner *r)
{
    const struct graph *g = r->compiled.primitive;
    for (uint32_t i = 1; r->leaves != NULL && i < g->n_nodes; i++) {
        free(r->leaves[i].data);
    }
    for (uint32_t i = 0; r->outputs != NULL && i < g->n_outputs; i++) {
        free(r->outputs[i].data);
    }
    free(r->leaves);
    free(r->leaf_capacity);
    free(r->outputs);
    free(r->output_capacity);
    contraction_cache_destroy(r->cache);
}

static status open_twin(struct runner *r, uint64_t seed, struct error *e)
{
    r->twin = calloc(1, sizeof *r->twin);
    if (r->twin == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    r->twin->is_eager = true;
    r->twin->compiled.primitive = r->compiled.primitive; /* lent */
    return runner_from(r->twin, seed, e);
}

static void close_twin(struct runner *r)
{
    if (r->twin != NULL) {
        release(r->twin);
        free(r->twin);
    }
}

static status checked_step(struct runner *r, struct error *e)
{
    struct parting parting;
    const struct graph *g = runner_graph(r);
    TRY(runner_bind(r->twin, r->symbols, e));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (is_kept(&g->nodes[i]) || g->nodes[i].op == OP_input) {
            struct tensor *to = &r->twin->leaves[i], *from = session_leaf(r->session, (value){i});
            TRY(fit(r->twin, (value){i}, to, &r->twin->leaf_capacity[i], e));
            memcpy(to->data, from->data, tensor_bytes(from));
        }
    }
    TRY(parting_step(r->twin, r, &parting, e));
    return parting.is_found
               ? fail(e, ATOLL_CHECK_FAILED, "a fused launch differs from eager: %s", parting.text)
               : ATOLL_OK;
}

status runner_open(struct runner *r, const struct graph *model, const struct compile_options *o,
                   uint64_t seed, struct error *e)
{
    *r = (struct runner){.is_eager = o->is_eager && o->device == NULL, .device = o->device};
    if (o->device == NULL) {
        TRY(compile_graph(model, o, &r->compiled, e));
        TRY(runner_from(r, seed, e));
        return o->checks && !o->is_eager && !o->is_relaxed ? open_twin(r, seed, e) : ATOLL_OK;
    }
    const char *arch[1]; /* eager there: one kernel an op, by the same generator */
    struct compile_options here = compile_options_there(o, arch);
    struct error first = {0};
    TRY(compile_graph(model, &here, &r->compiled, e));
    status code = runner_from(r, seed, &first);
    if (code != ATOLL_DEVICE || here.is_unfused) {
        return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", first.text);
    }
    runner_free(r); /* once more, without the groups whose kernels the driver does not load */
    *r = (struct runner){.device = o->device};
    here.tries_loading = true;
    TRY(compile_graph(model, &here, &r->compiled, e));
    return runner_from(r, seed, e);
}

status runner_open_plan(struct runner *r, const char *path, struct error *e)
{
    const struct compile_options here = {0};
    return runner_open_plan_on(r, path, &here, e);
}

/* Over the plan's own code, or over its graph compiled again where the device refuses that. */
static status start_plan(struct runner *r, const struct compile_options *o, struct error *e)
{
    struct error why = {0};
    r->compiled.primitive = r->file.graph;
    r->compiled.program = r->file.program;
    status code = runner_from(r, 0, &why);
    if (r->session != NULL || !plan_is_refused(r->device, code)) {
        return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", why.text);
    }
    r->compiled = (struct compiled){0};
    r->is_again = true;
    TRY(plan_again(&r->file, o, &why, &r->compiled, r->notice, e));
    return runner_from(r, 0, e);
}

status runner_open_plan_on(struct runner *r, const char *path, const struct compile_options *o,
                           struct error *e)
{
    *r = (struct runner){.device = o->device};
    TRY(plan_read(path, true, &r->file, e));
    TRY(start_plan(r, o, e));
    const unsigned char *from = r->file.state;
    for (uint32_t i = 1; i < r->file.graph->n_nodes; i++) {
        if (plan_keeps(&r->file.graph->nodes[i])) {
            struct tensor *t = session_leaf(r->session, (value){i});
            memcpy(t->data, from, tensor_bytes(t));
            from += tensor_bytes(t);
        }
    }
    return ATOLL_OK;
}

static struct tensor *leaf_at(void *context, value v)
{
    struct runner *r = context;
    return r->is_eager ? &r->leaves[v.id] : session_leaf(r->session, v);
}

static const struct tensor *lend_for_plan(void *context, value v)
{
    return leaf_at(context, v);
}

status runner_write_plan(struct runner *r, const char *path, const char *about, struct error *e)
{
    struct plan_code code = {.library = r->compiled.library};
    struct device_image *images = cuda_code_images(&r->compiled.cuda, &code.cuda);
    status result = images == NULL
                        ? fail(e, ATOLL_OUT_OF_MEMORY, "out of memory")
                        : plan_write(path, &r->compiled.program, &code, lend_for_plan, r, about, e);
    free(images);
    return result;
}

static status keep_choices(struct compiled *c, struct session *s, struct error *e)
{
    const struct contraction_choice *choices;
    struct recovery recovery;
    uint32_t n = 0;
    TRY(session_choices(s, &choices, &n, e));
    if (arena_recover(&recovery)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    struct contraction_choice *kept = ARENA_ARRAY(&c->arena, struct contraction_choice, n + 1);
    arena_recover_end(&recovery);
    memcpy(kept, choices, n * sizeof *kept);
    c->cuda.choices = kept;
    c->cuda.n_choices = n;
    return ATOLL_OK;
}

status runner_choose(struct runner *r, struct device *device, struct error *e)
{
    struct device_code code;
    struct device_image *images = cuda_code_images(&r->compiled.cuda, &code);
    struct session *s = session_create_on(&r->compiled.program, device, &code, e);
    status result = s == NULL ? e->code : session_bind(s, r->symbols, e);
    result = result == ATOLL_OK ? keep_choices(&r->compiled, s, e) : result;
    session_destroy(s);
    free(images);
    return result;
}

status runner_save(struct runner *r, const char *path, int64_t steps, struct error *e)
{
    return kept_save(path, runner_graph(r), leaf_at, r, steps, e);
}

status runner_load(struct runner *r, const char *path, int64_t *steps, struct error *e)
{
    return kept_load(path, runner_graph(r), leaf_at, r, steps, e);
}

void runner_free(struct runner *r)
{
    close_twin(r);
    loader_destroy(r->loader);
    session_destroy(r->session);
    release(r);
    if (is_of_file(r)) {
        r->compiled.primitive = NULL;
        r->compiled.step = NULL;
        r->compiled.program = (struct program){0};
    }
    compiled_free(&r->compiled);
    if (r->file.graph != NULL) {
        plan_file_close(&r->file);
    }
    *r = (struct runner){0};
}

static void log_memory(const struct runner *r)
{
    char line[200];
    snprintf(line, sizeof line, "peak %zu bytes of intermediates, %zu bytes of leaves",
             session_peak_bytes(r->session), session_leaf_bytes(r->session));
    r->compiled.log(r->compiled.log_context, "memory", line);
}

status runner_bind(struct runner *r, const int64_t *symbols, struct error *e)
{
    memmove(r->symbols, symbols, sizeof r->symbols);
    if (r->is_eager) {
        return ATOLL_OK;
    }
    size_t before = session_peak_bytes(r->session);
    TRY(session_bind(r->session, r->symbols, e));
    if (r->compiled.log != NULL && session_peak_bytes(r->session) != before) {
        log_memory(r);
    }
    return ATOLL_OK;
}

struct tensor *runner_leaf(struct runner *r, const char *name)
{
    value v = graph_find(runner_graph(r), name);
    if (v.id == 0) {
        return NULL;
    }
    return r->is_eager ? &r->leaves[v.id] : session_leaf(r->session, v);
}

static struct tensor *lend_leaf(void *context, value v)
{
    struct runner *r = context;
    return &r->leaves[v.id];
}

static void pass_probe(void *context, value v, const struct tensor *t)
{
    struct runner *r = context;
    r->probe(r->probe_context, v, t);
}

status runner_fit_leaf(struct runner *r, value leaf, struct error *e)
{
    return fit(r, leaf, &r->leaves[leaf.id], &r->leaf_capacity[leaf.id], e);
}

status runner_fit_leaves(struct runner *r, struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; r->is_eager && i < g->n_nodes; i++) {
        if (node_is_leaf(&g->nodes[i])) {
            TRY(runner_fit_leaf(r, (value){i}, e));
        }
    }
    return ATOLL_OK;
}

status runner_step(struct runner *r, struct error *e)
{
    TRY(runner_take_next(r, e));
    if (!r->is_eager) {
        TRY(r->twin != NULL ? checked_step(r, e) : session_step(r->session, e));
        r->peak_bytes = session_peak_bytes(r->session);
        return ATOLL_OK;
    }
    const struct graph *g = runner_graph(r);
    TRY(graph_check_symbols(g, r->symbols, e));
    TRY(runner_fit_leaves(r, e));
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        TRY(fit(r, g->outputs[i].value, &r->outputs[i], &r->output_capacity[i], e));
    }
    struct eager_run run = {.graph = g,
                            .symbols = r->symbols,
                            .leaf = lend_leaf,
                            .context = r,
                            .outputs = r->outputs,
                            .cache = r->cache};
    run.probe = r->probe != NULL ? pass_probe : NULL;
    TRY(eager_run(&run, e));
    r->peak_bytes = run.peak_bytes > r->peak_bytes ? run.peak_bytes : r->peak_bytes;
    return ATOLL_OK;
}

struct tensor runner_output(struct runner *r, const char *name)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            return r->is_eager ? r->outputs[i] : session_output(r->session, i);
        }
    }
    return (struct tensor){0};
}

double runner_number(struct runner *r, const char *name)
{
    struct tensor t = runner_output(r, name);
    return t.data == NULL || tensor_count(&t) < 1 ? (double)__builtin_nan("")
                                                  : dtype_load(t.dtype, t.data);
}

/* An f32 param from one that is kept as bf16, with its remainder where it has one. */
static void widen_param(struct runner *from, const char *name, const struct tensor *b,
                        struct tensor *a)
{
    const uint16_t *high = b->data;
    const unsigned char *byte[2] = {NULL, NULL};
    float *to = a->data;
    for (int k = 0; k < 2; k++) {
        char rest[256];
        int n = snprintf(rest, sizeof rest, "opt.byte%d.%s", k, name);
        struct tensor *t = n > 0 && (size_t)n < sizeof rest ? runner_leaf(from, rest) : NULL;
        byte[k] = t != NULL ? t->data : NULL;
    }
    for (int64_t i = 0; i < tensor_count(a); i++) {
        int32_t rest = byte[0] != NULL && byte[1] != NULL ? byte[1][i] * 256 + byte[0][i] : 0;
        to[i] = join_bf16(from_bf16(high[i]), (float)rest);
    }
}

void runner_copy_leaves(struct runner *to, struct runner *from)
{
    const struct graph *g = runner_graph(to);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const char *name = g->nodes[i].name;
        struct tensor *a = is_kept(&g->nodes[i]) ? runner_leaf(to, name) : NULL;
        struct tensor *b = a != NULL ? runner_leaf(from, name) : NULL;
        if (b == NULL || b->data == NULL || tensor_count(a) != tensor_count(b)) {
            continue;
        }
        if (a->dtype == b->dtype) {
            memcpy(a->data, b->data, tensor_bytes(a));
        } else if (a->dtype == F32 && b->dtype == BF16) {
            widen_param(from, name, b, a);
        }
    }
}
