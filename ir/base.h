/* ir/ says what a graph is: dtypes, dims, the op table, nodes, the verifier and the text form.
 * It includes nobody else's folder. base.h is the ground under all of Atoll: statuses and the error
 * record, arenas, growable text, hashing. Nothing here keeps global state except one recovery point
 * a thread (see arena_recover). */
#ifndef ATOLL_IR_BASE_H
#define ATOLL_IR_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atoll/status.h"

typedef atoll_status status;

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Evaluates an expression of type status; leaves the function with it when it is not OK. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        status try_status_ = (expr);                                                               \
        if (try_status_ != ATOLL_OK) {                                                             \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* What went wrong, in one line: what was found, what was expected, where, what to do.
 * The first error wins: later fails keep the record as it is. Zero-initialise it. */
struct error {
    status code;
    char text[1000];
};

/* Records code and text (unless an error is already there) and returns code, so that
 * `return fail(e, ATOLL_SHAPE, "...")` writes a failure once. e may be NULL. */
status fail(struct error *e, status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Arena: many allocations, one free. Memory comes zeroed and 64-byte aligned for sizes >= 64.
 * Zero-initialise one that an owner outside the frame frees; an arena that dies with its function
 * starts as `struct arena scratch = SCRATCH_ARENA;` and stays where it is. */
struct arena_block;
struct arena {
    struct arena_block *blocks;
    size_t used; /* bytes handed out */
    bool is_scratch;
    uint64_t serial; /* scratch: its place in the thread's list of scratch arenas */
    struct arena *older, *newer;
};
#define SCRATCH_ARENA                                                                              \
    {                                                                                              \
        .is_scratch = true                                                                         \
    }

/* Never NULL: when the host has no memory it leaves by longjmp to the thread's recovery point,
 * after freeing every scratch arena first filled since that point: their frames are abandoned, so
 * nobody else could. Without a recovery point it aborts (a bug of ours: each public entry sets
 * one). */
void *arena_alloc(struct arena *a, size_t size);
char *arena_text(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_copy_text(struct arena *a, const char *text);
void *arena_copy(struct arena *a, const void *data, size_t size);
void arena_free(struct arena *a);
/* An arena becomes scratch from now on, or stops being it: its memory passes from an owner to the
 * present frame, or from the frame to an owner. */
void arena_hold(struct arena *a);
void arena_keep(struct arena *a);

#define ARENA_NEW(a, type)      ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

/* Grows an array held in an arena: returns it unchanged while n < *capacity, else a copy twice as
 * long. */
void *arena_grow(struct arena *a, void *array, size_t n, uint32_t *capacity, size_t item_size);

/* One recovery point a thread:  struct recovery r; if (arena_recover(&r)) { free the arenas you
 * own; return OUT_OF_MEMORY; } ... arena_recover_end(&r);   Points nest; end them in reverse order.
 */
struct recovery {
    jmp_buf point;
    struct recovery *outer;
    uint64_t serial; /* scratch arenas above it were filled since */
};
void arena_recover_begin(struct recovery *r);
void arena_recover_end(struct recovery *r);
#define arena_recover(r) (arena_recover_begin(r), setjmp((r)->point) != 0)

/* For tests: the n-th allocation from now on fails (0: none). Thread-local. */
void arena_fail_after(uint64_t n);

/* Growable text in an arena. Zero-initialise with .arena set. text.data is NUL-terminated or NULL.
 */
struct text {
    struct arena *arena;
    char *data;
    size_t length, capacity;
};
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_append(struct text *t, const char *data, size_t length);

/* 64-bit hash (XXH3) and chaining of it. */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed);
uint64_t hash_text(const char *text, uint64_t seed);
uint64_t hash_u64(uint64_t value, uint64_t seed);

/* Whether a comma-separated list (may be NULL) has the name. */
bool list_has(const char *list, const char *name);

/* Shell-style match of * and ? (case matters): the node-name patterns of policies and filters. */
bool pattern_matches(const char *pattern, const char *text);

#endif
