/* Fusion group -> kernel description. Loads resolve views to strides over the domain, adjacent axes
 * that every map walks in step collapse into one, and each instruction gets the phase in which it
 * can run. Invariant: instructions stand in SSA order and round exactly where the graph's nodes do.
 */
#include "kernel.h"

#include <string.h>

#include "ir/compute.h"

struct lowering {
    const struct graph *g;
    const struct partition *p;
    const struct group *group;
    uint32_t group_id;
    struct arena *arena;
    struct kernel *k;
    uint32_t *inst_of; /* by node id: inst + 1 */
    uint32_t inst_capacity, arg_capacity, store_capacity;
    struct error *e;
};

static uint32_t add_inst(struct lowering *l, const struct inst *inst)
{
    struct kernel *k = l->k;
    k->insts = arena_grow(l->arena, k->insts, k->n_insts, &l->inst_capacity, sizeof *k->insts);
    k->insts[k->n_insts] = *inst;
    return k->n_insts++;
}

static uint32_t arg_for(struct lowering *l, value v, bool is_written)
{
    struct kernel *k = l->k;
    for (uint32_t i = 0; i < k->n_args; i++) {
        if (k->args[i].v.id == v.id && k->args[i].is_written == is_written) {
            return i;
        }
    }
    k->args = arena_grow(l->arena, k->args, k->n_args, &l->arg_capacity, sizeof *k->args);
    k->args[k->n_args] = (struct kernel_arg){v, graph_node(l->g, v)->dtype, is_written};
    return k->n_args++;
}

/* An access over the operand's own shape, spread over the domain: aligned from the last axis, size
 * 1 broadcasts. */
static struct index_map spread(const struct lowering *l, const struct shape *shape,
                               const struct access *a)
{
    const struct shape *domain = &l->group->domain;
    struct index_map m = {.offset = a->offset};
    uint32_t lead = domain->rank - shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        m.stride[lead + i] = dim_is(shape->dims[i], 1) ? dim_of(0) : a->stride[i];
    }
    return m;
}

static bool is_member(const struct lowering *l, value v)
{
    return l->p->group_of[v.id] == l->group_id;
}

/* What reads v by its access: a load, or the inline number under the views. */
static struct inst read_inst(struct lowering *l, value v, const struct access *a)
{
    const struct node *n = graph_node(l->g, v), *base = graph_node(l->g, a->base);
    struct inst inst = {.dtype = n->dtype, .compute = dtype_compute(n->dtype), .name = n->name};
    if (!node_is_inline(base) || l->p->is_stored[a->base.id]) {
        inst.kind = INST_LOAD;
        inst.arg = arg_for(l, a->base, false);
        inst.map = spread(l, &n->shape, a);
    } else if (base->op == OP_constant) {
        inst.kind = INST_NUMBER;
        inst.number = node_float(base, "value");
        inst.is_weak = a->base.id == v.id && node_bool(base, "weak");
    } else if (base->op == OP_size) {
        inst.kind = INST_SIZE;
        inst.size = dim_of(1);
        const struct attr *of = node_attr_named(base, "of");
        (void)shape_count(&of->dims, &inst.size);
    } else {
        inst.kind = INST_INDEX;
        inst.map = spread(l, &n->shape, a);
    }
    return inst;
}

/* v seen through its views, its own memory left aside when `past` is set. */
static status read_value(struct lowering *l, value v, bool past, uint32_t *out)
{
    bool *is_stored = &l->p->is_stored[v.id], was = *is_stored;
    struct access a;
    *is_stored = was && !past;
    bool is_affine = access_of(l->g, l->p->is_stored, v, &a);
    if (is_affine) {
        struct inst inst = read_inst(l, v, &a);
        *out = add_inst(l, &inst);
    }
    *is_stored = was;
    return is_affine ? ATOLL_OK
                     : fail(l->e, ATOLL_INTERNAL,
                            "lower: node %u (%s) is read through a view that is not affine", v.id,
                            op_info[graph_node(l->g, v)->op].name);
}

/* The instruction that gives operand v inside the kernel, adding a load when it comes from memory.
 */
static status operand_inst(struct lowering *l, value v, uint32_t *out)
{
    const struct node *n = graph_node(l->g, v);
    if (l->inst_of[v.id] != 0) {
        *out = l->inst_of[v.id] - 1;
        return ATOLL_OK;
    }
    value under = n->op == OP_expand && !l->p->is_stored[v.id] ? n->operands[0] : (value){0};
    if (under.id != 0 && is_member(l, under) && l->inst_of[under.id] != 0) {
        *out = l->inst_of[under.id] - 1; /* a row value spread over its row */
        return ATOLL_OK;
    }
    TRY(read_value(l, v, false, out));
    l->inst_of[v.id] = *out + 1;
    return ATOLL_OK;
}

