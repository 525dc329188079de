/* Sets of stream operations; see stream_order.h. Invariant: the operation floor + 1 is not in the
 * set, so a program with one stream keeps no words at all. */
#include "stream_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool order_before(const struct ordering *o, uint32_t op)
{
    if (op <= o->floor) {
        return true;
    }
    uint32_t i = op - o->floor - 1;
    return i / 64 < o->n_words && o->words[i / 64] >> i % 64 & 1;
}

static void set_bit(struct ordering *o, uint32_t op)
{
    uint32_t i = op - o->floor - 1;
    if (i / 64 >= o->n_words) {
        uint32_t n = i / 64 + 1;
        uint64_t *words = realloc(o->words, n * sizeof *words);
        if (!words) {
            fputs("CUDA emulator: the host has no memory for the order of operations\n", stderr);
            abort();
        }
        memset(words + o->n_words, 0, (n - o->n_words) * sizeof *words);
        o->words = words;
        o->n_words = n;
    }
    o->words[i / 64] |= (uint64_t)1 << i % 64;
}

/* Raises the floor to at least `floor`, and over the operations that follow it without a gap. */
static void raise_floor(struct ordering *o, uint32_t floor)
{
    struct ordering old = *o;
    uint32_t top = old.floor + old.n_words * 64;
    o->floor = floor > old.floor ? floor : old.floor;
    while (o->floor < top && order_before(&old, o->floor + 1)) {
        o->floor++;
    }
    if (o->floor == old.floor) {
        return;
    }
    o->words = NULL;
    o->n_words = 0;
    for (uint32_t op = o->floor + 1; op <= top && top > o->floor; op++) {
        if (order_before(&old, op)) {
            set_bit(o, op);
        }
    }
    free(old.words);
}

void order_add(struct ordering *o, uint32_t op)
{
    if (op > o->floor) {
        set_bit(o, op);
        raise_floor(o, o->floor);
    }
}

void order_add_range(struct ordering *o, uint32_t first, uint32_t last)
{
    if (first <= o->floor + 1) {
        raise_floor(o, last);
        return;
    }
    for (uint32_t op = first; op <= last; op++) {
        set_bit(o, op);
    }
}

void order_merge(struct ordering *o, const struct ordering *other)
{
    raise_floor(o, other->floor);
    for (uint32_t i = 0; i < other->n_words; i++) {
        for (uint64_t word = other->words[i]; word; word &= word - 1) {
            uint32_t op = other->floor + 1 + i * 64 + (uint32_t)__builtin_ctzll(word);
            if (op > o->floor) {
                set_bit(o, op);
            }
        }
    }
    raise_floor(o, o->floor);
}

void order_free(struct ordering *o)
{
    free(o->words);
    *o = (struct ordering){0};
}
