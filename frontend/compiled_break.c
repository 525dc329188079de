/* Graph breaks: what was recorded so far is compiled and run, and recording goes on. What nothing
 * has used yet is brought to the host and stands as a leaf in what follows; other values that
 * follow-up ops ask for are computed again, with the same bits. Updates wait for the last segment,
 * so that a call that fails changes nothing. */
#include "compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lend.h"

/* The place in the tree of segments of what follows these breaks; 0 and an error: no memory. */
static uint32_t segment_of(struct running *r)
{
    struct atoll_compiled *f = r->f;
    uint32_t at = 0;
    pthread_mutex_lock(&f->lock);
    while (at < f->n_segments && f->segments[at].hash != r->mark) {
        at++;
    }
    if (at == f->n_segments &&
        tape_room(r->trace, &f->segments, &f->segment_room, at + 1, sizeof *f->segments)) {
        f->segments[f->n_segments++].hash = r->mark;
    }
    at = at < f->n_segments ? at + 1 : 0;
    pthread_mutex_unlock(&f->lock);
    return at;
}

/* ---- what a segment brings ---- */

static bool add_frontier(struct running *r, uint32_t id)
{
    if (!tape_room(r->trace, &r->frontier, &r->frontier_room, r->n_frontier + 1,
                   sizeof *r->frontier)) {
        return false;
    }
    r->frontier[r->n_frontier++] = id;
    return true;
}

/* Values that nothing used so far, and the one that is asked for (0: none). */
static bool find_frontier(struct running *r, uint32_t asked)
{
    struct atoll_trace *t = r->trace;
    r->n_frontier = 0;
    for (uint32_t i = 0; i < t->n_calls; i++) {
        const struct capture_call *c = &t->calls[i];
        enum op op = (enum op)(t->tape[c->at] & 0xffff);
        bool is_computed = c->leaf == 0 && c->here == 0 && op_info[op].kind != LEAF;
        if ((i + 1 == asked || (is_computed && !c->is_used)) && !add_frontier(r, i + 1)) {
            return false;
        }
    }
    return true;
}

/* Memory of the call for a new leaf of the trace; NULL: none left. */
static void *new_memory(struct running *r, size_t bytes)
{
    struct atoll_trace *t = r->trace;
    uint32_t n = t->n_leaf_facts / FACTS_A_LEAF + 1;
    void *memory = NULL;
    if (tape_room(t, &r->owned, &r->owned_room, r->n_owned + 1, sizeof *r->owned) &&
        tape_room(t, &r->data, &r->data_room, n, sizeof *r->data)) {
        memory = malloc(bytes + 64);
    }
    if (memory != NULL) {
        r->owned[r->n_owned++] = memory;
        while (r->n_data < n) {
            r->data[r->n_data++] = NULL;
        }
    }
    return memory;
}

static status take_here(void *context, const char *name, uint32_t i, const struct tensor *from,
                        struct error *e)
{
    struct running *r = context;
    struct atoll_trace *t = r->trace;
    size_t bytes = tensor_bytes(from);
    void *memory = new_memory(r, bytes);
    if (memory == NULL ||
        !tape_room(t, &t->leaves, &t->leaf_room, t->n_leaf_facts + FACTS_A_LEAF,
                   sizeof *t->leaves) ||
        !tape_room(t, &t->numbers, &t->number_room, t->n_leaf_facts / FACTS_A_LEAF + 1,
                   sizeof *t->numbers)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: no memory for %zu bytes", name, bytes);
    }
    if (bytes > 0) {
        memcpy(memory, from->data, bytes);
    }
    trace_leaf_facts(&t->leaves[t->n_leaf_facts], from->dtype, DEVICE_CPU, from->rank, from->shape);
    t->n_leaf_facts += FACTS_A_LEAF;
    t->calls[r->frontier[i] - 1].here = t->n_leaf_facts / FACTS_A_LEAF;
    r->data[t->calls[r->frontier[i] - 1].here - 1] = memory;
    return ATOLL_OK;
}

