/* Options of the data loaders as text, label=last,scale=1/16: what the command line takes and what
 * the loaders' messages speak of. Invariant: a key or value that is not known is refused, never
 * ignored. */
#include "runtime/data_formats.h"
#include "runtime/file.h"

#include <math.h>
#include <string.h>

struct span {
    const char *text;
    size_t length;
};

static bool is(struct span s, const char *word)
{
    return strlen(word) == s.length && memcmp(s.text, word, s.length) == 0;
}

/* The word's place in the list, -1 when it is not there. */
static int find_word(struct span s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is(s, words[i])) {
            return (int)i;
        }
    }
    return -1;
}

static const char *set_label(struct dataset_options *o, struct span value)
{
    int64_t index;
    if (is(value, "last")) {
        o->label = LABEL_LAST;
    } else if (is(value, "none") || is(value, "-1")) {
        o->label = LABEL_NONE;
    } else if (integer_parse(value.text, value.length, &index) && index >= 0) {
        o->label = LABEL_INDEX;
        o->label_index = index;
    } else if (value.length > 0 && value.length < sizeof o->label_name) {
        o->label = LABEL_NAME;
        memcpy(o->label_name, value.text, value.length);
        o->label_name[value.length] = '\0';
    } else {
        return "last, none, an index from 0 or a name of at most 127 bytes";
    }
    return NULL;
}

static const char *set_header(struct dataset_options *o, struct span value)
{
    static const char *const words[] = {"detect", "yes", "no"}; /* in the order of the enum */
    int i = find_word(value, words, ARRAY_LEN(words));
    if (i < 0) {
        return "detect, yes or no";
    }
    o->header = (enum data_header)i;
    return NULL;
}

static const char *set_separator(struct dataset_options *o, struct span value)
{
    static const char *const words[] = {"detect", "comma", "semicolon", "tab"};
    int i = find_word(value, words, ARRAY_LEN(words));
    if (i < 0 && (value.length != 1 || *value.text == '"')) {
        return "detect, comma, semicolon, tab or one character that is no quote";
    }
    o->separator = i < 0 ? *value.text : "\0,;\t"[i];
    return NULL;
}

static const char *set_scale(struct dataset_options *o, struct span value)
{
    const char *slash = memchr(value.text, '/', value.length);
    size_t first = slash != NULL ? (size_t)(slash - value.text) : value.length;
    double a = 0, b = 1;
    float single;
    bool good = number_parse(value.text, first, &a, &single) == NUMBER_FINITE;
    if (slash != NULL) {
        good =
            good && number_parse(slash + 1, value.length - first - 1, &b, &single) == NUMBER_FINITE;
    }
    float scale = good && b != 0 ? (float)(a / b) : 0;
    if (scale == 0.0f || !isfinite(scale)) {
        return "a number or A/B, not 0";
    }
    o->scale = scale;
    return NULL;
}

static const char *set_nonfinite(struct dataset_options *o, struct span value)
{
    static const char *const words[] = {"refuse", "allow"};
    int i = find_word(value, words, ARRAY_LEN(words));
    if (i < 0) {
        return "refuse or allow";
    }
    o->allow_nonfinite = i == 1;
    return NULL;
}

static const char *set_format(struct dataset_options *o, struct span value)
{
    static const char *const words[] = {"detect", "csv", "npy", "npz", "safetensors"};
    int i = find_word(value, words, ARRAY_LEN(words));
    if (i < 0) {
        return "detect, csv, npy, npz or safetensors";
    }
    o->format = (enum data_format)i;
    return NULL;
}

/* Each setter returns NULL, or what it expected. */
static const struct {
    const char *key;
    const char *(*set)(struct dataset_options *o, struct span value);
} keys[] = {
    {"label", set_label}, {"header", set_header},       {"separator", set_separator},
    {"scale", set_scale}, {"nonfinite", set_nonfinite}, {"format", set_format},
};

static status set_option(struct span item, struct dataset_options *o, struct error *e)
{
    const char *equals = memchr(item.text, '=', item.length);
    for (size_t i = 0; i < ARRAY_LEN(keys) && equals != NULL; i++) {
        struct span key = {item.text, (size_t)(equals - item.text)};
        struct span value = {equals + 1, item.length - key.length - 1};
        if (is(key, keys[i].key)) {
            const char *expected = keys[i].set(o, value);
            return expected == NULL
                       ? ATOLL_OK
                       : fail(e, ATOLL_USAGE, "data options: %s: found %s, expected %s",
                              keys[i].key, quote(value.text, value.length).text, expected);
        }
    }
    return fail(
        e, ATOLL_USAGE,
        "data options: found %s, expected label=, header=, separator=, scale=, nonfinite= or "
        "format=",
        quote(item.text, item.length).text);
}

status dataset_options_parse(const char *text, struct dataset_options *o, struct error *e)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        TRY(set_option((struct span){text, length}, o, e));
        text += length;
        if (*text == ',' && *++text == '\0') {
            return set_option((struct span){text, 0}, o, e);
        }
    }
    return ATOLL_OK;
}
