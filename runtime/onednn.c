/* Contractions by oneDNN's matmul primitive. A primitive is made once for a descriptor and thread
 * count and found again by hash; a call then only sets four pointers. The math mode is strict: f32
 * is never computed through bf16, whatever the library's environment says. */
#include "onednn.h"

#ifdef ATOLL_HAVE_ONEDNN

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Above this k, oneDNN may share the sum over k among threads, so its bits would depend on their
 * number; such a product is planned for one thread, and a wide one is cut into strips of columns
 * that threads of ours take. Its shape alone says how many. Up to it, a sum stays on one thread. */
enum { LONGEST_SHARED_K = 1024, STRIPS = 8, STRIP_GRAIN = 64 };
/* Below so many multiply-adds a second thread costs more than it brings, most of all when the cores
 * are busy and the team spins: a step of small layers then never leaves its thread. */
enum { LEAST_SHARED_WORK = 1 << 20 };
enum { MAX_PREPARED = 256, N_BUCKETS = 512, A = 0, B, BIAS, OUT, SCRATCH, N_MEMORIES };

struct key {
    struct contraction c; /* axes beyond n_batch are zero, so that bytes compare */
    int64_t threads;      /* oneDNN plans its blocking for a number of threads */
    int64_t strip;        /* 1, 2, ...: c is a strip of columns of a wider product; 0: the whole */
    int64_t row;          /* the elements of a row of that product */
};

struct prepared {
    struct key key;
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[N_MEMORIES];
    uint64_t hash, last_used;
    uint32_t next; /* in its bucket, index + 1; 0: none */
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr, strip_attr; /* strips run side by side: each has its own scratch */
    struct prepared items[MAX_PREPARED];
    uint32_t buckets[N_BUCKETS]; /* index + 1 */
    uint32_t n;
    uint64_t clock;
};

static status from_dnnl(dnnl_status_t code, const struct contraction *c, struct error *e)
{
    if (code == dnnl_success) {
        return ATOLL_OK;
    }
    return fail(e, code == dnnl_out_of_memory ? ATOLL_OUT_OF_MEMORY : ATOLL_UNSUPPORTED,
                "oneDNN " ONEDNN_VERSION_TEXT ": status %d for %s (%lld,%lld) x (%lld,%lld)",
                (int)code, dtype_info[c->ab].name, (long long)c->m, (long long)c->k,
                (long long)c->k, (long long)c->n);
}

status onednn_create(struct onednn **out)
{
    struct onednn *o = *out = calloc(1, sizeof *o);
    if (o == NULL) {
        return ATOLL_OUT_OF_MEMORY;
    }
    dnnl_status_t code = dnnl_engine_create(&o->engine, dnnl_cpu, 0);
    if (code == dnnl_success) {
        code = dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags);
    }
    if (code == dnnl_success) {
        code = dnnl_primitive_attr_create(&o->attr);
    }
    if (code == dnnl_success) {
        code = dnnl_primitive_attr_set_fpmath_mode(o->attr, dnnl_fpmath_mode_strict);
    }
    if (code == dnnl_success) {
        code = dnnl_primitive_attr_clone(&o->strip_attr, o->attr);
    }
    if (code == dnnl_success) {
        code = dnnl_primitive_attr_set_scratchpad_mode(o->strip_attr, dnnl_scratchpad_mode_user);
    }
    if (code == dnnl_success) {
        return ATOLL_OK;
    }
    onednn_destroy(o);
    *out = NULL;
    return code == dnnl_out_of_memory ? ATOLL_OUT_OF_MEMORY : ATOLL_UNSUPPORTED;
}

static void forget(struct prepared *p)
{
    for (uint32_t i = 0; i < N_MEMORIES; i++) {
        if (p->memories[i] != NULL) {
            dnnl_memory_destroy(p->memories[i]);
        }
    }
    if (p->primitive != NULL) {
        dnnl_primitive_destroy(p->primitive);
    }
    memset(p, 0, sizeof *p);
}

void onednn_destroy(struct onednn *o)
{
    if (o == NULL) {
        return;
    }
    for (uint32_t i = 0; i < o->n; i++) {
        forget(&o->items[i]);
    }
    if (o->attr != NULL) {
        dnnl_primitive_attr_destroy(o->attr);
    }
    if (o->strip_attr != NULL) {
        dnnl_primitive_attr_destroy(o->strip_attr);
    }
    if (o->stream != NULL) {
        dnnl_stream_destroy(o->stream);
    }
    if (o->engine != NULL) {
        dnnl_engine_destroy(o->engine);
    }
    free(o);
}

