/* Data for training: rows in a fixed or shuffled order, gathered into batches. The shuffle is
 * Fisher-Yates over Philox numbers of (seed, epoch), so a run can be repeated and resumed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

enum { SPLIT_STREAM = 0x5e11, EPOCH_STREAM = 0x5eed0000 };

static status check(struct split *s, const char *path, struct error *e)
{
    s->x = dataset_find(&s->data, "x");
    s->y = dataset_find(&s->data, "y");
    if (s->x == NULL || s->x->rank < 1) {
        return fail(e, ATOLL_DATA, "%s: no array 'x'; hint: features are called x, labels y", path);
    }
    if (s->y != NULL && (s->y->rank < 1 || s->y->shape[0] != s->x->shape[0])) {
        return fail(e, ATOLL_DATA, "%s: x has %lld rows, y has %lld", path,
                    (long long)s->x->shape[0], (long long)(s->y->rank > 0 ? s->y->shape[0] : 0));
    }
    return ATOLL_OK;
}

/* Puts the first n of the rows in the order of this stream; file order when nothing is shuffled. */
static void shuffle(struct split *s, int64_t n, uint64_t stream)
{
    for (int64_t i = n - 1; s->is_shuffled && i > 0; i--) {
        int64_t k = random_u32(s->seed, stream, (uint64_t)i) % (i + 1);
        int64_t t = s->order[i];
        s->order[i] = s->order[k];
        s->order[k] = t;
    }
}

status read_data_options(const struct arguments *a, struct dataset_options *o, struct error *e)
{
    static const char *const keys[] = {"label", "scale"};
    char text[200];
    TRY(dataset_options_parse(argument(a, "read", ""), o, e));
    for (uint32_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *given = argument(a, keys[i], NULL);
        if (given == NULL) {
            continue;
        }
        int n = snprintf(text, sizeof text, "%s=%s", keys[i], given);
        if (n < 0 || (size_t)n >= sizeof text || strchr(given, ',') != NULL) {
            return fail(e, ATOLL_USAGE, "--%s %.60s: expected one value", keys[i], given);
        }
        TRY(dataset_options_parse(text, o, e));
    }
    return ATOLL_OK;
}

status split_open(struct split *s, const struct arguments *a, uint64_t seed, struct error *e)
{
    struct dataset_options o = {0};
    const char *path = argument(a, "data", NULL);
    double holdout;
    *s = (struct split){.seed = seed, .is_shuffled = !argument_flag(a, "no-shuffle")};
    if (path == NULL) {
        return fail(e, ATOLL_USAGE, "--data FILE is missing");
    }
    TRY(argument_number(a, "holdout", 0.2, 0.0, 0.9, &holdout, e));
    TRY(read_data_options(a, &o, e));
    TRY(dataset_open(path, &o, &s->data, e));
    TRY(check(s, path, e));
    int64_t rows = s->x->shape[0];
    s->n_test = (int64_t)(holdout * (double)rows);
    s->n_train = rows - s->n_test;
    s->order = malloc(sizeof *s->order * (size_t)(rows + 1));
    s->rows = malloc(sizeof *s->rows * (size_t)(rows + 1));
    s->batch_x = malloc(s->x->bytes + 64);
    s->batch_y = s->y != NULL ? malloc(s->y->bytes + 64) : NULL;
    if (s->order == NULL || s->rows == NULL || s->batch_x == NULL ||
        (s->y != NULL && s->batch_y == NULL)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    for (int64_t i = 0; i < rows; i++) {
        s->order[i] = i;
    }
    shuffle(s, rows, SPLIT_STREAM); /* which rows are the test's */
    memcpy(s->rows, s->order, sizeof *s->rows * (size_t)rows);
    return ATOLL_OK;
}

/* An input that no batch sets would be zeros. */
static status check_inputs(const struct split *s, const struct graph *g, struct error *e)
{
    if (graph_find(g, "x").id == 0) {
        return fail(e, ATOLL_DATA,
                    "the model has no input %%x; hint: the rows of the data go to x, "
                    "labels to y");
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const char *name = g->nodes[i].op == OP_input ? g->nodes[i].name : "x";
        if (strcmp(name, "y") == 0 && s->y == NULL) {
            return fail(e, ATOLL_DATA,
                        "the model reads labels %%y, the data has none; hint: --label "
                        "names their column, an NPZ or safetensors file calls them y");
        }
        if (strcmp(name, "x") != 0 && strcmp(name, "y") != 0) {
            return fail(e, ATOLL_DATA, "the model reads input %%%s; found data for x and y only",
                        name);
        }
    }
    return ATOLL_OK;
}

status split_check(const struct split *s, const struct graph *g, struct error *e)
{
    TRY(check_inputs(s, g, e));
    if (s->y == NULL || s->y->dtype != I64) {
        return ATOLL_OK;
    }
    int64_t classes = -1;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct node *n = graph_node(g, g->outputs[i].value);
        if (strcmp(g->outputs[i].name, "logits") == 0 && n->shape.rank == 2 &&
            dim_is_static(n->shape.dims[1])) {
            classes = n->shape.dims[1].factor;
        }
    }
    const int64_t *y = s->y->data;
    for (int64_t i = 0; classes >= 0 && i < s->y->shape[0]; i++) {
        if (y[i] < 0 || y[i] >= classes) {
            return fail(e, ATOLL_DATA,
                        "data row %lld: label %lld, but the model has classes 0 to %lld",
                        (long long)(i + 1), (long long)y[i], (long long)(classes - 1));
        }
    }
    return ATOLL_OK;
}

