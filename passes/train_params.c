/* How parameters are kept: f32, or bf16 with what stops small updates from vanishing. Used by
 * train_step.c, before and behind differentiation. An f32 param that is kept as bf16 becomes a bf16
 * leaf of the same name and a node that widens it, which everything else reads: a loss, its
 * gradients and the optimizer see f32 as before. Invariant: with the remainder that node has the
 * bits of the f32 param it stands for, at every step. */
#include "train_parts.h"

#include <inttypes.h>
#include <string.h>

static const char *const form_names[] = {"f32", "bf16-stochastic", "bf16-remainder"};

/* ---- options ---- */

static status parse_form(const char *text, enum param_form *out, struct error *e)
{
    for (uint32_t i = 0; i < ARRAY_LEN(form_names); i++) {
        if (strcmp(text, form_names[i]) == 0) {
            *out = (enum param_form)i;
            return ATOLL_OK;
        }
    }
    return fail(e, ATOLL_USAGE,
                "params: '%s' is no way to keep parameters; expected f32, bf16-stochastic or "
                "bf16-remainder, alone or as PATTERN=FORM",
                text);
}

status train_params_parse(struct train_options *o, const char *text, struct arena *keep,
                          struct error *e)
{
    char *rest = text != NULL && *text != '\0' ? arena_copy_text(keep, text) : NULL;
    struct param_rule *rules = NULL;
    uint32_t n = 0, capacity = 0;
    while (rest != NULL) {
        char *item = rest, *comma = strchr(rest, ','), *equal;
        rest = comma == NULL ? NULL : comma + 1;
        if (comma != NULL) {
            *comma = '\0';
        }
        equal = strrchr(item, '=');
        struct param_rule rule = {.pattern = equal == NULL ? "*" : item};
        if (equal != NULL) {
            *equal++ = '\0';
        }
        TRY(parse_form(equal == NULL ? item : equal, &rule.form, e));
        rules = arena_grow(keep, rules, n, &capacity, sizeof *rules);
        rules[n++] = rule;
    }
    o->param_rules = rules;
    o->n_param_rules = n;
    return ATOLL_OK;
}

enum param_form train_param_form(const struct train_options *o, const char *name)
{
    for (uint32_t i = o->n_param_rules; name != NULL && i-- > 0;) {
        if (pattern_matches(o->param_rules[i].pattern, name)) {
            return o->param_rules[i].form;
        }
    }
    return PARAM_F32;
}

/* ---- leaves ---- */

static value leaf(struct graph *g, enum op op, const char *name, enum dtype t,
                  const struct shape *shape, const char *init)
{
    const char *outer = g->origin_name;
    if (op == OP_state && graph_find(g, name).id != 0) {
        fail(&g->error, ATOLL_USAGE,
             "train_step: the graph has a value named %%%s already; hint: rename it", name);
        return (value){0};
    }
    g->origin_name = arena_copy_text(&g->arena, name);
    value v = graph_add(
        g, op, NULL, 0,
        (struct attr[]){attr_dims("shape", shape), attr_dtype("dtype", t), attr_text("init", init)},
        3);
    g->origin_name = outer;
    return v;
}

/* The first value of a part of an f32 param: drawn as the whole would have been. */
static const char *part_init(struct graph *g, const struct node *n, const char *part)
{
    const char *init = node_text(n, "init");
    init = init[0] != '\0' ? init : n->shape.rank >= 2 ? "linear" : "zeros";
    return arena_text(&g->arena, "%s:%" PRIu64 ":%s", part, hash_text(n->name, 7), init);
}

static void add_rest(struct graph *g, const struct node *n, struct stored_param *p)
{
    static const char *const parts[] = {"byte0", "byte1"};
    for (int i = 0; i < 2; i++) {
        const char *name = arena_text(&g->arena, "opt.%s.%s", parts[i], n->name);
        const char *init = p->is_whole ? part_init(g, n, parts[i]) : "zeros";
        p->rest[i] = leaf(g, OP_state, name, U8, &n->shape, init);
    }
}

/* The f32 value that a bf16 leaf stands for. */
static value join(struct graph *g, const struct stored_param *p)
{
    value high = graph_cast(g, p->leaf, F32);
    if (p->form != PARAM_BF16_REMAINDER) {
        return high;
    }
    value low = graph_cast(g, p->rest[0], F32), upper = graph_cast(g, p->rest[1], F32);
    upper = graph_op2(g, OP_mul, upper, graph_number(g, 256.0));
    return graph_op2(g, OP_bf16_join, high, graph_op2(g, OP_add, upper, low));
}

/* ---- before differentiation ---- */

struct storing {
    const struct train_options *o;
    struct notes *notes;
    struct stored_params *list;
};

