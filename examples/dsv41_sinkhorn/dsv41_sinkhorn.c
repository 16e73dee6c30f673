/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinkhorn normalisation of the 4 x 4 matrices of manifold-constrained hyper-connections (arXiv 2512.24880), fp32: the
 * rows through softmax, + EPSILON; columns divided by their sum + EPSILON; then, iterations - 1 times, rows and columns
 * divided by theirs.
 *
 * Tensors, fastest dimension first: logits f32 [T, 16], y f32 [T, 16], tables (of other kernels). Entry 4 r + c is row
 * r, column c. A lane is a token, so that sums of rows and columns are sums of vectors and nothing crosses lanes.
 * tokens_each, tokens_more: the share of the points, as units_each and units_more of w13.h.
 *
 * Vector ops for 64 tokens, as the emulation counts them: 424 with one iteration, 120 for each further one; for 20,
 * 2704. All 16 entries stay in registers.
 */
#include "tpc/common.h"
#include "tpc/act.h"

#define EPSILON 1e-6f

/* What macros are stamped over: the rows, with the entries of each, and the columns. */
#define ROWS(DO) DO(m00, m01, m02, m03) DO(m10, m11, m12, m13) DO(m20, m21, m22, m23) DO(m30, m31, m32, m33)
#define COLUMNS(DO) DO(m00, m10, m20, m30) DO(m01, m11, m21, m31) DO(m02, m12, m22, m32) DO(m03, m13, m23, m33)

#define SUM(a, b, c, d) v_f32_add_b(v_f32_add_b(a, b), v_f32_add_b(c, d))
#define SCALE_ALL(a, b, c, d, factor) \
  a = v_f32_mul_b(a, factor);         \
  b = v_f32_mul_b(b, factor);         \
  c = v_f32_mul_b(c, factor);         \
  d = v_f32_mul_b(d, factor);

/* Sums are at least 5 EPSILON here, and reciprocal_f32 is as exact for any number whose reciprocal is normal: it treats
 * the exponent apart. */
#define NORMALISE(a, b, c, d)                                                     \
  {                                                                               \
    const float64 factor = reciprocal_f32(v_f32_add_b(SUM(a, b, c, d), EPSILON)); \
    SCALE_ALL(a, b, c, d, factor)                                                 \
  }

/* A selection and not a maximum: that would turn NaN into the limit. What is below it counts as e^-87, nothing beside
 * EPSILON. */
static inline float64 exp_below(float64 v, float64 top) {
  const float64 z = v_f32_sub_b(v, top);
  return exp_f32(v_f32_sel_less_f32_b(z, -87.0f, -87.0f, z));
}

#define SOFTMAX(a, b, c, d)                                                \
  {                                                                        \
    const float64 top = v_f32_max_b(v_f32_max_b(a, b), v_f32_max_b(c, d)); \
    a = exp_below(a, top);                                                 \
    b = exp_below(b, top);                                                 \
    c = exp_below(c, top);                                                 \
    d = exp_below(d, top);                                                 \
    const float64 factor = reciprocal_f32(SUM(a, b, c, d));                \
    a = v_f32_mac_b(a, factor, epsilon);                                   \
    b = v_f32_mac_b(b, factor, epsilon);                                   \
    c = v_f32_mac_b(c, factor, epsilon);                                   \
    d = v_f32_mac_b(d, factor, epsilon);                                   \
  }

/* Entries in their order, the coordinate one further each time. */
#define LOAD_ROW(a, b, c, d)               \
  float64 a = v_f32_ld_tnsr_b(at, logits); \
  at[1]++;                                 \
  float64 b = v_f32_ld_tnsr_b(at, logits); \
  at[1]++;                                 \
  float64 c = v_f32_ld_tnsr_b(at, logits); \
  at[1]++;                                 \
  float64 d = v_f32_ld_tnsr_b(at, logits); \
  at[1]++;
#define STORE_ROW(a, b, c, d) \
  v_f32_st_tnsr(at, y, a);    \
  at[1]++;                    \
  v_f32_st_tnsr(at, y, b);    \
  at[1]++;                    \
  v_f32_st_tnsr(at, y, c);    \
  at[1]++;                    \
  v_f32_st_tnsr(at, y, d);    \
  at[1]++;

void main(tensor logits, tensor y, tensor tables, int iterations, int tokens_each, int tokens_more) {
  (void)tables;
  const int5 points_begin = get_index_space_offset(), points = get_index_space_size();
  const float64 epsilon = v_f32_mov_b(EPSILON);
  int5 at = {0};
  for (int point = points_begin[0]; point < points_begin[0] + points[0]; point++) {
    const int begin = point * tokens_each + min_int(point, tokens_more);
    const int end = begin + tokens_each + (point < tokens_more ? 1 : 0);
    for (int token = (begin + 63) & ~63; token < end; token += 64) {
      at[0] = token;
      at[1] = 0;
      ROWS(LOAD_ROW)
      ROWS(SOFTMAX)
      COLUMNS(NORMALISE)
      for (int i = 1; i < iterations; i++) {
        ROWS(NORMALISE)
        COLUMNS(NORMALISE)
      }
      at[1] = 0;
      ROWS(STORE_ROW)
    }
  }
}
