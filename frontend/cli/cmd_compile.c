/* atoll compile: a model to a .plan file that any C program can step. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "runtime/file.h"

static const struct option options[] = {
    {"policy", "P",
     "precision policy: fp32, bf16, fp16, bf16@torch-cuda, ... or a policy file (default fp32)"},
    {"shape", "n=64", "fix symbols to numbers; others stay symbolic"},
    {"optimizer", "TEXT",
     "adamw, adam, sgd or lion with settings: adamw,lr=1e-3,weight_decay=0.01"},
    {"params", "FORM",
     "how parameters are kept: f32, bf16-stochastic, bf16-remainder; PATTERN=FORM,..."},
    {"schedule", "TEXT", "step,50,0.5 | cosine,100 | warmup,10 | warmup,10+cosine,100"},
    {"clip", "NORM", "clip gradients to this global norm (default: none)"},
    {"accumulate", "K", "micro-batches a step (default 1)"},
    {"scaler", "MODE", "loss scaler: auto (on for fp16), on, off"},
    {"forward", NULL, "compile the model as it is, without a training step"},
    {"rounding", "MODE", "strict (default: fused rounds as eager does) or relaxed"},
    {"seed", "N", "seed of the first parameters (default 1)"},
    {"output", "FILE", "the plan to write (default step.plan); -o FILE works too"},
    {"target", "T",
     "cpu, cuda:sm_90a, or cuda:0 for the device here; may come more than once (default cpu)"},
    {"json", NULL, "print what was built as JSON"},
};

/* The primitive graph as its text reads back, so that the plan's ids are those of its text. */
static status reread(const struct graph *g, struct graph **out, struct error *e)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    graph_print(g, &t, NULL);
    *out = graph_parse(t.data, t.length, "compiled graph", e);
    arena_free(&scratch);
    return *out != NULL ? ATOLL_OK : e->code;
}

enum { MAX_TARGETS = 16 };

/* --target cuda:0: its architecture, and its choices for matrix products. One device. */
static status read_device(struct job *j, const char *target, struct context *c, const char **arch,
                          struct error *e)
{
    struct device_options where = context_devices(c);
    if (j->compile.device != NULL) {
        return fail(e, ATOLL_USAGE, "--target %s: the plan is made on %.20s already", target,
                    j->compile.device->name);
    }
    TRY(device_open(target, &where, &j->compile.device, e));
    *arch = j->compile.device->arch;
    return ATOLL_OK;
}

/* --target cpu, --target cuda:sm_80, ...: what the plan holds code for. */
static status read_targets(struct job *j, const struct arguments *a, struct context *c,
                           struct error *e)
{
    const char **archs = ARENA_ARRAY(&j->arena, const char *, MAX_TARGETS);
    const char *target = argument_nth(a, "target", 0);
    j->compile.skips_c = target != NULL;
    for (uint32_t i = 0; (target = argument_nth(a, "target", i)) != NULL; i++) {
        bool is_arch = strncmp(target, "cuda:sm_", 8) == 0,
             is_device = !is_arch && strncmp(target, "cuda", 4) == 0;
        if (strcmp(target, "cpu") == 0) {
            j->compile.skips_c = false;
        } else if (is_arch && j->compile.n_cuda_archs < MAX_TARGETS) {
            archs[j->compile.n_cuda_archs++] = target + 5;
        } else if (is_device && j->compile.n_cuda_archs < MAX_TARGETS) {
            TRY(read_device(j, target, c, &archs[j->compile.n_cuda_archs++], e));
        } else {
            return fail(e, ATOLL_USAGE,
                        "--target %s: expected cpu, cuda: with an architecture as cuda:sm_90a, or "
                        "a device as cuda:0",
                        target);
        }
    }
    j->compile.cuda_archs = archs;
    return ATOLL_OK;
}

