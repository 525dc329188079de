/* Public tensors and modules. A tensor is one block, counted by its owners; converting goes through
 * the loads and stores of the eager executor's cast, so the bits are those of the op. Invariant: a
 * module converts all of its tensors or none. */
#include "atoll/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/compute.h"
#include "runtime/eager_internal.h"
#include "runtime/lend.h"

struct atoll_tensor {
    struct tensor tensor;
    uint64_t n_owners;
};

static bool has_failed(const atoll_error *error)
{
    return error != NULL && error->code != ATOLL_OK;
}

static void *refuse(struct error *e, atoll_error *error)
{
    (void)lend_error(e, error);
    return NULL;
}

/* ---- tensors ---- */

/* Zeros; shape is sound. */
static atoll_tensor *new_tensor(enum dtype dtype, uint32_t rank, const int64_t *shape,
                                struct error *e)
{
    atoll_tensor *t = calloc(1, sizeof *t);
    if (t == NULL) {
        fail(e, ATOLL_OUT_OF_MEMORY, "tensor: out of memory");
        return NULL;
    }
    t->n_owners = 1;
    t->tensor = (struct tensor){.dtype = dtype, .rank = rank};
    memcpy(t->tensor.shape, shape, rank * sizeof *shape);
    t->tensor.data = calloc(1, tensor_bytes(&t->tensor) + 1);
    if (t->tensor.data == NULL) {
        fail(e, ATOLL_OUT_OF_MEMORY, "tensor: no memory for %zu bytes", tensor_bytes(&t->tensor));
        free(t);
        return NULL;
    }
    return t;
}

atoll_tensor *atoll_tensor_create(atoll_dtype dtype, atoll_dims shape, const void *data,
                                  atoll_error *error)
{
    struct error e = {0};
    if (has_failed(error)) {
        return NULL;
    }
    if ((int)dtype <= 0 || (int)dtype >= N_DTYPES) {
        fail(&e, ATOLL_DTYPE, "tensor: %d is no dtype; expected ATOLL_BOOL to ATOLL_F64",
             (int)dtype);
        return refuse(&e, error);
    }
    atoll_view v = atoll_view_of("tensor", dtype, shape, NULL);
    if (v.rank > 8) {
        fail(&e, ATOLL_SHAPE,
             "tensor: expected up to 8 sizes, 0 or more each, and fewer bytes than 2^64");
        return refuse(&e, error);
    }
    atoll_tensor *t = new_tensor((enum dtype)dtype, v.rank, v.shape, &e);
    if (t == NULL) {
        return refuse(&e, error);
    }
    if (data != NULL) {
        memcpy(t->tensor.data, data, v.bytes);
    }
    return t;
}

atoll_tensor *atoll_tensor_retain(atoll_tensor *t)
{
    t->n_owners++;
    return t;
}

void atoll_tensor_release(atoll_tensor *t)
{
    if (t != NULL && --t->n_owners == 0) {
        free(t->tensor.data);
        free(t);
    }
}

static void convert(const struct tensor *from, struct tensor *to)
{
    _Alignas(64) double buffer[BLOCK];
    enum dtype compute = dtype_compute(from->dtype);
    size_t from_size = dtype_info[from->dtype].bytes, to_size = dtype_info[to->dtype].bytes;
    int64_t count = tensor_count(from);
    load_fn *load = load_of(from->dtype, compute);
    store_fn *store = store_of(compute, to->dtype, false);
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t n = count - i < BLOCK ? count - i : BLOCK;
        load(n, (const char *)from->data + (size_t)i * from_size, 1, buffer);
        store(n, buffer, (char *)to->data + (size_t)i * to_size);
    }
}

static atoll_tensor *converted(atoll_tensor *t, enum dtype dtype, struct error *e)
{
    if (t->tensor.dtype == dtype) {
        return atoll_tensor_retain(t);
    }
    atoll_tensor *out = new_tensor(dtype, t->tensor.rank, t->tensor.shape, e);
    if (out != NULL) {
        convert(&t->tensor, &out->tensor);
    }
    return out;
}

static bool is_floating(atoll_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < N_DTYPES && dtype_is_float((enum dtype)dtype);
}

static void refuse_integer(atoll_dtype dtype, const char *hint, struct error *e)
{
    fail(e, ATOLL_DTYPE, "to %s: expected a floating dtype; hint: %s", atoll_dtype_name(dtype),
         hint);
}

atoll_tensor *atoll_tensor_to(atoll_tensor *t, atoll_dtype dtype, atoll_error *error)
{
    struct error e = {0};
    if (has_failed(error)) {
        return NULL;
    }
    if (!is_floating(dtype)) {
        refuse_integer(dtype, "atoll_tensor_cast converts one tensor to any dtype", &e);
        return refuse(&e, error);
    }
    if (!dtype_is_float(t->tensor.dtype)) {
        return atoll_tensor_retain(t);
    }
    atoll_tensor *out = converted(t, (enum dtype)dtype, &e);
    return out != NULL ? out : refuse(&e, error);
}

atoll_tensor *atoll_tensor_cast(atoll_tensor *t, atoll_dtype dtype, atoll_error *error)
{
    struct error e = {0};
    if (has_failed(error)) {
        return NULL;
    }
    if ((int)dtype <= 0 || (int)dtype >= N_DTYPES) {
        fail(&e, ATOLL_DTYPE, "cast: %d is no dtype; expected ATOLL_BOOL to ATOLL_F64", (int)dtype);
        return refuse(&e, error);
    }
    atoll_tensor *out = converted(t, (enum dtype)dtype, &e);
    return out != NULL ? out : refuse(&e, error);
}

