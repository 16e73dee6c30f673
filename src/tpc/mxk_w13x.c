/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w13x
#define INTERLEAVED 0
#define ACT silu
#define BIAS 0
#define MXK_X_TAIL 0
#include "w13.h"
