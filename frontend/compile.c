/* The conductor: passes, fusion, lowering, text, compiler, library, program. Each stage's result is
 * plain data that the next one reads; nothing here computes. */
#include "compile.h"

#include <string.h>
#include <time.h>

#include "ir/print.h"
#include "ir/verify.h"
#include "passes/decompose.h"
#include "runtime/cache.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { MAX_KEPT = 300 }; /* values a kernel stores for looking at: CUDA bounds its parameters */

struct stage {
    const char *name;
    pass_fn *pass;
    bool needs_policy, needs_train, needs_gradients, needs_fp8, needs_cuda;
    bool is_optional; /* a program can do without it */
};

static const struct stage PIPELINE[] = {
    {.name = "simplify", .pass = simplify_pass, .is_optional = true},
    {.name = "index_checks", .pass = index_checks_pass},
    {.name = "autocast", .pass = autocast_pass, .needs_policy = true, .is_optional = true},
    {.name = "islands", .pass = islands_pass, .needs_policy = true, .is_optional = true},
    {.name = "lint", .pass = lint_pass, .is_optional = true},
    {.name = "autodiff", .pass = autodiff_pass, .needs_gradients = true},
    {.name = "train_step", .pass = train_step_pass, .needs_train = true},
    {.name = "fp8", .pass = fp8_pass, .needs_fp8 = true, .is_optional = true},
    {.name = "fp8_paths", .pass = fp8_paths_pass, .needs_cuda = true},
    {.name = "decompose", .pass = decompose_pass},
    {.name = "cut", .pass = cut_pass, .needs_fp8 = true, .is_optional = true},
    {.name = "simplify", .pass = simplify_pass, .is_optional = true},
    {.name = "recompute", .pass = recompute_pass, .needs_train = true, .is_optional = true},
    {.name = "fuse", .is_optional = true}, /* build_program's: a partition, no graph */
};

/* ---- passes left out ---- */

/* stop_after is one name, the passes left out are a list. */
static status check_list(const char *list, bool wants_optional, struct error *e)
{
    if (list != NULL && !wants_optional && strchr(list, ',') != NULL) {
        return fail(e, ATOLL_USAGE, "'%s': expected one pass to stop after", list);
    }
    for (const char *p = list; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ",");
        bool is_known = false, is_optional = false;
        for (uint32_t i = 0; i < ARRAY_LEN(PIPELINE); i++) {
            bool is_it = strlen(PIPELINE[i].name) == n && memcmp(p, PIPELINE[i].name, n) == 0;
            is_known = is_known || is_it;
            is_optional = is_optional || (is_it && PIPELINE[i].is_optional);
        }
        if (!is_known) {
            return fail(e, ATOLL_USAGE,
                        "no pass '%.*s'; expected simplify, index_checks, autocast, islands, lint, "
                        "autodiff, train_step, fp8, fp8_paths, decompose, cut, recompute or fuse",
                        (int)n, p);
        }
        if (wants_optional && !is_optional) {
            return fail(e, ATOLL_USAGE,
                        "pass %.*s cannot be left out: no program without it; expected simplify, "
                        "autocast, islands, lint, fp8, cut, recompute or fuse",
                        (int)n, p);
        }
        p += n + (p[n] == ',');
    }
    return ATOLL_OK;
}

/* Left out by name, or as standing behind the pass to stop after. */
static bool is_left_out(const struct compile_options *o, uint32_t stage)
{
    bool is_behind = false;
    for (uint32_t i = 0; o->stop_after != NULL && i < stage; i++) {
        is_behind = is_behind || strcmp(PIPELINE[i].name, o->stop_after) == 0;
    }
    return PIPELINE[stage].is_optional &&
           (is_behind || list_has(o->disabled, PIPELINE[stage].name));
}

/* ---- what there is to tell ---- */

static void tell(const struct compiled *c, const char *category, struct text *t)
{
    if (t->data != NULL) {
        c->log(c->log_context, category, t->data);
    }
    t->length = 0;
}

/* The notes from number `first` on. */
static void log_notes(const struct compiled *c, uint32_t first)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    for (uint32_t i = first; c->log != NULL && i < c->notes.n; i++) {
        const struct note *n = &c->notes.items[i];
        bool is_precision = strcmp(n->pass, "autocast") == 0 || strcmp(n->pass, "islands") == 0 ||
                            strcmp(n->pass, "fp8") == 0;
        bool is_kernel = strcmp(n->pass, "cuda") == 0;
        if (is_precision || is_kernel || strcmp(n->pass, "fuse") == 0) {
            text_add(&t, "%s: %s%s%s", n->pass, n->node, n->node[0] != '\0' ? ": " : "", n->text);
            tell(c, is_precision ? "precision" : is_kernel ? "kernels" : "fusion", &t);
        }
    }
    arena_free(&scratch);
}

