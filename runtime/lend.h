/* What the public calls of plans and trainings lend, and how they say that a name is none. */
#ifndef ATOLL_RUNTIME_LEND_H
#define ATOLL_RUNTIME_LEND_H

#include "atoll/view.h"
#include "runtime/tensor.h"

/* Copies the first failure into the caller's record (NULL: nobody wants it); returns its code. */
atoll_status lend_error(const struct error *from, atoll_error *to);
void lend_view(const char *name, const struct tensor *t, atoll_view *out);

enum lent { LENT_INPUT, LENT_SCALAR, LENT_STATE, LENT_OUTPUT };
/* NOT_FOUND, with the names there are; who: "the plan". */
status lend_missing(const char *who, const struct graph *g, enum lent kind, const char *name,
                    struct error *e);

#endif
