/* Open addressing with linear probing, at most half full. Serves the printer (which names are
 * taken) and the parser (which value a name means), so both stay linear in the size of the graph.
 * Invariant: an entry with a NULL name ends every probe. */
#include "name_table.h"

#include <string.h>

static struct name_entry *probe(const struct name_table *t, const char *name)
{
    uint32_t at = (uint32_t)hash_text(name, 0) & (t->capacity - 1);
    while (t->entries[at].name != NULL && strcmp(t->entries[at].name, name) != 0) {
        at = (at + 1) & (t->capacity - 1);
    }
    return &t->entries[at];
}

struct name_entry *name_find(const struct name_table *t, const char *name)
{
    if (t->capacity == 0) {
        return NULL;
    }
    struct name_entry *entry = probe(t, name);
    return entry->name != NULL ? entry : NULL;
}

static void rehash(struct name_table *t)
{
    struct name_table old = *t;
    t->capacity = old.capacity == 0 ? 64 : 2 * old.capacity;
    t->entries = ARENA_ARRAY(t->arena, struct name_entry, t->capacity);
    for (uint32_t i = 0; i < old.capacity; i++) {
        if (old.entries[i].name != NULL) {
            *probe(t, old.entries[i].name) = old.entries[i];
        }
    }
}

struct name_entry *name_add(struct name_table *t, const char *name)
{
    if (2 * t->n >= t->capacity) {
        rehash(t);
    }
    struct name_entry *entry = probe(t, name);
    if (entry->name == NULL) {
        entry->name = name;
        t->n++;
    }
    return entry;
}
