/* The functions and the table of ops_float.def; see lanes.h. */
#include "lanes.h"

#define X LANES_FUNCTION
#include "ops_float.def"
#undef X

const struct op_row ops_float[] = {
#define X LANES_ROW
#include "ops_float.def"
#undef X
    {0},
};
