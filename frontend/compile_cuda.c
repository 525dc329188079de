/* Groups to CUDA kernels: text by the printers, equal texts once, dealt to units that NVRTC
 * compiles side by side, for each architecture asked for. Runs after the program is built. */
#include "compile_cuda.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/emit_cuda.h"
#include "frontend/compile.h"
#include "runtime/cache.h"

enum { UNIT_KERNELS = 16, MAX_UNITS = 64 };

struct emitted {
    const char *text; /* with the name K */
    size_t size;
    const char *name;
    uint32_t group, unit;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct launch *launch_of_group(const struct compiled *c, uint32_t group)
{
    uint32_t i = 0;
    while (c->program.launches[i].group != group) {
        i++;
    }
    return &c->program.launches[i];
}

static status emit_group(struct compiled *c, uint32_t i, struct text *t, const char *name,
                         struct cuda_kernel *out, struct error *e)
{
    const struct group *group = &c->partition.groups[i];
    if (group->kind == GROUP_SINGLE) {
        return emit_single_cuda(t, c->primitive, group->members[0], name, &c->arena, out, e);
    }
    bool is_one_of_many = launch_of_group(c, i)->count != 1;
    emit_kernel_cuda(t, &c->kernels[i], name, is_one_of_many, &c->arena, out);
    return ATOLL_OK;
}

static const char *name_of(struct compiled *c, uint32_t group, uint32_t n)
{
    const struct group *g = &c->partition.groups[group];
    const struct node *last = graph_node(c->primitive, g->members[g->n_members - 1]);
    const char *first = op_info[graph_node(c->primitive, g->members[0])->op].name;
    return g->n_members == 1 ? arena_text(&c->arena, "k%u_%s", n, first)
                             : arena_text(&c->arena, "k%u_%s_%s", n, first, op_info[last->op].name);
}

/* Emits every group; launches with equal text share a name. */
static status emit_groups(struct compiled *c, struct emitted *emitted, struct error *e)
{
    for (uint32_t i = 0; i < c->partition.n_groups; i++) {
        if (c->partition.groups[i].kind == GROUP_CONTRACTION) {
            continue;
        }
        struct text t = {.arena = &c->arena}, named = {.arena = &c->arena};
        struct cuda_kernel *out = &launch_of_group(c, i)->cuda;
        const char *comment = c->kernels[i].comment;
        c->kernels[i].comment = "";
        status code = emit_group(c, i, &t, "K", out, e);
        c->kernels[i].comment = comment;
        TRY(code);
        uint32_t at = 0;
        while (at < c->cuda.n_kernels && strcmp(emitted[at].text, t.data) != 0) {
            at++;
        }
        if (at == c->cuda.n_kernels) {
            emitted[c->cuda.n_kernels++] =
                (struct emitted){t.data, t.length, name_of(c, i, at), i, 0};
            c->cuda.n_functions += out->n_stages;
        }
        TRY(emit_group(c, i, &named, emitted[at].name, out, e)); /* for the stages' symbols */
    }
    return ATOLL_OK;
}

/* The longest text that has no unit yet goes to the unit with the least text: units take about the
 * same time, whichever thread compiles them. */
static void deal(struct compiled *c, struct emitted *emitted, uint32_t n_units)
{
    uint32_t n = c->cuda.n_kernels;
    bool *is_dealt = ARENA_ARRAY(&c->arena, bool, n + 1);
    size_t total[MAX_UNITS] = {0};
    for (uint32_t k = 0; k < n; k++) {
        uint32_t longest = n, least = 0;
        for (uint32_t i = 0; i < n; i++) {
            bool is_longer = longest == n || emitted[i].size > emitted[longest].size;
            longest = !is_dealt[i] && is_longer ? i : longest;
        }
        for (uint32_t u = 1; u < n_units; u++) {
            least = total[u] < total[least] ? u : least;
        }
        is_dealt[longest] = true;
        emitted[longest].unit = least;
        total[least] += emitted[longest].size;
    }
}

static status write_units(struct compiled *c, struct emitted *emitted, struct error *e)
{
    struct cuda_code *code = &c->cuda;
    code->n_units = (code->n_kernels + UNIT_KERNELS - 1) / UNIT_KERNELS;
    code->n_units += code->n_kernels > 3 ? code->n_units % 2 : 0; /* even: for two threads */
    code->n_units = code->n_units > MAX_UNITS ? MAX_UNITS : code->n_units;
    deal(c, emitted, code->n_units);
    code->sources = ARENA_ARRAY(&c->arena, const char *, code->n_units + 1);
    for (uint32_t u = 0; u < code->n_units; u++) {
        struct kernel *mine = ARENA_ARRAY(&c->arena, struct kernel, code->n_kernels + 1);
        struct text t = {.arena = &c->arena};
        uint32_t n = 0;
        for (uint32_t i = 0; i < code->n_kernels; i++) {
            if (emitted[i].unit == u &&
                c->partition.groups[emitted[i].group].kind != GROUP_SINGLE) {
                mine[n++] = c->kernels[emitted[i].group];
            }
        }
        emit_prologue_cuda(&t, mine, n);
        for (uint32_t i = 0; i < code->n_kernels; i++) {
            struct cuda_kernel again;
            if (emitted[i].unit == u) {
                TRY(emit_group(c, emitted[i].group, &t, emitted[i].name, &again, e));
            }
        }
        code->sources[u] = t.data;
    }
    return ATOLL_OK;
}

static void dump_unit(const struct compile_options *o, uint32_t unit, const char *kind,
                      const char *text)
{
    char name[64];
    if (o->dump != NULL && text != NULL) {
        snprintf(name, sizeof name, "kernels_%u.%s", unit, kind);
        o->dump(o->dump_context, name, text);
    }
}

static void image_key(struct compiled *c, const struct compile_options *o,
                      const struct nvrtc *nvrtc, const char *arch, uint32_t unit,
                      struct cache_key *out)
{
    const char *policy =
        arena_text(&c->arena, "%s %s", o->policy != NULL ? o->policy->name : "fp32",
                   o->is_relaxed ? "relaxed" : "strict");
    const char *model = arena_text(&c->arena, "%.80s, CUDA unit %u of %u", c->primitive->name,
                                   unit + 1, c->cuda.n_units);
    cache_key_of_image(nvrtc, arch, c->cuda.sources[unit], policy, model, out);
}

/* All units for one architecture: those of the cache, then NVRTC for the rest, side by side. */
static status compile_arch(struct compiled *c, const struct compile_options *o,
                           const struct nvrtc *nvrtc, const char *arch, struct nvrtc_image *images,
                           struct error *e)
{
    const char *sources[MAX_UNITS] = {0};
    struct nvrtc_image fresh[MAX_UNITS];
    struct cache_key key;
    struct text why = {.arena = &c->arena}, one = why, told = why;
    struct error warning = {0};
    const struct cache_use use = {o->cache, o->cache_limit, &one, &told, &warning};
    uint32_t n = 0, missing[MAX_UNITS];
    for (uint32_t u = 0; u < c->cuda.n_units; u++) {
        image_key(c, o, nvrtc, arch, u, &key);
        if (!cached_image_load(&use, &key, &images[u])) {
            sources[n] = c->cuda.sources[u];
            missing[n++] = u;
        }
        if (one.length > 0) {
            text_add(&why, "%s%s", why.length > 0 ? ". " : "", one.data);
            one.length = 0;
        }
    }
    c->cuda.n_cached += c->cuda.n_units - n;
    status code = nvrtc_compile(nvrtc, arch, sources, n, (uint32_t)omp_get_max_threads(), fresh, e);
    for (uint32_t i = 0; i < n; i++) {
        images[missing[i]] = fresh[i];
        if (fresh[i].log == NULL) {
            image_key(c, o, nvrtc, arch, missing[i], &key);
            cached_image_store(&use, &key, &fresh[i]);
        }
    }
    compile_note_cache(c, o, &why, &told, &warning);
    return code;
}

static status compile_units(struct compiled *c, const struct compile_options *o,
                            const struct nvrtc *nvrtc, struct error *e)
{
    struct cuda_code *code = &c->cuda;
    code->archs = calloc(o->n_cuda_archs, sizeof *code->archs);
    code->images = calloc((size_t)o->n_cuda_archs * code->n_units + 1, sizeof *code->images);
    if (code->archs == NULL || code->images == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t u = 0; u < code->n_units; u++) {
        dump_unit(o, u, "cu", code->sources[u]);
    }
    for (uint32_t a = 0; a < o->n_cuda_archs; a++) {
        struct nvrtc_image *images = &code->images[a * code->n_units];
        snprintf(code->archs[a], sizeof *code->archs, "%s", o->cuda_archs[a]);
        if (o->device != NULL && nvrtc_check_arch(nvrtc, code->archs[a], NULL) != ATOLL_OK) {
            nvrtc_newest_arch(nvrtc, code->archs[a]); /* its PTX runs on what came later */
        }
        code->n_archs = a + 1;
        status result = compile_arch(c, o, nvrtc, code->archs[a], images, e);
        for (uint32_t u = 0; u < code->n_units; u++) {
            dump_unit(o, u, "log", images[u].log);
            dump_unit(o, u, "ptx", images[u].ptx);
        }
        TRY(result);
    }
    return ATOLL_OK;
}

/* Whether the device takes the image, cubin or PTX. */
static status try_loading(const struct compile_options *o, const char *arch,
                          const struct nvrtc_image *image, struct error *e)
{
    struct device_image one = {arch, image->cubin, image->cubin_size, image->ptx};
    struct device_code code = {.n_units = 1, .n_archs = 1, .images = &one};
    void *loaded = NULL;
    TRY(o->device->backend->load(o->device, &code, &loaded, e));
    o->device->backend->unload(o->device, loaded);
    return ATOLL_OK;
}

/* A unit that does not load is like one that does not compile: its log says why. */
static status try_units(struct compiled *c, const struct compile_options *o, struct error *e)
{
    status result = ATOLL_OK;
    for (uint32_t u = 0; u < c->cuda.n_units; u++) {
        struct nvrtc_image *image = &c->cuda.images[u];
        struct error why = {0};
        if (try_loading(o, c->cuda.archs[0], image, &why) != ATOLL_OK) {
            image->log = malloc(strlen(why.text) + 1);
            if (image->log == NULL) {
                return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
            }
            strcpy(image->log, why.text);
            result = fail(e, ATOLL_COMPILER, "unit %u does not load: %.600s", u, why.text);
        }
    }
    return result;
}

static bool works_alone(struct compiled *c, const struct compile_options *o,
                        const struct nvrtc *nvrtc, const struct emitted *emitted, char *reason,
                        size_t size)
{
    struct text t = {.arena = &c->arena};
    struct cuda_kernel ignored;
    struct nvrtc_image image;
    struct error e = {0};
    bool has_kernel = c->partition.groups[emitted->group].kind != GROUP_SINGLE;
    emit_prologue_cuda(&t, &c->kernels[emitted->group], has_kernel);
    const char *source =
        emit_group(c, emitted->group, &t, emitted->name, &ignored, NULL) == ATOLL_OK ? t.data : "";
    status code = nvrtc_compile(nvrtc, c->cuda.archs[0], &source, 1, 1, &image, &e);
    if (code == ATOLL_OK && o->tries_loading) {
        code = try_loading(o, c->cuda.archs[0], &image, &e);
    }
    snprintf(reason, size, "%.400s", e.text);
    nvrtc_images_free(&image, 1);
    return code == ATOLL_OK;
}

/* Which kernels of the units that failed are to blame; marks their groups when each has several
 * ops, so that splitting can help. */
static void find_failed(struct compiled *c, const struct compile_options *o,
                        const struct nvrtc *nvrtc, const struct emitted *emitted)
{
    struct cuda_code *code = &c->cuda;
    bool *failed = ARENA_ARRAY(&c->arena, bool, c->partition.n_groups + 1), any = false;
    char reason[500];
    for (uint32_t i = 0; i < code->n_kernels; i++) {
        bool is_suspect = code->images[emitted[i].unit].log != NULL;
        if (!is_suspect || works_alone(c, o, nvrtc, &emitted[i], reason, sizeof reason)) {
            continue;
        }
        if (c->partition.groups[emitted[i].group].n_members < 2) {
            return; /* one op: nothing smaller to fall back on */
        }
        note_add(&c->notes, "cuda", "", "%s runs one op at a time: %s", emitted[i].name, reason);
        for (uint32_t k = 0; k < c->partition.n_groups; k++) {
            const struct cuda_kernel *other = &launch_of_group(c, k)->cuda;
            failed[k] = failed[k] ||
                        (other->n_stages > 0 &&
                         strcmp(other->stages[0].symbol,
                                launch_of_group(c, emitted[i].group)->cuda.stages[0].symbol) == 0);
            any = any || failed[k];
        }
    }
    code->is_failed = any ? failed : NULL;
}

status compile_cuda(struct compiled *c, const struct compile_options *o, struct error *e)
{
    struct emitted *emitted = ARENA_ARRAY(&c->arena, struct emitted, c->partition.n_groups + 1);
    struct nvrtc *nvrtc = NULL;
    TRY(emit_groups(c, emitted, e));
    TRY(write_units(c, emitted, e));
    double start = now();
    TRY(nvrtc_open(o->libnvrtc, &nvrtc, e));
    status code = compile_units(c, o, nvrtc, e);
    if (code == ATOLL_OK && o->tries_loading) {
        code = try_units(c, o, e);
    }
    if (code == ATOLL_COMPILER) {
        find_failed(c, o, nvrtc, emitted);
    }
    nvrtc_close(nvrtc);
    c->cuda.seconds = now() - start;
    return code;
}

struct compile_options compile_options_there(const struct compile_options *o, const char *arch[1])
{
    struct compile_options there = *o;
    arch[0] = o->device->arch;
    there.is_eager = false;
    there.is_unfused = o->is_unfused || o->is_eager;
    there.skips_c = true;
    there.cuda_archs = arch;
    there.n_cuda_archs = 1;
    return there;
}

struct device_image *cuda_code_images(const struct cuda_code *code, struct device_code *out)
{
    uint32_t n = code->n_archs * code->n_units;
    struct device_image *images = calloc(n + 1, sizeof *images);
    for (uint32_t i = 0; i < n && images != NULL; i++) {
        const struct nvrtc_image *image = &code->images[i];
        images[i] = (struct device_image){.arch = code->archs[i / code->n_units],
                                          .cubin = image->cubin,
                                          .cubin_size = image->cubin_size,
                                          .ptx = image->ptx};
    }
    *out = (struct device_code){.n_units = code->n_units,
                                .n_archs = code->n_archs,
                                .images = images,
                                .choices = code->choices,
                                .n_choices = code->n_choices};
    return images;
}

void cuda_code_free(struct cuda_code *code)
{
    if (code->images != NULL) {
        nvrtc_images_free(code->images, code->n_archs * code->n_units);
    }
    free(code->images);
    free(code->archs);
    *code = (struct cuda_code){0};
}
