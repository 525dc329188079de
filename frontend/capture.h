/* A trace: the calls of a model, kept as a tape of words. Recording a call checks its handles,
 * writes it behind the others and hashes it on the way; nothing else, so that tracing a function
 * anew at each call is cheap. capture_graph makes the graph of it, types and shapes checked, each
 * mistake told at the line of its call; a trace that nobody calls again and again does so at once.
 * Invariant: value i of the trace is node i of the graph. */
#ifndef ATOLL_FRONTEND_CAPTURE_H
#define ATOLL_FRONTEND_CAPTURE_H

#include "atoll/atoll.h"
#include "ir/graph.h"
#include "runtime/guard.h"

/* Texts lie on the tape: their place, from 1; 0: none. */
typedef uint32_t tape_text;

struct capture_call {
    atoll_site site;
    tape_text name;
    uint32_t at;   /* its first word */
    uint32_t leaf; /* index + 1 among the leaves; 0: an op */
    uint32_t here; /* an op whose value a graph break brought to the host: a leaf from there on */
    uint32_t spelled; /* the first of its sizes among those spelled */
    bool is_used;     /* by an op */
};

struct capture_result { /* an output, or an update (of leaf) */
    atoll_site site;
    tape_text name;
    uint32_t leaf, value;
};

struct atoll_trace {
    uint32_t number; /* in its handles */
    bool is_lazy;    /* no graph until it is asked for */
    bool is_building;
    bool has_arguments;      /* all inputs there are */
    struct running *running; /* the call it is part of; NULL: none (compiled.h) */
    tape_text name;
    struct atoll_trace *older; /* of the traces open on this thread */
    struct error error;
    uint64_t hash; /* of all but sizes and dtypes of leaves, and sizes that ops spell */

    uint64_t *tape;
    struct capture_call *calls;
    struct capture_result *outputs, *updates;
    int64_t *leaves;   /* FACTS_A_LEAF numbers each */
    uint64_t *numbers; /* a leaf each: the value of a scalar, as stored */
    int64_t *spelled;  /* each size of each ATTR_DIMS of ops, in order */
    uint32_t n_tape, n_calls, n_outputs, n_updates, n_leaf_facts, n_spelled;
    uint32_t tape_room, call_room, output_room, update_room, leaf_room, number_room, spelled_room;

    tape_text symbols[MAX_SYMBOLS];
    uint32_t n_symbols; /* with the unused one */
    char scope[256];    /* "block1.attention." */
    uint32_t scopes[16], n_scopes;

    const uint32_t *prefix; /* a segment before the last: its outputs; NULL: the trace's own */
    uint32_t n_prefix;
    struct graph *graph; /* of the first n_built calls */
    uint32_t n_built, n_built_outputs, n_built_updates;
    struct arena arena; /* what atoll_trace_text lends */
};

/* Leaves names a size as symbol k by this, as dims are numbers in the public API. */
#define SYMBOL_SIZE(k) (INT64_MIN + (int64_t)(k))
static inline bool size_is_symbol(int64_t size)
{
    return size > INT64_MIN && size < INT64_MIN + MAX_SYMBOLS;
}

/* Records the first error of a trace, "file:line: " in front; returns code. */
status capture_fail(struct atoll_trace *t, atoll_site site, status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The trace of a value among those open on this thread; NULL and an error on the newest when there
 * is none: the value is stale or of another thread. */
struct atoll_trace *capture_of(atoll_site site, atoll_value v, const char *call);
/* A trace that is not among those open on a thread; open and close put it there and take it away,
 * around what a thread records. */
struct atoll_trace *capture_new(void);
void capture_open(struct atoll_trace *t);
void capture_close(struct atoll_trace *t);
/* Empties a trace for the next recording: its values become stale, its memory stays. */
void capture_reset(struct atoll_trace *t, const char *name);
static inline const char *capture_text(const struct atoll_trace *t, tape_text at)
{
    return at == 0 ? NULL : (const char *)&t->tape[at];
}

/* capture_tape.c: false and an error when there is no memory. */
bool tape_room(struct atoll_trace *t, void *array, uint32_t *room, uint64_t n, size_t item);
tape_text tape_add_text(struct atoll_trace *t, const char *text, size_t length);
struct tape_leaf {
    enum op op;
    const char *name;
    atoll_dtype dtype;
    const atoll_dims *shape;
    const char *init;
};
atoll_value tape_add_leaf(struct atoll_trace *t, atoll_site site, const struct tape_leaf *leaf);
atoll_value tape_add_op(struct atoll_trace *t, atoll_site site, uint32_t op,
                        const atoll_value *operands, uint32_t n_operands, const atoll_attr *attrs,
                        uint32_t n_attrs);

/* capture_graph.c: the graph of all calls, outputs and updates so far, owned by the trace; NULL
 * after an error. */
const struct graph *capture_graph(struct atoll_trace *t);
/* The next capture_graph starts anew. */
void capture_forget_graph(struct atoll_trace *t);

#endif