static void log_program(const struct compiled *c, const char *cache)
{
    static const char *const kinds[] = {"rows", "columns", "contraction", "single"};
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    uint32_t in_place = 0;
    for (uint32_t i = 0; i < c->partition.n_groups; i++) {
        const struct group *g = &c->partition.groups[i];
        value last = g->members[g->n_members - 1];
        text_add(&t, "group %u, %s: %s", i, kinds[g->kind],
                 c->symbols[i] != NULL ? c->kernels[i].comment
                                       : op_info[graph_node(c->primitive, last)->op].name);
        tell(c, "fusion", &t);
        if (c->symbols[i] != NULL) {
            text_add(&t, "group %u is %s: %u instructions, %u phases, %u arguments", i,
                     c->symbols[i], c->kernels[i].n_insts, c->kernels[i].n_phases,
                     c->kernels[i].n_args);
            tell(c, "kernels", &t);
        }
    }
    if (c->cache_miss != NULL) {
        text_add(&t, "not in the cache: %s", c->cache_miss);
        tell(c, "kernels", &t);
    }
    if (c->cache_told != NULL) {
        text_add(&t, "%s", c->cache_told);
        tell(c, "kernels", &t);
    }
    text_add(&t, "%u kernels for %u groups, %s in %.3f s (cache: %s)", c->n_kernels,
             c->partition.n_groups, c->is_from_cache ? "loaded" : "compiled", c->seconds_compiler,
             cache != NULL ? cache : "none");
    tell(c, "kernels", &t);
    for (uint32_t i = 0; i < c->primitive->n_updates; i++) {
        in_place += c->program.is_in_place[i];
    }
    text_add(&t, "%u of %u updates in place", in_place, c->primitive->n_updates);
    tell(c, "memory", &t);
    arena_free(&scratch);
}

/* ---- passes ---- */

static bool is_run(const struct stage *s, const struct compile_options *o)
{
    return s->pass != NULL && !is_left_out(o, (uint32_t)(s - PIPELINE)) &&
           !(s->needs_policy && o->policy == NULL) && !(s->needs_train && o->train == NULL) &&
           !(s->needs_gradients && !o->wants_gradients) &&
           !(s->needs_fp8 && (o->policy == NULL || o->policy->fp8.recipe == NULL)) &&
           !(s->needs_cuda && o->n_cuda_archs == 0);
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
        struct arena scratch = SCRATCH_ARENA;
        struct text t = {.arena = &scratch};
        graph_print(g, &t, NULL);
        o->dump(o->dump_context, name, t.data);
        arena_free(&scratch);
    }
}

static status run_passes(const struct graph *model, const struct compile_options *o,
                         struct compiled *out, struct error *e)
{
    struct pass_options options = {.policy = o->policy,
                                   .train = o->train,
                                   .is_relaxed = o->is_relaxed,
                                   .cuda_archs = o->cuda_archs,
                                   .n_cuda_archs = o->n_cuda_archs,
                                   .gradients = o->gradients};
    struct graph *now_graph = NULL;
    dump_graph(o, "capture", model);
    for (uint32_t i = 0; i < ARRAY_LEN(PIPELINE); i++) {
        const struct stage *s = &PIPELINE[i];
        if (!is_run(s, o)) {
            continue;
        }
        const struct graph *in = now_graph != NULL ? now_graph : model;
        if (s->pass == decompose_pass && now_graph != NULL) {
            out->step = graph_keep(now_graph);
        }
        struct graph *next = graph_temporary(in);
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
            out->primitive = graph_keep(next);
            return e != NULL ? e->code : ATOLL_VERIFY;
        }
    }
    out->primitive = graph_keep(now_graph);
    return o->checks ? primitive_verify(out->primitive, e) : ATOLL_OK;
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

void compile_note_cache(struct compiled *c, const struct compile_options *o, const struct text *why,
                        const struct text *told, const struct error *warning)
{
    if (why->data != NULL) {
        c->cache_miss = c->cache_miss != NULL
                            ? arena_text(&c->arena, "%s. %s", c->cache_miss, why->data)
                            : why->data;
    }
    c->cache_told = told->data != NULL ? told->data : c->cache_told;
    if (warning->code != ATOLL_OK) {
        note_add(&c->notes, "cache", "", "%s", warning->text);
        if (o->warn != NULL) {
            o->warn(o->warn_context, warning->text);
        }
    }
}