atoll_dtype atoll_tensor_dtype(const atoll_tensor *t)
{
    return (atoll_dtype)t->tensor.dtype;
}

int64_t atoll_tensor_count(const atoll_tensor *t)
{
    return tensor_count(&t->tensor);
}

atoll_view atoll_tensor_view(atoll_tensor *t, const char *name)
{
    atoll_view v;
    lend_view(name, &t->tensor, &v);
    return v;
}

double atoll_tensor_number(const atoll_tensor *t, int64_t index)
{
    if (index < 0 || index >= tensor_count(&t->tensor)) {
        return (double)NAN;
    }
    return dtype_load(t->tensor.dtype, (const char *)t->tensor.data +
                                           (size_t)index * dtype_info[t->tensor.dtype].bytes);
}

/* ---- modules ---- */

struct entry {
    char *name;
    atoll_module_kind kind;
    atoll_tensor *tensor;
};

struct atoll_module {
    struct entry *entries;
    uint32_t n, capacity;
};

atoll_module *atoll_module_create(atoll_error *error)
{
    struct error e = {0};
    atoll_module *m = has_failed(error) ? NULL : calloc(1, sizeof *m);
    if (m == NULL && !has_failed(error)) {
        fail(&e, ATOLL_OUT_OF_MEMORY, "module: out of memory");
        return refuse(&e, error);
    }
    return m;
}

void atoll_module_destroy(atoll_module *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->entries[i].name);
        atoll_tensor_release(m->entries[i].tensor);
    }
    free(m->entries);
    free(m);
}

static status add_entry(atoll_module *m, const char *name, atoll_module_kind kind, atoll_tensor *t,
                        struct error *e)
{
    if (name == NULL || name[0] == '\0' || atoll_module_get(m, name) != NULL) {
        return fail(e, ATOLL_USAGE, "module: the name '%s' is %s; expected one of its own",
                    name != NULL ? name : "", name == NULL || name[0] == '\0' ? "empty" : "taken");
    }
    if (kind == ATOLL_MODULE_PARAM && !dtype_is_float(t->tensor.dtype)) {
        return fail(e, ATOLL_USAGE,
                    "module: parameter '%s' is %s, expected a floating dtype; hint: register it as "
                    "a buffer",
                    name, dtype_info[t->tensor.dtype].name);
    }
    if (m->n == m->capacity) {
        uint32_t capacity = m->capacity == 0 ? 8 : 2 * m->capacity;
        struct entry *more = realloc(m->entries, capacity * sizeof *more);
        if (more == NULL) {
            return fail(e, ATOLL_OUT_OF_MEMORY, "module: out of memory");
        }
        m->entries = more;
        m->capacity = capacity;
    }
    char *copy = malloc(strlen(name) + 1);
    if (copy == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "module: out of memory");
    }
    strcpy(copy, name);
    m->entries[m->n++] = (struct entry){copy, kind, atoll_tensor_retain(t)};
    return ATOLL_OK;
}

atoll_status atoll_module_add(atoll_module *m, const char *name, atoll_module_kind kind,
                              atoll_tensor *t, atoll_error *error)
{
    struct error e = {0};
    if (has_failed(error)) {
        return error->code;
    }
    return add_entry(m, name, kind, t, &e) == ATOLL_OK ? ATOLL_OK : lend_error(&e, error);
}

atoll_module *atoll_module_to(atoll_module *m, atoll_dtype dtype, atoll_error *error)
{
    struct error e = {0};
    if (has_failed(error)) {
        return NULL;
    }
    if (!is_floating(dtype)) {
        refuse_integer(dtype, "a module keeps its parameters floating", &e);
        return refuse(&e, error);
    }
    atoll_tensor **fresh = calloc((size_t)m->n + 1, sizeof(atoll_tensor *));
    uint32_t n = 0;
    for (; fresh != NULL && n < m->n; n++) {
        atoll_tensor *t = m->entries[n].tensor;
        bool stays = !dtype_is_float(t->tensor.dtype);
        fresh[n] = stays ? atoll_tensor_retain(t) : converted(t, (enum dtype)dtype, &e);
        if (fresh[n] == NULL) {
            break;
        }
    }
    bool is_whole = fresh != NULL && n == m->n;
    for (uint32_t i = 0; fresh != NULL && i < n; i++) {
        atoll_tensor *old = is_whole ? m->entries[i].tensor : fresh[i];
        m->entries[i].tensor = is_whole ? fresh[i] : m->entries[i].tensor;
        atoll_tensor_release(old);
    }
    free(fresh);
    if (!is_whole) {
        fail(&e, ATOLL_OUT_OF_MEMORY, "module: out of memory");
        return refuse(&e, error);
    }
    return m;
}

atoll_tensor *atoll_module_get(const atoll_module *m, const char *name)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->entries[i].name, name) == 0) {
            return m->entries[i].tensor;
        }
    }
    return NULL;
}

atoll_tensor *atoll_module_at(const atoll_module *m, uint32_t index, const char **name,
                              atoll_module_kind *kind)
{
    if (index >= m->n) {
        return NULL;
    }
    if (name != NULL) {
        *name = m->entries[index].name;
    }
    if (kind != NULL) {
        *kind = m->entries[index].kind;
    }
    return m->entries[index].tensor;
}

uint32_t atoll_module_count(const atoll_module *m)
{
    return m->n;
}
