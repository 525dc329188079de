/* autocast: needs a captured graph (any dtypes), leaves one in which every node has the dtype its
 * policy gives it, by cast nodes and by dtype attributes left open in the graph. Integers, bool and
 * f64 pass untouched, explicit casts and dtype attributes are kept, weak numbers are never cast.
 * Invariant: a value is cast to a dtype once, at its first use (a weight once a step); a value that
 * was only widened is narrowed back by taking the original. Updates keep their state's dtype. */
#include "pass.h"

#include <string.h>

#include "ir/compute.h"
#include "policy.h"

/* What was cast to what: entries by (value in out, dtype). */
struct cast_entry {
    uint32_t from, to;
    enum dtype dtype;
};

struct caster {
    const struct policy *policy;
    struct notes *notes;
    struct arena arena;
    struct cast_entry *casts; /* open addressing; from 0: free */
    uint32_t n_casts, n_slots;
    bool *has_decided; /* by node line of the policy */
};

static uint32_t cast_slot(const struct caster *c, uint32_t from, enum dtype t)
{
    uint32_t mask = c->n_slots - 1;
    uint32_t at = (uint32_t)hash_u64((uint64_t)from << 8 | (uint64_t)t, 0) & mask;
    while (c->casts[at].from != 0 && (c->casts[at].from != from || c->casts[at].dtype != t)) {
        at = (at + 1) & mask;
    }
    return at;
}

static void remember_cast(struct caster *c, value from, enum dtype t, value to)
{
    if (2 * (c->n_casts + 1) > c->n_slots) {
        struct cast_entry *old = c->casts;
        uint32_t n_old = c->n_slots;
        c->n_slots = n_old == 0 ? 64 : 2 * n_old;
        c->casts = ARENA_ARRAY(&c->arena, struct cast_entry, c->n_slots);
        for (uint32_t i = 0; i < n_old; i++) {
            if (old[i].from != 0) {
                c->casts[cast_slot(c, old[i].from, old[i].dtype)] = old[i];
            }
        }
    }
    uint32_t at = cast_slot(c, from.id, t);
    c->n_casts += c->casts[at].from == 0;
    c->casts[at] = (struct cast_entry){from.id, to.id, t};
}

/* v in dtype t, from the map or by a new cast that is named after v: "w1.bf16". */
static value cast_once(struct caster *c, struct graph *out, value v, enum dtype t)
{
    if (v.id == 0 || graph_node(out, v)->dtype == t) {
        return v;
    }
    if (c->n_slots > 0) {
        const struct cast_entry *known = &c->casts[cast_slot(c, v.id, t)];
        if (known->from != 0) {
            return (value){known->to};
        }
    }
    const char *outer = out->origin_name;
    const struct node *n = graph_node(out, v);
    enum dtype from = n->dtype;
    out->origin_name =
        n->name == NULL ? NULL : arena_text(&out->arena, "%s.%s", n->name, dtype_info[t].name);
    value to = graph_cast(out, v, t);
    out->origin_name = outer;
    remember_cast(c, v, t, to);
    if (dtype_is_low(from) && t == F32) { /* widening is exact, so back is the value itself */
        remember_cast(c, to, from, v);
    }
    return to;
}

/* ---- what a class does to a node ---- */

/* Who a note is about: the name, else the line that made it. */
static const char *label(struct caster *c, const struct node *n)
{
    if (n->name != NULL) {
        return n->name;
    }
    return n->location.file == NULL
               ? ""
               : arena_text(&c->arena, "%s:%u", n->location.file, (unsigned)n->location.line);
}

/* Floats other than f64; weak numbers take part at compute precision anyway. */
static bool is_eligible(const struct node *n)
{
    return dtype_is_float(n->dtype) && n->dtype != F64 && !node_is_weak(n);
}

static bool has_f64(const struct graph *out, const value *operands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct node *o = graph_node(out, operands[i]);
        if (o->dtype == F64 && !node_is_weak(o)) {
            return true;
        }
    }
    return false;
}

