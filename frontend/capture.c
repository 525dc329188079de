/* The capture API: traces, leaves, results, names. Every call checks its handles first: a value of
 * another trace, a stale one or none is an error at that line. Invariant: after the first error a
 * trace records nothing more; its values are {trace, 0}. The traces open on a thread are a list, so
 * that a handle by value finds its trace. */
#include "capture.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(id, ...) _Static_assert((int)ATOLL_##id == (int)id, "the public dtypes are the table's");
#include "ir/dtype.def"
#undef X
_Static_assert((int)ATOLL_ATTR_INT == (int)ATTR_INT && (int)ATOLL_ATTR_TEXT == (int)ATTR_TEXT &&
                   (int)ATOLL_ATTR_DIMS == (int)ATTR_DIMS,
               "the public attribute kinds are the table's");

static _Thread_local struct atoll_trace *newest;
/* Numbers tell the traces of a process apart; they are the only state that traces share. */
static _Atomic uint32_t last_number;

status capture_fail(struct atoll_trace *t, atoll_site site, status code, const char *format, ...)
{
    char what[900];
    va_list args;
    if (t->is_lazy && !t->is_building) {
        (void)capture_graph(t); /* a mistake in types before this one is the first */
    }
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail(&t->error, code, "%s:%u: %s", site.file != NULL ? site.file : "?", site.line, what);
}

/* ---- traces ---- */

void capture_reset(struct atoll_trace *t, const char *name)
{
    do {
        t->number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    } while (t->number == 0);
    t->error.code = ATOLL_OK;
    t->hash = 0;
    t->n_tape = t->n_calls = t->n_outputs = t->n_updates = t->n_leaf_facts = t->n_spelled = 0;
    t->n_symbols = 1;
    t->scope[0] = '\0';
    t->n_scopes = 0;
    t->has_arguments = false;
    capture_forget_graph(t);
    arena_free(&t->arena);
    t->name = tape_add_text(t, name, strlen(name));
}

struct atoll_trace *capture_new(void)
{
    return calloc(1, sizeof(struct atoll_trace));
}

void capture_open(struct atoll_trace *t)
{
    t->older = newest;
    newest = t;
}

void capture_close(struct atoll_trace *t)
{
    struct atoll_trace **at = &newest;
    while (*at != NULL && *at != t) {
        at = &(*at)->older;
    }
    if (*at == t) {
        *at = t->older;
    }
}

atoll_trace *atoll_trace_create(const char *name)
{
    struct atoll_trace *t = capture_new();
    if (t != NULL) {
        capture_reset(t, name != NULL ? name : "model");
        capture_open(t);
    }
    return t;
}

void atoll_trace_destroy(atoll_trace *t)
{
    if (t == NULL) {
        return;
    }
    capture_close(t);
    graph_destroy(t->graph);
    arena_free(&t->arena);
    free(t->tape);
    free(t->calls);
    free(t->outputs);
    free(t->updates);
    free(t->leaves);
    free(t->numbers);
    free(t->spelled);
    free(t);
}

static struct atoll_trace *open_trace(uint32_t number)
{
    struct atoll_trace *t = newest;
    while (t != NULL && t->number != number) {
        t = t->older;
    }
    return t;
}

/* What a handle is that no trace open on this thread has. */
static const char *stale_text(atoll_value v)
{
    return v.trace == 0 ? "no value (a zero handle)"
                        : "a value of a trace that is finished or of another thread (handles end "
                          "with their trace)";
}

struct atoll_trace *capture_of(atoll_site site, atoll_value v, const char *call)
{
    struct atoll_trace *t = open_trace(v.trace);
    if (t == NULL && newest != NULL) {
        capture_fail(newest, site, ATOLL_USAGE, "%s: found %s, expected one of an open trace", call,
                     stale_text(v));
    }
    return t;
}

/* ---- ops ---- */

