/* The ledger as JSON, and back. One table of fields a struct serves both ways, so what is written
 * reads back. The reader takes any bytes: every refusal names the file, the field, what was found
 * and what was expected. */
#include "ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "runtime/file.h"

enum { LEDGER_FORMAT = 1, MAX_PATH_TEXT = 160 };

/* WORD: a short text, "" where a ledger of an earlier version has none. */
enum field_kind {
    F_TEXT,
    F_WORD,
    F_U32,
    F_U64,
    F_REAL,
    F_BOOL,
    F_OUTCOME,
    F_GUARD,
    F_LIST,
    F_TEXTS
};

struct record;
struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    size_t count_offset;     /* LIST, TEXTS: of its uint32_t count */
    const struct record *of; /* LIST: of its items */
};
struct record {
    size_t size;
    uint32_t n;
    const struct field *fields;
};

#define FIELD(type, name, kind)                                                                    \
    {                                                                                              \
#name, kind, offsetof(struct type, name), 0, NULL                                          \
    }
#define LIST(type, name, of)                                                                       \
    {                                                                                              \
#name, F_LIST, offsetof(struct type, name), offsetof(struct type, n_##name), of            \
    }
#define RECORD(type, fields)                                                                       \
    {                                                                                              \
        sizeof(struct type), ARRAY_LEN(fields), fields                                             \
    }

static const struct field reason_fields[] = {
    FIELD(ledger_reason, entry, F_U32),    FIELD(ledger_reason, kind, F_GUARD),
    FIELD(ledger_reason, subject, F_TEXT), FIELD(ledger_reason, expected, F_TEXT),
    FIELD(ledger_reason, found, F_TEXT),   FIELD(ledger_reason, origin, F_TEXT),
    FIELD(ledger_reason, file, F_TEXT),    FIELD(ledger_reason, line, F_U32),
};
static const struct record reason_record = RECORD(ledger_reason, reason_fields);

static const struct field event_fields[] = {
    FIELD(ledger_event, call, F_U64),
    FIELD(ledger_event, last_call, F_U64),
    FIELD(ledger_event, count, F_U64),
    FIELD(ledger_event, segment, F_U32),
    FIELD(ledger_event, outcome, F_OUTCOME),
    FIELD(ledger_event, entry, F_U32),
    FIELD(ledger_event, arguments, F_TEXT),
    FIELD(ledger_event, compared, F_U32),
    LIST(ledger_event, reasons, &reason_record),
    {"advice", F_TEXTS, offsetof(struct ledger_event, advice),
     offsetof(struct ledger_event, n_advice), NULL},
    FIELD(ledger_event, error, F_TEXT),
    FIELD(ledger_event, seconds, F_REAL),
    FIELD(ledger_event, kernels_built, F_U32),
    FIELD(ledger_event, kernels_loaded, F_U32),
};
static const struct record event_record = RECORD(ledger_event, event_fields);

static const struct field break_fields[] = {
    FIELD(ledger_break, call, F_U64),         FIELD(ledger_break, last_call, F_U64),
    FIELD(ledger_break, count, F_U64),        FIELD(ledger_break, segment, F_U32),
    FIELD(ledger_break, reason, F_TEXT),      FIELD(ledger_break, advice, F_TEXT),
    FIELD(ledger_break, file, F_TEXT),        FIELD(ledger_break, line, F_U32),
    FIELD(ledger_break, kind, F_WORD),        FIELD(ledger_break, dtype, F_WORD),
    FIELD(ledger_break, first_value, F_WORD), FIELD(ledger_break, value, F_WORD),
};
static const struct record break_record = RECORD(ledger_break, break_fields);

static const struct field guard_fields[] = {
    FIELD(ledger_guard, kind, F_GUARD),   FIELD(ledger_guard, subject, F_TEXT),
    FIELD(ledger_guard, expects, F_TEXT), FIELD(ledger_guard, why, F_TEXT),
    FIELD(ledger_guard, file, F_TEXT),    FIELD(ledger_guard, line, F_U32),
};
static const struct record guard_record = RECORD(ledger_guard, guard_fields);

static const struct field node_fields[] = {
    FIELD(ledger_node, name, F_TEXT),  FIELD(ledger_node, op, F_TEXT),
    FIELD(ledger_node, type, F_TEXT),  FIELD(ledger_node, operands, F_TEXT),
    FIELD(ledger_node, file, F_TEXT),  FIELD(ledger_node, line, F_U32),
    FIELD(ledger_node, island, F_U32), FIELD(ledger_node, group, F_U32),
};
static const struct record node_record = RECORD(ledger_node, node_fields);

