/* The ledger as one HTML page: counts, the calls as a row of blocks and one by one with their
 * reasons, graph breaks, and each plan (html_plan.c). Details fold without any script. Invariant:
 * whatever comes from the ledger goes through html_text. */
#include "report.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/file.h"

static const char style[] =
    ":root{--ink:#1b2330;--soft:#5b6677;--paper:#fff;--panel:#f4f6f9;--line:#d9dfe7;--hit:#26784a;"
    "--built:#a86200;--bad:#c0392b;--eager:#8e44ad;--wait:#2471a3;--accent:#1f5fbf;--on:#fff;color-"
    "scheme:light dark}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa5b5;--paper:#14181f;"
    "--panel:#1d232d;--line:#323b49;--hit:#4fb57d;--built:#e39b2d;--bad:#e36355;--eager:#b57bd1;"
    "--wait:#5aa5d8;--accent:#7aa8f0;--on:#14181f}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 "
    "system-ui,sans-serif;-webkit-text-size-adjust:100%}"
    "main{max-width:1240px;margin:0 auto;padding:20px 16px 60px}"
    "h1,h3{overflow-wrap:anywhere}h1{font-size:1.5rem;margin:.2em "
    "0}h2{font-size:1.15rem;margin:2em 0 .5em;padding-bottom:.2em;"
    "border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1.3em 0 .4em}"
    "p{margin:.4em 0}.soft{color:var(--soft)}code,pre,td.m{font:13px/1.45 ui-monospace,Menlo,"
    "Consolas,monospace}nav a{margin-right:1em}a{color:var(--accent)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(120px,1fr));gap:8px;"
    "margin:14px 0}.tile{background:var(--panel);border:1px solid var(--line);border-radius:6px;"
    "padding:8px 10px}.tile b{display:block;font-size:1.3rem;line-height:1.3}"
    ".tile span{color:var(--soft);font-size:.85rem}"
    ".row{display:flex;flex-wrap:wrap;gap:3px;margin:10px 0}.row a{flex:0 0 "
    "auto;min-width:26px;padding:2px 6px;border-radius:4px;color:var(--on);text-decoration:none;"
    "font-size:.8rem;text-align:center}"
    ".hit{background:var(--hit)}.built{background:var(--built)}.refused,.failed{background:var(--"
    "bad)}.eager{background:var(--eager)}.waited{background:var(--wait)}"
    ".key{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.85rem;color:var(--soft)}"
    ".key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}"
    ".event{border:1px solid var(--line);border-left:5px solid "
    "var(--line);border-radius:4px;margin:8px 0;padding:8px 12px;overflow-wrap:anywhere}"
    ".event.e-hit{border-left-color:var(--hit)}.event.e-built{border-left-color:var(--built)}"
    ".event.e-refused,.event.e-failed{border-left-color:var(--bad)}"
    ".event.e-eager{border-left-color:var(--eager)}.event.e-waited{border-left-color:var(--wait)}"
    ".event ul{margin:.3em 0 .3em 1.1em;padding:0}.advice{background:var(--panel);border-radius:"
    "4px;padding:5px 9px;margin:6px 0}.wide{overflow-x:auto;border:1px solid "
    "var(--line);border-radius:4px}"
    "table{border-collapse:collapse;width:100%;font-size:.88rem}th,td{text-align:left;padding:4px "
    "9px;border-bottom:1px solid var(--line);vertical-align:top}th{background:var(--panel);"
    "font-weight:600;white-space:nowrap}tr:last-child td{border-bottom:0}td.n{text-align:right;"
    "white-space:nowrap}td.s{white-space:nowrap}details{margin:8px 0}summary{cursor:pointer;"
    "padding:4px 0}pre{background:var(--panel);border:1px solid "
    "var(--line);border-radius:4px;padding:10px;overflow-x:auto;max-height:70vh}"
    ".island{border-radius:3px;padding:0 5px;color:var(--on);background:var(--accent)}"
    ".bar{display:block;height:.75em;background:var(--accent);border-radius:2px;min-width:1px}"
    "td.b{min-width:120px;width:22%}svg{display:block;width:100%;height:150px}"
    "@media(max-width:600px){main{padding:12px 10px 40px}h1{font-size:1.25rem}.event{padding:7px "
    "9px}}";

