/* The functions and the table of ops_integer.def; see lanes.h. */
#include "lanes.h"

#define X LANES_FUNCTION
#include "ops_integer.def"
#undef X

const struct op_row ops_integer[] = {
#define X LANES_ROW
#include "ops_integer.def"
#undef X
    {0},
};
