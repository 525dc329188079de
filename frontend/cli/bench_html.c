/* The page of atoll bench: charts as SVG, every row and every setting as tables, one file that
 * loads nothing. Drawings are 360 units wide, a phone's width, and grow with the page. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "runtime/file.h"

enum { WIDTH = 360, PLOT_HEIGHT = 200, LEFT = 48, RIGHT = 8, TOP = 8, BOTTOM = 22 };

/* --l0 to --l7 are the lines of the loss chart. Both schemes keep 3:1 against the paper,
 * text 4.5:1.
 */
static const char style[] =
    ":root{--ink:#1a1c1f;--soft:#5c636b;--line:#d8dce0;--paper:#fff;--bar:#3566b8;--other:#7d97c2;"
    "--warn:#a86200;--l0:#3566b8;--l1:#c2571a;--l2:#2a8f55;--l3:#9b4fb0;--l4:#b03a52;--l5:#7a7a1f;"
    "--l6:#2583a0;--l7:#6b6f76;color-scheme:light dark}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#9aa2ab;--line:#3a3f45;"
    "--paper:#16181b;--bar:#7aa2f0;--other:#56739f;--warn:#e39b2d;--l0:#7aa2f0;--l1:#f0925a;"
    "--l2:#5fc48a;--l3:#c98add;--l4:#ef7d93;--l5:#c4c45a;--l6:#66bfdb;--l7:#a5abb3}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:16px;max-width:1040px;"
    "background:var(--paper);color:var(--ink);font:16px/1.45 system-ui,sans-serif;"
    "-webkit-text-size-adjust:100%}h1{font-size:1.4rem;margin:.4rem 0;overflow-wrap:anywhere}"
    "h2{font-size:1.1rem;margin-top:2rem}.charts{display:grid;gap:1.6rem "
    "2.4rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));"
    "margin-top:1.2rem}figure{margin:0;max-width:500px}"
    "figcaption{font-weight:600;margin-bottom:.4rem}"
    "svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;"
    "fill:var(--ink)}svg .soft{fill:var(--soft)}.lines path{fill:none;stroke-width:1.5}"
    ".key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.85rem;margin:.4rem 0}"
    ".key svg{display:inline-block;width:24px;height:8px;margin-right:.4rem}"
    ".key path{stroke-width:2}.wide{overflow-x:auto}table{border-collapse:"
    "collapse;font-size:.85rem;font-variant-numeric:tabular-nums}th,td{padding:.25rem .6rem;"
    "border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th:first-child,"
    "td.text,th.text{text-align:left}.figures th:first-child,.figures td:first-child{position:"
    "sticky;left:0;background:var(--paper);padding-left:0}.wrap th{padding-left:0;vertical-align:"
    "top}.wrap td{white-space:normal;text-align:left;overflow-wrap:anywhere}"
    ".warn{border-left:4px solid var(--warn);padding:.4rem .8rem}p{color:var(--soft)}";

/* Told apart by hue and dashes; only the first is solid, so that it shows under the others where
 * they run together. */
static const char *const dashes[] = {"none", "6 6", "2 4", "9 3 2 3", "3 9", "12 6", "1 6", "6 12"};

static void add_escaped(struct text *t, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        switch (*p) {
        case '<':
            text_add(t, "&lt;");
            break;
        case '>':
            text_add(t, "&gt;");
            break;
        case '&':
            text_add(t, "&amp;");
            break;
        case '"':
            text_add(t, "&quot;");
            break;
        default:
            text_add(t, "%c", *p);
        }
    }
}

/* ---- bars ---- */

struct chart {
    const char *title, *unit;
    const char *column, *low, *high; /* names; low, high: a whisker, or NULL */
    double factor;
    int digits;
};

static const struct bench_column *column_named(const char *name)
{
    uint32_t i = 0;
    while (strcmp(bench_columns[i].name, name) != 0) {
        i++;
    }
    return &bench_columns[i];
}

static double value_of(const struct bench_row *r, const struct chart *c, const char *name)
{
    return name != NULL ? bench_number(r, column_named(name)) * c->factor : (double)NAN;
}

static double largest(const struct bench *b, const struct chart *c)
{
    double most = 0.0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        most = fmax(most, value_of(&b->rows[i], c, c->column));
        most = fmax(most, value_of(&b->rows[i], c, c->high));
    }
    return most;
}

