/* Runs a launch: blocks on host threads, warps of a block in turns, lanes of a warp in groups. What
 * an instruction does lies in the tables (ops_*.def) and execute_*.c; here is only who runs when.
 * Invariant: a lane is running, waiting at a barrier, parked at a warp-wide instruction, or gone.
 */
#include "executor.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_types.h"

/* ---- groups of lanes ---- */

static void set_mask(struct warp *w, uint32_t bits)
{
    w->bits = bits;
    w->is_full = bits == 0xffffffffu;
    for (uint32_t l = 0; l < LANES; l++) {
        w->mask[l] = 0u - (bits >> l & 1u);
    }
}

static uint32_t true_lanes(const uint32_t *predicate)
{
    uint32_t bits = 0;
    for (uint32_t l = 0; l < LANES; l++) {
        bits |= (predicate[l] & 1u) << l;
    }
    return bits;
}

/* The lanes at the lowest position, that position, and the lowest one above it. */
struct group {
    uint32_t bits, pc, limit;
    bool is_forced; /* parked lanes that run though lanes they wait for never came */
};

static bool choose_group(struct warp *w, struct group *g)
{
    uint32_t candidates = w->alive & ~w->waiting & ~w->parked;
    *g = (struct group){.pc = UINT32_MAX, .limit = UINT32_MAX};
    if (!candidates && w->parked) {
        candidates = w->parked;
        g->is_forced = true;
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (candidates >> l & 1u && w->pc[l] < g->pc) {
            g->pc = w->pc[l];
        }
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (candidates >> l & 1u && w->pc[l] == g->pc) {
            g->bits |= 1u << l;
        } else if (candidates >> l & 1u && w->pc[l] < g->limit) {
            g->limit = w->pc[l];
        }
    }
    w->parked &= ~g->bits;
    return g->bits != 0;
}

static void leave_group(struct warp *w, uint32_t bits, uint32_t pc)
{
    for (uint32_t l = 0; l < LANES; l++) {
        w->pc[l] = bits >> l & 1u ? pc : w->pc[l];
    }
}

/* ---- one group, until it ends, waits, or meets others ---- */

/* True when the lanes named by the member mask are all in the group; else parks the group, whose
 * run goes on when the others have come. */
static bool members_are_here(struct warp *w, const struct instruction *in, const struct group *g)
{
    const uint32_t *members = lanes32(w, in->r[4]);
    uint32_t lane = (uint32_t)__builtin_ctz(w->bits), wanted = members[lane] & w->alive;
    if (!(members[lane] >> lane & 1u)) {
        warp_report(w, in, lane, FINDING_WARP_SYNC, "its lane %u is not in the member mask 0x%x",
                    lane, members[lane]);
        return true;
    }
    if (!(wanted & ~g->bits)) {
        return true;
    }
    if (g->is_forced) {
        warp_report(w, in, lane, FINDING_WARP_SYNC,
                    "lanes 0x%x of the member mask 0x%x do not come here: the warp has diverged",
                    wanted & ~g->bits, members[lane]);
        return true;
    }
    return false;
}

static void wait_at_barrier(struct warp *w, const struct instruction *in, uint32_t pc)
{
    const uint32_t *barrier = lanes32(w, in->r[0]), *threads = lanes32(w, in->r[1]);
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            w->pc[l] = pc;
            w->barrier[l] = (uint8_t)(barrier[l] & 15u);
            w->expected[l] = threads[l];
        }
    }
    w->waiting |= w->bits;
}

/* Lanes of the group that the guard lets through. */
static uint32_t guarded(const struct warp *w, const struct instruction *in, uint32_t bits)
{
    uint32_t yes = true_lanes(lanes32(w, in->guard));
    return bits & (in->is_guard_negated ? ~yes : yes);
}

