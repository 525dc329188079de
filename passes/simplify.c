/* simplify: needs any valid graph, leaves one with the same values in every bit and fewer nodes:
 * constants folded, equal nodes shared, dead code gone, casts and views that change nothing
 * dropped. Runs first and again after decompose. Invariant: no rule changes a value, NaN and -0
 * included: x*0, x+0, x-x and reassociation are not here, nor is any cast dropped that rounds. */
#include "pass.h"

#include <math.h>
#include <string.h>

#include "ir/compute.h"

enum { NO_NODE = 0 };

struct sharer {
    struct arena arena;
    uint32_t *slots; /* ids of out by structural hash, open addressing; 0: free */
    uint32_t n_slots, n_used;
};

/* ---- shared nodes ---- */

static uint64_t hash_attr(const struct attr *a, uint64_t h)
{
    uint64_t bits;
    h = hash_u64((uint64_t)a->i ^ (uint64_t)a->dtype << 32, h);
    memcpy(&bits, &a->f, sizeof bits);
    h = hash_u64(bits, h);
    h = hash_bytes(a->ints, a->n_ints * sizeof *a->ints, h);
    for (uint32_t i = 0; i < a->dims.rank; i++) {
        h = hash_bytes(a->dims.dims[i].symbols, sizeof a->dims.dims[i].symbols, h);
        h = hash_u64((uint64_t)a->dims.dims[i].factor, h);
    }
    return hash_text(a->text, h);
}

static uint64_t hash_node(const struct node *n, const value *operands)
{
    uint64_t h = hash_u64((uint64_t)n->op, n->island);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        h = hash_u64(operands[i].id, h);
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        h = hash_attr(&n->attrs[i], h);
    }
    return h;
}

/* scaled(S) needs no look: it follows from the op and its operands, which are equal. Attributes
 * follow the op's schema, so equal ops have the same names and kinds. */
static bool same_node(const struct node *a, const struct node *n, const value *operands)
{
    if (a->op != n->op || a->island != n->island || a->n_operands != n->n_operands) {
        return false;
    }
    for (uint32_t i = 0; i < n->n_operands; i++) {
        if (a->operands[i].id != operands[i].id) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (!attr_equal(&a->attrs[i], &n->attrs[i])) {
            return false;
        }
    }
    return true;
}

static bool is_shareable(const struct node *n)
{
    bool is_leaf = n->op >= OP_input && n->op <= OP_scalar;
    return !is_leaf && op_info[n->op].kind != RANDOM && n->op != OP_dropout;
}

static void grow_slots(struct sharer *s, const struct graph *out)
{
    uint32_t n_old = s->n_slots;
    uint32_t *old = s->slots;
    s->n_slots = n_old == 0 ? 256 : 2 * n_old;
    s->slots = ARENA_ARRAY(&s->arena, uint32_t, s->n_slots);
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i] != NO_NODE) {
            const struct node *n = &out->nodes[old[i]];
            uint32_t at = (uint32_t)hash_node(n, n->operands) & (s->n_slots - 1);
            while (s->slots[at] != NO_NODE) {
                at = (at + 1) & (s->n_slots - 1);
            }
            s->slots[at] = old[i];
        }
    }
}

/* An equal node that is there already, or a copy. */
static value share(struct sharer *s, struct graph *out, const struct node *n, const value *operands)
{
    if (!is_shareable(n)) {
        return graph_copy(out, n, operands);
    }
    if (2 * (s->n_used + 1) > s->n_slots) {
        grow_slots(s, out);
    }
    uint32_t at = (uint32_t)hash_node(n, operands) & (s->n_slots - 1);
    for (; s->slots[at] != NO_NODE; at = (at + 1) & (s->n_slots - 1)) {
        if (same_node(&out->nodes[s->slots[at]], n, operands)) {
            return (value){s->slots[at]};
        }
    }
    value v = graph_copy(out, n, operands);
    s->slots[at] = v.id;
    s->n_used += v.id != 0;
    return v;
}

/* ---- constants ---- */

static bool is_constant(const struct node *n)
{
    return n->op == OP_constant;
}

