/* CUDA text of ROW kernels, in three shapes. Elementwise: a thread takes a pack of neighbours.
 * Rows: a team of threads (part of a warp, a warp, or a block of 128) goes through the phases of
 * one row, lanes as DESIGN 1 has them. Everything at once (a flat reduction longer than a chunk):
 * one launch for the chunks of a phase, one that combines them, results handed on in the
 * workspace. Values needed in a later phase are computed again: same bits. */
#include "emit_cuda_internal.h"

#include <stdio.h>

static bool has_row_stores(const struct kernel *k)
{
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (k->stores[i].is_row) {
            return true;
        }
    }
    return false;
}

/* Length of a row when static, else -1. */
static int64_t row_length(const struct kernel *k)
{
    struct dim length = dim_of(1);
    for (uint32_t i = k->first_axis; i < k->first_axis + k->n_axes; i++) {
        if (!dim_multiply(length, k->domain[i], &length)) {
            return -1;
        }
    }
    return dim_is_static(length) ? length.factor : -1;
}

static void emit_sizes(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    text_add(c->t, "    const int64_t rows = ");
    emit_count(c->t, k, 0, k->first_axis);
    text_add(c->t, ", K = ");
    emit_count(c->t, k, k->first_axis, k->first_axis + k->n_axes);
    text_add(c->t, ";\n");
}

static void add_items(struct cuda_emitter *c, struct cuda_stage *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        s->items[s->n_items++] = c->k->domain[i];
    }
}

static void emit_results(struct cuda_emitter *c, uint32_t phase, const char *indent)
{
    char from[32];
    for (uint32_t i = 0; i < c->k->n_insts; i++) {
        if (c->k->insts[i].kind == INST_REDUCE && c->k->insts[i].ready == phase) {
            (void)snprintf(from, sizeof from, "sum%u", i);
            emit_result(c->t, c->k, i, from, indent);
        }
    }
}

/* ---- elementwise ---- */

static void emit_elementwise(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    need_of_phase(c, 0);
    uint32_t width = width_of_loop(c, 0, 16);
    struct cuda_stage *s = emit_stage(c, "", THREADS, 1);
    add_items(c, s, 0, k->first_axis + k->n_axes);
    s->per_block = (int64_t)THREADS * width;
    emit_sizes(c);
    text_add(c->t,
             "#pragma unroll 1\n"
             "    for (int64_t u = (int64_t)blockIdx.x * %d + threadIdx.x; u < rows * (K / %u); u "
             "+= (int64_t)gridDim.x * %d) {\n"
             "        const int64_t r = u / (K / %u), base = u %% (K / %u) * %u;\n",
             THREADS, width, THREADS, width, width, width);
    emit_decode(c->t, k, 0, k->first_axis, "r", "        ");
    emit_row_values(c, 0, NULL, "        ");
    emit_elements(c, 0, width, NULL, "        ");
    text_add(c->t, "    }\n}\n");
}

/* One thread of the grid. */
static const char LEAD[] = "blockIdx.x == 0 && threadIdx.x == 0";

/* The loop over all n elements of a flat kernel: packs from first on, then what is left. */
static void emit_flat_loop(struct cuda_emitter *c, uint32_t phase, uint32_t width,
                           const char *leads)
{
    text_add(c->t,
             "#pragma unroll 1\n    for (int64_t base = first; base + %u <= n; base += step) {\n",
             width);
    emit_elements(c, phase, width, NULL, "        ");
    text_add(c->t, "    }\n");
    if (width > 1) {
        text_add(c->t,
                 "    if (%s && threadIdx.x < n %% %u) {\n"
                 "        const int64_t base = n - n %% %u + threadIdx.x;\n",
                 leads, width, width);
        emit_elements(c, phase, 1, NULL, "        ");
        text_add(c->t, "    }\n");
    }
}

static void emit_grid_walk(struct cuda_emitter *c, uint32_t width)
{
    text_add(c->t,
             "    const int64_t first = ((int64_t)blockIdx.x * %d + threadIdx.x) * %u;\n"
             "    const int64_t step = (int64_t)gridDim.x * %u;\n",
             THREADS, width, THREADS * width);
}

static void emit_flat_call(struct cuda_emitter *c, const char *leads)
{
    text_add(c->t, "%s_walk(", c->name);
    for (uint32_t i = 0; i < c->k->n_args; i++) {
        text_add(c->t, "p%u, ", i);
    }
    text_add(c->t, "d, n, first, step, %s);\n", leads);
}

