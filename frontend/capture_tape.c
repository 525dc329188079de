/* The tape of a trace. A call is [op, counts][operands, two a word][attributes][sizes]; all but the
 * sizes enters the running hash. Invariant: what stands on the tape is well formed; whether it is a
 * well typed graph is capture_graph.c's to say. */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

bool tape_room(struct atoll_trace *t, void *array, uint32_t *room, uint64_t n, size_t item)
{
    if (n <= *room) {
        return true;
    }
    void *old, *bigger = NULL;
    uint64_t wanted = 2 * n + 64;
    memcpy(&old, array, sizeof old);
    if (wanted < UINT32_MAX) {
        bigger = realloc(old, (size_t)wanted * item);
    }
    if (bigger == NULL) {
        fail(&t->error, ATOLL_OUT_OF_MEMORY, "out of memory while a model is recorded");
        return false;
    }
    memcpy(array, &bigger, sizeof bigger);
    *room = (uint32_t)wanted;
    return true;
}

static bool words(struct atoll_trace *t, uint64_t n)
{
    return tape_room(t, &t->tape, &t->tape_room, t->n_tape + n, sizeof *t->tape);
}

static void put_bytes(struct atoll_trace *t, const char *bytes, size_t length)
{
    uint32_t n = (uint32_t)(length / 8 + 1); /* at least one NUL behind it */
    t->tape[t->n_tape + n - 1] = 0;
    memcpy(&t->tape[t->n_tape], bytes, length);
    t->n_tape += n;
}

tape_text tape_add_text(struct atoll_trace *t, const char *text, size_t length)
{
    if (t->n_tape == 0 && words(t, 1)) {
        t->tape[t->n_tape++] = 0; /* place 0 is no text */
    }
    if (!words(t, length / 8 + 1)) {
        return 0;
    }
    tape_text at = t->n_tape;
    put_bytes(t, text, length);
    return at;
}

static struct capture_call *new_call(struct atoll_trace *t, atoll_site site, uint64_t n_words)
{
    if (!words(t, n_words) ||
        !tape_room(t, &t->calls, &t->call_room, t->n_calls + 1, sizeof *t->calls)) {
        return NULL;
    }
    struct capture_call *c = &t->calls[t->n_calls++];
    *c = (struct capture_call){.site = site, .at = t->n_tape, .spelled = t->n_spelled};
    return c;
}

static void mix(struct atoll_trace *t, uint32_t from)
{
    t->hash = hash_bytes(&t->tape[from], (t->n_tape - from) * sizeof *t->tape, t->hash);
}

static atoll_value newest_value(const struct atoll_trace *t)
{
    return (atoll_value){t->number, t->n_calls};
}

/* [op][dtype][init: place on the tape][rank][sizes]; the hash knows op and name. */
atoll_value tape_add_leaf(struct atoll_trace *t, atoll_site site, const struct tape_leaf *leaf)
{
    char name[512];
    size_t scope = strlen(t->scope), length = strlen(leaf->name);
    if (scope + length >= sizeof name) {
        capture_fail(t, site, ATOLL_USAGE, "the name of a leaf has %zu bytes, expected up to %zu",
                     scope + length, sizeof name - 1);
        return (atoll_value){t->number, 0};
    }
    memcpy(name, t->scope, scope);
    memcpy(name + scope, leaf->name, length + 1);
    tape_text at = tape_add_text(t, name, scope + length);
    tape_text init =
        leaf->init != NULL ? tape_add_text(t, leaf->init, strlen(leaf->init)) : (tape_text)0;
    struct capture_call *c = at == 0 ? NULL : new_call(t, site, 4 + MAX_RANK);
    if (c == NULL || (leaf->init != NULL && init == 0) ||
        !tape_room(t, &t->leaves, &t->leaf_room, t->n_leaf_facts + FACTS_A_LEAF,
                   sizeof *t->leaves) ||
        !tape_room(t, &t->numbers, &t->number_room, t->n_leaf_facts / FACTS_A_LEAF + 1,
                   sizeof *t->numbers)) {
        return (atoll_value){t->number, 0};
    }
    c->name = at;
    c->leaf = t->n_leaf_facts / FACTS_A_LEAF + 1;
    int64_t *facts = &t->leaves[t->n_leaf_facts];
    t->n_leaf_facts += FACTS_A_LEAF;
    memset(facts, 0, FACTS_A_LEAF * sizeof *facts);
    facts[FACT_DTYPE] = (int64_t)leaf->dtype;
    facts[FACT_DEVICE] = DEVICE_CPU;
    facts[FACT_RANK] = leaf->shape->n;
    t->hash = hash_bytes(name, scope + length, t->hash + (uint64_t)leaf->op);
    t->tape[t->n_tape++] = leaf->op;
    t->tape[t->n_tape++] = (uint64_t)leaf->dtype;
    t->tape[t->n_tape++] = init;
    t->tape[t->n_tape++] = leaf->shape->n;
    for (uint32_t i = 0; i < leaf->shape->n; i++) {
        facts[FACT_DIM + i] = leaf->shape->at[i];
        t->tape[t->n_tape++] = (uint64_t)leaf->shape->at[i];
    }
    return newest_value(t);
}

