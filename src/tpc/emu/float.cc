// SPDX-License-Identifier: Apache-2.0
//
// Floating-point arithmetic and comparisons of fp32 and bf16.
#include "tpc/emu/fma.h"
#include "tpc/emu/fp.h"
#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

using namespace mxk::emu;

namespace {

// Vectors as words. The lanes of a vector are read and written only through these copies and astype.
struct Words {
  alignas(16) uint32_t at[64];
};

template <class V>
Words words(const V& v) {
  return astype<Words>(v);
}

template <class V, class F>
V lanes2(const float64& a, const float64& b, F f) {
  const Words x = words(a), y = words(b);
  Words r;
  for (int i = 0; i < 64; ++i) r.at[i] = f(x.at[i], y.at[i]);
  return astype<V>(r);
}

uint32_t flip_of(int switches) { return switches & SW_NEG ? kSign : 0; }

float64 fma(const float64& a, const float64& b, const float64& c, int switches) {
  Words r;
  fma64(words(a).at, words(b).at, words(c).at, flip_of(switches), r.at);
  return astype<float64>(r);
}

float64 mul(const float64& a, const float64& b) {
  Words r;
  mul64(words(a).at, words(b).at, r.at);
  return astype<float64>(r);
}

float64 add(const float64& a, const float64& b, uint32_t flip = 0) {
  return lanes2<float64>(
      a, b, [flip](uint32_t x, uint32_t y) { return finish(bits_of(as_f32(flush(x)) + as_f32(flush(y ^ flip)))); });
}

// One rounding, to bf16; a result below the smallest normal number of bf16 after that is flushed.
bf16 product_bf16(uint32_t a, uint32_t b) {
  bf16 r;
  const double p = double{as_f32(flush(a))} * double{as_f32(flush(b))};
  const double size = p < 0 ? -p : p;
  if (p != p) {
    r.bits = kBf16Nan;
  } else if (size < 0x1p-126) {
    r.bits = static_cast<uint16_t>(((a ^ b) & kSign) >> 16 | (size < 0x1p-126 - 0x1p-134 ? 0u : 0x0080u));
  } else {
    r.bits = mxk::f32_to_bf16(static_cast<float>(p));  // exact in fp32, or beyond its end
  }
  return r;
}

float64 sel(const float64& a, const float64& b, const float64& c, const float64& d, bool (*take)(uint32_t, uint32_t)) {
  const Words x = words(a), y = words(b), u = words(c), v = words(d);
  Words r;
  for (int i = 0; i < 64; ++i) r.at[i] = take(x.at[i], y.at[i]) ? u.at[i] : v.at[i];
  return astype<float64>(r);
}

}  // namespace

float64 v_f32_add_b(const float64& a, const float64& b, int switches, const float64& income, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_add_b, switches);
  return predicate != polarity ? add(a, b) : income;
}

float64 v_f32_add_vb(const float64& a, const float64& b, int switches, const float64& income, const bool64& predicate,
                     bool polarity) {
  issue(Op::v_f32_add_vb, switches);
  float64 r = add(a, b);
  for (int i = 0; i < 64; ++i)
    if ((predicate.lane[i] != 0) == polarity) r.lane[i] = income.lane[i];
  return r;
}

float64 v_f32_sub_b(const float64& a, const float64& b, int switches, const float64& income, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_sub_b, switches);
  return predicate != polarity ? add(a, b, kSign) : income;
}

float128 v_f32_add_x2_b(const float128& a, const float64& b, const float64& c, int switches, const float128& income,
                        bool predicate, bool polarity) {
  issue(Op::v_f32_add_x2_b, switches);
  return predicate != polarity ? float128{add(a.v1, b), add(a.v2, c)} : income;
}

float64 v_f32_mul_b(const float64& a, const float64& b, int switches, const float64& income, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_mul_b, switches);
  return predicate != polarity ? mul(a, b) : income;
}

float128 v_f32_mul_x2_b(const float128& a, const float64& b, const float64& c, int switches, const float128& income,
                        bool predicate, bool polarity) {
  issue(Op::v_f32_mul_x2_b, switches);
  return predicate != polarity ? float128{mul(a.v1, b), mul(a.v2, c)} : income;
}

float64 v_f32_mac_b(const float64& a, const float64& b, const float64& accumulator, int switches, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_mac_b, switches, SW_NEG);
  return predicate != polarity ? fma(a, b, accumulator, switches) : accumulator;
}

