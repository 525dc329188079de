/* The cache of compiled libraries: memory of what the compiler made, on disk. */
#ifndef ATOLL_RUNTIME_CACHE_H
#define ATOLL_RUNTIME_CACHE_H

#include "codegen/cc.h"
#include "codegen/nvrtc.h"
#include "runtime/library.h"

/* A cache, and what there is to say of its use. */
struct cache_use {
    const char *directory; /* NULL or "": none */
    uint64_t limit;        /* bytes of all entries; 0: any number */
    struct text *why_miss; /* receives what cache_explain says when there was no entry; or NULL */
    struct text *told;     /* receives what was removed for the limit, one line; or NULL */
    struct error *warning; /* what was wrong with it, one line: it never makes a call fail */
};

/* Compiles, or loads what an earlier run compiled from the same text with the same flags, compiler
 * and machine. An unusable cache costs time only. */
status cached_compile(const struct cache_use *use, const struct cc_options *o,
                      const char *const *units, const size_t *sizes, uint32_t n,
                      struct library **out, bool *is_hit, struct error *e);

/* What a key is made of, each part with the words a report names it by. Text longer than that is
 * cut; the hash is of all of it. */
enum cache_part {
    CACHE_SOURCE,   /* every unit's text */
    CACHE_FLAGS,    /* of the compiler, -march and the optimisation among them */
    CACHE_COMPILER, /* by what it resolves to: path, size and time of change */
    CACHE_ARCH,     /* the processor: -march=native means another thing on another one */
    CACHE_POLICY,
    CACHE_VERSION, /* Atoll's */
    N_CACHE_PARTS
};
extern const char *const cache_part_names[N_CACHE_PARTS];
struct cache_key {
    uint64_t hash, hashes[N_CACHE_PARTS];
    char texts[N_CACHE_PARTS][300];
    char model[120];
};
void cache_key_of(const struct cc_options *o, const char *const *units, const size_t *sizes,
                  uint32_t n, struct cache_key *out);
/* Keeps the parts beside the entry, for cache_explain. Never fails; says nothing. */
void cache_key_store(const char *directory, const struct cache_key *key);
/* Why there is no entry of this key, in one line: the parts in which the nearest entry of the same
 * model differs, each old -> new. */
void cache_explain(const char *directory, const struct cache_key *key, struct text *out);

/* The same for one unit of CUDA code. Loading: false when there is no sound entry; the image is
 * nvrtc_images_free's. Storing never fails. */
void cache_key_of_image(const struct nvrtc *nvrtc, const char *arch, const char *source,
                        const char *policy, const char *model, struct cache_key *out);
bool cached_image_load(const struct cache_use *use, const struct cache_key *key,
                       struct nvrtc_image *out);
void cached_image_store(const struct cache_use *use, const struct cache_key *key,
                        const struct nvrtc_image *image);

/* cache_limit.c. Files of ours alone, and none that a writer holds:
 * entries go, those unused for longest first, until all take at most limit bytes; never the entry
 * `kept`. One line of it in *told (may be NULL). */
void cache_shrink(const char *directory, uint64_t limit, uint64_t kept, struct text *told);
/* Removes what killed writers left half-written; how many bytes. */
uint64_t cache_sweep(const char *directory);

#endif
