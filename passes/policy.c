/* Policies as data: the builtin ones, the policy file, the class of each op, and why an op wants
 * f32. Stands beside autocast, which applies what is said here. PyTorch's classes are columns of
 * ops.def; Atoll's own are those of the CUDA column except for the rows of atoll_differs.
 * Invariant: whatever changes a decision is in policy_hash. */
#include "policy.h"

#include <stdlib.h>
#include <string.h>

#define FP8(policy, recipe_name)                                                                   \
    {                                                                                              \
        .name = (policy), .low = BF16, .fp8.recipe = &fp8_recipes[FP8_RECIPE_##recipe_name]        \
    }
static const struct policy builtins[] = {
    {.name = "fp32", .low = DTYPE_NONE, .behaviour = POLICY_ATOLL},
    {.name = "bf16", .low = BF16, .behaviour = POLICY_ATOLL},
    {.name = "fp16", .low = F16, .behaviour = POLICY_ATOLL},
    {.name = "bf16@torch-cuda", .low = BF16, .behaviour = POLICY_TORCH_CUDA},
    {.name = "bf16@torch-cpu", .low = BF16, .behaviour = POLICY_TORCH_CPU},
    {.name = "fp16@torch-cuda", .low = F16, .behaviour = POLICY_TORCH_CUDA},
    {.name = "fp16@torch-cpu", .low = F16, .behaviour = POLICY_TORCH_CPU},
    FP8("fp8-tensorwise", tensorwise),
    FP8("fp8-rowwise", rowwise),
    FP8("fp8-rowwise-gw-hp", rowwise_gw_hp),
    FP8("fp8-delayed", delayed),
    FP8("fp8-blockwise", blockwise),
    FP8("fp8-mxfp8", mxfp8),
};
#undef FP8

/* Where Atoll does otherwise than the CUDA list. Norms compute in f32 inside whatever they read, so
 * half in, half out loses nothing and halves what is kept for backward; losses read exact f32. */
static const struct policy_op atoll_differs[] = {
    {OP_layer_norm, AMP_INHERIT}, {OP_cross_entropy, AMP_FP32}, {OP_mean, AMP_FP32_OUT},
    {OP_concat, AMP_PROMOTE},     {OP_index_add, AMP_PROMOTE},
};

static const char *const class_names[] = {
    [AMP_INHERIT] = "inherit",   [AMP_LOWER] = "lower",     [AMP_FP32] = "fp32",
    [AMP_FP32_OUT] = "fp32_out", [AMP_PROMOTE] = "promote", [AMP_BANNED] = "banned",
};

static const char *const reasons[N_OPS] = {
    [OP_exp] = "e^x leaves f16's range above x = 11.09 and multiplies the relative error by |x|",
    [OP_expm1] = "e^x - 1 leaves f16's range above x = 11.09",
    [OP_log] = "the logarithm of a value below the low dtype's smallest is -inf",
    [OP_log1p] = "1 + x loses a small x in a short significand",
    [OP_rsqrt] = "1/sqrt(x) of a small x leaves f16's range",
    [OP_reciprocal] = "1/x of a small x leaves f16's range",
    [OP_pow] = "powers leave f16's range and multiply the relative error by the exponent",
    [OP_softplus] = "log(1 + e^x) needs e^x, which leaves f16's range",
    [OP_sum] = "a long sum in a short significand stops growing; the f32 accumulator is kept",
    [OP_mean] = "the sum behind the mean is accumulated in f32 and kept so",
    [OP_prod] = "products of many factors leave the low dtype's range",
    [OP_norm] = "squares overflow in f16 above 255 and vanish below 2.4e-4",
    [OP_logsumexp] = "a sum of exponentials; its value decides the loss",
    [OP_softmax] = "small probabilities vanish in f16 (below 6e-8); accumulated in f32",
    [OP_log_softmax] = "log-probabilities feed a loss; bf16 keeps only 3 digits of them",
    [OP_layer_norm] = "the variance cancels: it is computed in two passes in f32",
    [OP_rms_norm] = "squares overflow in f16 above 255",
    [OP_cross_entropy] = "the loss is a small difference of large numbers: f32 inside and out",
    [OP_nll_loss] = "a loss is a sum over a batch: f32 inside and out",
    [OP_mse_loss] = "squares overflow in f16 above 255",
    [OP_l1_loss] = "a loss is a sum over a batch: f32 inside and out",
    [OP_huber_loss] = "a loss is a sum over a batch: f32 inside and out",
    [OP_bce_with_logits] = "log(1 + e^-|x|) of a confident logit vanishes in a short significand",
    [OP_binary_cross_entropy] = "log of a probability that rounded to 0 or 1",
    [OP_scatter_add] = "sums of many terms; the widest operand's dtype",
    [OP_index_add] = "sums of many terms; the widest operand's dtype",
};

const char *precision_reason(enum op op)
{
    return reasons[op] != NULL ? reasons[op] : "its operands are f32";
}

const char *amp_class_name(enum amp_class class)
{
    return class_names[class];
}

const struct policy *policy_builtin(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++) {
        if (strcmp(builtins[i].name, name) == 0) {
            return &builtins[i];
        }
    }
    return NULL;
}

