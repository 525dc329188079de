/* Six things that make a compiled function build again or break, each with the one explanation that
 * its ledger gives: a host read, a branch on data, an op Atoll does not have, a constant that
 * changes, a size that changes, a dtype that changes.
 *     graph_breaks [SITUATION] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/compile.h"

enum { MOST = 64 };
static float numbers[MOST * 4];

/* What a call is given beside its tensors. */
struct setting {
    double constant;
};

static void host_read(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value total = atoll_name(atoll_sum(a[0]), "total");
    double scale = atoll_item(total) > 0.0 ? 1.0 : 1.0; /* the same either way */
    atoll_output(t, "y", atoll_mul(a[0], atoll_number(t, scale)));
}

static void data_branch(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value mean = atoll_name(atoll_mean(a[0]), "mean");
    if (atoll_item(mean) > 0.5) {
        atoll_output(t, "y", atoll_exp(a[0]));
    } else {
        atoll_output(t, "y", atoll_tanh(a[0]));
    }
}

static int by_value(const void *a, const void *b)
{
    float x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static void sort_rows(void *context, const atoll_view *in, atoll_view *out)
{
    (void)context;
    memcpy(out->data, in->data, in->bytes);
    qsort(out->data, in->bytes / sizeof(float), sizeof(float), by_value);
}

static void unsupported_op(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_value h = atoll_name(atoll_exp(a[0]), "h");
    atoll_value sorted = atoll_host_op(h, "sort", sort_rows, NULL);
    atoll_output(t, "y", atoll_log(sorted));
}

static void changing_constant(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    const struct setting *s = context;
    (void)n;
    atoll_output(t, "y", atoll_mul(a[0], atoll_number(t, s->constant)));
}

static void softmax(atoll_trace *t, const atoll_value *a, uint32_t n, void *context)
{
    (void)n;
    (void)context;
    atoll_output(t, "y", atoll_softmax(a[0]));
}

struct step {
    atoll_dtype dtype;
    int64_t rows;
    float fill;
    double constant;
};

static const struct situation {
    const char *name;
    atoll_function *function;
    struct step steps[2];
} situations[] = {
    {"host read", host_read, {{ATOLL_F32, 8, 0.25f, 0.0}, {ATOLL_F32, 8, 0.25f, 0.0}}},
    {"data-dependent branch", data_branch, {{ATOLL_F32, 8, 0.25f, 0.0}, {ATOLL_F32, 8, 2.0f, 0.0}}},
    {"unsupported op", unsupported_op, {{ATOLL_F32, 8, 0.25f, 0.0}, {ATOLL_F32, 8, 0.5f, 0.0}}},
    {"changing constant",
     changing_constant,
     {{ATOLL_F32, 8, 1.0f, 0.1}, {ATOLL_F32, 8, 1.0f, 0.05}}},
    {"changing shape", softmax, {{ATOLL_F32, 64, 1.0f, 0.0}, {ATOLL_F32, 5, 1.0f, 0.0}}},
    {"changing dtype", softmax, {{ATOLL_F32, 8, 1.0f, 0.0}, {ATOLL_I32, 8, 1.0f, 0.0}}},
};

static void call_twice(const struct situation *s, atoll_compiled *f, atoll_error *error)
{
    atoll_results *results = atoll_results_create();
    for (int i = 0; i < 2; i++) {
        const struct step *step = &s->steps[i];
        struct setting setting = {step->constant};
        for (int64_t k = 0; k < step->rows * 4; k++) {
            numbers[k] = step->fill;
        }
        atoll_view x = atoll_view_of("x", step->dtype, ATOLL_DIMS(step->rows, 4), numbers);
        atoll_call(f, &x, 1, &setting, results, error);
    }
    atoll_results_destroy(results);
}

static void show(const struct situation *s, atoll_error *error)
{
    atoll_compiled *f = NULL;
    atoll_compile_options options = {.name = s->name};
    printf("== %s\n", s->name);
    if (atoll_compile(s->function, &options, &f, error) == ATOLL_OK) {
        call_twice(s, f, error);
        char *text = atoll_ledger_text(atoll_compiled_ledger(f));
        printf("%s", text != NULL ? text : "");
        free(text);
    }
    atoll_compiled_destroy(f);
}

int main(int argc, char **argv)
{
    atoll_error error = {0};
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        if (argc < 2 || strcmp(argv[1], situations[i].name) == 0) {
            show(&situations[i], &error);
        }
    }
    if (error.code != ATOLL_OK) {
        fprintf(stderr, "graph_breaks: %s\n", error.text);
    }
    return error.code != ATOLL_OK ? 3 : 0;
}
