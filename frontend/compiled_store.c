/* Tensors by name: what outlives calls (owned by the compiled function), and what a call gave
 * (owned by its results). Neither moves while someone may look at it: stored tensors never, results
 * until the next call. */
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/init.h"
#include "runtime/lend.h"

/* ---- the store ---- */

static status describe(const struct node *n, const int64_t *symbols, struct tensor *t,
                       struct error *e)
{
    *t = (struct tensor){.dtype = n->dtype, .rank = n->shape.rank};
    for (uint32_t i = 0; i < t->rank; i++) {
        t->shape[i] = dim_value(n->shape.dims[i], symbols);
        if (t->shape[i] < 0) {
            return fail(e, ATOLL_SHAPE, "%%%s: a size of it has no value", n->name);
        }
    }
    return ATOLL_OK;
}

static status add(struct atoll_compiled *f, const struct node *n, const struct tensor *like,
                  struct stored **out, struct error *e)
{
    struct stored *s = calloc(1, sizeof *s);
    size_t bytes = (tensor_bytes(like) + 64) / 64 * 64;
    if (s != NULL) {
        *s = (struct stored){.op = n->op, .tensor = *like, .version = 1, .next = f->store};
        s->name = strdup(n->name);
        s->tensor.data = aligned_alloc(64, bytes);
    }
    if (s == NULL || s->name == NULL || s->tensor.data == NULL) {
        if (s != NULL) {
            free(s->name);
            free(s->tensor.data);
        }
        free(s);
        return fail(e, ATOLL_OUT_OF_MEMORY, "%%%s: no memory for %zu bytes", n->name, bytes);
    }
    memset(s->tensor.data, 0, bytes);
    status code = init_leaf(n, f->seed, &s->tensor, e);
    if (code != ATOLL_OK) {
        free(s->name);
        free(s->tensor.data);
        free(s);
        return code;
    }
    f->store = s;
    *out = s;
    return ATOLL_OK;
}

static struct stored *find(const struct atoll_compiled *f, const char *name)
{
    struct stored *s = f->store;
    while (s != NULL && strcmp(s->name, name) != 0) {
        s = s->next;
    }
    return s;
}