/* The builtin names, for a message. */
static const char *builtin_names(struct arena *a)
{
    struct text t = {.arena = a};
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++) {
        text_add(&t, "%s%s", i > 0 ? " " : "", builtins[i].name);
    }
    return t.data;
}

/* where: "" or "file:line: ". */
static status find_builtin(const char *where, const char *name, const struct policy **out,
                           struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    const char *names = builtin_names(&scratch);
    status code = ATOLL_OK;
    *out = policy_builtin(name);
    if (*out == NULL) {
        code = fail(e, ATOLL_USAGE, "%sno policy '%s'; expected one of: %s", where, name, names);
    }
    arena_free(&scratch);
    return code;
}

status policy_named(const char *name, const struct policy **out, struct error *e)
{
    return find_builtin("", name, out, e);
}

enum amp_class policy_class(const struct policy *p, enum op op)
{
    for (uint32_t i = p->n_ops; i-- > 0;) {
        if (p->ops[i].op == op) {
            return p->ops[i].class;
        }
    }
    if (p->low == DTYPE_NONE) {
        return AMP_INHERIT;
    }
    if (p->behaviour == POLICY_TORCH_CPU) {
        return op_info[op].cpu;
    }
    for (size_t i = 0; p->behaviour == POLICY_ATOLL && i < ARRAY_LEN(atoll_differs); i++) {
        if (atoll_differs[i].op == op) {
            return atoll_differs[i].class;
        }
    }
    return op_info[op].cuda;
}

const struct policy_node *policy_override(const struct policy *p, const struct node *n)
{
    for (uint32_t i = p->n_nodes; n->name != NULL && i-- > 0;) {
        if (pattern_matches(p->nodes[i].pattern, n->name)) {
            return &p->nodes[i];
        }
    }
    return NULL;
}

uint64_t policy_hash(const struct policy *p)
{
    uint64_t h = hash_u64((uint64_t)p->low, hash_u64((uint64_t)p->behaviour, 0));
    for (int op = 1; op < N_OPS; op++) {
        h = hash_u64((uint64_t)policy_class(p, (enum op)op), h);
    }
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct policy_node *n = &p->nodes[i];
        h = hash_text(n->pattern, h);
        h = hash_u64((uint64_t)n->dtype << 8 | (uint64_t)n->class, h);
    }
    const struct fp8_options *f = &p->fp8;
    h = hash_u64(f->recipe == NULL ? 0 : 1 + (uint64_t)(f->recipe - fp8_recipes), h);
    for (uint32_t i = 0; i < f->n_layers; i++) {
        h = hash_u64(f->layers[i].is_on, hash_text(f->layers[i].pattern, h));
    }
    h = hash_u64((uint64_t)f->least, hash_u64((uint64_t)f->margin, h));
    return hash_u64((uint64_t)f->history << 2 | (uint64_t)f->is_most_recent << 1 |
                        (uint64_t)f->wants_counts,
                    h);
}

/* ---- the file ---- */

enum { MAX_WORDS = 3 };

struct reader {
    struct arena *arena;
    const char *file;
    uint32_t line;
    struct error *error;
    struct policy *out;
    struct policy_op *ops;
    struct policy_node *nodes;
    struct fp8_layer *layers;
    uint32_t op_capacity, node_capacity, layer_capacity;
    bool has_rows; /* an op or node line was read */
};

static status refuse(const struct reader *r, const char *what, const char *found,
                     const char *expected)
{
    return fail(r->error, ATOLL_PARSE, "%s:%u: %s '%s'; expected %s", r->file, (unsigned)r->line,
                what, found, expected);
}

