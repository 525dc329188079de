/* Packs a decoded kernel's registers: PTX names thousands that each live for a few instructions;
 * the register file of a warp should fit into the processor's cache. Live ranges over the
 * instruction array come from the usual backward data flow; a linear scan gives registers whose
 * ranges do not meet one slot. Constants and special registers keep slots of their own. Invariant:
 * a range counts an instruction's reads and writes as one moment, so a result never shares a slot
 * with an operand. */
#include <stdlib.h>
#include <string.h>

#include "parser.h"

#define UNIT          SLOT_UNIT
#define MAX_SET_BYTES ((size_t)64 << 20)

struct range {
    uint32_t start, end; /* positions in the code; start > end: never used */
    bool is_wide;
};

struct packing {
    struct kernel *k;
    struct module scratch; /* only its memory */
    uint32_t n, n_words;   /* registers: old slot / UNIT */
    struct range *ranges;
    bool *is_fixed;
    uint32_t *leaders, n_blocks; /* first instruction of each block, and one past the last */
    uint32_t *block_of;
    uint64_t *in, *out, *uses, *defs; /* [block][n_words] */
    uint32_t *slots;                  /* new slot of each register */
};

static bool has_bit(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

static void add_bit(uint64_t *set, uint32_t i)
{
    set[i / 64] |= (uint64_t)1 << i % 64;
}

static void find_blocks(struct packing *p)
{
    struct module *m = &p->scratch;
    uint32_t n = p->k->n_code;
    uint8_t *is_leader = module_alloc(m, n + 1);
    is_leader[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct instruction *in = &p->k->code[i];
        if (in->kind == KIND_BRANCH) {
            is_leader[in->target] = 1;
        }
        if (in->kind == KIND_BRANCH || in->kind == KIND_EXIT || in->kind == KIND_TRAP) {
            is_leader[i + 1] = 1;
        }
    }
    p->leaders = module_alloc(m, (n + 2) * sizeof *p->leaders);
    p->block_of = module_alloc(m, (n + 1) * sizeof *p->block_of);
    for (uint32_t i = 0; i < n; i++) {
        if (is_leader[i]) {
            p->leaders[p->n_blocks++] = i;
        }
        p->block_of[i] = p->n_blocks - 1;
    }
    p->leaders[p->n_blocks] = n;
}

/* Calls visit for every register of an instruction, reads before writes. A write under a guard may
 * not happen: it counts as a read too. */
typedef void visitor(struct packing *p, uint32_t at, uint32_t reg, bool is_write);

static void visit(struct packing *p, uint32_t at, visitor *call)
{
    const struct instruction *in = &p->k->code[at];
    if (in->guard) {
        call(p, at, in->guard / UNIT, false);
    }
    for (uint32_t i = 0; i < MAX_OPERANDS; i++) {
        bool is_write = i < in->n_defs || (i && i == in->extra_def);
        if (in->r[i] && (!is_write || in->guard)) {
            call(p, at, in->r[i] / UNIT, false);
        }
    }
    for (uint32_t i = 0; i < MAX_OPERANDS; i++) {
        if (in->r[i] && (i < in->n_defs || (i && i == in->extra_def))) {
            call(p, at, in->r[i] / UNIT, true);
        }
    }
}

static void note_use(struct packing *p, uint32_t at, uint32_t reg, bool is_write)
{
    size_t block = (size_t)p->block_of[at] * p->n_words;
    if (is_write) {
        add_bit(p->defs + block, reg);
    } else if (!has_bit(p->defs + block, reg)) {
        add_bit(p->uses + block, reg);
    }
}

static void extend(struct packing *p, uint32_t at, uint32_t reg, bool is_write)
{
    (void)is_write;
    struct range *r = &p->ranges[reg];
    r->start = at < r->start ? at : r->start;
    r->end = at > r->end || r->end == UINT32_MAX ? at : r->end;
}

/* out[b] = union of in over the successors; true when in[b] grew. */
static bool flow(struct packing *p, uint32_t b)
{
    const struct instruction *last = &p->k->code[p->leaders[b + 1] - 1];
    bool falls =
        !(last->kind == KIND_BRANCH || last->kind == KIND_EXIT || last->kind == KIND_TRAP) ||
        last->guard;
    uint64_t *out = p->out + (size_t)b * p->n_words, *in = p->in + (size_t)b * p->n_words;
    const uint64_t *next = falls && b + 1 < p->n_blocks ? in + p->n_words : NULL;
    const uint64_t *taken =
        last->kind == KIND_BRANCH ? p->in + (size_t)p->block_of[last->target] * p->n_words : NULL;
    bool grew = false;
    for (uint32_t w = 0; w < p->n_words; w++) {
        out[w] |= (next ? next[w] : 0) | (taken ? taken[w] : 0);
        uint64_t live =
            p->uses[(size_t)b * p->n_words + w] | (out[w] & ~p->defs[(size_t)b * p->n_words + w]);
        grew = grew || live != in[w];
        in[w] = live;
    }
    return grew;
}

static void find_ranges(struct packing *p)
{
    for (uint32_t i = 0; i < p->k->n_code; i++) {
        visit(p, i, note_use);
    }
    for (bool grew = true; grew;) {
        grew = false;
        for (uint32_t b = p->n_blocks; b-- > 0;) {
            grew |= flow(p, b);
        }
    }
    for (uint32_t i = 0; i < p->k->n_code; i++) {
        visit(p, i, extend);
    }
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        for (uint32_t reg = 0; reg < p->n; reg++) {
            if (has_bit(p->in + (size_t)b * p->n_words, reg)) {
                extend(p, p->leaders[b], reg, false);
            }
            if (has_bit(p->out + (size_t)b * p->n_words, reg)) {
                extend(p, p->leaders[b + 1] - 1, reg, false);
            }
        }
    }
}

