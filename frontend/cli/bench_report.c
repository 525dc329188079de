/* The columns of atoll bench, and its rows as a table, as JSON and as CSV. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "runtime/file.h"

#define AT(field) offsetof(struct bench_row, field)
const struct bench_column bench_columns[] = {
    {"policy", "policy", BENCH_TEXT, AT(policy), 0, false},
    {"mode", "mode", BENCH_TEXT, AT(mode), 0, false},
    {"step_us", "step us", BENCH_NUMBER, AT(step_us), 5, true},
    {"step_us_low", "least", BENCH_NUMBER, AT(step_us_low), 5, true},
    {"step_us_high", "most", BENCH_NUMBER, AT(step_us_high), 5, true},
    {"spread_percent", "spread %", BENCH_NUMBER, AT(spread_percent), 3, true},
    {"samples_per_second", NULL, BENCH_NUMBER, AT(samples_per_second), 6, true},
    {"speedup", "x fp32 eager", BENCH_NUMBER, AT(speedup), 3, true},
    {"compile_cold_ms", "cold ms", BENCH_NUMBER, AT(compile_cold_ms), 4, true},
    {"compile_warm_ms", "warm ms", BENCH_NUMBER, AT(compile_warm_ms), 4, true},
    {"first_step_ms", NULL, BENCH_NUMBER, AT(first_step_ms), 4, true},
    {"kernels", NULL, BENCH_NUMBER, AT(kernels), 6, false},
    {"calls", "calls", BENCH_NUMBER, AT(calls), 6, false},
    {"allocated_bytes", "allocated", BENCH_NUMBER, AT(allocated_bytes), 15, false},
    {"reserved_bytes", "reserved", BENCH_NUMBER, AT(reserved_bytes), 15, false},
    {"state_bytes", NULL, BENCH_NUMBER, AT(state_bytes), 15, false},
    {"train_loss", "train loss", BENCH_NUMBER, AT(train_loss), 6, false},
    {"validation_loss", "valid. loss", BENCH_NUMBER, AT(validation_loss), 6, false},
    {"validation_accuracy", "accuracy", BENCH_NUMBER, AT(validation_accuracy), 4, false},
    {"accepted", "accepted", BENCH_NUMBER, AT(accepted), 15, false},
    {"skipped", "skipped", BENCH_NUMBER, AT(skipped), 15, false},
    {"initial_hash", NULL, BENCH_TEXT, AT(initial_hash), 0, false},
    {"state_hash", NULL, BENCH_TEXT, AT(state_hash), 0, false},
    {"same_as_eager", "= eager", BENCH_TEXT, AT(same_as_eager), 0, false},
    {"status", "status", BENCH_TEXT, AT(status), 0, false},
};
#undef AT
const uint32_t n_bench_columns = ARRAY_LEN(bench_columns);

const char *bench_text(const struct bench_row *r, const struct bench_column *c)
{
    const char *text;
    memcpy(&text, (const char *)r + c->offset, sizeof text);
    return text;
}

double bench_number(const struct bench_row *r, const struct bench_column *c)
{
    double number;
    memcpy(&number, (const char *)r + c->offset, sizeof number);
    return number;
}

/* ---- table ---- */

static int width_of(const struct bench_column *c)
{
    int least = c->kind == BENCH_TEXT ? (c->offset == 0 ? 16 : 7) : 9, head = (int)strlen(c->head);
    return head > least ? head : least;
}

static void print_cell(const struct bench_column *c, const char *text, bool is_last)
{
    if (is_last) {
        printf("%s\n", text);
    } else {
        printf("%*s ", c->kind == BENCH_TEXT ? -width_of(c) : width_of(c), text);
    }
}

