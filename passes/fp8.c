/* FP8: linears whose three products run on f8 operands with scales. Runs behind autodiff and
 * train_step, where the forward product and both gradients of a layer stand in the graph as they
 * are. Needs a typed graph and a policy with a recipe; leaves scaled_matmul nodes with their scale
 * nodes, the same outputs (and counts, when wanted), and states where scaling is delayed. The
 * training step's test of its gradients (node step.finite) also sees every amax: a saturating cast
 * would hide an infinity from it.
 * Invariant: values outside of the chosen products are those of the low policy. */
#include "fp8.h"

#include <string.h>

#include "policy.h"

#define SCALE_HIGH N_SCALE_KINDS
#define GEMM(a, b)                                                                                 \
    {                                                                                              \
        SCALE_##a == SCALE_HIGH, SCALE_##a, SCALE_##b                                              \
    }
#define FP8(name, forward, gradient, ya, yb, xa, xb, wa, wb, scales, history)                      \
    {#name, forward, gradient, {GEMM(ya, yb), GEMM(xa, xb), GEMM(wa, wb)}, FP8_##scales, history},
const struct fp8_recipe fp8_recipes[N_FP8_RECIPES] = {
#include "fp8.def"
};
#undef FP8
#undef GEMM
#undef SCALE_HIGH

struct layer {
    const char *name, *why; /* why: it stays as it is; NULL: it does not */
    uint32_t linear;
    value x, w, gemms[N_FP8_GEMMS]; /* x without reshapes, w without its cast; 0: none such */
    const char *stays[N_FP8_GEMMS]; /* why this product stays in the low dtype */
};

struct work {
    const struct graph *in;
    struct fp8_builder b;
    struct arena arena;
    struct layer *layers;
    uint32_t n_layers, n_linears;
    uint32_t *layer_of; /* by node: index + 1 of the layer whose product it is */
    enum fp8_gemm *gemm_of;
    value *map;
    value is_last; /* of the window's micro-batches; 0: each is a window */
    enum dtype low;
    struct notes *notes;
};

/* ---- who is there ---- */

/* The tensor behind reshapes that keep the last axis. */
static value unflattened(const struct graph *g, value v)
{
    const struct node *n = graph_node(g, v);
    while (n->op == OP_reshape) {
        const struct node *from = graph_node(g, n->operands[0]);
        bool keeps =
            n->shape.rank > 0 && from->shape.rank > 0 &&
            dim_equal(n->shape.dims[n->shape.rank - 1], from->shape.dims[from->shape.rank - 1]);
        if (!keeps) {
            break;
        }
        v = n->operands[0];
        n = from;
    }
    return v;
}

/* A weight is quantised from the f32 master, not from its low copy. */
static value master_of(const struct graph *g, value w)
{
    const struct node *n = graph_node(g, w);
    bool is_copy = n->op == OP_cast && graph_node(g, n->operands[0])->dtype == F32;
    return is_copy ? n->operands[0] : w;
}

/* Backward nodes are called NAME.grad and keep the line of the forward one. */
static bool is_grad_of(const struct node *n, const struct node *linear)
{
    size_t length = linear->name != NULL ? strlen(linear->name) : 0;
    bool same_line = n->location.line == linear->location.line;
    if (n->name == NULL || linear->name == NULL) {
        return same_line && n->name == linear->name;
    }
    return same_line && strncmp(n->name, linear->name, length) == 0 &&
           strcmp(n->name + length, ".grad") == 0;
}

/* dy w is (M,N)(N,K), dy^T x is (N,M)(M,K): which of them n is to the layer. */
static bool is_product_of(const struct work *w, const struct layer *l, const struct node *n,
                          enum fp8_gemm *out)
{
    const struct node *linear = &w->in->nodes[l->linear];
    bool ta = node_bool(n, "transpose_a"), tb = node_bool(n, "transpose_b");
    if (tb || !is_grad_of(n, linear) || n->dtype != linear->dtype) {
        return false;
    }
    *out = ta ? FP8_WEIGHT_GRADIENT : FP8_INPUT_GRADIENT;
    value second = unflattened(w->in, n->operands[1]);
    return l->gemms[*out].id == 0 && second.id == (ta ? l->x.id : linear->operands[1].id);
}

static void find_layers(struct work *w)
{
    const struct graph *g = w->in;
    w->layers = ARENA_ARRAY(&w->arena, struct layer, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        enum fp8_gemm gemm;
        if (n->op == OP_linear) {
            struct layer *l = &w->layers[w->n_layers++];
            l->linear = i;
            l->name = n->name != NULL ? n->name : arena_text(&w->arena, "linear%u", w->n_layers);
            l->x = unflattened(g, n->operands[0]);
            l->w = master_of(g, n->operands[1]);
            l->gemms[FP8_FORWARD] = (value){i};
        }
        for (uint32_t k = 0; n->op == OP_matmul && k < w->n_layers; k++) {
            if (is_product_of(w, &w->layers[k], n, &gemm)) {
                w->layers[k].gemms[gemm] = (value){i};
                break;
            }
        }
    }
}

/* ---- who stays as it is ---- */

static const struct fp8_layer *pattern_of(const struct work *w, const struct layer *l)
{
    const struct fp8_options *o = w->b.o;
    for (uint32_t i = o->n_layers; i-- > 0;) {
        if (pattern_matches(o->layers[i].pattern, l->name)) {
            return &o->layers[i];
        }
    }
    return NULL;
}

static const char *why_not(struct work *w, uint32_t index)
{
    const struct layer *l = &w->layers[index];
    const struct node *n = &w->in->nodes[l->linear];
    const struct fp8_layer *said = pattern_of(w, l);
    const struct shape *of_w = &graph_node(w->in, n->operands[1])->shape;
    if (said != NULL && !said->is_on) {
        return "an fp8 line of the policy says so";
    }
    if (n->dtype != w->low || n->island != 0) {
        return "the policy runs it in f32";
    }
    if (said == NULL && index == 0) {
        return "it is the first linear, which reads raw inputs; an fp8 line of the policy can take "
               "it in";
    }
    if (said == NULL && index + 1 == w->n_layers) {
        return "it is the last linear, whose errors reach the loss unchanged; an fp8 line of the "
               "policy can take it in";
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (!dim_is_static(of_w->dims[i]) || of_w->dims[i].factor % 16 != 0) {
            return "its in and out sizes must be multiples of 16: f8 products read 16 bytes at a "
                   "time";
        }
        if (of_w->dims[i].factor < w->b.o->least) {
            return "it is smaller than the policy's fp8_least";
        }
    }
    return NULL;
}

/* The f8 operands of a product: what is read of the tensor, and over which axis it sums. */
struct side {
    value x;
    bool is_transposed;
    enum scale_kind kind;
    enum dtype dtype;
    const char *suffix;
};

static void sides_of(const struct work *w, const struct layer *l, enum fp8_gemm gemm,
                     struct side out[2])
{
    const struct fp8_recipe *r = w->b.o->recipe;
    const struct node *n = graph_node(w->in, l->gemms[gemm]);
    value first = unflattened(w->in, n->operands[0]);
    struct side x = {l->x, gemm == FP8_WEIGHT_GRADIENT, SCALE_TENSOR, r->forward, "x"};
    struct side weight = {l->w, gemm == FP8_INPUT_GRADIENT, SCALE_TENSOR, r->forward, "w"};
    struct side dy = {first, gemm == FP8_WEIGHT_GRADIENT, SCALE_TENSOR, r->gradient, "dy"};
    out[0] = gemm == FP8_FORWARD ? x : dy;
    out[1] = gemm == FP8_WEIGHT_GRADIENT ? x : weight;
    out[0].kind = r->gemms[gemm].a;
    out[1].kind = r->gemms[gemm].b;
}

/* NULL, or why a product stays in the low dtype. */
static const char *misfit_of(struct work *w, const struct layer *l, enum fp8_gemm gemm)
{
    struct side sides[2];
    if (w->b.o->recipe->gemms[gemm].is_high) {
        return "the recipe keeps it so";
    }
    sides_of(w, l, gemm, sides);
    for (uint32_t i = 0; i < 2; i++) {
        const char *why = fp8_misfit(w->in, sides[i].x, sides[i].is_transposed, sides[i].kind,
                                     gemm == FP8_WEIGHT_GRADIENT, &w->arena);
        if (why != NULL) {
            return why;
        }
    }
    return NULL;
}

/* Rows that a weight gradient sums over are filled up to this: a part, or the 16 bytes that an f8
 * product reads at a time. */
static int64_t rows_to_fill(const struct side *s)
{
    int64_t depth = scale_kind_info[s->kind].depth;
    return s->is_transposed ? (depth > 16 ? depth : 16) : 1;
}

/* ---- notes ---- */

static void say_gemm(struct text *t, struct work *w, const struct layer *l, enum fp8_gemm gemm)
{
    static const char *const names[] = {"forward", "; input gradient", "; weight gradient"};
    struct side sides[2];
    text_add(t, "%s ", names[gemm]);
    if (l->gemms[gemm].id == 0) {
        text_add(t, "none");
        return;
    }
    if (l->stays[gemm] != NULL) {
        text_add(t, "%s: %s", dtype_info[w->low].name, l->stays[gemm]);
        return;
    }
    sides_of(w, l, gemm, sides);
    text_add(t, "%s x %s (%s, %s)", dtype_info[sides[0].dtype].name,
             dtype_info[sides[1].dtype].name, scale_kind_info[sides[0].kind].text,
             scale_kind_info[sides[1].kind].text);
    const struct node *n = graph_node(w->in, l->gemms[gemm]);
    struct dim rows = graph_node(w->in, n->operands[0])->shape.dims[0];
    int64_t part = gemm == FP8_WEIGHT_GRADIENT ? rows_to_fill(&sides[0]) : 1;
    if (dim_is_static(rows) && rows.factor % part != 0) {
        text_add(t, ", its %lld rows filled up with zeros to a multiple of %lld",
                 (long long)rows.factor, (long long)part);
    }
}

static void say_layer(struct work *w, const struct layer *l)
{
    struct text t = {.arena = &w->arena};
    for (int gemm = 0; gemm < N_FP8_GEMMS; gemm++) {
        say_gemm(&t, w, l, (enum fp8_gemm)gemm);
    }
    note_add(w->notes, "fp8", l->name, "%s: %s", w->b.o->recipe->name, t.data);
}

static const char *stays_out(enum op op)
{
    switch ((int)op) {
    case OP_layer_norm:
    case OP_rms_norm:
    case OP_batch_norm:
        return "a norm divides by a small difference of large numbers";
    case OP_embedding:
        return "an embedding reads rows and multiplies nothing";
    case OP_cross_entropy:
    case OP_nll_loss:
    case OP_mse_loss:
    case OP_l1_loss:
    case OP_huber_loss:
    case OP_bce_with_logits:
    case OP_binary_cross_entropy:
        return "the loss is a small difference of large numbers";
    default:
        return NULL;
    }
}

static void say_others(struct work *w)
{
    for (uint32_t i = 1; i < w->in->n_nodes; i++) {
        const struct node *n = &w->in->nodes[i];
        const char *why = stays_out(n->op);
        if (why != NULL) {
            note_add(w->notes, "fp8", n->name != NULL ? n->name : op_info[n->op].name,
                     "%s stays out of FP8: %s", op_info[n->op].name, why);
        }
    }
}

static void decide(struct work *w)
{
    for (uint32_t i = 0; i < w->n_layers; i++) {
        struct layer *l = &w->layers[i];
        l->why = why_not(w, i);
        if (l->why == NULL) {
            l->why = misfit_of(w, l, FP8_FORWARD);
        }
        if (l->why != NULL) {
            note_add(w->notes, "fp8", l->name, "linear stays out of FP8: %s", l->why);
            continue;
        }
        for (int gemm = 0; gemm < N_FP8_GEMMS; gemm++) {
            if (l->gemms[gemm].id == 0) {
                continue;
            }
            l->stays[gemm] = misfit_of(w, l, (enum fp8_gemm)gemm);
            if (l->stays[gemm] == NULL) {
                w->layer_of[l->gemms[gemm].id] = i + 1;
                w->gemm_of[l->gemms[gemm].id] = (enum fp8_gemm)gemm;
            }
        }
        say_layer(w, l);
    }
    say_others(w);
}

/* ---- rewriting ---- */

/* A row kind beside a tensor's one scale: that one for each row. */
static value spread(struct graph *g, value inverse, value data)
{
    struct shape rows = {.rank = 2, .dims = {dim_of(1), dim_of(1)}};
    rows.dims[0] = data.id == 0 ? dim_of(1) : graph_node(g, data)->shape.dims[0];
    return graph_expand(g, inverse, &rows);
}

static value scaled_product(struct work *w, const struct layer *l, enum fp8_gemm gemm)
{
    struct graph *g = w->b.g;
    const struct node *n = graph_node(w->in, l->gemms[gemm]);
    struct side sides[2];
    struct fp8_operand x[2];
    sides_of(w, l, gemm, sides);
    for (uint32_t i = 0; i < 2; i++) {
        const struct side *s = &sides[i];
        const char *name = arena_text(&w->arena, "%s.%s", l->name, s->suffix);
        int64_t part = gemm == FP8_WEIGHT_GRADIENT ? rows_to_fill(s) : 1;
        bool is_cut = scale_kind_info[s->kind].depth != 0; /* zeros become f8 with their part */
        value whole = fp8_fill(g, w->map[s->x.id], 0, is_cut ? part : 1, name);
        x[i] = fp8_quantize(&w->b, whole, s->is_transposed, s->kind, s->dtype, name);
        x[i].data = fp8_fill(g, x[i].data, 1, part, name);
    }
    g->origin_name = arena_copy_text(&g->arena, n->name);
    for (uint32_t i = 0; i < 2; i++) { /* a library takes one kind for both */
        if (sides[i].kind == SCALE_TENSOR && sides[1 - i].kind == SCALE_ROW) {
            sides[i].kind = SCALE_ROW;
            x[i].inverse = spread(g, x[i].inverse, x[i].data);
        }
    }
    value y = graph_add(g, OP_scaled_matmul,
                        (value[]){x[0].data, x[1].data, x[0].inverse, x[1].inverse}, 4,
                        (struct attr[]){attr_text("scale_a", scale_kind_info[sides[0].kind].name),
                                        attr_text("scale_b", scale_kind_info[sides[1].kind].name),
                                        attr_dtype("dtype", n->dtype)},
                        3);
    return graph_reshape(g, y, &n->shape);
}

static bool is_called(const struct node *n, enum op op, const char *name)
{
    return n->op == op && n->name != NULL && strcmp(n->name, name) == 0;
}

/* Whether every amax of the window was finite: of the micro-batches so far, where there are more.
 */
static value window_finite(struct work *w)
{
    struct graph *g = w->b.g;
    if (w->is_last.id == 0) {
        return w->b.is_finite;
    }
    struct shape none = shape_scalar();
    g->origin_name = "fp8.finite";
    value before = graph_add(g, OP_state, NULL, 0,
                             (struct attr[]){attr_dims("shape", &none), attr_dtype("dtype", BOOL),
                                             attr_text("init", "1")},
                             3);
    g->origin_name = NULL;
    value now = graph_op2(g, OP_and, before, w->b.is_finite);
    graph_update(g, before, graph_op2(g, OP_or, w->is_last, now));
    return now;
}

static value apply(struct graph *out, const struct graph *in, value v, const value *operands,
                   void *context)
{
    struct work *w = context;
    const struct node *n = graph_node(in, v);
    if (is_called(n, OP_ge, "step.last")) {
        w->is_last = graph_copy(out, n, operands);
        return w->is_last;
    }
    if (w->b.is_finite.id != 0 && is_called(n, OP_lt, "step.finite")) {
        value good = graph_copy(out, n, operands);
        return graph_op2(out, OP_and, good, window_finite(w));
    }
    if (w->layer_of[v.id] == 0) {
        return (value){0};
    }
    value y = scaled_product(w, &w->layers[w->layer_of[v.id] - 1], w->gemm_of[v.id]);
    bool has_bias = n->op == OP_linear && n->n_operands == 3;
    return has_bias ? graph_op2(out, OP_add, y, operands[2]) : y;
}

static void add_counts(const struct work *w)
{
    for (uint32_t i = 0; i < w->b.n_counts; i++) {
        const struct fp8_count *c = &w->b.counts[i];
        graph_output(w->b.g, arena_text(w->b.arena, "fp8.saturated:%s", c->name), c->saturated);
        graph_output(w->b.g, arena_text(w->b.arena, "fp8.underflowed:%s", c->name), c->underflowed);
    }
}

static bool has_param_update(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_updates; i++) {
        if (graph_node(g, g->updates[i].leaf)->op == OP_param) {
            return true;
        }
    }
    return false;
}

