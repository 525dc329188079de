/* Findings that a thread of a kernel causes: who and where, in words. */
#include "executor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t thread_of(const struct warp *w, uint32_t lane)
{
    return w->index * LANES + lane;
}

void thread_text(const struct block *b, uint32_t thread, char *text, size_t size)
{
    const uint32_t *n = b->launch->block;
    snprintf(text, size, "(%u,%u,%u)", thread % n[0], thread / n[0] % n[1], thread / n[0] / n[1]);
}

/* The text of a line, without blanks around it. */
static void line_text(const struct module *m, uint32_t line, char *text, size_t size)
{
    const char *at = m->text;
    for (uint32_t i = 1; i < line && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    at = at ? at + strspn(at, " \t") : "";
    size_t n = strcspn(at, "\r\n");
    n = n < size ? n : size - 1;
    for (size_t i = 0; i < n; i++) {
        text[i] = at[i] == '\t' ? ' ' : at[i];
    }
    text[n] = 0;
}

void warp_report(struct warp *w, const struct instruction *in, uint32_t lane,
                 enum finding_kind kind, const char *format, ...)
{
    const struct block *b = w->block;
    const struct kernel *k = b->launch->kernel;
    char what[300], line[100], thread[40];
    uint64_t place = in->line;
    for (const char *c = k->name; *c; c++) {
        place = (place ^ (uint8_t)*c) * 0x100000001b3u;
    }
    if (finding_again(kind, place)) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    line_text(k->module, in->line, line, sizeof line);
    thread_text(b, thread_of(w, lane), thread, sizeof thread);
    finding_report(kind, place, "kernel %s, ptx line %u `%s`, block (%u,%u,%u), thread %s: %s",
                   k->name, in->line, line, b->index[0], b->index[1], b->index[2], thread, what);
}

void warp_stop(struct warp *w, int error)
{
    w->block->is_stopped = true;
    int none = 0;
    __atomic_compare_exchange_n(&w->block->launch->error, &none, error, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}
