/* What a model returns and changes, names, scopes, and facts about values. */
#include "capture.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- results ---- */

static bool is_name(struct atoll_trace *t, atoll_site site, const char *call, const char *name)
{
    bool is_good = name != NULL && name[0] != '\0';
    if (!is_good) {
        capture_fail(t, site, ATOLL_USAGE, "%s: the name is %s, expected a text", call,
                     name == NULL ? "NULL" : "empty");
    }
    return is_good;
}

/* v belongs to t, and is one. */
static bool is_own(struct atoll_trace *t, atoll_site site, const char *call, atoll_value v)
{
    if (v.trace == t->number) {
        return v.id != 0;
    }
    const struct atoll_trace *other = capture_of(site, v, call);
    if (other != NULL) {
        capture_fail(t, site, ATOLL_USAGE, "%s: found a value of trace @%s, expected one of @%s",
                     call, capture_text(other, other->name), capture_text(t, t->name));
    } else {
        capture_fail(t, site, ATOLL_USAGE, "%s: found no value of trace @%s", call,
                     capture_text(t, t->name));
    }
    return false;
}

static void settle(struct atoll_trace *t)
{
    if (!t->is_lazy) {
        (void)capture_graph(t);
    }
}

void atoll_output_at(atoll_site site, atoll_trace *t, const char *name, atoll_value v)
{
    if (t == NULL || t->error.code != ATOLL_OK || !is_name(t, site, "atoll_output", name) ||
        !is_own(t, site, "atoll_output", v) ||
        !tape_room(t, &t->outputs, &t->output_room, t->n_outputs + 1, sizeof *t->outputs)) {
        return;
    }
    for (uint32_t i = 0; i < t->n_outputs; i++) {
        if (strcmp(capture_text(t, t->outputs[i].name), name) == 0) {
            capture_fail(t, site, ATOLL_USAGE,
                         "atoll_output: there is an output \"%s\" already, from %s:%u", name,
                         t->outputs[i].site.file, t->outputs[i].site.line);
            return;
        }
    }
    struct capture_result *r = &t->outputs[t->n_outputs++];
    *r = (struct capture_result){.site = site, .value = v.id};
    r->name = tape_add_text(t, name, strlen(name));
    t->hash = hash_text(name, hash_u64(v.id | UINT64_C(1) << 32, t->hash));
    settle(t);
}

void atoll_update_at(atoll_site site, atoll_value leaf, atoll_value next)
{
    struct atoll_trace *t = capture_of(site, leaf, "atoll_update");
    if (t == NULL || t->error.code != ATOLL_OK || !is_own(t, site, "atoll_update", leaf) ||
        !is_own(t, site, "atoll_update", next) ||
        !tape_room(t, &t->updates, &t->update_room, t->n_updates + 1, sizeof *t->updates)) {
        return;
    }
    const struct capture_call *c = &t->calls[leaf.id - 1];
    uint64_t op = c->leaf != 0 ? t->tape[c->at] : OP_NONE;
    if (op != OP_param && op != OP_buffer && op != OP_state) {
        capture_fail(t, site, ATOLL_USAGE,
                     "atoll_update: found %s as what to change, expected a param, buffer or state",
                     op == OP_NONE ? "a computed value" : op_info[op].name);
        return;
    }
    for (uint32_t i = 0; i < t->n_updates; i++) {
        if (t->updates[i].leaf == leaf.id) {
            capture_fail(t, site, ATOLL_USAGE, "atoll_update: \"%s\" is updated already, at %s:%u",
                         capture_text(t, c->name), t->updates[i].site.file,
                         t->updates[i].site.line);
            return;
        }
    }
    t->updates[t->n_updates++] =
        (struct capture_result){.site = site, .leaf = leaf.id, .value = next.id};
    t->hash = hash_u64(leaf.id | UINT64_C(1) << 33, hash_u64(next.id, t->hash));
    settle(t);
}

/* ---- names ---- */

atoll_value atoll_name_at(atoll_site site, atoll_value v, const char *name)
{
    char whole[512];
    struct atoll_trace *t = capture_of(site, v, "atoll_name");
    if (t == NULL || t->error.code != ATOLL_OK || v.id == 0 ||
        !is_name(t, site, "atoll_name", name)) {
        return (atoll_value){v.trace, 0};
    }
    struct capture_call *c = &t->calls[v.id - 1];
    if (c->leaf != 0) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_name: \"%s\" is a leaf and keeps its name",
                     capture_text(t, c->name));
        return (atoll_value){v.trace, 0};
    }
    int n = snprintf(whole, sizeof whole, "%s%s", t->scope, name);
    if (n < 0 || (size_t)n >= sizeof whole) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_name: the name has %d bytes, expected up to %zu",
                     n, sizeof whole - 1);
        return (atoll_value){v.trace, 0};
    }
    c->name = tape_add_text(t, whole, (size_t)n);
    struct recovery r;
    if (t->graph != NULL && v.id <= t->n_built) {
        if (arena_recover(&r)) {
            fail(&t->error, ATOLL_OUT_OF_MEMORY, "out of memory while a model is recorded");
            return (atoll_value){v.trace, 0};
        }
        t->graph->nodes[v.id].name = arena_copy_text(&t->graph->arena, whole);
        arena_recover_end(&r);
    }
    return v;
}