/* Splits a line at blanks; "quoted" words may hold blanks; # starts a comment. */
static status split(const struct reader *r, const char *p, const char *end,
                    const char *words[MAX_WORDS], uint32_t *n)
{
    *n = 0;
    for (;;) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) {
            p++;
        }
        if (p == end || *p == '#') {
            return ATOLL_OK;
        }
        bool is_quoted = *p == '"';
        const char *from = is_quoted ? ++p : p;
        while (p < end && (is_quoted ? *p != '"' : *p != ' ' && *p != '\t' && *p != '\r')) {
            if (*p == '\0') {
                return refuse(r, "found a zero byte after", arena_text(r->arena, "%s", from),
                              "text");
            }
            p++;
        }
        const char *word = arena_text(r->arena, "%.*s", (int)(p - from), from);
        if (is_quoted && p == end) {
            return refuse(r, "no closing quote after", word, "\" before the end of the line");
        }
        if (*n == MAX_WORDS) {
            return refuse(r, "unexpected word", word, "the end of the line");
        }
        words[(*n)++] = word;
        p += is_quoted;
    }
}

static bool class_named(const char *word, enum amp_class *out)
{
    for (size_t i = 0; i < ARRAY_LEN(class_names); i++) {
        if (strcmp(class_names[i], word) == 0) {
            *out = (enum amp_class)i;
            return true;
        }
    }
    return false;
}

/* Lowering needs a dtype to lower to. */
static status need_low(const struct reader *r, enum amp_class class)
{
    return class == AMP_LOWER && r->out->low == DTYPE_NONE
               ? refuse(r, "nothing to lower to under fp32 for class", "lower",
                        "a low base before it, such as: base bf16")
               : ATOLL_OK;
}

static status read_base(struct reader *r, const char *const words[MAX_WORDS], uint32_t n)
{
    const struct policy *base;
    if (n != 2) {
        return refuse(r, "found", "base", "base NAME, such as: base bf16");
    }
    if (r->has_rows) {
        return refuse(r, "late", "base", "base before the first op or node line");
    }
    TRY(find_builtin(arena_text(r->arena, "%s:%u: ", r->file, (unsigned)r->line), words[1], &base,
                     r->error));
    r->out->low = base->low;
    r->out->behaviour = base->behaviour;
    r->out->fp8 = base->fp8;
    return ATOLL_OK;
}

static status read_op(struct reader *r, const char *const words[MAX_WORDS], uint32_t n)
{
    struct policy_op row;
    if (n != 3) {
        return refuse(r, "found", "op", "op NAME CLASS, such as: op softmax fp32");
    }
    row.op = op_named(words[1], strlen(words[1]));
    if (row.op == OP_NONE || op_info[row.op].kind == LEAF) {
        return refuse(r, "no op", words[1], "an op of ir/ops.def that computes");
    }
    if (!class_named(words[2], &row.class)) {
        return refuse(r, "no class", words[2], "inherit lower fp32 fp32_out promote banned");
    }
    TRY(need_low(r, row.class));
    r->ops = arena_grow(r->arena, r->ops, r->out->n_ops, &r->op_capacity, sizeof *r->ops);
    r->ops[r->out->n_ops++] = row;
    r->out->ops = r->ops;
    r->has_rows = true;
    return ATOLL_OK;
}

static status read_node(struct reader *r, const char *const words[MAX_WORDS], uint32_t n)
{
    if (n != 3) {
        return refuse(r, "found", "node",
                      "node \"PATTERN\" DTYPE or CLASS, such as: node \"head.*\" f32");
    }
    struct policy_node row = {.pattern = words[1]};
    row.dtype = dtype_named(words[2], strlen(words[2]));
    if (row.dtype != F16 && row.dtype != BF16 && row.dtype != F32) {
        row.dtype = DTYPE_NONE;
        if (!class_named(words[2], &row.class)) {
            return refuse(r, "no dtype or class", words[2],
                          "f16 bf16 f32, or inherit lower fp32 fp32_out promote banned");
        }
    }
    TRY(need_low(r, row.class));
    r->nodes = arena_grow(r->arena, r->nodes, r->out->n_nodes, &r->node_capacity, sizeof *r->nodes);
    r->nodes[r->out->n_nodes++] = row;
    r->out->nodes = r->nodes;
    r->has_rows = true;
    return ATOLL_OK;
}

static bool word_is_on(const char *word, bool *out)
{
    *out = strcmp(word, "on") == 0;
    return *out || strcmp(word, "off") == 0;
}

