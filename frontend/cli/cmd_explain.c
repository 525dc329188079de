/* atoll explain: a model called with a list of sizes through the engine, each call explained; or
 * the ledger of a recorded run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/report/report.h"
#include "runtime/file.h"
#include "stepper.h"

static const struct option options[] = {
    {"shapes", "LIST", "a call each: n=64,n=64,n=5; sizes of one call are joined by +: n=64+m=8"},
    {"ledger", "FILE", "explain a recorded run instead of a MODEL"},
    {"policy", "P", "precision policy (default fp32)"},
    {"optimizer", "TEXT", "adamw, adam, sgd or lion with settings"},
    {"schedule", "TEXT", "learning-rate schedule"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "auto, on, off"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed of parameters and of the inputs' values (default 1)"},
    {"forward", NULL, "without a training step"},
    {"static", NULL, "a plan for each size: never make a size a symbol"},
    {"limit", "N", "recompiles allowed (default 8)"},
    {"capacity", "N", "plans kept (default 64)"},
    {"eager-over-limit", NULL, "over the limit run op by op, with a warning, instead of failing"},
    {"fail-on-recompile", NULL, "the first recompile is an error"},
    {"save", "FILE", "write the ledger, for --ledger"},
    {"html", "FILE", "write one self-contained page"},
    {"json", NULL, "print the ledger as JSON"},
};

/* ---- the calls ---- */

struct calls {
    const struct graph *model;
    struct arena *arena;
    int64_t (*sizes)[MAX_SYMBOLS];
    uint32_t n;
};

static status read_symbol(struct calls *c, const char *item, size_t length, int64_t *sizes,
                          struct error *e)
{
    size_t name = strcspn(item, "=");
    char *end = NULL;
    errno = 0;
    long long n = name + 1 < length ? strtoll(item + name + 1, &end, 10) : -1;
    if (end != item + length || n < 0 || errno == ERANGE) {
        return fail(e, ATOLL_USAGE, "--shapes: found '%.*s', expected SYMBOL=N, such as n=64",
                    (int)length, item);
    }
    for (uint32_t i = 1; i < c->model->n_symbols; i++) {
        const struct symbol *s = &c->model->symbols[i];
        if (strlen(s->name) != name || memcmp(s->name, item, name) != 0) {
            continue;
        }
        if (n < s->low || n > s->high) {
            return fail(e, ATOLL_USAGE,
                        "--shapes: %s=%lld is outside the model's range [%lld, %lld]", s->name, n,
                        (long long)s->low, (long long)s->high);
        }
        sizes[i] = n;
        return ATOLL_OK;
    }
    return fail(e, ATOLL_USAGE, "--shapes: the model has no symbol '%.*s'", (int)name, item);
}

/* Symbols that a call does not name keep the last call's size. */
static status read_call(struct calls *c, const char *text, size_t length, struct error *e)
{
    int64_t *sizes = c->sizes[c->n];
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        sizes[i] = c->n > 0 ? c->sizes[c->n - 1][i] : -1;
    }
    for (const char *p = text; p < text + length;) {
        size_t n = strcspn(p, "+,");
        TRY(read_symbol(c, p, n, sizes, e));
        p += n + 1;
    }
    for (uint32_t i = 1; i < c->model->n_symbols; i++) {
        if (sizes[i] < 0) {
            return fail(e, ATOLL_USAGE,
                        "--shapes: call %u gives no size to symbol %s; hint: join sizes by +, as "
                        "in n=64+m=8",
                        c->n + 1, c->model->symbols[i].name);
        }
    }
    c->n++;
    return ATOLL_OK;
}

static status read_calls(struct calls *c, const char *text, struct error *e)
{
    size_t commas = 1;
    for (const char *p = text; *p != '\0'; p++) {
        commas += *p == ',';
    }
    c->sizes = arena_alloc(c->arena, commas * sizeof *c->sizes);
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 0) {
            return fail(e, ATOLL_USAGE,
                        "--shapes '%s': found an empty call, expected such as n=64,n=5", text);
        }
        TRY(read_call(c, p, n, e));
        p += n;
        if (*p == '\0') {
            return ATOLL_OK;
        }
    }
}

