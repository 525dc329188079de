/* The sections "cuda" and "cublaslt" of a plan: which stages each launch has, then the images; the
 * algorithms that matrix products took where the plan was compiled. Everything read is checked
 * against the program, so that a section that passes the checksum but does not fit is refused. */
#include "plan_file.h"

#include "runtime/plan_words.h"

enum {
    MAX_UNITS = 4096,
    MAX_ARCHS = 64,
    MAX_LAUNCH_STAGES = 1024,
    MAX_SUMS = 4096,
    MAX_CHOICES = 65536
};

static void put_stage(struct text *t, const struct cuda_stage *s)
{
    put_text(t, s->symbol);
    put(t, s->n_items);
    for (uint32_t i = 0; i < s->n_items; i++) {
        put_dim(t, s->items[i]);
    }
    put(t, (uint32_t)s->per_block);
    put(t, s->block_x);
    put(t, s->block_y);
}

static void put_bytes(struct text *t, const void *data, size_t size)
{
    uint64_t n = size;
    text_append(t, (const char *)&n, sizeof n);
    text_append(t, size > 0 ? data : "", size);
}

void plan_put_cuda(struct text *t, const struct program *p, const struct device_code *code)
{
    put(t, code->n_archs);
    put(t, code->n_units);
    for (uint32_t i = 0; i < p->n_launches && code->n_archs > 0; i++) {
        put(t, p->launches[i].cuda.n_stages);
        put(t, p->launches[i].cuda.n_sums);
        put_text(t, p->launches[i].cuda.many != NULL ? p->launches[i].cuda.many : "");
        for (uint32_t k = 0; k < p->launches[i].cuda.n_stages; k++) {
            put_stage(t, &p->launches[i].cuda.stages[k]);
        }
    }
    for (uint32_t i = 0; i < code->n_archs * code->n_units; i++) {
        const struct device_image *image = &code->images[i];
        put_text(t, image->arch);
        put_bytes(t, image->cubin, image->cubin_size);
        put_bytes(t, image->ptx, image->ptx != NULL ? strlen(image->ptx) + 1 : 0);
    }
}

static void take_stage(struct reader *r, const struct program *p, struct cuda_stage *s,
                       struct arena *a)
{
    s->symbol = read_text(r, a);
    s->n_items = word(r, MAX_RANK + 1);
    for (uint32_t i = 0; i < s->n_items; i++) {
        take_dim(r, &s->items[i], p->graph->n_symbols);
        r->is_bad = r->is_bad || s->items[i].factor < 0;
    }
    s->per_block = word(r, 1 << 24);
    s->block_x = word(r, 1025);
    s->block_y = word(r, 1025);
    r->is_bad = r->is_bad || s->per_block == 0 || s->block_x == 0 || s->block_y == 0;
}

static void take_launch(struct reader *r, const struct program *p, struct launch *l,
                        struct arena *a)
{
    uint32_t n = word(r, MAX_LAUNCH_STAGES);
    struct cuda_stage *stages = ARENA_ARRAY(a, struct cuda_stage, n + 1);
    l->cuda.n_sums = word(r, MAX_SUMS);
    const char *many = read_text(r, a);
    l->cuda.many = many[0] != '\0' && n == 1 ? many : NULL;
    for (uint32_t k = 0; k < n && !r->is_bad; k++) {
        take_stage(r, p, &stages[k], a);
    }
    l->cuda.stages = stages;
    l->cuda.n_stages = r->is_bad ? 0 : n;
}

static const void *take_bytes(struct reader *r, size_t *size)
{
    uint64_t n;
    take(r, &n, sizeof n);
    if (r->is_bad || n > (uint64_t)(r->end - r->at)) {
        r->is_bad = true;
        return NULL;
    }
    const void *bytes = r->at;
    r->at += n;
    *size = (size_t)n;
    return n > 0 ? bytes : NULL;
}

void plan_take_cuda(struct reader *r, struct program *p, struct device_code *out, struct arena *a)
{
    uint32_t n_archs = word(r, MAX_ARCHS), n_units = word(r, MAX_UNITS);
    struct device_image *images = ARENA_ARRAY(a, struct device_image, n_archs * n_units + 1);
    for (uint32_t i = 0; i < p->n_launches && n_archs > 0 && !r->is_bad; i++) {
        take_launch(r, p, &p->launches[i], a);
    }
    for (uint32_t i = 0; i < n_archs * n_units && !r->is_bad; i++) {
        size_t ptx_size = 0;
        images[i].arch = read_text(r, a);
        images[i].cubin = take_bytes(r, &images[i].cubin_size);
        images[i].ptx = take_bytes(r, &ptx_size);
        bool is_text = images[i].ptx == NULL || images[i].ptx[ptx_size - 1] == '\0';
        r->is_bad = r->is_bad || !is_text;
    }
    r->is_bad = r->is_bad || r->at != r->end;
    *out = (struct device_code){.n_units = n_units, .n_archs = n_archs, .images = images};
}

void plan_put_choices(struct text *t, const struct device_code *code)
{
    put(t, code->n_choices);
    for (uint32_t i = 0; i < code->n_choices; i++) {
        const struct contraction_choice *choice = &code->choices[i];
        put_text(t, choice->what);
        put_text(t, choice->arch);
        text_append(t, (const char *)&choice->library, sizeof choice->library);
        text_append(t, (const char *)choice->algorithm, sizeof choice->algorithm);
        text_append(t, (const char *)&choice->workspace, sizeof choice->workspace);
    }
}

static void take_word_text(struct reader *r, char *to, size_t size)
{
    uint32_t length = word(r, (uint32_t)size);
    memset(to, 0, size);
    take(r, to, length);
}

void plan_take_choices(struct reader *r, struct device_code *out, struct arena *a)
{
    uint32_t n = word(r, MAX_CHOICES);
    struct contraction_choice *choices = ARENA_ARRAY(a, struct contraction_choice, n + 1);
    for (uint32_t i = 0; i < n && !r->is_bad; i++) {
        take_word_text(r, choices[i].what, sizeof choices[i].what);
        take_word_text(r, choices[i].arch, sizeof choices[i].arch);
        take(r, &choices[i].library, sizeof choices[i].library);
        take(r, choices[i].algorithm, sizeof choices[i].algorithm);
        take(r, &choices[i].workspace, sizeof choices[i].workspace);
    }
    r->is_bad = r->is_bad || r->at != r->end;
    out->choices = choices;
    out->n_choices = r->is_bad ? 0 : n;
}