float64 v_f32_madd_b(const float64& a, const float64& b, const float64& c, int switches, const float64& income,
                     bool predicate, bool polarity) {
  issue(Op::v_f32_madd_b, switches, SW_NEG);
  return predicate != polarity ? fma(a, b, c, switches) : income;
}

float128 v_f32_mac_x2_b(const float128& a, const float64& b, const float64& c, const float128& accumulator,
                        int switches, bool predicate, bool polarity) {
  issue(Op::v_f32_mac_x2_b, switches, SW_NEG);
  if (predicate == polarity) return accumulator;
  return {fma(a.v1, b, accumulator.v1, switches), fma(a.v2, c, accumulator.v2, switches)};
}

bfloat128 v_bf16_mul_b(const bfloat128& a, const bfloat128& b, int switches, const bfloat128& income, bool predicate,
                       bool polarity) {
  issue(Op::v_bf16_mul_b, switches);
  if (predicate == polarity) return income;
  if (plain_products(words(a).at, words(b).at)) {
    Words even, odd;
    bf16_mul(words(a).at, words(b).at, even.at, odd.at);
    for (int i = 0; i < 64; ++i) even.at[i] = bf16_of(even.at[i]) | bf16_of(odd.at[i]) << 16;
    return astype<bfloat128>(even);
  }
  bfloat128 r;
  for (int i = 0; i < 128; ++i)
    r.lane[i] = product_bf16(uint32_t{a.lane[i].bits} << 16, uint32_t{b.lane[i].bits} << 16);
  return r;
}

float128 v_bf16_mul_acc32_b(const bfloat128& a, const bfloat128& b, int switches, const float128& income,
                            bool predicate, bool polarity) {
  issue(Op::v_bf16_mul_acc32_b, switches);
  if (predicate == polarity) return income;
  Words even, odd;
  bf16_mul(words(a).at, words(b).at, even.at, odd.at);
  return {astype<float64>(even), astype<float64>(odd)};
}

float128 v_bf16_mac_acc32_b(const bfloat128& a, const bfloat128& b, const float128& accumulator, int switches,
                            bool predicate, bool polarity) {
  issue(Op::v_bf16_mac_acc32_b, switches, SW_NEG);
  if (predicate == polarity) return accumulator;
  Words even, odd;
  bf16_fma(words(a).at, words(b).at, words(accumulator.v1).at, words(accumulator.v2).at, flip_of(switches), even.at,
           odd.at);
  return {astype<float64>(even), astype<float64>(odd)};
}

float64 v_f32_abs_b(const float64& a, int switches, const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_abs_b, switches);
  if (predicate == polarity) return income;
  return lanes2<float64>(a, a, [](uint32_t x, uint32_t) { return magnitude(x); });
}

// The first operand where they are equal; the second where either is NaN.
float64 v_f32_min_b(const float64& a, const float64& b, int switches, const float64& income, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_min_b, switches);
  if (predicate == polarity) return income;
  return lanes2<float64>(a, b, [](uint32_t x, uint32_t y) { return less_or_equal(x, y) ? x : y; });
}

float64 v_f32_max_b(const float64& a, const float64& b, int switches, const float64& income, bool predicate,
                    bool polarity) {
  issue(Op::v_f32_max_b, switches);
  if (predicate == polarity) return income;
  return lanes2<float64>(a, b, [](uint32_t x, uint32_t y) { return less_or_equal(y, x) ? x : y; });
}

float64 v_f32_sel_less_f32_b(const float64& a, const float64& b, const float64& c, const float64& d, int switches,
                             const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_sel_less_f32_b, switches);
  return predicate != polarity ? sel(a, b, c, d, less) : income;
}

float64 v_f32_sel_eq_f32_b(const float64& a, const float64& b, const float64& c, const float64& d, int switches,
                           const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_sel_eq_f32_b, switches);
  return predicate != polarity ? sel(a, b, c, d, equal) : income;
}

bool64 v_f32_cmp_less_b(const float64& a, const float64& b, int switches, const bool64& income, bool predicate,
                        bool polarity) {
  issue(Op::v_f32_cmp_less_b, switches);
  if (predicate == polarity) return income;
  const Words x = words(a), y = words(b);
  bool64 r;
  for (int i = 0; i < 64; ++i) r.lane[i] = less(x.at[i], y.at[i]);
  return r;
}
