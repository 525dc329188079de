/* The conductor: passes, fusion, lowering, text, compiler, library, program. Each stage's result is
 * plain data that the next one reads; nothing here computes. */
#include "compile.h"

#include <string.h>
#include <time.h>

#include "ir/print.h"
#include "ir/verify.h"
#include "runtime/cache.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct stage {
    const char *name;
    pass_fn *pass;
    bool needs_policy, needs_train, needs_gradients;
};

static const struct stage PIPELINE[] = {
    {.name = "simplify", .pass = simplify_pass},
    {.name = "index_checks", .pass = index_checks_pass},
    {.name = "autocast", .pass = autocast_pass, .needs_policy = true},
    {.name = "islands", .pass = islands_pass, .needs_policy = true},
    {.name = "lint", .pass = lint_pass},
    {.name = "autodiff", .pass = autodiff_pass, .needs_gradients = true},
    {.name = "train_step", .pass = train_step_pass, .needs_train = true},
    {.name = "decompose", .pass = decompose_pass},
    {.name = "simplify", .pass = simplify_pass},
};

static bool is_run(const struct stage *s, const struct compile_options *o)
{
    return !(s->needs_policy && o->policy == NULL) && !(s->needs_train && o->train == NULL) &&
           !(s->needs_gradients && !o->wants_gradients);
}

const char *compile_pass_name(const struct compile_options *o, uint32_t i)
{
    for (uint32_t at = 0; at < ARRAY_LEN(PIPELINE); at++) {
        if (is_run(&PIPELINE[at], o) && i-- == 0) {
            return PIPELINE[at].name;
        }
    }
    return NULL;
}

static void dump_graph(const struct compile_options *o, const char *name, const struct graph *g)
{
    if (o->dump != NULL) {
        struct arena scratch = {0};
        struct text t = {.arena = &scratch};
        graph_print(g, &t, NULL);
        o->dump(o->dump_context, name, t.data);
        arena_free(&scratch);
    }
}

static status run_passes(const struct graph *model, const struct compile_options *o,
                         struct compiled *out, struct error *e)
{
    struct pass_options options = {
        .policy = o->policy, .train = o->train, .is_relaxed = o->is_relaxed};
    struct graph *now_graph = NULL;
    for (uint32_t i = 0; i < ARRAY_LEN(PIPELINE); i++) {
        const struct stage *s = &PIPELINE[i];
        if (!is_run(s, o)) {
            continue;
        }
        const struct graph *in = now_graph != NULL ? now_graph : model;
        if (s->pass == decompose_pass) {
            out->step = now_graph;
        }
        struct graph *next = graph_like(in);
        status code = s->pass(in, next, &options, &out->notes);
        if (now_graph != out->step) {
            graph_destroy(now_graph);
        }
        now_graph = next;
        if (code != ATOLL_OK) {
            bool is_named = strncmp(next->error.text, s->name, strlen(s->name)) == 0;
            fail(e, code, "%s%s%s", is_named ? "" : s->name, is_named ? "" : ": ",
                 next->error.text);
            graph_destroy(next);
            return code;
        }
        dump_graph(o, s->name, next);
        if (graph_verify(next, e) !=
            ATOLL_OK) { /* a pass of ours left a graph that breaks a rule, or the model does */
            out->primitive = next;
            return e != NULL ? e->code : ATOLL_VERIFY;
        }
    }
    out->primitive = now_graph;
    return ATOLL_OK;
}

/* ---- kernels to one library ---- */

struct unique {
    const char *text; /* with the name K */
    const char *symbol;
    const struct kernel *kernel;
};

static const char *symbol_for(struct compiled *c, const struct kernel *k, uint32_t n)
{
    char ops[40];
    size_t at = 0;
    for (const char *p = k->comment; *p != '\0' && at + 1 < sizeof ops; p++) {
        bool is_word = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_';
        if (*p == '(') {
            p += strcspn(p, ")");
            continue;
        }
        ops[at++] = is_word ? *p : '_';
    }
    ops[at] = '\0';
    return arena_text(&c->arena, "k%u_%s", n, ops);
}

static status lower_groups(struct compiled *c, struct unique *unique, bool is_relaxed,
                           struct error *e)
{
    for (uint32_t i = 0; i < c->partition.n_groups; i++) {
        enum group_kind kind = c->partition.groups[i].kind;
        if (kind != GROUP_ROW && kind != GROUP_COLUMN) {
            continue;
        }
        struct kernel *k = &c->kernels[i];
        TRY(kernel_lower(c->primitive, &c->partition, i, is_relaxed, &c->arena, k, e));
        struct text t = {.arena = &c->arena};
        const char *comment = k->comment;
        k->comment = "";
        emit_kernel_c(&t, k, "K");
        k->comment = comment;
        uint32_t at = 0;
        while (at < c->n_kernels && strcmp(unique[at].text, t.data) != 0) {
            at++;
        }
        if (at == c->n_kernels) {
            unique[c->n_kernels++] = (struct unique){t.data, symbol_for(c, k, at), k};
        }
        c->symbols[i] = k->name = unique[at].symbol;
    }
    return ATOLL_OK;
}

