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
    *g = (struct group){0};
    if (!candidates && w->parked) {
        candidates = w->parked;
        g->is_forced = true;
    }
    uint32_t at[LANES], lowest = UINT32_MAX, next = UINT32_MAX, bits = 0;
    for (uint32_t l = 0; l < LANES; l++) { /* no branches: these loops become vector code */
        at[l] = candidates >> l & 1u ? w->pc[l] : UINT32_MAX;
        lowest = at[l] < lowest ? at[l] : lowest;
    }
    for (uint32_t l = 0; l < LANES; l++) {
        bits |= (uint32_t)(at[l] == lowest) << l;
        uint32_t above = at[l] > lowest ? at[l] : UINT32_MAX;
        next = above < next ? above : next;
    }
    g->pc = lowest;
    g->limit = next;
    g->bits = bits & candidates;
    w->parked &= ~g->bits;
    return g->bits != 0;
}

static void leave_group(struct warp *w, uint32_t bits, uint32_t pc)
{
    for (uint32_t l = 0; l < LANES; l++) {
        w->pc[l] = bits >> l & 1u ? pc : w->pc[l]; /* vector code, too */
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

/* What makes lanes wait or end. Returns the lanes that go on at *pc. */
static uint32_t run_control(struct warp *w, const struct instruction *in, struct group *g,
                            uint32_t *pc)
{
    uint32_t taken = w->bits, others = g->bits & ~taken;
    switch ((enum instruction_kind)in->kind) {
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
    case KIND_BRANCH:
        break;
    }
    leave_group(w, others, *pc + 1);
    return 0;
}

/* An instruction with a guard, or one that may end the run of the group: false then. */
static bool run_guarded(struct warp *w, const struct instruction *in, struct group *g, uint32_t *pc)
{
    if (in->guard) {
        set_mask(w, guarded(w, in, g->bits));
    }
    bool goes_on = true;
    if (in->kind == KIND_PLAIN || !w->bits) {
        if (w->bits) {
            in->run(w, in);
        }
        ++*pc;
    } else {
        goes_on = run_control(w, in, g, pc) != 0;
    }
    if (in->guard) {
        set_mask(w, g->bits);
    }
    return goes_on;
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
        w->steps += lanes;
        if (in->kind == KIND_PLAIN && !in->guard) {
            in->run(w, in);
            pc++;
        } else if (in->kind == KIND_BRANCH) {
            uint32_t taken = in->guard ? guarded(w, in, g->bits) : g->bits;
            if (taken && taken != g->bits) {
                leave_group(w, taken, in->target);
                leave_group(w, g->bits & ~taken, pc + 1);
                return;
            }
            pc = taken ? in->target : pc + 1;
        } else if (!run_guarded(w, in, g, &pc)) {
            return;
        }
        if (pc >= g->limit) {
            break;
        }
        if (w->steps > w->block->launch->step_limit) {
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

void block_run(struct block *b)
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
