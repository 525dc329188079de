/* The one place that reads the environment. Everything else gets what it needs as options. */
#include "context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void context_read(struct context *c)
{
    *c = (struct context){0};
#define X(name, member, doc) c->member = getenv(#name);
#include "frontend/env.def"
#undef X
}

static void dump_stage(void *context, const char *name, const char *text)
{
    struct context *c = context;
    bool is_source = strchr(name, '.') != NULL;
    snprintf(c->dump_path, sizeof c->dump_path, "%s/%02u_%s%s", c->dump, c->n_dumped++, name,
             is_source ? "" : ".graph");
    FILE *f = fopen(c->dump_path, "w");
    if (f != NULL) {
        fputs(text, f);
        fclose(f);
    }
}

/* ---- ATOLL_LOG ---- */

static const char *const categories[] = {"fusion",     "precision", "memory",       "kernels",
                                         "recompiles", "guards",    "graph_breaks", "all"};

static void warn_unknown(const struct context *c)
{
    for (const char *p = c->log; *p != '\0';) {
        size_t n = strcspn(p, ",");
        bool is_known = false;
        for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
            is_known = is_known || (strlen(categories[i]) == n && memcmp(p, categories[i], n) == 0);
        }
        if (!is_known) {
            char line[240];
            snprintf(line, sizeof line,
                     "ATOLL_LOG: no category '%.*s'; there are fusion, precision, memory, kernels, "
                     "recompiles, guards, graph_breaks and all",
                     n < 60 ? (int)n : 60, p);
            c->print(line);
        }
        p += n + (p[n] == ',');
    }
}

static void log_line(void *context, const char *category, const char *text)
{
    const struct context *c = context;
    if (list_has(c->log, category) || list_has(c->log, "all")) {
        char line[600];
        snprintf(line, sizeof line, "%s: %s", category, text);
        c->print(line);
    }
}

#define DEFAULT_CACHE_LIMIT (UINT64_C(5) << 30)

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static void warn_once(void *context, const char *text)
{
    struct context *c = context;
    uint64_t hash = hash_text(text, 0);
    if (hash != c->warned) {
        fprintf(stderr, "atoll: warning: %s\n", text);
        c->warned = hash;
    }
}

/* "2G", "500M", "64K" or bytes. */
static status read_limit(const char *text, uint64_t *out, struct error *e)
{
    static const char units[] = "KMG";
    char *end = NULL;
    *out = DEFAULT_CACHE_LIMIT;
    if (!is_set(text)) {
        return ATOLL_OK;
    }
    unsigned long long number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    uint32_t shift = unit != NULL ? 10 * (uint32_t)(unit - units + 1) : 0;
    if (end == NULL || end[unit != NULL] != '\0' || number > UINT64_MAX >> (shift + 1)) {
        return fail(
            e, ATOLL_USAGE,
            "ATOLL_CACHE_LIMIT: found '%.60s', expected bytes, such as 500M or 2G, or 0 for "
            "any number",
            text);
    }
    *out = (uint64_t)number << shift;
    return ATOLL_OK;
}

status context_apply(struct context *c, struct compile_options *o, struct error *e)
{
    o->warn = warn_once;
    o->warn_context = c;
    o->cc.compiler = is_set(c->cc) ? c->cc : NULL;
    o->cc.temporary = is_set(c->temporary) ? c->temporary : NULL;
    o->libnvrtc = is_set(c->libnvrtc) ? c->libnvrtc : NULL;
    o->disabled = is_set(c->disable) ? c->disable : NULL;
    o->stop_after = is_set(c->stop_after) ? c->stop_after : NULL;
    o->checks = is_set(c->check) && strcmp(c->check, "0") != 0;
    if (is_set(c->log) && c->print != NULL) {
        warn_unknown(c);
        o->log = log_line;
        o->log_context = c;
    }
    TRY(read_limit(c->cache_limit, &o->cache_limit, e));
    if (c->cache == NULL) {
        bool has_xdg = is_set(c->xdg_cache);
        snprintf(c->cache_path, sizeof c->cache_path, "%s%s/atoll",
                 has_xdg           ? c->xdg_cache
                 : c->home != NULL ? c->home
                                   : "",
                 has_xdg ? "" : "/.cache");
        o->cache = has_xdg || c->home != NULL ? c->cache_path : NULL;
    } else {
        o->cache = strcmp(c->cache, "0") == 0 || c->cache[0] == '\0' ? NULL : c->cache;
    }
    if (c->dump != NULL && c->dump[0] != '\0') {
        mkdir(c->dump, 0777);
        if (access(c->dump, W_OK | X_OK) != 0) {
            return fail(e, ATOLL_IO, "ATOLL_DUMP: %s is no directory that can be written: %s",
                        c->dump, strerror(errno));
        }
        c->n_dumped = 0;
        o->dump = dump_stage;
        o->dump_context = c;
    }
    return ATOLL_OK;
}

struct device_options context_devices(struct context *c)
{
    return (struct device_options){.libcuda = is_set(c->libcuda) ? c->libcuda : NULL,
                                   .libcublaslt = is_set(c->libcublaslt) ? c->libcublaslt : NULL,
                                   .log = is_set(c->log) && c->print != NULL ? log_line : NULL,
                                   .log_context = c};
}

void context_help(struct text *t)
{
#define X(name, member, doc) text_add(t, "%-17s %s\n", #name, doc);
#include "frontend/env.def"
#undef X
}
