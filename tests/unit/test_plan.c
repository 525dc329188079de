/* The public plan API and the plan file under it: open, bind, step, outputs, state, checkpoints,
 * every documented refusal with its status, and files that are cut, damaged or forged: refused with
 * a reason, never run. */
#include "atoll/plan.h"
#include "runtime/file.h"
#include "tests/small_training.h"

#include <math.h>

static char plan_path[96];
static float batch_x[SMALL_ROWS * 5];
static int64_t batch_y[SMALL_ROWS];

static void start(void)
{
    struct error e = {0};
    small_start();
    snprintf(plan_path, sizeof plan_path, "%s/small.plan", small_directory());
    ck_assert_msg(small_plan(plan_path, &e) == ATOLL_OK, "%s", e.text);
    small_batch(batch_x, batch_y);
}

static atoll_plan *open_plan(void)
{
    atoll_plan *p = NULL;
    atoll_error e = {0};
    ck_assert_msg(atoll_plan_open(plan_path, &p, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_ptr_nonnull(p);
    return p;
}

static void bind_batch(atoll_plan *p, int64_t rows)
{
    atoll_error e = {0};
    ck_assert_msg(atoll_plan_bind(p, "x", batch_x, (int64_t[]){rows, 5}, 2, &e) == ATOLL_OK, "%s",
                  e.text);
    ck_assert_msg(atoll_plan_bind(p, "y", batch_y, (int64_t[]){rows}, 1, &e) == ATOLL_OK, "%s",
                  e.text);
}

static double step(atoll_plan *p)
{
    atoll_error e = {0};
    ck_assert_msg(atoll_plan_step(p, &e) == ATOLL_OK, "%s", e.text);
    return atoll_plan_number(p, "loss");
}

/* ---- the way it is meant ---- */

START_TEST(steps_like_a_runner)
{
    struct error e = {0};
    struct train_options train;
    struct compile_options o = small_options(&train);
    struct graph *model = small_model(&e);
    struct runner r;
    atoll_plan *p = open_plan();
    bind_batch(p, SMALL_ROWS);
    ck_assert_msg(runner_open(&r, model, &o, 1, &e) == ATOLL_OK, "%s", e.text);
    ck_assert_int_eq(small_feed(&r, &e), ATOLL_OK);
    double first = 0.0, last = 0.0;
    for (int i = 0; i < 5; i++) {
        last = step(p);
        first = i == 0 ? last : first;
        ck_assert_int_eq(runner_step(&r, &e), ATOLL_OK);
        ASSERT_NUMBER(last, runner_number(&r, "loss"));
    }
    ck_assert(last < first);
    ASSERT_NUMBER(atoll_plan_number(p, "accepted"), 5);
    atoll_plan_close(p);
    runner_free(&r);
    graph_destroy(model);
}
END_TEST

START_TEST(views)
{
    atoll_plan *p = open_plan();
    atoll_view v;
    bind_batch(p, SMALL_ROWS);
    (void)step(p);
    ck_assert_int_eq(atoll_plan_output(p, "logits", &v, NULL), ATOLL_OK);
    ck_assert_str_eq(v.name, "logits");
    ck_assert_str_eq(v.dtype, "bf16");
    ck_assert_uint_eq(v.element_bytes, 2);
    ck_assert_uint_eq(v.rank, 2);
    ck_assert_int_eq(v.shape[0], SMALL_ROWS);
    ck_assert_int_eq(v.shape[1], 4);
    ck_assert_uint_eq(v.bytes, SMALL_ROWS * 4 * 2);
    ck_assert_int_eq(atoll_plan_state(p, "w1", &v, NULL), ATOLL_OK);
    ck_assert_str_eq(v.dtype, "f32");
    ck_assert_uint_eq(v.bytes, 8 * 5 * 4);
    ck_assert(isnan(atoll_plan_number(p, "nothing")));
    ck_assert_uint_gt(atoll_plan_peak_bytes(p), 0);
    ck_assert_uint_gt(atoll_plan_state_bytes(p), v.bytes);
    uint32_t n = atoll_plan_state_count(p), n_params = 0;
    ck_assert_uint_ge(n, 4 * 3); /* parameters and two moments each */
    for (uint32_t i = 0; i < n; i++) {
        atoll_view named;
        ck_assert_int_eq(atoll_plan_state_at(p, i, &v, NULL), ATOLL_OK);
        ck_assert_int_eq(atoll_plan_state(p, v.name, &named, NULL), ATOLL_OK);
        ck_assert_ptr_eq(v.data, named.data);
        n_params += strcmp(v.name, "w1") == 0 || strcmp(v.name, "w2") == 0;
    }
    ck_assert_uint_eq(n_params, 2);
    atoll_plan_close(p);
}
END_TEST

START_TEST(any_number_of_rows)
{
    static const int64_t rows[] = {1, SMALL_ROWS, 2, 1};
    atoll_plan *p = open_plan();
    atoll_view v;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bind_batch(p, rows[i]);
        ck_assert(isfinite(step(p)));
        ck_assert_int_eq(atoll_plan_output(p, "logits", &v, NULL), ATOLL_OK);
        ck_assert_int_eq(v.shape[0], rows[i]);
    }
    atoll_plan_close(p);
}
END_TEST

/* A scalar takes effect in the next step: with a learning rate of 0 and no decay nothing moves. */
START_TEST(set_a_scalar)
{
    atoll_plan *p = open_plan();
    atoll_view w;
    float before[40];
    bind_batch(p, SMALL_ROWS);
    (void)step(p);
    ck_assert_int_eq(atoll_plan_state(p, "w1", &w, NULL), ATOLL_OK);
    memcpy(before, w.data, sizeof before);
    ck_assert_int_eq(atoll_plan_set(p, "lr", 0.0, NULL), ATOLL_OK);
    (void)step(p);
    ck_assert_mem_eq(before, w.data, sizeof before);
    ck_assert_int_eq(atoll_plan_set(p, "lr", 1e-3, NULL), ATOLL_OK);
    (void)step(p);
    ck_assert_mem_ne(before, w.data, sizeof before);
    atoll_plan_close(p);
}
END_TEST

START_TEST(plans_are_independent)
{
    atoll_plan *a = open_plan(), *b = open_plan();
    bind_batch(a, SMALL_ROWS);
    bind_batch(b, SMALL_ROWS);
    double first = step(a);
    (void)step(a);
    atoll_plan_close(a);
    ASSERT_NUMBER(step(b), first);
    atoll_plan_close(b);
    atoll_plan_close(NULL);
}
END_TEST

START_TEST(checkpoint)
{
    atoll_plan *p = open_plan();
    char path[128];
    double after[2];
    snprintf(path, sizeof path, "%s/c.safetensors", small_directory());
    bind_batch(p, SMALL_ROWS);
    (void)step(p);
    ck_assert_int_eq(atoll_plan_save(p, path, NULL), ATOLL_OK);
    for (int i = 0; i < 2; i++) {
        after[i] = step(p);
    }
    atoll_plan_close(p);
    p = open_plan();
    bind_batch(p, SMALL_ROWS);
    ck_assert_int_eq(atoll_plan_load(p, path, NULL), ATOLL_OK);
    for (int i = 0; i < 2; i++) {
        ASSERT_NUMBER(step(p), after[i]);
    }
    atoll_plan_close(p);
}
END_TEST

/* ---- refusals ---- */

static status no_input(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_bind(p, "z", batch_x, (int64_t[]){6, 5}, 2, e);
}

static status not_an_input(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_bind(p, "w1", batch_x, (int64_t[]){8, 5}, 2, e);
}

static status wrong_rank(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_bind(p, "x", batch_x, (int64_t[]){30}, 1, e);
}

static status wrong_width(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_bind(p, "x", batch_x, (int64_t[]){5, 6}, 2, e);
}

static status negative_rows(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_bind(p, "x", batch_x, (int64_t[]){-1, 5}, 2, e);
}

static status not_bound(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_step(p, e);
}

static status no_scalar(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_set(p, "w1", 1.0, e);
}

static status no_output(atoll_plan *p, atoll_error *e)
{
    atoll_view v;
    return atoll_plan_output(p, "los", &v, e);
}

static status no_state(atoll_plan *p, atoll_error *e)
{
    atoll_view v;
    return atoll_plan_state(p, "x", &v, e);
}

static status no_index(atoll_plan *p, atoll_error *e)
{
    atoll_view v;
    return atoll_plan_state_at(p, atoll_plan_state_count(p), &v, e);
}

static status save_nowhere(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_save(p, "/proc/none/c.safetensors", e);
}

static status load_nothing(atoll_plan *p, atoll_error *e)
{
    return atoll_plan_load(p, "/nonexistent.safetensors", e);
}

static const struct refusal {
    const char *name;
    status (*call)(atoll_plan *p, atoll_error *e);
    status code;
    const char *says;
} refusals[] = {
    {"no input", no_input, ATOLL_NOT_FOUND, "no input 'z'; it has: x y"},
    {"not an input", not_an_input, ATOLL_NOT_FOUND, "no input 'w1'"},
    {"wrong rank", wrong_rank, ATOLL_SHAPE, "input %x is f32[n,5], found (30)"},
    {"wrong width", wrong_width, ATOLL_SHAPE, "input %x is f32[n,5], found (5,6)"},
    {"negative rows", negative_rows, ATOLL_SHAPE, "found (-1,5)"},
    {"not bound", not_bound, ATOLL_USAGE, "input %x is not bound"},
    {"no scalar", no_scalar, ATOLL_NOT_FOUND, "no scalar 'w1'; it has:"},
    {"no output", no_output, ATOLL_NOT_FOUND, "no output 'los'; it has: loss logits"},
    {"no state", no_state, ATOLL_NOT_FOUND, "no parameter, buffer or state 'x'; it has:"},
    {"no index", no_index, ATOLL_NOT_FOUND, "state "},
    {"save nowhere", save_nowhere, ATOLL_NOT_FOUND, "/proc/none"},
    {"load nothing", load_nothing, ATOLL_NOT_FOUND, "/nonexistent.safetensors"},
};

/* A refused call says why, with or without a record, keeps an older error, and changes nothing. */
START_TEST(refused)
{
    const struct refusal *r = &refusals[_i];
    atoll_error e = {0}, older = {.code = ATOLL_DATA, .text = "older"};
    atoll_plan *p = open_plan(), *untouched = open_plan();
    status code = r->call(p, &e);
    ck_assert_msg(code == r->code, "%s: status %d: %s", r->name, (int)code, e.text);
    ck_assert_int_eq(e.code, r->code);
    ck_assert_msg(strstr(e.text, r->says) != NULL, "%s: '%s' not in: %s", r->name, r->says, e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert_int_eq(r->call(p, NULL), r->code);
    ck_assert_int_eq(r->call(p, &older), r->code);
    ck_assert_str_eq(older.text, "older");
    bind_batch(p, SMALL_ROWS);
    bind_batch(untouched, SMALL_ROWS);
    for (int i = 0; i < 2; i++) {
        ASSERT_NUMBER(step(p), step(untouched));
    }
    atoll_plan_close(p);
    atoll_plan_close(untouched);
}
END_TEST

/* ---- files ---- */

static void read_plan(struct arena *a, uint8_t **bytes, size_t *size)
{
    struct error e = {0};
    ck_assert_msg(file_read(a, plan_path, bytes, size, &e) == ATOLL_OK, "%s", e.text);
}

static void write_bytes(const char *path, const void *bytes, size_t size)
{
    struct error e = {0};
    struct file_part part = {bytes, size};
    ck_assert_msg(file_write(path, &part, 1, &e) == ATOLL_OK, "%s", e.text);
}

static status open_bytes(const void *bytes, size_t size, atoll_error *e)
{
    char path[128];
    atoll_plan *p = (atoll_plan *)1;
    snprintf(path, sizeof path, "%s/broken.plan", small_directory());
    write_bytes(path, bytes, size);
    status code = atoll_plan_open(path, &p, e);
    ck_assert(code == ATOLL_OK || p == NULL);
    atoll_plan_close(p);
    return code;
}

START_TEST(no_file)
{
    atoll_error e = {0};
    atoll_plan *p = (atoll_plan *)1;
    ck_assert_int_eq(atoll_plan_open("/nonexistent.plan", &p, &e), ATOLL_NOT_FOUND);
    ck_assert_ptr_null(p);
    ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent.plan"));
    ck_assert_int_eq(atoll_plan_open("/", &p, NULL), ATOLL_FORMAT);
    ck_assert_int_eq(atoll_plan_open("/dev/null", &p, NULL), ATOLL_FORMAT);
}
END_TEST

START_TEST(cut_anywhere)
{
    struct arena a = {0};
    uint8_t *bytes;
    size_t size;
    read_plan(&a, &bytes, &size);
    for (size_t at = 0; at < size; at += at < 1000 ? 37 : size / 23) {
        atoll_error e = {0};
        status code = open_bytes(bytes, at, &e);
        ck_assert_msg(code == ATOLL_FORMAT || code == ATOLL_CHECKSUM, "cut at %zu: status %d: %s",
                      at, (int)code, e.text);
    }
    arena_free(&a);
}
END_TEST

START_TEST(flipped_anywhere)
{
    struct arena a = {0};
    uint8_t *bytes;
    size_t size;
    read_plan(&a, &bytes, &size);
    for (size_t at = 0; at < size; at += at < 600 ? 23 : size / 41) {
        atoll_error e = {0};
        bytes[at] ^= 0x20;
        status code = open_bytes(bytes, size, &e);
        bytes[at] ^= 0x20;
        ck_assert_msg(code == ATOLL_FORMAT || code == ATOLL_CHECKSUM || code == ATOLL_VERSION,
                      "byte %zu flipped: status %d: %s", at, (int)code, e.text);
    }
    ck_assert_int_eq(open_bytes(bytes, size, NULL), ATOLL_OK);
    arena_free(&a);
}
END_TEST

/* Sections exchanged under a good checksum: each lack or mismatch is refused before anything runs.
 */
static const struct forgery {
    const char *name, *section; /* what to replace, or drop when with is NULL */
    const char *with;
    status code;
    const char *says;
} forgeries[] = {
    {"without a graph", "graph", NULL, ATOLL_FORMAT, "no section 'graph'"},
    {"without kernels", "library", NULL, ATOLL_FORMAT, "no section 'library'"},
    {"another graph", "graph", "graph @g(%x: f32[3] input) {\n  return x=%x\n}\n", ATOLL_FORMAT,
     "do not belong together"},
    {"no graph at all", "graph", "grph @g", ATOLL_PARSE, "found"},
    {"empty program", "program", "", ATOLL_FORMAT, "do not belong together"},
    {"short state", "state", "abc", ATOLL_FORMAT, "do not belong together"},
    {"no library", "library", "not a shared object", ATOLL_FORMAT, "do not load"},
    {"an empty library", "library", "", ATOLL_FORMAT, "is not in the library"},
    {"another processor", "about", "model m\nprocessor aarch64\n", ATOLL_UNSUPPORTED,
     "need a processor with aarch64"},
};

START_TEST(forged)
{
    const struct forgery *f = &forgeries[_i];
    struct error e = {0};
    struct container c;
    struct section sections[8];
    uint32_t n = 0;
    char path[128];
    snprintf(path, sizeof path, "%s/forged.plan", small_directory());
    ck_assert_int_eq(container_open(plan_path, "plan", &c, &e), ATOLL_OK);
    for (uint32_t i = 0; i < c.n_sections; i++) {
        bool is_it = strcmp(c.sections[i].name, f->section) == 0;
        if (!is_it || f->with != NULL) {
            sections[n] = c.sections[i];
            sections[n].data = is_it ? f->with : sections[n].data;
            sections[n].size = is_it ? strlen(f->with) : sections[n].size;
            n++;
        }
    }
    ck_assert_int_eq(container_write(path, "plan", sections, n, &e), ATOLL_OK);
    container_close(&c);
    atoll_plan *p = NULL;
    atoll_error error = {0};
    status code = atoll_plan_open(path, &p, &error);
    atoll_plan_close(p);
    ck_assert_msg(code == f->code, "%s: status %d: %s", f->name, (int)code, error.text);
    ck_assert_msg(strstr(error.text, f->says) != NULL, "%s: '%s' not in: %s", f->name, f->says,
                  error.text);
}
END_TEST

/* One op of the graph is another: it parses, but it is not the graph the kernels were made from. */
START_TEST(graph_with_another_op)
{
    struct error e = {0};
    struct container c;
    char path[128];
    snprintf(path, sizeof path, "%s/op.plan", small_directory());
    ck_assert_int_eq(container_open(plan_path, "plan", &c, &e), ATOLL_OK);
    for (uint32_t i = 0; i < c.n_sections; i++) {
        if (strcmp(c.sections[i].name, "graph") == 0) {
            char *text = arena_text(&c.arena, "%.*s", (int)c.sections[i].size,
                                    (const char *)c.sections[i].data);
            char *op = strstr(text, "add(");
            ck_assert_ptr_nonnull(op);
            memcpy(op, "sub", 3);
            c.sections[i].data = text;
        }
    }
    ck_assert_int_eq(container_write(path, "plan", c.sections, c.n_sections, &e), ATOLL_OK);
    container_close(&c);
    atoll_plan *p = NULL;
    ck_assert_int_eq(atoll_plan_open(path, &p, NULL), ATOLL_FORMAT);
    ck_assert_ptr_null(p);
}
END_TEST

static void fill(TCase *tc)
{
    tcase_add_unchecked_fixture(tc, start, small_clean);
    tcase_add_test(tc, steps_like_a_runner);
    tcase_add_test(tc, views);
    tcase_add_test(tc, any_number_of_rows);
    tcase_add_test(tc, set_a_scalar);
    tcase_add_test(tc, plans_are_independent);
    tcase_add_test(tc, checkpoint);
    tcase_add_loop_test(tc, refused, 0, ARRAY_LEN(refusals));
    tcase_add_test(tc, no_file);
    tcase_add_test(tc, cut_anywhere);
    tcase_add_test(tc, flipped_anywhere);
    tcase_add_test(tc, graph_with_another_op);
    tcase_add_loop_test(tc, forged, 0, ARRAY_LEN(forgeries));
}

int main(void)
{
    return run_suite("plan", fill);
}