static void dense_map(const struct lowering *l, const struct shape *s, struct index_map *m)
{
    struct access a = {.offset = dim_of(0)};
    (void)shape_strides(s, a.stride);
    *m = spread(l, s, &a);
}

static status member_inst(struct lowering *l, value v)
{
    const struct node *n = graph_node(l->g, v);
    enum op_kind kind = op_info[n->op].kind;
    struct inst inst = {.kind = INST_OP, .op = n->op, .dtype = n->dtype, .name = n->name};
    uint32_t at;
    if (kind == VIEW && is_member(l, n->operands[0])) { /* a row value spread over its row */
        l->inst_of[v.id] = l->inst_of[n->operands[0].id];
        return ATOLL_OK;
    }
    if (kind == VIEW || node_is_inline(n)) { /* somebody needs it dense: load, then store */
        TRY(read_value(l, v, true, &at));
        l->inst_of[v.id] = at + 1;
        return ATOLL_OK;
    }
    inst.compute = node_compute(l->g, n);
    inst.n_operands = n->n_operands;
    inst.saturate = node_saturates(n);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        TRY(operand_inst(l, n->operands[i], &inst.operands[i]));
    }
    if (kind == REDUCTION) {
        inst.kind = INST_REDUCE;
    } else if (kind == RANDOM) {
        struct inst index = {.kind = INST_INDEX, .dtype = I64, .compute = I64};
        dense_map(l, &n->shape, &index.map);
        inst.kind = INST_RANDOM;
        inst.stream = node_int(n, "stream");
        inst.operands[1] = add_inst(l, &index);
        inst.n_operands = 2;
    }
    l->inst_of[v.id] = add_inst(l, &inst) + 1;
    return ATOLL_OK;
}

static void add_stores(struct lowering *l)
{
    struct kernel *k = l->k;
    for (uint32_t i = 0; i < l->group->n_members; i++) {
        value v = l->group->members[i];
        if (!l->p->is_stored[v.id]) {
            continue;
        }
        k->stores =
            arena_grow(l->arena, k->stores, k->n_stores, &l->store_capacity, sizeof *k->stores);
        struct store s = {.inst = l->inst_of[v.id] - 1, .arg = arg_for(l, v, true)};
        dense_map(l, &graph_node(l->g, v)->shape, &s.map);
        s.is_row = !shape_equal(&graph_node(l->g, v)->shape, &l->group->domain) ||
                   op_info[graph_node(l->g, v)->op].kind == REDUCTION;
        k->stores[k->n_stores++] = s;
    }
}

/* ---- collapsing axes ---- */

static bool steps_together(const struct index_map *m, uint32_t i, struct dim inner)
{
    struct dim product;
    return dim_multiply(m->stride[i + 1], inner, &product) && dim_equal(product, m->stride[i]);
}

static struct index_map *next_map(struct kernel *k, uint32_t *at)
{
    for (; *at < k->n_insts; ++*at) {
        if (k->insts[*at].kind == INST_LOAD || k->insts[*at].kind == INST_INDEX) {
            return &k->insts[(*at)++].map;
        }
    }
    return *at < k->n_insts + k->n_stores ? &k->stores[(*at)++ - k->n_insts].map : NULL;
}

static void drop_axis(struct kernel *k, uint32_t axis)
{
    uint32_t at = 0;
    for (struct index_map *m; (m = next_map(k, &at)) != NULL;) {
        memmove(&m->stride[axis], &m->stride[axis + 1], sizeof(struct dim) * (k->rank - axis - 1));
    }
    memmove(&k->domain[axis], &k->domain[axis + 1], sizeof(struct dim) * (k->rank - axis - 1));
    k->rank--;
    if (axis < k->first_axis) {
        k->first_axis--;
    } else if (axis < k->first_axis + k->n_axes) {
        k->n_axes--;
    }
}

static void collapse(struct kernel *k)
{
    for (uint32_t i = k->rank; i-- > 0;) {
        if (dim_is(k->domain[i], 1)) {
            drop_axis(k, i);
        }
    }
    for (uint32_t i = k->rank; i-- > 1;) { /* axes i-1 and i */
        bool a = i - 1 >= k->first_axis && i - 1 < k->first_axis + k->n_axes;
        bool b = i >= k->first_axis && i < k->first_axis + k->n_axes;
        bool crosses = a != b || (k->n_axes == 0 && (i - 1 < k->first_axis) != (i < k->first_axis));
        struct dim product;
        uint32_t at = 0;
        bool fits = !crosses && dim_multiply(k->domain[i - 1], k->domain[i], &product);
        for (struct index_map *m; fits && (m = next_map(k, &at)) != NULL;) {
            fits = steps_together(m, i - 1, k->domain[i]);
        }
        if (fits) {
            k->domain[i] = product;
            drop_axis(k, i - 1);
        }
    }
}

