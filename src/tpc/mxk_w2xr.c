/* SPDX-License-Identifier: Apache-2.0 */
#define KERNEL mxk_w2xr
#define BIAS 0
#define PER_ROUTE 1
#include "w2.h"
