/* One plan of the page: guards, the graph with dtypes and islands, fusion groups with why
 * neighbours are apart, memory as the step goes, kernel sources. */
#include "report.h"

#include <inttypes.h>
#include <string.h>

static void cell(struct text *t, const char *class, const char *text)
{
    text_add(t, "<td%s%s%s>", class[0] != '\0' ? " class=\"" : "", class,
             class[0] != '\0' ? "\"" : "");
    html_text(t, text);
    text_add(t, "</td>");
}

static void guards(struct text *t, const struct ledger_entry *en)
{
    text_add(t,
             "<details%s><summary>%" PRIu32 " guards</summary><div class=\"wide\"><table>"
             "<tr><th>guard</th><th>of</th><th>must be</th><th>introduced by</th><th>at</th>"
             "</tr>",
             en->n_guards > 16 ? "" : " open", en->n_guards);
    for (uint32_t i = 0; i < en->n_guards; i++) {
        const struct ledger_guard *g = &en->guards[i];
        text_add(t, "<tr>");
        cell(t, "s", guard_kinds[g->kind].name);
        cell(t, "", g->subject);
        cell(t, "m", g->expects);
        cell(t, "", g->why);
        text_add(t, "<td class=\"s\">");
        html_place(t, g->file, g->line);
        text_add(t, "</td></tr>\n");
    }
    text_add(t, "</table></div></details>");
}

static void graph(struct text *t, const struct ledger_entry *en)
{
    uint32_t islands = 0;
    for (uint32_t i = 0; i < en->n_nodes; i++) {
        islands = en->nodes[i].island > islands ? en->nodes[i].island : islands;
    }
    text_add(t,
             "<details><summary>graph: %" PRIu32 " values, %" PRIu32
             " FP32 islands</summary><div class=\"wide\"><table><tr><th>value</th><th>op</th>"
             "<th>type</th><th>operands</th><th>island</th><th>group</th><th>at</th></tr>",
             en->n_nodes, islands);
    for (uint32_t i = 0; i < en->n_nodes; i++) {
        const struct ledger_node *n = &en->nodes[i];
        text_add(t, "<tr>");
        cell(t, "m", n->name);
        cell(t, "m", n->op);
        cell(t, "m", n->type);
        cell(t, "m", n->operands);
        text_add(t, "<td>");
        if (n->island != 0) {
            text_add(t, "<span class=\"island\">%" PRIu32 "</span>", n->island);
        }
        text_add(t, "</td><td class=\"n\">");
        if (n->group != 0) {
            text_add(t, "%" PRIu32, n->group - 1);
        }
        text_add(t, "</td><td class=\"s\">");
        html_place(t, n->file, n->line);
        text_add(t, "</td></tr>\n");
    }
    text_add(t, "</table></div>");
    if (en->islands[0] != '\0') {
        text_add(t, "<h3>Why there is an island</h3><pre>");
        html_text(t, en->islands);
        text_add(t, "</pre>");
    }
    text_add(t, "</details>");
}

static void groups(struct text *t, const struct ledger_entry *en)
{
    text_add(t,
             "<details><summary>%" PRIu32 " fusion groups</summary><div class=\"wide\"><table>"
             "<tr><th>group</th><th>kind</th><th>kernel</th><th>ops</th><th>why it is not one "
             "kernel with a neighbour</th></tr>",
             en->n_groups);
    for (uint32_t i = 0; i < en->n_groups; i++) {
        const struct ledger_group *g = &en->groups[i];
        text_add(t, "<tr><td class=\"n\">%" PRIu32 "</td>", i);
        cell(t, "s", g->kind);
        cell(t, "m", g->kernel);
        cell(t, "m", g->members);
        text_add(t, "<td>");
        for (const char *p = g->why_apart; *p != '\0';) { /* a line each */
            size_t n = strcspn(p, "\n");
            char line[600];
            size_t keep = n < sizeof line - 1 ? n : sizeof line - 1;
            memcpy(line, p, keep);
            line[keep] = '\0';
            text_add(t, "<div>");
            html_text(t, line);
            text_add(t, "</div>");
            p += n + (p[n] == '\n');
        }
        text_add(t, "</td></tr>\n");
    }
    text_add(t, "</table></div></details>");
}

/* Steps of a curve: bytes of intermediates alive in each group, in launch order. */
static void memory(struct text *t, const struct ledger_entry *en)
{
    uint64_t most = 1;
    uint32_t at = 0;
    for (uint32_t i = 0; i < en->n_groups; i++) {
        at = en->groups[i].live_bytes > most ? i : at;
        most = en->groups[i].live_bytes > most ? en->groups[i].live_bytes : most;
    }
    text_add(t,
             "<details open><summary>memory over the step: at most %" PRIu64
             " bytes of intermediates alive, in group %" PRIu32 " (arena %" PRIu64
             " bytes; inputs, parameters and state %" PRIu64 " bytes)</summary>",
             most, at, en->peak_bytes, en->leaf_bytes);
    text_add(t,
             "<svg viewBox=\"0 0 %" PRIu32 " 100\" preserveAspectRatio=\"none\" role=\"img\" "
             "aria-label=\"bytes alive by group\">",
             en->n_groups * 10);
    for (uint32_t i = 0; i < en->n_groups; i++) {
        double height = 96.0 * (double)en->groups[i].live_bytes / (double)most;
        text_add(t,
                 "<rect x=\"%" PRIu32 "\" y=\"%.2f\" width=\"9\" height=\"%.2f\" "
                 "fill=\"var(--accent)\"><title>group %" PRIu32 ", ",
                 i * 10, 100.0 - height, height, i);
        html_text(t, en->groups[i].kernel);
        text_add(t, ": %" PRIu64 " bytes</title></rect>", en->groups[i].live_bytes);
    }
    text_add(t, "</svg></details>");
}

void html_plan(struct text *t, const struct ledger_entry *en)
{
    text_add(t, "<h3 id=\"p%" PRIu32 "\">Plan %" PRIu32 ": <code>", en->number, en->number);
    html_text(t, en->title);
    text_add(t,
             "</code></h3><p class=\"soft\">Built at call %" PRIu64 " in %.0f ms (%" PRIu32
             " kernels compiled, %" PRIu32 " from disk), policy ",
             en->call, en->seconds * 1e3, en->kernels_built, en->kernels_loaded);
    html_text(t, en->policy);
    text_add(t, ", rounding ");
    html_text(t, en->rounding);
    text_add(t, "; %" PRIu64 " hits%s%s.</p>", en->hits,
             en->segment != 0 ? "; of a segment after a graph break" : "",
             en->is_evicted ? "; evicted since" : "");
    if (en->cache[0] != '\0') {
        text_add(t, "<p class=\"soft\">Kernel cache: ");
        html_text(t, en->cache);
        text_add(t, "</p>");
    }
    guards(t, en);
    if (en->n_nodes > 0) {
        graph(t, en);
    }
    if (en->n_groups > 0) {
        groups(t, en);
        memory(t, en);
    }
    if (en->source[0] != '\0') {
        text_add(t, "<details><summary>kernel sources</summary><pre>");
        html_text(t, en->source);
        text_add(t, "</pre></details>");
    }
}
