/* From partition to launches: which memory each value lies in, which updates go in place, when a
 * buffer is first and last needed. Invariant: a root is a leaf or a value stored by a launch;
 * reading a value means reading its root. */
#include "program.h"

#include <string.h>

static value alias_root(const struct graph *g, const struct partition *p, value v)
{
    while (graph_node(g, v)->op == OP_reshape && p->is_stored[v.id] && p->group_of[v.id] == 0) {
        v = graph_node(g, v)->operands[0];
    }
    return v;
}

static void use(struct program *p, value v, uint32_t launch)
{
    value r = p->root[v.id];
    if (p->first_use[r.id] == UINT32_MAX) {
        p->first_use[r.id] = launch;
    }
    p->last_use[r.id] = launch;
}

static void add_launch(struct program *p, const struct partition *part, uint32_t i,
                       const struct kernel *k, const char *symbol)
{
    const struct group *group = &part->groups[i];
    struct launch *l = &p->launches[p->n_launches];
    l->node = group->members[group->n_members - 1];
    l->count = 1;
    l->group = i;
    if (symbol != NULL) {
        value *args = ARENA_ARRAY(&p->arena, value, k->n_args);
        l->kind = LAUNCH_KERNEL;
        l->symbol = arena_copy_text(&p->arena, symbol);
        l->flat = k->is_flat ? k->domain[0] : dim_of(1);
        l->is_single_pass = k->kind == GROUP_ROW && k->n_phases == 1;
        l->n_args = k->n_args;
        for (uint32_t a = 0; a < k->n_args; a++) {
            args[a] = k->args[a].v;
            l->n_reads += !k->args[a].is_written;
        }
        l->args = args;
    } else {
        const struct node *n = graph_node(p->graph, l->node);
        value *args = ARENA_ARRAY(&p->arena, value, n->n_operands + 1);
        memcpy(args, n->operands, n->n_operands * sizeof *args);
        args[n->n_operands] = l->node;
        l->kind = group->kind == GROUP_CONTRACTION ? LAUNCH_CONTRACTION : LAUNCH_SINGLE;
        l->n_args = n->n_operands + 1;
        l->n_reads = n->n_operands;
        l->args = args;
    }
    p->n_launches++;
}

/* ---- one call for many tensors ---- */

static bool reads_results_of(const struct program *p, const struct launch *reader,
                             const struct launch *writer)
{
    for (uint32_t a = 0; a < reader->n_reads; a++) {
        for (uint32_t b = writer->n_reads; b < writer->n_args; b++) {
            if (p->root[reader->args[a].id].id == writer->args[b].id) {
                return true;
            }
        }
    }
    return false;
}

/* The launch whose call launch j can join: the same flat kernel, and nothing from there on gives
 * what j reads. UINT32_MAX: none. */
static uint32_t joinable(const struct program *p, uint32_t j)
{
    for (uint32_t i = j; i-- > 0;) {
        const struct launch *l = &p->launches[i];
        if (reads_results_of(p, &p->launches[j], l)) {
            return UINT32_MAX;
        }
        if (l->kind == LAUNCH_KERNEL && strcmp(l->symbol, p->launches[j].symbol) == 0) {
            while (p->launches[i].count == 0) {
                if (reads_results_of(p, &p->launches[j], &p->launches[--i])) {
                    return UINT32_MAX;
                }
            }
            return i;
        }
    }
    return UINT32_MAX;
}

/* Launches of one flat kernel over several tensors become one call, the later ones moved up: an
 * optimizer over all parameters, their finite checks and norms. Before memory is planned, when only
 * values order the launches. */
static void join_launches(struct program *p, const struct kernel *kernels)
{
    for (uint32_t j = 1; j < p->n_launches; j++) {
        struct launch l = p->launches[j];
        if (l.kind != LAUNCH_KERNEL || !kernels[l.group].is_flat) {
            continue;
        }
        uint32_t head = joinable(p, j);
        if (head == UINT32_MAX) {
            continue;
        }
        uint32_t to = head + p->launches[head].count++;
        memmove(&p->launches[to + 1], &p->launches[to], (j - to) * sizeof l);
        l.count = 0;
        p->launches[to] = l;
    }
}

static uint32_t head_of(const struct program *p, uint32_t launch)
{
    while (p->launches[launch].count == 0) {
        launch--;
    }
    return launch;
}

/* Does any launch from `from` on, `writer` aside, or an output, or another update, read the memory
 * of leaf? */
static bool is_read_later(const struct program *p, value leaf, uint32_t from, uint32_t writer)
{
    for (uint32_t i = from; i < p->n_launches; i++) {
        const struct launch *l = &p->launches[i];
        for (uint32_t a = 0; i != writer && a < l->n_args; a++) {
            if (p->root[l->args[a].id].id == leaf.id) {
                return true;
            }
        }
    }
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        if (p->root[p->graph->outputs[i].value.id].id == leaf.id) {
            return true;
        }
    }
    for (uint32_t i = 0; i < p->graph->n_updates; i++) {
        if (p->root[p->graph->updates[i].next.id].id == leaf.id) {
            return true;
        }
    }
    return false;
}

static bool same_map(const struct kernel *k, const struct index_map *a, const struct index_map *b)
{
    bool same = dim_equal(a->offset, b->offset);
    for (uint32_t i = 0; i < k->rank; i++) {
        same = same && dim_equal(a->stride[i], b->stride[i]);
    }
    return same;
}