static status read_fp8(struct reader *r, const char *const words[MAX_WORDS], uint32_t n)
{
    struct fp8_layer row = {.pattern = n > 1 ? words[1] : ""};
    if (n != 3 || !word_is_on(words[2], &row.is_on)) {
        return refuse(r, "found", "fp8", "fp8 \"PATTERN\" on or off, such as: fp8 \"head\" off");
    }
    if (r->out->fp8.recipe == NULL) {
        return refuse(r, "no recipe for", "fp8", "an fp8 base before it: base fp8-tensorwise");
    }
    r->layers = arena_grow(r->arena, r->layers, r->out->fp8.n_layers, &r->layer_capacity,
                           sizeof *r->layers);
    r->layers[r->out->fp8.n_layers++] = row;
    r->out->fp8.layers = r->layers;
    r->has_rows = true;
    return ATOLL_OK;
}

/* fp8_set KEY VALUE */
static status read_fp8_set(struct reader *r, const char *const words[MAX_WORDS], uint32_t n)
{
    struct fp8_options *o = &r->out->fp8;
    const struct {
        const char *key;
        int64_t *number, most;
    } numbers[] = {{"least", &o->least, 1 << 20},
                   {"margin", &o->margin, 32},
                   {"history", &o->history, 1 << 20}};
    char *end = NULL;
    for (size_t i = 0; n == 3 && i < ARRAY_LEN(numbers); i++) {
        long long number = strtoll(words[2], &end, 10);
        if (strcmp(numbers[i].key, words[1]) == 0 && end != words[2] && *end == '\0' &&
            number >= 0 && number <= numbers[i].most) {
            *numbers[i].number = number;
            r->has_rows = true;
            return ATOLL_OK;
        }
    }
    if (n == 3 && strcmp(words[1], "counts") == 0 && word_is_on(words[2], &o->wants_counts)) {
        return ATOLL_OK;
    }
    o->is_most_recent = n == 3 && strcmp(words[2], "most_recent") == 0;
    if (n == 3 && strcmp(words[1], "amax") == 0 &&
        (o->is_most_recent || strcmp(words[2], "max") == 0)) {
        return ATOLL_OK;
    }
    return refuse(r, "found", n > 1 ? words[1] : "fp8_set",
                  "fp8_set least SIZE, margin BITS, history STEPS, amax max or most_recent, counts "
                  "on or off");
}

static status read_line(struct reader *r, const char *p, const char *end)
{
    static const struct {
        const char *word;
        status (*read)(struct reader *, const char *const[MAX_WORDS], uint32_t);
    } kinds[] = {{"base", read_base},
                 {"op", read_op},
                 {"node", read_node},
                 {"fp8", read_fp8},
                 {"fp8_set", read_fp8_set}};
    const char *words[MAX_WORDS];
    uint32_t n;
    TRY(split(r, p, end, words, &n));
    for (size_t i = 0; n > 0 && i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i].word, words[0]) == 0) {
            return kinds[i].read(r, words, n);
        }
    }
    return n == 0 ? ATOLL_OK
                  : refuse(r, "found", words[0], "base, op, node, fp8, fp8_set or # comment");
}

/* Rows of the base go first, so that the file's win. */
static void copy_base(struct reader *r, const struct policy *base)
{
    for (uint32_t i = 0; i < base->n_ops; i++) {
        r->ops = arena_grow(r->arena, r->ops, i, &r->op_capacity, sizeof *r->ops);
        r->ops[i] = base->ops[i];
    }
    for (uint32_t i = 0; i < base->n_nodes; i++) {
        r->nodes = arena_grow(r->arena, r->nodes, i, &r->node_capacity, sizeof *r->nodes);
        r->nodes[i] = base->nodes[i];
        r->nodes[i].pattern = arena_copy_text(r->arena, base->nodes[i].pattern);
    }
    for (uint32_t i = 0; i < base->fp8.n_layers; i++) {
        r->layers = arena_grow(r->arena, r->layers, i, &r->layer_capacity, sizeof *r->layers);
        r->layers[i] = base->fp8.layers[i];
        r->layers[i].pattern = arena_copy_text(r->arena, base->fp8.layers[i].pattern);
    }
    r->out->ops = r->ops;
    r->out->nodes = r->nodes;
    r->out->fp8.layers = r->layers;
}

status policy_load(struct arena *a, const char *text, size_t length, const char *file,
                   const struct policy *base, struct policy *out, struct error *e)
{
    base = base != NULL ? base : &builtins[0];
    *out = *base;
    out->name = arena_copy_text(a, file);
    struct reader r = {.arena = a, .file = file, .error = e, .out = out};
    copy_base(&r, base);
    const char *end = text + length;
    for (const char *p = text; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        r.line++;
        TRY(read_line(&r, p, stop));
        p = stop < end ? stop + 1 : end;
    }
    return ATOLL_OK;
}
