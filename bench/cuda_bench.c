/* Fused kernels on a device against a device copy of the same run: gigabytes a second, and the
 * share of the copy's. cuda_bench [DEVICE] [MEGABYTES]; one JSON line a kernel. Bytes are those a
 * kernel must move: every input once, every output once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/context.h"
#include "frontend/runner.h"
#include "ir/parse.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* %N stands for the number of elements, %R for rows of 1024. */
static const struct {
    const char *name, *graph;
} cases[] = {
    {"gelu bf16", "graph @g(%x: bf16[%N] buffer) {\n %y = gelu(%x)\n return y=%y\n}\n"},
    {"add mul relu f32", "graph @g(%x: f32[%N] buffer, %z: f32[%N] buffer) {\n %a = add(%x, %z)\n "
                         "%b = mul(%a, %z)\n %y = relu(%b)\n return y=%y\n}\n"},
    {"softmax f32", "graph @g(%x: f32[%R,1024] buffer) {\n %y = softmax(%x)\n return y=%y\n}\n"},
    {"layer_norm bf16",
     "graph @g(%x: bf16[%R,1024] buffer, %w: bf16[1024] buffer, %b: bf16[1024] buffer) {\n %y = "
     "layer_norm(%x, %w, %b)\n return y=%y\n}\n"},
    {"sum f32", "graph @g(%x: f32[%N] buffer) {\n %y = sum(%x)\n return y=%y\n}\n"},
    {"column sum f32",
     "graph @g(%x: f32[%R,1024] buffer) {\n %y = sum(%x) {axes=[0]}\n return y=%y\n}\n"},
};

static void write_graph(struct text *t, const char *form, long long n)
{
    for (const char *p = form; *p != '\0'; p++) {
        if (*p == '%' && p[1] == 'N') {
            text_add(t, "%lld", n);
            p++;
        } else if (*p == '%' && p[1] == 'R') {
            text_add(t, "%lld", n / 1024);
            p++;
        } else {
            text_append(t, p, 1);
        }
    }
}

static size_t bytes_moved(const struct graph *g)
{
    size_t total = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (node_is_leaf(&g->nodes[i])) {
            total += (size_t)shape_count_value(&g->nodes[i].shape, NULL) *
                     dtype_info[g->nodes[i].dtype].bytes;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct node *n = graph_node(g, g->outputs[i].value);
        total += (size_t)shape_count_value(&n->shape, NULL) * dtype_info[n->dtype].bytes;
    }
    return total;
}

/* Steps a second, without what the host sees. */
static status seconds_of(struct runner *r, int repeats, double *out, struct error *e)
{
    for (int i = 0; i < 3; i++) {
        TRY(runner_step(r, e));
    }
    TRY(r->device->backend->wait(r->device, e));
    double start = now();
    for (int i = 0; i < repeats; i++) {
        TRY(runner_step(r, e));
    }
    TRY(r->device->backend->wait(r->device, e));
    *out = (now() - start) / repeats;
    return ATOLL_OK;
}

static status copy_rate(struct device *d, size_t bytes, int repeats, double *out, struct error *e)
{
    void *a = NULL, *b = NULL;
    TRY(d->backend->allocate(d, bytes, &a, e));
    TRY(d->backend->allocate(d, bytes, &b, e));
    void *zeros = NULL; /* the source has contents */
    TRY(d->backend->allocate_host(d, bytes, &zeros, e));
    memset(zeros, 0, bytes);
    TRY(d->backend->uploads_begin(d, e));
    TRY(d->backend->upload(d, a, zeros, bytes, e));
    TRY(d->backend->uploads_end(d, e));
    TRY(d->backend->copy(d, b, a, bytes, e));
    TRY(d->backend->wait(d, e));
    double start = now();
    for (int i = 0; i < repeats; i++) {
        TRY(d->backend->copy(d, b, a, bytes, e));
    }
    TRY(d->backend->wait(d, e));
    *out = 2.0 * (double)bytes * repeats / (now() - start) / 1e9;
    d->backend->release(d, a);
    d->backend->release(d, b);
    d->backend->release_host(d, zeros);
    return ATOLL_OK;
}

static status run_case(uint32_t i, long long n, double copy, struct device *d, struct context *c,
                       struct error *e)
{
    struct arena arena = {0};
    struct text t = {.arena = &arena};
    struct compile_options o = {.device = d};
    struct runner r = {0};
    double seconds = 0;
    TRY(context_apply(c, &o, e));
    o.dump = NULL;
    write_graph(&t, cases[i].graph, n);
    struct graph *g = graph_parse(t.data, t.length, cases[i].name, e);
    status code = g != NULL ? runner_open(&r, g, &o, 1, e) : e->code;
    code = code == ATOLL_OK ? seconds_of(&r, 20, &seconds, e) : code;
    if (code == ATOLL_OK) {
        double rate = (double)bytes_moved(g) / seconds / 1e9;
        printf("{\"kernel\": \"%s\", \"bytes\": %zu, \"us\": %.2f, \"GB_s\": %.2f, "
               "\"share_of_copy\": %.3f}\n",
               cases[i].name, bytes_moved(g), seconds * 1e6, rate, rate / copy);
        fflush(stdout);
    }
    runner_free(&r);
    graph_destroy(g);
    arena_free(&arena);
    return code;
}

int main(int argc, char **argv)
{
    struct context c;
    struct error e = {0};
    struct device *d = NULL;
    double copy = 0;
    long long n = (argc > 2 ? atoll(argv[2]) : 256) << 18; /* f32 elements */
    context_read(&c);
    struct device_options where = context_devices(&c);
    status code = device_open(argc > 1 ? argv[1] : "cuda:0", &where, &d, &e);
    if (code == ATOLL_OK && d == NULL) {
        code = fail(&e, ATOLL_USAGE, "cuda_bench measures a device, not the CPU");
    }
    code = code == ATOLL_OK ? copy_rate(d, (size_t)n * 4, 20, &copy, &e) : code;
    if (code == ATOLL_OK) {
        printf("{\"device\": \"%s\", \"copy_GB_s\": %.2f}\n", d->name, copy);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(cases) && code == ATOLL_OK; i++) {
        code = run_case(i, n, copy, d, &c, &e);
    }
    device_close(d);
    if (code != ATOLL_OK) {
        fprintf(stderr, "cuda_bench: %s\n", e.text);
    }
    return code == ATOLL_OK ? 0 : code == ATOLL_USAGE ? 2 : 4;
}