static void print_row(const struct bench_row *r)
{
    for (uint32_t i = 0; i < n_bench_columns; i++) {
        const struct bench_column *c = &bench_columns[i];
        char cell[32] = "-";
        if (c->head == NULL) {
            continue;
        }
        if (c->kind == BENCH_NUMBER && !isnan(bench_number(r, c))) {
            snprintf(cell, sizeof cell, "%.*g", c->digits, bench_number(r, c));
        }
        print_cell(c, c->kind == BENCH_TEXT ? bench_text(r, c) : cell, i + 1 == n_bench_columns);
    }
}

void bench_print_table(const struct bench *b)
{
    for (uint32_t i = 0; i < b->n_settings; i++) {
        printf("%-14s %s\n", b->settings[i].name, b->settings[i].text);
    }
    putchar('\n');
    for (uint32_t i = 0; i < n_bench_columns; i++) {
        if (bench_columns[i].head != NULL) {
            print_cell(&bench_columns[i], bench_columns[i].head, i + 1 == n_bench_columns);
        }
    }
    for (uint32_t k = 0; k < b->n_rows; k++) {
        print_row(&b->rows[k]);
    }
}

/* ---- JSON ---- */

void bench_print_json(const struct bench *b)
{
    struct json o;
    printf("{\"settings\": ");
    json_open(&o);
    for (uint32_t i = 0; i < b->n_settings; i++) {
        json_text(&o, b->settings[i].name, b->settings[i].text);
    }
    json_close(",\n \"rows\": [");
    for (uint32_t k = 0; k < b->n_rows; k++) {
        const struct bench_row *r = &b->rows[k];
        printf(k > 0 ? ",\n  " : "\n  ");
        json_open(&o);
        for (uint32_t i = 0; i < n_bench_columns; i++) {
            const struct bench_column *c = &bench_columns[i];
            if (c->kind == BENCH_TEXT) {
                json_text(&o, c->name, bench_text(r, c));
            } else {
                json_number(&o, c->name, bench_number(r, c), 17);
            }
        }
        json_numbers(&o, "losses", r->losses, r->n_losses);
        json_close("");
    }
    printf("],\n \"timing_fields\": [");
    for (uint32_t i = 0, n = 0; i < n_bench_columns; i++) {
        if (bench_columns[i].is_timing) {
            printf("%s\"%s\"", n++ > 0 ? ", " : "", bench_columns[i].name);
        }
    }
    printf("]}\n");
}

/* ---- CSV ---- */

static void add_quoted(struct text *t, const char *text)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        text_add(t, "%s", text);
        return;
    }
    text_add(t, "\"");
    for (const char *p = text; *p != '\0'; p++) {
        text_add(t, "%s%c", *p == '"' ? "\"" : "", *p);
    }
    text_add(t, "\"");
}

status bench_write_csv(const struct bench *b, const char *path, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    for (uint32_t i = 0; i < n_bench_columns; i++) {
        text_add(&t, "%s%s", i > 0 ? "," : "", bench_columns[i].name);
    }
    for (uint32_t i = 0; i < b->n_settings; i++) {
        text_add(&t, ",%s", b->settings[i].name);
    }
    for (uint32_t k = 0; k < b->n_rows; k++) {
        text_add(&t, "\n");
        for (uint32_t i = 0; i < n_bench_columns; i++) {
            const struct bench_column *c = &bench_columns[i];
            double number = c->kind == BENCH_NUMBER ? bench_number(&b->rows[k], c) : 0.0;
            text_add(&t, i > 0 ? "," : "");
            if (c->kind == BENCH_TEXT) {
                add_quoted(&t, bench_text(&b->rows[k], c));
            } else if (!isnan(number)) {
                text_add(&t, "%.17g", number);
            }
        }
        for (uint32_t i = 0; i < b->n_settings; i++) {
            text_add(&t, ",");
            add_quoted(&t, b->settings[i].text);
        }
    }
    text_add(&t, "\n");
    status code = file_write(path, &(struct file_part){t.data, t.length}, 1, e);
    arena_free(&scratch);
    return code;
}
