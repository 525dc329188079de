/* The options of a training step as text: "adamw,lr=1e-3", "warmup,10+cosine,100". Used by the
 * command line and the C API before train_step.c. A table says which keys each form has, so that an
 * unknown key is answered with the list. Invariant: options that leave here pass
 * train_options_check. */
#include "train_step.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct train_options train_options_default(void)
{
    return (struct train_options){
        .optimizer = OPTIMIZER_ADAMW,
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = 1e-2,
        .schedule = {.gamma = 0.1, .warmup_start = 1.0 / 3.0, .warmup_end = 1.0},
        .scaler = {.init = 65536.0,
                   .growth = 2.0,
                   .backoff = 0.5,
                   .interval = 2000,
                   .ceiling = 3.4028234663852886e38},
        .accumulate = 1};
}

/* One key of a form: where its value goes. */
enum key_type { KEY_REAL, KEY_WHOLE, KEY_FLAG };
struct key {
    const char *form, *name;
    enum key_type type;
    bool is_positional; /* may stand without its name, in this order */
    size_t offset;
};

#define AT(field) offsetof(struct train_options, field)
static const struct key keys[] = {
    {"adamw", "lr", KEY_REAL, false, AT(lr)},
    {"adamw", "beta1", KEY_REAL, false, AT(beta1)},
    {"adamw", "beta2", KEY_REAL, false, AT(beta2)},
    {"adamw", "eps", KEY_REAL, false, AT(eps)},
    {"adamw", "weight_decay", KEY_REAL, false, AT(weight_decay)},
    {"adamw", "maximize", KEY_FLAG, false, AT(is_maximize)},
    {"adam", "lr", KEY_REAL, false, AT(lr)},
    {"adam", "beta1", KEY_REAL, false, AT(beta1)},
    {"adam", "beta2", KEY_REAL, false, AT(beta2)},
    {"adam", "eps", KEY_REAL, false, AT(eps)},
    {"adam", "weight_decay", KEY_REAL, false, AT(weight_decay)},
    {"adam", "maximize", KEY_FLAG, false, AT(is_maximize)},
    {"sgd", "lr", KEY_REAL, false, AT(lr)},
    {"sgd", "momentum", KEY_REAL, false, AT(momentum)},
    {"sgd", "dampening", KEY_REAL, false, AT(dampening)},
    {"sgd", "weight_decay", KEY_REAL, false, AT(weight_decay)},
    {"sgd", "nesterov", KEY_FLAG, false, AT(is_nesterov)},
    {"sgd", "maximize", KEY_FLAG, false, AT(is_maximize)},
    {"lion", "lr", KEY_REAL, false, AT(lr)},
    {"lion", "beta1", KEY_REAL, false, AT(beta1)},
    {"lion", "beta2", KEY_REAL, false, AT(beta2)},
    {"lion", "weight_decay", KEY_REAL, false, AT(weight_decay)},
    {"lion", "maximize", KEY_FLAG, false, AT(is_maximize)},
    {"step", "size", KEY_WHOLE, true, AT(schedule.step_size)},
    {"step", "gamma", KEY_REAL, true, AT(schedule.gamma)},
    {"cosine", "t_max", KEY_WHOLE, true, AT(schedule.t_max)},
    {"cosine", "eta_min", KEY_REAL, true, AT(schedule.eta_min)},
    {"warmup", "steps", KEY_WHOLE, true, AT(schedule.warmup)},
    {"warmup", "start", KEY_REAL, true, AT(schedule.warmup_start)},
    {"warmup", "end", KEY_REAL, true, AT(schedule.warmup_end)},
};
#undef AT
_Static_assert(ARRAY_LEN(keys) <= 64, "a bit for each key");

static const char *key_list(const char *form, struct arena *a)
{
    struct text t = {.arena = a};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].form, form) == 0) {
            text_add(&t, "%s%s", t.length > 0 ? ", " : "", keys[i].name);
        }
    }
    return t.data == NULL ? "" : t.data;
}

