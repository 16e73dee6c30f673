/* SPDX-License-Identifier: Apache-2.0
 *
 * Gate and up to one activation, fp32, without the lookup unit: 64 lanes at a time, about 40 ops for 32 columns.
 * The lanes of a tile: groups of 8, gate and up in turn (tile.h); results stand in the lanes of the gates.
 */
#ifndef MXK_TPC_ACT_H
#define MXK_TPC_ACT_H


/* e^z for z in [-87, 87], relative error about 1e-7: z = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 as the sum of a number of
 * few bits, so that n times it is exact, and the rest; the Taylor polynomial of e^r to degree 7; n is added to the
 * exponent. */
static inline float64 exp_f32(float64 z) {
  const float64 n = v_f32_nearbyint_b(v_f32_mul_b(z, 1.44269504088896341f), SW_RHNE);
  float64 r = v_f32_mac_b(n, 0.693359375f, z, SW_NEG);
  r = v_f32_mac_b(n, -2.12194440e-4f, r, SW_NEG);
  float64 p = v_f32_mov_b(1.0f / 5040);
  p = v_f32_madd_b(p, r, 1.0f / 720);
  p = v_f32_madd_b(p, r, 1.0f / 120);
  p = v_f32_madd_b(p, r, 1.0f / 24);
  p = v_f32_madd_b(p, r, 1.0f / 6);
  p = v_f32_madd_b(p, r, 0.5f);
  p = v_f32_madd_b(p, r, 1.0f);
  p = v_f32_madd_b(p, r, 1.0f);
  return (float64)v_i32_add_b((int64)p, v_i32_shl_b(v_convert_f32_to_i32_b(n, SW_RHNE), 23));
}

/* 1 / d for d in [1, 2^126): the bits of d subtracted from a constant are right to 12 %; each Newton step squares that. */
static inline float64 reciprocal_f32(float64 d) {
  float64 r = (float64)v_i32_sub_b(0x7EF311C7, (int64)d);
  for (int i = 0; i < 3; i++) {
    const float64 error = v_f32_mac_b(d, r, 1.0f, SW_NEG); /* 1 - d r */
    r = v_f32_mac_b(r, error, r);
  }
  return r;
}

/* h = g sigmoid(alpha g) (u + shift) with g = min(g, limit), u = clamp(u, -limit, limit). Selections, not min and max:
 * those would turn NaN into the limit. The exponent's argument may go through them: NaN
 * survives in g, which is a factor. */
static inline float64 gated(float64 g, float64 u, float limit, float alpha, float shift) {
  g = v_f32_sel_less_f32_b(limit, g, limit, g);
  u = v_f32_sel_less_f32_b(limit, u, limit, u);
  u = v_f32_sel_less_f32_b(u, -limit, -limit, u);
  const float64 z = v_f32_min_b(v_f32_max_b(v_f32_mul_b(g, -alpha), -87.0f), 87.0f);
  const float64 sigmoid = reciprocal_f32(v_f32_add_b(exp_f32(z), 1.0f));
  return v_f32_mul_b(v_f32_mul_b(g, sigmoid), v_f32_add_b(u, shift));
}

#define DEFINE_ACT(name, limit, alpha, shift) \
  static inline float64 act_##name(float64 g, float64 u) { return gated(g, u, limit, alpha, shift); }
MXK_ACTS(DEFINE_ACT)
#undef DEFINE_ACT

#endif
