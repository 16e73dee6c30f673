/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w13xib
#define INTERLEAVED 1
#define ACT swiglu_oai
#define BIAS 1
#define MXK_X_TAIL 0
#include "w13.h"
