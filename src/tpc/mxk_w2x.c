/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w2x
#define BIAS 0
#define PER_ROUTE 0
#include "w2.h"
