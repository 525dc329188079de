/* islands: needs what autocast leaves, leaves the same graph with every f32 region that low values
 * enter marked (node.island, from 1 in order of appearance), and a note for each: members, which op
 * asked for f32 and why, casts in and out. Under Atoll's own behaviour regions are grown first: an
 * inherit elementwise node whose operands a norm rounded only for it, and that is widened again
 * right behind, runs in f32. Invariant: no other value changes, and no cast that a person or a
 * policy line asked for goes. */
#include "pass.h"

#include <string.h>

#include "ir/compute.h"
#include "policy.h"

static bool is_wide(enum dtype t)
{
    return t == F32 || t == F64;
}

/* Who a note is about: the name, else the line that made it. */
static const char *label(struct arena *a, const struct node *n)
{
    if (n->name != NULL) {
        return n->name;
    }
    return n->location.file == NULL
               ? ""
               : arena_text(a, "%s:%u", n->location.file, (unsigned)n->location.line);
}

static bool is_widening(const struct graph *g, const struct node *n)
{
    return n->op == OP_cast && n->dtype == F32 &&
           dtype_is_low(graph_node(g, n->operands[0])->dtype);
}

/* ---- growing ---- */

struct growth {
    const struct policy *policy;
    struct notes *notes;
    struct arena arena;
    bool *grows; /* by id of the input graph */
};

/* The cast that autocast puts behind a norm is called "NORM.bf16"; a cast that a person wrote has
 * a name of its own. */
static bool is_norm_cast(const struct graph *g, const struct node *n)
{
    if (n->op != OP_cast || !dtype_is_low(n->dtype) || n->name == NULL) {
        return false;
    }
    const struct node *from = graph_node(g, n->operands[0]);
    bool is_norm = (from->op == OP_layer_norm || from->op == OP_rms_norm) && from->dtype == F32 &&
                   from->name != NULL;
    size_t length = is_norm ? strlen(from->name) : 0;
    return is_norm && strncmp(n->name, from->name, length) == 0 && n->name[length] == '.' &&
           strcmp(n->name + length + 1, dtype_info[n->dtype].name) == 0;
}

static bool is_elementwise(enum op op)
{
    bool is_composite = op == OP_gelu || op == OP_silu || op == OP_leaky_relu || op == OP_clamp;
    return is_composite || (op_info[op].kind == ELEMENTWISE && op != OP_cast &&
                            op != OP_scale_loss && op != OP_unscale);
}

static enum amp_class class_of(const struct policy *p, const struct node *n)
{
    const struct policy_node *o = policy_override(p, n);
    return o == NULL                ? policy_class(p, n->op)
           : o->dtype == DTYPE_NONE ? o->class
           : dtype_is_low(o->dtype) ? AMP_LOWER
                                    : AMP_FP32;
}

/* May run in f32 as far as its own operands go. */
static bool is_candidate(const struct graph *g, const struct growth *w, const struct node *n)
{
    if (is_norm_cast(g, n)) {
        return policy_override(w->policy, graph_node(g, n->operands[0])) == NULL;
    }
    if (!dtype_is_low(n->dtype) || !is_elementwise(n->op) ||
        policy_override(w->policy, n) != NULL || policy_class(w->policy, n->op) != AMP_INHERIT) {
        return false;
    }
    bool has_grown = false;
    for (uint32_t i = 0; i < n->n_operands; i++) {
        const struct node *o = graph_node(g, n->operands[i]);
        bool is_grown = w->grows[n->operands[i].id];
        if (dtype_is_float(o->dtype) && !is_grown && !node_is_weak(o)) {
            return false;
        }
        has_grown = has_grown || is_grown;
    }
    return has_grown;
}

/* A user that takes the f32 value as gladly: a cast that widens, or an op told to give f32. */
static bool takes_f32(const struct graph *g, const struct growth *w, const struct node *user)
{
    return is_widening(g, user) ||
           (user->dtype == F32 && class_of(w->policy, user) == AMP_FP32_OUT);
}

/* Drops what stands for something else too, until nothing changes: users first, then operands. */
static bool shrink(const struct graph *g, struct growth *w)
{
    bool changed = false;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        bool keeps = w->grows[i] || takes_f32(g, w, n);
        for (uint32_t k = 0; !keeps && k < n->n_operands; k++) {
            changed = changed || w->grows[n->operands[k].id];
            w->grows[n->operands[k].id] = false;
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (w->grows[i] && !is_candidate(g, w, &g->nodes[i])) {
            w->grows[i] = false;
            changed = true;
        }
    }
    return changed;
}

