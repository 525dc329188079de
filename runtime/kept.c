/* Checkpoints of kept leaves, for plans and for runners. Loading checks everything before it
 * changes anything. */
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint.h"

status kept_save(const char *path, const struct graph *g, kept_leaf *leaf, void *context,
                 int64_t steps, struct error *e)
{
    struct array *arrays = calloc(g->n_nodes, sizeof *arrays);
    uint32_t n = 0;
    if (arrays == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (leaf_is_kept(&g->nodes[i])) {
            const struct tensor *t = leaf(context, (value){i});
            arrays[n] = (struct array){
                .name = g->nodes[i].name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
            arrays[n].bytes = tensor_bytes(t);
            memcpy(arrays[n++].shape, t->shape, sizeof arrays[0].shape);
        }
    }
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)steps);
    const char *const metadata[] = {"format", "atoll checkpoint 1", "steps", text};
    status code = checkpoint_write(path, arrays, n, metadata, 2, e);
    free(arrays);
    return code;
}

static status check(const char *path, const struct dataset *d, const char *name,
                    const struct tensor *t, struct error *e)
{
    const struct array *a = dataset_find(d, name);
    if (a == NULL) {
        return fail(
            e, ATOLL_DATA,
            "%s: no tensor '%s', which the graph keeps; hint: this checkpoint is of another graph",
            path, name);
    }
    if (a->dtype != t->dtype || a->rank != t->rank ||
        memcmp(a->shape, t->shape, t->rank * sizeof *t->shape) != 0) {
        return fail(
            e, ATOLL_DATA,
            "%s: tensor '%s' is %s of rank %u, the graph keeps %s of rank %u or another size", path,
            name, dtype_info[a->dtype].name, a->rank, dtype_info[t->dtype].name, t->rank);
    }
    return ATOLL_OK;
}

status kept_load(const char *path, const struct graph *g, kept_leaf *leaf, void *context,
                 int64_t *steps, struct error *e)
{
    struct dataset d;
    status code = ATOLL_OK;
    TRY(checkpoint_read(path, &d, e));
    for (uint32_t i = 1; i < g->n_nodes && code == ATOLL_OK; i++) {
        if (leaf_is_kept(&g->nodes[i])) {
            code = check(path, &d, g->nodes[i].name, leaf(context, (value){i}), e);
        }
    }
    for (uint32_t i = 1; i < g->n_nodes && code == ATOLL_OK; i++) {
        if (leaf_is_kept(&g->nodes[i])) {
            const struct array *a = dataset_find(&d, g->nodes[i].name);
            memcpy(leaf(context, (value){i})->data, a->data, a->bytes);
        }
    }
    if (code == ATOLL_OK) {
        const char *text = dataset_metadata(&d, "steps");
        *steps = text != NULL ? strtoll(text, NULL, 10) : 0;
    }
    dataset_close(&d);
    return code;
}