void html_text(struct text *t, const char *text)
{
    for (const char *p = text; *p != '\0';) {
        size_t plain = strcspn(p, "<>&\"'");
        text_append(t, p, plain);
        p += plain;
        if (*p != '\0') {
            text_add(t, "&#%d;", *p++);
        }
    }
}

void html_place(struct text *t, const char *file, uint32_t line)
{
    if (file[0] != '\0') {
        html_text(t, file);
        text_add(t, ":%" PRIu32, line);
    }
}

static void tile(struct text *t, const char *what, uint64_t n)
{
    text_add(t, "<div class=\"tile\"><b>%" PRIu64 "</b><span>%s</span></div>", n, what);
}

static void head(struct text *t, const ledger *l)
{
    const atoll_counters *n = &l->counters;
    text_add(t, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                "<link rel=\"icon\" href=\"data:,\"><title>atoll explain: ");
    html_text(t, l->name);
    text_add(t, "</title><style>");
    text_append(t, style, sizeof style - 1);
    text_add(t, "</style></head><body><main><h1>@");
    html_text(t, l->name);
    text_add(t, "</h1><nav><a href=\"#calls\">Calls</a><a href=\"#breaks\">Graph breaks</a>"
                "<a href=\"#plans\">Plans</a></nav><div class=\"tiles\">");
    tile(t, "calls", n->calls);
    tile(t, "hits", n->hits);
    tile(t, "plans built", n->builds);
    tile(t, "recompiles", n->recompiles);
    tile(t, "graph breaks", n->breaks);
    tile(t, "ran eagerly", n->eager);
    tile(t, "refused", n->refused);
    tile(t, "plans evicted", n->evictions);
    tile(t, "kernels compiled", n->kernels_built);
    tile(t, "kernels from disk", n->kernels_loaded);
    tile(t, "ms building", n->nanoseconds_building / 1000000);
    text_add(t, "</div>");
}

/* ---- calls ---- */

static void timeline(struct text *t, const ledger *l)
{
    text_add(t, "<div class=\"row\">");
    for (uint32_t i = 0; i < l->n_events; i++) {
        const struct ledger_event *v = &l->events[i];
        text_add(t, "<a class=\"%s\" href=\"#e%" PRIu32 "\" title=\"",
                 ledger_outcome_names[v->outcome], i);
        html_text(t, v->arguments);
        text_add(t, "\">%" PRIu64, v->call);
        if (v->last_call > v->call) {
            text_add(t, "&ndash;%" PRIu64, v->last_call);
        }
        text_add(t, "</a>");
    }
    text_add(t, "</div><div class=\"key\">");
    for (uint32_t i = 0; i < N_LEDGER_OUTCOMES; i++) {
        text_add(t, "<span><i class=\"%s\"></i>%s</span>", ledger_outcome_names[i],
                 ledger_outcome_names[i]);
    }
    text_add(t, "</div>");
}

static void event_reasons(struct text *t, const struct ledger_event *v)
{
    for (uint32_t i = 0; i < v->n_reasons; i++) {
        const struct ledger_reason *r = &v->reasons[i];
        bool is_first = i == 0 || r->entry != v->reasons[i - 1].entry;
        bool is_last = i + 1 == v->n_reasons || r->entry != v->reasons[i + 1].entry;
        if (is_first) {
            text_add(t, "<div>plan %" PRIu32 " does not hold:</div><ul>", r->entry);
        }
        text_add(t, "<li><b>");
        html_text(t, r->subject);
        text_add(t, "</b>: <code>");
        html_text(t, r->expected);
        text_add(t, "</code> &rarr; <code>");
        html_text(t, r->found);
        text_add(t, "</code> <span class=\"soft\">");
        html_text(t, r->origin);
        text_add(t, is_last ? "</span></li></ul>" : "</span></li>");
    }
}

static void event_head(struct text *t, const struct ledger_event *v)
{
    text_add(t, "<b>call %" PRIu64, v->call);
    if (v->last_call > v->call) {
        text_add(t, " to %" PRIu64 " (%" PRIu64 " lookups)", v->last_call, v->count);
    }
    text_add(t, "</b> ");
    if (v->segment != 0) {
        text_add(t, "<span class=\"soft\">segment %" PRIu32 "</span> ", v->segment);
    }
    text_add(t, "<code>");
    html_text(t, v->arguments);
    text_add(t, "</code> &mdash; <b>%s</b>", ledger_outcome_names[v->outcome]);
    if (v->entry != 0) {
        text_add(t, " <a href=\"#p%" PRIu32 "\">plan %" PRIu32 "</a>", v->entry, v->entry);
    }
    if (v->outcome == LEDGER_BUILT) {
        text_add(t, " in %.0f ms, %" PRIu32 " kernels compiled, %" PRIu32 " from disk",
                 v->seconds * 1e3, v->kernels_built, v->kernels_loaded);
    }
    if (v->outcome == LEDGER_BUILT && v->compared == 0) {
        text_add(t, "<p class=\"soft\">The first call: there was no plan to compare with.</p>");
    }
}

