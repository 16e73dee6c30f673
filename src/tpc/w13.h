/* SPDX-License-Identifier: Apache-2.0
 *
 * Gate and up projections with their activation: a[r] = act(W13[expert(r)] x[token(r)] (+ b13)), bf16.
 *
 * Tensors, fastest dimension first:
 *   x     bf16 [pad512(K), T]       in chunks: lane i of plane p of chunk c, at 512 c + 128 p + i, is element 512 c + 4 i + p
 *   w     u8   [K/2, 2I, E]         packed codes, low nibble first        s  u8 [K/32, 2I, E]  E8M0
 *   ids   i32  [k, T]               global expert ids
 *   bias  f32  [2I/8, 8, E]         BIAS only: of row 8 u + i (gates and ups in turn) at [u, i]
 *   a     bf16 [pad512(I), T k]     out, in chunks as x; zero rows for routes of other ranks, zeros from I on
 *   tables u8  [256, TABLE_ROWS]; with MXK_LUT, then lut bf16 [512]
 * first_expert: id of local expert 0. units_each, units_more: index point i of the launch owns units_each units (of 4
 * columns), the first units_more points one more, in order of i.
 *
 * A stamp defines KERNEL, INTERLEAVED, ACT, BIAS, MXK_X_TAIL as its row in variants.inc has them.
 */

#include "common.h"

/* The stamp against its row. */
enum { rows_interleaved = 1, rows_stacked = 0 };
enum { act_id_swiglu_oai, act_id_silu, act_id_swiglu_clamp };
#define ROW_OF_TABLE(name, rows, act, bias, x_tail) \
  enum { name##_is = rows_##rows * 100 + act_id_##act * 10 + (bias)*2 + (x_tail) };
MXK_W13_KERNELS(ROW_OF_TABLE)

#include "unpack.h"
#include "tree.h"
#include "act.h"
#include "row.h"
#include "routes.h"
#include "stream.h"

#define SAME_AS_TABLE (PASTE(KERNEL, _is) == INTERLEAVED * 100 + PASTE(act_id_, ACT) * 10 + BIAS * 2 + MXK_X_TAIL)
typedef char stamp_differs_from_variants_inc[SAME_AS_TABLE ? 1 : -1];

#if INTERLEAVED
#define ROW_A(n) (2 * (n))
#define ROW_B(n) (2 * (n) + 1)
#else
#define ROW_A(n) (n)
#define ROW_B(n) (columns + (n))
#endif
#define TOKEN_ROW(word) ROUTE_TOKEN(word)

LOCAL_MEMORY

/* Units [first, first + n), n <= 32, of row r of a: lanes 32 p + j of `values` are plane p of unit first + j. Stores next
 * to each other never have the same size and the same offset: the card would lose the second. */
#define STORE_UNITS(r, first, n, values)                                                              \
  {                                                                                                   \
    const int at_ = (first)&127, split_ = min_int(n, 128 - at_);                                      \
    for (int p_ = 0; p_ < 4; p_++) {                                                                  \
      const int to_ = 512 * ((first) >> 7) + 128 * p_;                                                \
      v_bf16_st_tnsr_partial(at2(to_ + at_, r), a, values, split_ - 1, 32 * p_);                      \
      if (split_ < (n))                                                                               \
        v_bf16_st_tnsr_partial(at2(to_ + 512, r), a, values, (n)-split_ - 1, 32 * p_ + split_);       \
    }                                                                                                 \
  }
#define STORE_ZEROS(r, first, n)                                                                      \
  for (int done_ = 0; done_ < (n); done_ += 32) STORE_UNITS(r, (first) + done_, min_int(32, (n)-done_), zeros)

#if BIAS
void main(tensor x, tensor w, tensor s, tensor ids, tensor bias, tensor a, tensor tables LUT_TENSOR,
#else
void main(tensor x, tensor w, tensor s, tensor ids, tensor a, tensor tables LUT_TENSOR,
#endif
          int first_expert, int units_each, int units_more) {
  BEGIN_KERNEL;
  int5 table_at = {0};
  const int chunks = get_dim_size(x, 0) >> 9;
  const int columns = get_dim_size(w, 1) >> 1;
  const int padding = (get_dim_size(a, 0) - columns) >> 2; /* units */
  SORT_ROUTES
  PLAN_BLOCKS(0)
  DECLARE_STREAM
  const bfloat128 zeros = (bfloat128)NOTHING;

  const int5 points_begin = get_index_space_offset(), points = get_index_space_size();
  for (int point = points_begin[0]; point < points_begin[0] + points[0]; point++) {
    const int begin = point * units_each + min_int(point, units_more);
    const int end = begin + units_each + (point < units_more ? 1 : 0);
    if (begin == end) continue;

    /* Rows of other ranks' routes, and the padding for the point that owns the last columns. */
    int route = 0;
    for (int t = 0; t < tokens; t++)
      for (int i = 0; i < top_k; i++) {
        const unsigned e = LOCAL_EXPERT(t, i);
        if (e >= (unsigned)get_dim_size(w, 2)) {
          STORE_ZEROS(route, begin, end - begin)
        }
        if (4 * end == columns) {
          STORE_ZEROS(route, end, padding)
        }
        route++;
      }

    if (local > 0) {
      START_STREAM(4 * begin, ROUTE_EXPERT(ROUTE_WORD(0)))
    }
    for (int i = 0; i < local; i += routes) {
      BEGIN_VISIT(i)
      LOAD_ACTIVATIONS(i, TOKEN_ROW)
      pair = 4 * begin;
      run_end = 4 * end;
      next_pair = 4 * begin;
      for (int tile = begin; tile < end; tile += 8) {
        units = min_int(8, end - tile);
#include "tiles.h"
        for (int q = 0; q < routes; q++) {
          float64 g;
          FINISHED(g, q)
          const float64 u = v_f32_mov_group_b(g, ALL_BYTES, SW_GROUP0_EN | SW_GROUP1_EN | ALL_DUAL_GROUPS, g);
          const float64 h = PASTE(act_, ACT)(g, u);
          const float128 both = {h, h};
          const bfloat128 converted = v_convert_f32_to_bf16_all_b(both, SW_RHNE);
          const bfloat128 packed = (bfloat128)v_u8_shuffle_b((uchar256)converted, TABLE(TABLE_PACK), 0, (uchar256)converted);
          STORE_UNITS(ROUTE_NUMBER(ROUTE_WORD(i + q)), tile, units, packed)
        }
      }
    }
  }
}
