/* Compiled functions. A call traces the function, asks the engine for a plan whose guards hold, and
 * runs it. Invariants: user code runs under
 * no lock and no recovery point of ours; nothing stored changes before the last segment ran. */
#include "compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lend.h"

/* ---- making one ---- */

static void warn_on_stderr(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "atoll: warning: %s\n", text);
}

static void print_on_stderr(const char *line)
{
    fprintf(stderr, "atoll: %s\n", line);
}

static status read_options(struct atoll_compiled *f, const atoll_compile_options *o,
                           struct error *e)
{
    const char *scaler = o->scaler != NULL ? o->scaler : "auto";
    bool is_auto = strcmp(scaler, "auto") == 0, is_on = strcmp(scaler, "on") == 0;
    if (!is_auto && !is_on && strcmp(scaler, "off") != 0) {
        return fail(e, ATOLL_USAGE, "compile options: scaler is '%s', expected auto, on or off",
                    scaler);
    }
    context_read(&f->context);
    f->context.print = print_on_stderr;
    TRY(context_apply(&f->context, &f->forward.options, e));
    TRY(policy_named(o->policy != NULL ? o->policy : "fp32", &f->forward.options.policy, e));
    f->forward.options.is_relaxed = o->is_relaxed != 0;
    f->forward.options.is_eager = o->is_eager != 0;
    TRY(compiled_device(f, o->device, &f->forward.options.device, e));
    f->last.options = f->forward.options;
    f->forward.forward = f->last.forward = &f->forward;
    f->train = train_options_default();
    if (o->optimizer == NULL && (o->schedule != NULL || o->clip != 0.0 || o->scaler != NULL)) {
        return fail(e, ATOLL_USAGE,
                    "compile options: schedule, clip and scaler are of a training step, found no "
                    "optimizer; hint: .optimizer = \"adamw\"");
    }
    if (o->optimizer != NULL) {
        TRY(train_options_parse(&f->train, o->optimizer, o->schedule, e));
        f->train.max_norm = o->clip;
        f->train.scaler.is_enabled = is_auto ? f->forward.options.policy->low == F16 : is_on;
        TRY(train_options_check(&f->train, e));
        f->last.options.train = &f->train;
    }
    f->fullgraph = o->fullgraph != 0;
    f->is_frozen = o->frozen != 0;
    f->seed = o->seed;
    return ATOLL_OK;
}

static status make_keys(struct atoll_compiled *f, const atoll_compile_options *o, struct error *e)
{
    struct recovery r;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = read_options(f, o, e);
    if (code == ATOLL_OK) {
        key_of_options(&f->forward.options, &f->arena, &f->forward.key);
        key_of_options(&f->last.options, &f->arena, &f->last.key);
    }
    arena_recover_end(&r);
    return code;
}

static status open_compiled(struct atoll_compiled *f, atoll_function *function,
                            const atoll_compile_options *o, struct error *e)
{
    f->function = function;
    f->warn = o->warn != NULL ? o->warn : warn_on_stderr;
    f->warn_context = o->warn_context;
    f->name = strdup(o->name != NULL ? o->name : "function");
    TRY(make_keys(f, o, e));
    struct callable_options engine = {.build = plan_build,
                                      .drop = plan_drop,
                                      .context = f,
                                      .limit = o->limit,
                                      .capacity = o->capacity,
                                      .is_static = o->is_static != 0,
                                      .fails_on_recompile = o->fails_on_recompile != 0,
                                      .is_eager_over_limit = o->is_eager_over_limit != 0,
                                      .is_eager_while_building = o->is_eager_while_building != 0,
                                      .log = f->forward.options.log,
                                      .log_context = f->forward.options.log_context,
                                      .warn = f->warn,
                                      .warn_context = f->warn_context};
    f->engine = f->name != NULL ? callable_create(f->name, &engine) : NULL;
    return f->engine != NULL ? ATOLL_OK : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
}