static status build_library(struct compiled *c, const struct compile_options *o,
                            const struct unique *unique, struct error *e)
{
    struct text units[2];
    if (c->n_kernels == 0 || o->skips_c) {
        return ATOLL_OK;
    }
    uint32_t n = write_units(c, unique, units);
    const char *sources[2] = {units[0].data, n > 1 ? units[1].data : NULL};
    size_t sizes[2] = {units[0].length, n > 1 ? units[1].length : 0};
    struct error warning = {0};
    struct text why = {.arena = &c->arena}, told = {.arena = &c->arena};
    const struct cache_use use = {o->cache, o->cache_limit, &why, &told, &warning};
    struct cc_options cc = o->cc;
    cc.model = c->primitive->name;
    cc.policy = arena_text(&c->arena, "%s %s", o->policy != NULL ? o->policy->name : "fp32",
                           o->is_relaxed ? "relaxed" : "strict");
    status code = cached_compile(&use, &cc, sources, sizes, n, &c->library, &c->is_from_cache, e);
    compile_note_cache(c, o, &why, &told, &warning);
    return code;
}

static void *find_kernel(void *context, const char *symbol)
{
    return library_find(context, symbol);
}

static status build_kernels(struct compiled *out, const struct compile_options *o, struct error *e)
{
    double start = now();
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
    if (o->n_cuda_archs > 0) {
        TRY(compile_cuda(out, o, e));
    }
    return out->library != NULL ? program_link(&out->program, find_kernel, out->library, e)
                                : ATOLL_OK;
}

/* Groups whose CUDA kernel fails to compile or to load are split into their ops, and all is built
 * again. */
static void split_failed(struct compiled *out)
{
    const bool *is_failed = out->cuda.is_failed;
    uint32_t n_split = out->cuda.n_split;
    for (uint32_t i = 0; i < out->partition.n_groups; i++) {
        n_split += is_failed[i];
    }
    partition_split(out->primitive, &out->partition, is_failed);
    program_free(&out->program);
    library_close(out->library);
    cuda_code_free(&out->cuda);
    out->library = NULL;
    out->program = (struct program){0};
    out->n_kernels = 0;
    out->cache_miss = NULL;
    out->source = (struct text){0};
    out->cuda.n_split = n_split;
}

static status build_program(struct compiled *out, const struct compile_options *o, struct error *e)
{
    struct fuse_options fuse_options = {.is_off = o->is_unfused ||
                                                  is_left_out(o, ARRAY_LEN(PIPELINE) - 1)};
    uint32_t n_notes = out->notes.n;
    TRY(fuse(out->primitive, &fuse_options, &out->partition, &out->notes, e));
    if (o->limit != NULL) {
        partition_limit(out->primitive, &out->partition, o->limit->groups, o->limit->members);
    }
    if (o->keeps_values) {
        partition_keep_values(&out->partition, MAX_KEPT);
    }
    struct error first = {0};
    status code = build_kernels(out, o, &first);
    if (code == ATOLL_COMPILER && out->cuda.is_failed != NULL) {
        split_failed(out);
        first = (struct error){0};
        code = build_kernels(out, o, &first);
    }
    if (code == ATOLL_OK && out->log != NULL) {
        log_notes(out, n_notes);
        log_program(out, o->cache);
    }
    return code == ATOLL_OK ? ATOLL_OK : fail(e, code, "%s", first.text);
}

/* What lies in between allocates from arenas that `out` owns and from scratch arenas: both are
 * freed when memory runs out. */
static status recovering(struct error *e, status (*work)(void *context), void *context)
{
    struct recovery r;
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
    TRY(check_list(j->o->disabled, true, j->e));
    TRY(check_list(j->o->stop_after, false, j->e));
    TRY(run_passes(j->model, j->o, j->out, j->e));
    j->out->seconds_passes = now() - start;
    log_notes(j->out, 0);
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
    *out = (struct compiled){.log = o->log, .log_context = o->log_context};
    struct job job = {model, o, out, e};
    if (model->error.code != ATOLL_OK) {
        return fail(e, model->error.code, "%s", model->error.text);
    }
    return recovering(e, whole_job, &job);
}

status compile_primitive(struct graph *primitive, const struct compile_options *o,
                         struct compiled *out, struct error *e)
{
    *out = (struct compiled){.primitive = primitive, .log = o->log, .log_context = o->log_context};
    struct job job = {NULL, o, out, e};
    return recovering(e, second_half, &job);
}

void compiled_free(struct compiled *c)
{
    program_free(&c->program);
    library_close(c->library);
    cuda_code_free(&c->cuda);
    if (c->step != c->primitive) {
        graph_destroy(c->step);
    }
    graph_destroy(c->primitive);
    partition_free(&c->partition);
    arena_free(&c->notes.arena);
    arena_free(&c->arena);
    *c = (struct compiled){0};
}