static void add_bar(struct text *t, const struct bench_row *r, const struct chart *c, double most,
                    int y)
{
    double v = value_of(r, c, c->column), low = value_of(r, c, c->low),
           high = value_of(r, c, c->high), scale = (WIDTH - 4) / most;
    bool is_eager = strcmp(r->mode, "eager") == 0;
    text_add(t, "<text x=\"0\" y=\"%d\">", y + 12);
    add_escaped(t, r->policy);
    text_add(t, " %s</text><text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", r->mode,
             WIDTH, y + 12);
    if (isnan(v)) {
        text_add(t, "%s</text>\n", r->is_measured ? "not measured" : "not run");
        return;
    }
    text_add(t, "%.*g %s", c->digits, v, c->unit);
    if (!isnan(low)) {
        text_add(t, " (%.*g to %.*g)", c->digits, low, c->digits, high);
    }
    text_add(t, "</text><rect x=\"0\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"var(--%s)\"/>\n",
             y + 17, v * scale, is_eager ? "other" : "bar");
    if (!isnan(low)) {
        text_add(t,
                 "<path d=\"M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8\" stroke=\"var(--ink)\" "
                 "fill=\"none\"/>\n",
                 low * scale, y + 23, high * scale, low * scale, y + 19, high * scale, y + 19);
    }
}

static void add_bars(struct text *t, const struct bench *b, const struct chart *c)
{
    double most = largest(b, c);
    if (!(most > 0.0)) {
        return; /* nothing was measured */
    }
    text_add(t,
             "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %u\" role=\"img\" "
             "aria-label=\"%s\">\n",
             c->title, WIDTH, b->n_rows * 36, c->title);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        add_bar(t, &b->rows[i], c, most, (int)i * 36);
    }
    text_add(t, "</svg></figure>\n");
}

/* ---- the loss ---- */

/* Fused ends where eager ends, so one line a policy: the fused one where it ran. */
static bool is_drawn(const struct bench *b, uint32_t i)
{
    bool has_fused =
        i + 1 < b->n_rows && strcmp(b->rows[i].mode, "eager") == 0 && b->rows[i + 1].n_losses > 0;
    return b->rows[i].n_losses > 0 && !has_fused &&
           (strcmp(b->rows[i].mode, "fused") == 0 || b->rows[i].is_measured);
}

static void find_range(const struct bench *b, double *low, double *high)
{
    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        for (int64_t k = 0; is_drawn(b, i) && k < b->rows[i].n_losses; k++) {
            double v = b->rows[i].losses[k];
            if (isfinite(v)) {
                *low = fmin(*low, v);
                *high = fmax(*high, v);
            }
        }
    }
}

static void add_line(struct text *t, const struct bench_row *r, double low, double high,
                     uint32_t which)
{
    double across =
        (double)(WIDTH - LEFT - RIGHT) / (double)(r->n_losses > 1 ? r->n_losses - 1 : 1);
    double up = (double)(PLOT_HEIGHT - TOP - BOTTOM) / (high > low ? high - low : 1.0);
    bool is_down = false;
    text_add(t, "<path stroke=\"var(--l%u)\" stroke-dasharray=\"%s\" d=\"",
             (unsigned)(which % ARRAY_LEN(dashes)), dashes[which % ARRAY_LEN(dashes)]);
    for (int64_t k = 0; k < r->n_losses; k++) {
        bool is_number = isfinite(r->losses[k]);
        if (is_number) {
            text_add(t, "%s%.1f %.1f", is_down ? "L" : "M", LEFT + (double)k * across,
                     PLOT_HEIGHT - BOTTOM - (r->losses[k] - low) * up);
        }
        is_down = is_number; /* a gap where the loss is no number */
    }
    text_add(t, "\"/>\n");
}

static void add_losses(struct text *t, const struct bench *b)
{
    double low, high;
    uint32_t n = 0;
    find_range(b, &low, &high);
    if (low > high) {
        return;
    }
    text_add(t,
             "<figure><figcaption>Training loss, a step each</figcaption>\n<svg class=\"lines\" "
             "viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"training loss\"><path d=\"M%d "
             "%dV%dH%d\" stroke=\"var(--line)\"/>\n",
             WIDTH, PLOT_HEIGHT, LEFT, TOP, PLOT_HEIGHT - BOTTOM, WIDTH - RIGHT);
    text_add(t,
             "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text><text "
             "class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text><text class=\"soft\" "
             "x=\"%d\" y=\"%d\">step 1</text><text class=\"soft\" x=\"%d\" y=\"%d\" "
             "text-anchor=\"end\">step %" PRId64 "</text>\n",
             LEFT - 4, TOP + 10, high, LEFT - 4, PLOT_HEIGHT - BOTTOM, low, LEFT, PLOT_HEIGHT - 6,
             WIDTH - RIGHT, PLOT_HEIGHT - 6, b->steps);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (is_drawn(b, i)) {
            add_line(t, &b->rows[i], low, high, n++);
        }
    }
    text_add(t, "</svg><div class=\"key\">");
    n = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (is_drawn(b, i)) {
            text_add(t,
                     "<span><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\" "
                     "stroke=\"var(--l%u)\" stroke-dasharray=\"%s\"/></svg>",
                     (unsigned)(n % ARRAY_LEN(dashes)), dashes[n % ARRAY_LEN(dashes)]);
            add_escaped(t, b->rows[i].policy);
            text_add(t, "</span> ");
            n++;
        }
    }
    text_add(t, "</div></figure>\n");
}