atoll_status atoll_compile(atoll_function *function, const atoll_compile_options *options,
                           atoll_compiled **out, atoll_error *error)
{
    const atoll_compile_options defaults = {0};
    struct error e = {0};
    *out = NULL;
    if (error != NULL && error->code != ATOLL_OK) {
        return error->code;
    }
    struct atoll_compiled *f = calloc(1, sizeof *f);
    if (f == NULL || function == NULL) {
        free(f);
        fail(&e, function == NULL ? ATOLL_USAGE : ATOLL_OUT_OF_MEMORY,
             function == NULL ? "atoll_compile: the function is NULL" : "out of memory");
        return lend_error(&e, error);
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->building, NULL);
    pthread_mutex_init(&f->on_device, NULL);
    pthread_rwlock_init(&f->in_store, NULL);
    if (open_compiled(f, function, options != NULL ? options : &defaults, &e) != ATOLL_OK) {
        atoll_compiled_destroy(f);
        return lend_error(&e, error);
    }
    *out = f;
    return ATOLL_OK;
}

static void running_free(struct running *r)
{
    for (uint32_t i = 0; i < r->n_owned; i++) {
        free(r->owned[i]);
    }
    atoll_trace_destroy(r->trace);
    free(r->data);
    free(r->owned);
    free(r->facts);
    free(r->ordered);
    free(r->arguments);
    free(r->leaves);
    free(r->frontier);
    free(r->names);
    free(r);
}

void atoll_compiled_destroy(atoll_compiled *f)
{
    if (f == NULL) {
        return;
    }
    callable_destroy(f->engine);
    while (f->idle != NULL) {
        struct running *r = f->idle;
        f->idle = r->next;
        running_free(r);
    }
    frozen_free(f);
    ways_free(f);
    store_free(f);
    compiled_devices_free(f);
    pthread_mutex_destroy(&f->on_device);
    pthread_rwlock_destroy(&f->in_store);
    pthread_mutex_destroy(&f->building);
    pthread_mutex_destroy(&f->lock);
    arena_free(&f->arena);
    free(f->segments);
    free(f->name);
    free(f);
}

const atoll_ledger *atoll_compiled_ledger(const atoll_compiled *f)
{
    return callable_ledger(f->engine);
}

/* ---- a segment ---- */

/* Leaves that the function recorded itself have no memory of the call's: they are stored. */
static status extend_data(struct running *r, struct error *e)
{
    uint32_t n = r->trace->n_leaf_facts / FACTS_A_LEAF;
    if (!tape_room(r->trace, &r->data, &r->data_room, n + 1, sizeof *r->data)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    while (r->n_data < n) {
        r->data[r->n_data++] = NULL;
    }
    return ATOLL_OK;
}

/* Facts and memory in the order of the segment's graph: leaves, then the sizes that ops spell. */
static bool gather(struct running *r)
{
    struct atoll_trace *t = r->trace;
    uint32_t most = t->n_leaf_facts + t->n_spelled + 1, n = 0, spelled = 0;
    if (!tape_room(t, &r->facts, &r->fact_room, most, sizeof *r->facts) ||
        !tape_room(t, &r->ordered, &r->ordered_room, t->n_leaf_facts / FACTS_A_LEAF + 1,
                   sizeof *r->ordered)) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_calls; i++) {
        const struct capture_call *c = &t->calls[i];
        uint32_t leaf = c->leaf != 0 ? c->leaf : c->here;
        if (leaf != 0) {
            memcpy(&r->facts[n * FACTS_A_LEAF], &t->leaves[(leaf - 1) * FACTS_A_LEAF],
                   FACTS_A_LEAF * sizeof *r->facts);
            r->ordered[n++] =
                t->tape[c->at] == OP_scalar ? &t->numbers[leaf - 1] : r->data[leaf - 1];
        }
    }
    int64_t *sizes = &r->facts[n * FACTS_A_LEAF];
    for (uint32_t i = 0; i < t->n_calls; i++) {
        const struct capture_call *c = &t->calls[i];
        uint32_t end = i + 1 < t->n_calls ? t->calls[i + 1].spelled : t->n_spelled;
        for (uint32_t k = c->spelled; c->here == 0 && k < end; k++) {
            sizes[spelled++] = t->spelled[k];
        }
    }
    r->n_ordered = n;
    r->n_facts = n * FACTS_A_LEAF + spelled;
    return true;
}

