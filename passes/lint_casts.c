/* Lint: casts that lose something and give nothing. */
#include "passes/lint_internal.h"

static bool is_wide(enum dtype t)
{
    return t == F32 || t == F64;
}

/* Halves only: through f8 and back is a quantisation that somebody wants to see. */
static bool is_half(enum dtype t)
{
    return t == F16 || t == BF16;
}

static bool is_whole(enum dtype t)
{
    return !dtype_is_float(t);
}

/* Whole numbers from 0 that the dtype holds without a gap. */
static double whole_to(enum dtype t)
{
    return 2.0 / dtype_info[t].epsilon;
}

static bool widens(const struct lint *l, const struct node *user)
{
    (void)l;
    return user->op == OP_cast && is_wide(user->dtype);
}

/* Reported at the first cast back; later ones are the same mistake. */
static bool is_first_use(const struct lint *l, uint32_t id)
{
    uint32_t low = l->g->nodes[id].operands[0].id;
    for (uint32_t i = low + 1; i < id; i++) {
        for (uint32_t k = 0; k < l->g->nodes[i].n_operands; k++) {
            if (l->g->nodes[i].operands[k].id == low) {
                return false;
            }
        }
    }
    return true;
}

void lint_round_trip(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const struct node *low = n->op == OP_cast ? lint_node(l, n->operands[0]) : n;
    if (low->op != OP_cast || !is_wide(n->dtype) || !is_half(low->dtype) ||
        !is_wide(lint_node(l, low->operands[0])->dtype) ||
        !lint_all_uses(l, n->operands[0].id, widens) || !is_first_use(l, id)) {
        return;
    }
    lint_found(l, id, "%s goes to %s and back to %s with no op in between",
               graph_name(l->g, low->operands[0], &l->scratch), dtype_info[low->dtype].name,
               dtype_info[n->dtype].name);
}

void lint_late_cast(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    const struct node *made = n->op == OP_cast ? lint_node(l, n->operands[0]) : n;
    value of;
    if (n->op != OP_cast || !is_wide(n->dtype) || made->dtype != F16) {
        return;
    }
    bool is_large = made->op == OP_exp || made->op == OP_expm1 || made->op == OP_pow ||
                    made->op == OP_reciprocal || made->op == OP_prod || made->op == OP_sum ||
                    lint_is_square(l, made, &of);
    if (is_large) {
        lint_found(l, id, "%s = %s is f16: above 65504 it is infinite before this cast makes it %s",
                   graph_name(l->g, n->operands[0], &l->scratch), op_info[made->op].name,
                   dtype_info[n->dtype].name);
    }
}

/* ---- integers and booleans ---- */

void lint_integers_lowered(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    if (n->op != OP_cast || !dtype_is_low(n->dtype)) {
        return;
    }
    const struct node *from = lint_node(l, n->operands[0]);
    if ((from->dtype == I32 || from->dtype == I64) && lint_operand(l, n, 0)->op != OP_iota) {
        lint_found(l, id, "%s integers become %s, which has every whole number up to %.0f only",
                   dtype_info[from->dtype].name, dtype_info[n->dtype].name, whole_to(n->dtype));
    }
}

void lint_integers_there_and_back(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id];
    double number;
    bool compares = n->op == OP_ne || n->op == OP_eq || n->op == OP_gt;
    bool is_back = (n->op == OP_cast && is_whole(n->dtype)) ||
                   (compares && lint_number(l, n->operands[1], &number));
    const struct node *middle = is_back ? lint_node(l, n->operands[0]) : n;
    if (!is_back || middle->op != OP_cast || !dtype_is_float(middle->dtype)) {
        return;
    }
    enum dtype from = lint_node(l, middle->operands[0])->dtype;
    if (!is_whole(from) || (compares && from != BOOL)) {
        return;
    }
    if (from == BOOL || from == U8) {
        lint_found(l, id, "%s goes through %s and back for nothing", dtype_info[from].name,
                   dtype_info[middle->dtype].name);
    } else {
        lint_found(l, id, "%s goes through %s and back: whole numbers above %.0f change",
                   dtype_info[from].name, dtype_info[middle->dtype].name, whole_to(middle->dtype));
    }
}

/* The iota that n is, perhaps times or plus a number. */
static const struct node *positions(const struct lint *l, const struct node *n)
{
    double number;
    while (n->op == OP_mul || n->op == OP_add || n->op == OP_sub || n->op == OP_div) {
        value v = lint_beside_number(l, n, &number);
        if (v.id == 0) {
            return NULL;
        }
        n = lint_node(l, lint_peel(l, v));
    }
    return n->op == OP_iota ? n : NULL;
}

void lint_low_positions(struct lint *l, uint32_t id)
{
    const struct node *n = &l->g->nodes[id], *iota = NULL;
    if (!dtype_is_low(n->dtype)) {
        return;
    }
    if (n->op == OP_iota) {
        iota = n;
    } else if (n->op == OP_cast && !dtype_is_low(lint_node(l, n->operands[0])->dtype)) {
        iota = positions(l, lint_operand(l, n, 0));
    }
    if (iota == NULL) {
        return;
    }
    int64_t axis = node_int(iota, "axis");
    struct dim length = iota->shape.dims[axis < 0 ? axis + (int64_t)iota->shape.rank : axis];
    if (!dim_is_static(length) || (double)length.factor > whole_to(n->dtype)) {
        lint_found(l, id, "positions become %s: above %.0f neighbours are the same number",
                   dtype_info[n->dtype].name, whole_to(n->dtype));
    }
}

void lint_low_index(struct lint *l, uint32_t id)
{
    static const struct {
        enum op op;
        uint32_t operand;
    } readers[] = {{OP_embedding, 1}, {OP_take, 1},        {OP_gather, 1},        {OP_index_add, 1},
                   {OP_one_hot, 0},   {OP_scatter_add, 1}, {OP_cross_entropy, 1}, {OP_nll_loss, 1}};
    const struct node *n = &l->g->nodes[id];
    for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
        if (n->op != readers[i].op) {
            continue;
        }
        const struct node *index = lint_node(l, n->operands[readers[i].operand]);
        enum dtype from =
            index->op == OP_cast ? lint_node(l, index->operands[0])->dtype : DTYPE_NONE;
        if (from != DTYPE_NONE && dtype_is_low(from)) {
            lint_found(l, id,
                       "its indices come out of %s, which has every whole number up to %.0f "
                       "only",
                       dtype_info[from].name, whole_to(from));
        }
    }
}
