/* Graph to Graphviz, for people: reads the graph as it is and states nothing that the text form
 * does not. Labels are escaped, so any name is safe inside quotes. */
#include "dot.h"

#include <inttypes.h>
#include <string.h>

#include "print.h"

static const char *const kind_shape[] = {[LEAF] = "box",
                                         [ELEMENTWISE] = "ellipse",
                                         [REDUCTION] = "invtrapezium",
                                         [CONTRACTION] = "box3d",
                                         [VIEW] = "cds",
                                         [INDEX] = "parallelogram",
                                         [RANDOM] = "diamond",
                                         [COMPOSITE] = "octagon",
                                         [TRAINING] = "house"};

static const char *const dtype_colour[N_DTYPES] = {
    [DTYPE_NONE] = "white", [BOOL] = "gray90",   [U8] = "gray80",        [I32] = "gray75",
    [I64] = "gray70",       [F8E4M3] = "salmon", [F8E5M2] = "orangered", [F16] = "orange",
    [BF16] = "gold",        [F32] = "lightblue", [F64] = "steelblue"};

/* The inside of a quoted string; a backslash would start one of Graphviz's own escapes. */
static void add_escaped(struct text *t, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            text_add(t, "\\%c", *p);
        } else if ((unsigned char)*p < 32) {
            text_append(t, " ", 1);
        } else {
            text_append(t, p, 1);
        }
    }
}

static void add_node(const struct graph *g, struct text *t, const char **names, uint32_t id)
{
    const struct node *n = &g->nodes[id];
    text_add(t, "  n%" PRIu32 " [shape=%s, fillcolor=%s, label=\"", id,
             kind_shape[op_info[n->op].kind], dtype_colour[n->dtype]);
    add_escaped(t, names[id]);
    text_add(t, "\\n%s", op_info[n->op].name);
    if (n->op == OP_constant) {
        text_add(t, " ");
        double_print(t, node_float(n, "value"));
    }
    text_add(t, "\\n");
    add_escaped(t, graph_type(g, (value){id}, t->arena));
    if (n->scale != 0) {
        text_add(t, "\\nscaled by ");
        add_escaped(t, names[n->scale]);
    }
    text_add(t, "\"");
    if (n->location.file != NULL) {
        text_add(t, ", tooltip=\"");
        add_escaped(t, n->location.file);
        text_add(t, ":%" PRIu32 "\"", n->location.line);
    }
    text_add(t, "];\n");
}

/* Clusters in the order of their first node; `done` keeps an island from opening twice. */
static void add_nodes(const struct graph *g, struct text *t, const char **names)
{
    bool *done = ARENA_ARRAY(t->arena, bool, g->n_nodes);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        uint32_t island = g->nodes[i].island;
        if (done[i]) {
            continue;
        }
        if (island == 0) {
            add_node(g, t, names, i);
            continue;
        }
        text_add(t,
                 "  subgraph cluster_island_%" PRIu32 " {\n  label=\"FP32 island %" PRIu32
                 "\"; style=rounded; color=blue;\n",
                 island, island);
        for (uint32_t k = i; k < g->n_nodes; k++) {
            if (g->nodes[k].island == island) {
                add_node(g, t, names, k);
                done[k] = true;
            }
        }
        text_add(t, "  }\n");
    }
}

static void add_edges(const struct graph *g, struct text *t)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_operands; k++) {
            text_add(t, "  n%" PRIu32 " -> n%" PRIu32 ";\n", g->nodes[i].operands[k].id, i);
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        text_add(t,
                 "  n%" PRIu32 " -> n%" PRIu32 " [style=dashed, constraint=false, label=update];\n",
                 g->updates[i].next.id, g->updates[i].leaf.id);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        text_add(t, "  out%" PRIu32 " [shape=plaintext, fillcolor=white, label=\"", i);
        add_escaped(t, g->outputs[i].name);
        text_add(t, "\"];\n  n%" PRIu32 " -> out%" PRIu32 ";\n", g->outputs[i].value.id, i);
    }
}

void graph_dot(const struct graph *g, struct text *t)
{
    text_add(t, "digraph \"");
    add_escaped(t, g->name);
    text_add(t, "\" {\n  node [style=filled, fontname=monospace];\n");
    add_nodes(g, t, graph_unique_names(g, t->arena));
    add_edges(g, t);
    text_add(t, "}\n");
}
