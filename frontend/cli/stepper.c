/* The engine over a model of the command line: binds the symbols to a call's sizes, traces, and
 * keeps the state with whichever runner steps. */
#include <stdlib.h>
#include <string.h>

#include "stepper.h"

static void free_runner(struct runner *r)
{
    if (r != NULL) {
        runner_free(r);
        free(r);
    }
}

static status new_runner(struct stepper *s, const struct graph *g, bool is_eager,
                         struct runner **out, struct error *e)
{
    struct compile_options o = s->compile;
    o.is_eager = o.is_eager || is_eager;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = runner_open(*out, g, &o, s->seed, e);
    if (code != ATOLL_OK) {
        free_runner(*out);
        *out = NULL;
    }
    return code;
}

static status build(void *context, const struct build_request *r, void **plan,
                    struct build_report *report, struct error *e)
{
    struct stepper *s = context;
    struct runner *runner;
    TRY(new_runner(s, r->graph, false, &runner, e));
    build_report_of(report, &runner->compiled);
    status code = runner_bind(runner, r->symbols, e);
    if (code != ATOLL_OK) {
        free_runner(runner);
        return code;
    }
    if (runner->session != NULL) {
        report->peak_bytes = session_peak_bytes(runner->session);
        report->leaf_bytes = session_leaf_bytes(runner->session);
    }
    *plan = runner;
    return ATOLL_OK;
}

static void drop(void *context, void *plan)
{
    (void)context;
    free_runner(plan);
}

/* ---- lines of the model's text ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* A value is defined where its name stands first. 0: nowhere. */
static uint32_t line_of(const char *text, const char *name)
{
    size_t n = strlen(name);
    uint32_t line = 1;
    for (const char *p = text; *p != '\0'; p++) {
        line += *p == '\n';
        if (*p == '#') { /* a comment */
            p += strcspn(p, "\n") - (p[strcspn(p, "\n")] == '\0');
            line += p[0] == '\n';
        } else if (*p == '%' && strncmp(p + 1, name, n) == 0 && !is_word(p[n + 1])) {
            return line;
        }
    }
    return 0;
}

static void locate(struct graph *g, const char *path, const char *text)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct node *n = &g->nodes[i];
        if (n->name != NULL && n->location.file == NULL) {
            n->location.line = line_of(text, n->name);
            n->location.file = n->location.line != 0 ? arena_copy_text(&g->arena, path) : NULL;
        }
    }
}

status stepper_open(struct stepper *s, const char *path, const char *text, struct graph *model,
                    const struct job *job, const struct callable_options *o, struct error *e)
{
    struct callable_options own = *o;
    *s = (struct stepper){.model = model, .compile = job->compile, .seed = job->seed};
    if (text != NULL) {
        locate(model, path, text);
    }
    key_of_options(&s->compile, &s->arena, &s->key);
    own.build = build;
    own.drop = drop;
    own.context = s;
    own.log = s->compile.log;
    own.log_context = s->compile.log_context;
    own.warn = s->compile.warn;
    own.warn_context = s->compile.warn_context;
    s->callable = callable_create(model->name, &own);
    return s->callable != NULL ? ATOLL_OK : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
}

void stepper_close(struct stepper *s)
{
    callable_destroy(s->callable); /* and with it every plan's runner */
    free_runner(s->eager);
    arena_free(&s->arena);
    *s = (struct stepper){0};
}

/* ---- a call ---- */

/* Names of the model's symbols, for the dims that are one. */
static void name_dims(const struct stepper *s, struct trace *t, struct arena *a)
{
    struct trace_leaf *leaves = arena_copy(a, t->leaves, (t->n_leaves + 1) * sizeof *t->leaves);
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        const struct shape *shape =
            &graph_node(s->model, graph_find(s->model, leaves[i].name))->shape;
        const char **names = ARENA_ARRAY(a, const char *, MAX_RANK);
        for (uint32_t d = 0; d < shape->rank; d++) {
            struct dim dim = shape->dims[d];
            bool is_one = !dim_is_static(dim) && dim.factor == 1 && dim.symbols[1] == 0;
            names[d] = is_one ? s->model->symbols[dim.symbols[0]].name : NULL;
        }
        leaves[i].dim_names = names;
    }
    t->leaves = leaves;
}

/* The runner of this call, with the state that the last one left. */
static status take_over(struct stepper *s, const struct called *now, const struct graph *g,
                        struct error *e)
{
    struct runner *next = now->plan;
    if (now->outcome == LEDGER_EAGER) {
        TRY(new_runner(s, g, true, &next, e));
    }
    if (s->current != NULL && s->current != next) {
        runner_copy_leaves(next, s->current);
    }
    if (now->outcome == LEDGER_EAGER) {
        free_runner(s->eager);
        s->eager = next;
    }
    callable_done(s->callable, &s->called); /* held till here: its plan has the state */
    s->current = next;
    s->called = *now;
    return ATOLL_OK;
}

status stepper_call(struct stepper *s, const int64_t *sizes, struct runner **out, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct trace t;
    struct called now;
    struct graph *g = graph_bind(s->model, sizes, e);
    if (g == NULL) {
        return of_model(e->code, e);
    }
    trace_of_graph(&t, g, DEVICE_CPU, &scratch);
    name_dims(s, &t, &scratch);
    t.key = &s->key;
    status code = callable_call(s->callable, &t, &now, e);
    code = code == ATOLL_OK ? take_over(s, &now, g, e) : code;
    if (code == ATOLL_OK && now.outcome != LEDGER_EAGER) {
        code = runner_bind(s->current, now.symbols, e);
    }
    graph_destroy(g);
    arena_free(&scratch);
    *out = s->current;
    return code;
}
