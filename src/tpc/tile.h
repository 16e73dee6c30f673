/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of one tile for R routes: `units` units from pair `pair` on, chunk by chunk in passes.h, then across lanes.
 *
 * In: pair, units, run_end, next_pair, next_expert, expert, nb, blocks, chunks, and the registers of row.h.
 * Out: for route q the vector SLOT(done + q): lane 16 p + 8 g + j is row g of pair p of unit j, not yet times
 * UNPACK_FACTOR. Lanes of units that the tile does not have hold nothing of use.
 *
 * Which bit of a lane is what while the tree runs, by level (see tree.h):
 *   level    8        16       32       1        2        4
 *   R = 1    g        p bit 0  p bit 1  j bit 0  j bit 1  j bit 2
 *   R = 2    g        q        p bit 0  p bit 1  j bit 0  j bit 1     two vectors, for units 0-3 and 4-7
 *   R = 4    q bit 0  q bit 1  g        p bit 0  p bit 1  j bit 0     four vectors, two units each
 */
/* The sums of all routes of a pair (R = 4: of a row) in lanes of one vector. */
#if R == 1
#define REDUCE combine_8(v_f32_add_b(accA0.v1, accA0.v2), v_f32_add_b(accB0.v1, accB0.v2))
#elif R == 2
#define REDUCE                                                                                              \
  combine_16_pair(combine_8_x2(v_f32_add_b(accA0.v1, accA0.v2), v_f32_add_b(accB0.v1, accB0.v2),            \
                               v_f32_add_b(accA1.v1, accA1.v2), v_f32_add_b(accB1.v1, accB1.v2)))
#else
#define REDUCE                                                                               \
  combine_16_pair(combine_8_x2(v_f32_add_b(acc0.v1, acc0.v2), v_f32_add_b(acc1.v1, acc1.v2),              \
                               v_f32_add_b(acc2.v1, acc2.v2), v_f32_add_b(acc3.v1, acc3.v2)))
