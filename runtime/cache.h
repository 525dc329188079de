/* The cache of compiled libraries: memory of what the compiler made, on disk. */
#ifndef ATOLL_RUNTIME_CACHE_H
#define ATOLL_RUNTIME_CACHE_H

#include "codegen/cc.h"
#include "codegen/nvrtc.h"
#include "runtime/library.h"

/* Compiles, or loads what an earlier run compiled from the same text with the same flags, compiler
 * and machine. directory NULL: no cache. An unusable cache costs time only: it never makes the call
 * fail; what was wrong with it is left in *warning, one line. */
status cached_compile(const char *directory, const struct cc_options *o, const char *const *units,
                      const size_t *sizes, uint32_t n, struct library **out, bool *is_hit,
                      struct error *warning, struct error *e);

/* The same for one unit of CUDA code. key: of everything that decides the image. Loading: false
 * when there is no sound entry; the image is nvrtc_images_free's. Storing never fails. */
bool cached_image_load(const char *directory, uint64_t key, struct nvrtc_image *out);
void cached_image_store(const char *directory, uint64_t key, const struct nvrtc_image *image);

#endif