status fp8_pass(const struct graph *in, struct graph *out, const struct pass_options *o,
                struct notes *notes)
{
    const struct fp8_options *fp8 = o->policy != NULL ? &o->policy->fp8 : NULL;
    if (fp8 == NULL || fp8->recipe == NULL) {
        return rewrite(in, out, NULL, NULL, NULL);
    }
    struct work w = {.in = in, .arena = SCRATCH_ARENA, .low = o->policy->low, .notes = notes};
    struct graph *full = graph_temporary(in);
    w.layer_of = ARENA_ARRAY(&w.arena, uint32_t, in->n_nodes);
    w.gemm_of = ARENA_ARRAY(&w.arena, enum fp8_gemm, in->n_nodes);
    w.map = ARENA_ARRAY(&w.arena, value, in->n_nodes);
    bool is_training = has_param_update(in);
    w.b = (struct fp8_builder){.g = full,
                               .o = fp8,
                               .arena = &w.arena,
                               .tests_finite = is_training,
                               .is_training = is_training};
    find_layers(&w);
    decide(&w);
    status code = rewrite(in, full, apply, &w, w.map);
    if (code == ATOLL_OK) {
        add_counts(&w);
        code = rewrite(full, out, NULL, NULL, NULL); /* low copies that nobody reads any more */
    }
    code = code == ATOLL_OK
               ? code
               : fail(&out->error, code, "%s",
                      full->error.code != ATOLL_OK ? full->error.text : out->error.text);
    graph_destroy(full);
    arena_free(&w.arena);
    return code;
}
