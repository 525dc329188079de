/* Runs a launch: its blocks, in a random order, on several host threads, each with memory for one
 * block. Constants and special registers are slots that are filled here. Below: block_run in
 * execute.c. Invariant: after a fatal finding no further block starts. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_types.h"
#include "executor.h"

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

/* Once for a launch; what differs between blocks, again when a block starts. */
static void fill_specials(struct warp *w, bool is_start)
{
    const struct kernel *k = w->block->launch->kernel;
    for (uint32_t i = 0; i < k->n_specials; i++) {
        enum special id = k->specials[i].id;
        if (is_start && !(id >= SPECIAL_CTAID_X && id <= SPECIAL_CTAID_Z) && id != SPECIAL_SMID) {
            continue;
        }
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
        fill_specials(w, true);
    }
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
    b->files = aligned_alloc(64, file * b->n_warps);
    if (!b->shared || !b->cells || !b->local || !b->local_state || !b->warps || !b->files) {
        return false;
    }
    memset(b->files, 0, file * b->n_warps);
    memset(b->warps, 0, bytes);
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        w->file = b->files + i * file;
        w->block = b;
        w->code = k->code;
        w->index = i;
        fill_constants(w);
        fill_specials(w, false);
    }
    return true;
}

static void close_block(struct block *b)
{
    free(b->files);
    free(b->warps);
    free(b->local_state);
    free(b->local);
    free(b->cells);
    free(b->shared);
}

/* ---- host threads ---- */

/* The blocks of a launch, dealt out one by one. */
struct deal {
    struct launch *launch;
    uint64_t n, next, first, stride;
    bool is_over; /* no worker may join any more */
    int n_working;
};

static void work(struct deal *d)
{
    struct launch *l = d->launch;
    struct block b = {0};
    if (!open_block(&b, l)) {
        __atomic_store_n(&l->error, CUDA_ERROR_OUT_OF_MEMORY, __ATOMIC_RELAXED);
    }
    for (;;) {
        uint64_t i = __atomic_fetch_add(&d->next, 1, __ATOMIC_RELAXED);
        if (i >= d->n || __atomic_load_n(&l->error, __ATOMIC_RELAXED)) {
            break;
        }
        start_block(&b, (uint32_t)((d->first + i * d->stride) % d->n));
        block_run(&b);
    }
    close_block(&b);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t come, gone;
    struct deal *deal;
    int n_threads;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .come = PTHREAD_COND_INITIALIZER,
          .gone = PTHREAD_COND_INITIALIZER};

static void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        struct deal *d = pool.deal;
        if (!d || d->is_over || __atomic_load_n(&d->next, __ATOMIC_RELAXED) >= d->n) {
            pthread_cond_wait(&pool.come, &pool.lock);
            continue;
        }
        d->n_working++;
        pthread_mutex_unlock(&pool.lock);
        work(d);
        pthread_mutex_lock(&pool.lock);
        d->n_working--;
        pthread_cond_broadcast(&pool.gone);
    }
    return NULL;
}

/* Starts threads that wait for work until the process ends; fewer than wanted is fine. */
static void start_threads(int wanted)
{
    while (pool.n_threads < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0) {
            return;
        }
        pthread_detach(thread);
        pool.n_threads++;
    }
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

#define WORTH_THREADS 8192 /* threads of a launch below which waking host threads costs more */

void launch_run(struct launch *l)
{
    uint64_t n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t threads = n * l->block[0] * l->block[1] * l->block[2];
    struct deal d = {.launch = l, .n = n, .first = l->seed % n, .stride = (l->seed >> 20) % n | 1u};
    while (gcd(d.stride, n) != 1) {
        d.stride++;
    }
    bool is_shared = n > 1 && threads >= WORTH_THREADS && emulator_threads() > 1;
    if (is_shared) {
        pthread_mutex_lock(&pool.lock);
        start_threads(emulator_threads() - 1);
        pool.deal = &d;
        pthread_cond_broadcast(&pool.come);
        pthread_mutex_unlock(&pool.lock);
    }
    work(&d);
    if (is_shared) {
        pthread_mutex_lock(&pool.lock);
        d.is_over = true;
        while (d.n_working) {
            pthread_cond_wait(&pool.gone, &pool.lock);
        }
        pool.deal = NULL;
        pthread_mutex_unlock(&pool.lock);
    }
}
