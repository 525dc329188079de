/* The ledger for people: as text, and as one HTML page. (As JSON it is ledger_json's.) */
#ifndef ATOLL_FRONTEND_REPORT_H
#define ATOLL_FRONTEND_REPORT_H

#include "runtime/ledger.h"

/* One paragraph: what became of the call, each failing guard, the advice, the cost. The ledger is
 * held, or nobody else's. */
void report_event(struct text *t, const ledger *l, const struct ledger_event *v);
void report_break(struct text *t, const struct ledger_break *b);
/* "5 calls, 5 lookups: 1 hit, ...": one line. */
void report_counters(struct text *t, const atoll_counters *n);
/* Everything in order of calls. */
void report_text(struct text *t, const ledger *l);

/* A self-contained page. */
void report_html(struct text *t, const ledger *l);

#endif