/* Names and lines of the segment's leaves, for the engine's words. */
static bool name_leaves(struct running *r, const struct graph *g)
{
    uint32_t n = 0;
    if (!tape_room(r->trace, &r->leaves, &r->trace_leaf_room, r->n_ordered + 1,
                   sizeof *r->leaves)) {
        return false;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (node_is_leaf(&g->nodes[i])) {
            r->leaves[n++] = (struct trace_leaf){
                .v = {i}, .name = g->nodes[i].name, .location = g->nodes[i].location};
        }
    }
    return n == r->n_ordered;
}

/* A miss, or the op-by-op outcome: the graph is needed. */
static status call_with_graph(struct running *r, struct trace *t, struct called *out,
                              struct error *e)
{
    const struct graph *g = capture_graph(r->trace);
    if (g == NULL || !name_leaves(r, g)) {
        struct error *why = &r->trace->error;
        return fail(e, why->code != ATOLL_OK ? why->code : ATOLL_INTERNAL, "%s", why->text);
    }
    t->graph = g;
    t->leaves = r->leaves;
    return callable_call(r->f->engine, t, out, e);
}

status run_segment(struct running *r, bool is_last, take_output *take, void *context,
                   struct error *e)
{
    struct atoll_compiled *f = r->f;
    struct called out;
    TRY(extend_data(r, e));
    if (!gather(r)) {
        return fail(e, r->trace->error.code, "%s", r->trace->error.text);
    }
    struct trace t = {.hash = segment_hash(r, is_last),
                      .key = is_last ? &r->way->key : &r->way->forward->key,
                      .n_leaves = r->n_ordered,
                      .facts = r->facts,
                      .n_facts = r->n_facts,
                      .segment = r->segment,
                      .call = r->call,
                      .reads = r->reads,
                      .n_reads = r->n_reads};
    if (!callable_find(f->engine, &t, &out)) {
        TRY(call_with_graph(r, &t, &out, e));
    }
    status code;
    if (out.outcome == LEDGER_EAGER) {
        code = plan_run_eagerly(f, &t, r->ordered, take, context, e);
    } else {
        code = plan_run(out.plan, out.symbols, r->ordered, take, context, e);
    }
    callable_done(f->engine, &out);
    return code;
}

/* ---- calls ---- */

static struct running *take_running(struct atoll_compiled *f)
{
    pthread_mutex_lock(&f->lock);
    struct running *r = f->idle;
    if (r != NULL) {
        f->idle = r->next;
    }
    pthread_mutex_unlock(&f->lock);
    if (r == NULL) {
        r = calloc(1, sizeof *r);
        struct atoll_trace *t = r != NULL ? capture_new() : NULL;
        if (t == NULL) {
            free(r);
            return NULL;
        }
        r->trace = t;
        r->f = f;
        t->is_lazy = true;
        t->running = r;
    }
    return r;
}

static void give_running(struct running *r)
{
    for (uint32_t i = 0; i < r->n_owned; i++) {
        free(r->owned[i]);
    }
    r->n_owned = 0;
    pthread_mutex_lock(&r->f->lock);
    r->next = r->f->idle;
    r->f->idle = r;
    pthread_mutex_unlock(&r->f->lock);
}

static status check_argument(atoll_site site, const atoll_view *v, uint32_t i, struct error *e)
{
    if (v->dtype == NULL || v->rank > MAX_RANK || (v->data == NULL && v->bytes > 0)) {
        return fail(e, ATOLL_USAGE, "%s:%u: argument %u: found %s, expected a view of rank 0 to %d",
                    site.file, site.line, i,
                    v->dtype == NULL     ? "no dtype"
                    : v->rank > MAX_RANK ? "a rank or size out of range"
                                         : "no data",
                    MAX_RANK);
    }
    return ATOLL_OK;
}

