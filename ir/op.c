/* The op table as an array, name lookup and the attribute schema. Rows come from ops.def alone; a
 * row without its shape rule does not link. */
#include "op.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OP(name, min, max, kind, types, shape, cuda, cpu, grad, attrs, meaning, doc)               \
    [OP_##name] = {#name,     min,   max,      kind, TYPES_##types, infer_##shape, AMP_##cuda,     \
                   AMP_##cpu, attrs, #meaning, doc},
const struct op_row op_info[N_OPS] = {
    [OP_NONE] = {"none", 0, 0, LEAF, TYPES_X, NULL, AMP_INHERIT, AMP_INHERIT, "", "0", ""},
#include "ops.def"
};
#undef OP

const char *const attr_kind_name[7] = {"int", "float", "bool", "ints", "dims", "dtype", "text"};

bool op_is_function(enum op op)
{
    const char *m = op_info[op].meaning;
    for (; m != NULL && *m != '\0'; m++) {
        if (*m == '/' || (m[0] >= 'A' && m[0] <= 'Z' && m[1] >= 'A' && m[1] <= 'Z')) {
            return true;
        }
    }
    return false;
}

enum op op_named(const char *name, size_t length)
{
    for (int i = 1; i < N_OPS; i++) {
        if (strlen(op_info[i].name) == length && memcmp(op_info[i].name, name, length) == 0) {
            return (enum op)i;
        }
    }
    return OP_NONE;
}

static enum attr_kind kind_named(const char *text, size_t length)
{
    for (size_t i = 0; i < ARRAY_LEN(attr_kind_name); i++) {
        if (strlen(attr_kind_name[i]) == length && memcmp(attr_kind_name[i], text, length) == 0) {
            return (enum attr_kind)i;
        }
    }
    assert(length == 0); /* ops.def names a kind that attr_kind_name lacks */
    return ATTR_INT;
}

static void set_default(struct attr *a, const char *text)
{
    switch (a->kind) {
    case ATTR_INT:
    case ATTR_BOOL:
        a->i = strtoll(text, NULL, 10);
        break;
    case ATTR_FLOAT:
        a->f = strtod(text, NULL);
        break;
    case ATTR_DTYPE:
        a->dtype = dtype_named(text, strlen(text));
        break;
    case ATTR_TEXT:
        a->text = text;
        break;
    case ATTR_INTS:
    case ATTR_DIMS:
        break;
    }
}

uint32_t op_schema(enum op op, struct arena *a, struct attr out[MAX_ATTRS], uint32_t *required)
{
    uint32_t n = 0;
    *required = 0;
    for (const char *p = op_info[op].attrs; *p != '\0';) {
        size_t length = strcspn(p, " ");
        size_t name = strcspn(p, ":");
        size_t kind = strcspn(p + name + 1, "= ");
        assert(n < MAX_ATTRS && name < length);
        struct attr *attr = &out[n];
        memset(attr, 0, sizeof *attr);
        attr->name = arena_text(a, "%.*s", (int)name, p);
        attr->kind = kind_named(p + name + 1, kind);
        attr->text = "";
        const char *value = p + name + 1 + kind;
        if (*value == '=') {
            set_default(attr, arena_text(a, "%.*s", (int)(p + length - value - 1), value + 1));
        } else {
            *required |= 1U << n;
        }
        n++;
        p += length;
        p += strspn(p, " ");
    }
    return n;
}

bool attr_equal(const struct attr *a, const struct attr *b)
{
    switch (a->kind) {
    case ATTR_INT:
    case ATTR_BOOL:
        return a->i == b->i;
    case ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case ATTR_INTS:
        return a->n_ints == b->n_ints &&
               (a->n_ints == 0 || memcmp(a->ints, b->ints, a->n_ints * sizeof *a->ints) == 0);
    case ATTR_DIMS:
        return shape_equal(&a->dims, &b->dims);
    case ATTR_DTYPE:
        return a->dtype == b->dtype;
    case ATTR_TEXT:
        return strcmp(a->text, b->text) == 0;
    }
    return false;
}