/* Everything but plain instructions. Returns the lanes that go on at *pc. */
static uint32_t run_control(struct warp *w, const struct instruction *in, struct group *g,
                            uint32_t *pc)
{
    uint32_t taken = w->bits, others = g->bits & ~taken;
    switch ((enum instruction_kind)in->kind) {
    case KIND_BRANCH:
        if (!others) {
            *pc = in->target;
            return g->bits;
        }
        leave_group(w, taken, in->target);
        leave_group(w, others, *pc + 1);
        return 0;
    case KIND_EXIT:
        w->alive &= ~taken;
        break;
    case KIND_BARRIER:
        wait_at_barrier(w, in, *pc);
        break;
    case KIND_WARP_SYNC:
        if (!members_are_here(w, in, g)) {
            leave_group(w, g->bits, *pc);
            w->parked |= g->bits;
            return 0;
        }
        in->run(w, in);
        ++*pc;
        return g->bits;
    case KIND_TRAP:
        warp_report(w, in, (uint32_t)__builtin_ctz(taken), FINDING_TRAP, "the kernel gave up");
        warp_stop(w, CUDA_ERROR_LAUNCH_FAILED);
        break;
    case KIND_PLAIN:
        break;
    }
    leave_group(w, others, *pc + 1);
    return 0;
}

#define STEP_LIMIT                                                                                 \
    ((uint64_t)1 << 36) /* thread instructions of one warp: minutes, not a kernel                  \
                         */

static void run_group(struct warp *w, struct group *g)
{
    uint32_t pc = g->pc;
    uint32_t lanes = (uint32_t)__builtin_popcount(g->bits);
    set_mask(w, g->bits);
    while (!w->block->is_stopped) {
        const struct instruction *in = &w->code[pc];
        bool is_guarded = in->guard != 0;
        if (is_guarded) {
            set_mask(w, guarded(w, in, g->bits));
        }
        w->steps += lanes;
        if (in->kind == KIND_PLAIN || !w->bits) {
            if (w->bits) {
                in->run(w, in);
            }
            pc++;
        } else {
            uint32_t target = pc;
            uint32_t going_on = run_control(w, in, g, &target);
            if (!going_on) {
                return;
            }
            pc = target;
        }
        if (is_guarded) {
            set_mask(w, g->bits);
        }
        if (pc >= g->limit) {
            break;
        }
        if (w->steps > STEP_LIMIT) {
            warp_report(w, in, (uint32_t)__builtin_ctz(g->bits), FINDING_HUNG,
                        "still running after %llu instructions", (unsigned long long)w->steps);
            warp_stop(w, CUDA_ERROR_LAUNCH_TIMEOUT);
        }
    }
    leave_group(w, g->bits, pc);
}

/* Until every lane has ended or waits at a barrier. */
static void run_warp(struct warp *w)
{
    struct group g;
    while (!w->block->is_stopped && choose_group(w, &g)) {
        run_group(w, &g);
    }
}

/* ---- barriers ---- */

struct arrival {
    uint32_t arrived, expected, popc, first_warp, first_lane;
    const struct instruction *at;
    bool all, is_mixed;
};

static void count_arrivals(struct block *b, uint32_t id, struct arrival *a)
{
    *a = (struct arrival){.all = true};
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        for (uint32_t l = 0; l < LANES; l++) {
            if (!(w->waiting >> l & 1u) || w->barrier[l] != id) {
                continue;
            }
            const struct instruction *in = &w->code[w->pc[l]];
            if (!a->at) {
                a->at = in;
                a->first_warp = i;
                a->first_lane = l;
            }
            bool is_true = in->r[3] && lanes32(w, in->r[3])[l];
            a->is_mixed = a->is_mixed || in != a->at;
            a->expected = w->expected[l] > a->expected ? w->expected[l] : a->expected;
            a->arrived++;
            a->popc += is_true;
            a->all = a->all && is_true;
        }
    }
}

static void release(struct block *b, uint32_t id, const struct arrival *a)
{
    b->epoch++;
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        uint32_t bits = 0;
        for (uint32_t l = 0; l < LANES; l++) {
            bits |= (w->waiting >> l & 1u && w->barrier[l] == id ? 1u : 0u) << l;
        }
        while (bits) { /* lanes may come from different barrier instructions */
            uint32_t pc = w->pc[__builtin_ctz(bits)], same = 0;
            for (uint32_t l = 0; l < LANES; l++) {
                same |= (bits >> l & 1u && w->pc[l] == pc ? 1u : 0u) << l;
            }
            set_mask(w, same);
            if (w->code[pc].r[2]) {
                finish_barrier_reduction(w, &w->code[pc], a->popc, a->all, a->popc != 0);
            }
            leave_group(w, same, pc + 1);
            w->waiting &= ~same;
            bits &= ~same;
        }
    }
}

