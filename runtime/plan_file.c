/* Writing and reading plans. The graph travels as text and is parsed again; the program as counted
 * arrays of 32-bit words, each checked against the graph before use, so that a file that passes the
 * checksum but makes no sense is refused, not run. */
#include "plan_file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "ir/graph_hash.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "runtime/plan_words.h"

bool plan_keeps(const struct node *n)
{
    bool is_kept =
        n->op == OP_param || n->op == OP_buffer || n->op == OP_state || n->op == OP_scalar;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        is_kept = is_kept && dim_is_static(n->shape.dims[i]);
    }
    return is_kept;
}

/* ---- processors ---- */

#define FEATURES(X)                                                                                \
    X("avx2")                                                                                      \
    X("fma")                                                                                       \
    X("bmi2") X("avx512f") X("avx512bw") X("avx512vl") X("avx512dq") X("avx512bf16")

#if defined(__x86_64__)
/* Asked of cpuid: clang 14's __builtin_cpu_supports does not know the word. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0 &&
           __builtin_cpu_supports("avx") > 0;
}
#endif

void plan_features(struct text *t)
{
#if defined(__x86_64__)
    text_add(t, "x86-64");
#define X(name)                                                                                    \
    if (__builtin_cpu_supports(name) > 0) {                                                        \
        text_add(t, " " name);                                                                     \
    }
    FEATURES(X)
#undef X
    if (has_f16c()) {
        text_add(t, " f16c");
    }
#elif defined(__aarch64__)
    text_add(t, "aarch64");
#else
    text_add(t, "generic");
#endif
}

static bool names_word(const char *line, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = line; (p = strstr(p, word)) != NULL; p += length) {
        if ((p == line || p[-1] == ' ') &&
            (p[length] == ' ' || p[length] == '\n' || p[length] == '\0')) {
            return true;
        }
    }
    return false;
}

const char *plan_missing_feature(const char *about)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text here = {.arena = &scratch};
    const char *missing = NULL;
    plan_features(&here);
    const char *line = strstr(about, "processor ");
    if (line != NULL) {
        line += strlen("processor ");
        char needs[512] = "";
        size_t length = strcspn(line, "\n");
        memcpy(needs, line, length < sizeof needs ? length : sizeof needs - 1);
#define X(name)                                                                                    \
    if (missing == NULL && names_word(needs, name) && !names_word(here.data, name)) {              \
        missing = name;                                                                            \
    }
        X("x86-64") X("aarch64") X("f16c") FEATURES(X)
#undef X
    }
    arena_free(&scratch);
    return missing;
}

/* ---- writing ---- */

static void put_program(struct text *t, const struct program *p)
{
    put(t, p->n_launches);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        put(t, (uint32_t)l->kind);
        put_text(t, l->symbol != NULL ? l->symbol : "");
        put_dim(t, l->flat);
        put(t, l->node.id);
        put(t, l->n_reads);
        put(t, l->n_args);
        put(t, l->count);
        for (uint32_t a = 0; a < l->n_args; a++) {
            put(t, l->args[a].id);
        }
    }
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        put(t, p->root[i].id);
        put(t, p->first_use[i]);
        put(t, p->last_use[i]);
    }
    for (uint32_t i = 0; i < p->graph->n_updates; i++) {
        put(t, p->is_in_place[i]);
    }
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        put(t, p->is_snapshot[i]);
    }
}

static status write_sections(const char *path, const struct program *p,
                             const struct plan_code *code, plan_leaf *leaf, void *context,
                             const char *about, struct arena *a, struct error *e)
{
    struct text graph = {.arena = a}, program = {.arena = a}, state = {.arena = a},
                facts = {.arena = a}, cuda = {.arena = a}, choices = {.arena = a};
    graph_print(p->graph, &graph, NULL);
    uint64_t hash = graph_hash(p->graph);
    text_append(&program, (const char *)&hash, sizeof hash);
    put_program(&program, p);
    for (uint32_t i = 1; i < p->graph->n_nodes; i++) {
        if (plan_keeps(&p->graph->nodes[i])) {
            const struct tensor *t = leaf(context, (value){i});
            text_append(&state, t->data, tensor_bytes(t));
        }
    }
    text_add(&facts, "%sprocessor ", about);
    plan_features(&facts);
    text_add(&facts, "\n");
    size_t library_size = 0;
    const void *native = code->library != NULL ? library_bytes(code->library, &library_size) : "";
    plan_put_cuda(&cuda, p, &code->cuda);
    plan_put_choices(&choices, &code->cuda);
    struct section sections[] = {{"about", facts.data, facts.length},
                                 {"graph", graph.data, graph.length},
                                 {"program", program.data, program.length},
                                 {"library", native, library_size},
                                 {"cuda", cuda.data, cuda.length},
                                 {"state", state.data != NULL ? state.data : "", state.length},
                                 {"cublaslt", choices.data, choices.length}};
    uint32_t n = ARRAY_LEN(sections) - (code->cuda.n_choices == 0);
    return container_write(path, "plan", sections, n, e);
}