/* Casts the eligible operands to t; returns how many it changed. */
static uint32_t cast_operands(struct caster *c, struct graph *out, value *operands, uint32_t n,
                              enum dtype t)
{
    uint32_t changed = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (is_eligible(graph_node(out, operands[i]))) {
            value cast = cast_once(c, out, operands[i], t);
            changed += cast.id != operands[i].id;
            operands[i] = cast;
        }
    }
    return changed;
}

static enum dtype widest(const struct graph *out, const value *operands, uint32_t n)
{
    enum dtype t = DTYPE_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct node *o = graph_node(out, operands[i]);
        t = is_eligible(o) ? dtype_promote(t, o->dtype) : t;
    }
    return t;
}

/* The node over its new operands; its open dtype attribute set to t unless t is DTYPE_NONE. */
static value copy_with_dtype(struct graph *out, const struct node *n, const value *operands,
                             enum dtype t)
{
    struct attr attrs[MAX_ATTRS];
    struct node copy = *n;
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        attrs[i] = n->attrs[i];
        if (t != DTYPE_NONE && strcmp(attrs[i].name, "dtype") == 0) {
            attrs[i].dtype = t;
        }
    }
    copy.attrs = attrs;
    return graph_copy(out, &copy, operands);
}

static bool has_open_dtype(const struct node *n)
{
    const struct attr *a = node_attr_named(n, "dtype");
    return a != NULL && a->kind == ATTR_DTYPE && a->dtype == DTYPE_NONE;
}

/* A norm's result has x's dtype, whatever its weights are stored in: computed in f32, rounded once,
 * as PyTorch does. islands knows the cast by its name, "NORM.bf16". */
static value norm_as_x(struct caster *c, struct graph *out, const struct node *n,
                       const value *operands)
{
    value v = graph_copy(out, n, operands);
    enum dtype x = graph_node(out, operands[0])->dtype;
    return dtype_is_low(x) ? cast_once(c, out, v, x) : v;
}

/* cross_entropy is not on the CUDA list: it asks log_softmax for the logits' own dtype, which
 * rounds the log-probabilities, and nll_loss then reads them in f32. */
static value cross_entropy_cuda(struct caster *c, struct graph *out, const struct node *n,
                                const value *operands)
{
    enum dtype t = graph_node(out, operands[0])->dtype;
    const char *outer = out->origin_name;
    out->origin_name = outer == NULL ? NULL : arena_text(&out->arena, "%s.log_softmax", outer);
    value rounded = graph_add(out, OP_log_softmax, operands, 1,
                              (struct attr[]){attr_int("axis", -1), attr_dtype("dtype", t)}, 2);
    out->origin_name = outer;
    value rest[3] = {cast_once(c, out, rounded, F32), operands[1]};
    if (n->n_operands == 3) {
        rest[2] = operands[2];
        cast_operands(c, out, rest + 2, 1, F32);
    }
    note_add(c->notes, "autocast", label(c, n),
             "cross_entropy of %s logits: log-probabilities rounded to %s, then f32, as PyTorch "
             "does on CUDA; Atoll's own policy keeps them in f32",
             dtype_info[t].name, dtype_info[t].name);
    if (node_float(n, "label_smoothing") != 0.0) {
        return graph_copy(out, n, rest);
    }
    return graph_add(out, OP_nll_loss, rest, n->n_operands,
                     (struct attr[]){attr_int("ignore_index", node_int(n, "ignore_index")),
                                     attr_text("reduction", node_text(n, "reduction"))},
                     2);
}

/* Normal promotion; ops whose operands must share a dtype get the widest. */
static value inherit(struct caster *c, struct graph *out, const struct node *n, value *operands)
{
    if (n->op == OP_layer_norm || n->op == OP_rms_norm) {
        return norm_as_x(c, out, n, operands);
    }
    if (n->op == OP_cross_entropy && c->policy->behaviour == POLICY_TORCH_CUDA &&
        dtype_is_low(graph_node(out, operands[0])->dtype)) {
        return cross_entropy_cuda(c, out, n, operands);
    }
    if (n->op == OP_concat || n->op == OP_index_add || n->op == OP_scatter_add) {
        enum dtype t = widest(out, operands, n->n_operands);
        for (uint32_t i = 0; t != DTYPE_NONE && i < n->n_operands; i++) {
            if (is_eligible(graph_node(out, operands[i]))) {
                operands[i] = cast_once(c, out, operands[i], t);
            }
        }
    }
    return graph_copy(out, n, operands);
}

