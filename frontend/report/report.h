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

/* A self-contained page: no script, nothing fetched. */
void report_html(struct text *t, const ledger *l);
/* Its parts: text with <, >, & and quotes spelt out; "train.c:31", or nothing; one plan. */
void html_text(struct text *t, const char *text);
void html_place(struct text *t, const char *file, uint32_t line);
void html_plan(struct text *t, const struct ledger_entry *en);

#endif
