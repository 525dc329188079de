/* The command line: one file a subcommand; main.c holds the table of them. Exit codes: 0 ok, 1 a
 * check failed, 2 usage, 3 bad input, 4 environment (compiler, memory, disk, processor). */
#ifndef ATOLL_CLI_H
#define ATOLL_CLI_H

#include "frontend/context.h"
#include "frontend/runner.h"
#include "runtime/data.h"

#define MAX_SEED INT64_C(9000000000000000) /* exact as a double */

enum { EXIT_CHECK = 1, EXIT_USAGE = 2, EXIT_INPUT = 3, EXIT_ENVIRONMENT = 4 };

/* An option: "--name VALUE", or a flag when value is NULL in the table. */
struct option {
    const char *name;  /* "batch" */
    const char *value; /* "N" in the help; NULL: a flag */
    const char *doc;
};

/* A row that every reader of data has. */
#define READ_OPTION                                                                                \
    {                                                                                              \
        "read", "OPTIONS",                                                                         \
            "how to read the file: header=yes|no,separator=tab,nonfinite=allow,format=csv, ..."    \
    }

struct arguments {
    const struct option *options;
    uint32_t n_options;
    const char *values[48]; /* by option: its text, "" for a flag given, NULL */
    struct {
        const char *name, *value;
    } given[64]; /* in order, for options that may come more than once */
    uint32_t n_given;
    const char *positional[8];
    uint32_t n_positional;
};

struct command {
    const char *name, *usage, *doc, *examples;
    const struct option *options;
    uint32_t n_options;
    status (*run)(const struct arguments *a, struct context *c, struct error *e);
};

#define X(name) extern const struct command command_##name;
#include "commands.def"
#undef X

/* The value of an option, or `otherwise`. */
const char *argument(const struct arguments *a, const char *name, const char *otherwise);
/* The k-th time the option was given; NULL when there is none. */
const char *argument_nth(const struct arguments *a, const char *name, uint32_t k);
bool argument_flag(const struct arguments *a, const char *name);
status argument_number(const struct arguments *a, const char *name, double otherwise, double low,
                       double high, double *out, struct error *e);
/* A whole number; bounds up to 2^53. */
status argument_whole(const struct arguments *a, const char *name, int64_t otherwise, int64_t low,
                      int64_t high, int64_t *out, struct error *e);
/* No options but those of the space-separated list were given; for what `why` says. */
status argument_only(const struct arguments *a, const char *allowed, const char *why,
                     struct error *e);

/* Options that compile and train share, read into a compile job. */
struct job {
    struct arena arena;
    struct graph *model;    /* --shape applied */
    struct graph *symbolic; /* as the file has it; the same graph without --shape */
    struct graph
        *any_rows; /* --shape applied but for the symbol of %x's rows: takes the test rows */
    int64_t sizes[MAX_SYMBOLS]; /* of --shape, by symbol of `symbolic`; -1: left symbolic */
    struct policy file_policy;
    struct train_options train;
    struct compile_options compile;
    uint64_t seed;
};
/* Reads the model file, binds --shape symbols. */
status job_open(struct job *j, const char *path, const struct arguments *a, struct context *c,
                struct error *e);
/* The same; nodes know their line of the model's text. */
status job_open_lines(struct job *j, const char *path, const struct arguments *a, struct context *c,
                      struct error *e);
/* Sets the policy (a built-in name, or a policy file) and with it whether the loss scaler is on. */
status job_policy(struct job *j, const char *name, const struct arguments *a, struct error *e);
/* Batches of so many rows fit what --shape fixed. */
status job_check_rows(const struct job *j, int64_t rows, struct error *e);
void job_close(struct job *j);

bool is_plan_name(const char *path); /* ends in .plan */
/* USAGE when a MODEL is asked for and a plan is given. */
status not_a_plan(const char *path, struct error *e);
/* What building a model gave: an argument that the builder or a pass refuses is a mistake in the
 * model, not on the command line, and exits as bad input. */
status of_model(status code, struct error *e);
status read_text_file(const char *path, struct arena *a, char **out, size_t *size, struct error *e);

/* A data set split at random (by the seed; in file order with --no-shuffle: the last rows) into
 * training and test rows, and batches. */
struct split {
    struct dataset data;
    const struct array *x, *y;
    int64_t n_train, n_test;
    int64_t *rows;  /* all row numbers: training's first, then the test's */
    int64_t *order; /* the same, training's shuffled for the epoch */
    unsigned char *batch_x, *batch_y;
    bool is_shuffled;
    uint64_t seed;
};
/* --read, --label and --scale into the data options. */
status read_data_options(const struct arguments *a, struct dataset_options *o, struct error *e);
status split_open(struct split *s, const struct arguments *a, uint64_t seed, struct error *e);
/* Before the first step: x and y feed every input of the graph, labels are classes of its logits.
 */
status split_check(const struct split *s, const struct graph *g, struct error *e);
void split_epoch(struct split *s, int64_t epoch);
/* Rows [from, from + n) of the epoch's order as tensors; valid until the next call. */
void split_batch(struct split *s, int64_t from, int64_t n, struct tensor *x, struct tensor *y);
/* The sizes of the batches that `epochs` passes and at most max_steps steps take fit --shape. */
status split_check_rows(const struct split *s, const struct job *j, int64_t batch, int64_t epochs,
                        int64_t max_steps, struct error *e);
/* The test rows; valid until the next call, and the epoch's order is lost. */
void split_test(struct split *s, struct tensor *x, struct tensor *y);
/* x, and y where the graph reads it, into the runner's inputs. */
status batch_feed(struct runner *r, const struct tensor *x, const struct tensor *y,
                  struct error *e);
/* The same for the next step, beside the one that runs. */
status batch_prefetch(struct runner *r, const struct tensor *x, const struct tensor *y,
                      struct error *e);
void split_close(struct split *s);
/* Share of rows whose largest logit is the label's; NaN counts as wrong. */
double accuracy_of(const struct tensor *logits, const struct tensor *y);
double seconds_now(void);

/* A flat JSON object on standard output. */
struct json {
    bool has_field;
};
void json_open(struct json *j);
void json_text(struct json *j, const char *name, const char *text);
void json_number(struct json *j, const char *name, double value,
                 int digits); /* null when not finite */
void json_numbers(struct json *j, const char *name, const double *numbers, int64_t n);
void json_whole(struct json *j, const char *name, uint64_t whole);
void json_truth(struct json *j, const char *name, bool truth);
void json_close(const char *end);

#endif