/* ---- preparing ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;
static void description_drop(description d)
{
    if (d != NULL) {
        dnnl_memory_desc_destroy(d);
    }
}
static dnnl_status_t describe(description *out, int rank, const dnnl_dims_t dims,
                              dnnl_data_type_t t, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, rank, dims, t, strides);
}
static dnnl_status_t make_memory(dnnl_memory_t *out, description d, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, d, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *out, const struct onednn *o,
                                         description d[N_MEMORIES], bool has_bias,
                                         dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, o->engine, d[A], d[B], has_bias ? d[BIAS] : NULL,
                                             d[OUT], attr);
}
static dnnl_status_t make_scratch(dnnl_memory_t *out, dnnl_primitive_desc_t pd,
                                  dnnl_engine_t engine)
{
    const_dnnl_memory_desc_t d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d == NULL || dnnl_memory_desc_get_size(d) == 0
               ? dnnl_success
               : dnnl_memory_create(out, d, engine, DNNL_MEMORY_ALLOCATE);
}
#else
typedef dnnl_memory_desc_t description;
static void description_drop(description d)
{
    (void)d; /* a plain struct before 3.0 */
}
static dnnl_status_t describe(description *out, int rank, const dnnl_dims_t dims,
                              dnnl_data_type_t t, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, rank, dims, t, strides);
}
static dnnl_status_t make_memory(dnnl_memory_t *out, description d, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, &d, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *out, const struct onednn *o,
                                         description d[N_MEMORIES], bool has_bias,
                                         dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t code =
        dnnl_matmul_desc_init(&matmul, &d[A], &d[B], has_bias ? &d[BIAS] : NULL, &d[OUT]);
    return code != dnnl_success ? code
                                : dnnl_primitive_desc_create(out, &matmul, attr, o->engine, NULL);
}
static dnnl_status_t make_scratch(dnnl_memory_t *out, dnnl_primitive_desc_t pd,
                                  dnnl_engine_t engine)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d == NULL || dnnl_memory_desc_get_size(d) == 0
               ? dnnl_success
               : dnnl_memory_create(out, d, engine, DNNL_MEMORY_ALLOCATE);
}
#endif

static dnnl_data_type_t dnnl_type(enum dtype t)
{
    return t == BF16 ? dnnl_bf16 : dnnl_f32;
}

/* One operand: batch axes, then rows and columns; a batch stride of 0 is a size of 1. row: the
 * elements from one row to the next where they are more than the columns, else 0. */
static dnnl_status_t describe_matrix(description *out, const struct contraction *c, enum dtype t,
                                     const int64_t *batch_strides, int64_t rows, int64_t columns,
                                     bool is_transposed, int64_t row)
{
    dnnl_dims_t dims = {0}, strides = {0};
    uint32_t r = c->n_batch;
    for (uint32_t i = 0; i < r; i++) {
        dims[i] = batch_strides[i] == 0 ? 1 : c->batch[i];
        strides[i] = batch_strides[i] == 0 ? rows * columns : batch_strides[i];
    }
    dims[r] = rows;
    dims[r + 1] = columns;
    strides[r] = is_transposed ? 1 : row != 0 ? row : columns;
    strides[r + 1] = is_transposed ? rows : 1;
    return describe(out, (int)r + 2, dims, dnnl_type(t), strides);
}

static dnnl_status_t describe_all(description d[N_MEMORIES], const struct key *key)
{
    const struct contraction *c = &key->c;
    int64_t out_strides[MAX_RANK - 2], bias_strides[MAX_RANK - 2] = {0}, step = c->m * c->n;
    for (uint32_t i = c->n_batch; i-- > 0;) {
        out_strides[i] = step;
        step *= c->batch[i];
    }
    dnnl_status_t code =
        describe_matrix(&d[A], c, c->ab, c->batch_stride_a, c->m, c->k, c->transpose_a, 0);
    if (code == dnnl_success) {
        code = describe_matrix(&d[B], c, c->ab, c->batch_stride_b, c->k, c->n, c->transpose_b,
                               key->row);
    }
    if (code == dnnl_success) {
        code = describe_matrix(&d[OUT], c, c->c, out_strides, c->m, c->n, false, key->row);
    }
    if (code == dnnl_success && c->has_bias) {
        code = describe_matrix(&d[BIAS], c, c->c, bias_strides, 1, c->n, false, 0);
    }
    return code;
}

