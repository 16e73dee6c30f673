/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w2xb
#define BIAS 1
#define PER_ROUTE 0
#include "w2.h"
