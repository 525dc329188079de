/* Instructions in which lanes of a warp work together. They run once all lanes of the member mask
 * stand at them (execute.c); a lane that reads from one that is not there gets a finding. */
#include "executor.h"

#include "scalar.h"

/* shfl.sync: a value, b lane or distance, c clamp and segment mask. */
void run_shuffle(struct warp *w, const struct instruction *in)
{
    const uint32_t *a = lanes32(w, in->r[1]), *b = lanes32(w, in->r[2]), *c = lanes32(w, in->r[3]);
    uint32_t result[LANES], inside[LANES];
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t distance = b[l] & 31u, clamp = c[l] & 31u, segment = c[l] >> 8 & 31u;
        uint32_t most = (l & segment) | (clamp & ~segment), least = l & segment;
        uint32_t from = in->action == 0   ? l - distance
                        : in->action == 1 ? l + distance
                        : in->action == 2 ? l ^ distance
                                          : least | (distance & ~segment);
        bool is_inside = in->action == 0 ? (int32_t)from >= (int32_t)most : from <= most;
        from = is_inside ? from : l;
        result[l] = a[from & 31u];
        inside[l] = is_inside ? UINT32_MAX : 0;
        if (w->bits >> l & 1u && !(w->bits >> (from & 31u) & 1u)) {
            warp_report(w, in, l, FINDING_WARP_SYNC, "reads from lane %u, which does not take part",
                        from);
        }
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[0])[l] = result[l];
            if (in->r[5]) {
                lanes32(w, in->r[5])[l] = inside[l];
            }
        }
    }
}

void run_vote(struct warp *w, const struct instruction *in)
{
    const uint32_t *a = lanes32(w, in->r[1]), *members = lanes32(w, in->r[4]);
    uint32_t yes = 0, result[LANES];
    for (uint32_t l = 0; l < LANES; l++) {
        yes |= (a[l] & 1u) << l;
    }
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t all = w->bits & members[l], mine = yes & all;
        uint32_t answers[4] = {mine == all, mine != 0, mine == all || mine == 0, mine};
        result[l] = in->action == 3 ? mine : 0u - answers[in->action];
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[0])[l] = result[l];
        }
    }
}

void run_match(struct warp *w, const struct instruction *in)
{
    const uint32_t *a = lanes32(w, in->r[1]), *members = lanes32(w, in->r[4]);
    uint32_t result[LANES] = {0};
    for (uint32_t l = 0; l < LANES; l++) {
        for (uint32_t i = 0; i < LANES; i++) {
            result[l] |= (a[i] == a[l] ? w->bits & members[l] : 0) & 1u << i;
        }
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[0])[l] = result[l];
        }
    }
}

static uint32_t reduce(const struct instruction *in, uint32_t x, uint32_t y)
{
    bool is_less = in->is_signed ? (int32_t)x < (int32_t)y : x < y;
    switch (in->action) {
    case 0:
        return x + y;
    case 1:
        return is_less ? x : y;
    case 2:
        return is_less ? y : x;
    case 3:
        return x & y;
    case 4:
        return x | y;
    default:
        return x ^ y;
    }
}

void run_redux(struct warp *w, const struct instruction *in)
{
    const uint32_t *a = lanes32(w, in->r[1]), *members = lanes32(w, in->r[4]);
    uint32_t result[LANES];
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t all = w->bits & members[l];
        result[l] = all ? a[__builtin_ctz(all)] : 0;
        for (uint32_t rest = all & (all - 1); rest; rest &= rest - 1) {
            result[l] = reduce(in, result[l], a[__builtin_ctz(rest)]);
        }
    }
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[0])[l] = result[l];
        }
    }
}

void run_warp_barrier(struct warp *w, const struct instruction *in)
{
    (void)in;
    w->sync++;
}

void run_active_mask(struct warp *w, const struct instruction *in)
{
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[0])[l] = w->bits;
        }
    }
}

/* bar.red: the result of all threads of the barrier into the lanes of the mask. */
void finish_barrier_reduction(struct warp *w, const struct instruction *in, uint32_t popc, bool all,
                              bool any)
{
    uint32_t value = in->action == 0 ? popc : 0u - (uint32_t)(in->action == 1 ? all : any);
    for (uint32_t l = 0; l < LANES; l++) {
        if (w->bits >> l & 1u) {
            lanes32(w, in->r[2])[l] = value;
        }
    }
}