/* Lets go every barrier that has what it needs. Hardware hangs or goes on with garbage where
 * threads are missing or stand at two barriers of one number: a finding, then on. */
static bool release_barriers(struct block *b)
{
    uint32_t alive = 0;
    for (uint32_t i = 0; i < b->n_warps; i++) {
        alive += (uint32_t)__builtin_popcount(b->warps[i].alive);
    }
    bool any = false;
    for (int pass = 0; pass < 2 && !any; pass++) {
        for (uint32_t id = 0; id < 16; id++) {
            struct arrival a;
            count_arrivals(b, id, &a);
            uint32_t wanted = a.expected ? a.expected : b->n_threads;
            if (!a.arrived || (pass == 0 && a.arrived < (a.expected ? wanted : alive))) {
                continue;
            }
            struct warp *w = &b->warps[a.first_warp];
            if (a.arrived < wanted) {
                warp_report(w, a.at, a.first_lane, FINDING_BARRIER,
                            "%u of %u threads come to barrier %u, the others %s", a.arrived, wanted,
                            id, alive < b->n_threads ? "have ended" : "wait elsewhere");
            } else if (a.is_mixed) {
                warp_report(
                    w, a.at, a.first_lane, FINDING_BARRIER,
                    "divergent: threads of the block stand at different barrier instructions");
            }
            release(b, id, &a);
            any = true;
        }
    }
    return any;
}

/* ---- blocks ---- */

static uint32_t special_value(const struct warp *w, enum special id, uint32_t lane, uint64_t *wide)
{
    const struct block *b = w->block;
    const struct launch *l = b->launch;
    uint32_t thread = thread_of(w, lane);
    *wide = 0;
    switch (id) {
    case SPECIAL_TID_X:
        return thread % l->block[0];
    case SPECIAL_TID_Y:
        return thread / l->block[0] % l->block[1];
    case SPECIAL_TID_Z:
        return thread / l->block[0] / l->block[1];
    case SPECIAL_NTID_X:
        return l->block[0];
    case SPECIAL_NTID_Y:
        return l->block[1];
    case SPECIAL_NTID_Z:
        return l->block[2];
    case SPECIAL_CTAID_X:
        return b->index[0];
    case SPECIAL_CTAID_Y:
        return b->index[1];
    case SPECIAL_CTAID_Z:
        return b->index[2];
    case SPECIAL_NCTAID_X:
        return l->grid[0];
    case SPECIAL_NCTAID_Y:
        return l->grid[1];
    case SPECIAL_NCTAID_Z:
        return l->grid[2];
    case SPECIAL_LANEID:
        return lane;
    case SPECIAL_WARPID:
        return w->index;
    case SPECIAL_NWARPID:
        return b->n_warps;
    case SPECIAL_SMID:
        return b->number % EMULATED_MULTIPROCESSORS;
    case SPECIAL_NSMID:
        return EMULATED_MULTIPROCESSORS;
    case SPECIAL_GRIDID:
        *wide = l->op;
        return 0;
    case SPECIAL_LANEMASK_EQ:
        return 1u << lane;
    case SPECIAL_LANEMASK_LT:
        return (1u << lane) - 1;
    case SPECIAL_LANEMASK_LE:
        return (2u << lane) - 1;
    case SPECIAL_LANEMASK_GT:
        return ~((2u << lane) - 1);
    case SPECIAL_LANEMASK_GE:
        return ~((1u << lane) - 1);
    case SPECIAL_DYNAMIC_SMEM_SIZE:
        return l->dynamic_shared;
    case SPECIAL_CLOCK:
    case SPECIAL_CLOCK64:
    case SPECIAL_GLOBALTIMER:
    case N_SPECIALS:
        break;
    }
    return 0; /* clocks stand still: a kernel whose result depends on them has none to compare */
}

static void fill_specials(struct warp *w)
{
    const struct kernel *k = w->block->launch->kernel;
    for (uint32_t i = 0; i < k->n_specials; i++) {
        enum special id = k->specials[i].id;
        bool is_wide = id == SPECIAL_GRIDID || id == SPECIAL_CLOCK64 || id == SPECIAL_GLOBALTIMER;
        for (uint32_t l = 0; l < LANES; l++) {
            uint64_t wide;
            uint32_t value = special_value(w, id, l, &wide);
            if (is_wide) {
                lanes64(w, k->specials[i].slot)[l] = wide;
            } else {
                lanes32(w, k->specials[i].slot)[l] = value;
            }
        }
    }
}

