/* Options of one call: policy, rounding, device, gradients. Each combination is a way to compile,
 * made when a call first asks for it. Which leaves want a gradient is known when the function has
 * recorded them, so the way of the last segment is found then; where nothing wants one it is that
 * of a call without gradients. Invariant: a way never changes once it is among the others. */
#include "compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/file.h"

struct request {
    struct atoll_compiled *f;
    const struct policy *policy;
    bool is_relaxed;
    struct device *device; /* NULL: the CPU */
    const char *gradients; /* NULL: none */
    struct way *made;
};

static status make_body(void *context)
{
    struct request *q = context;
    struct way *w = q->made;
    w->options = q->f->forward.options;
    w->options.policy = q->policy;
    w->options.is_relaxed = q->is_relaxed;
    w->options.device = q->device;
    w->options.wants_gradients = q->gradients != NULL;
    w->options.gradients = q->gradients != NULL ? arena_copy_text(&w->arena, q->gradients) : NULL;
    key_of_options(&w->options, &w->arena, &w->key);
    return ATOLL_OK;
}

static bool is_way(const struct way *w, const struct request *q)
{
    const char *names = w->options.gradients;
    return w->options.policy == q->policy && w->options.is_relaxed == q->is_relaxed &&
           w->options.device == q->device && (names == NULL) == (q->gradients == NULL) &&
           (names == NULL || strcmp(names, q->gradients) == 0);
}

/* Under the lock. */
static const struct way *among(const struct atoll_compiled *f, const struct request *q)
{
    if (is_way(&f->forward, q)) {
        return &f->forward;
    }
    const struct way *w = f->ways;
    while (w != NULL && !is_way(w, q)) {
        w = w->next;
    }
    return w;
}

