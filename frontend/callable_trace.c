/* What a call is: the content hash of a trace, its facts, and the words for its parts. */
#include "callable_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- hash ---- */

enum { HASHED = 64 };

/* Words gathered and hashed by the block: one call a node, not one a word. */
struct words {
    uint64_t hash, word[HASHED];
    uint32_t n;
};

static void put(struct words *w, uint64_t word)
{
    if (w->n == HASHED) {
        w->hash = hash_bytes(w->word, sizeof w->word, w->hash);
        w->n = 0;
    }
    w->word[w->n++] = word;
}

static uint64_t end(struct words *w)
{
    return hash_bytes(w->word, w->n * sizeof *w->word, w->hash);
}

static void put_attr(struct words *w, const struct attr *a)
{
    uint64_t bits = 0;
    switch (a->kind) {
    case ATTR_INT:
    case ATTR_BOOL:
        put(w, (uint64_t)a->i);
        break;
    case ATTR_FLOAT:
        memcpy(&bits, &a->f, sizeof bits);
        put(w, bits);
        break;
    case ATTR_INTS:
        put(w, a->n_ints);
        for (uint32_t i = 0; i < a->n_ints; i++) {
            put(w, (uint64_t)a->ints[i]);
        }
        break;
    case ATTR_DIMS: /* sizes are facts */
        put(w, a->dims.rank);
        break;
    case ATTR_DTYPE:
        put(w, (uint64_t)a->dtype);
        break;
    case ATTR_TEXT:
        put(w, hash_text(a->text, 0));
        break;
    }
}

uint64_t trace_hash_node(uint64_t hash, const struct node *n)
{
    struct words w = {.hash = hash};
    put(&w, (uint64_t)n->op);
    if (node_is_leaf(n)) { /* its dims and dtype are facts */
        put(&w, n->name != NULL ? hash_text(n->name, 0) : 0);
        return end(&w);
    }
    put(&w, n->n_operands);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        put(&w, n->operands[i].id);
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        put_attr(&w, &n->attrs[i]);
    }
    return end(&w);
}

uint64_t trace_hash_end(uint64_t hash, const struct graph *g)
{
    struct words w = {.hash = hash};
    put(&w, g->n_outputs);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        put(&w, hash_text(g->outputs[i].name, 0));
        put(&w, g->outputs[i].value.id);
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        put(&w, g->updates[i].leaf.id);
        put(&w, g->updates[i].next.id);
    }
    return end(&w);
}

/* ---- facts ---- */

void trace_leaf_facts(int64_t *facts, enum dtype dtype, int64_t device, uint32_t rank,
                      const int64_t *dims)
{
    facts[FACT_DTYPE] = (int64_t)dtype;
    facts[FACT_DEVICE] = device;
    facts[FACT_RANK] = rank;
    for (uint32_t i = 0; i < MAX_RANK; i++) {
        facts[FACT_DIM + i] = i < rank ? dims[i] : 0;
    }
}

static uint32_t sizes_of(const struct node *n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; !node_is_leaf(n) && i < n->n_attrs; i++) {
        count += n->attrs[i].kind == ATTR_DIMS ? n->attrs[i].dims.rank : 0;
    }
    return count;
}

static int64_t *put_sizes(int64_t *facts, const struct node *n)
{
    for (uint32_t i = 0; !node_is_leaf(n) && i < n->n_attrs; i++) {
        const struct attr *a = &n->attrs[i];
        for (uint32_t d = 0; a->kind == ATTR_DIMS && d < a->dims.rank; d++) {
            *facts++ = a->dims.dims[d].factor;
        }
    }
    return facts;
}

