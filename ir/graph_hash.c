/* Nodes are numbered as the text form lists them (leaves, then live nodes in order), so a graph and
 * what is parsed from its text hash alike. Everything enters by name or value, never by an enum's
 * number or a pointer: the hash outlives a build. */
#include "graph_hash.h"

#include <string.h>

struct hasher {
    const struct graph *g;
    uint64_t hash;
    uint32_t *number; /* by id; 0: not live */
};

static void mix(struct hasher *h, uint64_t part)
{
    h->hash = hash_u64(part, h->hash);
}

static void mix_text(struct hasher *h, const char *text)
{
    h->hash = hash_text(text == NULL ? "" : text, h->hash);
}

static void mix_double(struct hasher *h, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    mix(h, bits);
}

/* Symbols of a product in the order of their names: ids depend on which was seen first. */
static void mix_dim(struct hasher *h, struct dim d)
{
    uint64_t names = 0;
    uint32_t n = 0;
    for (; n < MAX_DIM_SYMBOLS && d.symbols[n] != 0; n++) {
        names += hash_text(h->g->symbols[d.symbols[n]].name, 0); /* a sum has no order */
    }
    mix(h, (uint64_t)d.factor);
    mix(h, n);
    mix(h, names);
}

static void mix_shape(struct hasher *h, const struct shape *s)
{
    mix(h, s->rank);
    for (uint32_t i = 0; i < s->rank; i++) {
        mix_dim(h, s->dims[i]);
    }
}

static void mix_attr(struct hasher *h, const struct attr *a)
{
    mix_text(h, a->name);
    switch (a->kind) {
    case ATTR_INT:
    case ATTR_BOOL:
        mix(h, (uint64_t)a->i);
        break;
    case ATTR_FLOAT:
        mix_double(h, a->f);
        break;
    case ATTR_INTS:
        mix(h, a->n_ints);
        for (uint32_t i = 0; i < a->n_ints; i++) {
            mix(h, (uint64_t)a->ints[i]);
        }
        break;
    case ATTR_DIMS:
        mix_shape(h, &a->dims);
        break;
    case ATTR_DTYPE:
        mix_text(h, dtype_info[a->dtype].name);
        break;
    case ATTR_TEXT:
        mix_text(h, a->text);
        break;
    }
}

static bool is_leaf(const struct node *n)
{
    return n->op <= OP_scalar;
}

static bool is_number(const struct node *n)
{
    return n->op == OP_constant && n->dtype == F32 && node_bool(n, "weak");
}

static void mix_value(struct hasher *h, value v)
{
    const struct node *n = graph_node(h->g, v);
    mix(h, is_number(n) ? 0 : h->number[v.id]);
    if (is_number(n)) {
        mix_double(h, node_float(n, "value"));
    }
}

static void mix_node(struct hasher *h, const struct node *n)
{
    mix_text(h, op_info[n->op].name);
    mix_text(h, is_leaf(n) ? n->name : "");
    mix_text(h, dtype_info[n->dtype].name);
    mix_shape(h, &n->shape);
    mix(h, n->island);
    mix(h, n->n_operands);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        mix_value(h, n->operands[i]);
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        mix_attr(h, &n->attrs[i]);
    }
}

/* Leaves are the graph's signature and always count. */
static void number_nodes(struct hasher *h)
{
    const struct graph *g = h->g;
    uint32_t next = 1;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        h->number[g->outputs[i].value.id] = 1;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        h->number[g->updates[i].next.id] = 1;
    }
    for (uint32_t i = g->n_nodes - 1; i > 0; i--) { /* users stand behind: one sweep marks all */
        for (uint32_t k = 0; h->number[i] != 0 && k < g->nodes[i].n_operands; k++) {
            h->number[g->nodes[i].operands[k].id] = 1;
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        h->number[i] = is_leaf(&g->nodes[i]) ? next++ : h->number[i];
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (!is_leaf(&g->nodes[i]) && h->number[i] != 0 && !is_number(&g->nodes[i])) {
            h->number[i] = next++;
        }
    }
}

static void mix_nodes(struct hasher *h)
{
    for (int leaves = 1; leaves >= 0; leaves--) {
        for (uint32_t i = 1; i < h->g->n_nodes; i++) {
            const struct node *n = &h->g->nodes[i];
            if (is_leaf(n) == (leaves == 1) && h->number[i] != 0 && !is_number(n)) {
                mix_node(h, n);
            }
        }
    }
}

static uint64_t ranges(const struct graph *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 1; i < g->n_symbols; i++) {
        const struct symbol *s = &g->symbols[i];
        if (s->low != 0 || s->high != INT64_MAX) {
            sum += hash_u64((uint64_t)s->low, hash_u64((uint64_t)s->high, hash_text(s->name, 0)));
        }
    }
    return sum;
}

static uint64_t hash_all(struct hasher *h)
{
    number_nodes(h);
    mix_nodes(h);
    mix(h, h->g->n_outputs);
    for (uint32_t i = 0; i < h->g->n_outputs; i++) {
        mix_text(h, h->g->outputs[i].name);
        mix_value(h, h->g->outputs[i].value);
    }
    for (uint32_t i = 0; i < h->g->n_updates; i++) {
        mix_value(h, h->g->updates[i].leaf);
        mix_value(h, h->g->updates[i].next);
    }
    for (uint32_t i = 0; i < h->g->n_checks; i++) {
        const struct index_check *c = &h->g->checks[i];
        struct shape size = {.rank = 1, .dims = {c->size}};
        mix_value(h, c->index);
        mix_shape(h, &size);
        mix(h, (uint64_t)c->counts_from_end << 1 | c->may_ignore);
        mix(h, (uint64_t)c->ignored);
    }
    mix(h, ranges(h->g));
    return h->hash;
}

uint64_t graph_hash(const struct graph *g)
{
    struct arena scratch = SCRATCH_ARENA;
    struct hasher h = {.g = g, .number = ARENA_ARRAY(&scratch, uint32_t, g->n_nodes)};
    uint64_t hash = hash_all(&h);
    arena_free(&scratch);
    return hash;
}
