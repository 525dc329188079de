/* The tables made of ops_*.def; each ends with an empty row. */
#ifndef ATOLL_EMULATOR_TABLES_H
#define ATOLL_EMULATOR_TABLES_H

#include "parser.h"

extern const struct op_row ops_integer[], ops_float[];

#endif
