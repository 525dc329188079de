/* The emulator's findings: everything a program does that hardware might let pass and a debugger
 * should not. A finding is one line of text; the same kind at the same place is kept once and
 * counted. Host threads may report at the same time. */
#ifndef ATOLL_EMULATOR_FINDINGS_H
#define ATOLL_EMULATOR_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finding_kind {
#define X(id, name) FINDING_##id,
#include "findings.def"
#undef X
    N_FINDING_KINDS
};

/* place makes two findings of a kind the same one: kernel and line, say, hashed by the caller. */
void finding_report(enum finding_kind kind, uint64_t place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* True, and counted, when this finding is there already: saves the caller its words. */
bool finding_again(enum finding_kind kind, uint64_t place);

/* ---- exported: read by tests and debuggers ---- */

/* Writes the findings so far into text (at most size bytes with the NUL; text may be NULL), a line
 * each: "NAME: what, where (seen N times)". Returns their number. */
int atoll_emulator_findings(char *text, size_t size);
void atoll_emulator_forget_findings(void);

#endif
