/* A case as a .graph file: a comment line of words, then the graph. Invariant: case_parse reads
 * back everything case_print wrote. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "ir/parse.h"
#include "ir/print.h"

void case_print(const struct fuzz_case *c, struct text *t)
{
    text_add(t, "# case policy=%s data=%" PRIu64 " style=%u sizes=", c->policy, c->data, c->style);
    for (uint32_t i = 0; i < c->n_steps; i++) {
        text_add(t, "%s%" PRId64, i > 0 ? "," : "", c->sizes[i]);
    }
    if (c->is_trained) {
        text_add(t, " optimizer=%s accumulate=%" PRId64, c->optimizer, c->accumulate);
        if (c->schedule[0] != '\0') {
            text_add(t, " schedule=%s", c->schedule);
        }
        if (c->params[0] != '\0') {
            text_add(t, " params=%s", c->params);
        }
        if (c->clip > 0) {
            text_add(t, " clip=%g", c->clip);
        }
        if (c->scaler > 0) {
            text_add(t, " scaler=%g", c->scaler);
        }
        text_add(t, " skips=%d low=%d", c->skips, c->low);
    }
    text_add(t, "\n");
    graph_print(c->graph, t, NULL);
}

static bool word_is(const char *word, const char *name, const char **out)
{
    size_t n = strlen(name);
    if (strncmp(word, name, n) != 0 || word[n] != '=') {
        return false;
    }
    *out = word + n + 1;
    return true;
}

static void read_sizes(struct fuzz_case *c, const char *text)
{
    c->n_steps = 0;
    while (c->n_steps < MAX_CASE_STEPS && *text != '\0') {
        char *end;
        c->sizes[c->n_steps++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : "";
    }
}

static bool read_word(struct fuzz_case *c, const char *word)
{
    const char *v;
    if (word_is(word, "policy", &v)) {
        snprintf(c->policy, sizeof c->policy, "%s", v);
    } else if (word_is(word, "data", &v)) {
        c->data = strtoull(v, NULL, 10);
    } else if (word_is(word, "style", &v)) {
        c->style = (uint32_t)strtoul(v, NULL, 10);
    } else if (word_is(word, "sizes", &v)) {
        read_sizes(c, v);
    } else if (word_is(word, "optimizer", &v)) {
        c->is_trained = true;
        snprintf(c->optimizer, sizeof c->optimizer, "%s", v);
    } else if (word_is(word, "schedule", &v)) {
        snprintf(c->schedule, sizeof c->schedule, "%s", v);
    } else if (word_is(word, "params", &v)) {
        snprintf(c->params, sizeof c->params, "%s", v);
    } else if (word_is(word, "accumulate", &v)) {
        c->accumulate = strtoll(v, NULL, 10);
    } else if (word_is(word, "clip", &v)) {
        c->clip = strtod(v, NULL);
    } else if (word_is(word, "scaler", &v)) {
        c->scaler = strtod(v, NULL);
    } else if (word_is(word, "skips", &v)) {
        c->skips = *v == '1';
    } else if (word_is(word, "low", &v)) {
        c->low = *v == '1';
    } else {
        return false;
    }
    return true;
}

status case_parse(const char *text, size_t size, const char *file, struct fuzz_case *out,
                  struct error *e)
{
    static const char head[] = "# case ";
    char line[1024];
    *out = (struct fuzz_case){.policy = "none", .accumulate = 1, .n_steps = 2};
    const char *end = memchr(text, '\n', size);
    size_t length = end == NULL ? 0 : (size_t)(end - text);
    if (length >= sizeof line || length < sizeof head || memcmp(text, head, sizeof head - 1) != 0) {
        return fail(e, ATOLL_PARSE, "%s:1: expected a first line \"# case WORD=VALUE ...\"", file);
    }
    memcpy(line, text, length);
    line[length] = '\0';
    for (char *rest = line + sizeof head - 1, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        if (!read_word(out, word)) {
            return fail(e, ATOLL_PARSE, "%s:1: unknown word \"%s\"", file, word);
        }
    }
    out->graph = graph_parse(text, size, file, e);
    return out->graph != NULL ? ATOLL_OK : e->code;
}
