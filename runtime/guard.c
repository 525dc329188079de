/* Checking guards, and the words for one that fails. The check is the hot half: a loop over plain
 * rows that stops at the first failure. */
#include "guard.h"

#include <inttypes.h>
#include <string.h>

const struct guard_kind_row guard_kinds[N_GUARD_KINDS] = {
#define X(name, json, doc) {json, doc},
#include "runtime/guard.def"
#undef X
};

enum guard_kind guard_kind_named(const char *name)
{
    uint32_t i = 0;
    while (i < N_GUARD_KINDS && strcmp(guard_kinds[i].name, name) != 0) {
        i++;
    }
    return (enum guard_kind)i;
}

/* value * high == low * product of the others; a product beyond 64 bits equals nothing. */
static bool size_holds(const struct guard *g, const int64_t *facts)
{
    int64_t right = g->low, left;
    for (uint32_t i = 0; i < g->n_others; i++) {
        if (__builtin_mul_overflow(right, facts[g->others[i]], &right)) {
            return false;
        }
    }
    return !__builtin_mul_overflow(facts[g->slot], g->high, &left) && left == right;
}

bool guard_holds(const struct guard *g, const int64_t *facts)
{
    int64_t v = facts[g->slot];
    switch (g->kind) {
    case GUARD_DTYPE:
    case GUARD_DEVICE:
    case GUARD_RANK:
    case GUARD_DIM:
        return v == g->low;
    case GUARD_DIM_RANGE:
        return v >= g->low && v <= g->high;
    case GUARD_DIM_DIVISIBLE:
        return v % g->low == 0;
    case GUARD_DIM_SAME:
        return v == facts[g->others[0]];
    case GUARD_SIZE:
        return size_holds(g, facts);
    default:
        return false; /* of the key and the trace: held against each other elsewhere */
    }
}

bool guards_hold(const struct guard_set *s, const int64_t *facts, uint32_t n_facts)
{
    if (n_facts != s->n_facts) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!guard_holds(&s->guards[i], facts)) {
            return false;
        }
    }
    return true;
}

/* ---- words ---- */

static const char *fact_text(enum guard_kind kind, int64_t v, struct arena *a)
{
    if (kind == GUARD_DTYPE && v >= 0 && v < N_DTYPES) {
        return arena_copy_text(a, dtype_info[v].name);
    }
    if (kind == GUARD_DEVICE) {
        return v == DEVICE_CPU ? arena_copy_text(a, "cpu") : arena_text(a, "cuda:%" PRId64, v);
    }
    return arena_text(a, "%" PRId64, v);
}

/* The subject of the guard that a slot has first: "dim 0 of y". */
static const char *subject_of(const struct guard_set *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->guards[i].slot == slot) {
            return s->guards[i].source.subject;
        }
    }
    return "another dim";
}

static const char *size_text(const struct guard_set *s, const struct guard *g, struct arena *a)
{
    struct text t = {.arena = a};
    bool has_factor = g->low != 1 || g->n_others == 0;
    if (has_factor) {
        text_add(&t, "%" PRId64, g->low);
    }
    for (uint32_t i = 0; i < g->n_others; i++) {
        text_add(&t, "%s%s", i > 0 || has_factor ? " * " : "", subject_of(s, g->others[i]));
    }
    if (g->high != 1) {
        text_add(&t, " / %" PRId64, g->high);
    }
    return t.data;
}

const char *guard_expects(const struct guard_set *s, const struct guard *g, const int64_t *facts,
                          struct arena *a)
{
    switch (g->kind) {
    case GUARD_DIM_RANGE:
        return g->high == INT64_MAX ? arena_text(a, "%" PRId64 " or more", g->low)
                                    : arena_text(a, "%" PRId64 " to %" PRId64, g->low, g->high);
    case GUARD_DIM_DIVISIBLE:
        return arena_text(a, "a multiple of %" PRId64, g->low);
    case GUARD_DIM_SAME:
        return facts == NULL ? arena_copy_text(a, subject_of(s, g->others[0]))
                             : arena_text(a, "%s (%" PRId64 ")", subject_of(s, g->others[0]),
                                          facts[g->others[0]]);
    case GUARD_SIZE:
        return size_text(s, g, a);
    default:
        return fact_text(g->kind, g->low, a);
    }
}

const char *guard_found(const struct guard *g, const int64_t *facts, struct arena *a)
{
    return fact_text(g->kind, facts[g->slot], a);
}