static status prepare(struct onednn *o, struct prepared *p, struct error *e)
{
    const struct contraction *c = &p->key.c;
    description d[N_MEMORIES];
    memset(d, 0, sizeof d);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t code = describe_all(d, &p->key);
    if (code == dnnl_success) {
        code = make_primitive_desc(&pd, o, d, c->has_bias,
                                   p->key.strip != 0 ? o->strip_attr : o->attr);
    }
    if (code == dnnl_success) {
        code = dnnl_primitive_create(&p->primitive, pd);
    }
    if (code == dnnl_success && p->key.strip != 0) {
        code = make_scratch(&p->memories[SCRATCH], pd, o->engine);
    }
    for (uint32_t i = 0; i < SCRATCH && code == dnnl_success; i++) {
        if (i != BIAS || c->has_bias) {
            code = make_memory(&p->memories[i], d[i], o->engine);
        }
    }
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    for (uint32_t i = 0; i < N_MEMORIES; i++) {
        description_drop(d[i]);
    }
    return from_dnnl(code, c, e);
}

/* ---- the cache ---- */

static void unlink_item(struct onednn *o, uint32_t index)
{
    uint32_t *at = &o->buckets[o->items[index].hash % N_BUCKETS];
    while (*at != index + 1) {
        at = &o->items[*at - 1].next;
    }
    *at = o->items[index].next;
}

/* A free place: a new one, or that of the least recently used. */
static uint32_t place(struct onednn *o)
{
    if (o->n < MAX_PREPARED) {
        return o->n++;
    }
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < MAX_PREPARED; i++) {
        if (o->items[i].last_used < o->items[oldest].last_used) {
            oldest = i;
        }
    }
    unlink_item(o, oldest);
    forget(&o->items[oldest]);
    return oldest;
}

static bool runs_alone(const struct contraction *c)
{
    double work = (double)c->m * (double)c->n * (double)c->k;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        work *= (double)c->batch[i];
    }
    return c->k > LONGEST_SHARED_K || work < LEAST_SHARED_WORK;
}

static void fill_key(struct key *key, const struct contraction *c)
{
    memset(key, 0, sizeof *key);
    key->c.ab = c->ab;
    key->c.c = c->c;
    key->c.transpose_a = c->transpose_a;
    key->c.transpose_b = c->transpose_b;
    key->c.has_bias = c->has_bias;
    key->c.n_batch = c->n_batch;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        key->c.batch[i] = c->batch[i];
        key->c.batch_stride_a[i] = c->batch_stride_a[i];
        key->c.batch_stride_b[i] = c->batch_stride_b[i];
    }
    key->c.m = c->m;
    key->c.n = c->n;
    key->c.k = c->k;
    key->threads = runs_alone(c) ? 1 : omp_get_max_threads();
}

static status find_key(struct onednn *o, struct key key, struct prepared **out, struct error *e)
{
    uint64_t hash = hash_bytes(&key, sizeof key, 0);
    uint32_t *bucket = &o->buckets[hash % N_BUCKETS];
    for (uint32_t at = *bucket; at != 0; at = o->items[at - 1].next) {
        if (o->items[at - 1].hash == hash && memcmp(&o->items[at - 1].key, &key, sizeof key) == 0) {
            *out = &o->items[at - 1];
            (*out)->last_used = ++o->clock;
            return ATOLL_OK;
        }
    }
    struct prepared fresh = {.key = key, .hash = hash};
    status s = prepare(o, &fresh, e);
    if (s != ATOLL_OK) {
        forget(&fresh);
        return s;
    }
    uint32_t index = place(o);
    bucket = &o->buckets[hash % N_BUCKETS];
    fresh.next = *bucket;
    fresh.last_used = ++o->clock;
    o->items[index] = fresh;
    *bucket = index + 1;
    *out = &o->items[index];
    return ATOLL_OK;
}

static status find(struct onednn *o, const struct contraction *c, struct prepared **out,
                   struct error *e)
{
    struct key key;
    fill_key(&key, c);
    return find_key(o, key, out, e);
}

/* ---- running ---- */