static double round_to(enum dtype t, double v)
{
    uint64_t element = 0;
    dtype_store(t, &element, v);
    return dtype_load(t, &element);
}

/* IEEE single operations as the kernels do them; false for what is not one of those, and where the
 * sign of a zero is a matter of how the kernel is written. */
static bool fold_f32(enum op op, float a, float b, float *out)
{
    switch ((int)op) {
    case OP_add:
        *out = a + b;
        return true;
    case OP_sub:
        *out = a - b;
        return true;
    case OP_mul:
        *out = a * b;
        return true;
    case OP_div:
        *out = a / b;
        return true;
    case OP_neg:
        *out = -a;
        return true;
    case OP_abs:
        *out = fabsf(a);
        return true;
    case OP_sqrt:
        *out = sqrtf(a);
        return true;
    case OP_reciprocal:
        *out = 1.0F / a;
        return true;
    case OP_floor:
        *out = floorf(a);
        return true;
    case OP_ceil:
        *out = ceilf(a);
        return true;
    case OP_minimum:
        *out = a < b ? a : b;
        return a != b;
    case OP_maximum:
        *out = a > b ? a : b;
        return a != b;
    case OP_relu:
        *out = a > 0.0F ? a : 0.0F;
        return a != 0.0F;
    default:
        return false;
    }
}

/* Integers too: whole numbers below 2^53, the caller checks the result's range. */
static bool fold_f64(enum op op, double a, double b, double *out)
{
    switch ((int)op) {
    case OP_add:
        *out = a + b;
        return true;
    case OP_sub:
        *out = a - b;
        return true;
    case OP_mul:
        *out = a * b;
        return true;
    case OP_div:
        *out = a / b;
        return true;
    case OP_neg:
        *out = -a;
        return true;
    default:
        return false;
    }
}

static bool fold_compare(enum op op, double a, double b, double *out)
{
    switch ((int)op) {
    case OP_eq:
        *out = a == b;
        return true;
    case OP_ne:
        *out = a != b;
        return true;
    case OP_lt:
        *out = a < b;
        return true;
    case OP_le:
        *out = a <= b;
        return true;
    case OP_gt:
        *out = a > b;
        return true;
    case OP_ge:
        *out = a >= b;
        return true;
    default:
        return false;
    }
}

/* Exact in every dtype's double form: what a kernel would hold, else no folding. */
static bool is_plain(enum dtype t, double v)
{
    return !isnan(v) && (dtype_is_float(t) || fabs(v) <= 9007199254740992.0);
}

/* The operand as the compute type holds it: a strong constant rounds to its own dtype first. */
static bool operand_value(const struct node *n, enum dtype compute, double *out)
{
    double v = node_float(n, "value");
    v = node_is_weak(n) ? v : round_to(n->dtype, v);
    *out = compute == F32 ? (double)(float)v : v;
    return is_plain(n->dtype, v) && (compute != I64 || (*out == trunc(*out) && fabs(*out) < 9e15));
}

static value fold_cast(struct graph *out, const struct node *n, const struct node *from)
{
    double v;
    if (node_bool(n, "saturate") || n->dtype == BOOL ||
        !operand_value(from, dtype_compute(from->dtype), &v)) {
        return (value){0};
    }
    double to = round_to(n->dtype, v);
    bool rounds_once =
        dtype_is_float(from->dtype) ? from->dtype != F64 || n->dtype == F32 : (double)(float)v == v;
    if (!is_plain(n->dtype, to) || !rounds_once || (!dtype_is_float(n->dtype) && to != v)) {
        return (value){0};
    }
    return graph_constant(out, to, n->dtype);
}

/* A size without symbols is a number, where its dtype holds it exactly. */
static value fold_size(struct graph *out, const struct node *n)
{
    const struct shape *of = &node_attr_named(n, "of")->dims;
    double count = 1.0;
    for (uint32_t i = 0; i < of->rank; i++) {
        count *= dim_is_static(of->dims[i]) ? (double)of->dims[i].factor : (double)NAN;
    }
    bool is_exact = count <= 9007199254740992.0 && round_to(n->dtype, count) == count;
    return is_exact ? graph_constant(out, count, n->dtype) : (value){0};
}