/* ---- levels and phases ---- */

static bool is_row_map(const struct kernel *k, const struct index_map *m)
{
    for (uint32_t i = k->first_axis; i < k->first_axis + k->n_axes; i++) {
        if (m->stride[i].factor != 0) {
            return false;
        }
    }
    return true;
}

static void set_phases(struct kernel *k)
{
    k->n_phases = 1;
    for (uint32_t i = 0; i < k->n_insts; i++) {
        struct inst *inst = &k->insts[i];
        bool reads_memory = inst->kind == INST_LOAD || inst->kind == INST_INDEX;
        inst->is_row = reads_memory ? is_row_map(k, &inst->map) : true;
        for (uint32_t o = 0; o < inst->n_operands; o++) {
            const struct inst *from = &k->insts[inst->operands[o]];
            uint32_t ready = from->ready + (from->kind == INST_REDUCE ? 1 : 0);
            inst->is_row = inst->is_row && from->is_row;
            inst->ready = inst->ready > ready ? inst->ready : ready;
        }
        inst->is_row = inst->is_row || inst->kind == INST_REDUCE;
        uint32_t needs = inst->ready + (inst->kind == INST_REDUCE ? 2 : 1);
        k->n_phases = needs > k->n_phases ? needs : k->n_phases;
    }
    for (uint32_t i = 0; i < k->n_stores; i++) {
        k->stores[i].phase = k->insts[k->stores[i].inst].ready +
                             (k->insts[k->stores[i].inst].kind == INST_REDUCE ? 1 : 0);
    }
}

/* Without a reduction the last axis is the inner loop. */
static void choose_inner(struct kernel *k)
{
    if (k->kind == GROUP_ROW && k->n_axes == 0 && k->rank > 0) {
        bool has_reduction = false;
        for (uint32_t i = 0; i < k->n_insts; i++) {
            has_reduction = has_reduction || k->insts[i].kind == INST_REDUCE;
        }
        k->n_axes = has_reduction ? 0 : 1;
        k->first_axis = k->rank - k->n_axes;
    }
    k->is_flat = k->kind == GROUP_ROW && k->rank == 1 && k->n_axes == 1;
}

/* Drops the roundings between the operations of a kernel. */
static void relax(struct kernel *k)
{
    for (uint32_t i = 0; i < k->n_insts; i++) {
        struct inst *inst = &k->insts[i];
        bool is_half = inst->dtype == F16 || inst->dtype == BF16;
        if (is_half && inst->compute == F32 &&
            (inst->kind == INST_OP || inst->kind == INST_REDUCE)) {
            inst->dtype = F32;
        }
    }
}

static const char *describe(const struct lowering *l)
{
    struct text t = {.arena = l->arena};
    for (uint32_t i = 0; i < l->group->n_members; i++) {
        const struct node *n = graph_node(l->g, l->group->members[i]);
        text_add(&t, "%s%s", i > 0 ? " " : "", op_info[n->op].name);
        if (n->name != NULL && (i == 0 || i + 1 == l->group->n_members)) {
            text_add(&t, "(%%%s)", n->name);
        }
        if (t.length > 300) {
            text_add(&t, " ...");
            break;
        }
    }
    return t.data;
}

status kernel_lower(const struct graph *g, const struct partition *p, uint32_t group,
                    bool is_relaxed, struct arena *arena, struct kernel *out, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct lowering l = {.g = g,
                         .p = p,
                         .group = &p->groups[group],
                         .group_id = group + 1,
                         .arena = arena,
                         .k = out,
                         .e = e};
    l.inst_of = ARENA_ARRAY(&scratch, uint32_t, g->n_nodes);
    *out = (struct kernel){.kind = l.group->kind, .rank = l.group->domain.rank};
    memcpy(out->domain, l.group->domain.dims, sizeof out->domain);
    out->first_axis = l.group->first_axis;
    out->n_axes = l.group->n_axes;
    status code = ATOLL_OK;
    for (uint32_t i = 0; i < l.group->n_members && code == ATOLL_OK; i++) {
        code = member_inst(&l, l.group->members[i]);
    }
    if (code == ATOLL_OK) {
        add_stores(&l);
        if (is_relaxed) {
            relax(out);
        }
        out->comment = describe(&l);
        collapse(out);
        choose_inner(out);
        set_phases(out);
    }
    arena_free(&scratch);
    return code;
}