static status find_way(struct request *q, const struct way *forward, const struct way **out,
                       struct error *e)
{
    struct atoll_compiled *f = q->f;
    status code = ATOLL_OK;
    pthread_mutex_lock(&f->lock);
    *out = among(f, q);
    if (*out == NULL) {
        q->made = calloc(1, sizeof *q->made);
        code = q->made != NULL ? run_recoverable(make_body, q, e)
                               : fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
        if (code == ATOLL_OK) {
            q->made->forward = forward != NULL ? forward : q->made;
            q->made->next = f->ways;
            *out = f->ways = q->made;
        } else if (q->made != NULL) {
            arena_free(&q->made->arena);
            free(q->made);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static status wrong(const struct running *r, struct error *e, const char *what, const char *found,
                    const char *hint)
{
    return fail(e, ATOLL_USAGE, "%s:%u: call options: %s%.200s%s", r->site.file, r->site.line, what,
                found, hint);
}

struct unknown {
    const char *policy;
    struct error *e;
};

/* Says which policies there are: the names take memory. */
static status unknown_body(void *context)
{
    const struct unknown *u = context;
    const struct policy *none;
    return policy_named(u->policy, &none, u->e);
}

status way_begin(struct running *r, struct error *e)
{
    const atoll_call_options *o = r->options;
    struct atoll_compiled *f = r->f;
    r->way = &f->last;
    if (o == NULL) {
        return ATOLL_OK;
    }
    struct request q = {.f = f,
                        .policy = f->forward.options.policy,
                        .is_relaxed = f->forward.options.is_relaxed,
                        .device = f->forward.options.device};
    if (f->last.options.train != NULL) {
        return wrong(r, e, "@", f->name,
                     " has an optimizer: its gradients and its policy are its "
                     "own; hint: compile the function again without one");
    }
    if (!o->with_gradients && (o->wrt != NULL || o->frozen != NULL)) {
        return wrong(r, e, o->wrt != NULL ? "wrt" : "frozen", "",
                     " without gradients; hint: .with_gradients = 1");
    }
    if (o->policy != NULL) {
        q.policy = policy_builtin(o->policy);
        struct unknown u = {o->policy, e};
        if (q.policy == NULL) {
            return run_recoverable(unknown_body, &u, e);
        }
    }
    if (o->rounding != NULL) {
        q.is_relaxed = strcmp(o->rounding, "relaxed") == 0;
        if (!q.is_relaxed && strcmp(o->rounding, "strict") != 0) {
            return wrong(r, e, "rounding is '", o->rounding, "', expected strict or relaxed");
        }
    }
    if (o->device != NULL) {
        TRY(compiled_device(f, o->device, &q.device, e));
    }
    return find_way(&q, NULL, &r->way, e);
}

/* ---- gradients ---- */

static status add_name(struct running *r, uint32_t *length, const char *name, struct error *e)
{
    size_t n = strlen(name);
    if (!tape_room(r->trace, &r->names, &r->names_room, *length + n + 2, 1)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    if (*length > 0) {
        r->names[(*length)++] = ',';
    }
    memcpy(r->names + *length, name, n + 1);
    *length += (uint32_t)n;
    return ATOLL_OK;
}

/* The recorded leaf of this name and op; 0: none. */
static uint32_t leaf_named(const struct atoll_trace *t, enum op op, const char *name, size_t length)
{
    for (uint32_t i = 0; i < t->n_calls; i++) {
        const struct capture_call *c = &t->calls[i];
        const char *own = c->leaf != 0 ? capture_text(t, c->name) : NULL;
        if (own != NULL && (t->tape[c->at] & 0xffff) == op && strncmp(own, name, length) == 0 &&
            own[length] == '\0') {
            return c->leaf;
        }
    }
    return 0;
}

static bool is_float_leaf(const struct atoll_trace *t, uint32_t leaf)
{
    return dtype_is_float((enum dtype)t->leaves[(leaf - 1) * FACTS_A_LEAF + FACT_DTYPE]);
}

static status check_names(struct running *r, enum op op, const char *list, struct error *e)
{
    const struct atoll_trace *t = r->trace;
    for (const char *p = list != NULL ? list : ""; *p != '\0';) {
        size_t n = strcspn(p, ",");
        char name[128];
        snprintf(name, sizeof name, "%.*s", n < 127 ? (int)n : 127, p);
        uint32_t leaf = leaf_named(t, op, p, n);
        if (leaf == 0) {
            return wrong(r, e, op == OP_input ? "wrt: no argument '" : "frozen: no param '", name,
                         "' was recorded");
        }
        if (!is_float_leaf(t, leaf)) {
            return wrong(r, e, op == OP_input ? "wrt: argument '" : "frozen: param '", name,
                         "' is no float: it has no gradient");
        }
        p += n + (p[n] == ',');
    }
    return ATOLL_OK;
}

/* What breaks brought to the host stood in for what it was computed from; a gradient has to go
 * through that, so the last segment computes it again, with the same bits. */
static void forget_brought(struct atoll_trace *t)
{
    for (uint32_t i = 0; i < t->n_calls; i++) {
        t->calls[i].here = 0;
    }
    capture_forget_graph(t);
}

status way_last(struct running *r, uint32_t n_arguments, struct error *e)
{
    struct atoll_trace *t = r->trace;
    const atoll_call_options *o = r->options;
    uint32_t length = 0;
    bool is_broken = r->call != 0;
    if (is_broken && r->way->options.train != NULL) {
        forget_brought(t);
    }
    if (o == NULL || !o->with_gradients) {
        return ATOLL_OK;
    }
    TRY(check_names(r, OP_input, o->wrt, e));
    TRY(check_names(r, OP_param, o->frozen, e));
    for (uint32_t i = 0; i < t->n_calls; i++) {
        const struct capture_call *c = &t->calls[i];
        if (c->leaf == 0 || !is_float_leaf(t, c->leaf)) {
            continue;
        }
        const char *name = capture_text(t, c->name);
        bool is_argument = i < n_arguments;
        bool is_param = (t->tape[c->at] & 0xffff) == OP_param;
        if ((is_argument && list_has(o->wrt, name)) || (is_param && !list_has(o->frozen, name))) {
            TRY(add_name(r, &length, name, e));
        }
    }
    if (length == 0) {
        return ATOLL_OK;
    }
    if (is_broken) {
        forget_brought(t);
    }
    const struct compile_options *now = &r->way->options;
    struct request q = {.f = r->f,
                        .policy = now->policy,
                        .is_relaxed = now->is_relaxed,
                        .device = now->device,
                        .gradients = r->names};
    return find_way(&q, r->way->forward, &r->way, e);
}

void ways_free(struct atoll_compiled *f)
{
    while (f->ways != NULL) {
        struct way *w = f->ways;
        f->ways = w->next;
        arena_free(&w->arena);
        free(w);
    }
}
