/* NVIDIA's run-time compiler, opened when it is asked for: CUDA C text in, cubin and PTX out. A
 * build and a program that never compile for CUDA do without it. */
#ifndef ATOLL_CODEGEN_NVRTC_H
#define ATOLL_CODEGEN_NVRTC_H

#include "ir/base.h"

struct nvrtc;
/* path NULL: libnvrtc.so.13, .12, libnvrtc.so as the loader finds them. NOT_FOUND with the remedy.
 */
status nvrtc_open(const char *path, struct nvrtc **out, struct error *e);
void nvrtc_close(struct nvrtc *n);
void nvrtc_version(const struct nvrtc *n, int *major, int *minor);
/* UNSUPPORTED when this NVRTC does not know the architecture ("sm_90a"): names both versions. */
status nvrtc_check_arch(const struct nvrtc *n, const char *arch, struct error *e);
/* The newest architecture it knows, as "sm_121". */
void nvrtc_newest_arch(const struct nvrtc *n, char out[16]);

/* What one unit became. */
struct nvrtc_image {
    void *cubin; /* machine code for the architecture */
    size_t cubin_size;
    char *ptx; /* portable text, NUL-terminated */
    size_t ptx_size;
    char *log; /* the compiler's words and the numbered source, when it failed; else NULL */
    double seconds;
};

/* Compiles n units for one architecture, up to n_threads at a time. images: all set, to be freed in
 * either case. COMPILER with the first error line when a unit failed; the others are there. */
status nvrtc_compile(const struct nvrtc *nvrtc, const char *arch, const char *const *units,
                     uint32_t n, uint32_t n_threads, struct nvrtc_image *images, struct error *e);
void nvrtc_images_free(struct nvrtc_image *images, uint32_t n);
/* The options that this version is given, one text: part of every cache key. */
void nvrtc_flags_text(const struct nvrtc *n, char *out, size_t size);

#endif
