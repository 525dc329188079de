/* Compiled functions, and what they did, call by call, and why: the ledger.
 *
 *     static void model(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
 *     {
 *         atoll_output(t, "y", atoll_softmax(atoll_matmul(a[0], a[1])));
 *     }
 *     atoll_compile(model, NULL, &f, &error);
 *     atoll_call(f, (atoll_view[]){x, w}, 2, NULL, results, &error);
 *     atoll_results_view(results, "y", &y, &error);
 *
 *     atoll_counters n;
 *     atoll_ledger_counters(ledger, &n);
 *     if (n.recompiles > 0) {
 *         char *text = atoll_ledger_text(ledger);   a paragraph for each call that was no plain hit
 *         puts(text);
 *         free(text);
 *         atoll_ledger_html(ledger, "report.html", &error);
 *     }
 *
 * A ledger may be read while other threads call the function it belongs to. */
#ifndef ATOLL_COMPILE_H
#define ATOLL_COMPILE_H

#include <stdint.h>

#include "atoll/atoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct atoll_ledger atoll_ledger;

/* Counts since the ledger began. A call is one call of the function; it looks up a plan for each of
 * its segments (one more than its graph breaks). */
typedef struct atoll_counters {
    uint64_t calls, lookups;
    uint64_t hits;                          /* lookups that ran a plan there was */
    uint64_t builds;                        /* plans built */
    uint64_t recompiles;                    /* builds but the first of each segment */
    uint64_t evictions;                     /* plans dropped because the cache of plans was full */
    uint64_t eager;                         /* lookups that ran op by op */
    uint64_t refused;                       /* lookups that ended in an error */
    uint64_t breaks;                        /* graph breaks */
    uint64_t kernels_built, kernels_loaded; /* compiled now, taken from the disk cache */
    uint64_t nanoseconds_building;
} atoll_counters;

void atoll_ledger_counters(const atoll_ledger *ledger, atoll_counters *out);
/* The whole history as text, a paragraph a call (equal hits in a row share one); malloc'ed, yours
 * to free. NULL: no memory. */
char *atoll_ledger_text(const atoll_ledger *ledger);
/* The history as JSON, written atomically: `atoll explain --ledger FILE` reads it. IO. */
atoll_status atoll_ledger_save(const atoll_ledger *ledger, const char *path, atoll_error *error);
/* One self-contained HTML page. IO. */
atoll_status atoll_ledger_html(const atoll_ledger *ledger, const char *path, atoll_error *error);

/* ---- compiled functions ---- */

/* A model as a function: records its ops on the trace, names results by atoll_output. arguments[i]
 * is the i-th tensor of the call. It is called anew at each call of what it is compiled to, so what
 * it records may depend on anything: each different trace gets a plan of its own. */
typedef void atoll_function(atoll_trace *t, const atoll_value *arguments, uint32_t n_arguments,
                            void *context);

/* Zero-initialise. */
typedef struct atoll_compile_options {
    const char *name;      /* in reports; NULL: "function" */
    const char *policy;    /* "fp32", "bf16", ... */
    const char *optimizer; /* "adamw,lr=1e-3": each call is a training step on the output "loss";
                              NULL: the function as it is */
    const char *schedule;
    double clip;
    const char *scaler; /* "auto", "on", "off" */
    const char *device; /* "cpu", "cuda:N": where plans run. Arguments and what is kept lie in host
                           memory all the same: a call copies there what is not there as it is,
                           and back what it changed */
    uint64_t seed;      /* of the first values of params, buffers and states */
    uint32_t limit;     /* recompiles of one segment; 0: 8. More are an error with the history */
    uint32_t capacity;  /* plans kept; 0: 64. The one unused for longest goes */
    int fullgraph;      /* a graph break is an error at its line */
    int frozen; /* after a first call, guards are checked on the arguments alone; the function
                   runs again only where none hold. It must record the same for the same
                   arguments; numbers that change must be arguments */
    int fails_on_recompile;      /* only the first build of each segment is allowed */
    int is_eager_over_limit;     /* run op by op instead, with a warning each time */
    int is_eager_while_building; /* another thread builds the plan: do not wait for it */
    int is_static;               /* never make a size a symbol */
    int is_eager;                /* plans run op by op: the same bits, no compiler */
    int is_relaxed;              /* rounding */
    void (*warn)(void *context, const char *text); /* NULL: standard error */
    void *warn_context;
} atoll_compile_options;

typedef struct atoll_compiled atoll_compiled;
/* *out is yours to destroy. Nothing is compiled before the first call. USAGE (an option), NOT_FOUND
 * (no such device), OUT_OF_MEMORY. */
atoll_status atoll_compile(atoll_function *function, const atoll_compile_options *options,
                           atoll_compiled **out, atoll_error *error);
