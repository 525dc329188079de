/* The CUDA side of the conductor: the groups of a partition to CUDA C, units to NVRTC, one image a
 * unit and architecture. */
#ifndef ATOLL_FRONTEND_COMPILE_CUDA_H
#define ATOLL_FRONTEND_COMPILE_CUDA_H

#include "codegen/nvrtc.h"
#include "runtime/backend.h"

struct cuda_code {
    uint32_t n_kernels, n_functions; /* distinct kernels, and the launches they are */
    uint32_t n_units, n_archs;
    char (*archs)[16];
    struct nvrtc_image *images;               /* [arch * n_units + unit] */
    const char **sources;                     /* by unit */
    uint32_t n_cached;                        /* images that came from the cache */
    double seconds;                           /* of compiling */
    bool *is_failed;                          /* by group: its kernel did not compile; NULL: none */
    uint32_t n_split;                         /* groups that run one op at a time for that reason */
    const struct contraction_choice *choices; /* of matrix products on a device, or NULL */
    uint32_t n_choices;
};

struct compiled;
struct compile_options;
/* After fuse and lowering: emits, compiles, and gives the program's launches their stages. COMPILER
 * with is_failed set when kernels of several ops failed (to compile, or with tries_loading to
 * load): split their groups and build again. */
status compile_cuda(struct compiled *c, const struct compile_options *o, struct error *e);
/* The code as a device takes it, in *out; the images, to be freed, are returned, NULL: no memory.
 * They point into code. */
struct device_image *cuda_code_images(const struct cuda_code *code, struct device_code *out);
void cuda_code_free(struct cuda_code *code);

#endif