static value refuse_banned(struct graph *out, const struct node *n)
{
    struct arena scratch = SCRATCH_ARENA;
    const char *where = n->location.file == NULL ? ""
                                                 : arena_text(&scratch, "%s:%u: ", n->location.file,
                                                              (unsigned)n->location.line);
    const char *hint =
        n->op == OP_binary_cross_entropy
            ? "use bce_with_logits on the logits, which is stable; or keep this node f32 by a "
              "policy line: node \"NAME\" f32"
            : "the policy bans it: change its 'op' or 'node' line";
    fail(&out->error, ATOLL_DTYPE,
         "%s%%%s: %s is banned under autocast: its gradient need not fit the low dtype of its "
         "input, and a cast is undone in backward; hint: %s",
         where, n->name != NULL ? n->name : "?", op_info[n->op].name, hint);
    arena_free(&scratch);
    return (value){0};
}

static bool any_low(const struct graph *out, const value *operands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (dtype_is_low(graph_node(out, operands[i])->dtype)) {
            return true;
        }
    }
    return false;
}

static void say(struct caster *c, const struct node *n, enum amp_class class, const char *did)
{
    note_add(c->notes, "autocast", label(c, n), "%s is %s: %s%s%s", op_info[n->op].name,
             amp_class_name(class), did, class == AMP_LOWER ? "" : ": ",
             class == AMP_LOWER ? "" : precision_reason(n->op));
}

/* Classes of the overrides may name ops that have no dtype to set: those cast their operands. */
static enum amp_class fitting(const struct node *n, enum amp_class class)
{
    return class == AMP_FP32_OUT && node_attr_named(n, "dtype") == NULL ? AMP_FP32 : class;
}

static value apply_class(struct caster *c, struct graph *out, const struct node *n, value *operands,
                         enum amp_class class)
{
    enum dtype low = c->policy->low;
    class = fitting(n, class);
    switch (class) {
    case AMP_INHERIT:
        break;
    case AMP_LOWER: /* beside an f64 operand the result is f64 and lowering would only lose */
        if (low != DTYPE_NONE && !has_f64(out, operands, n->n_operands)) {
            cast_operands(c, out, operands, n->n_operands, low);
            say(c, n, class,
                low == F16 ? "reads f16, accumulates in f32" : "reads bf16, accumulates in f32");
        }
        break;
    case AMP_FP32:
        if (cast_operands(c, out, operands, n->n_operands, F32) > 0) {
            say(c, n, class, "operands cast to f32, result f32");
        }
        break;
    case AMP_FP32_OUT:
        if (has_open_dtype(n) && is_eligible(graph_node(out, operands[0]))) {
            if (graph_node(out, operands[0])->dtype != F32) {
                say(c, n, class, "reads what it is given, result f32");
            }
            return copy_with_dtype(out, n, operands, F32);
        }
        break;
    case AMP_PROMOTE: {
        enum dtype t = widest(out, operands, n->n_operands);
        if (t != DTYPE_NONE && cast_operands(c, out, operands, n->n_operands, t) > 0) {
            say(c, n, class, "operands cast to the widest of them");
        }
        break;
    }
    case AMP_BANNED:
        /* PyTorch refuses whatever the dtype; Atoll only where a low value comes in. */
        if (c->policy->behaviour != POLICY_ATOLL || any_low(out, operands, n->n_operands)) {
            return refuse_banned(out, n);
        }
        break;
    }
    return inherit(c, out, n, operands);
}