static int by_start(const void *a, const void *b)
{
    const struct range *const *x = a, *const *y = b;
    return ((*x)->start > (*y)->start) - ((*x)->start < (*y)->start);
}

/* Hands out slots in order of the ranges' starts; free slots are those whose range ended before. */
static void scan(struct packing *p, uint32_t *file_bytes)
{
    struct module *m = &p->scratch;
    struct range **order = module_alloc(m, p->n * sizeof *order);
    uint32_t *ends[2], *places[2], n_slots[2] = {0}, n = 0;
    for (int wide = 0; wide < 2; wide++) {
        ends[wide] = module_alloc(m, p->n * sizeof **ends);
        places[wide] = module_alloc(m, p->n * sizeof **places);
    }
    for (uint32_t reg = 0; reg < p->n; reg++) {
        if (p->ranges[reg].end != UINT32_MAX && !p->is_fixed[reg]) {
            order[n++] = &p->ranges[reg];
        }
    }
    qsort(order, n, sizeof *order, by_start);
    for (uint32_t i = 0; i < n; i++) {
        int wide = order[i]->is_wide;
        uint32_t s = 0;
        while (s < n_slots[wide] && ends[wide][s] >= order[i]->start) {
            s++;
        }
        if (s == n_slots[wide]) {
            places[wide][n_slots[wide]++] = *file_bytes;
            *file_bytes += UNIT * (wide ? 2 : 1);
        }
        ends[wide][s] = order[i]->end;
        p->slots[order[i] - p->ranges] = places[wide][s];
    }
}

/* Constants and special registers come first, each with its own slot. */
static void place_fixed(struct packing *p, uint32_t *slot, bool is_wide, uint32_t *file_bytes)
{
    p->is_fixed[*slot / UNIT] = true;
    p->slots[*slot / UNIT] = *file_bytes;
    *slot = *file_bytes;
    *file_bytes += UNIT * (is_wide ? 2 : 1);
}

void pack_registers(struct kernel *k)
{
    struct packing packing = {.k = k, .n = k->file_bytes / UNIT}, *p = &packing;
    struct module *m = &p->scratch;
    find_blocks(p);
    p->n_words = (p->n + 63) / 64;
    size_t sets = (size_t)p->n_blocks * p->n_words * sizeof *p->in;
    if (sets > MAX_SET_BYTES) { /* a kernel of that size runs slowly anyway */
        module_release_memory(m);
        return;
    }
    uint64_t **all[] = {&p->in, &p->out, &p->uses, &p->defs};
    for (int i = 0; i < 4; i++) {
        *all[i] = module_alloc(m, sets);
    }
    p->ranges = module_alloc(m, p->n * sizeof *p->ranges);
    p->is_fixed = module_alloc(m, p->n * sizeof *p->is_fixed);
    p->slots = module_alloc(m, p->n * sizeof *p->slots);
    for (uint32_t reg = 0; reg < p->n; reg++) {
        p->ranges[reg] = (struct range){UINT32_MAX, UINT32_MAX, k->is_wide[reg]};
    }
    uint32_t file_bytes = 2 * UNIT; /* slot 0: zeros */
    for (uint32_t i = 0; i < k->n_constants; i++) {
        place_fixed(p, &k->constants[i].slot, k->constants[i].bytes == 8, &file_bytes);
    }
    for (uint32_t i = 0; i < k->n_specials; i++) {
        place_fixed(p, &k->specials[i].slot, k->is_wide[k->specials[i].slot / UNIT], &file_bytes);
    }
    find_ranges(p);
    scan(p, &file_bytes);
    for (uint32_t i = 0; i < k->n_code; i++) {
        struct instruction *in = &k->code[i];
        in->guard = in->guard ? p->slots[in->guard / UNIT] : 0;
        for (uint32_t r = 0; r < MAX_OPERANDS; r++) {
            in->r[r] = in->r[r] ? p->slots[in->r[r] / UNIT] : 0;
        }
    }
    k->file_bytes = file_bytes;
    module_release_memory(m);
}