bool onednn_has(struct onednn *o, enum dtype ab, enum dtype c)
{
    /* Without tiles, oneDNN's bf16 is slower than f32 and flushes subnormals: gemm_low.c does
     * better. */
    unsigned tiles = (unsigned)dnnl_cpu_isa_avx512_core_amx;
    if (ab == BF16 && ((unsigned)dnnl_get_effective_cpu_isa() & tiles) != tiles) {
        return false;
    }
    if (ab == BF16 && (c == BF16 || c == F32)) {
        struct contraction probe = {.ab = ab, .c = c, .m = 16, .n = 16, .k = 16};
        struct prepared *p;
        return find(o, &probe, &p, NULL) == ATOLL_OK;
    }
    return ab == F32 && c == F32;
}

static dnnl_status_t execute(struct prepared *p, dnnl_stream_t stream, const void *a, const void *b,
                             const void *bias, void *out)
{
    union {
        const void *in;
        void *handle; /* oneDNN takes inputs as void *, and only reads them */
    } pointers[SCRATCH] = {{a}, {b}, {bias}, {out}};
    static const int names[N_MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                          DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_status_t code = dnnl_success;
    dnnl_exec_arg_t args[N_MEMORIES];
    int n = 0;
    for (uint32_t i = 0; i < N_MEMORIES; i++) {
        if (p->memories[i] == NULL) {
            continue;
        }
        if (i != SCRATCH && code == dnnl_success) {
            code = dnnl_memory_set_data_handle(p->memories[i], pointers[i].handle);
        }
        args[n++] = (dnnl_exec_arg_t){names[i], p->memories[i]};
    }
    code = code == dnnl_success ? dnnl_primitive_execute(p->primitive, stream, n, args) : code;
    return code == dnnl_success ? dnnl_stream_wait(stream) : code;
}

static status run_planned(struct onednn *o, const struct contraction *c, const void *a,
                          const void *b, const void *bias, void *out, struct error *e)
{
    struct prepared *p;
    TRY(find(o, c, &p, e));
    return from_dnnl(execute(p, o->stream, a, b, bias, out), c, e);
}

/* ---- strips ---- */

static int64_t strip_width(const struct contraction *c)
{
    int64_t grains = (c->n + STRIPS * STRIP_GRAIN - 1) / (STRIPS * STRIP_GRAIN);
    return grains * STRIP_GRAIN;
}

static bool has_strips(const struct contraction *c)
{
    double work = (double)c->m * (double)c->n * (double)c->k;
    return c->k > LONGEST_SHARED_K && c->n_batch == 0 && c->n >= 2 * STRIP_GRAIN &&
           work >= LEAST_SHARED_WORK;
}

/* Each strip is a product of its own, planned for one thread, whoever takes it. */
static status run_strips(struct onednn *o, const struct contraction *c, const char *a,
                         const char *b, const char *bias, char *out, struct error *e)
{
    struct prepared *p[STRIPS];
    dnnl_status_t codes[STRIPS];
    int64_t width = strip_width(c), n = (c->n + width - 1) / width;
    struct key key;
    fill_key(&key, c);
    key.row = c->n;
    key.threads = 1;
    status found = ATOLL_OK;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    for (int64_t i = 0; i < n && found == ATOLL_OK; i++) {
        key.strip = i + 1;
        key.c.n = c->n - i * width < width ? c->n - i * width : width;
        found = find_key(o, key, &p[i], e);
    }
    omp_set_num_threads(threads);
    TRY(found);
    size_t in_bytes = dtype_info[c->ab].bytes, out_bytes = dtype_info[c->c].bytes;
    size_t b_step = (size_t)(c->transpose_b ? width * c->k : width) * in_bytes;
    size_t out_step = (size_t)width * out_bytes;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        size_t at = (size_t)i;
        codes[i] = execute(p[i], o->stream, a, b + at * b_step,
                           bias != NULL ? bias + at * out_step : NULL, out + at * out_step);
    }
    for (int64_t i = 0; i < n; i++) {
        TRY(from_dnnl(codes[i], c, e));
    }
    return ATOLL_OK;
}

status onednn_run(struct onednn *o, const struct contraction *c, const void *a, const void *b,
                  const void *bias, void *out, struct error *e)
{
    if (!runs_alone(c)) {
        return run_planned(o, c, a, b, bias, out, e);
    }
    if (has_strips(c)) {
        return run_strips(o, c, a, b, bias, out, e);
    }
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    status s = run_planned(o, c, a, b, bias, out, e);
    omp_set_num_threads(threads);
    return s;
}

#else
/* A translation unit must declare something. */
typedef int onednn_absent;
#endif