/* ---- tables ---- */

static void add_rows(struct text *t, const struct bench *b)
{
    text_add(t, "<h2>All figures</h2><div class=\"wide figures\"><table><tr>");
    for (uint32_t i = 0; i < n_bench_columns; i++) {
        const struct bench_column *c = &bench_columns[i];
        text_add(t, "<th%s>%s</th>", c->kind == BENCH_TEXT ? " class=\"text\"" : "", c->name);
    }
    text_add(t, "</tr>\n");
    for (uint32_t k = 0; k < b->n_rows; k++) {
        text_add(t, "<tr>");
        for (uint32_t i = 0; i < n_bench_columns; i++) {
            const struct bench_column *c = &bench_columns[i];
            double v = c->kind == BENCH_NUMBER ? bench_number(&b->rows[k], c) : 0.0;
            if (c->kind == BENCH_TEXT) {
                text_add(t, "<td class=\"text\">");
                add_escaped(t, bench_text(&b->rows[k], c));
            } else if (isnan(v)) {
                text_add(t, "<td>-");
            } else {
                text_add(t, "<td>%.*g", c->digits, v);
            }
            text_add(t, "</td>");
        }
        text_add(t, "</tr>\n");
    }
    text_add(t, "</table></div>\n");
}

static void add_settings(struct text *t, const struct bench *b)
{
    text_add(t, "<h2>Settings</h2><div class=\"wide wrap\"><table>\n");
    for (uint32_t i = 0; i < b->n_settings; i++) {
        text_add(t, "<tr><th>%s</th><td>", b->settings[i].name);
        add_escaped(t, b->settings[i].text);
        text_add(t, "</td></tr>\n");
    }
    text_add(t, "</table></div>\n");
}

static void add_head(struct text *t, const struct bench *b)
{
    text_add(t,
             "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
             "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" "
             "href=\"data:,\"><title>atoll bench: ");
    add_escaped(t, b->job.model->name);
    text_add(t, "</title><style>%s</style></head><body>\n<h1>atoll bench: ", style);
    add_escaped(t, b->job.model->name);
    text_add(t, "</h1>\n");
    if (b->is_emulated) {
        text_add(t,
                 "<p class=\"warn\">The device is emulated: no time on this page is a speed.</p>");
    }
    text_add(t,
             "<p>Each row starts from the same parameters and takes the same %" PRId64
             " batches; median of %" PRId64 " repetitions, whiskers from the least to the most. "
             "What was not measured has no bar.</p>\n",
             b->steps, b->repeats);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (!b->rows[i].is_measured) {
            text_add(t, "<p class=\"warn\">");
            add_escaped(t, b->rows[i].policy);
            text_add(t, " %s: ", b->rows[i].mode);
            add_escaped(t, b->rows[i].status);
            text_add(t, "</p>\n");
        }
    }
}

status bench_write_html(const struct bench *b, const char *path, struct error *e)
{
    static const struct chart charts[] = {
        {"Time of a whole step", "us", "step_us", "step_us_low", "step_us_high", 1.0, 4},
        {"Compiling, nothing cached", "ms", "compile_cold_ms", NULL, NULL, 1.0, 4},
        {"Compiling, kernels cached", "ms", "compile_warm_ms", NULL, NULL, 1.0, 4},
        {"Memory in use, peak", "MiB", "allocated_bytes", NULL, NULL, 1.0 / 1048576.0, 4},
        {"Memory taken from the driver, peak", "MiB", "reserved_bytes", NULL, NULL, 1.0 / 1048576.0,
         4},
        {"Validation loss, computed in f32", "", "validation_loss", NULL, NULL, 1.0, 6},
    };
    struct arena scratch = SCRATCH_ARENA;
    struct text t = {.arena = &scratch};
    add_head(&t, b);
    text_add(&t, "<div class=\"charts\">\n");
    for (size_t i = 0; i < ARRAY_LEN(charts); i++) {
        add_bars(&t, b, &charts[i]);
    }
    add_losses(&t, b);
    text_add(&t, "</div>\n");
    add_rows(&t, b);
    add_settings(&t, b);
    text_add(&t, "</body></html>\n");
    status code = file_write(path, &(struct file_part){t.data, t.length}, 1, e);
    arena_free(&scratch);
    return code;
}