/* Many tensors, a row of the table each; block b finds its tensor by the first blocks. */
static void emit_flat_many(struct cuda_emitter *c, uint32_t width)
{
    const struct kernel *k = c->k;
    text_add(
        c->t,
        "\nextern \"C\" __global__ void __launch_bounds__(%d) %s_many(const uint64_t *table, "
        "int64_t count, int64_t blocks, const a_symbols symbols)\n{\n"
        "    const int64_t *d = symbols.at;\n"
        "    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {\n"
        "        int64_t low = 0, high = count;\n"
        "        while (high - low > 1) {\n"
        "            const int64_t middle = (low + high) / 2;\n"
        "            if ((int64_t)table[middle * %u + 1] <= b) { low = middle; } else { high = "
        "middle; }\n        }\n"
        "        const uint64_t *row = table + low * %u;\n"
        "        const int64_t n = (int64_t)row[0], at = b - (int64_t)row[1];\n",
        THREADS, c->name, k->n_args + 2, k->n_args + 2);
    for (uint32_t i = 0; i < k->n_args; i++) {
        const char *type = emit_storage(k->args[i].dtype),
                   *head = k->args[i].is_written ? "" : "const ";
        text_add(c->t, "        %s%s *p%u = (%s%s *)row[%u];\n", head, type, i, head, type, i + 2);
    }
    text_add(c->t,
             "        const int64_t first = (at * %d + threadIdx.x) * %u, step = n;\n        ",
             THREADS, width);
    emit_flat_call(c, "at == 0");
    text_add(c->t, "    }\n}\n");
}

static void emit_flat(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    need_of_phase(c, 0);
    uint32_t width = width_of_loop(c, 0, 16);
    text_add(c->t, "\nA_DEVICE void %s_walk(", c->name);
    for (uint32_t i = 0; i < k->n_args; i++) {
        text_add(c->t, "%s%s *p%u, ", k->args[i].is_written ? "" : "const ",
                 emit_storage(k->args[i].dtype), i);
    }
    text_add(c->t, "const int64_t *d, int64_t n, int64_t first, int64_t step, bool leads)\n{\n");
    emit_row_values(c, 0, "leads && threadIdx.x == 0", "    ");
    if (phase_has_loop(k, 0)) {
        emit_flat_loop(c, 0, width, "leads");
    }
    text_add(c->t, "}\n");
    struct cuda_stage *s = emit_stage(c, "", THREADS, 1);
    add_items(c, s, 0, 1);
    s->per_block = (int64_t)THREADS * width;
    emit_grid_walk(c, width);
    text_add(c->t, "    ");
    emit_flat_call(c, "blockIdx.x == 0");
    text_add(c->t, "}\n");
    if (c->wants_many) {
        emit_flat_many(c, width);
        c->many = arena_text(c->arena, "%s_many", c->name);
    }
}

/* ---- rows ---- */

struct team {
    uint32_t size, width; /* threads, and lanes a thread: size * width lanes */
    uint32_t per_block;
    int64_t length; /* of a row, -1: not known */
    const char *live, *lead;
};

static struct team choose_team(int64_t length)
{
    uint32_t lanes = LANES;
    while (length >= 0 && lanes > 1 && length <= lanes / 2) {
        lanes /= 2;
    }
    uint32_t width = lanes <= 32 ? 1 : lanes / 32;
    if (length < 0 || length > 4096 || length % width != 0) {
        return (struct team){LANES, 1, 1, length, NULL, "threadIdx.x == 0"};
    }
    return (struct team){lanes / width, width,  LANES / (lanes / width),
                         length,        "live", "live && t == 0"};
}

/* The team's walk over elements [lo, hi), each into its lane. */
static void emit_walk(struct cuda_emitter *c, uint32_t phase, const struct team *team,
                      const char *lo, const char *hi, const char *indent)
{
    char deeper[40];
    (void)snprintf(deeper, sizeof deeper, "%s    ", indent);
    emit_unroll(c, team->width);
    text_add(c->t, "%sfor (int64_t base = %s + t * %u; base < %s; base += %u) {\n", indent, lo,
             team->width, hi, team->size * team->width);
    emit_elements(c, phase, team->width, team->live, deeper);
    text_add(c->t, "%s}\n", indent);
}

static void emit_accumulators(struct cuda_emitter *c, uint32_t phase, uint32_t width,
                              const char *indent)
{
    char pattern[128];
    (void)snprintf(pattern, sizeof pattern,
                   "%s~ acc@[%u];\n#pragma unroll\n%sfor (int j = 0; j < %u; j++) { acc@[j] = "
                   "$::identity(); }\n",
                   indent, width, indent, width);
    emit_each(c, phase, pattern);
}

