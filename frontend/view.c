/* Views and dtypes of the public API. */
#include "atoll/view.h"

#include <string.h>

#include "ir/dtype.h"

static bool is_dtype(atoll_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < N_DTYPES;
}

const char *atoll_dtype_name(atoll_dtype dtype)
{
    return is_dtype(dtype) ? dtype_info[dtype].name : "none";
}

size_t atoll_dtype_bytes(atoll_dtype dtype)
{
    return is_dtype(dtype) ? dtype_info[dtype].bytes : 0;
}

atoll_view atoll_view_of(const char *name, atoll_dtype dtype, atoll_dims shape, void *data)
{
    atoll_view v = {.name = name,
                    .dtype = atoll_dtype_name(dtype),
                    .element_bytes = atoll_dtype_bytes(dtype),
                    .rank = shape.n,
                    .data = data};
    v.bytes = v.element_bytes;
    for (uint32_t i = 0; i < 8 && i < shape.n; i++) {
        v.shape[i] = shape.at[i];
        if (shape.at[i] < 0 || __builtin_mul_overflow(v.bytes, (size_t)shape.at[i], &v.bytes)) {
            v.rank = 9;
        }
    }
    v.rank = shape.n > 8 ? 9 : v.rank;
    return v;
}
