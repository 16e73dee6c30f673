/* SPDX-License-Identifier: Apache-2.0
 *
 * Down projection: y[t] = sum over the local routes r of token t, in ascending order of expert, ties by slot, of
 * weights[r] (W2[expert(r)] a[r] (+ b2)). PER_ROUTE: y[r] = W2[expert(r)] a[r] instead, zero for routes of other ranks.
 *
 * Tensors, fastest dimension first:
 *   x       bf16 [pad512(I), T k]   the activations `a` of w13.h, in its order
 *   w       u8   [I/2, K, E]        packed codes                          s  u8 [I/32, K, E]  E8M0
 *   ids     i32  [k, T]             weights  f32 [k, T]
 *   bias    f32  [K/8, 8, E]        BIAS only: of row 8 u + i at [u, i]
 *   y       bf16 [K, T]; PER_ROUTE: [K, k, T]; f32 with OUT_F32
 *   tables  u8   [256, TABLE_ROWS]; with MXK_LUT, then lut bf16 [512]
 * first_expert, units_each, units_more: as in w13.h, in units of 8 rows.
 *
 * A stamp defines KERNEL, BIAS, PER_ROUTE as its row in variants.inc has them. The tile loop is outside and the visits
 * inside, so that the sums of 64 rows for all tokens fit in local memory.
 */

#define MXK_X_TAIL 0
#include "common.h"

#define ROW_OF_TABLE(name, bias, per_route) \
  enum { name##_is = (bias)*2 + (per_route) };
MXK_W2_KERNELS(ROW_OF_TABLE)

#include "unpack.h"
#include "tree.h"
#include "row.h"
#include "routes.h"
#include "stream.h"

typedef char stamp_differs_from_variants_inc[PASTE(KERNEL, _is) == BIAS * 2 + PER_ROUTE ? 1 : -1];

#define ROW_A(n) (2 * (n))
#define ROW_B(n) (2 * (n) + 1)
#define A_ROW(word) ROUTE_NUMBER(word)

LOCAL_MEMORY

/* Sums in the order of tile.h to rows in order: from each dual group, the rows of one pair of every unit. */
#define LINEAR(table, source, into)                              \
  {                                                              \
    into = move(DUAL_GROUP(source, 0), TABLE(table), source);       \
    into = move(DUAL_GROUP(source, 1), TABLE((table) + 1), into);   \
    into = move(DUAL_GROUP(source, 2), TABLE((table) + 2), into);   \
    into = move(DUAL_GROUP(source, 3), TABLE((table) + 3), into);   \
  }

/* Rows of a tile to y. Both halves of the vector hold them, and stores come from each in turn: the card would lose the
 * second of two that have the same size and the same offset. */
#ifdef OUT_F32
#define STORE_ROWS(at, sum)                                                                        \
  {                                                                                                \
    float64 out_;                                                                                  \
    LINEAR(TABLE_LINEAR_F32, sum, out_)                                                            \
    int5 at_ = at;                                                                                 \
    v_f32_st_tnsr_partial(at_, y, out_, 4 * units - 1, 0);                                         \
    at_[0] += 4 * units;                                                                           \
    v_f32_st_tnsr_partial(at_, y, out_, 4 * units - 1, 4 * units);                                 \
  }
#else
#define STORE_ROWS(at, sum)                                                                        \
  {                                                                                                \
    const float128 both_ = {sum, sum};                                                             \
    const float64 converted_ = (float64)v_convert_f32_to_bf16_all_b(both_, SW_RHNE);               \
    float64 out_;                                                                                  \
    LINEAR(TABLE_LINEAR_BF16, converted_, out_)                                                    \
    side = 64 - side;                                                                              \
    v_bf16_st_tnsr_partial(at, y, (bfloat128)out_, 8 * units - 1, side);                           \
  }
#endif

#if BIAS
void main(tensor x, tensor w, tensor s, tensor ids, tensor weights, tensor bias, tensor y, tensor tables LUT_TENSOR,
#else
void main(tensor x, tensor w, tensor s, tensor ids, tensor weights, tensor y, tensor tables LUT_TENSOR,
#endif
          int first_expert, int units_each, int units_more) {
  BEGIN_KERNEL;
  int5 table_at = {0};
  const int chunks = get_dim_size(x, 0) >> 9;
  SORT_ROUTES
#if PER_ROUTE
  (void)weights; /* there so that w13 and w2 kernels of a library never take the same number of tensors */
  const int sums = 0; /* vectors */
#else
  const int sums = tokens;
#endif
  PLAN_BLOCKS(sums)
  DECLARE_STREAM
#ifndef OUT_F32
  int side = 0;
#endif

  const int5 points_begin = get_index_space_offset(), points = get_index_space_size();
  for (int point = points_begin[0]; point < points_begin[0] + points[0]; point++) {
    const int begin = point * units_each + min_int(point, units_more);
    const int end = begin + units_each + (point < units_more ? 1 : 0);
    if (begin == end) continue;

    if (local > 0) {
      START_STREAM(4 * begin, ROUTE_EXPERT(ROUTE_WORD(0)))
    }
    for (int tile = begin; tile < end; tile += 8) {
      units = min_int(8, end - tile);
#if PER_ROUTE
      for (int t = 0; t < tokens; t++)
        for (int k = 0; k < top_k; k++) {
          const unsigned e = LOCAL_EXPERT(t, k);
          if (e >= (unsigned)get_dim_size(w, 2)) {
            STORE_ROWS(at3(8 * tile, k, t), NOTHING)
          }
        }
#else
      /* Zeros that the compiler does not know: it would make a memset of them, and has none for local memory. */
      const float64 zeros = (float64)v_i32_mov_b(units >> 16);
      for (int t = 0; t < sums; t++) PUT_VECTOR(first_sum + t, zeros);
#endif
      for (int i = 0; i < local; i += routes) {
        BEGIN_VISIT(i)
        LOAD_ACTIVATIONS(i, A_ROW)
        pair = 4 * tile;
        run_end = 4 * (tile + units);
        next_pair = pair;
        if (i + routes >= local) { /* the next tile */
          next_pair = run_end;
          next_expert = ROUTE_EXPERT(ROUTE_WORD(0));
        }
#include "tiles.h"
        for (int q = 0; q < routes; q++) {
          const int route_word = ROUTE_WORD(i + q);
          const int t = ROUTE_TOKEN(route_word), k = ROUTE_NUMBER(route_word) - t * top_k;
          float64 v;
          FINISHED(v, q)
#if PER_ROUTE
          STORE_ROWS(at3(8 * tile, k, t), v)
#else
          const float weight = s_f32_ld_g(gen_addr(at2(k, t), weights));
          PUT_VECTOR(first_sum + t, v_f32_mac_b(v, weight, GET_VECTOR(first_sum + t), 0));
#endif
        }
      }
#if !PER_ROUTE
      for (int t = 0; t < tokens; t++) {
        const float64 sum = GET_VECTOR(first_sum + t);
        STORE_ROWS(at2(8 * tile, t), sum)
      }
#endif
    }
  }
}