status plan_write(const char *path, const struct program *p, const struct plan_code *native,
                  plan_leaf *leaf, void *context, const char *about, struct error *e)
{
    struct recovery r;
    struct arena *a = calloc(1, sizeof *a);
    if (a == NULL || arena_recover(&r)) {
        if (a != NULL) {
            arena_free(a);
        }
        free(a);
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: out of memory while writing the plan", path);
    }
    status code = write_sections(path, p, native, leaf, context, about, a, e);
    arena_recover_end(&r);
    arena_free(a);
    free(a);
    return code;
}

/* ---- reading ---- */

static void read_launch(struct reader *r, struct program *p, struct launch *l)
{
    const struct graph *g = p->graph;
    l->kind = (enum launch_kind)word(r, LAUNCH_SINGLE + 1);
    l->symbol = read_text(r, &p->arena);
    take_dim(r, &l->flat, g->n_symbols);
    l->node.id = word(r, g->n_nodes);
    l->n_reads = word(r, 4096);
    l->n_args = word(r, 4096);
    l->count = word(r, g->n_nodes + 1);
    const struct node *n = graph_node(g, l->node);
    r->is_bad = r->is_bad || l->node.id == 0 || l->n_reads > l->n_args ||
                (l->kind != LAUNCH_KERNEL &&
                 (l->n_args != n->n_operands + 1 || l->n_reads != n->n_operands));
    value *args = ARENA_ARRAY(&p->arena, value, l->n_args + 1);
    for (uint32_t a = 0; a < l->n_args && !r->is_bad; a++) {
        args[a].id = word(r, g->n_nodes);
        bool is_as_node =
            l->kind == LAUNCH_KERNEL || a == n->n_operands || args[a].id == n->operands[a].id;
        r->is_bad = r->is_bad || args[a].id == 0 || !is_as_node;
    }
    r->is_bad = r->is_bad || (l->kind == LAUNCH_CONTRACTION && op_info[n->op].kind != CONTRACTION);
    l->args = args;
}

/* Calls of several tensors: as many launches of the head's own kernel follow it. */
static void check_calls(struct reader *r, const struct program *p)
{
    for (uint32_t i = 0; i < p->n_launches && !r->is_bad;) {
        const struct launch *head = &p->launches[i];
        r->is_bad = head->count == 0 || head->count > p->n_launches - i ||
                    (head->count > 1 && head->kind != LAUNCH_KERNEL);
        for (uint32_t k = 1; k < head->count && !r->is_bad; k++) {
            const struct launch *next = &p->launches[i + k];
            r->is_bad = next->count != 0 || next->kind != LAUNCH_KERNEL ||
                        next->n_args != head->n_args || strcmp(next->symbol, head->symbol) != 0;
        }
        i += head->count;
    }
}

static void check_roots(struct reader *r, const struct program *p)
{
    const struct graph *g = p->graph;
    for (uint32_t i = 0; i < p->n_launches && !r->is_bad; i++) {
        for (uint32_t a = 0; a < p->launches[i].n_args; a++) {
            r->is_bad = r->is_bad || p->root[p->launches[i].args[a].id].id == 0;
        }
    }
    for (uint32_t i = 1; i < g->n_nodes && !r->is_bad; i++) {
        value root = p->root[i];
        r->is_bad = root.id != 0 && p->root[root.id].id != root.id;
        r->is_bad = r->is_bad || (node_is_leaf(&g->nodes[i]) && root.id != i);
    }
    for (uint32_t i = 0; i < g->n_outputs && !r->is_bad; i++) {
        r->is_bad = p->root[g->outputs[i].value.id].id == 0;
    }
    for (uint32_t i = 0; i < g->n_updates && !r->is_bad; i++) {
        r->is_bad = p->root[g->updates[i].next.id].id == 0;
    }
}

static void read_program(struct reader *r, struct program *p)
{
    const struct graph *g = p->graph;
    p->n_launches = word(r, g->n_nodes + 1);
    p->launches = ARENA_ARRAY(&p->arena, struct launch, p->n_launches + 1);
    for (uint32_t i = 0; i < p->n_launches && !r->is_bad; i++) {
        read_launch(r, p, &p->launches[i]);
    }
    if (!r->is_bad) {
        check_calls(r, p);
    }
    p->root = ARENA_ARRAY(&p->arena, value, g->n_nodes);
    p->first_use = ARENA_ARRAY(&p->arena, uint32_t, g->n_nodes);
    p->last_use = ARENA_ARRAY(&p->arena, uint32_t, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes && !r->is_bad; i++) {
        p->root[i].id = word(r, g->n_nodes);
        take(r, &p->first_use[i], sizeof(uint32_t));
        take(r, &p->last_use[i], sizeof(uint32_t));
    }
    p->is_in_place = ARENA_ARRAY(&p->arena, bool, g->n_updates + 1);
    p->is_snapshot = ARENA_ARRAY(&p->arena, bool, g->n_outputs + 1);
    for (uint32_t i = 0; i < g->n_updates; i++) {
        p->is_in_place[i] = word(r, 2) != 0;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        p->is_snapshot[i] = word(r, 2) != 0;
    }
    if (!r->is_bad) {
        check_roots(r, p);
    }
    r->is_bad = r->is_bad || r->at != r->end;
}