/* Memory and facts of a value that is at hand; NULL: it must be computed (or is stored). */
static const void *at_hand(const struct running *r, uint32_t id, const int64_t **facts)
{
    const struct atoll_trace *t = r->trace;
    const struct capture_call *c = &t->calls[id - 1];
    uint32_t leaf = c->here != 0 ? c->here : c->leaf;
    *facts = leaf != 0 ? &t->leaves[(leaf - 1) * FACTS_A_LEAF] : NULL;
    if (leaf != 0 && c->here == 0 && t->tape[c->at] == OP_scalar) {
        return &t->numbers[leaf - 1];
    }
    return leaf != 0 && leaf <= r->n_data ? r->data[leaf - 1] : NULL;
}

/* NaN when there is none. */
static double first_element(const int64_t *facts, const void *data)
{
    bool is_empty = false;
    for (int64_t i = 0; i < facts[FACT_RANK]; i++) {
        is_empty = is_empty || facts[FACT_DIM + i] == 0;
    }
    return is_empty ? (double)__builtin_nan("") : dtype_load((enum dtype)facts[FACT_DTYPE], data);
}

/* ---- a break ---- */

struct break_words {
    const char *kind, *reason, *advice;
    bool is_read; /* of a value: it stands in the ledger */
};

/* For the ledger; asked: the value that the break brought, 0: none. */
static void tell_break(struct running *r, atoll_site site, uint32_t asked,
                       const struct break_words *w)
{
    char number[MAX_VALUE_TEXT];
    struct ledger_break b = {.call = r->call,
                             .segment = r->segment,
                             .kind = w->kind,
                             .reason = w->reason,
                             .advice = w->advice,
                             .file = site.file,
                             .line = site.line};
    const int64_t *facts = NULL;
    const void *data = w->is_read ? at_hand(r, asked, &facts) : NULL;
    if (data != NULL) {
        b.dtype = dtype_info[facts[FACT_DTYPE]].name;
        ledger_value_text((enum dtype)facts[FACT_DTYPE], first_element(facts, data), number);
        b.value = number;
    }
    callable_break(r->f->engine, &b);
}

/* Runs what is recorded so far and starts the next segment; false and the trace's error
 * otherwise. */
static bool break_here(struct running *r, atoll_site site, uint32_t asked,
                       const struct break_words *w)
{
    struct atoll_trace *t = r->trace;
    struct error e = {0};
    if (r->f->fullgraph) {
        capture_fail(t, site, ATOLL_CHECK_FAILED,
                     "a graph break where fullgraph allows none: %s; hint: %s", w->reason,
                     w->advice);
        return false;
    }
    if (!find_frontier(r, asked)) {
        return false;
    }
    r->call = r->call != 0 ? r->call : callable_begin(r->f->engine);
    if (r->n_frontier > 0) {
        capture_forget_graph(t);
        t->prefix = r->frontier;
        t->n_prefix = r->n_frontier;
        status code = run_segment(r, false, take_here, r, &e);
        t->prefix = NULL;
        t->n_prefix = 0;
        capture_forget_graph(t);
        if (code != ATOLL_OK) {
            fail(&t->error, code, "%s", e.text);
            return false;
        }
    }
    tell_break(r, site, asked, w);
    r->mark = hash_u64(t->hash, hash_u64(asked, r->mark + 1));
    r->segment = segment_of(r);
    return t->error.code == ATOLL_OK;
}

/* The call that a value's trace is part of; NULL and an error when it is none. */
static struct running *running_of(struct atoll_trace *t, atoll_site site, const char *call)
{
    if (t == NULL || t->error.code != ATOLL_OK) {
        return NULL;
    }
    if (t->running == NULL) {
        capture_fail(t, site, ATOLL_USAGE,
                     "%s: the trace has no data; expected a call of a compiled function; hint: "
                     "atoll_compile (compile.h)",
                     call);
    }
    return t->running;
}

/* "%loss" or "%17 (matmul)" */
static const char *value_name(const struct atoll_trace *t, uint32_t id, char text[160])
{
    const struct capture_call *c = &t->calls[id - 1];
    if (c->name != 0) {
        snprintf(text, 160, "%%%.150s", capture_text(t, c->name));
    } else {
        snprintf(text, 160, "%%%u (%s)", id, op_info[t->tape[c->at] & 0xffff].name);
    }
    return text;
}