static status record_arguments(struct running *r, const atoll_view *v, uint32_t n, struct error *e)
{
    struct atoll_trace *t = r->trace;
    if (!tape_room(t, &r->arguments, &r->argument_room, n + 1, sizeof *r->arguments) ||
        !tape_room(t, &r->data, &r->data_room, n + 1, sizeof *r->data)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < n; i++) {
        char name[24];
        atoll_dims dims = {.n = v[i].rank};
        TRY(check_argument(r->site, &v[i], i, e));
        memcpy(dims.at, v[i].shape, v[i].rank * sizeof *dims.at);
        if (v[i].name == NULL) {
            snprintf(name, sizeof name, "argument%u", i);
        }
        atoll_dtype dtype = (atoll_dtype)dtype_named(v[i].dtype, strlen(v[i].dtype));
        r->arguments[i] =
            atoll_input_at(r->site, t, v[i].name != NULL ? v[i].name : name, dtype, dims);
        r->data[i] = v[i].data;
    }
    r->n_data = n;
    return t->error.code == ATOLL_OK ? ATOLL_OK : fail(e, t->error.code, "%s", t->error.text);
}

static status trace_and_run(struct running *r, const atoll_view *v, uint32_t n, void *context,
                            atoll_results *results, struct error *e)
{
    struct atoll_trace *t = r->trace;
    TRY(record_arguments(r, v, n, e));
    t->has_arguments = true;
    r->f->function(t, r->arguments, n, context);
    if (t->error.code != ATOLL_OK) {
        return fail(e, t->error.code, "%s", t->error.text);
    }
    if (t->n_outputs == 0 && t->n_updates == 0) {
        return fail(e, ATOLL_USAGE, "%s:%u: @%s recorded no output and no update", r->site.file,
                    r->site.line, r->f->name);
    }
    TRY(way_last(r, n, e));
    TRY(run_segment(r, true, results_take, results, e));
    if (r->f->is_frozen && r->options == NULL) {
        frozen_keep(r, n);
    }
    return ATOLL_OK;
}

static status call(struct atoll_compiled *f, atoll_site site, const atoll_call_options *options,
                   const atoll_view *v, uint32_t n, void *context, atoll_results *results,
                   struct error *e)
{
    status code = ATOLL_OK;
    if (results != NULL) {
        results_begin(results);
    }
    if (f->is_frozen && options == NULL && frozen_call(f, v, n, results, &code, e)) {
        return code;
    }
    struct running *r = take_running(f);
    if (r == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    r->site = site;
    r->options = options;
    r->call = r->mark = 0;
    r->reads_data = false;
    r->segment = 0;
    r->n_data = r->n_reads = 0;
    capture_reset(r->trace, f->name);
    code = way_begin(r, e);
    if (code == ATOLL_OK) {
        capture_open(r->trace);
        code = trace_and_run(r, v, n, context, results, e);
        capture_close(r->trace);
    }
    give_running(r);
    return code;
}

atoll_status atoll_call_with_at(atoll_site site, atoll_compiled *f,
                                const atoll_call_options *options, const atoll_view *arguments,
                                uint32_t n_arguments, void *context, atoll_results *results,
                                atoll_error *error)
{
    struct error e = {0};
    if (error != NULL && error->code != ATOLL_OK) {
        return error->code;
    }
    (void)call(f, site, options, arguments, n_arguments, context, results, &e);
    return lend_error(&e, error);
}

atoll_status atoll_call_at(atoll_site site, atoll_compiled *f, const atoll_view *arguments,
                           uint32_t n_arguments, void *context, atoll_results *results,
                           atoll_error *error)
{
    return atoll_call_with_at(site, f, NULL, arguments, n_arguments, context, results, error);
}
