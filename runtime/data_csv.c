/* CSV (RFC 4180 quoting, LF or CRLF) into features and labels. Two sweeps over the text: the first
 * checks that all lines have the same number of cells and counts them, the second reads numbers
 * into arrays of known size. Invariant: nothing is guessed or skipped but blank lines; the first
 * cell that is not what it should be ends the load with its line and column. */
#include "runtime/data_formats.h"
#include "runtime/file.h"

#include <string.h>

struct reader {
    const char *at, *end;
    uint64_t line;
    uint32_t column; /* of the next cell, from 1 */
    char separator;
};

struct cell {
    const char *text;
    size_t length;
    uint64_t line;
    uint32_t column;
    bool is_last;
};

struct table {
    struct reader start;     /* at the first line of data */
    struct cell *header;     /* NULL without one */
    uint32_t columns, label; /* label == columns: none */
    int64_t rows;
    uint64_t first_line;
};

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static void skip_line_end(struct reader *r)
{
    char c = *r->at++;
    if (c == '\r' && r->at < r->end && *r->at == '\n') {
        r->at++;
    }
    r->line++;
}

/* False at the end of the text. */
static bool next_line(struct reader *r)
{
    while (r->at < r->end && is_line_end(*r->at)) {
        skip_line_end(r);
    }
    r->column = 1;
    return r->at < r->end;
}

static void trim(struct cell *c)
{
    while (c->length > 0 && (c->text[0] == ' ' || c->text[0] == '\t')) {
        c->text++;
        c->length--;
    }
    while (c->length > 0 && (c->text[c->length - 1] == ' ' || c->text[c->length - 1] == '\t')) {
        c->length--;
    }
}

/* The cell's text excludes its quotes; doubled quotes inside stay doubled. */
static status read_quoted(struct source *s, struct reader *r, struct cell *c)
{
    const char *start = ++r->at;
    for (;; r->at++) {
        if (r->at == r->end) {
            return fail(
                s->e, ATOLL_FORMAT,
                "%s:%llu, column %u: found a quote that is never closed, expected a second \"",
                s->name, (unsigned long long)c->line, c->column);
        }
        if (*r->at == '"') {
            if (r->at + 1 == r->end || r->at[1] != '"') {
                break;
            }
            r->at++;
        } else if (*r->at == '\n') {
            r->line++;
        }
    }
    c->text = start;
    c->length = (size_t)(r->at++ - start);
    if (r->at < r->end && *r->at != r->separator && !is_line_end(*r->at)) {
        return fail(
            s->e, ATOLL_FORMAT,
            "%s:%llu, column %u: found %s after a closing quote, expected the end of the cell",
            s->name, (unsigned long long)r->line, c->column, quote(r->at, 1).text);
    }
    return ATOLL_OK;
}

static status next_cell(struct source *s, struct reader *r, struct cell *c)
{
    *c = (struct cell){.text = r->at, .line = r->line, .column = r->column++};
    if (r->at < r->end && *r->at == '"') {
        TRY(read_quoted(s, r, c));
    } else {
        while (r->at < r->end && *r->at != r->separator && !is_line_end(*r->at)) {
            r->at++;
        }
        c->length = (size_t)(r->at - c->text);
    }
    trim(c);
    if (r->at < r->end && *r->at == r->separator) {
        r->at++;
        return ATOLL_OK;
    }
    c->is_last = true;
    if (r->at < r->end) {
        skip_line_end(r);
    }
    return ATOLL_OK;
}

static char find_separator(const struct source *s, const char *at, const char *end)
{
    if (s->options.separator != '\0') {
        return s->options.separator;
    }
    for (bool quoted = false; at < end && (quoted || !is_line_end(*at)); at++) {
        quoted = quoted != (*at == '"');
        if (!quoted && (*at == ',' || *at == ';' || *at == '\t')) {
            return *at;
        }
    }
    return ',';
}

/* ---- first sweep ---- */

/* All cells of the first line; *n_numbers of them are numbers. */
static status read_first_line(struct source *s, struct reader *r, struct table *t,
                              uint32_t *n_numbers)
{
    uint32_t capacity = 0;
    struct cell c;
    do {
        TRY(next_cell(s, r, &c));
        double wide;
        float single;
        *n_numbers += number_parse(c.text, c.length, &wide, &single) != NUMBER_NONE;
        t->header = arena_grow(&s->scratch, t->header, t->columns, &capacity, sizeof c);
        t->header[t->columns++] = c;
    } while (!c.is_last);
    return ATOLL_OK;
}

static status count_rows(struct source *s, struct reader r, struct table *t)
{
    while (next_line(&r)) {
        uint64_t line = r.line;
        struct cell c;
        do {
            TRY(next_cell(s, &r, &c));
        } while (!c.is_last);
        if (c.column != t->columns) {
            return fail(
                s->e, ATOLL_DATA,
                "%s:%llu: found %u cell%s, expected %u as in line %llu; every line needs the "
                "same number of cells",
                s->name, (unsigned long long)line, c.column, c.column == 1 ? "" : "s", t->columns,
                (unsigned long long)t->first_line);
        }
        t->rows++;
    }
    return ATOLL_OK;
}

static bool cell_is(const struct cell *c, const char *name)
{
    size_t at = 0;
    for (; *name != '\0'; name++) {
        if (at >= c->length || c->text[at] != *name) {
            return false;
        }
        at += *name == '"' ? 2 : 1; /* a quote in a cell is doubled */
    }
    return at == c->length;
}

