/* From the tape to a graph: each call becomes one node, with its line as origin. Mistakes in types
 * and shapes are found here, by the builder; the trace's error says the line of the call. Outputs
 * and updates follow. Memory running out leaves the trace with an error and nothing half built that
 * anyone sees. */
#include "capture.h"

#include <string.h>

#include "ir/print.h"

struct reader {
    struct atoll_trace *t;
    struct graph *g;
    const char *file, *file_copy; /* equal files share one copy */
    const uint64_t *at;
};

static struct dim size_dim(int64_t size)
{
    return size_is_symbol(size) ? dim_symbol((uint8_t)(size - INT64_MIN)) : dim_of(size);
}

static void declare_symbols(struct reader *r)
{
    for (uint32_t i = r->g->n_symbols; i < r->t->n_symbols; i++) {
        (void)graph_symbol(r->g, capture_text(r->t, r->t->symbols[i]));
    }
}

static void set_origin(struct reader *r, const struct capture_call *c)
{
    if (c->site.file != r->file || r->file_copy == NULL) {
        r->file = c->site.file;
        r->file_copy = arena_copy_text(&r->g->arena, c->site.file);
    }
    r->g->origin = (struct location){r->file_copy, c->site.line};
    r->g->origin_name = arena_copy_text(&r->g->arena, capture_text(r->t, c->name));
}

static void add_leaf(struct reader *r)
{
    struct shape shape = {0};
    enum op op = (enum op)r->at[0];
    enum dtype dtype = (enum dtype)r->at[1];
    const char *init = capture_text(r->t, (tape_text)r->at[2]);
    shape.rank = (uint32_t)r->at[3];
    for (uint32_t i = 0; i < shape.rank; i++) {
        shape.dims[i] = size_dim((int64_t)r->at[4 + i]);
    }
    struct attr attrs[] = {attr_dims("shape", &shape), attr_dtype("dtype", dtype),
                           attr_text("init", init != NULL ? init : "")};
    value there = graph_find(r->g, r->g->origin_name);
    if (there.id != 0) {
        const struct location *l = &graph_node(r->g, there)->location;
        fail(&r->g->error, ATOLL_USAGE, "atoll_%s: there is a leaf \"%s\" already, from %s:%u",
             op_info[op].name, r->g->origin_name, l->file, (unsigned)l->line);
        return;
    }
    (void)graph_add(r->g, op, NULL, 0, attrs, op == OP_input ? 2 : 3);
}

/* A copy of the schema, filled in; sizes of ATTR_DIMS stand behind all attributes. */
static const uint64_t *read_attrs(struct reader *r, struct attr *attrs, uint32_t n)
{
    const uint64_t *at = r->at;
    for (uint32_t i = 0; i < n; i++) {
        struct attr *a = &attrs[i];
        switch (a->kind) {
        case ATTR_INT:
        case ATTR_BOOL:
            a->i = (int64_t)*at++;
            break;
        case ATTR_FLOAT:
            memcpy(&a->f, at++, sizeof a->f);
            break;
        case ATTR_DTYPE:
            a->dtype = (enum dtype) * at++;
            break;
        case ATTR_INTS:
            a->n_ints = (uint32_t)*at++;
            a->ints = arena_copy(&r->g->arena, at, a->n_ints * sizeof *a->ints);
            at += a->n_ints;
            break;
        case ATTR_DIMS:
            a->dims.rank = (uint32_t)*at++;
            break;
        case ATTR_TEXT:
            a->text = (const char *)(at + 1);
            at += at[0] / 8 + 2;
            break;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; attrs[i].kind == ATTR_DIMS && k < attrs[i].dims.rank; k++) {
            attrs[i].dims.dims[k] = size_dim((int64_t)*at++);
        }
    }
    return at;
}

static void add_op(struct reader *r)
{
    enum op op = (enum op)(r->at[0] & 0xffff);
    uint32_t n = (uint32_t)(r->at[0] >> 16 & 0xffff), required;
    uint32_t n_attrs = (uint32_t)(r->at[0] >> 32);
    value operands[VARIADIC];
    struct attr attrs[MAX_ATTRS];
    r->at++;
    for (uint32_t i = 0; i < n; i++) {
        operands[i] = (value){(uint32_t)(r->at[i / 2] >> (i % 2 * 32))};
    }
    r->at += (n + 1) / 2;
    uint32_t has = op_schema(op, &r->g->arena, attrs, &required);
    if (has != n_attrs) {
        fail(&r->g->error, ATOLL_USAGE, "atoll_%s: found %u attributes, expected %u",
             op_info[op].name, n_attrs, has);
        return;
    }
    r->at = read_attrs(r, attrs, n_attrs);
    (void)graph_add(r->g, op, operands, n, attrs, n_attrs);
}