static void emit_team_reduction(struct cuda_emitter *c, uint32_t phase, const struct team *team)
{
    char pattern[128];
    if (team->length >= 0 && team->length <= CHUNK) {
        emit_accumulators(c, phase, team->width, "        ");
        emit_walk(c, phase, team, "0", "K", "        ");
        (void)snprintf(pattern, sizeof pattern,
                       team->size == LANES ? "        const ~ sum@ = a_fold_block<$>(acc@[0]);\n"
                                           : "        const ~ sum@ = a_fold<$, %u, %u>(acc@);\n",
                       team->size, team->width);
        emit_each(c, phase, pattern);
        return;
    }
    emit_each(c, phase, "        a_row<$> row@;\n");
    text_add(c->t,
             "        for (int64_t lo = 0; lo < K; lo += %d) {\n"
             "            const int64_t hi = lo + %d < K ? lo + %d : K;\n",
             CHUNK, CHUNK, CHUNK);
    emit_accumulators(c, phase, 1, "            ");
    emit_walk(c, phase, team, "lo", "hi", "            ");
    emit_each(c, phase, "            row@.push(a_fold_block<$>(acc@[0]));\n");
    text_add(c->t, "        }\n");
    emit_each(c, phase, "        const ~ sum@ = row@.end();\n");
}

/* A phase without reductions is free of lanes: packs as wide as they go. */
static void emit_team_plain(struct cuda_emitter *c, uint32_t phase, const struct team *team)
{
    struct team wide = *team;
    wide.width = team->length >= 0 ? width_of_loop(c, phase, 16) : 1;
    while (wide.width > 1 && team->length % wide.width != 0) {
        wide.width /= 2;
    }
    emit_walk(c, phase, &wide, "0", "K", "        ");
}

static void emit_rows(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    struct team team = choose_team(row_length(k));
    struct cuda_stage *s = emit_stage(c, "", LANES, 1);
    add_items(c, s, 0, k->first_axis);
    s->per_block = team.per_block;
    emit_sizes(c);
    text_add(c->t,
             "    const int t = (int)threadIdx.x %% %u;\n"
             "#pragma unroll 1\n"
             "    for (int64_t first = (int64_t)blockIdx.x * %u; first < rows; first += "
             "(int64_t)gridDim.x * %u) {\n",
             team.size, team.per_block, team.per_block);
    if (team.live !=
        NULL) { /* a team without a row goes along, for the shuffles, and stores nothing */
        text_add(c->t,
                 "        const bool live = first + threadIdx.x / %u < rows;\n"
                 "        const int64_t r = live ? first + threadIdx.x / %u : rows - 1;\n",
                 team.size, team.size);
    } else {
        text_add(c->t, "        const int64_t r = first;\n");
    }
    emit_decode(c->t, k, 0, k->first_axis, "r", "        ");
    for (uint32_t phase = 0; phase < k->n_phases; phase++) {
        need_of_phase(c, phase);
        emit_row_values(c, phase, team.lead, "        ");
        if (phase_has_reductions(k, phase)) {
            emit_team_reduction(c, phase, &team);
            emit_results(c, phase, "        ");
        } else if (phase_has_loop(k, phase)) {
            emit_team_plain(c, phase, &team);
        }
    }
    text_add(c->t, "    }\n}\n");
}

/* ---- everything at once ---- */

/* The place of reduction i among the sums, and of its chunk results before them. */
static uint32_t place_of(const struct kernel *k, uint32_t i)
{
    uint32_t place = 0;
    for (uint32_t j = 0; j < i; j++) {
        place += k->insts[j].kind == INST_REDUCE;
    }
    return place;
}

/* Results of the phases before this one, then its row values. */
static void emit_known(struct cuda_emitter *c, uint32_t phase, uint32_t known, const char *lead)
{
    const struct kernel *k = c->k;
    text_add(c->t, "    const int64_t chunks = (n + %d) / %d;\n", CHUNK - 1, CHUNK);
    for (uint32_t p = 0; p <= phase; p++) {
        for (uint32_t i = 0; i < k->n_insts && p > 0 && p <= known; i++) {
            if (k->insts[i].kind == INST_REDUCE && k->insts[i].ready == p - 1) {
                text_add(c->t, "    const %s sum%u = *(const %s *)&work[chunks * %u + %u];\n",
                         emit_type(k->insts[i].compute), i, emit_type(k->insts[i].compute),
                         place_of(k, k->n_insts), place_of(k, i));
            }
        }
        if (p > 0 && p <= known) {
            emit_results(c, p - 1, "    ");
        }
        emit_row_values(c, p, p == phase ? lead : NULL, "    ");
    }
}