/* Whether a value may be an operand of t's next call; an error says which and why not. */
static bool is_usable(struct atoll_trace *t, atoll_site site, const char *call, uint32_t k,
                      atoll_value v)
{
    char who[96];
    if (v.trace == t->number && v.id != 0 && v.id <= t->n_calls) {
        return true;
    }
    if (v.trace == t->number && v.id == 0) {
        return false; /* the error is recorded */
    }
    snprintf(who, sizeof who, "atoll_%s, operand %c", call, 'a' + (int)(k < 26 ? k : 25));
    const struct atoll_trace *other = open_trace(v.trace);
    if (other != NULL && other != t) {
        capture_fail(t, site, ATOLL_USAGE,
                     "%s: found a value of trace @%s, expected one of trace @%s", who,
                     capture_text(other, other->name), capture_text(t, t->name));
    } else if (other == NULL) {
        capture_fail(t, site, ATOLL_USAGE, "%s: found %s, expected a value of trace @%s", who,
                     stale_text(v), capture_text(t, t->name));
    } else {
        capture_fail(t, site, ATOLL_USAGE, "%s: found value %u, the trace has %u", who, v.id,
                     t->n_calls);
    }
    return false;
}

static struct atoll_trace *trace_of(atoll_site site, const char *call, const atoll_value *operands,
                                    uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct atoll_trace *t = open_trace(operands[i].trace);
        if (t != NULL) {
            return t;
        }
    }
    if (n == 0 && newest != NULL) {
        capture_fail(newest, site, ATOLL_USAGE, "atoll_%s: found 0 operands, expected 1 or more",
                     call);
    }
    return n > 0 ? capture_of(site, operands[0], call) : NULL;
}

static bool attrs_are_good(struct atoll_trace *t, atoll_site site, const char *call,
                           const atoll_attr *attrs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const atoll_attr *a = &attrs[i];
        bool is_sizes = a->kind == ATOLL_ATTR_INTS || a->kind == ATOLL_ATTR_DIMS;
        if (is_sizes && a->is.dims->n > MAX_RANK) {
            capture_fail(t, site, ATOLL_SHAPE, "atoll_%s: found %u dims, expected up to %d", call,
                         a->is.dims->n, MAX_RANK);
            return false;
        }
        if (a->kind == ATOLL_ATTR_TEXT && a->is.text == NULL) {
            capture_fail(t, site, ATOLL_USAGE, "atoll_%s: found NULL, expected a text", call);
            return false;
        }
        if (a->kind == ATOLL_ATTR_DTYPE && (a->is.i < 0 || a->is.i >= N_DTYPES)) {
            capture_fail(t, site, ATOLL_DTYPE, "atoll_%s: found dtype %lld, expected one of %d",
                         call, (long long)a->is.i, N_DTYPES - 1);
            return false;
        }
    }
    return true;
}

atoll_value atoll_op(atoll_site site, atoll_trace *t, uint32_t op, const atoll_value *operands,
                     uint32_t n_operands, const atoll_attr *attrs, uint32_t n_attrs)
{
    const struct op_row *row = &op_info[op < N_OPS ? op : OP_NONE];
    while (n_operands > row->min_operands && n_operands <= row->max_operands &&
           row->max_operands != VARIADIC && operands[n_operands - 1].trace == 0) {
        n_operands--;
    }
    t = t != NULL ? t : trace_of(site, row->name, operands, n_operands);
    if (t == NULL) {
        return (atoll_value){0};
    }
    const atoll_value none = {t->number, 0};
    if (t->error.code != ATOLL_OK) {
        return none;
    }
    if (row->kind == LEAF && op != OP_constant && op != OP_size && op != OP_iota) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_op: found op %u, expected one of the table", op);
        return none;
    }
    if (n_operands < row->min_operands || n_operands > row->max_operands) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_%s: found %u operands, expected %u to %u",
                     row->name, n_operands, row->min_operands, row->max_operands);
        return none;
    }
    for (uint32_t i = 0; i < n_operands; i++) {
        if (!is_usable(t, site, row->name, i, operands[i])) {
            return none;
        }
    }
    if (!attrs_are_good(t, site, row->name, attrs, n_attrs)) {
        return none;
    }
    atoll_value v = tape_add_op(t, site, op, operands, n_operands, attrs, n_attrs);
    return t->is_lazy || capture_graph(t) != NULL ? v : none;
}

atoll_value atoll_number_at(atoll_site site, atoll_trace *t, double number)
{
    const atoll_attr attrs[] = {{ATOLL_ATTR_FLOAT, {.f = number}},
                                {ATOLL_ATTR_DTYPE, {.i = ATOLL_F32}},
                                {ATOLL_ATTR_BOOL, {.i = 1}}};
    return t == NULL ? (atoll_value){0} : atoll_op(site, t, OP_constant, NULL, 0, attrs, 3);
}

/* ---- leaves ---- */

