/* Precision diagnostics: runs the rules of lint.def over a typed graph, after autocast and islands.
 * As a pass it leaves the same graph, and what it finds goes to the notes; `atoll lint` asks for
 * the findings themselves. Invariant: a rule reads the graph and reports, nothing more. */
#include "passes/lint_internal.h"

#include <stdio.h>

enum scope { NODE, GRAPH };

struct lint_rule {
    const char *code;
    enum scope scope;
    lint_fn *run;
    const char *what, *hint;
};

static const struct lint_rule rules[] = {
#define X(code, scope, rule, what, hint) {#code, scope, lint_##rule, what, hint},
#include "passes/lint.def"
#undef X
};

bool lint_rule_at(uint32_t i, struct finding *out)
{
    if (i >= ARRAY_LEN(rules)) {
        return false;
    }
    *out = (struct finding){.code = rules[i].code, .what = rules[i].what, .hint = rules[i].hint};
    return true;
}

static const char *label(struct lint *l, uint32_t id)
{
    struct arena *a = &l->out->arena;
    return id == 0 ? arena_text(a, "@%s", l->g->name)
                   : arena_text(a, "%s = %s", graph_name(l->g, (value){id}, a),
                                op_info[l->g->nodes[id].op].name);
}

void lint_found(struct lint *l, uint32_t id, const char *format, ...)
{
    struct findings *f = l->out;
    const struct node *n = &l->g->nodes[id];
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    f->items = arena_grow(&f->arena, f->items, f->n, &f->capacity, sizeof *f->items);
    bool has_name = id != 0 && n->name != NULL;
    f->items[f->n++] = (struct finding){
        .code = l->rule->code,
        .node = has_name ? arena_copy_text(&f->arena, n->name) : "",
        .label = label(l, id),
        .location = {id != 0 ? arena_copy_text(&f->arena, n->location.file) : NULL,
                     id != 0 ? n->location.line : 0},
        .what = arena_copy_text(&f->arena, what),
        .hint = l->rule->hint,
    };
}

static const bool *find_trained(const struct graph *g, struct arena *a)
{
    bool *is_trained = ARENA_ARRAY(a, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        is_trained[i] = n->op == OP_param;
        for (uint32_t k = 0; k < n->n_operands && dtype_is_float(n->dtype); k++) {
            is_trained[i] = is_trained[i] || is_trained[n->operands[k].id];
        }
    }
    return is_trained;
}

void lint_graph(const struct graph *g, const struct pass_options *o, struct findings *out)
{
    struct lint l = {.g = g, .o = o, .out = out, .scratch = SCRATCH_ARENA};
    l.is_trained = find_trained(g, &l.scratch);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        for (size_t r = 0; r < ARRAY_LEN(rules); r++) {
            if ((rules[r].scope == GRAPH) == (i == 0)) {
                l.rule = &rules[r];
                rules[r].run(&l, i);
            }
        }
    }
    arena_free(&l.scratch);
}

/* in through pass, in's own memory freed; NULL when the pass refuses, with in left as it was. */
static struct graph *through(pass_fn *pass, struct graph *in, const struct pass_options *o)
{
    struct graph *next = graph_temporary(in);
    if (pass(in, next, o, NULL) != ATOLL_OK) {
        graph_destroy(next);
        return NULL;
    }
    graph_destroy(in);
    return next;
}

status lint_model(const struct graph *model, const struct pass_options *o, struct findings *out,
                  struct error *e)
{
    static pass_fn *const passes[] = {simplify_pass, autocast_pass, islands_pass};
    struct graph *g = graph_temporary(model);
    if (model->error.code != ATOLL_OK || rewrite(model, g, NULL, NULL, NULL) != ATOLL_OK) {
        const struct error *first = model->error.code != ATOLL_OK ? &model->error : &g->error;
        fail(e, first->code, "%s", first->text);
        graph_destroy(g);
        return e != NULL ? e->code : ATOLL_VERIFY;
    }
    for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
        bool needs_policy = i > 0;
        if (needs_policy && o->policy == NULL) {
            break;
        }
        struct graph *next = through(passes[i], g, o);
        if (next == NULL) { /* refused: the rules name the reason on the graph as it is */
            break;
        }
        g = next;
    }
    lint_graph(g, o, out);
    graph_destroy(g);
    return ATOLL_OK;
}

status lint_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                 struct notes *notes)
{
    struct findings found = {.arena = SCRATCH_ARENA};
    TRY(rewrite(in, out, NULL, NULL, NULL));
    lint_graph(out, o, &found);
    for (uint32_t i = 0; i < found.n; i++) {
        const struct finding *f = &found.items[i];
        const char *place = f->location.file == NULL
                                ? ""
                                : arena_text(&found.arena, " at %s:%u", f->location.file,
                                             (unsigned)f->location.line);
        note_add(notes, "lint", f->node, "%s %s%s: %s; hint: %s", f->code, f->label, place, f->what,
                 f->hint);
    }
    arena_free(&found.arena);
    return out->error.code;
}