static size_t state_size(const struct graph *g)
{
    size_t total = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (plan_keeps(&g->nodes[i])) {
            total += (size_t)shape_count_value(&g->nodes[i].shape, NULL) *
                     dtype_info[g->nodes[i].dtype].bytes;
        }
    }
    return total;
}

static void *find_kernel(void *context, const char *symbol)
{
    return library_find(context, symbol);
}

/* A plan without a library must be one without kernels. */
static void *find_nothing(void *context, const char *symbol)
{
    (void)context;
    (void)symbol;
    return NULL;
}

static status load(struct plan_file *out, const char *name, const struct section *library,
                   struct error *e)
{
    const char *missing = plan_missing_feature(out->about);
    if (missing != NULL) {
        return fail(e, ATOLL_UNSUPPORTED,
                    "%s: its kernels need a processor with %s, which this one lacks; hint: compile "
                    "the plan on this machine",
                    name, missing);
    }
    struct error why = {0};
    if (library->size > 0) {
        out->library = library_open(library->data, library->size, name, &why);
        if (out->library == NULL) {
            return fail(e, why.code, "%s", why.text);
        }
    }
    if (library->size == 0 && out->cuda.n_archs > 0) {
        return ATOLL_OK; /* made for devices only: session_step says so on the CPU */
    }
    return program_link(&out->program, out->library != NULL ? find_kernel : find_nothing,
                        out->library, &why) == ATOLL_OK
               ? ATOLL_OK
               : fail(e, ATOLL_FORMAT, "%s: %s", name, why.text);
}

static status read_sections(struct plan_file *out, const char *name, bool is_loading,
                            struct error *e)
{
    static const char *const wanted[] = {"about", "graph", "program", "library", "state", "cuda"};
    const struct section *s[ARRAY_LEN(wanted)];
    for (uint32_t i = 0; i < ARRAY_LEN(wanted); i++) {
        s[i] = container_find(&out->container, wanted[i]);
        if (s[i] == NULL) {
            return fail(e, ATOLL_FORMAT, "%s: no section '%s' in this plan; hint: compile it again",
                        name, wanted[i]);
        }
    }
    out->about =
        arena_text(&out->container.arena, "%.*s", (int)s[0]->size, (const char *)s[0]->data);
    out->graph = graph_parse(s[1]->data, s[1]->size, name, e);
    if (out->graph == NULL) {
        return e != NULL && e->code != ATOLL_OK ? e->code : ATOLL_PARSE;
    }
    struct reader r = {s[2]->data, (const unsigned char *)s[2]->data + s[2]->size, false};
    uint64_t hash;
    take(&r, &hash, sizeof hash);
    out->program.graph = out->graph;
    if (hash == graph_hash(out->graph)) {
        read_program(&r, &out->program);
    } else {
        r.is_bad = true;
    }
    if (!r.is_bad) {
        r = (struct reader){s[5]->data, (const unsigned char *)s[5]->data + s[5]->size, false};
        plan_take_cuda(&r, &out->program, &out->cuda, &out->container.arena);
    }
    const struct section *choices = container_find(&out->container, "cublaslt");
    if (!r.is_bad && choices != NULL) {
        r = (struct reader){choices->data, (const unsigned char *)choices->data + choices->size,
                            false};
        plan_take_choices(&r, &out->cuda, &out->container.arena);
    }
    out->state = s[4]->data;
    out->state_size = s[4]->size;
    if (r.is_bad || s[4]->size != state_size(out->graph)) {
        return fail(e, ATOLL_FORMAT,
                    "%s: graph, program and state of this plan do not belong together; hint: "
                    "compile it again",
                    name);
    }
    return is_loading ? load(out, name, s[3], e) : ATOLL_OK;
}

static status finish_read(struct plan_file *out, const char *name, bool is_loading, struct error *e)
{
    struct recovery r;
    if (arena_recover(&r)) {
        plan_file_close(out);
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: out of memory while reading the plan", name);
    }
    status code = read_sections(out, name, is_loading, e);
    arena_recover_end(&r);
    if (code != ATOLL_OK) {
        plan_file_close(out);
    }
    return code;
}

status plan_read(const char *path, bool is_loading, struct plan_file *out, struct error *e)
{
    *out = (struct plan_file){0};
    TRY(container_open(path, "plan", &out->container, e));
    return finish_read(out, path, is_loading, e);
}

status plan_read_bytes(const void *bytes, size_t size, const char *name, bool is_loading,
                       struct plan_file *out, struct error *e)
{
    *out = (struct plan_file){0};
    TRY(container_read_bytes(bytes, size, name, "plan", &out->container, e));
    return finish_read(out, name, is_loading, e);
}

void plan_file_close(struct plan_file *p)
{
    program_free(&p->program);
    library_close(p->library);
    graph_destroy(p->graph);
    container_close(&p->container);
    *p = (struct plan_file){0};
}
