/* What subcommands share: option values, the model file with its policy, optimizer and shapes. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "ir/parse.h"

const char *argument(const struct arguments *a, const char *name, const char *otherwise)
{
    for (uint32_t i = 0; i < a->n_options; i++) {
        if (strcmp(a->options[i].name, name) == 0) {
            return a->values[i] != NULL ? a->values[i] : otherwise;
        }
    }
    return otherwise;
}

const char *argument_nth(const struct arguments *a, const char *name, uint32_t k)
{
    for (uint32_t i = 0; i < a->n_given; i++) {
        if (strcmp(a->given[i].name, name) == 0 && k-- == 0) {
            return a->given[i].value;
        }
    }
    return NULL;
}

bool argument_flag(const struct arguments *a, const char *name)
{
    return argument(a, name, NULL) != NULL;
}

status argument_number(const struct arguments *a, const char *name, double otherwise, double low,
                       double high, double *out, struct error *e)
{
    const char *text = argument(a, name, NULL);
    char *end = NULL;
    *out = text != NULL ? strtod(text, &end) : otherwise;
    if (text != NULL && (end == text || *end != '\0' || !(*out >= low && *out <= high))) {
        return fail(e, ATOLL_USAGE, "--%s %s: expected a number from %g to %g", name, text, low,
                    high);
    }
    return ATOLL_OK;
}

status argument_whole(const struct arguments *a, const char *name, int64_t otherwise, int64_t low,
                      int64_t high, int64_t *out, struct error *e)
{
    const char *text = argument(a, name, NULL);
    char *end = NULL;
    double number = text != NULL ? strtod(text, &end) : (double)otherwise;
    if (text != NULL && (end == text || *end != '\0' || number != floor(number) ||
                         !(number >= (double)low && number <= (double)high))) {
        return fail(e, ATOLL_USAGE, "--%s %s: expected a whole number from %lld to %lld", name,
                    text, (long long)low, (long long)high);
    }
    *out = text != NULL ? (int64_t)number : otherwise;
    return ATOLL_OK;
}

status argument_only(const struct arguments *a, const char *allowed, const char *why,
                     struct error *e)
{
    for (uint32_t i = 0; i < a->n_options; i++) {
        char word[40];
        snprintf(word, sizeof word, " %s ", a->options[i].name);
        if (a->values[i] != NULL && strstr(allowed, word) == NULL) {
            return fail(e, ATOLL_USAGE, "--%s: %s", a->options[i].name, why);
        }
    }
    return ATOLL_OK;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool is_plan_name(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".plan") == 0;
}

status not_a_plan(const char *path, struct error *e)
{
    return is_plan_name(path)
               ? fail(e, ATOLL_USAGE, "%s: found a plan, expected a model (graph text)", path)
               : ATOLL_OK;
}

status of_model(status code, struct error *e)
{
    if (code != ATOLL_USAGE) {
        return code;
    }
    e->code = ATOLL_VERIFY;
    return ATOLL_VERIFY;
}

status read_text_file(const char *path, struct arena *a, char **out, size_t *size, struct error *e)
{
    FILE *f = fopen(path, "rb");
    struct text t = {.arena = a};
    char block[4096];
    size_t n;
    if (f == NULL) {
        return fail(e, errno == ENOENT ? ATOLL_NOT_FOUND : ATOLL_IO, "%s: %s", path,
                    strerror(errno));
    }
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        text_append(&t, block, n);
    }
    int number = errno;
    bool is_bad = ferror(f) != 0;
    fclose(f);
    *out = t.data != NULL ? t.data : arena_copy_text(a, "");
    *size = t.length;
    return is_bad ? fail(e, ATOLL_FORMAT, "%s: cannot be read, found %s, expected a text file",
                         path, number == EISDIR ? "a directory" : strerror(number))
                  : ATOLL_OK;
}

/* The symbols of a model, for a message. */
static const char *symbol_names(const struct graph *g, struct arena *a)
{
    struct text t = {.arena = a};
    text_add(&t, "%s", g->n_symbols > 1 ? "" : "none");
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        text_add(&t, "%s%s", i > 1 ? ", " : "", g->symbols[i].name);
    }
    return t.data;
}

