/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w13xi
#define INTERLEAVED 1
#define ACT swiglu_clamp
#define BIAS 0
#define MXK_X_TAIL 0
#include "w13.h"