#endif
#define IN_GROUP_FIRST (R == 1 ? 0 : R == 2 ? 1 : 2) /* first level that combines units */
{
  MARK(1);
  /* Whatever the first pass reduces, nobody reads; sums of a pair start with its first chunk. */
  const float128 no_sum = {(float64)wA0, (float64)wA0};
  float64 scale = v_f32_mov_b(0.0f);
  UNREAD(float64, pinA)
  UNREAD(float64, pinB)
  ushort128 bitsA, bitsB, spreadA = rawA, spreadB = rawB;
  const uchar256 even_chunk = TABLE(TABLE_SCALE), odd_chunk = TABLE(TABLE_SCALE + 1);
#if R == 4
  PUT_VECTOR(SLOT(SCALE_SLOT), (float64)even_chunk);
  PUT_VECTOR(SLOT(SCALE_SLOT + 1), (float64)odd_chunk);
#endif
#if R == 1
  float128 accA0 = no_sum, accB0 = no_sum;
#elif R == 2
  float128 accA0 = no_sum, accB0 = no_sum, accA1 = no_sum, accB1 = no_sum;
#else
  float128 acc0 = no_sum, acc1 = no_sum, acc2 = no_sum, acc3 = no_sum;
  float64 row_a = (float64)wA0;
#endif
  int slot = 3; /* what the first pass reduces is the end of another tile: to the slot overwritten last */
  /* The first group is one pass, so that each further one ends with all four pairs of a unit reduced. */
  for (int group = 0; group <= units; group++) {
    int count = 4;
    if (group == 0) count = 1;
    if (group == units) count = 3;
    switch (nb) {
#if R <= 2
      case 1: {
#define NB 1
#include "passes.h"
#undef NB
      } break;
#endif
      case 2: {
#define NB 2
#include "passes.h"
#undef NB
      } break;
      case 3: {
#define NB 3
#include "passes.h"
#undef NB
      } break;
#if R <= 2
      case 4: {
#define NB 4
#include "passes.h"
#undef NB
      } break;
      case 5: {
#define NB 5
#include "passes.h"
#undef NB
      } break;
      case 6: {
#define NB 6
#include "passes.h"
#undef NB
      } break;
#endif
#if R == 1
      case 7: {
#define NB 7
#include "passes.h"
#undef NB
      } break;
      case 8: {
#define NB 8
#include "passes.h"
#undef NB
      } break;
#endif
      default: break;
    }
    if (group == 0) continue;
    float64 last; /* the fourth pair */
    if (group == units) {
#if R == 4
      last = combine_32(row_a, REDUCE);
#else
      last = REDUCE;
#endif
    } else {
      last = GET_VECTOR(SLOT(PAIR_SLOT + 3));
    }

    /* The pairs of the unit. */
    const float64 pair_0 = GET_VECTOR(SLOT(PAIR_SLOT)), pair_1 = GET_VECTOR(SLOT(PAIR_SLOT + 1)),
                  pair_2 = GET_VECTOR(SLOT(PAIR_SLOT + 2));
#if R == 1
    const float128 halves = combine_16_x2(pair_0, pair_1, pair_2, last);
    float64 sum = combine_32(halves.v1, halves.v2);
#elif R == 2
    const float128 halves = combine_32_x2(pair_0, pair_1, pair_2, last);
    float64 sum;
    COMBINE_IN_GROUP(sum, 0, halves.v1, halves.v2)
#else
    const uchar256 up = TABLE(TABLE_UP), down = TABLE(TABLE_DOWN);
    const float128 halves = combine_in_group_x2(pair_0, pair_1, pair_2, last, up, down);
    float64 sum;
    COMBINE_IN_GROUP(sum, 1, halves.v1, halves.v2)
#endif

    /* The units of the vector, as a binary counter. A tile that ends inside of a vector goes on with zeros. */
    int unit = group - 1;
    for (;;) {
      int waits = 0; /* at this level, for the next unit */
      if ((unit & 1) == 0) {
        PUT_VECTOR(SLOT(UNIT_SLOT), sum);
        waits = 1;
      } else {
        COMBINE_IN_GROUP(sum, IN_GROUP_FIRST, GET_VECTOR(SLOT(UNIT_SLOT)), sum)
#if R <= 2
        if ((unit & 2) == 0) {
          PUT_VECTOR(SLOT(UNIT_SLOT + 1), sum);
          waits = 1;
        } else {
          COMBINE_IN_GROUP(sum, IN_GROUP_FIRST + 1, GET_VECTOR(SLOT(UNIT_SLOT + 1)), sum)
#if R == 1
          if ((unit & 4) == 0) {
            PUT_VECTOR(SLOT(UNIT_SLOT + 2), sum);
            waits = 1;
          } else {
            COMBINE_IN_GROUP(sum, IN_GROUP_FIRST + 2, GET_VECTOR(SLOT(UNIT_SLOT + 2)), sum)
          }
#endif
        }
#endif
      }
      if (!waits) {
        /* A vector is complete: to each route its own, in the order of R = 1. */
#if R == 1
        PUT_VECTOR(SLOT(PAIR_SLOT), sum);
#elif R == 2
        const int part = unit >> 2;
        const uchar256 sort = TABLE(TABLE_SORT_R2 + part);
#define SORT(q)                                                                                                  \
  {                                                                                                              \
    const float64 mine =                                                                                         \
        v_f32_mov_dual_group_all_b(sum, ALL_BYTES, q, 2 + (q), q, 2 + (q), MkWrA(3, 3, 3, 3), sum);              \
    float64 done = mine;                                                                                         \
    if (part > 0) done = GET_VECTOR(SLOT(DONE_SLOT(2) + (q)));                                                   \
    PUT_VECTOR(SLOT(DONE_SLOT(2) + (q)), move(mine, sort, done));                                                \
  }
        SORT(0)
        SORT(1)
#undef SORT
#else
        const int part = unit >> 1, row = TABLE_SORT_R4 + 4 * part;
#define SORT(q, gate, up)                                                   \
  {                                                                         \
    float64 done = gate;                                                    \
    if (part > 0) done = GET_VECTOR(SLOT(DONE_SLOT(4) + (q)));              \
    done = move(gate, TABLE(row + ((q)&1)), done);                          \
    done = move(up, TABLE(row + 2 + ((q)&1)), done);                        \
    PUT_VECTOR(SLOT(DONE_SLOT(4) + (q)), done);                             \
  }
        const float64 gates_01 = DUAL_GROUP(sum, 0), ups_01 = DUAL_GROUP(sum, 2);
        SORT(0, gates_01, ups_01)
        SORT(1, gates_01, ups_01)
        const float64 gates_23 = DUAL_GROUP(sum, 1), ups_23 = DUAL_GROUP(sum, 3);
        SORT(2, gates_23, ups_23)
        SORT(3, gates_23, ups_23)
#undef SORT
#endif
        break;
      }
      if (group < units) break;
      unit++;
      sum = v_f32_mov_b(0.0f);
    }
  }
  MARK(0);
#if R != 1
  /* What R = 1 has loaded and unpacked besides. */
  nextA[0] += 256;
  nextB[0] += 256;
  wA1 = v_u8_ld_tnsr_b(nextA, w);
  wB1 = v_u8_ld_tnsr_b(nextB, w);
  UNPACK(wA0, low_next, high_next);
#endif
}
#undef REDUCE
#undef IN_GROUP_FIRST
