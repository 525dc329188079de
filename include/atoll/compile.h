/* What a compiled function did, call by call, and why: the ledger.
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

#include "atoll/plan.h"

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

#ifdef __cplusplus
}
#endif

#endif