static const struct field group_fields[] = {
    FIELD(ledger_group, kind, F_TEXT),      FIELD(ledger_group, kernel, F_TEXT),
    FIELD(ledger_group, members, F_TEXT),   FIELD(ledger_group, why_apart, F_TEXT),
    FIELD(ledger_group, live_bytes, F_U64),
};
static const struct record group_record = RECORD(ledger_group, group_fields);

static const struct field entry_fields[] = {
    FIELD(ledger_entry, number, F_U32),        FIELD(ledger_entry, segment, F_U32),
    FIELD(ledger_entry, call, F_U64),          FIELD(ledger_entry, is_symbolic, F_BOOL),
    FIELD(ledger_entry, is_evicted, F_BOOL),   FIELD(ledger_entry, title, F_TEXT),
    FIELD(ledger_entry, policy, F_TEXT),       FIELD(ledger_entry, rounding, F_TEXT),
    FIELD(ledger_entry, hits, F_U64),          FIELD(ledger_entry, seconds, F_REAL),
    FIELD(ledger_entry, kernels_built, F_U32), FIELD(ledger_entry, kernels_loaded, F_U32),
    LIST(ledger_entry, guards, &guard_record), LIST(ledger_entry, nodes, &node_record),
    LIST(ledger_entry, groups, &group_record), FIELD(ledger_entry, islands, F_TEXT),
    FIELD(ledger_entry, source, F_TEXT),       FIELD(ledger_entry, cache, F_TEXT),
    FIELD(ledger_entry, peak_bytes, F_U64),    FIELD(ledger_entry, leaf_bytes, F_U64),
};
static const struct record entry_record = RECORD(ledger_entry, entry_fields);

#define COUNTER(name)                                                                              \
    {                                                                                              \
#name, F_U64, offsetof(struct atoll_counters, name), 0, NULL                               \
    }
static const struct field counter_fields[] = {
    COUNTER(calls),         COUNTER(lookups),        COUNTER(hits),
    COUNTER(builds),        COUNTER(recompiles),     COUNTER(evictions),
    COUNTER(eager),         COUNTER(refused),        COUNTER(breaks),
    COUNTER(kernels_built), COUNTER(kernels_loaded), COUNTER(nanoseconds_building),
};
static const struct record counter_record = {sizeof(atoll_counters), ARRAY_LEN(counter_fields),
                                             counter_fields};

static const struct field ledger_fields[] = {
    FIELD(atoll_ledger, name, F_TEXT),         LIST(atoll_ledger, events, &event_record),
    LIST(atoll_ledger, breaks, &break_record), LIST(atoll_ledger, entries, &entry_record),
    FIELD(atoll_ledger, n_dropped, F_U64),
};
static const struct record ledger_record = RECORD(atoll_ledger, ledger_fields);

/* ---- out ---- */

static json_t *text_out(const char *text)
{
    json_t *t = json_string(text != NULL ? text : "");
    if (t == NULL) { /* bytes that are no UTF-8, from a file name */
        size_t n = strlen(text);
        char *plain = malloc(n + 1);
        for (size_t i = 0; plain != NULL && i <= n; i++) {
            plain[i] = text[i];
            if ((unsigned char)text[i] >= 0x80) {
                plain[i] = '?';
            }
        }
        t = plain != NULL ? json_string(plain) : NULL;
        free(plain);
    }
    return t;
}

static json_t *record_out(const struct record *r, const char *at);

static json_t *list_out(const struct field *f, const char *at)
{
    uint32_t n = *(const uint32_t *)(const void *)(at + f->count_offset);
    const char *items = *(char *const *)(const void *)(at + f->offset);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        const char *const *text = (const char *const *)(const void *)items;
        json_t *item =
            f->kind == F_TEXTS ? text_out(text[i]) : record_out(f->of, items + i * f->of->size);
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *field_out(const struct field *f, const char *at)
{
    const void *p = at + f->offset;
    switch (f->kind) {
    case F_TEXT:
    case F_WORD:
        return text_out(*(char *const *)p);
    case F_U32:
        return json_integer(*(const uint32_t *)p);
    case F_U64:
        return json_integer((json_int_t) * (const uint64_t *)p);
    case F_REAL:
        return json_real(*(const double *)p);
    case F_BOOL:
        return json_boolean(*(const bool *)p);
    case F_OUTCOME:
        return json_string(ledger_outcome_names[*(const enum ledger_outcome *)p]);
    case F_GUARD:
        return json_string(guard_kinds[*(const enum guard_kind *)p].name);
    default:
        return list_out(f, at);
    }
}

static json_t *record_out(const struct record *r, const char *at)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < r->n; i++) {
        json_object_set_new(o, r->fields[i].name, field_out(&r->fields[i], at));
    }
    return o;
}

