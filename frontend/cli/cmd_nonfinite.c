/* atoll nonfinite: trains until a node makes a NaN or an infinity, and says which, from what, and
 * of which class. Exits 1 when one does. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/nonfinite.h"
#include "steps.h"

static const struct option options[] = {
    STEPS_OPTIONS,
    {"scaled", NULL, "stop at gradients that overflow under the loss scale too"},
    {"json", NULL, "print as JSON lines"},
};

struct search {
    bool wants_scaled;
    int64_t n_excused; /* steps whose scaled gradients overflowed */
    struct nonfinite found, first_excused;
};

/* What a loss scaler is there for, as long as it has room to go down. */
static bool is_excused(const struct search *search, struct steps *s)
{
    const struct nonfinite *f = &search->found;
    return !search->wants_scaled && f->is_scaled && f->kind == NONFINITE_OVERFLOW &&
           runner_number(&s->runner, "scale") > 1.0;
}

static void look(void *context, struct steps *s, bool *is_done)
{
    struct search *search = context;
    nonfinite_find(&s->trace, &s->runner, &search->found);
    if (search->found.kind == NONFINITE_NONE) {
        return;
    }
    if (is_excused(search, s)) {
        search->first_excused = search->n_excused++ == 0 ? search->found : search->first_excused;
        search->found.kind = NONFINITE_NONE;
        return;
    }
    *is_done = true;
}

static void print_operand(const struct operand_stats *o, bool is_json)
{
    if (is_json) {
        struct json j;
        json_open(&j);
        json_text(&j, "operand", o->name);
        json_text(&j, "dtype", dtype_info[o->dtype].name);
        json_number(&j, "here", o->here, 9);
        json_number(&j, "min", o->low, 9);
        json_number(&j, "max", o->high, 9);
        json_whole(&j, "zeros", (uint64_t)o->zeros);
        json_whole(&j, "nonfinite", (uint64_t)o->nonfinite);
        json_whole(&j, "elements", (uint64_t)o->count);
        json_close("\n");
        return;
    }
    printf("  operand %s %s: ", o->name, dtype_info[o->dtype].name);
    if (o->has_here) {
        printf("here %.9g; ", o->here);
    }
    if (o->nonfinite < o->count) {
        printf("from %.6g to %.6g, ", o->low + 0.0, o->high + 0.0); /* no -0 */
    }
    printf("%" PRId64 " zeros, %" PRId64 " not finite of %" PRId64 "\n", o->zeros, o->nonfinite,
           o->count);
}

static void print_json(const struct nonfinite *f, const struct steps *s)
{
    struct json j;
    json_open(&j);
    json_whole(&j, "step", (uint64_t)s->step);
    json_text(&j, "phase", step_phase_name[f->phase]);
    json_text(&j, "node", f->node);
    json_text(&j, "op", f->op);
    json_text(&j, "of", f->model_op != NULL ? f->model_op : f->op);
    json_text(&j, "file", f->location.file != NULL ? f->location.file : "");
    json_whole(&j, "line", f->location.line);
    json_text(&j, "class", nonfinite_kind_name[f->kind]);
    json_text(&j, "made", isnan(f->number) ? "NaN" : f->number > 0.0 ? "inf" : "-inf");
    json_whole(&j, "element", (uint64_t)f->element);
    json_truth(&j, "scaled", f->is_scaled);
    json_text(&j, "kernel", f->kernel != NULL ? f->kernel : "");
    json_whole(&j, "ops_in_kernel", f->n_in_kernel);
    json_close("\n");
}

static void print_found(const struct nonfinite *f, const struct steps *s, bool is_json)
{
    if (is_json) {
        print_json(f, s);
    } else {
        printf("step %" PRId64 " (rows %" PRId64 " to %" PRId64 " of epoch %" PRId64 "), %s\n",
               s->step, s->row + 1, s->row + s->rows, s->epoch, f->text);
        if (f->model_op != NULL) {
            printf("  a part of %s\n", f->model_op);
        }
        if (f->kernel != NULL) {
            printf("  inside kernel %s, one of its %" PRIu32 " ops\n", f->kernel, f->n_in_kernel);
        }
        if (f->is_scaled) {
            printf("  it carries the loss scale\n");
        }
    }
    for (uint32_t i = 0; i < f->n_operands; i++) {
        print_operand(&f->operands[i], is_json);
    }
}

static status report(const struct search *search, const struct steps *s, bool is_json,
                     struct error *e)
{
    const struct nonfinite *f = &search->found;
    if (search->n_excused > 0 && !is_json) {
        printf("%" PRId64 " steps overflowed under the loss scale, which the scaler answers "
               "(--scaled stops there); first: %s\n",
               search->n_excused, search->first_excused.text);
    }
    if (f->kind == NONFINITE_NONE) {
        if (!is_json) {
            printf("all finite in %" PRId64 " steps\n", s->step);
        }
        return ATOLL_OK;
    }
    print_found(f, s, is_json);
    return fail(e, ATOLL_CHECK_FAILED, "%s%s is not finite in step %" PRId64,
                f->node[0] != '\0' ? "%" : "a value of the update: ",
                f->node[0] != '\0' ? f->node : f->op, s->step);
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL; hint: atoll nonfinite MODEL --data FILE");
    }
    TRY(not_a_plan(a->positional[0], e));
    struct steps *s = calloc(1, sizeof *s);
    struct search search = {.wants_scaled = argument_flag(a, "scaled")};
    if (s == NULL) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = steps_open(s, a, c, e);
    code = code == ATOLL_OK ? steps_run(s, look, &search, e) : code;
    code = code == ATOLL_OK ? report(&search, s, argument_flag(a, "json"), e) : code;
    steps_close(s);
    free(s);
    return code;
}

const struct command command_nonfinite = {
    "nonfinite",
    "MODEL --data FILE [options]",
    "train until a node makes a NaN or an infinity; name it, its operands and why",
    "  atoll nonfinite examples/digits.graph --data examples/data/digits.csv.gz --scale 1/16 "
    "--policy fp16\n"
    "  atoll nonfinite examples/digits.graph --data examples/data/digits.csv.gz --optimizer "
    "sgd,lr=1e30 --eager\n",
    options,
    ARRAY_LEN(options),
    run,
};
