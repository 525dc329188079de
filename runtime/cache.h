/* The cache of compiled libraries: memory of what the compiler made, on disk. */
#ifndef ATOLL_RUNTIME_CACHE_H
#define ATOLL_RUNTIME_CACHE_H

#include "codegen/cc.h"
#include "codegen/nvrtc.h"
#include "runtime/library.h"

/* Compiles, or loads what an earlier run compiled from the same text with the same flags, compiler
 * and machine. directory NULL: no cache. An unusable cache costs time only: it never makes the call
 * fail; what was wrong with it is left in *warning, one line. why_miss: receives what cache_explain
 * says when there was no entry; NULL: nobody asks. */
status cached_compile(const char *directory, const struct cc_options *o, const char *const *units,
                      const size_t *sizes, uint32_t n, struct library **out, bool *is_hit,
                      struct text *why_miss, struct error *warning, struct error *e);

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

/* The same for one unit of CUDA code. key: of everything that decides the image. Loading: false
 * when there is no sound entry; the image is nvrtc_images_free's. Storing never fails. */
bool cached_image_load(const char *directory, uint64_t key, struct nvrtc_image *out);
void cached_image_store(const char *directory, uint64_t key, const struct nvrtc_image *image);

#endif
