/* Frozen calls: what an earlier trace recorded stands for running the function again; facts of the
 * arguments at hand go into its vector, and guards decide. Invariant: what is kept never changes,
 * so that it may be read under no lock. */
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

static void free_one(struct frozen *z)
{
    if (z != NULL) {
        free(z->facts);
        free(z->numbers);
        free(z->is_number);
        free(z);
    }
}

void frozen_free(struct atoll_compiled *f)
{
    for (uint32_t i = 0; i < f->n_frozen; i++) {
        free_one(f->frozen[i]);
    }
}

static bool argument_facts(const atoll_view *v, int64_t *facts)
{
    if (v->rank > MAX_RANK) {
        return false;
    }
    const char *expected = dtype_info[facts[FACT_DTYPE]].name;
    enum dtype dtype = (enum dtype)facts[FACT_DTYPE];
    if (v->dtype != expected && strcmp(v->dtype, expected) != 0) {
        dtype = dtype_named(v->dtype, strlen(v->dtype));
    }
    trace_leaf_facts(facts, dtype, DEVICE_CPU, v->rank, v->shape);
    return true;
}

/* What an earlier trace recorded, with the facts of these arguments: true when a plan holds. */
static bool find_frozen(struct atoll_compiled *f, const struct frozen *z, const atoll_view *v,
                        int64_t *facts, struct called *out)
{
    memcpy(facts, z->facts, z->n_facts * sizeof *facts);
    for (uint32_t i = 0; i < z->n_arguments; i++) {
        if (!argument_facts(&v[i], &facts[i * FACTS_A_LEAF])) {
            return false;
        }
    }
    struct trace t = {.hash = z->hash,
                      .key = &f->last.key,
                      .n_leaves = z->n_leaves,
                      .facts = facts,
                      .n_facts = z->n_facts};
    return callable_find(f->engine, &t, out);
}

enum { FROZEN_FACTS = 4096, FROZEN_LEAVES = 512 };

/* true: the call is done, as *code says. */
bool frozen_call(struct atoll_compiled *f, const atoll_view *v, uint32_t n, atoll_results *results,
                 status *code, struct error *e)
{
    int64_t facts[FROZEN_FACTS];
    const void *ordered[FROZEN_LEAVES];
    struct called out;
    pthread_mutex_lock(&f->lock);
    uint32_t n_frozen = f->n_frozen; /* those there are stay as they are */
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < n_frozen; i++) {
        const struct frozen *z = f->frozen[i];
        if (z->n_arguments != n || !find_frozen(f, z, v, facts, &out)) {
            continue;
        }
        for (uint32_t k = 0; k < z->n_leaves; k++) {
            ordered[k] = k < n ? v[k].data : z->is_number[k] ? &z->numbers[k] : NULL;
        }
        *code = plan_run(out.plan, out.symbols, ordered, results_take, results, e);
        callable_done(f->engine, &out);
        return true;
    }
    return false;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    if (to != NULL && bytes > 0) {
        memcpy(to, from, bytes);
    }
    return to;
}

/* Keeps what a call without breaks, and without a look at its data, recorded. */
void frozen_keep(struct running *r, uint32_t n_arguments)
{
    struct atoll_compiled *f = r->f;
    uint64_t hash = segment_hash(r, true);
    size_t bytes = r->n_facts * sizeof *r->facts;
    if (r->call != 0 || r->reads_data || r->n_facts > FROZEN_FACTS ||
        r->n_ordered > FROZEN_LEAVES) {
        return;
    }
    pthread_mutex_lock(&f->lock);
    bool is_known = f->n_frozen == MAX_FROZEN;
    for (uint32_t i = 0; i < f->n_frozen; i++) {
        const struct frozen *z = f->frozen[i];
        is_known = is_known || (z->hash == hash && z->n_facts == r->n_facts &&
                                memcmp(z->facts, r->facts, bytes) == 0);
    }
    struct frozen *z = is_known ? NULL : calloc(1, sizeof *z);
    if (z != NULL) {
        *z = (struct frozen){.hash = hash,
                             .n_arguments = n_arguments,
                             .n_leaves = r->n_ordered,
                             .n_facts = r->n_facts};
        z->facts = copy_of(r->facts, bytes);
        z->numbers = copy_of(r->trace->numbers, r->n_ordered * sizeof *z->numbers);
        z->is_number = calloc(r->n_ordered + 1, sizeof *z->is_number);
        if (z->facts == NULL || z->numbers == NULL || z->is_number == NULL) {
            free_one(z);
        } else {
            for (uint32_t i = 0; i < r->n_ordered; i++) {
                z->is_number[i] = r->ordered[i] == (const void *)&r->trace->numbers[i];
            }
            f->frozen[f->n_frozen++] = z;
        }
    }
    pthread_mutex_unlock(&f->lock);
}