char *ledger_json(const ledger *l)
{
    ledger_hold(l);
    json_t *o = record_out(&ledger_record, (const char *)(const void *)l);
    json_object_set_new(o, "counters",
                        record_out(&counter_record, (const char *)(const void *)&l->counters));
    ledger_let_go(l);
    json_object_set_new(o, "format", json_integer(LEDGER_FORMAT));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(o);
    return text;
}

status ledger_save(const ledger *l, const char *path, struct error *e)
{
    char *text = ledger_json(l);
    if (text == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: no memory for the ledger", path);
    }
    struct file_part parts[] = {{text, strlen(text)}, {"\n", 1}};
    status code = file_write(path, parts, ARRAY_LEN(parts), e);
    free(text);
    return code;
}

/* ---- in ---- */

struct reader {
    ledger *l;
    const char *name; /* of the file */
    struct error *e;
    char path[MAX_PATH_TEXT]; /* "events[3].reasons[0]." */
    const void *bytes;
    size_t size;
};

static status refuse(struct reader *r, const char *field, const char *found, const char *expected)
{
    return fail(r->e, ATOLL_FORMAT,
                "%s: %s%s: found %s, expected %s; hint: a ledger is what --ledger or "
                "atoll_ledger_save wrote",
                r->name, r->path, field, found, expected);
}

static const char *kind_of(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a text", "a whole number",
                                        "a number",  "true",     "false",  "null"};
    return v == NULL ? "nothing" : names[json_typeof(v)];
}

static status whole_in(struct reader *r, const char *field, const json_t *v, uint64_t high,
                       uint64_t *out)
{
    if (!json_is_integer(v)) {
        return refuse(r, field, kind_of(v), "a whole number");
    }
    json_int_t number = json_integer_value(v);
    if (number < 0 || (uint64_t)number > high) {
        char found[40], expected[60];
        snprintf(found, sizeof found, "%" JSON_INTEGER_FORMAT, number);
        snprintf(expected, sizeof expected, "a whole number from 0 to %" PRIu64, high);
        return refuse(r, field, found, expected);
    }
    *out = (uint64_t)number;
    return ATOLL_OK;
}

static status text_in(struct reader *r, const char *field, const json_t *v, const char **out)
{
    if (!json_is_string(v)) { /* without zero bytes: the parser refuses them */
        return refuse(r, field, kind_of(v), "a text");
    }
    *out = arena_copy_text(&r->l->arena, json_string_value(v));
    return ATOLL_OK;
}

static status short_in(struct reader *r, const char *field, const json_t *v, const char **out)
{
    *out = "";
    if (v == NULL) {
        return ATOLL_OK;
    }
    if (json_is_string(v) && json_string_length(v) >= MAX_VALUE_TEXT) {
        return refuse(r, field, "a longer text", "a text of less than 40 bytes");
    }
    return text_in(r, field, v, out);
}

static status word_in(struct reader *r, const struct field *f, const json_t *v, char *at)
{
    const char *word = json_is_string(v) ? json_string_value(v) : "";
    uint32_t i = 0;
    if (f->kind == F_GUARD) {
        enum guard_kind kind = guard_kind_named(word);
        if (kind == N_GUARD_KINDS) {
            return refuse(r, f->name, quote(word, strlen(word)).text, "a guard kind, such as dim");
        }
        *(enum guard_kind *)(void *)(at + f->offset) = kind;
        return ATOLL_OK;
    }
    while (i < N_LEDGER_OUTCOMES && strcmp(ledger_outcome_names[i], word) != 0) {
        i++;
    }
    if (i == N_LEDGER_OUTCOMES) {
        return refuse(r, f->name, quote(word, strlen(word)).text,
                      "hit, built, waited, eager, refused or failed");
    }
    *(enum ledger_outcome *)(void *)(at + f->offset) = (enum ledger_outcome)i;
    return ATOLL_OK;
}

static status record_in(struct reader *r, const struct record *record, const json_t *o, char *at);

static status list_in(struct reader *r, const struct field *f, const json_t *v, char *at)
{
    if (!json_is_array(v)) {
        return refuse(r, f->name, kind_of(v), "an array");
    }
    size_t n = json_array_size(v), item = f->kind == F_TEXTS ? sizeof(char *) : f->of->size;
    if (n > UINT32_MAX - 1) {
        return refuse(r, f->name, "too many items", "fewer than 4294967295");
    }
    char *items = arena_alloc(&r->l->arena, (n + 1) * item);
    size_t length = strlen(r->path);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        snprintf(r->path + length, sizeof r->path - length, "%s[%zu]", f->name, i);
        if (f->kind == F_TEXTS) {
            TRY(text_in(r, "", one, (const char **)(void *)(items + i * item)));
        } else {
            size_t to = strlen(r->path);
            snprintf(r->path + to, sizeof r->path - to, ".");
            TRY(record_in(r, f->of, one, items + i * item));
        }
        r->path[length] = '\0';
    }
    *(char **)(void *)(at + f->offset) = items;
    *(uint32_t *)(void *)(at + f->count_offset) = (uint32_t)n;
    return ATOLL_OK;
}

