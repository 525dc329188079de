/* atoll bench: what is measured, and the ways to show it. cmd_bench.c reads options and holds the
 * rows together, bench_measure.c measures one, bench_report.c prints table, JSON and CSV,
 * bench_html.c the page. The columns are one table, which all four read. A number that was not
 * measured is NaN and shows as "-", null or nothing. */
#ifndef ATOLL_CLI_BENCH_H
#define ATOLL_CLI_BENCH_H

#include "cli.h"

/* One policy, eager or fused. */
struct bench_row {
    const char *policy, *mode, *status; /* status: "measured", or why there is no number */
    bool is_measured;
    double step_us, step_us_low, step_us_high, spread_percent; /* median, least and most of the
                                                                  repetitions' mean steps */
    double samples_per_second, speedup;                        /* against fp32 eager */
    double compile_cold_ms, compile_warm_ms, first_step_ms;
    double kernels, calls, allocated_bytes, reserved_bytes, state_bytes;
    double train_loss, validation_loss, validation_accuracy, accepted, skipped;
    const char *initial_hash, *state_hash; /* of parameters before, of all that is kept after */
    const char *same_as_eager;             /* "yes", "no", "-" */
    double *losses;                        /* of the recorded run, a step each */
    int64_t n_losses;
};

enum bench_kind { BENCH_TEXT, BENCH_NUMBER };
struct bench_column {
    const char *name, *head; /* head: in the table; NULL: not there */
    enum bench_kind kind;
    size_t offset;
    int digits;     /* significant, in table and page */
    bool is_timing; /* differs from run to run */
};
extern const struct bench_column bench_columns[];
extern const uint32_t n_bench_columns;
const char *bench_text(const struct bench_row *r, const struct bench_column *c);
double bench_number(const struct bench_row *r, const struct bench_column *c);

struct bench_setting {
    const char *name, *text;
};

struct bench {
    struct job job;
    struct split split;
    const struct arguments *arguments;
    struct context *context;
    struct runner validation; /* fp32, eager, on the CPU */
    char cache[1024];         /* private, empty before each row */
    int64_t batch, steps, warmup, repeats;
    struct bench_row *rows;
    uint32_t n_rows, row_capacity;
    struct bench_setting settings[40];
    uint32_t n_settings;
    bool is_emulated;
};

/* Measures one row whose policy is set in the job. What cannot run here gives a row that says why;
 * a status other than OK is a mistake in what was asked for. */
status bench_measure(struct bench *b, bool is_eager, struct bench_row *out, struct error *e);

/* A row without numbers. */
void bench_not_run(struct bench *b, const char *policy, bool is_eager, const char *why,
                   struct bench_row *out);
/* Removes the private cache. */
void bench_clean(struct bench *b);

void bench_print_table(const struct bench *b);
void bench_print_json(const struct bench *b);
/* Rows with their columns, then every setting as a column: each row stands for itself. */
status bench_write_csv(const struct bench *b, const char *path, struct error *e);
/* One page, its charts as SVG, nothing loaded from anywhere. */
status bench_write_html(const struct bench *b, const char *path, struct error *e);
#endif
