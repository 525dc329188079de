/* Fusion by fusion: a step is repeated with the first k groups fused and everything behind them one
 * op a kernel; the least k that differs names the group, then the least number of its first ops
 * names the op. Each try is a compilation and one step from the same leaves. */
#include "bisect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct tries {
    const struct graph *model;
    struct compile_options options;
    uint64_t seed;
    struct runner *before;
    bisect_feed *feed;
    void *context;
    struct bisect *out;
    struct parting parting; /* of the last try that differed */
};

/* Fused under this limit (NULL: all) and eager, from the same leaves, part. */
static status try_limit(struct tries *t, const struct fusion_limit *limit, bool *differs,
                        struct runner *fused, struct error *e)
{
    struct runner eager = {0};
    struct compile_options o = t->options;
    t->out->tries++;
    o.limit = limit;
    o.is_eager = false;
    status code = runner_open(fused, t->model, &o, t->seed, e);
    o.is_eager = true;
    code = code == ATOLL_OK ? runner_open(&eager, t->model, &o, t->seed, e) : code;
    if (code == ATOLL_OK) {
        struct parting parting;
        runner_copy_leaves(fused, t->before);
        runner_copy_leaves(&eager, t->before);
        code = t->feed(t->context, fused, e);
        code = code == ATOLL_OK ? t->feed(t->context, &eager, e) : code;
        code = code == ATOLL_OK ? parting_step(&eager, fused, &parting, e) : code;
        *differs = code == ATOLL_OK && parting.is_found;
        t->parting = *differs ? parting : t->parting;
    }
    runner_free(&eager);
    return code;
}

static status differs_at(struct tries *t, uint32_t groups, uint32_t members, bool *differs,
                         struct error *e)
{
    struct runner fused = {0};
    struct fusion_limit limit = {groups, members};
    status code = try_limit(t, &limit, differs, &fused, e);
    runner_free(&fused);
    return code;
}

/* The least number in (low, high] that differs; low does not, high does. */
static status least(struct tries *t, uint32_t low, uint32_t high, bool are_members, uint32_t group,
                    uint32_t *out, struct error *e)
{
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        bool differs = false;
        TRY(differs_at(t, are_members ? group : middle, are_members ? middle : 0, &differs, e));
        low = differs ? low : middle;
        high = differs ? middle : high;
    }
    *out = high;
    return ATOLL_OK;
}

static void name_node(char *to, size_t size, const struct graph *g, value v)
{
    const struct node *n = graph_node(g, v);
    if (n->name != NULL) {
        snprintf(to, size, "%.80s", n->name);
    } else {
        snprintf(to, size, "%" PRIu32, v.id);
    }
}

/* "mul(%a) tanh exp(%e)": the first n ops of the group. */
static void list_ops(struct text *t, const struct graph *g, const struct group *group, uint32_t n)
{
    for (uint32_t m = 0; m < n; m++) {
        const struct node *node = graph_node(g, group->members[m]);
        if (n > 12 && m == 6) {
            text_add(t, " ... (%" PRIu32 " more)", n - 12);
            m = n - 6;
            node = graph_node(g, group->members[m]);
        }
        text_add(t, "%s%s", m > 0 ? " " : "", op_info[node->op].name);
        if (node->name != NULL) {
            text_add(t, "(%%%s)", node->name);
        }
    }
}

static void describe_fusion(const struct compiled *c, struct bisect *out, const char *at)
{
    struct arena scratch = SCRATCH_ARENA;
    struct text ops = {.arena = &scratch};
    const struct group *group = &c->partition.groups[out->group];
    value last = group->members[out->members - 1];
    list_ops(&ops, c->primitive, group, out->members);
    name_node(out->node, sizeof out->node, c->primitive, last);
    snprintf(out->text, sizeof out->text,
             "fusion %" PRIu32 " of %" PRIu32 " (%s): it takes its first %" PRIu32 " of %" PRIu32
             " ops in one kernel, up to %%%s: %.500s; without the last of them in it nothing "
             "differs. There: %.400s",
             out->group + 1, out->n_groups,
             c->symbols[out->group] != NULL ? c->symbols[out->group] : "library", out->members,
             out->of, out->node, ops.data, at);
    arena_free(&scratch);
}

static status find_members(struct tries *t, struct compiled *full, struct error *e)
{
    struct bisect *out = t->out;
    const struct group *group = &full->partition.groups[out->group];
    out->of = out->members = group->n_members;
    if (group->kind == GROUP_ROW && group->n_members > 1) {
        TRY(least(t, 1, group->n_members, true, out->group, &out->members, e));
    }
    bool differs = false; /* once more, so that the place told is the one of this kernel */
    TRY(differs_at(t, out->group, out->members, &differs, e));
    describe_fusion(full, out, t->parting.text);
    return ATOLL_OK;
}

static status search(struct tries *t, struct runner *full, struct error *e)
{
    struct bisect *out = t->out;
    uint32_t k;
    bool differs = false;
    TRY(try_limit(t, NULL, &differs, full, e));
    if (!differs) {
        snprintf(out->text, sizeof out->text, "the step does not differ when it is run again");
        return ATOLL_OK;
    }
    out->n_groups = full->compiled.partition.n_groups;
    TRY(differs_at(t, 0, 0, &differs, e));
    if (differs) {
        const char *name = t->parting.text + (t->parting.text[0] == '%');
        size_t length = strcspn(name, " ");
        out->kind = BISECT_OP;
        snprintf(out->node, sizeof out->node, "%.*s", length < 90 ? (int)length : 90, name);
        snprintf(out->text, sizeof out->text,
                 "no fusion: with every op a kernel of its own the runs part at %.600s",
                 t->parting.text);
        return ATOLL_OK;
    }
    TRY(least(t, 0, out->n_groups, false, 0, &k, e));
    out->kind = BISECT_FUSION;
    out->group = k - 1;
    return find_members(t, &full->compiled, e);
}

status bisect_fusion(const struct graph *model, const struct compile_options *o, uint64_t seed,
                     struct runner *before, bisect_feed *feed, void *context, struct bisect *out,
                     struct error *e)
{
    struct tries t = {.model = model,
                      .options = *o,
                      .seed = seed,
                      .before = before,
                      .feed = feed,
                      .context = context,
                      .out = out};
    struct runner full = {0};
    *out = (struct bisect){.kind = BISECT_NONE};
    t.options.dump = NULL;
    status code = search(&t, &full, e);
    runner_free(&full);
    return code;
}