static status set_key(struct train_options *o, const struct key *k, const char *text,
                      struct error *e)
{
    char *at = (char *)o + k->offset, *end;
    if (k->type == KEY_FLAG) {
        bool on = text == NULL || strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
        if (!on && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
            return fail(e, ATOLL_USAGE, "%s: %s is a flag, found '%s'; expected 0 or 1", k->form,
                        k->name, text);
        }
        memcpy(at, &on, sizeof on);
        return ATOLL_OK;
    }
    errno = 0;
    double real = text == NULL || *text == '\0' ? (double)NAN : strtod(text, &end);
    if (isnan(real) || *end != '\0' || errno == ERANGE || isinf(real)) {
        return fail(e, ATOLL_USAGE, "%s: %s must be a number, found '%s'", k->form, k->name,
                    text == NULL ? "" : text);
    }
    if (k->type == KEY_REAL) {
        memcpy(at, &real, sizeof real);
        return ATOLL_OK;
    }
    if (real != floor(real) || real < 1.0 || real > 9e15) {
        return fail(e, ATOLL_USAGE, "%s: %s must be a whole number of steps, 1 or more, found '%s'",
                    k->form, k->name, text);
    }
    int64_t whole = (int64_t)real;
    memcpy(at, &whole, sizeof whole);
    return ATOLL_OK;
}

/* The key that `word` names, or for a bare value the next positional one. */
static const struct key *find_key(const char *form, const char *word, size_t length, bool is_named,
                                  uint32_t position)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct key *k = &keys[i];
        if (strcmp(k->form, form) != 0) {
            continue;
        }
        bool is_word = strlen(k->name) == length && memcmp(k->name, word, length) == 0;
        if (is_word && (is_named || k->type == KEY_FLAG)) {
            return k;
        }
        if (!is_named && k->is_positional && position-- == 0) {
            return k;
        }
    }
    return NULL;
}

/* "form,value,key=value"; words is modified. */
static status parse_form(struct train_options *o, const char *form, char *words, struct arena *a,
                         struct error *e)
{
    uint32_t position = 0;
    uint64_t seen = 0; /* by place in keys */
    while (words != NULL) {
        char *word = words, *comma = strchr(word, ',');
        words = comma == NULL ? NULL : comma + 1;
        if (comma != NULL) {
            *comma = '\0';
        }
        char *equal = strchr(word, '=');
        size_t length = equal == NULL ? strlen(word) : (size_t)(equal - word);
        const struct key *k = find_key(form, word, length, equal != NULL, position);
        if (k == NULL) {
            return fail(e, ATOLL_USAGE, "%s: '%s' is not one of its settings; it has: %s", form,
                        word, key_list(form, a));
        }
        uint64_t bit = UINT64_C(1) << (k - keys);
        if ((seen & bit) != 0) {
            return fail(e, ATOLL_USAGE, "%s: %s is given twice", form, k->name);
        }
        seen |= bit;
        bool is_flag = k->type == KEY_FLAG && equal == NULL;
        position += equal == NULL && !is_flag ? 1U : 0U;
        TRY(set_key(o, k, equal != NULL ? equal + 1 : is_flag ? NULL : word, e));
    }
    return ATOLL_OK;
}

static char *cut_form(char *text)
{
    char *comma = strchr(text, ',');
    if (comma != NULL) {
        *comma++ = '\0';
    }
    return comma;
}

static status parse_optimizer(struct train_options *o, char *text, struct arena *a, struct error *e)
{
    static const char *const names[] = {"adamw", "adam", "sgd", "lion"};
    char *rest = cut_form(text);
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            struct train_options fresh = train_options_default();
            fresh.schedule = o->schedule;
            fresh.max_norm = o->max_norm;
            fresh.scaler = o->scaler;
            fresh.accumulate = o->accumulate;
            fresh.skips_nonfinite = o->skips_nonfinite;
            fresh.allows_low_params = o->allows_low_params;
            fresh.param_rules = o->param_rules;
            fresh.n_param_rules = o->n_param_rules;
            fresh.rounding_seed = o->rounding_seed;
            *o = fresh;
            o->optimizer = (enum optimizer_kind)i;
            o->weight_decay = i == OPTIMIZER_ADAMW ? 1e-2 : 0.0;
            o->lr = i == OPTIMIZER_LION ? 1e-4 : o->lr; /* a step is lr long in each element */
            o->beta2 = i == OPTIMIZER_LION ? 0.99 : o->beta2;
            return parse_form(o, names[i], rest, a, e);
        }
    }
    return fail(e, ATOLL_USAGE, "optimizer '%s' is unknown; expected adamw, adam, sgd or lion",
                text);
}

