/* atoll inspect: the graph after any pass, kernels, fusion groups, memory, notes; a plan's contents
 * without running any of it. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "ir/dot.h"
#include "ir/print.h"
#include "runtime/plan_file.h"

static const struct option options[] = {
    {"policy", "P", "precision policy (default fp32)"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"optimizer", "TEXT", "adamw, adam or sgd with settings"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"schedule", "TEXT", "learning-rate schedule"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "auto, on, off"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed"},
    {"forward", NULL, "without a training step"},
    {"after", "PASS",
     "print the graph after a pass: capture, simplify (first and last), index_checks, autocast, "
     "islands, lint, train_step, fp8, decompose, cut, recompute"},
    {"kernels", NULL, "print the generated C"},
    {"groups", NULL,
     "print the fusion groups in launch order, and why neighbours are not one kernel"},
    {"notes", NULL, "print what the passes decided and why"},
    {"dot", NULL, "print the step as Graphviz"},
};

struct inspection {
    const char *after;
    bool wants_kernels;
    struct compile_options dumping; /* ATOLL_DUMP's own part goes on as well */
};

static void show_stage(void *context, const char *name, const char *text)
{
    const struct inspection *i = context;
    bool is_source = strcmp(name, "kernels.c") == 0;
    if (i->dumping.dump != NULL) {
        i->dumping.dump(i->dumping.dump_context, name, text);
    }
    if ((i->after != NULL && strcmp(name, i->after) == 0) || (is_source && i->wants_kernels)) {
        printf("%s%s%s", is_source ? "" : "# after ", is_source ? "" : name, is_source ? "" : "\n");
        fputs(text, stdout);
    }
}

static void show_groups(const struct compiled *c)
{
    static const char *const kinds[] = {"rows", "columns", "contraction", "single"};
    for (uint32_t i = 0; i < c->partition.n_groups; i++) {
        const struct group *g = &c->partition.groups[i];
        printf("%3u %-11s %s:", i, kinds[g->kind],
               c->symbols[i] != NULL ? c->symbols[i] : "library");
        for (uint32_t m = 0; m < g->n_members; m++) {
            const struct node *n = graph_node(c->primitive, g->members[m]);
            printf(" %s%s%s%s", op_info[n->op].name, n->name != NULL ? "(%" : "",
                   n->name != NULL ? n->name : "", n->name != NULL ? ")" : "");
        }
        printf("\n");
    }
}

/* pass NULL: of every pass. */
static void show_notes(const struct notes *notes, const char *pass)
{
    for (uint32_t i = 0; i < notes->n; i++) {
        if (pass != NULL && strcmp(notes->items[i].pass, pass) != 0) {
            continue;
        }
        printf("%s: %s%s%s\n", notes->items[i].pass, notes->items[i].node,
               notes->items[i].node[0] != '\0' ? ": " : "", notes->items[i].text);
    }
}

static void show_graph(const struct graph *g, bool is_dot)
{
    struct arena a = SCRATCH_ARENA;
    struct text t = {.arena = &a};
    if (is_dot) {
        graph_dot(g, &t);
    } else {
        graph_print(g, &t, NULL);
    }
    fputs(t.data, stdout);
    arena_free(&a);
}

static status inspect_plan(const char *path, struct error *e)
{
    struct plan_file p;
    TRY(plan_read(path, false, &p, e));
    printf("%s", p.about);
    for (uint32_t i = 0; i < p.cuda.n_archs; i++) {
        const struct device_image *image = &p.cuda.images[i * p.cuda.n_units];
        printf("target cuda:%s %u modules\n", p.cuda.n_units > 0 ? image->arch : "-",
               p.cuda.n_units);
    }
    printf("launches %u\nstate_bytes %zu\n", program_calls(&p.program), p.state_size);
    for (uint32_t i = 0; i < p.program.n_launches; i++) {
        const struct launch *l = &p.program.launches[i];
        const struct node *n = graph_node(p.graph, l->node);
        if (l->count == 0) {
            continue;
        }
        printf("%3u %s", i, l->kind == LAUNCH_KERNEL ? l->symbol : op_info[n->op].name);
        if (l->count > 1) {
            printf(" over %u tensors", l->count);
        }
        printf("\n");
    }
    show_graph(p.graph, false);
    plan_file_close(&p);
    return ATOLL_OK;
}

/* --after names a pass that these options run. */
static status check_after(const char *after, const struct compile_options *o, struct arena *a,
                          struct error *e)
{
    struct text names = {.arena = a};
    const char *name;
    for (uint32_t i = 0; (name = compile_pass_name(o, i)) != NULL; i++) {
        if (after == NULL || strcmp(after, name) == 0) {
            return ATOLL_OK;
        }
        if (names.data == NULL || strstr(names.data, name) == NULL) {
            text_add(&names, "%s%s", i > 0 ? ", " : "", name);
        }
    }
    return fail(e, ATOLL_USAGE, "--after %s: expected a pass that runs here: %s", after,
                names.data);
}

static status inspect_model(const struct arguments *a, struct context *c, struct error *e)
{
    struct job j;
    struct compiled compiled = {0};
    struct inspection wanted = {.after = argument(a, "after", NULL),
                                .wants_kernels = argument_flag(a, "kernels")};
    status code = job_open(&j, a->positional[0], a, c, e);
    code = code == ATOLL_OK ? job_policy(&j, argument(a, "policy", "fp32"), a, e) : code;
    bool needs_kernels = wanted.wants_kernels || argument_flag(a, "groups");
    bool is_dot = argument_flag(a, "dot");
    bool is_plain = wanted.after == NULL && !needs_kernels && !argument_flag(a, "notes");
    if (argument_flag(a, "forward")) {
        j.compile.train = NULL;
    }
    wanted.dumping = j.compile;
    code = code == ATOLL_OK ? check_after(wanted.after, &j.compile, &j.arena, e) : code;
    j.compile.dump = show_stage;
    j.compile.dump_context = &wanted;
    j.compile.is_eager = !needs_kernels;
    code = code == ATOLL_OK ? of_model(compile_graph(j.model, &j.compile, &compiled, e), e) : code;
    if (code == ATOLL_OK) {
        if (argument_flag(a, "groups")) {
            show_groups(&compiled);
            printf("\nwhy not fused, by the value that one group reads of the other:\n");
            show_notes(&compiled.notes, "fuse");
        }
        if (argument_flag(a, "notes")) {
            show_notes(&compiled.notes, NULL);
        }
        if (is_plain || is_dot) {
            show_graph(compiled.step != NULL ? compiled.step : j.model, is_dot);
        }
    }
    compiled_free(&compiled);
    job_close(&j);
    return code;
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL or PLAN");
    }
    if (!is_plan_name(a->positional[0])) {
        return inspect_model(a, c, e);
    }
    TRY(argument_only(a, "",
                      "a plan is compiled already: inspect a plan without options, or its "
                      "model",
                      e));
    return inspect_plan(a->positional[0], e);
}

const struct command command_inspect = {
    "inspect",
    "MODEL|PLAN [options]",
    "print the graph after a pass, kernels, fusion groups and the reasons of the passes",
    "  atoll inspect examples/digits.graph --policy bf16 --notes\n  atoll inspect "
    "examples/digits.graph --kernels\n"
    "  atoll inspect step.plan\n",
    options,
    ARRAY_LEN(options),
    run,
};
