/* SPDX-License-Identifier: Apache-2.0 */
/* mxk_w2x before the rounding of its output: what the emulation compares. */
#define KERNEL mxk_w2x
#define OUT_F32
#define BIAS 0
#define PER_ROUTE 0
#include "w2.h"