/* Values by place, call and seed: floats in [-1, 1), whole numbers 0 (a class or index that every
 * axis has, but an empty one). */
static void fill(struct tensor *t, uint64_t seed)
{
    unsigned char *at = t->data;
    for (int64_t i = 0; i < tensor_count(t); i++, at += dtype_info[t->dtype].bytes) {
        uint64_t bits = hash_u64((uint64_t)i, seed);
        double v = (double)(bits >> 40) / (double)(1 << 23) - 1.0;
        dtype_store(t->dtype, at, dtype_is_float(t->dtype) ? v : 0.0);
    }
}

static status step(struct runner *r, uint64_t seed, struct error *e)
{
    const struct graph *g = runner_graph(r);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->op != OP_input) {
            continue;
        }
        struct tensor t = {.dtype = n->dtype, .rank = n->shape.rank};
        for (uint32_t d = 0; d < t.rank; d++) {
            t.shape[d] = dim_value(n->shape.dims[d], r->symbols);
        }
        t.data = calloc(1, tensor_bytes(&t) + 1);
        if (t.data == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for input %%%s", n->name);
        }
        fill(&t, hash_text(n->name, seed));
        status code = runner_input(r, n->name, &t, e);
        free(t.data);
        TRY(code);
    }
    return runner_step(r, e);
}

/* ---- printing ---- */

/* Hits in a row share an event: this call's own line is made here. */
static void print_call(const struct stepper *s, uint64_t call, const char *arguments)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    const ledger *l = callable_ledger(s->callable);
    const struct ledger_event *last = l->n_events > 0 ? &l->events[l->n_events - 1] : NULL;
    if (last != NULL && last->call == call) {
        report_event(&t, l, last);
    } else if (last != NULL) {
        struct ledger_event own = {.call = call,
                                   .count = 1,
                                   .outcome = LEDGER_HIT,
                                   .entry = s->called.entry != NULL ? last->entry : 0,
                                   .arguments = arguments};
        report_event(&t, l, &own);
    }
    fputs(t.data != NULL ? t.data : "", stdout);
    arena_free(&scratch);
}

/* Text unless --json; the page and the file where asked for. */
static status write_reports(const ledger *l, const struct arguments *a, bool is_told,
                            struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    const char *html = argument(a, "html", NULL), *save = argument(a, "save", NULL);
    status code = ATOLL_OK;
    if (argument_flag(a, "json")) {
        char *json = ledger_json(l);
        code = json != NULL ? ATOLL_OK : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        printf("%s\n", json != NULL ? json : "");
        free(json);
    } else if (is_told) {
        report_counters(&t, &l->counters);
        fputs(t.data, stdout);
    } else {
        report_text(&t, l);
        fputs(t.data, stdout);
    }
    if (code == ATOLL_OK && html != NULL) {
        struct text page = {.arena = &scratch};
        report_html(&page, l);
        struct file_part part = {page.data, page.length};
        code = file_write(html, &part, 1, e);
    }
    if (code == ATOLL_OK && save != NULL) {
        code = ledger_save(l, save, e);
    }
    arena_free(&scratch);
    return code;
}

/* ---- a model ---- */

/* "x f32[5,64], y i64[5]" */
static const char *inputs_text(const struct graph *g, const int64_t *sizes, struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->op != OP_input) {
            continue;
        }
        text_add(&t, "%s%s %s[", t.data != NULL ? ", " : "", n->name, dtype_info[n->dtype].name);
        for (uint32_t d = 0; d < n->shape.rank; d++) {
            text_add(&t, "%s%lld", d > 0 ? "," : "", (long long)dim_value(n->shape.dims[d], sizes));
        }
        text_add(&t, "]");
    }
    return t.data != NULL ? t.data : "no arguments";
}