void atoll_scope_begin_at(atoll_site site, atoll_trace *t, const char *name)
{
    if (t == NULL || t->error.code != ATOLL_OK || !is_name(t, site, "atoll_scope_begin", name)) {
        return;
    }
    size_t at = strlen(t->scope), length = strlen(name);
    if (t->n_scopes == ARRAY_LEN(t->scopes) || at + length + 2 > sizeof t->scope) {
        capture_fail(t, site, ATOLL_USAGE,
                     "atoll_scope_begin: expected up to %zu scopes of %zu bytes in all",
                     ARRAY_LEN(t->scopes), sizeof t->scope - 2);
        return;
    }
    t->scopes[t->n_scopes++] = (uint32_t)at;
    memcpy(t->scope + at, name, length);
    memcpy(t->scope + at + length, ".", 2);
}

void atoll_scope_end_at(atoll_site site, atoll_trace *t)
{
    if (t == NULL || t->error.code != ATOLL_OK) {
        return;
    }
    if (t->n_scopes == 0) {
        capture_fail(t, site, ATOLL_USAGE, "atoll_scope_end: no scope is open");
        return;
    }
    t->scope[t->scopes[--t->n_scopes]] = '\0';
}

/* ---- facts ---- */

/* The facts of a leaf; NULL for an op. */
static const int64_t *leaf_facts(const struct atoll_trace *t, atoll_value v)
{
    const struct capture_call *c = &t->calls[v.id - 1];
    uint32_t leaf = c->leaf != 0 ? c->leaf : c->here;
    return leaf == 0 ? NULL : &t->leaves[(leaf - 1) * FACTS_A_LEAF];
}

/* The node of a value whose trace has no error; NULL otherwise. */
static const struct node *node_of(struct atoll_trace *t, atoll_value v)
{
    const struct graph *g = capture_graph(t);
    return g != NULL && v.id != 0 ? graph_node(g, (value){v.id}) : NULL;
}

static struct atoll_trace *good_trace(atoll_value v)
{
    struct atoll_trace *t = capture_of((atoll_site){"a question about a value", 0}, v, "atoll");
    return t != NULL && t->error.code == ATOLL_OK && v.id != 0 ? t : NULL;
}

atoll_dtype atoll_dtype_of(atoll_value v)
{
    struct atoll_trace *t = good_trace(v);
    if (t == NULL) {
        return ATOLL_NO_DTYPE;
    }
    const int64_t *facts = leaf_facts(t, v);
    const struct node *n = facts == NULL ? node_of(t, v) : NULL;
    return facts != NULL ? (atoll_dtype)facts[FACT_DTYPE]
           : n != NULL   ? (atoll_dtype)n->dtype
                         : ATOLL_NO_DTYPE;
}

uint32_t atoll_rank(atoll_value v)
{
    struct atoll_trace *t = good_trace(v);
    if (t == NULL) {
        return 0;
    }
    const int64_t *facts = leaf_facts(t, v);
    const struct node *n = facts == NULL ? node_of(t, v) : NULL;
    return facts != NULL ? (uint32_t)facts[FACT_RANK] : n != NULL ? n->shape.rank : 0;
}

int64_t atoll_size_of_at(atoll_site site, atoll_value v, int axis)
{
    struct atoll_trace *t = capture_of(site, v, "atoll_size_of");
    if (t == NULL || t->error.code != ATOLL_OK || v.id == 0) {
        return 0;
    }
    int rank = (int)atoll_rank(v), at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
        capture_fail(t, site, ATOLL_SHAPE, "atoll_size_of: axis %d of rank %d, expected %d to %d",
                     axis, rank, -rank, rank - 1);
        return 0;
    }
    const int64_t *facts = leaf_facts(t, v);
    if (facts != NULL) {
        return facts[FACT_DIM + at];
    }
    const struct node *n = node_of(t, v);
    struct dim d = n != NULL ? n->shape.dims[at] : dim_of(0);
    if (dim_is_static(d)) {
        return d.factor;
    }
    if (d.factor != 1 || d.symbols[1] != 0) {
        capture_fail(t, site, ATOLL_SHAPE,
                     "atoll_size_of: axis %d is a product of symbols, expected a number or one "
                     "symbol",
                     axis);
        return 0;
    }
    return SYMBOL_SIZE(d.symbols[0]);
}

/* ---- the record ---- */

atoll_status atoll_trace_error(atoll_trace *t, atoll_error *error)
{
    if (t == NULL) {
        if (error != NULL && error->code == ATOLL_OK) {
            error->code = ATOLL_OUT_OF_MEMORY;
            snprintf(error->text, sizeof error->text, "no trace: found NULL");
        }
        return ATOLL_OUT_OF_MEMORY;
    }
    (void)capture_graph(t);
    if (t->error.code != ATOLL_OK && error != NULL && error->code == ATOLL_OK) {
        error->code = t->error.code;
        memcpy(error->text, t->error.text, sizeof error->text);
    }
    return t->error.code;
}