static status field_in(struct reader *r, const struct field *f, const json_t *v, char *at)
{
    void *p = at + f->offset;
    uint64_t whole = 0;
    switch (f->kind) {
    case F_TEXT:
        return text_in(r, f->name, v, p);
    case F_WORD:
        return short_in(r, f->name, v, p);
    case F_U32:
        TRY(whole_in(r, f->name, v, UINT32_MAX, &whole));
        *(uint32_t *)p = (uint32_t)whole;
        return ATOLL_OK;
    case F_U64:
        return whole_in(r, f->name, v, INT64_MAX, p);
    case F_REAL:
        if (!json_is_number(v)) {
            return refuse(r, f->name, kind_of(v), "a number");
        }
        *(double *)p = json_number_value(v);
        return ATOLL_OK;
    case F_BOOL:
        if (!json_is_boolean(v)) {
            return refuse(r, f->name, kind_of(v), "true or false");
        }
        *(bool *)p = json_is_true(v);
        return ATOLL_OK;
    case F_OUTCOME:
    case F_GUARD:
        return word_in(r, f, v, at);
    default:
        return list_in(r, f, v, at);
    }
}

static status record_in(struct reader *r, const struct record *record, const json_t *o, char *at)
{
    if (!json_is_object(o)) {
        return refuse(r, "", kind_of(o), "an object");
    }
    for (uint32_t i = 0; i < record->n; i++) {
        const struct field *f = &record->fields[i];
        TRY(field_in(r, f, json_object_get(o, f->name), at));
    }
    return ATOLL_OK;
}

struct parsed {
    struct reader *r;
    const json_t *root;
};

static status read_all(void *context)
{
    struct parsed *p = context;
    struct reader *r = p->r;
    uint64_t format = 0;
    if (!json_is_object(p->root)) {
        return refuse(r, "", kind_of(p->root), "an object");
    }
    TRY(whole_in(r, "format", json_object_get(p->root, "format"), UINT32_MAX, &format));
    if (format != LEDGER_FORMAT) {
        return fail(r->e, ATOLL_VERSION, "%s: found a ledger of format %" PRIu64 ", expected %d",
                    r->name, format, LEDGER_FORMAT);
    }
    TRY(record_in(r, &ledger_record, p->root, (char *)(void *)r->l));
    snprintf(r->path, sizeof r->path, "counters.");
    return record_in(r, &counter_record, json_object_get(p->root, "counters"),
                     (char *)(void *)&r->l->counters);
}

status ledger_read_bytes(const void *bytes, size_t size, const char *name, ledger **out,
                         struct error *e)
{
    json_error_t at;
    *out = NULL;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &at);
    if (root == NULL) {
        for (char *c = at.text; *c != '\0'; c++) { /* it quotes the file, line ends and all */
            *c = *c >= ' ' && *c <= '~' ? *c : '?';
        }
        return fail(e, ATOLL_FORMAT, "%s:%d:%d: no JSON: %.200s; expected a ledger", name, at.line,
                    at.column, at.text);
    }
    ledger *l = calloc(1, sizeof *l);
    struct reader r = {.l = l, .name = name, .e = e};
    struct parsed p = {&r, root};
    status code = l == NULL ? fail(e, ATOLL_OUT_OF_MEMORY, "%s: no memory for the ledger", name)
                            : run_recoverable(read_all, &p, e);
    json_decref(root);
    if (code != ATOLL_OK) {
        ledger_destroy(l);
        return code;
    }
    *out = l;
    return ATOLL_OK;
}

struct loading {
    struct arena arena;
    const char *path;
    uint8_t *bytes;
    size_t size;
    struct error *e;
};

static status read_bytes(void *context)
{
    struct loading *f = context;
    return file_read(&f->arena, f->path, &f->bytes, &f->size, f->e);
}

status ledger_load(const char *path, ledger **out, struct error *e)
{
    struct loading f = {.path = path, .e = e};
    *out = NULL;
    status code = run_recoverable(read_bytes, &f, e);
    if (code == ATOLL_OK) {
        code = ledger_read_bytes(f.bytes, f.size, path, out, e);
    }
    arena_free(&f.arena);
    return code;
}

static status to_public(status code, const struct error *own, atoll_error *error)
{
    if (code != ATOLL_OK && error != NULL && error->code == ATOLL_OK) {
        error->code = code;
        memcpy(error->text, own->text, sizeof error->text);
    }
    return code;
}

atoll_status atoll_ledger_save(const atoll_ledger *l, const char *path, atoll_error *error)
{
    struct error own = {0};
    return to_public(ledger_save(l, path, &own), &own, error);
}
