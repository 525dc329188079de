/* The ledger as one HTML page. */
#include "report.h"

void report_html(struct text *t, const ledger *l)
{
    text_add(t, "<!doctype html><title>%s</title>", l->name);
}