static status find_named_label(struct source *s, struct table *t)
{
    const char *name = s->options.label_name;
    if (t->header == NULL) {
        return fail(
            s->e, ATOLL_NOT_FOUND,
            "%s: the label column is given by name, %s, but line %llu is no header: give its "
            "index, label=0 to %u, or load with header=yes",
            s->name, quote(name, strlen(name)).text, (unsigned long long)t->first_line,
            t->columns - 1);
    }
    for (t->label = 0; t->label < t->columns; t->label++) {
        if (cell_is(&t->header[t->label], name)) {
            return ATOLL_OK;
        }
    }
    const struct cell *last = &t->header[t->columns - 1];
    return fail(
        s->e, ATOLL_NOT_FOUND,
        "%s: found no column %s in the header of %u, %s to %s; give one of its names, or an "
        "index from 0",
        s->name, quote(name, strlen(name)).text, t->columns,
        quote(t->header[0].text, t->header[0].length).text, quote(last->text, last->length).text);
}

static status find_label(struct source *s, struct table *t)
{
    switch (s->options.label) {
    case LABEL_NONE:
        t->label = t->columns;
        break;
    case LABEL_LAST:
        t->label = t->columns - 1;
        break;
    case LABEL_INDEX:
        if (s->options.label_index < 0 || s->options.label_index >= t->columns) {
            return fail(
                s->e, ATOLL_NOT_FOUND,
                "%s: found %u columns, expected a label column of index %lld; the last is %u",
                s->name, t->columns, (long long)s->options.label_index, t->columns - 1);
        }
        t->label = (uint32_t)s->options.label_index;
        break;
    case LABEL_NAME:
        TRY(find_named_label(s, t));
        break;
    }
    if (t->columns == 1 && t->label == 0) {
        return fail(
            s->e, ATOLL_DATA,
            "%s: found one column, which is the label, expected features beside it; without "
            "labels load with label=none",
            s->name);
    }
    return ATOLL_OK;
}

static status measure(struct source *s, struct table *t)
{
    struct reader r = {
        .at = (const char *)s->bytes, .end = (const char *)s->bytes + s->size, .line = 1};
    if (s->size >= 2 && (memcmp(r.at, "\xff\xfe", 2) == 0 || memcmp(r.at, "\xfe\xff", 2) == 0)) {
        return fail(s->e, ATOLL_FORMAT, "%s: found UTF-16 text, expected UTF-8; save it as UTF-8",
                    s->name);
    }
    if (s->size >= 3 && memcmp(r.at, "\xef\xbb\xbf", 3) == 0) {
        r.at += 3;
    }
    if (!next_line(&r)) {
        return fail(s->e, ATOLL_DATA, "%s: found an empty file, expected lines of numbers",
                    s->name);
    }
    r.separator = find_separator(s, r.at, r.end);
    t->first_line = r.line;
    t->start = r;
    uint32_t n_numbers = 0;
    TRY(read_first_line(s, &r, t, &n_numbers));
    if (s->options.header == HEADER_NO || (s->options.header == HEADER_DETECT && n_numbers > 0)) {
        t->header = NULL;
    } else {
        t->start = r;
    }
    TRY(find_label(s, t));
    TRY(count_rows(s, t->start, t));
    if (t->rows == 0) {
        return fail(
            s->e, ATOLL_DATA,
            "%s: found %s of %u cells and no line of numbers after it, expected at least one",
            s->name, t->header != NULL ? "a header" : "a line", t->columns);
    }
    return ATOLL_OK;
}

/* ---- second sweep ---- */

static status fail_cell(struct source *s, const struct table *t, const struct cell *c,
                        const char *expected)
{
    const char *hint = "";
    if (c->length == 0) {
        hint = "; fill the empty cell or drop the line";
    } else if (c->line == t->first_line && t->header == NULL) {
        hint = "; if this line is a header, load with header=yes";
    }
    return fail(s->e, ATOLL_DATA, "%s:%llu, column %u: found %s, expected %s%s", s->name,
                (unsigned long long)c->line, c->column, quote(c->text, c->length).text, expected,
                hint);
}

static status read_label(struct source *s, const struct table *t, const struct cell *c, int64_t *y)
{
    if (!integer_parse(c->text, c->length, y)) {
        return fail_cell(
            s, t, c,
            c->length == 0
                ? "a label"
                : "an integer label; another label column is chosen with label=INDEX or NAME");
    }
    return ATOLL_OK;
}

static status read_feature(struct source *s, const struct table *t, const struct cell *c, float *x)
{
    double wide;
    switch (number_parse(c->text, c->length, &wide, x)) {
    case NUMBER_FINITE:
        return ATOLL_OK;
    case NUMBER_NONFINITE:
        return s->options.allow_nonfinite
                   ? ATOLL_OK
                   : fail_cell(s, t, c, "a finite number within f32; nonfinite=allow accepts it");
    case NUMBER_NONE:
        break;
    }
    return fail_cell(s, t, c, "a number");
}

status load_csv(struct source *s)
{
    struct table t = {0};
    TRY(measure(s, &t));
    bool labelled = t.label < t.columns;
    int64_t features = (int64_t)t.columns - labelled;
    float *x = source_add(s, "x", F32, 2, (int64_t[]){t.rows, features})->data;
    int64_t *y = labelled ? source_add(s, "y", I64, 1, &t.rows)->data : NULL;
    struct reader r = t.start;
    while (next_line(&r)) {
        struct cell c;
        do {
            TRY(next_cell(s, &r, &c));
            if (c.column - 1 == t.label) {
                TRY(read_label(s, &t, &c, y++));
            } else {
                TRY(read_feature(s, &t, &c, x++));
            }
        } while (!c.is_last);
    }
    return ATOLL_OK;
}