static void emit_chunks_stage(struct cuda_emitter *c, uint32_t phase)
{
    static const struct team TEAM = {LANES, 1, 1, -1, NULL, NULL};
    const struct kernel *k = c->k;
    char suffix[24];
    (void)snprintf(suffix, sizeof suffix, "_chunks%u", phase);
    struct cuda_stage *s = emit_stage(c, suffix, LANES, 1);
    add_items(c, s, 0, 1);
    s->per_block = CHUNK;
    emit_known(c, phase, phase, NULL);
    text_add(c->t,
             "    const int t = (int)threadIdx.x;\n"
             "#pragma unroll 1\n"
             "    for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {\n"
             "        const int64_t lo = c * %d, hi = lo + %d < n ? lo + %d : n;\n",
             CHUNK, CHUNK, CHUNK);
    need_of_phase(c, phase);
    emit_accumulators(c, phase, 1, "        ");
    emit_walk(c, phase, &TEAM, "lo", "hi", "        ");
    emit_each(c, phase, "        const ~ part@ = a_fold_block<$>(acc@[0]);\n");
    text_add(c->t, "        if (t == 0) {\n");
    for (uint32_t i = 0; i < k->n_insts; i++) {
        if (k->insts[i].kind == INST_REDUCE && k->insts[i].ready == phase) {
            text_add(c->t, "            ((%s *)&work[chunks * %u])[c] = part%u;\n",
                     emit_type(k->insts[i].compute), place_of(k, i), i);
        }
    }
    text_add(c->t, "        }\n    }\n}\n");
}

static void emit_sums_stage(struct cuda_emitter *c, uint32_t phase)
{
    const struct kernel *k = c->k;
    char suffix[24];
    (void)snprintf(suffix, sizeof suffix, "_sums%u", phase);
    emit_stage(c, suffix, LANES, 1);
    emit_known(c, phase, phase, NULL);
    for (uint32_t i = 0; i < k->n_insts; i++) {
        const struct inst *inst = &k->insts[i];
        if (inst->kind == INST_REDUCE && inst->ready == phase) {
            const char *type = emit_type(inst->compute);
            text_add(c->t, "    const %s sum%u = a_fold_parts<", type, i);
            emit_functor(c->t, inst);
            text_add(c->t, ">((const %s *)&work[chunks * %u], chunks);\n", type, place_of(k, i));
            text_add(c->t,
                     "    if (threadIdx.x == 0) {\n        *(%s *)&work[chunks * %u + %u] = "
                     "sum%u;\n    }\n",
                     type, place_of(k, k->n_insts), place_of(k, i), i);
        }
    }
    emit_results(c, phase, "    ");
    emit_row_values(c, phase + 1, "threadIdx.x == 0", "    ");
    text_add(c->t, "}\n");
}

static void emit_plain_stage(struct cuda_emitter *c, uint32_t phase)
{
    char suffix[24];
    (void)snprintf(suffix, sizeof suffix, "_each%u", phase);
    struct cuda_stage *s = emit_stage(c, suffix, THREADS, 1);
    need_of_phase(c, phase);
    uint32_t width = width_of_loop(c, phase, 16);
    add_items(c, s, 0, 1);
    s->per_block = (int64_t)THREADS * width;
    emit_known(c, phase, phase, NULL);
    emit_grid_walk(c, width);
    emit_flat_loop(c, phase, width, "blockIdx.x == 0");
    text_add(c->t, "}\n");
}

/* Row values of phase 0 that somebody stores, before any sum is known. */
static void emit_first_stage(struct cuda_emitter *c)
{
    emit_stage(c, "_first", 1, 1);
    emit_row_values(c, 0, LEAD, "    ");
    text_add(c->t, "}\n");
}

static bool has_row_store_in(const struct kernel *k, uint32_t phase)
{
    for (uint32_t i = 0; i < k->n_stores; i++) {
        if (k->stores[i].is_row && k->stores[i].phase == phase) {
            return true;
        }
    }
    return false;
}

static void emit_staged(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    if (has_row_store_in(k, 0)) {
        emit_first_stage(c);
    }
    for (uint32_t phase = 0; phase < k->n_phases; phase++) {
        need_of_phase(c, phase);
        if (phase_has_reductions(k, phase)) {
            emit_chunks_stage(c, phase);
            emit_sums_stage(c, phase);
        } else if (phase_has_loop(k, phase)) {
            emit_plain_stage(c, phase);
        }
    }
}

void emit_cuda_row(struct cuda_emitter *c)
{
    const struct kernel *k = c->k;
    bool is_plain = !phase_has_reductions(k, 0) && k->n_phases == 1;
    int64_t length = row_length(k);
    if (is_plain && k->is_flat) {
        emit_flat(c);
    } else if (is_plain && !has_row_stores(k)) {
        emit_elementwise(c);
    } else if (k->is_flat && (length < 0 || length > CHUNK)) {
        emit_staged(c);
    } else {
        emit_rows(c);
    }
}