status split_check_rows(const struct split *s, const struct job *j, int64_t batch, int64_t epochs,
                        int64_t max_steps, struct error *e)
{
    if (epochs == 0 || max_steps == 0 || s->n_train == 0) {
        return ATOLL_OK;
    }
    int64_t full = s->n_train / batch, rest = s->n_train % batch;
    TRY(full > 0 ? job_check_rows(j, batch, e) : ATOLL_OK);
    return rest > 0 && max_steps > full ? job_check_rows(j, rest, e) : ATOLL_OK;
}

void split_epoch(struct split *s, int64_t epoch)
{
    memcpy(s->order, s->rows, sizeof *s->order * (size_t)s->n_train);
    shuffle(s, s->n_train, EPOCH_STREAM + (uint64_t)epoch);
}

static void gather(const struct split *s, const struct array *from, unsigned char *to,
                   int64_t first, int64_t n, struct tensor *out)
{
    int64_t rows = from->shape[0];
    size_t row = rows > 0 ? from->bytes / (size_t)rows : 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * row,
               (const unsigned char *)from->data + (size_t)s->order[first + i] * row, row);
    }
    *out = (struct tensor){.dtype = from->dtype, .rank = from->rank, .data = to};
    memcpy(out->shape, from->shape, sizeof out->shape);
    out->shape[0] = n;
}

void split_batch(struct split *s, int64_t from, int64_t n, struct tensor *x, struct tensor *y)
{
    *y = (struct tensor){0};
    gather(s, s->x, s->batch_x, from, n, x);
    if (s->y != NULL) {
        gather(s, s->y, s->batch_y, from, n, y);
    }
}

void split_test(struct split *s, struct tensor *x, struct tensor *y)
{
    memcpy(s->order, s->rows, sizeof *s->order * (size_t)(s->n_train + s->n_test));
    split_batch(s, s->n_train, s->n_test, x, y);
}

status batch_feed(struct runner *r, const struct tensor *x, const struct tensor *y, struct error *e)
{
    TRY(runner_input(r, "x", x, e));
    return y->data != NULL && graph_find(runner_graph(r), "y").id != 0 ? runner_input(r, "y", y, e)
                                                                       : ATOLL_OK;
}

status batch_prefetch(struct runner *r, const struct tensor *x, const struct tensor *y,
                      struct error *e)
{
    TRY(runner_prefetch(r, "x", x, e));
    return y->data != NULL && graph_find(runner_graph(r), "y").id != 0
               ? runner_prefetch(r, "y", y, e)
               : ATOLL_OK;
}

void split_close(struct split *s)
{
    dataset_close(&s->data);
    free(s->order);
    free(s->rows);
    free(s->batch_x);
    free(s->batch_y);
    *s = (struct split){0};
}

double accuracy_of(const struct tensor *logits, const struct tensor *y)
{
    int64_t rows = y->shape[0], classes = logits->rank == 2 ? logits->shape[1] : 0, right = 0;
    size_t size = dtype_info[logits->dtype].bytes;
    const unsigned char *z = logits->data;
    for (int64_t r = 0; r < rows && classes > 0; r++) {
        double best = -HUGE_VAL;
        int64_t at = -1;
        for (int64_t c = 0; c < classes; c++) {
            double v = dtype_load(logits->dtype, z + (size_t)(r * classes + c) * size);
            if (v > best) {
                best = v;
                at = c;
            }
        }
        right += at == (int64_t)dtype_load(y->dtype, (const unsigned char *)y->data +
                                                         (size_t)r * dtype_info[y->dtype].bytes);
    }
    return rows > 0 ? (double)right / (double)rows : (double)NAN;
}