void trace_of_graph(struct trace *t, const struct graph *g, int64_t device, struct arena *arena)
{
    *t = (struct trace){.graph = g, .hash = TRACE_HASH_START};
    uint32_t n_sizes = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        t->n_leaves += node_is_leaf(&g->nodes[i]);
        n_sizes += sizes_of(&g->nodes[i]);
    }
    t->n_facts = t->n_leaves * FACTS_A_LEAF + n_sizes;
    struct trace_leaf *leaves = ARENA_ARRAY(arena, struct trace_leaf, t->n_leaves + 1);
    int64_t *facts = ARENA_ARRAY(arena, int64_t, t->n_facts + 1), *at = facts;
    int64_t *sizes = facts + t->n_leaves * FACTS_A_LEAF;
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *node = &g->nodes[i];
        t->hash = trace_hash_node(t->hash, node);
        sizes = put_sizes(sizes, node);
        if (node_is_leaf(node)) {
            int64_t dims[MAX_RANK];
            for (uint32_t d = 0; d < node->shape.rank; d++) {
                dims[d] = node->shape.dims[d].factor;
            }
            trace_leaf_facts(at, node->dtype, device, node->shape.rank, dims);
            at += FACTS_A_LEAF;
            leaves[n++] =
                (struct trace_leaf){.v = {i}, .name = node->name, .location = node->location};
        }
    }
    t->hash = trace_hash_end(t->hash, g);
    t->leaves = leaves;
    t->facts = facts;
}

/* ---- words ---- */

const char *leaf_origin(const struct graph *g, const struct trace_leaf *leaf, struct arena *a)
{
    const struct node *n = graph_node(g, leaf->v);
    const char *what = n->op == OP_input ? "argument" : op_info[n->op].name;
    if (leaf->location.file == NULL) {
        return arena_text(a, "%s %s of @%s", what, leaf->name, g->name);
    }
    return arena_text(a, "%s %s at %s:%" PRIu32, what, leaf->name, leaf->location.file,
                      leaf->location.line);
}

value slot_node(const struct graph *g, uint32_t n_leaves, uint32_t slot, uint32_t *index)
{
    uint32_t at = n_leaves * FACTS_A_LEAF;
    for (uint32_t i = 1; slot >= at && i < g->n_nodes; i++) {
        uint32_t n = sizes_of(&g->nodes[i]);
        if (slot < at + n) {
            *index = slot - at;
            return (value){i};
        }
        at += n;
    }
    *index = 0;
    return (value){0};
}

const char *slot_subject(const struct graph *g, const struct trace_leaf *leaves, uint32_t n_leaves,
                         uint32_t slot, struct arena *a)
{
    uint32_t leaf = slot / FACTS_A_LEAF, at = slot % FACTS_A_LEAF, index;
    if (leaf < n_leaves) {
        return at < FACT_DIM
                   ? arena_copy_text(a, leaves[leaf].name)
                   : arena_text(a, "dim %" PRIu32 " of %s", at - FACT_DIM, leaves[leaf].name);
    }
    value v = slot_node(g, n_leaves, slot, &index);
    return arena_text(a, "size %" PRIu32 " of %s %s", index, op_info[graph_node(g, v)->op].name,
                      graph_name(g, v, a));
}

const char *arguments_text(const struct graph *g, const struct trace_leaf *leaves,
                           uint32_t n_leaves, const int64_t *facts, struct arena *a)
{
    struct text t = {.arena = a};
    for (uint32_t i = 0; i < n_leaves; i++, facts += FACTS_A_LEAF) {
        if (graph_node(g, leaves[i].v)->op != OP_input) {
            continue;
        }
        text_add(&t, "%s%s %s[", t.data != NULL ? ", " : "", leaves[i].name,
                 dtype_info[facts[FACT_DTYPE]].name);
        for (int64_t d = 0; d < facts[FACT_RANK]; d++) {
            text_add(&t, "%s%" PRId64, d > 0 ? "," : "", facts[FACT_DIM + d]);
        }
        text_add(&t, "]");
    }
    return t.data != NULL ? t.data : arena_copy_text(a, "no arguments");
}

bool same_arguments(const struct entry *en, const struct trace *t)
{
    if (en->n_leaves != t->n_leaves) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        if (strcmp(en->leaves[i].name, t->leaves[i].name) != 0 ||
            graph_node(en->traced, en->leaves[i].v)->op !=
                graph_node(t->graph, t->leaves[i].v)->op) {
            return false;
        }
    }
    return true;
}