/* One SYMBOL=N of --shape. */
static status read_size(struct job *j, const char *item, size_t length, struct error *e)
{
    size_t name = strcspn(item, "=");
    char *end = NULL;
    errno = 0;
    long long n = name + 1 < length ? strtoll(item + name + 1, &end, 10) : -1;
    uint32_t at = 0;
    if (end != item + length || n < 0 || errno == ERANGE) {
        return fail(e, ATOLL_USAGE, "--shape: found '%.*s', expected SYMBOL=N, such as n=64",
                    (int)length, item);
    }
    for (uint32_t i = 1; i < j->symbolic->n_symbols; i++) {
        const char *known = j->symbolic->symbols[i].name;
        at = strlen(known) == name && memcmp(known, item, name) == 0 ? i : at;
    }
    if (at == 0) {
        return fail(e, ATOLL_USAGE, "--shape: the model has no symbol '%.*s'; it has: %s",
                    (int)name, item, symbol_names(j->symbolic, &j->arena));
    }
    const struct symbol *s = &j->symbolic->symbols[at];
    if (j->sizes[at] >= 0) {
        return fail(e, ATOLL_USAGE, "--shape: symbol %s is given twice", s->name);
    }
    if (n < s->low || n > s->high) {
        return fail(e, ATOLL_USAGE, "--shape: %s=%lld is outside the model's range [%lld, %lld]",
                    s->name, n, (long long)s->low, (long long)s->high);
    }
    j->sizes[at] = n;
    return ATOLL_OK;
}

/* The symbol that counts the rows of %x; 0 when there is none or a leaf that is kept from step to
 * step has it too. */
static uint8_t row_symbol(const struct graph *g)
{
    const struct node *x = graph_node(g, graph_find(g, "x"));
    uint8_t symbol =
        x->shape.rank > 0 && x->shape.dims[0].symbols[1] == 0 ? x->shape.dims[0].symbols[0] : 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        for (uint32_t k = 0; n->op != OP_input && n->op <= OP_scalar && k < n->shape.rank; k++) {
            symbol = memchr(n->shape.dims[k].symbols, symbol, MAX_DIM_SYMBOLS) != NULL ? 0 : symbol;
        }
    }
    return symbol;
}

/* "n=64,m=5": symbols to numbers. */
static status bind_shapes(struct job *j, const char *text, struct error *e)
{
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        TRY(read_size(j, p, length, e));
        p += length;
        if (*p == '\0') {
            break;
        }
    }
    int64_t sizes[MAX_SYMBOLS];
    memcpy(sizes, j->sizes, sizeof sizes);
    sizes[row_symbol(j->symbolic)] = -1;
    j->model = graph_bind(j->symbolic, j->sizes, e);
    j->any_rows = j->model != NULL ? graph_bind(j->symbolic, sizes, e) : NULL;
    return j->any_rows != NULL ? ATOLL_OK : e->code;
}

status job_check_rows(const struct job *j, int64_t rows, struct error *e)
{
    value x = graph_find(j->symbolic, "x");
    const struct node *n = graph_node(j->symbolic, x);
    if (x.id == 0 || n->shape.rank == 0) {
        return ATOLL_OK;
    }
    struct dim d = n->shape.dims[0];
    int64_t fixed = dim_value(d, j->sizes);
    if (dim_is_static(d) || d.symbols[1] != 0 || fixed < 0 || fixed == rows) {
        return ATOLL_OK;
    }
    struct arena scratch = {0};
    fail(e, ATOLL_SHAPE,
         "--shape fixes %s=%lld, so %%x (%s) takes %lld rows; found a batch of %lld rows; hint: "
         "leave %s symbolic, or make every batch full (--batch; --steps of train)",
         j->symbolic->symbols[d.symbols[0]].name, (long long)j->sizes[d.symbols[0]],
         graph_type(j->symbolic, x, &scratch), (long long)fixed, (long long)rows,
         j->symbolic->symbols[d.symbols[0]].name);
    arena_free(&scratch);
    return ATOLL_SHAPE;
}