/* In kernel k every load of leaf walks exactly as the store of next does. */
static bool loads_match_store(const struct program *p, const struct kernel *k, value leaf,
                              value next)
{
    const struct index_map *to = NULL;
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (k->args[k->stores[i].arg].v.id == next.id) {
            to = &k->stores[i].map;
        }
    }
    for (uint32_t i = 0; i < k->n_insts && to != NULL; i++) {
        const struct inst *inst = &k->insts[i];
        if (inst->kind == INST_LOAD && p->root[k->args[inst->arg].v.id].id == leaf.id &&
            !same_map(k, &inst->map, to)) {
            return false;
        }
    }
    return to != NULL;
}

static uint32_t launch_of(const struct program *p, value v)
{
    for (uint32_t i = 0; i < p->n_launches; i++) {
        for (uint32_t a = p->launches[i].n_reads; a < p->launches[i].n_args; a++) {
            if (p->launches[i].args[a].id == v.id) {
                return i;
            }
        }
    }
    return UINT32_MAX;
}

static bool can_update_in_place(const struct program *p, const struct kernel *kernels, uint32_t u)
{
    value leaf = p->graph->updates[u].leaf, next = p->graph->updates[u].next;
    uint32_t at = launch_of(p, next);
    if (at == UINT32_MAX || p->root[next.id].id != next.id ||
        p->launches[at].kind != LAUNCH_KERNEL || !p->launches[at].is_single_pass ||
        is_read_later(p, leaf, head_of(p, at), at)) {
        return false;
    }
    for (uint32_t i = 0; i < p->graph->n_updates;
         i++) { /* one value for two leaves goes in place once */
        if (i != u && p->graph->updates[i].next.id == next.id) {
            return false;
        }
    }
    return loads_match_store(p, &kernels[p->launches[at].group], leaf, next);
}

static void find_in_place(struct program *p, const struct kernel *kernels)
{
    p->is_in_place = ARENA_ARRAY(&p->arena, bool, p->graph->n_updates + 1);
    for (uint32_t u = 0; u < p->graph->n_updates && !p->keeps_values; u++) {
        if (!can_update_in_place(p, kernels, u)) {
            continue;
        }
        value leaf = p->graph->updates[u].leaf, next = p->graph->updates[u].next;
        p->is_in_place[u] = true;
        for (uint32_t i = 1; i < p->graph->n_nodes; i++) {
            if (p->root[i].id == next.id) {
                p->root[i] = leaf;
            }
        }
    }
}

static void find_uses(struct program *p)
{
    uint32_t n = p->graph->n_nodes;
    p->first_use = ARENA_ARRAY(&p->arena, uint32_t, n);
    p->last_use = ARENA_ARRAY(&p->arena, uint32_t, n);
    memset(p->first_use, 0xff, n * sizeof *p->first_use);
    memset(p->last_use, 0xff, n * sizeof *p->last_use);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        uint32_t call = head_of(p, i); /* tensors of one call are worked on side by side */
        for (uint32_t a = 0; a < p->launches[i].n_args; a++) {
            if (p->root[p->launches[i].args[a].id].id != 0) {
                use(p, p->launches[i].args[a], call);
            }
        }
    }
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) {
        use(p, p->graph->outputs[i].value, p->n_launches);
    }
    for (uint32_t i = 0; i < p->graph->n_updates; i++) {
        use(p, p->graph->updates[i].next, p->n_launches);
    }
    for (uint32_t i = 1; i < n && p->keeps_values; i++) {
        p->last_use[i] = p->first_use[i] != UINT32_MAX ? p->n_launches : p->last_use[i];
    }
}

static bool is_updated(const struct graph *g, value leaf)
{
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (g->updates[i].leaf.id == leaf.id) {
            return true;
        }
    }
    return false;
}

status program_build(const struct graph *g, const struct partition *p, const struct kernel *kernels,
                     const char *const *symbols, struct program *out, struct error *e)
{
    *out = (struct program){.graph = g, .keeps_values = p->keeps_values};
    out->launches = ARENA_ARRAY(&out->arena, struct launch, p->n_groups + 1);
    out->root = ARENA_ARRAY(&out->arena, value, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (p->is_stored[i]) {
            out->root[i] = alias_root(g, p, (value){i});
        }
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        add_launch(out, p, i, &kernels[i], symbols[i]);
    }
    join_launches(out, kernels);
    for (uint32_t i = 0; i < out->n_launches; i++) {
        const struct launch *l = &out->launches[i];
        for (uint32_t a = 0; a < l->n_args; a++) {
            if (out->root[l->args[a].id].id == 0) {
                return fail(e, ATOLL_INTERNAL,
                            "launch %u (%s) reads node %u, which lies nowhere in memory", i,
                            op_info[graph_node(g, l->node)->op].name, l->args[a].id);
            }
        }
    }
    out->is_snapshot = ARENA_ARRAY(&out->arena, bool, g->n_outputs + 1);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        value r = out->root[g->outputs[i].value.id];
        out->is_snapshot[i] = node_is_leaf(graph_node(g, r)) && is_updated(g, r);
    }
    find_in_place(out, kernels);
    find_uses(out);
    return ATOLL_OK;
}

status program_link(struct program *p, program_find *find, void *context, struct error *e)
{
    for (uint32_t i = 0; i < p->n_launches; i++) {
        struct launch *l = &p->launches[i];
        if (l->kind != LAUNCH_KERNEL) {
            continue;
        }
        void *address = find(context, l->symbol);
        if (address == NULL) {
            return fail(e, ATOLL_NOT_FOUND,
                        "kernel %s is not in the library; hint: compile the plan again", l->symbol);
        }
        memcpy(&l->fn, &address, sizeof l->fn); /* POSIX: a function address travels as void * */
    }
    return ATOLL_OK;
}

uint32_t program_calls(const struct program *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        n += p->launches[i].count > 0;
    }
    return n;
}

void program_free(struct program *p)
{
    arena_free(&p->arena);
}
