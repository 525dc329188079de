/* How a cvt saturates and rounds: bits of instruction.saturate. */
#ifndef ATOLL_EMULATOR_CONVERT_H
#define ATOLL_EMULATOR_CONVERT_H

#include "scalar.h"

enum {
    CONVERT_SATURATE = 1,   /* .sat: to [0, 1], or to the integer's range */
    CONVERT_TO_LARGEST = 2, /* .satfinite */
    CONVERT_RELU = 4,
    CONVERT_FLUSH = 8,    /* .ftz: f32 subnormals, in and out */
    CONVERT_INTEGRAL = 16 /* .rni and its kind: float to float, integral */
};

#endif
