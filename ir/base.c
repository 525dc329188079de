/* The ground under all of Atoll: error record, arenas with their recovery point, growable text,
 * hashing. Arena memory is owned by the arena alone; nothing here holds a file, a lock or a handle,
 * which is what makes leaving by longjmp on host out-of-memory safe. */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char *atoll_status_text(atoll_status code)
{
    switch (code) {
#define X(name, number, text)                                                                      \
    case ATOLL_##name:                                                                             \
        return text;
#include "atoll/status.def"
#undef X
    }
    return "unknown status";
}

status fail(struct error *e, status code, const char *format, ...)
{
    if (e != NULL && e->code == ATOLL_OK) {
        va_list args;
        va_start(args, format);
        e->code = code;
        vsnprintf(e->text, sizeof e->text, format, args);
        va_end(args);
    }
    return code;
}

/* ---- arenas ---- */

struct arena_block {
    struct arena_block *next;
    size_t size, used;
    _Alignas(64) unsigned char data[];
};

static _Thread_local struct recovery *recovery_point;
static _Thread_local uint64_t fail_countdown;
/* Scratch arenas that hold memory, newest first. The list is never walked but on the way out of
 * memory, when all their frames still stand. */
static _Thread_local struct arena *newest_scratch;
static _Thread_local uint64_t last_serial;

static void enlist(struct arena *a)
{
    a->serial = ++last_serial;
    a->older = newest_scratch;
    a->newer = NULL;
    if (newest_scratch != NULL) {
        newest_scratch->newer = a;
    }
    newest_scratch = a;
}

static void delist(struct arena *a)
{
    if (a->newer != NULL) {
        a->newer->older = a->older;
    } else {
        newest_scratch = a->older;
    }
    if (a->older != NULL) {
        a->older->newer = a->newer;
    }
    a->older = a->newer = NULL;
}

void arena_hold(struct arena *a)
{
    if (!a->is_scratch && a->blocks != NULL) {
        enlist(a);
    }
    a->is_scratch = true;
}

void arena_keep(struct arena *a)
{
    if (a->is_scratch && a->blocks != NULL) {
        delist(a);
    }
    a->is_scratch = false;
}

void arena_recover_begin(struct recovery *r)
{
    r->serial = last_serial;
    r->outer = recovery_point;
    recovery_point = r;
}

void arena_recover_end(struct recovery *r)
{
    recovery_point = r->outer;
}

void arena_fail_after(uint64_t n)
{
    fail_countdown = n;
}

static _Noreturn void out_of_memory(void)
{
    struct recovery *r = recovery_point;
    if (r == NULL) {
        fputs("atoll: out of memory outside a recovery point\n", stderr);
        abort();
    }
    recovery_point = r->outer;
    while (newest_scratch != NULL && newest_scratch->serial > r->serial) {
        arena_free(newest_scratch);
    }
    longjmp(r->point, 1);
}

static struct arena_block *new_block(size_t size)
{
    if (fail_countdown != 0 && --fail_countdown == 0) {
        out_of_memory();
    }
    if (size > SIZE_MAX - 2 * sizeof(struct arena_block) - 64) {
        out_of_memory();
    }
    size_t total = (sizeof(struct arena_block) + size + 63) / 64 * 64;
    struct arena_block *block = aligned_alloc(64, total);
    if (block == NULL) {
        out_of_memory();
    }
    block->size = total - sizeof(struct arena_block);
    block->used = 0;
    block->next = NULL;
    return block;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t align = size >= 64 ? 64 : 16;
    if (size == 0) {
        size = 1;
    }
    struct arena_block *block = a->blocks;
    size_t at = block != NULL ? (block->used + align - 1) / align * align : 0;
    if (block == NULL || at > block->size || size > block->size - at) {
        size_t wanted = 16384 - sizeof(struct arena_block);
        struct arena_block *fresh = new_block(size > wanted / 2 ? size : wanted);
        if (size > wanted / 2 &&
            block != NULL) { /* big ones go behind, so the open block stays open */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            a->blocks = fresh;
        }
        if (block == NULL && a->is_scratch) {
            enlist(a);
        }
        block = fresh;
        at = 0;
    }
    block->used = at + size;
    a->used += size;
    return memset(block->data + at, 0, size);
}

void arena_free(struct arena *a)
{
    struct arena_block *block = a->blocks;
    if (block != NULL && a->is_scratch) {
        delist(a);
    }
    a->blocks = NULL;
    a->used = 0;
    while (block != NULL) { /* `a` itself may lie in one of them: a graph lives in its own arena */
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void *arena_copy(struct arena *a, const void *data, size_t size)
{
    void *copy = arena_alloc(a, size);
    if (size != 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

char *arena_copy_text(struct arena *a, const char *text)
{
    return text == NULL ? NULL : arena_copy(a, text, strlen(text) + 1);
}

char *arena_text(struct arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *out = arena_alloc(a, (size_t)length + 1);
    vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

void *arena_grow(struct arena *a, void *array, size_t n, uint32_t *capacity, size_t item_size)
{
    if (n < *capacity) {
        return array;
    }
    uint32_t wanted = *capacity < 8 ? 16 : 2 * *capacity;
    while (wanted <= n) {
        wanted *= 2;
    }
    void *bigger = arena_alloc(a, wanted * item_size);
    if (*capacity != 0) {
        memcpy(bigger, array, *capacity * item_size);
    }
    *capacity = wanted;
    return bigger;
}

/* ---- text ---- */

static void text_reserve(struct text *t, size_t more)
{
    if (t->length + more + 1 <= t->capacity) {
        return;
    }
    size_t wanted = t->capacity < 128 ? 256 : 2 * t->capacity;
    while (wanted < t->length + more + 1) {
        wanted *= 2;
    }
    char *bigger = arena_alloc(t->arena, wanted);
    if (t->length != 0) {
        memcpy(bigger, t->data, t->length);
    }
    t->data = bigger;
    t->capacity = wanted;
}

void text_append(struct text *t, const char *data, size_t length)
{
    text_reserve(t, length);
    if (length != 0) {
        memcpy(t->data + t->length, data, length);
    }
    t->length += length;
    t->data[t->length] = '\0';
}

void text_add(struct text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text_reserve(t, (size_t)length);
    vsnprintf(t->data + t->length, (size_t)length + 1, format, again);
    va_end(again);
    t->length += (size_t)length;
}

/* ---- hashing and patterns ---- */

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size, seed);
}

uint64_t hash_text(const char *text, uint64_t seed)
{
    return hash_bytes(text, strlen(text), seed);
}

uint64_t hash_u64(uint64_t value, uint64_t seed)
{
    return hash_bytes(&value, sizeof value, seed);
}

bool pattern_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *p = list; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ",");
        if (n == length && memcmp(p, name, n) == 0) {
            return true;
        }
        p += n + (p[n] == ',');
    }
    return false;
}
