/* atoll lint: precision mistakes of a model under a policy and a training step, found without
 * running it. Exits 1 when there is one. */
#include <stdio.h>

#include "cli.h"
#include "passes/lint.h"

static const struct option options[] = {
    {"policy", "P", "precision policy (default fp32)"},
    {"shape", "n=64", "fix symbols to numbers"},
    {"optimizer", "TEXT", "adamw, adam, sgd or lion with settings"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"schedule", "TEXT", "learning-rate schedule"},
    {"clip", "NORM", "clip gradients to this global norm"},
    {"accumulate", "K", "micro-batches a step"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"forward", NULL, "without a training step"},
    {"rules", NULL, "list the rules"},
    {"json", NULL, "print as JSON lines"},
};

static void print_rules(bool is_json)
{
    struct finding rule;
    for (uint32_t i = 0; lint_rule_at(i, &rule); i++) {
        if (is_json) {
            struct json j;
            json_open(&j);
            json_text(&j, "code", rule.code);
            json_text(&j, "what", rule.what);
            json_text(&j, "hint", rule.hint);
            json_close("\n");
        } else {
            printf("%s  %s\n      hint: %s\n", rule.code, rule.what, rule.hint);
        }
    }
}

static void print_finding(const struct finding *f, const char *policy, bool is_json)
{
    if (is_json) {
        struct json j;
        json_open(&j);
        json_text(&j, "code", f->code);
        json_text(&j, "node", f->node);
        json_text(&j, "file", f->location.file != NULL ? f->location.file : "");
        json_whole(&j, "line", f->location.line);
        json_text(&j, "policy", policy);
        json_text(&j, "what", f->what);
        json_text(&j, "hint", f->hint);
        json_close("\n");
        return;
    }
    if (f->location.file != NULL) {
        printf("%s:%u: ", f->location.file, (unsigned)f->location.line);
    }
    printf("%s %s: %s; hint: %s\n", f->code, f->label, f->what, f->hint);
}

static status lint(struct job *j, const struct arguments *a, struct error *e)
{
    struct findings found = {0};
    TRY(job_policy(j, argument(a, "policy", "fp32"), a, e));
    struct pass_options o = {.policy = j->compile.policy,
                             .train = argument_flag(a, "forward") ? NULL : &j->train};
    bool is_json = argument_flag(a, "json");
    status code = of_model(lint_model(j->model, &o, &found, e), e);
    for (uint32_t i = 0; i < found.n; i++) {
        print_finding(&found.items[i], o.policy->name, is_json);
    }
    if (code == ATOLL_OK && found.n > 0) {
        code = fail(e, ATOLL_CHECK_FAILED, "%u finding%s under %s", found.n, found.n > 1 ? "s" : "",
                    o.policy->name);
    } else if (code == ATOLL_OK && !is_json) {
        printf("nothing found under %s\n", o.policy->name);
    }
    arena_free(&found.arena);
    return code;
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    struct job j = {0};
    if (argument_flag(a, "rules")) {
        print_rules(argument_flag(a, "json"));
        return ATOLL_OK;
    }
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE, "expected one MODEL; hint: atoll lint MODEL --policy fp16");
    }
    TRY(not_a_plan(a->positional[0], e));
    status code = job_open_lines(&j, a->positional[0], a, c, e);
    code = code == ATOLL_OK ? lint(&j, a, e) : code;
    job_close(&j);
    return code;
}

const struct command command_lint = {
    "lint",
    "MODEL [options]",
    "find precision mistakes in a model under a policy, without running it",
    "  atoll lint examples/digits.graph --policy fp16\n"
    "  atoll lint examples/transformer.graph --policy bf16 --optimizer sgd,lr=0.1 --json\n"
    "  atoll lint --rules\n",
    options,
    ARRAY_LEN(options),
    run,
};
