/* The algorithms a session's contractions take on its device, chosen at once for the sizes that are
 * bound, so that a plan can record them. Products with scales are chosen by the first step: the
 * choice looks at the scales' addresses. */
#include "session_internal.h"

status session_choices(struct session *s, const struct contraction_choice **out, uint32_t *n,
                       struct error *e)
{
    void *const *args = s->pointers;
    const struct backend *backend = s->device->backend;
    for (uint32_t i = 0; i < s->p->n_launches; i++) {
        const struct launch *l = &s->p->launches[i];
        const struct contraction *c = &s->contractions[i];
        if (l->kind == LAUNCH_CONTRACTION && !session_is_scaled(s, l)) {
            TRY(backend->choose(s->device, c, args[0], args[1], c->has_bias ? args[2] : NULL,
                                args[l->n_reads], e));
        }
        args += l->n_args;
    }
    return backend->choices(s->device, out, n, e);
}