/* A node line of the policy file with a dtype: operands and result in t. */
static value apply_dtype(struct caster *c, struct graph *out, const struct node *n, value *operands,
                         enum dtype t)
{
    cast_operands(c, out, operands, n->n_operands, t);
    bool sets = has_open_dtype(n) && is_eligible(graph_node(out, operands[0]));
    value v = copy_with_dtype(out, n, operands, sets ? t : DTYPE_NONE);
    if (v.id != 0 && is_eligible(graph_node(out, v))) {
        v = cast_once(c, out, v, t);
    }
    note_add(c->notes, "autocast", label(c, n), "%s runs in %s: a node line of the policy says so",
             op_info[n->op].name, dtype_info[t].name);
    return v;
}

static value autocast_rule(struct graph *out, const struct graph *in, value v,
                           const value *operands_in, void *context)
{
    struct caster *c = context;
    const struct node *n = graph_node(in, v);
    value operands[VARIADIC];
    if (op_info[n->op].kind == LEAF || n->op == OP_cast || op_info[n->op].kind == TRAINING) {
        return (value){0};
    }
    memcpy(operands, operands_in, n->n_operands * sizeof *operands);
    const struct policy_node *override = policy_override(c->policy, n);
    if (override != NULL) {
        c->has_decided[override - c->policy->nodes] = true;
    }
    if (override != NULL && override->dtype != DTYPE_NONE) {
        return apply_dtype(c, out, n, operands, override->dtype);
    }
    if (override != NULL) {
        note_add(c->notes, "autocast", label(c, n), "%s is %s: a node line of the policy says so",
                 op_info[n->op].name, amp_class_name(override->class));
        return apply_class(c, out, n, operands, override->class);
    }
    return apply_class(c, out, n, operands, policy_class(c->policy, n->op));
}

/* Updates leave the sweep as outputs, so that they can be cast to their state's dtype behind it. */
static struct graph updates_as_outputs(const struct graph *in, struct arena *scratch)
{
    struct graph view = *in;
    view.outputs = ARENA_ARRAY(scratch, struct output, in->n_outputs + in->n_updates + 1);
    for (uint32_t i = 0; i < in->n_outputs; i++) {
        view.outputs[i] = in->outputs[i];
    }
    for (uint32_t i = 0; i < in->n_updates; i++) {
        view.outputs[in->n_outputs + i] = (struct output){"", in->updates[i].next};
    }
    view.n_outputs = in->n_outputs + in->n_updates;
    view.n_updates = 0;
    return view;
}

/* A pattern with a slip in it would otherwise be silent. */
static void report_idle_lines(const struct caster *c)
{
    for (uint32_t i = 0; i < c->policy->n_nodes; i++) {
        if (!c->has_decided[i]) {
            note_add(c->notes, "autocast", "",
                     "policy line node \"%s\" decides nothing: no operation has such a name, or a "
                     "later line takes it",
                     c->policy->nodes[i].pattern);
        }
    }
}

status autocast_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                     struct notes *notes)
{
    const struct policy *p = o->policy != NULL ? o->policy : policy_builtin("fp32");
    if (p->low == DTYPE_NONE && p->n_ops == 0 && p->n_nodes == 0) {
        return rewrite(in, out, NULL, NULL, NULL);
    }
    struct caster c = {.policy = p, .notes = notes, .arena = SCRATCH_ARENA};
    struct graph view = updates_as_outputs(in, &c.arena);
    value *map = ARENA_ARRAY(&c.arena, value, in->n_nodes);
    c.has_decided = ARENA_ARRAY(&c.arena, bool, p->n_nodes + 1);
    if (rewrite(&view, out, autocast_rule, &c, map) == ATOLL_OK) {
        out->n_outputs = in->n_outputs;
        for (uint32_t i = 0; i < in->n_updates; i++) {
            value leaf = map[in->updates[i].leaf.id], next = map[in->updates[i].next.id];
            graph_update(out, leaf, cast_once(&c, out, next, graph_node(out, leaf)->dtype));
        }
    }
    report_idle_lines(&c);
    arena_free(&c.arena);
    return out->error.code;
}