/* What is at hand, after a break where it takes one. */
static const void *bring(struct running *r, atoll_site site, uint32_t id,
                         const struct break_words *w, const int64_t **facts)
{
    const void *data = at_hand(r, id, facts);
    r->reads_data = true;
    if (data == NULL && break_here(r, site, id, w)) {
        data = at_hand(r, id, facts);
    }
    return data;
}

static void note_read(struct running *r, atoll_site site, const char *name, enum dtype dtype,
                      double number)
{
    if (r->n_reads < MAX_READS) {
        struct read_names *own = &r->read_names[r->n_reads];
        snprintf(own->name, sizeof own->name, "%s", name);
        r->reads[r->n_reads++] =
            (struct trace_read){{site.file, site.line}, own->name, dtype, number};
    }
}

double atoll_item_at(atoll_site site, atoll_value v)
{
    char name[160], reason[220];
    const double none = (double)__builtin_nan("");
    struct atoll_trace *t = capture_of(site, v, "atoll_item");
    struct running *r = v.id != 0 ? running_of(t, site, "atoll_item") : NULL;
    if (r == NULL) {
        return none;
    }
    const int64_t *facts;
    snprintf(reason, sizeof reason, "atoll_item reads %s on the host", value_name(t, v.id, name));
    const struct break_words w = {"host read", reason,
                                  "read it after the call, as an output, or keep the decision in "
                                  "the graph (where)",
                                  true};
    const void *data = bring(r, site, v.id, &w, &facts);
    if (data == NULL) {
        return none;
    }
    double number = first_element(facts, data);
    note_read(r, site, name, (enum dtype)facts[FACT_DTYPE], number);
    return number;
}

void atoll_graph_break_at(atoll_site site, atoll_trace *t, const char *reason)
{
    struct running *r = running_of(t, site, "atoll_graph_break");
    if (r != NULL) {
        const struct break_words w = {"asked for", reason != NULL ? reason : "atoll_graph_break",
                                      "take the atoll_graph_break away for one graph, one plan",
                                      false};
        (void)break_here(r, site, 0, &w);
    }
}

static void host_view(atoll_view *view, const char *name, const int64_t *facts, void *data)
{
    atoll_dims dims = {.n = (uint32_t)facts[FACT_RANK]};
    memcpy(dims.at, &facts[FACT_DIM], dims.n * sizeof *dims.at);
    *view = atoll_view_of(name, (atoll_dtype)facts[FACT_DTYPE], dims, data);
}

atoll_value atoll_host_op_at(atoll_site site, atoll_value v, const char *name,
                             atoll_host_work *work, void *context)
{
    char reason[220], leaf_name[160];
    struct atoll_trace *t = capture_of(site, v, "atoll_host_op");
    const atoll_value none = {v.trace, 0};
    struct running *r = v.id != 0 ? running_of(t, site, "atoll_host_op") : NULL;
    if (r == NULL || name == NULL || work == NULL) {
        if (r != NULL) {
            capture_fail(t, site, ATOLL_USAGE,
                         "atoll_host_op: found NULL, expected a name and "
                         "what to do");
        }
        return none;
    }
    const int64_t *facts;
    snprintf(reason, sizeof reason, "no op '%.100s' in the table: it runs on the host", name);
    const struct break_words w = {"host op", reason,
                                  "write it with the ops there are (docs/ops.md), or do it before "
                                  "the call and give the result as an argument",
                                  false};
    union {
        const void *in;
        void *out;
    } from = {.in = bring(r, site, v.id, &w, &facts)};
    if (from.in == NULL) {
        return none;
    }
    atoll_view in, out;
    host_view(&in, name, facts, from.out);
    void *memory = new_memory(r, in.bytes);
    if (memory == NULL) {
        fail(&t->error, ATOLL_OUT_OF_MEMORY, "out of memory");
        return none;
    }
    out = in;
    out.data = memory;
    work(context, &in, &out);
    atoll_dims dims = {.n = in.rank};
    memcpy(dims.at, in.shape, sizeof dims.at);
    snprintf(leaf_name, sizeof leaf_name, "%.120s.%u", name, t->n_calls + 1);
    struct tape_leaf leaf = {OP_input, leaf_name, (atoll_dtype)facts[FACT_DTYPE], &dims, NULL};
    r->data[t->n_leaf_facts / FACTS_A_LEAF] = memory;
    return tape_add_leaf(t, site, &leaf);
}