status store_find(struct atoll_compiled *f, const struct node *n, const int64_t *symbols,
                  struct stored **out, struct error *e)
{
    struct tensor like;
    TRY(describe(n, symbols, &like, e));
    pthread_mutex_lock(&f->lock);
    status code = ATOLL_OK;
    struct stored *s = *out = find(f, n->name);
    if (s == NULL) {
        code = add(f, n, &like, out, e);
    } else if (s->tensor.dtype != like.dtype || s->tensor.rank != like.rank ||
               memcmp(s->tensor.shape, like.shape, like.rank * sizeof *like.shape) != 0) {
        code = fail(e, ATOLL_SHAPE,
                    "%s:%u: %s \"%s\" was %s of rank %u when it was made, and now is %s of rank "
                    "%u or another size; hint: what is kept between calls keeps its type",
                    n->location.file != NULL ? n->location.file : "?", (unsigned)n->location.line,
                    op_info[n->op].name, n->name, dtype_info[s->tensor.dtype].name, s->tensor.rank,
                    dtype_info[like.dtype].name, like.rank);
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

void store_free(struct atoll_compiled *f)
{
    while (f->store != NULL) {
        struct stored *s = f->store;
        f->store = s->next;
        free(s->name);
        free(s->tensor.data);
        free(s);
    }
}

static atoll_status not_stored(const char *name, const char *what, atoll_error *error)
{
    struct error e = {0};
    fail(&e, ATOLL_NOT_FOUND,
         "no %s '%s' so far; hint: what is kept is made by the first call that records it", what,
         name);
    return lend_error(&e, error);
}

atoll_status atoll_compiled_state(atoll_compiled *f, const char *name, atoll_view *out,
                                  atoll_error *error)
{
    pthread_mutex_lock(&f->lock);
    struct stored *s = find(f, name);
    if (s != NULL) {
        s->is_lent = true;
        lend_view(s->name, &s->tensor, out);
    }
    pthread_mutex_unlock(&f->lock);
    return s != NULL ? ATOLL_OK : not_stored(name, "parameter, buffer or state", error);
}

atoll_status atoll_compiled_set(atoll_compiled *f, const char *name, double number,
                                atoll_error *error)
{
    pthread_rwlock_wrlock(&f->in_store);
    pthread_mutex_lock(&f->lock);
    struct stored *s = find(f, name);
    bool is_number = s != NULL && s->op == OP_scalar;
    if (is_number) {
        dtype_store(s->tensor.dtype, s->tensor.data, number);
        s->version++;
    }
    pthread_mutex_unlock(&f->lock);
    pthread_rwlock_unlock(&f->in_store);
    return is_number ? ATOLL_OK : not_stored(name, "scalar", error);
}

/* ---- results ---- */

struct result {
    char name[128];
    struct tensor tensor;
    size_t room;
};

struct atoll_results {
    struct result *items;
    uint32_t n, room;
};

atoll_results *atoll_results_create(void)
{
    return calloc(1, sizeof(struct atoll_results));
}

void atoll_results_destroy(atoll_results *r)
{
    for (uint32_t i = 0; r != NULL && i < r->room; i++) {
        free(r->items[i].tensor.data);
    }
    if (r != NULL) {
        free(r->items);
    }
    free(r);
}

void results_begin(struct atoll_results *r)
{
    r->n = 0;
}

status results_take(void *context, const char *name, uint32_t i, const struct tensor *t,
                    struct error *e)
{
    struct atoll_results *r = context;
    if (r == NULL) {
        return ATOLL_OK;
    }
    if (i >= r->room) {
        uint32_t room = 2 * i + 8;
        struct result *more = realloc(r->items, room * sizeof *more);
        if (more == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "no memory for results");
        }
        memset(more + r->room, 0, (room - r->room) * sizeof *more);
        r->items = more;
        r->room = room;
    }
    struct result *to = &r->items[i];
    size_t bytes = tensor_bytes(t);
    if (to->room < bytes || to->tensor.data == NULL) {
        free(to->tensor.data);
        to->tensor.data = malloc(bytes + 64);
        to->room = to->tensor.data != NULL ? bytes : 0;
        if (to->tensor.data == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "output %s: no memory for %zu bytes", name, bytes);
        }
    }
    size_t length = strlen(name);
    length = length < sizeof to->name ? length : sizeof to->name - 1;
    memcpy(to->name, name, length);
    to->name[length] = '\0';
    void *data = to->tensor.data;
    to->tensor = *t;
    to->tensor.data = data;
    if (bytes > 0) {
        memcpy(data, t->data, bytes);
    }
    r->n = i + 1;
    return ATOLL_OK;
}

static const struct result *result_named(const struct atoll_results *r, const char *name)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (strcmp(r->items[i].name, name) == 0) {
            return &r->items[i];
        }
    }
    return NULL;
}

atoll_status atoll_results_view(const atoll_results *r, const char *name, atoll_view *out,
                                atoll_error *error)
{
    struct error e = {0};
    const struct result *found = result_named(r, name);
    if (found == NULL) {
        fail(&e, ATOLL_NOT_FOUND, "the call gave no output '%s', but %u others", name, r->n);
        return lend_error(&e, error);
    }
    lend_view(found->name, &found->tensor, out);
    return ATOLL_OK;
}

double atoll_results_number(const atoll_results *r, const char *name)
{
    const struct result *found = result_named(r, name);
    return found == NULL || tensor_count(&found->tensor) < 1
               ? (double)__builtin_nan("")
               : dtype_load(found->tensor.dtype, found->tensor.data);
}