static status parse_schedule(struct train_options *o, char *text, struct arena *a, struct error *e)
{
    bool has_warmup = false, has_main = false;
    while (text != NULL) {
        char *part = text, *plus = strstr(text, "+");
        /* the + of an exponent, as in 1e+2, is no separator */
        while (plus != NULL && plus > part && (plus[-1] == 'e' || plus[-1] == 'E') &&
               plus[1] >= '0' && plus[1] <= '9') {
            plus = strstr(plus + 1, "+");
        }
        text = plus == NULL ? NULL : plus + 1;
        if (plus != NULL) {
            *plus = '\0';
        }
        char *rest = cut_form(part);
        bool is_warmup = strcmp(part, "warmup") == 0, is_step = strcmp(part, "step") == 0;
        if (!is_warmup && !is_step && strcmp(part, "cosine") != 0) {
            return fail(e, ATOLL_USAGE, "schedule '%s' is unknown; expected step, cosine or warmup",
                        part);
        }
        if ((is_warmup && (has_warmup || has_main)) || (!is_warmup && has_main)) {
            return fail(e, ATOLL_USAGE,
                        "schedule: '%s' cannot stand there; expected warmup, then one of step or "
                        "cosine, as in warmup,10+cosine,100",
                        part);
        }
        if (rest == NULL) {
            return fail(e, ATOLL_USAGE, "schedule: %s needs its length in steps, as in %s,50", part,
                        part);
        }
        has_warmup = has_warmup || is_warmup;
        has_main = has_main || !is_warmup;
        if (!is_warmup) {
            o->schedule.kind = is_step ? SCHEDULE_STEP : SCHEDULE_COSINE;
        }
        TRY(parse_form(o, part, rest, a, e));
    }
    return ATOLL_OK;
}

status train_options_parse(struct train_options *o, const char *optimizer, const char *schedule,
                           struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    status code = ATOLL_OK;
    if (optimizer != NULL && *optimizer != '\0') {
        code = parse_optimizer(o, arena_copy_text(&scratch, optimizer), &scratch, e);
    }
    if (code == ATOLL_OK && schedule != NULL && *schedule != '\0') {
        o->schedule = train_options_default().schedule;
    }
    if (code == ATOLL_OK && schedule != NULL && *schedule != '\0' &&
        strcmp(schedule, "none") != 0) {
        code = parse_schedule(o, arena_copy_text(&scratch, schedule), &scratch, e);
    }
    arena_free(&scratch);
    return code == ATOLL_OK ? train_options_check(o, e) : code;
}

status train_options_check(const struct train_options *o, struct error *e)
{
    const struct {
        const char *name, *expected;
        double found;
        bool is_good;
    } rules[] = {
        {"lr", "0 or more", o->lr, o->lr >= 0.0},
        {"beta1", "from 0, below 1", o->beta1, o->beta1 >= 0.0 && o->beta1 < 1.0},
        {"beta2", "from 0, below 1", o->beta2, o->beta2 >= 0.0 && o->beta2 < 1.0},
        {"eps", "0 or more", o->eps, o->eps >= 0.0},
        {"weight_decay", "0 or more", o->weight_decay, o->weight_decay >= 0.0},
        {"momentum", "0 or more", o->momentum, o->momentum >= 0.0},
        {"clip norm", "0 or more", o->max_norm, o->max_norm >= 0.0},
        {"accumulate", "1 or more", (double)o->accumulate, o->accumulate >= 1},
        {"scaler init", "above 0", o->scaler.init, o->scaler.init > 0.0},
        {"scaler growth", "above 1", o->scaler.growth, o->scaler.growth > 1.0},
        {"scaler backoff", "above 0, below 1", o->scaler.backoff,
         o->scaler.backoff > 0.0 && o->scaler.backoff < 1.0},
        {"scaler interval", "1 or more", (double)o->scaler.interval, o->scaler.interval >= 1},
        {"step size", "1 or more", (double)o->schedule.step_size,
         o->schedule.kind != SCHEDULE_STEP || o->schedule.step_size >= 1},
        {"cosine t_max", "1 or more", (double)o->schedule.t_max,
         o->schedule.kind != SCHEDULE_COSINE || o->schedule.t_max >= 1},
        {"momentum", "above 0, with dampening 0, for nesterov", o->momentum,
         !o->is_nesterov || (o->momentum > 0.0 && o->dampening == 0.0)},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (!rules[i].is_good) {
            return fail(e, ATOLL_USAGE, "training options: %s is %g, expected %s", rules[i].name,
                        rules[i].found, rules[i].expected);
        }
    }
    return ATOLL_OK;
}