static void print_built(const struct runner *r, const char *output, double seconds, bool is_json)
{
    struct json j;
    if (!is_json) {
        printf("%s: %u kernels, %u launches, peak %zu bytes, state %zu bytes, %.2f s (from cache: "
               "%d)\n",
               output, r->compiled.n_kernels, program_calls(&r->compiled.program),
               session_peak_bytes(r->session), session_leaf_bytes(r->session), seconds,
               r->compiled.is_from_cache);
        if (r->compiled.cuda.n_archs > 0) {
            printf("CUDA: %u kernels for each of %u targets, %u algorithms of cuBLASLt recorded\n",
                   r->compiled.cuda.n_kernels, r->compiled.cuda.n_archs,
                   r->compiled.cuda.n_choices);
        }
        return;
    }
    json_open(&j);
    json_text(&j, "plan", output);
    json_whole(&j, "kernels", r->compiled.n_kernels);
    json_whole(&j, "launches", program_calls(&r->compiled.program));
    json_whole(&j, "peak_bytes", session_peak_bytes(r->session));
    json_whole(&j, "state_bytes", session_leaf_bytes(r->session));
    json_number(&j, "seconds", seconds, 4);
    json_truth(&j, "from_cache", r->compiled.is_from_cache);
    json_whole(&j, "cuda_targets", r->compiled.cuda.n_archs);
    json_whole(&j, "cuda_kernels", r->compiled.cuda.n_kernels);
    json_whole(&j, "cuda_algorithms", r->compiled.cuda.n_choices);
    json_close("\n");
}

/* Matrix products of a model whose sizes are open are chosen when they are bound. */
static status choose(struct job *j, struct runner *r, struct error *e)
{
    bool is_static = true;
    for (uint32_t i = 1; i < runner_graph(r)->n_symbols; i++) {
        is_static =
            is_static && runner_graph(r)->symbols[i].low == runner_graph(r)->symbols[i].high;
    }
    if (j->compile.device == NULL || is_static) {
        return j->compile.device != NULL ? runner_choose(r, j->compile.device, e) : ATOLL_OK;
    }
    if (j->compile.log != NULL) {
        j->compile.log(j->compile.log_context, "kernels",
                       "cuBLASLt: no algorithms recorded: sizes are open; hint: --shape n=64");
    }
    return ATOLL_OK;
}

static status build(struct job *j, const char *model, const char *output, bool is_json,
                    struct error *e)
{
    struct compiled passes;
    struct runner r = {0};
    struct graph *primitive = NULL;
    double start = seconds_now();
    j->compile.is_eager = true;
    status code = of_model(compile_graph(j->model, &j->compile, &passes, e), e);
    code = code == ATOLL_OK ? reread(passes.primitive, &primitive, e) : code;
    compiled_free(&passes);
    j->compile.is_eager = false;
    code = code == ATOLL_OK ? compile_primitive(primitive, &j->compile, &r.compiled, e) : code;
    code = code == ATOLL_OK ? of_model(runner_from(&r, j->seed, e), e) : code;
    code = code == ATOLL_OK ? choose(j, &r, e) : code;
    if (code == ATOLL_OK) {
        char about[600];
        snprintf(about, sizeof about,
                 "atoll %s\nmodel %s\npolicy %s\nrounding %s\nflags %s\n"
                 "contractions %s\n",
                 ATOLL_VERSION_TEXT, model,
                 j->compile.policy != NULL ? j->compile.policy->name : "fp32",
                 j->compile.is_relaxed ? "relaxed" : "strict", cc_flags(), contraction_library());
        code = runner_write_plan(&r, output, about, e);
    }
    if (code == ATOLL_OK) {
        print_built(&r, output, seconds_now() - start, is_json);
    }
    runner_free(&r);
    return code;
}

static status run(const struct arguments *a, struct context *c, struct error *e)
{
    struct job j;
    const char *output = argument(a, "output", "step.plan");
    if (a->n_positional != 1) {
        return fail(e, ATOLL_USAGE,
                    "expected one MODEL; hint: atoll compile MODEL --policy bf16 -o step.plan");
    }
    TRY(not_a_plan(a->positional[0], e));
    TRY(file_probe(output, e));
    status code = job_open(&j, a->positional[0], a, c, e);
    code = code == ATOLL_OK ? job_policy(&j, argument(a, "policy", "fp32"), a, e) : code;
    code = code == ATOLL_OK ? read_targets(&j, a, c, e) : code;
    if (argument_flag(a, "forward")) {
        j.compile.train = NULL;
    }
    code =
        code == ATOLL_OK ? build(&j, a->positional[0], output, argument_flag(a, "json"), e) : code;
    job_close(&j);
    return code;
}

const struct command command_compile = {
    "compile",
    "MODEL [options] -o step.plan",
    "compile a model and its training step into a plan that a C program can step without a "
    "compiler",
    "  atoll compile examples/digits.graph --policy bf16 --clip 1 -o step.plan\n"
    "  atoll compile examples/digits.graph --target cpu --target cuda:sm_80 --target cuda:sm_90a\n"
    "  atoll compile examples/digits.graph --shape n=64 --policy fp16 --schedule step,50,0.5 -o "
    "step.plan\n",
    options,
    ARRAY_LEN(options),
    run,
};
