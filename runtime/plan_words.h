/* How numbers and texts stand in the sections of a plan, and a reader that notices when they end
 * too soon or are too large; once it has, everything reads as zero. */
#ifndef ATOLL_RUNTIME_PLAN_WORDS_H
#define ATOLL_RUNTIME_PLAN_WORDS_H

#include <string.h>

#include "ir/dim.h"

static inline void put(struct text *t, uint32_t word)
{
    text_append(t, (const char *)&word, sizeof word);
}

static inline void put_text(struct text *t, const char *s)
{
    uint32_t length = (uint32_t)strlen(s);
    put(t, length);
    text_append(t, s, length);
}

static inline void put_dim(struct text *t, struct dim d)
{
    text_append(t, (const char *)&d.factor, sizeof d.factor);
    text_append(t, (const char *)d.symbols, sizeof d.symbols);
}

struct reader {
    const unsigned char *at, *end;
    bool is_bad;
};

static inline void take(struct reader *r, void *to, size_t size)
{
    memset(to, 0, size);
    if (r->is_bad || (size_t)(r->end - r->at) < size) {
        r->is_bad = true;
        return;
    }
    memcpy(to, r->at, size);
    r->at += size;
}

/* A word below `limit`. */
static inline uint32_t word(struct reader *r, uint32_t limit)
{
    uint32_t w;
    take(r, &w, sizeof w);
    if (w >= limit) {
        r->is_bad = true;
        return 0;
    }
    return w;
}

static inline const char *read_text(struct reader *r, struct arena *a)
{
    uint32_t length = word(r, 256);
    char *s = arena_alloc(a, (size_t)length + 1);
    take(r, s, length);
    return s;
}

static inline void take_dim(struct reader *r, struct dim *d, uint32_t n_symbols)
{
    take(r, &d->factor, sizeof d->factor);
    take(r, d->symbols, sizeof d->symbols);
    for (uint32_t i = 0; i < MAX_DIM_SYMBOLS; i++) {
        r->is_bad = r->is_bad || d->symbols[i] >= n_symbols;
    }
}

#endif