static value store_param(struct graph *out, const struct graph *in, value v, const value *operands,
                         void *context)
{
    struct storing *s = context;
    const struct node *n = graph_node(in, v);
    (void)operands;
    enum param_form form = n->op == OP_param ? train_param_form(s->o, n->name) : PARAM_F32;
    if (form == PARAM_F32) {
        return (value){0};
    }
    if (n->dtype != F32 && n->dtype != BF16) {
        fail(&out->error, ATOLL_DTYPE,
             "train_step: parameter %%%s is %s; expected f32 or bf16 to keep it as %s; hint: a "
             "pattern of --params matches it",
             n->name, dtype_info[n->dtype].name, form_names[form]);
        return (value){0};
    }
    bool is_whole = n->dtype == F32;
    struct stored_param p = {.form = form, .is_whole = is_whole};
    bool has_rest = form == PARAM_BF16_REMAINDER;
    const char *init = is_whole && has_rest ? part_init(out, n, "high") : node_text(n, "init");
    p.leaf = leaf(out, OP_param, n->name, BF16, &n->shape, init);
    if (has_rest) {
        add_rest(out, n, &p);
    }
    p.read = is_whole ? join(out, &p) : p.leaf;
    note_add(s->notes, "train_step", n->name,
             has_rest ? "kept as bf16; with the 16 bits of opt.byte0 and opt.byte1 it is an f32"
                      : "kept as bf16; updates are rounded at random, right on average");
    s->list->items[s->list->n++] = p;
    return p.read;
}

static void note_unused(const struct graph *in, const struct train_options *o, struct notes *notes)
{
    for (uint32_t i = 0; i < o->n_param_rules; i++) {
        bool is_used = false;
        for (uint32_t k = 1; k < in->n_nodes && !is_used; k++) {
            is_used = in->nodes[k].op == OP_param && in->nodes[k].name != NULL &&
                      pattern_matches(o->param_rules[i].pattern, in->nodes[k].name);
        }
        if (!is_used) {
            note_add(notes, "train_step", "", "params: '%s' matches no parameter",
                     o->param_rules[i].pattern);
        }
    }
}

status train_store_params(const struct graph *in, struct graph *out, const struct train_options *o,
                          struct notes *notes, struct stored_params *list)
{
    struct storing s = {o, notes, list};
    list->items = ARENA_ARRAY(&out->arena, struct stored_param, in->n_nodes);
    note_unused(in, o, notes);
    return rewrite(in, out, store_param, &s, NULL);
}

void train_map_params(struct stored_params *list, const value *map)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct stored_param *p = &list->items[i];
        value *const all[] = {&p->leaf, &p->read, &p->rest[0], &p->rest[1]};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            *all[k] = map[all[k]->id];
        }
    }
}

/* ---- behind it ---- */

struct stored_param *step_stored(const struct step *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->stored->n; k++) {
        if (s->stored->items[k].leaf.id == s->params[i].id) {
            return &s->stored->items[k];
        }
    }
    return NULL;
}

value step_wide(struct step *s, uint32_t i)
{
    const struct stored_param *p = step_stored(s, i);
    return p == NULL ? s->params[i] : p->is_whole ? p->read : join(s->g, p);
}

/* Each parameter draws by a counter of its own: one seed for all, told apart by a constant in the
 * code, would make every parameter a kernel of its own. 2^32 steps lie between two of them. */
static void keep_stochastic(struct step *s, uint32_t i, value fresh)
{
    const struct node *n = graph_node(s->g, s->params[i]);
    struct shape shape = n->shape;
    const char *name = arena_text(s->scratch, "opt.rounding.%s", n->name);
    double first = (double)s->o->rounding_seed + (double)(i + 1) * 0x1p32;
    value seed = step_scalar(s, OP_state, name, I64, first);
    value random =
        graph_add(s->g, OP_uniform, &seed, 1, (struct attr[]){attr_dims("shape", &shape)}, 1);
    step_keep(s, s->params[i], op2(s, OP_bf16_stochastic, fresh, random));
    step_keep(s, seed, op2(s, OP_add, seed, number(s, 1.0)));
}

static void keep_remainder(struct step *s, uint32_t i, value fresh, const struct stored_param *p)
{
    value rest = graph_op1(s->g, OP_bf16_rest, fresh);
    value upper = graph_op1(s->g, OP_floor, op2(s, OP_mul, rest, number(s, 1.0 / 256.0)));
    step_keep(s, s->params[i], graph_op1(s->g, OP_bf16_high, fresh));
    step_keep(s, p->rest[1], upper);
    step_keep(s, p->rest[0], op2(s, OP_sub, rest, op2(s, OP_mul, upper, number(s, 256.0))));
}

void step_keep_param(struct step *s, uint32_t i, value fresh)
{
    struct stored_param *p = step_stored(s, i);
    if (fresh.id == 0) {
        return; /* the error is recorded */
    }
    if (p == NULL) {
        step_keep(s, s->params[i], fresh);
    } else if (p->form == PARAM_BF16_STOCHASTIC) {
        keep_stochastic(s, i, fresh);
    } else {
        keep_remainder(s, i, fresh, p);
    }
}