static void find_growth(const struct graph *g, struct growth *w)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        w->grows[i] = is_candidate(g, w, &g->nodes[i]);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        w->grows[g->outputs[i].value.id] = false;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        w->grows[g->updates[i].next.id] = false;
    }
    while (shrink(g, w)) {
    }
}

static value grow_rule(struct graph *out, const struct graph *in, value v, const value *operands,
                       void *context)
{
    (void)out;
    struct growth *w = context;
    const struct node *n = graph_node(in, v);
    if (w->grows[v.id] && n->op == OP_cast) {
        note_add(w->notes, "islands", graph_node(in, n->operands[0])->name,
                 "the cast to %s behind %s is left out: all that reads it runs in f32",
                 dtype_info[n->dtype].name, op_info[graph_node(in, n->operands[0])->op].name);
        return operands[0];
    }
    if (w->grows[v.id]) {
        note_add(w->notes, "islands", label(&w->arena, n),
                 "%s grown into the island around it: f32 instead of %s, which saves rounding and "
                 "widening again",
                 op_info[n->op].name, dtype_info[n->dtype].name);
        return (value){0};
    }
    return is_widening(in, n) && w->grows[n->operands[0].id] ? operands[0] : (value){0};
}

/* ---- marking ---- */

struct island {
    uint32_t id;          /* 0: no low value enters, so it is none */
    uint32_t first, last; /* members, linked by marks.next */
    uint32_t n_members, casts_in, casts_out, reads_low;
    struct text members, reasons;
    const char *name; /* of the member that asked for f32, else of the first */
    bool has_asker;
    bool has_reason[N_OPS]; /* said already */
};

struct marks {
    const struct policy *policy;
    struct arena arena;
    uint32_t *parent;        /* union-find over members; 0: not a member */
    uint32_t *next;          /* member of the same region behind this one; 0: none */
    uint32_t *id;            /* island of a node; 0: none */
    struct island **islands; /* by root */
};

static bool is_member(const struct graph *g, const struct node *n)
{
    return op_info[n->op].kind != LEAF && op_info[n->op].kind != TRAINING && is_wide(n->dtype) &&
           !is_widening(g, n);
}

static uint32_t root_of(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i) {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    return i;
}

/* The smaller id is the root, so a region is known by its first member. */
static void find_regions(const struct graph *g, struct marks *m)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        m->parent[i] = is_member(g, n) ? i : 0;
        for (uint32_t k = 0; m->parent[i] != 0 && k < n->n_operands; k++) {
            if (m->parent[n->operands[k].id] != 0) {
                uint32_t a = root_of(m->parent, i), b = root_of(m->parent, n->operands[k].id);
                m->parent[a > b ? a : b] = a > b ? b : a;
            }
        }
    }
}

static struct island *island_of(struct marks *m, uint32_t member)
{
    uint32_t root = root_of(m->parent, member);
    if (m->islands[root] == NULL) {
        m->islands[root] = ARENA_NEW(&m->arena, struct island);
        m->islands[root]->members.arena = &m->arena;
        m->islands[root]->reasons.arena = &m->arena;
    }
    return m->islands[root];
}

/* Why this member is f32, when it is the one that asked. */
static const char *asks(const struct marks *m, const struct graph *g, const struct node *n)
{
    const struct policy_node *o = policy_override(m->policy, n);
    if (o != NULL && o->dtype == F32) {
        return "a node line of the policy asks for f32";
    }
    if (n->op == OP_cast) {
        return NULL;
    }
    enum amp_class class = class_of(m->policy, n);
    bool is_norm = (n->op == OP_layer_norm || n->op == OP_rms_norm) &&
                   dtype_is_low(graph_node(g, n->operands[0])->dtype);
    bool is_asking = class == AMP_FP32 || class == AMP_FP32_OUT || is_norm;
    return is_asking ? precision_reason(n->op) : NULL;
}

enum { MAX_SHOWN = 12 };

static void add_member(struct marks *m, const struct graph *g, uint32_t i)
{
    const struct node *n = &g->nodes[i];
    struct island *island = island_of(m, i);
    const char *reason = asks(m, g, n);
    if (island->n_members < MAX_SHOWN) {
        text_add(&island->members, "%s%s%s%s", island->n_members > 0 ? ", " : "",
                 n->name != NULL ? n->name : "", n->name != NULL ? "=" : "", op_info[n->op].name);
    }
    island->n_members++;
    if (island->first == 0) {
        island->first = i;
    } else {
        m->next[island->last] = i;
    }
    island->last = i;
    if (island->name == NULL || (reason != NULL && !island->has_asker)) {
        island->name = label(&m->arena, n);
    }
    if (reason != NULL && !island->has_reason[n->op]) {
        text_add(&island->reasons, "%s%s: %s", island->has_asker ? "; " : "", op_info[n->op].name,
                 reason);
        island->has_reason[n->op] = true;
    }
    island->has_asker = island->has_asker || reason != NULL;
}