/* No call may be under way. NULL is accepted. */
void atoll_compiled_destroy(atoll_compiled *f);

/* What a call gave, reused from call to call: one a thread. */
typedef struct atoll_results atoll_results;
atoll_results *atoll_results_create(void); /* NULL: no memory */
void atoll_results_destroy(atoll_results *r);
/* By the name that atoll_output gave; lent until the next call with r. NOT_FOUND. */
atoll_status atoll_results_view(const atoll_results *r, const char *name, atoll_view *out,
                                atoll_error *error);
/* Its first element; NaN when there is none. */
double atoll_results_number(const atoll_results *r, const char *name);

/* Calls the function: traces it, finds the plan whose guards hold or builds one, runs it. Arguments
 * are read where they lie. results may be NULL. Any number of threads may call one function; calls
 * that change params or states run one after another. An error leaves every state as it was.
 * Statuses: what the function recorded wrongly (at its line); CHECK_FAILED (over the limit, or a
 * recompile or break that is not allowed); DATA (an index outside its axis); OUT_OF_MEMORY, ... */
#define atoll_call(...) atoll_call_at(ATOLL_HERE, __VA_ARGS__)
atoll_status atoll_call_at(atoll_site site, atoll_compiled *f, const atoll_view *arguments,
                           uint32_t n_arguments, void *context, atoll_results *results,
                           atoll_error *error);

/* How one call runs, where not as the function was compiled. Zero-initialise. All of it is part of
 * the key of a plan: what has not been called this way yet is compiled, and the ledger names what
 * is another than for the plans there are (policy, rounding, runs_on, grad).
 *
 *     atoll_call_options o = {.with_gradients = 1, .wrt = "x"};
 *     atoll_call_with(f, &o, arguments, 2, NULL, results, &error);
 *     atoll_results_view(results, "grad:w", &dw, &error);       as large and of the dtype of w
 */
typedef struct atoll_call_options {
    const char *policy;   /* "bf16"; NULL: the function's */
    const char *rounding; /* "strict", "relaxed"; NULL: the function's */
    const char *device;   /* "cpu", "cuda:N"; NULL: the function's */
    int with_gradients;   /* results have "grad:NAME" beside the outputs, the gradient of output
                             "loss" (else of the first; a float of rank 0) with respect to every
                             float param recorded and to the arguments of wrt; zeros where it does
                             not depend on it */
    const char *wrt;      /* float arguments, comma-separated; NULL: none */
    const char *frozen;   /* params that want no gradient, comma-separated; NULL: none */
} atoll_call_options;
/* atoll_call with options (NULL: none). USAGE: an unknown name, an argument that is no float, wrt
 * or frozen without with_gradients, options for a function with an optimizer, whose gradients are
 * its own. Of a frozen function (compile options) such calls are traced. No gradient goes through
 * what atoll_host_op gave. */
#define atoll_call_with(...) atoll_call_with_at(ATOLL_HERE, __VA_ARGS__)
atoll_status atoll_call_with_at(atoll_site site, atoll_compiled *f,
                                const atoll_call_options *options, const atoll_view *arguments,
                                uint32_t n_arguments, void *context, atoll_results *results,
                                atoll_error *error);

/* Params, buffers and states that calls made so far, to read or write between calls. NOT_FOUND. */
atoll_status atoll_compiled_state(atoll_compiled *f, const char *name, atoll_view *out,
                                  atoll_error *error);
/* A number of the training step (lr, beta1, ...) for the next calls; no recompile. NOT_FOUND before
 * the first call. */
atoll_status atoll_compiled_set(atoll_compiled *f, const char *name, double number,
                                atoll_error *error);
/* Lent until the destroy. */
const atoll_ledger *atoll_compiled_ledger(const atoll_compiled *f);

/* ---- graph breaks, inside of a function ---- */

/* The first element of a value, now: what was recorded so far is compiled and run, and recording
 * goes on. NaN after an error. Of an argument it costs nothing. */
#define atoll_item(...) atoll_item_at(ATOLL_HERE, __VA_ARGS__)
double atoll_item_at(atoll_site site, atoll_value v);
/* Ends the graph here for a reason of yours. */
#define atoll_graph_break(...) atoll_graph_break_at(ATOLL_HERE, __VA_ARGS__)
void atoll_graph_break_at(atoll_site site, atoll_trace *t, const char *reason);
/* An op that Atoll does not have: work(context, in, out) computes on the host; out has the type of
 * v and memory to fill. No gradient goes through it. */
typedef void atoll_host_work(void *context, const atoll_view *in, atoll_view *out);
#define atoll_host_op(...) atoll_host_op_at(ATOLL_HERE, __VA_ARGS__)
atoll_value atoll_host_op_at(atoll_site site, atoll_value v, const char *name,
                             atoll_host_work *work, void *context);

#ifdef __cplusplus
}
#endif

#endif