/* n over constants as one constant, or 0. */
static value fold(struct graph *out, const struct node *n, const value *operands)
{
    double v[2] = {0.0, 0.0}, result = 0.0;
    if (n->op == OP_size) {
        return fold_size(out, n);
    }
    if (op_info[n->op].kind != ELEMENTWISE || n->n_operands > 2 || n->op == OP_scale_loss ||
        n->op == OP_unscale || n->op == OP_quantize || n->scale != 0) {
        return (value){0};
    }
    for (uint32_t i = 0; i < n->n_operands; i++) {
        if (!is_constant(graph_node(out, operands[i]))) {
            return (value){0};
        }
    }
    if (n->op == OP_cast) {
        return fold_cast(out, n, graph_node(out, operands[0]));
    }
    struct node over = *n;
    over.operands = operands;
    enum dtype compute = node_compute(out, &over);
    for (uint32_t i = 0; i < n->n_operands; i++) {
        if (!operand_value(graph_node(out, operands[i]), compute, &v[i])) {
            return (value){0};
        }
    }
    bool is_folded = fold_compare(n->op, v[0], v[1], &result);
    if (!is_folded && compute == F32) {
        float single;
        is_folded = fold_f32(n->op, (float)v[0], (float)v[1], &single);
        result = is_folded ? (double)single : 0.0;
    } else if (!is_folded) {
        is_folded = fold_f64(n->op, v[0], v[1], &result);
    }
    double rounded = is_folded ? round_to(n->dtype, result) : 0.0;
    if (!is_folded || !is_plain(n->dtype, rounded) ||
        (!dtype_is_float(n->dtype) && rounded != result)) {
        return (value){0};
    }
    return graph_constant(out, rounded, n->dtype);
}

/* ---- casts ---- */

/* Every value of a, NaN and infinities included, is a value of b. */
static bool holds(enum dtype b, enum dtype a)
{
    if (a == b) {
        return true;
    }
    if (dtype_is_float(a)) {
        bool is_half_pair = dtype_info[a].bytes == 2 && dtype_info[b].bytes == 2;
        return dtype_is_float(b) && dtype_info[b].bytes > dtype_info[a].bytes && !is_half_pair;
    }
    if (!dtype_is_float(b)) {
        return b > a;
    }
    /* bool and u8 fit any float of 8 significant bits, i32 fits f64 */
    return a == BOOL || (a == U8 && dtype_info[b].bytes >= 2) || (a == I32 && b == F64);
}

/* Turns an infinity, of e5m2 itself too, into the largest value: never the identity. */
static bool saturates_f8(const struct node *n)
{
    return node_bool(n, "saturate") && (n->dtype == F8E4M3 || n->dtype == F8E5M2);
}

static value simplify_cast(struct graph *out, const struct node *n, value v)
{
    const struct node *a = graph_node(out, v);
    bool saturates = saturates_f8(n);
    if (a->dtype == n->dtype && !saturates) {
        return v;
    }
    if (a->op != OP_cast || a->island != n->island || saturates_f8(a)) {
        return (value){0};
    }
    value source = a->operands[0];
    enum dtype from = graph_node(out, source)->dtype;
    if (!holds(a->dtype, from)) {
        return (value){0};
    }
    if (from == n->dtype) {
        return saturates ? (value){0} : source;
    }
    if (!dtype_is_float(from) || !dtype_is_float(n->dtype)) {
        return (value){0};
    }
    return graph_copy(out, n, &source);
}

/* ---- arithmetic and views that change nothing ---- */

/* By bits; an integer constant written -0 is +0, so only a float one is -0. */
static bool is_number(const struct node *n, double number)
{
    double v = node_float(n, "value");
    return is_constant(n) && memcmp(&v, &number, sizeof v) == 0 &&
           (!signbit(number) || dtype_is_float(n->dtype));
}

/* v stands for n when the type is the same too. */
static value if_same_type(const struct graph *out, const struct node *n, value v)
{
    const struct node *a = graph_node(out, v);
    return a->dtype == n->dtype && shape_equal(&a->shape, &n->shape) ? v : (value){0};
}

