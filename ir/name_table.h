/* Text -> number, in an arena: names of values while printing and parsing. */
#ifndef ATOLL_IR_NAME_TABLE_H
#define ATOLL_IR_NAME_TABLE_H

#include "base.h"

struct name_entry {
    const char *name; /* NULL: free slot */
    uint32_t number;
};

/* Zero-initialise with .arena set. */
struct name_table {
    struct arena *arena;
    struct name_entry *entries;
    uint32_t n, capacity; /* capacity: a power of two, or 0 */
};

/* NULL when the name is not there. */
struct name_entry *name_find(const struct name_table *t, const char *name);
/* The entry of that name, added with number 0 on first sight. The table keeps the pointer `name`;
 * the entry is valid until the next name is added. */
struct name_entry *name_add(struct name_table *t, const char *name);

#endif