static void fill_constants(struct warp *w)
{
    const struct kernel *k = w->block->launch->kernel;
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const struct constant_slot *c = &k->constants[i];
        for (uint32_t l = 0; l < LANES; l++) {
            if (c->bytes == 8) {
                lanes64(w, c->slot)[l] = c->value;
            } else {
                lanes32(w, c->slot)[l] = (uint32_t)c->value;
            }
        }
    }
}

static void start_block(struct block *b, uint32_t number)
{
    struct launch *l = b->launch;
    b->number = number;
    b->index[0] = number % l->grid[0];
    b->index[1] = number / l->grid[0] % l->grid[1];
    b->index[2] = number / l->grid[0] / l->grid[1];
    b->first_epoch = ++b->epoch;
    b->is_stopped = false;
    if (l->kernel->local_bytes) {
        memset(b->local_state, 0, (size_t)b->n_threads * l->kernel->local_bytes);
    }
    memset(b->shared, 0xfb, b->shared_bytes);
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        uint32_t lanes = b->n_threads - i * LANES;
        w->alive = lanes >= LANES ? 0xffffffffu : (1u << lanes) - 1;
        w->waiting = w->parked = 0;
        w->steps = 0;
        memset(w->pc, 0, sizeof w->pc);
        fill_specials(w);
    }
}

static void run_block(struct block *b)
{
    uint64_t steps = 0;
    do {
        for (uint32_t i = 0; i < b->n_warps; i++) {
            run_warp(&b->warps[i]);
        }
    } while (!b->is_stopped && release_barriers(b));
    for (uint32_t i = 0; i < b->n_warps; i++) {
        steps += b->warps[i].steps;
    }
    __atomic_fetch_add(&b->launch->instructions, steps, __ATOMIC_RELAXED);
}

static bool open_block(struct block *b, struct launch *l)
{
    const struct kernel *k = l->kernel;
    b->launch = l;
    b->n_threads = l->block[0] * l->block[1] * l->block[2];
    b->n_warps = (b->n_threads + LANES - 1) / LANES;
    b->shared_bytes = k->shared_bytes + l->dynamic_shared;
    b->shared = calloc(1, b->shared_bytes + 16);
    b->cells = calloc(b->shared_bytes / k->shared_granule + 1, sizeof *b->cells);
    b->local = calloc((size_t)b->n_threads * k->local_bytes + 16, 1);
    b->local_state = calloc((size_t)b->n_threads * k->local_bytes + 16, 1);
    size_t bytes = sizeof *b->warps * b->n_warps;
    b->warps = aligned_alloc(64, (bytes + 63) / 64 * 64);
    size_t file = (k->file_bytes + 63u) / 64 * 64;
    uint8_t *files = aligned_alloc(64, file * b->n_warps);
    if (!b->shared || !b->cells || !b->local || !b->local_state || !b->warps || !files) {
        free(files);
        return false;
    }
    memset(files, 0, file * b->n_warps);
    memset(b->warps, 0, bytes);
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        w->file = files + i * file;
        w->block = b;
        w->code = k->code;
        w->index = i;
        fill_constants(w);
    }
    return true;
}

static void close_block(struct block *b)
{
    free(b->warps ? b->warps[0].file : NULL);
    free(b->warps);
    free(b->local_state);
    free(b->local);
    free(b->cells);
    free(b->shared);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

void launch_run(struct launch *l)
{
    uint64_t n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t first = l->seed % n, stride = (l->seed >> 20) % n | 1u;
    while (gcd(stride, n) != 1) {
        stride++;
    }
    int n_threads = n < 4 ? 1 : emulator_threads();
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        struct block b = {0};
        bool is_open = open_block(&b, l);
        if (!is_open) {
            __atomic_store_n(&l->error, CUDA_ERROR_OUT_OF_MEMORY, __ATOMIC_RELAXED);
        }
#pragma omp for schedule(dynamic, 1)
        for (uint64_t i = 0; i < n; i++) {
            if (is_open && !__atomic_load_n(&l->error, __ATOMIC_RELAXED)) {
                start_block(&b, (uint32_t)((first + i * stride) % n));
                run_block(&b);
            }
        }
        if (is_open || b.warps) {
            close_block(&b);
        }
    }
}