static void events(struct text *t, const ledger *l)
{
    text_add(t, "<h2 id=\"calls\">Calls</h2>");
    timeline(t, l);
    for (uint32_t i = 0; i < l->n_events; i++) {
        const struct ledger_event *v = &l->events[i];
        text_add(t, "<div class=\"event e-%s\" id=\"e%" PRIu32 "\">",
                 ledger_outcome_names[v->outcome], i);
        event_head(t, v);
        if (v->error[0] != '\0') {
            text_add(t, "<p>");
            html_text(t, v->error);
            text_add(t, "</p>");
        }
        event_reasons(t, v);
        for (uint32_t k = 0; k < v->n_advice; k++) {
            text_add(t, "<div class=\"advice\">");
            html_text(t, v->advice[k]);
            text_add(t, "</div>");
        }
        text_add(t, "</div>\n");
    }
    if (l->n_dropped > 0) {
        text_add(t, "<p>%" PRIu64 " later events were counted but not kept.</p>", l->n_dropped);
    }
}

/* ---- segments and breaks ---- */

static void breaks(struct text *t, const ledger *l)
{
    text_add(t, "<h2 id=\"breaks\">Segments and graph breaks</h2>");
    if (l->n_breaks == 0) {
        text_add(t, "<p>None: every call was one graph.</p>");
        return;
    }
    text_add(t, "<div class=\"wide\"><table><tr><th>segment ended</th><th>where</th><th>kind</th>"
                "<th>why</th><th>value</th><th>times</th><th>what to do</th></tr>");
    for (uint32_t i = 0; i < l->n_breaks; i++) {
        const struct ledger_break *b = &l->breaks[i];
        text_add(t, "<tr><td class=\"n\">%" PRIu32 "</td><td class=\"s\">", b->segment);
        html_place(t, b->file, b->line);
        text_add(t, "</td><td class=\"s\">");
        html_text(t, b->kind);
        text_add(t, "</td><td>");
        html_text(t, b->reason);
        text_add(t, "</td><td class=\"m\">");
        if (b->value[0] != '\0') {
            bool is_one = strcmp(b->first_value, b->value) == 0;
            html_text(t, b->dtype);
            text_add(t, " ");
            html_text(t, b->first_value);
            text_add(t, is_one ? "" : " &rarr; ");
            html_text(t, is_one ? "" : b->value);
        }
        text_add(t, "</td><td class=\"n\">%" PRIu64 "</td><td>", b->count);
        html_text(t, b->advice);
        text_add(t, "</td></tr>");
    }
    text_add(t, "</table></div>");
}

void report_html(struct text *t, const ledger *l)
{
    head(t, l);
    events(t, l);
    breaks(t, l);
    text_add(t, "<h2 id=\"plans\">Plans</h2>");
    for (uint32_t i = 0; i < l->n_entries; i++) {
        html_plan(t, &l->entries[i]);
    }
    text_add(t, "</main></body></html>\n");
}

/* ---- the public entry ---- */

struct page {
    const ledger *l;
    struct arena arena;
    struct text text;
};

static status page_body(void *context)
{
    struct page *p = context;
    p->text.arena = &p->arena;
    report_html(&p->text, p->l);
    return ATOLL_OK;
}

atoll_status atoll_ledger_html(const atoll_ledger *l, const char *path, atoll_error *error)
{
    struct page p = {.l = l};
    struct error own = {0};
    ledger_hold(l);
    status code = run_recoverable(page_body, &p, &own);
    ledger_let_go(l);
    if (code == ATOLL_OK) {
        struct file_part part = {p.text.data, p.text.length};
        code = file_write(path, &part, 1, &own);
    }
    arena_free(&p.arena);
    if (code != ATOLL_OK && error != NULL && error->code == ATOLL_OK) {
        error->code = code;
        memcpy(error->text, own.text, sizeof error->text);
    }
    return code;
}