static status open_job(struct job *j, const char *path, const struct arguments *a,
                       struct context *c, bool keeps_lines, struct error *e)
{
    char *text;
    size_t size;
    int64_t seed;
    *j = (struct job){.train = train_options_default()};
    TRY(read_text_file(path, &j->arena, &text, &size, e));
    j->model = j->any_rows = j->symbolic =
        keeps_lines ? graph_parse_lines(text, size, path, e) : graph_parse(text, size, path, e);
    if (j->model == NULL) {
        return of_model(e->code, e);
    }
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        j->sizes[i] = -1;
    }
    if (argument(a, "shape", NULL) != NULL) {
        TRY(bind_shapes(j, argument(a, "shape", ""), e));
    }
    TRY(train_options_parse(&j->train, argument(a, "optimizer", "adamw,lr=1e-3"),
                            argument(a, "schedule", NULL), e));
    TRY(train_params_parse(&j->train, argument(a, "params", NULL), &j->arena, e));
    TRY(argument_number(a, "clip", 0.0, 0.0, 1e30, &j->train.max_norm, e));
    TRY(argument_whole(a, "accumulate", 1, 1, 1000000, &j->train.accumulate, e));
    TRY(argument_whole(a, "seed", 1, 0, MAX_SEED, &seed, e));
    j->seed = (uint64_t)seed;
    j->train.rounding_seed = seed & INT64_C(0x7fffffff);
    const char *rounding = argument(a, "rounding", "strict");
    j->compile.is_relaxed = strcmp(rounding, "relaxed") == 0;
    if (!j->compile.is_relaxed && strcmp(rounding, "strict") != 0) {
        return fail(e, ATOLL_USAGE, "--rounding %s: expected strict or relaxed", rounding);
    }
    TRY(context_apply(c, &j->compile, e));
    const char *device = argument(a, "device", "cpu");
    struct device_options where = context_devices(c);
    where.allows_tf32 = argument_flag(a, "tf32");
    return device_open(device, &where, &j->compile.device, e);
}

status job_open(struct job *j, const char *path, const struct arguments *a, struct context *c,
                struct error *e)
{
    return open_job(j, path, a, c, false, e);
}

status job_open_lines(struct job *j, const char *path, const struct arguments *a, struct context *c,
                      struct error *e)
{
    return open_job(j, path, a, c, true, e);
}

status job_policy(struct job *j, const char *name, const struct arguments *a, struct error *e)
{
    if (strchr(name, '/') != NULL || strchr(name, '.') != NULL) {
        char *text;
        size_t size;
        TRY(read_text_file(name, &j->arena, &text, &size, e));
        TRY(policy_load(&j->arena, text, size, name, NULL, &j->file_policy, e));
        j->compile.policy = &j->file_policy;
    } else {
        TRY(policy_named(name, &j->compile.policy, e));
    }
    const char *scaler = argument(a, "scaler", "auto");
    bool is_auto = strcmp(scaler, "auto") == 0;
    if (!is_auto && strcmp(scaler, "on") != 0 && strcmp(scaler, "off") != 0) {
        return fail(e, ATOLL_USAGE, "--scaler %s: expected auto, on or off", scaler);
    }
    j->train.scaler.is_enabled =
        is_auto ? j->compile.policy->low == F16 : strcmp(scaler, "on") == 0;
    j->compile.train = &j->train;
    return ATOLL_OK;
}

void job_close(struct job *j)
{
    device_close(j->compile.device);
    graph_destroy(j->model != j->symbolic ? j->model : NULL);
    graph_destroy(j->any_rows != j->symbolic ? j->any_rows : NULL);
    graph_destroy(j->symbolic);
    arena_free(&j->arena);
    *j = (struct job){0};
}