/* x*1 -> x, x/1 -> x, x-(+0) -> x, x+(-0) -> x: in every bit. */
static value simplify_arithmetic(struct graph *out, const struct node *n, const value *operands)
{
    const struct node *a = graph_node(out, operands[0]), *b = graph_node(out, operands[1]);
    bool keeps_a =
        (n->op == OP_mul && is_number(b, 1.0)) || (n->op == OP_div && is_number(b, 1.0)) ||
        (n->op == OP_sub && is_number(b, 0.0)) || (n->op == OP_add && is_number(b, -0.0));
    if (keeps_a) {
        return if_same_type(out, n, operands[0]);
    }
    bool keeps_b =
        (n->op == OP_mul && is_number(a, 1.0)) || (n->op == OP_add && is_number(a, -0.0));
    return keeps_b ? if_same_type(out, n, operands[1]) : (value){0};
}

static uint32_t source_axis(const struct node *transpose, uint32_t i)
{
    const struct attr *perm = node_attr_named(transpose, "perm");
    uint32_t rank = transpose->shape.rank;
    int64_t axis = perm->n_ints == 0 ? (int64_t)rank - 1 - (int64_t)i : perm->ints[i];
    return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

static value simplify_transpose(struct graph *out, const struct node *n, value v)
{
    const struct node *inner = graph_node(out, v);
    bool is_double = inner->op == OP_transpose && inner->island == n->island;
    int64_t perm[MAX_RANK] = {0};
    bool is_identity = true;
    for (uint32_t i = 0; i < n->shape.rank; i++) {
        uint32_t axis = source_axis(n, i);
        perm[i] = is_double ? source_axis(inner, axis) : axis;
        is_identity = is_identity && perm[i] == i;
    }
    value source = is_double ? inner->operands[0] : v;
    if (is_identity) {
        return source;
    }
    return is_double ? graph_transpose(out, source, perm, n->shape.rank) : (value){0};
}

static value simplify_view(struct graph *out, const struct node *n, value v)
{
    const struct node *a = graph_node(out, v);
    if (n->op == OP_transpose) {
        return simplify_transpose(out, n, v);
    }
    if (shape_equal(&a->shape, &n->shape)) { /* a slice as long as its axis takes all of it */
        return v;
    }
    if (n->op == OP_reshape && a->op == OP_reshape && a->island == n->island) {
        return graph_reshape(out, a->operands[0], &n->shape);
    }
    return (value){0};
}

/* ---- the pass ---- */

static value simplify_rule(struct graph *out, const struct graph *in, value v,
                           const value *operands, void *context)
{
    struct sharer *s = context;
    const struct node *n = graph_node(in, v);
    value to = fold(out, n, operands);
    if (to.id == 0 && n->op == OP_cast) {
        to = simplify_cast(out, n, operands[0]);
    } else if (to.id == 0 && op_info[n->op].kind == VIEW) {
        to = simplify_view(out, n, operands[0]);
    } else if (to.id == 0 && n->n_operands == 2 && op_info[n->op].kind == ELEMENTWISE) {
        to = simplify_arithmetic(out, n, operands);
    }
    if (to.id != 0 && node_is_weak(graph_node(out, to))) { /* n promotes, a weak number would not */
        to = graph_constant(out, node_float(graph_node(out, to), "value"), n->dtype);
    }
    return to.id != 0 ? to : share(s, out, n, operands);
}

/* Two sweeps: what the first one's rewrites left without a user, and its equal results of different
 * rules, go in the second. */
status simplify_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                     struct notes *notes)
{
    (void)o;
    struct sharer first = {.arena = SCRATCH_ARENA}, second = {.arena = SCRATCH_ARENA};
    struct graph *middle = graph_temporary(in);
    if (rewrite(in, middle, simplify_rule, &first, NULL) == ATOLL_OK) {
        rewrite(middle, out, simplify_rule, &second, NULL);
        note_add(notes, "simplify", "", "%u nodes, %u before", (unsigned)out->n_nodes - 1U,
                 (unsigned)in->n_nodes - 1U);
    } else {
        fail(&out->error, middle->error.code, "%s", middle->error.text);
    }
    arena_free(&first.arena);
    arena_free(&second.arena);
    graph_destroy(middle);
    return out->error.code;
}
