/* A shared object loaded from bytes. Loading runs native code: only from plans and caches you
 * trust. */
#ifndef ATOLL_RUNTIME_LIBRARY_H
#define ATOLL_RUNTIME_LIBRARY_H

#include "ir/base.h"

struct library;
/* Copies the bytes; NULL on failure. */
struct library *library_open(const void *bytes, size_t size, const char *name, struct error *e);
void *library_find(struct library *l, const char *symbol); /* NULL when it lacks the symbol */
const void *library_bytes(const struct library *l, size_t *size);
void library_close(struct library *l);

#endif
