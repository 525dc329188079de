/* Random numbers of the eager executor: element i of a stream is a function of (seed, stream, i)
 * alone, so any executor on any number of threads draws the same. */
#include "eager_internal.h"

#include "codegen/prelude/convert.h"
#include "codegen/prelude/math.h"
#include "codegen/prelude/philox.h"

status eager_random(const struct eager_call *c)
{
    uint64_t seed = (uint64_t) * (const int64_t *)c->operands[0].data;
    uint64_t stream = (uint64_t)node_int(c->node, "stream");
    int64_t n = tensor_count(c->result);
    bool is_normal = c->node->op == OP_normal;
    float *out = c->result->data;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        out[i] = is_normal ? normal_f32(random_u32(seed, stream, 2 * at),
                                        random_u32(seed, stream, 2 * at + 1))
                           : uniform_f32(random_u32(seed, stream, at));
    }
    return ATOLL_OK;
}
