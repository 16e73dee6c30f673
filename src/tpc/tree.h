/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums across lanes, for many rows at once. combine_d(u, v) adds, in each of u and v, lanes that are d apart and keeps
 * u's sums in the lanes whose number has bit d clear, v's in those that have it set: 2 moves and 1 add. Six levels turn
 * 64 vectors into one whose lanes are their sums; which bit of a vector's number ends at which bit of the lane is the
 * order of the levels, here always 8, 16, 32, 1, 2, 4. A row's numbers are added in that order wherever the row stands,
 * so its sum does not depend on what else is computed.
 *
 * up_d(u, v), down_d(u, v) are the two operands of the add, for where one ADD X2 adds two pairs of them.
 */
#ifndef MXK_TPC_TREE_H
#define MXK_TPC_TREE_H

#define ALL_DUAL_GROUPS (SW_DUAL_GROUP0_EN | SW_DUAL_GROUP1_EN | SW_DUAL_GROUP2_EN | SW_DUAL_GROUP3_EN)

static inline float64 up_8(float64 u, float64 v) {
  return v_f32_mov_group_b(v, ALL_BYTES, SW_GROUP1_EN | ALL_DUAL_GROUPS, u);
}
static inline float64 down_8(float64 u, float64 v) {
  return v_f32_mov_group_b(u, ALL_BYTES, SW_GROUP0_EN | ALL_DUAL_GROUPS, v);
}
static inline float64 up_16(float64 u, float64 v) {
  return v_f32_mov_dual_group_all_b(v, ALL_BYTES, 0, 0, 2, 2, MkWrA(0, 3, 0, 3), u);
}
static inline float64 down_16(float64 u, float64 v) {
  return v_f32_mov_dual_group_all_b(u, ALL_BYTES, 1, 1, 3, 3, MkWrA(3, 0, 3, 0), v);
}
static inline float64 up_32(float64 u, float64 v) {
  return v_f32_mov_dual_group_all_b(v, ALL_BYTES, 0, 1, 0, 1, MkWrA(0, 0, 3, 3), u);
}
static inline float64 down_32(float64 u, float64 v) {
  return v_f32_mov_dual_group_all_b(u, ALL_BYTES, 2, 3, 2, 3, MkWrA(3, 3, 0, 0), v);
}
/* Dual group n in all four places. */
#define DUAL_GROUP(v, n) v_f32_mov_dual_group_all_b(v, ALL_BYTES, n, n, n, n, MkWrA(3, 3, 3, 3), v)

/* Inside groups of 8 lanes; directions are rows TABLE_UP and TABLE_DOWN. */
static inline float64 move(float64 from, uchar256 direction, float64 income) {
  return (float64)v_u8_shuffle_b((uchar256)from, direction, 0, (uchar256)income);
}

static inline float64 combine_8(float64 u, float64 v) { return v_f32_add_b(up_8(u, v), down_8(u, v)); }
static inline float64 combine_16(float64 u, float64 v) { return v_f32_add_b(up_16(u, v), down_16(u, v)); }
static inline float64 combine_32(float64 u, float64 v) { return v_f32_add_b(up_32(u, v), down_32(u, v)); }
static inline float64 combine_16_pair(float128 uv) { return combine_16(uv.v1, uv.v2); }
static inline float64 combine_in_group(float64 u, float64 v, uchar256 up, uchar256 down) {
  return v_f32_add_b(move(v, up, u), move(u, down, v));
}
#define COMBINE_IN_GROUP(result, level, u, v)             \
  {                                                       \
    const uchar256 up_ = TABLE(TABLE_UP + (level));       \
    const uchar256 down_ = TABLE(TABLE_DOWN + (level));   \
    result = combine_in_group(u, v, up_, down_);          \
  }

/* Two combines with one add. */
static inline float128 combine_8_x2(float64 u0, float64 v0, float64 u1, float64 v1) {
  float128 r;
  r.v1 = up_8(u0, v0);
  r.v2 = up_8(u1, v1);
  return v_f32_add_x2_b(r, down_8(u0, v0), down_8(u1, v1));
}
static inline float128 combine_16_x2(float64 u0, float64 v0, float64 u1, float64 v1) {
  float128 r;
  r.v1 = up_16(u0, v0);
  r.v2 = up_16(u1, v1);
  return v_f32_add_x2_b(r, down_16(u0, v0), down_16(u1, v1));
}
static inline float128 combine_32_x2(float64 u0, float64 v0, float64 u1, float64 v1) {
  float128 r;
  r.v1 = up_32(u0, v0);
  r.v2 = up_32(u1, v1);
  return v_f32_add_x2_b(r, down_32(u0, v0), down_32(u1, v1));
}
static inline float128 combine_in_group_x2(float64 u0, float64 v0, float64 u1, float64 v1, uchar256 up, uchar256 down) {
  float128 r;
  r.v1 = move(v0, up, u0);
  r.v2 = move(v1, up, u1);
  return v_f32_add_x2_b(r, move(u0, down, v0), move(u1, down, v1));
}

#endif
