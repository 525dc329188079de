/* The key of a callable's plans: what decides a plan beside the trace, each part with the words
 * that a report names it by. Learning rate, betas and the like are scalars of the step, no parts.
 */
#include <string.h>

#include "frontend/callable.h"
#include "runtime/cache.h"

/* Whatever of the training step's options is built into its graph. */
static uint64_t train_hash(const struct train_options *o)
{
    const struct schedule *s = &o->schedule;
    const struct scaler *c = &o->scaler;
    const int64_t whole[] = {(int64_t)o->optimizer, o->is_nesterov,     o->is_maximize,
                             o->weight_decay != 0,  o->momentum != 0,   (int64_t)s->kind,
                             s->step_size,          s->t_max,           s->warmup,
                             o->max_norm > 0,       c->is_enabled,      c->interval,
                             o->accumulate,         o->skips_nonfinite, o->allows_low_params};
    const double real[] = {o->dampening, s->gamma,   s->eta_min, s->warmup_start, s->warmup_end,
                           c->growth,    c->backoff, c->floor,   c->ceiling};
    return hash_bytes(real, sizeof real, hash_bytes(whole, sizeof whole, 0));
}

/* "w,b" as "gradients of w, b" */
static const char *gradients_text(const char *names, struct arena *a)
{
    struct text t = {.arena = a};
    text_add(&t, "gradients of ");
    for (const char *p = names; *p != '\0'; p++) {
        text_add(&t, *p == ',' ? ", " : "%c", *p);
    }
    return t.data;
}

static const char *grad_text(const struct compile_options *o, struct arena *a)
{
    static const char *const optimizers[] = {"adamw", "adam", "sgd", "lion"};
    if (o->train != NULL) {
        return arena_text(a, "training step, %s", optimizers[o->train->optimizer]);
    }
    if (o->wants_gradients && o->gradients != NULL) {
        return gradients_text(o->gradients, a);
    }
    return o->wants_gradients ? "gradients" : "forward";
}

static void set_part(struct key *k, enum key_part part, const char *text, uint64_t behind)
{
    k->texts[part] = text;
    k->hashes[part] = hash_text(text, behind);
    k->hash = hash_u64(k->hashes[part], k->hash);
}

void key_of_options(const struct compile_options *o, struct arena *arena, struct key *out)
{
    struct cache_key c;
    uint64_t unfused = (uint64_t)o->is_unfused << 1 | (uint64_t)o->is_eager;
    cache_key_of(&o->cc, NULL, NULL, 0, &c);
    const char *place = o->device != NULL ? o->device->name : "cpu";
    const char *arch = o->device != NULL ? o->device->arch : c.texts[CACHE_ARCH];
    const char *compiler =
        arena_text(arena, "%s, %s", c.texts[CACHE_COMPILER], c.texts[CACHE_FLAGS]);
    *out = (struct key){.hash = hash_u64(unfused, 1), .gradients = o->gradients};
    set_part(out, KEY_POLICY, o->policy != NULL ? o->policy->name : "fp32",
             o->policy != NULL ? policy_hash(o->policy) : 0);
    set_part(out, KEY_ROUNDING, o->is_relaxed ? "relaxed" : "strict", 0);
    set_part(out, KEY_GRAD, grad_text(o, arena), o->train != NULL ? train_hash(o->train) : 0);
    set_part(out, KEY_RUNS_ON, arena_text(arena, "%.*s", (int)strcspn(place, " "), place), 0);
    set_part(out, KEY_ARCHITECTURE, arena_copy_text(arena, arch), c.hashes[CACHE_ARCH]);
    set_part(out, KEY_COMPILER, o->device != NULL ? "NVRTC" : compiler, 0);
    set_part(out, KEY_LIBRARIES, o->device != NULL ? "cuBLASLt" : contraction_library(), 0);
    set_part(out, KEY_VERSION, ATOLL_VERSION_TEXT, 0);
}