static status make_calls(struct stepper *s, const struct calls *c, const struct arguments *a,
                         struct error *e)
{
    bool is_json = argument_flag(a, "json");
    for (uint32_t i = 0; i < c->n; i++) {
        struct runner *r;
        struct arena scratch = SCRATCH_ARENA;
        struct error own = {0};
        status code = stepper_call(s, c->sizes[i], &r, &own);
        if (!is_json) {
            print_call(s, i + 1, inputs_text(c->model, c->sizes[i], &scratch));
        }
        code = code == ATOLL_OK ? step(r, s->seed + i, &own) : code;
        arena_free(&scratch);
        if (code != ATOLL_OK) {
            return fail(e, code, "%s", own.text);
        }
    }
    return ATOLL_OK;
}

static status callable_options(const struct arguments *a, struct callable_options *o,
                               struct error *e)
{
    int64_t limit, capacity;
    TRY(argument_whole(a, "limit", 8, 1, 1000000, &limit, e));
    TRY(argument_whole(a, "capacity", 64, 1, 1000000, &capacity, e));
    *o = (struct callable_options){.limit = (uint32_t)limit,
                                   .capacity = (uint32_t)capacity,
                                   .is_static = argument_flag(a, "static"),
                                   .fails_on_recompile = argument_flag(a, "fail-on-recompile"),
                                   .is_eager_over_limit = argument_flag(a, "eager-over-limit")};
    return ATOLL_OK;
}

static status probe(const char *path, struct error *e)
{
    return path != NULL ? file_probe(path, e) : ATOLL_OK;
}

static status explain_model(struct job *j, struct stepper *s, const struct arguments *a,
                            struct context *c, struct error *e)
{
    struct callable_options o;
    char *text;
    size_t size;
    TRY(job_open(j, a->positional[0], a, c, e));
    TRY(job_policy(j, argument(a, "policy", "fp32"), a, e));
    TRY(callable_options(a, &o, e));
    TRY(probe(argument(a, "html", NULL), e));
    TRY(probe(argument(a, "save", NULL), e));
    if (argument_flag(a, "forward")) {
        j->compile.train = NULL;
    }
    struct calls calls = {.model = j->symbolic, .arena = &j->arena};
    TRY(read_calls(&calls, argument(a, "shapes", ""), e));
    TRY(read_text_file(a->positional[0], &j->arena, &text, &size, e));
    TRY(stepper_open(s, a->positional[0], text, j->symbolic, j, &o, e));
    status code = make_calls(s, &calls, a, e);
    struct error second = {0};
    status written = write_reports(callable_ledger(s->callable), a, true, &second);
    return code != ATOLL_OK      ? code
           : written == ATOLL_OK ? code
                                 : fail(e, written, "%s", second.text);
}

static status explain_ledger(const char *path, const struct arguments *a, struct error *e)
{
    ledger *l;
    TRY(argument_only(a, " ledger json html ",
                      "a ledger is a record: only --json and --html go with it", e));
    TRY(probe(argument(a, "html", NULL), e));
    TRY(ledger_load(path, &l, e));
    status code = write_reports(l, a, false, e);
    ledger_destroy(l);
    return code;
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    const char *path = argument(a, "ledger", NULL);
    if (path != NULL && a->n_positional == 0) {
        return explain_ledger(path, a, e);
    }
    if (a->n_positional != 1 || path != NULL) {
        return fail(e, ATOLL_USAGE,
                    "expected one MODEL with --shapes, or --ledger FILE; hint: atoll explain MODEL "
                    "--shapes n=64,n=5");
    }
    TRY(not_a_plan(a->positional[0], e));
    if (argument(a, "shapes", NULL) == NULL) {
        return fail(e, ATOLL_USAGE,
                    "--shapes is missing: the sizes of each call, such as n=64,n=5");
    }
    struct job j = {0};
    struct stepper s = {0};
    status code = explain_model(&j, &s, a, c, e);
    stepper_close(&s);
    job_close(&j);
    return code;
}

const struct command command_explain = {
    "explain",
    "MODEL --shapes LIST [options] | --ledger FILE [options]",
    "why calls recompiled: a model at a list of sizes, or the ledger of a run",
    "  atoll explain examples/digits.graph --policy bf16 --shapes n=64,n=64,n=5,n=1,n=0\n"
    "  atoll explain examples/digits.graph --shapes n=64,n=5 --html report.html\n"
    "  atoll explain --ledger run.json\n",
    options,
    ARRAY_LEN(options),
    run,
};