/* Casts on the border: a widening cast counts once for each island that it feeds. */
static void count_in(const struct graph *g, const struct marks *m, struct island *s,
                     uint32_t *last_fed)
{
    for (uint32_t i = s->first; i != 0; i = m->next[i]) {
        const struct node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_operands; k++) {
            uint32_t from = n->operands[k].id;
            bool is_cast = is_widening(g, &g->nodes[from]);
            s->casts_in += is_cast && last_fed[from] != s->first;
            last_fed[from] = s->first;
            s->reads_low += dtype_is_low(g->nodes[from].dtype);
        }
    }
}

static void count_border(struct marks *m, const struct graph *g)
{
    uint32_t *last_fed = ARENA_ARRAY(&m->arena, uint32_t, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (m->parent[i] == i) {
            count_in(g, m, island_of(m, i), last_fed);
        }
        if (n->op == OP_cast && dtype_is_low(n->dtype) && m->parent[n->operands[0].id] != 0) {
            island_of(m, n->operands[0].id)->casts_out++;
        }
    }
}

static void say_island(const struct island *s, struct notes *notes)
{
    const char *more = s->n_members > MAX_SHOWN ? ", ..." : "";
    note_add(notes, "islands", s->name,
             "island %u: f32 for %u node%s (%s%s); why: %s; casts in %u, low values read directly "
             "%u, casts out %u",
             (unsigned)s->id, (unsigned)s->n_members, s->n_members == 1 ? "" : "s", s->members.data,
             more, s->has_asker ? s->reasons.data : "an operand is f32", (unsigned)s->casts_in,
             (unsigned)s->reads_low, (unsigned)s->casts_out);
}

static void find_islands(const struct graph *g, struct marks *m, struct notes *notes)
{
    uint32_t n_islands = 0;
    find_regions(g, m);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (m->parent[i] != 0) {
            add_member(m, g, i);
        }
    }
    count_border(m, g);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (m->parent[i] == 0) {
            continue;
        }
        struct island *s = island_of(m, i);
        bool is_island = s->casts_in + s->reads_low > 0;
        if (is_island && s->id == 0) {
            s->id = ++n_islands;
            say_island(s, notes);
        }
        m->id[i] = s->id;
    }
}

static value mark_rule(struct graph *out, const struct graph *in, value v, const value *operands,
                       void *context)
{
    const struct marks *m = context;
    struct node n = *graph_node(in, v);
    n.island = m->id[v.id];
    return graph_copy(out, &n, operands);
}

/* Regions of the swept graph, which holds no dead node. */
static status mark(const struct graph *in, struct graph *out, const struct policy *p,
                   struct notes *notes)
{
    struct marks m = {.policy = p, .arena = SCRATCH_ARENA};
    m.parent = ARENA_ARRAY(&m.arena, uint32_t, in->n_nodes);
    m.next = ARENA_ARRAY(&m.arena, uint32_t, in->n_nodes);
    m.id = ARENA_ARRAY(&m.arena, uint32_t, in->n_nodes);
    m.islands = ARENA_ARRAY(&m.arena, struct island *, in->n_nodes);
    find_islands(in, &m, notes);
    status code = rewrite(in, out, mark_rule, &m, NULL);
    arena_free(&m.arena);
    return code;
}

status islands_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                    struct notes *notes)
{
    const struct policy *p = o->policy;
    if (p == NULL || (p->low == DTYPE_NONE && p->n_ops == 0 && p->n_nodes == 0)) {
        return rewrite(in, out, NULL, NULL, NULL);
    }
    struct graph *swept = graph_temporary(in), *grown = graph_temporary(in);
    struct growth w = {.policy = p, .notes = notes, .arena = SCRATCH_ARENA};
    status code = rewrite(in, swept, NULL, NULL, NULL);
    if (code == ATOLL_OK) {
        w.grows = ARENA_ARRAY(&w.arena, bool, swept->n_nodes);
        if (p->behaviour == POLICY_ATOLL) {
            find_growth(swept, &w);
        }
        code = rewrite(swept, grown, grow_rule, &w, NULL);
    }
    if (code == ATOLL_OK) {
        code = mark(grown, out, p, notes);
    } else {
        fail(&out->error, code, "%s",
             swept->error.code != ATOLL_OK ? swept->error.text : grown->error.text);
    }
    arena_free(&w.arena);
    graph_destroy(swept);
    graph_destroy(grown);
    return code;
}
