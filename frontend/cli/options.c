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

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
    bool is_bad = ferror(f) != 0;
    fclose(f);
    *out = t.data != NULL ? t.data : arena_copy_text(a, "");
    *size = t.length;
    return is_bad ? fail(e, ATOLL_IO, "%s: cannot be read (is it a directory?)", path) : ATOLL_OK;
}

/* "n=64,m=5": symbols to numbers. */
static status bind_shapes(struct job *j, const char *text, struct error *e)
{
    int64_t values[MAX_SYMBOLS];
    for (uint32_t i = 0; i < MAX_SYMBOLS; i++) {
        values[i] = -1;
    }
    for (const char *p = text; *p != '\0';) {
        size_t name = strcspn(p, "="), length = strcspn(p, ",");
        char *end = NULL;
        long long n = name < length ? strtoll(p + name + 1, &end, 10) : -1;
        uint32_t at = 0;
        for (uint32_t i = 1; i < j->model->n_symbols; i++) {
            bool is_it = strlen(j->model->symbols[i].name) == name &&
                         memcmp(j->model->symbols[i].name, p, name) == 0;
            at = is_it ? i : at;
        }
        if (n < 0 || end != p + length || at == 0) {
            return fail(
                e, ATOLL_USAGE,
                "--shape %s: at '%.*s' expected SYMBOL=N with a symbol of the model, such as n=64",
                text, (int)length, p);
        }
        values[at] = n;
        p += length;
        p += *p == ',';
    }
    struct graph *bound = graph_bind(j->model, values, e);
    if (bound == NULL) {
        return e->code;
    }
    graph_destroy(j->model);
    j->model = bound;
    return ATOLL_OK;
}

status job_open(struct job *j, const char *path, const struct arguments *a, struct context *c,
                struct error *e)
{
    char *text;
    size_t size;
    double number;
    *j = (struct job){.train = train_options_default()};
    TRY(read_text_file(path, &j->arena, &text, &size, e));
    j->model = graph_parse(text, size, path, e);
    if (j->model == NULL) {
        return e->code;
    }
    if (argument(a, "shape", NULL) != NULL) {
        TRY(bind_shapes(j, argument(a, "shape", ""), e));
    }
    TRY(train_options_parse(&j->train, argument(a, "optimizer", "adamw,lr=1e-3"),
                            argument(a, "schedule", NULL), e));
    TRY(argument_number(a, "clip", 0.0, 0.0, 1e30, &j->train.max_norm, e));
    TRY(argument_number(a, "accumulate", 1.0, 1.0, 1e6, &number, e));
    j->train.accumulate = (int64_t)number;
    TRY(argument_number(a, "seed", 1.0, 0.0, 9e15, &number, e));
    j->seed = (uint64_t)number;
    const char *rounding = argument(a, "rounding", "strict");
    j->compile.is_relaxed = strcmp(rounding, "relaxed") == 0;
    if (!j->compile.is_relaxed && strcmp(rounding, "strict") != 0) {
        return fail(e, ATOLL_USAGE, "--rounding %s: expected strict or relaxed", rounding);
    }
    context_apply(c, &j->compile);
    const char *device = argument(a, "device", "cpu");
    struct device_options where = context_devices(c);
    return device_open(device, &where, &j->compile.device, e);
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
    graph_destroy(j->model);
    device_close(j->compile.device);
    arena_free(&j->arena);
    *j = (struct job){0};
}