static uint64_t attr_words(const atoll_attr *a)
{
    switch (a->kind) {
    case ATOLL_ATTR_INTS:
    case ATOLL_ATTR_DIMS:
        return 1 + MAX_RANK;
    case ATOLL_ATTR_TEXT:
        return 2 + strlen(a->is.text) / 8;
    default:
        return 1;
    }
}

static void put_attr(struct atoll_trace *t, const atoll_attr *a)
{
    size_t length = 0;
    switch (a->kind) {
    case ATOLL_ATTR_INTS:
        t->tape[t->n_tape++] = a->is.dims->n;
        memcpy(&t->tape[t->n_tape], a->is.dims->at, a->is.dims->n * sizeof *t->tape);
        t->n_tape += a->is.dims->n;
        break;
    case ATOLL_ATTR_DIMS:
        t->tape[t->n_tape++] = a->is.dims->n; /* the sizes come behind what is hashed */
        break;
    case ATOLL_ATTR_TEXT:
        length = strlen(a->is.text);
        t->tape[t->n_tape++] = length;
        put_bytes(t, a->is.text, length);
        break;
    case ATOLL_ATTR_FLOAT:
        memcpy(&t->tape[t->n_tape++], &a->is.f, sizeof a->is.f);
        break;
    case ATOLL_ATTR_INT:
    case ATOLL_ATTR_BOOL:
    case ATOLL_ATTR_DTYPE:
        t->tape[t->n_tape++] = (uint64_t)a->is.i;
        break;
    }
}

static bool put_sizes(struct atoll_trace *t, const atoll_dims *dims)
{
    if (!tape_room(t, &t->spelled, &t->spelled_room, t->n_spelled + dims->n, sizeof *t->spelled)) {
        return false;
    }
    for (uint32_t i = 0; i < dims->n; i++) {
        t->spelled[t->n_spelled++] = dims->at[i];
        t->tape[t->n_tape++] = (uint64_t)dims->at[i];
    }
    return true;
}

atoll_value tape_add_op(struct atoll_trace *t, atoll_site site, uint32_t op,
                        const atoll_value *operands, uint32_t n_operands, const atoll_attr *attrs,
                        uint32_t n_attrs)
{
    const atoll_value none = {t->number, 0};
    uint64_t n_words = 1 + (n_operands + 1) / 2 + MAX_RANK;
    for (uint32_t i = 0; i < n_attrs; i++) {
        n_words += attr_words(&attrs[i]);
    }
    struct capture_call *c = new_call(t, site, n_words);
    if (c == NULL) {
        return none;
    }
    t->tape[t->n_tape++] = op | (uint64_t)n_operands << 16 | (uint64_t)n_attrs << 32;
    for (uint32_t i = 0; i < n_operands; i += 2) {
        uint64_t second = i + 1 < n_operands ? operands[i + 1].id : 0;
        t->tape[t->n_tape++] = operands[i].id | second << 32;
        t->calls[operands[i].id - 1].is_used = true;
        if (second != 0) {
            t->calls[second - 1].is_used = true;
        }
    }
    for (uint32_t i = 0; i < n_attrs; i++) {
        put_attr(t, &attrs[i]);
    }
    mix(t, c->at);
    for (uint32_t i = 0; i < n_attrs; i++) {
        if (attrs[i].kind == ATOLL_ATTR_DIMS && !put_sizes(t, attrs[i].is.dims)) {
            return none;
        }
    }
    return newest_value(t);
}
