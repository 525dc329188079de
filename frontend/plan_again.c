/* Plans that do not run as they are: fusion, lowering and NVRTC once more over the plan's primitive
 * graph, for the device at hand. Its nodes keep their ids, so state, inputs and outputs are those
 * of the file. The passes before are not run again: what they decided is in the graph. */
#include "plan_again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/context.h"
#include "ir/parse.h"
#include "runtime/lend.h"

/* The reason without what the plan's author could have done. */
static int reason_length(const struct error *why)
{
    const char *hint = strstr(why->text, "; hint:");
    return hint != NULL ? (int)(hint - why->text) : (int)strlen(why->text);
}

static void write_notice(const struct compiled *c, const struct compile_options *o,
                         const struct error *why, char notice[NOTICE_BYTES])
{
    char split[80] = "";
    if (c->cuda.n_split > 0) {
        snprintf(split, sizeof split, ", %u groups one op at a time", c->cuda.n_split);
    }
    snprintf(notice, NOTICE_BYTES, "the plan was compiled again for %s%s: %.*s", o->device->name,
             split, reason_length(why), why->text);
    if (o->log != NULL) {
        o->log(o->log_context, "kernels", notice);
    }
}

/* Made by `atoll compile --rounding relaxed`. */
static bool is_relaxed(const struct plan_file *file)
{
    return strstr(file->about, "\nrounding relaxed\n") != NULL;
}

status plan_again(const struct plan_file *file, const struct compile_options *o,
                  const struct error *why, struct compiled *out, char notice[NOTICE_BYTES],
                  struct error *e)
{
    const struct section *text = container_find(&file->container, "graph");
    const char *arch[1];
    struct compile_options here = compile_options_there(o, arch);
    struct nvrtc *nvrtc = NULL;
    struct error missing = {0};
    *out = (struct compiled){0};
    if (nvrtc_open(o->libnvrtc, &nvrtc, &missing) != ATOLL_OK) {
        return fail(e, why->code, "%.500s; nor can the plan's graph be compiled here: %.400s",
                    why->text, missing.text);
    }
    nvrtc_close(nvrtc);
    here.tries_loading = true;
    here.is_relaxed = is_relaxed(file);
    struct graph *g = graph_parse(text->data, text->size, "plan", e);
    if (g == NULL) {
        return e != NULL ? e->code : ATOLL_PARSE;
    }
    TRY(compile_primitive(g, &here, out, e));
    write_notice(out, &here, why, notice);
    return ATOLL_OK;
}

/* ---- the public opening ---- */

static void print_on_stderr(const char *line)
{
    fprintf(stderr, "atoll: %s\n", line);
}

static void drop(void *kept)
{
    compiled_free(kept);
    free(kept);
}

/* context: the place. */
static status compile_again(void *context, const struct plan_file *file, struct device *device,
                            const struct error *why, struct plan_substitute *out, struct error *e)
{
    const atoll_place *place = context;
    struct context environment;
    struct compile_options o = {.device = device};
    struct device_code code;
    struct compiled *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    context_read(&environment);
    environment.print = print_on_stderr;
    status result = context_apply(&environment, &o, e);
    o.libnvrtc = place->libnvrtc != NULL ? place->libnvrtc : o.libnvrtc;
    result = result == ATOLL_OK ? plan_again(file, &o, why, c, out->notice, e) : result;
    if (result == ATOLL_OK) {
        struct device_image *images = cuda_code_images(&c->cuda, &code);
        out->session = session_create_on(&c->program, device, &code, e);
        free(images);
        result = out->session != NULL ? ATOLL_OK : e->code;
    }
    if (result != ATOLL_OK) {
        drop(c);
        return result;
    }
    out->kept = c;
    out->drop = drop;
    return ATOLL_OK;
}

atoll_status atoll_plan_open_on(const char *path, const atoll_place *place, atoll_plan **out,
                                atoll_error *error)
{
    union {
        const void *in;
        void *out;
    } context = {.in = place};
    return plan_open_with(path, place, place != NULL ? compile_again : NULL, context.out, out,
                          error);
}
