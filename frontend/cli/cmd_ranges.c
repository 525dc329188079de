/* atoll ranges: trains for some steps and tells, for each value, its range and what part of it
 * would become 0 or pass the largest number in f16, bf16, f8e4m3 and f8e5m2. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/ranges.h"
#include "steps.h"

static const struct option options[] = {
    STEPS_OPTIONS,
    {"all", NULL, "every primitive, not only what the model names"},
    {"json", NULL, "print as JSON lines"},
};

struct gathering {
    struct ranges ranges;
    struct error *error;
};

static void look(void *context, struct steps *s, bool *is_done)
{
    struct gathering *g = context;
    *is_done = ranges_add(&g->ranges, &s->trace, g->error) != ATOLL_OK;
}

/* A name stands for the last node that bears it: what the op of the model gives after all its
 * primitives. Single numbers that the step keeps (learning rate, powers, scale) are left out. */
static bool is_shown(const struct graph *g, uint32_t i, bool is_all)
{
    const struct node *n = &g->nodes[i];
    bool is_setting =
        n->op == OP_scalar || (node_is_leaf(n) && n->op != OP_param && n->shape.rank == 0);
    if (node_is_inline(n) || is_all) {
        return !node_is_inline(n);
    }
    for (uint32_t k = i + 1; n->name != NULL && k < g->n_nodes; k++) {
        if (g->nodes[k].name != NULL && strcmp(g->nodes[k].name, n->name) == 0) {
            return false;
        }
    }
    return n->name != NULL && !is_setting;
}

static double share(uint64_t part, const struct range *r)
{
    return r->n > 0 ? (double)part / (double)r->n : 0.0;
}

static void print_json(const struct graph *g, uint32_t i, const struct range *r)
{
    const struct node *n = &g->nodes[i];
    struct json j;
    char key[40];
    json_open(&j);
    json_whole(&j, "id", i);
    json_text(&j, "value", n->name != NULL ? n->name : "");
    json_text(&j, "op", op_info[n->op].name);
    json_text(&j, "dtype", dtype_info[n->dtype].name);
    json_truth(&j, "scaled", n->scale != 0);
    json_whole(&j, "elements", r->n);
    json_whole(&j, "zeros", r->zeros);
    json_whole(&j, "nonfinite", r->nonfinite);
    json_number(&j, "amax", r->amax, 9);
    json_number(&j, "min_nonzero", r->min_nonzero, 9);
    for (uint32_t k = 0; k < N_NARROW; k++) {
        const char *narrow = dtype_info[narrow_dtypes[k]].name;
        snprintf(key, sizeof key, "%s_underflow", narrow);
        json_number(&j, key, share(r->underflow[k], r), 6);
        snprintf(key, sizeof key, "%s_saturate", narrow);
        json_number(&j, key, share(r->saturate[k], r), 6);
    }
    json_close("\n");
}

static void print_share(uint64_t part, const struct range *r)
{
    if (part == 0) {
        printf(" %7s", "-");
    } else {
        printf(" %6.2f%%", 100.0 * share(part, r));
    }
}

static void print_row(const struct graph *g, uint32_t i, const struct range *r)
{
    const struct node *n = &g->nodes[i];
    char name[40];
    snprintf(name, sizeof name, "%s%.30s", n->name != NULL ? "%" : "",
             n->name != NULL ? n->name : "");
    printf("%-20s %-11s %-6s %10.3g %10.3g", name, op_info[n->op].name, dtype_info[n->dtype].name,
           r->amax, r->min_nonzero);
    print_share(r->zeros, r);
    for (uint32_t k = 0; k < N_NARROW; k++) {
        print_share(r->underflow[k], r);
        print_share(r->saturate[k], r);
    }
    printf("%s\n", r->nonfinite > 0 ? "  not finite" : n->scale != 0 ? "  scaled" : "");
}

static void print_head(void)
{
    printf("%-20s %-11s %-6s %10s %10s %7s", "value", "op", "dtype", "amax", "min", "zeros");
    for (uint32_t k = 0; k < N_NARROW; k++) {
        printf(" %7s %7s", dtype_info[narrow_dtypes[k]].name, "over");
    }
    printf("\n");
}

/* One line a dtype: how many of the values shown would lose what. */
static void print_summary(const struct graph *g, const struct ranges *r, bool is_all)
{
    for (uint32_t k = 0; k < N_NARROW; k++) {
        uint32_t n_over = 0, n_under = 0, n = 0;
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            if (r->items[i].n > 0 && is_shown(g, i, is_all)) {
                n++;
                n_over += r->items[i].saturate[k] > 0;
                n_under += share(r->items[i].underflow[k], &r->items[i]) > 0.01;
            }
        }
        printf("%s: %u of %u values saturate somewhere, %u lose more than 1%% to 0\n",
               dtype_info[narrow_dtypes[k]].name, n_over, n, n_under);
    }
}

static void report(const struct gathering *found, const struct steps *s, bool is_all, bool is_json)
{
    const struct graph *g = runner_graph(&s->runner);
    const struct ranges *r = &found->ranges;
    if (!is_json) {
        print_head();
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (r->items[i].n == 0 || !is_shown(g, i, is_all)) {
            continue;
        }
        if (is_json) {
            print_json(g, i, &r->items[i]);
        } else {
            print_row(g, i, &r->items[i]);
        }
    }
    if (!is_json) {
        printf("over %" PRIu64
               " steps; by dtype: the part that would become 0, the part that would "
               "pass its largest number\n",
               r->steps);
        print_summary(g, r, is_all);
    }
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL; hint: atoll ranges MODEL --data FILE");
    }
    TRY(not_a_plan(a->positional[0], e));
    struct steps *s = calloc(1, sizeof *s);
    struct gathering found = {.error = e};
    if (s == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = steps_open(s, a, c, e);
    code = code == ATOLL_OK ? steps_run(s, look, &found, e) : code;
    code = code == ATOLL_OK ? e->code : code;
    if (code == ATOLL_OK && found.ranges.steps == 0) {
        code = fail(e, ATOLL_DATA, "the data has no rows to train on");
    }
    if (code == ATOLL_OK) {
        report(&found, s, argument_flag(a, "all"), argument_flag(a, "json"));
    }
    ranges_free(&found.ranges);
    steps_close(s);
    free(s);
    return code;
}

const struct command command_ranges = {
    "ranges",
    "MODEL --data FILE [options]",
    "train some steps; the range of each value, and what narrower dtypes would lose of it",
    "  atoll ranges examples/digits.graph --data examples/data/digits.csv.gz --scale 1/16 --steps "
    "10\n"
    "  atoll ranges examples/transformer.graph --data examples/data/digits.csv.gz --scale 1/16 "
    "--policy fp16 --all --json\n",
    options,
    ARRAY_LEN(options),
    run,
};