static atoll_value add_leaf(atoll_site site, struct atoll_trace *t, const struct tape_leaf *leaf)
{
    const char *call = op_info[leaf->op].name;
    if (t == NULL) {
        return (atoll_value){0};
    }
    const atoll_value none = {t->number, 0};
    if (t->error.code != ATOLL_OK) {
        return none;
    }
    if (leaf->name == NULL || leaf->name[0] == '\0') {
        capture_fail(t, site, ATOLL_USAGE, "atoll_%s: the name is %s, expected a text", call,
                     leaf->name == NULL ? "NULL" : "empty");
        return none;
    }
    if ((int)leaf->dtype <= 0 || (int)leaf->dtype >= N_DTYPES) {
        capture_fail(t, site, ATOLL_DTYPE,
                     "atoll_%s \"%s\": found dtype %d, expected ATOLL_BOOL "
                     "to ATOLL_F64",
                     call, leaf->name, (int)leaf->dtype);
        return none;
    }
    if (leaf->shape->n > MAX_RANK) {
        capture_fail(t, site, ATOLL_SHAPE, "atoll_%s \"%s\": found %u dims, expected up to %d",
                     call, leaf->name, leaf->shape->n, MAX_RANK);
        return none;
    }
    for (uint32_t i = 0; i < leaf->shape->n; i++) {
        int64_t size = leaf->shape->at[i];
        bool is_known = size_is_symbol(size) && size < SYMBOL_SIZE(t->n_symbols);
        if (size < 0 && !is_known) {
            capture_fail(t, site, ATOLL_SHAPE,
                         "atoll_%s \"%s\": size %u is %lld, expected 0 or more, or one that "
                         "atoll_symbol gave",
                         call, leaf->name, i, (long long)size);
            return none;
        }
    }
    atoll_value v = tape_add_leaf(t, site, leaf);
    return t->is_lazy || capture_graph(t) != NULL ? v : none;
}

atoll_value atoll_input_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape)
{
    if (t != NULL && t->has_arguments) {
        capture_fail(t, site, ATOLL_USAGE,
                     "atoll_input: the inputs of a compiled function are its arguments; hint: give "
                     "it to atoll_call");
    }
    return add_leaf(site, t, &(struct tape_leaf){OP_input, name, dtype, &shape, NULL});
}

atoll_value atoll_param_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape, const char *init)
{
    return add_leaf(site, t, &(struct tape_leaf){OP_param, name, dtype, &shape, init});
}

atoll_value atoll_buffer_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                            atoll_dims shape, const char *init)
{
    return add_leaf(site, t, &(struct tape_leaf){OP_buffer, name, dtype, &shape, init});
}

atoll_value atoll_state_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                           atoll_dims shape, const char *init)
{
    return add_leaf(site, t, &(struct tape_leaf){OP_state, name, dtype, &shape, init});
}

atoll_value atoll_scalar_at(atoll_site site, atoll_trace *t, const char *name, atoll_dtype dtype,
                            double number)
{
    char init[40];
    snprintf(init, sizeof init, "%.17g", number);
    atoll_value v =
        add_leaf(site, t, &(struct tape_leaf){OP_scalar, name, dtype, &ATOLL_SCALAR, init});
    if (v.id != 0) {
        dtype_store((enum dtype)dtype, &t->numbers[t->calls[v.id - 1].leaf - 1], number);
    }
    return v;
}

int64_t atoll_symbol_at(atoll_site site, atoll_trace *t, const char *name)
{
    if (t == NULL || t->error.code != ATOLL_OK) {
        return 0;
    }
    if (name == NULL || name[0] == '\0') {
        capture_fail(t, site, ATOLL_USAGE, "atoll_symbol: the name is %s, expected a text",
                     name == NULL ? "NULL" : "empty");
        return 0;
    }
    for (uint32_t i = 1; i < t->n_symbols; i++) {
        if (strcmp(capture_text(t, t->symbols[i]), name) == 0) {
            return SYMBOL_SIZE(i);
        }
    }
    if (t->n_symbols == MAX_SYMBOLS) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_symbol \"%s\": a model has up to %d symbols",
                     name, MAX_SYMBOLS - 1);
        return 0;
    }
    t->symbols[t->n_symbols] = tape_add_text(t, name, strlen(name));
    return t->error.code == ATOLL_OK ? SYMBOL_SIZE(t->n_symbols++) : 0;
}
