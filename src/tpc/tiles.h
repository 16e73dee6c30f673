/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile for the number of routes at hand, and with BIAS its bias in the order of the sums: b, lanes 8 i + j for row i of
 * unit tile + j. For w13.h and w2.h, inside of their loops over tiles. FINISHED(v, q): the sums of route q.
 */
if (routes == 1) {
#define R 1
#include "tile.h"
#undef R
} else if (routes == 2) {
#define R 2
#include "tile.h"
#undef R
} else {
#define R 4
#include "tile.h"
#undef R
}

#if BIAS
float64 b = NOTHING;
#define BIAS_OF(row) b = v_f32_ld_tnsr_partial_b(at3(tile, row, expert), bias, 7, 8 * (row), 0, b);
BIAS_OF(0) BIAS_OF(1) BIAS_OF(2) BIAS_OF(3) BIAS_OF(4) BIAS_OF(5) BIAS_OF(6) BIAS_OF(7)
#undef BIAS_OF
#define FINISHED(v, q)                             \
  v = GET_VECTOR(SLOT(DONE_SLOT(routes) + (q)));   \
  v = v_f32_mac_b(v, UNPACK_FACTOR, b, 0);
#else
#define FINISHED(v, q)                             \
  v = GET_VECTOR(SLOT(DONE_SLOT(routes) + (q)));   \
  v = v_f32_mul_b(v, UNPACK_FACTOR);
#endif