/* Kernels dealt to two translation units, so that two compilers can work at once. */
static uint32_t write_units(struct compiled *c, const struct unique *unique, struct text units[2])
{
    uint32_t n_units = c->n_kernels > 3 ? 2 : 1;
    for (uint32_t u = 0; u < n_units; u++) {
        struct kernel *mine = ARENA_ARRAY(&c->arena, struct kernel, c->n_kernels + 1);
        uint32_t n = 0;
        for (uint32_t i = u; i < c->n_kernels; i += n_units) {
            mine[n++] = *unique[i].kernel;
        }
        units[u] = (struct text){.arena = &c->arena};
        emit_prologue_c(&units[u], mine, n);
        for (uint32_t i = u; i < c->n_kernels; i += n_units) {
            emit_kernel_c(&units[u], unique[i].kernel, unique[i].symbol);
            emit_kernel_c(&c->source, unique[i].kernel, unique[i].symbol);
        }
    }
    return n_units;
}

static status build_library(struct compiled *c, const struct compile_options *o,
                            const struct unique *unique, struct error *e)
{
    struct text units[2];
    if (c->n_kernels == 0) {
        return ATOLL_OK;
    }
    uint32_t n = write_units(c, unique, units);
    const char *sources[2] = {units[0].data, n > 1 ? units[1].data : NULL};
    size_t sizes[2] = {units[0].length, n > 1 ? units[1].length : 0};
    struct error warning = {0};
    status code = cached_compile(o->cache, &o->cc, sources, sizes, n, &c->library,
                                 &c->is_from_cache, &warning, e);
    if (warning.code != ATOLL_OK) {
        note_add(&c->notes, "cache", "", "%s", warning.text);
        if (o->warn != NULL) {
            o->warn(o->warn_context, warning.text);
        }
    }
    return code;
}

static void *find_kernel(void *context, const char *symbol)
{
    return library_find(context, symbol);
}

static status build_program(struct compiled *out, const struct compile_options *o, struct error *e)
{
    double start = now();
    struct fuse_options fuse_options = {.is_off = o->is_unfused};
    TRY(fuse(out->primitive, &fuse_options, &out->partition, &out->notes, e));
    uint32_t n = out->partition.n_groups;
    out->kernels = ARENA_ARRAY(&out->arena, struct kernel, n + 1);
    out->symbols = ARENA_ARRAY(&out->arena, const char *, n + 1);
    out->source.arena = &out->arena;
    struct unique *unique = ARENA_ARRAY(&out->arena, struct unique, n + 1);
    TRY(lower_groups(out, unique, o->is_relaxed, e));
    out->seconds_passes += now() - start;
    start = now();
    TRY(build_library(out, o, unique, e));
    out->seconds_compiler = now() - start;
    if (o->dump != NULL && out->source.data != NULL) {
        o->dump(o->dump_context, "kernels.c", out->source.data);
    }
    TRY(program_build(out->primitive, &out->partition, out->kernels, out->symbols, &out->program,
                      e));
    return out->n_kernels > 0 ? program_link(&out->program, find_kernel, out->library, e)
                              : ATOLL_OK;
}

/* Everything in between allocates from arenas that `out` owns, so running out of memory leaves by
 * the recovery point. */
static status recovering(struct compiled *out, struct error *e, status (*work)(void *context),
                         void *context)
{
    struct recovery r;
    (void)out;
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory while compiling");
    }
    status code = work(context);
    arena_recover_end(&r);
    return code;
}

struct job {
    const struct graph *model;
    const struct compile_options *o;
    struct compiled *out;
    struct error *e;
};

static status whole_job(void *context)
{
    struct job *j = context;
    double start = now();
    TRY(run_passes(j->model, j->o, j->out, j->e));
    j->out->seconds_passes = now() - start;
    return j->o->is_eager ? ATOLL_OK : build_program(j->out, j->o, j->e);
}

static status second_half(void *context)
{
    struct job *j = context;
    return build_program(j->out, j->o, j->e);
}

status compile_graph(const struct graph *model, const struct compile_options *o,
                     struct compiled *out, struct error *e)
{
    *out = (struct compiled){0};
    struct job job = {model, o, out, e};
    if (model->error.code != ATOLL_OK) {
        return fail(e, model->error.code, "%s", model->error.text);
    }
    return recovering(out, e, whole_job, &job);
}

status compile_primitive(struct graph *primitive, const struct compile_options *o,
                         struct compiled *out, struct error *e)
{
    *out = (struct compiled){.primitive = primitive};
    struct job job = {NULL, o, out, e};
    return recovering(out, e, second_half, &job);
}

void compiled_free(struct compiled *c)
{
    program_free(&c->program);
    library_close(c->library);
    if (c->step != c->primitive) {
        graph_destroy(c->step);
    }
    graph_destroy(c->primitive);
    partition_free(&c->partition);
    arena_free(&c->notes.arena);
    arena_free(&c->arena);
    *c = (struct compiled){0};
}