/* A value that a break brought to the host. */
static void add_here(struct reader *r, const struct capture_call *c)
{
    const int64_t *facts = &r->t->leaves[(c->here - 1) * FACTS_A_LEAF];
    const char *op = op_info[r->at[0] & 0xffff].name;
    const char *name = r->g->origin_name != NULL ? r->g->origin_name : op;
    struct shape shape = {.rank = (uint32_t)facts[FACT_RANK]};
    for (uint32_t i = 0; i < shape.rank; i++) {
        shape.dims[i] = dim_of(facts[FACT_DIM + i]);
    }
    r->g->origin_name = arena_text(&r->g->arena, "%s.%u", name, r->g->n_nodes);
    struct attr attrs[] = {attr_dims("shape", &shape),
                           attr_dtype("dtype", (enum dtype)facts[FACT_DTYPE])};
    (void)graph_add(r->g, OP_input, NULL, 0, attrs, 2);
}

/* The graph's error as the trace's, with the line in front when the builder did not say it. */
static void take_error(struct atoll_trace *t, const struct graph *g, atoll_site site)
{
    if (g->error.code == ATOLL_OK) {
        return;
    }
    size_t n = site.file != NULL ? strlen(site.file) : 0;
    if (n > 0 && strncmp(g->error.text, site.file, n) == 0 && g->error.text[n] == ':') {
        fail(&t->error, g->error.code, "%s", g->error.text);
    } else {
        capture_fail(t, site, g->error.code, "%.850s", g->error.text);
    }
}

static void add_calls(struct atoll_trace *t)
{
    struct reader r = {.t = t, .g = t->graph};
    declare_symbols(&r);
    while (t->n_built < t->n_calls && t->error.code == ATOLL_OK) {
        const struct capture_call *c = &t->calls[t->n_built];
        set_origin(&r, c);
        r.at = &t->tape[c->at];
        if (c->leaf != 0) {
            add_leaf(&r);
        } else if (c->here != 0) {
            add_here(&r, c);
        } else {
            add_op(&r);
        }
        take_error(t, t->graph, c->site);
        t->n_built++;
    }
    t->graph->origin_name = NULL;
    t->graph->origin = (struct location){0};
}

/* The outputs of a segment before the last: they have no names of their own. */
static void add_prefix(struct atoll_trace *t)
{
    for (; t->n_built_outputs < t->n_prefix && t->error.code == ATOLL_OK; t->n_built_outputs++) {
        uint32_t id = t->prefix[t->n_built_outputs];
        graph_output(t->graph, arena_text(&t->graph->arena, "value.%u", id), (value){id});
    }
}

static void add_results(struct atoll_trace *t)
{
    if (t->prefix != NULL) {
        add_prefix(t);
        return;
    }
    for (; t->n_built_outputs < t->n_outputs && t->error.code == ATOLL_OK; t->n_built_outputs++) {
        const struct capture_result *o = &t->outputs[t->n_built_outputs];
        graph_output(t->graph, capture_text(t, o->name), (value){o->value});
    }
    for (; t->n_built_updates < t->n_updates && t->error.code == ATOLL_OK; t->n_built_updates++) {
        const struct capture_result *u = &t->updates[t->n_built_updates];
        graph_update(t->graph, (value){u->leaf}, (value){u->value});
        take_error(t, t->graph, u->site);
    }
}

const struct graph *capture_graph(struct atoll_trace *t)
{
    struct recovery r;
    if (t->error.code != ATOLL_OK) {
        return NULL;
    }
    bool is_whole = t->graph != NULL && t->n_built == t->n_calls &&
                    (t->prefix != NULL ? t->n_built_outputs == t->n_prefix
                                       : t->n_built_outputs == t->n_outputs &&
                                             t->n_built_updates == t->n_updates);
    if (is_whole) {
        return t->graph;
    }
    t->is_building = true;
    if (arena_recover(&r)) {
        t->is_building = false;
        fail(&t->error, ATOLL_OUT_OF_MEMORY, "out of memory while a model is recorded");
        return NULL;
    }
    if (t->graph == NULL) {
        t->graph = graph_create(capture_text(t, t->name));
    }
    add_calls(t);
    add_results(t);
    arena_recover_end(&r);
    t->is_building = false;
    return t->error.code == ATOLL_OK ? t->graph : NULL;
}

void capture_forget_graph(struct atoll_trace *t)
{
    graph_destroy(t->graph);
    t->graph = NULL;
    t->n_built = t->n_built_outputs = t->n_built_updates = 0;
}

const char *atoll_trace_text(atoll_trace *t)
{
    struct recovery r;
    const struct graph *g = t != NULL ? capture_graph(t) : NULL;
    if (g == NULL) {
        return NULL;
    }
    arena_free(&t->arena);
    if (arena_recover(&r)) {
        arena_free(&t->arena);
        fail(&t->error, ATOLL_OUT_OF_MEMORY, "out of memory while a model is printed");
        return NULL;
    }
    struct text text = {.arena = &t->arena};
    graph_print(g, &text, NULL);
    arena_recover_end(&r);
    return text.data;
}
